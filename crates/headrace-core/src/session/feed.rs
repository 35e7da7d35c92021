//! How far a session is in the streams that it reads.
//!
//! A position is all that is kept: what a client has yet to be sent is on the log of the stream. At
//! `QoS` 1 of a session that lasts, the position that is kept for it is that of the first record
//! which it has not acknowledged.

use std::collections::{BTreeMap, BTreeSet};

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

    /// All records below `next` have been looked at, or are not there.
    pub fn pass(&mut self, next: i64) {
        self.next = next;
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
#[derive(Debug, Default)]
pub struct Feeds {
    /// By filter.
    pub by_filter: BTreeMap<Box<str>, Feed>,
    /// The [place](Wanted::place) that was read last.
    pub last: (u64, u32),
    /// It stands in the line of those that are read for.
    pub is_in_line: bool,
    /// What has been asked for it, and not come.
    pub asked: Option<u64>,
}

impl Feeds {
    /// The feed of that number.
    pub fn numbered(&mut self, number: u64) -> Option<(&str, &mut Feed)> {
        let mut feeds = self.by_filter.iter_mut();
        let found = feeds.find(|(_, feed)| feed.number == number);
        found.map(|(filter, feed)| (&**filter, feed))
    }

    /// What to read next: the partition behind the last one, in turn, of those whose `end` is behind
    /// where the feed is.
    pub fn next(&self, end: impl Fn(u64, u32) -> i64) -> Option<Wanted> {
        let all = self.by_filter.values().flat_map(|feed| {
            let partitions = (0..).zip(&feed.partitions);
            partitions.map(move |(partition, progress)| Wanted {
                number: feed.number,
                stream: feed.stream,
                partition,
                offset: progress.next,
            })
        });
        let waiting = all.filter(|each| each.offset < end(each.stream, each.partition));
        // Those behind the last one come first.
        waiting.min_by_key(|each| (each.place() <= self.last, each.place()))
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
