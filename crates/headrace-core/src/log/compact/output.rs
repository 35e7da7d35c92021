//! What a group of segments becomes: written in pieces, indexed, synced.

use std::sync::Arc;

use super::pass::{Compaction, Input, Survey};
use crate::log::disk::{Disk, DiskOp, Slice};
use crate::log::error::Error;
use crate::log::segment::{Segment, SEGMENT_BYTES_MAX};
use crate::record::{placeholder, stretch, Batch, BatchHeader};

/// Epoch of a stand-in for records so old that nobody knows theirs (Kafka's
/// `NO_PARTITION_LEADER_EPOCH`).
const NO_EPOCH: i32 = -1;

/// The segments that a group becomes: one, or more where something outgrows its bounds.
pub(super) struct Output<'a, D> {
    survey: &'a Survey,
    disk: &'a D,
    created_ms: Option<i64>,
    /// Offset after the group.
    end: i64,
    /// Offset after what was taken.
    next: i64,
    done: Vec<Segment>,
    segment: Segment,
    /// Bytes of it that are not written yet.
    piece: Vec<u8>,
    /// The last batch, which may have to stand for more offsets than it has records; empty for none.
    last: Vec<u8>,
    last_horizon_ms: Option<i64>,
    scratch: Vec<u8>,
    batch: Vec<u8>,
}

impl<'a, D: Disk> Output<'a, D> {
    pub(super) fn begin(
        survey: &'a Survey,
        disk: &'a D,
        first: &Input,
        end: i64,
    ) -> Result<Self, Error> {
        let created_ms = first.segment.created_ms;
        let output = Self {
            survey,
            disk,
            created_ms,
            end,
            next: first.segment.base,
            done: Vec::new(),
            segment: survey.pass.segment(first.segment.base, created_ms),
            piece: Vec::new(),
            last: Vec::new(),
            last_horizon_ms: None,
            scratch: Vec::new(),
            batch: Vec::new(),
        };
        output.create()?;
        Ok(output)
    }

    fn create(&self) -> Result<(), Error> {
        let path = self.segment.path.clone();
        Ok(self.disk.perform(&DiskOp::Create { path })?)
    }

    /// Takes the next batch of the group.
    pub(super) fn take(&mut self, batch: &Batch, report: &mut Compaction) -> Result<(), Error> {
        report.read_bytes += batch.bytes.len() as u64;
        let mut bytes = std::mem::take(&mut self.batch);
        bytes.clear();
        let horizon_ms = self
            .survey
            .rewrite(batch, &mut self.scratch, &mut bytes, report);
        if bytes.is_empty() {
            self.batch = bytes;
            return Ok(());
        }
        self.fill(batch.header.base_offset, report)?;
        self.next = batch.header.next_offset();
        self.put(bytes, horizon_ms, report)
    }

    /// Offsets whose records are gone have a batch too, which a CRC covers: the offset that is
    /// stamped into the next one is held against its end.
    fn fill(&mut self, to: i64, report: &mut Compaction) -> Result<(), Error> {
        let from = std::mem::replace(&mut self.next, to);
        if from == to || !self.last.is_empty() && stretch(&mut self.last, to) {
            return Ok(());
        }
        let epoch = self.survey.pass.epochs.at(from);
        let stand_in = placeholder(from, to, epoch.unwrap_or(NO_EPOCH));
        self.put(stand_in, None, report)
    }

    /// Keeps one batch, until the next is known.
    fn put(
        &mut self,
        batch: Vec<u8>,
        horizon_ms: Option<i64>,
        report: &mut Compaction,
    ) -> Result<(), Error> {
        let last = std::mem::replace(&mut self.last, batch);
        let last_horizon_ms = std::mem::replace(&mut self.last_horizon_ms, horizon_ms);
        if !last.is_empty() {
            report.written_bytes += last.len() as u64;
            self.add(&last, last_horizon_ms)?;
        }
        self.batch = last; // its memory serves the next
        Ok(())
    }

    fn add(&mut self, bytes: &[u8], horizon_ms: Option<i64>) -> Result<(), Error> {
        let header = BatchHeader::parse(bytes).map_err(Error::Record)?;
        if self.segment.bytes + bytes.len() as u64 > SEGMENT_BYTES_MAX {
            self.end_segment()?;
            self.segment = self
                .survey
                .pass
                .segment(header.base_offset, self.created_ms);
            self.create()?;
        }
        let segment = &mut self.segment;
        let interval = self.survey.pass.index_interval_bytes;
        let index = segment.index.as_mut().expect("it is being written");
        index.add(segment.base, &header, segment.bytes as u32, interval);
        segment.bytes += bytes.len() as u64;
        let horizons = segment.horizon_ms.into_iter().chain(horizon_ms);
        segment.horizon_ms = horizons.min();
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= self.survey.pass.bounds.compaction_piece_bytes {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), Error> {
        let path = self.segment.path.clone();
        let piece = Arc::new(std::mem::take(&mut self.piece));
        let bytes_max = self.survey.pass.bounds.compaction_piece_bytes;
        for start in (0..piece.len()).step_by(bytes_max) {
            let end = piece.len().min(start + bytes_max);
            self.disk.perform(&DiskOp::Write {
                path: path.clone(),
                position: self.segment.bytes - (piece.len() - start) as u64,
                data: Slice::new(piece.clone(), start, end),
            })?;
        }
        // The sync at the end finds little left to do, and disturbs nobody.
        Ok(self.disk.perform(&DiskOp::WriteOut { path })?)
    }

    fn end_segment(&mut self) -> Result<(), Error> {
        self.write()?;
        let folder = &self.survey.pass.folders[0];
        let segment = &mut self.segment;
        segment.committed = segment.bytes;
        for op in segment.close(folder) {
            self.disk.perform(&op)?;
        }
        for path in segment.files(folder) {
            self.disk.perform(&DiskOp::Sync { path: path.clone() })?;
            self.disk.perform(&DiskOp::Close { path })?;
        }
        let index = segment.index.take();
        let done = segment.clone();
        self.done.push(Segment { index, ..done });
        Ok(())
    }

    pub(super) fn finish(mut self, report: &mut Compaction) -> Result<Vec<Segment>, Error> {
        self.fill(self.end, report)?;
        self.put(Vec::new(), None, report)?;
        self.end_segment()?;
        Ok(self.done)
    }
}
