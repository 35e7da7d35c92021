//! What may differ from log to log, under Kafka's names.

use super::error::Error;

/// Smallest bound of an index file: one entry of each index and the last of the time index.
const SEGMENT_INDEX_BYTES_MIN: u64 = 24;

/// When what was appended is synced to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Before it is acknowledged.
    #[default]
    Commit,
    /// At intervals, beside the acknowledgements.
    Interval,
    /// Whenever the system likes, or another log asks for it.
    Os,
}

/// How one log is cut into segments, and what its acknowledgements promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Bytes beyond which a segment is closed.
    pub segment_bytes: u64,
    /// Age at which it is, in milliseconds.
    pub segment_ms: u64,
    /// Bytes that each of its indexes holds at most.
    pub segment_index_bytes: u64,
    /// When appends are synced.
    pub fsync: Fsync,
    /// Between two syncs, in milliseconds, where they come at intervals.
    pub flush_ms: u64,
    /// Silence after which an idempotent producer is forgotten, in milliseconds.
    pub producer_expiry_ms: u64,
}

impl Default for LogSettings {
    /// Kafka's.
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            segment_index_bytes: 10 << 20,
            fsync: Fsync::Commit,
            flush_ms: 1000,
            producer_expiry_ms: 24 * 3_600_000,
        }
    }
}

impl LogSettings {
    /// By when an append at `now_ns` is to be synced; 0 is before it is acknowledged.
    pub(super) fn sync_at_ns(&self, now_ns: u64) -> Option<u64> {
        match self.fsync {
            Fsync::Commit => Some(0),
            Fsync::Interval => Some(now_ns.saturating_add(self.flush_ms.saturating_mul(1_000_000))),
            Fsync::Os => None,
        }
    }

    /// Refuses what cannot work.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.segment_bytes == 0 || self.segment_ms == 0 {
            return Err(Error::Argument(
                "segment_bytes and segment_ms are positive".into(),
            ));
        }
        if self.segment_index_bytes < SEGMENT_INDEX_BYTES_MIN {
            return Err(Error::Argument(format!(
                "segment_index_bytes is at least {SEGMENT_INDEX_BYTES_MIN}"
            )));
        }
        Ok(())
    }
}
