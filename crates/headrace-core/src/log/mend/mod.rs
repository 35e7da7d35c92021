//! Making the segments of one log what the journal tells (steps 2 to 4 of recovery).

mod load;
mod producers;

use std::collections::BTreeSet;

use crate::log::chore::{Dirt, LOG_FILES};
use crate::log::disk::{Disk, DiskOp, Path};
use crate::log::error::{Damage, Error};
use crate::log::journal::{SegmentState, PAGE};
use crate::log::layout;
use crate::log::options::Options;
use crate::log::partition::{replace, Log, LogId};
use crate::log::producers::Producers;
use crate::log::recovery::Recovery;
use crate::log::scan::{
    copy, read, scan, scan_batches, side_file, whole_pages, Depth, Range, CHUNK_BYTES,
};
use crate::log::segment::{Segment, SEGMENT_BYTES_MAX};
use crate::log::sources::{Saved, Sources};
use crate::log::story::{damage, Redo, Told};
use crate::record::Batches;

/// Mends log after log; remembers what is to be synced.
pub(in crate::log) struct Mender<'a, D> {
    disk: &'a D,
    options: Options,
    report: Recovery,
    dirt: Dirt,
    /// Files that may be written and not yet synced: each holds a descriptor.
    files_max: usize,
    /// Producers whose snapshot is lost are forgotten, and named, where a start would refuse.
    salvages: bool,
    forgotten: Option<Damage>,
}

impl<'a, D: Disk> Mender<'a, D> {
    /// `logs`: so many there are, each of which may have files open.
    pub(in crate::log) fn new(disk: &'a D, options: Options, clean: bool, logs: usize) -> Self {
        let report = Recovery {
            clean,
            ..Recovery::default()
        };
        Self {
            disk,
            options,
            report,
            dirt: Dirt::default(),
            files_max: options.bounds.finished_files + LOG_FILES * logs,
            salvages: false,
            forgotten: None,
        }
    }

    /// The log as it was last acknowledged, but for producers whose snapshot is lost.
    pub(in crate::log) fn salvage(&mut self, told: &Told) -> Result<Log, Error> {
        self.salvages = true;
        let mended = self.mend(told);
        self.salvages = false;
        mended
    }

    /// The snapshot that the last log has lost.
    pub(in crate::log) fn forgotten(&mut self) -> Option<Damage> {
        self.forgotten.take()
    }

    /// Syncs all that was mended.
    pub(in crate::log) fn finish(mut self) -> Result<Recovery, Error> {
        self.sync()?;
        Ok(self.report)
    }

    /// The next write opens again what it needs.
    fn sync(&mut self) -> Result<(), Error> {
        let mut dirt = std::mem::take(&mut self.dirt);
        dirt.finished.clone_from(&dirt.files);
        Ok(self.disk.perform_all(&dirt.syncs())?)
    }

