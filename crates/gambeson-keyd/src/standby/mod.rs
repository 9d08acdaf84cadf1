//! Two services with the same labels: one makes changes, the other follows its log and takes its place when somebody says so.
//!
//! ```text
//!  standby ── SEED ────> the database's key, once; the standby wraps it with a master key of its own
//!          ── FOLLOW ──> what it has up to here is on its disk; a batch comes back as soon as there is one
//!          ── ASIDE ───> rows of what it gave itself, for the primary's log
//!          ── HASH ────> which rows do both have? for one that is made anew
//!  anyone  ── GREET ───> which database, which role, which term
//! ```
//!
//! `duty` is what a service does at the moment; `followers` is what a primary knows of its standbys, and how long it waits
//! for them; `following` is a standby's thread; `peers` looks whether another was promoted; `source` is how a standby is made.

mod duty;
mod followers;
mod following;
mod message;
mod peers;
mod primary;
mod source;

pub use duty::{Doing, Duty, Standing};
pub use followers::FollowerState;
pub use primary::{host_of, remember};
pub use source::Source;
