//! Where a site's files are on this host: authorities, identities, and the daemon's log.

use std::env;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use gambeson_link::Identity;
use gambeson_site::directory::FOLDER;

use crate::failure::Failure;
use crate::pem::{self, Secret};

/// The folder of the site's files: root's is the host's.
pub(crate) fn folder() -> Result<PathBuf, Failure> {
    if rustix::process::geteuid().is_root() { Ok(FOLDER.into()) } else { own_folder() }
}

/// The folder of this user's files, whoever he is.
pub(crate) fn own_folder() -> Result<PathBuf, Failure> {
    Ok(under("XDG_CONFIG_HOME", ".config")?.join("gambeson"))
}

/// Where the daemon writes down what it does, unless it is told.
pub(crate) fn audit_log() -> Result<PathBuf, Failure> {
    let root = rustix::process::geteuid().is_root();
    let folder = if root { "/var/log".into() } else { under("XDG_STATE_HOME", ".local/state")? };
    Ok(folder.join("gambeson/audit.log"))
}

fn under(variable: &str, beside: &str) -> Result<PathBuf, Failure> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(variable).or_else(|| Some(set("HOME")?.join(beside))).ok_or_else(|| {
        Failure::unavailable(format!(
            "neither {variable} nor HOME is set, so it is not known where this user's files are"
        ))
    })
}

/// Makes a folder that nobody else may enter, if it is not there.
pub(crate) fn make_folder(folder: &Path) -> Result<(), Failure> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|cause| Failure::system(format!("the folder {} cannot be made ({cause})", folder.display())))
}

/// A key with its certificates, in one file.
pub(crate) fn identity(path: &Path) -> Result<Identity, Failure> {
    let none = || Failure::refused(format!("{} holds no private key with its certificate in PEM", path.display()));
    pem::read(path, &IDENTITY, |bytes| Identity::from_pem(bytes, bytes).ok(), none)
}

/// The certificates of the authorities that are accepted.
pub(crate) fn authorities(folder: &Path) -> Result<Vec<u8>, Failure> {
    let path = folder.join("authority.pem");
    fs::read(&path).map_err(|cause| {
        Failure::unavailable(format!(
            "the site's authority {} cannot be read ({cause}); `gambeson init` makes a site, `gambeson enroll` joins one",
            path.display()
        ))
    })
}

const IDENTITY: Secret = Secret {
    what: "the identity",
    others: "who could take its owner's place",
    remedy: "`gambeson init` makes a site, and `gambeson enroll` joins one",
};
