//! What a page shows that is in no row of the log: who is connected, and how far standbys have come.

/// A standby that follows this service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standby {
    /// What its host is called.
    pub name: String,
    /// The last row that it says it has; none if it has not come yet.
    pub has: Option<u64>,
    /// When it was heard of last, in seconds since 1970.
    pub heard: Option<u64>,
}

/// Whom this service follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Following {
    /// The primary's host.
    pub primary: String,
    /// The last row that the primary said it has.
    pub has: Option<u64>,
    /// When it was heard of last, in seconds since 1970.
    pub heard: Option<u64>,
}

/// What the service knows of itself.
pub trait Live: Send + Sync {
    /// How many clients are connected, if that is known.
    fn clients(&self) -> Option<u64> {
        None
    }

    /// Who follows this service.
    fn standbys(&self) -> Vec<Standby> {
        Vec::new()
    }

    /// Whom it follows, as a standby.
    fn following(&self) -> Option<Following> {
        None
    }
}

/// Nothing is known.
impl Live for () {}
