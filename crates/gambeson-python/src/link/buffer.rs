//! Bytes that Python has: read, and written, where they are.
#![allow(unsafe_code)]

use std::ops::Deref;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PySequence, PyString};

/// Anything with the buffer protocol, in one piece: bytes, a bytearray, a memoryview, an array. Nothing is copied.
pub(crate) enum Payload {
    Bytes(PyBackedBytes),
    Buffer(PyUntypedBuffer),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Payload {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Payload::Bytes(bytes.to_owned().into()));
        }
        contiguous(&object).map(Payload::Buffer)
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Payload::Bytes(bytes) => bytes,
            Payload::Buffer(buffer) if buffer.len_bytes() == 0 => &[],
            // SAFETY: whoever exports a buffer keeps it where it is while somebody has it, in one piece as was checked.
            // That nobody writes into it meanwhile is the program's promise, as with sockets and files: the bytes are
            // read once, and whatever they then are is sent.
            Payload::Buffer(buffer) => unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast_const().cast(), buffer.len_bytes())
            },
        }
    }
}

/// What a request says: one buffer, or several, one behind the other.
pub(crate) enum Message {
    One(Payload),
    Several(Vec<Payload>),
}

impl<'a, 'py> FromPyObject<'a, 'py> for Message {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        match object.extract() {
            Ok(payload) => Ok(Message::One(payload)),
            Err(wrong) if object.cast::<PySequence>().is_err() || object.is_instance_of::<PyString>() => Err(wrong),
            Err(wrong) if !wrong.is_instance_of::<PyTypeError>(object.py()) => Err(wrong),
            Err(_) => object.extract().map(Message::Several),
        }
    }
}

/// Memory of Python's that an answer is written into.
pub(crate) struct Room(PyUntypedBuffer);

impl<'a, 'py> FromPyObject<'a, 'py> for Room {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let buffer = contiguous(&object)?;
        if buffer.readonly() {
            return Err(PyBufferError::new_err("the buffer for the answer cannot be written into"));
        }
        Ok(Room(buffer))
    }
}

impl Room {
    pub(crate) fn len(&self) -> usize {
        self.0.len_bytes()
    }

    /// Fills the memory from its beginning on.
    pub(crate) fn fill(&self, bytes: &[u8]) -> PyResult<usize> {
        let room = self.0.len_bytes();
        if bytes.len() > room {
            let what = format!("the answer has {} bytes, and the buffer has room for {room}", bytes.len());
            return Err(PyBufferError::new_err(what));
        }
        // SAFETY: the memory is there, may be written and is long enough; Python's lock is held, and nothing of ours is
        // in it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0.buf_ptr().cast(), bytes.len()) };
        Ok(bytes.len())
    }
}

fn contiguous(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the buffer is not in one piece; copy it with bytes() first"));
    }
    Ok(buffer)
}
