//! Room on the disk: appends are refused before it ends, for a write that fails ends the store.
//!
//! The shell tells from time to time how much is left; what was accepted since counts as gone.
//! Reads, trims and deletions go on, so that room can be made; appends come back once there is
//! somewhat more than the reserve.

use std::sync::Arc;

use super::error::Error;
use super::machine::Machine;

/// Bytes beyond the reserve, or an eighth of it, at which appends come back: so that they do not
/// come and go with each batch.
const RESUME_BYTES: u64 = 16 << 20;

/// Files that appends leave alone, beside those that each log may need to be closed: of streams'
/// definitions, journals, and of a second's other writers.
const RESERVE_FILES: u64 = 32;

/// Files beyond the reserve at which appends come back.
const RESUME_FILES: u64 = 8;

/// Files that a segment may come to: its log, two indexes, snapshots of producers and sources.
const SEGMENT_FILES: u64 = 5;

/// What is known of the room.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// Bytes that were left.
    free: Option<u64>,
    /// Bytes accepted since.
    spent: u64,
    /// Files that could be made, where that has a bound, and those made since.
    files: Option<u64>,
    files_spent: u64,
    /// Why appends are refused.
    full: Option<Arc<str>>,
}

impl Machine {
    /// The disk has so many bytes left, and room for so many files where that has a bound. True
    /// where that changes whether appends are refused.
    pub fn disk_free(&mut self, bytes: u64, files: Option<u64>) -> bool {
        self.space.free = Some(bytes);
        self.space.spent = self.statistics.queued_bytes;
        (self.space.files, self.space.files_spent) = (files, 0);
        let reserve = self.options.reserve();
        let was_full = self.space.full.is_some();
        let resume = reserve.saturating_add(RESUME_BYTES.min(reserve / 8));
        let files_resume = self.reserve_files() + RESUME_FILES;
        if was_full && bytes >= resume && files.is_none_or(|files| files >= files_resume) {
            self.space.full = None;
        }
        was_full && self.space.full.is_none() || !was_full && self.note_full()
    }

    /// Why appends are refused for want of room, or None.
    pub fn full(&self) -> Option<&Arc<str>> {
        self.space.full.as_ref()
    }

    /// So many bytes may be written that nobody waits for: what is left then is more than the
    /// reserve, and appends go on.
    pub fn has_spare(&self, bytes: u64) -> bool {
        let reserve = self.options.reserve();
        let left = self
            .space
            .free
            .map(|free| free.saturating_sub(self.space.spent));
        self.space.full.is_none() && left.is_none_or(|left| left >= reserve.saturating_add(bytes))
    }

    /// Bytes that the disk had left when that was last looked at.
    pub fn free_bytes(&self) -> Option<u64> {
        self.space.free
    }

    /// Refuses an append for which there is no room.
    pub(super) fn refuse_full(&mut self) -> Result<(), Error> {
        self.note_full();
        let Some(why) = &self.space.full else {
            return Ok(());
        };
        self.statistics.refused_full += 1;
        Err(Error::Full(why.to_string()))
    }

    pub(super) fn spend(&mut self, bytes: u64) {
        self.space.spent += bytes;
    }

    /// A segment begins.
    pub(super) fn spend_segment(&mut self) {
        self.space.files_spent += SEGMENT_FILES;
    }

    /// So many segments did not begin after all; the disk may have been looked at since.
    pub(super) fn regain_segments(&mut self, count: u64) {
        let spent = self.space.files_spent;
        self.space.files_spent = spent.saturating_sub(SEGMENT_FILES * count);
    }

    fn reserve_files(&self) -> u64 {
        RESERVE_FILES + SEGMENT_FILES * self.logs.len() as u64
    }

    fn files_left(&self) -> Option<u64> {
        Some(self.space.files?.saturating_sub(self.space.files_spent))
    }

    /// Whether appends are refused from now on.
    fn note_full(&mut self) -> bool {
        if self.space.full.is_some() {
            return false;
        }
        let why = self.short_of_bytes().or_else(|| self.short_of_files());
        self.space.full = why.map(Arc::from);
        self.space.full.is_some()
    }

    fn short_of_bytes(&self) -> Option<String> {
        let reserve = self.options.reserve();
        let left = self.space.free?.saturating_sub(self.space.spent);
        (left < reserve).then(|| {
            format!(
                "the disk of the data folder has less than {reserve} bytes left \
                 (log.reserve_bytes): nothing more is stored until there is room; free some, or \
                 keep less (retention)"
            )
        })
    }

    fn short_of_files(&self) -> Option<String> {
        let reserve = self.reserve_files();
        (self.files_left()? < reserve).then(|| {
            format!(
                "the file system of the data folder has less than {reserve} inodes left: nothing \
                 more is stored until there are; remove files there, or keep fewer segments \
                 (retention, segment.bytes)"
            )
        })
    }

    /// Refuses new logs for whose files there is no room, or would be none for what they store.
    pub(super) fn refuse_logs_without_files(&self, fresh: u64) -> Result<(), Error> {
        let needed = self.reserve_files() + 2 * SEGMENT_FILES * fresh;
        match self.files_left() {
            Some(left) if left < needed => Err(Error::Full(format!(
                "the file system of the data folder has {left} inodes left, and needs {needed} for \
                 {fresh} more partitions: remove files there, or keep fewer segments (retention, \
                 segment.bytes)"
            ))),
            _ => Ok(()),
        }
    }
}
