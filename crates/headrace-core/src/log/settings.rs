//! What may differ from log to log, under Kafka's names.

use super::error::Error;

/// Smallest bound of an index file: one entry of each index and the last of the time index.
const SEGMENT_INDEX_BYTES_MIN: u64 = 24;

/// How one log is cut into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Bytes beyond which a segment is closed.
    pub segment_bytes: u64,
    /// Age at which it is, in milliseconds.
    pub segment_ms: u64,
    /// Bytes that each of its indexes holds at most.
    pub segment_index_bytes: u64,
}

impl Default for LogSettings {
    /// Kafka's.
    fn default() -> Self {
        Self {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3_600_000,
            segment_index_bytes: 10 << 20,
        }
    }
}

impl LogSettings {
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
