//! Logs that cannot be made: who wanted them is told, and the store goes on.

use std::sync::Arc;

use super::{batch, commit, perform, produced, read, SMALL};
use crate::log::disk::{Disk, DiskError, DiskOp};
use crate::log::machine::{Completion, Machine};
use crate::log::{layout, open};
use crate::testing::{Random, Refused, SimDisk};

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

/// What a log has taken while it was being made goes with it: producers, segments, bytes. A trim of
/// another log that waited for the round happens all the same.
#[test]
fn a_refused_round_takes_the_state_of_its_logs_along_and_nothing_else() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    let sound = machine.open_log("sound", 0, 1, 0).unwrap();
    let sent = |sequence| produced(batch(1, 9, 1, 1), 7, 0, sequence);
    machine.append(sound, sent(0), 1, 0, 0).unwrap();
    commit(&mut machine, &disk);
    let before = (machine.producers, machine.segments, machine.logs.len());

    let lost = machine.open_log("gpu", 0, 1, 0).unwrap();
    for id in 0..3 {
        let first = produced(batch(1, 9, 1, 1), id, 0, 0);
        machine.append(lost, first, 2, 0, 0).unwrap();
    }
    machine.roll(lost, 0).unwrap();
    machine.append(lost, sent(0), 3, 0, 0).unwrap();
    machine.trim(lost, 0).unwrap();
    assert!(!machine.is_trimming(lost), "nothing of it is committed");
    machine.trim(sound, 1).unwrap();
    assert_eq!((machine.producers, machine.segments), (5, 3));
    let ended = refuse(&mut machine, &disk, 4);
    assert_eq!(ended.len(), 4, "a roll has no ticket");
    let after = (machine.producers, machine.segments, machine.logs.len());
    assert_eq!(after, before);
    assert_eq!(machine.statistics().queued_bytes, 0);
    assert!(machine.is_trimming(sound));
    machine.append(sound, sent(1), 4, 0, 0).unwrap();
    commit(&mut machine, &disk);
    assert_eq!(machine.bounds(sound), Ok((1, 2)));

    // Its producers are heard for the first time, and those of the other log are known still.
    let again = machine.open_log("gpu", 0, 1, 0).unwrap();
    machine.append(again, sent(0), 5, 0, 0).unwrap();
    assert!(machine.append(sound, sent(1), 6, 0, 0).unwrap().duplicate);
    commit(&mut machine, &disk);
    let (machine, _) = open(&disk.killed(), SMALL).unwrap();
    assert_eq!(machine.bounds(sound), Ok((1, 2)));
    assert_eq!(machine.bounds(again), Ok((0, 1)));
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

/// Its folder may be in the trash then: the next try does not stumble over it, nor does a start.
#[test]
fn a_deletion_that_is_refused_after_its_rename_can_be_asked_for_again() {
    for count in 0..4 {
        let disk = SimDisk::default();
        let (mut machine, _) = open(&disk, SMALL).unwrap();
        machine.open_log("gpu", 0, 1, 0).unwrap();
        machine.delete_stream("gpu").unwrap(); // before it was made
        machine.delete_stream("gpu").unwrap();
        machine.open_log("other", 0, 1, 0).unwrap();
        for is_last in [false, true] {
            // Somebody has put a file there: what is renamed is not empty.
            let folder = |path: &str| DiskOp::CreateFolder { path: path.into() };
            let path = "streams/gpu/stream.json".into();
            perform(&disk, &[folder("streams/gpu"), DiskOp::Create { path }]);
            refuse(&mut machine, &disk, count);
            assert_eq!(machine.is_deleting("gpu"), !is_last);
            assert!(machine.refusal("gpu").is_some() && machine.failed().is_none());
            assert_eq!(machine.logs.len(), 1, "of the other stream");
            assert!(machine.deleted.is_empty());
        }
        let (_, told) = open(&disk.killed(), SMALL).unwrap();
        assert_eq!(told.logs, 0);
        machine.delete_stream("gpu").unwrap();
        assert_eq!(
            disk.killed().list("trash").unwrap().len(),
            2 * usize::from(count > 1)
        );

        commit(&mut machine, &disk);
        assert_eq!(machine.refusal("gpu"), None);
        perform(&disk, &machine.empty_trash());
        assert_eq!(disk.list("trash"), Ok(vec![]), "after {count} effects");
        let log = machine.open_log("gpu", 0, 2, 0).unwrap();
        machine.append(log, batch(1, 9, 1, 1), 9, 0, 0).unwrap();
        commit(&mut machine, &disk);
        let (machine, _) = open(&disk.killed(), SMALL).unwrap();
        assert_eq!(machine.bounds(log), Ok((0, 1)));
    }
}

