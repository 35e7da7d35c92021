//! Making the segments of one log what the journal tells (steps 2 to 4 of recovery).

use std::collections::BTreeSet;

use super::chore::{Dirt, FINISHED_MAX};
use super::disk::{Disk, DiskOp, Path};
use super::error::Error;
use super::index::Index;
use super::journal::{SegmentState, PAGE};
use super::layout;
use super::options::Options;
use super::partition::{replace, Log, LogId, Segment};
use super::producers::Producers;
use super::read::newest;
use super::recovery::{damage, Recovery, Redo, Told};
use super::scan::{scan, whole_file, Depth, Range};
use crate::record::{BatchHeader, Batches, HEADER_BYTES};

/// Mends log after log; remembers what is to be synced.
pub(super) struct Mender<'a, D> {
    disk: &'a D,
    options: Options,
    report: Recovery,
    dirt: Dirt,
}

impl<'a, D: Disk> Mender<'a, D> {
    pub(super) fn new(disk: &'a D, options: Options, clean: bool) -> Self {
        let report = Recovery {
            clean,
            ..Recovery::default()
        };
        Self {
            disk,
            options,
            report,
            dirt: Dirt::default(),
        }
    }

    /// Syncs all that was mended.
    pub(super) fn finish(mut self) -> Result<Recovery, Error> {
        self.sync()?;
        Ok(self.report)
    }

    /// A few files at a time: each holds a descriptor, and the next write opens again what it needs.
    fn sync(&mut self) -> Result<(), Error> {
        let dirt = std::mem::take(&mut self.dirt);
        let files: Vec<Path> = dirt.files.into_iter().collect();
        let some = |files: &[Path]| Dirt {
            files: files.iter().cloned().collect(),
            finished: files.iter().cloned().collect(),
            folders: BTreeSet::new(),
        };
        let folders = Dirt {
            folders: dirt.folders,
            ..Dirt::default()
        };
        let parts = files.chunks(FINISHED_MAX).map(some).chain([folders]);
        for op in parts.flat_map(Dirt::syncs) {
            self.disk.perform(&op)?;
        }
        Ok(())
    }

    /// The log as it was last acknowledged.
    pub(super) fn mend(&mut self, told: &Told) -> Result<Log, Error> {
        let state = &told.state;
        let stream = state.stream.as_str().into();
        let mut log = Log::new(
            LogId(state.id),
            &stream,
            state.partition,
            state.incarnation,
            self.options.log_settings(),
        );
        log.registered = true;
        log.start_offset = state.start_offset;
        log.epochs = state.epochs.clone();
        log.cleaned_to = state.cleaned_to;
        let is_new = state.segments.len() == 1 && state.next_offset == 0;
        let is_new = is_new && state.segments[0].generation == 0;
        if is_new && self.disk.size(&log.active().path)?.is_none() {
            self.perform(log.creation())?;
        }
        let first = self.first_needed(&log, told)?;
        let segments = state.segments.iter();
        log.segments = segments
            .filter(|segment| segment.base >= first)
            .map(|segment| held(&log.folder, *segment))
            .collect();
        let generations = log.segments.iter().map(|segment| segment.generation);
        log.generations = generations.max().unwrap_or(0) + 1;
        if !self.report.clean {
            // A process that died may have left entries that only the page cache knows.
            let above = [layout::STREAMS.into(), layout::stream_folder(&stream)];
            self.dirt.folders.extend(above);
            self.dirt.folders.insert(log.folder.clone());
        }
        self.hold_lengths(&log)?;
        // The last may go on from where it was, unless a compaction wrote it.
        let open = log.segments.last().is_some_and(Segment::is_appended);
        let touched = log.segments.len() - usize::from(open);
        let needed = told.redo.iter().filter(|(base, ..)| *base >= first);
        for (base, position, redo) in needed.clone() {
            self.redo(&mut log, *base, *position, *redo)?;
        }
        for (base, position, redo) in needed {
            self.hold_direct(&log, *base, *position, *redo)?;
        }
        self.keep_sound_tail(&mut log)?;
        self.cut(&mut log, touched)?;
        self.load(&mut log, touched, told)?;
        self.drop_later_snapshots(&mut log)?;
        self.mend_epochs(&mut log)?;
        log.shed();
        let base = log.active().base;
        let times = layout::file(&log.folder, base, layout::TIME_INDEX);
        let has_index_files = self.disk.size(&times)?.is_some();
        let active = log.segments.last_mut();
        active.expect("it has an active segment").has_index_files = has_index_files;
        let end = log.active().bytes;
        let page = end - end % PAGE as u64;
        log.tail = self
            .disk
            .read(&log.active().path, page, (end - page) as usize)?;
        Ok(log)
    }

