//! Compaction against a model, under crashes, and beside readers.

use std::collections::BTreeMap;
use std::panic::catch_unwind;

use super::{commit, produced, read, stamped, SMALL};
use crate::log::compact::{Compaction, CompactionSettings, Group, Survey};
use crate::log::disk::{Disk, DiskOp};
use crate::log::inspect::verify;
use crate::log::machine::Machine;
use crate::log::partition::LogId;
use crate::log::read::Plan;
use crate::log::{open, Error, LogSettings};
use crate::record::{BatchBuilder, BatchHeader, Batches, Codec, Filter, Records, HEADER_BYTES};
use crate::testing::{Lie, Random, SimDisk};

const LOG: LogId = LogId(0);
const HOUR_MS: i64 = 3_600_000;
const RETENTION_MS: u64 = 3_600_000;

/// A record: offset, timestamp, key, value.
type Row = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

/// The records of stored batches.
fn rows(bytes: &[u8]) -> Vec<Row> {
    let mut rows = Vec::new();
    for batch in Batches::new(bytes).map(Result::unwrap) {
        batch.check_crc().unwrap();
        let mut scratch = Vec::new();
        let body = batch.open(&mut scratch, 1 << 20).unwrap();
        for record in Records::new(&batch.header, body).map(Result::unwrap) {
            let (key, value) = (record.key, record.value);
            rows.push((
                record.offset,
                record.timestamp,
                key.map(<[u8]>::to_vec),
                value.map(<[u8]>::to_vec),
            ));
        }
    }
    rows
}

/// The batch as it would be in another codec.
fn recoded(batch: &[u8], codec: Codec) -> Vec<u8> {
    let header = BatchHeader::parse(batch).unwrap();
    let header = BatchHeader {
        attributes: header.attributes | codec as i16,
        ..header
    };
    let filter = Filter::new(&header, &batch[HEADER_BYTES..], |_| true).unwrap();
    let mut out = Vec::new();
    filter.build(None, &mut out);
    out
}

/// A batch that was appended.
struct Sent {
    header: BatchHeader,
    rows: Vec<Row>,
}

/// A log on a simulated disk, and what it was sent.
struct Rig {
    disk: SimDisk,
    random: Random,
    machine: Machine,
    sent: Vec<Sent>,
    next_offset: i64,
    sequences: [i32; 3],
    wall_ms: i64,
    keys: usize,
}

impl Rig {
    fn new(seed: u64) -> Self {
        Self::on(SimDisk::default(), seed)
    }

    fn on(disk: SimDisk, seed: u64) -> Self {
        let (mut machine, _) = open(&disk, SMALL).unwrap();
        machine.open_log("gpu", 0, 1, 0).unwrap();
        commit(&mut machine, &disk);
        let mut random = Random::new(seed);
        let keys = 1 + random.below(150);
        Self {
            disk,
            random,
            machine,
            sent: Vec::new(),
            next_offset: 0,
            sequences: [0; 3],
            wall_ms: 1_700_000_000_000,
            keys,
        }
    }

    fn batch(&mut self) -> Vec<u8> {
        let random = &mut self.random;
        let mut builder = BatchBuilder::new();
        let count = 1 + random.below(6);
        for _ in 0..count {
            let key = (random.below(self.keys) as u64).to_be_bytes();
            let key = random.chance(95).then_some(&key[..]);
            let value = vec![random.below(256) as u8; random.below(400)];
            let value = random.chance(80).then_some(&value[..]);
            let timestamp = self.wall_ms - random.below(2000) as i64;
            builder.push(timestamp, key, value, [(&b"h"[..], None)]);
        }
        let codec = Codec::ALL[random.below(8).min(4)];
        let batch = recoded(&builder.finish(), codec);
        let producer = self.random.below(6);
        let Some(sequence) = self.sequences.get_mut(producer) else {
            return batch;
        };
        *sequence += count as i32;
        produced(batch, producer as i64, 0, *sequence - count as i32)
    }

    fn append(&mut self) {
        let batch = self.batch();
        let appended = self.machine.append(LOG, batch.clone(), 0, self.wall_ms, 0);
        assert_eq!(appended.unwrap().base_offset, self.next_offset);
        let batch = stamped(batch, self.next_offset);
        let header = BatchHeader::parse(&batch).unwrap();
        self.next_offset = header.next_offset();
        let rows = rows(&batch);
        self.sent.push(Sent { header, rows });
    }

