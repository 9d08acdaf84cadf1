//! The job that this process belongs to: its directory, its credential, and who this process is in it.
//!
//! `GAMBESON_JOB` names a directory that only its owner can enter; the secret is had from its [`holder`], and in no file and
//! no environment.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use gambeson_proto::credential::Credential;
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::holder::{self, CREDENTIAL};

/// What a process finds of its job.
#[derive(Debug)]
pub struct Job {
    /// Where its files are.
    pub directory: PathBuf,
    /// What its processes share.
    pub credential: Credential,
}

/// Finds the job. `who` is this process, or the part of Gambeson in it, for sentences.
///
/// # Errors
/// A sentence: there is none, it is another version's, or its credential is not to be had.
pub fn find(who: &str) -> Result<Job, String> {
    let Some(directory) = directory() else {
        return Err(format!("this process belongs to no sealed job (GAMBESON_JOB is not set); {REMEDY}"));
    };
    same_gambeson(&directory, who)?;
    let refused = |why: String| format!("the credential of job {} can't be had: {why}; {REMEDY}", directory.display());
    let bytes = holder::ask(&directory, CREDENTIAL).map_err(refused)?;
    let bytes = bytes.ok_or_else(|| refused("its holder has none".into()))?;
    let credential = Credential::decode(&bytes).map_err(|error| refused(error.to_string()))?;
    Ok(Job { directory, credential })
}

/// Where the job's files are, in a process of one.
pub fn directory() -> Option<PathBuf> {
    env::var_os("GAMBESON_JOB").filter(|directory| !directory.is_empty()).map(PathBuf::from)
}

/// This process's rank, from what the launchers of the MPI libraries set.
pub fn rank() -> Option<u32> {
    let names = ["PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"];
    let known = names.iter().find_map(|name| env::var(name).ok()?.parse().ok());
    known.filter(|&rank: &u32| rank < RANK_LIMIT)
}

/// This host's own name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// How sentences name this process: `rank 3 on h1`.
pub fn who() -> String {
    let host = host_name();
    match rank() {
        Some(rank) => format!("rank {rank} on {host}"),
        None => format!("process {} on {host}", std::process::id()),
    }
}

/// Leaves word for the launcher in a file of this process's own: `who` on the first line, then the text. The first word
/// of a kind counts.
pub fn leave(directory: &Path, kind: &str, who: &str, text: &str) {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(flags());
    if let Ok(mut file) = options.open(directory.join(format!("{kind}-{}", std::process::id()))) {
        let _ = file.write_all(format!("{who}\n{text}\n").as_bytes());
    }
}

/// Formats change between versions, and each would take the other's records for garbage.
fn same_gambeson(directory: &Path, who: &str) -> Result<(), String> {
    let ours = env!("CARGO_PKG_VERSION");
    match std::fs::read_to_string(directory.join("version")) {
        Ok(theirs) if theirs == ours => Ok(()),
        Ok(theirs) => Err(format!(
            "{who} is of Gambeson {ours}, and the job was started by Gambeson {theirs}; install the same Gambeson, all of \
             it, on every host of the job"
        )),
        Err(error) => Err(format!(
            "which Gambeson started the job is not known ({}/version: {error}); {REMEDY}",
            directory.display()
        )),
    }
}

/// Reads a file that nobody else may read or write.
///
/// # Errors
/// What is wrong with it, as the middle of a sentence: it cannot be read, others can get at it, or it is too long.
pub fn read_secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let open = OpenOptions::new().read(true).custom_flags(flags()).open(path);
    let mut file: File = open.map_err(|error| error.to_string())?;
    let meta = file.metadata().map_err(|error| error.to_string())?;
    let user = rustix::process::geteuid().as_raw();
    if !meta.is_file() {
        return Err("it is no regular file".into());
    }
    if meta.uid() != user {
        return Err(format!("it belongs to user {} and this process runs as user {user}", meta.uid()));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(format!("others may read or write it (mode {:o})", meta.mode() & 0o7777));
    }
    if meta.len() > CREDENTIAL_MAX {
        return Err(format!("it has {} bytes, more than any of Gambeson's secrets", meta.len()));
    }
    // One allocation: a vector that grows leaves copies of the secret behind.
    let mut bytes = Zeroizing::new(vec![0; meta.len() as usize]);
    file.read_exact(&mut bytes).map_err(|error| error.to_string())?;
    Ok(bytes)
}

fn flags() -> i32 {
    (OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32
}

const REMEDY: &str = "start the program with `gambeson run`";
/// Larger than any credential can be, in bytes.
const CREDENTIAL_MAX: u64 = 16 << 20;
/// Cards have 24 bits for the rank, the last of which means unknown.
const RANK_LIMIT: u32 = 0xFF_FFFF;
