//! Who reads which streams: subscriptions that begin and end, and streams that grow or are no more.

use crate::mqtt::reason;
use crate::session::{Feed, Progress};
use crate::switchboard::Switchboard;
use crate::Now;

impl Switchboard {
    /// Begins to read a stream for a session, from `positions`.
    pub(in crate::switchboard) fn begin_feed(&mut self, session: u32, filter: &str, feed: Feed) {
        self.feeds.begin(session, feed.stream);
        let state = &mut self.sessions[session as usize];
        let feeds = state.feeds.get_or_insert_default();
        feeds.by_filter.insert(filter.into(), feed);
        self.persistence.feed_due(state, filter);
    }

    /// A session reads a stream no longer.
    pub(in crate::switchboard) fn forget_feed(&mut self, session: u32, filter: &str) {
        let state = &mut self.sessions[session as usize];
        let Some(feeds) = &mut state.feeds else {
            return;
        };
        let Some(feed) = feeds.by_filter.remove(filter) else {
            return;
        };
        if feeds.by_filter.is_empty() {
            state.feeds = None;
        }
        self.feeds.forget(session, feed.stream);
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
            let state = &mut self.sessions[session as usize];
            let feeds = state.feeds.iter_mut();
            let all = feeds.flat_map(|feeds| feeds.by_filter.iter_mut());
            let of_stream = all.filter(|(_, feed)| feed.stream == stream);
            let mut widened: Vec<Box<str>> = Vec::new();
            for (filter, feed) in of_stream {
                if feed.partitions.len() < partitions as usize {
                    let count = partitions as usize;
                    feed.partitions.resize_with(count, Progress::default);
                    widened.push(filter.clone());
                }
            }
            for filter in widened {
                self.persistence.feed_due(state, &filter);
            }
        }
    }

    /// Ends the subscriptions to streams that are no more, and the connections of their clients, so
    /// that they notice.
    pub(in crate::switchboard) fn end_gone_streams(&mut self, now: Now) {
        for stream in std::mem::take(&mut self.feeds.gone) {
            let Some(source) = self.feeds.sources.get(&stream) else {
                continue;
            };
            let readers: Vec<u32> = source.readers.keys().copied().collect();
            for session in readers {
                let feeds = self.sessions[session as usize].feeds.iter();
                let all = feeds.flat_map(|feeds| &feeds.by_filter);
                let of_stream = all.filter(|(_, feed)| feed.stream == stream);
                let filters: Vec<Box<str>> = of_stream.map(|(filter, _)| filter.clone()).collect();
                for filter in &filters {
                    self.take_subscription(session, filter);
                }
                self.forget_filters(session, filters.iter().map(|filter| &**filter), now);
                if let Some(slot) = self.sessions[session as usize].connection {
                    let code = Some(reason::ADMINISTRATIVE_ACTION);
                    self.close(slot, "stream_deleted", code, now);
                }
            }
        }
    }
}
