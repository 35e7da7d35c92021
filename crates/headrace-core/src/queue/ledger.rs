//! One partition of a queue, as one group has it.

mod aside;
mod failure;
mod priority;
mod rows;
mod shed;
mod validate;
mod views;

use std::collections::{BTreeMap, BTreeSet};

use super::flights::{Flight, Flights};
use super::settled::Settled;
use super::{
    Cause, Failed, Late, Meta, Next, Order, Policy, DYING_MAX, PRIORITIES, RESTING_MAX, TURNS,
};
use crate::hash::{Key, Map};
use crate::Now;
use rows::Row;
pub use shed::Oldest;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// An earlier one of its key is not settled.
    Behind,
    /// Until then, on the clock that never steps back.
    Resting(u64),
    /// With this id.
    Flying(usize),
    /// It is dead, and that is not durable yet.
    Dying,
}

/// A message that is known and not settled.
#[derive(Clone, Copy, Debug)]
struct Entry {
    meta: Meta,
    attempt: u32,
    failures: u32,
    /// Of the first delivery, milliseconds since 1970.
    first_ms: i64,
    state: State,
    /// In the row of its key.
    stands: bool,
    /// It was given out before others of its key, in another order.
    overtook: bool,
}

/// What one group was given of one partition, and what it is owed.
#[derive(Debug)]
pub struct Ledger {
    policy: Policy,
    settled: Settled,
    /// From here on the log has not been read.
    next: i64,
    /// Behind the last message.
    end: i64,
    open: Map<i64, Entry>,
    ready: [BTreeSet<i64>; PRIORITIES],
    resting: BTreeSet<(u64, i64)>,
    /// Of those, the ones that wait for somebody who takes so many bytes.
    aside: BTreeMap<i64, usize>,
    flights: Flights,
    rows: Map<u64, Row>,
    dying: usize,
    /// The highest attempt given out.
    attempt_max: u32,
    /// Of the last seek: behind what may have been delivered before, and the highest attempt then.
    reached: (i64, u32),
    turns: u32,
    /// Up to here messages that overtake others are known.
    scanned: i64,
    /// How far it is to be looked for them before something is given out.
    pass_to: i64,
    /// When the last look for them began.
    passed_ms: Option<u64>,
    /// Before this one, none is to be let go where more is owed than may be.
    shed_from: i64,
}

impl Ledger {
    /// What is settled is known; nothing has been read.
    pub fn new(policy: Policy, settled: Settled, end: i64, hash_key: Key) -> Self {
        let next = settled.floor();
        Self {
            policy,
            next,
            settled,
            end,
            open: Map::with_hasher(hash_key),
            ready: Default::default(),
            resting: BTreeSet::new(),
            aside: BTreeMap::new(),
            flights: Flights::new(hash_key),
            rows: Map::with_hasher(hash_key),
            dying: 0,
            attempt_max: 0,
            reached: (0, 0),
            turns: 0,
            scanned: next,
            pass_to: next,
            passed_ms: None,
            shed_from: next,
        }
    }

    /// What is settled.
    pub fn settled(&self) -> &Settled {
        &self.settled
    }

    /// What is settled, to take or give back what is to be written of it.
    pub fn settled_mut(&mut self) -> &mut Settled {
        &mut self.settled
    }

    /// When something is to be done without anybody's doing, on the clock that never steps back.
    pub fn wake_ms(&self) -> Option<u64> {
        let overdue = self.flights.first().map(|(_, flight)| flight.deadline_ms);
        let due = self.resting.first().map(|(due_ms, _)| *due_ms);
        [overdue, due].into_iter().flatten().min()
    }

    /// As [`Self::wake_ms`], after then: what was due is in its turn already.
    pub fn wake_after_ms(&self, mono_ms: u64) -> Option<u64> {
        let overdue = self.flights.first().map(|(_, flight)| flight.deadline_ms);
        let mut due = self.resting.range((mono_ms + 1, i64::MIN)..);
        let due = due.next().map(|(due_ms, _)| *due_ms);
        [overdue, due].into_iter().flatten().min()
    }

