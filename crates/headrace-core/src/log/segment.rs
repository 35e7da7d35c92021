//! One segment: its file, and what is known of it.

use super::disk::{DiskOp, Path};
use super::index::{self, Index};
use super::journal::SegmentState;
use super::layout;
use super::partition::replace;
use super::scan;

/// Kafka's indexes hold positions and relative offsets as `int`.
pub(super) const SEGMENT_BYTES_MAX: u64 = i32::MAX as u64;
/// One segment file and what is known of it.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Offset of its first record, whether that is kept or not.
    pub(super) base: i64,
    /// The compaction that wrote it; 0 for none.
    pub(super) generation: u32,
    /// When the first of its tombstones may go, as far as a compaction told.
    pub(super) horizon_ms: Option<i64>,
    /// Its `.log` file.
    pub(super) path: Path,
    /// Bytes, with what is queued.
    pub(super) bytes: u64,
    /// Bytes that are durable and written: what readers see.
    pub(super) committed: u64,
    /// None: on disk alone. The active segment always has it.
    pub(super) index: Option<Index>,
    /// The greatest timestamp, where an index has told it that has left memory.
    pub(super) newest: Option<i64>,
    /// The timestamp of its first batch that has one.
    pub(super) first_timestamp: Option<i64>,
    /// The wall clock when it began, where that is known.
    pub(super) created_ms: Option<i64>,
    /// The journal knows it.
    pub(super) begun: bool,
    /// There are index files, of this moment or an earlier one: those must not stay.
    pub(super) has_index_files: bool,
    /// CRC-32C of those files, as they were written last; None where nothing vouches for them.
    pub(super) index_crc: Option<u32>,
}

impl Segment {
    pub(super) fn new(folder: &str, base: i64) -> Self {
        Self {
            base,
            generation: 0,
            horizon_ms: None,
            path: layout::file(folder, base, layout::SEGMENT),
            bytes: 0,
            committed: 0,
            index: Some(Index::default()),
            newest: None,
            first_timestamp: None,
            created_ms: None,
            begun: false,
            has_index_files: false,
            index_crc: None,
        }
    }

    /// Its committed state, for a checkpoint.
    pub(super) fn state(&self) -> SegmentState {
        SegmentState {
            base: self.base,
            bytes: self.committed,
            newest: self.max_timestamp(),
            created_ms: self.created_ms,
            generation: self.generation,
            horizon_ms: self.horizon_ms,
            index_crc: self.index_crc,
        }
    }

    /// The segment without its index.
    pub(super) fn bare(&self) -> Self {
        Self {
            path: self.path.clone(),
            index: None,
            newest: self.max_timestamp(),
            ..*self
        }
    }

    /// It is as it was appended, and goes on where it is the last.
    pub(super) fn is_appended(&self) -> bool {
        self.generation == 0
    }

    /// It may hold more than the checkpoint tells, at which the segment `open` was written to.
    pub(super) fn may_have_grown(&self, open: i64) -> bool {
        self.base >= open && self.is_appended()
    }

    /// Its files as they are now.
    pub(super) fn on_disk(&self, folder: &str) -> scan::Files {
        self.state().files(folder)
    }

    /// Its files.
    pub(super) fn files(&self, folder: &str) -> [Path; 3] {
        [layout::SEGMENT, layout::INDEX, layout::TIME_INDEX].map(|kind| self.file(folder, kind))
    }

    /// One of its files.
    pub(super) fn file(&self, folder: &str, kind: &str) -> Path {
        layout::segment_file(folder, self.base, self.generation, kind)
    }

    /// The greatest timestamp of its batches, where there is one and it is known.
    pub(super) fn max_timestamp(&self) -> Option<i64> {
        let index = self.index.as_ref();
        index.map_or(self.newest, Index::max_timestamp)
    }

    /// Whether it may hold a timestamp of at least `timestamp`.
    pub(super) fn may_reach(&self, timestamp: i64) -> bool {
        match &self.index {
            Some(index) => index.max_timestamp() >= Some(timestamp),
            None => self.newest.is_none_or(|newest| newest >= timestamp),
        }
    }

    /// Leaves the index to the disk.
    pub(super) fn unload(&mut self) {
        if let Some(index) = self.index.take() {
            self.newest = index.max_timestamp();
        }
    }

    /// The effects that write its indexes, which must be in memory.
    pub(super) fn close(&mut self, folder: &str) -> Vec<DiskOp> {
        self.has_index_files = true;
        let index = self.index.as_mut().expect("the segment has its index");
        index.finish();
        let (offsets, times) = index.encode();
        self.index_crc = Some(index::crc(&offsets, &times));
        let mut ops = Vec::new();
        replace(&mut ops, self.file(folder, layout::INDEX), offsets);
        replace(&mut ops, self.file(folder, layout::TIME_INDEX), times);
        ops
    }
}
