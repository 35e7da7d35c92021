//! What is encoded decodes to itself.

use super::super::encode;
use super::super::packet::*;
use super::generator::{any, Random, KINDS};
use super::{decode, encoded};

#[test]
fn every_packet_of_both_versions_survives_the_wire() {
    for version in [Version::V311, Version::V5] {
        for kind in 0..KINDS {
            for seed in 1..400 {
                let packet = any(&mut Random(seed), version, kind);
                let data = encoded(version, &packet);
                assert_eq!(decode(version, &data).as_ref(), Ok(&packet), "seed {seed}");
            }
        }
    }
}

#[test]
fn packets_in_a_row_are_framed_one_by_one() {
    let mut random = Random(7);
    let packets: Vec<_> = (0..500)
        .map(|index| any(&mut random, Version::V5, index % KINDS))
        .collect();
    let mut stream = Vec::new();
    for packet in &packets {
        encode::packet(Version::V5, packet, &mut stream);
    }
    let mut rest = &stream[..];
    for packet in &packets {
        let frame = super::frame(rest, super::PACKET_BYTES_MAX)
            .unwrap()
            .unwrap();
        assert_eq!(super::packet(Some(Version::V5), frame).as_ref(), Ok(packet));
        rest = &rest[frame.bytes()..];
    }
    assert!(rest.is_empty());
}

#[test]
fn the_short_puback_is_the_long_one() {
    let ack = Ack {
        packet_id: 0x1234,
        ..Ack::default()
    };
    let mut short = Vec::new();
    encode::puback(0x1234, &mut short);
    for version in [Version::V311, Version::V5] {
        assert_eq!(encoded(version, &Packet::Puback(ack.clone())), short);
    }
}

#[test]
fn what_does_not_fit_loses_user_properties_then_the_reason_string_then_is_not_sent() {
    let user = vec![("name", "value")];
    let ack = Ack {
        packet_id: 1,
        reason_code: 0x97,
        reason_string: Some("quota"),
        user,
    };
    // Fixed header, packet id, reason code: 5; property length: 1; "quota": 8; the pair: 14.
    let steps = [
        (28, Some("quota"), 1),
        (27, Some("quota"), 0),
        (14, Some("quota"), 0),
        (13, None, 0),
    ];
    for (bytes_max, reason_string, users) in steps {
        let expected = Ack {
            reason_string,
            user: ack.user[..users].to_vec(),
            ..ack.clone()
        };
        let mut out = Vec::new();
        let packet = Packet::Puback(ack.clone());
        assert!(encode::packet_within(
            Version::V5,
            &packet,
            bytes_max,
            &mut out
        ));
        assert_eq!(decode(Version::V5, &out), Ok(Packet::Puback(expected)));
        assert!(out.len() <= bytes_max);
    }
    let mut out = Vec::new();
    assert!(!encode::packet_within(
        Version::V5,
        &Packet::Puback(ack),
        4,
        &mut out
    ));
    assert!(out.is_empty());
}

#[test]
fn a_publish_that_does_not_fit_is_not_cut() {
    let message = Publish {
        topic: "a",
        payload: &[0; 100],
        ..Publish::default()
    };
    let packet = Packet::Publish(message);
    let length = encoded(Version::V5, &packet).len();
    let mut out = Vec::new();
    assert!(!encode::packet_within(
        Version::V5,
        &packet,
        length - 1,
        &mut out
    ));
    assert!(out.is_empty());
    assert!(encode::packet_within(
        Version::V5,
        &packet,
        length,
        &mut out
    ));
}
