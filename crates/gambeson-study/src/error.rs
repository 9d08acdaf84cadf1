//! What ends a study early: sentences with what happened, where, and the remedy.

use std::path::Path;
use std::{fmt, io};

/// What went wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The experiment or a trace, before anything ran.
    Input(gambeson_sim::Error),
    /// One run of a sweep.
    Run {
        /// Its values and its seed.
        point: String,
        /// What the simulator said.
        cause: gambeson_sim::Error,
    },
    /// The folder of results, which the system does not give.
    Folder {
        /// What the system said.
        kind: io::ErrorKind,
        /// The sentence.
        what: String,
    },
    /// A result from elsewhere that is not the one that was asked for.
    Foreign(String),
}

impl Error {
    pub(crate) fn unwritable(path: &Path, cause: &io::Error) -> Self {
        Self::Folder { kind: cause.kind(), what: format!("{} cannot be written: {cause}", path.display()) }
    }
}

impl From<gambeson_sim::Error> for Error {
    fn from(cause: gambeson_sim::Error) -> Self {
        Self::Input(cause)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input(cause) => cause.fmt(f),
            Self::Run { point, cause } => write!(f, "with {point}: {cause}"),
            Self::Folder { what, .. } | Self::Foreign(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}
