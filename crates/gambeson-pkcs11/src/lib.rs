//! Keys in tokens, which they never leave: a TPM 2.0, a smart card, a hardware security module, by PKCS #11 (2.40).
//!
//! ```text
//!  Uri ─┬> Key: one key pair ──┬──> module: a library, loaded once ──> its tokens, with a session each
//!       │    sign, public key  │      │ a lock: one call at a time; begun anew when it does not answer
//!       └> SecretKey: HMAC ────┘      └ pin: from a file, or asked for
//! ```
//!
//! Modules are loaded when a key in one is named, and by nothing else. They do not survive a fork: a child has no key.
#![forbid(unsafe_code)]

mod error;
mod key;
mod module;
mod pin;
mod secret;
mod uri;

pub use error::Error;
pub use key::{Key, Made};
pub use pin::ask_with;
pub use secret::{Mac, SecretKey};
pub use uri::{SCHEME, Uri};
