//! Cuts and flips at every byte: mended where the journal can, refused by name where it cannot.

use super::memory::find_time;
use super::{batch, commit, perform, read, stamped, SMALL};
use crate::log::machine::Machine;
use crate::log::partition::LogId;
use crate::log::{open, Error};
use crate::record::HEADER_BYTES;
use crate::testing::SimDisk;

/// A store with ten acknowledged batches; half of them below the durable point.
struct Small {
    disk: SimDisk,
    expected: Vec<u8>,
    /// Bytes of the segment that a checkpoint tells of.
    durable: usize,
    journal: String,
    segment: String,
}

impl Small {
    fn new() -> Self {
        let disk = SimDisk::default();
        let mut expected = Vec::new();
        let (mut machine, _) = open(&disk, SMALL).unwrap();
        for at in 0..5 {
            expected.extend(append(&mut machine, &disk, at));
        }
        let durable = expected.len();
        drop(machine); // as a crash would; opening again checkpoints what is there
        let (mut machine, _) = open(&disk, SMALL).unwrap();
        for at in 5..10 {
            expected.extend(append(&mut machine, &disk, at));
        }
        let journal = disk.path_of("journal");
        let segment = disk.path_of("log");
        assert_eq!(disk.bytes(&segment), expected);
        Self {
            disk,
            expected,
            durable,
            journal,
            segment,
        }
    }

    /// Opens a copy in which `path` holds `bytes`.
    fn opened_with(&self, path: &str, bytes: Vec<u8>) -> Result<Vec<u8>, Error> {
        let disk = self.disk.clone();
        disk.overwrite(path, bytes);
        let (mut machine, _) = open(&disk, SMALL)?;
        let log = machine.open_log("gpu", 0, 1, 0)?;
        read(&mut machine, &disk, log, 0, usize::MAX >> 1)
    }

    fn flipped(&self, path: &str, at: usize) -> Vec<u8> {
        let mut bytes = self.disk.bytes(path);
        bytes[at] ^= 0x10;
        bytes
    }
}

/// Appends one batch and has it acknowledged.
fn append(machine: &mut Machine, disk: &SimDisk, at: u8) -> Vec<u8> {
    let log = machine.open_log("gpu", 0, 1, 0).unwrap();
    let sent = batch(2, 40 + usize::from(at), at, 1000);
    let appended = machine.append(log, sent.clone(), 0, 0, 0).unwrap();
    commit(machine, disk);
    stamped(sent, appended.base_offset)
}

fn damaged(outcome: Result<Vec<u8>, Error>, path: &str, context: &str) -> u64 {
    match outcome {
        Err(Error::Corrupt(damage)) => {
            assert_eq!(damage.path, path, "{context}");
            damage.position
        }
        other => panic!("{context}: {other:?}"),
    }
}

#[test]
fn a_segment_cut_anywhere_is_mended_above_and_refused_below_the_durable_point() {
    let small = Small::new();
    for cut in 0..small.expected.len() {
        let outcome = small.opened_with(&small.segment, small.expected[..cut].to_vec());
        if cut < small.durable {
            let position = damaged(outcome, &small.segment, &format!("cut at {cut}"));
            assert_eq!(position, cut as u64);
        } else {
            assert_eq!(outcome.unwrap(), small.expected, "cut at {cut}");
        }
    }
}

#[test]
fn a_bit_flipped_in_a_segment_is_mended_or_refused() {
    let small = Small::new();
    for at in 0..small.expected.len() {
        let outcome = small.opened_with(&small.segment, small.flipped(&small.segment, at));
        // The page that the journal can rebuild begins below the durable point.
        assert_eq!(outcome.unwrap(), small.expected, "flipped at {at}");
    }
}

