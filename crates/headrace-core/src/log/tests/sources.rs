//! Sources beside a log: what is damaged is made up for exactly, or named.

use std::collections::BTreeMap;

use super::super::inspect::{self, Consent};
use super::super::{open, Compaction, CompactionSettings, Fsync, LogSettings, Sources};
use super::*;
use crate::record::Batches;
use crate::record::{Codec, SOURCES_MAX, SOURCE_EXPIRY_MS};
use crate::testing::Random;

const LOG: LogId = LogId(0);

fn opened(disk: &SimDisk) -> Machine {
    let (mut machine, _) = open(disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    machine
}

/// A batch as the switchboard builds it.
fn published(name: &str, sequence: u64, timestamp: i64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    let sequence = sequence.to_string();
    let headers = [("source", name), ("epoch", "1"), ("sequence", &sequence)];
    let headers = headers.map(|(name, value)| (name.as_bytes(), Some(value.as_bytes())));
    builder.push(timestamp, Some(b"key"), Some(b"value"), headers);
    builder.finish_published(Codec::None)
}

fn publish(machine: &mut Machine, disk: &SimDisk, name: &str, sequence: u64) {
    let sent = published(name, sequence, 0);
    machine.append(LOG, sent, 0, 0, 0).unwrap();
    commit(machine, disk);
}

fn keep(machine: &mut Machine, disk: &SimDisk) {
    let sources = machine.plan_sources(LOG).unwrap().read(disk).unwrap();
    let saving = machine.save_sources(LOG, &sources).unwrap();
    save(machine, disk, saving);
}

fn known(machine: &Machine, disk: &SimDisk) -> Result<Vec<(String, u64, u64)>, Error> {
    let sources = machine.plan_sources(LOG).unwrap().read(disk)?;
    Ok(sources.states())
}

fn snapshots(disk: &SimDisk) -> Vec<String> {
    let paths = disk.paths().into_iter();
    paths.filter(|path| path.ends_with(".sources")).collect()
}

/// A store whose older snapshot tells of `a`, and the newer of `b` as well; `trims` the records.
fn kept_twice(disk: &SimDisk, trims: bool) -> Machine {
    let mut machine = opened(disk);
    publish(&mut machine, disk, "a", 7);
    keep(&mut machine, disk);
    publish(&mut machine, disk, "b", 8);
    keep(&mut machine, disk);
    if trims {
        machine.roll(LOG, 0).unwrap();
        commit(&mut machine, disk);
        machine.trim(LOG, 2).unwrap();
        commit(&mut machine, disk);
    }
    machine
}

#[test]
fn while_the_records_are_there_a_lost_snapshot_costs_nothing() {
    for erase in [false, true] {
        let disk = SimDisk::default();
        let machine = kept_twice(&disk, false);
        let all = known(&machine, &disk).unwrap();
        assert_eq!(all, [("a".to_owned(), 1, 7), ("b".to_owned(), 1, 8)]);
        let newest = snapshots(&disk).pop().unwrap();
        if erase {
            disk.erase(&newest);
        } else {
            disk.overwrite(&newest, vec![0; 30]);
        }
        assert_eq!(known(&opened(&disk), &disk), Ok(all));
    }
}

fn spoil_newest(disk: &SimDisk) {
    disk.overwrite(&snapshots(disk).pop().unwrap(), vec![0; 30]);
}

/// Else a trim that finds all kept lets records go that only they tell of.
#[test]
fn a_damaged_snapshot_counts_as_none_and_goes_with_the_next() {
    let disk = SimDisk::default();
    let mut machine = kept_twice(&disk, false);
    machine.close();
    commit(&mut machine, &disk);
    spoil_newest(&disk);
    let copy = disk.clone();
    let mut machine = opened(&copy);
    assert!(machine.unkept_bytes(LOG).unwrap() > 0);
    let all = known(&machine, &copy).unwrap();
    keep(&mut machine, &copy);
    assert_eq!(machine.unkept_bytes(LOG), Ok(0));
    machine.roll(LOG, 0).unwrap();
    commit(&mut machine, &copy);
    machine.trim(LOG, 2).unwrap();
    commit(&mut machine, &copy);
    assert_eq!(known(&opened(&copy), &copy), Ok(all));

    let mut machine = opened(&disk);
    publish(&mut machine, &disk, "c", 9);
    keep(&mut machine, &disk);
    assert_eq!(snapshots(&disk).len(), 2, "the damaged one is gone");
    let all = known(&machine, &disk);
    spoil_newest(&disk);
    assert_eq!(known(&opened(&disk), &disk), all);
}

/// Who deletes records up to the same offset again and again has the sources kept each time.
#[test]
fn snapshots_of_records_that_a_power_cut_takes_push_out_no_other() {
    let disk = SimDisk::default();
    let mut machine = opened(&disk);
    let lazy = LogSettings {
        fsync: Fsync::Os,
        ..LogSettings::default()
    };
    machine.configure(LOG, lazy).unwrap();
    commit(&mut machine, &disk);
    for sequence in 0..4 {
        publish(&mut machine, &disk, "a", sequence);
    }
    keep(&mut machine, &disk);
    machine.trim(LOG, 2).unwrap();
    commit(&mut machine, &disk);
    for sequence in 4..8 {
        publish(&mut machine, &disk, "a", sequence);
        keep(&mut machine, &disk);
        assert_eq!(snapshots(&disk).len(), 2);
    }
    for seed in 0..100 {
        let disk = disk.power_cut(&mut Random::new(seed));
        let machine = opened(&disk);
        let (_, end) = machine.bounds(LOG).unwrap();
        let last = u64::try_from(end - 1).unwrap();
        let found = known(&machine, &disk);
        assert_eq!(found, Ok(vec![("a".to_owned(), 1, last)]), "seed {seed}");
    }
}

/// Else the next save lets go of one that is there, for the sake of one that is not.
#[test]
fn a_save_that_failed_counts_for_nothing() {
    let disk = SimDisk::default();
    let mut machine = opened(&disk);
    publish(&mut machine, &disk, "a", 7);
    keep(&mut machine, &disk);
    publish(&mut machine, &disk, "b", 8);
    let all = known(&machine, &disk).unwrap();
    let unkept = machine.unkept_bytes(LOG).unwrap();
    assert!(unkept > 0);
    let sources = machine.plan_sources(LOG).unwrap().read(&disk).unwrap();
    let named = |op: &DiskOp| matches!(op, DiskOp::Rename { .. });
    let saving = machine.save_sources(LOG, &sources).unwrap();
    let counts = 0..=saving.ops.iter().position(named).unwrap();
    for count in counts {
        let saving = machine.save_sources(LOG, &sources).unwrap();
        perform(&disk, &saving.ops[..count]);
        assert_eq!(machine.unkept_bytes(LOG), Ok(unkept), "{count} effects");
        assert_eq!(snapshots(&disk).len(), 1);
    }
    publish(&mut machine, &disk, "c", 9);
    keep(&mut machine, &disk);
    assert_eq!(machine.unkept_bytes(LOG), Ok(0));
    assert_eq!(snapshots(&disk).len(), 2, "the first and the last");
    spoil_newest(&disk);
    let machine = opened(&disk);
    assert_eq!(known(&machine, &disk).unwrap()[..2], all[..]);
}

/// Compacts all that is closed, as `headrace-io` does.
fn compact(machine: &mut Machine, disk: &SimDisk) {
    let settings = CompactionSettings {
        wall_ms: 0,
        delete_retention_ms: 0,
        min_lag_ms: 0,
        span_ms: None,
    };
    let pass = machine.plan_compaction(LOG, settings).unwrap().unwrap();
    let mut survey = pass.survey(disk, &mut Compaction::default()).unwrap();
    let saving = machine.keep_sources(&mut survey).unwrap();
    save(machine, disk, saving);
    for group in survey.groups() {
        let fresh = survey.clean(disk, &group, &mut Compaction::default());
        assert!(machine.replace(fresh.unwrap()).unwrap());
        commit(machine, disk);
    }
}

#[test]
fn a_lost_snapshot_of_records_that_are_gone_is_named_until_it_is_repaired() {
    for (erase, trims) in [(false, true), (false, false), (true, false)] {
        let disk = SimDisk::default();
        let mut machine = kept_twice(&disk, trims);
        if !trims {
            machine.roll(LOG, 0).unwrap();
            commit(&mut machine, &disk);
            compact(&mut machine, &disk);
        }
        drop(machine);
        let [older, newest] = &snapshots(&disk)[..] else {
            panic!("two are kept")
        };
        let lost = if erase { older } else { newest };
        if erase {
            disk.erase(newest);
        } else {
            disk.overwrite(newest, vec![0; 30]);
        }
        let refused = known(&opened(&disk), &disk).unwrap_err().to_string();
        assert!(refused.starts_with(lost.as_str()), "{refused}");
        assert!(refused.contains("headrace log repair"), "{refused}");

        let streams = BTreeMap::from([("gpu".to_owned(), 1)]);
        let found = inspect::verify(&disk, SMALL, &streams, |_, _| true, |_| ()).unwrap();
        assert_eq!(&found[0].damage.path, lost);
        let consent = Consent::default();
        let repair = || inspect::repair(&disk, SMALL, &streams, |_, _| true, consent, false);
        assert!(!repair().unwrap().is_empty());
        let knows = known(&opened(&disk), &disk).unwrap();
        assert_eq!(knows[0], ("a".to_owned(), 1, 7));
        assert_eq!(repair(), Ok(vec![]));
    }
}

#[test]
fn snapshots_that_were_all_removed_are_missed() {
    for (trims, closes) in [(true, false), (false, false), (false, true)] {
        let disk = SimDisk::default();
        let mut machine = kept_twice(&disk, trims);
        if !trims {
            machine.roll(LOG, 0).unwrap();
            commit(&mut machine, &disk);
            compact(&mut machine, &disk);
        }
        if closes {
            machine.close();
            commit(&mut machine, &disk);
        }
        drop(machine);
        for path in snapshots(&disk) {
            disk.erase(&path);
        }
        opened(&disk); // the journal goes on telling of them
        all_are_missed(&disk);
    }
}

fn all_are_missed(disk: &SimDisk) {
    let refused = known(&opened(disk), disk).unwrap_err().to_string();
    let place = "streams/gpu/0/00000000000000000002.sources";
    assert!(refused.starts_with(place), "{refused}");
    let streams = BTreeMap::from([("gpu".to_owned(), 1)]);
    let found = inspect::verify(disk, SMALL, &streams, |_, _| true, |_| ()).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].damage.path, place);
    let consent = Consent::default();
    let repair = || inspect::repair(disk, SMALL, &streams, |_, _| true, consent, false);
    let actions = repair().unwrap();
    assert_eq!(actions.len(), 1, "{actions:?}");
    assert!(known(&opened(disk), disk).is_ok());
    assert_eq!(repair(), Ok(vec![]));
}

