//! What is known of one log.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
pub(super) struct LogHistory {
    /// What is known to stand where.
    pub(super) at: BTreeMap<i64, u64>,
    /// Acknowledged at an offset that nobody told.
    pub(super) unplaced: BTreeSet<u64>,
    /// `start -> end` of what readers went through; they do not touch each other.
    covered: BTreeMap<i64, i64>,
    /// The greatest start and end that anybody was told.
    pub(super) start: i64,
    pub(super) end: i64,
    /// Records below may be gone.
    pub(super) trimmed: i64,
    /// Records below may be gone where a later one below replaces them.
    pub(super) compacted: i64,
    /// Tombstones below may be gone.
    pub(super) deleted: i64,
    /// Known offsets of each key.
    pub(super) keys: BTreeMap<u64, BTreeSet<i64>>,
    /// Values of each key of which nobody knows where they stand, if they do.
    pub(super) astray: BTreeMap<u64, BTreeSet<u64>>,
    /// Of each client: place in its order to offset.
    orders: BTreeMap<String, BTreeMap<usize, i64>>,
    /// Appends of each client.
    pub(super) sent: BTreeMap<String, usize>,
}

impl LogHistory {
    /// A reader went through `[from, to)`.
    pub(super) fn cover(&mut self, mut from: i64, mut to: i64) {
        if from >= to {
            return;
        }
        while let Some((start, end)) = self.covered.range(..=to).next_back() {
            let (start, end) = (*start, *end);
            if end < from {
                break;
            }
            self.covered.remove(&start);
            (from, to) = (from.min(start), to.max(end));
        }
        self.covered.insert(from, to);
    }

    /// The log ends at `end`: what is known of later offsets is no longer so. The values that stood
    /// there.
    pub(super) fn forget_from(&mut self, end: i64) -> BTreeSet<u64> {
        let gone = self.at.split_off(&end);
        for offsets in self.keys.values_mut() {
            offsets.split_off(&end);
        }
        for places in self.orders.values_mut() {
            places.retain(|_, offset| *offset < end);
        }
        if let Some((_, to)) = self.covered.range_mut(..end).next_back() {
            *to = end.min(*to);
        }
        self.covered.split_off(&end);
        for known in [
            &mut self.end,
            &mut self.trimmed,
            &mut self.compacted,
            &mut self.deleted,
        ] {
            *known = end.min(*known);
        }
        gone.into_values().collect()
    }

    pub(super) fn is_covered(&self, offset: i64) -> bool {
        let before = self.covered.range(..=offset).next_back();
        before.is_some_and(|(_, end)| offset < *end)
    }

    /// The client's append number `order` stands at `offset`. The offset of an append that does
    /// not stand on its own side of it, if there is one.
    pub(super) fn place(&mut self, client: &str, order: usize, offset: i64) -> Option<i64> {
        let places = self.orders.entry(client.to_owned()).or_default();
        places.entry(order).or_insert(offset);
        let before = places.range(..order).next_back();
        let after = places.range(order + 1..).next();
        let wrong_before = before.filter(|(_, other)| **other > offset);
        let wrong_after = after.filter(|(_, other)| **other < offset);
        wrong_before.or(wrong_after).map(|(_, other)| *other)
    }
}
