//! Two syncs of one file, one of them failed. The kernel tells of a lost page once: the other
//! succeeds without it, and must not be believed.

use std::collections::VecDeque;

use super::{batch, commit, produced, read, save, stamped, SMALL};
use crate::log::chore::Chore;
use crate::log::compact::{Compaction, CompactionSettings, Replacement};
use crate::log::disk::{Disk, DiskError, DiskOp};
use crate::log::machine::Machine;
use crate::log::open;
use crate::log::options::Options;
use crate::log::partition::LogId;
use crate::log::round::Round;
use crate::log::sources::Sources;
use crate::testing::{Random, Refused, SimDisk};

const LOG: LogId = LogId(0);
/// One segment takes all of a run.
const ROOMY: Options = Options {
    segment_bytes: 1 << 20,
    ..SMALL
};
/// Of what a failed sync loses, and of what the power cut after it leaves.
const SEEDS: u64 = 40;

/// Effects under way beside others.
struct Lane(VecDeque<DiskOp>);

impl Lane {
    fn of_round(round: &Round) -> Self {
        Self(round.before.iter().chain(&round.after).cloned().collect())
    }

    fn of(ops: &[DiskOp]) -> Self {
        Self(ops.iter().cloned().collect())
    }

    fn next(&mut self, machine: &mut Machine, disk: &SimDisk) -> Result<(), DiskError> {
        let op = self.0.pop_front().expect("there is one");
        let outcome = disk.perform(&op);
        if op.is_sync() {
            machine.sync_ended(outcome)
        } else {
            outcome
        }
    }

    fn is_before(&self, is_it: &impl Fn(&DiskOp) -> bool) -> bool {
        is_it(self.0.front().expect("it comes"))
    }

    /// Up to that effect, which is the next then.
    fn until(&mut self, machine: &mut Machine, disk: &SimDisk, is_it: impl Fn(&DiskOp) -> bool) {
        while !self.is_before(&is_it) {
            self.next(machine, disk).unwrap();
        }
    }

    /// The next effect, which is a sync, fails.
    fn fail(&mut self, machine: &mut Machine, disk: &SimDisk, seed: u64) -> Result<(), String> {
        disk.refuse_one_in(1, Refused::Syncing, Random::new(seed));
        let failed = self.next(machine, disk);
        disk.refuse_nothing();
        failed.map_err(|why| why.text)
    }

    /// All that is left, until something fails.
    fn finish(&mut self, machine: &mut Machine, disk: &SimDisk) -> Result<(), String> {
        while !self.0.is_empty() {
            self.next(machine, disk).map_err(|why| why.text)?;
        }
        Ok(())
    }
}

fn syncs(path: &str) -> impl Fn(&DiskOp) -> bool + '_ {
    move |op| matches!(op, DiskOp::Sync { path: found } if **found == *path)
}

fn renames(op: &DiskOp) -> bool {
    matches!(op, DiskOp::Rename { .. })
}

/// A round of one batch.
fn acknowledge(machine: &mut Machine, disk: &SimDisk, sent: &mut Vec<Vec<u8>>) {
    let small = batch(1, 500, sent.len() as u8, 1000);
    machine.append(LOG, small.clone(), 1, 0, 0).unwrap();
    machine.submit();
    let round = machine.next_round(0).unwrap().build();
    Lane::of_round(&round).finish(machine, disk).unwrap();
    assert_eq!(machine.round_done(round, Ok(()), 0, 0)[0].error, None);
    sent.push(small);
}

/// A log whose segment a chore is about to sync, whereupon a journal file is released; all
/// that was appended is acknowledged.
struct Rig {
    disk: SimDisk,
    machine: Machine,
    chore: Chore,
    /// Batches of one record each.
    sent: Vec<Vec<u8>>,
    /// The segment that is written to.
    path: String,
}

impl Rig {
    fn new() -> Self {
        let disk = SimDisk::default();
        let (mut machine, _) = open(&disk, ROOMY).unwrap();
        machine.open_log("gpu", 0, 1, 0).unwrap();
        commit(&mut machine, &disk);
        let mut sent = Vec::new();
        let chore = loop {
            acknowledge(&mut machine, &disk, &mut sent);
            if let Some(chore) = machine.next_chore() {
                break chore;
            }
        };
        assert!(chore.ops.iter().any(renames), "it releases a journal file");
        let path = machine.log(LOG).unwrap().active().path.to_string();
        assert!(chore.ops.iter().any(syncs(&path)));
        Self {
            disk,
            machine,
            chore,
            sent,
            path,
        }
    }

