//! Lines of a live trace: conversions alone.

use headrace_core::switchboard as core;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// One thing that was seen.
#[pyclass(frozen, get_all, module = "headrace._native")]
pub struct TraceLine {
    wall_ms: i64,
    client_id: String,
    way: &'static str,
    packet: &'static str,
    packet_id: u16,
    topic: String,
    qos: u8,
    retain: bool,
    dup: bool,
    bytes: usize,
    reason_code: Option<u8>,
    text: String,
    payload: Py<PyBytes>,
}

impl TraceLine {
    pub fn of(py: Python<'_>, line: core::TraceLine) -> Self {
        Self {
            wall_ms: line.wall_ms,
            client_id: line.client_id,
            way: match line.way {
                core::TraceWay::In => "in",
                core::TraceWay::Out => "out",
                core::TraceWay::Drop => "drop",
                core::TraceWay::Rest => "rest",
                core::TraceWay::Close => "close",
            },
            packet: line.packet,
            packet_id: line.packet_id,
            topic: line.topic,
            qos: line.qos,
            retain: line.retain,
            dup: line.dup,
            bytes: line.bytes,
            reason_code: line.reason_code,
            text: line.text,
            payload: PyBytes::new(py, &line.payload).unbind(),
        }
    }
}

/// What is to be seen: of one client, or of what matches a filter.
///
/// # Errors
/// Not one of the two is named.
pub fn subject_of(
    client_id: Option<String>,
    topic_filter: Option<String>,
) -> PyResult<core::TraceSubject> {
    match (client_id, topic_filter) {
        (Some(client_id), None) => Ok(core::TraceSubject::Client(client_id)),
        (None, Some(filter)) => Ok(core::TraceSubject::Topic(filter)),
        _ => Err(PyValueError::new_err("name a client or a topic filter")),
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TraceLine>()
}
