//! `QoS` 2 both ways, and what is sent again (MQTT 5.0 3.5 to 3.7, 4.3.3, 4.4, 4.6, 4.9).

use headrace_core::mqtt::packet::{Ack, Connect, Packet, Publish};
use headrace_core::switchboard::{Limits, Strategy};

use super::stage::*;

fn ack(packet_id: u16) -> Ack<'static> {
    Ack {
        packet_id,
        ..Ack::default()
    }
}

fn refusal(packet_id: u16) -> Ack<'static> {
    Ack {
        reason_code: 0x80,
        ..ack(packet_id)
    }
}

/// Connects as `a`, whose session lives on; the rest of what it hears at once.
fn returns(stage: &mut Stage, version: Version, receive_maximum: u16) -> (u64, Vec<String>) {
    let client = stage.asks(Connect {
        client_id: "a",
        clean_start: false,
        session_expiry_s: (version == V5).then_some(60),
        receive_maximum: (version == V5).then_some(receive_maximum),
        ..plain(version)
    });
    stage.decide(0);
    let heard = stage.hears(client);
    assert!(heard[0].starts_with("CONNACK 0x00"), "{heard:?}");
    (client, heard[1..].to_vec())
}

/// Publishes again, with DUP.
fn repeat(stage: &mut Stage, client: u64, qos: QoS, packet_id: u16, payload: &str) {
    let publish = Publish {
        dup: true,
        topic: "t",
        qos,
        packet_id,
        payload: payload.as_bytes(),
        ..Publish::default()
    };
    stage.send(client, &Packet::Publish(publish));
}

/// Holds 5.0: 2.2.1-5, 3.3.4-1, 4.3.3-4, 4.3.3-8, 4.3.3-11.
/// Holds 3.1.1: 2.3.1-6, 3.3.4-1, 4.3.3-1, 4.3.3-2.
#[test]
fn mqtt_4_3_3_qos_2_from_end_to_end() {
    for (publisher, subscriber) in [(V5, V5), (V5, V311), (V311, V5), (V311, V311)] {
        let mut stage = Stage::default();
        let receiver = stage.client(subscriber, "receiver");
        stage.subscribe(receiver, "t", QOS_2);
        let sender = stage.client(publisher, "sender");
        stage.publish(sender, "t", QOS_2, 9, "x");
        assert_eq!(stage.hears(sender), ["PUBREC 9"]);
        assert_eq!(stage.hears(receiver), ["PUBLISH t qos 2 id 1: x"]);
        stage.send(sender, &Packet::Pubrel(ack(9)));
        assert_eq!(stage.hears(sender), ["PUBCOMP 9"]);
        stage.send(receiver, &Packet::Pubrec(ack(1)));
        assert_eq!(stage.hears(receiver), ["PUBREL 1"]);
        assert_eq!(stage.statistic("mqtt_outbound_in_flight"), 1);
        stage.send(receiver, &Packet::Pubcomp(ack(1)));
        assert_eq!(stage.hears(receiver), [""; 0]);
        assert_eq!(stage.statistic("mqtt_outbound_in_flight"), 0);
        assert_eq!(stage.statistic("mqtt_inbound_unreleased"), 0);
    }
}

#[test]
fn mqtt_4_3_3_who_receives_its_own_message_reads_pubrec_before_it_and_puback_behind_it() {
    for is_stored in [false, true] {
        let mut stage = Stage::default();
        if is_stored {
            stage.switchboard.bind(1, 1, &["#"], "topic").unwrap();
        }
        let client = stage.client(V5, "a");
        stage.subscribe(client, "t", QOS_2);
        stage.publish(client, "t", QOS_2, 9, "x");
        stage.publish(client, "t", QOS_1, 8, "y");
        while !stage.appends.is_empty() {
            stage.durable(true);
        }
        let order = [
            "PUBREC 9",
            "PUBLISH t qos 2 id 1: x",
            "PUBLISH t qos 1 id 2: y",
            "PUBACK 8",
        ];
        assert_eq!(stage.hears(client), order);
    }
}

