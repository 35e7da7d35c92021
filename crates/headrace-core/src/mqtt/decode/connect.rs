//! CONNECT (3.1) and CONNACK (3.2).

use super::publish::{qos, read_properties, topic_name, Carrier};
use super::reader::{misplaced, once, utf8, Reader};
use super::{error, malformed, protocol, DecodeError, Decoded};
use crate::mqtt::packet::{Connack, Connect, PublishProperties, QoS, Version, Will};
use crate::mqtt::{property, reason};
use crate::topic;

/// What the protocol name and level ask for (3.1.2.1, 3.1.2.2).
#[derive(Clone, Copy)]
struct Protocol {
    version: Version,
    /// 3.1, where a client identifier must not be empty and the lowest flag means nothing.
    is_31: bool,
}

pub fn connect(mut reader: Reader<'_>) -> Decoded<Connect<'_>> {
    let protocol = protocol_version(&mut reader)?;
    // 3.1.1 has return codes for what a client may be refused for, but none for broken bytes.
    let connack = (protocol.version == Version::V5).then_some(Version::V5);
    fields(protocol, reader).map_err(|cause| DecodeError {
        connack: cause.connack.or(connack),
        ..cause
    })
}

fn protocol_version(reader: &mut Reader<'_>) -> Decoded<Protocol> {
    let name = reader.binary()?;
    if name != b"MQTT" && name != b"MQIsdp" {
        return Err(malformed(
            "3.1.2.1: a protocol name other than MQTT [MQTT-3.1.2-1]",
        ));
    }
    match (name, reader.byte()?) {
        (b"MQIsdp", 3) => Ok(Protocol {
            version: Version::V311,
            is_31: true,
        }),
        (b"MQTT", 4) => Ok(Protocol {
            version: Version::V311,
            is_31: false,
        }),
        (b"MQTT", 5) => Ok(Protocol {
            version: Version::V5,
            is_31: false,
        }),
        // The answer must be one that the client can read. Some bridges set the top bit beside
        // their level and try again without it once refused.
        (_, level) => Err(DecodeError {
            connack: Some(if level & 0x7F < 5 {
                Version::V311
            } else {
                Version::V5
            }),
            ..error(
                reason::UNSUPPORTED_PROTOCOL_VERSION,
                "3.1.2.2: a protocol level other than 4 and 5 [MQTT-3.1.2-2]",
            )
        }),
    }
}

/// The bits of the Connect Flags (3.1.2.3).
mod flag {
    pub const RESERVED: u8 = 0x01;
    pub const CLEAN_START: u8 = 0x02;
    pub const WILL: u8 = 0x04;
    pub const WILL_QOS: u8 = 0x18;
    pub const WILL_RETAIN: u8 = 0x20;
    pub const PASSWORD: u8 = 0x40;
    pub const USER_NAME: u8 = 0x80;
}

fn check_flags(protocol: Protocol, flags: u8) -> Decoded<()> {
    if flags & flag::RESERVED != 0 && !protocol.is_31 {
        return Err(malformed(
            "3.1.2.3: the reserved connect flag [MQTT-3.1.2-3]",
        ));
    }
    if flags & flag::WILL == 0 && flags & (flag::WILL_QOS | flag::WILL_RETAIN) != 0 {
        return Err(malformed(
            "3.1.2.6: will QoS or will retain without a will [MQTT-3.1.2-11]",
        ));
    }
    let password_only = flags & (flag::USER_NAME | flag::PASSWORD) == flag::PASSWORD;
    if protocol.version == Version::V311 && password_only {
        return Err(malformed(
            "3.1.1, 3.1.2.9: a password without a user name [MQTT-3.1.2-22]",
        ));
    }
    Ok(())
}

fn fields(protocol: Protocol, mut reader: Reader<'_>) -> Decoded<Connect<'_>> {
    let version = protocol.version;
    let flags = reader.byte()?;
    check_flags(protocol, flags)?;
    let mut connect = Connect {
        clean_start: flags & flag::CLEAN_START != 0,
        keep_alive_s: reader.short()?,
        ..Connect::new(version)
    };
    if version == Version::V5 {
        connect_properties(reader.properties()?, &mut connect)?;
    }
    connect.client_id = client_id(protocol, connect.clean_start, &mut reader)?;
    if flags & flag::WILL != 0 {
        connect.will = Some(will(version, flags, &mut reader)?);
    }
    if flags & flag::USER_NAME != 0 {
        connect.username = Some(reader.name()?);
    }
    if flags & flag::PASSWORD != 0 {
        connect.password = Some(reader.binary()?);
    }
    reader.end().map(|()| connect)
}

/// Client Identifier (3.1.3.1).
fn client_id<'a>(protocol: Protocol, clean: bool, reader: &mut Reader<'a>) -> Decoded<&'a str> {
    let refused = |text| error(reason::CLIENT_ID_NOT_VALID, text);
    let bytes = reader.binary()?;
    let id = utf8(bytes).ok().filter(|id| !topic::has_control(id));
    let id = id.ok_or(refused(
        "3.1.3.1: the client identifier is no UTF-8 string, or has a control character [MQTT-3.1.3-4]",
    ))?;
    let may_be_empty = protocol.version == Version::V5 || (clean && !protocol.is_31);
    if id.is_empty() && !may_be_empty {
        return Err(DecodeError {
            connack: Some(Version::V311),
            ..refused(
                "3.1.1, 3.1.3.1: an empty client identifier for a kept session [MQTT-3.1.3-8]",
            )
        });
    }
    Ok(id)
}

