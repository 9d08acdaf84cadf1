//! How a launcher's processes on another host are reached: one process there, and all that passes between it and here.
//!
//! ```text
//! mpiexec ── gambeson-agent HOST COMMAND ══ a daemon's link, or ssh ══ gambeson keep ── COMMAND
//!     └────── 127.0.0.1:port ──┘  streams, signals, control channel           └─ 127.0.0.1:port ──┘
//!
//! srun ── slurmd ── slurmstepd, Gambeson's plug-in ── gambeson keep --step ══ a link ══ gambeson run
//!                      └── gambeson enter ── rank
//! ```

pub(crate) mod carrier;
pub(crate) mod control;
pub(crate) mod frame;
pub(crate) mod home;
pub(crate) mod listeners;
pub(crate) mod questions;
pub(crate) mod step;
