//! Record batches for Python: validation, building, decoding to Arrow buffers.

use headrace_core::record::{
    self, BatchBuilder, BinaryColumn, Codec, Columns, Compressed, Summary, DECOMPRESSED_BYTES_MAX,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyBytes;

use crate::errors::record_error;

/// What a run of validated record batches holds.
#[pyclass(frozen, module = "headrace._native")]
struct BatchSummary(Summary);

#[pymethods]
impl BatchSummary {
    #[getter]
    fn records(&self) -> u64 {
        self.0.records
    }

    #[getter]
    fn batches(&self) -> u32 {
        self.0.batches
    }

    #[getter]
    fn max_timestamp(&self) -> i64 {
        self.0.max_timestamp
    }

    #[getter]
    fn control(&self) -> bool {
        self.0.control
    }

    #[getter]
    fn transactional(&self) -> bool {
        self.0.transactional
    }
}

#[pyfunction]
#[pyo3(signature = (data, open_compressed = true))]
fn validate_batches(py: Python<'_>, data: &[u8], open_compressed: bool) -> PyResult<BatchSummary> {
    let compressed = if open_compressed {
        Compressed::Opened {
            bytes_max: DECOMPRESSED_BYTES_MAX,
        }
    } else {
        Compressed::Closed
    };
    py.detach(|| record::validate(data, compressed))
        .map(BatchSummary)
        .map_err(|error| record_error(py, &error))
}

/// Key, value, headers, timestamp in milliseconds.
type PyRecord = (
    Option<PyBackedBytes>,
    Option<PyBackedBytes>,
    Vec<(PyBackedStr, Option<PyBackedBytes>)>,
    i64,
);

#[pyfunction]
#[pyo3(signature = (records, codec = "none"))]
fn build_batch<'py>(
    py: Python<'py>,
    records: Vec<PyRecord>,
    codec: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let codec = Codec::from_name(codec).ok_or_else(|| {
        let names = Codec::ALL.map(Codec::name).join(", ");
        PyValueError::new_err(format!("codec must be one of {names}; got {codec:?}"))
    })?;
    if records.is_empty() {
        return Err(PyValueError::new_err("a batch needs at least one record"));
    }
    let mut builder = BatchBuilder::new();
    for (key, value, headers, timestamp) in records {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_deref()));
        builder.push(timestamp, key.as_deref(), value.as_deref(), headers);
    }
    Ok(PyBytes::new(py, &builder.finish_with(codec)))
}

/// Decoded records as Arrow buffers, ready for `pyarrow.Array.from_buffers`.
#[pyclass(frozen, module = "headrace._native")]
struct RecordColumns(Columns);

type PyColumn<'py> = (
    Option<Bound<'py, PyBytes>>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
);

fn column<'py>(py: Python<'py>, column: &BinaryColumn) -> PyColumn<'py> {
    (
        column.validity.as_ref().map(|bits| PyBytes::new(py, bits)),
        PyBytes::new(py, &column.offsets),
        PyBytes::new(py, &column.data),
    )
}

#[pymethods]
impl RecordColumns {
    #[getter]
    fn records(&self) -> usize {
        self.0.records
    }

    #[getter]
    fn next_offset(&self) -> i64 {
        self.0.next_offset
    }

    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.offsets)
    }

    #[getter]
    fn timestamps_us<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.timestamps_us)
    }

    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> PyColumn<'py> {
        column(py, &self.0.keys)
    }

    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> PyColumn<'py> {
        column(py, &self.0.values)
    }

    #[getter]
    fn header_lists<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.header_lists)
    }

    #[getter]
    fn header_keys<'py>(&self, py: Python<'py>) -> PyColumn<'py> {
        column(py, &self.0.header_keys)
    }

    #[getter]
    fn header_values<'py>(&self, py: Python<'py>) -> PyColumn<'py> {
        column(py, &self.0.header_values)
    }
}

#[pyfunction]
fn decode_records(
    py: Python<'_>,
    data: &[u8],
    start: i64,
    end: i64,
    max_records: usize,
) -> PyResult<RecordColumns> {
    py.detach(|| record::decode_columns(data, start, end, max_records))
        .map(RecordColumns)
        .map_err(|error| record_error(py, &error))
}

#[pyfunction]
fn murmur2(key: &[u8]) -> u32 {
    record::murmur2(key)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BatchSummary>()?;
    module.add_class::<RecordColumns>()?;
    module.add_function(wrap_pyfunction!(validate_batches, module)?)?;
    module.add_function(wrap_pyfunction!(build_batch, module)?)?;
    module.add_function(wrap_pyfunction!(decode_records, module)?)?;
    module.add_function(wrap_pyfunction!(murmur2, module)?)
}
