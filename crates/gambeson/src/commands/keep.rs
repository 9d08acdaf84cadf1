//! `gambeson keep`: holds the job's files on another host while the job runs there. Not for people.
//!
//! The agent sends the files on stdin; the end of stdin means the end of the job, however it came.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gambeson_proto::credential::Credential;
use zeroize::Zeroizing;

use crate::failure::Failure;
use crate::job::{self, Job, bundle, processes};
use crate::libraries::Libraries;
use crate::machine;
use crate::policy_files;

pub(crate) fn execute() -> Result<ExitCode, Failure> {
    machine::close_to_others()?;
    let mut stdin = io::stdin().lock();
    let files = bundle::receive(&mut stdin)
        .map_err(|error| Failure::refused(format!("the job's files did not arrive ({error}); start the job again")))?;
    let job = install(&files)?;
    drop(files);
    let mut stdout = io::stdout().lock();
    let said = stdout.write_all(bundle::KEPT.as_bytes()).and_then(|()| stdout.flush());
    if said.is_ok() {
        // Nothing more comes; what ends is the job, or the connection.
        let _ = io::copy(&mut Read::by_ref(&mut stdin), &mut io::sink());
    }
    let mut reports = bundle::Files::new();
    if let Some(job) = &job {
        processes::end_here(job.directory());
        reports = bundle::pack(job.directory(), bundle::is_report).unwrap_or_default();
    }
    let _ = bundle::send(&mut stdout, &reports);
    Ok(ExitCode::SUCCESS)
}

/// Puts the files into the job's directory here; none where that is the very directory they came from.
fn install(files: &bundle::Files) -> Result<Option<Job>, Failure> {
    let lacking = || Failure::refused("the job's files arrived incomplete; use the same Gambeson on all hosts");
    let version = text(file(files, "version").ok_or_else(lacking)?);
    if version != job::VERSION {
        return Err(Failure::refused(format!(
            "the Gambeson on {} is {}, and the job was started by Gambeson {version}; use the same Gambeson on all hosts",
            machine::host_name(),
            job::VERSION
        )));
    }
    let encoded = file(files, "credential").ok_or_else(lacking)?;
    let mut credential = Credential::decode_travelling(encoded)
        .map_err(|error| Failure::refused(format!("the credential that arrived cannot be used: {error}")))?;
    let there = text(file(files, "directory").ok_or_else(lacking)?);
    let here = job::directory_of(&credential.job_id);
    if here != Path::new(&there) {
        return Err(Failure::refused(format!(
            "the job's directory would be {} here and is {there} where the job was started; use the same user id on all hosts",
            here.display()
        )));
    }
    // Two names of one host share its memory.
    let found = std::fs::read(here.join("credential")).map(Zeroizing::new);
    if found.is_ok_and(|found| Credential::decode(&found).is_ok_and(|found| found.encode_to_travel() == *encoded)) {
        return Ok(None);
    }
    policy_files::complete(&mut credential)?;
    let mut libraries = Libraries::find(None)?;
    let vendor = file(files, "vendor").map(text).unwrap_or_default();
    libraries.vendor = vendor.lines().map(PathBuf::from).filter(|library| library.exists()).collect();
    let job = Job::create(&credential, &libraries)?;
    for name in bundle::CARRIED {
        if let Some(bytes) = file(files, name).filter(|_| !job::MADE.contains(&name)) {
            job.write(name, bytes)?;
        }
    }
    Ok(Some(job))
}

fn file<'f>(files: &'f bundle::Files, wanted: &str) -> Option<&'f Zeroizing<Vec<u8>>> {
    files.iter().find(|(name, _)| name == wanted).map(|(_, bytes)| bytes)
}

fn text(bytes: &Zeroizing<Vec<u8>>) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
