//! Finds and ends what a job that failed has left running: Open MPI leaves ranks behind.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Ends every process of the job: first politely, then for good. Returns how many there were.
pub(crate) fn end(directory: &Path) -> usize {
    end_all(|| of_job(directory))
}

/// The same for those on this network alone: what looks like another host may be a container of this one.
pub(crate) fn end_here(directory: &Path) -> usize {
    let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let here = network("self");
    end_all(|| {
        let mut processes = of_job(directory);
        processes.retain(|process| network(&process.as_raw_pid().to_string()) == here);
        processes
    })
}

fn end_all(find: impl Fn() -> Vec<Pid>) -> usize {
    let left = find();
    if left.is_empty() {
        return 0;
    }
    signal(&left, Signal::TERM);
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline && !find().is_empty() {
        thread::sleep(Duration::from_millis(50));
    }
    // Processes that fork while they are being ended need a second look.
    for _ in 0..3 {
        let stubborn = find();
        if stubborn.is_empty() {
            break;
        }
        signal(&stubborn, Signal::KILL);
        thread::sleep(Duration::from_millis(50));
    }
    left.len()
}

fn signal(processes: &[Pid], signal: Signal) {
    for &process in processes {
        // It may have ended by itself.
        let _ = kill_process(process, signal);
    }
}

/// The user's processes whose environment names the job's directory.
fn of_job(directory: &Path) -> Vec<Pid> {
    let mark = [b"GAMBESON_JOB=", directory.as_os_str().as_bytes()].concat();
    let me = rustix::process::geteuid().as_raw();
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let ours = fs::metadata(entry.path()).ok()?.uid() == me && pid.unsigned_abs() != own;
            let environment = fs::read(entry.path().join("environ")).ok()?;
            let marked = environment.split(|&byte| byte == 0).any(|variable| variable == mark);
            (ours && marked).then(|| Pid::from_raw(pid)).flatten()
        })
        .collect()
}

const GRACE: Duration = Duration::from_secs(2);
