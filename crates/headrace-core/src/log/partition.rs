//! One log: its segments, its next offset, its producers. Decides where a batch will stand.
//!
//! Invariants. Every offset belongs to one batch, also where compaction took its record. Positions and
//! relative offsets stay below 2^31, as Kafka's indexes need. What is queued is ahead of what is
//! committed; readers see the committed part alone. A refused append leaves no trace.

use std::sync::Arc;

use super::disk::{DiskOp, Path, Slice};
use super::epochs::Epochs;
use super::error::Error;
use super::journal::LogState;
use super::layout;
use super::producers::{Producers, Verdict};
use super::roll::Roll;
use super::round::Frontier;
use super::segment::{Segment, SEGMENT_BYTES_MAX};
use super::settings::LogSettings;
use super::sources::Saved;
use crate::record::{set_base_offset, set_leader_epoch, BatchHeader, Batches};

/// Snapshots of producers kept per log: the newest may be of a tail that a crash tears off.
pub(super) const SNAPSHOTS: usize = 2;
/// An active segment smaller than this is sooner scanned than its three side files are synced.
const SIDE_FILES_BYTES_MIN: u64 = 64 << 10;

/// Handle of a log within its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(pub u32);

/// One partition of one stream.
#[derive(Clone, Debug)]
pub(super) struct Log {
    pub(super) id: LogId,
    pub(super) stream: Arc<str>,
    pub(super) partition: u32,
    pub(super) incarnation: u64,
    pub(super) folder: Path,
    pub(super) settings: LogSettings,
    /// Offset of the first record that is kept; it may lie inside the first segment.
    pub(super) start_offset: i64,
    /// Offset up to which it was compacted.
    pub(super) cleaned_to: i64,
    /// Compactions that were begun: the next is of this generation.
    pub(super) generations: u32,
    /// Ascending, never empty; the last is the active one.
    pub(super) segments: Vec<Segment>,
    /// Offset of the next batch, after all that is queued.
    pub(super) next_offset: i64,
    /// Offset after the last committed record.
    pub(super) high_watermark: i64,
    /// What is appended belongs to this epoch.
    pub(super) leader_epoch: i32,
    pub(super) epochs: Epochs,
    pub(super) producers: Producers,
    /// The wall clock when those that are silent were last forgotten.
    pub(super) producers_swept_ms: i64,
    /// Offsets of the producer snapshots on disk.
    pub(super) snapshots: Vec<i64>,
    /// The source snapshots on disk.
    pub(super) saved_sources: Saved,
    /// Counts how often segments were let go: a plan to read one of them is then out of date.
    pub(super) edition: u64,
    /// Files that are not needed any more.
    pub(super) obsolete: Vec<Path>,
    /// The journal knows the log.
    pub(super) registered: bool,
    /// The side files on disk are those of the present state.
    pub(super) sealed: bool,
    /// Committed bytes of the last, partial page of the active segment.
    pub(super) tail: Vec<u8>,
    /// The journal's active file can rebuild that page.
    pub(super) page_logged: bool,
}

/// Where an accepted run of batches will stand.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) base_offset: i64,
    /// The run goes to a new segment.
    pub(super) roll: Option<Roll>,
    /// None: the run repeats what is stored at `base_offset`.
    pub(super) run: Option<Run>,
}

/// A stamped run of batches, to be written at `position` of the segment `segment`.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) segment: i64,
    pub(super) position: u64,
    pub(super) bytes: Arc<Vec<u8>>,
    pub(super) batches: u32,
    /// Offset after the run.
    pub(super) next_offset: i64,
    /// The epoch that begins with it.
    pub(super) epoch: Option<i32>,
}

impl Log {
    /// A log without records.
    pub(super) fn new(
        id: LogId,
        stream: &Arc<str>,
        partition: u32,
        incarnation: u64,
        settings: LogSettings,
    ) -> Self {
        let folder = layout::log_folder(stream, partition);
        let first = Segment {
            begun: true, // with the log itself
            ..Segment::new(&folder, 0)
        };
        Self {
            id,
            stream: stream.clone(),
            partition,
            incarnation,
            segments: vec![first],
            folder,
            settings,
            start_offset: 0,
            cleaned_to: 0,
            generations: 1,
            next_offset: 0,
            high_watermark: 0,
            leader_epoch: Epochs::default().current(),
            epochs: Epochs::default(),
            producers: Producers::default(),
            producers_swept_ms: i64::MIN,
            snapshots: Vec::new(),
            saved_sources: Saved::default(),
            edition: 0,
            obsolete: Vec::new(),
            registered: false,
            sealed: true,
            tail: Vec::new(),
            page_logged: false,
        }
    }

    pub(super) fn active(&self) -> &Segment {
        self.segments.last().expect("a log has an active segment")
    }

