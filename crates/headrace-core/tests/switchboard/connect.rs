//! CONNECT, decisions, client ids, takeover (MQTT 5.0 3.1, 3.2, 4.12, 4.13).

use headrace_core::mqtt::decode;
use headrace_core::mqtt::packet::{Connack, Connect, Disconnect, Packet, Subscribe};
use headrace_core::switchboard::{Error, Limits, DECISION_BYTES_MAX};

use super::stage::*;

/// Holds 5.0: 3.1.0-1, 3.14.0-1.
#[test]
fn mqtt_3_1_0_1_a_first_packet_other_than_connect_closes_without_a_word() {
    for packet in [Packet::Pingreq, Packet::Disconnect(Disconnect::default())] {
        let mut stage = Stage::default();
        let stranger = stage.open();
        stage.send(stranger, &packet);
        assert_eq!(stage.hears(stranger), ["closed: not_connected"]);
    }
}

/// Holds 5.0: 3.1.0-2, 3.2.0-2, 4.13.1-1.
/// Holds 3.1.1: 3.1.0-2, 4.8.0-1.
#[test]
fn mqtt_3_1_0_2_a_second_connect_is_a_protocol_error() {
    let mut stage = Stage::default();
    let five = stage.client(V5, "five");
    stage.send(five, &Packet::Connect(Box::new(plain(V5))));
    assert_eq!(
        stage.hears(five),
        ["DISCONNECT 0x82", "closed: protocol_error"]
    );
    let three = stage.client(V311, "three");
    stage.send(three, &Packet::Connect(Box::new(plain(V311))));
    assert_eq!(stage.hears(three), ["closed: protocol_error"]);
}

/// A client need not wait for CONNACK (3.1.4): what is wrong behind CONNECT is told after it.
#[test]
fn mqtt_3_2_0_1_what_is_no_packet_behind_connect_is_answered_after_it() {
    for (wrong, code) in [
        (&[0x30, 0xFF, 0xFF, 0xFF, 0x7F][..], "0x95"),
        (&[0x30, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], "0x81"),
        (&[0x36, 0], "0x81"),
    ] {
        let mut stage = Stage::default();
        let client = stage.asks(Connect {
            client_id: "a",
            ..plain(V5)
        });
        stage.send_bytes(client, wrong);
        assert_eq!(stage.hears(client), [""; 0]);
        stage.decide(0);
        let heard = stage.hears(client);
        assert_eq!(heard[..2], ["CONNACK 0x00", &format!("DISCONNECT {code}")]);
    }
}

#[test]
fn mqtt_3_2_2_3_connack_says_what_is_not_served() {
    let mut stage = Stage::default();
    let client = stage.asks(Connect {
        client_id: "a",
        session_expiry_s: Some(3600),
        ..plain(V5)
    });
    stage.decide(0);
    let bytes = stage.raw(client);
    let frame = decode::frame(&bytes, usize::MAX).unwrap().unwrap();
    let expected = Connack {
        receive_maximum: Some(1024),
        topic_alias_maximum: Some(32),
        maximum_packet_size: Some(1_114_112),
        ..Connack::default()
    };
    assert_eq!(
        decode::packet(Some(V5), frame),
        Ok(Packet::Connack(Box::new(expected)))
    );
}

/// Holds 5.0: 3.1.2-28.
#[test]
fn mqtt_3_2_2_3_15_response_information_is_for_who_asks() {
    for (told, asks, expected) in [
        (Some("reply/"), Some(true), "CONNACK 0x00 response reply/"),
        (Some("reply/"), Some(false), "CONNACK 0x00"),
        (Some("reply/"), None, "CONNACK 0x00"),
        (None, Some(true), "CONNACK 0x00"),
    ] {
        let mut stage = Stage::new(Limits {
            response_information: told.map(Into::into),
            ..Limits::default()
        });
        let client = stage.asks(Connect {
            client_id: "a",
            request_response_information: asks,
            ..plain(V5)
        });
        stage.decide(0);
        assert_eq!(stage.hears(client), [expected]);
    }
}

