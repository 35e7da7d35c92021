//! Rounds, chores and deletions wait for each other, and never for ever.

use super::{batch, commit, SMALL};
use crate::log::disk::{Disk, DiskOp};
use crate::log::layout;
use crate::log::machine::Machine;
use crate::log::open;
use crate::log::partition::LogId;
use crate::log::read::Plan;
use crate::testing::{Random, SimDisk};

fn machine_with(disk: &SimDisk, streams: &[&str]) -> (Machine, Vec<LogId>) {
    let (mut machine, _) = open(disk, SMALL).unwrap();
    let logs = streams
        .iter()
        .map(|stream| machine.open_log(stream, 0, 1, 0).unwrap())
        .collect();
    commit(&mut machine, disk);
    (machine, logs)
}

/// Performs the next round; false where none is due.
fn round(machine: &mut Machine, disk: &SimDisk) -> bool {
    machine.submit();
    let Some(draft) = machine.next_round(0) else {
        return false;
    };
    let round = draft.build();
    for op in round.before.iter().chain(&round.after) {
        disk.perform(op).unwrap();
    }
    machine.round_done(round, Ok(()), 0, 0);
    true
}

#[test]
fn a_deletion_that_finds_the_journal_full_gets_its_place() {
    let disk = SimDisk::default();
    let (mut machine, logs) = machine_with(&disk, &["gone"]);
    let mut ticket = 0;
    while machine
        .append(logs[0], batch(1, 100, 1, 1), ticket, 0, 0)
        .is_ok()
        && round(&mut machine, &disk)
    {
        ticket += 1;
    }
    let pages = SMALL.journal_bytes / 4096;
    assert!(ticket > pages, "two files are full, and no chore ran");
    machine.open_log("last", 0, 1, 0).unwrap();
    assert!(round(&mut machine, &disk), "it takes the last page");
    machine.delete_stream("gone").unwrap();
    assert_eq!(machine.ended().len(), 1, "what had no place");
    commit(&mut machine, &disk);
    assert!(!machine.is_deleting("gone"));
}

#[test]
fn appends_do_not_wait_for_a_deletion_that_waits_for_a_chore() {
    let disk = SimDisk::default();
    let (mut machine, logs) = machine_with(&disk, &["gone", "stays"]);
    let chore = loop {
        machine
            .append(logs[1], batch(1, 2000, 1, 1), 1, 0, 0)
            .unwrap();
        assert!(round(&mut machine, &disk));
        if let Some(chore) = machine.next_chore() {
            break chore;
        }
    };
    machine.delete_stream("gone").unwrap();
    machine
        .append(logs[1], batch(1, 10, 1, 1), 2, 0, 0)
        .unwrap();
    assert!(round(&mut machine, &disk));
    let again = machine.open_log("gone", 0, 2, 0).unwrap();
    assert!(!round(&mut machine, &disk), "its name is not free yet");

    for op in &chore.ops {
        disk.perform(op).unwrap();
    }
    assert_eq!(machine.chore_done(&chore, Ok(())), []);
    machine.append(again, batch(1, 10, 1, 1), 3, 0, 0).unwrap();
    commit(&mut machine, &disk);
    assert!(!machine.is_deleting("gone"));
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    let again = machine.open_log("gone", 0, 2, 0).unwrap();
    assert_eq!(machine.bounds(again), Ok((0, 1)));
}

#[test]
fn appends_do_not_wait_for_a_registration_that_waits_for_a_deletion() {
    let disk = SimDisk::default();
    let (mut machine, logs) = machine_with(&disk, &["gone", "stays"]);
    let chore = loop {
        let sent = batch(1, 2000, 1, 1);
        machine.append(logs[1], sent, 1, 0, 0).unwrap();
        assert!(round(&mut machine, &disk));
        if let Some(chore) = machine.next_chore() {
            break chore;
        }
    };
    machine.delete_stream("gone").unwrap();
    let fresh = machine.open_log("fresh", 0, 1, 0).unwrap();
    let (_, before) = machine.bounds(logs[1]).unwrap();
    for at in 0..3 {
        for log in [fresh, logs[1]] {
            machine.append(log, batch(1, 10, at, 1), 2, 0, 0).unwrap();
        }
    }
    assert!(round(&mut machine, &disk), "what is known goes on");
    assert_eq!(machine.bounds(logs[1]), Ok((0, before + 3)));
    assert_eq!(machine.bounds(fresh), Ok((0, 0)));
    assert!(!round(&mut machine, &disk));

    for op in &chore.ops {
        disk.perform(op).unwrap();
    }
    assert_eq!(machine.chore_done(&chore, Ok(())), []);
    commit(&mut machine, &disk);
    assert_eq!(machine.bounds(fresh), Ok((0, 3)));
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    let fresh = machine.open_log("fresh", 0, 1, 0).unwrap();
    let bytes = super::read(&mut machine, &disk, fresh, 0, 10_000).unwrap();
    let fills = [0, 1, 2].map(|fill| super::stamped(batch(1, 10, fill, 1), i64::from(fill)));
    assert_eq!(bytes, fills.concat());
}

/// A log whose twenty closed segments have just been trimmed; their files are there.
fn trimmed(disk: &SimDisk) -> Machine {
    let (mut machine, logs) = machine_with(disk, &["a"]);
    for at in 0..20 {
        let sent = batch(1, 10, 1, 1);
        machine.append(logs[0], sent, at, 0, 0).unwrap();
        machine.roll(logs[0], 0).unwrap();
        commit(&mut machine, disk);
    }
    machine.trim(logs[0], 20).unwrap();
    assert!(round(&mut machine, disk));
    machine
}

