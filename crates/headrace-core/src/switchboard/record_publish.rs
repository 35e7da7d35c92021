//! What a record of a stream is as a publish, for whoever reads the stream over MQTT: the way back
//! of [`super::publish_record`].
//!
//! A record that was published has the topic, properties and user properties that it was published
//! with; any other has the headers that are text as user properties. Behind them stand properties
//! of ours that say where the record is. All topics are below `$stream/NAME`.

use super::publish_record as header;
use crate::mqtt::packet::{Publish, PublishProperties};
use crate::record::Record;
use crate::topic::{self, BYTES_MAX, LEVELS_MAX};

/// What topics of streams begin with; the name of a stream follows.
pub use crate::access::STREAM as BELOW;
/// `PARTITION:OFFSET` of the record, as a user property.
pub const OFFSET: &str = "stream-offset";
/// Milliseconds since 1970-01-01T00:00:00Z of the record, as a user property.
pub const TIMESTAMP: &str = "stream-timestamp";
/// How many headers of the record no user property can hold, as a user property.
pub const LEFT_OUT: &str = "stream-headers-left-out";
/// Longest text of MQTT, bytes (MQTT 5.0 1.5.4).
const TEXT_BYTES_MAX: usize = 65_535;

/// The stream that a filter names, and whether it does so as it should: with a name without
/// wildcards. None where it is about no stream.
pub fn stream_of(filter: &str) -> Option<Result<&str, ()>> {
    let rest = filter.strip_prefix(BELOW);
    let rest = rest.or_else(|| (filter == &BELOW[..BELOW.len() - 1]).then_some(""))?;
    let name = rest.split('/').next().unwrap_or(rest);
    let is_named = !name.is_empty() && !name.contains(['+', '#']);
    Some(is_named.then_some(name).ok_or(()))
}

/// Texts that a publish borrows beside those of its record.
#[derive(Debug, Default)]
pub struct Texts {
    topic: String,
    offset: String,
    timestamp: String,
    left_out: String,
}

impl Texts {
    /// Writes what a record of a stream is called; its topic.
    pub fn name(&mut self, stream: &str, partition: u32, record: &Record<'_>) -> &str {
        use std::fmt::Write;

        let Self {
            topic,
            offset,
            timestamp,
            ..
        } = self;
        topic.clear();
        offset.clear();
        timestamp.clear();
        topic.push_str(BELOW);
        topic.push_str(stream);
        push_topic(topic, record);
        write!(offset, "{partition}:{}", record.offset).expect("a string takes all");
        write!(timestamp, "{}", record.timestamp).expect("a string takes all");
        topic
    }

    /// The publish that a record is which [`Texts::name`] was called with; None where it has
    /// expired.
    pub fn publish<'a>(&'a mut self, record: &Record<'a>, wall_ms: i64) -> Option<Publish<'a>> {
        let (mut properties, left_out) = properties_of(record, wall_ms)?;
        let Self {
            topic,
            offset,
            timestamp,
            left_out: count,
        } = self;
        if left_out > 0 {
            *count = format!("{left_out}");
            properties.user.push((LEFT_OUT, count));
        }
        properties.user.push((OFFSET, offset));
        properties.user.push((TIMESTAMP, timestamp));
        Some(Publish {
            topic,
            payload: record.value.unwrap_or_default(),
            properties,
            ..Publish::default()
        })
    }
}

/// Appends the topic of a record to two levels: as it was published to, or its key.
pub fn push_topic(topic: &mut String, record: &Record<'_>) {
    match published_to(record) {
        Some(name) if is_topic_below(name, topic.len()) => {
            topic.push('/');
            topic.push_str(name);
        }
        Some(name) => push_path(topic, name),
        None => {
            if let Some(key) = record.key {
                push_path(topic, &String::from_utf8_lossy(key));
            }
        }
    }
}

/// The topic that a record was published to.
pub fn published_to<'a>(record: &Record<'a>) -> Option<&'a str> {
    record.header(header::TOPIC.as_bytes()).and_then(text)
}

/// The properties that a record was published with, and how many headers no property can hold;
/// None where it has expired.
pub fn properties_of<'a>(
    record: &Record<'a>,
    wall_ms: i64,
) -> Option<(PublishProperties<'a>, usize)> {
    let value = record.value.unwrap_or_default();
    let mut properties = PublishProperties::default();
    let mut is_topic_known = false;
    let mut left_out = 0;
    for (name, value) in record.headers.clone() {
        let Some(name) = text(name) else {
            left_out += 1;
            continue;
        };
        let value = value.unwrap_or_default();
        if name.starts_with(header::OWN) && take(name, value, &mut properties, &mut is_topic_known)
        {
            continue;
        }
        let name = name.strip_prefix(header::ESCAPED).unwrap_or(name);
        match text(value) {
            Some(value) => properties.user.push((name, value)),
            None => left_out += 1,
        }
    }
    if properties.payload_format == Some(1) && std::str::from_utf8(value).is_err() {
        properties.payload_format = None;
    }
    if let Some(seconds) = &mut properties.message_expiry {
        let left_ms = expiry_left_ms(*seconds, record.timestamp, wall_ms)?;
        *seconds = (u64::try_from(left_ms).ok()?.div_ceil(1000)) as u32;
    }
    Some((properties, left_out))
}