#[test]
fn a_bit_flipped_in_durable_pages_is_refused_with_its_batch() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    for at in 0..60 {
        append(&mut machine, &disk, at);
    }
    drop(machine);
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    append(&mut machine, &disk, 60);
    let path = disk.path_of("log");
    let sound = disk.bytes(&path);
    for at in 0..4096 {
        let copy = disk.clone();
        let mut bytes = sound.clone();
        bytes[at] ^= 1;
        copy.overwrite(&path, bytes);
        // The leader epoch is what a leader may rewrite; nothing vouches for it.
        let batches: Vec<usize> = crate::record::Batches::new(&sound)
            .map(|batch| batch.unwrap().position)
            .collect();
        let begins = batches[batches.partition_point(|begins| *begins <= at) - 1];
        let outcome = open(&copy, SMALL).map(|_| Vec::new());
        if (12..16).contains(&(at - begins)) {
            assert!(outcome.is_ok(), "flipped at {at}");
        } else {
            let position = damaged(outcome, &path, &format!("flipped at {at}"));
            assert_eq!(position, begins as u64, "flipped at {at}");
        }
        assert_eq!(copy.bytes(&path).len(), sound.len(), "nothing is cut");
    }
}

#[test]
fn a_journal_cut_anywhere_is_refused() {
    let small = Small::new();
    let bytes = small.disk.bytes(&small.journal);
    for cut in (0..bytes.len()).step_by(61).chain([bytes.len() - 1]) {
        let outcome = small.opened_with(&small.journal, bytes[..cut].to_vec());
        let position = damaged(outcome, &small.journal, &format!("cut at {cut}"));
        assert!(position <= cut as u64);
    }
}

#[test]
fn a_last_round_torn_or_flipped_at_any_byte_is_what_the_segment_has_of_it() {
    let small = Small::new();
    let bytes = small.disk.bytes(&small.journal);
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let start = end / 4096 * 4096;
    let last = small.expected.len() - stamped(batch(2, 49, 9, 1000), 18).len();
    let before = Small::new();
    let segment = small.expected[..last].to_vec();
    before.disk.overwrite(&small.segment, segment);
    for at in start..=end {
        let mut torn = bytes.clone();
        torn[at..].fill(0);
        let flipped = small.flipped(&small.journal, at);
        // It was torn: nothing of it is in the segment yet.
        let found = before.opened_with(&small.journal, torn).unwrap();
        assert_eq!(found, small.expected[..last], "torn at {at}");
        // It was damaged later: the segment has what was acknowledged.
        let found = small.opened_with(&small.journal, flipped).unwrap();
        assert_eq!(found, small.expected, "flipped at {at}");
    }
}

#[test]
fn a_bit_flipped_in_an_earlier_round_is_refused_with_its_place() {
    let small = Small::new();
    let bytes = small.disk.bytes(&small.journal);
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() / 4096 * 4096;
    for round in (4096..end).step_by(4096) {
        for at in (round..round + 60).step_by(3) {
            let outcome = small.opened_with(&small.journal, small.flipped(&small.journal, at));
            let position = damaged(outcome, &small.journal, &format!("flipped at {at}"));
            assert_eq!(position, round as u64, "flipped at {at}");
        }
    }
}

#[test]
fn a_missing_segment_or_journal_file_is_refused_by_name() {
    let small = Small::new();
    for path in [&small.segment, &small.journal] {
        let disk = small.disk.clone();
        disk.erase(path);
        let refused = open(&disk, SMALL).map(|(mut machine, _)| machine.open_log("gpu", 0, 1, 0));
        let text = match refused {
            Ok(opened) => opened.unwrap_err().to_string(),
            Err(error) => error.to_string(),
        };
        let folder = small.segment.rsplit_once('/').unwrap().0;
        assert!(text.contains(folder), "{text}");
        assert!(disk.paths().contains(&small.segment) || path == &small.segment);
    }
}

