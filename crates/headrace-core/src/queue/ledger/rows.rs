//! Messages of a key, one behind the other.

use std::collections::VecDeque;

use super::{Ledger, State};
use crate::queue::{Meta, Order};

/// The one key of all messages, where they are given out one at a time.
const ALL: u64 = 0;

/// The messages of a key that are known: the first, and those behind it.
#[derive(Debug)]
pub(super) struct Row {
    pub head: i64,
    pub behind: VecDeque<i64>,
    /// Of all of them, those in flight: the first, or more from before the order was another.
    pub out: usize,
}

impl Ledger {
    /// What order goes by.
    pub(super) fn key_of(&self, meta: &Meta) -> Option<u64> {
        match self.policy.order {
            Order::None => None,
            Order::Key => meta.key,
            Order::Strict => Some(ALL),
        }
    }

    pub(super) fn row_of(&mut self, meta: &Meta) -> Option<&mut Row> {
        let key = self.key_of(meta)?;
        self.rows.get_mut(&key)
    }

    /// A message is to be given out, as soon as those of its key before it are settled.
    pub(super) fn join(&mut self, offset: i64) {
        if self.stand_in_row(offset) {
            let entry = self.open.get_mut(&offset).expect("it is owed");
            entry.state = State::Ready;
            self.ready[usize::from(entry.meta.priority)].insert(offset);
            self.shed_from = self.shed_from.min(offset);
        }
    }

    /// Stands a message behind the others of its key, unless it is there; whether it is the first,
    /// and none of them is in flight.
    pub(super) fn stand_in_row(&mut self, offset: i64) -> bool {
        self.enter_row(offset);
        let meta = self.open[&offset].meta;
        let is_free = self
            .row_of(&meta)
            .is_none_or(|row| row.head == offset && row.out == 0);
        if !is_free {
            self.open.get_mut(&offset).expect("it is owed").state = State::Behind;
        }
        is_free
    }

    fn enter_row(&mut self, offset: i64) {
        let Some(key) = self.key_of(&self.open[&offset].meta) else {
            return;
        };
        let entry = self.open.get_mut(&offset).expect("it is owed");
        if std::mem::replace(&mut entry.stands, true) {
            return;
        }
        let out = usize::from(matches!(entry.state, State::Flying(_)));
        if let Some(row) = self.rows.get_mut(&key) {
            row.behind.push_back(offset);
            row.out += out;
            return;
        }
        let behind = VecDeque::new();
        self.rows.insert(
            key,
            Row {
                head: offset,
                behind,
                out,
            },
        );
    }

    /// The first of a key may go, if it waits and none of them is in flight.
    pub(super) fn free(&mut self, meta: &Meta) {
        let Some(row) = self.row_of(meta).filter(|row| row.out == 0) else {
            return;
        };
        let head = row.head;
        if self.open[&head].state == State::Behind {
            self.join(head);
        }
    }

    /// A message is owed no longer.
    pub(super) fn end_of(&mut self, offset: i64) {
        if self.remove(offset) {
            self.settled.settle(offset);
        }
    }

    /// Forgets a message; whether it was known.
    pub(super) fn remove(&mut self, offset: i64) -> bool {
        self.land(offset);
        let Some(entry) = self.open.remove(&offset) else {
            return false;
        };
        match entry.state {
            State::Ready => {
                self.ready[usize::from(entry.meta.priority)].remove(&offset);
            }
            State::Resting(due_ms) => {
                self.rested(due_ms, offset);
            }
            State::Dying => self.dying -= 1,
            State::Behind | State::Flying(_) => {}
        }
        if entry.stands {
            self.leave_row(offset, &entry.meta);
            self.free(&entry.meta);
        }
        true
    }

    fn leave_row(&mut self, offset: i64, meta: &Meta) {
        let row = self.row_of(meta).expect("it stands in one");
        if row.head != offset {
            // From the front on, for it is the oldest that go.
            let place = row.behind.iter().position(|each| *each == offset);
            place.and_then(|place| row.behind.remove(place));
            return;
        }
        if let Some(head) = row.behind.pop_front() {
            row.head = head;
        } else if let Some(key) = self.key_of(meta) {
            self.rows.remove(&key);
        }
    }

    /// Has a message that overtook others of its key stand where it would without that: before those
    /// that follow it, but for such as have overtaken others, too, and are out.
    pub(super) fn take_place(&mut self, offset: i64) {
        let Some(key) = self.key_of(&self.open[&offset].meta) else {
            return;
        };
        let row = self.rows.get_mut(&key).expect("it stands in one");
        if row.head != offset {
            row.behind.retain(|each| *each != offset);
        } else if let Some(head) = row.behind.pop_front() {
            row.head = head;
        } else {
            return; // it is alone
        }
        let follows = |each: &i64| *each > offset && !self.open[each].overtook;
        if follows(&row.head) {
            let head = std::mem::replace(&mut row.head, offset);
            row.behind.push_front(head);
        } else {
            let place = row.behind.iter().position(follows);
            row.behind.insert(place.unwrap_or(row.behind.len()), offset);
        }
    }

    /// Stands what is known in rows anew, as the order says by now, each that has had its turn.
    pub(super) fn reorder(&mut self) {
        self.rows.clear();
        self.ready
            .iter_mut()
            .for_each(std::collections::BTreeSet::clear);
        let mut known: Vec<i64> = self.open.keys().copied().collect();
        known.sort_unstable();
        let mut waiting = Vec::new();
        for offset in known {
            let entry = self.open.get_mut(&offset).expect("it is known");
            entry.stands = false;
            if matches!(entry.state, State::Ready | State::Behind) {
                entry.state = State::Behind;
                waiting.push(offset);
            }
            let is_held = matches!(entry.state, State::Flying(_) | State::Dying);
            // It rests until its time, and not for a failure or for who can take it.
            let is_delayed = matches!(entry.state, State::Resting(_))
                && entry.first_ms == 0
                && !self.aside.contains_key(&offset);
            entry.overtook |= offset >= self.next;
            if self.policy.order != Order::None && offset >= self.next && !is_held {
                // It would overtake others: it is read in its turn.
                self.remove(offset);
            } else if !is_delayed {
                self.enter_row(offset);
            }
        }
        for offset in waiting {
            if self.open.contains_key(&offset) {
                self.join(offset);
            }
        }
    }
}
