//! Deliveries that failed, and messages that do not come again.

use super::{Entry, Ledger, State};
use crate::queue::{Cause, Failed, Meta, Order, Try};
use crate::Now;

/// Failures of a message that was rejected, of one that was tried for too long, and of one that was
/// the oldest of too many.
const REJECTED: u32 = u32::MAX;
const TOO_LONG: u32 = u32::MAX - 1;
const TOO_MANY: u32 = u32::MAX - 2;

impl Ledger {
    pub(super) fn fail(
        &mut self,
        offset: i64,
        delay_ms: Option<u64>,
        has_failed: bool,
        now: Now,
        random: u64,
    ) -> Failed {
        self.land(offset);
        let policy = self.policy;
        let entry = self.open.get_mut(&offset).expect("it was in flight");
        entry.failures += u32::from(has_failed);
        let tried_ms = (now.wall_ms - entry.first_ms).max(0) as u64;
        let cause = if policy.failures_max > 0 && entry.failures >= policy.failures_max {
            Some(Cause::Attempts)
        } else if policy.total_ms > 0 && tried_ms >= policy.total_ms {
            Some(Cause::TotalTime)
        } else {
            None
        };
        if let (Some(cause), true) = (cause, has_failed) {
            return self.die(offset, cause);
        }
        let rest_ms = delay_ms.unwrap_or_else(|| policy.backoff.rest_ms(entry.failures, random));
        // What is too old before it has rested is so at that time.
        let left_ms = entry
            .meta
            .old_ms(&policy)
            .saturating_sub(now.wall_ms)
            .max(0) as u64;
        let rest_ms = rest_ms.min(left_ms);
        let tried = Try {
            attempt: entry.attempt,
            failures: entry.failures,
            first_ms: entry.first_ms,
            due_ms: now
                .wall_ms
                .saturating_add(i64::try_from(rest_ms).unwrap_or(i64::MAX)),
            rest_ms,
        };
        let (meta, overtook) = (entry.meta, std::mem::take(&mut entry.overtook));
        self.settled.note(offset, tried);
        let due_ms = now.mono_ms.saturating_add(rest_ms);
        if overtook && policy.order != Order::None {
            if offset >= self.next {
                self.remove(offset); // it is read again in its turn
                self.shed_from = self.shed_from.min(offset);
                return Failed::Again(due_ms);
            }
            self.take_place(offset);
        }
        self.rest(offset, due_ms);
        self.free(&meta);
        Failed::Again(due_ms)
    }

    /// How long a message that is met rests, milliseconds: what is left of its back-off and of its
    /// delay, and no longer than they were, for the clock may have been set since.
    pub(super) fn rests_ms(&self, offset: i64, meta: &Meta, now: Now) -> u64 {
        let left_ms = |due_ms: i64| due_ms.saturating_sub(now.wall_ms).max(0) as u64;
        let tried = self.settled.tried(offset);
        let failed_ms = tried.map_or(0, |tried| left_ms(tried.due_ms).min(tried.rest_ms));
        let rests_ms = failed_ms.max(left_ms(meta.due_ms).min(meta.delay_ms));
        // One that is too old by then is so at that time.
        rests_ms.min(left_ms(meta.old_ms(&self.policy)))
    }

    pub(super) fn die(&mut self, offset: i64, cause: Cause) -> Failed {
        self.land(offset);
        let entry = &self.open[&offset];
        match entry.state {
            State::Ready => {
                self.ready[usize::from(entry.meta.priority)].remove(&offset);
            }
            State::Resting(due_ms) => {
                self.rested(due_ms, offset);
            }
            // One behind others of its key stays there: until it is settled, what follows waits.
            _ => {}
        }
        let entry = self.open.get_mut(&offset).expect("it is owed");
        entry.state = State::Dying;
        self.dying += 1;
        let tried = Try {
            attempt: entry.attempt,
            failures: match cause {
                Cause::Rejected => REJECTED,
                Cause::TotalTime => TOO_LONG,
                Cause::Depth => TOO_MANY,
                Cause::Attempts | Cause::Expired => entry.failures,
            },
            first_ms: entry.first_ms,
            due_ms: 0,
            rest_ms: 0,
        };
        let meta = entry.meta;
        self.free(&meta);
        self.settled.note(offset, tried); // whoever was told that it is dead may rely on it
        Failed::Dead(cause)
    }

    /// Why a message is not to be given out any more: it is too old, or was dead when the node
    /// ended and that it was settled was not durable.
    pub(super) fn doom_of(&self, entry: &Entry, now: Now) -> Option<Cause> {
        let failures_max = self.policy.failures_max;
        match entry.failures {
            REJECTED => Some(Cause::Rejected),
            TOO_LONG => Some(Cause::TotalTime),
            TOO_MANY => Some(Cause::Depth),
            failures if failures_max > 0 && failures >= failures_max => Some(Cause::Attempts),
            _ => (entry.meta.old_ms(&self.policy) <= now.wall_ms).then_some(Cause::Expired),
        }
    }
}
