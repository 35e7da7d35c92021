//! Messages of a key, one behind the other.

use std::collections::VecDeque;

use super::{Ledger, State};

/// The messages of a key that are known: the first, and those behind it.
#[derive(Debug)]
pub(super) struct Row {
    pub head: i64,
    pub behind: VecDeque<i64>,
}

impl Ledger {
    /// A message is to be given out, as soon as those of its key before it are settled.
    pub(super) fn join(&mut self, offset: i64) {
        if self.stand_in_row(offset) {
            let entry = self.open.get_mut(&offset).expect("it is owed");
            entry.state = State::Ready;
            self.ready[usize::from(entry.meta.priority)].insert(offset);
            self.shed_from = self.shed_from.min(offset);
        }
    }

    /// Stands a message behind the others of its key; whether it is the first.
    pub(super) fn stand_in_row(&mut self, offset: i64) -> bool {
        let entry = self.open.get_mut(&offset).expect("it is owed");
        let Some(key) = entry.meta.key else {
            return true;
        };
        let Some(row) = self.rows.get_mut(&key) else {
            let behind = VecDeque::new();
            self.rows.insert(
                key,
                Row {
                    head: offset,
                    behind,
                },
            );
            return true;
        };
        if row.head != offset {
            entry.state = State::Behind;
            row.behind.push_back(offset);
        }
        row.head == offset
    }

    /// A message is owed no longer.
    pub(super) fn end_of(&mut self, offset: i64) {
        self.land(offset);
        let Some(entry) = self.open.remove(&offset) else {
            return;
        };
        match entry.state {
            State::Ready => {
                self.ready[usize::from(entry.meta.priority)].remove(&offset);
            }
            State::Resting(due_ms) => {
                self.resting.remove(&(due_ms, offset));
            }
            State::Dying => self.dying -= 1,
            State::Behind | State::Flying(_) => {}
        }
        self.settled.settle(offset);
        let Some(key) = entry.meta.key else {
            return;
        };
        let Some(row) = self.rows.get_mut(&key) else {
            return; // its time had not come
        };
        if row.head != offset {
            // From the front on, for it is the oldest that go.
            let place = row.behind.iter().position(|each| *each == offset);
            place.and_then(|place| row.behind.remove(place));
            return;
        }
        match row.behind.pop_front() {
            None => {
                self.rows.remove(&key);
            }
            Some(head) => {
                row.head = head;
                if self.open[&head].state != State::Dying {
                    self.join(head);
                }
            }
        }
    }
}
