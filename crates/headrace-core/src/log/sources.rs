//! The last `(source, epoch, sequence)` of each MQTT publisher in one log: as many, and for as long,
//! as the switchboard keeps them.
//!
//! Kept beside the log as `<offset>.sources`: what is true of all records below that offset. After
//! a crash the records from there on are read for the rest.
//!
//! Invariants. Two snapshots are kept, for a crash may tear off the records of the newest: one of them
//! tells of records that are durable. One that does not verify counts as none. Once there are any, compaction takes records only when one tells of them; who trims keeps the sources
//! first, of a log that has none too. So an older one is exact where all records from its offset on are there, and stands in for
//! one that is damaged. Where they are not it is damage, for repeats would be stored again.

use std::collections::BTreeMap;

use super::codec::{maybe, Put, Take};
use super::disk::{Disk, DiskOp};
use super::error::{Damage, Error};
use super::kept::{Kept, Kind};
use super::layout;
use super::machine::{unknown, Machine};
use super::partition::{Log, LogId};
use super::read::{Walk, SLACK_BYTES};
use crate::record::{
    Batch, Batches, Records, Source, DECOMPRESSED_BYTES_MAX, SOURCES_MAX, SOURCE_EXPIRY_MS,
};

pub(super) const SOURCES: Kind = Kind {
    name: layout::SOURCES,
    magic: *b"HRSRCS\0\x02",
};

/// Name, epoch, sequence.
pub type SourceState = (String, u64, u64);

/// The sources of the records below an offset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// They hold for all records below.
    pub(super) end: i64,
    /// Epoch and sequence by name, of those that were heard since the others grew old.
    young: BTreeMap<String, (u64, u64)>,
    old: BTreeMap<String, (u64, u64)>,
    /// The time of the batch with which the young ones began.
    turned_ms: Option<i64>,
}

/// The snapshots of one log, and which of its records may not be there any more.
#[derive(Clone, Debug)]
pub(super) struct Snapshots {
    kept: Kept,
    /// There was one once.
    has_any: bool,
    start_offset: i64,
    cleaned_to: i64,
}

/// The snapshots on disk: offsets.
#[derive(Clone, Debug, Default)]
pub(super) struct Saved {
    /// Ascending, each with the journal's round by which all records below it were written.
    whole: Vec<(i64, u64)>,
    /// Those that a start found damaged; they go when another is written.
    spoilt: Vec<i64>,
    /// There was one once: the journal keeps that, for the files may all be lost.
    pub(super) has_any: bool,
}

/// What the snapshots tell.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) sources: Sources,
    /// Sources were kept before.
    is_kept: bool,
    /// Offset of the newest that is whole, which may be later than was asked for.
    pub(super) kept_to: i64,
    /// Those that were kept last are lost.
    damage: Option<Damage>,
}

/// Sources on their way to the disk.
#[derive(Debug)]
pub struct Saving {
    /// The effects that keep them; to be performed at once, by the caller.
    pub ops: Vec<DiskOp>,
    log: LogId,
    /// The snapshots that are there then.
    saved: Saved,
}

/// How to find the sources of a log.
#[derive(Debug)]
pub struct SourcesPlan {
    snapshots: Snapshots,
    walks: Vec<Walk>,
    end: i64,
}

impl Machine {
    /// The way to the sources of the committed records of `log`.
    pub fn plan_sources(&self, log: LogId) -> Result<SourcesPlan, Error> {
        Ok(self.log(log)?.plan_sources())
    }

    /// How `sources` are kept. One saving of a log at a time: until [`Machine::sources_saved`]
    /// hears of it, it counts for nothing.
    ///
    /// Refused where its stream is on its way out: the folder may soon be another log's.
    pub fn save_sources(&self, log: LogId, sources: &Sources) -> Result<Saving, Error> {
        if self.deleted.contains(&log) {
            return Err(unknown(log));
        }
        let (round, synced) = (self.journal.chain.round, self.journal.synced);
        Ok(self.log(log)?.save_sources(sources, round, synced))
    }

    /// All effects of `saving` were performed. Where one failed this is not called, and what was
    /// kept before is what is kept.
    pub fn sources_saved(&mut self, saving: Saving) {
        if let Some(log) = self.logs.get_mut(&saving.log) {
            log.saved_sources = saving.saved;
        }
    }

    /// Bytes of the segments whose sources are not kept, or in part.
    pub fn unkept_bytes(&self, log: LogId) -> Result<u64, Error> {
        let kept = self.log(log)?.saved_sources.kept_to();
        let segments = self.segments(log)?.into_iter();
        let unkept = segments.filter(|segment| segment.next_offset > kept);
        Ok(unkept.map(|segment| segment.bytes).sum())
    }
}

impl Log {
    pub(super) fn plan_sources(&self) -> SourcesPlan {
        SourcesPlan {
            snapshots: self.sources(),
            walks: self.walks(self.start_offset),
            end: self.high_watermark,
        }
    }

    pub(super) fn sources(&self) -> Snapshots {
        Snapshots {
            kept: Kept::beside(self, SOURCES),
            has_any: self.saved_sources.has_any,
            start_offset: self.start_offset,
            cleaned_to: self.cleaned_to,
        }
    }

