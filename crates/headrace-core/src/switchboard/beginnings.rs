//! Connections that hold the beginning of a large packet, in the order in which those began.
//!
//! Owns their age. Must not know how much they hold, nor when that is too much.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

/// When a beginning came, as its number among all of them.
pub type Begun = NonZeroU64;

/// Connections that hold one, by age.
#[derive(Debug, Default)]
pub struct Beginnings {
    by_age: BTreeMap<Begun, u32>,
    /// So many have come.
    count: u64,
}

impl Beginnings {
    /// One came.
    pub fn begin(&mut self, slot: u32) -> Begun {
        self.count += 1;
        let begun = Begun::new(self.count).expect("it counts from 1");
        self.by_age.insert(begun, slot);
        begun
    }

    /// It is whole, or its connection has ended.
    pub fn end(&mut self, begun: Begun) {
        let ended = self.by_age.remove(&begun);
        assert!(ended.is_some(), "it ends once");
    }

    /// Whose is oldest.
    pub fn oldest(&self) -> Option<u32> {
        self.by_age.values().next().copied()
    }

    /// Whose it is.
    pub fn of(&self, begun: Begun) -> Option<u32> {
        self.by_age.get(&begun).copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_age.len()
    }
}
