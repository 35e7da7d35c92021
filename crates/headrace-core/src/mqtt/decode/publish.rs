//! PUBLISH (3.3) and the properties that a will shares with it: the hot path.

use super::reader::{holds, misplaced, once, utf8, Reader, CONTROL};
use super::{error, malformed, protocol, Decoded};
use crate::mqtt::packet::{Publish, PublishProperties, QoS, Version};
use crate::mqtt::{property, reason};
use crate::topic;

#[inline]
pub fn publish(version: Version, header: u8, mut reader: Reader<'_>) -> Decoded<Publish<'_>> {
    let qos = qos(header >> 1 & 3)?;
    let topic = reader.binary()?;
    let topic = if topic.is_empty() {
        ""
    } else {
        topic_name(topic)?
    };
    let packet_id = if qos == QoS::AtMostOnce {
        0
    } else {
        reader.packet_id()?
    };
    let mut properties = PublishProperties::default();
    if version == Version::V5 {
        let section = reader.properties()?;
        if !section.is_empty() {
            read_properties(section, Carrier::Publish, &mut properties)?;
        }
    }
    if topic.is_empty() && properties.topic_alias.is_none() {
        return Err(match version {
            Version::V311 => malformed("4.7.3: an empty topic name [MQTT-4.7.3-1]"),
            Version::V5 => protocol("3.3.2.1: no topic name and no topic alias"),
        });
    }
    Ok(Publish {
        dup: header & 8 != 0,
        qos,
        retain: header & 1 != 0,
        topic,
        packet_id,
        properties,
        payload: reader.rest(),
    })
}

/// Two bits of quality of service.
pub fn qos(bits: u8) -> Decoded<QoS> {
    match bits {
        0 => Ok(QoS::AtMostOnce),
        1 => Ok(QoS::AtLeastOnce),
        2 => Ok(QoS::ExactlyOnce),
        _ => Err(malformed("4.3: QoS 3 [MQTT-3.3.1-4]")),
    }
}

/// A topic name that is not empty (4.7).
#[inline]
pub fn topic_name(bytes: &[u8]) -> Decoded<&str> {
    let name = utf8(bytes)?;
    if bytes.is_empty() || !topic::is_plain(bytes) {
        unusual_name(name)?;
    }
    // Fewer bytes than levels allowed cannot hold too many of them.
    if bytes.len() >= topic::LEVELS_MAX && topic::validate_name(name).is_err() {
        return Err(error(
            reason::TOPIC_NAME_INVALID,
            "4.7.3: more topic levels than are served",
        ));
    }
    Ok(name)
}

/// Checks a topic name byte by byte.
#[cold]
fn unusual_name(name: &str) -> Decoded<()> {
    if name.is_empty() || holds(name.as_bytes(), [0, b'+', b'#']) {
        return Err(malformed(
            "4.7: a topic name is empty or has +, # or U+0000 [MQTT-3.3.2-2]",
        ));
    }
    if topic::has_control(name) {
        return Err(CONTROL);
    }
    Ok(())
}

/// Whose properties are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Carrier {
    Publish,
    Will,
}

/// Properties of a PUBLISH (3.3.2.3) or of a will (3.1.3.2).
pub fn read_properties<'a>(
    mut section: Reader<'a>,
    carrier: Carrier,
    out: &mut PublishProperties<'a>,
) -> Decoded<()> {
    while let Some(id) = section.property()? {
        match id {
            property::USER_PROPERTY => out.user.push(section.pair()?),
            property::PAYLOAD_FORMAT => {
                once(&mut out.payload_format, section.flag()?.into())?;
            }
            property::MESSAGE_EXPIRY => once(&mut out.message_expiry, section.long()?)?,
            property::CONTENT_TYPE => once(&mut out.content_type, section.text()?)?,
            property::RESPONSE_TOPIC => {
                let topic =
                    topic_name(section.binary()?).map_err(|cause| match cause.reason_code {
                        reason::MALFORMED_PACKET => protocol(
                            "3.3.2.3.5: a response topic that is no topic name [MQTT-3.3.2-14]",
                        ),
                        _ => cause,
                    })?;
                once(&mut out.response_topic, topic)?;
            }
            property::CORRELATION_DATA => once(&mut out.correlation_data, section.binary()?)?,
            property::TOPIC_ALIAS if carrier == Carrier::Publish => {
                once(&mut out.topic_alias, topic_alias(&mut section)?)?;
            }
            property::SUBSCRIPTION_ID if carrier == Carrier::Publish => {
                out.subscription_ids.push(section.subscription_id()?);
            }
            property::WILL_DELAY if carrier == Carrier::Will => {
                once(&mut out.will_delay, section.long()?)?;
            }
            other => return Err(misplaced(section, other)),
        }
    }
    Ok(())
}

fn topic_alias(section: &mut Reader<'_>) -> Decoded<u16> {
    match section.short()? {
        0 => Err(error(
            reason::TOPIC_ALIAS_INVALID,
            "3.3.2.3.4: topic alias 0 [MQTT-3.3.2-8]",
        )),
        alias => Ok(alias),
    }
}
