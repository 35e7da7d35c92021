//! One bit of a stored batch, wherever it stands: readers get what was stored, or are refused.

use std::collections::BTreeMap;
use std::panic::catch_unwind;

use super::compact::compact_once;
use super::memory::find_time;
use super::{commit, produced, read, SMALL};
use crate::log::inspect::{repair, verify, Consent};
use crate::log::layout;
use crate::log::machine::Machine;
use crate::log::partition::LogId;
use crate::log::{open, Error};
use crate::record::{BatchBuilder, BatchHeader, Batches, HEADER_BYTES};
use crate::testing::SimDisk;

const LOG: LogId = LogId(0);
const END: i64 = 24;

/// A log of three epochs whose closed segments are small, compacted or as they were appended: of
/// an idempotent producer, of others, with all records gone, first, in between and last.
fn store(compacted: bool) -> SimDisk {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    commit(&mut machine, &disk);
    let mut sequence = 0;
    for at in 0..END / 2 {
        if at == 3 || at == 6 {
            machine.lead(LOG, at as i32).unwrap();
        }
        let mut builder = BatchBuilder::new();
        for record in 0..2 {
            // Of three batches one keeps both records, one a single one, one none.
            let unique = at % 3 == 0 || at % 3 == 1 && record == 0;
            let key = if unique { 1000 + 2 * at + record } else { 0 };
            builder.push(
                1000 + 2 * at + record,
                Some(&key.to_be_bytes()),
                Some(b"v"),
                [],
            );
        }
        let mut batch = builder.finish();
        if at % 4 == 0 {
            batch = produced(batch, 7, 0, sequence);
            sequence += 2;
        }
        machine.append(LOG, batch, 0, 0, 0).unwrap();
        commit(&mut machine, &disk);
        if at % 5 == 4 {
            machine.roll(LOG, 0).unwrap();
            commit(&mut machine, &disk);
        }
    }
    if compacted {
        compact_once(&mut machine, &disk);
    }
    machine.close();
    commit(&mut machine, &disk);
    assert!(machine.is_closed());
    disk
}

/// What readers are told, at every offset and every time.
#[derive(Debug, PartialEq)]
struct Told {
    reads: Vec<Result<Vec<u8>, Error>>,
    times: Vec<Result<Option<i64>, Error>>,
}

fn told(machine: &mut Machine, disk: &SimDisk) -> Told {
    Told {
        reads: (0..END)
            .map(|offset| read(machine, disk, LOG, offset, 300))
            .collect(),
        times: (998..1002 + END)
            .map(|time| find_time(machine, disk, time))
            .collect(),
    }
}

/// Closed segments' files.
fn closed(disk: &SimDisk) -> Vec<String> {
    let is_segment = |path: &String| {
        let kind = path.rsplit_once('.').map(|(_, kind)| kind);
        kind == Some(layout::SEGMENT)
    };
    let mut logs: Vec<String> = disk.paths().into_iter().filter(is_segment).collect();
    logs.sort();
    logs.pop();
    logs
}

/// Where the bits of all headers stand, and one byte of each batch's records.
fn places(bytes: &[u8]) -> Vec<usize> {
    let batches = Batches::new(bytes).map(Result::unwrap);
    let bytes = batches.flat_map(|batch| {
        let end = batch.bytes.len().min(HEADER_BYTES + 1);
        batch.position..batch.position + end
    });
    bytes.flat_map(|at| 8 * at..8 * at + 8).collect()
}

/// The offsets and times that are refused; all others are told as they were before `path` changed.
fn refused(sound: &Told, found: &Told, path: &str) -> usize {
    let mut refused = 0;
    for (offset, (found, sound)) in found.reads.iter().zip(&sound.reads).enumerate() {
        match (found, sound) {
            (Ok(found), Ok(sound)) => {
                let is_part = !found.is_empty() && sound.starts_with(found);
                assert!(is_part, "offset {offset}: {found:?}, not {sound:?}");
            }
            (Err(Error::Corrupt(damage)), Ok(_)) if damage.path == path => refused += 1,
            other => panic!("offset {offset}: {other:?}"),
        }
    }
    for (at, (found, sound)) in found.times.iter().zip(&sound.times).enumerate() {
        match found {
            Err(Error::Corrupt(damage)) if damage.path == path => refused += 1,
            found => assert_eq!(found, sound, "time {}", 998 + at),
        }
    }
    refused
}

