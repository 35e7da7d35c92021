//! After a failed effect. What crashes leave, `headrace_core::testing` simulates.

use super::{batch, commit, SMALL};
use crate::log::disk::{Disk, DiskOp};
use crate::log::{open, Error};
use crate::testing::SimDisk;

#[test]
fn after_a_failed_effect_every_write_is_refused_and_says_why() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    let log = machine.open_log("gpu", 0, 1, 0).unwrap();
    commit(&mut machine, &disk);
    for ticket in 0..2 {
        machine
            .append(log, batch(1, 9, 1, 1), ticket, 0, 0)
            .unwrap();
        machine.submit();
    }
    machine.append(log, batch(1, 9, 1, 1), 2, 0, 0).unwrap();
    let round = machine.next_round(0).unwrap().build();
    disk.fail_after(1, "disk/0 failed: check it");
    let perform = |op: &DiskOp| disk.perform(op).map_err(|error| error.text);
    let outcome = round.before.iter().try_for_each(perform);
    assert_eq!(outcome, Err("disk/0 failed: check it".to_owned()));
    let why = "disk/0 failed: check it, then restart";
    let ended = machine.round_done(round, outcome, 0, 0);
    assert_eq!(ended.len(), 3, "what waited for the next round, too");
    assert!(ended
        .iter()
        .all(|ended| ended.error.as_deref() == Some(why)));
    assert_eq!(machine.bounds(log), Ok((0, 0)));

    assert!(machine.next_round(0).is_none() && machine.next_chore().is_none());
    for refused in [
        machine.append(log, batch(1, 9, 1, 1), 3, 0, 0).map(drop),
        machine.open_log("other", 0, 1, 0).map(drop),
        machine.delete_stream("gpu"),
        machine.trim(log, 0),
        machine.roll(log, 0),
    ] {
        assert_eq!(refused, Err(Error::Storage(why.to_owned())));
    }
}
