//! Memory for secrets: pages that a forked child finds empty and that no core dump holds (key discipline, rule 6).
//!
//! A library that others load puts everything that it allocates there, with [`SecretPages`] as its global allocator. What
//! is part of somebody's program puts its secrets there, each in a [`PageBox`].
//!
//! A child of fork or of a raw clone without shared memory finds the pages all zero. A vfork child shares its parent's
//! memory until it calls exec, as it shares every other secret of its parent; it may do nothing else.

mod arena;
pub mod huge;
mod page_box;

pub use arena::{SecretPages, alive, allocations, may_swap};
pub use page_box::{PageBox, PageSlice, Wipeable};
