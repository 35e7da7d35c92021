//! Which message comes next, by priority: those that overtake others are looked for ahead of reading.

use super::Ledger;
use crate::queue::{
    Meta, Next, Order, DYING_MAX, EARLY_MAX, PASS_MAX, PRIORITY, RESTING_MAX, TURNS,
};
use crate::Now;

impl Ledger {
    pub(super) fn prioritises(&self) -> bool {
        self.policy.prioritises && self.policy.order == Order::None
    }

    /// The message that is to be given out next: of the highest priority the first, or now and then
    /// the first of all.
    pub(super) fn first_ready(&self) -> Option<i64> {
        let mut firsts = self.ready.iter().filter_map(|class| class.first()).copied();
        if self.turns + 1 == TURNS {
            firsts.min()
        } else {
            firsts.next_back()
        }
    }

    /// As [`Self::first_ready`]; what is not read yet is of no priority of its own, for of what is
    /// all before `scanned` is known.
    pub(super) fn next_by_priority(&mut self, now: Now) -> Next {
        if let Some(offset) = self.scan_from(now) {
            return Next::Scan(offset);
        }
        let Some(first) = self.first_ready() else {
            return self.next_unread();
        };
        let is_firsts_turn = self.turns + 1 == TURNS;
        let is_plain_known = !self.ready[usize::from(PRIORITY)].is_empty();
        if is_firsts_turn || !is_plain_known && self.open[&first].meta.priority < PRIORITY {
            let unread = self.next_unread();
            let comes_first = |at| !is_firsts_turn || at < first;
            if matches!(unread, Next::Read(at) if comes_first(at)) {
                return unread;
            }
        }
        self.deliver_or_bury(first, now)
    }

    /// Messages with a priority of their own that wait.
    pub(super) fn early(&self) -> usize {
        let classes = self.ready.iter().enumerate();
        let early = classes.filter(|(class, _)| *class != usize::from(PRIORITY));
        early.map(|(_, class)| class.len()).sum()
    }

    /// Where to look next for messages that overtake others; None where that has been done as far as
    /// it is to be before something is given out. A look goes as far as the log did when it began,
    /// and another begins a millisecond later at the earliest, so that looking holds up nothing for
    /// ever.
    fn scan_from(&mut self, now: Now) -> Option<i64> {
        self.scanned = self.scanned.max(self.next);
        let is_full = self.resting.len() >= RESTING_MAX || self.dying >= DYING_MAX;
        if is_full || self.early() >= EARLY_MAX {
            return None;
        }
        if self.scanned >= self.pass_to {
            if self.scanned >= self.end || self.passed_ms == Some(now.mono_ms) {
                return None;
            }
            self.pass_to = self.end.min(self.scanned + PASS_MAX);
            self.passed_ms = Some(now.mono_ms);
        }
        Some(self.scanned)
    }

    /// The log has a message at `offset`, and between where it was looked last and there it has
    /// none: of what has no priority of its own nothing is kept.
    pub fn saw(&mut self, offset: i64, meta: Meta, now: Now) {
        self.looked(offset + 1);
        if meta.priority != PRIORITY {
            self.met_early(offset, meta, now);
        }
    }

    /// Below `offset` there is nothing else that overtakes others.
    pub fn looked(&mut self, offset: i64) {
        self.scanned = self.scanned.max(offset);
    }
}