    /// The log ends there, as it was found when the node began: what was settled behind has gone.
    ///
    /// # Panics
    /// Something was read.
    pub fn clip(&mut self, end: i64) {
        assert!(self.open.is_empty(), "nothing was read");
        self.settled.clip(end);
        self.next = self.settled.floor();
        (self.scanned, self.pass_to, self.shed_from) = (self.next, self.next, self.next);
        self.end = end;
    }

    /// The log has grown.
    pub fn grown(&mut self, end: i64) {
        self.end = self.end.max(end);
    }

    /// Retention has taken what is before `start`: it is owed no longer. Who had it.
    pub fn trimmed(&mut self, start: i64) -> Vec<u64> {
        let mut lost: Vec<i64> = self.open.keys().copied().filter(|at| *at < start).collect();
        lost.sort_unstable();
        let holders = lost
            .iter()
            .filter_map(|offset| self.holder(*offset))
            .collect();
        for offset in lost {
            self.end_of(offset);
        }
        self.settled.settle_below(start);
        self.end = self.end.max(start);
        self.next = self.next.max(start);
        holders
    }

    /// Begins at `start`, whatever was settled; deliveries that are not over can no longer settle.
    pub fn seek(&mut self, start: i64) {
        let (end, key) = (self.end.max(start), *self.open.hasher());
        let reached = (self.reached.0.max(self.next), self.attempt_max);
        let mut settled = std::mem::replace(&mut self.settled, Settled::new(0));
        settled.seek(start);
        *self = Self::new(self.policy, settled, end, key);
        (self.reached, self.attempt_max) = (reached, reached.1);
    }

    /// Another policy, for what is delivered, fails or grows too old from now on. In another order
    /// nothing is given out that it forbids, of what is known already neither.
    pub fn set_policy(&mut self, policy: Policy) {
        let before = std::mem::replace(&mut self.policy, policy).order;
        self.shed_from = self.settled.floor();
        if before != policy.order {
            self.reorder();
        }
    }

    /// What can be done now.
    ///
    /// # Panics
    /// Never.
    pub fn next(&mut self, now: Now) -> Next {
        self.join_rested(now);
        if self.prioritises() {
            return self.next_by_priority(now);
        }
        match self.first_ready() {
            Some(offset) => self.deliver_or_bury(offset, now),
            None => self.next_unread(),
        }
    }

    fn deliver_or_bury(&self, offset: i64, now: Now) -> Next {
        match self.doom_of(&self.open[&offset], now) {
            Some(_) if self.dying >= DYING_MAX => Next::Wait,
            Some(cause) => Next::Dead(offset, cause),
            None => Next::Deliver(offset),
        }
    }

    /// As [`Self::next`], though nobody has room: nothing is looked for ahead.
    pub fn next_to_die(&mut self, now: Now) -> Next {
        self.join_rested(now);
        match self.first_ready() {
            Some(offset) => self.deliver_or_bury(offset, now),
            None => self.next_unread(),
        }
    }

    /// What has rested is in its turn again.
    fn join_rested(&mut self, now: Now) {
        while let Some((due_ms, offset)) = self.resting.first().copied() {
            if due_ms > now.mono_ms {
                break;
            }
            self.rested(due_ms, offset);
            self.join(offset);
        }
    }

    /// Where reading goes on, if it may.
    fn next_unread(&mut self) -> Next {
        if self.is_held() {
            return Next::Wait;
        }
        self.next_in_log()
    }

    /// Whether messages go one at a time, and one is known that holds up the others. Of what rests,
    /// that which has failed stands in a row, and what is delayed holds up nobody.
    fn is_held(&self) -> bool {
        let is_held = !self.rows.is_empty() || self.open.len() > self.resting.len();
        self.policy.order == Order::Strict && is_held
    }

