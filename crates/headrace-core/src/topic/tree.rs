//! Who subscribes to what: a map of exact filters beside a trie of those with wildcards.
//!
//! Most filters of a telemetry fleet are exact, and then a match is one hash of the whole name.
//! The trie branches only where filters differ, so a filter costs at most two nodes however many
//! levels it has, and no client can spend much memory with few bytes.
//!
//! Invariants: no node without a subscriber at it or two branches below it; a walk is never
//! deeper than [`LEVELS_MAX`](super::LEVELS_MAX), for a [`Filter`] has no more levels; a map that
//! has become sparse gives its memory back.

use std::mem;

use super::subscribers::Subscribers;
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
    exact: hash::Map<Box<str>, Subscribers<K, T>>,
    root: Node<K, T>,
    len: usize,
}

impl<K: Ord, T> Tree<K, T> {
    /// An empty tree whose maps hash under `key`.
    pub fn new(key: hash::Key) -> Self {
        Self {
            exact: hash::Map::with_hasher(key),
            root: Node::new(key, ""),
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
            self.root.subscribers_below(filter.as_str())
        } else {
            entry(&mut self.exact, filter.as_str(), Subscribers::default)
        };
        let before = subscribers.insert(subscriber, value);
        self.len += usize::from(before.is_none());
        before
    }

    /// Unsubscribes; returns the value, or None if there was no such subscription.
    pub fn remove(&mut self, filter: Filter<'_>, subscriber: &K) -> Option<T> {
        let value = if filter.has_wildcard() {
            self.root.remove_below(filter.as_str(), subscriber)?
        } else {
            let subscribers = self.exact.get_mut(filter.as_str())?;
            let value = subscribers.remove(subscriber)?;
            if subscribers.is_empty() {
                forget(&mut self.exact, filter.as_str());
            }
            value
        };
        self.len -= 1;
        Some(value)
    }

    /// Calls `visit` for each subscription whose filter matches `name`; a subscriber with several
    /// matching filters is visited for each. Returns at how many places it looked: filters that
    /// match nearly cost as much as those that do.
    #[inline]
    pub fn matches(&self, name: &str, visit: &mut impl FnMut(&K, &T)) -> usize {
        let mut places = 0;
        if self.is_empty() {
            return places;
        }
        if let Some(subscribers) = self.exact.get(name) {
            subscribers.visit(visit);
        }
        // A wildcard in the first level does not match `$…` (MQTT-4.7.2-1).
        let (level, rest) = split(name);
        if !level.starts_with('$') {
            self.root.below.visit(visit);
            places += self.root.matches_any(rest, visit);
        }
        places + self.root.matches_level(level, rest, visit)
    }
}

/// A place where filters part or end.
///
/// What is left of a filter or of a name behind a level is written with the slash that follows
/// the level: `""` is nothing, `"/"` one empty level.
#[derive(Clone, Debug)]
struct Node<K, T> {
    /// Levels that every filter through here has behind the level that led here, `+` included.
    path: Box<str>,
    /// Next levels without a wildcard.
    levels: hash::Map<Box<str>, Box<Node<K, T>>>,
    /// Next level `+`.
    any: Option<Box<Node<K, T>>>,
    /// Filters that end here.
    here: Subscribers<K, T>,
    /// Filters that end with `#` behind this place.
    below: Subscribers<K, T>,
}

impl<K: Ord, T> Node<K, T> {
    fn new(key: hash::Key, path: &str) -> Self {
        Self {
            path: path.into(),
            levels: hash::Map::with_hasher(key),
            any: None,
            here: Subscribers::None,
            below: Subscribers::None,
        }
    }

    fn has_subscribers(&self) -> bool {
        !self.here.is_empty() || !self.below.is_empty()
    }

    fn branches(&self) -> usize {
        self.levels.len() + usize::from(self.any.is_some())
    }

    /// The subscribers of the filter that goes on with `rest` behind the level that led here.
    fn subscribers(&mut self, rest: &str) -> &mut Subscribers<K, T> {
        let shared = shared_bytes(&self.path, rest);
        if shared < self.path.len() {
            self.part(shared);
        }
        match rest[shared..].strip_prefix('/') {
            None => &mut self.here,
            Some(rest) => self.subscribers_below(rest),
        }
    }