    /// Where the segments begin that are read: those wholly below the start offset may be gone.
    /// While they are there and no snapshot tells of their producers, they tell of them.
    fn first_needed(&self, log: &Log, told: &Told) -> Result<i64, Error> {
        let bases = told.bases();
        let kept = bases.partition_point(|base| *base <= log.start_offset) - 1;
        let (gone, first) = (&bases[..kept], bases[kept]);
        let snapshot = self.snapshot(log, told)?;
        let covered = snapshot.map_or(0, |(offset, _)| offset);
        let mut needed = first;
        for base in gone.iter().rev() {
            if covered >= needed {
                break;
            }
            let path = told.path(&log.folder, *base);
            if self.disk.size(&path)?.unwrap_or(0) < told.bytes_beside_journal(*base) {
                break;
            }
            needed = *base;
        }
        Ok(needed)
    }

    /// The newest snapshot of producers that is true of what the journal tells: those of segments'
    /// beginnings are, and those that are older than the oldest checkpoint.
    fn snapshot(&self, log: &Log, told: &Told) -> Result<Option<(i64, Producers)>, Error> {
        let bases = told.bases();
        let trusted = |offset| offset <= told.state.next_offset || bases.contains(&offset);
        newest(
            self.disk,
            &log.folder,
            layout::PRODUCERS,
            trusted,
            Producers::decode,
        )
    }

    fn perform(&mut self, ops: impl IntoIterator<Item = DiskOp>) -> Result<(), Error> {
        for op in ops {
            self.disk.perform(&op)?;
            self.dirt.note([&op]);
        }
        if self.dirt.files.len() >= FINISHED_MAX {
            self.sync()?;
        }
        Ok(())
    }

