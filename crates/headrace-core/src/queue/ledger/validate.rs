//! What must always hold of a ledger.

use std::collections::BTreeSet;

use super::{Ledger, State};

impl Ledger {
    /// Asserts what must always hold.
    ///
    /// # Panics
    /// It does not.
    pub fn validate(&self) {
        let mut counted = [0_usize; 4];
        for (offset, entry) in &self.open {
            assert!(!self.settled.has(*offset), "{offset} is settled and owed");
            let row = self.key_of(&entry.meta).and_then(|key| self.rows.get(&key));
            let row = row.filter(|_| entry.stands);
            let is_free = row.is_none_or(|row| row.head == *offset && row.out == 0);
            let has_place = row.is_some() || self.key_of(&entry.meta).is_none();
            match entry.state {
                State::Ready => {
                    assert!(self.ready[usize::from(entry.meta.priority)].contains(offset));
                    assert!(has_place && is_free);
                    counted[0] += 1;
                }
                State::Resting(due_ms) => {
                    assert!(self.resting.contains(&(due_ms, *offset)));
                    counted[1] += 1;
                }
                State::Flying(id) => {
                    assert_eq!(self.flights.get(id).offset, *offset);
                    assert!(has_place);
                    counted[2] += 1;
                }
                State::Dying => {
                    counted[3] += 1;
                }
                State::Behind => {
                    assert!(row.is_some() && !is_free);
                }
            }
        }
        let ready: usize = self.ready.iter().map(BTreeSet::len).sum();
        let expected = [ready, self.resting.len(), self.flights.len(), self.dying];
        assert_eq!(counted, expected);
        for offset in self.aside.keys() {
            assert!(matches!(self.open[offset].state, State::Resting(_)));
        }
        for (key, row) in &self.rows {
            let mut out = 0;
            for offset in row.behind.iter().chain([&row.head]) {
                let entry = &self.open[offset];
                assert!(entry.stands && self.key_of(&entry.meta) == Some(*key));
                out += usize::from(matches!(entry.state, State::Flying(_)));
            }
            assert_eq!(out, row.out);
        }
    }
}
