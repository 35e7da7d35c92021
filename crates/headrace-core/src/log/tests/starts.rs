//! What a start after a kill asks of the disk, and who verifies what one would meet.

use std::cell::Cell;
use std::collections::BTreeMap;

use super::{batch, perform, produced, SMALL};
use crate::log::disk::{Disk, DiskError, DiskOp};
use crate::log::inspect::verify;
use crate::log::machine::Machine;
use crate::log::{open, Options};
use crate::testing::SimDisk;

/// A journal that holds all that these tests write.
const OPTIONS: Options = Options {
    journal_bytes: 16 << 20,
    ..SMALL
};

/// A disk that counts what is asked of it.
#[derive(Default)]
struct Counting {
    disk: SimDisk,
    /// How often it is waited for: syncs that follow on each other are one.
    waits: Cell<usize>,
    reads: Cell<usize>,
    /// Bytes that they wanted.
    bytes: Cell<usize>,
}

impl Disk for Counting {
    fn list(&self, folder: &str) -> Result<Vec<String>, DiskError> {
        self.disk.list(folder)
    }

    fn size(&self, path: &str) -> Result<Option<u64>, DiskError> {
        self.disk.size(path)
    }

    fn read(&self, path: &str, position: u64, bytes: usize) -> Result<Vec<u8>, DiskError> {
        self.reads.set(self.reads.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        self.disk.read(path, position, bytes)
    }

    fn perform(&self, op: &DiskOp) -> Result<(), DiskError> {
        let waits = op.is_sync() || matches!(op, DiskOp::Settle { .. });
        self.waits.set(self.waits.get() + usize::from(waits));
        self.disk.perform(op)
    }

    fn perform_all(&self, ops: &[DiskOp]) -> Result<(), DiskError> {
        let runs = ops.chunk_by(|a, b| a.is_sync() == b.is_sync());
        let waits = runs.filter(|run| run[0].is_sync()).count();
        self.waits.set(self.waits.get() + waits);
        self.disk.perform_all(ops)
    }
}

/// Rounds, and a chore only where they wait for it: else nothing but the journal is synced.
fn rounds(machine: &mut Machine, disk: &SimDisk) {
    machine.submit();
    loop {
        if let Some(draft) = machine.next_round(0) {
            let round = draft.build();
            perform(disk, &round.before);
            perform(disk, &round.after);
            machine.round_done(round, Ok(()), 0, 0);
        } else if machine.queue.is_empty() {
            return;
        } else {
            let chore = machine.next_chore().expect("rounds wait for one");
            perform(disk, &chore.ops);
            machine.chore_done(&chore, Ok(()));
        }
    }
}

/// How often a start waits for the disk after a store with so many logs was killed. Of `rolls`
/// segments each log has snapshots of producers, indexes, and something to write again.
fn flushes(logs: u32, rolls: i32) -> usize {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, OPTIONS).unwrap();
    let opened = machine.open_logs("gpu", 0..logs, 1, 0).unwrap();
    rounds(&mut machine, &disk);
    for at in 0..=rolls {
        for log in &opened {
            let sent = produced(batch(1, 100, 1, 1), 7, 0, at);
            machine.append(*log, sent, 0, 0, 0).unwrap();
            if at < rolls {
                machine.roll(*log, 0).unwrap();
            }
        }
        rounds(&mut machine, &disk);
    }
    let disk = Counting {
        disk: disk.killed(),
        ..Counting::default()
    };
    let (machine, report) = open(&disk, OPTIONS).unwrap();
    assert_eq!((report.clean, report.logs), (false, u64::from(logs)));
    let ends = opened.iter().map(|log| machine.bounds(*log).unwrap().1);
    assert!(ends.into_iter().all(|end| end == i64::from(rolls) + 1));
    disk.waits.get()
}

#[test]
fn a_start_after_a_kill_waits_for_the_disk_as_often_for_many_logs_as_for_few() {
    for rolls in 0..3 {
        let (few, many) = (flushes(20, rolls), flushes(400, rolls));
        assert_eq!(few, many, "{rolls} rolls");
        assert!(many <= 20, "{many}");
    }
}

/// Reads of the disk, and their bytes, of who verifies a store that was killed with so many batches
/// in its journal.
fn reads(batches: i32) -> (usize, usize) {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, OPTIONS).unwrap();
    let log = machine.open_log("gpu", 0, 1, 0).unwrap();
    for at in 0..batches {
        let sent = produced(batch(1, 100, 1, 1), 7, 0, at);
        machine.append(log, sent, 0, 0, 0).unwrap();
        rounds(&mut machine, &disk);
    }
    let disk = Counting {
        disk: disk.killed(),
        ..Counting::default()
    };
    let incarnations = BTreeMap::from([("gpu".to_owned(), 1)]);
    let findings = verify(&disk, OPTIONS, &incarnations, |_, _| true, |_| {});
    assert_eq!(findings, Ok(Vec::new()));
    (disk.reads.get(), disk.bytes.get())
}

#[test]
fn verifying_a_store_that_was_killed_reads_as_much_more_as_it_holds() {
    let ((reads_few, bytes_few), (reads_many, bytes_many)) = (reads(300), reads(1500));
    assert!(reads_many <= 5 * reads_few, "{reads_few}, {reads_many}");
    assert!(bytes_many <= 5 * bytes_few, "{bytes_few}, {bytes_many}");
}
