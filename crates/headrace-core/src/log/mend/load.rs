//! Reading what the segments of a log hold: indexes, next offset, producers.

use super::{whole, Mender};
use crate::log::disk::Disk;
use crate::log::error::Error;
use crate::log::index::Index;
use crate::log::layout;
use crate::log::partition::{replace, Log};
use crate::log::producers::Producers;
use crate::log::scan::{read, scan, Depth};
use crate::log::segment::Segment;
use crate::log::story::{damage, Told};
use crate::record::{BatchHeader, HEADER_BYTES};

impl<D: Disk> Mender<'_, D> {
    /// Reads what the segments hold: indexes, next offset, producers.
    pub(super) fn load(
        &mut self,
        log: &mut Log,
        told: &Told,
        snapshot: Option<(i64, Producers)>,
    ) -> Result<(), Error> {
        let durable = told.state.next_offset;
        let mut next = log.segments[0].base;
        let (from, mut producers) = snapshot.unwrap_or((next, Producers::default()));
        let count = log.segments.len();
        log.sealed = self.report.clean;
        for at in 0..count {
            let segment = &mut log.segments[at];
            segment.committed = segment.bytes;
            let base = segment.base;
            let may_have_grown = segment.may_have_grown(told.open);
            if base != next {
                let what = "the offsets before it are missing";
                return Err(damage(&segment.path, 0, Some(next), what));
            }
            let is_active = at + 1 == count;
            let is_lost = at > 0 && from < base || self.forgotten.is_some();
            if is_active && is_lost {
                self.keep_snapshot(log, &producers)?;
            }
            let mut note = |header: &BatchHeader| {
                if header.base_offset >= from {
                    producers.note(header, None);
                }
            };
            if may_have_grown && !self.report.clean {
                next = self.scan_whole(&mut log.segments[at], &mut note)?;
                if !is_active {
                    let ops = log.segments[at].close(&log.folder);
                    self.perform(ops)?;
                }
            } else {
                let after = log.segments.get(at + 1);
                next = after.map_or(durable, |segment| segment.base);
                let is_held = is_active || !self.report.clean;
                let is_read = is_held && !self.hold_last(log, at, next, &mut note)?;
                log.sealed &= !is_read;
                if from < next && !is_read {
                    let all = whole(&log.segments[at]);
                    scan(self.disk, all, Depth::Bodies, |header, _| note(header))?;
                }
            }
            if !is_active {
                log.segments[at].unload();
            }
        }
        log.sealed &= from == next;
        log.next_offset = next;
        log.high_watermark = next;
        log.producers = producers;
        self.note_first_timestamp(log)
    }

    /// The snapshot that belongs to the beginning of the active segment was lost. Without it the
    /// segments before could not go.
    fn keep_snapshot(&mut self, log: &Log, producers: &Producers) -> Result<(), Error> {
        let path = layout::file(&log.folder, log.active().base, layout::PRODUCERS);
        let mut ops = Vec::new();
        replace(&mut ops, path, producers.encode());
        self.perform(ops)
    }

    fn note_first_timestamp(&self, log: &mut Log) -> Result<(), Error> {
        let active = log
            .segments
            .last_mut()
            .expect("a log has an active segment");
        if active.bytes > 0 {
            let bytes = read(self.disk, &active.path, 0, HEADER_BYTES, Some(active.base))?;
            if let Ok(header) = BatchHeader::parse(&bytes) {
                active.note_timestamp(&header);
            }
        }
        Ok(())
    }

    fn scan_whole(
        &self,
        segment: &mut Segment,
        note: &mut impl FnMut(&BatchHeader),
    ) -> Result<i64, Error> {
        let mut index = Index::default();
        let interval = self.options.index_interval_bytes;
        let next = scan(
            self.disk,
            whole(segment),
            Depth::Bodies,
            |header, position| {
                index.add(segment.base, header, position as u32, interval);
                note(header);
            },
        )?;
        segment.index = Some(index);
        segment.index_crc = None;
        Ok(next)
    }

    /// Loads a segment's index and walks from its last entry to the end: the last batch must
    /// end the file and `after` must follow it. False where there is no such index: all of the
    /// segment was read then, with CRCs, once.
    fn hold_last(
        &mut self,
        log: &mut Log,
        at: usize,
        after: i64,
        note: &mut impl FnMut(&BatchHeader),
    ) -> Result<bool, Error> {
        let is_active = at + 1 == log.segments.len();
        let segment = &mut log.segments[at];
        let files = segment.on_disk(&log.folder);
        let index = files.index(self.disk)?;
        let last = match &index {
            Some(index) => self.last_offset(segment, index)?,
            None => None,
        };
        if last == Some(after) {
            segment.index = index;
            return Ok(true);
        }
        // Of a segment that was trimmed a chore may have removed the index already.
        let is_damage = segment.index_crc.is_some() && after > log.start_offset;
        let found = self.scan_whole(segment, note)?;
        if found != after {
            let what = "records that were durable are missing at the end of the segment";
            return Err(damage(&segment.path, segment.bytes, Some(found), what));
        }
        self.report.rebuilt_indexes += u64::from(is_damage);
        if !is_active {
            let ops = segment.close(&log.folder);
            self.perform(ops)?;
        }
        Ok(false)
    }

    /// The offset after the last batch, walked to from the index; None where it leads astray.
    fn last_offset(&self, segment: &Segment, index: &Index) -> Result<Option<i64>, Error> {
        let mut range = whole(segment);
        if let Some((last, position)) = index.last() {
            let position = u64::from(position);
            let bytes = read(self.disk, &segment.path, position, HEADER_BYTES, None)?;
            let Ok(header) = BatchHeader::parse(&bytes) else {
                return Ok(None);
            };
            if header.last_offset() != segment.base + i64::from(last) {
                return Ok(None);
            }
            range.position = position;
            range.offset = header.base_offset;
        }
        match scan(self.disk, range, Depth::Headers, |_, _| {}) {
            Ok(next) => Ok(Some(next)),
            Err(Error::Corrupt(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
