//! Logs that ask for less than a sync with each commit, and those beside them.

use super::{batch, produced, SMALL};
use crate::log::disk::{Disk, DiskOp};
use crate::log::machine::Machine;
use crate::log::partition::LogId;
use crate::log::{open, Fsync, LogSettings};
use crate::testing::{Random, SimDisk};

const SECOND_NS: u64 = 1_000_000_000;

struct Bench {
    disk: SimDisk,
    machine: Machine,
    log: LogId,
    ticket: u64,
}

impl Bench {
    /// A log whose next page the journal can rebuild, so that nothing forces a sync.
    fn new(fsync: Fsync) -> Self {
        let disk = SimDisk::default();
        let (mut machine, _) = open(&disk, SMALL).unwrap();
        let log = machine.open_log("gpu", 0, 1, 0).unwrap();
        let mut bench = Self {
            disk,
            machine,
            log,
            ticket: 0,
        };
        bench.configure(fsync);
        while bench.round(0).is_some() {}
        bench
    }

    fn configure(&mut self, fsync: Fsync) {
        let settings = LogSettings {
            fsync,
            ..LogSettings::default()
        };
        self.machine.configure(self.log, settings).unwrap();
    }

    fn append(&mut self, sent: Vec<u8>, now_ns: u64) {
        self.ticket += 1;
        let (log, ticket) = (self.log, self.ticket);
        self.machine.append(log, sent, ticket, 0, now_ns).unwrap();
    }

    /// Performs a round: how many syncs it took, and which tickets it ended.
    fn round(&mut self, now_ns: u64) -> Option<(usize, Vec<u64>)> {
        self.machine.submit();
        let round = self.machine.next_round(now_ns)?.build();
        let ops: Vec<DiskOp> = round.before.iter().chain(&round.after).cloned().collect();
        for op in &ops {
            self.disk.perform(op).unwrap();
        }
        let syncs = ops.iter().filter(|op| op.is_sync()).count();
        let ended = self.machine.round_done(round, Ok(()), now_ns, now_ns);
        Some((syncs, ended.iter().map(|ended| ended.ticket).collect()))
    }

    /// Offsets that a start finds after the power was cut, at the least.
    fn survives(&self) -> i64 {
        let ends = (0..40).map(|seed| {
            let disk = self.disk.power_cut(&mut Random::new(seed));
            let (machine, _) = open(&disk, SMALL).unwrap();
            machine.bounds(self.log).unwrap().1
        });
        ends.min().unwrap()
    }
}

#[test]
fn what_the_system_may_sync_is_acknowledged_without_a_sync_and_outlives_the_process() {
    let mut bench = Bench::new(Fsync::Os);
    for _ in 0..5 {
        bench.append(batch(1, 50, 1, 1), 0);
        assert_eq!(bench.round(0), Some((0, vec![bench.ticket])));
    }
    assert_eq!(bench.machine.wake_at_ns(), None);
    assert_eq!(bench.machine.bounds(bench.log), Ok((0, 5)));
    let (machine, _) = open(&bench.disk.killed(), SMALL).unwrap();
    assert_eq!(machine.bounds(bench.log), Ok((0, 5)));
}

#[test]
fn an_interval_ends_with_a_sync_of_all_that_came_in_it() {
    let mut bench = Bench::new(Fsync::Interval);
    for at in 0..5 {
        bench.append(batch(1, 50, 1, 1), at * SECOND_NS / 8);
        assert_eq!(bench.round(at * SECOND_NS / 8).unwrap().0, 0);
    }
    assert_eq!(bench.machine.wake_at_ns(), Some(SECOND_NS));
    assert_eq!(bench.round(SECOND_NS - 1), None);
    assert!(bench.survives() < 5);
    assert_eq!(bench.round(SECOND_NS), Some((1, vec![])));
    assert_eq!(bench.survives(), 5);
    assert_eq!(bench.machine.wake_at_ns(), None);

    // Where one is due, a round that comes anyway takes it along.
    bench.append(batch(1, 50, 1, 1), 2 * SECOND_NS);
    assert_eq!(bench.round(2 * SECOND_NS).unwrap().0, 0);
    bench.append(batch(1, 50, 1, 1), 3 * SECOND_NS);
    assert_eq!(bench.round(3 * SECOND_NS).unwrap().0, 1);
}

#[test]
fn a_commit_of_another_log_syncs_all_before_it() {
    let mut bench = Bench::new(Fsync::Os);
    bench.append(batch(1, 50, 1, 1), 0);
    assert_eq!(bench.round(0).unwrap().0, 0);
    let relaxed = bench.log;
    bench.log = bench.machine.open_log("other", 0, 1, 0).unwrap();
    while bench.round(0).is_some() {}
    bench.append(batch(1, 50, 1, 1), 0);
    assert_eq!(bench.round(0).unwrap().0, 1);
    assert_eq!(bench.survives(), 1);
    bench.log = relaxed;
    assert_eq!(bench.survives(), 1);
}

#[test]
fn what_is_queued_keeps_the_promise_under_which_it_came_or_a_better_one() {
    let mut bench = Bench::new(Fsync::Commit);
    bench.append(batch(1, 50, 1, 1), 0);
    bench.configure(Fsync::Os);
    bench.append(batch(1, 50, 1, 1), 0);
    assert_eq!(bench.round(0), Some((1, vec![1, 2])));
    bench.append(batch(1, 50, 1, 1), 0);
    assert_eq!(bench.round(0), Some((0, vec![3])));
    bench.append(batch(1, 50, 1, 1), 0);
    bench.configure(Fsync::Commit);
    assert_eq!(bench.round(0), Some((1, vec![4])));
    assert_eq!(bench.survives(), 4);
}

#[test]
fn a_log_that_becomes_strict_again_is_synced_though_nothing_comes() {
    let mut bench = Bench::new(Fsync::Os);
    bench.append(batch(1, 50, 1, 1), 0);
    assert_eq!(bench.round(0).unwrap().0, 0);
    bench.configure(Fsync::Commit);
    assert_eq!(bench.machine.wake_at_ns(), Some(0));
    assert_eq!(bench.round(0), Some((1, vec![])));
    assert_eq!(bench.survives(), 1);
    bench.configure(Fsync::Os);
    bench.configure(Fsync::Commit);
    assert_eq!(bench.round(0), Some((1, vec![])), "once more, to no avail");
    assert_eq!(bench.machine.wake_at_ns(), None);
}

#[test]
fn a_repeat_is_as_durable_as_it_asks() {
    let mut bench = Bench::new(Fsync::Os);
    let sent = produced(batch(1, 50, 1, 1), 9, 0, 0);
    bench.append(sent.clone(), 0);
    assert_eq!(bench.round(0), Some((0, vec![1])));
    bench.append(sent.clone(), 0);
    assert_eq!(bench.round(0), Some((0, vec![2])));
    bench.configure(Fsync::Commit);
    bench.append(sent, 0);
    assert_eq!(bench.round(0), Some((1, vec![3])));
    assert_eq!(bench.survives(), 1);
}
