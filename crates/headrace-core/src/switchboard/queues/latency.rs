//! How long messages waited for their first delivery.

/// Upper bounds of what is told apart, milliseconds; what is above the last is told as well.
pub const LATENCY_BOUNDS_MS: [u64; 15] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000, 600_000,
];

/// A histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// Messages, by the first bound that they do not exceed; the last of those above all.
    pub counts: [u64; LATENCY_BOUNDS_MS.len() + 1],
    /// Of all messages, milliseconds.
    pub sum_ms: u64,
}

impl Latency {
    /// A message waited so long.
    pub fn count(&mut self, ms: u64) {
        self.counts[LATENCY_BOUNDS_MS.partition_point(|bound| *bound < ms)] += 1;
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }
}
