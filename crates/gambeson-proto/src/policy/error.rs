//! What is wrong with a policy, where, and what to do about it.

use std::fmt;

/// A policy document that cannot be used. The text is a sentence with the file, the line and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyError {
    origin: String,
    line: Option<usize>,
    message: String,
}

impl PolicyError {
    pub(super) fn new(origin: &str, line: Option<usize>, message: impl Into<String>) -> Self {
        Self { origin: origin.to_owned(), line, message: message.into() }
    }

    /// The line the error is on, counted from one.
    pub fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(out, "{}:{line}: {}", self.origin, self.message),
            None => write!(out, "{}: {}", self.origin, self.message),
        }
    }
}

impl std::error::Error for PolicyError {}