    /// Every record that was appended.
    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.sent.iter().flat_map(|sent| &sent.rows)
    }

    /// Every record that is stored.
    fn stored_rows(&mut self) -> Vec<Row> {
        self.stored().iter().flat_map(|batch| rows(batch)).collect()
    }

    fn fill(&mut self, batches: usize) {
        for _ in 0..batches {
            self.append();
            self.wall_ms += 500;
            if self.random.chance(5) {
                self.machine.roll(LOG, self.wall_ms).unwrap();
            }
            if self.random.chance(30) {
                commit(&mut self.machine, &self.disk);
            }
        }
        commit(&mut self.machine, &self.disk);
    }

    fn settings(&self) -> CompactionSettings {
        CompactionSettings {
            wall_ms: self.wall_ms,
            delete_retention_ms: RETENTION_MS,
            min_lag_ms: 0,
            span_ms: None,
        }
    }

    fn compact(&mut self) -> Result<Compaction, Error> {
        let settings = self.settings();
        compact(&mut self.machine, &self.disk, settings, |machine, disk| {
            commit(machine, disk);
        })
    }

    /// All that is stored, batch by batch.
    fn stored(&mut self) -> Vec<Vec<u8>> {
        let (mut offset, end) = self.machine.bounds(LOG).unwrap();
        let mut found = Vec::new();
        while offset < end {
            let bytes = read(&mut self.machine, &self.disk, LOG, offset, 3000).unwrap();
            for batch in Batches::new(&bytes).map(Result::unwrap) {
                offset = batch.header.next_offset();
                found.push(batch.bytes.to_vec());
            }
        }
        found
    }

    fn cleaned_to(&self) -> i64 {
        self.machine.log(LOG).unwrap().cleaned_to
    }

    fn reopen(&mut self, disk: SimDisk) {
        self.disk = disk;
        self.machine = open(&self.disk, SMALL).unwrap().0;
        self.machine.open_log("gpu", 0, 1, self.wall_ms).unwrap();
    }
}

/// As `headrace-io` compacts; `beside` runs the rounds and chores, and whatever else goes on.
fn compact(
    machine: &mut Machine,
    disk: &SimDisk,
    settings: CompactionSettings,
    mut beside: impl FnMut(&mut Machine, &SimDisk),
) -> Result<Compaction, Error> {
    let mut report = Compaction::default();
    while let Some(pass) = machine.plan_compaction(LOG, settings)? {
        let mut survey = pass.survey(disk, &mut report)?;
        for op in machine.keep_sources(&mut survey)? {
            disk.perform(&op)?;
        }
        for group in survey.groups() {
            swap(machine, disk, &survey, &group, &mut report)?;
            beside(machine, disk);
            assert!(!machine.is_replacing());
        }
        if survey.is_last() {
            break;
        }
    }
    Ok(report)
}

/// Compacts all that may be.
pub(super) fn compact_once(machine: &mut Machine, disk: &SimDisk) {
    let settings = CompactionSettings {
        wall_ms: 0,
        delete_retention_ms: RETENTION_MS,
        min_lag_ms: 0,
        span_ms: None,
    };
    compact(machine, disk, settings, commit).unwrap();
}

fn swap(
    machine: &mut Machine,
    disk: &SimDisk,
    survey: &Survey,
    group: &Group,
    report: &mut Compaction,
) -> Result<(), Error> {
    let replacement = survey.clean(disk, group, report)?;
    assert!(machine.replace(replacement)?);
    Ok(())
}

/// What compaction should leave, by its definition.
#[derive(Default)]
struct Model {
    /// When tombstones of a batch may go, by its base offset.
    horizons: BTreeMap<i64, i64>,
    gone: Vec<i64>,
}