fn expiry_left_ms(seconds: u32, timestamp: i64, wall_ms: i64) -> Option<i64> {
    let waited_ms = wall_ms.saturating_sub(timestamp).max(0);
    (i64::from(seconds) * 1000).checked_sub(waited_ms)
}

/// When a record is too old, as its publisher has said, milliseconds since 1970.
pub fn expires_ms(record: &Record<'_>) -> Option<i64> {
    let seconds = text(record.header(header::MESSAGE_EXPIRY.as_bytes())?)?;
    let seconds: u32 = seconds.parse().ok()?;
    Some(record.timestamp.saturating_add(i64::from(seconds) * 1000))
}

/// Takes in a header that MQTT has a place for; false where it has none, or has it already, or the
/// value may not stand there.
fn take<'a>(
    name: &str,
    value: &'a [u8],
    properties: &mut PublishProperties<'a>,
    is_topic_known: &mut bool,
) -> bool {
    fn put<T>(place: &mut Option<T>, value: Option<T>) -> bool {
        let is_free = place.is_none();
        if is_free {
            *place = value;
        }
        is_free && place.is_some()
    }
    match name {
        header::TOPIC => !std::mem::replace(is_topic_known, true),
        header::CONTENT_TYPE => put(&mut properties.content_type, text(value)),
        header::RESPONSE_TOPIC => {
            let topic = text(value).filter(|name| topic::validate_name(name).is_ok());
            put(&mut properties.response_topic, topic)
        }
        header::CORRELATION_DATA => {
            let data = (value.len() <= TEXT_BYTES_MAX).then_some(value);
            put(&mut properties.correlation_data, data)
        }
        header::PAYLOAD_FORMAT => {
            let format = match value {
                b"0" => Some(0),
                b"1" => Some(1),
                _ => None,
            };
            put(&mut properties.payload_format, format)
        }
        header::MESSAGE_EXPIRY => {
            let seconds = text(value).and_then(|text| text.parse().ok());
            put(&mut properties.message_expiry, seconds)
        }
        _ => false,
    }
}

/// Bytes that may stand where MQTT has a text.
pub fn text(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    (text.len() <= TEXT_BYTES_MAX && !text.contains('\0')).then_some(text)
}

/// Whether a name can stand as it is below a prefix of so many bytes and two levels.
fn is_topic_below(name: &str, prefix_bytes: usize) -> bool {
    topic::validate_name(name).is_ok()
        && prefix_bytes + 1 + name.len() <= BYTES_MAX
        && name.split('/').count() + 2 <= LEVELS_MAX
}

