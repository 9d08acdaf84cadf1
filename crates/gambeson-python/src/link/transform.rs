//! Transform modules in Python.

use gambeson_link::transform::End;
use gambeson_link::{Mapping, Transform};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::asked;
use super::buffer::Payload;

/// A module, as Python has it.
#[derive(FromPyObject)]
pub(crate) struct Module(
    /// Its name.
    String,
    /// Whether it remembers.
    bool,
    /// Called with whether this is the startpoint's end; what applies and what restores on a new link.
    Py<PyAny>,
);

impl Transform for Module {
    fn name(&self) -> &str {
        &self.0
    }

    fn open(&self, end: End) -> Result<Box<dyn Mapping>, String> {
        let (apply, restore) = asked(|py| self.2.bind(py).call1((end == End::Startpoint,))?.extract())?;
        Ok(Box::new(Link { apply, restore }))
    }

    fn remembers(&self) -> bool {
        self.1
    }
}

/// A module on one link.
struct Link {
    apply: Py<PyAny>,
    restore: Py<PyAny>,
}

impl Mapping for Link {
    fn apply(&mut self, message: &mut Vec<u8>) -> Result<(), String> {
        *message = asked(|py| bytes(&self.apply.bind(py).call1((PyBytes::new(py, message),))?))?;
        Ok(())
    }

    fn restore(&mut self, message: &mut Vec<u8>, most: usize) -> Result<(), String> {
        *message = asked(|py| bytes(&self.restore.bind(py).call1((PyBytes::new(py, message), most))?))?;
        Ok(())
    }
}

fn bytes(made: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    made.extract::<Payload>().map(|made| made.to_vec())
}
