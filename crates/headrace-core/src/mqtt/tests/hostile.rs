//! Bytes that no honest peer sends: cut, flipped, random. Nothing may panic.

use super::super::packet::{Packet, Version};
use super::generator::{any, KINDS};
use super::{decode, encoded, frame, framed, packet, PACKET_BYTES_MAX};
use crate::testing::Random;

const VERSIONS: [Option<Version>; 3] = [None, Some(Version::V311), Some(Version::V5)];

/// Decodes as every version; how many took the bytes for a packet. What one of them took, it
/// must take again after encoding, and as the same.
fn decodes(data: &[u8]) -> usize {
    let Ok(Some(frame)) = frame(data, PACKET_BYTES_MAX) else {
        return 0;
    };
    let taken = VERSIONS.map(|version| packet(version, frame).ok().map(|packet| (version, packet)));
    for (version, packet) in taken.iter().flatten() {
        let version = match packet {
            Packet::Connect(connect) => connect.version,
            _ => version.expect("only a CONNECT is taken without a version"),
        };
        assert_eq!(
            decode(version, &encoded(version, packet)).as_ref(),
            Ok(packet),
            "{data:02x?}"
        );
    }
    taken.iter().flatten().count()
}

/// Valid packets of every kind, short enough to try every offset and bit.
fn corpus() -> Vec<(Version, Vec<u8>)> {
    let mut corpus = Vec::new();
    for version in [Version::V311, Version::V5] {
        for kind in 0..KINDS {
            let packets =
                (1..40).map(|seed| encoded(version, &any(&mut Random::new(seed), version, kind)));
            corpus.extend(
                packets
                    .filter(|data| data.len() < 600)
                    .map(|data| (version, data)),
            );
        }
    }
    corpus
}

#[test]
fn a_packet_cut_anywhere_is_incomplete() {
    for (_, data) in corpus() {
        for end in 0..data.len() {
            assert_eq!(
                frame(&data[..end], PACKET_BYTES_MAX),
                Ok(None),
                "{data:02x?} at {end}"
            );
        }
    }
}

#[test]
fn a_body_cut_anywhere_under_a_fixed_header_that_fits_does_not_panic() {
    for (version, data) in corpus() {
        let length_bytes = 1 + data[1..].iter().take_while(|byte| **byte >= 0x80).count();
        let body = &data[1 + length_bytes..];
        for end in 0..body.len() {
            let cut = framed(data[0], &body[..end]);
            let frame = frame(&cut, PACKET_BYTES_MAX).unwrap().unwrap();
            let _ = packet(Some(version), frame);
        }
    }
}

#[test]
fn a_flipped_bit_does_not_panic() {
    let mut survived = 0;
    for (_, mut data) in corpus() {
        for bit in 0..data.len() * 8 {
            data[bit / 8] ^= 1 << (bit % 8);
            survived += decodes(&data);
            data[bit / 8] ^= 1 << (bit % 8);
        }
    }
    assert!(survived > 0, "bits of payloads may flip");
}

#[test]
fn random_bytes_do_not_panic() {
    let mut random = Random::new(11);
    let mut survived = 0;
    for _ in 0..200_000 {
        let body: Vec<u8> = (0..random.below(40)).map(|_| random.bits() as u8).collect();
        survived += decodes(&body);
        survived += decodes(&framed(random.bits() as u8, &body));
    }
    assert!(survived > 0);
}