    /// The segment that begins at `base`.
    pub(super) fn segment_mut(&mut self, base: i64) -> Option<&mut Segment> {
        let at = self
            .segments
            .binary_search_by_key(&base, |segment| segment.base)
            .ok()?;
        Some(&mut self.segments[at])
    }

    /// The effects that make a new log.
    pub(super) fn creation(&self) -> Vec<DiskOp> {
        let epochs = layout::epochs(&self.folder);
        let mut ops = self.beginning();
        ops.push(DiskOp::Create {
            path: epochs.clone(),
        });
        ops.push(DiskOp::Write {
            path: epochs,
            position: 0,
            data: self.epochs.file().into(),
        });
        ops
    }

    /// Those that make its folder and first segment; what is queued may have rolled on from there.
    pub(super) fn beginning(&self) -> Vec<DiskOp> {
        vec![
            DiskOp::CreateFolder {
                path: layout::stream_folder(&self.stream),
            },
            DiskOp::CreateFolder {
                path: self.folder.clone(),
            },
            DiskOp::Create {
                path: self.segments[0].path.clone(),
            },
        ]
    }

    /// The committed state, for a checkpoint.
    pub(super) fn state(&self) -> LogState {
        LogState {
            id: self.id.0,
            stream: self.stream.to_string(),
            partition: self.partition,
            incarnation: self.incarnation,
            start_offset: self.start_offset,
            next_offset: self.high_watermark,
            cleaned_to: self.cleaned_to,
            epochs: self.epochs.clone(),
            has_sources: self.saved_sources.has_any,
            segments: self
                .segments
                .iter()
                .filter(|segment| segment.begun)
                .map(Segment::state)
                .collect(),
        }
    }

    /// Stamps offsets and epoch into `bytes` and gives the run its place.
    ///
    /// `room`: segments may begin that need not.
    pub(super) fn append(
        &mut self,
        mut bytes: Vec<u8>,
        index_interval_bytes: u64,
        wall_ms: i64,
        room: bool,
    ) -> Result<Placed, Error> {
        let mut headers = self.parse(&bytes)?;
        self.forget_silent(&headers, wall_ms);
        if let Some(first_copy) = self.judge(&headers)? {
            return Ok(Placed {
                base_offset: first_copy,
                roll: None,
                run: None,
            });
        }
        let base_offset = self.next_offset;
        let rolls = self.rolls_for(&headers, bytes.len() as u64, wall_ms, room)?;
        let roll = rolls.then(|| self.roll(Some(wall_ms)));
        let begins = self.leader_epoch > self.epochs.current();
        let epoch = begins.then_some(self.leader_epoch);
        if begins {
            self.epochs.begin(self.leader_epoch, base_offset);
        }
        self.stamp(&mut headers, &mut bytes);
        self.sealed = false;

        let segment = self
            .segments
            .last_mut()
            .expect("a log has an active segment");
        let position = segment.bytes;
        let index = segment
            .index
            .as_mut()
            .expect("the active segment has its index");
        for header in &headers {
            let position = segment.bytes as u32;
            index.add(segment.base, header, position, index_interval_bytes);
            segment.bytes += header.batch_bytes() as u64;
            self.producers.note(header, Some(wall_ms));
        }
        segment.note_timestamp(&headers[0]);
        Ok(Placed {
            base_offset,
            roll,
            run: Some(Run {
                segment: segment.base,
                position,
                bytes: Arc::new(bytes),
                batches: headers.len() as u32,
                next_offset: self.next_offset,
                epoch,
            }),
        })
    }

    /// A round was committed. Returns the segment that it left full.
    pub(super) fn advance(&mut self, frontier: Frontier) -> Option<&Segment> {
        let segment = self
            .segment_mut(frontier.segment)
            .expect("a round writes to known segments");
        let begins = !std::mem::replace(&mut segment.begun, true);
        segment.committed = frontier.bytes;
        self.high_watermark = frontier.next_offset;
        self.tail = frontier.tail;
        self.page_logged = frontier.page_logged;
        if !begins {
            return None;
        }
        self.snapshot_taken(frontier.segment);
        let at = self
            .segments
            .partition_point(|segment| segment.base < frontier.segment);
        Some(&self.segments[at - 1])
    }

    /// The snapshot of `offset` is on its way to the disk: old ones may go.
    pub(super) fn snapshot_taken(&mut self, offset: i64) {
        if self.snapshots.last() != Some(&offset) {
            self.snapshots.push(offset);
        }
        self.shed_snapshots();
    }

    pub(super) fn shed_snapshots(&mut self) {
        let old = self.snapshots.len().saturating_sub(SNAPSHOTS);
        for offset in self.snapshots.drain(..old) {
            self.obsolete
                .push(layout::file(&self.folder, offset, layout::PRODUCERS));
        }
    }

