//! What administration is shown of who reads streams, and how far behind they are.

use std::collections::BTreeMap;

use crate::session::{Feed, Progress, Session};
use crate::switchboard::Switchboard;

/// Positions that one call shows of a session: all of four streams that are as wide as they may be,
/// and some 5 to 10 ms for the shell to tell.
pub const POSITIONS_SHOWN_MAX: usize = 4_096;

/// A subscription to a stream, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReading {
    /// As subscribed.
    pub filter: String,
    /// The stream's id; it may be no more.
    pub stream: u64,
    /// By partition, the offset that is sent next.
    pub next: Vec<i64>,
}

/// How far the last of those who read a stream is behind, records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamLag {
    /// Of those that are connected.
    pub connected: u64,
    /// Of those that are away.
    pub away: u64,
}

impl Switchboard {
    /// What a session reads, by filter: as many subscriptions as have [`POSITIONS_SHOWN_MAX`]
    /// positions together.
    pub(in crate::switchboard) fn readings(session: &Session) -> Vec<StreamReading> {
        let mut room = POSITIONS_SHOWN_MAX;
        let feeds = session.feeds.iter().flat_map(|feeds| feeds.iter());
        let shown = feeds.map_while(|(filter, feed)| {
            room = room.checked_sub(feed.partitions.len())?;
            Some(StreamReading {
                filter: filter.to_owned(),
                stream: feed.stream,
                next: feed.partitions.iter().map(Progress::next).collect(),
            })
        });
        shown.collect()
    }

    /// How far readers of streams are behind, by stream, and how many subscriptions were left out
    /// because it would have taken more than `steps_max`: one for each subscription, and one for
    /// each of its partitions. `bounds` are, by stream and partition, the first offset that is kept
    /// and the one behind the last; streams without are passed over.
    ///
    /// # Panics
    /// Never.
    pub fn stream_lags(
        &self,
        bounds: &BTreeMap<u64, Vec<(i64, i64)>>,
        steps_max: usize,
    ) -> (BTreeMap<u64, StreamLag>, usize) {
        let (mut lags, mut looked, mut steps) = (BTreeMap::new(), 0, steps_max);
        let readers = self.feeds.readers.iter();
        let sessions = readers.map(|slot| &self.sessions[*slot as usize]);
        let each = sessions.flat_map(|session| {
            let feeds = session.feeds.iter().flat_map(|feeds| feeds.iter());
            feeds.map(move |(_, feed)| (session.connection.is_some(), feed))
        });
        for (is_connected, feed) in each {
            let Some(left) = steps.checked_sub(1 + feed.partitions.len()) else {
                break;
            };
            (steps, looked) = (left, looked + 1);
            if let Some(bounds) = bounds.get(&feed.stream) {
                let StreamLag { connected, away } = lags.entry(feed.stream).or_default();
                let last = if is_connected { connected } else { away };
                *last = lag(feed, bounds).max(*last);
            }
        }
        (lags, self.feeds.len() - looked)
    }

    /// Client ids of those who read a stream, `count_max` at most, whether each is connected, and
    /// how many there are.
    ///
    /// # Panics
    /// Never.
    pub fn stream_readers(&self, stream: u64, count_max: usize) -> (Vec<(String, bool)>, usize) {
        let Some(source) = self.feeds.sources.get(&stream) else {
            return (Vec::new(), 0);
        };
        let readers = source.readers.keys().take(count_max);
        let readers = readers.map(|slot| {
            let session = &self.sessions[*slot as usize];
            (session.client_id.to_string(), session.connection.is_some())
        });
        (readers.collect(), source.readers.len())
    }
}

/// Records that are kept and that a feed has not come to.
fn lag(feed: &Feed, bounds: &[(i64, i64)]) -> u64 {
    let partitions = feed.partitions.iter().zip(bounds);
    let lags = partitions.map(|(each, (start, end))| end - each.next().max(*start));
    lags.map(|lag| u64::try_from(lag).unwrap_or(0)).sum()
}
