//! Record batches for Python: validation, building, decoding to Arrow buffers.

use std::ffi::c_int;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use headrace_core::record::{
    self, BatchBuilder, Batches, BinaryColumn, Codec, Columns, Compressed, Producer, Share,
    Summary, DECOMPRESSED_BYTES_MAX,
};
use pyo3::exceptions::PyValueError;
use pyo3::ffi;
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

    #[getter]
    fn log_append_time(&self) -> bool {
        self.0.log_append_time
    }

    #[getter]
    fn delete_horizon(&self) -> bool {
        self.0.delete_horizon
    }

    #[getter]
    fn keyless(&self) -> bool {
        self.0.keyless
    }

    #[getter]
    fn misdated(&self) -> bool {
        self.0.misdated
    }

    #[getter]
    fn record_bytes(&self) -> usize {
        self.0.record_bytes
    }

    #[getter]
    fn record_headers(&self) -> usize {
        self.0.record_headers
    }
}

#[pyfunction]
#[pyo3(signature = (data, open_compressed = true, bytes_max = 134_217_728))]
fn validate_batches(
    py: Python<'_>,
    data: &[u8],
    open_compressed: bool,
    bytes_max: usize,
) -> PyResult<BatchSummary> {
    let compressed = if open_compressed {
        Compressed::Opened { bytes_max }
    } else {
        Compressed::Closed
    };
    py.detach(|| record::validate(data, compressed))
        .map(BatchSummary)
        .map_err(|error| record_error(py, &error))
}

#[pyfunction]
fn recode_batches<'py>(py: Python<'py>, data: &[u8], codec: &str) -> PyResult<Bound<'py, PyBytes>> {
    let codec = codec_of(codec)?;
    py.detach(|| record::recode(data, codec, DECOMPRESSED_BYTES_MAX))
        .map(|recoded| PyBytes::new(py, &recoded))
        .map_err(|error| record_error(py, &error))
}

/// Records on their way to subscribers, which are copied neither by Python nor for it.
#[pyclass(frozen, module = "headrace._native")]
pub struct StreamPiece {
    pub batches: Arc<[u8]>,
    pub left_out: Vec<i64>,
}

#[pymethods]
impl StreamPiece {
    #[new]
    fn new(batches: &[u8]) -> Self {
        Self {
            batches: batches.into(),
            left_out: Vec::new(),
        }
    }

    fn __len__(&self) -> usize {
        self.batches.len()
    }
}

#[pyfunction]
fn unpack_batches(
    py: Python<'_>,
    batches: &[u8],
    offset: i64,
    bytes_max: usize,
    batch_bytes_max: usize,
    record_bytes_max: usize,
) -> Option<StreamPiece> {
    let share = Share {
        offset,
        bytes_max,
        batch_bytes_max,
        record_bytes_max,
    };
    py.detach(|| {
        let unpacked = record::unpack(batches, &share)?;
        Some(StreamPiece {
            batches: unpacked.batches.into(),
            left_out: unpacked.left_out,
        })
    })
}

/// The codec of that name.
pub fn codec_of(name: &str) -> PyResult<Codec> {
    Codec::from_name(name).ok_or_else(|| {
        let names = Codec::ALL.map(Codec::name).join(", ");
        PyValueError::new_err(format!("codec must be one of {names}; got {name:?}"))
    })
}

/// Key, value, headers, timestamp in milliseconds.
type PyRecord = (
    Option<PyBackedBytes>,
    Option<PyBackedBytes>,
    Vec<(PyBackedStr, Option<PyBackedBytes>)>,
    i64,
);

#[pyfunction]
#[pyo3(
    signature = (records, codec = "none", *, published = false, producer = (-1, -1, -1)),
    text_signature = "(records, codec='none', *, published=False, producer=(-1, -1, -1))"
)]
fn build_batch<'py>(
    py: Python<'py>,
    records: Vec<PyRecord>,
    codec: &str,
    published: bool,
    producer: (i64, i16, i32),
) -> PyResult<Bound<'py, PyBytes>> {
    let codec = codec_of(codec)?;
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
    let batch = if published {
        builder.finish_published(codec)
    } else {
        let (id, epoch, sequence) = producer;
        let producer = Producer {
            id,
            epoch,
            sequence,
        };
        py.detach(|| builder.finish_for(codec, producer))
    };
    Ok(PyBytes::new(py, &batch))
}

/// Bytes that Python reads in place, through the buffer protocol.
#[pyclass(frozen, module = "headrace._native")]
pub struct Buffer(Bytes);

