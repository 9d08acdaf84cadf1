//! What a process finds on its host: the job it belongs to, and the files that say what its policy is and what the site
//! says of its hosts.
//!
//! gambeson-proto reads and writes no files; here they are opened, and refused where others could have written or read
//! them (rules 7 and 8 of the threat model).
#![forbid(unsafe_code)]

pub mod directory;
pub mod holder;
pub mod job;
pub mod policy;