/// The answer to its will is the end of a session that has ended.
#[test]
fn a_will_at_qos_2_reaches_a_group_that_looks_at_who_published_it() {
    let mut stage = Stage::new(Limits {
        shared_strategy: Strategy::HashClient,
        ..Limits::default()
    });
    let member = stage.client(V5, "member");
    stage.subscribe(member, "$share/g/t", QOS_2);
    let client = stage.client_with(Connect {
        client_id: "a",
        will: Some(Will {
            topic: "t",
            qos: QOS_2,
            payload: b"gone",
            ..Will::default()
        }),
        ..plain(V5)
    });
    stage.hang_up(client);
    assert_eq!(stage.hears(member), ["PUBLISH t qos 2 id 1: gone"]);
}

/// Bug 1 of other brokers.
/// Holds 5.0: 4.3.3-10, 4.3.3-12.
/// Holds 3.1.1: 4.3.3-2.
#[test]
fn mqtt_4_3_3_a_repeat_before_pubrel_is_answered_and_not_delivered_again() {
    for version in [V5, V311] {
        let mut stage = Stage::default();
        let watcher = stage.client(V5, "watcher");
        stage.subscribe(watcher, "t", QOS_0);
        let (client, _) = returns(&mut stage, version, 9);
        stage.publish(client, "t", QOS_2, 7, "x");
        for round in 0..5 {
            repeat(&mut stage, client, QOS_2, 7, "x");
            stage.wait(3_600_000 * round);
        }
        stage.publish(client, "t", QOS_2, 7, "without DUP");
        assert_eq!(stage.hears(client), ["PUBREC 7"; 7]);
        stage.hang_up(client);
        let (client, _) = returns(&mut stage, version, 9);
        repeat(&mut stage, client, QOS_2, 7, "x");
        assert_eq!(stage.hears(client), ["PUBREC 7"]);
        assert_eq!(stage.hears(watcher), ["PUBLISH t qos 0: x"]);
        stage.send(client, &Packet::Pubrel(ack(7)));
        stage.publish(client, "t", QOS_2, 7, "another");
        assert_eq!(stage.hears(client), ["PUBCOMP 7", "PUBREC 7"]);
        assert_eq!(stage.hears(watcher), ["PUBLISH t qos 0: another"]);
    }
}

/// 0x92 is no error during recovery (3.7.2.1), but some clients take it for one.
#[test]
fn mqtt_4_4_a_pubrel_that_is_sent_again_has_had_its_effect() {
    let mut stage = Stage::default();
    let (client, _) = returns(&mut stage, V5, 9);
    stage.publish(client, "t", QOS_2, 7, "x");
    stage.send(client, &Packet::Pubrel(ack(7)));
    assert_eq!(stage.hears(client), ["PUBREC 7", "PUBCOMP 7"]);
    stage.hang_up(client);
    let (client, _) = returns(&mut stage, V5, 9);
    stage.send(client, &Packet::Pubrel(ack(7)));
    assert_eq!(stage.hears(client), ["PUBCOMP 7"]);
    stage.publish(client, "$SYS/x", QOS_2, 8, "x");
    stage.send(client, &Packet::Pubrel(ack(8)));
    let heard = stage.hears(client);
    assert_eq!(heard[1], "PUBCOMP 8 0x92", "that was refused: {heard:?}");
}

#[test]
fn mqtt_4_3_3_pubrec_waits_for_the_disk_once_and_for_every_repeat() {
    let mut stage = Stage::default();
    stage.switchboard.bind(1, 1, &["t"], "topic").unwrap();
    let (client, _) = returns(&mut stage, V5, 9);
    stage.publish(client, "t", QOS_2, 7, "x");
    repeat(&mut stage, client, QOS_2, 7, "x");
    stage.hang_up(client);
    let (client, _) = returns(&mut stage, V5, 9);
    repeat(&mut stage, client, QOS_2, 7, "x");
    stage.send(client, &Packet::Pubrel(ack(7)));
    assert_eq!(stage.hears(client), ["PUBCOMP 7 0x92"], "not released yet");
    stage.durable(true);
    assert_eq!(stage.hears(client), ["PUBREC 7"]);
    assert_eq!(stage.appends.len(), 0, "stored once");
}

#[test]
fn a_publish_that_was_stored_while_its_client_was_away_is_answered_when_it_asks() {
    let mut stage = Stage::default();
    stage.switchboard.bind(1, 1, &["t"], "topic").unwrap();
    let (client, _) = returns(&mut stage, V5, 9);
    stage.publish(client, "t", QOS_2, 7, "x");
    stage.hang_up(client);
    stage.durable(true);
    let (client, heard) = returns(&mut stage, V5, 9);
    assert_eq!(heard, [""; 0]);
    repeat(&mut stage, client, QOS_2, 7, "x");
    assert_eq!(stage.hears(client), ["PUBREC 7"]);
}

