//! Links between the processes of distributed programs, with a security context each.
//!
//! | module | what it is |
//! |---|---|
//! | [`domain`], [`identity`] | a process's place among links; who it is, and whom it talks to |
//! | [`endpoint`], [`startpoint`], [`request`] | handlers, what is bound to them, and what they are asked |
//! | [`region`] | memory that startpoints put into and get from |
//! | [`transform`] | what becomes of messages before they are protected |
//! | [`group`] | many startpoints called together, by a tree |
//! | [`carrier`] | what moves bytes between two domains: TCP or shared memory |
//! | [`relay`] | how a domain is reached that can only connect outward |
#![deny(unsafe_code)]

mod answers;
pub mod carrier;
mod desk;
pub mod domain;
pub mod endpoint;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod gather;
pub mod group;
mod handshake;
pub mod identity;
mod job;
mod link;
mod names;
pub mod pack;
mod policy;
mod pool;
mod private_key;
mod reconnect;
pub mod refusals;
pub mod region;
pub mod relay;
pub mod request;
mod resumption;
mod route;
mod session;
mod shared;
mod site;
mod source;
pub mod startpoint;
mod state;
mod stranger;
mod stream;
pub mod transform;

pub use domain::{Config, Domain, Endpoint, Progress};
pub use endpoint::{Attributes, Handlers, LinkName, Request};
pub use error::Error;
pub use gambeson_proto::policy::Policy;
pub use gambeson_proto::startpoint::{AddressKind as Transport, Caveat, Refusal, Startpoint as Capability, Window};
pub use gambeson_proto::suite::Protection;
pub use gather::Gather;
pub use group::{FORWARD, Group, Operation};
pub use identity::{Expected, GUEST, Identity, KeyHash, Peer, Signed, Trust};
pub use pack::Pack;
pub use policy::read_policy;
pub use refusals::Refusals;
pub use region::Region;
pub use request::Call;
pub use startpoint::{Answers, Pending, Startpoint};
pub use transform::{Mapping, Transform};
