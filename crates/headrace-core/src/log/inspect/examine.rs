//! One log, held against what the journal tells of it: every batch, every index entry.

use std::collections::BTreeMap;

use super::survey::{survey, Lost, Survey};
use crate::log::disk::{Disk, DiskOp, Path};
use crate::log::epochs::{Epochs, Heard};
use crate::log::error::Error;
use crate::log::index::Index;
use crate::log::journal::{LogState, SegmentState};
use crate::log::layout;
use crate::log::scan;
use crate::log::segment::SEGMENT_BYTES_MAX;
use crate::log::story::{Redo, Told};
use crate::record::{BatchHeader, Batches};

/// A segment as it should be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) state: SegmentState,
    /// Offset that follows it, where that is known.
    pub(super) after: Option<i64>,
    pub(super) active: bool,
    /// Where no journal tells how far the log went: it went here at least.
    pub(super) reached: Option<i64>,
}

/// A segment as it is.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) expected: Expected,
    pub(super) path: Path,
    /// Bytes of its file; None where there is none.
    pub(super) size: Option<u64>,
    pub(super) survey: Survey,
    /// What is wrong with its indexes: file, byte.
    pub(super) index: Option<(Path, u64)>,
}

/// What a log's folder holds: a log that no journal knows, or of which one has `known` epochs.
pub(super) fn found(
    disk: &impl Disk,
    stream: &str,
    partition: u32,
    incarnation: u64,
    id: u32,
    known: Option<&Epochs>,
) -> Result<LogState, Error> {
    let folder = layout::log_folder(stream, partition);
    let mut segments = listed(disk, &folder)?;
    if segments.is_empty() {
        segments.push(SegmentState::empty(0, None));
    }
    Ok(LogState {
        id,
        stream: stream.to_owned(),
        partition,
        incarnation,
        start_offset: segments[0].base,
        next_offset: 0,
        cleaned_to: 0,
        epochs: heard(disk, &folder, &segments, known)?,
        has_sources: false,
        segments,
    })
}

/// The epochs of the batches that are there. Of the others a journal tells, or the file that is made
/// from that, whichever is of later.
fn heard(
    disk: &impl Disk,
    folder: &str,
    segments: &[SegmentState],
    known: Option<&Epochs>,
) -> Result<Epochs, Error> {
    let file = Epochs::of_file(&scan::side_file(disk, &layout::epochs(folder))?);
    let told = file.as_ref().into_iter().chain(known);
    let told = told.max_by_key(|epochs| epochs.current());
    let mut heard = Heard::default();
    let any = Epochs::default();
    for segment in segments {
        let files = segment.files(folder);
        let path = files.path(layout::SEGMENT);
        survey(disk, files.range(&path), None, &any, |header, _| {
            heard.note(header);
        })?;
    }
    Ok(heard.with(told))
}

/// The segments of a folder. Of one that was compacted, the older form counts while it is there:
/// it goes once the newer one counts, and the segments that were merged into that go with it.
pub(super) fn listed(disk: &impl Disk, folder: &str) -> Result<Vec<SegmentState>, Error> {
    let names = disk.list(folder)?;
    let files = names.iter().filter_map(|name| layout::segment_of(name));
    let mut forms: Vec<(i64, u32)> = files
        .filter(|(_, _, kind)| *kind == layout::SEGMENT)
        .map(|(base, generation, _)| (base, generation))
        .collect();
    forms.sort_unstable();
    let mut segments: Vec<SegmentState> = Vec::new();
    let mut next = 0;
    for (base, generation) in forms {
        let is_merged = !segments.is_empty() && base < next;
        if is_merged || segments.last().is_some_and(|last| last.base == base) {
            continue;
        }
        let mut state = SegmentState {
            generation,
            ..SegmentState::empty(base, None)
        };
        let path = state.files(folder).path(layout::SEGMENT);
        state.bytes = disk.size(&path)?.unwrap_or(0).min(SEGMENT_BYTES_MAX);
        if generation > 0 {
            let range = state.files(folder);
            let any = Epochs::default();
            next = survey(disk, range.range(&path), None, &any, |_, _| {})?.next;
        }
        segments.push(state);
    }
    Ok(segments)
}

/// What the journal tells of each segment that readers may need. `certain`: the journal is whole.
pub(super) fn expected(
    disk: &impl Disk,
    told: &Told,
    certain: bool,
) -> Result<Vec<Expected>, Error> {
    let mut states: BTreeMap<i64, SegmentState> = BTreeMap::new();
    for state in &told.state.segments {
        states.insert(state.base, *state);
    }
    let mut durable = Some(told.state.next_offset);
    for (base, position, redo) in &told.redo {
        let state = states
            .entry(*base)
            .or_insert_with(|| SegmentState::empty(*base, None));
        match redo {
            Redo::Roll { created_ms } => state.created_ms = *created_ms,
            Redo::Write(held) if *position <= state.bytes => {
                let bytes = held.read(disk)?;
                let known = (state.bytes - position).min(bytes.len() as u64);
                for batch in Batches::new(&bytes[known as usize..]).flatten() {
                    durable = durable.max(Some(batch.header.next_offset()));
                }
            }
            Redo::Write(_) => {}
            // The entry does not say which offsets stand there.
            Redo::Direct { .. } => durable = None,
        }
        state.bytes = state.bytes.max(position + redo.len());
    }
    let reached = if certain {
        None
    } else {
        let folder = layout::log_folder(&told.state.stream, told.state.partition);
        disk.list(&folder)?
            .iter()
            .filter_map(|name| layout::offset_of(name))
            .max()
    };
    let bases: Vec<i64> = states.keys().copied().collect();
    let all = states.into_values().enumerate().map(|(at, state)| {
        let next = bases.get(at + 1).copied();
        Expected {
            state,
            after: next.or(durable.filter(|_| certain)),
            active: next.is_none(),
            reached: reached.filter(|_| next.is_none()),
        }
    });
    let needed = |segment: &Expected| {
        segment.active
            || segment
                .after
                .is_none_or(|after| after > told.state.start_offset)
    };
    Ok(all.filter(needed).collect())
}