impl Model {
    /// The records that stay of `sent` when all below `end` is compacted at `wall_ms`.
    fn compact(&mut self, sent: &[Sent], end: i64, wall_ms: i64) -> Vec<Row> {
        let mut last = BTreeMap::new();
        let all = sent.iter().flat_map(|sent| &sent.rows);
        for (offset, _, key, _) in all.filter(|row| row.0 < end) {
            last.insert(key, *offset);
        }
        let mut kept = Vec::new();
        for batch in sent {
            let base = batch.header.base_offset;
            let horizon = self.horizons.get(&base).copied();
            for row in &batch.rows {
                let (offset, _, key, value) = row;
                let dirty = *offset >= end;
                let latest = key.is_some() && last.get(key) == Some(offset);
                let expired = value.is_none() && horizon.is_some_and(|at| at <= wall_ms);
                if !dirty && (!latest || expired || self.gone.contains(offset)) {
                    self.gone.push(*offset);
                    continue;
                }
                if !dirty && value.is_none() && horizon.is_none() {
                    self.horizons.insert(base, wall_ms + RETENTION_MS as i64);
                }
                kept.push(row.clone());
            }
        }
        kept
    }
}

/// Headers say what they said, the last batch of every producer is there, and what is found by
/// offset or by time is what a scan finds.
fn check_found(rig: &mut Rig) {
    let stored = rig.stored();
    let headers = |batches: &[Vec<u8>]| -> Vec<BatchHeader> {
        let headers = batches.iter().map(|batch| BatchHeader::parse(batch));
        headers.map(Result::unwrap).collect()
    };
    for header in headers(&stored) {
        let sent = &rig.sent;
        let at = sent.binary_search_by_key(&header.base_offset, |sent| sent.header.base_offset);
        let sent = sent[at.expect("it was sent")].header;
        if header.has_producer() {
            assert_eq!(header.last_offset_delta, sent.last_offset_delta);
            assert_eq!(header.producer_id, sent.producer_id);
            assert_eq!(header.base_sequence, sent.base_sequence);
        }
        assert!(header.count == 0 || header.codec() == sent.codec());
    }
    let last_of = |headers: Vec<BatchHeader>| -> BTreeMap<i64, i64> {
        let of_producers = headers.into_iter().filter(BatchHeader::has_producer);
        of_producers
            .map(|header| (header.producer_id, header.base_offset))
            .collect()
    };
    let sent = rig.sent.iter().map(|sent| sent.header).collect();
    assert_eq!(last_of(headers(&stored)), last_of(sent));
    let ends: Vec<(i64, &Vec<u8>)> = stored
        .iter()
        .map(|batch| (BatchHeader::parse(batch).unwrap().next_offset(), batch))
        .collect();
    for offset in (0..rig.next_offset).step_by(1 + rig.random.below(4)) {
        let wanted = ends.iter().find(|(next, _)| *next > offset).unwrap().1;
        let found = read(&mut rig.machine, &rig.disk, LOG, offset, 1);
        assert_eq!(found.as_ref(), Ok(wanted), "offset {offset}");
    }
    let all: Vec<Row> = stored.iter().flat_map(|batch| rows(batch)).collect();
    for _ in 0..20 {
        let at = rig.random.below(all.len());
        let timestamp = all[at].1 + rig.random.below(3) as i64 - 1;
        let wanted = all.iter().find(|row| row.1 >= timestamp).map(|row| row.0);
        let found = super::memory::find_time(&mut rig.machine, &rig.disk, timestamp);
        assert_eq!(found, Ok(wanted), "timestamp {timestamp}");
    }
}

#[test]
fn compaction_is_what_its_definition_says() {
    for seed in 0..super::seeds() {
        let mut rig = Rig::new(seed);
        let mut model = Model::default();
        for _ in 0..=rig.random.below(4) {
            let batches = rig.random.below(120);
            rig.fill(batches);
            rig.compact().unwrap();
            let (end, wall_ms) = (rig.cleaned_to(), rig.wall_ms);
            let wanted = model.compact(&rig.sent, end, wall_ms);
            let found = rig.stored_rows();
            assert!(
                found == wanted,
                "seed {seed}: {} of {}",
                found.len(),
                wanted.len()
            );
            let facts = rig.machine.segments(LOG).unwrap();
            let clean = facts
                .iter()
                .filter(|facts| !facts.active)
                .all(|facts| facts.clean);
            assert!(clean, "seed {seed}: {facts:?}");
            rig.wall_ms += rig.random.below(3) as i64 * HOUR_MS / 2;
        }
        if rig.next_offset > 0 {
            check_found(&mut rig);
            let wanted = rig.stored();
            rig.reopen(rig.disk.killed());
            assert!(rig.stored() == wanted, "seed {seed}");
            check_found(&mut rig);
            rig.machine.close();
            commit(&mut rig.machine, &rig.disk);
            assert!(rig.machine.is_closed());
            rig.reopen(rig.disk.killed());
            assert!(rig.stored() == wanted, "seed {seed}");
            check_found(&mut rig);
        }
    }
}