    /// The subscribers of the filter that goes on with the levels `rest` behind this place.
    fn subscribers_below(&mut self, rest: &str) -> &mut Subscribers<K, T> {
        let key = *self.levels.hasher();
        let (level, rest) = split(rest);
        let new = || Box::new(Self::new(key, rest.strip_suffix("/#").unwrap_or(rest)));
        match level {
            "#" => &mut self.below,
            "+" => self.any.get_or_insert_with(new).subscribers(rest),
            level => entry(&mut self.levels, level, new).subscribers(rest),
        }
    }

    /// Keeps `at` bytes of the path here; what follows them moves to a node below.
    fn part(&mut self, at: usize) {
        let key = *self.levels.hasher();
        let path = mem::take(&mut self.path);
        let mut lower = mem::replace(self, Self::new(key, &path[..at]));
        let (level, rest) = split(&path[at + 1..]);
        lower.path = rest.into();
        if level == "+" {
            self.any = Some(Box::new(lower));
        } else {
            self.levels.insert(level.into(), Box::new(lower));
        }
    }

    /// Removes one subscription of the filter that goes on with `rest`.
    fn remove(&mut self, rest: &str, subscriber: &K) -> Option<T> {
        let rest = rest.strip_prefix(&*self.path)?;
        match rest.strip_prefix('/') {
            None if rest.is_empty() => self.here.remove(subscriber),
            None => None,
            Some(rest) => self.remove_below(rest, subscriber),
        }
    }

    /// Removes one subscription below, and the node that it leaves without a purpose.
    fn remove_below(&mut self, rest: &str, subscriber: &K) -> Option<T> {
        let (level, rest) = split(rest);
        match level {
            "#" => self.below.remove(subscriber),
            "+" => {
                let node = self.any.as_mut()?;
                let value = node.remove(rest, subscriber)?;
                if !node.settle() {
                    self.any = None;
                }
                Some(value)
            }
            level => {
                let node = self.levels.get_mut(level)?;
                let value = node.remove(rest, subscriber)?;
                if !node.settle() {
                    forget(&mut self.levels, level);
                }
                Some(value)
            }
        }
    }

    /// Restores the invariant after a removal: a node with one branch and no subscriber becomes
    /// that branch. Whether the node is still of use.
    fn settle(&mut self) -> bool {
        if !self.has_subscribers() && self.branches() == 1 {
            let (level, lower) = match self.any.take() {
                Some(lower) => ("+".into(), lower),
                None => self.levels.drain().next().expect("it is the one branch"),
            };
            let path = [&*self.path, "/", &level, &lower.path].concat().into();
            *self = Self { path, ..*lower };
        }
        self.has_subscribers() || self.branches() > 0
    }

    /// Visits what matches `rest`, a name behind the level that led here.
    fn matches(&self, rest: &str, visit: &mut impl FnMut(&K, &T)) -> usize {
        let Some(rest) = behind(&self.path, rest) else {
            return 1;
        };
        self.below.visit(visit);
        match rest.strip_prefix('/') {
            None => {
                self.here.visit(visit);
                1
            }
            Some(rest) => {
                let (level, rest) = split(rest);
                1 + self.matches_any(rest, visit) + self.matches_level(level, rest, visit)
            }
        }
    }

    fn matches_any(&self, rest: &str, visit: &mut impl FnMut(&K, &T)) -> usize {
        let node = self.any.as_ref();
        node.map_or(0, |node| node.matches(rest, visit))
    }

    fn matches_level(&self, level: &str, rest: &str, visit: &mut impl FnMut(&K, &T)) -> usize {
        if self.levels.is_empty() {
            return 0;
        }
        let node = self.levels.get(level);
        node.map_or(0, |node| node.matches(rest, visit))
    }
}

/// The first level, and what follows it. Levels are short: looking at each byte is faster than a
/// search that is made for long texts.
#[inline]
fn split(levels: &str) -> (&str, &str) {
    let slash = levels.bytes().position(|byte| byte == b'/');
    levels.split_at(slash.unwrap_or(levels.len()))
}

