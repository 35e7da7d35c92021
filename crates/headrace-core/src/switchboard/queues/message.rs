//! What a record of a queue is to a ledger, and as a publish.

use std::hash::BuildHasher;
use std::str::FromStr;

use super::address::BELOW;
use super::settle::parse_duration_ms;
use super::{QueueSettings, Queues};
use crate::hash::Key;
use crate::mqtt::encode;
use crate::mqtt::packet::{Publish, QoS, Version};
use crate::queue::{Meta, PRIORITIES, PRIORITY};
use crate::record::Record;
use crate::session::Outcome;
use crate::switchboard::outgoing::length_bytes;
use crate::switchboard::record_publish::{
    expires_ms, properties_of, published_to, push_topic, text,
};
use crate::topic::validate_name;
use crate::Now;

/// Which delivery of which message it is, `PARTITION:OFFSET:ATTEMPT`; settles it.
pub const MESSAGE_ID: &str = "message-id";
/// The group that it is delivered to.
pub const GROUP_ID: &str = "group-id";
/// What that takes of the queue, where that is not all.
pub const GROUP_FILTER: &str = "group-filter";
/// Which delivery of the message it is, from 1.
pub const ATTEMPT: &str = "attempt";
/// How long after it is enqueued a message is given out at the earliest, such as `90s`.
pub const DELAY: &str = "delay";
/// When it is, milliseconds since 1970.
pub const DELIVER_AT: &str = "deliver-at";
/// From 0 to 9, the most urgent.
pub const PRIORITY_OF: &str = "priority";
/// What order goes by, and the partition.
pub const KEY: &str = "partition-key";
/// The topic that the message was published to.
pub const SOURCE_TOPIC: &str = "x-source-topic";
/// When the queue was given the message, milliseconds since 1970.
pub const FIRST_ENQUEUED: &str = "first-enqueued";

/// What a delivery says of itself.
pub const OF_DELIVERY: [&str; 10] = [
    MESSAGE_ID,
    GROUP_ID,
    GROUP_FILTER,
    ATTEMPT,
    SOURCE_TOPIC,
    FIRST_ENQUEUED,
    "queue",
    "partition",
    "offset",
    "sequence",
];

/// No delay is longer than 100 years: it is a mistake, and sums with it would overflow.
pub(super) const DELAY_MS_MAX: u64 = 36_525 * 86_400_000;

/// No delivery has longer than a year, as over HTTP (`QUEUE_DEADLINE_MS_MAX`).
pub(super) const DEADLINE_MS_MAX: u64 = 365 * 86_400_000;

/// The last moment of the year 9999, for the same reason.
const DELIVER_AT_MS_MAX: i64 = 253_402_300_799_999;

/// Digits of a partition, an offset and a time.
const NUMBERS_BYTES_MAX: usize = 10 + 20 + 20;

/// The place of a message in the series of its publisher.
const SERIES: [&str; 3] = ["source", "epoch", "sequence"];

/// What a ledger is told of a record.
pub fn meta_of(record: &Record<'_>, settings: &QueueSettings, hash_key: Key) -> Meta {
    let (due_ms, delay_ms) = due_ms(record).unwrap_or_default();
    Meta {
        key: record.key.map(|key| hash_key.hash_one(key)),
        priority: settings
            .policy
            .prioritises
            .then(|| priority(record))
            .flatten()
            .unwrap_or(PRIORITY),
        since_ms: record.timestamp,
        due_ms,
        delay_ms,
        expires_ms: expires_ms(record).unwrap_or(i64::MAX),
    }
}

/// How urgent a message is, as its publisher has said.
fn priority(record: &Record<'_>) -> Option<u8> {
    parse_priority(std::str::from_utf8(record.header(PRIORITY_OF.as_bytes())?).ok()?)
}

fn parse_priority(text: &str) -> Option<u8> {
    number_of(text).filter(|each| usize::from(*each) < PRIORITIES)
}

/// When a message is to be given out at the earliest, as its publisher has said, and how long it
/// waits for that at most: a time of day is meant, whatever the clock was set to.
fn due_ms(record: &Record<'_>) -> Option<(i64, u64)> {
    let told = |name: &str| std::str::from_utf8(record.header(name.as_bytes())?).ok();
    if let Some(delay) = told(DELAY) {
        let delay_ms = parse_duration_ms(delay)?;
        let due_ms = record.timestamp.checked_add_unsigned(delay_ms)?;
        return Some((due_ms, delay_ms));
    }
    Some((parse_time_ms(told(DELIVER_AT)?)?, u64::MAX))
}

fn parse_time_ms(text: &str) -> Option<i64> {
    number_of(text).filter(|at_ms| *at_ms <= DELIVER_AT_MS_MAX)
}

/// A number as it is written, without a sign and zeros before it: it is told as it was given.
pub(super) fn number_of<T: FromStr>(text: &str) -> Option<T> {
    let is_plain = text == "0" || !text.starts_with('0');
    let is_plain = is_plain && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_plain)
}

/// Why a queue cannot do with a message as its publisher says, if so: its time is none, or its
/// priority.
pub fn unsound(user: &[(&str, &str)], settings: &QueueSettings) -> Option<Outcome> {
    user.iter().find_map(|(name, value)| {
        let (is_sound, outcome) = match *name {
            DELAY => (parse_duration_ms(value).is_some(), Outcome::BadDelay),
            DELIVER_AT => (parse_time_ms(value).is_some(), Outcome::BadDelay),
            PRIORITY_OF if settings.policy.prioritises => {
                (parse_priority(value).is_some(), Outcome::BadPriority)
            }
            PRIORITY_OF => (false, Outcome::NoPriorities),
            _ => (true, Outcome::Accepted),
        };
        (!is_sound).then_some(outcome)
    })
}

