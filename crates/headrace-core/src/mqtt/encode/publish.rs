//! PUBLISH (3.3).

use super::writer::{Properties, Writer};
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
