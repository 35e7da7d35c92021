//! SUBSCRIBE, SUBACK, UNSUBSCRIBE and UNSUBACK (3.8 to 3.11).

use super::publish::qos;
use super::reader::{misplaced, once, Reader};
use super::{malformed, protocol, Decoded};
use crate::mqtt::packet::{ListAck, Subscribe, SubscriptionRequest, Unsubscribe, Version};
use crate::mqtt::{property, reason};
use crate::topic::{self, TopicError};

const MISPLACED: super::DecodeError =
    malformed("2.2.2.2: a property that this packet must not have");

pub fn subscribe(version: Version, mut reader: Reader<'_>) -> Decoded<Subscribe<'_>> {
    let mut subscribe = Subscribe {
        packet_id: reader.packet_id()?,
        ..Subscribe::default()
    };
    if version == Version::V5 {
        let mut section = reader.properties()?;
        while let Some(id) = section.property()? {
            match id {
                property::SUBSCRIPTION_ID => {
                    once(&mut subscribe.subscription_id, section.subscription_id()?)?;
                }
                property::USER_PROPERTY => subscribe.user.push(section.pair()?),
                _ => return Err(MISPLACED),
            }
        }
    }
    while !reader.is_empty() {
        subscribe.filters.push(subscription(version, &mut reader)?);
    }
    if subscribe.filters.is_empty() {
        return Err(malformed(
            "3.8.3: SUBSCRIBE without a topic filter [MQTT-3.8.3-2]",
        ));
    }
    Ok(subscribe)
}

/// A topic filter and its options (3.8.3.1).
fn subscription<'a>(version: Version, reader: &mut Reader<'a>) -> Decoded<SubscriptionRequest<'a>> {
    let filter = filter(version, reader)?;
    let options = reader.byte()?;
    let reserved = if version == Version::V5 { 0xC0 } else { 0xFC };
    if options & reserved != 0 {
        return Err(malformed(
            "3.8.3.1: reserved bits of the options [MQTT-3.8.3-5]",
        ));
    }
    let request = SubscriptionRequest {
        filter,
        qos: qos(options & 3)?,
        no_local: options & 4 != 0,
        retain_as_published: options & 8 != 0,
        retain_handling: options >> 4,
    };
    if request.retain_handling == 3 {
        return Err(malformed("3.8.3.1: retain handling 3"));
    }
    if request.no_local && filter.starts_with("$share/") {
        return Err(protocol(
            "3.8.3.1: No Local on a shared subscription [MQTT-3.8.3-4]",
        ));
    }
    Ok(request)
}

/// A topic filter, as sent. 5.0 has a reason code for one that breaks the rules of 4.7; for a
/// client of 3.1.1 it is a violation of the protocol, which ends its connection (3.1.1, 4.8).
fn filter<'a>(version: Version, reader: &mut Reader<'a>) -> Decoded<&'a str> {
    let filter = reader.name()?;
    if filter.is_empty() {
        return Err(malformed("4.7.3: an empty topic filter [MQTT-4.7.3-1]"));
    }
    let breaks_rule = |error| error != TopicError::TooDeep;
    if version == Version::V311 && topic::Subscription::parse(filter).is_err_and(breaks_rule) {
        return Err(malformed(
            "4.7.1: a wildcard that does not stand alone [MQTT-4.7.1-2]",
        ));
    }
    Ok(filter)
}

pub fn unsubscribe(version: Version, mut reader: Reader<'_>) -> Decoded<Unsubscribe<'_>> {
    let mut unsubscribe = Unsubscribe {
        packet_id: reader.packet_id()?,
        ..Unsubscribe::default()
    };
    if version == Version::V5 {
        let mut section = reader.properties()?;
        while let Some(id) = section.property()? {
            match id {
                property::USER_PROPERTY => unsubscribe.user.push(section.pair()?),
                _ => return Err(MISPLACED),
            }
        }
    }
    while !reader.is_empty() {
        unsubscribe.filters.push(filter(version, &mut reader)?);
    }
    if unsubscribe.filters.is_empty() {
        return Err(malformed(
            "3.10.3: UNSUBSCRIBE without a topic filter [MQTT-3.10.3-2]",
        ));
    }
    Ok(unsubscribe)
}

pub fn suback(version: Version, reader: Reader<'_>) -> Decoded<ListAck<'_>> {
    match version {
        Version::V311 => list_ack(version, reader, |code| matches!(code, 0..=2 | 0x80)),
        Version::V5 => list_ack(version, reader, reason::in_suback),
    }
}

/// The UNSUBACK of 3.1.1 has no reason codes (3.1.1, 3.11.3).
pub fn unsuback(version: Version, mut reader: Reader<'_>) -> Decoded<ListAck<'_>> {
    match version {
        Version::V311 => {
            let ack = ListAck {
                packet_id: reader.packet_id()?,
                ..ListAck::default()
            };
            reader.end().map(|()| ack)
        }
        Version::V5 => list_ack(version, reader, reason::in_unsuback),
    }
}

fn list_ack(
    version: Version,
    mut reader: Reader<'_>,
    allowed: fn(u8) -> bool,
) -> Decoded<ListAck<'_>> {
    let mut ack = ListAck {
        packet_id: reader.packet_id()?,
        ..ListAck::default()
    };
    if version == Version::V5 {
        let mut section = reader.properties()?;
        while let Some(id) = section.property()? {
            match id {
                property::REASON_STRING => once(&mut ack.reason_string, section.text()?)?,
                property::USER_PROPERTY => ack.user.push(section.pair()?),
                other => return Err(misplaced(section, other)),
            }
        }
    }
    ack.reason_codes = reader.rest().to_vec();
    if ack.reason_codes.is_empty() || !ack.reason_codes.iter().all(|code| allowed(*code)) {
        return Err(protocol(
            "3.9.3: no reason code, or one that this packet does not have",
        ));
    }
    Ok(ack)
}