    /// As [`Self::next_unread`], of a strict order too.
    fn next_in_log(&mut self) -> Next {
        self.next = self.settled.next_unsettled(self.next);
        while self.open.contains_key(&self.next) {
            self.next = self.settled.next_unsettled(self.next + 1);
        }
        if self.next >= self.end {
            return Next::Wait;
        }
        let early = if self.prioritises() { self.early() } else { 0 };
        let ahead = self.open.len() - self.flights.len() - self.resting.len() - early;
        if ahead < self.policy.read_ahead.max(1) && self.resting.len() < RESTING_MAX {
            Next::Read(self.next)
        } else {
            Next::Blocked
        }
    }

    /// The log has a message at `offset`, and between where reading was and there it has none.
    pub fn met(&mut self, offset: i64, meta: Meta, now: Now) {
        self.pass(offset);
        self.next = self.next.max(offset + 1);
        self.met_early(offset, meta, now);
    }

    /// Between where reading was and `offset` there is nothing for the group.
    pub fn pass(&mut self, offset: i64) {
        let mut missing = self.settled.next_unsettled(self.next);
        while missing < offset {
            if !self.open.contains_key(&missing) {
                self.settled.settle(missing);
            }
            missing = self.settled.next_unsettled(missing + 1);
        }
        self.next = self.next.max(offset);
    }

    /// There is a message that nobody can be given: it is owed no longer. Whether it was, and unread.
    pub fn skip(&mut self, offset: i64) -> bool {
        !self.open.contains_key(&offset) && self.settled.settle(offset)
    }

    /// A message that was known is no more.
    pub fn lost(&mut self, offset: i64) {
        self.end_of(offset);
    }

    /// As [`Self::met`], of one that is not read in its turn.
    pub fn met_early(&mut self, offset: i64, meta: Meta, now: Now) {
        if self.settled.has(offset) || self.open.contains_key(&offset) {
            return;
        }
        self.end = self.end.max(offset + 1);
        let tried = self.settled.tried(offset);
        let rests_ms = self.rests_ms(offset, &meta, now);
        let entry = Entry {
            meta: Meta {
                priority: meta.priority.min(PRIORITIES as u8 - 1),
                ..meta
            },
            // What may have been delivered before a seek has a higher attempt than then.
            attempt: tried
                .map_or(0, |tried| tried.attempt)
                .max(if offset < self.reached.0 {
                    self.reached.1
                } else {
                    0
                }),
            failures: tried.map_or(0, |tried| tried.failures),
            first_ms: tried.map_or(0, |tried| tried.first_ms),
            state: State::Behind,
            stands: false,
            overtook: false,
        };
        self.open.insert(offset, entry);
        if rests_ms == 0 {
            return self.join(offset);
        }
        // One that has failed keeps its place; one whose time has not come has none yet.
        if tried.is_some() && !self.stand_in_row(offset) {
            return;
        }
        self.rest(offset, now.mono_ms.saturating_add(rests_ms));
    }

    /// Gives a message to `holder`: its attempt, from 1.
    ///
    /// # Panics
    /// Where [`Self::next`] has not said so.
    pub fn deliver(&mut self, offset: i64, holder: u64, now: Now) -> u32 {
        let deadline_ms = now.mono_ms + self.policy.deadline_ms;
        let id = self.flights.add(Flight {
            offset,
            holder,
            deadline_ms,
        });
        let entry = self.open.get_mut(&offset).expect("it was told of");
        assert_eq!(entry.state, State::Ready, "it was told of");
        entry.state = State::Flying(id);
        entry.attempt += 1;
        if entry.first_ms == 0 {
            entry.first_ms = now.wall_ms;
        }
        let (attempt, meta) = (entry.attempt, entry.meta);
        self.attempt_max = self.attempt_max.max(attempt);
        self.ready[usize::from(meta.priority)].remove(&offset);
        if let Some(row) = self.row_of(&meta) {
            row.out += 1;
        }
        self.turns = (self.turns + 1) % TURNS;
        attempt
    }

    /// The delivery was done with.
    ///
    /// # Errors
    /// It can no longer be settled.
    pub fn ack(&mut self, offset: i64, attempt: u32) -> Result<(), Late> {
        self.flying(offset, attempt)?;
        self.end_of(offset);
        Ok(())
    }

