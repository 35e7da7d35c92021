//! Message frames for Python: bytes of a producer into batches, stored batches into frames.

use headrace_core::frame::{self, Intake, Outflow, Rules, Taken};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::errors::outflow_error;
use crate::records::codec_of;

/// What one read of a producer has brought.
#[pyclass(frozen, module = "headrace._native")]
struct TakenFrames(Taken);

#[pymethods]
impl TakenFrames {
    #[getter]
    fn frames(&self) -> u32 {
        self.0.frames
    }

    #[getter]
    fn batches<'py>(&self, py: Python<'py>) -> Vec<(u32, Bound<'py, PyBytes>)> {
        let batches = self.0.batches.iter();
        batches
            .map(|batch| (batch.partition, PyBytes::new(py, &batch.bytes)))
            .collect()
    }

    #[getter]
    fn fault(&self) -> Option<(&'static str, i16, String)> {
        let (number, fault) = self.0.fault.as_ref()?;
        let text = format!("frame {number}: {fault}");
        Some((fault.reason(), fault.code(), text))
    }

    #[expect(clippy::needless_pass_by_value, reason = "a list of Python's")]
    fn acknowledge<'py>(
        &self,
        py: Python<'py>,
        bases: Vec<Option<i64>>,
    ) -> (Bound<'py, PyBytes>, u32) {
        let (bytes, frames) = self.0.acknowledge(&bases);
        (PyBytes::new(py, &bytes), frames)
    }
}

/// One producer's frames on their way in.
#[pyclass(module = "headrace._native")]
struct FrameIntake(Intake);

#[pymethods]
impl FrameIntake {
    #[new]
    #[pyo3(signature = (turn = 0))]
    fn new(turn: u32) -> Self {
        Self(Intake::new(turn))
    }

    #[getter]
    fn kept_bytes(&self) -> usize {
        self.0.kept_bytes()
    }

    #[pyo3(signature = (
        data, *, partitions, partition, message_bytes_max, needs_key, codec, wall_ms
    ))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn receive(
        &mut self,
        data: &[u8],
        partitions: u32,
        partition: Option<u32>,
        message_bytes_max: usize,
        needs_key: bool,
        codec: &str,
        wall_ms: i64,
    ) -> PyResult<TakenFrames> {
        if partition.unwrap_or(0) >= partitions {
            return Err(PyValueError::new_err("there is no such partition"));
        }
        let rules = Rules {
            partitions,
            partition,
            message_bytes_max,
            needs_key,
            codec: codec_of(codec)?,
            wall_ms,
        };
        Ok(TakenFrames(self.0.receive(data, &rules)))
    }
}

/// Stored batches on their way to a consumer.
#[pyclass(module = "headrace._native")]
struct FrameOutflow(Outflow<PyBackedBytes>);

#[pymethods]
impl FrameOutflow {
    #[new]
    fn new(batches: PyBackedBytes, offset: i64) -> Self {
        Self(Outflow::new(batches, offset))
    }

    #[getter]
    fn next_offset(&self) -> i64 {
        self.0.next_offset()
    }

    #[getter]
    fn frames(&self) -> u64 {
        self.0.frames()
    }

    #[getter]
    fn held_bytes(&self) -> usize {
        self.0.held_bytes()
    }

    #[getter]
    fn is_slow(&self) -> bool {
        self.0.is_slow()
    }

    fn write<'py>(&mut self, py: Python<'py>, bytes_max: usize) -> PyResult<Bound<'py, PyBytes>> {
        py.detach(|| self.0.write(bytes_max))
            .map(|frames| PyBytes::new(py, &frames))
            .map_err(|error| outflow_error(py, &error))
    }
}

#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "a list of Python's")]
fn build_frame<'py>(
    py: Python<'py>,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: Vec<(String, Option<PyBackedBytes>)>,
    timestamp: i64,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = Vec::new();
    let fields = headers
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_deref()));
    frame::put(&mut out, timestamp, key, value, fields).map_err(|_| {
        let max = frame::NAME_BYTES_MAX;
        PyValueError::new_err(format!("a header's name has more than {max} bytes"))
    })?;
    Ok(PyBytes::new(py, &out))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TakenFrames>()?;
    module.add_class::<FrameIntake>()?;
    module.add_class::<FrameOutflow>()?;
    module.add_function(wrap_pyfunction!(build_frame, module)?)
}
