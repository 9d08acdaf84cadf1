//! What goes wrong with links, in sentences.

use std::fmt;
use std::io;

/// Why something with a link did not work.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An own certificate, key or list of authorities is not usable.
    Identity(String),
    /// The other end is not who it should be, or does not accept us.
    Refused(String),
    /// The bytes are not what a domain sends: altered on the way, or of another version.
    Protocol(String),
    /// A startpoint does not allow it.
    Startpoint(String),
    /// A transform module is missing, or does not take a message.
    Transform(String),
    /// The handler at the endpoint says no.
    Handler(String),
    /// Nothing came in time.
    TimedOut(String),
    /// The other end is gone.
    Lost(String),
    /// The operating system says no.
    System {
        /// What was tried.
        what: String,
        /// What it says.
        cause: io::Error,
    },
}

impl Error {
    pub(crate) fn identity(what: String) -> Self {
        Error::Identity(what)
    }

    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        |cause| Error::System { what, cause }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Identity(what)
            | Error::Refused(what)
            | Error::Protocol(what)
            | Error::Startpoint(what)
            | Error::Transform(what)
            | Error::Handler(what)
            | Error::TimedOut(what)
            | Error::Lost(what) => out.write_str(what),
            Error::System { what, cause } => write!(out, "{what}: {cause}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::System { cause, .. } => Some(cause),
            _ => None,
        }
    }
}
