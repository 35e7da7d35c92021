//! What a session consumes of queues.

use std::collections::BTreeMap;

/// A message that a client was handed and has not acknowledged with PUBACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handed {
    /// To which of the session's consumers.
    pub consumer: u64,
    /// Partition of the queue.
    pub partition: u32,
    /// Offset there.
    pub offset: i64,
    /// Which delivery of it this is, from 1.
    pub attempt: u32,
}

/// How a subscription consumes, as it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consumption {
    /// The group; None for one that has the name of the client.
    pub group: Option<Box<str>>,
    /// Deliveries that may be open; 0 for what the queue says.
    pub prefetch: u32,
    /// PUBACK settles.
    pub by_puback: bool,
}

/// The consumers of a session, and what they were handed.
///
/// A message of a queue goes back to the queue when its client goes, so its exchange ends with the
/// connection, and a later one begins with none of them (as with shared subscriptions, MQTT 5.0
/// 4.8.2).
#[derive(Debug, Default)]
pub struct Consuming {
    /// How it was asked for, by filter.
    pub terms: BTreeMap<Box<str>, Consumption>,
    /// By filter, where there is the queue.
    pub consumers: BTreeMap<Box<str>, u64>,
    /// By packet id.
    pub handed: BTreeMap<u16, Handed>,
}