/// Writes what the journal holds of these segments to where it belongs, as a start does.
/// Returns the batches that were not there.
pub(super) fn replay(disk: &impl Disk, told: &Told, segments: &[Expected]) -> Result<u64, Error> {
    let folder = layout::log_folder(&told.state.stream, told.state.partition);
    let mut restored = 0;
    for (base, position, redo) in &told.redo {
        if !segments.iter().any(|segment| segment.state.base == *base) {
            continue;
        }
        let path = layout::file(&folder, *base, layout::SEGMENT);
        let size = disk.size(&path)?;
        if size.is_none() && *position == 0 {
            disk.perform(&DiskOp::Create { path: path.clone() })?;
        }
        if let Redo::Write(held) = redo {
            let bytes = held.read(disk)?;
            let reaches = size.unwrap_or(0) >= *position;
            if reaches && disk.read(&path, *position, bytes.len())? != bytes {
                restored += Batches::new(&bytes).flatten().count() as u64;
                let bytes = scan::whole_pages(disk, &path, *position, bytes)?;
                disk.perform(&DiskOp::Write {
                    path,
                    position: *position,
                    data: bytes.into(),
                })?;
            }
        }
    }
    Ok(restored)
}

/// Walks one segment. `all`: also the indexes of the active one, which a clean close has written.
pub(super) fn examine(
    disk: &impl Disk,
    folder: &str,
    expected: Expected,
    epochs: &Epochs,
    all: bool,
) -> Result<Seen, Error> {
    let base = expected.state.base;
    let mut files = expected.state.files(folder);
    let path = files.path(layout::SEGMENT);
    let size = disk.size(&path)?;
    let end = size.unwrap_or(0).min(expected.state.bytes);
    files.bytes = end;
    let mut truth = Truth::read(disk, &files, expected.active, all)?;
    let mut survey = survey(
        disk,
        files.range(&path),
        expected.after,
        epochs,
        |header, position| {
            truth.hold(base, header, position);
        },
    )?;
    if let Some(reached) = expected.reached {
        survey.reach(disk, files.range(&path), reached)?;
    }
    if end < expected.state.bytes && survey.lost.is_empty() {
        survey.lost.push(Lost {
            position: end,
            bytes: 0,
            first: survey.next,
            next: survey.next, // nobody knows
            what: format!(
                "the segment ends there, {} bytes were durable",
                expected.state.bytes
            ),
        });
    }
    let sound = survey.lost.is_empty() && survey.stamps.is_empty();
    Ok(Seen {
        expected,
        index: truth.verdict(&files).filter(|_| sound),
        path,
        size,
        survey,
    })
}

/// The indexes of a segment, held against its batches one by one. True of them is what names a
/// batch that stands there; how far apart entries stand is a setting that may have changed.
#[derive(Debug, Default)]
struct Truth {
    index: Index,
    offsets_held: usize,
    times_held: usize,
    newest: Option<i64>,
    /// Index file and byte of the first entry that is wrong.
    wrong: Option<(&'static str, u64)>,
    closed: bool,
    used: bool,
}

impl Truth {
    fn read(disk: &impl Disk, files: &scan::Files, active: bool, all: bool) -> Result<Self, Error> {
        let written = disk.size(&files.path(layout::TIME_INDEX))?;
        if active && (!all || written.is_none()) {
            return Ok(Self::default());
        }
        let mut truth = Self {
            closed: !active,
            used: true,
            ..Self::default()
        };
        match files.any_index(disk)? {
            Ok(index) => truth.index = index,
            Err(kind) => truth.wrong = Some((kind, 0)),
        }
        Ok(truth)
    }

    fn hold(&mut self, base: i64, header: &BatchHeader, position: u64) {
        if !self.used || self.wrong.is_some() || header.is_mark() {
            return;
        }
        let last = header.last_offset() - base;
        let (offsets, times) = (self.index.offsets(), self.index.times());
        if let Some((named, at)) = offsets.get(self.offsets_held) {
            if u64::from(*at) <= position {
                if (i64::from(*named), u64::from(*at)) != (last, position) {
                    self.wrong = Some((layout::INDEX, 8 * self.offsets_held as u64));
                }
                self.offsets_held += 1;
            }
        }
        let is_newest = self
            .newest
            .is_none_or(|newest| header.max_timestamp > newest);
        if is_newest {
            self.newest = Some(header.max_timestamp);
        }
        if let Some((time, named)) = times.get(self.times_held) {
            if i64::from(*named) <= last {
                if !is_newest || (*time, i64::from(*named)) != (header.max_timestamp, last) {
                    self.wrong = Some((layout::TIME_INDEX, 12 * self.times_held as u64));
                }
                self.times_held += 1;
            }
        }
    }

    /// What is wrong, once all batches were held against it.
    fn verdict(self, files: &scan::Files) -> Option<(Path, u64)> {
        let (offsets, times) = (self.index.offsets(), self.index.times());
        let mut wrong = self.wrong;
        if self.used && wrong.is_none() {
            if self.offsets_held < offsets.len() {
                wrong = Some((layout::INDEX, 8 * self.offsets_held as u64));
            } else if self.times_held < times.len()
                || self.closed && times.last().map(|(time, _)| *time) != self.newest
            {
                wrong = Some((layout::TIME_INDEX, 12 * self.times_held as u64));
            }
        }
        wrong.map(|(kind, at)| (files.path(kind), at))
    }
}
