//! Windows of idempotent producers whose records are gone: the snapshot that tells of them is
//! needed, and its loss is named.

use std::collections::BTreeMap;

use super::*;
use crate::log::inspect::{self, Action, Consent};
use crate::log::{layout, open};

const LOG: LogId = LogId(0);

/// A log whose records a trim took, the last of them producer 7's, and the journal has let go; its
/// snapshots, ascending.
fn trimmed(disk: &SimDisk, all: bool) -> Vec<String> {
    let (mut machine, _) = open(disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    for sequence in 0..3 {
        let sent = produced(batch(1, 50, 1, 1000), 7, 0, sequence);
        machine.append(LOG, sent, 0, 0, 0).unwrap();
        machine.roll(LOG, 0).unwrap();
        commit(&mut machine, disk);
    }
    let (_, end) = machine.bounds(LOG).unwrap();
    machine.trim(LOG, if all { end } else { end - 1 }).unwrap();
    commit(&mut machine, disk);
    for _ in 0..2 {
        machine = open(disk, SMALL).unwrap().0;
        commit(&mut machine, disk);
    }
    let paths = disk.paths().into_iter();
    let kept: Vec<String> = paths.filter(|path| path.ends_with(".producers")).collect();
    assert_eq!(kept.len(), 2);
    kept
}

/// The last batch of the producer, once more.
fn repeats(disk: &SimDisk) -> bool {
    let (mut machine, _) = open(disk, SMALL).unwrap();
    let log = machine.open_log("gpu", 0, 1, 0).unwrap();
    let sent = produced(batch(1, 50, 1, 1000), 7, 0, 2);
    let (_, end) = machine.bounds(log).unwrap();
    machine.append(log, sent, 0, 0, 0).unwrap().base_offset < end
}

fn repair(disk: &SimDisk) -> Vec<Action> {
    let streams = BTreeMap::from([("gpu".to_owned(), 1)]);
    let consent = Consent::default();
    inspect::repair(disk, SMALL, &streams, |_, _| true, consent, false).unwrap()
}

#[test]
fn a_lost_snapshot_of_producers_whose_records_are_gone_is_named_until_it_is_repaired() {
    for erase in [false, true] {
        let disk = SimDisk::default();
        let kept = trimmed(&disk, true);
        assert!(repeats(&disk.clone()));
        let newest = &kept[1];
        if erase {
            disk.erase(newest);
        } else {
            let mut bytes = disk.bytes(newest);
            bytes[20] ^= 1;
            disk.overwrite(newest, bytes);
        }
        let refused = open(&disk.clone(), SMALL).unwrap_err().to_string();
        assert!(refused.starts_with(newest.as_str()), "{refused}");
        assert!(refused.contains("headrace log repair"), "{refused}");
        let streams = BTreeMap::from([("gpu".to_owned(), 1)]);
        let found = inspect::verify(&disk, SMALL, &streams, |_, _| true, |_| ()).unwrap();
        assert!(found.iter().any(|finding| finding.damage.path == *newest));

        assert!(repair(&disk).iter().any(|action| action.path == *newest));
        assert!(!repeats(&disk.clone()), "nobody knows it any more");
        assert_eq!(repair(&disk), []);
    }
}

#[test]
fn an_older_snapshot_stands_in_while_the_records_behind_it_are_there() {
    let disk = SimDisk::default();
    let kept = trimmed(&disk, false);
    disk.erase(&kept[1]);
    assert!(repeats(&disk.clone()));
    disk.erase(&kept[0]);
    assert!(open(&disk, SMALL).is_err());
}

/// Else an older one, which stands in for it, would go for its sake.
#[test]
fn a_damaged_snapshot_counts_as_none_beside_those_that_are_whole() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    let send = |machine: &mut Machine, sequence, rolls| {
        let sent = produced(batch(1, 6000, 1, 1000), 7, 0, sequence);
        machine.append(LOG, sent, 0, 0, 0).unwrap();
        if rolls {
            machine.roll(LOG, 0).unwrap();
        }
        commit(machine, &disk);
    };
    send(&mut machine, 0, true);
    send(&mut machine, 1, false);
    machine.close();
    commit(&mut machine, &disk);
    let snapshot = |offset| layout::file("streams/gpu/0", offset, layout::PRODUCERS).to_string();
    disk.overwrite(&snapshot(2), vec![0; 30]);
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    send(&mut machine, 2, true);
    open(&disk, SMALL).unwrap();
    let paths = disk.paths().into_iter();
    let kept: Vec<String> = paths.filter(|path| path.ends_with(".producers")).collect();
    assert_eq!(kept, [snapshot(1), snapshot(3)]);
}

#[test]
fn files_that_never_got_their_names_go_with_the_next_start() {
    let disk = SimDisk::default();
    let kept = trimmed(&disk, false);
    let beside = |kind| format!("{}.{kind}", kept[0].trim_end_matches(".producers"));
    let half = ["sources.new", "state.new", "log.new"].map(beside);
    let other = "streams/gpu/0/notes.new".to_owned();
    for path in half.iter().chain([&other]) {
        let path = path.as_str().into();
        disk.perform(&DiskOp::Create { path }).unwrap();
    }
    open(&disk, SMALL).unwrap();
    let left = disk.paths();
    assert!(
        left.contains(&other) && !half.iter().any(|path| left.contains(path)),
        "{left:?}"
    );
}