#[test]
fn nothing_is_kept_beside_a_log_that_is_being_deleted() {
    let disk = SimDisk::default();
    let mut machine = opened(&disk);
    publish(&mut machine, &disk, "a", 7);
    let sources = machine.plan_sources(LOG).unwrap().read(&disk).unwrap();
    machine.delete_stream("gpu").unwrap();
    let refused = machine.save_sources(LOG, &sources).map(drop);
    assert_eq!(refused, Err(Error::Argument("there is no log 0".into())));
}

/// What a pass takes may be below the newest snapshot, and above an older one.
#[test]
fn a_pass_that_ends_before_the_newest_snapshot_needs_no_other() {
    let disk = SimDisk::default();
    let mut machine = opened(&disk);
    for sequence in 0..6 {
        publish(&mut machine, &disk, "a", sequence);
        if sequence == 2 || sequence == 4 {
            machine.roll(LOG, 0).unwrap();
            commit(&mut machine, &disk);
        }
    }
    keep(&mut machine, &disk);
    machine.trim(LOG, 2).unwrap();
    commit(&mut machine, &disk);
    compact(&mut machine, &disk);
    assert_eq!(snapshots(&disk).len(), 1);
    assert_eq!(
        known(&opened(&disk), &disk).unwrap(),
        [("a".to_owned(), 1, 5)]
    );
}