#[test]
fn side_files_that_are_damaged_or_stale_change_nothing() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    let mut expected = Vec::new();
    for at in 0..60 {
        let log = machine.open_log("gpu", 0, 1, 0).unwrap();
        let sent = batch(3, 300, at, 1000 + 10 * i64::from(at));
        let offset = machine
            .append(log, sent.clone(), 0, 0, 0)
            .unwrap()
            .base_offset;
        commit(&mut machine, &disk);
        expected.push((offset, stamped(sent, offset)));
    }
    machine.close();
    commit(&mut machine, &disk);
    assert!(machine.is_closed());
    let side = |path: &String| path.contains("index") || path.ends_with("producers");
    let files: Vec<String> = disk.paths().into_iter().filter(side).collect();
    assert!(files.len() >= 6, "{files:?}");
    for path in files {
        let sound = disk.bytes(&path);
        for at in 0..=sound.len() {
            let copy = disk.clone();
            let mut bytes = sound.clone();
            match bytes.get_mut(at) {
                Some(byte) => *byte ^= 0x21,
                None => bytes.clear(),
            }
            copy.overwrite(&path, bytes);
            assert_reads(&copy, &expected, &format!("{path} at {at}"));
        }
    }
}

fn assert_reads(disk: &SimDisk, expected: &[(i64, Vec<u8>)], context: &str) {
    let (mut machine, _) = open(disk, SMALL).unwrap();
    for (offset, batch) in expected {
        let found = read(&mut machine, disk, LogId(0), *offset, 1);
        assert_eq!(found.as_ref(), Ok(batch), "{context}, offset {offset}");
    }
    for (at, (offset, _)) in expected.iter().enumerate() {
        let found = find_time(&mut machine, disk, 1000 + 10 * at as i64);
        assert_eq!(found, Ok(Some(*offset)), "{context}, time of {offset}");
    }
}

#[test]
fn a_journal_file_whose_first_round_is_spoilt_is_refused_and_kept() {
    let small = Small::new();
    let (machine, _) = open(&small.disk, SMALL).unwrap();
    drop(machine); // the journal is one round now, which tells of all that there is
    let journal = small.disk.path_of("journal");
    for at in (4096..4180).step_by(3) {
        let outcome = small.opened_with(&journal, small.flipped(&journal, at));
        assert_eq!(
            damaged(outcome, &journal, &format!("flipped at {at}")),
            4096
        );
    }
}

/// The files of the journal.
fn journal_files(disk: &SimDisk) -> Vec<String> {
    let paths = disk.paths().into_iter();
    paths.filter(|path| path.ends_with(".journal")).collect()
}

/// A store whose journal has just gone on to a second file, and the batches in it. The first one
/// is needed until a chore has synced what it tells of.
fn rotated() -> (SimDisk, Vec<(i64, Vec<u8>)>) {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    let mut expected = Vec::new();
    append(&mut machine, &disk, 0); // and the spare is ready
    while journal_files(&disk).len() < 2 {
        let sent = batch(1, 3000, expected.len() as u8, 1000);
        let offset = machine.append(LogId(0), sent.clone(), 0, 0, 0).unwrap();
        machine.submit();
        let mut draft = machine.next_round(0);
        if draft.is_none() {
            // A roll waits until those before it are synced.
            let chore = machine.next_chore().expect("it waits for one");
            perform(&disk, &chore.ops);
            machine.chore_done(&chore, Ok(()));
            draft = machine.next_round(0);
        }
        let round = draft.expect("nothing else is waited for").build();
        perform(&disk, &round.before);
        perform(&disk, &round.after);
        machine.round_done(round, Ok(()), 0, 0);
        let offset = offset.base_offset;
        expected.push((offset, stamped(sent, offset)));
    }
    (disk.killed(), expected)
}

#[test]
fn a_journal_file_whose_header_is_spoilt_is_refused_and_nothing_is_forgotten() {
    let (disk, expected) = rotated();
    let mut copy = disk.clone();
    let (mut machine, _) = open(&copy, SMALL).unwrap();
    for (offset, batch) in expected {
        let found = read(&mut machine, &copy, LogId(0), offset, 1);
        assert_eq!(found, Ok(batch));
    }
    for path in journal_files(&disk) {
        for at in 0..64 {
            copy = disk.clone();
            let mut bytes = copy.bytes(&path);
            bytes[at] ^= 1;
            let is_used = at < 60; // the rest of the page is nothing
            copy.overwrite(&path, bytes);
            match open(&copy, SMALL) {
                Err(Error::Corrupt(damage)) if is_used => assert_eq!(damage.path, path),
                outcome => assert!(!is_used && outcome.is_ok(), "{path} at {at}"),
            }
        }
    }
}

