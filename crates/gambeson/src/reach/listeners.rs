//! Whether a launcher's own process listens where others can reach it.
//!
//! The guard sees to it that none does. A launcher that loads no such library, because it is linked statically, would be open
//! to whoever connects, and so its job ends.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use gambeson_interpose::connections::{inodes, sockets};
use gambeson_launch::descendants;
use rustix::process::getpid;

/// The first such process that is found, by its program, and where it listens.
pub(crate) fn exposed(launcher: &Path, programs: &[&str]) -> Option<(String, SocketAddr)> {
    let mut listening = sockets();
    listening.retain(|socket| socket.listens && !socket.local.ip().is_loopback());
    if listening.is_empty() {
        return None;
    }
    let launcher = fs::canonicalize(launcher).ok();
    descendants(getpid()).into_iter().find_map(|pid| {
        let pid = pid.as_raw_pid().unsigned_abs();
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let name = program.file_name()?.to_str()?;
        if Some(&program) != launcher.as_ref() && !programs.contains(&name) {
            return None;
        }
        let own = inodes(pid);
        let found = listening.iter().find(|socket| own.contains(&socket.inode))?;
        Some((name.to_owned(), found.local))
    })
}
