//! Statements of MQTT 5.0 and 3.1.1 that no story of another file tells.

use headrace_core::mqtt::packet::{Ack, Connect, Packet, Publish};

use super::stage::*;

const REFUSED: [&str; 2] = ["DISCONNECT 0x82", "closed: protocol_error"];

fn ack(packet_id: u16) -> Ack<'static> {
    Ack {
        packet_id,
        ..Ack::default()
    }
}

/// Connects as `a`, whose session lives on; the rest of what it hears at once.
fn returns(stage: &mut Stage, version: Version) -> (u64, Vec<String>) {
    let client = stage.asks(Connect {
        client_id: "a",
        clean_start: false,
        session_expiry_s: (version == V5).then_some(60),
        ..plain(version)
    });
    stage.decide(0);
    let heard = stage.hears(client);
    assert!(heard[0].starts_with("CONNACK 0x00"), "{heard:?}");
    (client, heard[1..].to_vec())
}

/// What two subscribers are sent of a publish with DUP.
fn copies(granted: QoS, qos: QoS) -> [Vec<u8>; 2] {
    let mut stage = Stage::default();
    let subscribers = [stage.client(V5, "five"), stage.client(V311, "three")];
    for subscriber in subscribers {
        stage.subscribe(subscriber, "t", granted);
    }
    let publisher = stage.client(V5, "publisher");
    let publish = Publish {
        dup: true,
        topic: "t",
        qos,
        packet_id: 7,
        payload: b"x",
        ..Publish::default()
    };
    stage.send(publisher, &Packet::Publish(publish));
    subscribers.map(|subscriber| stage.raw(subscriber))
}

/// Holds 5.0: 2.2.1-2, 2.2.2-1, 3.3.1-2, 3.3.2-1, 4.3.1-1.
/// Holds 3.1.1: 2.3.1-5, 3.3.1-2, 3.3.2-1, 4.3.1-1.
#[test]
fn a_copy_at_qos_0_has_no_packet_id_no_dup_and_no_properties() {
    let expected = [&b"\x30\x05\0\x01t\0x"[..], &b"\x30\x04\0\x01tx"[..]];
    for qos in [QOS_1, QOS_2] {
        assert_eq!(copies(QOS_0, qos), expected);
    }
}

/// Holds 5.0: 3.3.1-3, 4.3.2-2, 4.3.3-2.
/// Holds 3.1.1: 3.3.1-3, 4.3.2-1.
#[test]
fn the_dup_flag_of_a_copy_is_not_that_of_its_publish() {
    for (qos, header) in [(QOS_1, 0x32), (QOS_2, 0x34)] {
        let expected = [
            &[&[header], &b"\x07\0\x01t\0\x01\0x"[..]].concat(),
            &[&[header], &b"\x06\0\x01t\0\x01x"[..]].concat(),
        ];
        assert_eq!(copies(QOS_2, qos).each_ref(), expected);
    }
}

/// Holds 5.0: 2.2.1-4, 4.3.2-1, 4.3.3-1.
/// Holds 3.1.1: 2.3.1-4.
#[test]
fn packet_ids_of_the_broker_are_never_0_and_never_in_use() {
    let mut stage = Stage::default();
    stage.is_validating = false;
    let (client, publisher) = (stage.client(V5, "a"), stage.client(V5, "p"));
    stage.subscribe(client, "t", QOS_2);
    stage.publish(publisher, "t", QOS_1, 1, "held");
    stage.publish(publisher, "t", QOS_2, 2, "held");
    stage.send(client, &Packet::Pubrec(ack(2)));
    assert_eq!(stage.hears_ids(client), [1, 2]);
    for _ in 0..70_000 {
        stage.publish(publisher, "t", QOS_1, 1, "x");
        let ids = stage.hears_ids(client);
        assert!(ids.iter().all(|id| *id > 2), "{ids:?}");
        stage.acknowledge(client, ids[0]);
    }
    assert_eq!(stage.statistic("mqtt_outbound_in_flight"), 2);
}

