//! One pass over a log: survey the dirty part, then rewrite group after group of segments.

use std::collections::BTreeMap;

use super::map::KeyMap;
use super::output::Output;
use super::swap::Replacement;
use crate::hash;
use crate::log::disk::{Disk, DiskOp, Path};
use crate::log::epochs::Epochs;
use crate::log::error::Error;
use crate::log::index::Index;
use crate::log::layout;
use crate::log::machine::{unknown, Machine};
use crate::log::options::{Bounds, Options};
use crate::log::partition::{Log, LogId};
use crate::log::scan::{scan_batches, Depth, Range};
use crate::log::segment::{Segment, SEGMENT_BYTES_MAX};
use crate::log::settings::LogSettings;
use crate::log::sources::{Loaded, Saving, Snapshots};
use crate::record::{hollow, Batch, Filter, Record, Records, DECOMPRESSED_BYTES_MAX};

/// Segments that are merged at most: what the journal tells of one swap stays far below a round.
const GROUP_SEGMENTS_MAX: usize = 64;

/// What a compaction is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionSettings {
    /// The wall clock.
    pub wall_ms: i64,
    /// How long tombstones stay after the pass that first meets them (`delete.retention.ms`).
    pub delete_retention_ms: u64,
    /// Segments with younger records are left alone (`min.compaction.lag.ms`).
    pub min_lag_ms: u64,
    /// Segments are merged that began and ended within so long of each other, where retention lets
    /// them go by age (`segment.ms`); None: however far apart.
    pub span_ms: Option<u64>,
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// Bytes of batches read, those of the dirty part twice.
    pub read_bytes: u64,
    /// Bytes of batches written.
    pub written_bytes: u64,
    /// Records that stayed.
    pub kept_records: u64,
    /// Records that went.
    pub removed_records: u64,
    /// Offset up to which the log is compacted.
    pub clean_to: i64,
}

/// A closed segment, as it was when the pass was planned.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) segment: Segment,
    /// Where the one after it begins.
    pub(super) next: i64,
    /// The wall clock when the next one began, where that is known.
    ended_ms: Option<i64>,
}

/// One pass, planned.
#[derive(Debug)]
pub struct Pass {
    log: LogId,
    /// The log's, and those above.
    pub(super) folders: [Path; 3],
    generation: u32,
    settings: CompactionSettings,
    log_settings: LogSettings,
    pub(super) index_interval_bytes: u64,
    pub(super) bounds: Bounds,
    secret: hash::Key,
    inputs: Vec<Input>,
    /// The first batch that was not compacted begins there, if not later.
    dirty_from: i64,
    /// The first segment that is left alone begins there.
    dirty_to: i64,
    /// Base offset of the last batch of each producer.
    last_batches: BTreeMap<i64, i64>,
    pub(super) epochs: Epochs,
    snapshots: Snapshots,
}

/// A pass that knows which records are superseded.
#[derive(Debug)]
pub struct Survey {
    pub(super) pass: Pass,
    map: KeyMap,
    /// Batches from there on are left alone.
    end: i64,
    /// Those of the MQTT sources below `end`.
    sources: Option<Loaded>,
    /// Where the snapshot ends that was the newest.
    kept_to: i64,
}

/// Neighbouring segments that are rewritten together.
#[derive(Debug)]
pub struct Group(std::ops::Range<usize>);

