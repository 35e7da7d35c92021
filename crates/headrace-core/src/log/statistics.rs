//! Counters of one store.

/// Upper bounds of the commit latency histogram in nanoseconds, each twice the one before:
/// 0.125 ms to 1.024 s, around what one `fdatasync` takes, from flash to a tired disk.
pub const COMMIT_BUCKETS_NS: [u64; 14] = {
    let mut bounds = [125_000; 14];
    let mut at = 1;
    while at < bounds.len() {
        bounds[at] = 2 * bounds[at - 1];
        at += 1;
    }
    bounds
};

/// What the store has done since it opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Commit rounds that wrote the journal.
    pub rounds: u64,
    /// Bytes written to the journal.
    pub journal_bytes: u64,
    /// Times that the journal went on to another file.
    pub journal_rotations: u64,
    /// `fdatasync` and folder syncs, of rounds and in the background.
    pub syncs: u64,
    /// Batches committed.
    pub appended_batches: u64,
    /// Bytes of them.
    pub appended_bytes: u64,
    /// Runs of batches that went straight to a segment.
    pub direct_writes: u64,
    /// Repeats of idempotent producers.
    pub duplicates: u64,
    /// Segments closed because they were full.
    pub segment_rolls: u64,
    /// Appends refused because the disk is nearly full.
    pub refused_full: u64,
    /// Appends that ended, by latency from `append` to durable; the last has no bound.
    pub commits: [u64; COMMIT_BUCKETS_NS.len() + 1],
    /// Sum of these latencies in nanoseconds.
    pub commit_ns: u64,
    /// Time spent in rounds, from the first effect to the last, in nanoseconds.
    pub round_ns: u64,
    /// Bytes that wait for a round.
    pub queued_bytes: u64,
    /// Logs that are open.
    pub logs: u64,
}

impl Statistics {
    pub(super) fn committed(&mut self, latency_ns: u64) {
        let bucket = COMMIT_BUCKETS_NS.partition_point(|bound| *bound < latency_ns);
        self.commits[bucket] += 1;
        self.commit_ns += latency_ns;
    }
}
