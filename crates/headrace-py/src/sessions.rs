//! What administration is shown of a session: conversions alone.

use headrace_core::mqtt::packet::Version;
use headrace_core::switchboard as core;
use pyo3::prelude::*;

/// What a list says of a session.
#[pyclass(frozen, get_all, module = "headrace._native")]
#[derive(Clone)]
pub struct SessionSummary {
    client_id: String,
    connection: Option<u64>,
    protocol_level: Option<u8>,
    expiry_s: Option<u32>,
    ends_in_s: Option<u64>,
    subscriptions: usize,
    queued_messages: usize,
    held_bytes: usize,
    in_flight: usize,
    unreleased: usize,
    has_will: bool,
}

impl From<core::SessionSummary> for SessionSummary {
    fn from(summary: core::SessionSummary) -> Self {
        Self {
            client_id: summary.client_id,
            connection: summary.connection,
            protocol_level: summary.version.map(|version| match version {
                Version::V311 => 4,
                Version::V5 => 5,
            }),
            expiry_s: summary.expiry_s,
            ends_in_s: summary.ends_in_s,
            subscriptions: summary.subscriptions,
            queued_messages: summary.queued_messages,
            held_bytes: summary.held_bytes,
            in_flight: summary.in_flight,
            unreleased: summary.unreleased,
            has_will: summary.has_will,
        }
    }
}

/// A will that may be published.
#[pyclass(frozen, get_all, module = "headrace._native")]
#[derive(Clone)]
pub struct WillReport {
    topic: String,
    qos: u8,
    retain: bool,
    delay_s: u32,
    bytes: usize,
    due_in_s: Option<u64>,
}

/// Where the connection of a session stands.
#[pyclass(frozen, get_all, module = "headrace._native")]
#[derive(Clone)]
pub struct ConnectionReport {
    keep_alive_s: u64,
    silent_ms: u64,
    outbound_bytes: usize,
    receive_maximum: u16,
    rests: Option<&'static str>,
}

/// Filter, `QoS`, no local, retain as published, identifier.
type Subscription = (String, u8, bool, bool, u32);

/// Filter, stream, next offset by partition.
type StreamReading = (String, u64, Vec<i64>);

/// All of one session.
#[pyclass(frozen, get_all, module = "headrace._native")]
pub struct SessionReport {
    summary: SessionSummary,
    subscriptions: Vec<Subscription>,
    streams: Vec<StreamReading>,
    will: Option<WillReport>,
    connection: Option<ConnectionReport>,
}

impl From<core::SessionReport> for SessionReport {
    fn from(report: core::SessionReport) -> Self {
        let subscriptions = report.subscriptions.into_iter();
        Self {
            summary: report.summary.into(),
            subscriptions: subscriptions
                .map(|(filter, how)| {
                    let as_published = how.retain_as_published;
                    (filter, how.qos as u8, how.no_local, as_published, how.id)
                })
                .collect(),
            streams: report
                .streams
                .into_iter()
                .map(|each| (each.filter, each.stream, each.next))
                .collect(),
            will: report.will.map(|will| WillReport {
                topic: will.topic,
                qos: will.qos as u8,
                retain: will.retain,
                delay_s: will.delay_s,
                bytes: will.bytes,
                due_in_s: will.due_in_s,
            }),
            connection: report.connection.map(|connection| ConnectionReport {
                keep_alive_s: connection.keep_alive_s,
                silent_ms: connection.silent_ms,
                outbound_bytes: connection.outbound_bytes,
                receive_maximum: connection.receive_maximum,
                rests: connection.rests,
            }),
        }
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SessionSummary>()?;
    module.add_class::<WillReport>()?;
    module.add_class::<ConnectionReport>()?;
    module.add_class::<SessionReport>()
}
