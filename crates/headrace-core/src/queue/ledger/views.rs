//! What can be seen of a ledger.

use super::{Ledger, State};
use crate::queue::{Meta, Order, Standing};
use crate::Now;

impl Ledger {
    /// Messages that are not settled.
    pub fn depth(&self) -> u64 {
        self.settled.open_below(self.end)
    }

    /// Messages that are owed, and not known to be dead.
    pub fn owed(&self) -> u64 {
        self.depth() - self.dying as u64
    }

    /// Of those, the ones that have been read.
    pub fn known(&self) -> u64 {
        (self.open.len() - self.dying) as u64
    }

    /// When a message that is known will be too old, on the clock that never steps back; None where
    /// that is never.
    pub fn expires_ms(&self, offset: i64, now: Now) -> Option<u64> {
        let expires_ms = self.open.get(&offset)?.meta.old_ms(&self.policy);
        let left_ms = expires_ms.saturating_sub(now.wall_ms).max(0) as u64;
        (expires_ms < i64::MAX).then(|| now.mono_ms.saturating_add(left_ms))
    }

    /// Messages from the first that is owed to the end of the log, settled or not.
    pub fn lag(&self) -> u64 {
        (self.end - self.settled.floor()).max(0) as u64
    }

    /// When the first message that is owed was stored, milliseconds since 1970; None where there is
    /// none, or it has not been read.
    pub fn oldest_ms(&self) -> Option<i64> {
        let oldest = self.open.get(&self.settled.floor())?;
        Some(oldest.meta.since_ms)
    }

    /// How long a message that has been delivered once had waited for that, since it was stored or
    /// its time had come, milliseconds; None where it came again.
    pub fn waited_ms(&self, offset: i64) -> Option<u64> {
        let entry = self.open.get(&offset).filter(|entry| entry.attempt == 1)?;
        let from_ms = entry.meta.since_ms.max(entry.meta.due_ms);
        Some(entry.first_ms.saturating_sub(from_ms).max(0) as u64)
    }

    /// Deliveries that are not over.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// Messages that rest after a failure, or until their time.
    pub fn resting(&self) -> usize {
        self.resting.len()
    }

    /// Who has a message.
    pub fn holder(&self, offset: i64) -> Option<u64> {
        match self.open.get(&offset)?.state {
            State::Flying(id) => Some(self.flights.get(id).holder),
            _ => None,
        }
    }

    /// Who has each message that is in flight.
    pub fn holders(&self) -> impl Iterator<Item = u64> + '_ {
        self.flights.holders()
    }

    /// How often a message has been delivered.
    pub fn attempts(&self, offset: i64) -> u32 {
        let tried = || self.settled.tried(offset).map_or(0, |tried| tried.attempt);
        let entry = self.open.get(&offset);
        entry.map_or_else(tried, |entry| entry.attempt)
    }

    /// What a message of the log, of which that is known, is to the group.
    pub fn standing(&self, offset: i64, meta: &Meta, now: Now) -> Standing {
        let until = |due_ms: u64| {
            if due_ms > now.mono_ms {
                Standing::Resting(due_ms)
            } else {
                Standing::Available
            }
        };
        match self.open.get(&offset).map(|entry| entry.state) {
            Some(State::Ready) => Standing::Available,
            Some(State::Behind) => Standing::Waiting,
            Some(State::Resting(due_ms)) => until(due_ms),
            Some(State::Flying(id)) => {
                let flight = self.flights.get(id);
                Standing::InFlight(flight.holder, flight.deadline_ms)
            }
            Some(State::Dying) => Standing::Dead,
            None if self.settled.has(offset) => Standing::Settled,
            // It has not been read.
            None => match self.rests_ms(offset, meta, now) {
                0 if self.is_held() || self.waits_unread(offset) => Standing::Waiting,
                rests_ms => until(now.mono_ms.saturating_add(rests_ms)),
            },
        }
    }

    /// Whether one that has not been read waits for others that have not, for they go one at a time.
    fn waits_unread(&self, offset: i64) -> bool {
        let mut first = self.settled.next_unsettled(self.next);
        while self.open.contains_key(&first) {
            first = self.settled.next_unsettled(first + 1);
        }
        self.policy.order == Order::Strict && first < offset
    }

    /// Whether a message waits for earlier ones of its key.
    pub fn is_behind(&self, offset: i64) -> bool {
        let entry = self.open.get(&offset);
        entry.is_some_and(|entry| entry.state == State::Behind)
    }

    /// Whether that delivery of a message is the one that can settle it.
    pub fn is_flying(&self, offset: i64, attempt: u32) -> bool {
        self.flying(offset, attempt).is_ok()
    }

    /// Whether a message is known and not settled.
    pub fn is_open(&self, offset: i64) -> bool {
        self.open.contains_key(&offset)
    }

    /// Whether a message is the next that may be given out.
    pub fn is_next(&self, offset: i64) -> bool {
        self.first_ready() == Some(offset)
    }

    /// Whether a message may be given out, now or in its turn.
    pub fn is_ready(&self, offset: i64) -> bool {
        let entry = self.open.get(&offset);
        entry.is_some_and(|entry| entry.state == State::Ready)
    }
}
