//! A change that asks for many logs: it gets all of them, or leaves nothing.

use super::withdraw::refuse;
use super::{commit, SMALL};
use crate::log::disk::Disk;
use crate::log::machine::Machine;
use crate::log::{open, Error};
use crate::testing::SimDisk;

const PARTITIONS: u32 = 90;

fn check(machine: &Machine, partitions: u32, descriptors: Option<u64>) -> Result<(), Error> {
    machine.check_logs("gpu", 1..partitions, 1, descriptors)
}

/// A store whose stream has one log.
fn opened(disk: &SimDisk) -> Machine {
    let (mut machine, _) = open(disk, SMALL).unwrap();
    machine.open_logs("gpu", 0..1, 1, 0).unwrap();
    commit(&mut machine, disk);
    machine
}

/// Nothing was opened, and nothing is to be done.
fn assert_untouched(machine: &mut Machine) {
    assert_eq!(machine.statistics().logs, 1);
    assert!(machine.next_round(0).is_none() && !machine.is_creating("gpu"));
}

#[test]
fn more_logs_than_checkpoints_hold_are_refused_before_the_first() {
    let disk = SimDisk::default();
    let mut machine = opened(&disk);
    for _ in 0..3 {
        for refused in [
            check(&machine, 1000, None),
            machine.open_logs("gpu", 1..1000, 1, 0).map(drop),
        ] {
            let Err(Error::Limit(why)) = refused else {
                panic!("{refused:?}");
            };
            assert!(why.contains("999 more") && why.contains("raise log.journal_bytes"));
        }
        assert_untouched(&mut machine);
    }
    assert_eq!(
        machine.open_logs("gpu", 0..PARTITIONS, 1, 0).unwrap().len(),
        90
    );
    commit(&mut machine, &disk);
    assert_eq!(machine.held_logs().len(), 90);
}

#[test]
fn more_logs_than_inodes_are_refused_before_the_first_and_stop_no_append() {
    let disk = SimDisk::default();
    let mut machine = opened(&disk);
    machine.disk_free(u64::MAX, Some(200));
    for _ in 0..3 {
        let refused = check(&machine, 20, None).unwrap_err();
        assert!(refused
            .to_string()
            .contains("200 inodes left, and needs 227 for 19 more"));
        assert_eq!(machine.open_logs("gpu", 1..20, 1, 0), Err(refused));
        assert_untouched(&mut machine);
    }
    machine.open_logs("gpu", 1..16, 1, 0).unwrap();
    commit(&mut machine, &disk);
    assert!(
        machine.refuse_full().is_ok(),
        "what fits takes nothing from appends"
    );
}

#[test]
fn more_logs_than_descriptors_are_refused() {
    let machine = opened(&SimDisk::default());
    let needed = 4 * 10 + 8 + 16; // of each log, of finished files, of others
    assert_eq!(check(&machine, 10, Some(needed)), Ok(()));
    let refused = check(&machine, 10, Some(needed - 1)).unwrap_err();
    assert!(matches!(&refused, Error::Storage(why) if why.contains("(ulimit -n)")));
    assert_eq!(check(&machine, 1, Some(0)), Ok(()), "they are there");
}

#[test]
fn a_log_of_another_stream_is_refused_before_others_are_made() {
    let mut machine = opened(&SimDisk::default());
    let refused = machine.open_logs("gpu", 0..3, 2, 0).unwrap_err();
    assert!(refused.to_string().contains("belongs to incarnation 1"));
    assert_eq!(machine.check_logs("gpu", 0..3, 2, None), Err(refused));
    assert_untouched(&mut machine);
}

#[test]
fn a_disk_that_refuses_one_of_many_logs_refuses_all_and_keeps_nothing() {
    let disk = SimDisk::default();
    let mut machine = opened(&disk);
    machine.disk_free(u64::MAX, Some(1000));
    let (paths, folders) = (disk.paths(), disk.list("streams/gpu"));
    for effects in [0, 1, 200, 5 * 89 - 1] {
        let logs = machine.open_logs("gpu", 1..PARTITIONS, 1, 0).unwrap();
        machine.open_log("other", 0, 1, 0).unwrap();
        refuse(&mut machine, &disk, effects);
        assert!(machine.refusal("gpu").is_some() && !machine.is_creating("gpu"));
        assert!(logs.iter().all(|log| machine.bounds(*log).is_err()));
        assert_eq!(
            (disk.paths(), disk.list("streams/gpu")),
            (paths.clone(), folders.clone())
        );
        commit(&mut machine, &disk);
        assert_eq!(machine.statistics().logs, 2, "another stream's is made");
        machine.delete_stream("other").unwrap();
        commit(&mut machine, &disk);
        for op in machine.empty_trash() {
            disk.perform(&op).unwrap();
        }
        assert_untouched(&mut machine);
    }
    machine
        .open_logs("gpu", 1..3, 1, 0)
        .expect("inodes were given back");
    commit(&mut machine, &disk);
    let (machine, _) = open(&disk.killed(), SMALL).unwrap();
    assert_eq!(machine.held_logs().len(), 3);
    assert_eq!(disk.list("streams/gpu").unwrap(), ["0", "1", "2"]);
}