impl Machine {
    /// A pass over the closed segments of `log`; None where it would change nothing.
    pub fn plan_compaction(
        &mut self,
        log: LogId,
        settings: CompactionSettings,
    ) -> Result<Option<Pass>, Error> {
        self.refuse_writes()?;
        let Options {
            index_interval_bytes,
            bounds,
            ..
        } = self.options;
        let secret = hash::Key(u64::from(self.options.seed), u64::from(log.0));
        let owner = self.logs.get_mut(&log);
        let owner = owner.filter(|_| !self.deleted.contains(&log));
        let log = owner.ok_or_else(|| unknown(log))?;
        let (dirty_from, dirty_to) = log.dirty(&settings);
        let due = |horizon_ms: i64| horizon_ms <= settings.wall_ms;
        let inputs = log.closed().filter(|input| input.next <= dirty_to);
        let inputs: Vec<Input> = inputs.collect();
        let mut horizons = inputs.iter().filter_map(|input| input.segment.horizon_ms);
        if dirty_from >= dirty_to && !horizons.any(due) {
            return Ok(None);
        }
        log.generations += 1;
        Ok(Some(Pass {
            log: log.id,
            folders: [
                log.folder.clone(),
                layout::stream_folder(&log.stream),
                layout::STREAMS.into(),
            ],
            generation: log.generations - 1,
            settings,
            log_settings: log.settings,
            index_interval_bytes,
            bounds,
            secret,
            inputs,
            dirty_from,
            dirty_to,
            last_batches: log.producers.last_batches(log.high_watermark),
            epochs: log.epochs.clone(),
            snapshots: log.sources(),
        }))
    }
}

impl Machine {
    /// How is kept what the records that may go tell of MQTT sources, before the first of them
    /// goes: as [`Machine::save_sources`]. None where it is.
    pub fn keep_sources(&self, survey: &mut Survey) -> Result<Option<Saving>, Error> {
        let from = survey.kept_to;
        let loaded = survey.sources.take();
        let due = loaded.filter(|loaded| loaded.must_be_kept(from));
        let save = |due: Loaded| self.save_sources(survey.pass.log, &due.sources);
        due.map(save).transpose()
    }
}

impl Log {
    /// Every segment but the active one and what is queued after it. The clock may have been ahead
    /// when the next one began: none began later than those after it.
    fn closed(&self) -> impl Iterator<Item = Input> + '_ {
        let begun = self.segments.partition_point(|segment| segment.begun);
        let segments = &self.segments[..begun];
        let later = segments.iter().skip(1).rev();
        let ends = later.scan(None, |ended: &mut Option<i64>, next| {
            *ended = ended.iter().copied().chain(next.created_ms).min();
            Some(*ended)
        });
        let ends: Vec<Option<i64>> = ends.collect();
        let pairs = segments.windows(2).zip(ends.into_iter().rev());
        pairs.map(|(pair, ended_ms)| Input {
            segment: pair[0].bare(),
            next: pair[1].base,
            ended_ms,
        })
    }

    /// Offsets between which records are to be compacted for the first time.
    fn dirty(&self, settings: &CompactionSettings) -> (i64, i64) {
        let from = self.cleaned_to.max(self.segments[0].base);
        let oldest = settings
            .wall_ms
            .saturating_sub_unsigned(settings.min_lag_ms);
        let is_young = |input: &Input| {
            settings.min_lag_ms > 0 && input.newest_ms().is_some_and(|newest| newest > oldest)
        };
        let dirty = self.closed().filter(|input| input.next > from);
        let to = dirty.take_while(|input| !is_young(input)).last();
        (from, to.map_or(from, |input| input.next))
    }
}

impl Input {
    /// When its newest record was written at the latest. Clients say what they like of the time, or
    /// nothing (-1): the segment after it had not begun.
    fn newest_ms(&self) -> Option<i64> {
        let told = self.segment.max_timestamp().filter(|newest| *newest >= 0);
        told.into_iter().chain(self.ended_ms).min()
    }

    fn range(&self) -> Range<'_> {
        Range {
            path: &self.segment.path,
            position: 0,
            end: self.segment.committed,
            offset: self.segment.base,
        }
    }
}

impl Pass {
    /// Merged they would expire together: what is in the first would stay for longer than it may.
    fn are_apart(&self, first: &Input, last: &Input) -> bool {
        self.settings.span_ms.is_some_and(|span_ms| {
            let began = first.segment.created_ms;
            let lasts = began
                .zip(last.newest_ms())
                .map(|(began, newest)| newest.saturating_sub(began));
            lasts.is_none_or(|lasts| u64::try_from(lasts).is_ok_and(|lasts| lasts > span_ms))
        })
    }

