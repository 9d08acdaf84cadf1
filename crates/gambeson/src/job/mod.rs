//! The job's directory in memory: who holds its secrets, what the guard compares, the libraries, and what the ranks leave there.
//!
//! ```text
//! /dev/shm/gambeson-<uid>-<job id>/   0700
//!   owner          who made it: process id and start, so that a later run can clear up after a crash
//!   version        of the Gambeson that made it, which the provider compares with its own
//!   secrets        where the holder gives the job's processes the credential (job secret and policy), and the keys of the
//!                  labels that they may use, if there is a key store and it was opened
//!   environment    what every rank must find, for the guard
//!   one-sided      why windows are refused, if they are; one-sided-threads, if to MPI_THREAD_MULTIPLE alone;
//!                  one-sided-openmpi, if to Open MPI's programs alone
//!   vendor         the MPI's own providers, so that other hosts can look for the same
//!   lib/           the provider under the name libfabric looks for, the vendor's beside it, the guard,
//!                  the library for files
//!   gambeson-agent what the launcher calls in place of ssh
//!   rank-<pid>     a page per provider      refused-<pid>   a sentence per refusal of the guard
//!   linked-<pid>   who has links      rules      where the policy's rules were written, one a line
//!   site.pub, directory.toml   what the site has signed, if this host has a site: links go by it
//!   agent-<host>   while an agent reaches the host; lost-<host> if it was lost
//!   launchers      the programs of the launcher whose sockets the guard keeps inside their host
//!   no-mpi         in a job without a launcher: the guard and the agent refuse MPI
//!   trace          in a traced job, how many bytes an endpoint may write down; trace-<pid>-<n> is what it did
//! ```

pub(crate) mod bundle;
pub(crate) mod processes;
pub(crate) mod reports;

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gambeson_proto::credential::Credential;
use gambeson_proto::key_schedule::JobKeys;
use gambeson_proto::secret::Secret32;
use gambeson_site::holder::Holder;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::libraries::Libraries;

/// A job's directory, and its secrets; dropping it removes everything.
pub(crate) struct Job {
    directory: PathBuf,
    keys: JobKeys,
    holder: Arc<Holder>,
}

impl Job {
    /// Makes the directory, puts the libraries there and holds the credential. Where `slurm` says so, srun may start the
    /// job's processes.
    pub(crate) fn create(credential: &Credential, libraries: &Libraries, slurm: bool) -> Result<Self, Failure> {
        clear_up();
        let directory = directory_of(&credential.job_id);
        create_directory(&directory)?;
        let holder = Holder::serve(&directory, credential, slurm).map_err(|error| {
            remove(&directory);
            cannot(&directory.join("secrets"), &error)
        })?;
        // From here on whatever fails, dropping the job removes it.
        let job = Self { directory, keys: credential.job_keys(), holder };
        job.write("owner", owner(std::process::id()).unwrap_or_default().as_bytes())?;
        job.write("version", VERSION.as_bytes())?;
        job.install(libraries)?;
        Ok(job)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn keys(&self) -> &JobKeys {
        &self.keys
    }

    /// Where libfabric finds the provider.
    pub(crate) fn providers(&self) -> PathBuf {
        self.directory.join(LIBRARIES)
    }

    /// What launchers call in place of ssh.
    pub(crate) fn agent(&self) -> PathBuf {
        self.directory.join(AGENT)
    }

    /// One more secret for the job's processes.
    pub(crate) fn hold(&self, name: &'static str, secret: &[u8]) {
        self.holder.hold(name, secret);
    }

    /// Answers questions of this name from the job's processes.
    pub(crate) fn answer_by(
        &self,
        name: &'static str,
        answer: impl Fn(&[u8]) -> Zeroizing<Vec<u8>> + Send + Sync + 'static,
    ) {
        self.holder.answer_by(name, answer);
    }

    /// Counts to the job what is below another process, too.
    pub(crate) fn counts(&self, pid: u32) {
        self.holder.counts(pid);
    }

    /// Writes one file of the directory, for the user alone.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Failure> {
        let path = self.directory.join(name);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(bytes));
        written.map_err(|error| cannot(&path, &error))
    }

    fn install(&self, libraries: &Libraries) -> Result<(), Failure> {
        let providers = self.providers();
        DirBuilder::new().mode(0o700).create(&providers).map_err(|error| cannot(&providers, &error))?;
        let link = |target: &Path, name: &Path| {
            let link = name.to_owned();
            symlink(target, &link).map_err(|error| cannot(&link, &error))
        };
        link(&libraries.provider, &providers.join(PROVIDER))?;
        link(&libraries.guard, &providers.join(GUARD))?;
        link(&libraries.files, &providers.join(FILES))?;
        link(&libraries.program, &self.agent())?;
        let vendor: String = libraries.vendor.iter().map(|path| format!("{}\n", path.display())).collect();
        self.write("vendor", vendor.as_bytes())?;
        for vendor in &libraries.vendor {
            let name = vendor.file_name().expect("a library has a name");
            // The same provider may lie in several of the vendor's directories; the first counts.
            let _ = symlink(vendor, providers.join(name));
        }
        Ok(())
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        remove(&self.directory);
    }
}

