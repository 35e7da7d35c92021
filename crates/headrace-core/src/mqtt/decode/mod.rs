//! Bytes to packets: framing, then one packet at a time.
//!
//! Owns every rule that can be judged from the bytes of one packet and the version of its
//! connection: layout, reserved bits, identifiers, allowed and repeated properties, allowed
//! values. Does not know who sent the packet, so what only a client or only a broker may send
//! decodes either way. Never copies a field, and allocates only for lists. A text field is valid
//! UTF-8 without U+0000; names of topics, clients and users hold no other control character either,
//! values may (1.5.4 leaves them to the receiver).

mod ack;
mod connect;
mod publish;
mod reader;
mod subscribe;

use std::fmt;

use super::packet::{Packet, Version};
use super::reason;
use reader::Reader;

/// Why bytes are no packet, and what may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The reason code of 5.0, for DISCONNECT or CONNACK and for metrics.
    pub reason_code: u8,
    /// The clause of MQTT 5.0 and what broke it, in one line.
    pub text: &'static str,
    /// Set where the packet is a CONNECT that may be answered by a CONNACK with `reason_code` in
    /// this version; a CONNECT without it is answered by closing.
    pub connack: Option<Version>,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "MQTT {} (reason code {:#04x})",
            self.text, self.reason_code
        )
    }
}

impl std::error::Error for DecodeError {}

type Decoded<T> = Result<T, DecodeError>;

const fn error(reason_code: u8, text: &'static str) -> DecodeError {
    DecodeError {
        reason_code,
        text,
        connack: None,
    }
}

/// The bytes break the layout.
const fn malformed(text: &'static str) -> DecodeError {
    error(reason::MALFORMED_PACKET, text)
}

/// The layout holds, the content must not be.
const fn protocol(text: &'static str) -> DecodeError {
    error(reason::PROTOCOL_ERROR, text)
}

/// The bytes of one control packet whose fixed header has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    header: u8,
    body: &'a [u8],
    bytes: usize,
}

impl Frame<'_> {
    /// Length of the whole packet: where the next one begins.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// The first packet in `buffer`, or None where more bytes are needed.
///
/// `packet_bytes_max` bounds the whole packet (3.1.2.11.4); a longer one is refused as soon as
/// its length is known, before its body arrives.
///
/// # Errors
/// 0x81 for a bad type, flag or length, 0x95 for a packet above the bound.
#[inline]
pub fn frame(buffer: &[u8], packet_bytes_max: usize) -> Decoded<Option<Frame<'_>>> {
    let Some(&header) = buffer.first() else {
        return Ok(None);
    };
    check_header(header)?;
    let Some((length, length_bytes)) = remaining_length(buffer)? else {
        return Ok(None);
    };
    let bytes = 1 + length_bytes + length;
    if bytes > packet_bytes_max {
        return Err(error(
            reason::PACKET_TOO_LARGE,
            "3.1.2.11.4: larger than the maximum packet size",
        ));
    }
    let body = buffer.get(1 + length_bytes..bytes);
    Ok(body.map(|body| Frame {
        header,
        body,
        bytes,
    }))
}

/// Type and flags (2.1.2, 2.1.3).
#[inline]
fn check_header(header: u8) -> Decoded<()> {
    let flags = header & 0x0F;
    let expected = match header >> 4 {
        0 => return Err(protocol("2.1.2: packet type 0")),
        3 if flags & 0b0110 == 0b0110 => return Err(malformed("3.3.1.2: QoS 3 [MQTT-3.3.1-4]")),
        3 if flags & 0b1110 == 0b1000 => {
            return Err(malformed("3.3.1.1: DUP at QoS 0 [MQTT-3.3.1-2]"))
        }
        3 => flags,
        6 | 8 | 10 => 2,
        _ => 0,
    };
    if flags != expected {
        return Err(malformed(
            "2.1.3: reserved flags of the fixed header [MQTT-2.1.3-1]",
        ));
    }
    Ok(())
}

/// Remaining Length (2.1.4) and how many bytes it took; None where it is incomplete.
#[inline]
fn remaining_length(buffer: &[u8]) -> Decoded<Option<(usize, usize)>> {
    let digits = &buffer[1..];
    if digits.len() < 4 && digits.iter().all(|digit| *digit >= 0x80) {
        return Ok(None);
    }
    let mut reader = Reader::new(digits);
    let length = reader.variable()?;
    Ok(Some((length as usize, digits.len() - reader.len())))
}

/// Decodes one packet of a connection that speaks `version`; None before its CONNECT, which is
/// then the only packet that may come (3.1).
///
/// # Errors
/// The rule that the packet breaks.
#[inline]
pub fn packet(version: Option<Version>, frame: Frame<'_>) -> Decoded<Packet<'_>> {
    let reader = Reader::new(frame.body);
    if frame.header >> 4 == 1 {
        return connect::connect(reader).map(|connect| Packet::Connect(Box::new(connect)));
    }
    let Some(version) = version else {
        return Err(protocol(
            "3.1: the first packet is not a CONNECT [MQTT-3.1.0-1]",
        ));
    };
    match frame.header >> 4 {
        2 => connect::connack(version, reader).map(|connack| Packet::Connack(Box::new(connack))),
        3 => publish::publish(version, frame.header, reader).map(Packet::Publish),
        4 => ack::ack(version, reader, reason::in_publish_ack).map(Packet::Puback),
        5 => ack::ack(version, reader, reason::in_publish_ack).map(Packet::Pubrec),
        6 => ack::ack(version, reader, reason::in_release_ack).map(Packet::Pubrel),
        7 => ack::ack(version, reader, reason::in_release_ack).map(Packet::Pubcomp),
        8 => subscribe::subscribe(version, reader).map(Packet::Subscribe),
        9 => subscribe::suback(version, reader).map(Packet::Suback),
        10 => subscribe::unsubscribe(version, reader).map(Packet::Unsubscribe),
        11 => subscribe::unsuback(version, reader).map(Packet::Unsuback),
        12 => reader.end().map(|()| Packet::Pingreq),
        13 => reader.end().map(|()| Packet::Pingresp),
        14 => ack::disconnect(version, reader).map(Packet::Disconnect),
        _ => ack::auth(version, reader).map(Packet::Auth),
    }
}
