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

/// What is known of the room.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// Bytes that were left.
    free: Option<u64>,
    /// Bytes accepted since.
    spent: u64,
    /// Why appends are refused.
    full: Option<Arc<str>>,
}

impl Machine {
    /// The disk has so many bytes left. True where that changes whether appends are refused.
    pub fn disk_free(&mut self, bytes: u64) -> bool {
        self.space.free = Some(bytes);
        self.space.spent = self.statistics.queued_bytes;
        let reserve = self.options.reserve();
        let was_full = self.space.full.is_some();
        let resume = reserve.saturating_add(RESUME_BYTES.min(reserve / 8));
        if was_full && bytes >= resume {
            self.space.full = None;
        }
        was_full && self.space.full.is_none() || !was_full && self.note_full()
    }

    /// Why appends are refused for want of room, or None.
    pub fn full(&self) -> Option<&Arc<str>> {
        self.space.full.as_ref()
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

    /// Whether appends are refused from now on.
    fn note_full(&mut self) -> bool {
        let reserve = self.options.reserve();
        let left = self
            .space
            .free
            .map(|free| free.saturating_sub(self.space.spent));
        if self.space.full.is_some() || left.is_none_or(|left| left >= reserve) {
            return false;
        }
        let why = format!(
            "the disk of the data folder has less than {reserve} bytes left (log.reserve_bytes): \
             nothing more is stored until there is room; free some, or keep less (retention)"
        );
        self.space.full = Some(why.into());
        true
    }
}
