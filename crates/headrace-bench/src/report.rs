//! What a run counted.
use hdrhistogram::Histogram;

/// Quantiles that a report names: the median, and how bad it gets.
pub const QUANTILES: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Times in microseconds, 1 µs to 1 h, within 0.1 %.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are ordered")
}

/// A distribution of times, in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Latency {
    /// How many were timed.
    pub count: u64,
    /// One for each of [`QUANTILES`].
    pub quantiles: [f64; 4],
    /// The longest.
    pub max: f64,
}

impl Latency {
    pub(crate) fn of(times: &Histogram<u64>) -> Self {
        let seconds = |micros: u64| micros as f64 / 1e6;
        Self {
            count: times.len(),
            quantiles: QUANTILES.map(|quantile| seconds(times.value_at_quantile(quantile))),
            max: seconds(times.max()),
        }
    }
}

/// What a run counted; while it goes on, so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What it does at the moment: `connecting`, `leaving`, `filling`, `opening`, `warming`,
    /// `measuring`, `returning`, `draining`, `ending`, `done`.
    pub phase: &'static str,
    /// Connections that are open and answered.
    pub connected: u64,
    /// Seconds from the first `connect` to the last CONNACK (and SUBACK).
    pub connect_seconds: f64,
    /// From `connect` to CONNACK.
    pub connect: Latency,
    /// Messages handed to connections, over the whole run.
    pub published: u64,
    /// Messages acknowledged by the server (`QoS` 1 and 2).
    pub acknowledged: u64,
    /// Messages that the server acknowledged with an error.
    pub refused: u64,
    /// Deliveries that should come of what was published and not refused.
    pub expected: u64,
    /// Deliveries, each counted once.
    pub delivered: u64,
    /// Expected and not delivered when the run ended.
    pub lost: u64,
    /// Deliveries of a message that its receiver had before.
    pub duplicated: u64,
    /// Deliveries behind a later message of the same publisher.
    pub reordered: u64,
    /// Deliveries with a wrong checksum, length, topic, or of a message that was never sent.
    pub corrupted: u64,
    /// Connections that ended before their time.
    pub disconnected: u64,
    /// The first sign of trouble, in words.
    pub trouble: Option<String>,
    /// Seconds that were measured.
    pub seconds: f64,
    /// Deliveries in the time that was measured.
    pub measured: u64,
    /// Deliveries in each whole second that was measured.
    pub by_second: Vec<u64>,
    /// From the publisher's clock (its schedule, where it has one) to delivery.
    pub latency: Latency,
    /// The part of the measured time, 0 to 1, in which the load itself had something to do. Near 1
    /// it is the load that was measured, and not the server.
    pub busy: f64,
    /// What a queue adds.
    pub queue: QueueReport,
    /// What a storm adds.
    pub storm: StormReport,
}

/// What a run counted of sessions that came back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StormReport {
    /// Seconds that it took to publish what was to wait.
    pub fill_seconds: f64,
    /// Seconds from the first `connect` of those that come back to the last CONNACK.
    pub back_seconds: f64,
    /// From there to the last message that had waited.
    pub emptied_seconds: f64,
    /// Sessions that the server did not have any more.
    pub forgotten: u64,
}

/// What a run counted of a queue. What is settled is so by the answer to the publish to `$ack`, or
/// by the PUBACK that was sent, which has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueReport {
    /// Deliveries that were settled.
    pub settled: u64,
    /// Settlements that were answered with something else than success.
    pub unsettled: u64,
    /// Deliveries that were not the first of their message.
    pub redelivered: u64,
    /// Deliveries to consumers that settle nothing.
    pub stuck: u64,
    /// Deliveries that are open at the moment, but for those.
    pub open: u64,
    /// Messages that were acknowledged in the time that was measured.
    pub enqueued_measured: u64,
    /// Deliveries that were settled in it.
    pub settled_measured: u64,
    /// In each whole second of it.
    pub settled_by_second: Vec<u64>,
    /// Seconds that it took to enqueue what was enqueued before.
    pub fill_seconds: f64,
    /// From the publisher's clock to the answer to it.
    pub enqueue: Latency,
    /// From the publisher's clock until it is settled.
    pub whole: Latency,
    /// From the delivery until it is settled.
    pub settle: Latency,
}
