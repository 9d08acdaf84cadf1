//! Writes what the nonce oracle tells to a file of this process (feature `nonce-oracle`).
//!
//! `GAMBESON_NONCE_ORACLE` names the directory; without it such a provider offers nothing, so that
//! nobody runs it unawares. The file is complete whenever the counters are published.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use gambeson_proto::nonce_oracle::{self, Use};

use crate::report::say;

struct Log {
    file: File,
    waiting: Vec<u8>,
}

static LOG: Mutex<Option<Log>> = Mutex::new(None);

/// Opens the file. The sentence says why there is none.
pub(crate) fn open() -> Result<(), String> {
    let Some(directory) = env::var_os("GAMBESON_NONCE_ORACLE").map(PathBuf::from) else {
        return Err("this provider was built with the feature nonce-oracle, which is for Gambeson's own tests: it \
                    writes down how keys are used. Build it without that feature"
            .into());
    };
    let mut log = log();
    if log.is_none() {
        let path = directory.join(format!("nonces-{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.append(true).create_new(true).mode(0o600).custom_flags(libc::O_CLOEXEC);
        let file = options.open(&path).map_err(|error| format!("can't write {}: {error}", path.display()))?;
        say(format_args!("WARNING: every nonce is written to {}; this build is for tests alone", path.display()));
        *log = Some(Log { file, waiting: Vec::with_capacity(BUFFER) });
        nonce_oracle::tell(used);
    }
    Ok(())
}

/// Writes what waits.
pub(crate) fn flush() {
    if let Some(log) = &mut *log() {
        log.flush();
    }
}

fn used(told: &Use) {
    if let Some(log) = &mut *log() {
        log.waiting.extend_from_slice(told);
        if log.waiting.len() + told.len() > BUFFER {
            log.flush();
        }
    }
}

fn log() -> MutexGuard<'static, Option<Log>> {
    LOG.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Log {
    fn flush(&mut self) {
        // A log with holes would let a test pass that should not.
        self.file.write_all(&self.waiting).expect("the nonce oracle's file can be written");
        self.waiting.clear();
    }
}

/// Bytes that are written at a time.
const BUFFER: usize = 1 << 16;
