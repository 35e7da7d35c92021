//! Queues: conversions alone.

use headrace_core::mqtt::packet::Publish;
use headrace_core::queue::{Backoff, Late, Order, Policy, Standing};
use headrace_core::switchboard as core;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// How a queue is served, as Python says it: bounds of 0 are none.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(super) struct QueueSettings {
    order: String,
    hash: String,
    ack_deadline_ms: u64,
    backoff_initial_ms: u64,
    backoff_growth_percent: u32,
    backoff_max_ms: u64,
    backoff_jitter_percent: u32,
    attempts_max: u32,
    total_ms: u64,
    ttl_ms: u64,
    prefetch: usize,
    read_ahead: usize,
    paused: bool,
    consumers: String,
    keeps_dead: bool,
    prioritises: bool,
    batch_messages: usize,
    depth_messages_max: u64,
    depth_bytes_max: u64,
    depth_policy: String,
}

impl QueueSettings {
    pub fn of(self, name: &str, dead_letters: Option<u64>) -> PyResult<core::QueueSettings> {
        let order = match &*self.order {
            "none" => Order::None,
            "key" => Order::Key,
            "strict" => Order::Strict,
            other => return Err(PyValueError::new_err(format!("no order {other}"))),
        };
        let sharing = match &*self.consumers {
            "shared" => core::Sharing::Shared,
            "single" => core::Sharing::Single,
            "exclusive" => core::Sharing::Exclusive,
            other => return Err(PyValueError::new_err(format!("no consumers {other}"))),
        };
        let excess = match &*self.depth_policy {
            "refuse" => core::Excess::Refuse,
            "drop-oldest" => core::Excess::Drop,
            "dead-letter-oldest" => core::Excess::DeadLetter,
            other => return Err(PyValueError::new_err(format!("no depth policy {other}"))),
        };
        Ok(core::QueueSettings {
            name: name.into(),
            policy: Policy {
                order,
                deadline_ms: self.ack_deadline_ms,
                backoff: Backoff {
                    initial_ms: self.backoff_initial_ms,
                    growth_percent: self.backoff_growth_percent,
                    max_ms: self.backoff_max_ms,
                    jitter_percent: self.backoff_jitter_percent,
                },
                failures_max: self.attempts_max,
                total_ms: self.total_ms,
                ttl_ms: self.ttl_ms,
                read_ahead: self.read_ahead,
                prioritises: self.prioritises,
            },
            depth: core::Depth {
                messages_max: self.depth_messages_max,
                bytes_max: self.depth_bytes_max,
                excess,
            },
            batch_messages: self.batch_messages,
            prefetch: self.prefetch,
            is_fnv1a: self.hash == "fnv1a",
            is_paused: self.paused,
            sharing,
            keeps_dead: self.keeps_dead,
            dead_letters,
        })
    }
}

/// Floor, depth, in flight, resting, blocked, lag, and when the oldest was stored.
type Partition = (i64, u64, usize, usize, bool, u64, Option<i64>);

/// A group of a queue.
#[pyclass(frozen, get_all, module = "headrace._native")]
pub(super) struct QueueGroup {
    name: String,
    filter: Option<String>,
    consumers: Vec<(String, bool, usize, usize)>,
    partitions: Vec<Partition>,
    delivered: u64,
    redelivered: u64,
    settled: u64,
    failed: u64,
    dead: u64,
    lost: u64,
    /// Upper bound in milliseconds, None for all above, and how many are not above it.
    latency: Vec<(Option<u64>, u64)>,
    latency_sum_ms: u64,
}

impl From<core::QueueGroup> for QueueGroup {
    fn from(group: core::QueueGroup) -> Self {
        let consumers = group.consumers.into_iter();
        let partitions = group.partitions.into_iter();
        let [delivered, redelivered, settled, failed, dead, lost] = group.counts;
        let bounds = core::LATENCY_BOUNDS_MS.into_iter().map(Some).chain([None]);
        let latency = bounds
            .zip(group.latency.counts)
            .scan(0, |sum, (bound, count)| {
                *sum += count;
                Some((bound, *sum))
            });
        Self {
            name: group.name,
            filter: group.filter,
            consumers: consumers
                .map(|each| (each.client_id, each.is_here, each.held, each.prefetch))
                .collect(),
            partitions: partitions
                .map(|each| {
                    let core::QueuePartition {
                        floor,
                        depth,
                        in_flight,
                        resting,
                        is_blocked,
                        lag,
                        oldest_ms,
                    } = each;
                    (floor, depth, in_flight, resting, is_blocked, lag, oldest_ms)
                })
                .collect(),
            delivered,
            redelivered,
            settled,
            failed,
            dead,
            lost,
            latency: latency.collect(),
            latency_sum_ms: group.latency.sum_ms,
        }
    }
}

/// A message of a queue, delivered or looked at.
#[pyclass(frozen, get_all, module = "headrace._native")]
pub(super) struct QueueMessage {
    partition: u32,
    offset: i64,
    attempt: u32,
    topic: String,
    payload: Py<PyBytes>,
    properties: Vec<(String, String)>,
    content_type: Option<String>,
    response_topic: Option<String>,
    correlation_data: Option<Py<PyBytes>>,
    key: Option<Py<PyBytes>>,
    standing: Option<&'static str>,
    client: Option<String>,
    until_ms: Option<i64>,
}

impl QueueMessage {
    fn new(
        py: Python<'_>,
        (partition, offset, attempt): (u32, i64, u32),
        publish: Publish<'_>,
    ) -> Self {
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes).unbind();
        let properties = publish.properties;
        let user = properties.user.into_iter();
        Self {
            partition,
            offset,
            attempt,
            topic: publish.topic.to_owned(),
            payload: bytes(publish.payload),
            properties: user
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            content_type: properties.content_type.map(str::to_owned),
            response_topic: properties.response_topic.map(str::to_owned),
            correlation_data: properties.correlation_data.map(bytes),
            key: None,
            standing: None,
            client: None,
            until_ms: None,
        }
    }

    pub fn pulled(py: Python<'_>, message: &core::PulledMessage) -> Self {
        let place = (message.partition, message.offset, message.attempt);
        Self::new(py, place, message.publish())
    }

    pub fn peeked(py: Python<'_>, partition: u32, message: &core::PeekedMessage) -> Self {
        let key = message.key.as_deref();
        let place = (partition, message.offset, message.attempts);
        Self {
            key: key.map(|key| PyBytes::new(py, key).unbind()),
            standing: message.standing.map(standing_of),
            client: message.client.clone(),
            until_ms: message.until_ms,
            ..Self::new(py, place, message.publish())
        }
    }
}

const fn standing_of(standing: Standing) -> &'static str {
    match standing {
        Standing::Settled => "settled",
        Standing::Available => "available",
        Standing::InFlight(..) => "in flight",
        Standing::Resting(_) => "resting",
        Standing::Waiting => "waiting",
        Standing::Dead => "dead",
    }
}

/// What became of a settlement.
pub(super) const fn end_of(end: Result<(), Late>) -> &'static str {
    match end {
        Ok(()) => "settled",
        Err(Late::Settled) => "settled before",
        Err(Late::Superseded) => "too late",
        Err(Late::Unknown) => "no delivery",
    }
}
