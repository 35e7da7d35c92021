//! Who reads which streams: subscriptions that begin and end, and streams that grow or are no more.

use crate::mqtt::reason;
use crate::session::Feed;
use crate::switchboard::Switchboard;
use crate::Now;

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
            let places = self.places();
            let state = &mut self.sessions[session as usize];
            let held = state.places();
            let feeds = state.feeds.as_mut().expect("it reads the stream");
            let more = feeds.more_positions(stream, partitions);
            if held + more > self.limits.subscriptions_max
                || places + more > self.limits.subscriptions_of_node_max
            {
                self.feeds.outgrown.push((session, stream));
                continue;
            }
            let widened = feeds.widen(stream, partitions);
            self.feeds.positions += more;
            for filter in widened {
                self.persistence.feed_due(state, &filter);
            }
        }
    }

    /// Ends the subscriptions to streams that are no more, or have more partitions than a client may
    /// hold positions in, and the connections of their clients, so that they notice.
    pub(in crate::switchboard) fn end_gone_streams(&mut self, now: Now) {
        for stream in std::mem::take(&mut self.feeds.gone) {
            let source = self.feeds.sources.get(&stream);
            let readers: Option<Vec<u32>> =
                source.map(|source| source.readers.keys().copied().collect());
            for session in readers.unwrap_or_default() {
                let why = ("stream_deleted", reason::ADMINISTRATIVE_ACTION);
                self.end_reading(session, stream, why, now);
            }
        }
        for (session, stream) in std::mem::take(&mut self.feeds.outgrown) {
            let why = ("stream_outgrown", reason::QUOTA_EXCEEDED);
            self.end_reading(session, stream, why, now);
        }
    }

    fn end_reading(
        &mut self,
        session: u32,
        stream: u64,
        (why, code): (&'static str, u8),
        now: Now,
    ) {
        let state = self.sessions.get(session as usize);
        let feeds = state.and_then(|state| state.feeds.as_ref());
        let all = feeds.into_iter().flat_map(|feeds| feeds.iter());
        let of_stream = all.filter(|(_, feed)| feed.stream == stream);
        let filters: Vec<Box<str>> = of_stream.map(|(filter, _)| filter.into()).collect();
        if filters.is_empty() {
            return;
        }
        for filter in &filters {
            self.take_subscription(session, filter);
        }
        self.forget_filters(session, filters.iter().map(|filter| &**filter), now);
        if let Some(slot) = self.sessions[session as usize].connection {
            self.close(slot, why, Some(code), now);
        }
    }
}
