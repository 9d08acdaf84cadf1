//! Partitions as objects: hosts of a site, or of several, that share a secret which no other host gets.
//!
//! ```text
//!  gambeson partition create|add|remove|rotate|share      the authority's host of the site that the partition is of
//!      └─> registry: members, partner sites, secrets by epoch
//!                 │ links: the secret, to hosts that are members
//!                 ├──────────────────> gambesond of a member, which keeps it in memory
//!                 │ links, both keys pinned          │ a socket of its host's own
//!                 └──> gambesond of a partner        └──> gambeson run, keep: the key of one job
//!                      site's authority's host ──> its members
//! ```
//! That is how the InfiniBand security paper hands out partition keys (P_SK, sections 5.1.3 and 5.1.4): a subnet's
//! manager is the site's authority, and TLS takes the place of SM_SK and SSM_SK. No process of a job ever has a
//! partition's secret: it gets HKDF(secret of the epoch, job id), and gets it from its own host's daemon. A host that is
//! no member cannot give it.
//!
//! | module | what it is |
//! |---|---|
//! | `registry` | what the authority's host has in its folder of partitions, and who may have a secret |
//! | `record` | what is written down of a partition |
//! | `message` | what asks for a secret, or for a job's key, and what answers |
//! | `distribution` | a daemon that hands secrets out, and one that asks for them |
//! | `local` | how a host's accounts ask their daemon for a job's key |

mod distribution;
mod local;
mod message;
mod record;
mod registry;

pub(crate) use distribution::{Distribution, Holder};
pub(crate) use local::Desk;
pub use local::job_key;
pub use record::Source;
pub use registry::{Listed, Registry};

#[cfg(test)]
mod tests;