impl Buffer {
    /// Takes bytes in.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// # Safety
    /// Python calls this with a view to fill.
    unsafe fn __getbuffer__(
        slf: &Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = &slf.get().0;
        let start = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the view is read-only and keeps this object, whose bytes never move or change.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, bytes.len() as isize, 1, flags)
        };
        if filled == 0 {
            Ok(())
        } else {
            Err(PyErr::fetch(slf.py()))
        }
    }
}

/// Validity bitmap, offsets, data.
type Column = (Option<Py<Buffer>>, Py<Buffer>, Py<Buffer>);

/// Decoded records as Arrow buffers, ready for `pyarrow.Array.from_buffers`.
#[pyclass(frozen, get_all, module = "headrace._native")]
pub struct RecordColumns {
    pub records: usize,
    next_offset: i64,
    offsets: Py<Buffer>,
    timestamps_us: Py<Buffer>,
    keys: Column,
    values: Column,
    header_lists: Py<Buffer>,
    header_keys: Column,
    header_values: Column,
}

impl RecordColumns {
    fn new(py: Python<'_>, columns: Columns) -> PyResult<Self> {
        let buffer = |bytes| Py::new(py, Buffer::new(bytes));
        let column = |column: BinaryColumn| -> PyResult<Column> {
            let validity = column.validity.map(buffer).transpose()?;
            Ok((validity, buffer(column.offsets)?, buffer(column.data)?))
        };
        Ok(Self {
            records: columns.records,
            next_offset: columns.next_offset,
            offsets: buffer(columns.offsets)?,
            timestamps_us: buffer(columns.timestamps_us)?,
            keys: column(columns.keys)?,
            values: column(columns.values)?,
            header_lists: buffer(columns.header_lists)?,
            header_keys: column(columns.header_keys)?,
            header_values: column(columns.header_values)?,
        })
    }
}

impl RecordColumns {
    /// Offset of a record.
    pub fn offset(&self, row: usize) -> i64 {
        i64::from_le_bytes(element(&self.offsets.get().0, row))
    }

    /// Its time, microseconds since 1970.
    pub fn timestamp_us(&self, row: usize) -> i64 {
        i64::from_le_bytes(element(&self.timestamps_us.get().0, row))
    }

    /// Its value.
    pub fn value(&self, row: usize) -> Option<&[u8]> {
        cell(&self.values, row)
    }

    /// Its key.
    pub fn key(&self, row: usize) -> Option<&[u8]> {
        cell(&self.keys, row)
    }

    /// Names and values of its headers.
    pub fn headers(&self, row: usize) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> + Clone {
        bounds(&self.header_lists.get().0, row).map(|index| {
            let name = cell(&self.header_keys, index).expect("a header has a name");
            (name, cell(&self.header_values, index))
        })
    }
}

/// Offset, timestamp in milliseconds, key, value, headers.
type Row<'a, 'py> = (i64, i64, Field<'py>, Field<'py>, Vec<(&'a str, Field<'py>)>);
type Field<'py> = Option<Bound<'py, PyBytes>>;

/// Validity bitmap, offsets, data, as bytes.
type Given = (Option<Vec<u8>>, Vec<u8>, Vec<u8>);

#[pymethods]
impl RecordColumns {
    #[staticmethod]
    fn of(
        py: Python<'_>,
        timestamps_us: Vec<u8>,
        keys: Given,
        values: Given,
        header_lists: Vec<u8>,
        header_keys: Given,
        header_values: Given,
    ) -> PyResult<Self> {
        let records = timestamps_us.len() / 8;
        let headers = header_keys.1.len().saturating_sub(4) / 4;
        for (rows, (validity, offsets, data)) in [
            (records, &keys),
            (records, &values),
            (headers, &header_keys),
            (headers, &header_values),
        ] {
            let bits = validity.as_ref().map_or(rows, |bits| 8 * bits.len());
            if bits < rows || !is_ascending(offsets, rows, data.len()) {
                return Err(PyValueError::new_err("a column is not whole"));
            }
        }
        if !is_ascending(&header_lists, records, headers) {
            return Err(PyValueError::new_err("the lists of headers are not whole"));
        }
        let column = |(validity, offsets, data): Given| BinaryColumn {
            validity,
            offsets,
            data,
        };
        let columns = Columns {
            records,
            next_offset: records as i64,
            offsets: (0..records as i64).flat_map(i64::to_le_bytes).collect(),
            timestamps_us,
            keys: column(keys),
            values: column(values),
            header_lists,
            header_keys: column(header_keys),
            header_values: column(header_values),
        };
        Self::new(py, columns)
    }