    /// `round`: by which the records were written; those before `synced` are durable.
    pub(super) fn save_sources(&self, sources: &Sources, round: u64, synced: u64) -> Saving {
        let (end, mut saved) = (sources.end, self.saved_sources.clone());
        let ops = if end == 0 {
            Vec::new() // no record, no source; maybe no folder yet
        } else {
            let others = saved.save(end, round, synced);
            Kept::beside(self, SOURCES).put(end, &sources.encode(), others)
        };
        Saving {
            ops,
            log: self.id,
            saved,
        }
    }
}

impl Saved {
    /// What a start found, when all records were durable; `told`: that the journal tells of some.
    pub(super) fn found(whole: &[i64], spoilt: Vec<i64>, told: bool) -> Self {
        let has_any = told || !whole.is_empty() || !spoilt.is_empty();
        let whole = whole.iter().map(|offset| (*offset, 0)).collect();
        Self {
            whole,
            spoilt,
            has_any,
        }
    }

    /// All records below are in one that is whole.
    fn kept_to(&self) -> i64 {
        self.whole.last().map_or(0, |(offset, _)| *offset)
    }

    /// Takes note of the one at `end`; the others that may go then. Beside the newest stays the
    /// newest of those before it whose records no power cut takes any more.
    fn save(&mut self, end: i64, round: u64, synced: u64) -> Vec<i64> {
        if let Err(place) = self.whole.binary_search_by_key(&end, |(offset, _)| *offset) {
            self.whole.insert(place, (end, round));
        }
        self.has_any = true;
        let mut others = std::mem::take(&mut self.whole);
        let newest = others.pop();
        if !others.is_empty() {
            let durable = others.iter().rposition(|(_, round)| *round <= synced);
            self.whole.push(others.remove(durable.unwrap_or(0))); // the oldest is the first to be
        }
        self.whole.extend(newest);
        let spoilt = self.spoilt.drain(..).filter(|offset| *offset != end);
        let others = others.into_iter().map(|(offset, _)| offset);
        others.chain(spoilt).collect()
    }
}

impl Snapshots {
    /// What the newest tells that is whole and of no later offset than `end`.
    pub(super) fn load(&self, disk: &impl Disk, end: i64) -> Result<Loaded, Error> {
        let offsets = self.kept.offsets(disk)?;
        let mut sources = Sources::default();
        let (mut damaged, mut kept_to) = (None, 0);
        for offset in offsets.iter().rev() {
            let body = self.kept.get(disk, *offset)?;
            let Some(found) = body.and_then(|body| Sources::decode(&body, *offset)) else {
                damaged.get_or_insert(*offset);
                continue;
            };
            kept_to = kept_to.max(*offset);
            if *offset <= end {
                sources = found;
                break;
            }
        }
        let is_kept = self.has_any || !offsets.is_empty();
        // Compaction may have done without one.
        let gone = self
            .start_offset
            .max(if is_kept { self.cleaned_to } else { 0 });
        let is_exact = kept_to >= gone;
        let damage = (!is_exact).then(|| self.damage(damaged, kept_to, gone));
        Ok(Loaded {
            sources,
            is_kept,
            kept_to,
            damage,
        })
    }

    /// Of the snapshot at `damaged`, or of one that is missing: what is whole ends at `told`, and of
    /// the records from there to `gone` some are not there.
    fn damage(&self, damaged: Option<i64>, told: i64, gone: i64) -> Damage {
        let (offset, what) = match damaged {
            Some(offset) => (offset, "the snapshot does not verify"),
            None if told > 0 => (told, "a later snapshot is missing"),
            None => (gone, "the snapshot is missing, or a later one"),
        };
        Damage {
            path: self.kept.file(offset).to_string(),
            position: 0,
            offset: None,
            what: format!(
                "{what}, and of the records at offsets {told} to {} that told of MQTT sources some \
                 are gone, so that what those send again would be stored twice",
                gone - 1
            ),
        }
    }
}

impl Loaded {
    /// Refused where those that were kept last are lost.
    pub(super) fn sound(self) -> Result<Self, Error> {
        self.damage.map_or(
            Ok(Self {
                damage: None,
                ..self
            }),
            |damage| Err(Error::Corrupt(damage)),
        )
    }

    /// They are kept before records go that they tell of: once there are any, for good.
    pub(super) fn must_be_kept(&self, from: i64) -> bool {
        let has_any = self.is_kept || !self.sources.is_empty();
        self.sources.end > from && has_any
    }
}

impl SourcesPlan {
    /// Loads the newest snapshot and reads on from there.
    pub fn read(&self, disk: &impl Disk) -> Result<Sources, Error> {
        self.gather(disk, Err)
    }

    /// The same of all that is not damaged: who has sent what was lost is not known.
    pub fn salvage(&self, disk: &impl Disk) -> Result<Sources, Error> {
        self.gather(disk, |error| match error {
            Error::Corrupt(_) => Ok(()),
            other => Err(other),
        })
    }

