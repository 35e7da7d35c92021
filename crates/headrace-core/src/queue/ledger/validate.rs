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
            let heads = entry.meta.key.and_then(|key| self.rows.get(&key));
            let is_head = entry.meta.key.is_none() || heads.is_some_and(|row| row.head == *offset);
            match entry.state {
                State::Ready => {
                    assert!(self.ready[usize::from(entry.meta.priority)].contains(offset));
                    assert!(is_head);
                    counted[0] += 1;
                }
                State::Resting(due_ms) => {
                    assert!(self.resting.contains(&(due_ms, *offset)));
                    counted[1] += 1;
                }
                State::Flying(id) => {
                    assert_eq!(self.flights.get(id).offset, *offset);
                    assert!(is_head);
                    counted[2] += 1;
                }
                State::Dying => {
                    counted[3] += 1;
                }
                State::Behind => {
                    let row = heads.expect("it stands in one");
                    assert!(row.behind.contains(offset));
                }
            }
        }
        let ready: usize = self.ready.iter().map(BTreeSet::len).sum();
        let expected = [ready, self.resting.len(), self.flights.len(), self.dying];
        assert_eq!(counted, expected);
        for (key, row) in &self.rows {
            for offset in row.behind.iter().chain([&row.head]) {
                assert_eq!(self.open[offset].meta.key, Some(*key));
            }
        }
    }
}