fn removals(ops: &[DiskOp]) -> usize {
    let is_removal = |op: &&DiskOp| matches!(op, DiskOp::LetGo { .. });
    ops.iter().filter(is_removal).count()
}

#[test]
fn a_close_removes_as_many_files_as_a_chore_and_the_next_start_the_rest() {
    let disk = SimDisk::default();
    let mut machine = trimmed(&disk);
    machine.close();
    let closing = machine.next_round(0).unwrap().build();
    assert_eq!(removals(&closing.before), 24);
    super::perform(&disk, &closing.before);
    super::perform(&disk, &closing.after);
    machine.round_done(closing, Ok(()), 0, 0);
    assert!(machine.is_closed());
    let (mut machine, told) = open(&disk, SMALL).unwrap();
    assert!(told.clean);
    commit(&mut machine, &disk);
    let left = disk.list("streams/a/0").unwrap();
    assert_eq!(layout::offsets(&left, layout::SEGMENT), [20]);
    assert!(layout::offsets(&left, layout::TIME_INDEX).is_empty());
}

#[test]
fn the_files_of_a_large_trim_go_by_and_by() {
    let disk = SimDisk::default();
    let mut machine = trimmed(&disk);
    let mut removed = Vec::new();
    while let Some(chore) = machine.next_chore() {
        super::perform(&disk, &chore.ops);
        assert_eq!(machine.chore_done(&chore, Ok(())), []);
        removed.push(removals(&chore.ops));
    }
    removed.retain(|count| *count > 0);
    assert_eq!(removed, [24, 24, 12], "three files of each segment");
    let left = disk.list("streams/a/0").unwrap();
    assert_eq!(layout::offsets(&left, layout::SEGMENT), [20]);
}

/// Two logs whose journal has gone on to its next file; no chore has synced anything.
fn rotated(disk: &SimDisk) -> (Machine, Vec<LogId>) {
    let (mut machine, logs) = machine_with(disk, &["gone", "stays"]);
    while machine.journal.previous.is_none() {
        for log in &logs {
            let sent = batch(1, 700, 1, 1);
            machine.append(*log, sent, 1, 0, 0).unwrap();
        }
        assert!(round(&mut machine, disk));
    }
    (machine, logs)
}

/// Begins the next round, has a chore do all that it would do beside it, and stops after each effect
/// of the round.
fn stopped_anywhere(begin: impl Fn(&mut Machine), check: impl Fn(&SimDisk, i64)) {
    for count in 0.. {
        let disk = SimDisk::default();
        let (mut machine, logs) = rotated(&disk);
        let (_, end) = machine.bounds(logs[1]).unwrap();
        begin(&mut machine);
        let round = machine.next_round(0).unwrap().build();
        if let Some(chore) = machine.next_chore() {
            super::perform(&disk, &chore.ops);
        }
        if count > round.before.len() {
            return;
        }
        super::perform(&disk, &round.before[..count]);
        check(&disk, end);
    }
}

/// What a start finds in the log that nobody deletes.
fn finds(disk: &SimDisk, end: i64) {
    let (mut machine, _) = open(disk, SMALL).unwrap();
    let log = machine.open_log("stays", 0, 1, 0).unwrap();
    assert_eq!(machine.bounds(log), Ok((0, end)));
    for offset in 0..end {
        let found = super::read(&mut machine, disk, log, offset, 1).unwrap();
        assert_eq!(found, super::stamped(batch(1, 700, 1, 1), offset));
    }
}

#[test]
fn no_journal_file_is_released_beside_a_close_that_has_not_synced_what_it_makes_again() {
    let check = |disk: &SimDisk, end| {
        let disk = disk.killed();
        finds(&disk, end);
        for seed in 0..10 {
            finds(&disk.power_cut(&mut Random::new(seed)), end);
        }
    };
    stopped_anywhere(Machine::close, check);
}

#[test]
fn no_journal_file_is_released_beside_a_deletion_that_may_not_come_to_be() {
    let delete = |machine: &mut Machine| machine.delete_stream("gone").unwrap();
    let check = |disk: &SimDisk, end| {
        for seed in 0..10 {
            finds(&disk.power_cut(&mut Random::new(seed)), end);
        }
    };
    stopped_anywhere(delete, check);
}

/// What a read meets there is no damage.
#[test]
fn a_log_has_no_edition_from_before_its_files_go() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    let log = machine.open_log("gone", 0, 1, 0).unwrap();
    machine.append(log, batch(1, 9, 1, 1), 1, 0, 0).unwrap();
    commit(&mut machine, &disk);
    let Plan::Walk(walk) = machine.plan_read(log, 0).unwrap() else {
        panic!("nothing to read");
    };
    assert_eq!(machine.edition(log), Ok(0));
    machine.delete_stream("gone").unwrap();
    let round = machine.next_round(0).unwrap().build();
    let mut is_gone = false;
    for op in round.before.iter().chain(&round.after) {
        disk.perform(op).unwrap();
        is_gone |= walk.read(&disk, 0, usize::MAX).is_err();
        assert!(machine.edition(log).is_err());
    }
    assert!(is_gone, "before the round was reported");
    machine.round_done(round, Ok(()), 0, 0);
    assert!(machine.edition(log).is_err());
}
