//! What can be wrong with what the simulator is given: sentences with the file, the place in it and the remedy.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// What was wrong with the input.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file the system does not give.
    File {
        /// Which.
        file: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A trace that breaks its format, or the rules of MPI.
    Trace {
        /// The file, or the name of a job that was made and not read.
        file: String,
        /// The rank within it, where one is to blame.
        rank: Option<u32>,
        /// Where there, if that is known.
        place: Option<Place>,
        /// What is wrong and what to do about it.
        what: String,
    },
    /// A configuration that makes no sense.
    Config {
        /// Its file, where it came from one.
        file: Option<PathBuf>,
        /// The line in it, from 1.
        line: Option<usize>,
        /// The key of an experiment that it is about, as far as that is known: `security`, `traffic.0`.
        key: Option<String>,
        /// What is wrong and what to do about it.
        what: String,
    },
    /// A simulated network or job that came to a standstill.
    Stuck(String),
    /// A run that its caller did not let go on.
    Stopped,
}

/// Where in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A record of the rank, from 0.
    Record(u32),
    /// A line of a text, from 1.
    Line(u32),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(record) => write!(f, "record {record}"),
            Self::Line(line) => write!(f, "line {line}"),
        }
    }
}

impl Error {
    /// A configuration whose file the caller does not know.
    pub fn config(what: impl Into<String>) -> Self {
        Self::Config { file: None, line: None, key: None, what: what.into() }
    }

    /// Says which key of an experiment an error is about.
    pub(crate) fn about(key: &str) -> impl Fn(Self) -> Self {
        move |error| match error {
            Self::Config { file: None, line: None, key: None, what } => {
                Self::Config { file: None, line: None, key: Some(key.into()), what }
            }
            other => other,
        }
    }

    pub(crate) fn trace(file: &str, rank: Option<u32>, place: Option<Place>, what: impl Into<String>) -> Self {
        Self::Trace { file: file.to_owned(), rank, place, what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, cause } => write!(f, "{} cannot be read: {cause}", file.display()),
            Self::Trace { file, rank, place, what } => {
                write!(f, "{file}")?;
                if let Some(rank) = rank {
                    write!(f, ", rank {rank}")?;
                }
                if let Some(place) = place {
                    write!(f, ", {place}")?;
                }
                write!(f, ": {what}")
            }
            Self::Config { file, line, what, .. } => {
                if let Some(file) = file {
                    write!(f, "{}", file.display())?;
                    if let Some(line) = line {
                        write!(f, ":{line}")?;
                    }
                    write!(f, ": ")?;
                }
                write!(f, "{what}")
            }
            Self::Stuck(what) => f.write_str(what),
            Self::Stopped => f.write_str("the run was stopped before its end"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { cause, .. } => Some(cause),
            _ => None,
        }
    }
}