    /// Each segment of the checkpoint is there, as long as it was.
    fn hold_lengths(&mut self, log: &Log) -> Result<(), Error> {
        for (at, segment) in log.segments.iter().enumerate() {
            let path = &segment.path;
            let closed = at + 1 < log.segments.len() || !segment.is_appended();
            let told = segment.bytes;
            match self.disk.size(path)? {
                None if told == 0 => self.perform([DiskOp::Create { path: path.clone() }])?,
                None => {
                    return Err(damage(
                        path,
                        0,
                        Some(segment.base),
                        "the segment is missing",
                    ))
                }
                Some(bytes) if bytes < told => {
                    let what = format!("the segment ends there, {told} bytes were durable");
                    return Err(damage(path, bytes, None, &what));
                }
                Some(bytes) if bytes > told && closed => {
                    return Err(damage(
                        path,
                        told,
                        None,
                        "the segment goes on after its end",
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Puts one entry's bytes where they belong.
    fn redo(&mut self, log: &mut Log, base: i64, position: u64, redo: Redo) -> Result<(), Error> {
        if let Redo::Roll { created_ms } = redo {
            let segment = held(&log.folder, SegmentState::empty(base, created_ms));
            self.perform([DiskOp::Create {
                path: segment.path.clone(),
            }])?;
            log.segments.push(segment);
        }
        let path = layout::file(&log.folder, base, layout::SEGMENT);
        let segment = log
            .segment_mut(base)
            .filter(|segment| segment.is_appended() && position <= segment.bytes)
            .ok_or_else(|| damage(&path, position, None, "the journal leaves a gap before it"))?;
        if let Redo::Write(bytes) = redo {
            if self.disk.read(&path, position, bytes.len())? != bytes {
                // What comes before the segment's end repeats the rest of its last page.
                let fresh = &bytes[(segment.bytes - position) as usize..];
                self.report.replayed_batches += Batches::new(fresh).flatten().count() as u64;
            }
            // Written in any case: after a failed sync the page cache shows what the disk has
            // not got, and no sync would write it.
            let data = bytes.to_vec().into();
            self.perform([DiskOp::Write {
                path,
                position,
                data,
            }])?;
        }
        segment.bytes = segment.bytes.max(position + redo.len());
        Ok(())
    }

    /// A direct write was synced before the journal told of it. Its last page may have been
    /// spoilt by the write that followed it there, and is mended by now.
    fn hold_direct(&self, log: &Log, base: i64, position: u64, redo: Redo) -> Result<(), Error> {
        let Redo::Direct { length, crc } = redo else {
            return Ok(());
        };
        let path = layout::file(&log.folder, base, layout::SEGMENT);
        let found = self.disk.read(&path, position, length as usize)?;
        if crc32c::crc32c(&found) == crc {
            return Ok(());
        }
        Err(damage(
            &path,
            position,
            None,
            "a direct write does not match its CRC",
        ))
    }

    /// Keeps whole batches beyond what the journal tells, as long as they follow on. Mostly nobody
    /// was promised them: a direct write was cut short of its note. But somebody was where it is
    /// the journal's last round that is damaged, which looks like one that was torn.
    fn keep_sound_tail(&mut self, log: &mut Log) -> Result<(), Error> {
        let active = log.active();
        let bytes = self.disk.size(&active.path)?.unwrap_or(0);
        let names = self.disk.list(&log.folder)?;
        let bases = layout::offsets(&names, layout::SEGMENT);
        let goes_on = bytes > active.bytes || bases.last() > Some(&active.base);
        if self.report.clean || !goes_on || bytes < active.bytes {
            return Ok(());
        }
        let mut next = scan(self.disk, whole(active), Depth::Bodies, |_, _| {})?;
        loop {
            next = self.keep_sound_batches(log, next)?;
            let begun = layout::file(&log.folder, next, layout::SEGMENT);
            let is_other = next > log.active().base;
            if !is_other || self.disk.size(&begun)?.unwrap_or(0) == 0 {
                return Ok(());
            }
            // When it began nobody says any more; not before the one that it follows.
            let state = SegmentState::empty(next, log.active().created_ms);
            log.segments.push(held(&log.folder, state));
        }
    }

    /// Those of the active segment; the offset after them.
    fn keep_sound_batches(&self, log: &mut Log, mut next: i64) -> Result<i64, Error> {
        let segment = log.segments.last_mut().expect("it has an active segment");
        let found = self.disk.size(&segment.path)?.unwrap_or(0);
        let beyond = found.saturating_sub(segment.bytes) as usize;
        if beyond > 0 {
            // Only what the disk has got: a direct write may have failed to be synced.
            let path = || segment.path.clone();
            self.disk.perform(&DiskOp::Sync { path: path() })?;
            self.disk.perform(&DiskOp::DropCache { path: path() })?;
        }
        let tail = self.disk.read(&segment.path, segment.bytes, beyond)?;
        for batch in Batches::new(&tail).map_while(Result::ok) {
            let header = &batch.header;
            let follows =
                header.base_offset == next && (header.last_offset_delta >= 0 || header.is_mark());
            let epoch = log.epochs.current();
            if !follows || header.leader_epoch < epoch || batch.check_crc().is_err() {
                break;
            }
            if header.leader_epoch > epoch {
                log.epochs.begin(header.leader_epoch, next); // of which the journal tells nothing
            }
            next = header.next_offset();
            segment.bytes += batch.bytes.len() as u64;
        }
        Ok(next)
    }

    /// Cuts what was never acknowledged. The file is synced in any case: what it holds may
    /// still be in memory alone.
    fn cut(&mut self, log: &mut Log, touched: usize) -> Result<(), Error> {
        for segment in &log.segments[touched..] {
            let path = segment.path.clone();
            let bytes = segment.bytes;
            let found = self.disk.size(&path)?.unwrap_or(0);
            self.report.truncated_bytes += found - bytes;
            if found > bytes {
                self.perform([DiskOp::SetLength { path, bytes }])?;
            } else if bytes > 0 && !self.report.clean {
                self.dirt.files.insert(path);
            }
        }
        self.drop_other_segments(log)
    }

    /// Files of segments that never came to be, or are gone. Those below the start go with the first
    /// chore: the snapshot that makes them needless may still be in memory alone.
    fn drop_other_segments(&mut self, log: &mut Log) -> Result<(), Error> {
        let known: BTreeSet<(i64, u32)> = log
            .segments
            .iter()
            .map(|segment| (segment.base, segment.generation))
            .collect();
        for name in self.disk.list(&log.folder)? {
            let Some((base, generation, kind)) = layout::segment_of(&name) else {
                continue;
            };
            if known.contains(&(base, generation)) {
                continue;
            }
            let path = layout::segment_file(&log.folder, base, generation, kind);
            if base < log.segments[0].base {
                log.obsolete.push(path);
                continue;
            }
            if base > log.active().base && kind == layout::SEGMENT {
                self.report.truncated_bytes += self.disk.size(&path)?.unwrap_or(0);
            }
            self.perform([DiskOp::Remove { path }])?;
        }
        Ok(())
    }

    /// Reads what the segments hold: indexes, next offset, producers.
    fn load(&mut self, log: &mut Log, touched: usize, told: &Told) -> Result<(), Error> {
        let durable = told.state.next_offset;
        let mut next = log.segments[0].base;
        let snapshot = self.snapshot(log, told)?;
        if let (Some((offset, _)), false) = (&snapshot, self.report.clean) {
            // Segments may go because it is there, and it may still be in memory alone.
            let path = layout::file(&log.folder, *offset, layout::PRODUCERS);
            self.dirt.files.insert(path);
        }
        let (from, mut producers) = snapshot.unwrap_or((next, Producers::default()));
        let count = log.segments.len();
        log.sealed = self.report.clean;
        for at in 0..count {
            let segment = &mut log.segments[at];
            segment.committed = segment.bytes;
            let base = segment.base;
            if base != next {
                let what = "the offsets before it are missing";
                return Err(damage(&segment.path, 0, Some(next), what));
            }
            let is_active = at + 1 == count;
            if is_active && at > 0 && from < base {
                self.keep_snapshot(log, &producers)?;
            }
            let mut note = |header: &BatchHeader| {
                if header.base_offset >= from {
                    producers.note(header, None);
                }
            };
            if at >= touched && !self.report.clean {
                next = self.scan_whole(&mut log.segments[at], &mut note)?;
                if !is_active {
                    let ops = log.segments[at].close(&log.folder);
                    self.perform(ops)?;
                }
            } else {
                let after = log.segments.get(at + 1);
                next = after.map_or(durable, |segment| segment.base);
                if is_active || !self.report.clean {
                    log.sealed &= self.hold_last(log, at, next)?;
                }
                if from < next {
                    self.scan_headers(&log.segments[at], &mut note)?;
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

    /// A power cut may have taken the file, or torn it, before it was ever synced.
    fn mend_epochs(&mut self, log: &mut Log) -> Result<(), Error> {
        log.epochs.cut(log.next_offset);
        log.leader_epoch = log.epochs.current();
        let (path, wanted) = (layout::epochs(&log.folder), log.epochs.file());
        if whole_file(self.disk, &path)? != wanted {
            let mut ops = Vec::new();
            replace(&mut ops, path, wanted);
            self.perform(ops)?;
        }
        Ok(())
    }

    fn note_first_timestamp(&self, log: &mut Log) -> Result<(), Error> {
        let active = log
            .segments
            .last_mut()
            .expect("a log has an active segment");
        if active.bytes > 0 {
            let bytes = self.disk.read(&active.path, 0, HEADER_BYTES)?;
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
        Ok(next)
    }

    fn scan_headers(
        &self,
        segment: &Segment,
        note: &mut impl FnMut(&BatchHeader),
    ) -> Result<i64, Error> {
        scan(self.disk, whole(segment), Depth::Headers, |header, _| {
            note(header);
        })
    }

    /// Loads a segment's index and walks from its last entry to the end: the last batch must
    /// end the file and `after` must follow it. False where the index had to be rebuilt.
    fn hold_last(&self, log: &mut Log, at: usize, after: i64) -> Result<bool, Error> {
        let interval = self.options.index_interval_bytes;
        let segment = &mut log.segments[at];
        let files = segment.on_disk(&log.folder);
        let mut index = files.index(self.disk)?;
        let last = match &index {
            Some(index) => self.last_offset(segment, index)?,
            None => None,
        };
        let sound = last == Some(after);
        if !sound {
            // The index is not this segment's: a walk over all of it tells, and names the place.
            index = Some(files.rebuild(self.disk, interval)?);
            let next = scan(self.disk, whole(segment), Depth::Headers, |_, _| {})?;
            if next != after {
                let what = "records that were durable are missing at the end of the segment";
                return Err(damage(&segment.path, segment.bytes, Some(next), what));
            }
        }
        segment.index = index;
        Ok(sound)
    }

    /// The offset after the last batch, walked to from the index; None where it leads astray.
    fn last_offset(&self, segment: &Segment, index: &Index) -> Result<Option<i64>, Error> {
        let mut range = whole(segment);
        if let Some((last, position)) = index.last() {
            let bytes = self
                .disk
                .read(&segment.path, u64::from(position), HEADER_BYTES)?;
            let Ok(header) = BatchHeader::parse(&bytes) else {
                return Ok(None);
            };
            if header.last_offset() != segment.base + i64::from(last) {
                return Ok(None);
            }
            range.position = u64::from(position);
            range.offset = header.base_offset;
        }
        match scan(self.disk, range, Depth::Headers, |_, _| {}) {
            Ok(next) => Ok(Some(next)),
            Err(Error::Corrupt(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Snapshots of offsets that were never acknowledged would come true of other records.
    fn drop_later_snapshots(&mut self, log: &mut Log) -> Result<(), Error> {
        let names = self.disk.list(&log.folder)?;
        for (kind, snapshots) in [
            (layout::PRODUCERS, &mut log.snapshots),
            (layout::SOURCES, &mut log.source_snapshots),
        ] {
            for offset in layout::offsets(&names, kind) {
                if offset > log.next_offset {
                    let path = layout::file(&log.folder, offset, kind);
                    self.perform([DiskOp::Remove { path }])?;
                } else {
                    snapshots.push(offset);
                }
            }
        }
        Ok(())
    }
}

fn whole(segment: &Segment) -> Range<'_> {
    Range {
        path: &segment.path,
        position: 0,
        end: segment.bytes,
        offset: segment.base,
        gaps: !segment.is_appended(),
    }
}

/// A segment that is durable and whose index is not in memory.
fn held(folder: &Path, state: SegmentState) -> Segment {
    Segment {
        bytes: state.bytes,
        committed: state.bytes,
        index: None,
        newest: state.newest,
        created_ms: state.created_ms,
        generation: state.generation,
        horizon_ms: state.horizon_ms,
        path: layout::segment_file(folder, state.base, state.generation, layout::SEGMENT),
        begun: true,
        ..Segment::new(folder, state.base)
    }
}
