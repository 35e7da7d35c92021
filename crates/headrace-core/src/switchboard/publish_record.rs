//! What a publish is as a record of a stream: its key and its headers.

use super::queues::BELOW as QUEUES;
use crate::mqtt::packet::Publish;

/// How a stream derives the key of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyRule {
    /// The whole topic.
    Topic,
    /// The level of the topic at this index, from 0; the whole topic where it has fewer.
    Level(usize),
    /// The first user property of this name; no key, and the next partition in turn, without it.
    Property(Box<str>),
}

impl KeyRule {
    /// Reads `topic`, `level:N` (N from 1) or `property:NAME`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == "topic" {
            return Ok(Self::Topic);
        }
        if let Some(level) = text.strip_prefix("level:") {
            return match level.parse::<usize>() {
                Ok(level) if level > 0 => Ok(Self::Level(level - 1)),
                _ => Err(format!(
                    "key \"{text}\": a level is a number from 1, as in level:3"
                )),
            };
        }
        match text.strip_prefix("property:") {
            Some(name) if !name.is_empty() => Ok(Self::Property(name.into())),
            _ => Err(format!(
                "key \"{text}\" is none of topic, level:N, property:NAME"
            )),
        }
    }

    /// The key of a publish; None for a partition in turn.
    pub fn key<'a>(&self, publish: &Publish<'a>) -> Option<&'a str> {
        let topic = behind_queue(publish.topic).unwrap_or(publish.topic);
        match self {
            Self::Topic => Some(topic),
            Self::Level(index) => Some(topic.split('/').nth(*index).unwrap_or(topic)),
            Self::Property(name) => publish
                .properties
                .user
                .iter()
                .find(|(property, _)| *property == &**name)
                .map(|(_, value)| *value),
        }
    }
}

/// What stands behind a queue's name, by which a message has the same key whether it was enqueued
/// there, or a filter brought it, or its dead letter goes back.
fn behind_queue(topic: &str) -> Option<&str> {
    let (_, behind) = topic.strip_prefix(QUEUES)?.split_once('/')?;
    (!behind.is_empty()).then_some(behind)
}

/// Names that begin so are of what MQTT itself says of a publish.
pub const OWN: &str = "mqtt.";
/// A user property whose own name begins with [`OWN`] stands under this and its name. So nobody who
/// reads headers takes what a publisher has named `mqtt.topic` for the topic.
pub const ESCAPED: &str = "mqtt.user.";

/// Topic name.
pub const TOPIC: &str = "mqtt.topic";
/// Content Type (MQTT 5.0 3.3.2.3.9).
pub const CONTENT_TYPE: &str = "mqtt.content-type";
/// Response Topic (3.3.2.3.5).
pub const RESPONSE_TOPIC: &str = "mqtt.response-topic";
/// Correlation Data (3.3.2.3.6).
pub const CORRELATION_DATA: &str = "mqtt.correlation-data";
/// Payload Format Indicator (3.3.2.3.2), `0` or `1`.
pub const PAYLOAD_FORMAT: &str = "mqtt.payload-format-indicator";
/// Message Expiry Interval (3.3.2.3.3), seconds in decimal, from the record's timestamp on.
pub const MESSAGE_EXPIRY: &str = "mqtt.message-expiry-interval";

/// What the record of a publish has that is not in the publish as it stands.
#[derive(Debug)]
pub struct PublishRecord<'p, 'a> {
    /// The publish.
    pub publish: &'p Publish<'a>,
    expiry: Option<String>,
    escaped: Vec<String>,
}

impl<'p, 'a> PublishRecord<'p, 'a> {
    /// The record of a publish.
    pub fn of(publish: &'p Publish<'a>) -> Self {
        let properties = &publish.properties;
        let own = properties.user.iter();
        let own = own.filter(|(name, _)| name.starts_with(OWN));
        Self {
            publish,
            expiry: properties.message_expiry.map(|seconds| seconds.to_string()),
            escaped: own.map(|(name, _)| [ESCAPED, name].concat()).collect(),
        }
    }

    /// Its headers: what MQTT says of it under names of ours, then the user properties under their
    /// own, in their order.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let properties = &self.publish.properties;
        let format = properties.payload_format.map(|format| match format {
            0 => &b"0"[..],
            _ => b"1",
        });
        let text = |value: Option<&'a str>| value.map(str::as_bytes);
        let known = [
            (TOPIC, Some(self.publish.topic.as_bytes())),
            (CONTENT_TYPE, text(properties.content_type)),
            (RESPONSE_TOPIC, text(properties.response_topic)),
            (CORRELATION_DATA, properties.correlation_data),
            (PAYLOAD_FORMAT, format),
            (MESSAGE_EXPIRY, self.expiry.as_deref().map(str::as_bytes)),
        ];
        let mut escaped = self.escaped.iter();
        let user = properties.user.iter().map(move |(name, value)| {
            let name = if name.starts_with(OWN) {
                escaped.next().map_or(*name, String::as_str)
            } else {
                name
            };
            (name.as_bytes(), Some(value.as_bytes()))
        });
        let known = known.into_iter().filter(|(_, value)| value.is_some());
        known
            .map(|(name, value)| (name.as_bytes(), value))
            .chain(user)
    }
}
