//! What a publish is as a record of a stream: its key and its headers.

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
        let topic = publish.topic;
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

/// The headers of a publish's record: what MQTT says of it under names of ours, then the user
/// properties under their own.
pub fn headers<'p, 'a: 'p>(
    publish: &'p Publish<'a>,
) -> impl Iterator<Item = (&'p [u8], Option<&'p [u8]>)> {
    let properties = &publish.properties;
    let text = |value: Option<&'a str>| value.map(str::as_bytes);
    let known = [
        ("mqtt.topic", Some(publish.topic.as_bytes())),
        ("mqtt.content-type", text(properties.content_type)),
        ("mqtt.response-topic", text(properties.response_topic)),
        ("mqtt.correlation-data", properties.correlation_data),
    ];
    let user = properties.user.iter();
    known
        .into_iter()
        .filter(|(_, value)| value.is_some())
        .map(|(name, value)| (name.as_bytes(), value))
        .chain(user.map(|(name, value)| (name.as_bytes(), Some(value.as_bytes()))))
}
