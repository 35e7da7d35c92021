//! Rolls, trims and compactions since a checkpoint, in every order: a start takes all of them for
//! what they were.

use std::collections::BTreeMap;

use super::{batch, commit, perform, produced, read, save, SMALL};
use crate::log::compact::{Compaction, CompactionSettings, Replacement};
use crate::log::inspect::{repair, verify, Consent};
use crate::log::machine::Machine;
use crate::log::partition::LogId;
use crate::log::{open, Error};
use crate::record::{Batches, Records};
use crate::testing::SimDisk;

const LOG: LogId = LogId(0);
/// Appends before each roll.
const APPENDS: i64 = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Roll,
    /// All closed segments go.
    TrimClosed,
    /// The log begins inside of its last closed segment.
    TrimInside,
    Compact,
}

const STEPS: [Step; 4] = [
    Step::Roll,
    Step::TrimClosed,
    Step::TrimInside,
    Step::Compact,
];

struct Rig {
    disk: SimDisk,
    machine: Machine,
    /// Key and batch by offset: one record each.
    sent: Vec<(u8, Vec<u8>)>,
}

fn incarnations() -> BTreeMap<String, u64> {
    BTreeMap::from([("gpu".to_owned(), 1)])
}

impl Rig {
    fn new() -> Self {
        let disk = SimDisk::default();
        let (mut machine, _) = open(&disk, SMALL).unwrap();
        machine.open_log("gpu", 0, 1, 0).unwrap();
        commit(&mut machine, &disk);
        let sent = Vec::new();
        Self {
            disk,
            machine,
            sent,
        }
    }

    fn of_two_closed_segments() -> Self {
        let mut rig = Self::new();
        rig.step(Step::Roll);
        rig.step(Step::Roll);
        rig
    }

    /// Half of the batches are their producer's only one.
    fn append(&mut self) {
        let at = self.sent.len() as i32;
        let (id, sequence) = [(7, at / 2), (100 + i64::from(at), 0)][at as usize % 2];
        let key = at as u8 % 3;
        let sent = produced(keyed(key, at as u8), id, 0, sequence);
        let appended = self.machine.append(LOG, sent.clone(), 0, 0, 0).unwrap();
        assert_eq!(appended.base_offset, i64::from(at));
        self.sent.push((key, sent));
    }

    /// Rounds, and a chore only where they wait for it: its work is left undone for long.
    fn rounds(&mut self) {
        self.machine.submit();
        loop {
            if let Some(draft) = self.machine.next_round(0) {
                let round = draft.build();
                perform(&self.disk, &round.before);
                perform(&self.disk, &round.after);
                self.machine.round_done(round, Ok(()), 0, 0);
            } else if self.machine.queue.is_empty() {
                return;
            } else {
                let chore = self.machine.next_chore().expect("rounds wait for one");
                perform(&self.disk, &chore.ops);
                self.machine.chore_done(&chore, Ok(()));
            }
        }
    }

    fn replacement(&mut self) -> Option<Replacement> {
        let settings = CompactionSettings {
            wall_ms: 5000,
            delete_retention_ms: 1,
            min_lag_ms: 0,
            span_ms: None,
        };
        let pass = self.machine.plan_compaction(LOG, settings).unwrap()?;
        let mut report = Compaction::default();
        let mut survey = pass.survey(&self.disk, &mut report).unwrap();
        let saving = self.machine.keep_sources(&mut survey).unwrap();
        save(&mut self.machine, &self.disk, saving);
        let group = survey.groups().into_iter().next()?;
        Some(survey.clean(&self.disk, &group, &mut report).unwrap())
    }

    /// As who trims does: what the records told of sources is kept first.
    fn trim(&mut self, offset: i64) {
        let plan = self.machine.plan_sources(LOG).unwrap();
        let known = plan.read(&self.disk).unwrap();
        let saving = self.machine.save_sources(LOG, &known).unwrap();
        save(&mut self.machine, &self.disk, saving);
        self.machine.trim(LOG, offset).unwrap();
    }

    fn step(&mut self, step: Step) {
        let segments = self.machine.segments(LOG).unwrap();
        let active = segments.last().expect("there is one").base_offset;
        match step {
            Step::Roll => {
                (0..APPENDS).for_each(|_| self.append());
                self.machine.roll(LOG, 0).unwrap();
            }
            Step::TrimClosed => self.trim(active),
            Step::TrimInside => self.trim((active - 1).max(0)),
            Step::Compact => {
                if let Some(replacement) = self.replacement() {
                    assert!(self.machine.replace(replacement).unwrap());
                }
            }
        }
        self.rounds();
    }

