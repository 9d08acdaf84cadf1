//! Master keys: what the database key of the key service is wrapped by, so that the database alone opens for nobody.
//!
//! ```text
//! Place ──> open, make ──> MasterKey: wrap, unwrap ──> wrapping: one form, whatever holds the master key
//!   │ file:PATH               ├─ file: under a passphrase
//!   │ pkcs11:...              ├─ token: gambeson-pkcs11 asks it
//!   └ kmip://HOST/ID          └─ kmip: the site's key server, over mutual TLS
//! ```
#![forbid(unsafe_code)]

mod error;
mod file;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod kmip;
mod place;
mod token;
mod wrapping;

use gambeson_proto::secret::Secret32;
use zeroize::Zeroizing;

pub use error::MasterError;
pub use kmip::Address;
pub use place::Place;

/// A key that wraps other keys, wherever it is.
pub trait MasterKey: Send + Sync {
    /// Its place, in the words that [`Place`] reads. There is no secret in them.
    fn name(&self) -> String;

    /// Wraps a key; two wrappings of one key differ. What comes back was unwrapped once to see that it can be.
    ///
    /// # Errors
    /// When what holds the master key does not answer, or refuses.
    fn wrap(&self, context: &[u8], key: &Secret32) -> Result<Vec<u8>, MasterError>;

    /// The key that was wrapped in this context.
    ///
    /// # Errors
    /// As [`MasterKey::wrap`], and when it was wrapped by another master key, or in another context.
    fn unwrap(&self, context: &[u8], wrapped: &[u8]) -> Result<Secret32, MasterError>;
}

/// Asks a person, or a file that he has named, for a passphrase: the prompt goes in. Nothing: there is nobody to ask.
pub type Ask<'a> = dyn FnMut(&str) -> Option<Zeroizing<Vec<u8>>> + 'a;

/// Whether a master key was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// It was made now.
    Now,
    /// It was there.
    Before,
}

/// The master key at a place. PINs of tokens are asked for as everywhere (`gambeson_pkcs11::ask_with`).
///
/// # Errors
/// When there is none, it stays locked, others can get at it, or what holds it does not answer.
pub fn open(place: &Place, ask: &mut Ask<'_>) -> Result<Box<dyn MasterKey>, MasterError> {
    Ok(match place {
        Place::File(path) => Box::new(wrapping::Wrapper(file::File::open(path, ask)?)),
        Place::Token(uri) => Box::new(wrapping::Wrapper(token::Token::open(uri)?)),
        Place::Server(address) => Box::new(wrapping::Wrapper(kmip::Server::open(address)?)),
    })
}

/// The master key at a place, made there if there is none. A new passphrase is asked for twice. A key server gives what it
/// makes a name of its own: [`MasterKey::name`] says the place with it.
///
/// # Errors
/// As [`open`], and when none can be made there.
pub fn make(place: &Place, ask: &mut Ask<'_>) -> Result<(Box<dyn MasterKey>, Made), MasterError> {
    fn held<H: wrapping::Holder + 'static>((holder, made): (H, Made)) -> (Box<dyn MasterKey>, Made) {
        (Box::new(wrapping::Wrapper(holder)), made)
    }
    Ok(match place {
        Place::File(path) => held(file::File::open_or_make(path, ask)?),
        Place::Token(uri) => held(token::Token::open_or_make(uri)?),
        Place::Server(address) => held(kmip::Server::open_or_make(address)?),
    })
}