/// Holds 5.0: 3.1.3-5.
/// Holds 3.1.1: 3.1.3-5.
#[test]
fn client_ids_of_1_to_23_letters_and_digits_are_taken_as_they_are() {
    let characters: String = ('0'..='9').chain('a'..='z').chain('A'..='Z').collect();
    let mut stage = Stage::default();
    for version in [V5, V311] {
        for length in 1..=23 {
            for from in (0..=characters.len() - length).step_by(length) {
                let client_id = &characters[from..from + length];
                let client = stage.asks(Connect {
                    client_id,
                    ..plain(version)
                });
                assert_eq!(stage.decisions[0].client_id, client_id);
                stage.decide(0);
                assert_eq!(stage.hears(client), ["CONNACK 0x00"]);
            }
        }
    }
}

/// Holds 5.0: 3.1.3-3, 3.1.3-12, 3.1.4-1.
/// Holds 3.1.1: 3.1.3-3, 3.1.3-11, 3.1.4-1.
#[test]
fn a_connect_without_a_client_id_and_one_whose_user_name_is_no_string_are_refused() {
    for (version, body) in [
        (5, &b"\x02\0\0\0"[..]),
        (4, &b"\x02\0\0"[..]),
        (5, &b"\x82\0\0\0\0\x01a\0\x01\xff"[..]),
        (4, &b"\x82\0\0\0\x01a\0\x01\xff"[..]),
    ] {
        let mut stage = Stage::default();
        let client = stage.open();
        let mut packet = vec![0x10, 7 + body.len() as u8];
        packet.extend_from_slice(b"\0\x04MQTT");
        packet.push(version);
        packet.extend_from_slice(body);
        stage.send_bytes(client, &packet);
        assert_eq!(stage.decisions.len(), 0);
        let answer = stage.raw(client);
        assert!(answer.is_empty() || (version == 5 && answer[3] == 0x81));
        assert_eq!(stage.hears(client), ["closed: malformed_packet"]);
    }
}

/// Holds 5.0: 3.1.4-6.
/// Holds 3.1.1: 3.1.4-5.
#[test]
fn what_comes_behind_a_refused_connect_is_not_processed() {
    for version in [V5, V311] {
        let mut stage = Stage::default();
        let watcher = stage.client(V5, "watcher");
        stage.subscribe(watcher, "#", QOS_1);
        let client = stage.asks(Connect {
            client_id: "a",
            ..plain(version)
        });
        stage.publish(client, "t", QOS_1, 1, "x");
        stage.decide(0x87);
        stage.publish(client, "t", QOS_1, 2, "y");
        let heard = stage.hears(client);
        assert_eq!(heard.len(), 2, "CONNACK and the end: {heard:?}");
        assert_eq!(stage.hears(watcher), [""; 0]);
    }
}

/// Holds 5.0: 3.3.4-10, 3.12.4-1, 4.9.0-3.
#[test]
fn a_full_window_holds_up_nothing_but_publishes_above_qos_0() {
    let mut stage = Stage::default();
    let client = stage.client_with(Connect {
        client_id: "a",
        receive_maximum: Some(1),
        ..plain(V5)
    });
    stage.subscribe(client, "t", QOS_2);
    stage.publish(client, "t", QOS_1, 1, "one");
    stage.publish(client, "t", QOS_1, 2, "two");
    let window = ["PUBLISH t qos 1 id 1: one", "PUBACK 1", "PUBACK 2"];
    assert_eq!(stage.hears(client), window);
    stage.send(client, &Packet::Pingreq);
    stage.subscribe_with(client, request("u", QOS_0));
    stage.publish(client, "v", QOS_2, 3, "x");
    stage.release(client, 3);
    stage.unsubscribe(client, &["u"]);
    stage.publish(client, "t", QOS_0, 0, "zero");
    let others = [
        "PINGRESP",
        "SUBACK 1 [0x00]",
        "PUBREC 3",
        "PUBCOMP 3",
        "UNSUBACK 2 [0x00]",
        "PUBLISH t qos 0: zero",
    ];
    assert_eq!(stage.hears(client), others);
}

