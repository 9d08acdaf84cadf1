//! Secure process creation: processes on other hosts, started by a daemon that knows who asks.
//!
//! | module | what it is |
//! |---|---|
//! | [`authority`] | who certifies the site's hosts and users, and for how long |
#![deny(unsafe_code)]

pub mod authority;
mod error;

pub use error::Error;
