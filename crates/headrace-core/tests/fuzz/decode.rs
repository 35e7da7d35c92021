//! Target: bytes of a stream as packets. What is taken must be taken again after encoding, and as
//! the same; nothing may be read that has not come.

use headrace_core::mqtt::packet::{Packet, Version};
use headrace_core::mqtt::{decode, encode};

use super::engine::{Corpus, Input, Words};

pub const CORPUS: Corpus = Corpus {
    target: run,
    lines: include_str!("decode.txt"),
    file: "decode.txt",
};

/// A piece is bytes as they are read by a connection of no version yet, of 3.1.1 or of 5.0.
fn run(input: &Input) -> Words {
    let mut words = Words::default();
    for piece in input {
        let Some((version, data)) = piece.split_first() else {
            continue;
        };
        let version = match version % 3 {
            0 => None,
            1 => Some(Version::V311),
            _ => Some(Version::V5),
        };
        stream(version, data, &mut words);
    }
    words
}

fn stream(version: Option<Version>, mut data: &[u8], words: &mut Words) {
    loop {
        let frame = match decode::frame(data, 1 << 20) {
            Ok(Some(frame)) => frame,
            Ok(None) => return words.say("more"),
            Err(error) => return words.say((error.reason_code, error.text)),
        };
        let (whole, rest) = data.split_at(frame.bytes());
        for end in 0..whole.len() {
            // However much is missing, it is missing and not refused.
            let cut = decode::frame(&whole[..end], 1 << 20);
            assert_eq!(cut.map(|frame| frame.is_some()), Ok(false));
        }
        match decode::packet(version, frame) {
            Ok(packet) => taken(version, &packet, words),
            Err(error) => {
                return words.say((version.is_some(), whole[0], error.reason_code, error.text))
            }
        }
        data = rest;
    }
}

fn taken(version: Option<Version>, packet: &Packet<'_>, words: &mut Words) {
    let version = match packet {
        Packet::Connect(connect) => connect.version,
        _ => version.expect("only a CONNECT is taken without a version"),
    };
    let mut again = Vec::new();
    encode::packet(version, packet, &mut again);
    let frame = decode::frame(&again, usize::MAX).unwrap().unwrap();
    assert_eq!(decode::packet(Some(version), frame).as_ref(), Ok(packet));
    let text = format!("{packet:?}");
    let kind = text.split(['(', ' ']).next();
    words.say((version == Version::V5, kind));
    for before in text.split(": Some(") {
        words.say((kind, before.rsplit(' ').next()));
    }
}
