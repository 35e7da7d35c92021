//! States beside a log: whichever moment the power fails in, one that is true is found.

use std::collections::BTreeMap;

use super::super::inspect::{repair, verify, Consent};
use super::super::open;
use super::super::state::FoundState;
use super::*;
use crate::testing::Random;

const LOG: LogId = LogId(0);

fn opened(disk: &SimDisk) -> Machine {
    let (mut machine, _) = open(disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    machine
}

fn append(machine: &mut Machine, disk: &SimDisk) -> i64 {
    machine.append(LOG, batch(1, 9, 1, 1), 0, 0, 0).unwrap();
    commit(machine, disk);
    machine.bounds(LOG).unwrap().1
}

/// What the records below `offset` come to.
fn state(offset: i64) -> Vec<u8> {
    vec![offset as u8; 3 * 4096]
}

#[test]
fn a_power_cut_at_any_moment_leaves_a_true_state() {
    let mut seen = [0; 3];
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let disk = SimDisk::default();
        let mut machine = opened(&disk);
        for _ in 0..2 {
            let end = append(&mut machine, &disk);
            let place = machine.state_place(LOG).unwrap();
            place.save(&disk, end, &state(end)).unwrap();
        }
        let end = append(&mut machine, &disk);
        let place = machine.state_place(LOG).unwrap();
        disk.fail_after(random.below(12), "the power fails");
        let saved = place.save(&disk, end, &state(end)).is_ok();
        drop(machine);
        let disk = disk.power_cut(&mut random);
        let machine = opened(&disk);
        let found = machine.state_place(LOG).unwrap().load(&disk).unwrap();
        assert_eq!(found.state, state(found.offset), "seed {seed}");
        assert!(
            found.offset == 3 || found.offset == 2 && !saved,
            "seed {seed}"
        );
        seen[found.offset as usize - 1] += 1;
    }
    assert!(seen[1] > 20 && seen[2] > 20, "{seen:?}");
}

/// What a compaction has taken since an older state would come back with that.
#[test]
fn a_damaged_state_is_named_and_the_records_are_read() {
    let disk = SimDisk::default();
    let mut machine = opened(&disk);
    let mut kept = Vec::new();
    for _ in 0..4 {
        let end = append(&mut machine, &disk);
        let place = machine.state_place(LOG).unwrap();
        place.save(&disk, end, &state(end)).unwrap();
        let file = disk.path_of("state");
        kept.push((file.clone(), disk.bytes(&file)));
    }
    let place = machine.state_place(LOG).unwrap();
    let found = place.load(&disk).unwrap();
    assert_eq!(
        (found.offset, found.state, found.ignored),
        (4, state(4), vec![])
    );
    let paths = disk.paths().into_iter();
    let states = paths.filter(|path| path.rsplit('.').next() == Some("state"));
    assert_eq!(states.count(), 1);
    // A crash before the older one was removed has left it.
    let (older, newer) = (&kept[2], &kept[3]);
    let path = older.0.as_str().into();
    disk.perform(&DiskOp::Create { path }).unwrap();
    disk.overwrite(&older.0, older.1.clone());
    assert_eq!(place.load(&disk).unwrap().offset, 4);
    for at in (0..newer.1.len()).step_by(7) {
        let mut bytes = newer.1.clone();
        bytes[at] ^= 1;
        disk.overwrite(&newer.0, bytes);
        let found = place.load(&disk).unwrap();
        assert_eq!((found.offset, found.state), (0, vec![]), "flipped at {at}");
        assert_eq!(found.ignored, [format!("{} is damaged", newer.0)]);
    }
    // So a repair takes both, and the start after it reads the records.
    let streams = BTreeMap::from([("gpu".to_owned(), 1)]);
    let findings = verify(&disk, SMALL, &streams, |_, _| true, |_| ()).unwrap();
    let named = findings.iter().map(|found| &found.damage.path);
    assert_eq!(named.collect::<Vec<_>>(), [&newer.0]);
    let no = Consent::default();
    let actions = repair(&disk, SMALL, &streams, |_, _| true, no, false).unwrap();
    let gone = actions.iter().map(|action| (&action.path, action.backup));
    assert_eq!(
        gone.collect::<Vec<_>>(),
        [(&newer.0, true), (&older.0, true)]
    );
    let machine = opened(&disk);
    let found = machine.state_place(LOG).unwrap().load(&disk).unwrap();
    assert_eq!(found, FoundState::default());
}

#[test]
fn a_state_of_records_that_are_not_there_goes() {
    let disk = SimDisk::default();
    let mut machine = opened(&disk);
    append(&mut machine, &disk);
    let place = machine.state_place(LOG).unwrap();
    for offset in [0, 2] {
        assert!(place.save(&disk, offset, b"").is_err());
    }
    place.save(&disk, 1, b"true").unwrap();
    let file = disk.path_of("state");
    let later = file.replace("1.state", "2.state");
    let path = later.as_str().into();
    disk.perform(&DiskOp::Create { path }).unwrap();
    disk.overwrite(&later, disk.bytes(&file));
    let found = place.load(&disk).unwrap();
    assert_eq!((found.offset, &found.state[..]), (1, &b"true"[..]));
    let why = format!("{later} is newer than the log, which ends at 1");
    assert_eq!(found.ignored, [why]);
    append(&mut machine, &disk);
    let place = machine.state_place(LOG).unwrap();
    assert_eq!(place.load(&disk).unwrap().offset, 1);
}