/// The value of each key, as a reader of all records knows it.
fn state(rows: &[Row]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut state = BTreeMap::new();
    for (_, _, key, value) in rows {
        let Some(key) = key else { continue };
        match value {
            Some(value) => drop(state.insert(key.clone(), value.clone())),
            None => drop(state.remove(key)),
        }
    }
    state
}

/// Performs rounds and chores until the disk fails or nothing is due.
fn try_commit(machine: &mut Machine, disk: &SimDisk) {
    machine.submit();
    let perform = |op: &DiskOp| disk.perform(op).map_err(|error| error.text);
    loop {
        if let Some(draft) = machine.next_round(0) {
            let round = draft.build();
            let outcome = round
                .before
                .iter()
                .chain(&round.after)
                .try_for_each(perform);
            machine.round_done(round, outcome, 0, 0);
        } else if let Some(chore) = machine.next_chore() {
            let outcome = chore.ops.iter().try_for_each(perform);
            machine.chore_done(&chore, outcome);
        } else {
            return;
        }
    }
}

/// Compactions of one log, each ended by a power cut or a kill at any of its effects.
fn run(seed: u64, lie: Lie) {
    let mut rig = Rig::on(SimDisk::lying(lie), seed);
    for _ in 0..4 {
        let batches = 1 + rig.random.below(60);
        rig.fill(batches);
        rig.disk.fail_after(rig.random.below(90), "power cut");
        let settings = rig.settings();
        let outcome = compact(&mut rig.machine, &rig.disk, settings, try_commit);
        assert!(outcome.is_ok() || rig.disk.has_failed(), "{outcome:?}");
        let mut disk = rig.disk.killed();
        while rig.random.chance(60) {
            disk = disk.power_cut(&mut rig.random);
            disk.fail_after(rig.random.below(60), "power cut");
            let _ = open(&disk, SMALL);
            disk = disk.killed();
        }
        rig.reopen(disk);
        let wanted: Vec<Row> = rig.rows().cloned().collect();
        let found = rig.stored_rows();
        let was_sent = |row: &Row| {
            let at = wanted.binary_search_by_key(&row.0, |row| row.0);
            at.is_ok_and(|at| wanted[at] == *row)
        };
        assert!(found.iter().all(was_sent), "it was never sent");
        assert!(state(&found) == state(&wanted), "the last of a key is lost");
        check_found(&mut rig);
        commit(&mut rig.machine, &rig.disk);
        check_files(&rig);
        let streams = BTreeMap::from([("gpu".to_owned(), 1)]);
        let findings = verify(&rig.disk, SMALL, &streams, |_, _| true, |_| {});
        assert_eq!(findings, Ok(Vec::new()));
        rig.wall_ms += rig.random.below(3) as i64 * HOUR_MS / 2;
    }
}

fn fails(seed: u64, lie: Lie) -> bool {
    catch_unwind(|| run(seed, lie)).is_err()
}

#[test]
fn a_power_cut_between_any_two_effects_leaves_the_old_segments_or_the_new_ones() {
    for seed in 0..super::seeds() {
        assert!(!fails(seed, Lie::None), "seed {seed}");
    }
}

#[test]
fn a_disk_that_lies_is_found_out() {
    for lie in [Lie::SyncBelow("streams/"), Lie::SyncFolders] {
        assert!((0..100).any(|seed| fails(seed, lie)), "{lie:?}");
    }
}