/// Holds 5.0: 4.3.3-9.
/// Holds 3.1.1: 4.8.0-2.
#[test]
fn mqtt_3_5_2_1_a_publish_that_could_not_be_stored_is_refused_and_its_id_is_free() {
    let mut stage = Stage::default();
    stage.switchboard.bind(1, 1, &["t"], "topic").unwrap();
    let (client, _) = returns(&mut stage, V5, 9);
    stage.publish(client, "t", QOS_2, 7, "x");
    stage.publish(client, "$SYS/x", QOS_2, 8, "x");
    stage.durable(false);
    let heard = stage.hears(client);
    assert!(heard[0].starts_with("PUBREC 7 0x80"), "{heard:?}");
    assert!(heard[1].starts_with("PUBREC 8 0x87"), "{heard:?}");
    // A client that reads no reason code in PUBREC goes on, and must not hear of a success.
    stage.send(client, &Packet::Pubrel(ack(8)));
    assert_eq!(stage.hears(client), ["PUBCOMP 8 0x92"]);
    stage.publish(client, "t", QOS_2, 7, "x");
    stage.durable(true);
    assert_eq!(stage.hears(client), ["PUBREC 7"]);
    let (three, _) = returns(&mut stage, V311, 0);
    stage.publish(three, "t", QOS_2, 9, "x");
    stage.durable(false);
    assert_eq!(stage.hears(three), ["closed: not_stored"]);
    let (three, _) = returns(&mut stage, V311, 0);
    repeat(&mut stage, three, QOS_2, 9, "x");
    stage.durable(true);
    assert_eq!(stage.hears(three), ["PUBREC 9"]);
}

#[test]
fn mqtt_3_6_2_1_pubrel_and_pubrec_of_an_unknown_id() {
    let mut stage = Stage::default();
    let five = stage.client(V5, "five");
    let three = stage.client(V311, "three");
    for client in [five, three] {
        stage.send(client, &Packet::Pubrel(ack(5)));
        stage.send(client, &Packet::Pubrec(ack(6)));
        stage.send(client, &Packet::Pubcomp(ack(7)));
        assert_eq!(stage.hears(client), ["PUBCOMP 5", "PUBREL 6"]);
    }
    stage.send(five, &Packet::Pubrec(refusal(8)));
    assert_eq!(stage.hears(five), [""; 0]);
    assert_eq!(stage.statistic("mqtt_unknown_acks_total"), 5);
}

/// Holds 5.0: 4.13.1-1.
#[test]
fn mqtt_4_13_1_an_acknowledgement_of_the_wrong_kind_is_a_protocol_error() {
    let wrong = [
        Packet::Puback(ack(2)),
        Packet::Pubcomp(ack(2)),
        Packet::Pubcomp(ack(1)),
        Packet::Pubrec(ack(1)),
        Packet::Puback(ack(3)),
    ];
    for packet in wrong {
        let mut stage = Stage::default();
        let client = stage.client(V5, "a");
        stage.subscribe(client, "t", QOS_2);
        stage.publish(client, "t", QOS_1, 1, "one");
        stage.publish(client, "t", QOS_2, 2, "two");
        stage.publish(client, "t", QOS_2, 3, "three");
        stage.send(client, &Packet::Pubrec(ack(3)));
        stage.hears(client);
        stage.send(client, &packet);
        let expected = ["DISCONNECT 0x82", "closed: protocol_error"];
        assert_eq!(stage.hears(client), expected, "{packet:?}");
    }
}