/// MQTT 3.1, which calls itself `MQIsdp`, is served as 3.1.1.
/// Holds 3.1.1: 3.2.2-2, 3.2.2-3.
#[test]
fn mqtt_31_a_client_of_3_1_has_a_session_like_one_of_3_1_1() {
    let connect = b"\x10\x0f\x00\x06MQIsdp\x03\x00\x00\x00\x00\x01a";
    let mut stage = Stage::default();
    for is_present in [0, 1, 1] {
        let client = stage.open();
        stage.send_bytes(client, connect);
        assert_eq!(stage.decisions[0].protocol_level, 4);
        stage.decide(0);
        assert_eq!(stage.raw(client), [0x20, 2, is_present, 0]);
        stage.send_bytes(client, &[0x82, 6, 0, 1, 0, 1, b't', 2]);
        assert_eq!(stage.raw(client), [0x90, 3, 0, 1, 2]);
        stage.hang_up(client);
    }
    assert_eq!(stage.statistic("mqtt_subscriptions"), 1);
}

#[test]
fn policy_is_asked_once_with_what_the_client_said() {
    let mut stage = Stage::default();
    let client = stage.asks(Connect {
        client_id: "gpu-1",
        username: Some("fleet"),
        password: Some(b"secret"),
        ..plain(V311)
    });
    let asked = &stage.decisions[0];
    assert_eq!(stage.decisions.len(), 1);
    assert_eq!(asked.connection, client);
    assert_eq!(asked.client_id, "gpu-1");
    assert_eq!(asked.username.as_deref(), Some("fleet"));
    assert_eq!(asked.password.as_deref(), Some(&b"secret"[..]));
    assert_eq!(asked.protocol_level, 4);
    assert_eq!(stage.hears(client), [""; 0], "nothing is said before");
}

/// Holds 5.0: 3.1.4-2, 3.2.2-6, 3.2.2-7, 4.13.2-1.
/// Holds 3.1.1: 3.2.2-4, 3.2.2-5, 3.2.2-6.
#[test]
fn mqtt_3_2_2_2_a_refusal_carries_its_reason_and_closes() {
    for (version, code, answer) in [
        (V5, 0x86, &["CONNACK 0x86", "closed: refused"][..]),
        (V5, 0x87, &["CONNACK 0x87", "closed: refused"]),
        (V311, 0x86, &["CONNACK 0x86", "closed: refused"]),
        (V311, 0x97, &["CONNACK 0x88", "closed: refused"]),
        (V311, 0x99, &["closed: refused"]),
    ] {
        let mut stage = Stage::default();
        let client = stage.asks(Connect {
            client_id: "a",
            ..plain(version)
        });
        stage.decide(code);
        assert_eq!(stage.hears(client), answer);
        assert_eq!(stage.statistic("mqtt_sessions"), 0);
    }
}

/// Holds 5.0: 3.1.4-5, 3.2.0-1.
/// Holds 3.1.1: 3.1.4-4, 3.2.0-1.
#[test]
fn packets_behind_a_connect_wait_for_the_decision_and_never_overtake() {
    let mut stage = Stage::default();
    let client = stage.asks(Connect {
        client_id: "eager",
        ..plain(V5)
    });
    stage.subscribe_with(client, request("a", QOS_0));
    stage.publish(client, "a", QOS_0, 0, "one");
    stage.publish(client, "a", QOS_1, 9, "two");
    assert_eq!(stage.hears(client), [""; 0]);
    stage.decide(0);
    assert_eq!(
        stage.hears(client),
        [
            "CONNACK 0x00",
            "SUBACK 1 [0x00]",
            "PUBLISH a qos 0: one",
            "PUBLISH a qos 0: two",
            "PUBACK 9",
        ]
    );
}

#[test]
fn input_that_waits_for_a_decision_is_bounded_by_pausing() {
    let mut stage = Stage::default();
    let client = stage.asks(Connect {
        client_id: "eager",
        ..plain(V5)
    });
    stage.publish(client, "a", QOS_0, 0, &"x".repeat(DECISION_BYTES_MAX / 2));
    assert_eq!(stage.reads.get(&client), None);
    stage.publish(client, "a", QOS_0, 0, &"x".repeat(DECISION_BYTES_MAX / 2));
    assert_eq!(stage.reads.get(&client), Some(&false));
    stage.decide(0);
    assert_eq!(stage.reads.get(&client), Some(&true));
    assert_eq!(stage.statistic("mqtt_messages_received_total"), 2);
}

