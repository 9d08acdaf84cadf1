//! What can go wrong, in sentences.

use std::fmt;

/// Why a process was not started, or somebody not certified.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The request or a file says something that cannot be.
    Senseless(String),
    /// A daemon's rules cannot be followed.
    Rules(String),
    /// Somebody may not have what he asks for.
    Refused(String),
    /// A key service does not let this one do it.
    NotPermitted(String),
    /// The system, a file or the network does not do what is needed.
    Unavailable(String),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Senseless(what)
            | Error::Rules(what)
            | Error::Refused(what)
            | Error::NotPermitted(what)
            | Error::Unavailable(what) => out.write_str(what),
        }
    }
}

impl std::error::Error for Error {}

impl From<gambeson_pkcs11::Error> for Error {
    fn from(cause: gambeson_pkcs11::Error) -> Self {
        use gambeson_pkcs11::Error::{Refused, Uri};
        match &cause {
            Uri(_) => Error::Senseless(cause.to_string()),
            Refused(_) => Error::Refused(cause.to_string()),
            _ => Error::Unavailable(cause.to_string()),
        }
    }
}

impl From<gambeson_link::Error> for Error {
    fn from(cause: gambeson_link::Error) -> Self {
        use gambeson_link::Error::{Handler, Identity, Policy, Refused, Startpoint};
        match &cause {
            Refused(_) | Startpoint(_) | Handler(_) | Identity(_) | Policy(_) => Error::Refused(cause.to_string()),
            _ => Error::Unavailable(cause.to_string()),
        }
    }
}
