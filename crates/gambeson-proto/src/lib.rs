//! Sans-IO core of Gambeson: bytes, time and randomness come in from outside.
//!
//! | module | what it is |
//! |---|---|
//! | [`suite`], [`aead`] | what a policy may choose; AES-GCM with its key inline |
//! | [`identity`] | an endpoint's key, and the card that is its address |
//! | [`key_schedule`], [`session`], [`key_cache`] | keys of job, pair and epoch; sequences; expanded keys |
//! | [`record`] | the one unit on the wire |
//! | [`startpoint`] | what a process holds of another's endpoint, and what the endpoint knows of it |
//! | [`policy`], [`credential`] | how each pair is protected; what the job's processes share |
//! | [`directory`] | what a site says of its hosts and networks, signed |
//! | [`file`] | sealed files: where everything stands, and what is sealed how |
//! | [`ledger`] | the page in which a rank reports |
//! | [`trace`] | what a traced job writes down of its messages |
//! | [`matching`] | receives and messages find each other |
//! | [`endpoint`] | all of it together: one endpoint, without I/O |
#![deny(unsafe_code)]

pub mod aead;
pub mod communicators;
pub mod credential;
pub mod directory;
pub mod endpoint;
pub mod file;
pub mod frame;
pub mod identity;
pub mod key_cache;
pub mod key_schedule;
pub mod ledger;
pub mod matching;
#[cfg(feature = "nonce-oracle")]
pub mod nonce_oracle;
pub mod policy;
mod primitives;
pub mod record;
pub mod secret;
pub mod session;
pub mod staging;
pub mod startpoint;
pub mod suite;
pub mod trace;
