//! What is set aside: messages that are larger than those take who have room.

use super::{Ledger, State};
use crate::Now;

/// Until somebody is looked for again, milliseconds, unless one who takes it has room before.
const ASIDE_MS: u64 = 60_000;

/// Messages that are looked at for one that somebody takes.
const RECALL_MAX: usize = 100;

impl Ledger {
    /// A message of so many bytes, which [`Ledger::next`] has told to deliver, waits for who can
    /// take it, and keeps its place. That is no failure.
    ///
    /// # Panics
    /// It has not.
    pub fn set_aside(&mut self, offset: i64, bytes: usize, now: Now) {
        let entry = &self.open[&offset];
        assert_eq!(entry.state, State::Ready, "it was told of");
        self.ready[usize::from(entry.meta.priority)].remove(&offset);
        let expires_ms = entry.meta.old_ms(&self.policy);
        let left_ms = expires_ms.saturating_sub(now.wall_ms).max(0) as u64;
        self.rest(offset, now.mono_ms.saturating_add(ASIDE_MS.min(left_ms)));
        self.aside.insert(offset, bytes);
    }

    /// The first message that is set aside and has no more bytes is in its turn again; whether there
    /// is one.
    pub fn recall(&mut self, bytes_max: usize) -> bool {
        let mut first = self.aside.iter().take(RECALL_MAX);
        let found = first.find(|(_, bytes)| **bytes <= bytes_max);
        let Some(offset) = found.map(|(offset, _)| *offset) else {
            return false;
        };
        if let State::Resting(due_ms) = self.open[&offset].state {
            self.rested(due_ms, offset);
        }
        self.join(offset);
        true
    }

    /// Whether something is set aside.
    pub fn has_aside(&self) -> bool {
        !self.aside.is_empty()
    }

    /// A message rests no longer.
    pub(super) fn rested(&mut self, due_ms: u64, offset: i64) {
        self.resting.remove(&(due_ms, offset));
        self.aside.remove(&offset);
    }
}
