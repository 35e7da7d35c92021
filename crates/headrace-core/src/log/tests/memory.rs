//! What a log keeps, in memory and beside its segments, does not grow with what it holds.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use super::{batch, commit, produced, read, stamped, BOUNDS, SMALL};
use crate::log::disk::{Disk, DiskError, DiskOp};
use crate::log::index::Index;
use crate::log::layout;
use crate::log::machine::Machine;
use crate::log::options::Options;
use crate::log::partition::LogId;
use crate::log::read::Plan;
use crate::log::settings::LogSettings;
use crate::log::{open, Error};
use crate::record::Batches;
use crate::testing::SimDisk;

const LOG: LogId = LogId(0);

/// As `headrace-io` looks for a time.
pub(super) fn find_time(
    machine: &mut Machine,
    disk: &SimDisk,
    timestamp: i64,
) -> Result<Option<i64>, Error> {
    let (_, end) = machine.bounds(LOG)?;
    let mut walked = None;
    loop {
        match machine.plan_time(LOG, timestamp, walked.as_ref())? {
            Plan::Nothing => return Ok(None),
            Plan::Load(files) => {
                let index = files.load(disk)?;
                machine.indexed(index);
            }
            Plan::Walk(walk) => match walk.find_time(disk, timestamp, 0..end)? {
                Some((offset, _)) => return Ok(Some(offset)),
                None => walked = Some(walk),
            },
        }
    }
}

/// Bytes of the indexes of closed segments in memory, and how many segments are closed.
fn held(machine: &Machine) -> (u64, usize) {
    let segments = &machine.logs[&LOG].segments;
    let closed = &segments[..segments.len() - 1];
    let indexes = closed.iter().filter_map(|segment| segment.index.as_ref());
    (indexes.map(Index::memory_bytes).sum(), closed.len())
}

#[test]
fn indexes_of_closed_segments_leave_memory_and_everything_is_still_found() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    let mut expected = Vec::new();
    for at in 0..400_u16 {
        let sent = batch(1, 1500, at as u8, 1000 + i64::from(at));
        machine.append(LOG, sent.clone(), 0, 0, 0).unwrap();
        commit(&mut machine, &disk);
        expected.push(stamped(sent, i64::from(at)));
    }
    for reopened in [false, true] {
        if reopened {
            machine = open(&disk, SMALL).unwrap().0;
            assert_eq!(held(&machine).0, 0, "a start loads no more than it needs");
        }
        assert!(held(&machine).1 > 20);
        for (offset, batch) in expected.iter().enumerate() {
            let found = read(&mut machine, &disk, LOG, offset as i64, 1);
            assert_eq!(found.as_ref(), Ok(batch));
            let found = find_time(&mut machine, &disk, 1000 + offset as i64);
            assert_eq!(found, Ok(Some(offset as i64)));
            assert!(held(&machine).0 <= BOUNDS.index_bytes);
            assert_eq!(held(&machine).0, machine.index_bytes);
        }
        assert_eq!(find_time(&mut machine, &disk, 2000), Ok(None));
    }
}

#[test]
fn files_that_are_finished_are_closed_however_slowly_the_journal_fills() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    let mut files: BTreeSet<String> = BTreeSet::new();
    let mut most = 0;
    for at in 0..300 {
        let direct = SMALL.direct_write_bytes as usize;
        machine
            .append(LOG, batch(1, direct, 1, 1), at, 0, 0)
            .unwrap();
        machine.submit();
        let mut perform = |op: &DiskOp| {
            disk.perform(op).unwrap();
            match op {
                DiskOp::Create { path } => drop(files.insert(path.to_string())),
                DiskOp::Close { path } | DiskOp::Remove { path } | DiskOp::LetGo { path } => {
                    files.remove(&**path);
                }
                _ => {}
            }
        };
        while let Some(draft) = machine.next_round(0) {
            let round = draft.build();
            round
                .before
                .iter()
                .chain(&round.after)
                .for_each(&mut perform);
            machine.round_done(round, Ok(()), 0, 0);
        }
        while let Some(chore) = machine.next_chore() {
            chore.ops.iter().for_each(&mut perform);
            machine.chore_done(&chore, Ok(()));
        }
        most = most.max(files.len());
    }
    assert!(machine.statistics().segment_rolls > 100);
    assert!(most < 16, "{most} files were open at once");
}

/// A disk that counts the files which are open for writing: what a sync opens it closes.
struct Counting {
    disk: SimDisk,
    open: RefCell<BTreeSet<String>>,
    most: Cell<usize>,
    /// Bytes of segments.
    read: Cell<u64>,
}

