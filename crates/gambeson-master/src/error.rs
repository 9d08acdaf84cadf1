//! Why a master key does not wrap or unwrap, in sentences.

use std::fmt;

/// Displays as a sentence with the place, what happened and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MasterError {
    /// What names the place is not understood.
    Place(String),
    /// The master key is there, and is not to be used so: a wrong passphrase or PIN, no such key, one that others can read.
    Refused(String),
    /// What holds it does not answer.
    Unavailable(String),
    /// What was to be unwrapped was wrapped by another master key, in another context, or was altered.
    NotWrappedByIt(String),
}

impl fmt::Display for MasterError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place(what) | Self::Refused(what) | Self::Unavailable(what) | Self::NotWrappedByIt(what) => {
                out.write_str(what)
            }
        }
    }
}

impl std::error::Error for MasterError {}

impl From<gambeson_pkcs11::Error> for MasterError {
    fn from(error: gambeson_pkcs11::Error) -> Self {
        match error {
            gambeson_pkcs11::Error::Uri(what) => Self::Place(what),
            gambeson_pkcs11::Error::Unavailable(what) => Self::Unavailable(what),
            other => Self::Refused(other.to_string()),
        }
    }
}

pub(crate) fn no_random_numbers(cause: getrandom::Error) -> MasterError {
    MasterError::Unavailable(format!("the kernel gives no random numbers: {cause}"))
}
