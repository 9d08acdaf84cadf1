//! What can go wrong with a token, in sentences.

use std::fmt;

/// Why there is no key, or no signature.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The URI is none, or says something that is not done here.
    Uri(String),
    /// The token is there, and is not to be used so: a wrong PIN, no such key, one that could leave.
    Refused(String),
    /// The module or its token does not answer.
    Unavailable(String),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Uri(what) | Error::Refused(what) | Error::Unavailable(what) => out.write_str(what),
        }
    }
}

impl std::error::Error for Error {}