impl Counting {
    fn new(disk: SimDisk) -> Self {
        Self {
            disk,
            open: RefCell::default(),
            most: Cell::new(0),
            read: Cell::new(0),
        }
    }
}

impl Disk for Counting {
    fn list(&self, folder: &str) -> Result<Vec<String>, DiskError> {
        self.disk.list(folder)
    }

    fn size(&self, path: &str) -> Result<Option<u64>, DiskError> {
        self.disk.size(path)
    }

    fn read(&self, path: &str, position: u64, bytes: usize) -> Result<Vec<u8>, DiskError> {
        let found = self.disk.read(path, position, bytes)?;
        if path.ends_with(layout::SEGMENT) {
            self.read.set(self.read.get() + found.len() as u64);
        }
        Ok(found)
    }

    fn perform(&self, op: &DiskOp) -> Result<(), DiskError> {
        let mut open = self.open.borrow_mut();
        match op {
            DiskOp::Close { path } | DiskOp::Remove { path } | DiskOp::LetGo { path } => {
                open.remove(&**path);
            }
            DiskOp::Rename { from, .. } => drop(open.remove(&**from)),
            DiskOp::Create { path }
            | DiskOp::Write { path, .. }
            | DiskOp::SetLength { path, .. } => drop(open.insert(path.to_string())),
            _ => {}
        }
        self.most.set(self.most.get().max(open.len()));
        self.disk.perform(op)
    }
}

#[test]
fn what_was_read_and_does_not_fit_is_not_held_with_what_was_found() {
    let disk = SimDisk::default();
    let options = Options {
        segment_bytes: 2 << 20,
        ..SMALL
    };
    let (mut machine, _) = open(&disk, options).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    let (small, large) = (batch(1, 1_000, 1, 1), batch(1, 1_000_000, 1, 1));
    for sent in [small.clone(), large] {
        machine.append(LOG, sent, 0, 0, 0).unwrap();
        commit(&mut machine, &disk);
    }
    let found = read(&mut machine, &disk, LOG, 0, 1_000_000).unwrap();
    assert_eq!(found.len(), small.len());
    assert!(found.capacity() < 20_000, "{} bytes", found.capacity());
}

/// What has files beside it is not read, and what has none once.
#[test]
fn an_orderly_start_reads_an_active_segment_once_at_most() {
    let options = Options {
        segment_bytes: 1 << 20,
        ..SMALL
    };
    for (batches, read_max) in [(50, 60_000), (500, 10_000)] {
        let disk = Counting::new(SimDisk::default());
        let (mut machine, _) = open(&disk, options).unwrap();
        machine.open_log("gpu", 0, 1, 0).unwrap();
        for at in 0..batches {
            let sent = produced(batch(1, 1000, 1, 1), 7, 0, at);
            machine.append(LOG, sent, 0, 0, 0).unwrap();
            commit(&mut machine, &disk.disk);
        }
        machine.close();
        commit(&mut machine, &disk.disk);
        disk.read.set(0);
        let (_, report) = open(&disk, options).unwrap();
        assert!(report.clean);
        assert!(disk.read.get() < read_max, "{} bytes", disk.read.get());
    }
}

/// The way to a batch passes others by without reading them whole.
#[test]
fn a_read_brings_what_it_gives_and_little_more() {
    let disk = Counting::new(SimDisk::default());
    let options = Options {
        segment_bytes: 1 << 20,
        ..SMALL
    };
    let (mut machine, _) = open(&disk, options).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    for _ in 0..10 {
        let large = batch(1, 50_000, 1, 1);
        machine.append(LOG, large, 0, 0, 0).unwrap();
        commit(&mut machine, &disk.disk);
    }
    for offset in 0..10 {
        let Ok(Plan::Walk(walk)) = machine.plan_read(LOG, offset) else {
            panic!("the index is in memory")
        };
        disk.read.set(0);
        let found = walk.read(&disk, offset, 120_000).unwrap();
        let batches = (10 - offset).min(2) as usize;
        assert_eq!(Batches::new(&found).count(), batches);
        assert!(disk.read.get() < 140_000, "{} bytes", disk.read.get());
    }
}

