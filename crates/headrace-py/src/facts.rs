//! What the log engine tells and is told, for Python: no call here touches the disk.

use headrace_core::log::{self, Fsync, SegmentFacts};
use headrace_io::{self as io, Found};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::IntoPyObjectExt;

use crate::errors::log_error;
use crate::records::Buffer;

/// Where a queued append will stand.
#[pyclass(frozen, module = "headrace._native")]
pub struct Appended(pub log::Appended);

#[pymethods]
impl Appended {
    #[getter]
    fn base_offset(&self) -> i64 {
        self.0.base_offset
    }

    #[getter]
    fn duplicate(&self) -> bool {
        self.0.duplicate
    }
}

/// The end of one append.
#[pyclass(frozen, module = "headrace._native")]
pub struct Completion(pub log::Completion);

#[pymethods]
impl Completion {
    #[getter]
    fn ticket(&self) -> u64 {
        self.0.ticket
    }

    #[getter]
    fn log(&self) -> u32 {
        self.0.log.0
    }

    #[getter]
    fn error(&self) -> Option<&str> {
        self.0.error.as_deref()
    }
}

/// The end of one read that waited for the disk.
#[pyclass(frozen, module = "headrace._native")]
pub struct ReadEnd {
    #[pyo3(get)]
    ticket: u64,
    outcome: Result<Py<PyAny>, log::Error>,
}

impl ReadEnd {
    /// Takes over what was read.
    pub fn new(py: Python<'_>, end: io::ReadEnd) -> PyResult<Self> {
        let outcome = match end.outcome {
            Ok(Found::Batches(batches)) => Ok(Py::new(py, Buffer::new(batches))?.into_any()),
            Ok(Found::Place(place)) => Ok(place.into_py_any(py)?),
            Err(error) => Err(error),
        };
        Ok(Self {
            ticket: end.ticket,
            outcome,
        })
    }
}

#[pymethods]
impl ReadEnd {
    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match &self.outcome {
            Ok(found) => Ok(found.clone_ref(py)),
            Err(error) => Err(log_error(py, error)),
        }
    }
}

/// What opening a data folder found and mended.
#[pyclass(frozen, module = "headrace._native")]
pub struct Recovery(pub log::Recovery);

#[pymethods]
impl Recovery {
    #[getter]
    fn clean(&self) -> bool {
        self.0.clean
    }

    #[getter]
    fn logs(&self) -> u64 {
        self.0.logs
    }

    #[getter]
    fn replayed_batches(&self) -> u64 {
        self.0.replayed_batches
    }

    #[getter]
    fn truncated_bytes(&self) -> u64 {
        self.0.truncated_bytes
    }

    #[getter]
    fn rebuilt_indexes(&self) -> u64 {
        self.0.rebuilt_indexes
    }
}

/// How one log is cut into segments.
#[pyclass(frozen, eq, module = "headrace._native")]
#[derive(PartialEq)]
pub struct LogSettings(pub log::LogSettings);

#[pymethods]
impl LogSettings {
    #[new]
    #[pyo3(signature = (
        *, segment_bytes = 1_073_741_824, segment_ms = 604_800_000, segment_index_bytes = 10_485_760,
        fsync = "commit", flush_ms = 1000, producer_expiry_ms = 86_400_000,
    ))]
    fn new(
        segment_bytes: u64,
        segment_ms: u64,
        segment_index_bytes: u64,
        fsync: &str,
        flush_ms: u64,
        producer_expiry_ms: u64,
    ) -> PyResult<Self> {
        let fsync = match fsync {
            "commit" => Fsync::Commit,
            "interval" => Fsync::Interval,
            "os" => Fsync::Os,
            _ => {
                let wrong = format!("fsync is commit, interval or os, not {fsync:?}");
                return Err(PyValueError::new_err(wrong));
            }
        };
        Ok(Self(log::LogSettings {
            segment_bytes,
            segment_ms,
            segment_index_bytes,
            fsync,
            flush_ms,
            producer_expiry_ms,
        }))
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// What is known of one segment.
#[pyclass(frozen, module = "headrace._native")]
pub struct Segment(pub SegmentFacts);

#[pymethods]
impl Segment {
    #[getter]
    fn base_offset(&self) -> i64 {
        self.0.base_offset
    }

    #[getter]
    fn next_offset(&self) -> i64 {
        self.0.next_offset
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    #[getter]
    fn max_timestamp_ms(&self) -> Option<i64> {
        self.0.max_timestamp
    }

    #[getter]
    fn created_ms(&self) -> Option<i64> {
        self.0.created_ms
    }

    #[getter]
    fn active(&self) -> bool {
        self.0.active
    }

    #[getter]
    fn clean(&self) -> bool {
        self.0.clean
    }

    #[getter]
    fn horizon_ms(&self) -> Option<i64> {
        self.0.horizon_ms
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

/// What a compaction did.
#[pyclass(frozen, module = "headrace._native")]
pub struct Compaction(pub log::Compaction);

#[pymethods]
impl Compaction {
    #[getter]
    fn read_bytes(&self) -> u64 {
        self.0.read_bytes
    }

    #[getter]
    fn written_bytes(&self) -> u64 {
        self.0.written_bytes
    }

    #[getter]
    fn kept_records(&self) -> u64 {
        self.0.kept_records
    }

    #[getter]
    fn removed_records(&self) -> u64 {
        self.0.removed_records
    }

    #[getter]
    fn clean_to(&self) -> i64 {
        self.0.clean_to
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0)
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Appended>()?;
    module.add_class::<Compaction>()?;
    module.add_class::<Completion>()?;
    module.add_class::<ReadEnd>()?;
    module.add_class::<LogSettings>()?;
    module.add_class::<Segment>()?;
    module.add_class::<Recovery>()
}
