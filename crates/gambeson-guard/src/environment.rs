//! What `gambeson run` put into the environment must still be there when MPI starts.
//!
//! An option of mpiexec, a start-up file or the program itself may have changed it since. The
//! job directory's file `environment` holds what this MPI needs, a `NAME=VALUE` a line.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::real;
use crate::refusal::{self, Refusal};

/// The job directory, in a process of a job.
pub(crate) fn job() -> Option<PathBuf> {
    env::var_os("GAMBESON_JOB").filter(|directory| !directory.is_empty()).map(PathBuf::from)
}

/// Leaves word that this process starts MPI, so that the launcher knows whom to expect, and
/// compares the process's environment with what the launcher set.
pub(crate) fn check(job: &Path) -> Result<(), Refusal> {
    if job.join("no-mpi").exists() {
        return Err(Refusal::no_launcher());
    }
    refusal::leave(job, "started", "");
    let file = job.join("environment");
    let expected = fs::read_to_string(&file).map_err(|error| Refusal::no_job(&file, &error))?;
    for line in expected.lines() {
        let Some((name, value)) = line.split_once('=') else {
            continue;
        };
        let found = env::var_os(name);
        if found != Some(OsString::from(value)) {
            return Err(Refusal::changed(name, value, found.as_deref()));
        }
    }
    Ok(())
}

/// Looks whether the launcher allows windows under this MPI, to programs with many threads if not to all.
pub(crate) fn check_one_sided(job: &Path) -> Result<(), Refusal> {
    let why = |name: &str| fs::read_to_string(job.join(name)).ok();
    // Where the launcher starts any MPI's programs, the word may be meant for Open MPI's alone.
    let here = why("one-sided")
        .or_else(|| why("one-sided-openmpi").filter(|_| real::object(c"ompi_mpi_comm_world").is_some()))
        .or_else(|| why("one-sided-threads").filter(|_| real::threads_are_multiple()));
    match here {
        Some(why) => Err(Refusal::one_sided(&why)),
        None => Ok(()),
    }
}