/// Holds 5.0: 3.10.4-1, 3.10.4-6.
/// Holds 3.1.1: 3.10.4-1, 3.10.4-6.
#[test]
fn unsubscribing_compares_filters_as_they_are_written() {
    for version in [V5, V311] {
        let mut stage = Stage::default();
        let client = stage.client(version, "a");
        stage.subscribe(client, "t/a", QOS_0);
        stage.subscribe(client, "t/+", QOS_0);
        stage.unsubscribe(client, &["t/#", "T/a", "t/a/", "t/+"]);
        assert_eq!(stage.hears(client).len(), 1, "one UNSUBACK");
        assert_eq!(stage.statistic("mqtt_subscriptions"), 1);
        stage.publish(client, "t/a", QOS_0, 0, "x");
        stage.publish(client, "t/b", QOS_0, 0, "x");
        assert_eq!(stage.hears(client), ["PUBLISH t/a qos 0: x"]);
    }
}

/// Holds 5.0: 3.10.4-2, 3.10.4-3.
/// Holds 3.1.1: 3.10.4-2, 3.10.4-3.
#[test]
fn what_was_begun_goes_on_behind_unsubscribe_and_nothing_new_comes() {
    for version in [V5, V311] {
        let mut stage = Stage::default();
        let (client, _) = returns(&mut stage, version);
        stage.subscribe(client, "t", QOS_2);
        let publisher = stage.client(V5, "publisher");
        stage.publish(publisher, "t", QOS_1, 1, "one");
        stage.publish(publisher, "t", QOS_2, 2, "two");
        stage.hears(client);
        stage.unsubscribe(client, &["t"]);
        stage.publish(publisher, "t", QOS_2, 3, "three");
        assert_eq!(stage.hears(client).len(), 1, "UNSUBACK");
        stage.hang_up(client);
        let (client, heard) = returns(&mut stage, version);
        let begun = [
            "PUBLISH t qos 1 id 1 dup: one",
            "PUBLISH t qos 2 id 2 dup: two",
        ];
        assert_eq!(heard, begun);
        stage.acknowledge(client, 1);
        stage.complete(client, 2);
        assert_eq!(stage.hears(client), ["PUBREL 2"]);
        assert_eq!(stage.statistic("mqtt_outbound_in_flight"), 0);
    }
}

/// Holds 5.0: 4.3.2-5.
/// Holds 3.1.1: 4.3.2-2.
#[test]
fn after_its_acknowledgement_a_packet_id_is_that_of_a_new_message_whatever_its_dup_says() {
    for version in [V5, V311] {
        let mut stage = Stage::default();
        let client = stage.client(version, "a");
        stage.subscribe(client, "t", QOS_0);
        for _ in 0..2 {
            let publish = Publish {
                dup: true,
                topic: "t",
                qos: QOS_1,
                packet_id: 7,
                payload: b"x",
                ..Publish::default()
            };
            stage.send(client, &Packet::Publish(publish));
            assert_eq!(stage.hears(client), ["PUBLISH t qos 0: x", "PUBACK 7"]);
        }
    }
}

/// Holds 5.0: 4.3.3-7, 4.3.3-13.
#[test]
fn expiry_stops_no_exchange_that_has_begun() {
    let mut stage = Stage::default();
    let (client, _) = returns(&mut stage, V5);
    stage.subscribe(client, "t", QOS_2);
    let expires = PublishProperties {
        message_expiry: Some(2),
        ..PublishProperties::default()
    };
    stage.publish_with(client, "t", QOS_2, 9, "x", expires);
    assert_eq!(stage.hears(client).len(), 2);
    stage.wait(10_000);
    stage.hang_up(client);
    let (client, heard) = returns(&mut stage, V5);
    assert_eq!(heard, ["PUBLISH t qos 2 id 1 dup: x expiry 0"]);
    stage.complete(client, 1);
    // Its own publish goes on, too, though it has expired.
    stage.release(client, 9);
    assert_eq!(stage.hears(client), ["PUBREL 1", "PUBCOMP 9"]);
}