    /// Why the snapshots cannot serve, where they cannot.
    pub(super) fn damage(&self, disk: &impl Disk) -> Result<Option<Damage>, Error> {
        Ok(self.snapshots.load(disk, self.end)?.damage)
    }

    fn gather(
        &self,
        disk: &impl Disk,
        meet: impl Fn(Error) -> Result<(), Error>,
    ) -> Result<Sources, Error> {
        if self.end == 0 {
            return Ok(Sources::default()); // no record, no source; nothing is asked of the disk
        }
        let Loaded {
            mut sources,
            damage,
            ..
        } = self.snapshots.load(disk, self.end)?;
        damage.map_or(Ok(()), |damage| meet(Error::Corrupt(damage)))?;
        let from = sources.end;
        let first = self.walks.iter().rposition(|walk| walk.base() <= from);
        for walk in &self.walks[first.unwrap_or(0)..] {
            sources.read_on(disk, walk, from..self.end).or_else(&meet)?;
        }
        sources.end = self.end;
        Ok(sources)
    }
}

impl Sources {
    /// Those that `states` tells of the records below `end`.
    pub fn of(end: i64, states: &[SourceState]) -> Self {
        let last = states.iter().cloned();
        Self {
            end,
            young: last
                .map(|(name, epoch, sequence)| (name, (epoch, sequence)))
                .collect(),
            ..Self::default()
        }
    }

    /// The last of each.
    pub fn states(&self) -> Vec<SourceState> {
        let all = self.young.iter().chain(&self.old);
        all.map(|(name, (epoch, sequence))| (name.clone(), *epoch, *sequence))
            .collect()
    }

    fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }

    /// Takes note of the batches of one segment whose last offset is in `offsets`.
    fn read_on(
        &mut self,
        disk: &impl Disk,
        walk: &Walk,
        offsets: std::ops::Range<i64>,
    ) -> Result<(), Error> {
        let mut wanted = Vec::new();
        let walked = walk.each(disk, SLACK_BYTES, |position, header, _| {
            if header.is_published() && offsets.contains(&header.last_offset()) {
                wanted.push((position, header.base_offset, header.batch_bytes()));
            }
            true
        });
        let mut scratch = Vec::new();
        for (position, offset, bytes) in wanted {
            let bytes = walk.bytes(disk, position, bytes)?;
            for batch in Batches::new(&bytes).map_while(Result::ok) {
                if let Err(error) = batch.check_crc() {
                    let what = error.fault.to_string();
                    return Err(walk.damage(position, Some(offset), &what));
                }
                self.note(&batch, &mut scratch);
            }
        }
        walked
    }

    pub(super) fn note(&mut self, batch: &Batch, scratch: &mut Vec<u8>) {
        if !batch.header.is_published() {
            return; // what another door's client copies from elsewhere is no publisher's word
        }
        // What cannot be opened is no batch of this node's making.
        let Ok(body) = batch.open(scratch, DECOMPRESSED_BYTES_MAX) else {
            return;
        };
        self.grow_old(batch.header.max_timestamp);
        for record in Records::new(&batch.header, body).map_while(Result::ok) {
            if let Some(source) = record.source() {
                self.hear(&source);
            }
        }
    }

    fn hear(&mut self, source: &Source) {
        let found = (source.epoch, source.sequence);
        if let Some(last) = self.young.get_mut(&*source.name) {
            *last = found.max(*last);
            return;
        }
        if self.young.len() >= SOURCES_MAX {
            self.turn();
        }
        let before = self.old.remove(&*source.name);
        let last = before.map_or(found, |before| found.max(before));
        self.young.insert(source.name.to_string(), last);
    }

    /// Those that were silent for long are forgotten when the rest has grown old once more: a
    /// clock that leaps once costs nobody.
    fn grow_old(&mut self, batch_ms: i64) {
        let turned_ms = *self.turned_ms.get_or_insert(batch_ms);
        if batch_ms.saturating_sub(turned_ms) > SOURCE_EXPIRY_MS {
            self.turned_ms = Some(batch_ms);
            self.turn();
        }
    }

    fn turn(&mut self) {
        self.old = std::mem::take(&mut self.young);
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.put_maybe(self.turned_ms);
        for sources in [&self.young, &self.old] {
            body.put_u32(sources.len() as u32);
            for (name, (epoch, sequence)) in sources {
                body.put_text(name);
                body.put_u64(*epoch);
                body.put_u64(*sequence);
            }
        }
        body
    }

    fn decode(body: &[u8], end: i64) -> Option<Self> {
        let mut take = Take(body);
        let turned_ms = maybe(take.i64()?);
        let mut sources = || {
            (0..take.u32()?)
                .map(|_| Some((take.text()?.to_owned(), (take.u64()?, take.u64()?))))
                .collect::<Option<BTreeMap<_, _>>>()
        };
        Some(Self {
            end,
            young: sources()?,
            old: sources()?,
            turned_ms,
        })
    }

    /// What a whole file of `offset` tells.
    pub(super) fn of_file(file: &[u8], offset: i64) -> Option<Self> {
        Self::decode(SOURCES.body(file, offset)?, offset)
    }
}
