//! Control batches without records: they take no offset, survive, and no reader meets them.

use std::collections::BTreeMap;

use super::{batch, commit, read, stamped, SMALL};
use crate::log::inspect::verify;
use crate::log::machine::Machine;
use crate::log::partition::LogId;
use crate::log::{open, Error};
use crate::record::{decode_columns, mark, set_base_offset, Batches, HEADER_BYTES};
use crate::testing::SimDisk;

const LOG: LogId = LogId(0);

fn append(machine: &mut Machine, disk: &SimDisk, sent: Vec<u8>) -> i64 {
    let appended = machine.append(LOG, sent, 0, 0, 0).unwrap();
    commit(machine, disk);
    appended.base_offset
}

#[test]
fn marks_stand_between_records_and_take_no_offset() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    assert_eq!(append(&mut machine, &disk, mark(b"first of all")), 0);
    assert_eq!(machine.bounds(LOG), Ok((0, 0)));
    let mut expected = Vec::new();
    for at in 0..10 {
        let sent = batch(2, 100, at, 1000);
        let offset = append(&mut machine, &disk, sent.clone());
        assert_eq!(offset, 2 * i64::from(at));
        expected.push(stamped(sent, offset));
        assert_eq!(append(&mut machine, &disk, mark(&[at; 50])), offset + 2);
    }
    let stored = disk.bytes(&disk.path_of("log"));
    assert_eq!(Batches::new(&stored).flatten().count(), 21);
    for life in 0..3 {
        for (at, batch) in expected.iter().enumerate() {
            for offset in 2 * at as i64..2 * at as i64 + 2 {
                let found = read(&mut machine, &disk, LOG, offset, 10_000);
                assert_eq!(found.as_ref(), Ok(batch), "offset {offset}, life {life}");
            }
        }
        assert_eq!(read(&mut machine, &disk, LOG, 20, 10_000), Ok(Vec::new()));
        if life == 1 {
            machine.close();
            commit(&mut machine, &disk);
        }
        machine = open(&disk, SMALL).unwrap().0;
        machine.open_log("gpu", 0, 1, 0).unwrap();
        assert_eq!(machine.bounds(LOG), Ok((0, 20)));
    }
    machine.roll(LOG, 0).unwrap();
    commit(&mut machine, &disk);
    let streams = BTreeMap::from([("gpu".to_owned(), 1)]);
    let findings = verify(&disk, SMALL, &streams, |_, _| true, |_| {});
    assert_eq!(findings, Ok(Vec::new()), "no index names a mark");
    let columns = decode_columns(&stored, 0, 20, 100).unwrap();
    assert_eq!((columns.records, columns.next_offset), (20, 20));
}

#[test]
fn a_segment_that_holds_marks_alone_does_not_roll() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    for _ in 0..10 {
        append(&mut machine, &disk, mark(&[1; 9000]));
        machine.roll(LOG, 0).unwrap();
    }
    assert_eq!(machine.segments(LOG).unwrap().len(), 1);
    append(&mut machine, &disk, batch(1, 1, 1, 1));
    append(&mut machine, &disk, mark(&[1; 9000]));
    assert_eq!(machine.segments(LOG).unwrap().len(), 2);
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    assert_eq!(machine.bounds(LOG), Ok((0, 1)));
    assert!(!read(&mut machine, &disk, LOG, 0, 1).unwrap().is_empty());
}

#[test]
fn a_batch_without_offsets_that_is_no_control_batch_is_refused() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    let mut sent = mark(b"");
    assert_eq!(sent.len(), HEADER_BYTES);
    set_base_offset(&mut sent, 7);
    sent[22] = 0; // it is for everyone
    let refused = machine.append(LOG, sent, 0, 0, 0);
    let why = "a record batch has no offsets".into();
    assert_eq!(refused, Err(Error::Argument(why)));
}
