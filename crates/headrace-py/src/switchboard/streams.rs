//! Streams that MQTT clients read: conversions alone.

use std::collections::BTreeMap;

use headrace_core::switchboard as core;
use pyo3::prelude::*;

/// A client subscribes to streams. Its further input waits until `Switchboard.placed`.
#[pyclass(frozen, get_all, module = "headrace._native")]
pub(super) struct StreamRequest {
    request: u64,
    streams: Vec<String>,
    properties: Vec<(String, String)>,
}

impl From<core::StreamRequest> for StreamRequest {
    fn from(asked: core::StreamRequest) -> Self {
        Self {
            request: asked.request,
            streams: asked.streams,
            properties: asked.properties,
        }
    }
}

/// Where a subscription to a stream begins, or why it does not.
#[derive(FromPyObject)]
pub(super) enum Placement {
    At(u64, Vec<(i64, i64)>, bool),
    Refused(u8, String),
}

impl From<Placement> for core::Placement {
    fn from(placement: Placement) -> Self {
        match placement {
            Placement::At(stream, positions, is_asked) => Self::At {
                stream,
                positions,
                is_asked,
            },
            Placement::Refused(reason_code, text) => Self::Refused { reason_code, text },
        }
    }
}

/// Ticket, stream, partition, offset and bytes of a piece to be read.
pub(super) fn read_of(read: core::StreamRead) -> (u64, u64, u32, i64, usize) {
    let core::StreamRead {
        ticket,
        stream,
        partition,
        offset,
        bytes,
    } = read;
    (ticket, stream, partition, offset, bytes)
}

/// By stream, records that clients have not been sent: of those that are connected, and away.
pub(super) fn lags_of(lags: BTreeMap<u64, core::StreamLag>) -> BTreeMap<u64, (u64, u64)> {
    let lags = lags.into_iter();
    lags.map(|(stream, lag)| (stream, (lag.connected, lag.away)))
        .collect()
}