    fn digests<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        (0..self.records)
            .map(|row| {
                let (key, value) = (self.key(row), self.value(row));
                PyBytes::new(
                    py,
                    &record::digest(key, value, self.headers(row)).to_le_bytes(),
                )
            })
            .collect()
    }

    #[pyo3(signature = (start = 0, stop = usize::MAX))]
    fn rows<'a, 'py>(&'a self, py: Python<'py>, start: usize, stop: usize) -> Vec<Row<'a, 'py>> {
        let field = |column, row| cell(column, row).map(|bytes| PyBytes::new(py, bytes));
        let header = |(name, value): (&'a [u8], Option<&[u8]>)| {
            let name = std::str::from_utf8(name).expect("the decoder made it UTF-8");
            (name, value.map(|bytes| PyBytes::new(py, bytes)))
        };
        (start..self.records.min(stop))
            .map(|row| {
                (
                    self.offset(row),
                    self.timestamp_us(row) / 1000,
                    field(&self.keys, row),
                    field(&self.values, row),
                    self.headers(row).map(header).collect(),
                )
            })
            .collect()
    }
}

/// The bytes of one row of a binary column, or null.
fn cell((validity, offsets, data): &Column, row: usize) -> Option<&[u8]> {
    let is_null = |bits: &Py<Buffer>| bits.get().0[row / 8] >> (row % 8) & 1 == 0;
    if validity.as_ref().is_some_and(is_null) {
        return None;
    }
    Some(&data.get().0[bounds(&offsets.get().0, row)])
}

/// Whether `offsets` say of so many rows where each begins and ends within `end`.
fn is_ascending(offsets: &[u8], rows: usize, end: usize) -> bool {
    if offsets.len() != 4 * (rows + 1) {
        return false;
    }
    let at = |row| i32::from_le_bytes(element(offsets, row));
    at(0) >= 0 && (0..rows).all(|row| at(row) <= at(row + 1)) && at(rows) as usize <= end
}

/// Where `row` begins and ends, by a buffer of int32 offsets.
fn bounds(offsets: &[u8], row: usize) -> Range<usize> {
    let at = |index| i32::from_le_bytes(element(offsets, index)) as usize;
    at(row)..at(row + 1)
}

/// The element `index` of a buffer of `N`-byte elements.
fn element<const N: usize>(buffer: &[u8], index: usize) -> [u8; N] {
    *buffer[N * index..]
        .first_chunk()
        .expect("an Arrow buffer is whole")
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
        .map_err(|error| record_error(py, &error))
        .and_then(|columns| RecordColumns::new(py, columns))
}

/// Position, base offset, last offset, records, greatest timestamp, codec, producer (id, epoch,
/// sequence), control, whether the CRC is right.
type BatchRow = (
    usize,
    i64,
    i64,
    i32,
    i64,
    &'static str,
    (i64, i16, i32),
    bool,
    bool,
);

#[pyfunction]
fn batch_headers(data: &[u8]) -> (Vec<BatchRow>, usize) {
    let mut batches = Batches::new(data);
    let mut rows = Vec::new();
    while let Some(Ok(batch)) = batches.next() {
        let header = &batch.header;
        rows.push((
            batch.position,
            header.base_offset,
            header.last_offset(),
            header.count,
            header.max_timestamp,
            header.codec().map_or("unknown", Codec::name),
            (
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
            ),
            header.is_control(),
            batch.check_crc().is_ok(),
        ));
    }
    (rows, batches.position())
}

#[pyfunction]
fn murmur2(key: &[u8]) -> u32 {
    record::murmur2(key)
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BatchSummary>()?;
    module.add_class::<Buffer>()?;
    module.add_class::<RecordColumns>()?;
    module.add_function(wrap_pyfunction!(validate_batches, module)?)?;
    module.add_function(wrap_pyfunction!(build_batch, module)?)?;
    module.add_function(wrap_pyfunction!(recode_batches, module)?)?;
    module.add_function(wrap_pyfunction!(unpack_batches, module)?)?;
    module.add_class::<StreamPiece>()?;
    module.add_function(wrap_pyfunction!(decode_records, module)?)?;
    module.add_function(wrap_pyfunction!(batch_headers, module)?)?;
    module.add_function(wrap_pyfunction!(murmur2, module)?)
}
