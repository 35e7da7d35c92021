//! Packets to bytes, appended to a buffer.
//!
//! Owns the shortest form of every packet, and what 3.1.1 makes of a packet of 5.0: no
//! properties, no reason codes but those of CONNACK and SUBACK. Checks nothing that the caller
//! can know: a string or binary above 65,535 bytes, or a packet above 268,435,455, is a bug of
//! the caller and panics, for the peer could not tell where the next packet begins.

mod connect;
mod publish;
mod writer;

use super::packet::{Ack, Auth, Disconnect, ListAck, Packet, Subscribe, Unsubscribe, Version};
use super::{property, reason};
pub use publish::publish;
pub use writer::section;
use writer::{Properties, Writer};

/// What a packet may carry besides what it must: dropped step by step where the receiver's
/// Maximum Packet Size is small.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Detail {
    /// Nothing but what the protocol needs.
    Bare,
    /// The reason string too.
    Reason,
    /// User properties too.
    All,
}

/// Appends `packet` as a connection of `version` reads it.
///
/// Appends nothing for a CONNACK whose reason 3.1.1 has no return code for; the connection is
/// then closed without one (MQTT-3.2.2-6 of 3.1.1). AUTH is written to 5.0 only.
pub fn packet(version: Version, packet: &Packet<'_>, out: &mut Vec<u8>) {
    detailed(version, packet, Detail::All, out);
}

/// Appends `packet` if it fits in `bytes_max`, the receiver's Maximum Packet Size, giving up
/// user properties and then the reason string where those may be left out (3.2.2.3.9, 3.4.2.2.2,
/// 3.14.2.2.3). Returns whether it was appended.
pub fn packet_within(
    version: Version,
    packet: &Packet<'_>,
    bytes_max: usize,
    out: &mut Vec<u8>,
) -> bool {
    let start = out.len();
    for detail in [Detail::All, Detail::Reason, Detail::Bare] {
        detailed(version, packet, detail, out);
        if out.len() - start <= bytes_max {
            return true;
        }
        out.truncate(start);
    }
    false
}

/// Appends a PUBACK of success, which reads the same in both versions.
#[inline]
pub fn puback(packet_id: u16, out: &mut Vec<u8>) {
    let [high, low] = packet_id.to_be_bytes();
    out.extend_from_slice(&[0x40, 2, high, low]);
}

fn detailed(version: Version, packet: &Packet<'_>, detail: Detail, out: &mut Vec<u8>) {
    match packet {
        Packet::Connect(connect) => connect::connect(connect, out),
        Packet::Connack(connack) => connect::connack(version, connack, detail, out),
        Packet::Publish(message) => publish(version, message, out),
        Packet::Puback(ack) => write_ack(0x40, version, ack, detail, out),
        Packet::Pubrec(ack) => write_ack(0x50, version, ack, detail, out),
        Packet::Pubrel(ack) => write_ack(0x62, version, ack, detail, out),
        Packet::Pubcomp(ack) => write_ack(0x70, version, ack, detail, out),
        Packet::Subscribe(subscribe) => write_subscribe(version, subscribe, out),
        Packet::Suback(ack) => write_suback(version, ack, detail, out),
        Packet::Unsubscribe(unsubscribe) => write_unsubscribe(version, unsubscribe, out),
        Packet::Unsuback(ack) => write_unsuback(version, ack, detail, out),
        Packet::Pingreq => out.extend_from_slice(&[0xC0, 0]),
        Packet::Pingresp => out.extend_from_slice(&[0xD0, 0]),
        Packet::Disconnect(disconnect) => write_disconnect(version, disconnect, detail, out),
        Packet::Auth(auth) => write_auth(version, auth, detail, out),
    }
}

