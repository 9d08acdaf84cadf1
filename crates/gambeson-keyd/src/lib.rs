//! The key service: labels with their keys, who may have them, and what was done with them, in one database.
//!
//! ```text
//! access: who may do what with a label
//!   │
//! database ── writer: changes, many in one commit
//!   │   ├── snapshot, transaction: labels, records, anchors
//!   │   ├── envelope: master key ──> database key ──> records
//!   │   ├── batch: what a standby follows by
//!   │   └── backup, verification
//!   └── audit: the log, chained
//! wire: questions and answers
//!   ├── service ── rules: what its administrator decides
//!   │     └── control: a socket for its administrator, on its host
//!   ├── standby: two services with the same labels
//!   └── client ── place: addresses of services
//! page: what officers see of it in a browser, and metrics
//! partitions: hosts' secrets, in records of the same database
//! ```
#![forbid(unsafe_code)]

pub mod access;
pub mod audit;
pub mod client;
pub mod control;
pub mod database;
mod error;
pub mod page;
pub mod partitions;
pub mod rules;
pub mod service;
pub mod standby;
pub mod wire;

pub use access::{Grant, LabelRecord, Right, Rights, Who};
pub use audit::{Event, Row, Tail};
pub use database::{Database, Snapshot, Transaction};
pub use error::Error;