/// No file is left that belongs to no segment.
fn check_files(rig: &Rig) {
    let log = rig.machine.log(LOG).unwrap();
    let files = log
        .segments
        .iter()
        .flat_map(|segment| segment.files(&log.folder));
    let known: Vec<String> = files.map(|path| path.to_string()).collect();
    for name in rig.disk.list(&log.folder).unwrap() {
        let is_segment = ["log", "index", "timeindex"]
            .iter()
            .any(|kind| name.ends_with(kind));
        let path = format!("{}/{name}", log.folder);
        assert!(!is_segment || known.contains(&path), "{path} is left");
    }
}

#[test]
fn a_reader_on_its_way_through_a_segment_ends_there_or_plans_anew() {
    let mut rig = Rig::new(5);
    rig.fill(300);
    let Plan::Walk(walk) = rig.machine.plan_read(LOG, 0).unwrap() else {
        panic!("nothing to read");
    };
    let before = walk.read(&rig.disk, 0, usize::MAX).unwrap();
    let edition = rig.machine.edition(LOG).unwrap();
    let mut old_is_gone = false;
    let settings = rig.settings();
    compact(&mut rig.machine, &rig.disk, settings, |machine, disk| {
        while let Some(draft) = machine.next_round(0) {
            let round = draft.build();
            for op in round.before.iter().chain(&round.after) {
                disk.perform(op).unwrap();
                let found = walk.read(disk, 0, usize::MAX);
                assert!(old_is_gone || found.as_ref() == Ok(&before));
            }
            machine.round_done(round, Ok(()), 0, 0);
        }
        assert_ne!(machine.edition(LOG), Ok(edition), "before the file goes");
        while let Some(chore) = machine.next_chore() {
            for op in &chore.ops {
                disk.perform(op).unwrap();
                let found = walk.read(disk, 0, usize::MAX);
                old_is_gone |= found.is_err();
                assert!(old_is_gone || found.as_ref() == Ok(&before));
            }
            machine.chore_done(&chore, Ok(()));
        }
    })
    .unwrap();
    assert!(old_is_gone);
}

#[test]
fn an_index_that_was_loaded_before_a_swap_is_not_taken_for_the_new_one() {
    let mut rig = Rig::new(6);
    rig.fill(200);
    rig.reopen(rig.disk.killed());
    let Plan::Load(files) = rig.machine.plan_read(LOG, 0).unwrap() else {
        panic!("the index is in memory");
    };
    let old = files.load(&rig.disk).unwrap();
    rig.compact().unwrap();
    let segment = &mut rig.machine.logs.get_mut(&LOG).unwrap().segments[0];
    segment.unload();
    rig.machine.indexed(old);
    assert!(matches!(rig.machine.plan_read(LOG, 0), Ok(Plan::Load(_))));
}

#[test]
fn a_trim_or_a_deletion_overtakes_a_compaction() {
    for delete in [false, true] {
        let mut rig = Rig::new(7);
        rig.fill(300);
        let mut report = Compaction::default();
        let settings = rig.settings();
        let pass = rig.machine.plan_compaction(LOG, settings).unwrap().unwrap();
        let survey = pass.survey(&rig.disk, &mut report).unwrap();
        let group = &survey.groups()[0];
        let replacement = survey.clean(&rig.disk, group, &mut report).unwrap();
        if delete {
            rig.machine.delete_stream("gpu").unwrap();
            assert_eq!(rig.machine.replace(replacement), Ok(false));
            survey.sweep(&rig.disk, group).unwrap();
            commit(&mut rig.machine, &rig.disk);
            assert!(!rig
                .disk
                .paths()
                .iter()
                .any(|path| path.starts_with("streams/gpu/")));
        } else {
            rig.machine.trim(LOG, rig.next_offset).unwrap();
            assert_eq!(rig.machine.replace(replacement), Ok(true), "both wait");
            commit(&mut rig.machine, &rig.disk);
            assert!(!rig.machine.is_replacing());
            survey.sweep(&rig.disk, group).unwrap();
            check_files(&rig);
        }
    }
}

