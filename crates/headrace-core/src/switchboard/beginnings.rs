//! Connections that hold the beginning of a packet, in the order in which those began.
//!
//! Owns their age. Must not know how much they hold, nor when that is too much.

use std::collections::BTreeMap;

/// What a connection may hold in any case, or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// No more than a share.
    Small,
    /// More than that.
    Large,
}

/// A beginning.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// Of this size.
    pub size: Size,
    /// Its number among all of them.
    number: u64,
}

/// Connections that hold one, by size and age. What has become large is as old as that.
#[derive(Debug, Default)]
pub struct Beginnings {
    small: BTreeMap<u64, u32>,
    large: BTreeMap<u64, u32>,
    /// So many have come.
    count: u64,
}

impl Beginnings {
    /// One came.
    pub fn begin(&mut self, slot: u32, size: Size) -> Begun {
        self.count += 1;
        let number = self.count;
        self.by_age_mut(size).insert(number, slot);
        Begun { size, number }
    }

    /// It is whole, or of another size, or its connection has ended.
    pub fn end(&mut self, begun: Begun) {
        let ended = self.by_age_mut(begun.size).remove(&begun.number);
        assert!(ended.is_some(), "it ends once");
    }

    /// Whose is oldest of those of a size.
    pub fn oldest(&self, size: Size) -> Option<u32> {
        self.by_age(size).values().next().copied()
    }

    /// Whose it is.
    pub fn of(&self, begun: Begun) -> Option<u32> {
        self.by_age(begun.size).get(&begun.number).copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.small.len() + self.large.len()
    }

    const fn by_age(&self, size: Size) -> &BTreeMap<u64, u32> {
        match size {
            Size::Small => &self.small,
            Size::Large => &self.large,
        }
    }

    const fn by_age_mut(&mut self, size: Size) -> &mut BTreeMap<u64, u32> {
        match size {
            Size::Small => &mut self.small,
            Size::Large => &mut self.large,
        }
    }
}
