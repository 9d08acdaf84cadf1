//! Sealed files (docs/files.md, docs/file-format.md): blocks are sealed on their way to a *body* of bytes that nobody
//! trusts, and anchored when the file is closed.
//!
//! ```text
//!  request: extents, buffer ── plan: what of which share ──┬─ read: fetch, judge by the tree, open
//!                                                          └─ write: lock, read what is there, seal
//!  head ── sealed file ── session: open for writing ── journal ── anchor: entry tables, digests, header, key store
//!  verify: every share looked at ── accept: what is there anchored for what it is ── rewrap: keys under newer labels
//!  create: offers of keys by label, the table, its signatures
//!  below: one body, or of a detached file two, the sidecar's and the data's ── beside: which it is, by name
//! ```
//! Everything that ranks of a job share out among themselves is in halves: one makes a value, another takes it.

mod accept;
mod access;
mod below;
mod beside;
mod body;
mod create;
mod error;
mod head;
mod lock;
mod plan;
mod read;
mod recent;
mod rewrap;
mod sealed;
mod session;
mod size;
mod tree;
mod verify;
mod write;
mod written;

pub use accept::Examined;
pub use below::Below;
pub use beside::{Form, data_missing, form, open, remove_sidecar, sidecar, sidecar_of};
pub use body::{Body, LocalBody, Piece};
pub use create::{
    Map, Offer, Shape, add, compose, create, draw_file_id, empty_state, make_room, offer, rewrap, sign, table,
    write_first, write_first_at,
};
pub use error::{Cause, Error};
pub use head::{Head, is_sealed};
pub use lock::{Held, Locks, Mode};
pub use plan::{Access, Extent, Plan, Run};
pub use read::Fetch;
pub use sealed::{Anchoring, SealedFile};
pub use session::{Settled, Then};
pub use verify::{Finding, Verified};
pub use write::Staged;
pub use written::{Dirty, RawEntry, Written};