#[test]
fn young_segments_and_the_active_one_are_left_alone() {
    let mut rig = Rig::new(8);
    rig.keys = 3;
    rig.fill(100);
    let old = rig.wall_ms;
    rig.wall_ms += 10 * HOUR_MS;
    rig.machine.roll(LOG, rig.wall_ms).unwrap();
    rig.fill(100);
    let settings = CompactionSettings {
        min_lag_ms: 5 * HOUR_MS as u64,
        ..rig.settings()
    };
    compact(&mut rig.machine, &rig.disk, settings, commit).unwrap();
    for facts in rig.machine.segments(LOG).unwrap() {
        assert_eq!(facts.clean, facts.max_timestamp.unwrap() < old, "{facts:?}");
    }
    let again = rig.machine.plan_compaction(LOG, settings).unwrap();
    assert!(again.is_none(), "there is nothing to do");
}

/// What clients say of the time is no reason to wait for ever.
#[test]
fn a_segment_is_no_younger_than_the_beginning_of_the_next() {
    for stamp in [4_000_000_000_000, -1] {
        let mut rig = Rig::new(12);
        for at in 0..60 {
            let mut builder = BatchBuilder::new();
            let timestamp = if at == 1 { stamp } else { rig.wall_ms };
            builder.push(timestamp, Some(&[at % 3]), Some(&[at; 1000]), []);
            let sent = builder.finish();
            rig.machine.append(LOG, sent, 0, rig.wall_ms, 0).unwrap();
            commit(&mut rig.machine, &rig.disk);
        }
        let plan = |rig: &mut Rig, later_ms: i64| {
            let settings = CompactionSettings {
                wall_ms: rig.wall_ms + later_ms,
                min_lag_ms: HOUR_MS as u64,
                ..rig.settings()
            };
            rig.machine.plan_compaction(LOG, settings).unwrap()
        };
        assert!(plan(&mut rig, HOUR_MS / 2).is_none());
        assert!(plan(&mut rig, 2 * HOUR_MS).is_some());
    }
}

/// Else the oldest records would stay for as long as the newest of them, again and again.
#[test]
fn segments_that_expire_at_different_times_stay_apart() {
    for (span_ms, most) in [(None, i64::MAX), (Some(3 * HOUR_MS as u64), 3 * HOUR_MS)] {
        let mut rig = Rig::new(10);
        rig.keys = 3;
        for _ in 0..4 {
            for _ in 0..4 {
                rig.fill(5);
                rig.wall_ms += HOUR_MS;
                rig.machine.roll(LOG, rig.wall_ms).unwrap();
                commit(&mut rig.machine, &rig.disk);
            }
            let settings = CompactionSettings {
                span_ms,
                ..rig.settings()
            };
            compact(&mut rig.machine, &rig.disk, settings, commit).unwrap();
        }
        let segments = rig.machine.segments(LOG).unwrap();
        let closed: Vec<_> = segments.windows(2).skip(1).collect(); // the first began at 0
        for pair in &closed {
            let newest = pair[0].max_timestamp.min(pair[1].created_ms);
            assert!(
                newest.unwrap() - pair[0].created_ms.unwrap() <= most,
                "{pair:?}"
            );
        }
        assert_eq!(closed.is_empty(), span_ms.is_none(), "{closed:?}");
    }
}

#[test]
fn small_neighbours_merge_up_to_the_size_of_a_segment() {
    let mut rig = Rig::new(9);
    let small = LogSettings {
        segment_bytes: 2000,
        ..LogSettings::default()
    };
    rig.machine.configure(LOG, small).unwrap();
    rig.keys = 1000;
    rig.fill(300);
    let many = rig.machine.segments(LOG).unwrap().len();
    let segment_bytes = 30_000;
    let large = LogSettings {
        segment_bytes,
        ..LogSettings::default()
    };
    rig.machine.configure(LOG, large).unwrap();
    rig.compact().unwrap();
    let facts = rig.machine.segments(LOG).unwrap();
    assert!(many > 3 * facts.len(), "{many} became {}", facts.len());
    assert!(facts.iter().all(|facts| facts.bytes <= segment_bytes));
}

