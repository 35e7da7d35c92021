//! Tests of the codec: clause by clause, round trips, hostile bytes, foreign bytes.

mod clauses_3_1_1;
mod clauses_5;
mod clauses_5_connect;
mod foreign;
mod generator;
mod hostile;
mod properties;
mod round_trip;
mod strings;

use super::decode::{frame, packet, DecodeError};
use super::encode;
use super::packet::{Packet, Version};

const PACKET_BYTES_MAX: usize = 1 << 20;

/// Bytes written as hex, blanks allowed, with quoted text: `"30 07 0001 'a' 01 02"`.
fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, part) in text.split('\'').enumerate() {
        if index % 2 == 1 {
            out.extend_from_slice(part.as_bytes());
            continue;
        }
        let digits: Vec<u32> = part.chars().filter_map(|c| c.to_digit(16)).collect();
        assert_eq!(digits.len() % 2, 0, "odd hex in {text}");
        out.extend(digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8));
    }
    out
}

/// Prepends the fixed header to a body.
fn framed(header: u8, body: &[u8]) -> Vec<u8> {
    let mut out = vec![header];
    let mut length = body.len();
    loop {
        let digit = (length & 0x7F) as u8;
        length >>= 7;
        out.push(digit | if length > 0 { 0x80 } else { 0 });
        if length == 0 {
            break;
        }
    }
    out.extend_from_slice(body);
    out
}

/// Decodes exactly one packet.
fn decode(version: Version, data: &[u8]) -> Result<Packet<'_>, DecodeError> {
    let frame = frame(data, PACKET_BYTES_MAX)?.expect("a whole packet");
    assert_eq!(frame.bytes(), data.len(), "one packet, no more");
    packet(Some(version), frame)
}

/// Decodes a packet whose body is given in the notation of [`bytes`].
fn refusal(version: Version, header: u8, body: &str) -> u8 {
    let data = framed(header, &bytes(body));
    match decode(version, &data) {
        Err(error) => error.reason_code,
        Ok(packet) => panic!("accepted: {packet:?}"),
    }
}

fn encoded(version: Version, packet: &Packet<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode::packet(version, packet, &mut out);
    out
}
