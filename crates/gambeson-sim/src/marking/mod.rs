//! Source identification: marks that switches leave in a packet so that its receiver finds the port it came from,
//! whatever source address it claims (IBA paper, section 5.4).
//!
//! Deterministic packet marking ([`Dpm`]) records the ports on the way up a fat tree; deterministic distance marking
//! ([`Ddpm`]) the distance travelled on a mesh, torus or hypercube. One packet is enough for either, on any route.
//!
//! A mark is made from nothing at the port where a node's packet enters the fabric, so that a node cannot bring its
//! own. A switch in hostile hands can write what it likes: marks are outside of what the tag covers, see [`field`].

pub mod field;

mod ddpm;
mod dpm;
mod marker;

pub use ddpm::{Ddpm, Shape};
pub use dpm::Dpm;
pub use marker::Marker;