#[test]
fn no_bit_of_a_closed_segment_is_told_other_than_it_was_stored() {
    for compacted in [false, true] {
        let disk = store(compacted);
        let copy = disk.clone();
        let mut machine = open(&copy, SMALL).unwrap().0;
        let sound = told(&mut machine, &copy);
        for path in closed(&disk) {
            let stored = disk.bytes(&path);
            for place in places(&stored) {
                let mut bytes = stored.clone();
                bytes[place / 8] ^= 1 << (place % 8);
                copy.overwrite(&path, bytes);
                let found = told(&mut machine, &copy);
                let context = format!("byte {}, bit {} of {path}", place / 8, place % 8);
                let told = catch_unwind(|| refused(&sound, &found, &path));
                assert!(told.is_ok_and(|refused| refused > 0), "{context}");
                if place / 8 % 8 == place % 8 {
                    assert_verify_tells(&disk, &path, &copy.bytes(&path), &context);
                }
            }
            copy.overwrite(&path, stored);
        }
    }
}

/// The producer's last batch once more, and its next.
fn answers(machine: &mut Machine) -> [String; 2] {
    [(1, 2), (2, 4)].map(|(records, sequence)| {
        let sent = produced(super::batch(2, records, 1, 1), 7, 1, sequence);
        format!("{:?}", machine.append(LOG, sent, 0, 0, 0))
    })
}

/// An active segment that is too small for files beside it is read, with CRCs.
#[test]
fn no_bit_that_flipped_before_an_orderly_start_is_believed() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    for at in 0..12 {
        let time = if at == 3 { 1020 } else { 1000 + at };
        let mut sent = super::batch(2, 1, 1, time);
        if at % 6 == 4 {
            sent = produced(sent, 7, 1, i32::from(at > 6) * 2);
        }
        machine.append(LOG, sent, 0, 0, 0).unwrap();
        commit(&mut machine, &disk);
    }
    machine.close();
    commit(&mut machine, &disk);
    let path = disk.path_of("log");
    assert!(!disk.paths().iter().any(|path| path.ends_with(".timeindex")));
    let copy = disk.clone();
    let mut machine = open(&copy, SMALL).unwrap().0;
    let sound = (told(&mut machine, &copy), answers(&mut machine));
    assert!(
        sound.1.iter().all(|answer| answer.starts_with("Ok")),
        "{:?}",
        sound.1
    );
    let stored = disk.bytes(&path);
    for place in places(&stored) {
        let copy = disk.clone();
        let mut bytes = stored.clone();
        bytes[place / 8] ^= 1 << (place % 8);
        copy.overwrite(&path, bytes);
        let context = format!("byte {}, bit {}", place / 8, place % 8);
        match open(&copy, SMALL) {
            Err(Error::Corrupt(damage)) => assert_eq!(damage.path, path, "{context}"),
            Err(error) => panic!("{context}: {error}"),
            Ok((mut machine, report)) => {
                assert!(report.clean);
                assert!(
                    refused(&sound.0, &told(&mut machine, &copy), &path) > 0,
                    "{context}"
                );
                assert_eq!(answers(&mut machine), sound.1, "{context}");
            }
        }
    }
}

/// A start after a kill makes it anew, and the first sign of a failing disk must not go with it.
#[test]
fn an_index_that_was_flipped_is_named_after_a_kill_too() {
    let disk = store(false);
    drop(open(&disk, SMALL).unwrap()); // which was not closed
    let mut flipped = 0;
    for path in closed(&disk) {
        let index = path.replace(layout::SEGMENT, layout::TIME_INDEX);
        let mut bytes = disk.bytes(&index);
        bytes[7] ^= 1;
        let named = path.replace(layout::SEGMENT, layout::INDEX);
        let copy = disk.clone();
        copy.overwrite(&index, bytes);
        let findings = verify(&copy, SMALL, &incarnations(), |_, _| true, |_| {}).unwrap();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert_eq!(findings[0].damage.path, named);
        flipped += 1;
    }
    assert!(flipped > 1);
}

