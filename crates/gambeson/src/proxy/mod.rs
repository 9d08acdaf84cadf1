//! A pair of encrypting proxies in front of a TCP service (secure-muskel paper, section 4.6).
//!
//! ```text
//!  client ── TCP ── near ══ a link for each connection ══ far ── TCP ── service
//!
//!                   near ── OPEN, for a stream ──────────> far    connect to the service
//!                        ── DATA: bytes; none: end of file ─>
//!                        <─ the stream: bytes; none: end of file; its last word, none: both directions have ended ──
//!                        ── RESET ─────────────────────────>
//! ```
//!
//! Whatever else ends a connection is a reset at its other end, never an end of file: a refusal in place of the stream's
//! last word, a link or a session that is lost. A direction is held to the pace of who reads it by the link's window one
//! way and by the stream's the other, so memory is bounded and a connection that stalls holds up no other.

pub(crate) mod far;
pub(crate) mod identity;
pub(crate) mod near;
mod socket;

use std::fmt::Display;
use std::io::Write;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The class of the links, by which policies go; the name under which the far end is published, and the role that may have
/// it.
pub(crate) const CLASS: &str = "proxy";

/// Asks for a connection to the service; its answers are what the service sends.
const OPEN: u32 = 0;
/// Bytes for the service; none: there are no more.
const DATA: u32 = 1;
/// The connection is no more.
const RESET: u32 = 2;

/// Asked for once in a session, and its answer never taken: as long as somebody waits for one, the near end sees to it that
/// the far one is there, and nobody on the way forgets an idle connection.
const WATCH: u32 = 3;

/// Bytes that are read, and sent, at once: some records, for which threads wake each other once.
pub(crate) const CHUNK: usize = 256 << 10;
/// Who waits looks so often whether the other end is still there, which mostly is said.
const LOOK: Duration = Duration::from_secs(5);
/// A connection has a thread for each direction, which calls little.
const STACK: usize = 256 << 10;

/// Says something in the log, which may have nobody any more who reads it.
pub(crate) fn say(what: impl Display) {
    let _ = writeln!(std::io::stderr(), "gambeson: {what}");
}

/// Lets this process have as many descriptors as it may: each connection takes two.
pub(crate) fn allow_connections() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Whoever may not has those that there are.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