/// The rename deletes, whatever becomes of the files: each start tries again to remove them.
#[test]
fn what_is_left_of_a_deleted_stream_takes_nothing_from_a_later_one_of_its_name() {
    for is_made in [true, false] {
        let disk = SimDisk::default();
        let (mut machine, _) = open(&disk, SMALL).unwrap();
        let gone = machine.open_log("gpu", 0, 1, 0).unwrap();
        if is_made {
            machine.append(gone, batch(1, 9, 1, 1), 1, 0, 0).unwrap();
            commit(&mut machine, &disk);
        }
        machine.delete_stream("gpu").unwrap();
        commit(&mut machine, &disk);
        let mut disk = disk.killed();
        disk.refuse_one_in(1, Refused::Removing, Random::new(1));
        for incarnation in [2, 2, 2] {
            let (mut machine, told) = open(&disk, SMALL).unwrap();
            let left = disk.list("trash").unwrap();
            let ids = |name: &String| layout::trashed(name).unwrap().1;
            assert_eq!(left.iter().map(ids).collect::<Vec<_>>(), [1]);
            assert!(machine.next_id > 1, "another deletion has another place");
            let log = machine.open_log("gpu", 0, incarnation, 0).unwrap();
            assert_eq!(machine.bounds(log), Ok((0, told.logs as i64)));
            if told.logs == 0 {
                machine.append(log, batch(1, 9, 1, 1), 2, 0, 0).unwrap();
                commit(&mut machine, &disk);
            }
            disk = disk.killed();
            disk.refuse_one_in(1, Refused::Removing, Random::new(2));
        }
        let disk = disk.killed();
        let (machine, told) = open(&disk, SMALL).unwrap();
        assert_eq!((told.logs, machine.statistics().logs), (1, 1));
        assert_eq!(disk.list("trash"), Ok(vec![]));
    }
}

/// The journal knows the stream, and not yet that it is deleted: a start takes the rename for it.
#[test]
fn a_deletion_that_ends_the_store_after_its_rename_is_one_for_the_next_start() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    let gone = machine.open_log("gpu", 0, 1, 0).unwrap();
    machine.append(gone, batch(3, 9, 1, 1), 1, 0, 0).unwrap();
    let stays = machine.open_log("other", 0, 1, 0).unwrap();
    machine.append(stays, batch(2, 9, 1, 1), 2, 0, 0).unwrap();
    commit(&mut machine, &disk);
    machine.delete_stream("gpu").unwrap();
    let round = machine.next_round(0).unwrap().build();
    assert_eq!(round.attempts, 0);
    let renamed = |op: &DiskOp| matches!(op, DiskOp::Rename { .. });
    let count = round.before.iter().position(renamed).unwrap() + 1;
    perform(&disk, &round.before[..count]);
    machine.round_done(round, Err("syncing streams failed".into()), 0, 0);
    assert!(machine.failed().is_some() && machine.delete_stream("gpu").is_err());

    for disk in [disk.killed(), disk.power_cut(&mut Random::new(3))] {
        let was_moved = !disk.list("trash").unwrap().is_empty();
        let (mut machine, told) = open(&disk, SMALL).unwrap();
        assert_eq!(told.logs, 1 + u64::from(!was_moved));
        assert_eq!(machine.bounds(stays), Ok((0, 2)));
        assert_eq!(disk.list("trash"), Ok(vec![]));
        machine.delete_stream("gpu").unwrap();
        let again = machine.open_log("gpu", 0, 2, 0).unwrap();
        commit(&mut machine, &disk);
        assert_eq!(machine.bounds(again), Ok((0, 0)));
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
