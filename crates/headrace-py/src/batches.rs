//! A producer's batch, which grows record by record, and what stands for each of its records.

use bytes::Bytes;
use headrace_core::record::{self, Batches, Producer, Records};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::PyBytes;

use crate::errors::record_error;
use crate::records::{codec_of, Buffer};

type Header = (PyBackedStr, Option<PyBackedBytes>);

/// Records to be sent together: encoded as they come, so that no object is kept for any of them.
#[pyclass(module = "headrace._native")]
#[derive(Default)]
struct BatchBuilder {
    records: record::BatchBuilder,
    timestamps: Vec<i64>,
}

#[pymethods]
impl BatchBuilder {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __len__(&self) -> usize {
        self.timestamps.len()
    }

    /// Bytes of the batch so far.
    #[getter]
    fn size_bytes(&self) -> usize {
        self.records.bytes()
    }

    /// Adds a record, and gives what stands for it among those of `owner`.
    fn push(
        &mut self,
        owner: Py<PyAny>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &Bound<'_, PyAny>,
        timestamp: i64,
    ) -> PyResult<Delivery> {
        if headers.is_truthy()? {
            let headers: Vec<Header> = headers.extract()?;
            let headers = headers
                .iter()
                .map(|(name, value)| (name.as_bytes(), value.as_deref()));
            self.records.push(timestamp, key, value, headers);
        } else {
            self.records.push(timestamp, key, value, []);
        }
        let index = self.timestamps.len();
        self.timestamps.push(timestamp);
        Ok(Delivery { owner, index })
    }

    /// The record batch v2 of a producer; more may be added, and it may be encoded again.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        codec: &str,
        producer: (i64, i16, i32),
    ) -> PyResult<Bound<'py, PyBytes>> {
        let codec = codec_of(codec)?;
        if self.records.is_empty() {
            return Err(PyValueError::new_err("a batch needs at least one record"));
        }
        let (id, epoch, sequence) = producer;
        let producer = Producer {
            id,
            epoch,
            sequence,
        };
        let mut records = self.records.clone();
        let batch = py.detach(|| records.finish_for(codec, producer));
        Ok(PyBytes::new(py, &batch))
    }

    /// Milliseconds of each record, as int64.
    fn timestamps(&self) -> Buffer {
        let bytes = self.timestamps.iter().flat_map(|time| time.to_ne_bytes());
        Buffer::new(bytes.collect::<Bytes>())
    }

    /// The records from `at` on, which are taken out.
    fn split(&mut self, py: Python<'_>, at: usize) -> PyResult<Self> {
        let whole = self.records.finish();
        let mut halves = [Self::new(), Self::new()];
        for batch in Batches::new(&whole) {
            let batch = batch.map_err(|error| record_error(py, &error))?;
            for (index, found) in Records::new(&batch.header, batch.body()).enumerate() {
                let record = found.map_err(|fault| record_error(py, &batch.wrong(fault)))?;
                let half = &mut halves[usize::from(index >= at)];
                half.timestamps.push(record.timestamp);
                half.records.push(
                    record.timestamp,
                    record.key,
                    record.value,
                    record.headers.clone(),
                );
            }
        }
        let [first, second] = halves;
        *self = first;
        Ok(second)
    }
}

/// A record that was handed to a producer: an awaitable like `asyncio.Future`.
///
/// It holds nothing but its place, so that the garbage collector does not look at it; all else is
/// asked of `owner`, which stands for the whole batch.
#[pyclass(frozen, module = "headrace._native")]
struct Delivery {
    owner: Py<PyAny>,
    index: usize,
}

#[pymethods]
impl Delivery {
    /// `asyncio.isfuture` looks for this name.
    #[classattr]
    fn _asyncio_future_blocking() -> bool {
        false
    }

    fn done(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.owner
            .call_method1(py, intern!(py, "done"), (self.index,))
    }

    fn result(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.owner
            .call_method1(py, intern!(py, "result"), (self.index,))
    }

    fn exception(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.owner
            .call_method1(py, intern!(py, "exception"), (self.index,))
    }

    fn cancelled(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.owner
            .call_method1(py, intern!(py, "cancelled"), (self.index,))
    }

    #[pyo3(signature = (msg = None))]
    fn cancel(&self, py: Python<'_>, msg: Option<Py<PyAny>>) -> PyResult<Py<PyAny>> {
        self.future(py)?
            .call_method1(py, intern!(py, "cancel"), (msg,))
    }

    #[pyo3(signature = (callback, *, context = None))]
    fn add_done_callback(
        slf: &Bound<'_, Self>,
        callback: Py<PyAny>,
        context: Option<Py<PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let arguments = (this.index, slf, callback, context);
        this.owner
            .call_method1(py, intern!(py, "call_back"), arguments)
    }

    fn remove_done_callback(slf: &Bound<'_, Self>, callback: Py<PyAny>) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let arguments = (this.index, slf, callback);
        this.owner
            .call_method1(py, intern!(py, "call_not_back"), arguments)
    }

    fn get_loop(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.owner.getattr(py, intern!(py, "loop"))
    }

    fn __await__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.future(py)?.call_method0(py, intern!(py, "__await__"))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.__await__(py)
    }
}

impl Delivery {
    fn future(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.owner
            .call_method1(py, intern!(py, "future"), (self.index,))
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<BatchBuilder>()?;
    module.add_class::<Delivery>()
}
