//! Partitions as objects: hosts of a site, or of several, that share a secret which no other host gets.
//!
//! ```text
//!  gambeson partition create|add|remove|rotate|share      on the authority's host, or at the site's key service
//!      └─> registry: members, partner sites, secrets by epoch, in a cabinet: folder, or database
//!                 │ links: the secret, to hosts that are members
//!                 ├──────────────────> gambesond of a member, which keeps it in memory
//!                 │ links, both keys pinned          │ a socket of its host's own
//!                 └──> key service of a partner      └──> gambeson run, keep: the key of one job
//!                      site, or gambesond of its
//!                      authority's host ──> its members
//! ```
//! That is how the InfiniBand security paper hands out partition keys (P_SK, sections 5.1.3 and 5.1.4): a subnet's
//! manager is the site's key service, or its authority where there is none, and TLS takes the place of SM_SK and SSM_SK. No
//! process of a job ever has a partition's secret: it gets HKDF(secret of the epoch, job id), and gets it from its own
//! host's daemon. A host that is no member cannot give it.
//!
//! | module | what it is |
//! |---|---|
//! | `registry` | what becomes of partitions, and who may have a secret |
//! | `cabinet` | where they are, and what is written down of who got what |
//! | `folder` | a cabinet of files, on the authority's host of a site without a key service |
//! | `record` | what is written down of a partition |
//! | `message` | what asks for a secret, or for a job's key, and what answers |
//! | `distribution` | who hands secrets out |
//! | `holder` | a daemon that asks for them |
//! | `local` | how a host's accounts ask their daemon for a job's key |

mod cabinet;
mod distribution;
mod folder;
mod holder;
mod local;
mod message;
mod record;
mod registry;

pub use cabinet::{About, Cabinet, Decision, Drawer, Mark, Shelf};
pub use distribution::Distribution;
pub use folder::Folder;
pub(crate) use folder::Logged;
pub(crate) use holder::Holder;
pub(crate) use local::Desk;
pub use local::job_key;
pub use message::Grant;
pub use record::{Epoch, Partition, Record, Source};
pub use registry::{Change, Listed, change, list, take_in};

#[cfg(test)]
mod tests;