#[test]
fn a_connect_in_time_or_the_connection_ends() {
    let mut stage = Stage::default();
    let silent = stage.open();
    let undecided = stage.asks(Connect {
        client_id: "a",
        ..plain(V5)
    });
    assert_eq!(stage.wake_at, Some(11_000));
    stage.wait(9_999);
    assert_eq!(stage.hears(silent), [""; 0]);
    stage.wait(1);
    assert_eq!(stage.hears(silent), ["closed: connect_timeout"]);
    assert_eq!(stage.hears(undecided), ["closed: connect_timeout"]);
    stage.decide(0);
    assert_eq!(
        stage.hears(undecided),
        [""; 0],
        "the decision came too late"
    );
}

#[test]
fn a_decision_on_a_connection_that_has_gone_is_ignored() {
    let mut stage = Stage::default();
    let client = stage.asks(Connect {
        client_id: "a",
        ..plain(V5)
    });
    stage.hang_up(client);
    stage.decide(0);
    assert_eq!(stage.statistic("mqtt_sessions"), 0);
}

#[test]
fn what_the_switchboard_does_not_know_is_an_error() {
    let mut stage = Stage::default();
    let now = stage.now;
    let client = stage.client(V5, "a");
    let board = &mut stage.switchboard;
    assert_eq!(board.receive(77, b"", now), Err(Error::Connection(77)));
    assert_eq!(board.writable(77, 1), Err(Error::Connection(77)));
    assert_eq!(board.closed(77, now), Err(Error::Connection(77)));
    assert_eq!(board.decided(0, 0, now), Err(Error::Request(0)));
    assert_eq!(board.decided(2, 0, now), Err(Error::Request(2)));
    assert_eq!(board.durable(1, true, now), Err(Error::Ticket(1)));
    assert_eq!(board.unbind(5), Err(Error::Stream(5, 0)));
    assert_eq!(board.sources(5, 0), Err(Error::Stream(5, 0)));
    assert!(matches!(board.opened(client, now), Err(Error::Invalid(_))));
}

/// Holds 5.0: 3.1.3-6, 3.1.3-7, 3.2.2-16.
#[test]
fn mqtt_3_1_3_6_a_client_without_an_id_is_given_a_unique_one() {
    let mut stage = Stage::default();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let client = stage.asks(plain(V5));
        let asked = stage.decisions[0].client_id.clone();
        stage.decide(0);
        let answer = stage.hears(client);
        assert_eq!(answer, [format!("CONNACK 0x00 assigned {asked}")]);
        assert!(seen.insert(asked));
    }
    assert_eq!(stage.statistic("mqtt_sessions"), 100);
}

/// Holds 3.1.1: 3.1.3-6, 3.1.3-7, 3.1.3-8, 3.1.3-9.
#[test]
fn mqtt_311_3_1_3_8_an_empty_id_needs_a_clean_session() {
    let mut stage = Stage::default();
    let clean = stage.asks(plain(V311));
    stage.decide(0);
    assert_eq!(stage.raw(clean), [0x20, 2, 0, 0]);
    let unclean = stage.asks(Connect {
        clean_start: false,
        ..plain(V311)
    });
    assert_eq!(stage.decisions.len(), 0);
    assert_eq!(stage.raw(unclean), [0x20, 2, 0, 2]);
    assert!(stage.hears(unclean)[0].starts_with("closed"));
}

/// Holds 5.0: 3.1.4-3.
/// Holds 3.1.1: 3.1.4-2.
#[test]
fn mqtt_3_1_4_3_a_newer_connection_takes_the_client_id_over() {
    let mut stage = Stage::default();
    let old = stage.client(V5, "one");
    stage.subscribe(old, "a", QOS_0);
    let new = stage.client(V5, "one");
    assert_eq!(stage.hears(old), ["DISCONNECT 0x8e", "closed: taken_over"]);
    let three = stage.client(V311, "one");
    assert_eq!(stage.hears(new), ["DISCONNECT 0x8e", "closed: taken_over"]);
    let last = stage.client(V5, "one");
    assert_eq!(stage.hears(three), ["closed: taken_over"]);
    assert_eq!(stage.statistic("mqtt_sessions"), 1);
    assert_eq!(stage.statistic("mqtt_subscriptions"), 0);
    assert_eq!(stage.hears(last), [""; 0]);
}

