//! A mount of gocryptfs, to compare with: files of 4 KiB blocks under AES-256-GCM, one process for all that use it.

use std::fs;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use std::io::Write;

/// It goes when this does.
pub(super) struct Mount {
    at: PathBuf,
    below: PathBuf,
    server: Child,
}

impl Mount {
    /// Mounts one inside a folder.
    ///
    /// # Errors
    /// A sentence that says why it can't be.
    pub(super) fn new(folder: &Path) -> Result<Self, String> {
        let [at, below, word] = ["mount", "below", "passphrase"].map(|name| folder.join(name));
        for made in [&at, &below] {
            fs::create_dir(made).map_err(|error| format!("{} cannot be made ({error})", made.display()))?;
        }
        passphrase(&word).map_err(|error| format!("{} cannot be written ({error})", word.display()))?;
        let word = word.display().to_string();
        // With names as they are, so that files below can be found.
        let options = ["-q", "-init", "-plaintextnames", "-passfile", &word];
        let made = Command::new("gocryptfs").args(options).arg(&below).stdin(Stdio::null()).output();
        let made =
            made.map_err(|error| format!("gocryptfs cannot be started ({error}); Debian's package is gocryptfs"))?;
        if !made.status.success() {
            return Err(format!("gocryptfs -init failed: {}", last_line(&made.stderr)));
        }
        let log = folder.join("gocryptfs.log");
        let mut mount = serve(&log, &word, &below, &at).map(|server| Self { at, below, server })?;
        mount.wait(&log)?;
        Ok(mount)
    }

    /// Where it is.
    pub(super) fn at(&self) -> &Path {
        &self.at
    }

    /// Where its encrypted files are.
    pub(super) fn below(&self) -> &Path {
        &self.below
    }

    fn wait(&mut self, log: &Path) -> Result<(), String> {
        let outside = fs::metadata(&self.below).map(|folder| folder.dev()).unwrap_or(0);
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if fs::metadata(&self.at).is_ok_and(|folder| folder.dev() != outside) {
                return Ok(());
            }
            if matches!(self.server.try_wait(), Ok(Some(_))) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("gocryptfs does not mount: {}", last_line(&fs::read(log).unwrap_or_default())))
    }
}

const PATIENCE: Duration = Duration::from_secs(10);

/// Its process, which ends with this one.
fn serve(log: &Path, word: &str, below: &Path, at: &Path) -> Result<Child, String> {
    let said = fs::File::create(log).map_err(|error| format!("{} cannot be written ({error})", log.display()))?;
    let mut command = Command::new("/proc/self/exe");
    command.args(["start", "--own-group", "--", "gocryptfs", "-q", "-fg", "-nosyslog", "-passfile", word]);
    command.arg(below).arg(at).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    command.spawn().map_err(|error| format!("gocryptfs cannot be started ({error})"))
}

fn passphrase(path: &Path) -> std::io::Result<()> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| std::io::Error::other(error.to_string()))?;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{}", data_encoding::HEXLOWER.encode(&bytes))
}

fn last_line(said: &[u8]) -> String {
    String::from_utf8_lossy(said).trim().lines().next_back().unwrap_or("it says nothing").to_owned()
}

impl Drop for Mount {
    fn drop(&mut self) {
        for program in ["fusermount3", "fusermount"] {
            let quiet =
                Command::new(program).arg("-u").arg(&self.at).stdout(Stdio::null()).stderr(Stdio::null()).status();
            if quiet.is_ok_and(|status| status.success()) {
                break;
            }
        }
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline && matches!(self.server.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