    /// The delivery has failed: the message comes again after `delay_ms`, or what the back-off says.
    ///
    /// # Errors
    /// It can no longer be settled.
    pub fn nack(
        &mut self,
        offset: i64,
        attempt: u32,
        delay_ms: Option<u64>,
        now: Now,
        random: u64,
    ) -> Result<Failed, Late> {
        self.flying(offset, attempt)?;
        Ok(self.fail(offset, delay_ms, true, now, random))
    }

    /// The message is not to come again.
    ///
    /// # Errors
    /// It can no longer be settled.
    pub fn reject(&mut self, offset: i64, attempt: u32) -> Result<Failed, Late> {
        self.flying(offset, attempt)?;
        Ok(self.die(offset, Cause::Rejected))
    }

    /// The delivery has until `deadline_ms`, on the clock that never steps back.
    ///
    /// # Errors
    /// It can no longer be settled.
    pub fn extend(&mut self, offset: i64, attempt: u32, deadline_ms: u64) -> Result<(), Late> {
        let id = self.flying(offset, attempt)?;
        self.flights.extend(id, deadline_ms);
        Ok(())
    }

    /// A delivery whose deadline has passed, and what becomes of its message; None where there is
    /// none.
    pub fn overdue(&mut self, now: Now, random: u64) -> Option<(Flight, Failed)> {
        let (_, flight) = self.flights.first()?;
        let is_over = flight.deadline_ms <= now.mono_ms;
        is_over.then(|| (flight, self.fail(flight.offset, None, true, now, random)))
    }

    /// A message that `holder`, who is gone, had, and what becomes of it; None where it has none.
    /// Whoever leaves in order has not failed.
    pub fn gone(
        &mut self,
        holder: u64,
        has_failed: bool,
        now: Now,
        random: u64,
    ) -> Option<(i64, Failed)> {
        let flight = self.flights.get(self.flights.held_by(holder)?);
        let failed = self.fail(flight.offset, Some(0), has_failed, now, random);
        Some((flight.offset, failed))
    }

    /// What `from` has is in the hands of `to`, who has nothing.
    pub fn pass_on(&mut self, from: u64, to: u64) {
        self.flights.pass_on(from, to);
    }

    /// A message is dead that [`Self::next`] has told to be.
    ///
    /// # Panics
    /// It has not.
    pub fn give_up(&mut self, offset: i64, cause: Cause) {
        let state = self.open[&offset].state;
        assert!(
            matches!(state, State::Ready | State::Resting(_) | State::Behind),
            "it was told of"
        );
        self.die(offset, cause);
    }

    /// What became of a dead message is durable: it is settled.
    pub fn buried(&mut self, offset: i64) {
        let entry = self.open.get(&offset);
        if entry.is_some_and(|entry| entry.state == State::Dying) {
            self.end_of(offset);
        }
    }

    /// The id of a delivery that is not over.
    fn flying(&self, offset: i64, attempt: u32) -> Result<usize, Late> {
        match self.open.get(&offset) {
            Some(entry) if entry.attempt == 0 || attempt > entry.attempt => Err(Late::Unknown),
            Some(entry) => match entry.state {
                State::Flying(id) if entry.attempt == attempt => Ok(id),
                _ => Err(Late::Superseded),
            },
            None if self.settled.has(offset) => Err(Late::Settled),
            None if self.settled.tried(offset).is_some() => Err(Late::Superseded),
            None => Err(Late::Unknown),
        }
    }

    /// Ends the delivery of a message, where there is one.
    fn land(&mut self, offset: i64) {
        let Some(entry) = self.open.get_mut(&offset) else {
            return;
        };
        if let State::Flying(id) = entry.state {
            entry.state = State::Behind;
            let meta = entry.meta;
            self.flights.remove(id);
            if let Some(row) = self.row_of(&meta) {
                row.out -= 1;
            }
        }
    }

    fn rest(&mut self, offset: i64, due_ms: u64) {
        let entry = self.open.get_mut(&offset).expect("it is owed");
        entry.state = State::Resting(due_ms);
        self.resting.insert((due_ms, offset));
        self.shed_from = self.shed_from.min(offset);
    }
}
