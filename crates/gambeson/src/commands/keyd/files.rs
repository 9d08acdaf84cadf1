//! Where a service has its files, and who is asked for what opens them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::Args;
use gambeson_keyd::Database;
use gambeson_launch::authority::host_folder;
use gambeson_master::{MasterError, MasterKey, Place};

use super::{failed, unmade};
use crate::failure::{Failure, Status};
use crate::keys;

/// Where a service has its files.
#[derive(Args)]
pub(super) struct Files {
    /// Where authority.pem, host.pem and keyd.toml are; /etc/gambeson for root, else ~/.config/gambeson
    #[arg(long, value_name = "FOLDER")]
    pub(super) folder: Option<PathBuf>,
    /// The database, instead of keyd/keys.db in the folder
    #[arg(long, value_name = "FILE")]
    pub(super) database: Option<PathBuf>,
    /// A file with the passphrase of the master key, mode 0600, instead of asking for it; - reads a line of stdin
    #[arg(long, value_name = "FILE")]
    pub(super) passphrase_file: Option<PathBuf>,
}

impl Files {
    pub(super) fn folder(&self) -> PathBuf {
        self.folder.clone().unwrap_or_else(host_folder)
    }

    pub(super) fn database(&self) -> PathBuf {
        self.database.clone().unwrap_or_else(|| self.folder().join("keyd").join("keys.db"))
    }

    pub(super) fn beside(&self, end: &str) -> PathBuf {
        let mut path = self.database().into_os_string();
        path.push(end);
        path.into()
    }

    /// Whether there is a database; nobody knows to whom its folder is closed.
    pub(super) fn is_there(&self) -> Result<bool, Failure> {
        let database = self.database();
        database.try_exists().map_err(|error| closed(&database, &error))
    }

    pub(super) fn must_be_there(&self) -> Result<PathBuf, Failure> {
        let database = self.database();
        if self.is_there()? {
            return Ok(database);
        }
        Err(gambeson_keyd::Error::NoDatabase { path: database.display().to_string() }.into())
    }

    /// Where the service that has the database open takes commands.
    pub(super) fn socket(&self) -> PathBuf {
        self.beside(".control")
    }

    /// The file that says which master key it is.
    pub(super) fn master_file(&self) -> PathBuf {
        self.beside(".master")
    }

    /// The places of master keys of which one opens the database: one, but for a change that was cut off.
    pub(super) fn masters(&self) -> Result<Vec<String>, Failure> {
        let path = self.master_file();
        let text = fs::read_to_string(&path).map_err(|error| {
            Failure::unavailable(format!(
                "{} does not say which master key it is ({error}); write the place of the master key into that file, as \
                 `gambeson keyd init` had printed it",
                path.display()
            ))
        })?;
        Ok(text.lines().map(str::to_owned).filter(|line| !line.is_empty()).collect())
    }

    pub(super) fn remember_master(&self, names: &[&str]) -> Result<(), Failure> {
        remember(&self.master_file(), names)
    }

    pub(super) fn master_at(&self, place: &Place) -> Result<Box<dyn MasterKey>, Failure> {
        asking(self.passphrase_file.as_deref(), "--passphrase-file", |ask| gambeson_master::open(place, ask))
    }

    pub(super) fn master_key(&self) -> Result<Box<dyn MasterKey>, Failure> {
        let names = self.masters()?;
        let place = names.first().ok_or_else(|| Failure::unavailable("no master key is named"))?;
        self.master_at(&place.parse().map_err(failed)?)
    }

    /// Opens the database by the first of its master keys that does.
    pub(super) fn open(&self) -> Result<Database, Failure> {
        let database = self.must_be_there()?;
        let mut refused = None;
        for name in self.masters()? {
            let place: Place = name.parse().map_err(failed)?;
            let opened = self.master_at(&place).and_then(|master| Ok(Database::open(&database, master.as_ref())?));
            match opened {
                Ok(opened) => return Ok(opened),
                Err(failure) => drop(refused.get_or_insert(failure)),
            }
        }
        Err(refused.unwrap_or_else(|| Failure::unavailable("no master key is named")))
    }
}

pub(super) fn remember(path: &Path, names: &[&str]) -> Result<(), Failure> {
    let beside = path.with_extension("master-new");
    let text: String = names.iter().map(|name| format!("{name}\n")).collect();
    let written = fs::write(&beside, text)
        .and_then(|()| fs::File::open(&beside)?.sync_all())
        .and_then(|()| fs::rename(&beside, path));
    written.map_err(|error| unmade(path, &error))
}

/// Runs what may ask for a passphrase, which comes from a file, which an option names, or from who sits at the terminal.
pub(super) fn asking<T>(
    file: Option<&Path>,
    option: &str,
    run: impl FnOnce(&mut gambeson_master::Ask<'_>) -> Result<T, MasterError>,
) -> Result<T, Failure> {
    let (mut failure, mut nobody) = (None, false);
    let outcome = run(&mut |prompt| match keys::secret(file, prompt) {
        Ok(secret) => {
            nobody = secret.is_none();
            secret
        }
        Err(cause) => {
            failure.get_or_insert(cause);
            None
        }
    });
    match (failure, outcome) {
        (Some(failure), _) => Err(failure),
        (None, Err(error)) if nobody => Err(Failure::new(
            Status::NotPermitted,
            format!("{error}; name a file with it ({option}), or start this again where somebody can be asked"),
        )),
        (None, outcome) => outcome.map_err(failed),
    }
}

/// Says whose a folder is that hides a file from this user.
fn closed(path: &Path, error: &io::Error) -> Failure {
    let folder = path.ancestors().skip(1).find_map(|folder| Some((folder, fs::metadata(folder).ok()?.uid())));
    match folder {
        Some((folder, owner)) if error.kind() == io::ErrorKind::PermissionDenied => {
            let (folder, path) = (folder.display(), path.display());
            let (whose, who) = match owner {
                0 => ("root's".to_owned(), "root".to_owned()),
                uid => (format!("user {uid}'s"), "that user".to_owned()),
            };
            let what = format!(
                "the folder {folder} is {whose} and closed to you, so {path} cannot be seen; run this as {who}"
            );
            Failure::new(Status::NotPermitted, what)
        }
        _ => Failure::unavailable(format!("{} cannot be looked at ({error})", path.display())),
    }
}
