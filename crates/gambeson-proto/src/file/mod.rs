//! Sealed files, without I/O: where everything stands, what is sealed how, and what a reader may believe
//! (docs/file-format.md).
//!
//! | module | what it is |
//! |---|---|
//! | [`geometry`] | where header, tables, slots and data stand in the file |
//! | [`region`] | which bytes are under which key: parts, regions, the shares of a block |
//! | [`suite`], [`share`] | the ciphers; sealing and opening the bytes of one region in one block |
//! | [`entry`] | what a slot says of a share: nonce, tag, generation, length |
//! | [`tree`] | digests over the entries of a closed file |
//! | [`header`], [`table`], [`state`] | what the file says of itself, signed, in two copies |
//! | [`context`] | what is signed, wrapped and committed to, as bytes |

mod cipher;
mod codec;
pub mod context;
pub mod entry;
pub mod geometry;
pub mod header;
pub mod region;
pub mod share;
pub mod state;
pub mod suite;
pub mod table;
pub mod tree;

pub use context::KeyId;
pub use entry::Entry;
pub use geometry::Geometry;
pub use header::Header;
pub use region::{BlockMap, Part, Regions};
pub use share::DataKey;
pub use state::State;
pub use suite::FileSuite;
pub use table::Table;

/// Which file it is: 16 random bytes, drawn when it is made. It never changes.
pub type FileId = [u8; 16];
/// A SHA-256.
pub type Digest = [u8; 32];
