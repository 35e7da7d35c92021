//! Who reads which streams: subscriptions that begin and end, and streams that grow or are no more.
//!
//! Whose stream is no more loses the subscription, and is told by the end of the connection. A
//! client that is away keeps both until it comes back, over a restart too: only then can it be told.

use std::collections::BTreeSet;

use crate::mqtt::reason;
use crate::session::Feed;
use crate::switchboard::Switchboard;
use crate::Now;

/// Why reading ends, and what its client is told.
const DELETED: (&str, u8) = ("stream_deleted", reason::ADMINISTRATIVE_ACTION);
const OUTGROWN: (&str, u8) = ("stream_outgrown", reason::QUOTA_EXCEEDED);

impl Switchboard {
    /// Begins to read a stream for a session; by partition, its log is known to go to `ends`.
    pub(in crate::switchboard) fn begin_feed(
        &mut self,
        session: u32,
        filter: &str,
        feed: Feed,
        ends: impl Iterator<Item = i64>,
    ) {
        self.feeds.begin(session, &feed);
        for (partition, end) in (0..).zip(ends) {
            self.feeds.raise_end(feed.stream, partition, end);
        }
        let state = &mut self.sessions[session as usize];
        let (node, stream) = (&self.feeds, feed.stream);
        let feeds = state.feeds.get_or_insert_default();
        feeds.insert(filter, feed, |partition| node.end(stream, partition));
        self.persistence.feed_due(state, filter);
    }

    /// A session reads a stream no longer.
    pub(in crate::switchboard) fn forget_feed(&mut self, session: u32, filter: &str) {
        let state = &mut self.sessions[session as usize];
        let Some(feeds) = &mut state.feeds else {
            return;
        };
        let Some(feed) = feeds.remove(filter) else {
            return;
        };
        if feeds.is_empty() {
            state.feeds = None;
            self.feeds.readers.remove(&session);
        }
        self.feeds.forget(session, &feed);
        let slices = &self.feeds.slices;
        let slice = slices.get(&session);
        if slice.is_some_and(|slice| slice.number() == feed.number) {
            self.feeds.take_slice(session);
        }
    }

    /// A client is not there to be sent anything.
    pub(in crate::switchboard) fn rest_feeds(&mut self, session: u32) {
        self.feeds.take_slice(session);
    }

    /// Partitions that a stream was given later are read from their beginning.
    pub(in crate::switchboard) fn widen_feeds(&mut self, stream: u64, partitions: u32) {
        let Some(source) = self.feeds.sources.get(&stream) else {
            return;
        };
        let readers: Vec<u32> = source.readers.keys().copied().collect();
        for session in readers {
            if !self.widen_feed(session, stream, partitions) {
                self.feeds.outgrown.push((session, stream));
            }
        }
    }

    /// Whether a client may hold a position in all partitions of a stream; then it does.
    fn widen_feed(&mut self, session: u32, stream: u64, partitions: u32) -> bool {
        let places = self.places();
        let state = &mut self.sessions[session as usize];
        let held = state.places();
        let feeds = state.feeds.as_mut().expect("it reads the stream");
        let more = feeds.more_positions(stream, partitions);
        if more == 0 {
            return true;
        }
        if held + more > self.limits.subscriptions_max
            || places + more > self.limits.subscriptions_of_node_max
        {
            return false;
        }
        let widened = feeds.widen(stream, partitions);
        for partition in 0..partitions {
            feeds.grown(stream, partition, self.feeds.end(stream, partition));
        }
        self.feeds.positions += more;
        for filter in widened {
            self.persistence.feed_due(state, &filter);
        }
        true
    }

    /// Ends the subscriptions to streams that are no more, or have more partitions than a client may
    /// hold positions in, and the connections of their clients, so that they notice.
    pub(in crate::switchboard) fn end_gone_streams(&mut self, now: Now) {
        for stream in std::mem::take(&mut self.feeds.gone) {
            let source = self.feeds.sources.get(&stream);
            let readers: Option<Vec<u32>> =
                source.map(|source| source.readers.keys().copied().collect());
            for session in readers.unwrap_or_default() {
                self.end_reading(session, &[stream], DELETED, now);
            }
        }
        for (session, stream) in std::mem::take(&mut self.feeds.outgrown) {
            self.end_reading(session, &[stream], OUTGROWN, now);
        }
    }

    /// A client has come back. Where streams that it reads went meanwhile, or have more partitions
    /// than it may hold positions in, its connection ends as if it had been there.
    pub(in crate::switchboard) fn return_to_streams(&mut self, session: u32, now: Now) {
        let feeds = self.sessions[session as usize].feeds.iter();
        let read = feeds.flat_map(|feeds| feeds.iter().map(|(_, feed)| feed.stream));
        let read: BTreeSet<u64> = read.collect();
        let (mut ended, mut why) = (Vec::new(), OUTGROWN);
        for stream in read {
            if self.streams.slot(stream).is_none() {
                why = DELETED;
                ended.push(stream);
                continue;
            }
            let partitions = self.streams.partitions(stream) as u32;
            if !self.widen_feed(session, stream, partitions) {
                ended.push(stream);
            }
        }
        self.end_reading(session, &ended, why, now);
    }

    /// Ends what a connected session reads of these streams, and its connection.
    fn end_reading(
        &mut self,
        session: u32,
        streams: &[u64],
        (why, code): (&'static str, u8),
        now: Now,
    ) {
        let state = self.sessions.get(session as usize);
        let Some((state, slot)) = state.and_then(|state| Some((state, state.connection?))) else {
            return;
        };
        let all = state.feeds.iter().flat_map(|feeds| feeds.iter());
        let of_streams = all.filter(|(_, feed)| streams.contains(&feed.stream));
        let filters: Vec<Box<str>> = of_streams.map(|(filter, _)| filter.into()).collect();
        if filters.is_empty() {
            return;
        }
        for filter in &filters {
            self.take_subscription(session, filter);
        }
        self.forget_filters(session, filters.iter().map(|filter| &**filter), now);
        self.close(slot, why, Some(code), now);
    }
}
