//! Finds the launcher and asks it, once, who it is.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Flavour, Launcher, slurm};
use crate::failure::Failure;
use crate::reach::step::PLUGIN;

/// The same, of a program that may be no launcher at all: then it is one of links. What speaks of launchers and is none
/// that is known stays refused, for nobody knows what it starts where.
pub(crate) fn recognise_any(name: &OsStr) -> Result<Launcher, Failure> {
    let program = find(name)?;
    if looks_like_a_launcher(&program) {
        return recognise(name);
    }
    Ok(Launcher { flavour: Flavour::None, version: "no MPI".to_owned(), program, plugin: false, behind: None })
}

/// Recognises the MPI behind the name it is given.
pub(crate) fn recognise(name: &OsStr) -> Result<Launcher, Failure> {
    let program = find(name)?;
    if !looks_like_a_launcher(&program) {
        return Err(unknown(name, "is not the launcher of an MPI"));
    }
    let answer = ask(&program).map_err(|error| {
        Failure::refused(format!(
            "{} did not answer `--version` ({error}), so nobody knows how to seal its messages; see first that it works by itself",
            program.display()
        ))
    })?;
    match flavour(&answer) {
        Some((flavour, version)) => {
            let plugin = answer.lines().any(|line| line == PLUGIN);
            Ok(Launcher { flavour, version, program, plugin, behind: None })
        }
        None => Err(unknown(name, "says nothing of an MPI known here when asked for its version")),
    }
}

fn unknown(name: &OsStr, what: &str) -> Failure {
    Failure::refused(format!(
        "{} {what}, so nobody knows how to seal its messages; put `gambeson run --` directly in front of the mpiexec of MPICH 4 or later, Open MPI 4 or later or Intel MPI 2021, or of srun",
        Path::new(name).display()
    ))
}

/// Searches PATH as a shell does.
pub(super) fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let named = Path::new(name);
    let candidates = if named.components().count() > 1 {
        vec![named.to_owned()]
    } else {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).map(|directory| directory.join(name)).collect()
    };
    candidates.into_iter().find(|candidate| is_executable(candidate)).ok_or_else(|| {
        Failure::unavailable(format!(
            "{} was not found; give the path of {}",
            named.display(),
            if named.ends_with("srun") { "Slurm's srun" } else { "mpiexec, or load the module of your MPI first" }
        ))
    })
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Only what calls itself a launcher is run with `--version`: anything else might do anything.
fn looks_like_a_launcher(program: &Path) -> bool {
    let real = fs::canonicalize(program).unwrap_or_else(|_| program.to_owned());
    let named = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        NAMES.iter().any(|known| name.contains(known))
    };
    named(program) || named(&real) || script(&real).is_some_and(|text| NAMES.iter().any(|known| text.contains(known)))
}

/// The text of a script; a site's own mpiexec may be one.
fn script(path: &Path) -> Option<String> {
    let mut text = Vec::new();
    fs::File::open(path).ok()?.take(SCRIPT_MAX).read_to_end(&mut text).ok()?;
    text.starts_with(b"#!").then(|| String::from_utf8_lossy(&text).into_owned())
}

fn ask(program: &Path) -> Result<String, String> {
    let mut child = Command::new(program)
        .arg("--version")
        // A plug-in of Gambeson's in srun says what it is in front of that.
        .env(slurm::VARIABLE, "?")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let answer = collect(child.stdout.take().expect("stdout is piped"));
    let complaint = collect(child.stderr.take().expect("stderr is piped"));
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("in {} s", PATIENCE.as_secs()));
            }
            Err(error) => return Err(error.to_string()),
        }
    };
    let [answer, complaint] = [answer, complaint].map(|reader| reader.join().unwrap_or_default());
    match complaint.lines().rfind(|line| !line.trim().is_empty()) {
        // srun without a configuration does not know even its version.
        Some(last) if !status.success() && answer.trim().is_empty() => Err(format!("it says \"{}\"", last.trim())),
        _ => Ok(answer),
    }
}

fn collect(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = Vec::new();
        let _ = Read::by_ref(&mut from).take(ANSWER_MAX).read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    })
}

/// Who an answer to `--version` comes from.
pub(super) fn flavour(answer: &str) -> Option<(Flavour, String)> {
    let first = answer.lines().find(|line| !line.trim().is_empty() && !line.starts_with(slurm::OF_PLUGIN))?.trim();
    if answer.contains("Intel(R) MPI Library") {
        return Some((Flavour::Intel, first.to_owned()));
    }
    if first.contains("(Open MPI)") || first.contains("(OpenRTE)") || first.contains("(PRRTE)") {
        let version = first.split_whitespace().next_back()?;
        let major: u32 = version.split('.').next()?.parse().ok()?;
        // PRRTE counts its own versions; it came with Open MPI 5.
        let major = if first.contains("(PRRTE)") { 5 } else { major };
        return (major >= 4).then(|| (Flavour::OpenMpi { major }, format!("Open MPI {version}")));
    }
    if answer.contains("HYDRA build details") {
        let version = answer.lines().find_map(|line| line.trim().strip_prefix("Version:")).unwrap_or_default().trim();
        let major: u32 = version.split('.').next()?.parse().ok()?;
        return (major >= 4).then(|| (Flavour::Mpich, format!("MPICH {version}")));
    }
    // Debian's calls itself slurm-wlm.
    let (name, version) = first.split_once(' ')?;
    let slurm = name == "slurm" || name.starts_with("slurm-");
    (slurm && version.starts_with(|first: char| first.is_ascii_digit())).then(|| (Flavour::Slurm, first.to_owned()))
}

const NAMES: [&str; 5] = ["mpiexec", "mpirun", "orterun", "prterun", "srun"];
const PATIENCE: Duration = Duration::from_secs(20);
const ANSWER_MAX: u64 = 64 << 10;
const SCRIPT_MAX: u64 = 64 << 10;