/// Holds 5.0: 3.14.2-1, 3.14.2-2.
#[test]
fn a_disconnect_of_the_broker_says_its_reason_and_nothing_else() {
    let mut stage = Stage::default();
    let client = stage.client(V5, "a");
    stage.send(client, &Packet::Connect(Box::new(plain(V5))));
    assert_eq!(stage.raw(client), [0xE0, 1, 0x82]);
    let client = stage.client(V311, "b");
    stage.send(client, &Packet::Connect(Box::new(plain(V311))));
    assert_eq!(stage.raw(client), [0; 0], "3.1.1 has no such packet");
}

/// Holds 5.0: 3.1.2-14.
/// Holds 3.1.1: 3.1.2-12, 3.1.2-16.
#[test]
fn a_will_is_retained_only_where_its_client_says_so_and_there_is_none_without_one() {
    let mut stage = Stage::default();
    let watcher = stage.client(V5, "watcher");
    stage.subscribe(watcher, "#", QOS_0);
    for (will, heard) in [
        (None, vec![]),
        (Some("bye"), vec!["PUBLISH gone qos 0: bye"]),
    ] {
        let mortal = stage.client_with(Connect {
            client_id: "mortal",
            will: will.map(|payload| Will {
                topic: "gone",
                payload: payload.as_bytes(),
                ..Will::default()
            }),
            ..plain(V311)
        });
        stage.hang_up(mortal);
        assert_eq!(stage.hears(watcher), heard);
    }
    assert_eq!(stage.statistic("mqtt_retained_messages"), 0);
}

/// Holds 5.0: 2.2.1-3.
#[test]
fn an_id_that_a_client_may_not_use_is_refused_at_every_publish() {
    let mut stage = Stage::default();
    let client = stage.client(V5, "a");
    stage.send_bytes(client, b"\x32\x06\0\x01t\0\0\0");
    assert_eq!(stage.hears(client), REFUSED);
}

/// Holds 3.1.1: 3.1.2-8, 3.1.2-10.
#[test]
fn every_end_of_a_connection_of_3_1_1_but_a_goodbye_publishes_its_will() {
    type End = fn(&mut Stage, u64);
    let ends: [End; 4] = [
        |stage, mortal| stage.hang_up(mortal),
        |stage, _| stage.wait(15_000),
        |stage, mortal| stage.send(mortal, &Packet::Connect(Box::new(plain(V311)))),
        |stage, _| {
            stage.client(V311, "mortal");
        },
    ];
    for end in ends {
        let mut stage = Stage::default();
        let watcher = stage.client(V311, "watcher");
        stage.subscribe(watcher, "gone", QOS_2);
        let mortal = stage.client_with(Connect {
            client_id: "mortal",
            keep_alive_s: 10,
            will: Some(Will {
                topic: "gone",
                qos: QOS_2,
                payload: b"bye",
                ..Will::default()
            }),
            ..plain(V311)
        });
        end(&mut stage, mortal);
        assert_eq!(stage.hears(watcher), ["PUBLISH gone qos 2 id 1: bye"]);
        stage.wait(1_000_000);
        assert_eq!(stage.hears(watcher), [""; 0], "once");
    }
}

/// Holds 3.1.1: 3.3.5-1.
#[test]
fn an_overlap_brings_a_client_of_3_1_1_one_copy_at_the_highest_qos() {
    let mut stage = Stage::default();
    let (client, publisher) = (stage.client(V311, "a"), stage.client(V311, "p"));
    for (filter, qos) in [("t/#", QOS_0), ("t/a", QOS_2), ("+/a", QOS_1)] {
        stage.subscribe(client, filter, qos);
    }
    stage.publish(publisher, "t/a", QOS_2, 1, "x");
    assert_eq!(stage.hears(client), ["PUBLISH t/a qos 2 id 1: x"]);
}

/// Holds 5.0: 4.1.0-1.
/// Holds 3.1.1: 4.1.0-2.
#[test]
fn a_session_lasts_as_long_as_its_connection() {
    for version in [V5, V311] {
        let mut stage = Stage::default();
        let client = stage.client(version, "a");
        stage.subscribe(client, "t", QOS_0);
        stage.wait(100 * 86_400_000);
        stage.publish(client, "t", QOS_0, 0, "x");
        assert_eq!(stage.hears(client), ["PUBLISH t qos 0: x"]);
    }
}