    /// A process that dies now leaves all of it, and nothing to repair.
    fn check(&self, context: &str) {
        let disk = self.disk.killed();
        let findings = verify(&disk, SMALL, &incarnations(), |_, _| true, |_| {});
        assert_eq!(findings, Ok(Vec::new()), "{context}");
        let (mut machine, _) = open(&disk, SMALL).unwrap_or_else(|why| panic!("{context}: {why}"));
        machine.open_log("gpu", 0, 1, 0).unwrap();
        let bounds = machine.bounds(LOG);
        assert_eq!(bounds, self.machine.bounds(LOG), "{context}");
        let (start, end) = bounds.unwrap();
        let found = records(&mut machine, &disk, start, end);
        for (at, (key, _)) in self.sent.iter().enumerate().skip(start as usize) {
            let superseded = self.sent[at + 1..].iter().any(|(other, _)| other == key);
            let value = found.get(&(at as i64));
            assert!(
                value.map_or(superseded, |value| *value == at as u8),
                "{context}: {value:?} at {at}"
            );
        }
        for (at, (_, sent)) in self.sent.iter().enumerate() {
            // Of a producer the last five batches are known.
            if at % 2 == 1 || at + 2 >= self.sent.len() {
                let again = machine.append(LOG, sent.clone(), 0, 0, 0);
                let offset = again.map(|again| (again.duplicate, again.base_offset));
                assert_eq!(offset, Ok((true, at as i64)), "{context}: a repeat");
            }
        }
    }
}

/// A record of that key whose value is one byte.
fn keyed(key: u8, value: u8) -> Vec<u8> {
    let mut builder = crate::record::BatchBuilder::new();
    builder.push(1000, Some(&[key]), Some(&[value]), []);
    builder.finish()
}

fn records(machine: &mut Machine, disk: &SimDisk, start: i64, end: i64) -> BTreeMap<i64, u8> {
    let (mut found, mut at) = (BTreeMap::new(), start);
    while at < end {
        let bytes = read(machine, disk, LOG, at, 1000).unwrap();
        for batch in Batches::new(&bytes).map(Result::unwrap) {
            at = batch.header.next_offset();
            for record in Records::new(&batch.header, batch.body()).map(Result::unwrap) {
                found.insert(record.offset, record.value.expect("no tombstones")[0]);
            }
        }
    }
    found
}

#[test]
fn rolls_trims_and_compactions_count_in_whatever_order_they_come() {
    for order in 0..STEPS.len().pow(4) {
        let mut rig = Rig::of_two_closed_segments();
        let mut context = String::new();
        for digit in 0..4 {
            let step = STEPS[order / STEPS.len().pow(digit) % STEPS.len()];
            context = format!("{context} {step:?}");
            rig.step(step);
            rig.append();
            rig.rounds();
            rig.check(&context);
        }
        commit(&mut rig.machine, &rig.disk);
        rig.check(&format!("{context}, and a chore"));
    }
}

#[test]
fn a_store_that_fails_while_a_round_swaps_segments_goes_on_refusing() {
    let mut rig = Rig::of_two_closed_segments();
    let replacement = rig.replacement().expect("two segments to compact");
    assert!(rig.machine.replace(replacement).unwrap());
    let round = rig.machine.next_round(0).unwrap().build();
    rig.machine.abort("syncing a file failed");
    perform(&rig.disk, &round.before);
    perform(&rig.disk, &round.after);
    rig.machine.round_done(round, Ok(()), 0, 0);
    let refused = rig.machine.roll(LOG, 0);
    assert_eq!(refused, Err(Error::Storage("syncing a file failed".into())));
    rig.check("after the swap");
}

/// No CRC of a batch covers its epoch, and of so old a one nobody knows which it was: a start holds
/// what was written directly against the journal's CRC all the same.
#[test]
fn what_a_start_refuses_a_repair_has_it_accept() {
    let mut rig = Rig::new();
    let direct = batch(1, 2 * SMALL.direct_write_bytes as usize, 1, 1000);
    for epoch in 0..20 {
        rig.machine.lead(LOG, epoch).unwrap();
        let sent = if epoch == 0 {
            direct.clone()
        } else {
            keyed(1, 1)
        };
        rig.machine.append(LOG, sent, 0, 0, 0).unwrap();
        rig.rounds();
    }
    let disk = rig.disk.killed();
    let path = disk.path_of("log");
    let mut bytes = disk.bytes(&path);
    bytes[12] ^= 1;
    disk.overwrite(&path, bytes);
    assert!(matches!(open(&disk.clone(), SMALL), Err(Error::Corrupt(_))));
    for dry in [true, false] {
        let no = Consent::default();
        let actions = repair(&disk, SMALL, &incarnations(), |_, _| true, no, dry).unwrap();
        let files: Vec<&str> = actions.iter().map(|action| &*action.path).collect();
        assert_eq!(files, [&path]);
    }
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    assert_eq!(
        read(&mut machine, &disk, LOG, 0, 1).unwrap().len(),
        direct.len()
    );
}
