//! Finds and reads the policy files, and refuses those that others could have written (rule 8 of the threat model).

use std::fmt;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gambeson_proto::policy::{Chosen, Document, FileRule, Policy, PolicyError, Resolution, resolve};

/// What nobody can go below.
const FLOOR: &str = "/etc/gambeson/gambeson.toml";
/// What may strengthen it when nobody names a file.
const FOUND: &str = "gambeson.toml";
/// As many links the system follows in a row.
const LINKS_MAX: usize = 40;
/// A policy of 4096 rules is far below.
const LENGTH_MAX: u64 = 1 << 20;

/// The resolved policy and where it came from.
#[derive(Debug)]
pub struct Loaded {
    /// The policy, with what belongs to it.
    pub resolution: Resolution,
    /// The files that were read, in order of their rank.
    pub files: Vec<PathBuf>,
}

/// Why there is no policy.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file cannot be read, or others could have written it.
    File(String),
    /// What it says makes no sense.
    Policy(PolicyError),
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File(what) => out.write_str(what),
            Error::Policy(error) => write!(out, "the policy cannot be used: {error}"),
        }
    }
}

impl std::error::Error for Error {}

/// Reads the floor and the file named, or else the file beside the job, and resolves them.
///
/// # Errors
/// When a file cannot be read, others could have written it, or it makes no sense.
pub fn load(named: Option<&Path>) -> Result<Loaded, Error> {
    let mut files = Vec::new();
    let floor = read_document(Path::new(FLOOR), Missing::Ignore, &mut files)?;
    let chosen = match named {
        Some(path) => read_document(path, Missing::Refuse, &mut files)?,
        None => read_document(Path::new(FOUND), Missing::Ignore, &mut files)?,
    };
    let chosen = chosen.as_ref().map(|document| match named {
        Some(_) => Chosen::Named(document),
        None => Chosen::Found(document),
    });
    let resolution = resolve(floor.as_ref(), chosen).map_err(Error::Policy)?;
    Ok(Loaded { resolution, files })
}

/// Reads one file that stands alone, without a floor.
///
/// # Errors
/// As [`load`].
pub fn read(path: &Path) -> Result<Policy, Error> {
    let document = read_document(path, Missing::Refuse, &mut Vec::new())?;
    let chosen = document.as_ref().map(Chosen::Named);
    Ok(resolve(None, chosen).map_err(Error::Policy)?.policy)
}

/// What a policy says of a file that is there or is to be made: under the name that it was given, and under the one that
/// links and `..` in it lead to. A label under either holds.
pub fn decide_file<'p>(policy: &'p Policy, path: &Path) -> Option<&'p FileRule> {
    let given = std::path::absolute(path).ok()?;
    let real = real(&given);
    let rules = [Some(given), real].into_iter().flatten();
    let rules = rules.filter_map(|path| policy.decide_file(&path.to_string_lossy()));
    rules.reduce(|given, real| if given.label.is_none() && real.label.is_some() { real } else { given })
}

/// Where a file is, or would be made: links may lead to what is not there yet.
fn real(given: &Path) -> Option<PathBuf> {
    let mut path = given.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = path.read_link() else { break };
        path = path.parent()?.join(target);
    }
    path.canonicalize().ok().or_else(|| Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?)))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Ignore,
    Refuse,
}

fn read_document(path: &Path, missing: Missing, files: &mut Vec<PathBuf>) -> Result<Option<Document>, Error> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound && missing == Missing::Ignore => return Ok(None),
        Err(error) => return Err(unreadable(path, &error)),
    };
    let metadata = file.metadata().map_err(|error| unreadable(path, &error))?;
    others_cannot_write("the policy", path, &metadata).map_err(Error::File)?;
    if !metadata.is_file() || metadata.len() > LENGTH_MAX {
        return Err(Error::File(format!(
            "the policy {} is no regular file of at most 1 MiB; name a gambeson.toml",
            path.display()
        )));
    }
    let mut text = String::new();
    Read::by_ref(&mut file).take(LENGTH_MAX).read_to_string(&mut text).map_err(|error| unreadable(path, &error))?;
    files.push(path.to_owned());
    Document::parse(&text, &path.display().to_string()).map(Some).map_err(Error::Policy)
}

fn unreadable(path: &Path, error: &io::Error) -> Error {
    Error::File(format!(
        "the policy {} cannot be read ({error}), so nothing says how the messages are to be protected; make it readable for you, or name another one",
        path.display()
    ))
}

/// Refuses a file that somebody other than root and this user could have written.
///
/// # Errors
/// When somebody could.
pub fn others_cannot_write(what: &str, path: &Path, metadata: &Metadata) -> Result<(), String> {
    let me = rustix::process::geteuid().as_raw();
    if metadata.uid() != 0 && metadata.uid() != me {
        return Err(format!(
            "{what} {} belongs to user {}, who could weaken it; remove it, or copy what you need into a file of your own",
            path.display(),
            metadata.uid()
        ));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(format!(
            "{what} {} can be written by others (mode {:04o}); check what it says, then chmod go-w it",
            path.display(),
            metadata.mode() & 0o7777
        ));
    }
    Ok(())
}
