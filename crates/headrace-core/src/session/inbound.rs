//! Publishes from one origin that are not answered yet, in order.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Message;

/// How a publish ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Taken, by a stream or by subscribers.
    Accepted,
    /// Nothing wanted it.
    NoSubscribers,
    /// A stream had stored it before.
    AlreadyStored,
    /// A newer epoch of its source has published.
    StaleEpoch,
    /// The topic is the broker's own.
    NotAuthorized,
    /// A stream wanted it and could not store it.
    NotStored,
    /// A stream wanted it and has no room for it now.
    NoRoom,
}

/// How the append of a publish ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is as durable as its stream asks.
    Stored,
    /// The disk refused.
    Refused,
    /// The disk is nearly full.
    NoRoom,
}

impl From<bool> for Ending {
    fn from(stored: bool) -> Self {
        if stored {
            Self::Stored
        } else {
            Self::Refused
        }
    }
}

impl Outcome {
    /// The reason code of its PUBACK (MQTT 5.0 3.4.2.1).
    pub const fn reason_code(self) -> u8 {
        match self {
            Self::Accepted | Self::AlreadyStored => 0x00,
            Self::NoSubscribers => 0x10,
            Self::NotStored => 0x80,
            Self::StaleEpoch => 0x83,
            Self::NotAuthorized => 0x87,
            Self::NoRoom => 0x97,
        }
    }

    /// The reason string of its PUBACK.
    pub const fn reason_string(self) -> Option<&'static str> {
        match self {
            Self::Accepted | Self::NoSubscribers => None,
            Self::AlreadyStored => Some("already stored"),
            Self::StaleEpoch => Some("stale epoch"),
            Self::NotAuthorized => Some("topics that begin with $ are the broker's"),
            Self::NotStored => Some("not stored: the broker's disk refused"),
            Self::NoRoom => Some("not stored: the broker's disk is nearly full"),
        }
    }
}

/// A publish whose turn has come to be answered.
#[derive(Debug)]
pub struct Answer {
    /// Packet id of a client's publish, request of another door's, 0 where no one asks.
    pub token: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Streams that matched it.
    pub streams: u32,
    /// What `QoS` 1 subscribers get, now that it is durable, and its arrival.
    pub deferred: Option<(u64, Arc<Message>)>,
}

#[derive(Debug)]
struct Entry {
    answer: Answer,
    /// Tickets that have not ended.
    waiting: u32,
}

/// Publishes in the order of their packets. Tickets end in any order, answers leave in this one
/// (MQTT 5.0 4.6), and so do deliveries that
/// waited, which keeps the order of each topic.
#[derive(Debug, Default)]
pub struct Inbound {
    entries: VecDeque<Entry>,
    /// Ordinal of the first entry.
    first: u64,
}

impl Inbound {
    /// Publishes that are not answered yet.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True where every publish is answered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The ordinal of the next publish.
    pub fn next_ordinal(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Adds a publish that waits for `waiting` tickets; its ordinal.
    pub fn push(&mut self, answer: Answer, waiting: u32) -> u64 {
        let ordinal = self.next_ordinal();
        self.entries.push_back(Entry { answer, waiting });
        ordinal
    }

    /// A ticket of the publish at `ordinal` ended.
    ///
    /// # Panics
    /// Where that publish waits for no ticket.
    pub fn settle(&mut self, ordinal: u64, ending: Ending) {
        let entry = &mut self.entries[(ordinal - self.first) as usize];
        assert!(entry.waiting > 0, "a ticket ends once");
        entry.waiting -= 1;
        entry.answer.outcome = match ending {
            Ending::Stored => return,
            Ending::Refused => Outcome::NotStored,
            Ending::NoRoom => Outcome::NoRoom,
        };
        entry.answer.deferred = None;
    }

    /// The next publish to answer, if its tickets have ended.
    pub fn next_answer(&mut self) -> Option<Answer> {
        if self.entries.front()?.waiting > 0 {
            return None;
        }
        self.first += 1;
        self.entries.pop_front().map(|entry| entry.answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(token: u64) -> Answer {
        Answer {
            token,
            outcome: Outcome::Accepted,
            streams: 1,
            deferred: None,
        }
    }

    fn ready(inbound: &mut Inbound) -> Vec<(u64, Outcome)> {
        std::iter::from_fn(|| inbound.next_answer())
            .map(|answer| (answer.token, answer.outcome))
            .collect()
    }

    #[test]
    fn mqtt_4_6_answers_leave_in_packet_order_though_tickets_end_in_any() {
        let mut inbound = Inbound::default();
        let first = inbound.push(answer(7), 1);
        let second = inbound.push(answer(8), 2);
        inbound.push(answer(9), 0);
        inbound.settle(second, Ending::Stored);
        inbound.settle(second, Ending::Stored);
        assert_eq!(ready(&mut inbound), []);
        inbound.settle(first, Ending::Stored);
        let expected = [7, 8, 9].map(|token| (token, Outcome::Accepted));
        assert_eq!(ready(&mut inbound), expected);
        assert!(inbound.is_empty());
    }

    #[test]
    fn one_failed_ticket_of_several_fails_the_publish() {
        let mut inbound = Inbound::default();
        let ordinal = inbound.push(answer(1), 2);
        inbound.settle(ordinal, Ending::Refused);
        inbound.settle(ordinal, Ending::Stored);
        assert_eq!(ready(&mut inbound), [(1, Outcome::NotStored)]);
    }
}