#[test]
fn all_logs_may_roll_at_once_within_the_descriptors_of_a_node() {
    let disk = Counting::new(SimDisk::default());
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    let logs: Vec<LogId> = (0..40)
        .map(|partition| machine.open_log("gpu", partition, 1, 0).unwrap())
        .collect();
    for _ in 0..5 {
        for log in &logs {
            machine.append(*log, batch(1, 1, 1, 1), 0, 0, 0).unwrap();
            machine.roll(*log, 0).unwrap();
        }
        // The disk syncs so slowly that rounds come first wherever they may.
        loop {
            if let Some(draft) = machine.next_round(0) {
                let round = draft.build();
                let mut ops = round.before.iter().chain(&round.after);
                ops.try_for_each(|op| disk.perform(op)).unwrap();
                machine.round_done(round, Ok(()), 0, 0);
            } else if let Some(chore) = machine.next_chore() {
                let mut ops = chore.ops.iter();
                ops.try_for_each(|op| disk.perform(op)).unwrap();
                machine.chore_done(&chore, Ok(()));
            } else {
                break;
            }
        }
    }
    assert_eq!(machine.statistics().segment_rolls, 200);
    let most = disk.most.get();
    assert!(
        most <= 4 * logs.len() + 2 * BOUNDS.finished_files,
        "{most} were open at once"
    );
}

#[test]
fn a_start_that_mends_many_segments_opens_few_at_once() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    machine.open_log("gpu", 0, 1, 0).unwrap();
    for at in 0..20 {
        machine.append(LOG, batch(1, 1, 1, 1), at, 0, 0).unwrap();
        machine.roll(LOG, 0).unwrap();
        commit(&mut machine, &disk);
    }
    let disk = Counting::new(disk);
    let (machine, recovery) = open(&disk, SMALL).unwrap();
    assert_eq!(machine.bounds(LOG), Ok((0, 20)));
    assert!(!recovery.clean);
    let most = disk.most.get();
    assert!(
        most <= 2 * BOUNDS.finished_files,
        "{most} were open at once"
    );
}

#[test]
fn the_producers_of_all_logs_together_are_bounded() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    let logs: Vec<LogId> = (0..4)
        .map(|partition| machine.open_log("gpu", partition, 1, 0).unwrap())
        .collect();
    for id in 0..4 * BOUNDS.producers as i64 {
        let log = logs[id as usize % logs.len()];
        let sent = produced(batch(1, 1, 1, 1), id, 0, 0);
        machine.append(log, sent.clone(), 0, 0, 0).unwrap();
        let repeat = machine.append(log, sent, 0, 0, 0).unwrap();
        assert!(repeat.duplicate, "the newest is kept");
        let known = machine.logs.values().map(|log| log.producers.len());
        assert_eq!(machine.producers, known.sum::<usize>());
        assert!(machine.producers <= BOUNDS.producers);
        if id % 100 == 0 {
            commit(&mut machine, &disk);
        }
    }
    assert!(machine.producers > BOUNDS.producers / 4);
    commit(&mut machine, &disk);
    machine.delete_stream("gpu").unwrap();
    commit(&mut machine, &disk);
    assert_eq!(machine.producers, 0);
}

#[test]
fn a_log_with_many_producers_does_not_cost_others_theirs() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    let [crowded, other] = [0, 1].map(|at| machine.open_log("gpu", at, 1, 0).unwrap());
    for id in 0..BOUNDS.producers as i64 {
        let sent = produced(batch(1, 1, 1, 1), id, 0, 0);
        machine.append(crowded, sent, 0, 0, 0).unwrap();
        if id % 100 == 0 {
            commit(&mut machine, &disk);
        }
    }
    let sent: Vec<Vec<u8>> = (0..9)
        .map(|id| produced(batch(1, 1, 1, 1), -id + 9_999, 0, 0))
        .collect();
    for duplicate in [false, true] {
        for batch in &sent {
            let appended = machine.append(other, batch.clone(), 0, 0, 0).unwrap();
            assert_eq!(appended.duplicate, duplicate);
        }
    }
    assert!(machine.producers > BOUNDS.producers / 2);
    commit(&mut machine, &disk);
}

#[test]
fn the_producers_of_an_idle_log_are_forgotten_when_they_have_been_silent_for_long() {
    let disk = SimDisk::default();
    let (mut machine, _) = open(&disk, SMALL).unwrap();
    for partition in 0..2 {
        let log = machine.open_log("gpu", partition, 1, 0).unwrap();
        let sent = produced(batch(1, 1, 1, 1), 7, 0, 0);
        machine.append(log, sent, 0, 0, 0).unwrap();
    }
    commit(&mut machine, &disk);
    let expiry_ms = LogSettings::default().producer_expiry_ms as i64;
    machine.forget_silent(LOG, expiry_ms).unwrap();
    assert_eq!(machine.producers, 2);
    machine.forget_silent(LOG, 2 * expiry_ms).unwrap();
    assert_eq!(machine.producers, 1);
}