    /// The headers of a run; an empty or malformed one is refused.
    fn parse(&self, bytes: &[u8]) -> Result<Vec<BatchHeader>, Error> {
        if bytes.is_empty() || bytes.len() as u64 > SEGMENT_BYTES_MAX {
            return Err(Error::Argument(format!(
                "an append holds 1 byte to 2 GiB of record batches, not {}",
                bytes.len()
            )));
        }
        let mut headers = Vec::with_capacity(1);
        let mut records = 0_i64;
        for batch in Batches::new(bytes) {
            let header = batch.map_err(Error::Record)?.header;
            if header.last_offset_delta < 0 && !header.is_mark() {
                return Err(Error::Argument("a record batch has no offsets".into()));
            }
            records += i64::from(header.last_offset_delta) + 1;
            headers.push(header);
        }
        if records > i64::from(i32::MAX) || self.next_offset.checked_add(records).is_none() {
            return Err(Error::Argument(format!(
                "{records} offsets are too many at once"
            )));
        }
        Ok(headers)
    }

    /// Forgets producers of the run that have been silent for long, and now and then all such.
    pub(super) fn forget_silent(&mut self, headers: &[BatchHeader], wall_ms: i64) {
        let expiry_ms = self.settings.producer_expiry_ms;
        for header in headers.iter().filter(|header| header.has_producer()) {
            let id = header.producer_id;
            self.producers.forget_if_silent(id, wall_ms, expiry_ms);
        }
        let since = wall_ms.saturating_sub(self.producers_swept_ms);
        if u64::try_from(since).is_ok_and(|since| since > expiry_ms / 8) {
            self.producers.forget_silent(wall_ms, expiry_ms);
            self.producers_swept_ms = wall_ms;
        }
    }

    /// Holds the run against its producers; the first copy's offset where it is a repeat.
    fn judge(&self, headers: &[BatchHeader]) -> Result<Option<i64>, Error> {
        if let [header] = headers {
            return Ok(match self.producers.check(header)? {
                Verdict::New => None,
                Verdict::Duplicate(offset) => Some(offset),
            });
        }
        if !headers.iter().any(BatchHeader::has_producer) {
            return Ok(None);
        }
        // Each batch is judged after the one before it, on a copy: a refusal leaves no trace.
        let mut producers = self.producers.clone();
        let mut first_copy = None;
        for (at, header) in headers.iter().enumerate() {
            match producers.check(header)? {
                Verdict::New if first_copy.is_none() => producers.note(header, None),
                Verdict::Duplicate(offset) if at == 0 => first_copy = Some(offset),
                Verdict::Duplicate(_) if first_copy.is_some() => {}
                _ => {
                    return Err(Error::Argument(
                        "a run of record batches is in part a repeat: send it batch by batch"
                            .into(),
                    ))
                }
            }
        }
        Ok(first_copy)
    }

    fn stamp(&mut self, headers: &mut [BatchHeader], bytes: &mut [u8]) {
        let mut at = 0;
        for header in headers {
            header.base_offset = self.next_offset;
            set_base_offset(&mut bytes[at..], header.base_offset);
            set_leader_epoch(&mut bytes[at..], self.leader_epoch);
            at += header.batch_bytes();
            self.next_offset = header.next_offset();
        }
    }

    /// A clean close writes its side files: they spare the next start more than they cost.
    pub(super) fn wants_side_files(&self) -> bool {
        let least = SIDE_FILES_BYTES_MIN.min(self.settings.segment_bytes / 4);
        let active = self.active();
        !self.sealed && (active.bytes >= least || active.has_index_files)
    }

    /// The effects that write the active segment's indexes and a snapshot of the producers.
    /// Only what a scan can rebuild stands in them.
    pub(super) fn side_files(&mut self) -> Vec<DiskOp> {
        let segment = self
            .segments
            .last_mut()
            .expect("a log has an active segment");
        let mut ops = segment.close(&self.folder);
        let path = layout::file(&self.folder, self.next_offset, layout::PRODUCERS);
        replace(&mut ops, path, self.producers.encode());
        ops
    }
}

/// Makes `path` hold exactly `bytes`. Not atomic: for files that carry their own proof or that
/// a scan can rebuild.
pub(super) fn replace(ops: &mut Vec<DiskOp>, path: Path, bytes: Vec<u8>) {
    let data = Slice::from(bytes);
    ops.push(DiskOp::Create { path: path.clone() });
    ops.push(DiskOp::SetLength {
        path: path.clone(),
        bytes: 0,
    });
    ops.push(DiskOp::Write {
        path,
        position: 0,
        data,
    });
}