    /// A segment of this pass, empty.
    pub(super) fn segment(&self, base: i64, created_ms: Option<i64>) -> Segment {
        Segment {
            generation: self.generation,
            path: layout::segment_file(&self.folders[0], base, self.generation, layout::SEGMENT),
            index: Some(Index::default()),
            created_ms,
            begun: true,
            ..Segment::new(&self.folders[0], base)
        }
    }

    /// Reads the dirty part, as far as its keys fit in memory.
    pub fn survey(self, disk: &impl Disk, report: &mut Compaction) -> Result<Survey, Error> {
        let mut map = KeyMap::new(self.secret, self.bounds.compaction_keys);
        let mut loaded = self.snapshots.load(disk, self.dirty_to)?.sound()?;
        let sources = &mut loaded.sources;
        let kept_to = loaded.kept_to;
        let mut end = self.dirty_to;
        let mut scratch = Vec::new();
        for input in self
            .inputs
            .iter()
            .filter(|input| input.next > self.dirty_from)
        {
            scan_batches(disk, input.range(), Depth::Bodies, |batch, _| {
                report.read_bytes += batch.bytes.len() as u64;
                let offset = batch.header.base_offset;
                if map.is_full() && offset >= self.dirty_from {
                    end = end.min(offset);
                    return false;
                }
                sources.note(batch, &mut scratch);
                if offset >= self.dirty_from && !batch.header.is_transactional() {
                    note_keys(batch, &mut map, &mut scratch);
                }
                true
            })?;
            if end < self.dirty_to {
                break;
            }
        }
        sources.end = end;
        Ok(Survey {
            pass: self,
            map,
            end,
            sources: Some(loaded),
            kept_to,
        })
    }
}

fn note_keys(batch: &Batch, map: &mut KeyMap, scratch: &mut Vec<u8>) {
    if batch.header.is_control() {
        return;
    }
    // What cannot be read supersedes nothing, and stays.
    if let Ok(body) = batch.open(scratch, DECOMPRESSED_BYTES_MAX) {
        map.note(Records::new(&batch.header, body));
    }
}

impl Survey {
    /// The log is compacted as far as it may be once this pass has ended.
    pub fn is_last(&self) -> bool {
        self.end == self.pass.dirty_to
    }

    /// What is rewritten together, in order.
    pub fn groups(&self) -> Vec<Group> {
        let inputs = &self.pass.inputs;
        let bytes_max = self.pass.log_settings.segment_bytes.min(SEGMENT_BYTES_MAX);
        let mut groups = Vec::new();
        let (mut first, mut bytes) = (0, 0);
        let count = inputs.partition_point(|input| input.segment.base < self.end);
        for (at, input) in inputs[..count].iter().enumerate() {
            let wide = input.next - inputs[first].segment.base > i64::from(i32::MAX);
            let full = bytes + input.segment.committed > bytes_max;
            let many = at - first == GROUP_SEGMENTS_MAX;
            let apart = self.pass.are_apart(&inputs[first], input);
            if at > first && (full || wide || many || apart) {
                groups.push(Group(first..at));
                (first, bytes) = (at, 0);
            }
            bytes += input.segment.committed;
        }
        if first < count {
            groups.push(Group(first..count));
        }
        groups
    }

    /// Writes what stays of a group, synced.
    pub fn clean(
        &self,
        disk: &impl Disk,
        group: &Group,
        report: &mut Compaction,
    ) -> Result<Replacement, Error> {
        let inputs = &self.pass.inputs[group.0.clone()];
        let (log, old) = self.input(group);
        let last = &inputs[inputs.len() - 1];
        let mut output = Output::begin(self, disk, &inputs[0], last.next)?;
        let mut failed = Ok(());
        for input in inputs {
            scan_batches(disk, input.range(), Depth::Bodies, |batch, _| {
                failed = output.take(batch, report);
                failed.is_ok()
            })?;
            std::mem::replace(&mut failed, Ok(()))?;
        }
        let segments = output.finish(report)?;
        for path in &self.pass.folders {
            disk.perform(&DiskOp::SyncFolder { path: path.clone() })?;
        }
        Ok(Replacement {
            log,
            old,
            to: last.next,
            cleaned_to: last.next.min(self.end).max(self.pass.dirty_from),
            segments,
        })
    }

