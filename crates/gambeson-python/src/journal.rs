//! Keys of journals, for gambeson.farm: entries are messages of several buffers, sealed.

use std::path::PathBuf;

use gambeson_keys::{JournalKeys, KeyError, WrappedKey};
use gambeson_proto::frame::{Frame, header};
use pyo3::exceptions::{PyPermissionError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::file::ring;
use crate::link::buffer::Payload;
use crate::link::inbox::parts;
use crate::link::outbox::pieces;

/// What names and seals the entries of a journal.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeJournalKeys(JournalKeys);

#[pymethods]
impl NativeJournalKeys {
    /// Keys for a new journal, and its data key as the label wraps it. `keys` is a key store's folder, `passphrase` opens it
    /// if it asks for one.
    #[staticmethod]
    fn create(
        py: Python<'_>,
        keys: Option<PathBuf>,
        passphrase: Option<String>,
        label: &str,
        id: [u8; 16],
    ) -> PyResult<(Self, u32, Py<PyBytes>)> {
        let made =
            py.detach(|| JournalKeys::create(ring(keys.as_deref(), passphrase)?.as_ref(), label, id)).map_err(refused);
        let (keys, wrapped) = made?;
        Ok((NativeJournalKeys(keys), wrapped.version, PyBytes::new(py, &wrapped.bytes).unbind()))
    }

    /// Those of a journal that is there.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        keys: Option<PathBuf>,
        passphrase: Option<String>,
        label: &str,
        id: [u8; 16],
        wrapped: (u32, Vec<u8>),
    ) -> PyResult<Self> {
        let wrapped = WrappedKey { version: wrapped.0, bytes: wrapped.1 };
        let opened = py.detach(|| JournalKeys::open(ring(keys.as_deref(), passphrase)?.as_ref(), label, id, &wrapped));
        opened.map(NativeJournalKeys).map_err(refused)
    }

    /// What an entry is called that is of this.
    fn name<'py>(&self, py: Python<'py>, of: &[u8]) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.name(of))
    }

    /// An entry: a number, and buffers.
    fn seal<'py>(
        &self,
        py: Python<'py>,
        name: [u8; 32],
        number: u64,
        parts: Vec<Payload>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        let sealed = py.detach(|| self.0.seal(&name, &pieces(&header(number, 0, &lengths), &parts).concat()));
        Ok(PyBytes::new(py, &sealed.map_err(refused)?))
    }

    /// What was sealed; nothing if it was not, in this journal and under this name.
    fn unseal<'py>(
        &self,
        py: Python<'py>,
        name: [u8; 32],
        sealed: Payload,
    ) -> PyResult<Option<(u64, Bound<'py, PyList>)>> {
        let Some(mut plain) = py.detach(|| self.0.unseal(&name, &sealed)) else {
            return Ok(None);
        };
        let frame = Frame::parse(&plain).ok_or_else(|| PyValueError::new_err("an entry that is no message"))?;
        Ok(Some((frame.number, parts(py, std::mem::take(&mut *plain), &frame)?)))
    }
}

fn refused(error: KeyError) -> PyErr {
    PyPermissionError::new_err(error.to_string())
}
