//! When a log goes on to its next segment, and how.
//!
//! As Kafka does (`LogSegment.shouldRoll`): by size, by age, where an index is full, where an
//! offset no longer fits. A segment's age is what lies between the timestamps of its first batch
//! and of the one that comes. Clients choose those, so none counts as later than now: a batch from
//! the future rolls nothing, and a segment that began with one ages by the wall clock from its
//! creation, as every segment does.
//!
//! Each segment costs its place in every checkpoint. Where those would fill the journal, only
//! what cannot be stored otherwise begins a new one.

use super::disk::DiskOp;
use super::error::Error;
use super::journal::PAGE;
use super::machine::{unknown, Machine};
use super::options::{LOG_STATE_BYTES_MAX, SEGMENT_STATE_BYTES};
use super::partition::{Log, LogId};
use super::round::{Queued, Work};
use super::segment::{Segment, SEGMENT_BYTES_MAX};
use super::settings::{Fsync, LogSettings};
use crate::record::BatchHeader;

/// The beginning of a segment: closes the one before it.
#[derive(Clone, Debug)]
pub(super) struct Roll {
    /// Offset of its first record.
    pub(super) segment: i64,
    pub(super) created_ms: Option<i64>,
    pub(super) ops: Vec<DiskOp>,
}

impl Machine {
    /// Cuts segments of `log` so, from the next append on.
    pub fn configure(&mut self, log: LogId, settings: LogSettings) -> Result<(), Error> {
        settings.check()?;
        let before = std::mem::replace(&mut self.log_mut(log)?.settings, settings);
        if settings.fsync == Fsync::Commit && before.fsync != Fsync::Commit {
            // What was appended before becomes as durable as what comes.
            self.journal.sync_at_ns = Some(0);
            for item in self.queue.iter_mut().filter(|item| item.log == log) {
                item.sync_at_ns = Some(0);
            }
        }
        Ok(())
    }

    /// Queues the beginning of a new segment where the active one is not empty; it is submitted.
    pub fn roll(&mut self, log: LogId, wall_ms: i64) -> Result<(), Error> {
        self.refuse_writes()?;
        let room = self.has_room_for(0);
        let owner = self.logs.get_mut(&log);
        let owner = owner.filter(|_| !self.deleted.contains(&log));
        let owner = owner.ok_or_else(|| unknown(log))?;
        if room && owner.may_roll() {
            let roll = owner.roll(Some(wall_ms));
            self.queue_roll(log, roll, 0, None);
        }
        self.submit();
        Ok(())
    }

    pub(super) fn queue_roll(
        &mut self,
        log: LogId,
        roll: Roll,
        since_ns: u64,
        sync_at_ns: Option<u64>,
    ) {
        self.segments += 1;
        self.spend_segment();
        self.queue.push_back(Queued {
            ticket: None,
            log,
            work: Work::Roll(roll),
            since_ns,
            sync_at_ns,
        });
    }

    /// A checkpoint fits half a journal file with so many logs more, each with its segment, or with
    /// a segment more.
    pub(super) fn has_room_for(&self, logs: u64) -> bool {
        let segments = (self.segments + logs.max(1)) * SEGMENT_STATE_BYTES;
        let logs = (self.logs.len() as u64 + logs) * LOG_STATE_BYTES_MAX;
        logs + segments <= self.options.journal_bytes / 2 - 2 * PAGE as u64
    }

    /// Counts the segments anew, where some have gone.
    pub(super) fn count_segments(&mut self) {
        self.segments = self
            .logs
            .values()
            .map(|log| log.segments.len() as u64)
            .sum();
    }
}

impl Log {
    /// A run of `bytes` goes to a new segment. Refused where it does not fit, and no other may
    /// begin.
    pub(super) fn rolls_for(
        &self,
        headers: &[BatchHeader],
        bytes: u64,
        wall_ms: i64,
        room: bool,
    ) -> Result<bool, Error> {
        let active = self.active();
        let records: i64 = headers
            .iter()
            .map(|header| i64::from(header.last_offset_delta) + 1)
            .sum();
        let relative = self.next_offset + records - 1 - active.base;
        let end = active.bytes + bytes;
        let fits = end <= SEGMENT_BYTES_MAX && relative <= i64::from(i32::MAX);
        let due = || {
            let records = headers.iter().filter(|header| !header.is_mark());
            let newest = records.map(|header| header.max_timestamp).max();
            end > self.settings.segment_bytes
                || active.age_ms(newest.unwrap_or(-1), wall_ms) > self.settings.segment_ms
                || active.has_full_index(self.settings.segment_index_bytes)
        };
        if !fits && !self.may_roll() {
            let what = "the run does not fit the segment beside the control batches there";
            return Err(Error::Argument(what.into()));
        }
        Ok(self.may_roll() && (!fits || room && due()))
    }

    /// The log is open at `wall_ms`: its active segment began then and its producers were heard,
    /// where nothing tells that it was earlier.
    pub(super) fn begins_at(&mut self, wall_ms: i64) {
        let active = self
            .segments
            .last_mut()
            .expect("a log has an active segment");
        active.created_ms.get_or_insert(wall_ms);
        self.producers.heard_by(wall_ms);
    }

    /// Two segments never begin at one offset.
    pub(super) fn may_roll(&self) -> bool {
        self.next_offset > self.active().base
    }

    /// Closes the active segment and begins the next at the next offset.
    pub(super) fn roll(&mut self, created_ms: Option<i64>) -> Roll {
        let mut ops = self.side_files();
        let segment = Segment {
            created_ms,
            ..Segment::new(&self.folder, self.next_offset)
        };
        ops.push(DiskOp::Create {
            path: segment.path.clone(),
        });
        let segment_base = segment.base;
        self.segments.push(segment);
        Roll {
            segment: segment_base,
            created_ms,
            ops,
        }
    }
}

impl Segment {
    /// Takes note of the timestamp from which it ages; a batch may have none (-1).
    pub(super) fn note_timestamp(&mut self, header: &BatchHeader) {
        if self.first_timestamp.is_none() && header.max_timestamp >= 0 && !header.is_mark() {
            self.first_timestamp = Some(header.max_timestamp);
        }
    }

    /// Its age when a batch of this timestamp comes.
    fn age_ms(&self, timestamp: i64, wall_ms: i64) -> u64 {
        let between = |from: Option<i64>, to: i64| {
            let from = from.map_or(to, |from| from.min(wall_ms));
            u64::try_from(to.saturating_sub(from)).unwrap_or(0)
        };
        let by_records = between(self.first_timestamp, timestamp.min(wall_ms));
        by_records.max(between(self.created_ms, wall_ms))
    }

    fn has_full_index(&self, bytes_max: u64) -> bool {
        let index = self.index.as_ref();
        index.is_some_and(|index| index.is_full(bytes_max))
    }
}
