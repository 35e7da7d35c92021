//! How a store lays out its files, and the bounds between the sizes.

use super::epochs::{EPOCHS_MAX, EPOCH_BYTES};
use super::error::Error;
use super::journal::PAGE;
use super::settings::LogSettings;

/// Bytes of batches that one round takes at most: what an ordinary disk writes in some 10 ms, so
/// that a deep queue costs latency only to those who made it.
pub(super) const ROUND_BYTES_MAX: u64 = 4 << 20;
/// Smallest journal file: rounds must stay small beside it.
pub const JOURNAL_BYTES_MIN: u64 = 128 << 10;
/// Bytes of a log in a checkpoint, or of its registration, without its segments: fixed fields, a
/// name of at most 249 bytes, its epochs.
pub(super) const LOG_STATE_BYTES_MAX: u64 = 320 + EPOCHS_MAX as u64 * EPOCH_BYTES;
/// Bytes of a segment in a checkpoint.
pub(super) const SEGMENT_STATE_BYTES: u64 = 52;
/// A stream's name is a folder's name (CONTRACT: at most 249 characters).
pub(super) const STREAM_NAME_BYTES_MAX: usize = 249;

/// How a store lays out its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of one journal file; there are two, three for a moment.
    pub journal_bytes: u64,
    /// Bytes beyond which a segment is closed, of logs that are not configured otherwise.
    pub segment_bytes: u64,
    /// Bytes between two entries of an offset index.
    pub index_interval_bytes: u64,
    /// Bytes of one log in one round from which they go straight to the segment; a quarter of
    /// the journal does so in any case.
    pub direct_write_bytes: u64,
    /// Bytes of the disk that appends leave alone, and no less than a journal file; 0 is none.
    pub reserve_bytes: u64,
    /// A number that no client knows: it starts the journal's first CRC.
    pub seed: u32,
    /// What it holds at most; a node has no reason for others.
    pub bounds: Bounds,
}

/// What a store holds at most, in memory and in descriptors. Tests and simulations make do with
/// so little that short runs reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of indexes of closed segments that stay in memory.
    pub index_bytes: u64,
    /// Files that may be finished and not yet closed. It is a part of the descriptors that a node
    /// keeps for itself.
    pub finished_files: usize,
    /// Idempotent producers of all logs together: where there are more, the log that has the most
    /// forgets half of its own.
    pub producers: usize,
    /// Keys of one pass of a compaction, beside those of the batch that fills the map; more keys
    /// take more passes.
    pub compaction_keys: usize,
    /// Bytes that a compaction writes at once.
    pub compaction_piece_bytes: usize,
}

impl Bounds {
    /// Those of a node.
    pub const NODE: Self = Self {
        // Those of some 10 GiB of segments, more than many readers go through at a time.
        index_bytes: 64 << 20,
        // Of a segment that is full its log, two indexes and a snapshot of producers: 16 rolls.
        finished_files: 64,
        // At some 300 bytes each.
        producers: 1_000_000,
        // A table of 2^22 places takes 105 MB, half as much again for the moment in which it grows.
        compaction_keys: (1 << 22) / 8 * 7,
        compaction_piece_bytes: 1 << 20,
    };
}

impl Options {
    /// Refuses what cannot work.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |text: String| Err(Error::Argument(text));
        if self.journal_bytes < JOURNAL_BYTES_MIN || self.journal_bytes % PAGE as u64 != 0 {
            return wrong(format!(
                "journal_bytes is at least {JOURNAL_BYTES_MIN} and a multiple of {PAGE}"
            ));
        }
        if self.direct_write_bytes < PAGE as u64 {
            return wrong(format!("direct_write_bytes is at least {PAGE}"));
        }
        if self.segment_bytes == 0 || self.index_interval_bytes == 0 {
            return wrong("segment_bytes and index_interval_bytes are positive".into());
        }
        Ok(())
    }

    /// Beside batches, a journal file may have to be made.
    pub(super) fn reserve(&self) -> u64 {
        match self.reserve_bytes {
            0 => 0,
            bytes => bytes.max(self.journal_bytes),
        }
    }

    /// Whether so many bytes of one log bypass the journal.
    pub(super) fn is_direct(&self, bytes: u64) -> bool {
        bytes >= self.direct_write_bytes.min(self.journal_bytes / 4)
    }

    /// Journal bytes that a round may need at most, so that any round fits a fresh file.
    pub(super) fn round_need_max(&self) -> u64 {
        self.journal_bytes / 4
    }

    /// Of a log that is not configured.
    pub(super) fn log_settings(&self) -> LogSettings {
        LogSettings {
            segment_bytes: self.segment_bytes,
            ..LogSettings::default()
        }
    }
}
