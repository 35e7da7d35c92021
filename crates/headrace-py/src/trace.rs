//! Lines of a live trace: conversions alone.

use headrace_core::switchboard as core;
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

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<TraceLine>()
}