/// Appends levels: what no topic name may hold becomes `_`, and what is too long is cut off.
fn push_path(topic: &mut String, path: &str) {
    topic.push('/');
    let mut levels = 3;
    for each in path.chars() {
        let each = match each {
            '/' if levels < LEVELS_MAX => {
                levels += 1;
                '/'
            }
            '/' | '+' | '#' | char::REPLACEMENT_CHARACTER => '_',
            each if each.is_control() => '_',
            each => each,
        };
        if topic.len() + each.len_utf8() > BYTES_MAX {
            return;
        }
        topic.push(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::packet::QoS;
    use crate::record::{BatchBuilder, Batches, Records};
    use crate::switchboard::publish_record::PublishRecord;

    type Header<'a> = (&'a [u8], Option<&'a [u8]>);

    /// Has `see` look at the publish that such a record is, read a second after it was stored.
    fn told<'h>(
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl IntoIterator<Item = Header<'h>>,
        see: impl FnOnce(Option<Publish<'_>>),
    ) {
        let mut builder = BatchBuilder::new();
        builder.push(5_000, key, value, headers);
        let batch = builder.finish();
        let batch = Batches::new(&batch).next().unwrap().unwrap();
        let record = Records::new(&batch.header, batch.body())
            .next()
            .unwrap()
            .unwrap();
        let mut texts = Texts::default();
        let topic = texts.name("s", 3, &record).to_owned();
        assert_eq!(topic::validate_name(&topic), Ok(()));
        see(texts.publish(&record, 6_000));
    }

    fn topic_of(key: Option<&[u8]>, headers: &[Header<'_>]) -> String {
        let mut topic = String::new();
        told(key, None, headers.iter().copied(), |publish| {
            publish.unwrap().topic.clone_into(&mut topic);
        });
        topic
    }

    #[test]
    fn what_was_published_comes_back_as_it_was() {
        let user = vec![
            ("b", "1"),
            ("a", ""),
            ("b", "2"),
            ("mqtt.topic", "forged"),
            ("mqtt.content-type", "forged"),
            ("mqtt.user.x", "y"),
            ("", "ü"),
        ];
        for (format, expiry) in [(None, None), (Some(0), Some(60)), (Some(1), Some(u32::MAX))] {
            let publish = Publish {
                topic: "a//b/ü",
                payload: b"21.5",
                qos: QoS::AtLeastOnce,
                packet_id: 7,
                properties: PublishProperties {
                    payload_format: format,
                    message_expiry: expiry,
                    response_topic: Some("reply/to"),
                    correlation_data: Some(b"\0\xFF"),
                    content_type: Some("text/plain"),
                    user: user.clone(),
                    ..PublishProperties::default()
                },
                ..Publish::default()
            };
            let record = PublishRecord::of(&publish);
            told(
                Some(b"a//b"),
                Some(publish.payload),
                record.headers(),
                |told| {
                    let mut expected = publish.properties.clone();
                    expected.message_expiry = expiry.map(|seconds| seconds - 1);
                    expected.user.push((OFFSET, "3:0"));
                    expected.user.push((TIMESTAMP, "5000"));
                    let told = told.unwrap();
                    assert_eq!(told.topic, "$stream/s/a//b/ü");
                    assert_eq!(told.payload, publish.payload);
                    assert_eq!(told.properties, expected);
                },
            );
        }
    }

    #[test]
    fn what_has_expired_is_no_publish() {
        for (seconds, is_there) in [("0", false), ("1", true), ("2", true)] {
            let expiry = (header::MESSAGE_EXPIRY.as_bytes(), Some(seconds.as_bytes()));
            told(None, None, [expiry], |told| {
                assert_eq!(told.is_some(), is_there);
            });
        }
    }

    #[test]
    fn a_record_that_was_produced_has_a_topic_of_its_key() {
        for (key, topic) in [
            (None, "$stream/s"),
            (Some(&b""[..]), "$stream/s/"),
            (Some(b"dcgm/host-1/GPU-1"), "$stream/s/dcgm/host-1/GPU-1"),
            (Some(b"a+b#c\x01\x7Fd\0"), "$stream/s/a_b_c__d_"),
            (Some(b"\x80\xFFx"), "$stream/s/__x"),
            (Some("\u{85}ü".as_bytes()), "$stream/s/_ü"),
        ] {
            assert_eq!(topic_of(key, &[]), topic);
        }
        let long = topic_of(Some("ü".repeat(BYTES_MAX).as_bytes()), &[]);
        assert!(long.len() > BYTES_MAX - 2);
        let deep = topic_of(Some("/".repeat(300).as_bytes()), &[]);
        assert_eq!(deep.split('/').count(), LEVELS_MAX);
    }

    #[test]
    fn a_topic_that_does_not_fit_or_is_none_is_made_one() {
        let of = |name: &str| {
            let headers = [(header::TOPIC.as_bytes(), Some(name.as_bytes()))];
            topic_of(Some(b"key"), &headers)
        };
        assert_eq!(of("a/b"), "$stream/s/a/b");
        assert_eq!(of("a/#"), "$stream/s/a/_");
        assert_eq!(of(&"x/".repeat(127)).split('/').count(), LEVELS_MAX);
        assert_eq!(of(&"x".repeat(BYTES_MAX)).len(), BYTES_MAX);
        let headers = [(header::TOPIC.as_bytes(), Some(&b"\xFF"[..]))];
        assert_eq!(topic_of(Some(b"key"), &headers), "$stream/s/key");
    }

    #[test]
    fn headers_that_are_no_text_are_counted_and_nulls_are_empty() {
        let long = vec![b'x'; TEXT_BYTES_MAX + 1];
        let headers: [Header<'_>; 7] = [
            (b"a", None),
            (b"b", Some(b"\xFF")),
            (b"\xFF", Some(b"b")),
            (b"c", Some(b"\0")),
            (b"d", Some(&long)),
            (header::CONTENT_TYPE.as_bytes(), Some(b"\xFF")),
            (header::PAYLOAD_FORMAT.as_bytes(), Some(b"1")),
        ];
        told(None, Some(b"\xFF"), headers, |told| {
            let properties = told.unwrap().properties;
            let expected = vec![
                ("a", ""),
                (LEFT_OUT, "5"),
                (OFFSET, "3:0"),
                (TIMESTAMP, "5000"),
            ];
            assert_eq!(properties.user, expected);
            assert_eq!(
                (properties.content_type, properties.payload_format),
                (None, None)
            );
        });
    }

    #[test]
    fn a_filter_names_one_stream_or_is_wrong() {
        for (filter, expected) in [
            ("$stream/a/#", Some(Ok("a"))),
            ("$stream/a", Some(Ok("a"))),
            ("$stream/a/b/+", Some(Ok("a"))),
            ("$stream", Some(Err(()))),
            ("$stream/", Some(Err(()))),
            ("$stream/#", Some(Err(()))),
            ("$stream/+/x", Some(Err(()))),
            ("$streams/a", None),
            ("a/$stream/b", None),
            ("#", None),
        ] {
            assert_eq!(stream_of(filter), expected, "{filter}");
        }
    }
}
