//! Retained messages as Python sees them.

use headrace_core::switchboard as core;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Messages, and the name to go on from.
pub type Messages = (Vec<RetainedMessage>, Option<String>);

/// Batches with the number of their records by partition, and the name to go on from.
pub type State<'py> = (Vec<(Bound<'py, PyBytes>, usize)>, Option<String>);

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

/// What a search found, with so many bytes of each payload at most.
pub fn messages_of(
    py: Python<'_>,
    page: core::Page<Vec<core::RetainedMessage>>,
    payload_bytes_max: usize,
) -> Messages {
    let found = page.found.into_iter();
    let found = found.map(|message| RetainedMessage::new(py, message, payload_bytes_max));
    (found.collect(), page.next)
}

/// What is retained, as records.
pub fn state_of(py: Python<'_>, state: core::RetainedState) -> State<'_> {
    let parts = state.parts.into_iter();
    let parts = parts.map(|(batches, records)| (PyBytes::new(py, &batches), records));
    (parts.collect(), state.next)
}