/// Writes the topic of a record below its queue: as it was enqueued, or what it was published to.
pub fn write_topic(topic: &mut String, queue: &str, record: &Record<'_>) {
    topic.clear();
    if let Some(whole) = published_to(record) {
        let rest = whole
            .strip_prefix(BELOW)
            .and_then(|rest| rest.strip_prefix(queue));
        let is_below = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if is_below && validate_name(whole).is_ok() {
            return topic.push_str(whole);
        }
    }
    topic.push_str(BELOW);
    topic.push_str(queue);
    push_topic(topic, record);
}

/// Appends a number in decimal.
pub fn push_number(text: &mut String, number: i64) {
    text.push_str(itoa::Buffer::new().format(number));
}

/// Topic with its length, properties without it, and payload of a packet that
/// [`Queues::packet_of`] has made.
pub fn parts_of(packet: &[u8]) -> (&[u8], &[u8], &[u8]) {
    let body = &packet[1 + length_bytes(&packet[1..])..];
    let topic_bytes = 2 + usize::from(u16::from_be_bytes([body[0], body[1]]));
    let (topic, rest) = body.split_at(topic_bytes);
    let section = &rest[2..]; // behind the packet id
    let digits = length_bytes(section);
    let length = (0..digits).fold(0, |length, at| {
        length | usize::from(section[at] & 0x7F) << (7 * at)
    });
    let (properties, payload) = section[digits..].split_at(length);
    (topic, properties, payload)
}

impl Queues {
    /// The packet that a record is, but for what each delivery has of its own; its topic is in
    /// `self.topic`.
    pub(super) fn packet_of(
        &mut self,
        queue: &str,
        partition: u32,
        record: &Record<'_>,
        now: Now,
    ) -> Box<[u8]> {
        let told = properties_of(record, now.wall_ms);
        // The ledger says when it is too old.
        let told = told.or_else(|| properties_of(record, record.timestamp));
        let (mut properties, _) = told.unwrap_or_default();
        // No publisher speaks for the broker. A place in a series has told it of repeats.
        let has = |asked: &&str| properties.user.iter().any(|(name, _)| name == asked);
        let is_in_series = SERIES.iter().all(has);
        properties.user.retain(|(name, _)| {
            !(OF_DELIVERY.contains(name) || is_in_series && SERIES.contains(name))
        });
        let mut numbers = String::with_capacity(NUMBERS_BYTES_MAX);
        let mut write = |number: i64| {
            let start = numbers.len();
            push_number(&mut numbers, number);
            start..numbers.len()
        };
        let (index, offset) = (write(partition.into()), write(record.offset));
        let since = write(record.timestamp);
        let source = published_to(record);
        properties.user.reserve(OF_DELIVERY.len());
        properties.user.extend([
            ("queue", queue),
            ("partition", &numbers[index]),
            ("offset", &numbers[offset.clone()]),
            ("sequence", &numbers[offset]),
            (FIRST_ENQUEUED, &numbers[since]),
        ]);
        properties
            .user
            .extend(source.map(|source| (SOURCE_TOPIC, source)));
        // Of a record that no MQTT client sent, the key is its own word.
        let key = record.key.filter(|_| source.is_none());
        let key = key.and_then(text);
        let is_new = properties.user.iter().all(|(name, _)| *name != KEY);
        properties
            .user
            .extend(key.filter(|_| is_new).map(|key| (KEY, key)));
        let publish = Publish {
            topic: &self.topic,
            payload: record.value.unwrap_or_default(),
            qos: QoS::AtLeastOnce,
            packet_id: 1,
            properties,
            ..Publish::default()
        };
        self.packet.clear();
        encode::publish(Version::V5, &publish, &mut self.packet);
        self.packet.as_slice().into()
    }
}

#[cfg(test)]
mod tests {
    use super::parts_of;
    use crate::mqtt::encode;
    use crate::mqtt::packet::{Publish, PublishProperties, QoS, Version};

    #[test]
    fn a_packet_comes_apart_and_takes_properties_more() {
        for bytes in [0, 1, 100, 127, 128, 16_384] {
            let (long, payload) = ("x".repeat(bytes), vec![7; bytes]);
            let mut publish = Publish {
                topic: "a/b",
                payload: &payload,
                qos: QoS::AtLeastOnce,
                packet_id: 1,
                properties: PublishProperties {
                    payload_format: Some(1),
                    message_expiry: Some(9),
                    user: vec![("own", &long)],
                    ..PublishProperties::default()
                },
                ..Publish::default()
            };
            let mut packet = Vec::new();
            encode::publish(Version::V5, &publish, &mut packet);
            let (topic, properties, rest) = parts_of(&packet);
            assert_eq!((topic, rest), (&b"\0\x03a/b"[..], &payload[..]));
            let (mut whole, mut section) = (Vec::new(), Vec::new());
            encode::section(properties, &[("more", "1")], &mut section);
            publish.properties.user.push(("more", "1"));
            encode::publish(Version::V5, &publish, &mut whole);
            let behind = [&section[..], &payload].concat();
            assert!(whole.ends_with(&behind), "{bytes}");
        }
    }
}
