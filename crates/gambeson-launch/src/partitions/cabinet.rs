//! Where a site has its partitions: a folder of its authority's host, or the database of its key service.

use serde_json::Value;

use super::message::Grant;
use super::record::{Epoch, Partition};
use crate::Error;

/// What a log has to say of something, by name.
pub type About = Vec<(&'static str, Value)>;

/// Partitions to look at.
pub trait Shelf {
    /// What they are called, in order.
    ///
    /// # Errors
    /// When that cannot be read.
    fn names(&self) -> Result<Vec<String>, Error>;

    /// One of them, if there is one of that name.
    ///
    /// # Errors
    /// When it cannot be read, or is not as it was written.
    fn partition(&self, name: &str) -> Result<Option<Partition>, Error>;

    /// The epoch that one of this site's is in.
    ///
    /// # Errors
    /// As [`Shelf::partition`], and when there is none.
    fn epoch(&self, name: &str) -> Result<Epoch, Error>;
}

/// Partitions to change, by one at a time.
pub trait Drawer: Shelf {
    /// Writes a partition; without an epoch it stays in that which it is in.
    ///
    /// # Errors
    /// When it cannot be written.
    fn put(&mut self, name: &str, partition: &Partition, epoch: Option<&Epoch>, about: &About) -> Result<(), Error>;
}

/// What decides who gets a secret, looking at partitions, and what a log is to say of it.
pub type Decision = Box<dyn FnOnce(&dyn Shelf) -> (About, Result<Grant, Error>) + Send>;

/// Partitions whose secrets are handed out, with a log of that.
pub trait Cabinet: Shelf + Send + Sync {
    /// Decides, and writes down what came of it, before it returns. `asks`: who is at the other end, as links prove it.
    ///
    /// # Errors
    /// What was decided, or that it could not be written down.
    fn give(&self, asks: &gambeson_link::Peer, decide: Decision) -> Result<Grant, Error>;

    /// What is another after each change.
    fn mark(&self) -> Mark;
}

/// What is another after each change of a cabinet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When it was, or how many there were.
    pub at: u128,
    /// Whether a change could have come since then that this does not show.
    pub is_settled: bool,
}
