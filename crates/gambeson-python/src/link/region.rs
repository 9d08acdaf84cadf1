//! Memory regions of endpoints.

use gambeson_link::Region;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::buffer::Payload;
use super::held::Held;
use super::raised;

/// Memory that startpoints reach.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeRegion(pub(crate) Held<Region>);

#[pymethods]
impl NativeRegion {
    fn number(&self) -> u64 {
        self.0.number()
    }

    fn __len__(&self) -> usize {
        self.0.len() as usize
    }

    fn read<'py>(&self, py: Python<'py>, offset: u64, length: usize) -> PyResult<Bound<'py, PyBytes>> {
        let read = || {
            // No more than there is, whatever was asked for.
            let mut copy = vec![0; length.min(self.0.len() as usize + 1)];
            self.0.read(offset, &mut copy).map(|()| copy)
        };
        py.detach(read).map(|copy| PyBytes::new(py, &copy)).map_err(raised)
    }

    fn write(&self, py: Python<'_>, offset: u64, bytes: Payload) -> PyResult<()> {
        py.detach(|| self.0.write(offset, &bytes)).map_err(raised)
    }
}
