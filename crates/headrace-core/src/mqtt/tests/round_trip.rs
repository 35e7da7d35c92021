//! What is encoded decodes to itself.

use super::super::encode;
use super::super::packet::*;
use super::generator::{any, KINDS};
use super::{decode, encoded};
use crate::testing::Random;

/// Holds 5.0: 2.1.3-1.
/// Holds 3.1.1: 2.2.2-1.
#[test]
fn every_packet_of_both_versions_survives_the_wire() {
    for version in [Version::V311, Version::V5] {
        for kind in 0..KINDS {
            for seed in 1..400 {
                let packet = any(&mut Random::new(seed), version, kind);
                let data = encoded(version, &packet);
                assert_eq!(decode(version, &data).as_ref(), Ok(&packet), "seed {seed}");
            }
        }
    }
}

#[test]
fn packets_in_a_row_are_framed_one_by_one() {
    let mut random = Random::new(7);
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

/// Holds 5.0: 3.4.2-2, 3.4.2-3.
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

/// Holds 5.0: 3.2.2-19, 3.2.2-20, 3.4.2-2, 3.4.2-3, 3.5.2-2, 3.5.2-3, 3.6.2-2, 3.6.2-3, 3.7.2-2.
/// Holds 5.0: 3.7.2-3, 3.9.2-1, 3.9.2-2, 3.11.2-1, 3.11.2-2, 3.14.2-3, 3.14.2-4, 3.15.2-2.
/// Holds 5.0: 3.15.2-3.
#[test]
fn no_packet_with_a_reason_is_longer_than_its_reader_takes() {
    let (reason_string, user) = (Some("why it is so"), vec![("name", "value")]);
    let ack = |reason_code| Ack {
        packet_id: 1,
        reason_code,
        reason_string,
        user: vec![("name", "value")],
    };
    let list = ListAck {
        packet_id: 1,
        reason_codes: vec![0x80],
        reason_string,
        user: user.clone(),
    };
    let connack = Connack {
        reason_code: 0x87,
        reason_string,
        user: user.clone(),
        ..Connack::default()
    };
    let disconnect = Disconnect {
        reason_code: 0x8E,
        reason_string,
        user: user.clone(),
        ..Disconnect::default()
    };
    let auth = Auth {
        reason_code: 0x18,
        method: Some("m"),
        reason_string,
        user,
        ..Auth::default()
    };
    for packet in [
        Packet::Connack(Box::new(connack)),
        Packet::Puback(ack(0x97)),
        Packet::Pubrec(ack(0x97)),
        Packet::Pubrel(ack(0x92)),
        Packet::Pubcomp(ack(0x92)),
        Packet::Suback(list.clone()),
        Packet::Unsuback(list),
        Packet::Disconnect(disconnect),
        Packet::Auth(auth),
    ] {
        let whole = encoded(Version::V5, &packet);
        for bytes_max in 0..=whole.len() {
            let mut out = Vec::new();
            let fits = encode::packet_within(Version::V5, &packet, bytes_max, &mut out);
            assert!(out.len() <= bytes_max && fits != out.is_empty());
            assert!(
                fits || bytes_max < whole.len() - 15 - 14,
                "it can be shorter"
            );
            assert!(!fits || decode(Version::V5, &out).is_ok());
        }
    }
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
