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
        /// The record of that rank from 0, or the line of a text from 1.
        record: Option<u64>,
        /// What is wrong and what to do about it.
        what: String,
    },
    /// A configuration that makes no sense.
    Config {
        /// Its file, where it came from one.
        file: Option<PathBuf>,
        /// The line in it, from 1.
        line: Option<usize>,
        /// What is wrong and what to do about it.
        what: String,
    },
    /// A simulated network or job that came to a standstill.
    Stuck(String),
}

impl Error {
    /// A configuration whose file the caller does not know.
    pub fn config(what: impl Into<String>) -> Self {
        Self::Config { file: None, line: None, what: what.into() }
    }

    pub(crate) fn trace(file: &str, rank: Option<u32>, record: Option<u64>, what: impl Into<String>) -> Self {
        Self::Trace { file: file.to_owned(), rank, record, what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, cause } => write!(f, "{} cannot be read: {cause}", file.display()),
            Self::Trace { file, rank, record, what } => {
                write!(f, "{file}")?;
                if let Some(rank) = rank {
                    write!(f, ", rank {rank}")?;
                }
                if let Some(record) = record {
                    write!(f, ", record {record}")?;
                }
                write!(f, ": {what}")
            }
            Self::Config { file, line, what } => {
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
