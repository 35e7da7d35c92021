//! Retained messages as Python sees them.

use headrace_core::switchboard as core;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A retained message.
#[pyclass(frozen, get_all, module = "headrace._native")]
pub struct RetainedMessage {
    topic: String,
    payload: Py<PyBytes>,
    bytes: usize,
    qos: u8,
    expiry_s: Option<u32>,
}

impl RetainedMessage {
    /// With so many bytes of its payload at most.
    pub fn new(py: Python<'_>, message: core::RetainedMessage, payload_bytes_max: usize) -> Self {
        let shown = message.payload.len().min(payload_bytes_max);
        Self {
            topic: message.topic,
            payload: PyBytes::new(py, &message.payload[..shown]).unbind(),
            bytes: message.payload.len(),
            qos: message.qos as u8,
            expiry_s: message.expiry_s,
        }
    }
}
