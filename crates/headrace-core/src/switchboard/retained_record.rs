//! A retained message as a record of a log, and back.
//!
//! The topic is the key and the payload the value, null for a clear, so that any tool for Kafka
//! shows them. What only MQTT knows is one header:
//!
//! ```text
//! mqtt.retained    version u8 = 1   QoS u8   expires i64   property section of 5.0, with its length
//! ```
//!
//! `expires` is in milliseconds since 1970, 0 for never: a message expires while the node is down.

use std::sync::OnceLock;

use bytes::Bytes;

use super::outgoing::{expiry_at, length_bytes, topic_of};
use crate::mqtt::packet::QoS;
use crate::record::{record_bytes, Record};
use crate::session::{Expiry, Message};
use crate::topic;
use crate::Now;

/// Name of the header.
pub const HEADER: &[u8] = b"mqtt.retained";

const VERSION: u8 = 1;

/// Bytes of the header before the property section.
const FIXED_BYTES: usize = 10;

/// What the header says of a message.
pub fn header(message: &Message, now: Now) -> Vec<u8> {
    let expires_ms = message.expiry.map_or(0, |_| {
        let left_ms = message.expires_ms() as i64 - now.mono_ms as i64;
        now.wall_ms + left_ms
    });
    let mut header = vec![VERSION, message.qos as u8];
    header.extend_from_slice(&expires_ms.to_be_bytes());
    header.extend_from_slice(&message.head[message.topic_bytes..]);
    header
}

/// Bytes of the record of a message at most, where its topic and the packet that brought it are so
/// long.
pub fn bytes_max(topic: &str, packet_bytes: usize) -> usize {
    let key = Some(topic.as_bytes());
    record_bytes(key, None, [(HEADER, None)]) + FIXED_BYTES + packet_bytes + 3 * 9
}

/// The topic of a record, and what is retained there from then on. None where it is no record of
/// this kind.
pub fn read<'a>(record: &Record<'a>, now: Now) -> Option<(&'a str, Option<Message>)> {
    let topic = std::str::from_utf8(record.key?).ok()?;
    topic::validate_name(topic).ok()?;
    let Some(payload) = record.value else {
        return Some((topic, None));
    };
    let (fixed, section) = record.header(HEADER)?.split_at_checked(FIXED_BYTES)?;
    let [VERSION, qos, expires @ ..] = fixed else {
        return None;
    };
    let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce].get(usize::from(*qos))?;
    if payload.is_empty() || !is_section(section) {
        return None;
    }
    let expires_ms = i64::from_be_bytes(expires.try_into().ok()?);
    let published = if expires_ms == 0 {
        None
    } else {
        Some(published_expiry(section)?)
    };
    let (expiry, arrived_ms) = match published {
        None => (None, now.mono_ms),
        Some(expiry) => {
            let (seconds, arrived_ms) = left(expires_ms, expiry.seconds, now);
            (Some(Expiry { seconds, ..expiry }), arrived_ms)
        }
    };
    let length = u16::try_from(topic.len()).ok()?.to_be_bytes();
    let message = Message {
        head: [&length[..], topic.as_bytes(), section].concat().into(),
        topic_bytes: 2 + topic.len(),
        payload: Bytes::copy_from_slice(payload),
        qos: *qos,
        retain: true,
        publisher: 0,
        expiry,
        arrived_ms,
        held: OnceLock::new(),
        stored: OnceLock::new(),
    };
    debug_assert_eq!(topic_of(&message), topic);
    Some((topic, Some(message)))
}

/// An interval and a beginning that end with a message: it may have been published before this
/// clock began. A clock that was put back makes nothing live longer than it was published for.
fn left(expires_ms: i64, seconds_max: u32, now: Now) -> (u32, u64) {
    let left_ms = expires_ms.saturating_sub(now.wall_ms);
    let left_ms = left_ms.min(1000 * i64::from(seconds_max));
    match u64::try_from(left_ms) {
        Ok(left_ms) => {
            let seconds = left_ms.div_ceil(1000);
            let arrived_ms = (now.mono_ms + left_ms).saturating_sub(1000 * seconds);
            (seconds as u32, arrived_ms)
        }
        Err(_) => (0, now.mono_ms.saturating_sub(1)),
    }
}

/// Whether a section is as long as it says.
fn is_section(section: &[u8]) -> bool {
    let bytes = section.iter().take_while(|byte| **byte >= 0x80).count();
    let Some(length) = section.get(..=bytes).filter(|length| length.len() <= 4) else {
        return false;
    };
    let digits = length.iter().rev();
    let value = digits.fold(0, |value, byte| value << 7 | usize::from(byte & 0x7F));
    length.len() + value == section.len()
}

/// The interval that was published, and where it stands.
fn published_expiry(section: &[u8]) -> Option<Expiry> {
    let at = length_bytes(section);
    let has_format = section.get(at) == Some(&0x01);
    let identifier = section.get(at + if has_format { 2 } else { 0 })?;
    let at = (*identifier == 0x02).then(|| expiry_at(section, has_format))?;
    let seconds = section.get(at..at + 4)?.try_into().ok()?;
    Some(Expiry {
        seconds: u32::from_be_bytes(seconds),
        at,
    })
}
