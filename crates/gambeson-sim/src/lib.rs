//! Discrete-event simulator of an InfiniBand fabric whose adapters seal what they send: what keys, caches, filters and
//! marks cost before silicon exists (session-key-cache and infiniband-security-framework papers).
#![deny(unsafe_code)]

pub mod advise;
pub mod bench;
pub mod engine;
pub mod error;
pub mod experiment;
pub mod fabric;
pub mod filter;
pub mod marking;
mod memory;
pub mod model;
pub mod process;
pub mod reproduce;
pub mod routing;
pub mod security;
pub mod source;
pub mod statistics;
pub mod time;
pub mod topology;
pub mod trace;
pub mod traffic;
pub mod transport;

pub use error::Error;

/// The version with a digest of the simulator's sources behind it: results of another are not taken for this one's.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("GAMBESON_SIM_SOURCES"));
