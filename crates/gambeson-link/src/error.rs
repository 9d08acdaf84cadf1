//! What goes wrong with links, in sentences.

use std::fmt;
use std::io;

use gambeson_proto::policy::PolicyError;

/// Why something with a link did not work.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An own certificate, key, list of authorities or site directory is not usable.
    Identity(String),
    /// The other end is not who it should be, or does not accept us.
    Refused(String),
    /// The bytes are not what a domain sends: altered on the way, or of another version.
    Protocol(String),
    /// A startpoint does not allow it.
    Startpoint(String),
    /// It is not the message that it was to be.
    Message(String),
    /// A policy is not usable.
    Policy(String),
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

/// For what is passed on: the variant's number and its sentence.
impl Error {
    pub(crate) fn told(&self) -> (u8, String) {
        let kind = match self {
            Error::Identity(_) => 1,
            Error::Refused(_) => 2,
            Error::Protocol(_) => 3,
            Error::Startpoint(_) => 4,
            Error::Handler(_) => 5,
            Error::TimedOut(_) => 6,
            Error::Transform(_) => 8,
            Error::Message(_) => 9,
            Error::Policy(_) => 10,
            Error::Lost(_) | Error::System { .. } => 7,
        };
        (kind, self.to_string())
    }

    /// What somebody else told.
    pub(crate) fn heard(kind: u8, sentence: &[u8]) -> Self {
        let sentence = String::from_utf8_lossy(sentence).into_owned();
        match kind {
            1 => Error::Identity(sentence),
            2 => Error::Refused(sentence),
            3 => Error::Protocol(sentence),
            4 => Error::Startpoint(sentence),
            5 => Error::Handler(sentence),
            6 => Error::TimedOut(sentence),
            8 => Error::Transform(sentence),
            9 => Error::Message(sentence),
            10 => Error::Policy(sentence),
            _ => Error::Lost(sentence),
        }
    }

    /// The same once more.
    pub(crate) fn again(&self) -> Self {
        let (kind, sentence) = self.told();
        Error::heard(kind, sentence.as_bytes())
    }

    /// The same, with where it happened.
    pub(crate) fn within(&self, place: &str) -> Self {
        let (kind, sentence) = self.told();
        Error::heard(kind, format!("{place}: {sentence}").as_bytes())
    }
}

impl From<PolicyError> for Error {
    fn from(cause: PolicyError) -> Self {
        Error::Policy(cause.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Identity(what)
            | Error::Refused(what)
            | Error::Protocol(what)
            | Error::Startpoint(what)
            | Error::Message(what)
            | Error::Policy(what)
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
