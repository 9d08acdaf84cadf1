//! Partition enforcement in switches against floods under keys that nobody has: duplicate tables (DT), ingress filters
//! (IF) and stateful ingress filters (SIF) with the traps and the manager that turn them on (IBA paper, section 5.3).
//!
//! ```text
//!  attacker ──> ingress port: PortFilter ──> ... ──> victim's adapter: key mismatch, Reporter
//!                     ^                                        │ trap (key, source)
//!                     └── enable (port, key) ── Manager <──────┘
//! ```

mod config;
mod manager;
mod port;

pub use config::{FilterConfig, Scheme};
pub use manager::{Enable, Manager, ManagerStats, Reporter};
pub use port::{FilterStats, PortFilter, Verdict};
