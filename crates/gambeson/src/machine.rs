//! What this machine does with memory that holds secrets (rule 6 of the threat model).

use std::fs;
use std::path::Path;

use rustix::process::{DumpableBehavior, Resource, getrlimit, set_dumpable_behavior};

use crate::failure::Failure;

/// A sentence about swap that would write secrets to a disk in clear.
pub(crate) fn swap_warning() -> Option<String> {
    let swaps = fs::read_to_string("/proc/swaps").ok()?;
    let open: Vec<&str> = swaps
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .filter(|area| !keeps_secrets(area))
        .collect();
    (!open.is_empty()).then(|| {
        format!(
            "swap on {} is not known to be encrypted, and secrets in memory may be written there; encrypt it (dm-crypt) or turn it off (swapoff)",
            open.join(", ")
        )
    })
}

/// Whether a swap area is in memory or on an encrypted device.
fn keeps_secrets(area: &str) -> bool {
    let device = fs::canonicalize(area).unwrap_or_else(|_| Path::new(area).to_owned());
    let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if name.starts_with("zram") {
        return true;
    }
    fs::read_to_string(format!("/sys/class/block/{name}/dm/uuid")).is_ok_and(|uuid| uuid.starts_with("CRYPT-"))
}

/// Bytes that a process may lock into memory; none without limit.
pub(crate) fn locked_memory_max() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// The name of this host.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Closes this process, through which secrets pass: no other may look into it, and no core file hold them.
pub(crate) fn close_to_others() -> Result<(), Failure> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| Failure::system(format!("this process cannot be closed to others ({error})")))
}
