//! Who subscribes to what: a map of exact filters beside a trie of those with wildcards.
//!
//! Most filters of a telemetry fleet are exact, and then a match is one hash of the whole name.
//! The trie branches only where filters differ, so a filter costs at most two nodes however many
//! levels it has, and no client can spend much memory with few bytes.
//!
//! Invariants: no node without a subscriber at it or two branches below it; a walk is never
//! deeper than [`LEVELS_MAX`](super::LEVELS_MAX), for a [`Filter`] has no more levels.

use std::mem;
use std::ops::Range;

use super::levels::{split, Levels, Wanted};
use super::subscribers::{Each, Subscribers, Visit, While, Within};
use super::Filter;
use crate::hash::{Key, Names};

/// Subscribers by filter, each with a value of its own for each filter.
///
/// Visits are in the order of `K` within one filter; the order of filters is unspecified, but the
/// same for the same calls under the same key.
#[derive(Clone, Debug)]
pub struct Tree<K, T> {
    names: Names,
    exact: Levels<Subscribers<K, T>>,
    root: Node<K, T>,
    len: usize,
}

impl<K: Ord, T> Tree<K, T> {
    /// An empty tree whose maps hash under `key`.
    pub fn new(key: Key) -> Self {
        Self {
            names: Names::new(key),
            exact: Levels::default(),
            root: Node::new(""),
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
            self.root.subscribers_below(&self.names, filter.as_str())
        } else {
            let (exact, names) = (&mut self.exact, &self.names);
            exact.entry(names, filter.as_str(), Subscribers::default)
        };
        let before = subscribers.insert(subscriber, value);
        self.len += usize::from(before.is_none());
        before
    }

    /// Unsubscribes; returns the value, or None if there was no such subscription.
    pub fn remove(&mut self, filter: Filter<'_>, subscriber: &K) -> Option<T> {
        let (names, is_wild) = (&self.names, filter.has_wildcard());
        let filter = filter.as_str();
        let value = if is_wild {
            self.root.remove_below(names, filter, subscriber)?
        } else {
            let subscribers = self.exact.get_mut(names, filter)?;
            let value = subscribers.remove(subscriber)?;
            if subscribers.is_empty() {
                self.exact.remove(names, filter);
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
        self.walk(name, &mut Each(visit))
    }

    /// The same, until an answer is that it need not go on.
    #[inline]
    pub fn matches_while(&self, name: &str, goes_on: &mut impl FnMut(&K, &T) -> bool) -> usize {
        let is_over = false;
        self.walk(name, &mut While { goes_on, is_over })
    }

    /// The same for the subscribers of a range, which are found without a look at the others of
    /// their filters.
    pub fn matches_within(
        &self,
        name: &str,
        range: Range<K>,
        visit: &mut impl FnMut(&K, &T),
    ) -> usize
    where
        K: Clone,
    {
        self.walk(name, &mut Within { range, visit })
    }

    #[inline]
    fn walk(&self, name: &str, visit: &mut impl Visit<K, T>) -> usize {
        let mut places = 0;
        if self.is_empty() {
            return places;
        }
        let names = &self.names;
        if let Some(subscribers) = self.exact.get(names, name) {
            visit.visit(subscribers);
        }
        // A wildcard in the first level does not match `$…` (MQTT-4.7.2-1).
        let (level, rest) = Wanted::first(name);
        if !name.starts_with('$') {
            visit.visit(&self.root.below);
            places += self.root.matches_any(names, rest, visit);
        }
        places + self.root.matches_level(names, level, rest, visit)
    }
}

/// A place where filters part or end.
///
/// What is left of a filter or of a name behind a level is written with the slash that follows
/// the level: `""` is nothing, `"/"` one empty level.
///
/// A match is as fast as it touches few cache lines: what most walks look at fits into one, and
/// stands before what few do.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Node<K, T> {
    /// Levels that every filter through here has behind the level that led here, `+` included.
    path: Box<str>,
    /// Next levels without a wildcard, where there are some.
    levels: Option<Box<NextLevels<K, T>>>,
    /// Next level `+`.
    any: Option<Box<Node<K, T>>>,
    /// Filters that end with `#` behind this place.
    below: Subscribers<K, T>,
    /// Filters that end here.
    here: Subscribers<K, T>,
}

type NextLevels<K, T> = Levels<Box<Node<K, T>>>;

impl<K: Ord, T> Node<K, T> {
    fn new(path: &str) -> Self {
        Self {
            path: path.into(),
            levels: None,
            any: None,
            here: Subscribers::None,
            below: Subscribers::None,
        }
    }

    fn has_subscribers(&self) -> bool {
        !self.here.is_empty() || !self.below.is_empty()
    }

    fn levels_mut(&mut self) -> &mut NextLevels<K, T> {
        self.levels.get_or_insert_default()
    }

    fn branches(&self) -> usize {
        let levels = self.levels.as_ref().map_or(0, |levels| levels.len());
        levels + usize::from(self.any.is_some())
    }

    /// The subscribers of the filter that goes on with `rest` behind the level that led here.
    fn subscribers(&mut self, names: &Names, rest: &str) -> &mut Subscribers<K, T> {
        let shared = shared_bytes(&self.path, rest);
        if shared < self.path.len() {
            self.part(names, shared);
        }
        match rest[shared..].strip_prefix('/') {
            None => &mut self.here,
            Some(rest) => self.subscribers_below(names, rest),
        }
    }