#[test]
fn what_is_not_kept_is_counted() {
    let disk = SimDisk::default();
    let mut machine = opened(&disk);
    publish(&mut machine, &disk, "a", 7);
    assert!(machine.unkept_bytes(LOG).unwrap() > 0);
    keep(&mut machine, &disk);
    assert_eq!(opened(&disk).unkept_bytes(LOG), Ok(0));
}

/// What a flipped bit makes of a sequence, its source has never sent.
#[test]
fn a_damaged_record_is_no_publishers_word() {
    let disk = SimDisk::default();
    let mut machine = opened(&disk);
    publish(&mut machine, &disk, "a", 7);
    machine.roll(LOG, 0).unwrap();
    publish(&mut machine, &disk, "b", 8);
    let segment = "streams/gpu/0/00000000000000000000.log";
    let mut bytes = disk.bytes(segment);
    let at = bytes.windows(1).rposition(|found| found == b"7").unwrap();
    bytes[at] = b'9';
    disk.overwrite(segment, bytes);
    assert!(matches!(known(&machine, &disk), Err(Error::Corrupt(_))));
    let salvaged = machine.plan_sources(LOG).unwrap().salvage(&disk).unwrap();
    assert_eq!(salvaged.states(), [("b".to_owned(), 1, 8)]);
}

