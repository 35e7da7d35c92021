//! A disk that fills up: appends end in time, all else goes on, and they come back by themselves.

use super::{batch, commit, read, SMALL};
use crate::log::machine::Machine;
use crate::log::partition::LogId;
use crate::log::{open, Error, Options};
use crate::testing::SimDisk;

/// Of a store whose journal files are smaller.
const RESERVE: u64 = 1 << 20;

fn machine(disk: &SimDisk) -> (Machine, LogId) {
    let options = Options {
        reserve_bytes: RESERVE,
        ..SMALL
    };
    let (mut machine, _) = open(disk, options).unwrap();
    let log = machine.open_log("gpu", 0, 1, 0).unwrap();
    (machine, log)
}

fn append(machine: &mut Machine, log: LogId, bytes: usize) -> Result<i64, Error> {
    let appended = machine.append(log, batch(1, bytes, 1, 1), 0, 0, 0)?;
    Ok(appended.base_offset)
}

fn is_full(outcome: &Result<i64, Error>) -> bool {
    matches!(outcome, Err(Error::Full(why)) if why.contains("1048576 bytes left"))
}

#[test]
fn below_the_reserve_appends_are_refused_and_nothing_else() {
    let disk = SimDisk::default();
    let (mut machine, log) = machine(&disk);
    assert_eq!(append(&mut machine, log, 50), Ok(0));
    assert!(machine.disk_free(RESERVE - 1, None));
    assert!(is_full(&append(&mut machine, log, 50)));
    commit(&mut machine, &disk);
    assert_eq!(machine.bounds(log), Ok((0, 1)), "what was queued is stored");
    assert!(!read(&mut machine, &disk, log, 0, 1).unwrap().is_empty());
    machine.roll(log, 0).unwrap();
    machine.trim(log, 1).unwrap();
    machine.open_log("other", 0, 1, 0).unwrap();
    machine.delete_stream("other").unwrap();
    commit(&mut machine, &disk);
    assert_eq!(machine.bounds(log), Ok((1, 1)));
    assert_eq!(machine.failed(), None);
    assert_eq!(machine.statistics().refused_full, 1);
    machine.close();
    commit(&mut machine, &disk);
    assert!(machine.is_closed());
}

#[test]
fn writing_resumes_when_there_is_room_again_and_some_to_spare() {
    let disk = SimDisk::default();
    let (mut machine, log) = machine(&disk);
    assert!(machine.disk_free(0, None));
    assert!(!machine.disk_free(RESERVE, None), "it stays as it is");
    assert!(is_full(&append(&mut machine, log, 50)));
    assert!(machine.disk_free(RESERVE + RESERVE / 8, None));
    assert_eq!(machine.full(), None);
    assert_eq!(append(&mut machine, log, 50), Ok(0));
}

#[test]
fn what_was_accepted_counts_before_the_disk_is_looked_at_again() {
    let disk = SimDisk::default();
    let (mut machine, log) = machine(&disk);
    assert!(!machine.disk_free(RESERVE + 30_000, None));
    let accepted = (0..10)
        .take_while(|_| append(&mut machine, log, 10_000).is_ok())
        .count();
    assert_eq!(accepted, 3, "the last one passes the bound");
    machine.disk_free(2 * RESERVE, None);
    let waiting = machine.disk_free(RESERVE + 30_000, None);
    assert!(waiting, "three are yet to be written");
    assert!(is_full(&append(&mut machine, log, 50)));
}

#[test]
fn a_store_without_a_reserve_or_whose_disk_tells_nothing_refuses_nothing() {
    let disk = SimDisk::default();
    let (mut machine, log) = machine(&disk);
    assert_eq!(append(&mut machine, log, 50), Ok(0));
    machine.options.reserve_bytes = 0;
    assert!(!machine.disk_free(0, None));
    assert_eq!(append(&mut machine, log, 50), Ok(1));
}

#[test]
fn a_journal_file_fits_into_the_reserve() {
    let disk = SimDisk::default();
    let (mut machine, log) = machine(&disk);
    machine.options.reserve_bytes = 1;
    assert!(machine.disk_free(SMALL.journal_bytes - 1, None));
    assert!(append(&mut machine, log, 50).is_err());
}

#[test]
fn appends_and_new_logs_end_before_the_inodes_do() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    let log = machine.open_log("gpu", 0, 1, 0).unwrap();
    commit(&mut machine, &disk);
    let append = |machine: &mut Machine| machine.append(log, batch(1, 10, 1, 1), 1, 0, 0);
    assert!(!machine.disk_free(u64::MAX, Some(100)));
    assert!(append(&mut machine).is_ok());
    assert!(machine.disk_free(u64::MAX, Some(30)));
    let refused = append(&mut machine).unwrap_err();
    assert!(refused.to_string().contains("inodes left"), "{refused}");
    let refused = machine.open_log("other", 0, 1, 0).unwrap_err();
    assert!(matches!(refused, Error::Full(_)));
    assert!(machine.disk_free(u64::MAX, Some(100)), "they come back");
    assert!(append(&mut machine).is_ok());
    // What is made between two looks counts.
    let made = (0..20).take_while(|at| machine.open_log("many", *at, 1, 0).is_ok());
    assert!((1..20).contains(&made.count()));
}

#[test]
fn what_nobody_waits_for_leaves_the_reserve_to_appends() {
    let disk = SimDisk::default();
    let (mut machine, log) = machine(&disk);
    assert!(machine.has_spare(u64::MAX), "nobody knows how much is left");
    machine.disk_free(RESERVE + 50_000, None);
    assert!(machine.has_spare(50_000) && !machine.has_spare(50_001));
    append(&mut machine, log, 20_000).unwrap();
    assert!(machine.has_spare(29_000) && !machine.has_spare(30_000));
    machine.disk_free(RESERVE - 1, None);
    assert!(!machine.has_spare(0));
    machine.disk_free(RESERVE + 1, None);
    assert!(!machine.has_spare(0), "appends are refused still");
}
