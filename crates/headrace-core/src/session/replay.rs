//! Retained messages that a session has yet to be sent for its subscriptions (MQTT 5.0 3.3.1.3).
//!
//! One search at a time holds a position; the others have not begun. So what a client has
//! subscribed to bounds what it costs, however many messages are retained and however slowly it
//! reads.

use std::collections::BTreeMap;

use crate::mqtt::packet::QoS;
use crate::topic::Cursor;

/// The retained messages for one subscription.
#[derive(Clone, Debug)]
pub struct Replay {
    /// How far it got.
    pub cursor: Cursor,
    /// Highest quality of service of what is sent.
    pub qos: QoS,
    /// Subscription Identifier; 0 without one.
    pub id: u32,
    /// The last arrival before the subscription. What came later was delivered as it came.
    pub since: u64,
}

/// Those of a session, by filter.
#[derive(Debug, Default)]
pub struct Replays {
    current: Option<(Box<str>, Replay)>,
    waiting: BTreeMap<Box<str>, Replay>,
}

impl Replays {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.current.is_none() && self.waiting.is_empty()
    }

    /// Begins, or begins anew.
    pub fn begin(&mut self, filter: &str, replay: Replay) {
        self.forget(filter);
        self.waiting.insert(filter.into(), replay);
    }

    /// The subscription is gone.
    pub fn forget(&mut self, filter: &str) {
        if self.current.as_ref().is_some_and(|(of, _)| **of == *filter) {
            self.current = None;
        }
        self.waiting.remove(filter);
    }

    /// The one whose turn it is, and its filter.
    pub fn current(&mut self) -> Option<(&str, &mut Replay)> {
        if self.current.is_none() {
            self.current = self.waiting.pop_first();
        }
        let current = self.current.as_mut();
        current.map(|(filter, replay)| (&**filter, replay))
    }

    /// The one whose turn it was is over; its filter.
    ///
    /// # Panics
    /// Where it was nobody's turn.
    pub fn end(&mut self) -> Box<str> {
        let (filter, _) = self.current.take().expect("it has just been looked at");
        filter
    }

    /// Whether a subscription has yet to be sent some.
    pub fn contains(&self, filter: &str) -> bool {
        let is_current = self.current.as_ref().is_some_and(|(of, _)| **of == *filter);
        is_current || self.waiting.contains_key(filter)
    }
}
