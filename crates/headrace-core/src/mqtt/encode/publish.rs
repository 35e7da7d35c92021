//! PUBLISH (3.3): one packet, or one message for many subscribers.

use super::writer::{variable, Properties, Writer};
use crate::mqtt::packet::{Publish, PublishProperties, QoS, Version};
use crate::mqtt::property;

/// Room for the fixed header, the packet identifier and a few properties.
const HEADROOM: usize = 64;

/// Appends one PUBLISH.
#[inline]
pub fn publish(version: Version, message: &Publish<'_>, out: &mut Vec<u8>) {
    let least = 2 + message.topic.len() + message.payload.len();
    out.reserve(least + HEADROOM);
    let header = header(message.qos, message.dup, message.retain);
    Writer::packet(header, least, out, |out| {
        out.text(message.topic);
        if message.qos != QoS::AtMostOnce {
            out.short(message.packet_id);
        }
        if version == Version::V5 {
            out.properties(|properties| write_properties(&message.properties, properties));
        }
        out.bytes(message.payload);
    });
}

const fn header(qos: QoS, dup: bool, retain: bool) -> u8 {
    0x30 | (dup as u8) << 3 | (qos as u8) << 1 | retain as u8
}

/// Properties of a PUBLISH or of a will.
pub fn write_properties(properties: &PublishProperties<'_>, out: &mut Properties<'_>) {
    out.byte(property::PAYLOAD_FORMAT, properties.payload_format);
    out.long(property::MESSAGE_EXPIRY, properties.message_expiry);
    out.short(property::TOPIC_ALIAS, properties.topic_alias);
    out.text(property::RESPONSE_TOPIC, properties.response_topic);
    out.binary(property::CORRELATION_DATA, properties.correlation_data);
    for id in &properties.subscription_ids {
        out.variable(property::SUBSCRIPTION_ID, Some(*id));
    }
    out.text(property::CONTENT_TYPE, properties.content_type);
    out.long(property::WILL_DELAY, properties.will_delay);
    out.user(&properties.user);
}

/// One message encoded once for all subscribers of one protocol version.
///
/// Holds the packet as `QoS` 0 sends it; other levels differ in the fixed header and the packet
/// identifier, which [`EncodedPublish::write`] puts in while it copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedPublish {
    packet: Vec<u8>,
    /// Where the fixed header ends and the topic begins.
    topic_at: usize,
    /// Where the topic ends: the place of a packet identifier.
    rest_at: usize,
}

impl EncodedPublish {
    /// Encodes a message; see [`publish`] for what must not be given.
    pub fn new(
        version: Version,
        topic: &str,
        properties: &PublishProperties<'_>,
        payload: &[u8],
    ) -> Self {
        let least = 2 + topic.len() + payload.len();
        let mut packet = Vec::with_capacity(least + HEADROOM);
        let mut topic_length = 0;
        Writer::packet(
            header(QoS::AtMostOnce, false, false),
            least,
            &mut packet,
            |out| {
                let start = out.len();
                out.text(topic);
                topic_length = out.len() - start;
                if version == Version::V5 {
                    out.properties(|section| write_properties(properties, section));
                }
                out.bytes(payload);
            },
        );
        let length_digits = packet[1..]
            .iter()
            .take_while(|digit| **digit >= 0x80)
            .count()
            + 1;
        let topic_at = 1 + length_digits;
        Self {
            packet,
            topic_at,
            rest_at: topic_at + topic_length,
        }
    }

    /// How many bytes [`EncodedPublish::write`] appends.
    #[inline]
    pub fn bytes(&self, qos: QoS) -> usize {
        if qos == QoS::AtMostOnce {
            return self.packet.len();
        }
        let length = self.packet.len() - self.topic_at + 2;
        1 + variable(length).1 + length
    }

    /// Appends the packet for one subscriber; `packet_id` is not used at `QoS` 0.
    #[inline]
    pub fn write(&self, qos: QoS, dup: bool, retain: bool, packet_id: u16, out: &mut Vec<u8>) {
        let header = header(qos, dup, retain);
        if qos == QoS::AtMostOnce {
            let start = out.len();
            out.extend_from_slice(&self.packet);
            out[start] = header;
            return;
        }
        let length = self.packet.len() - self.topic_at + 2;
        let (digits, count) = variable(length);
        out.reserve(1 + count + length);
        out.push(header);
        out.extend_from_slice(&digits[..count]);
        out.extend_from_slice(&self.packet[self.topic_at..self.rest_at]);
        out.extend_from_slice(&packet_id.to_be_bytes());
        out.extend_from_slice(&self.packet[self.rest_at..]);
    }
}
