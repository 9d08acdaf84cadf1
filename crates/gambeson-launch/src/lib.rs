//! Secure process creation: processes on other hosts, started by a daemon that knows who asks.
//!
//! | module | what it is |
//! |---|---|
//! | [`authority`] | who certifies the site's hosts and users, and for how long |
//! | [`daemon`], [`rules`], [`audit_log`] | `gambesond`: who may start what, and what was started |
//! | [`identities`] | people who show a MUNGE credential or a Kerberos ticket and need no enrolment |
//! | [`partitions`] | hosts that share a secret, and who gets it |
//! | [`requester`], `branches` | who wants processes; how an order reaches many hosts |
//! | [`creator`], [`processes`], [`child`] | programs that start processes of their own, and those processes |
//! | [`wire`] | orders for processes, and what is said of them |
//! | [`nursery`] | keepers of processes, forked from a process that holds no secret |
#![deny(unsafe_code)]

mod account;
pub mod audit_log;
pub mod authority;
mod branches;
mod cgroup;
pub mod child;
mod context;
pub mod creator;
pub mod daemon;
mod error;
mod execute;
pub mod identities;
mod keeper;
pub mod nursery;
pub mod partitions;
pub mod processes;
pub mod requester;
pub mod rules;
mod serve;
pub mod services;
pub mod wire;

pub use error::Error;
pub use keeper::descendants;
