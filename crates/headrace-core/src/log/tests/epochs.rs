//! Leaders' epochs of a log whose journal is lost.

use std::collections::BTreeMap;

use super::*;
use crate::log::inspect::{repair, verify, Action, Consent};
use crate::log::open;
use crate::record::Batches;
use crate::testing::Random;

const LOG: LogId = LogId(0);
const SEGMENT: &str = "streams/gpu/0/00000000000000000000.log";
const EPOCHS: &str = "streams/gpu/0/leader-epoch-checkpoint";

/// A closed store with batches of four epochs, two of each, whose journal cannot be read.
fn lost() -> SimDisk {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    for at in 0..8 {
        machine.lead(LOG, at / 2 * 3).unwrap();
        machine.append(LOG, batch(1, 50, 1, 1000), 0, 0, 0).unwrap();
        commit(&mut machine, &disk);
    }
    machine.close();
    commit(&mut machine, &disk);
    let journal = disk.path_of("journal");
    let mut bytes = disk.bytes(&journal);
    bytes[0] ^= 1;
    disk.overwrite(&journal, bytes);
    disk
}

fn rebuilt(disk: &SimDisk) -> Vec<Action> {
    let streams = BTreeMap::from([("gpu".to_owned(), 1)]);
    let consent = Consent {
        rebuild_journal: true,
        ..Consent::default()
    };
    let actions = repair(disk, SMALL, &streams, |_, _| true, consent, false).unwrap();
    let left = verify(disk, SMALL, &streams, |_, _| true, |_| ());
    assert_eq!(left, Ok(Vec::new()));
    actions
}

#[test]
fn a_rebuilt_journal_has_the_epochs_of_the_batches() {
    for file in [Some("0\n1\n0 0\n"), Some("none"), None, Some("")] {
        let disk = lost();
        let (stored, told) = (disk.bytes(SEGMENT), disk.bytes(EPOCHS));
        match file {
            Some("") => disk.erase(EPOCHS),
            Some(text) => disk.overwrite(EPOCHS, text.into()),
            None => {}
        }
        rebuilt(&disk);
        assert_eq!(disk.bytes(SEGMENT), stored);
        let (mut machine, _) = open(&disk, SMALL).unwrap();
        assert_eq!(disk.bytes(EPOCHS), told);
        assert!(machine.lead(LOG, 8).is_err());
        machine.lead(LOG, 9).unwrap();
    }
}

#[test]
fn a_stamp_that_was_flipped_is_mended_without_a_journal_too() {
    let disk = lost();
    let stored = disk.bytes(SEGMENT);
    let second = Batches::new(&stored).nth(1).unwrap().unwrap().position;
    let mut bytes = stored.clone();
    bytes[second + 15] ^= 64; // of its epoch
    disk.overwrite(SEGMENT, bytes);
    let actions = rebuilt(&disk);
    assert!(
        actions.iter().any(|action| action.path == SEGMENT),
        "{actions:?}"
    );
    assert_eq!(disk.bytes(SEGMENT), stored);
}

/// The log's oldest checkpoint tells that it is new, and its first segment was trimmed since.
#[test]
fn a_start_that_is_cut_short_leaves_a_sound_file_as_it_was() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    commit(&mut machine, &disk);
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    for _ in 0..2 {
        machine.append(LOG, batch(1, 50, 1, 1000), 0, 0, 0).unwrap();
        machine.roll(LOG, 0).unwrap();
        commit(&mut machine, &disk);
    }
    let known = machine.plan_sources(LOG).unwrap().read(&disk).unwrap();
    let saving = machine.save_sources(LOG, &known).unwrap();
    save(&mut machine, &disk, saving);
    machine.trim(LOG, 1).unwrap();
    commit(&mut machine, &disk);
    assert_eq!(disk.size(SEGMENT), Ok(None));
    let streams = BTreeMap::from([("gpu".to_owned(), 1)]);
    for count in 0.. {
        let cut = disk.killed();
        cut.fail_after(count, "it is cut short");
        if open(&cut, SMALL).is_ok() {
            assert!(count > 20, "it has much to do");
            return;
        }
        for seed in 0..20 {
            let left = cut.power_cut(&mut Random::new(seed));
            let findings = verify(&left, SMALL, &streams, |_, _| true, |_| ());
            assert_eq!(findings, Ok(Vec::new()), "after {count} effects");
        }
    }
}

/// Its batch waits while rounds of another kind go on to the journal's next files.
#[test]
fn an_epoch_that_a_checkpoint_tells_of_before_its_batch_is_written_is_no_damage() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    for _ in 0..100 {
        machine.append(LOG, batch(1, 5, 1, 1000), 0, 0, 0).unwrap();
    }
    commit(&mut machine, &disk);
    let known = machine.plan_sources(LOG).unwrap().read(&disk).unwrap();
    let saving = machine.save_sources(LOG, &known).unwrap();
    save(&mut machine, &disk, saving);
    machine.lead(LOG, 1).unwrap();
    machine.append(LOG, batch(1, 5, 1, 1000), 0, 0, 0).unwrap(); // and is not submitted
    for offset in 1..100 {
        machine.trim(LOG, offset).unwrap();
        let round = machine.next_round(0).unwrap().build();
        perform(&disk, &round.before);
        perform(&disk, &round.after);
        machine.round_done(round, Ok(()), 0, 0);
        while let Some(chore) = machine.next_chore() {
            perform(&disk, &chore.ops);
            machine.chore_done(&chore, Ok(()));
        }
    }
    assert!(machine.statistics().journal_rotations > 1);
    let streams = BTreeMap::from([("gpu".to_owned(), 1)]);
    let findings = verify(&disk.killed(), SMALL, &streams, |_, _| true, |_| ());
    assert_eq!(findings, Ok(Vec::new()));
}