fn note(sources: &mut Sources, name: &str, sequence: u64, timestamp: i64) {
    let batch = published(name, sequence, timestamp);
    let batch = Batches::new(&batch).next().unwrap().unwrap();
    sources.note(&batch, &mut Vec::new());
}

#[test]
fn who_was_silent_for_long_is_forgotten_and_a_clock_that_leaps_costs_nobody() {
    let mut sources = Sources::default();
    note(&mut sources, "a", 7, 0);
    note(&mut sources, "busy", 1, 100 * SOURCE_EXPIRY_MS); // it leaps
    note(&mut sources, "busy", 2, 1);
    assert_eq!(sources.states().len(), 2);
    note(&mut sources, "busy", 3, 101 * SOURCE_EXPIRY_MS + 1);
    assert_eq!(sources.states(), [("busy".to_owned(), 1, 3)]);
}

#[test]
fn made_up_names_are_bounded_and_the_longest_silent_go_first() {
    let mut sources = Sources::default();
    for at in 0..3 * SOURCES_MAX as u64 {
        note(&mut sources, &at.to_string(), at, 0);
        if at % 1000 == 0 {
            note(&mut sources, "busy", at, 0);
        }
    }
    let states = sources.states();
    assert!((SOURCES_MAX..=2 * SOURCES_MAX).contains(&states.len()));
    let knows = |name: &str| states.iter().any(|(found, ..)| found == name);
    assert!(knows("busy") && !knows("0"));
}

#[test]
fn sources_are_kept_twice_however_often_they_are_saved() {
    let disk = SimDisk::default();
    for life in 0..5 {
        let (mut machine, _) = open(&disk, SMALL).unwrap();
        machine.open_log("gpu", 0, 1, 0).unwrap();
        for save in 0..2 {
            machine.append(LOG, batch(1, 9, 1, 1), 0, 0, 0).unwrap();
            commit(&mut machine, &disk);
            let (_, end) = machine.bounds(LOG).unwrap();
            let sources = Sources::of(end, &[("s".to_owned(), 1, 10 * life + save)]);
            let saving = machine.save_sources(LOG, &sources).unwrap();
            super::save(&mut machine, &disk, saving);
            let found = machine.plan_sources(LOG).unwrap().read(&disk);
            assert_eq!(found, Ok(sources));
        }
        let is_kept = |path: &String| path.ends_with(".sources");
        assert_eq!(disk.paths().into_iter().filter(is_kept).count(), 2);
    }
}