fn will<'a>(version: Version, flags: u8, reader: &mut Reader<'a>) -> Decoded<Will<'a>> {
    let mut properties = PublishProperties::default();
    if version == Version::V5 {
        read_properties(reader.properties()?, Carrier::Will, &mut properties)?;
    }
    Ok(Will {
        topic: topic_name(reader.binary()?)?,
        payload: reader.binary()?,
        qos: qos((flags & flag::WILL_QOS) >> 3)?,
        retain: flags & flag::WILL_RETAIN != 0,
        properties,
    })
}

fn connect_properties<'a>(mut section: Reader<'a>, out: &mut Connect<'a>) -> Decoded<()> {
    while let Some(id) = section.property()? {
        match id {
            property::SESSION_EXPIRY => once(&mut out.session_expiry_s, section.long()?)?,
            property::RECEIVE_MAXIMUM => {
                once(&mut out.receive_maximum, section.receive_maximum()?)?;
            }
            property::MAXIMUM_PACKET_SIZE => {
                once(&mut out.maximum_packet_size, section.maximum_packet_size()?)?;
            }
            property::TOPIC_ALIAS_MAXIMUM => {
                once(&mut out.topic_alias_maximum, section.short()?)?;
            }
            property::REQUEST_RESPONSE_INFORMATION => {
                once(&mut out.request_response_information, section.flag()?)?;
            }
            property::REQUEST_PROBLEM_INFORMATION => {
                once(&mut out.request_problem_information, section.flag()?)?;
            }
            property::USER_PROPERTY => out.user.push(section.pair()?),
            property::AUTHENTICATION_METHOD => {
                once(&mut out.authentication_method, section.text()?)?;
            }
            property::AUTHENTICATION_DATA => {
                once(&mut out.authentication_data, section.binary()?)?;
            }
            other => return Err(misplaced(section, other)),
        }
    }
    if out.authentication_data.is_some() && out.authentication_method.is_none() {
        return Err(protocol(
            "3.1.2.11.10: authentication data without a method",
        ));
    }
    Ok(())
}

pub fn connack(version: Version, mut reader: Reader<'_>) -> Decoded<Connack<'_>> {
    let flags = reader.byte()?;
    let code = reader.byte()?;
    let mut connack = Connack {
        session_present: flags == 1,
        ..Connack::default()
    };
    if flags > 1 {
        return Err(malformed(
            "3.2.2.1: reserved acknowledge flags [MQTT-3.2.2-1]",
        ));
    }
    connack.reason_code = match version {
        Version::V311 => reason::from_connack_return_code(code),
        Version::V5 => Some(code).filter(|code| reason::in_connack(*code)),
    }
    .ok_or(protocol(
        "3.2.2.2: a reason code that CONNACK does not have [MQTT-3.2.2-8]",
    ))?;
    if connack.session_present && connack.reason_code != reason::SUCCESS {
        return Err(protocol("3.2.2.1: a refusal with a session [MQTT-3.2.2-6]"));
    }
    if version == Version::V5 {
        connack_properties(reader.properties()?, &mut connack)?;
    }
    reader.end().map(|()| connack)
}

fn connack_properties<'a>(mut section: Reader<'a>, out: &mut Connack<'a>) -> Decoded<()> {
    while let Some(id) = section.property()? {
        let value = &mut section;
        match id {
            property::SESSION_EXPIRY => once(&mut out.session_expiry_s, value.long()?)?,
            property::RECEIVE_MAXIMUM => once(&mut out.receive_maximum, value.receive_maximum()?)?,
            property::MAXIMUM_QOS => once(&mut out.maximum_qos, maximum_qos(value)?)?,
            property::RETAIN_AVAILABLE => once(&mut out.retain_available, value.flag()?)?,
            property::MAXIMUM_PACKET_SIZE => {
                once(&mut out.maximum_packet_size, value.maximum_packet_size()?)?;
            }
            property::ASSIGNED_CLIENT_ID => once(&mut out.assigned_client_id, value.text()?)?,
            property::TOPIC_ALIAS_MAXIMUM => once(&mut out.topic_alias_maximum, value.short()?)?,
            property::REASON_STRING => once(&mut out.reason_string, value.text()?)?,
            property::USER_PROPERTY => out.user.push(value.pair()?),
            property::WILDCARD_AVAILABLE => {
                once(&mut out.wildcard_subscription_available, value.flag()?)?;
            }
            property::SUBSCRIPTION_IDS_AVAILABLE => {
                once(&mut out.subscription_ids_available, value.flag()?)?;
            }
            property::SHARED_AVAILABLE => {
                once(&mut out.shared_subscription_available, value.flag()?)?;
            }
            property::SERVER_KEEP_ALIVE => once(&mut out.server_keep_alive_s, value.short()?)?,
            property::RESPONSE_INFORMATION => once(&mut out.response_information, value.text()?)?,
            property::SERVER_REFERENCE => once(&mut out.server_reference, value.text()?)?,
            property::AUTHENTICATION_METHOD => {
                once(&mut out.authentication_method, value.text()?)?;
            }
            property::AUTHENTICATION_DATA => once(&mut out.authentication_data, value.binary()?)?,
            other => return Err(misplaced(section, other)),
        }
    }
    Ok(())
}

/// Maximum `QoS` (3.2.2.3.4) is 0 or 1; 2 is said by leaving it out.
fn maximum_qos(section: &mut Reader<'_>) -> Decoded<u8> {
    match section.byte()? {
        qos if qos < QoS::ExactlyOnce as u8 => Ok(qos),
        _ => Err(protocol("3.2.2.3.4: a maximum QoS other than 0 and 1")),
    }
}
