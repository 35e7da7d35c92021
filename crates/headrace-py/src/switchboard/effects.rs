//! `Effects` and `ConnectRequest`: conversions alone.

use bytes::Bytes;
use headrace_core::switchboard as core;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyMemoryView, PyTuple};

use super::streams::StreamRequest;
use crate::records::Buffer;

/// A client asks to connect, or authenticates. Its further input waits until
/// `Switchboard.decided`, but on an open connection.
#[pyclass(frozen, get_all, module = "headrace._native")]
pub(super) struct ConnectRequest {
    request: u64,
    connection: u64,
    asks: &'static str,
    client_id: String,
    username: Option<String>,
    password: Option<Py<PyBytes>>,
    auth_method: Option<String>,
    auth_data: Option<Py<PyBytes>>,
    protocol_level: u8,
}

/// Stream, group, partition, first offset, how many, why.
type LostMessages = (u64, String, u32, i64, u64, &'static str);

/// What the shell must do, in this order: appends, writes, reads, decisions, streams, dead
/// letters, what is lost, closes.
#[pyclass(frozen, get_all, module = "headrace._native")]
pub(super) struct Effects {
    appends: Py<PyList>,
    writes: Py<PyList>,
    reads: Py<PyList>,
    decisions: Py<PyList>,
    streams: Py<PyList>,
    dead_letters: Vec<u64>,
    lost: Vec<LostMessages>,
    closes: Py<PyList>,
    wake_at: Option<u64>,
}

pub(super) fn convert(py: Python<'_>, effects: core::Effects) -> PyResult<Effects> {
    let appends = effects.appends.into_iter().map(|append| {
        let batch = PyBytes::new(py, &append.batch);
        (append.stream, append.partition, batch, append.ticket).into_pyobject(py)
    });
    let writes = effects
        .writes
        .into_iter()
        .map(|(connection, written)| match written {
            core::Written::Bytes(bytes) => (connection, PyBytes::new(py, &bytes)).into_pyobject(py),
            core::Written::Pieces(pieces) => {
                let pieces = pieces.into_iter().map(|piece| view(py, piece));
                let pieces = pieces.collect::<PyResult<Vec<_>>>()?;
                (connection, PyList::new(py, pieces)?).into_pyobject(py)
            }
        });
    let decisions = effects.decisions.into_iter().map(|asked| {
        let bytes = |data: Option<Vec<u8>>| data.map(|data| PyBytes::new(py, &data).unbind());
        ConnectRequest {
            request: asked.request,
            connection: asked.connection,
            asks: match asked.asks {
                core::Asks::Connect => "connect",
                core::Asks::Continue => "continue",
                core::Asks::Reauthenticate => "reauthenticate",
            },
            client_id: asked.client_id,
            username: asked.username,
            password: bytes(asked.password),
            auth_method: asked.auth_method,
            auth_data: bytes(asked.auth_data),
            protocol_level: asked.protocol_level,
        }
    });
    let streams = effects.streams.into_iter().map(StreamRequest::from);
    Ok(Effects {
        appends: tuples(py, appends)?,
        writes: tuples(py, writes)?,
        reads: PyList::new(py, effects.reads)?.unbind(),
        decisions: PyList::new(py, decisions.collect::<Vec<_>>())?.unbind(),
        streams: PyList::new(py, streams.collect::<Vec<_>>())?.unbind(),
        dead_letters: effects.dead_letters,
        lost: effects.lost.into_iter().map(lost).collect(),
        closes: PyList::new(py, effects.closes)?.unbind(),
        wake_at: effects.wake_at,
    })
}

fn lost(of: core::Lost) -> LostMessages {
    let why = match of.why {
        core::Unread::Damaged => "damaged",
        core::Unread::TooLarge => "too large",
    };
    (of.stream, of.group, of.partition, of.offset, of.count, why)
}

/// Not copied.
fn view(py: Python<'_>, bytes: Bytes) -> PyResult<Bound<'_, PyMemoryView>> {
    let buffer = Bound::new(py, Buffer::new(bytes))?;
    PyMemoryView::from(&buffer)
}

fn tuples<'py>(
    py: Python<'py>,
    tuples: impl Iterator<Item = PyResult<Bound<'py, PyTuple>>>,
) -> PyResult<Py<PyList>> {
    let tuples = tuples.collect::<PyResult<Vec<_>>>()?;
    Ok(PyList::new(py, tuples)?.unbind())
}
