//! Subcommands that are written in Python: which interpreter has the package, and becoming it.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// Whether programs in the current folder are to be found, too, as they are by `python -m`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finds {
    /// What lies there is nobody's idea of this program.
    InstalledAlone,
    /// It runs what its user has there.
    TheCurrentFolder,
}

/// Becomes `python -m MODULE ARGUMENTS`, with the interpreter that was named, or the first that has the module. Returns only
/// if there is none.
pub(crate) fn become_module(named: Option<&Path>, module: &str, arguments: &[OsString], finds: Finds) -> Failure {
    let interpreters = named.map_or_else(interpreters, |path| vec![path.to_owned()]);
    let mut lacking = Vec::new();
    for interpreter in &interpreters {
        match lacks(interpreter, module) {
            None => {
                let mut command = Command::new(interpreter);
                if finds == Finds::InstalledAlone {
                    command.env("PYTHONSAFEPATH", "1");
                }
                let error = command.arg("-m").arg(module).args(arguments).exec();
                return Failure::unavailable(format!("{} cannot be started ({error})", interpreter.display()));
            }
            Some(why) => lacking.push(format!("{} ({why})", interpreter.display())),
        }
    }
    let looked = if lacking.is_empty() { "there is no python3 in PATH".to_owned() } else { lacking.join(", ") };
    Failure::unavailable(format!(
        "this needs Gambeson's Python package, and no Python has all of it: {looked}; install it (`make install-python` in \
         Gambeson's sources), or name another Python with --python"
    ))
}

/// Where Python is looked for: beside this program, as in a virtual environment; in the one that is active; in PATH.
fn interpreters() -> Vec<PathBuf> {
    let beside = env::current_exe().ok().and_then(|program| Some(program.parent()?.join("python3")));
    let active = env::var_os("VIRTUAL_ENV").map(|folder| Path::new(&folder).join("bin/python3"));
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|folder| folder.join("python3")).find(|python| python.is_file());
    let there = beside.into_iter().chain(active).filter(|python| python.is_file());
    let mut found: Vec<PathBuf> = Vec::new();
    for python in there.chain(in_path) {
        if !found.contains(&python) {
            found.push(python);
        }
    }
    found
}

/// Why an interpreter cannot run a module of the package; none if it can.
fn lacks(interpreter: &Path, module: &str) -> Option<String> {
    let mut asking = Command::new(interpreter);
    let asked = asking.env("PYTHONSAFEPATH", "1").args(["-c", FIND, module]).stdin(Stdio::null()).output();
    match asked {
        Ok(said) if said.status.success() => None,
        Ok(said) => {
            let words = String::from_utf8_lossy(&said.stderr);
            Some(words.trim().lines().last().unwrap_or("it ended without a word").to_owned())
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Says on stderr what is missing: the package, this module of it, or what they import.
const FIND: &str = "
import importlib.util, sys
try:
    found = importlib.util.find_spec(sys.argv[1])
except ImportError as error:
    sys.exit(str(error))
sys.exit(None if found else f'its package has no {sys.argv[1]}')
";
