//! Tables as Arrow, through its C stream interface: pyarrow, pandas, polars and others take them as they are.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, StringArray, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use gambeson_study::sweep::{Table, Values};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};

use crate::outcomes;

/// Columns of equal length.
#[pyclass(frozen, module = "gambeson._native")]
pub(crate) struct NativeTable {
    table: Table,
    batch: RecordBatch,
}

impl NativeTable {
    pub(crate) fn new(table: Table) -> Self {
        let field = |name: &str, values: &Values| match values {
            Values::Text(_) => Field::new(name, DataType::Utf8, false),
            Values::Count(_) => Field::new(name, DataType::UInt64, false),
            Values::Number(_) => Field::new(name, DataType::Float64, true),
        };
        let array = |values: &Values| -> ArrayRef {
            match values {
                Values::Text(texts) => Arc::new(StringArray::from_iter_values(texts)),
                Values::Count(counts) => Arc::new(UInt64Array::from(counts.clone())),
                Values::Number(numbers) => Arc::new(Float64Array::from(numbers.clone())),
            }
        };
        let fields: Vec<Field> = table.columns.iter().map(|column| field(&column.name, &column.values)).collect();
        let arrays = table.columns.iter().map(|column| array(&column.values)).collect();
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).expect("columns of equal length");
        Self { table, batch }
    }
}

#[pymethods]
impl NativeTable {
    /// The table of one outcome.
    #[staticmethod]
    fn of(text: String) -> PyResult<Self> {
        Ok(Self::new(Table::new(&[], &[&[]], &outcomes(&[text])?)))
    }

    fn __len__(&self) -> usize {
        self.table.rows
    }

    fn names(&self) -> Vec<String> {
        self.table.columns.iter().map(|column| column.name.clone()).collect()
    }

    /// Each column as a list.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        for column in &self.table.columns {
            let list = match &column.values {
                Values::Text(texts) => PyList::new(py, texts)?,
                Values::Count(counts) => PyList::new(py, counts)?,
                Values::Number(numbers) => PyList::new(py, numbers)?,
            };
            columns.set_item(&column.name, list)?;
        }
        Ok(columns)
    }

    /// An ArrowArrayStream of one batch; another schema is not made of it, as the interface allows.
    #[pyo3(signature = (requested_schema = None))]
    fn stream<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let schema = self.batch.schema();
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], schema);
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }
}
