//! Logs that cannot be made: who wanted them is told, and the store goes on.

use std::sync::Arc;

use super::{batch, commit, perform, read, SMALL};
use crate::log::disk::{Disk, DiskError, DiskOp};
use crate::log::machine::{Completion, Machine};
use crate::log::open;
use crate::testing::SimDisk;

fn refusal() -> DiskError {
    "no descriptor is left".to_owned().into()
}

/// Performs the round that is due as far as `count` of its first effects, then it is refused.
pub(super) fn refuse(machine: &mut Machine, disk: &SimDisk, count: usize) -> Vec<Completion> {
    let round = machine.next_round(0).expect("one is due").build();
    assert!(count < round.attempts);
    perform(disk, &round.before[..count]);
    perform(disk, &round.undoes());
    machine.round_refused(round, &refusal())
}

#[test]
fn a_log_that_cannot_be_made_is_none_and_all_others_go_on() {
    for count in 0..5 {
        let disk = SimDisk::default();
        let (mut machine, _) = open(&disk, SMALL).unwrap();
        let sound = machine.open_log("sound", 0, 1, 0).unwrap();
        commit(&mut machine, &disk);
        let lost = machine.open_log("gpu", 0, 1, 0).unwrap();
        machine.append(lost, batch(1, 9, 1, 1), 7, 0, 0).unwrap();
        machine.append(sound, batch(1, 9, 1, 1), 8, 0, 0).unwrap();
        machine.submit();
        assert!(machine.is_creating("gpu") && !machine.is_creating("sound"));

        let ended = refuse(&mut machine, &disk, count);
        let why: Arc<str> = Arc::from("no descriptor is left");
        let refused = Completion {
            ticket: 7,
            log: lost,
            error: Some(why.clone()),
        };
        assert_eq!(ended, [refused]);
        assert!(!machine.is_creating("gpu"));
        assert_eq!(machine.refusal("gpu"), Some(why));
        assert_eq!(machine.refusal("gpu"), None, "it is told once");
        assert!(machine.bounds(lost).is_err() && machine.failed().is_none());
        assert_eq!(disk.list("streams").unwrap(), ["sound"]);
        commit(&mut machine, &disk);
        assert_eq!(machine.bounds(sound), Ok((0, 1)));
        assert_eq!(machine.statistics().logs, 1);

        let again = machine.open_log("gpu", 0, 1, 0).unwrap();
        machine.append(again, batch(1, 9, 1, 1), 9, 0, 0).unwrap();
        commit(&mut machine, &disk);
        let (mut machine, _) = open(&disk.killed(), SMALL).unwrap();
        assert!(!read(&mut machine, &disk, again, 0, 1).unwrap().is_empty());
    }
}

#[test]
fn what_was_never_made_need_not_be_deleted() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    refuse(&mut machine, &disk, 2);
    machine.refusal("gpu").unwrap();
    machine.delete_stream("gpu").unwrap();
    refuse(&mut machine, &disk, 1);
    assert!(!machine.is_deleting("gpu") && machine.failed().is_none());
    assert!(machine.refusal("gpu").is_some());
    let log = machine.open_log("gpu", 0, 2, 0).unwrap();
    commit(&mut machine, &disk);
    assert_eq!(machine.bounds(log), Ok((0, 0)));
    machine.delete_stream("gpu").unwrap();
    let round = machine.next_round(0).unwrap().build();
    assert_eq!(round.attempts, 0, "the journal knows it");
}

#[test]
fn a_deletion_is_not_answered_with_the_refusal_of_what_came_before() {
    for is_late in [false, true] {
        let disk = SimDisk::default();
        let (mut machine, _) = open(&disk, SMALL).unwrap();
        machine.open_log("gpu", 0, 1, 0).unwrap();
        commit(&mut machine, &disk);
        machine.open_log("gpu", 1, 1, 0).unwrap();
        machine.open_log("gpu", 2, 1, 0).unwrap();
        let round = machine.next_round(0).unwrap().build();
        if is_late {
            machine.delete_stream("gpu").unwrap();
        }
        assert_eq!(
            round.undoes().len(),
            8,
            "two files and two folders of each log"
        );
        machine.round_refused(round, &refusal());
        if !is_late {
            machine.delete_stream("gpu").unwrap();
        }
        commit(&mut machine, &disk);
        assert!(!machine.is_deleting("gpu") && machine.failed().is_none());
        assert_eq!(machine.refusal("gpu"), None);
        assert_eq!(machine.statistics().logs, 0);
    }
}

/// The kernel tells of a failed write-back once, and what was lost may be anybody's.
#[test]
fn a_sync_that_fails_is_never_a_refusal() {
    for lossy in [false, true] {
        let (mut machine, _) = open(&SimDisk::default(), SMALL).unwrap();
        machine.delete_stream("never").unwrap();
        let round = machine.next_round(0).unwrap().build();
        let attempts = &round.before[..round.attempts];
        assert!(attempts.iter().any(DiskOp::is_sync));
        machine.round_refused(round, &DiskError { lossy, ..refusal() });
        assert_eq!(machine.failed().is_some(), lossy);
    }
}