/// Bug 2 of other brokers: 0x93, never 0x97.
/// Holds 5.0: 3.3.4-7.
#[test]
fn mqtt_3_3_4_9_what_is_not_released_counts_to_the_receive_maximum() {
    let mut stage = Stage::new(Limits {
        receive_max: 3,
        ..Limits::default()
    });
    let (client, _) = returns(&mut stage, V5, 9);
    for packet_id in 1..=3 {
        stage.publish(client, "t", QOS_2, packet_id, "x");
    }
    repeat(&mut stage, client, QOS_2, 2, "x");
    stage.send(client, &Packet::Pubrel(ack(2)));
    stage.publish(client, "t", QOS_2, 4, "x");
    assert_eq!(stage.hears(client).len(), 6, "a repeat takes no place");
    stage.publish(client, "t", QOS_1, 5, "x");
    assert_eq!(
        stage.hears(client),
        ["DISCONNECT 0x93", "closed: receive_maximum_exceeded"]
    );
    // The next connection counts anew (4.9): what it publishes, and publishes again.
    let (client, _) = returns(&mut stage, V5, 9);
    for packet_id in [1, 3] {
        repeat(&mut stage, client, QOS_2, packet_id, "x");
    }
    stage.publish(client, "t", QOS_2, 6, "x");
    assert_eq!(stage.hears(client).len(), 3);
    repeat(&mut stage, client, QOS_2, 4, "x");
    assert_eq!(
        stage.hears(client),
        ["DISCONNECT 0x93", "closed: receive_maximum_exceeded"]
    );
}

#[test]
fn a_client_of_3_1_1_is_read_on_though_it_has_not_released_many() {
    let mut stage = Stage::new(Limits {
        receive_max: 3,
        ..Limits::default()
    });
    let client = stage.client(V311, "a");
    for packet_id in 1..=48 {
        stage.publish(client, "t", QOS_2, packet_id, "x");
    }
    assert_eq!(stage.hears(client).len(), 48);
    assert_ne!(stage.reads.get(&client), Some(&false));
}

/// The exchange of a message to a client with a Receive Maximum of 1 (bug: mosquitto#1332).
#[test]
fn mqtt_4_9_a_window_of_one_moves_on_at_qos_2() {
    let mut stage = Stage::default();
    let (client, _) = returns(&mut stage, V5, 1);
    stage.subscribe(client, "t", QOS_2);
    let publisher = stage.client(V5, "publisher");
    for packet_id in 1..=3 {
        stage.publish(publisher, "t", QOS_2, packet_id, &packet_id.to_string());
    }
    for packet_id in 1..=3 {
        let expected = format!("PUBLISH t qos 2 id {packet_id}: {packet_id}");
        assert_eq!(stage.hears(client), [expected]);
        if packet_id == 2 {
            stage.send(client, &Packet::Pubrec(refusal(packet_id)));
            continue;
        }
        stage.send(client, &Packet::Pubrec(ack(packet_id)));
        assert_eq!(stage.hears(client), [format!("PUBREL {packet_id}")]);
        stage.send(client, &Packet::Pubcomp(ack(packet_id)));
    }
    assert_eq!(stage.statistic("mqtt_outbound_in_flight"), 0);
}

/// Holds 5.0: 4.4.0-2.
#[test]
fn mqtt_3_4_2_1_a_client_may_refuse_a_message() {
    let mut stage = Stage::default();
    let (client, _) = returns(&mut stage, V5, 9);
    stage.subscribe(client, "t", QOS_2);
    stage.publish(client, "t", QOS_1, 1, "one");
    stage.publish(client, "t", QOS_2, 2, "two");
    stage.send(client, &Packet::Puback(refusal(1)));
    stage.send(client, &Packet::Pubrec(refusal(2)));
    stage.hang_up(client);
    assert_eq!(returns(&mut stage, V5, 9).1, [""; 0]);
}

