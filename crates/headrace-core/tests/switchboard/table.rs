//! The whole product of phases and packet types.

use headrace_core::mqtt::packet::*;

use super::stage::{plain, request, Stage, QOS_0};
use Version::{V311, V5};

/// One packet of each type that exists in a version.
fn packets(version: Version) -> Vec<(&'static str, Packet<'static>)> {
    let ack = || Ack {
        packet_id: 5,
        ..Ack::default()
    };
    let list = || ListAck {
        packet_id: 5,
        reason_codes: vec![0],
        ..ListAck::default()
    };
    let mut packets = vec![
        ("CONNECT", Packet::Connect(Box::new(plain(version)))),
        ("CONNACK", Packet::Connack(Box::default())),
        (
            "PUBLISH",
            Packet::Publish(Publish {
                topic: "a",
                ..Publish::default()
            }),
        ),
        ("PUBACK", Packet::Puback(ack())),
        ("PUBREC", Packet::Pubrec(ack())),
        ("PUBREL", Packet::Pubrel(ack())),
        ("PUBCOMP", Packet::Pubcomp(ack())),
        (
            "SUBSCRIBE",
            Packet::Subscribe(Subscribe {
                packet_id: 5,
                filters: vec![request("a", QOS_0)],
                ..Subscribe::default()
            }),
        ),
        ("SUBACK", Packet::Suback(list())),
        (
            "UNSUBSCRIBE",
            Packet::Unsubscribe(Unsubscribe {
                packet_id: 5,
                filters: vec!["a"],
                ..Unsubscribe::default()
            }),
        ),
        ("UNSUBACK", Packet::Unsuback(list())),
        ("PINGREQ", Packet::Pingreq),
        ("PINGRESP", Packet::Pingresp),
        ("DISCONNECT", Packet::Disconnect(Disconnect::default())),
    ];
    if version == V5 {
        packets.push((
            "AUTH",
            Packet::Auth(Auth {
                reason_code: 0x18,
                method: Some("SCRAM-SHA-256"),
                ..Auth::default()
            }),
        ));
    }
    packets
}

/// A connection in a phase.
fn connection(stage: &mut Stage, phase: &str, version: Version) -> u64 {
    match phase {
        "connecting" => stage.open(),
        "deciding" => stage.asks(Connect {
            client_id: "a",
            ..plain(version)
        }),
        "challenged" => {
            let connection = stage.asks(Connect {
                client_id: "a",
                authentication_method: Some("SCRAM-SHA-256"),
                ..plain(version)
            });
            stage.decide(0x18);
            assert_eq!(stage.hears(connection), ["AUTH 0x18 SCRAM-SHA-256"]);
            connection
        }
        "open" => stage.client(version, "a"),
        "closing" => {
            let connection = stage.client(version, "a");
            stage.switchboard.disconnect_all(0x8B, stage.now);
            stage.run();
            stage.hears(connection);
            connection
        }
        other => unreachable!("no phase {other}"),
    }
}

/// What a client hears after one packet.
fn after(phase: &str, version: Version, packet: &Packet<'_>) -> (Vec<String>, usize) {
    let mut stage = Stage::default();
    let connection = connection(&mut stage, phase, version);
    let asked = stage.decisions.len();
    let mut bytes = Vec::new();
    headrace_core::mqtt::encode::packet(version, packet, &mut bytes);
    stage.send_bytes(connection, &bytes);
    (stage.hears(connection), stage.decisions.len() - asked)
}

/// Holds 5.0: 3.1.0-1, 3.14.0-1.
/// Holds 3.1.1: 3.1.0-1.
#[test]
fn before_connect_nothing_else_is_served() {
    for version in [V5, V311] {
        for (name, packet) in packets(version) {
            let (heard, asked) = after("connecting", version, &packet);
            if name == "CONNECT" {
                assert_eq!((heard.len(), asked), (0, 1), "{name}");
            } else {
                assert_eq!(heard, ["closed: not_connected"], "{name}");
            }
        }
    }
}