    /// The subscribers of the filter that goes on with the levels `rest` behind this place.
    fn subscribers_below(&mut self, names: &Names, rest: &str) -> &mut Subscribers<K, T> {
        let (level, rest) = split(rest);
        let new = || Box::new(Self::new(rest.strip_suffix("/#").unwrap_or(rest)));
        let node = match level {
            "#" => return &mut self.below,
            "+" => self.any.get_or_insert_with(new),
            level => self.levels_mut().entry(names, level, new),
        };
        node.subscribers(names, rest)
    }

    /// Keeps `at` bytes of the path here; what follows them moves to a node below.
    fn part(&mut self, names: &Names, at: usize) {
        let path = mem::take(&mut self.path);
        let mut lower = mem::replace(self, Self::new(&path[..at]));
        let (level, rest) = split(&path[at + 1..]);
        lower.path = rest.into();
        if level == "+" {
            self.any = Some(Box::new(lower));
        } else {
            self.levels_mut().entry(names, level, || Box::new(lower));
        }
    }

    /// Removes one subscription of the filter that goes on with `rest`.
    fn remove(&mut self, names: &Names, rest: &str, subscriber: &K) -> Option<T> {
        let rest = rest.strip_prefix(&*self.path)?;
        match rest.strip_prefix('/') {
            None if rest.is_empty() => self.here.remove(subscriber),
            None => None,
            Some(rest) => self.remove_below(names, rest, subscriber),
        }
    }

    /// Removes one subscription below, and the node that it leaves without a purpose.
    fn remove_below(&mut self, names: &Names, rest: &str, subscriber: &K) -> Option<T> {
        let (level, rest) = split(rest);
        match level {
            "#" => self.below.remove(subscriber),
            "+" => {
                let node = self.any.as_mut()?;
                let value = node.remove(names, rest, subscriber)?;
                if !node.settle() {
                    self.any = None;
                }
                Some(value)
            }
            level => {
                let levels = self.levels.as_mut()?;
                let node = levels.get_mut(names, level)?;
                let value = node.remove(names, rest, subscriber)?;
                if !node.settle() {
                    levels.remove(names, level);
                    if levels.is_empty() {
                        self.levels = None;
                    }
                }
                Some(value)
            }
        }
    }

    /// Restores the invariant after a removal: a node with one branch and no subscriber becomes
    /// that branch. Whether the node is still of use.
    fn settle(&mut self) -> bool {
        if !self.has_subscribers() && self.branches() == 1 {
            let (level, lower) = if let Some(lower) = self.any.take() {
                ("+".into(), lower)
            } else {
                let only = self.levels.take().and_then(|mut levels| levels.take_only());
                only.expect("it is the one branch")
            };
            let path = [&*self.path, "/", &level, &lower.path].concat().into();
            *self = Self { path, ..*lower };
        }
        self.has_subscribers() || self.branches() > 0
    }

    /// Visits what matches `rest`, a name behind the level that led here.
    fn matches(&self, names: &Names, rest: &str, visit: &mut impl Visit<K, T>) -> usize {
        if visit.is_over() {
            return 0;
        }
        let Some(rest) = behind(&self.path, rest) else {
            return 1;
        };
        visit.visit(&self.below);
        match rest.strip_prefix('/') {
            None => {
                visit.visit(&self.here);
                1
            }
            Some(_) if self.any.is_none() && self.levels.is_none() => 1,
            Some(rest) => {
                let (level, rest) = Wanted::first(rest);
                let places = 1 + self.matches_any(names, rest, visit);
                places + self.matches_level(names, level, rest, visit)
            }
        }
    }

    fn matches_any(&self, names: &Names, rest: &str, visit: &mut impl Visit<K, T>) -> usize {
        let node = self.any.as_ref();
        node.map_or(0, |node| node.matches(names, rest, visit))
    }

    fn matches_level(
        &self,
        names: &Names,
        level: Wanted<'_>,
        rest: &str,
        visit: &mut impl Visit<K, T>,
    ) -> usize {
        let levels = self.levels.as_ref();
        let node = levels.and_then(|levels| levels.find(names, level));
        node.map_or(0, |node| node.matches(names, rest, visit))
    }
}

/// What a name has left behind `path`, or None where the path does not match it.
#[inline]
fn behind<'n>(mut path: &str, mut name: &'n str) -> Option<&'n str> {
    while let Some(levels) = path.strip_prefix('/') {
        let (expected, others) = Wanted::first(levels);
        let (level, rest) = Wanted::first(name.strip_prefix('/')?);
        if expected != Wanted::ANY && expected != level {
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

#[cfg(test)]
mod tests {
    use super::{Filter, Node, Tree};
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
            let levels = self.levels.iter().flat_map(|levels| levels.values());
            for node in levels.chain(&self.any) {
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
        let capacities = |tree: &Tree<_, _>| {
            let levels = tree.root.levels.as_ref().unwrap();
            let node = levels.get(&tree.names, "a").unwrap();
            let below = node.levels.as_ref().unwrap().capacity();
            [tree.exact.capacity(), below]
        };
        assert!(capacities(&tree).into_iter().all(|places| places >= 20_000));
        for filter in &filters[30..] {
            remove(&mut tree, filter);
        }
        assert!(capacities(&tree).into_iter().all(|places| places <= 64));
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