#[test]
fn the_late_end_of_an_old_connection_never_hurts_the_session_that_replaced_it() {
    let mut stage = Stage::default();
    let mut old = stage.client(V5, "one");
    for round in 0..1_000 {
        let new = stage.client(V5, "one");
        stage.subscribe(new, "a", QOS_0);
        stage.hang_up(old);
        stage.publish(new, "a", QOS_0, 0, "still here");
        assert_eq!(stage.hears(new), ["PUBLISH a qos 0: still here"], "{round}");
        old = new;
    }
}

#[test]
fn a_takeover_waits_for_the_decision() {
    let mut stage = Stage::default();
    let old = stage.client(V5, "one");
    let stranger = stage.asks(Connect {
        client_id: "one",
        ..plain(V5)
    });
    stage.decide(0x87);
    assert_eq!(stage.hears(stranger), ["CONNACK 0x87", "closed: refused"]);
    assert_eq!(stage.hears(old), [""; 0]);
}

/// Holds 5.0: 3.1.2-2.
/// Holds 3.1.1: 3.1.2-2.
#[test]
fn mqtt_3_1_2_2_an_unknown_version_is_told_so() {
    for (level, answer) in [(6, &[0x20, 3, 0, 0x84, 0][..]), (2, &[0x20, 2, 0, 1])] {
        let mut stage = Stage::default();
        let client = stage.open();
        stage.send_bytes(
            client,
            &[
                16, 13, 0, 4, b'M', b'Q', b'T', b'T', level, 2, 0, 0, 0, 1, b'a',
            ],
        );
        let bytes = stage.raw(client);
        assert_eq!(bytes[2..4], answer[2..4]);
        assert_eq!(
            stage.hears(client),
            ["closed: unsupported_protocol_version"]
        );
    }
}

#[test]
fn who_has_not_been_let_in_may_not_send_much() {
    let mut stage = Stage::default();
    let stranger = stage.open();
    stage.send_bytes(stranger, &[0x10, 0x81, 0x80, 0x08]);
    assert_eq!(stage.hears(stranger), ["closed: packet_too_large"]);
}

/// Holds 5.0: 3.1.2-24.
#[test]
fn mqtt_3_1_2_11_4_an_answer_longer_than_the_client_reads_is_not_sent() {
    let mut stage = Stage::default();
    let client = stage.client_with(Connect {
        client_id: "a",
        maximum_packet_size: Some(20),
        ..plain(V5)
    });
    let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
    let filters = names.iter().map(|name| request(name, QOS_0)).collect();
    let subscribe = Subscribe {
        packet_id: 1,
        filters,
        ..Subscribe::default()
    };
    stage.send(client, &Packet::Subscribe(subscribe));
    stage.send(client, &Packet::Pingreq);
    assert_eq!(stage.hears(client), ["PINGRESP"]);
    let dropped = "mqtt_answers_dropped_total{reason=\"packet_too_large\"}";
    assert_eq!(stage.statistic(dropped), 1);
}

/// Holds 5.0: 3.2.2-19, 3.2.2-20.
#[test]
fn mqtt_3_1_4_a_client_that_takes_no_connack_is_not_connected_and_leaves_no_will() {
    let mut stage = Stage::default();
    let other = stage.client(V5, "other");
    stage.subscribe(other, "w", QOS_0);
    let client = stage.asks(Connect {
        client_id: "a",
        maximum_packet_size: Some(10),
        will: Some(Will {
            topic: "w",
            ..Will::default()
        }),
        ..plain(V5)
    });
    stage.decide(0);
    assert_eq!(stage.hears(client), ["closed: packet_too_large"]);
    let refused = stage.asks(Connect {
        client_id: "a",
        maximum_packet_size: Some(4),
        ..plain(V5)
    });
    stage.decide(0x87);
    assert_eq!(stage.hears(refused), ["closed: refused"]);
    assert_eq!(stage.hears(other), [""; 0]);
    assert_eq!(stage.statistic("mqtt_sessions"), 1);
}

#[test]
fn a_stop_tells_every_client_and_closes_every_connection() {
    let mut stage = Stage::default();
    let five = stage.client(V5, "five");
    let three = stage.client(V311, "three");
    let silent = stage.open();
    stage.switchboard.disconnect_all(0x8B, stage.now);
    stage.run();
    assert_eq!(stage.hears(five), ["DISCONNECT 0x8b", "closed: shutdown"]);
    assert_eq!(stage.hears(three), ["closed: shutdown"]);
    assert_eq!(stage.hears(silent), ["closed: shutdown"]);
}
