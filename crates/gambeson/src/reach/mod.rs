//! How a launcher's processes on another host are reached: one process there, and all that passes between it and here.
//!
//! ```text
//! mpiexec ── gambeson-agent HOST COMMAND ══ a daemon's link, or ssh ══ gambeson keep ── COMMAND
//!     └────── 127.0.0.1:port ──┘  streams, signals, control channel           └─ 127.0.0.1:port ──┘
//! ```

pub(crate) mod carrier;
pub(crate) mod control;
pub(crate) mod frame;
pub(crate) mod listeners;
