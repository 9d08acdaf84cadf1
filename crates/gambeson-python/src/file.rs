//! Sealed files for gambeson.open: read without MPI, under the identity of whoever runs Python.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gambeson_file::{Anchoring, Cause, Error, Extent, Head, LocalBody, SealedFile};
use gambeson_keys::{KeyError, Passphrase, Store};
use pyo3::exceptions::{PyFileNotFoundError, PyOSError, PyPermissionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A sealed file that is open for reading.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeFile {
    file: Mutex<SealedFile<LocalBody>>,
    size: u64,
}

#[pymethods]
impl NativeFile {
    /// Opens a file. `keys` is a key store's folder, `passphrase` opens it if it asks for one.
    #[new]
    fn open(py: Python<'_>, path: PathBuf, keys: Option<PathBuf>, passphrase: Option<String>) -> PyResult<Self> {
        py.detach(|| {
            let name = path.display().to_string();
            let below =
                gambeson_file::open(&path, OpenOptions::new().read(true)).map_err(|error| missing(&name, error))?;
            let head = Head::read(below.sealed())?.ok_or_else(|| match below.data() {
                Some(_) => PyOSError::new_err(format!("{name}: both copies of the header in its sidecar are gone")),
                None => {
                    PyValueError::new_err(format!("{name} is no sealed file; open() of Python's own reads it as it is"))
                }
            })?;
            let keys =
                ring(keys.as_deref(), passphrase).map_err(|error| PyPermissionError::new_err(error.to_string()))?;
            let mut file = SealedFile::open(&name, below, head, keys).map_err(raised)?;
            let size = file.size().map_err(raised)?;
            Ok(NativeFile { file: Mutex::new(file), size })
        })
    }

    /// Bytes of the file.
    #[getter]
    fn size(&self) -> u64 {
        self.size
    }

    /// Bytes of a block: what is read as one below.
    #[getter]
    fn block_size(&self) -> u32 {
        self.lock().geometry().block_len
    }

    /// Why an old version of the whole file would not have been noticed; nothing if it would.
    #[getter]
    fn not_anchored(&self) -> Option<String> {
        match self.lock().anchoring() {
            Anchoring::Covered => None,
            Anchoring::NotCovered(why) => Some(why.clone()),
        }
    }

    /// For each region its label, and why it can't be read; nothing for a plain one, and for one that can.
    fn regions(&self) -> Vec<(Option<String>, Option<String>)> {
        let file = self.lock();
        let table = file.header().table();
        let label = |region: &gambeson_proto::file::table::Region| {
            region.keys.last().map(|key| table.labels()[usize::from(key.label)].name.clone())
        };
        let refused = |number| file.unreadable(number).map(ToString::to_string);
        (0..).zip(table.regions()).map(|(number, region)| (label(region), refused(number))).collect()
    }

    /// Bytes from an offset on, fewer at the end of the file.
    fn read<'py>(&self, py: Python<'py>, offset: u64, length: usize) -> PyResult<Bound<'py, PyBytes>> {
        let length = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(length);
        let mut bytes = vec![0; length];
        let extent = Extent { offset, length: length as u64 };
        let read = py.detach(|| self.lock().read(&[extent], &mut bytes)).map_err(raised)?;
        Ok(PyBytes::new(py, &bytes[..read]))
    }
}

impl NativeFile {
    fn lock(&self) -> MutexGuard<'_, SealedFile<LocalBody>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The keys in a store's folder, or this process's own.
pub(crate) fn ring(place: Option<&Path>, passphrase: Option<String>) -> Result<Arc<dyn gambeson_keys::Keys>, KeyError> {
    let mut passphrase = passphrase.map(|text| Passphrase::new(text.into_bytes().into()));
    let mut ask = |_: &Path| passphrase.take();
    let ring = match place {
        Some(place) => Store::open(place, &mut ask)?.into_keys(),
        None => gambeson_keys::open_asking(&mut ask)?,
    };
    Ok(Arc::new(ring))
}

/// Python's own error where the system gave one, with the sentence where we did.
fn missing(name: &str, error: std::io::Error) -> PyErr {
    match error.get_ref() {
        Some(sentence) => PyFileNotFoundError::new_err(format!("{name}: {sentence}")),
        None => error.into(),
    }
}

fn raised(error: Error) -> PyErr {
    match error.cause {
        Cause::Key => PyPermissionError::new_err(error.to_string()),
        _ => PyOSError::new_err(error.to_string()),
    }
}