    /// A round whose batches go straight to that segment.
    fn direct(&mut self) -> Round {
        let large = batch(1, 2 * SMALL.direct_write_bytes as usize, 1, 1000);
        self.machine.append(LOG, large, 2, 0, 0).unwrap();
        self.machine.submit();
        let round = self.machine.next_round(0).unwrap().build();
        assert!(
            round.before.iter().any(syncs(&self.path)),
            "and to no other"
        );
        round
    }

    /// The power goes: a start finds what was acknowledged, and refuses nothing.
    fn survives(&self, seed: u64) {
        let disk = self.disk.power_cut(&mut Random::new(seed));
        let (mut machine, _) = open(&disk, ROOMY).unwrap_or_else(|why| panic!("{seed}: {why}"));
        machine.open_log("gpu", 0, 1, 0).unwrap();
        for (offset, sent) in self.sent.iter().enumerate() {
            let found = read(&mut machine, &disk, LOG, offset as i64, 1).unwrap();
            assert_eq!(found, stamped(sent.clone(), offset as i64), "{seed}");
        }
    }
}

/// The round ends in the error of the chore's sync, and so does all that comes.
fn ends_in(machine: &mut Machine, round: Round, outcome: Result<(), String>, tickets: &[u64]) {
    let failed = machine.failed().expect("a sync has failed").clone();
    let ended = machine.round_done(round, outcome, 0, 0);
    let found: Vec<u64> = ended.iter().map(|ended| ended.ticket).collect();
    assert_eq!(found, tickets);
    assert!(ended
        .iter()
        .all(|ended| ended.error == Some(failed.clone())));
    assert!(machine.next_round(0).is_none() && machine.next_chore().is_none());
}

#[test]
fn a_direct_write_that_a_chores_failed_sync_has_lost_is_neither_journalled_nor_acknowledged() {
    for seed in 0..SEEDS {
        let mut rig = Rig::new();
        let (machine, disk) = (&mut rig.machine, &rig.disk);
        let mut chore = Lane::of(&rig.chore.ops);
        chore.until(machine, disk, syncs(&rig.path));
        let round = rig.direct();
        let (machine, disk) = (&mut rig.machine, &rig.disk);
        let mut lane = Lane::of_round(&round);
        lane.until(machine, disk, syncs(&rig.path));
        let why = chore.fail(machine, disk, seed);
        assert!(why.is_err());
        let outcome = lane.finish(machine, disk);
        let journalled =
            |op: &DiskOp| matches!(op, DiskOp::Write { path, .. } if path.starts_with("journal/"));
        assert!(lane.0.iter().any(journalled), "it stops before");
        // Whichever of the two is told first.
        if seed % 2 == 0 {
            machine.chore_done(&rig.chore, why);
            ends_in(machine, round, outcome, &[2]);
        } else {
            ends_in(machine, round, outcome, &[2]);
            assert_eq!(machine.chore_done(&rig.chore, why), []);
        }
        rig.survives(seed);
    }
}

#[test]
fn no_journal_file_is_released_on_a_sync_beside_which_a_rounds_has_failed() {
    for seed in 0..SEEDS {
        let mut rig = Rig::new();
        let round = rig.direct();
        let (machine, disk) = (&mut rig.machine, &rig.disk);
        let mut lane = Lane::of_round(&round);
        lane.until(machine, disk, syncs(&rig.path));
        let mut chore = Lane::of(&rig.chore.ops);
        chore.until(machine, disk, syncs(&rig.path));
        let outcome = lane.fail(machine, disk, seed);
        assert!(chore.finish(machine, disk).is_err());
        assert!(chore.0.iter().any(renames), "it stops before");
        ends_in(machine, round, outcome, &[2]);
        rig.survives(seed);
    }
}

#[test]
fn a_round_that_is_journalled_while_a_chores_sync_fails_ends_in_that_error() {
    for seed in 0..SEEDS {
        let mut rig = Rig::new();
        let (machine, disk) = (&mut rig.machine, &rig.disk);
        machine.append(LOG, batch(1, 10, 1, 1000), 2, 0, 0).unwrap();
        machine.submit();
        let round = machine.next_round(0).unwrap().build();
        let mut lane = Lane::of_round(&round);
        let mut chore = Lane::of(&rig.chore.ops);
        chore.until(machine, disk, syncs(&rig.path));
        // Before its own sync is told, and after.
        let outcome = if seed % 2 == 0 {
            assert!(chore.fail(machine, disk, seed).is_err());
            lane.finish(machine, disk)
        } else {
            let outcome = lane.finish(machine, disk);
            assert!(chore.fail(machine, disk, seed).is_err());
            outcome
        };
        assert_eq!(outcome.is_err(), seed % 2 == 0);
        ends_in(machine, round, outcome, &[2]);
        rig.survives(seed);
    }
}