    /// Has the disk hold what mending these logs takes from side files, before it does. A process
    /// that died may have left them in memory alone, and where a sync of one failed, no later one
    /// writes what memory goes on showing.
    pub(in crate::log) fn settle<'t>(
        &self,
        logs: impl IntoIterator<Item = &'t Told>,
    ) -> Result<(), Error> {
        if self.report.clean {
            return Ok(());
        }
        let mut paths = Vec::new();
        for told in logs {
            let folder = layout::log_folder(&told.state.stream, told.state.partition);
            let offsets = layout::offsets(&self.disk.list(&folder)?, layout::PRODUCERS);
            let snapshot = |offset| layout::file(&folder, offset, layout::PRODUCERS);
            paths.extend(offsets.into_iter().map(snapshot));
            paths.push(layout::epochs(&folder));
        }
        Ok(self.disk.perform(&DiskOp::Settle { paths })?)
    }

    /// The log as it was last acknowledged.
    pub(in crate::log) fn mend(&mut self, told: &Told) -> Result<Log, Error> {
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
            // The segment may have been trimmed since. The epochs' file, which may be sound and is then
            // nobody's to write over, is mended with the rest.
            self.perform(log.beginning())?;
        }
        if self.disk.list(&log.folder)?.is_empty() {
            let what =
                "the folder is missing, or the end of the journal, where its stream was deleted";
            return Err(damage(&log.folder, 0, None, what));
        }
        let snapshot = self.snapshot(&log, told)?;
        let covered = snapshot.as_ref().map_or(0, |(offset, _)| *offset);
        let first = self.first_needed(&log, told, covered)?;
        let snapshot = snapshot.filter(|_| covered >= first);
        if covered < first {
            self.meet_lost_producers(&log, told, covered, first)?;
        }
        let segments = told.segments().into_iter();
        log.segments = segments
            .filter(|segment| segment.base >= first)
            .map(|segment| held(&log.folder, segment))
            .collect();
        let generations = log.segments.iter().map(|segment| segment.generation);
        log.generations = generations.max().unwrap_or(0) + 1;
        if !self.report.clean {
            // A process that died may have left entries that only the page cache knows.
            let above = [layout::STREAMS.into(), layout::stream_folder(&stream)];
            self.dirt.folders.extend(above);
            self.dirt.folders.insert(log.folder.clone());
        }
        self.begin_segments(&log, told, first)?;
        self.hold_lengths(&log, told.open)?;
        let needed = told.redo.iter().filter(|(base, ..)| *base >= first);
        for (base, position, redo) in needed.clone() {
            self.redo(&mut log, *base, *position, *redo)?;
        }
        for (base, position, redo) in needed {
            self.hold_direct(&log, *base, *position, *redo)?;
        }
        self.keep_sound_tail(&mut log)?;
        self.cut(&mut log, told.open)?;
        self.load(&mut log, told, snapshot)?;
        self.list_snapshots(&mut log, state.has_sources)?;
        self.mend_epochs(&mut log)?;
        log.shed();
        let base = log.active().base;
        let times = layout::file(&log.folder, base, layout::TIME_INDEX);
        let has_index_files = self.disk.size(&times)?.is_some();
        let active = log.segments.last_mut();
        active.expect("it has an active segment").has_index_files = has_index_files;
        let end = log.active().bytes;
        let page = end - end % PAGE as u64;
        let path = &log.active().path;
        log.tail = read(self.disk, path, page, (end - page) as usize, None)?;
        Ok(log)
    }

    fn perform(&mut self, ops: impl IntoIterator<Item = DiskOp>) -> Result<(), Error> {
        for op in ops {
            self.disk.perform(&op)?;
            self.dirt.note([&op]);
        }
        if self.dirt.files.len() >= self.files_max {
            self.sync()?;
        }
        Ok(())
    }

    /// The files of segments that began since the checkpoint, in case they never reached the disk.
    fn begin_segments(&mut self, log: &Log, told: &Told, first: i64) -> Result<(), Error> {
        let is_roll = |redo: &Redo| matches!(redo, Redo::Roll { .. });
        let begun = told.redo.iter().filter(|(_, _, redo)| is_roll(redo));
        for (base, ..) in begun.filter(|(base, ..)| *base >= first) {
            let path = layout::file(&log.folder, *base, layout::SEGMENT);
            self.perform([DiskOp::Create { path }])?;
        }
        Ok(())
    }

    /// Each segment of the checkpoint is there, as long as it was.
    fn hold_lengths(&mut self, log: &Log, open: i64) -> Result<(), Error> {
        for segment in &log.segments {
            let path = &segment.path;
            let closed = !segment.may_have_grown(open);
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
        let path = layout::file(&log.folder, base, layout::SEGMENT);
        let segment = log
            .segment_mut(base)
            .filter(|segment| segment.is_appended() && position <= segment.bytes)
            .ok_or_else(|| damage(&path, position, None, "the journal leaves a gap before it"))?;
        if let Redo::Write(held) = redo {
            let mut bytes = held.read(self.disk)?;
            let found = copy(self.disk, &path, position, bytes.len())?;
            if found.as_ref() != Some(&bytes) {
                // What comes before the segment's end repeats the rest of its last page.
                let fresh = &bytes[(segment.bytes - position) as usize..];
                self.report.replayed_batches += Batches::new(fresh).flatten().count() as u64;
            }
            if found.is_none() {
                bytes = whole_pages(self.disk, &path, position, bytes)?;
            }
            // Written in any case: after a failed sync the page cache shows what the disk has
            // not got, and no sync would write it.
            let data = bytes.into();
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
        let found = read(self.disk, &path, position, length as usize, None)?;
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
        let path = segment.path.clone();
        let end = self.disk.size(&path)?.unwrap_or(0).min(SEGMENT_BYTES_MAX);
        if end <= segment.bytes {
            return Ok(next);
        }
        // A direct write may have failed to be synced.
        let paths = vec![path.clone()];
        self.disk.perform(&DiskOp::Settle { paths })?;
        let beyond = Range {
            path: &path,
            position: segment.bytes,
            end,
            offset: next,
        };
        let epochs = &mut log.epochs;
        let walked = scan_batches(self.disk, beyond, Depth::Bodies, |batch, position| {
            let header = &batch.header;
            if header.leader_epoch < epochs.current() {
                return false;
            }
            if header.leader_epoch > epochs.current() {
                // Of which the journal tells nothing.
                epochs.begin(header.leader_epoch, header.base_offset);
            }
            next = header.next_offset();
            segment.bytes = position + batch.bytes.len() as u64;
            true
        });
        match walked {
            // It ends there, unless nobody knows what stands there.
            Err(Error::Corrupt(Damage { position, .. })) => {
                let bytes = CHUNK_BYTES.min((end - position) as usize);
                read(self.disk, &path, position, bytes, Some(next)).map(|_| next)
            }
            outcome => outcome.map(|_| next),
        }
    }

    /// Cuts what was never acknowledged. The file is synced in any case: what it holds may
    /// still be in memory alone.
    fn cut(&mut self, log: &mut Log, open: i64) -> Result<(), Error> {
        let grown = log.segments.iter();
        for segment in grown.filter(|segment| segment.may_have_grown(open)) {
            let path = segment.path.clone();
            let bytes = segment.bytes;
            let Some(found) = self.disk.size(&path)? else {
                continue;
            };
            self.report.truncated_bytes += found - bytes;
            if found > bytes {
                self.perform([DiskOp::SetLength { path, bytes }])?;
            } else if !self.report.clean {
                self.dirt.files.insert(path);
            }
        }
        self.drop_other_segments(log)
    }

    /// Files of segments that never came to be, or are gone. What nothing will ever have the name of
    /// again goes with the first chore: those below the start, for the snapshot that makes them needless
    /// may still be in memory alone, and those that compaction replaced.
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
            let at = log.segments.partition_point(|segment| segment.base <= base);
            let is_replaced = at > 0 && log.segments[at - 1].generation > generation;
            if at == 0 || is_replaced {
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

    /// A power cut may have taken the file, or torn it, before it was ever synced.
    fn mend_epochs(&mut self, log: &mut Log) -> Result<(), Error> {
        log.epochs.cut(log.next_offset);
        log.leader_epoch = log.epochs.current();
        let (path, wanted) = (layout::epochs(&log.folder), log.epochs.file());
        if side_file(self.disk, &path)? != wanted {
            let mut ops = Vec::new();
            replace(&mut ops, path, wanted);
            self.perform(ops)?;
        }
        Ok(())
    }

    /// What stands beside the segments; what never came to stand there goes. `has_sources`: the journal
    /// tells of some.
    fn list_snapshots(&mut self, log: &mut Log, has_sources: bool) -> Result<(), Error> {
        let names = self.disk.list(&log.folder)?;
        for name in names.iter().filter(|name| layout::is_unfinished(name)) {
            let path = format!("{}/{name}", log.folder).into();
            self.perform([DiskOp::Remove { path }])?;
        }
        let is_whole = |file: &[u8], _| Producers::decode(file).is_some();
        // A power cut may have torn an older one, too, and nothing rests on that.
        let all = !self.report.clean;
        let (producers, spoilt) = self.verified(log, &names, layout::PRODUCERS, all, is_whole)?;
        for offset in spoilt {
            // What it told was made up for, or a start is refused before it comes here.
            let path = layout::file(&log.folder, offset, layout::PRODUCERS);
            self.perform([DiskOp::Remove { path }])?;
        }
        log.snapshots = producers;
        log.shed_snapshots();
        let is_whole = |file: &[u8], offset| Sources::of_file(file, offset).is_some();
        // Nothing may make up for a damaged one of these: it stays, so that it can be named.
        let (sources, spoilt) = self.verified(log, &names, layout::SOURCES, false, is_whole)?;
        log.saved_sources = Saved::found(&sources, spoilt, has_sources);
        Ok(())
    }

    /// Offsets of the snapshots of one kind that are whole, and of those that are damaged. Those
    /// before the newest whole one count as whole, unless `all` are read. Those of offsets that were
    /// never acknowledged would come true of other records, and go.
    fn verified(
        &mut self,
        log: &Log,
        names: &[String],
        kind: &str,
        all: bool,
        is_whole: impl Fn(&[u8], i64) -> bool,
    ) -> Result<(Vec<i64>, Vec<i64>), Error> {
        let mut offsets = layout::offsets(names, kind);
        let later = offsets.split_off(offsets.partition_point(|at| *at <= log.next_offset));
        for offset in later {
            let path = layout::file(&log.folder, offset, kind);
            self.perform([DiskOp::Remove { path }])?;
        }
        let (mut whole, mut spoilt) = (Vec::new(), Vec::new());
        for offset in offsets.into_iter().rev() {
            let path = layout::file(&log.folder, offset, kind);
            let counts = !all && !whole.is_empty();
            if counts || is_whole(&side_file(self.disk, &path)?, offset) {
                whole.push(offset);
            } else {
                spoilt.push(offset);
            }
        }
        whole.reverse();
        spoilt.reverse();
        Ok((whole, spoilt))
    }
}

fn whole(segment: &Segment) -> Range<'_> {
    Range {
        path: &segment.path,
        position: 0,
        end: segment.bytes,
        offset: segment.base,
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
        index_crc: state.index_crc,
        path: layout::segment_file(folder, state.base, state.generation, layout::SEGMENT),
        begun: true,
        ..Segment::new(folder, state.base)
    }
}