    /// Bytes that a group becomes at most, beside what it was.
    pub fn bytes(&self, group: &Group) -> u64 {
        let inputs = self.pass.inputs[group.0.clone()].iter();
        inputs.map(|input| input.segment.committed).sum()
    }

    /// The log, and base and generation of the segments of a group.
    pub(super) fn input(&self, group: &Group) -> (LogId, Vec<(i64, u32)>) {
        let inputs = self.pass.inputs[group.0.clone()].iter();
        let segments = inputs.map(|input| (input.segment.base, input.segment.generation));
        (self.pass.log, segments.collect())
    }

    /// The log, and base and generation of the first segment that a group becomes.
    pub(super) fn output(&self, group: &Group) -> (LogId, i64, u32) {
        let first = &self.pass.inputs[group.0.start].segment;
        (self.pass.log, first.base, self.pass.generation)
    }

    /// Removes what a pass that gave up had written of a group.
    pub fn sweep(&self, disk: &impl Disk, group: &Group) -> Result<(), Error> {
        let from = self.pass.inputs[group.0.start].segment.base;
        let folder = &self.pass.folders[0];
        for name in disk.list(folder)? {
            let found = layout::segment_of(&name);
            if found.is_some_and(|(base, generation, _)| {
                base >= from && generation == self.pass.generation
            }) {
                let path = format!("{folder}/{name}").into();
                disk.perform(&DiskOp::Remove { path })?;
            }
        }
        Ok(())
    }

    /// The record stays, whose key no later one has.
    fn keeps(&self, batch: &Batch, record: &Record) -> bool {
        let header = &batch.header;
        // A client may have set the bit.
        let has_horizon = header.has_delete_horizon() && header.base_offset < self.pass.dirty_from;
        let expired = record.value.is_none()
            && has_horizon
            && !header.is_transactional()
            && header.base_timestamp <= self.pass.settings.wall_ms;
        record.key.is_some() && !expired
    }

    fn is_last_of_producer(&self, batch: &Batch) -> bool {
        let last = self.pass.last_batches.get(&batch.header.producer_id);
        last == Some(&batch.header.base_offset)
    }

    /// Appends what stays of a batch; the horizon of its tombstones, where it has any.
    pub(super) fn rewrite(
        &self,
        batch: &Batch,
        scratch: &mut Vec<u8>,
        out: &mut Vec<u8>,
        report: &mut Compaction,
    ) -> Option<i64> {
        let header = &batch.header;
        let whole = |out: &mut Vec<u8>| out.extend_from_slice(batch.bytes);
        if header.is_control() || header.base_offset >= self.end {
            whole(out);
            return None;
        }
        let Ok(body) = batch.open(scratch, DECOMPRESSED_BYTES_MAX) else {
            whole(out);
            return None;
        };
        let superseded = self.map.superseded(Records::new(header, body));
        let mut superseded = superseded.into_iter();
        let keeps = |record: &Record| superseded.next() != Some(true) && self.keeps(batch, record);
        let Ok(filter) = Filter::new(header, body, keeps) else {
            whole(out);
            return None;
        };
        report.kept_records += filter.kept() as u64;
        report.removed_records += filter.removed() as u64;
        if filter.kept() == 0 {
            if self.is_last_of_producer(batch) {
                hollow(batch, out);
            }
            return None;
        }
        let tombstones = filter.has_tombstone && !header.is_transactional();
        let known = header.has_delete_horizon() && header.base_offset < self.pass.dirty_from;
        let set = (tombstones && !known).then(|| {
            let settings = &self.pass.settings;
            let ahead = settings.delete_retention_ms;
            settings.wall_ms.saturating_add_unsigned(ahead)
        });
        if filter.removed() == 0 && set.is_none() {
            whole(out);
        } else {
            filter.build(set, out);
        }
        set.or(tombstones.then_some(header.base_timestamp))
    }
}
