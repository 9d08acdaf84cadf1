//! Opens files for the commands: sealed ones with keys, and plain ones.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use gambeson_file::{Below, Cause, Error, Extent, Form, Head, LocalBody, SealedFile};
use gambeson_keys::Keys;

use super::ranks::Ranks;
use crate::failure::{Failure, Status};

/// A sealed file, of which every thread has a handle of its own.
pub(super) struct Opener {
    pub(super) name: String,
    pub(super) below: Below<LocalBody>,
    pub(super) head: Head,
    pub(super) keys: Arc<dyn Keys>,
}

impl Opener {
    /// Looks at a file that has to be sealed.
    pub(super) fn new(path: &Path, keys: Arc<dyn Keys>, access: Access) -> Result<Self, Failure> {
        let (name, below) = (path.display().to_string(), below(path, access)?);
        let head = head(&name, &below)?;
        Ok(Opener { name, below, head, keys })
    }

    /// Looks at a file that all processes of a command are to read, as the first of them finds it.
    pub(super) fn shared(
        path: &Path,
        ranks: &Ranks,
        keys: impl FnOnce() -> Result<Arc<dyn Keys>, Failure>,
    ) -> Result<Self, Failure> {
        let mut opener = ranks.agreed(keys().and_then(|keys| Opener::new(path, keys, Access::Read)))?;
        opener.take_head(ranks.told(opener.head.encode())?);
        Ok(opener)
    }

    /// Goes by the head that the first process has read.
    pub(super) fn take_head(&mut self, message: Vec<u8>) {
        self.head = Head::decode(&message).expect("a process of this command has read it");
    }

    /// A handle.
    pub(super) fn handle(&self) -> Result<SealedFile<LocalBody>, Error> {
        SealedFile::open(&self.name, self.below.clone(), self.head.clone(), self.keys.clone())
    }
}

/// What a file is opened for.
#[derive(Clone, Copy)]
pub(super) enum Access {
    Read,
    ReadAndWrite,
}

impl Access {
    fn options(self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.read(true).write(matches!(self, Access::ReadAndWrite));
        options
    }
}

/// Opens what there is under a name, sealed or not.
pub(super) fn below(path: &Path, access: Access) -> Result<Below<LocalBody>, Failure> {
    if path.metadata().is_ok() {
        file(path, access)?;
    }
    gambeson_file::open(path, &access.options()).map_err(|error| cannot("opened", path, &error))
}

/// Opens the file that has the data.
pub(super) fn file(path: &Path, access: Access) -> Result<File, Failure> {
    let file = access.options().open(path).map_err(|error| cannot("opened", path, &error))?;
    let data = file.metadata().map_err(|error| cannot("opened", path, &error))?;
    if !data.is_file() {
        return Err(Failure::usage(format!("{} is no regular file", path.display())));
    }
    Ok(file)
}

/// What a sealed file has to say of itself.
pub(super) fn head(name: &str, below: &Below<LocalBody>) -> Result<Head, Failure> {
    let read = Head::read(below.sealed());
    let read = read.map_err(|error| Failure::system(format!("{name} cannot be read ({error})")))?;
    read.ok_or_else(|| {
        let what = match below.data() {
            Some(_) => "both copies of the header in its sidecar are gone",
            None => "it is no sealed file, or both copies of its header, or its sidecar, are gone; `gambeson file seal` seals a plain one",
        };
        Failure::new(Status::Data, format!("{name}: {what}"))
    })
}

/// Refuses a sealed file where a plain one is wanted.
pub(super) fn refuse_sealed(path: &Path) -> Result<(), Failure> {
    match gambeson_file::form(path) {
        Ok(Form::Attached | Form::Detached) => Err(Failure::new(
            Status::Data,
            format!(
                "{} is sealed already; `gambeson file rekey` changes keys and maps of a sealed file",
                path.display()
            ),
        )),
        Ok(_) => Ok(()),
        Err(error) => Err(cannot("read", path, &error)),
    }
}

pub(super) fn cannot(done: &str, path: &Path, error: &io::Error) -> Failure {
    let status = if error.kind() == io::ErrorKind::NotFound { Status::Unavailable } else { Status::System };
    Failure::new(status, format!("{} cannot be {done} ({error})", path.display()))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match error.cause {
            Cause::Kind => Status::Data,
            Cause::Key => Status::NotPermitted,
            Cause::Access | Cause::Map => Status::Usage,
            Cause::NoLocks | Cause::Storage => Status::System,
            _ => Status::Refused,
        };
        Failure::new(status, error.to_string())
    }
}

/// The bytes of a file as programs see them, sealed or not.
pub(super) enum Contents {
    Sealed(Box<SealedFile<LocalBody>>),
    Plain(String, File),
}

impl Contents {
    /// Bytes of it.
    pub(super) fn size(&mut self) -> Result<u64, Failure> {
        match self {
            Contents::Sealed(file) => Ok(file.size()?),
            Contents::Plain(name, file) => Ok(file.metadata().map_err(|error| unreadable(name, &error))?.len()),
        }
    }

    /// Reads what is before its end.
    pub(super) fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), Failure> {
        match self {
            Contents::Sealed(file) => {
                file.read(&[Extent { offset, length: into.len() as u64 }], into)?;
                Ok(())
            }
            Contents::Plain(name, file) => file.read_exact_at(into, offset).map_err(|error| unreadable(name, &error)),
        }
    }
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::system(format!("{name} cannot be read ({error})"))
}
