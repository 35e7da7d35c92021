//! What of a session is kept on the log: claims to messages, and which of them are over.
//!
//! A message that waits is stored once; each receiver has a claim to it, at a place in the order
//! of what it is owed. Who holds a message or a claim keeps it alive; when the last holder lets go,
//! by whatever way, the end is told ([`Ends`]). So nothing that drops a message can forget to say.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Who is owed messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A session.
    Session {
        /// Its slot.
        slot: u32,
        /// Its number, which no other session or group ever had.
        number: u64,
    },
    /// A shared subscription.
    Group {
        /// Its slot.
        slot: u32,
        /// Its number.
        number: u64,
    },
    /// A session that reads a stream: what it was sent and has not acknowledged, by offset.
    Feed {
        /// Slot of the session.
        slot: u32,
        /// Of the feed, which no other feed ever had.
        number: u64,
        /// Partition of the stream.
        partition: u32,
    },
}

impl Owner {
    /// Its number.
    pub const fn number(self) -> u64 {
        match self {
            Self::Session { number, .. }
            | Self::Group { number, .. }
            | Self::Feed { number, .. } => number,
        }
    }
}

/// What has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A receiver is owed a message no longer.
    Claim(Owner, u64),
    /// Nobody waits for a message any more.
    Message {
        /// Where it is stored.
        partition: u32,
        /// Its number.
        number: u64,
    },
}

/// Where ends are told.
#[derive(Debug)]
pub struct Ends<T = End>(Arc<Mutex<Vec<T>>>);

impl<T> Default for Ends<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T> Clone for Ends<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Ends<T> {
    /// Tells one.
    pub fn tell(&self, end: T) {
        self.lock().push(end);
    }

    /// Those since the last call.
    pub fn take(&self) -> Vec<T> {
        std::mem::take(&mut self.lock())
    }

    /// Whether none was told since.
    pub fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one receiver is owed.
#[derive(Debug)]
pub struct Claim {
    /// Who.
    pub owner: Owner,
    /// Its place in the order of what the owner is owed.
    pub place: u64,
    ends: Ends,
}

impl Claim {
    /// A claim whose end will be told.
    pub fn new(owner: Owner, place: u64, ends: &Ends) -> Arc<Self> {
        let ends = ends.clone();
        Arc::new(Self { owner, place, ends })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.ends.tell(End::Claim(self.owner, self.place));
    }
}

/// Where a message is stored, until its last holder drops it.
#[derive(Debug)]
pub struct Stored {
    /// Partition of the log.
    pub partition: u32,
    /// Which no other message, session or group ever had.
    pub number: u64,
    /// The claims to it, as the log has them.
    pub claims: Box<[u8]>,
    ends: Ends,
}

impl Stored {
    /// A place on the log whose end will be told.
    pub fn new(partition: u32, number: u64, claims: Box<[u8]>, ends: &Ends) -> Self {
        Self {
            partition,
            number,
            claims,
            ends: ends.clone(),
        }
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        self.ends.tell(End::Message {
            partition: self.partition,
            number: self.number,
        });
    }
}

/// The places that one owner has given out, and which of them are over.
///
/// What is over is a few ranges, however many messages pass one that nobody acknowledges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    next: u64,
    /// Ranges that are over: first place to the one behind the last. They neither touch nor overlap.
    over: BTreeMap<u64, u64>,
}

impl Places {
    /// Places below `next`, all over but those of `open`, which ascend.
    pub fn with_open(next: u64, open: impl IntoIterator<Item = u64>) -> Self {
        let mut places = Self {
            next,
            over: BTreeMap::new(),
        };
        let mut from = 0;
        for place in open {
            places.add(from, place);
            from = place + 1;
        }
        places.add(from, next);
        places
    }

    /// Of ranges that are over, as [`Self::ranges`] gives them.
    pub fn with_ranges(next: u64, ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let over = ranges.into_iter().collect();
        Self { next, over }
    }

    fn add(&mut self, from: u64, to: u64) {
        if from < to {
            self.over.insert(from, to);
        }
    }

    /// The next place.
    pub fn give(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// The place that is given next.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The ranges that are over, ascending.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
        self.over.iter().map(|(from, to)| (*from, *to))
    }

    /// A place is over.
    pub fn end(&mut self, place: u64) {
        if self.is_over(place) {
            return;
        }
        let (mut from, mut to) = (place, place + 1);
        let before = self.over.range(..place).next_back();
        if let Some((first, end)) = before.map(|(first, end)| (*first, *end)) {
            if end == place {
                from = first;
            }
        }
        if let Some(end) = self.over.remove(&to) {
            to = end;
        }
        self.over.insert(from, to);
    }

    /// Whether a place is over.
    pub fn is_over(&self, place: u64) -> bool {
        let before = self.over.range(..=place).next_back();
        before.is_some_and(|(_, end)| place < *end)
    }
}

/// What a session or a group has on the log.
#[derive(Debug)]
pub struct Durable {
    /// Which no other session, group or message ever had.
    pub number: u64,
    /// Partition of the log.
    pub partition: u32,
    /// What it is owed.
    pub places: Places,
    /// When the client of a session went, milliseconds since 1970; None while it is there.
    pub left_ms: Option<u64>,
    /// Its record of what it is, is to be written.
    pub is_head_due: bool,
    /// Its record of how far it is, is to be written.
    pub is_cursor_due: bool,
}

impl Durable {
    /// Nothing is owed, and nothing is to be written.
    pub fn new(number: u64, partition: u32) -> Self {
        Self {
            number,
            partition,
            places: Places::default(),
            left_ms: None,
            is_head_due: false,
            is_cursor_due: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_are_over_are_as_many_ranges_as_there_are_gaps() {
        let mut places = Places::default();
        for place in 0..1000 {
            assert_eq!(places.give(), place);
        }
        for place in (0..1000).filter(|place| place % 500 != 7).rev() {
            places.end(place);
            places.end(place);
        }
        let ranges: Vec<_> = places.ranges().collect();
        assert_eq!(ranges, [(0, 7), (8, 507), (508, 1000)]);
        assert!(!places.is_over(7) && !places.is_over(1000) && places.is_over(508));
        assert_eq!(places, Places::with_open(1000, [7, 507]));
        assert_eq!(places, Places::with_ranges(1000, ranges));
        places.end(7);
        places.end(507);
        assert_eq!(places.ranges().collect::<Vec<_>>(), [(0, 1000)]);
    }

    #[test]
    fn an_end_is_told_when_the_last_holder_lets_go() {
        let ends = Ends::default();
        let owner = Owner::Session { slot: 3, number: 9 };
        let claim = Claim::new(owner, 5, &ends);
        let holders = [Arc::clone(&claim), claim];
        let stored = Stored::new(2, 8, Box::default(), &ends);
        assert_eq!(ends.take(), []);
        drop(holders);
        assert_eq!(ends.take(), [End::Claim(owner, 5)]);
        drop(stored);
        let end = End::Message {
            partition: 2,
            number: 8,
        };
        assert_eq!(ends.take(), [end]);
    }
}
