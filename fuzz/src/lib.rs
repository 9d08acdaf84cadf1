//! What the fuzz targets do with one input: plain functions that panic when a promise is broken.
//!
//! libFuzzer calls them from fuzz_targets/; the test `fuzz_replay` of crates/gambeson includes this file
//! and calls them with the seeds in corpus/ and mutations of those, on any toolchain.

mod activation;
mod card;
mod credential;
mod directory;
mod endpoint;
mod enrolment;
mod file;
mod frame;
mod host;
mod input;
mod key_file;
mod keyd;
mod keyd_batch;
mod kmip_response;
mod link;
mod matching;
mod order;
mod policy;
mod record;
pub mod seeds;
mod startpoint;
mod trace;

pub use activation::activation;
pub use card::card;
pub use credential::credential;
pub use directory::directory;
pub use endpoint::endpoint;
pub use enrolment::enrolment;
pub use file::{file_entry, file_header, file_regions};
pub use frame::frame;
pub use key_file::key_file;
pub use keyd::keyd_wire;
pub use keyd_batch::keyd_batch;
pub use kmip_response::kmip_response;
pub use link::{link_fabric, link_greeting, link_handshake, link_session, link_stranger};
pub use matching::matching;
pub use order::order;
pub use policy::policy;
pub use record::record;
pub use startpoint::startpoint;
pub use trace::trace;

/// A target under its name.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 25] = [
    ("activation", activation),
    ("card", card),
    ("credential", credential),
    ("directory", directory),
    ("endpoint", endpoint),
    ("enrolment", enrolment),
    ("file_entry", file_entry),
    ("file_header", file_header),
    ("file_regions", file_regions),
    ("frame", frame),
    ("key_file", key_file),
    ("keyd_batch", keyd_batch),
    ("kmip_response", kmip_response),
    ("keyd_wire", keyd_wire),
    ("link_fabric", link_fabric),
    ("link_greeting", link_greeting),
    ("link_handshake", link_handshake),
    ("link_session", link_session),
    ("link_stranger", link_stranger),
    ("matching", matching),
    ("order", order),
    ("policy", policy),
    ("record", record),
    ("startpoint", startpoint),
    ("trace", trace),
];
