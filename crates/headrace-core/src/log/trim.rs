//! Where a log begins: records below its start offset are gone, and segments that held no others.
//!
//! The journal tells it first; from then on readers are refused there. A chore removes the files,
//! after it has synced what newer segments brought along: the snapshot that tells of producers
//! whose batches go. Recovery removes again what a crash left.

use super::draft::MACHINE_ENTRY_BYTES;
use super::error::Error;
use super::machine::{unknown, Machine};
use super::partition::{Log, LogId};
use super::round::{Draft, Piece};

/// What is known of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentFacts {
    /// Offset of its first record, whether that is kept or not.
    pub base_offset: i64,
    /// The compaction that wrote it; 0 for none.
    pub generation: u32,
    /// Offset after its last committed record.
    pub next_offset: i64,
    /// Committed bytes.
    pub bytes: u64,
    /// The greatest timestamp of its batches; None where there is no batch.
    pub max_timestamp: Option<i64>,
    /// The wall clock when it began, where that is known.
    pub created_ms: Option<i64>,
    /// It is the last.
    pub active: bool,
    /// All of it was compacted.
    pub clean: bool,
    /// The wall clock from which compaction may drop the first of its tombstones.
    pub horizon_ms: Option<i64>,
}

impl Machine {
    /// Queues that `log` begins at `offset`; nothing changes where it begins there or later. The
    /// caller has kept the sources ([`Machine::save_sources`]): who asks for them is refused where
    /// what the records told of them is nowhere.
    pub fn trim(&mut self, log: LogId, offset: i64) -> Result<(), Error> {
        self.refuse_writes()?;
        let (start, end) = self.bounds(log)?;
        if self.deleted.contains(&log) {
            return Err(unknown(log));
        }
        if offset > end {
            return Err(Error::Argument(format!(
                "a log cannot begin at {offset}, beyond its high watermark {end}"
            )));
        }
        if offset > start {
            let wanted = self.trims.entry(log).or_insert(offset);
            *wanted = offset.max(*wanted);
        }
        Ok(())
    }

    /// A trim is queued or under way.
    pub fn is_trimming(&self, log: LogId) -> bool {
        self.trims.contains_key(&log)
    }

    /// The segments of `log`, oldest first.
    pub fn segments(&self, log: LogId) -> Result<Vec<SegmentFacts>, Error> {
        let log = self.log(log)?;
        let begun = log.segments.partition_point(|segment| segment.begun);
        let segments = &log.segments[..begun];
        let facts = segments.iter().enumerate().map(|(at, segment)| {
            let next = segments.get(at + 1).map(|next| next.base);
            let next_offset = next.unwrap_or(log.high_watermark);
            SegmentFacts {
                base_offset: segment.base,
                generation: segment.generation,
                next_offset,
                bytes: segment.committed,
                max_timestamp: segment.max_timestamp(),
                created_ms: segment.created_ms,
                active: next.is_none(),
                clean: next.is_some() && next_offset <= log.cleaned_to,
                horizon_ms: segment.horizon_ms,
            }
        });
        Ok(facts.collect())
    }

    /// Counts how often segments of `log` were let go: what was read of them meanwhile may fail.
    ///
    /// Refused where its stream is on its way out: its files may have gone before it has.
    pub fn edition(&self, log: LogId) -> Result<u64, Error> {
        if self.deleted.contains(&log) {
            return Err(unknown(log));
        }
        Ok(self.log(log)?.edition)
    }

    /// Offset up to which `log` was compacted.
    pub fn cleaned_to(&self, log: LogId) -> Result<i64, Error> {
        Ok(self.log(log)?.cleaned_to)
    }

    pub(super) fn draft_trims(&mut self) -> Option<Draft> {
        let most = (self.options.round_need_max() / MACHINE_ENTRY_BYTES) as usize;
        let count = self.trims.len().min(most);
        let place = self.place(count as u64 * MACHINE_ENTRY_BYTES)?;
        let trims = self.trims.iter().take(count);
        let pieces = trims.map(|(log, offset)| Piece::Trim {
            log: *log,
            start_offset: *offset,
        });
        Some(Draft {
            pieces: pieces.collect(),
            ..Draft::at(place)
        })
    }

    /// The journal tells that `log` begins at `offset`.
    pub(super) fn trimmed(&mut self, id: LogId, offset: i64) {
        if self.trims.get(&id) == Some(&offset) {
            self.trims.remove(&id);
        }
        if let Some(log) = self.logs.get_mut(&id) {
            log.start_offset = offset;
            self.shed(id);
        }
    }

    /// Lets segments of `log` go that are not needed any more; a chore removes their files.
    pub(super) fn shed(&mut self, id: LogId) {
        if self.logs.get_mut(&id).is_some_and(Log::shed) {
            self.has_shed = true;
            self.count_segments();
        }
    }
}

impl Log {
    /// Forgets segments that hold nothing from the start offset on. False where there is none.
    pub(super) fn shed(&mut self) -> bool {
        let needed =
            |segment: &super::segment::Segment| !segment.begun || segment.base > self.start_offset;
        let kept = self.segments.partition_point(|segment| !needed(segment));
        let gone = kept.saturating_sub(1);
        for segment in self.segments.drain(..gone) {
            self.obsolete.extend(segment.files(&self.folder));
        }
        self.edition += u64::from(gone > 0);
        gone > 0
    }
}
