//! A publish that waits: for the disk, or for a client's window.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::Stored;
use crate::mqtt::packet::QoS;

/// Payloads from this size are shared by reference among those who are sent them; copying less
/// costs nothing measurable.
pub const SHARED_BYTES_MIN: usize = 16 * 1024;

/// What a message costs beside its bytes: its fields, the heads of its allocations, its place in
/// a queue. Counted where messages wait, or a queue of tiny ones would cost many times its bound.
pub const OVERHEAD_BYTES: usize = 160;

/// What it costs that a message waits for one client more: a place in its queue, with the claim that
/// the log knows. Messages wait for all clients of a fleet at once, so these may be more than all
/// that they say.
pub const PLACE_BYTES: usize = 128;

/// What subscribers will be sent, owned. Topic and properties are opaque here: the connection
/// that sends them knows their form.
#[derive(Debug)]
pub struct Message {
    /// Topic, then properties.
    pub head: Box<[u8]>,
    /// Bytes of the topic in `head`.
    pub topic_bytes: usize,
    /// Application message.
    pub payload: Bytes,
    /// As published.
    pub qos: QoS,
    /// RETAIN flag as published.
    pub retain: bool,
    /// Hash of who published it, where a group asks; 0 elsewhere.
    pub publisher: u32,
    /// Message Expiry Interval as published.
    pub expiry: Option<Expiry>,
    /// When it came, on the monotonic clock.
    pub arrived_ms: u64,
    /// Set once it waits for somebody.
    pub held: OnceLock<Held>,
    /// Set once it has a place on the log.
    pub stored: OnceLock<Stored>,
}

/// Bytes that many may hold together and that count once: of all messages that wait for clients,
/// with their places in queues, or of all large payloads on their way to clients.
#[derive(Clone, Debug, Default)]
pub struct Memory(Arc<AtomicUsize>);

impl Memory {
    /// The bytes.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts so many bytes for as long as the answer lives.
    pub fn hold(&self, bytes: usize) -> Held {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Held {
            memory: self.clone(),
            bytes,
        }
    }
}

/// Bytes that count, until this is dropped.
#[derive(Debug)]
pub struct Held {
    memory: Memory,
    bytes: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.memory.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A place in a queue, or in flight, until it is free: [`PLACE_BYTES`].
#[derive(Debug)]
pub struct Seat(Memory);

impl Seat {
    /// Counts it.
    pub fn take(memory: &Memory) -> Self {
        memory.0.fetch_add(PLACE_BYTES, Ordering::Relaxed);
        Self(memory.clone())
    }
}

impl Clone for Seat {
    fn clone(&self) -> Self {
        Self::take(&self.0)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0 .0.fetch_sub(PLACE_BYTES, Ordering::Relaxed);
    }
}

/// A Message Expiry Interval (MQTT 5.0 3.3.2.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The interval, seconds.
    pub seconds: u32,
    /// Where its value stands in the properties.
    pub at: usize,
}

impl Message {
    /// What it costs where it waits.
    pub fn bytes(&self) -> usize {
        self.head.len() + self.payload.len() + OVERHEAD_BYTES
    }

    /// Counts it, from the first who holds it to the last.
    pub fn hold(&self, memory: &Memory) {
        self.held.get_or_init(|| memory.hold(self.bytes()));
    }

    /// The same message, counted by itself.
    #[must_use]
    pub fn fresh(&self) -> Self {
        Self {
            head: self.head.clone(),
            topic_bytes: self.topic_bytes,
            payload: self.payload.clone(),
            qos: self.qos,
            retain: self.retain,
            publisher: self.publisher,
            expiry: self.expiry,
            arrived_ms: self.arrived_ms,
            held: OnceLock::new(),
            stored: OnceLock::new(),
        }
    }

    /// True once the message must not be delivered any more (MQTT 5.0 3.3.2.3.3).
    pub fn is_expired(&self, mono_ms: u64) -> bool {
        mono_ms > self.expires_ms()
    }

    /// The last moment at which it may be delivered.
    pub fn expires_ms(&self) -> u64 {
        self.expiry.map_or(u64::MAX, |expiry| {
            self.arrived_ms + u64::from(expiry.seconds) * 1000
        })
    }

    /// The expiry interval to pass on: what was published less the time waited.
    pub fn expiry_left(&self, mono_ms: u64) -> Option<Expiry> {
        let waited_s = (self.waited_ms(mono_ms) / 1000) as u32;
        self.expiry.map(|expiry| Expiry {
            seconds: expiry.seconds.saturating_sub(waited_s),
            ..expiry
        })
    }

    fn waited_ms(&self, mono_ms: u64) -> u64 {
        mono_ms.saturating_sub(self.arrived_ms)
    }
}

/// A client's last word (MQTT 5.0 3.1.2.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Will {
    /// A PUBLISH packet of 5.0.
    pub packet: Box<[u8]>,
    /// For how long after the end of the connection it waits for the client to come back
    /// (3.1.3.2.2), seconds.
    pub delay_s: u32,
}

impl Will {
    /// What it costs where it waits.
    pub fn bytes(&self) -> usize {
        self.packet.len() + OVERHEAD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mqtt_3_3_2_3_3_expiry_is_lowered_by_the_time_waited() {
        let message = Message {
            head: [].into(),
            topic_bytes: 0,
            payload: Bytes::new(),
            qos: QoS::AtMostOnce,
            retain: false,
            publisher: 0,
            expiry: Some(Expiry { seconds: 10, at: 0 }),
            arrived_ms: 1_000,
            held: OnceLock::new(),
            stored: OnceLock::new(),
        };
        let left = |mono_ms| message.expiry_left(mono_ms).map(|expiry| expiry.seconds);
        assert_eq!(left(1_999), Some(10));
        assert_eq!(left(4_000), Some(7));
        assert!(!message.is_expired(11_000));
        assert!(message.is_expired(11_001));
    }

    #[test]
    fn a_message_that_many_hold_counts_once_until_the_last_lets_go() {
        let memory = Memory::default();
        let message = Arc::new(Message {
            head: [].into(),
            topic_bytes: 0,
            payload: vec![1; 100].into(),
            qos: QoS::AtLeastOnce,
            retain: false,
            publisher: 0,
            expiry: None,
            arrived_ms: 0,
            held: OnceLock::new(),
            stored: OnceLock::new(),
        });
        let holders = [Arc::clone(&message), message];
        for message in &holders {
            message.hold(&memory);
            assert_eq!(memory.bytes(), 100 + OVERHEAD_BYTES);
        }
        let seats = [Seat::take(&memory), Seat::take(&memory)];
        assert_eq!(memory.bytes(), 100 + OVERHEAD_BYTES + 2 * PLACE_BYTES);
        let again = seats[0].clone();
        drop(seats);
        drop(holders);
        assert_eq!(memory.bytes(), PLACE_BYTES);
        drop(again);
        assert_eq!(memory.bytes(), 0);
    }
}