#[test]
fn segments_are_not_swapped_on_a_snapshot_that_a_chores_failed_sync_has_lost() {
    for seed in 0..SEEDS {
        let disk = SimDisk::default();
        let (mut machine, _) = open(&disk, SMALL).unwrap();
        machine.open_log("gpu", 0, 1, 0).unwrap();
        commit(&mut machine, &disk);
        let rounds = |machine: &mut Machine| {
            machine.submit();
            while let Some(draft) = machine.next_round(0) {
                let round = draft.build();
                Lane::of_round(&round).finish(machine, &disk).unwrap();
                machine.round_done(round, Ok(()), 0, 0);
            }
        };
        // Two closed segments, whose side files no chore has synced.
        let sent: Vec<Vec<u8>> = (0..6)
            .map(|at| produced(batch(1, 10, at as u8, 1000), 7, 0, at))
            .collect();
        for (at, sent) in sent.iter().enumerate() {
            machine.append(LOG, sent.clone(), 1, 0, 0).unwrap();
            if at % 3 == 2 {
                machine.roll(LOG, 0).unwrap();
            }
            rounds(&mut machine);
        }
        let swap = compacted(&mut machine, &disk);
        assert!(machine.replace(swap).unwrap());
        let chore = machine.next_chore().expect("finished files");
        let round = machine.next_round(0).unwrap().build();
        let snapshot = round.before.iter().find(|op| op.is_sync()).unwrap();
        let DiskOp::Sync { path } = snapshot.clone() else {
            panic!("the snapshot of producers comes first")
        };
        let mut lane = Lane::of(&chore.ops);
        lane.until(&mut machine, &disk, syncs(&path));
        let why = lane.fail(&mut machine, &disk, seed);
        let outcome = Lane::of_round(&round).finish(&mut machine, &disk);
        assert!(outcome.is_err());
        machine.chore_done(&chore, why);
        ends_in(&mut machine, round, outcome, &[]);

        let disk = disk.power_cut(&mut Random::new(seed));
        let (mut machine, _) = open(&disk, SMALL).unwrap_or_else(|why| panic!("{seed}: {why}"));
        machine.open_log("gpu", 0, 1, 0).unwrap();
        for (at, sent) in sent.into_iter().enumerate().skip(1) {
            let again = machine.append(LOG, sent, 1, 0, 0).unwrap();
            assert!(again.duplicate && again.base_offset == at as i64, "{seed}");
        }
    }
}

/// What the closed segments become.
fn compacted(machine: &mut Machine, disk: &SimDisk) -> Replacement {
    let settings = CompactionSettings {
        wall_ms: 5000,
        delete_retention_ms: 1,
        min_lag_ms: 0,
        span_ms: None,
    };
    let pass = machine.plan_compaction(LOG, settings).unwrap().unwrap();
    let mut report = Compaction::default();
    let mut survey = pass.survey(disk, &mut report).unwrap();
    let saving = machine.keep_sources(&mut survey).unwrap();
    save(machine, disk, saving);
    let group = survey.groups().into_iter().next().unwrap();
    survey.clean(disk, &group, &mut report).unwrap()
}

#[test]
fn what_was_kept_before_stays_where_the_syncs_of_what_replaces_it_count_no_more() {
    let mut rig = Rig::new();
    let (machine, disk) = (&mut rig.machine, &rig.disk);
    let removes = |op: &DiskOp| matches!(op, DiskOp::LetGo { .. });
    let saving = loop {
        acknowledge(machine, disk, &mut rig.sent);
        let (_, end) = machine.bounds(LOG).unwrap();
        let sources = Sources::of(end, &[("meter".to_owned(), 1, 1)]);
        let saving = machine.save_sources(LOG, &sources).unwrap();
        if saving.ops.iter().any(removes) {
            break saving;
        }
        save(machine, disk, saving);
    };
    let mut lane = Lane::of(&saving.ops);
    lane.until(machine, disk, |op| matches!(op, DiskOp::SyncFolder { .. }));
    let mut chore = Lane::of(&rig.chore.ops);
    chore.until(machine, disk, syncs(&rig.path));
    assert!(chore.fail(machine, disk, 1).is_err());
    assert!(lane.finish(machine, disk).is_err());
    assert!(lane.0.iter().any(removes), "it stops before");
}

#[test]
fn a_sync_that_could_not_begin_has_lost_nothing() {
    let mut rig = Rig::new();
    let why = DiskError::from("no descriptor is left".to_owned());
    assert_eq!(rig.machine.sync_ended(Err(why.clone())), Err(why));
    assert_eq!(rig.machine.failed(), None);
    assert_eq!(rig.machine.sync_ended(Ok(())), Ok(()));
}