#[test]
fn a_snapshot_of_producers_that_was_flipped_is_named_after_a_kill_too() {
    let disk = store(false);
    drop(open(&disk, SMALL).unwrap()); // which was not closed
    let is_snapshot = |path: &String| path.ends_with(layout::PRODUCERS);
    let snapshots: Vec<String> = disk.paths().into_iter().filter(is_snapshot).collect();
    assert_eq!(snapshots.len(), 2);
    for path in snapshots {
        let mut bytes = disk.bytes(&path);
        *bytes.last_mut().expect("a checksum") ^= 1;
        let copy = disk.clone();
        copy.overwrite(&path, bytes);
        let findings = verify(&copy, SMALL, &incarnations(), |_, _| true, |_| {}).unwrap();
        let named: Vec<&str> = findings.iter().map(|found| &*found.damage.path).collect();
        assert_eq!(named, [path]);
    }
}

fn assert_verify_tells(disk: &SimDisk, path: &str, bytes: &[u8], context: &str) {
    let damaged = disk.clone();
    damaged.overwrite(path, bytes.to_vec());
    let findings = verify(&damaged, SMALL, &incarnations(), |_, _| true, |_| {}).unwrap();
    let is_found = findings.iter().any(|finding| finding.damage.path == path);
    assert!(is_found, "{context}: {findings:?}");
}

fn incarnations() -> BTreeMap<String, u64> {
    BTreeMap::from([("gpu".to_owned(), 1)])
}

/// Which offset a stamp should be, its neighbours tell, in a compacted segment too.
#[test]
fn a_stamp_that_was_flipped_is_mended_from_its_neighbours() {
    let disk = store(true);
    let path = &closed(&disk)[0];
    let stored = disk.bytes(path);
    let headers = Batches::new(&stored).map(|batch| batch.unwrap().position);
    for position in headers {
        for byte in [0, 5, 7, 13, 15] {
            let mut bytes = stored.clone();
            bytes[position + byte] ^= 4;
            let copy = disk.clone();
            copy.overwrite(path, bytes);
            let no = Consent::default();
            let actions = repair(&copy, SMALL, &incarnations(), |_, _| true, no, false).unwrap();
            assert_eq!(actions.len(), 1, "{actions:?}");
            assert_eq!(copy.bytes(path), stored, "byte {byte} of {position}");
        }
    }
}

/// What stands in for records that are given up is of their epoch, and readers go on behind it.
#[test]
fn a_batch_that_is_dropped_leaves_one_that_readers_take() {
    let disk = store(false);
    let consent = Consent {
        drop_damaged: true,
        ..Consent::default()
    };
    for path in closed(&disk) {
        let copy = disk.clone();
        let mut bytes = copy.bytes(&path);
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        copy.overwrite(&path, bytes);
        repair(&copy, SMALL, &incarnations(), |_, _| true, consent, false).unwrap();
        let left = verify(&copy, SMALL, &incarnations(), |_, _| true, |_| {});
        assert_eq!(left, Ok(Vec::new()));
        let mut machine = open(&copy, SMALL).unwrap().0;
        let found = told(&mut machine, &copy);
        assert!(found.reads.iter().all(Result::is_ok), "{found:?}");
    }
}

/// Every offset has its batch, so that each stamp can be held against the end of the one before.
#[test]
fn a_compacted_segment_has_a_batch_for_every_offset() {
    let disk = store(true);
    let (mut next, mut kept, mut stretched) = (0, 0, 0);
    for path in closed(&disk) {
        let bytes = disk.bytes(&path);
        for batch in Batches::new(&bytes).map(Result::unwrap) {
            let header: BatchHeader = batch.header;
            assert_eq!(header.base_offset, next);
            next = header.next_offset();
            kept += header.count;
            let is_longer = header.last_offset_delta > 1;
            stretched += i32::from(is_longer && header.count > 0);
            assert!(
                !is_longer || !header.has_producer(),
                "its sequences are its offsets"
            );
        }
    }
    assert!(next > END / 2 && i64::from(kept) < next * 2 / 3 && stretched > 0);
}
