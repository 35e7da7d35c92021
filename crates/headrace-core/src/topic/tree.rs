//! Who subscribes to what: a map of exact filters beside a trie of those with wildcards.
//!
//! Most filters of a telemetry fleet are exact, and then a match is one hash of the whole name.
//! Invariants: no node without a subscriber below it, no filter without a subscriber; a walk is
//! never deeper than [`LEVELS_MAX`](super::LEVELS_MAX), for a [`Filter`] has no more levels; a
//! map that has become sparse gives its memory back.

use std::collections::BTreeMap;

use super::Filter;
use crate::hash;

/// Below this capacity a sparse map is left alone.
const SHRINK_CAPACITY_MIN: usize = 64;

/// Subscribers by filter, each with a value of its own for each filter.
///
/// Visits are in the order of `K` within one filter; the order of filters is unspecified, but the
/// same for the same calls under the same key.
#[derive(Clone, Debug)]
pub struct Tree<K, T> {
    exact: hash::Map<Box<str>, BTreeMap<K, T>>,
    root: Node<K, T>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Node<K, T> {
    /// Next levels without a wildcard.
    levels: hash::Map<Box<str>, Node<K, T>>,
    /// Next level `+`.
    any: Option<Box<Node<K, T>>>,
    /// Filters that end here.
    here: BTreeMap<K, T>,
    /// Filters that end with `#` after this level.
    below: BTreeMap<K, T>,
}

impl<K: Ord, T> Tree<K, T> {
    /// An empty tree whose maps hash under `key`.
    pub fn new(key: hash::Key) -> Self {
        Self {
            exact: hash::Map::with_hasher(key),
            root: Node::new(key),
            len: 0,
        }
    }

    /// How many pairs of filter and subscriber there are.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Subscribes; returns the value that this subscriber had for this filter before.
    pub fn insert(&mut self, filter: Filter<'_>, subscriber: K, value: T) -> Option<T> {
        let subscribers = if filter.has_wildcard() {
            self.root.subscribers(filter)
        } else {
            entry(&mut self.exact, filter.as_str(), BTreeMap::new)
        };
        let before = subscribers.insert(subscriber, value);
        self.len += usize::from(before.is_none());
        before
    }

    /// Unsubscribes; returns the value, or None if there was no such subscription.
    pub fn remove(&mut self, filter: Filter<'_>, subscriber: &K) -> Option<T> {
        let value = if filter.has_wildcard() {
            self.root.remove(filter.as_str().split('/'), subscriber)?
        } else {
            let subscribers = self.exact.get_mut(filter.as_str())?;
            let value = subscribers.remove(subscriber)?;
            if subscribers.is_empty() {
                self.exact.remove(filter.as_str());
                shrink(&mut self.exact);
            }
            value
        };
        self.len -= 1;
        Some(value)
    }

