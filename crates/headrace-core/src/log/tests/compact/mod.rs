//! Compaction against a model, under crashes, and beside readers.

mod beside;
mod choice;
mod crashes;
mod definition;

use std::collections::BTreeMap;

use super::{commit, produced, read, seeds, stamped, SMALL};
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
            let timestamp = self.wall_ms - random.below(2000_i64);
            builder.push(timestamp, key, value, [(&b"h"[..], None)]);
        }
        let codec = Codec::ALL[random.below(8).min(4)];
        let batch = recoded(&builder.finish(), codec);
        let producer = self.random.below(6);
        let Some(sequence) = self.sequences.get_mut(producer) else {
            return batch;
        };
        *sequence += count;
        produced(batch, producer as i64, 0, *sequence - count)
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
        if let Some(saving) = machine.keep_sources(&mut survey)? {
            disk.perform_all(&saving.ops)?;
            machine.sources_saved(saving);
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
        let timestamp = all[at].1 + rig.random.below(3_i64) - 1;
        let wanted = all.iter().find(|row| row.1 >= timestamp).map(|row| row.0);
        let found = super::memory::find_time(&mut rig.machine, &rig.disk, timestamp);
        assert_eq!(found, Ok(wanted), "timestamp {timestamp}");
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
