//! How far a session is in the streams that it reads.
//!
//! A position is all that is kept: what a client has yet to be sent is on the log of the stream. At
//! `QoS` 1 of a session that lasts, the position that is kept for it is that of the first record
//! which it has not acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::mqtt::packet::QoS;

/// How far a session is in one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The offset that is looked at next.
    next: i64,
    /// Offsets of records that were sent and whose end will be told.
    open: BTreeSet<i64>,
}

impl Progress {
    /// Begins at an offset.
    pub fn at(next: i64) -> Self {
        Self {
            next,
            open: BTreeSet::new(),
        }
    }

    /// The offset that is looked at next.
    pub fn next(&self) -> i64 {
        self.next
    }

    /// From where all that the client may not have is sent again.
    pub fn position(&self) -> i64 {
        self.open.first().copied().unwrap_or(self.next)
    }

    /// The record at `offset` was sent, and its end will be told.
    pub fn open(&mut self, offset: i64) {
        self.open.insert(offset);
    }

    /// The end of what was sent; whether the position has moved.
    pub fn end(&mut self, offset: i64) -> bool {
        let before = self.position();
        self.open.remove(&offset);
        self.position() != before
    }
}

/// A subscription to a stream.
#[derive(Clone, Debug)]
pub struct Feed {
    /// Which no other one had.
    pub number: u64,
    /// The stream's id.
    pub stream: u64,
    /// At which records are sent.
    pub qos: QoS,
    /// Subscription Identifier; 0 without one.
    pub id: u32,
    /// By partition.
    pub partitions: Vec<Progress>,
    /// Its record of how far it is, is to be written.
    pub is_due: bool,
}

/// The subscriptions of a session to streams.
///
/// Which partitions have something that a feed has not looked at is kept, and not searched for:
/// a session may have very many of them, and is asked for each piece that it reads.
#[derive(Debug, Default)]
pub struct Feeds {
    by_filter: BTreeMap<Box<str>, Feed>,
    /// Filters by the numbers of their feeds.
    filters: BTreeMap<u64, Box<str>>,
    /// The [places](Wanted::place) where a log goes on behind the feed.
    behind: BTreeSet<(u64, u32)>,
    /// Partitions of all feeds.
    positions: usize,
    /// The [place](Wanted::place) that was read last.
    pub last: (u64, u32),
    /// It stands in the line of those that are read for.
    pub is_in_line: bool,
    /// It stands in the line of those whose turn ended before their piece.
    pub is_in_turn: bool,
    /// What has been asked for it, and not come.
    pub asked: Option<u64>,
}

impl Feeds {
    /// Feeds by filter.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Feed)> {
        self.by_filter
            .iter()
            .map(|(filter, feed)| (&**filter, feed))
    }

    /// The feed of a filter.
    pub fn get(&self, filter: &str) -> Option<&Feed> {
        self.by_filter.get(filter)
    }

    /// The feed of a filter; how far it is changes by [`Self::pass`] alone.
    pub fn get_mut(&mut self, filter: &str) -> Option<&mut Feed> {
        self.by_filter.get_mut(filter)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_filter.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_filter.is_empty()
    }

    /// Partitions of all of them together.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Begins one, in place of none; `end` is where each partition ends.
    ///
    /// # Panics
    /// Where the filter has one.
    pub fn insert(&mut self, filter: &str, feed: Feed, end: impl Fn(u32) -> i64) {
        self.filters.insert(feed.number, filter.into());
        self.positions += feed.partitions.len();
        let partitions = (0..).zip(&feed.partitions);
        let behind = partitions.filter(|(partition, progress)| progress.next < end(*partition));
        let places = behind.map(|(partition, _)| (feed.number, partition));
        self.behind.extend(places);
        let before = self.by_filter.insert(filter.into(), feed);
        assert!(before.is_none(), "one feed to a filter");
    }

    /// Ends one.
    pub fn remove(&mut self, filter: &str) -> Option<Feed> {
        let feed = self.by_filter.remove(filter)?;
        self.filters.remove(&feed.number);
        self.positions -= feed.partitions.len();
        for partition in 0..feed.partitions.len() as u32 {
            self.behind.remove(&(feed.number, partition));
        }
        Some(feed)
    }

    /// The filter of the feed of that number.
    pub fn filter_of(&self, number: u64) -> Option<&str> {
        self.filters.get(&number).map(|filter| &**filter)
    }

    /// The feed of that number.
    ///
    /// # Panics
    /// Where the number outlived its feed.
    pub fn numbered(&mut self, number: u64) -> Option<(&str, &mut Feed)> {
        let filter = &**self.filters.get(&number)?;
        let feed = self.by_filter.get_mut(filter);
        Some((filter, feed.expect("a feed to each number")))
    }

    /// Whether a log is known to go on behind a feed.
    pub fn is_behind(&self, number: u64, partition: u32) -> bool {
        self.behind.contains(&(number, partition))
    }

    /// A stream has records below `end` in a partition.
    pub fn grown(&mut self, stream: u64, partition: u32, end: i64) {
        let feeds = self.by_filter.values();
        for feed in feeds.filter(|feed| feed.stream == stream) {
            let progress = feed.partitions.get(partition as usize);
            if progress.is_some_and(|progress| progress.next < end) {
                self.behind.insert((feed.number, partition));
            }
        }
    }

    /// A feed has looked at all records of a partition below `next`; the log goes to `end`.
    pub fn pass(&mut self, filter: &str, partition: u32, next: i64, end: i64) {
        let Some(feed) = self.by_filter.get_mut(filter) else {
            return;
        };
        feed.partitions[partition as usize].next = next;
        let place = (feed.number, partition);
        if next < end {
            self.behind.insert(place);
        } else {
            self.behind.remove(&place);
        }
    }

    /// How many positions more it takes to read so many partitions of a stream.
    pub fn more_positions(&self, stream: u64, partitions: u32) -> usize {
        let of_stream = self.by_filter.values().filter(|feed| feed.stream == stream);
        of_stream
            .map(|feed| (partitions as usize).saturating_sub(feed.partitions.len()))
            .sum()
    }

    /// A stream has more partitions: they are read from their beginning. The filters of its feeds.
    pub fn widen(&mut self, stream: u64, partitions: u32) -> Vec<Box<str>> {
        let mut widened = Vec::new();
        for (filter, feed) in &mut self.by_filter {
            let more = (partitions as usize).saturating_sub(feed.partitions.len());
            if feed.stream == stream && more > 0 {
                self.positions += more;
                feed.partitions
                    .resize_with(partitions as usize, Progress::default);
                widened.push(filter.clone());
            }
        }
        widened
    }

    /// What to read next: the partition behind the last one, in turn, of those that go on.
    pub fn next(&self) -> Option<Wanted> {
        let behind_last = (Bound::Excluded(self.last), Bound::Unbounded);
        let first = self.behind.range(behind_last).next();
        let (number, partition) = *first.or_else(|| self.behind.first())?;
        let feed = &self.by_filter[&self.filters[&number]];
        Some(Wanted {
            number,
            stream: feed.stream,
            partition,
            offset: feed.partitions[partition as usize].next,
        })
    }
}

/// A place to read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Of the feed.
    pub number: u64,
    /// The stream's id.
    pub stream: u64,
    /// Partition.
    pub partition: u32,
    /// First offset.
    pub offset: i64,
}

impl Wanted {
    /// Number of the feed and partition.
    pub const fn place(&self) -> (u64, u32) {
        (self.number, self.partition)
    }
}
