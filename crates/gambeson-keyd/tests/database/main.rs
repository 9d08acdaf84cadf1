//! The database by its interface, and its file by SQLite's.

mod anchors;
mod backups;
mod changes;
mod full;
mod harness;
mod kill;
mod partitions;
mod rights;
mod standbys;
mod tampering;
mod throughput;