#[test]
fn files_of_an_earlier_start_may_be_spoilt() {
    let (disk, _) = rotated();
    let old = journal_files(&disk);
    let dies = (0..200).find(|count| {
        // A start that dies when it has its own file and not yet removed the others.
        let copy = disk.clone();
        copy.fail_after(*count, "this start is cut short");
        open(&copy, SMALL).is_err() && journal_files(&copy).len() == old.len() + 1
    });
    disk.fail_after(dies.expect("it writes its own first"), "it is cut short");
    open(&disk, SMALL).unwrap_err();
    let disk = disk.killed();
    for path in old {
        let copy = disk.clone();
        let mut bytes = copy.bytes(&path);
        bytes[20] ^= 1;
        copy.overwrite(&path, bytes);
        assert_eq!(open(&copy, SMALL).map(drop), Ok(()));
    }
}

#[test]
fn a_batch_that_is_damaged_in_an_old_segment_is_refused_to_readers_and_the_others_are_not() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    let mut expected = Vec::new();
    for at in 0..80 {
        let log = machine.open_log("gpu", 0, 1, 0).unwrap();
        let sent = batch(2, 300, at, 1000 + 10 * i64::from(at));
        let appended = machine.append(log, sent.clone(), 0, 0, 0).unwrap();
        let offset = appended.base_offset;
        commit(&mut machine, &disk);
        expected.push((offset, stamped(sent, offset)));
    }
    machine.close();
    commit(&mut machine, &disk);
    let path = disk.path_of("log");
    let sound = disk.bytes(&path);
    let bytes = expected[0].1.len();
    // The third batch; and what stands before it comes to readers all the same.
    for at in (2 * bytes + HEADER_BYTES..3 * bytes).step_by(3) {
        let copy = disk.clone();
        let mut flipped = sound.clone();
        flipped[at] ^= 1;
        copy.overwrite(&path, flipped);
        let (mut machine, _) = open(&copy, SMALL).unwrap();
        for (index, (offset, batch)) in expected.iter().enumerate() {
            let found = read(&mut machine, &copy, LogId(0), *offset, 1);
            if index == 2 {
                assert_eq!(damaged(found, &path, "a reader"), 2 * bytes as u64);
            } else {
                assert_eq!(found.as_ref(), Ok(batch), "at {at}");
            }
        }
        let before = read(&mut machine, &copy, LogId(0), 0, 10 * bytes).unwrap();
        assert_eq!(before, sound[..2 * bytes], "at {at}");
        let time = find_time(&mut machine, &copy, 1021);
        assert!(matches!(time, Err(Error::Corrupt(_))), "{time:?}");
    }
}

/// What the journal told last is lost, as if it had never been synced, and the files are gone.
#[test]
fn a_deletion_that_the_journal_has_lost_is_refused_by_the_folder_that_is_missing() {
    let (disk, _) = rotated();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    machine.delete_stream("gpu").unwrap();
    let round = machine.next_round(0).unwrap().build();
    super::perform(&disk, &round.before);
    machine.round_done(round, Ok(()), 0, 0);
    super::perform(&disk, &machine.empty_trash());
    let path = journal_files(&disk).pop().unwrap();
    let mut bytes = disk.bytes(&path);
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[end] ^= 1;
    disk.overwrite(&path, bytes);
    let Err(Error::Corrupt(damage)) = open(&disk.killed(), SMALL) else {
        panic!("nobody noticed");
    };
    assert_eq!(damage.path, "streams/gpu/0");
    assert!(damage.what.contains("the end of the journal"));
}
