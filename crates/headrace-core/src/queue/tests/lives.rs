//! Lives of a partition and a group, against what must hold of them whatever happens.

use std::collections::{BTreeMap, BTreeSet};

use super::{at, ledger, POLICY};
use crate::hash::Key;
use crate::queue::*;
use crate::testing::Random;
use crate::Now;

/// A life of a partition and a group: messages with keys, members that settle, fail and leave,
/// deadlines, retention, and crashes that leave what was written last.
struct Life {
    random: Random,
    policy: Policy,
    /// What is let go, for more is owed than may be.
    keeps: bool,
    ledger: Ledger,
    now: u64,
    metas: Vec<Meta>,
    start: i64,
    chunks: BTreeMap<i64, Chunk>,
    /// Settled for good: that is durable.
    kept: BTreeSet<i64>,
    /// Settled, as far as anybody was told.
    settled: BTreeSet<i64>,
    flights: BTreeMap<i64, (u64, u32)>,
    /// Of this life of the ledger.
    attempts: BTreeMap<i64, u32>,
    dying: BTreeSet<i64>,
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let policy = Policy {
            order: random.pick(&[Order::None, Order::Key, Order::Strict]),
            failures_max: random.pick(&[0, 2, 5]),
            read_ahead: random.pick(&[1, 5, 50]),
            total_ms: random.pick(&[0, 100_000]),
            ttl_ms: 0,
            prioritises: random.chance(50),
            ..POLICY
        };
        let ledger = ledger(policy, 0);
        let keeps = random.chance(50);
        Self {
            random,
            keeps,
            policy,
            ledger,
            now: 1,
            metas: Vec::new(),
            start: 0,
            chunks: BTreeMap::new(),
            kept: BTreeSet::new(),
            settled: BTreeSet::new(),
            flights: BTreeMap::new(),
            attempts: BTreeMap::new(),
            dying: BTreeSet::new(),
        }
    }

    fn step(&mut self) {
        let now = at(self.now);
        match self.random.below(17_u8) {
            0 => self.enqueue(),
            1..=4 => self.take(now),
            5..=7 => self.settle(),
            8 => self.fail(now),
            9 => self.late(now),
            10 => self.now += self.random.below(40_000_u64),
            11 => self.leave(now),
            12 => self.write(),
            13 => self.shed(now),
            14 => self.alter(),
            15 => _ = self.ledger.recall(self.random.below(10_usize)),
            _ if self.random.chance(20) => self.crash(),
            _ if self.random.chance(10) => self.trim(),
            _ => self.bury(),
        }
        while let Some((Flight { offset, .. }, failed)) =
            self.ledger.overdue(at(self.now), self.random.bits())
        {
            self.failed(offset, failed);
        }
    }

    fn enqueue(&mut self) {
        for _ in 0..self.random.between(1, 8) {
            let due_ms = if self.random.chance(10) {
                self.now + self.random.below(20_000_u64)
            } else {
                0
            };
            self.metas.push(Meta {
                key: self.random.chance(80).then(|| self.random.below(4_u64)),
                priority: self.random.below(10_u8),
                since_ms: at(self.now).wall_ms,
                due_ms: at(due_ms).wall_ms,
                delay_ms: u64::MAX,
                expires_ms: if self.random.chance(5) {
                    at(self.now + 9_000).wall_ms
                } else {
                    i64::MAX
                },
            });
        }
        self.ledger.grown(self.metas.len() as i64);
    }

    fn take(&mut self, now: Now) {
        for _ in 0..20 {
            match self.ledger.next(now) {
                Next::Read(offset) => {
                    assert!(!self.settled.contains(&offset), "{offset} is settled");
                    self.ledger.met(offset, self.metas[offset as usize], now);
                }
                Next::Deliver(offset) if self.random.chance(10) => {
                    self.ledger.set_aside(offset, self.random.below(10), now);
                }
                Next::Deliver(offset) => {
                    let holder = self.random.below(3_u64);
                    let attempt = self.ledger.deliver(offset, holder, now);
                    self.delivered(offset, holder, attempt);
                    return;
                }
                Next::Dead(offset, cause) => {
                    let is_over = self.metas[offset as usize].expires_ms <= now.wall_ms;
                    assert!(is_over || cause != Cause::Expired);
                    self.ledger.give_up(offset, cause);
                    self.failed(offset, Failed::Dead(cause));
                }
                Next::Scan(offset) => {
                    assert!(self.policy.prioritises && self.policy.order == Order::None);
                    self.ledger.saw(offset, self.metas[offset as usize], now);
                }
                Next::Wait | Next::Blocked => return,
            }
        }
    }

    /// More is owed than may be: the oldest goes that nobody has.
    fn shed(&mut self, now: Now) {
        let is_kept = self.keeps;
        let held = |life: &Self, offset: &i64| {
            life.settled.contains(offset)
                || life.flights.contains_key(offset)
                || life.dying.contains(offset)
        };
        let first = (0..self.metas.len() as i64).find(|offset| !held(self, offset));
        match self.ledger.oldest(is_kept) {
            None => assert!(is_kept || first.is_none(), "{first:?} can go"),
            Some(oldest @ (Oldest::Known(offset) | Oldest::Unread(offset))) if !is_kept => {
                assert_eq!(Some(offset), first);
                self.ledger.drop(oldest);
                self.settled.insert(offset);
            }
            Some(Oldest::Known(offset)) => {
                assert!(!held(self, &offset));
                self.ledger.give_up(offset, Cause::Depth);
                self.failed(offset, Failed::Dead(Cause::Depth));
            }
            Some(Oldest::Unread(offset)) => {
                let meta = self.metas[offset as usize];
                self.ledger.met(offset, meta, now);
            }
        }
    }

    /// Another order, for what is in flight and known too.
    fn alter(&mut self) {
        if self.random.chance(30) {
            self.policy.order = self.random.pick(&[Order::None, Order::Key, Order::Strict]);
            self.ledger.set_policy(self.policy);
        }
    }

    fn delivered(&mut self, offset: i64, holder: u64, attempt: u32) {
        assert!(!self.settled.contains(&offset) && !self.dying.contains(&offset));
        assert!(offset >= self.start);
        let before = self.attempts.insert(offset, attempt);
        assert!(before.is_none_or(|before| attempt == before + 1));
        let meta = self.metas[offset as usize];
        assert!(meta.due_ms <= at(self.now).wall_ms, "its time has not come");
        assert!(self.flights.insert(offset, (holder, attempt)).is_none());
        let same = |other: &i64| match self.policy.order {
            Order::None => false,
            Order::Key => meta.key.is_some() && self.metas[*other as usize].key == meta.key,
            Order::Strict => true,
        };
        let others: Vec<i64> = self.flights.keys().copied().filter(same).collect();
        assert_eq!(
            others.len(),
            usize::from(others.contains(&offset)),
            "one of a key at a time"
        );
        // None that was there first is passed, but those whose time had not come.
        let passed = (self.start..offset).filter(same).find(|each| {
            let had_time = self.metas[*each as usize].due_ms <= at(0).wall_ms;
            !self.settled.contains(each) && had_time && meta.due_ms <= at(0).wall_ms
        });
        assert_eq!(passed, None, "of its key, before {offset}");
    }

    fn any(&mut self) -> Option<(i64, u32)> {
        let all: Vec<(i64, u32)> = self
            .flights
            .iter()
            .map(|(at, each)| (*at, each.1))
            .collect();
        self.random.choose(&all).copied()
    }

    fn settle(&mut self) {
        if let Some((offset, attempt)) = self.any() {
            assert_eq!(self.ledger.ack(offset, attempt), Ok(()));
            self.flights.remove(&offset);
            self.settled.insert(offset);
        }
    }

    fn fail(&mut self, now: Now) {
        let Some((offset, attempt)) = self.any() else {
            return;
        };
        let failed = match self.random.below(3_u8) {
            0 => self.ledger.reject(offset, attempt),
            1 => self
                .ledger
                .nack(offset, attempt, Some(self.random.below(5_000)), now, 3),
            _ => self
                .ledger
                .nack(offset, attempt, None, now, self.random.bits()),
        };
        self.failed(offset, failed.expect("it is in flight"));
    }

    fn failed(&mut self, offset: i64, failed: Failed) {
        self.flights.remove(&offset);
        match failed {
            Failed::Again(due_ms) => assert!(due_ms >= self.now),
            Failed::Dead(_) => assert!(self.dying.insert(offset)),
        }
    }

    /// Settling what is not in flight is refused, and changes nothing.
    fn late(&mut self, now: Now) {
        if self.metas.is_empty() {
            return;
        }
        let offset = self.random.below(self.metas.len() as i64);
        let flying = self.flights.get(&offset).map(|each| each.1);
        let attempt = self.random.below(6_u32);
        if flying != Some(attempt) {
            let late = self.ledger.ack(offset, attempt);
            assert!(late.is_err());
            if self.settled.contains(&offset) {
                assert_eq!(late, Err(Late::Settled));
            }
            assert_eq!(
                self.ledger.nack(offset, attempt, None, now, 0).unwrap_err(),
                late.unwrap_err()
            );
        }
    }

    fn leave(&mut self, now: Now) {
        let (holder, has_failed) = (self.random.below(3_u64), self.random.chance(50));
        let had: Vec<i64> = self
            .flights
            .iter()
            .filter(|each| each.1 .0 == holder)
            .map(|each| *each.0)
            .collect();
        let mut back = Vec::new();
        while let Some((offset, failed)) = self.ledger.gone(holder, has_failed, now, 0) {
            self.failed(offset, failed);
            back.push(offset);
        }
        back.sort_unstable();
        assert_eq!(back, had);
    }

    fn bury(&mut self) {
        if let Some(offset) = self.dying.pop_first() {
            self.ledger.buried(offset);
            self.settled.insert(offset);
        }
    }

    fn trim(&mut self) {
        let floor = self.ledger.settled().floor();
        self.start = (self.start + self.random.below(5_i64)).min(self.metas.len() as i64);
        self.ledger.trimmed(self.start);
        assert!(self.ledger.settled().floor() >= floor.max(self.start));
        self.flights.retain(|offset, _| *offset >= self.start);
        self.dying.retain(|offset| *offset >= self.start);
        self.settled.extend(0..self.start);
    }

    fn write(&mut self) {
        for number in self.ledger.settled_mut().take_changed() {
            let Some(record) = self.ledger.settled_mut().record(number) else {
                self.chunks.remove(&number);
                continue;
            };
            let chunk = self.chunks.entry(number).or_default();
            chunk.take_in(&record).expect("ours");
        }
        self.kept.clone_from(&self.settled);
    }

    /// What was written is all that there is.
    fn crash(&mut self) {
        let settled = Settled::restored(self.chunks.clone()).unwrap_or_else(|| Settled::new(0));
        for offset in 0..self.metas.len() as i64 {
            assert_eq!(settled.has(offset), self.kept.contains(&offset), "{offset}");
        }
        self.ledger = Ledger::new(self.policy, settled, self.metas.len() as i64, Key(3, 4));
        self.ledger.trimmed(self.start);
        self.settled.clone_from(&self.kept);
        self.settled.extend(0..self.start);
        self.flights.clear();
        self.dying.clear();
        self.attempts.clear();
    }

    /// All that is owed comes, and can be settled.
    fn drain(&mut self) {
        while !self.dying.is_empty() {
            self.bury();
        }
        for _ in 0..10_000 {
            if let Some((offset, attempt)) = self.any() {
                assert_eq!(self.ledger.ack(offset, attempt), Ok(()));
                self.flights.remove(&offset);
                self.settled.insert(offset);
            }
            self.take(at(self.now));
            while !self.dying.is_empty() {
                self.bury();
            }
            if self.settled.len() == self.metas.len() {
                break;
            }
            if self.flights.is_empty() {
                self.now = self.ledger.wake_ms().unwrap_or(self.now).max(self.now);
            }
        }
        assert_eq!(self.settled.len(), self.metas.len(), "all is settled");
        assert_eq!((self.ledger.depth(), self.ledger.in_flight()), (0, 0));
        self.ledger.validate();
    }
}

fn live(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut life = Life::new(seed);
        for _ in 0..300 {
            life.step();
            life.ledger.validate();
        }
        life.drain();
    }
}

#[test]
fn every_message_is_settled_once_or_still_owed() {
    live(0..60);
}

#[test]
#[ignore = "minutes: make soak"]
fn every_message_is_settled_once_or_still_owed_over_many_lives() {
    live(1_000..40_000);
}