/// What every rank of a job finds besides what its MPI needs.
pub(crate) fn variables(directory: &Path, core: &str, preloaded: Option<OsString>) -> [(&'static str, OsString); 3] {
    // The user's own libraries stay in front, as they were.
    let mut preload = preloaded.unwrap_or_default();
    for own in [FILES, GUARD].map(|name| directory.join(LIBRARIES).join(name)) {
        if !env::split_paths(&preload).any(|library| library == own) {
            if !preload.is_empty() {
                preload.push(":");
            }
            preload.push(own);
        }
    }
    [("GAMBESON_JOB", directory.into()), ("GAMBESON_CORE", core.into()), ("LD_PRELOAD", preload)]
}

/// A fresh identity and secret from the kernel.
pub(crate) fn draw() -> Result<([u8; 16], Secret32), Failure> {
    let mut id = [0; 16];
    let mut secret = Zeroizing::new([0; 32]);
    getrandom::fill(&mut id).and_then(|()| getrandom::fill(&mut *secret)).map_err(|error| {
        Failure::system(format!("the kernel gives no random numbers ({error}), so no secret can be made"))
    })?;
    Ok((id, Secret32::from_bytes(*secret)))
}

/// The same path on every host of the job.
pub(crate) fn directory_of(job_id: &[u8; 16]) -> PathBuf {
    let id: String = job_id[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    Path::new(MEMORY).join(format!("{}{id}", prefix()))
}

fn prefix() -> String {
    format!("gambeson-{}-", rustix::process::geteuid().as_raw())
}

fn create_directory(directory: &Path) -> Result<(), Failure> {
    // A secret on a disk outlives its job.
    let in_memory = rustix::fs::statfs(MEMORY).is_ok_and(|found| found.f_type == TMPFS_MAGIC);
    if !in_memory {
        return Err(Failure::refused(format!(
            "{MEMORY} is no tmpfs, so there is no place in memory for the job's secret; mount one: mount -t tmpfs -o mode=1777 tmpfs {MEMORY}"
        )));
    }
    DirBuilder::new().mode(0o700).create(directory).map_err(|error| cannot(directory, &error))
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::system(format!(
        "{} cannot be made ({error}), so the job's secret cannot reach its ranks; make room in {MEMORY}",
        path.display()
    ))
}

/// Removes a job's directory.
pub(crate) fn remove(directory: &Path) {
    // Ranks that are still ending may add a page meanwhile.
    for _ in 0..3 {
        if fs::remove_dir_all(directory).is_ok() || !directory.exists() {
            return;
        }
    }
}

/// Removes what runs that were killed have left behind.
fn clear_up() {
    let Ok(entries) = fs::read_dir(MEMORY) else {
        return;
    };
    let (prefix, me) = (prefix(), rustix::process::geteuid().as_raw());
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(&prefix);
        if !ours || !entry.metadata().is_ok_and(|metadata| metadata.uid() == me && metadata.is_dir()) {
            continue;
        }
        let Ok(owner_was) = fs::read_to_string(entry.path().join("owner")) else {
            continue;
        };
        let pid = owner_was.split_whitespace().next().and_then(|pid| pid.parse().ok());
        if pid.is_some_and(|pid| owner(pid).as_deref() != Some(owner_was.as_str())) {
            remove(&entry.path());
        }
    }
}

/// A process for all time: its id and when it started, in this boot and PID namespace.
fn owner(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything; the start is the 20th field behind it.
    let start = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned();
    Some(format!("{pid} {start}"))
}

/// What [`Job::create`] writes by itself of what hosts get.
pub(crate) const MADE: [&str; 2] = ["version", "vendor"];
/// All processes of a job are of one version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
const MEMORY: &str = "/dev/shm";
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
/// The name libfabric looks for.
const PROVIDER: &str = "libgambeson-fi.so";
const LIBRARIES: &str = "lib";
const GUARD: &str = "libgambeson-guard.so";
const FILES: &str = "libgambeson-mpi.so";
pub(crate) const AGENT: &str = "gambeson-agent";