/// What a name has left behind `path`, or None where the path does not match it.
#[inline]
fn behind<'n>(path: &str, mut name: &'n str) -> Option<&'n str> {
    let mut path = path;
    while let Some(levels) = path.strip_prefix('/') {
        let (expected, others) = split(levels);
        let (level, rest) = split(name.strip_prefix('/')?);
        if expected != "+" && expected != level {
            return None;
        }
        (path, name) = (others, rest);
    }
    Some(name)
}

/// How many bytes of whole levels two rests of filters begin with alike.
fn shared_bytes(path: &str, filter: &str) -> usize {
    let mut shared = 0;
    while let (Some(ours), Some(theirs)) = (
        path[shared..].strip_prefix('/'),
        filter[shared..].strip_prefix('/'),
    ) {
        let level = split(ours).0;
        if level != split(theirs).0 {
            break;
        }
        shared += 1 + level.len();
    }
    shared
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

/// Removes a name, and gives memory back once three quarters of it are unused; half of what
/// stays is room to grow.
fn forget<V>(map: &mut hash::Map<Box<str>, V>, name: &str) {
    map.remove(name);
    if map.capacity() > SHRINK_CAPACITY_MIN && map.len() * 4 < map.capacity() {
        map.shrink_to(map.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::{Filter, Node, Tree, SHRINK_CAPACITY_MIN};
    use crate::hash::Key;

    fn filters(count: usize) -> Vec<String> {
        (0..count)
            .flat_map(|index| {
                [
                    format!("a/{index}"),
                    format!("a/{index}/+"),
                    format!("b/+/{index}"),
                ]
            })
            .collect()
    }

    fn insert(tree: &mut Tree<u8, ()>, filter: &str) {
        tree.insert(Filter::parse(filter).unwrap(), 0, ());
    }

    fn remove(tree: &mut Tree<u8, ()>, filter: &str) {
        assert!(tree.remove(Filter::parse(filter).unwrap(), &0).is_some());
    }

    impl<K: Ord, T> Tree<K, T> {
        /// Counts the nodes of the trie and asserts that each has a purpose.
        pub fn validate(&self) -> usize {
            self.root.validate()
        }
    }

    impl<K: Ord, T> Node<K, T> {
        fn validate(&self) -> usize {
            let mut nodes = 0;
            for node in self.levels.values().chain(&self.any) {
                assert!(node.has_subscribers() || node.branches() > 1);
                nodes += 1 + node.validate();
            }
            nodes
        }
    }

    #[test]
    fn filters_that_come_and_go_leave_no_memory_behind() {
        let mut tree = Tree::new(Key(1, 2));
        let filters = filters(20_000);
        for filter in &filters {
            insert(&mut tree, filter);
        }
        assert!(tree.exact.capacity() >= 20_000);
        assert!(tree.root.levels["a"].levels.capacity() >= 20_000);
        for filter in &filters[30..] {
            remove(&mut tree, filter);
        }
        assert!(tree.exact.capacity() <= SHRINK_CAPACITY_MIN);
        assert!(tree.root.levels["a"].levels.capacity() <= SHRINK_CAPACITY_MIN);
        for filter in &filters[..30] {
            remove(&mut tree, filter);
        }
        assert!(tree.is_empty() && tree.exact.is_empty());
        assert_eq!(tree.validate(), 0);
    }

    #[test]
    fn a_filter_costs_at_most_two_nodes_however_deep_it_is() {
        let mut tree = Tree::new(Key(1, 2));
        let deep: Vec<String> = (0..100)
            .flat_map(|index| {
                let middle = "m/".repeat(100);
                [
                    format!("{index}/{middle}a/+"),
                    format!("{index}/{middle}b/+"),
                ]
            })
            .collect();
        for filter in &deep {
            insert(&mut tree, filter);
        }
        assert!(tree.validate() <= 2 * deep.len());
        for filter in deep.iter().step_by(2) {
            remove(&mut tree, filter);
        }
        assert_eq!(tree.validate(), deep.len() / 2);
    }
}
