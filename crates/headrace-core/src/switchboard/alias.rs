//! Topic aliases of one connection, in both directions (MQTT 5.0 3.3.2.3.4).
//!
//! An alias stands for a topic on one connection, until that ends or another topic takes it. What
//! the client sets is kept as it says, within a bound in bytes. What the broker sets it chooses
//! itself: where all are taken, the one that was not used for longest.

use crate::hash::Map;
use crate::mqtt::reason;

/// Bytes of the topics that a client gives aliases: 4 KiB for each that it may by default.
pub const ALIAS_BYTES_MAX: usize = 128 * 1024;

/// Aliases towards one client, however many it allows: looking through so many topics costs less
/// than hashing one, and a client that hears of more topics at a time has other worries.
pub const OUT_MAX: u16 = 32;

/// Shorter topics are no longer than the three bytes of an alias.
const OUT_BYTES_MIN: usize = 4;

/// Longer topics get none, or a connection could hold 2 MiB of them.
const OUT_BYTES_MAX: usize = 2048;

/// Aliases that the client has set.
#[derive(Debug, Default)]
pub struct Inbound {
    topics: Option<Box<Map<u16, Box<str>>>>,
    bytes: usize,
}

impl Inbound {
    /// The topic that an alias stands for.
    pub fn known(&self, alias: u16) -> Option<&str> {
        let topics = self.topics.as_ref()?;
        topics.get(&alias).map(|topic| &**topic)
    }

    /// Sets an alias, or looks one up where `topic` is empty: the topic meant.
    ///
    /// # Errors
    /// The reason code with which the connection ends.
    pub fn resolve<'a>(
        &'a mut self,
        alias: u16,
        topic: &'a str,
        alias_max: u16,
        hash_key: crate::hash::Key,
    ) -> Result<&'a str, u8> {
        if alias == 0 || alias > alias_max {
            return Err(reason::TOPIC_ALIAS_INVALID);
        }
        if topic.is_empty() {
            let known = self.topics.as_ref().and_then(|topics| topics.get(&alias));
            return known.map(|topic| &**topic).ok_or(reason::PROTOCOL_ERROR);
        }
        let topics = self
            .topics
            .get_or_insert_with(|| Box::new(Map::with_hasher(hash_key)));
        let before = topics.get(&alias).map_or(0, |before| before.len());
        let bytes = self.bytes - before + topic.len();
        if bytes > ALIAS_BYTES_MAX {
            return Err(reason::QUOTA_EXCEEDED);
        }
        self.bytes = bytes;
        topics.insert(alias, topic.into());
        Ok(topic)
    }
}

/// How a packet to a client says its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alias {
    /// In full.
    None,
    /// In full, and by this alias from now on.
    Sets(u16),
    /// By this alias alone.
    StandsFor(u16),
}

/// Aliases that the broker has set.
#[derive(Debug)]
pub struct Outbound {
    alias_max: u16,
    /// By alias, less one: the topic, and when it was used last.
    topics: Vec<(Box<[u8]>, u64)>,
    clock: u64,
}

impl Outbound {
    /// For a client that allows `alias_max`; None where that is none.
    pub fn new(alias_max: u16) -> Option<Box<Self>> {
        (alias_max > 0).then(|| {
            Box::new(Self {
                alias_max: alias_max.min(OUT_MAX),
                topics: Vec::new(),
                clock: 0,
            })
        })
    }

    /// How the next packet says its topic.
    pub fn next(&mut self, topic: &[u8]) -> Alias {
        if !(OUT_BYTES_MIN..=OUT_BYTES_MAX).contains(&topic.len()) {
            return Alias::None;
        }
        self.clock += 1;
        let known = self.topics.iter_mut().zip(1..);
        for ((known, used), alias) in known {
            if **known == *topic {
                *used = self.clock;
                return Alias::StandsFor(alias);
            }
        }
        let entry = (topic.into(), self.clock);
        if self.topics.len() < usize::from(self.alias_max) {
            self.topics.push(entry);
            return Alias::Sets(self.topics.len() as u16);
        }
        let slots = 0..self.topics.len();
        let oldest = slots.min_by_key(|slot| self.topics[*slot].1);
        let oldest = oldest.expect("there is at least one");
        self.topics[oldest] = entry;
        Alias::Sets(oldest as u16 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alias_that_was_not_used_for_longest_is_taken() {
        let mut out = Outbound::new(2).unwrap();
        assert_eq!(out.next(b"topic/one"), Alias::Sets(1));
        assert_eq!(out.next(b"topic/two"), Alias::Sets(2));
        assert_eq!(out.next(b"topic/one"), Alias::StandsFor(1));
        assert_eq!(out.next(b"topic/three"), Alias::Sets(2));
        assert_eq!(out.next(b"topic/two"), Alias::Sets(1));
        assert_eq!(out.next(b"topic/three"), Alias::StandsFor(2));
        assert_eq!(out.next(b"abc"), Alias::None);
        assert_eq!(out.next(&[b'x'; OUT_BYTES_MAX + 1]), Alias::None);
        assert!(Outbound::new(0).is_none());
    }
}