/// The reason string and user properties that many packets carry.
fn diagnostics<'a>(
    reason_string: Option<&'a str>,
    user: &'a [(&'a str, &'a str)],
    detail: Detail,
) -> impl FnOnce(&mut Properties<'_>) + 'a {
    move |properties| {
        if detail >= Detail::Reason {
            properties.text(property::REASON_STRING, reason_string);
        }
        if detail == Detail::All {
            properties.user(user);
        }
    }
}

/// Reason code and properties, left out where they say nothing (3.4.2.1, 3.14.2.1, 3.15.2.1).
fn reason_and_properties(
    out: &mut Writer<'_>,
    reason_code: u8,
    properties: impl FnOnce(&mut Properties<'_>),
) {
    let start = out.len();
    out.byte(reason_code);
    out.properties(properties);
    let has_properties = out.len() - start > 2;
    match (reason_code, has_properties) {
        (_, true) => {}
        (reason::SUCCESS, false) => out.truncate(start),
        (_, false) => out.truncate(start + 1),
    }
}

fn write_ack(header: u8, version: Version, ack: &Ack<'_>, detail: Detail, out: &mut Vec<u8>) {
    Writer::packet(header, 0, out, |out| {
        out.short(ack.packet_id);
        if version == Version::V5 {
            let properties = diagnostics(ack.reason_string, &ack.user, detail);
            reason_and_properties(out, ack.reason_code, properties);
        }
    });
}

fn write_subscribe(version: Version, subscribe: &Subscribe<'_>, out: &mut Vec<u8>) {
    Writer::packet(0x82, 0, out, |out| {
        out.short(subscribe.packet_id);
        if version == Version::V5 {
            out.properties(|properties| {
                properties.variable(property::SUBSCRIPTION_ID, subscribe.subscription_id);
                properties.user(&subscribe.user);
            });
        }
        for request in &subscribe.filters {
            out.text(request.filter);
            let options = u8::from(request.no_local) << 2
                | u8::from(request.retain_as_published) << 3
                | request.retain_handling << 4;
            out.byte(request.qos as u8 | if version == Version::V5 { options } else { 0 });
        }
    });
}

fn write_unsubscribe(version: Version, unsubscribe: &Unsubscribe<'_>, out: &mut Vec<u8>) {
    Writer::packet(0xA2, 0, out, |out| {
        out.short(unsubscribe.packet_id);
        if version == Version::V5 {
            out.properties(|properties| properties.user(&unsubscribe.user));
        }
        for filter in &unsubscribe.filters {
            out.text(filter);
        }
    });
}

/// Every failure of 5.0 is the one failure of 3.1.1, 0x80.
fn write_suback(version: Version, ack: &ListAck<'_>, detail: Detail, out: &mut Vec<u8>) {
    Writer::packet(0x90, 0, out, |out| {
        out.short(ack.packet_id);
        match version {
            Version::V311 => {
                for code in &ack.reason_codes {
                    out.byte((*code).min(reason::UNSPECIFIED_ERROR));
                }
            }
            Version::V5 => {
                out.properties(diagnostics(ack.reason_string, &ack.user, detail));
                out.bytes(&ack.reason_codes);
            }
        }
    });
}

fn write_unsuback(version: Version, ack: &ListAck<'_>, detail: Detail, out: &mut Vec<u8>) {
    Writer::packet(0xB0, 0, out, |out| {
        out.short(ack.packet_id);
        if version == Version::V5 {
            out.properties(diagnostics(ack.reason_string, &ack.user, detail));
            out.bytes(&ack.reason_codes);
        }
    });
}

fn write_disconnect(
    version: Version,
    disconnect: &Disconnect<'_>,
    detail: Detail,
    out: &mut Vec<u8>,
) {
    Writer::packet(0xE0, 0, out, |out| {
        if version == Version::V5 {
            reason_and_properties(out, disconnect.reason_code, |properties| {
                properties.long(property::SESSION_EXPIRY, disconnect.session_expiry_s);
                diagnostics(disconnect.reason_string, &disconnect.user, detail)(properties);
                properties.text(property::SERVER_REFERENCE, disconnect.server_reference);
            });
        }
    });
}

fn write_auth(version: Version, auth: &Auth<'_>, detail: Detail, out: &mut Vec<u8>) {
    if version == Version::V311 {
        return;
    }
    Writer::packet(0xF0, 0, out, |out| {
        reason_and_properties(out, auth.reason_code, |properties| {
            properties.text(property::AUTHENTICATION_METHOD, auth.method);
            properties.binary(property::AUTHENTICATION_DATA, auth.data);
            diagnostics(auth.reason_string, &auth.user, detail)(properties);
        });
    });
}
