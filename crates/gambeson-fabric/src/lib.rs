//! A libfabric provider that seals every message between the processes of a parallel job.
//!
//! libfabric loads `libgambeson-fi.so` when its folder stands in `FI_PROVIDER_PATH`. The provider
//! offers reliable datagram endpoints with messages and tagged messages, as the MPI libraries use
//! them, and carries them as sealed records over plain messages of a core provider (`tcp`, or any
//! other that keeps the order). Matching, keys and records are gambeson-proto's business; this
//! crate speaks libfabric's C on both sides.
//!
//! ```text
//!  MPI library
//!    │ fi_tsend, fi_trecv, fi_cq_read ...            msg.rs tagged.rs cq.rs av.rs
//!    ▼
//!  fabric ── domain (one lock) ── endpoint ── gambeson_proto::endpoint
//!                                    │            ▲
//!                                    ▼            │ Host
//!                                 ring.rs      carrier.rs
//!                                    └── core.rs ─┘  core provider
//! ```

mod address;
mod av;
mod carrier;
mod cntr;
mod communicators;
mod core;
mod cq;
mod crash;
mod domain;
mod endpoint;
mod entry;
mod fabric;
mod fid;
mod info;
mod job;
mod listener;
mod live;
mod mr;
mod msg;
#[cfg(feature = "nonce-oracle")]
mod nonce_log;
mod order;
mod remote;
mod report;
mod ring;
mod rma;
mod tagged;
mod trace;
mod unsupported;
mod watchdog;
mod world;

// AddressSanitizer sees only what comes from malloc (tools/asan.sh).
#[cfg(not(asan))]
#[global_allocator]
static ALLOCATOR: gambeson_pages::SecretPages = gambeson_pages::SecretPages;