#[test]
fn while_policy_decides_everything_is_kept() {
    for version in [V5, V311] {
        for (name, packet) in packets(version) {
            assert_eq!(after("deciding", version, &packet), (vec![], 0), "{name}");
        }
    }
}

/// Holds 5.0: 3.1.2-30, 4.12.0-3.
#[test]
fn mqtt_3_1_2_30_in_the_middle_of_authentication_nothing_else_is_served() {
    for (name, packet) in packets(V5) {
        let (heard, asked) = after("challenged", V5, &packet);
        match name {
            "AUTH" => assert_eq!((heard.len(), asked), (0, 1), "{name}"),
            "DISCONNECT" => assert_eq!(heard, ["closed: client_disconnect"], "{name}"),
            _ => assert_eq!(heard, ["closed: not_connected"], "{name}"),
        }
    }
}

/// Holds 5.0: 3.14.4-1, 3.14.4-2.
#[test]
fn a_closing_connection_hears_nothing_more() {
    for version in [V5, V311] {
        for (name, packet) in packets(version) {
            assert_eq!(after("closing", version, &packet), (vec![], 0), "{name}");
        }
    }
}

/// Holds 5.0: 3.10.4-4, 3.10.4-5, 3.12.4-1, 4.3.3-4, 4.13.1-1.
/// Holds 3.1.1: 2.3.1-7, 3.10.4-4, 3.10.4-5, 3.12.4-1, 4.8.0-1.
#[test]
fn an_open_connection_serves_what_a_client_may_send() {
    for version in [V5, V311] {
        for (name, packet) in packets(version) {
            let (heard, asked) = after("open", version, &packet);
            let served = match (name, version) {
                ("PUBLISH" | "PUBACK" | "PUBCOMP", _) => Some(vec![]),
                ("PUBREC", _) => Some(vec!["PUBREL 5"]),
                ("PUBREL", _) => Some(vec!["PUBCOMP 5"]),
                ("SUBSCRIBE", _) => Some(vec!["SUBACK 5 [0x00]"]),
                ("UNSUBSCRIBE", V5) => Some(vec!["UNSUBACK 5 [0x11]"]),
                ("UNSUBSCRIBE", V311) => Some(vec!["UNSUBACK 5 []"]),
                ("PINGREQ", _) => Some(vec!["PINGRESP"]),
                ("DISCONNECT", _) => Some(vec!["closed: client_disconnect"]),
                _ => None,
            };
            let expected = served.unwrap_or(match version {
                V5 => vec!["DISCONNECT 0x82", "closed: protocol_error"],
                V311 => vec!["closed: protocol_error"],
            });
            assert_eq!((heard, asked), (to_lines(&expected), 0), "{name}");
        }
    }
}

/// Holds 5.0: 2.1.3-1, 3.6.1-1, 3.8.1-1, 3.10.1-1, 3.14.1-1, 3.15.1-1.
/// Holds 3.1.1: 2.2.2-2, 3.6.1-1, 3.8.1-1, 3.10.1-1, 3.14.1-1.
#[test]
fn reserved_flags_of_another_value_end_a_connection() {
    for version in [V5, V311] {
        for (name, packet) in packets(version) {
            for flags in (1..16).filter(|_| name != "PUBLISH") {
                let mut stage = Stage::default();
                let client = connection(&mut stage, "open", version);
                let mut bytes = stage.bytes(client, &packet);
                bytes[0] ^= flags;
                stage.send_bytes(client, &bytes);
                let expected = match version {
                    V5 => vec!["DISCONNECT 0x81", "closed: malformed_packet"],
                    V311 => vec!["closed: malformed_packet"],
                };
                assert_eq!(stage.hears(client), expected, "{name} {flags:#x}");
            }
        }
    }
}

#[test]
fn mqtt_311_2_2_1_packet_type_15_does_not_exist() {
    let mut stage = Stage::default();
    let client = stage.client(V311, "a");
    stage.send_bytes(client, &[0xF0, 0]);
    assert_eq!(stage.hears(client), ["closed: malformed_packet"]);
}

fn to_lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(ToString::to_string).collect()
}
