//! Records of a task, spread over the partitions of a stream in batches.

use headrace_core::record::{Codec, Producer, Spread};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::records::RecordColumns;

/// Records on their way to the partitions of a stream.
#[pyclass(module = "headrace._native")]
struct RecordSpread(Spread);

#[pymethods]
impl RecordSpread {
    #[new]
    fn new(partitions: usize, bytes_wanted: usize, bytes_max: usize) -> PyResult<Self> {
        if partitions == 0 {
            return Err(PyValueError::new_err("a stream has a partition"));
        }
        Ok(Self(Spread::new(partitions, bytes_wanted, bytes_max)))
    }

    #[pyo3(signature = (records, partitions = None))]
    fn push(
        &mut self,
        py: Python<'_>,
        records: &Bound<'_, RecordColumns>,
        partitions: Option<&[u8]>,
    ) -> PyResult<()> {
        let (records, spread) = (records.get(), &mut self.0);
        if partitions.is_some_and(|given| given.len() != 4 * records.records) {
            return Err(PyValueError::new_err("each record has a partition"));
        }
        let given = |row| {
            let bytes = partitions?[4 * row..].first_chunk()?;
            u32::try_from(i32::from_le_bytes(*bytes)).ok()
        };
        let refused = py.detach(|| {
            (0..records.records).find(|row| {
                let timestamp = records.timestamp_us(*row).div_euclid(1000);
                let (key, value) = (records.key(*row), records.value(*row));
                !spread.push(given(*row), timestamp, key, value, records.headers(*row))
            })
        });
        match refused.and_then(given) {
            Some(partition) => Err(PyValueError::new_err(format!("no partition {partition}"))),
            None => Ok(()),
        }
    }

    fn full(&self) -> Vec<usize> {
        self.0.full()
    }

    fn held(&self) -> Vec<usize> {
        self.0.held()
    }

    fn take<'py>(
        &mut self,
        py: Python<'py>,
        partition: usize,
        producer: (i64, i16, i32),
    ) -> PyResult<(u32, Bound<'py, PyBytes>)> {
        let (id, epoch, sequence) = producer;
        let producer = Producer {
            id,
            epoch,
            sequence,
        };
        let spread = &mut self.0;
        let (count, batch) = py
            .detach(|| spread.take(partition, Codec::None, producer))
            .ok_or_else(|| PyValueError::new_err("nothing is held for this partition"))?;
        Ok((count, PyBytes::new(py, &batch)))
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<RecordSpread>()
}