/// What a transaction wrote may not have been committed: it supersedes nothing, and its deletions
/// stay.
#[test]
fn records_of_transactions_are_superseded_and_supersede_none() {
    let mut rig = Rig::new(10);
    let send = |rig: &mut Rig, key: &[u8], value: Option<&[u8]>, attributes: u8| {
        let mut builder = BatchBuilder::new();
        builder.push(rig.wall_ms, Some(key), value, []);
        let mut batch = builder.finish();
        batch[22] |= attributes;
        let batch = produced(batch, -1, -1, -1);
        rig.machine.append(LOG, batch, 0, 0, 0).unwrap();
        commit(&mut rig.machine, &rig.disk);
    };
    let (transactional, control) = (0x10, 0x30);
    send(&mut rig, b"a", Some(b"1"), 0);
    send(&mut rig, b"a", None, transactional);
    send(&mut rig, b"b", Some(b"1"), transactional);
    send(&mut rig, b"\0\0\0\x01", None, control);
    send(&mut rig, b"b", Some(b"2"), 0);
    rig.machine.roll(LOG, 0).unwrap();
    commit(&mut rig.machine, &rig.disk);
    for _ in 0..3 {
        rig.compact().unwrap();
        let kept: Vec<i64> = rig
            .stored()
            .iter()
            .flat_map(|batch| rows(batch))
            .map(|row| row.0)
            .collect();
        assert_eq!(kept, [0, 1, 3, 4]);
        rig.wall_ms += 9 * HOUR_MS;
    }
}

#[test]
fn a_horizon_that_a_client_made_up_does_not_count() {
    let mut rig = Rig::new(11);
    let mut builder = BatchBuilder::new();
    builder.push(1, Some(b"a"), None, []);
    let mut batch = builder.finish();
    batch[22] |= 0x40;
    let batch = produced(batch, -1, -1, -1);
    rig.machine.append(LOG, batch, 0, 0, 0).unwrap();
    rig.machine.roll(LOG, 0).unwrap();
    commit(&mut rig.machine, &rig.disk);
    for kept in [1, 0] {
        rig.compact().unwrap();
        let found = rig.stored_rows();
        assert_eq!(found.len(), kept);
        rig.wall_ms += HOUR_MS;
    }
    let facts = rig.machine.segments(LOG).unwrap();
    assert_eq!(facts[0].horizon_ms, None);
}

#[test]
fn damage_is_named_and_nothing_is_changed() {
    let mut rig = Rig::new(12);
    rig.fill(200);
    let path = rig.machine.log(LOG).unwrap().segments[0].path.clone();
    let mut bytes = rig.disk.bytes(&path);
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    rig.disk.overwrite(&path, bytes.clone());
    let Err(Error::Corrupt(damage)) = rig.compact() else {
        panic!("it went unseen");
    };
    assert_eq!(damage.path, path.to_string());
    assert_eq!(rig.disk.bytes(&path), bytes);
}

#[test]
fn what_cannot_be_decompressed_stays_and_supersedes_nothing() {
    let mut rig = Rig::new(13);
    rig.keys = 1;
    rig.fill(20);
    let mut builder = BatchBuilder::new();
    builder.push(1, Some(b"a"), Some(b"b"), []);
    let mut batch = builder.finish();
    batch[22] |= Codec::Zstd as u8;
    let batch = produced(batch, -1, -1, -1);
    let offset = rig.machine.append(LOG, batch.clone(), 0, 0, 0).unwrap();
    rig.machine.roll(LOG, 0).unwrap();
    commit(&mut rig.machine, &rig.disk);
    rig.compact().unwrap();
    let found = read(&mut rig.machine, &rig.disk, LOG, offset.base_offset, 1).unwrap();
    assert_eq!(found, stamped(batch, offset.base_offset));
}

#[test]
fn what_took_its_place_is_nobodys_to_remove_and_a_store_that_failed_cannot_tell() {
    let mut rig = Rig::new(14);
    rig.fill(200);
    let mut report = Compaction::default();
    let settings = rig.settings();
    let pass = rig.machine.plan_compaction(LOG, settings).unwrap().unwrap();
    let survey = pass.survey(&rig.disk, &mut report).unwrap();
    let groups = survey.groups();
    swap(
        &mut rig.machine,
        &rig.disk,
        &survey,
        &groups[0],
        &mut report,
    )
    .unwrap();
    assert!(rig.machine.is_abandoned(&survey, &groups[1]));
    commit(&mut rig.machine, &rig.disk);
    assert!(!rig.machine.is_abandoned(&survey, &groups[0]));
    rig.machine.abort("the disk is gone");
    assert!(!rig.machine.is_abandoned(&survey, &groups[1]));
}
