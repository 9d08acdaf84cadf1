//! Master keys: what wraps the key of a key service's database.
#![forbid(unsafe_code)]

use std::fmt;

use gambeson_proto::secret::Secret32;

/// A key that wraps others, and stays where it is.
pub trait MasterKey: Send + Sync {
    /// What sentences call it.
    fn name(&self) -> String;

    /// Wraps a key, bound to a context.
    ///
    /// # Errors
    /// A sentence.
    fn wrap(&self, context: &[u8], key: &Secret32) -> Result<Vec<u8>, MasterError>;

    /// The key that was wrapped in this context.
    ///
    /// # Errors
    /// A sentence.
    fn unwrap(&self, context: &[u8], wrapped: &[u8]) -> Result<Secret32, MasterError>;
}

/// Why a master key does not serve: a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MasterError(pub String);

impl fmt::Display for MasterError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for MasterError {}