    /// Calls `visit` for each subscription whose filter matches `name`; a subscriber with several
    /// matching filters is visited for each.
    #[inline]
    pub fn matches(&self, name: &str, visit: &mut impl FnMut(&K, &T)) {
        if let Some(subscribers) = self.exact.get(name) {
            visit_all(subscribers, visit);
        }
        if !self.root.is_empty() {
            self.root.matches_root(name, visit);
        }
    }
}

impl<K: Ord, T> Node<K, T> {
    fn new(key: hash::Key) -> Self {
        Self {
            levels: hash::Map::with_hasher(key),
            any: None,
            here: BTreeMap::new(),
            below: BTreeMap::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.levels.is_empty()
            && self.any.is_none()
            && self.here.is_empty()
            && self.below.is_empty()
    }

    /// The subscribers of a filter, with the nodes that lead to them.
    fn subscribers(&mut self, filter: Filter<'_>) -> &mut BTreeMap<K, T> {
        let key = *self.levels.hasher();
        let mut node = self;
        for level in filter.as_str().split('/') {
            node = match level {
                "#" => return &mut node.below,
                "+" => node.any.get_or_insert_with(|| Box::new(Self::new(key))),
                level => entry(&mut node.levels, level, || Self::new(key)),
            };
        }
        &mut node.here
    }

    /// Removes one subscription below, and nodes that lead nowhere any more.
    fn remove(&mut self, mut rest: std::str::Split<'_, char>, subscriber: &K) -> Option<T> {
        match rest.next() {
            None => self.here.remove(subscriber),
            Some("#") => self.below.remove(subscriber),
            Some("+") => {
                let value = self.any.as_mut()?.remove(rest, subscriber)?;
                self.any.take_if(|node| node.is_empty());
                Some(value)
            }
            Some(level) => {
                let node = self.levels.get_mut(level)?;
                let value = node.remove(rest, subscriber)?;
                if node.is_empty() {
                    self.levels.remove(level);
                    shrink(&mut self.levels);
                }
                Some(value)
            }
        }
    }

    /// The first level: wildcards there do not match `$…` (MQTT-4.7.2-1).
    fn matches_root(&self, name: &str, visit: &mut impl FnMut(&K, &T)) {
        if name.starts_with('$') {
            self.matches_level(name, visit);
        } else {
            self.matches(Some(name), visit);
        }
    }

    /// Visits what matches the levels that are left of a name; None where none is.
    fn matches(&self, rest: Option<&str>, visit: &mut impl FnMut(&K, &T)) {
        visit_all(&self.below, visit);
        let Some(rest) = rest else {
            visit_all(&self.here, visit);
            return;
        };
        if let Some(node) = &self.any {
            node.matches(split(rest).1, visit);
        }
        self.matches_level(rest, visit);
    }

    fn matches_level(&self, rest: &str, visit: &mut impl FnMut(&K, &T)) {
        if self.levels.is_empty() {
            return;
        }
        let (level, rest) = split(rest);
        if let Some(node) = self.levels.get(level) {
            node.matches(rest, visit);
        }
    }
}

#[inline]
fn visit_all<K, T>(subscribers: &BTreeMap<K, T>, visit: &mut impl FnMut(&K, &T)) {
    for (subscriber, value) in subscribers {
        visit(subscriber, value);
    }
}

/// The first level and the others, None where there is no other.
#[inline]
fn split(rest: &str) -> (&str, Option<&str>) {
    match rest.split_once('/') {
        Some((level, rest)) => (level, Some(rest)),
        None => (rest, None),
    }
}

/// The value of a name, put there where it is missing.
fn entry<'a, V>(
    map: &'a mut hash::Map<Box<str>, V>,
    name: &str,
    new: impl FnOnce() -> V,
) -> &'a mut V {
    // The owned name is made only for a new entry, at the price of hashing it twice.
    if !map.contains_key(name) {
        map.insert(name.into(), new());
    }
    map.get_mut(name)
        .expect("the entry was there or has just been made")
}

/// Gives memory back once three quarters of it are unused; half of what stays is room to grow.
fn shrink<V>(map: &mut hash::Map<Box<str>, V>) {
    if map.capacity() > SHRINK_CAPACITY_MIN && map.len() * 4 < map.capacity() {
        map.shrink_to(map.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::{Filter, Tree, SHRINK_CAPACITY_MIN};
    use crate::hash::Key;

    #[test]
    fn filters_that_come_and_go_leave_no_memory_behind() {
        let mut tree = Tree::new(Key(1, 2));
        let filters: Vec<String> = (0..20_000)
            .flat_map(|index| {
                [
                    format!("a/{index}"),
                    format!("a/{index}/+"),
                    format!("b/+/{index}"),
                ]
            })
            .collect();
        for filter in &filters {
            tree.insert(Filter::parse(filter).unwrap(), 0, ());
        }
        assert!(tree.exact.capacity() >= 20_000);
        assert!(tree.root.levels["a"].levels.capacity() >= 20_000);
        for filter in &filters[30..] {
            tree.remove(Filter::parse(filter).unwrap(), &0);
        }
        assert!(tree.exact.capacity() <= SHRINK_CAPACITY_MIN);
        assert!(tree.root.levels["a"].levels.capacity() <= SHRINK_CAPACITY_MIN);
        for filter in &filters[..30] {
            tree.remove(Filter::parse(filter).unwrap(), &0);
        }
        assert!(tree.is_empty() && tree.root.is_empty() && tree.exact.is_empty());
    }
}