/// Holds 5.0: 3.3.1-1, 4.3.2-3, 4.3.3-3, 4.3.3-5, 4.3.3-6, 4.4.0-1, 4.6.0-1, 4.6.0-4.
/// Holds 3.1.1: 3.3.1-1, 4.3.2-1, 4.3.3-1, 4.4.0-1, 4.6.0-1, 4.6.0-4.
#[test]
fn mqtt_4_4_what_is_not_acknowledged_is_sent_again_in_order_with_dup() {
    for version in [V5, V311] {
        let mut stage = Stage::default();
        let (client, _) = returns(&mut stage, version, 9);
        stage.subscribe(client, "t", QOS_2);
        let publisher = stage.client(V5, "publisher");
        for (packet_id, qos) in (1..).zip([QOS_1, QOS_2, QOS_2, QOS_1, QOS_2]) {
            stage.publish(publisher, "t", qos, packet_id, &packet_id.to_string());
        }
        stage.send(client, &Packet::Pubrec(ack(5)));
        stage.send(client, &Packet::Pubrec(ack(2)));
        stage.send(client, &Packet::Puback(ack(1)));
        assert_eq!(stage.hears(client)[5..], ["PUBREL 5", "PUBREL 2"]);
        stage.hang_up(client);
        stage.publish(publisher, "t", QOS_1, 6, "6");
        let expected = [
            "PUBREL 5",
            "PUBREL 2",
            "PUBLISH t qos 2 id 3 dup: 3",
            "PUBLISH t qos 1 id 4 dup: 4",
            "PUBLISH t qos 1 id 6: 6",
        ];
        let (client, heard) = returns(&mut stage, version, 9);
        assert_eq!(heard, expected);
        stage.hang_up(client);
        // The last has been sent by now.
        let (client, heard) = returns(&mut stage, version, 9);
        assert_eq!(heard[..4], expected[..4]);
        assert_eq!(heard[4..], ["PUBLISH t qos 1 id 6 dup: 6"]);
        for packet_id in [5, 2] {
            stage.send(client, &Packet::Pubcomp(ack(packet_id)));
        }
        for packet_id in [4, 6] {
            stage.send(client, &Packet::Puback(ack(packet_id)));
        }
        stage.send(client, &Packet::Pubrec(ack(3)));
        stage.send(client, &Packet::Pubcomp(ack(3)));
        assert_eq!(stage.statistic("mqtt_outbound_in_flight"), 0);
        stage.hang_up(client);
        assert_eq!(returns(&mut stage, version, 9).1, [""; 0]);
    }
}

/// Bug 3 of other brokers: the quota is that of the new connection.
/// Holds 5.0: 4.9.0-1, 4.9.0-2.
#[test]
fn mqtt_4_9_the_send_quota_starts_anew_with_a_connection() {
    for (before, after) in [(1, 4), (4, 1), (2, 2)] {
        let mut stage = Stage::default();
        let (client, _) = returns(&mut stage, V5, before);
        stage.subscribe(client, "t", QOS_1);
        let publisher = stage.client(V5, "publisher");
        for packet_id in 1..=10 {
            stage.publish(publisher, "t", QOS_1, packet_id, &packet_id.to_string());
        }
        assert_eq!(stage.hears(client).len(), usize::from(before));
        stage.hang_up(client);
        let (client, mut heard) = returns(&mut stage, V5, after);
        let mut seen = Vec::new();
        while !heard.is_empty() {
            assert!(heard.len() <= usize::from(after), "its Receive Maximum");
            for line in heard {
                let packet_id = line.split(' ').nth(5).unwrap().trim_end_matches(':');
                seen.push(line.rsplit(' ').next().unwrap().to_owned());
                let packet_id = packet_id.parse().unwrap();
                stage.send(client, &Packet::Puback(ack(packet_id)));
            }
            heard = stage.hears(client);
        }
        let expected: Vec<String> = (1..=10).map(|number: u16| number.to_string()).collect();
        assert_eq!(seen, expected, "all, in order");
    }
}

#[test]
fn a_second_connection_acknowledges_what_the_first_was_sent() {
    let mut stage = Stage::default();
    let (client, _) = returns(&mut stage, V5, 9);
    stage.subscribe(client, "t", QOS_2);
    stage.publish(client, "t", QOS_2, 1, "x");
    stage.hang_up(client);
    let (client, heard) = returns(&mut stage, V5, 9);
    assert_eq!(heard, ["PUBLISH t qos 2 id 1 dup: x"]);
    // A second PUBREC is answered like the first.
    for _ in 0..2 {
        stage.send(client, &Packet::Pubrec(ack(1)));
        assert_eq!(stage.hears(client), ["PUBREL 1"]);
    }
}

#[test]
fn a_session_that_ends_with_its_connection_keeps_no_messages() {
    let mut stage = Stage::default();
    let client = stage.client(V5, "a");
    stage.subscribe(client, "t", QOS_2);
    stage.publish(client, "t", QOS_2, 1, "x");
    assert_eq!(stage.statistic("mqtt_outbound_in_flight"), 1);
    assert_eq!(stage.statistic("mqtt_outbound_kept_bytes"), 0);
    let (kept, _) = returns(&mut stage, V5, 9);
    stage.subscribe(kept, "t", QOS_2);
    stage.publish(kept, "t", QOS_2, 1, "x");
    assert!(stage.statistic("mqtt_outbound_kept_bytes") > 0);
    stage.send(kept, &Packet::Pubrec(ack(1)));
    assert_eq!(stage.statistic("mqtt_outbound_kept_bytes"), 0);
}
