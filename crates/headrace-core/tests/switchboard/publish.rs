//! PUBLISH in: what is refused, and PUBACK (MQTT 5.0 3.3, 3.4, 4.3).

use headrace_core::mqtt::packet::{Packet, Publish, Subscribe, SubscriptionRequest, Unsubscribe};
use headrace_core::switchboard::Limits;

use super::stage::*;

/// What a client hears after one PUBLISH.
fn refused(version: Version, publish: Publish<'_>) -> Vec<String> {
    let mut stage = Stage::default();
    stage.switchboard.bind(1, 1, &["#"], "topic").unwrap();
    let watcher = stage.client(V5, "watcher");
    stage.subscribe(watcher, "#", QOS_0);
    let client = stage.client(version, "client");
    stage.send(client, &Packet::Publish(publish));
    assert_eq!(stage.hears(watcher), [""; 0], "nothing is delivered");
    assert_eq!(stage.appends.len(), 0, "nothing is stored");
    stage.hears(client)
}

#[test]
fn what_is_not_served_of_a_publish_is_refused_with_its_reason() {
    let text = PublishProperties {
        payload_format: Some(1),
        ..PublishProperties::default()
    };
    let id = PublishProperties {
        subscription_ids: vec![1],
        ..PublishProperties::default()
    };
    let plain = || Publish {
        topic: "a",
        ..Publish::default()
    };
    for (code, label, publish) in [
        (
            0x82,
            "protocol_error",
            Publish {
                properties: id,
                ..plain()
            },
        ),
        (
            0x99,
            "payload_format_invalid",
            Publish {
                properties: text,
                payload: b"\xFF",
                ..plain()
            },
        ),
    ] {
        let answer = [
            format!("DISCONNECT {code:#04x}"),
            format!("closed: {label}"),
        ];
        assert_eq!(refused(V5, publish), answer);
    }
}

/// Holds 5.0: 3.3.2-2, 4.7.3-2.
/// Holds 3.1.1: 3.3.2-2, 4.7.1-1, 4.7.3-2.
#[test]
fn mqtt_4_7_topics_that_are_none_are_refused() {
    for topic in ["a/+", "#", "a\u{0}b"] {
        let heard = refused(
            V5,
            Publish {
                topic,
                ..Publish::default()
            },
        );
        assert!(heard[0].starts_with("DISCONNECT 0x"), "{topic}: {heard:?}");
        let heard = refused(
            V311,
            Publish {
                topic,
                ..Publish::default()
            },
        );
        assert_eq!(heard.len(), 1, "{topic}: {heard:?}");
    }
}

/// Holds 3.1.1: 3.3.5-2.
#[test]
fn topics_that_begin_with_a_dollar_are_the_brokers() {
    let publish = |qos, packet_id| Publish {
        topic: "$SYS/a",
        qos,
        packet_id,
        ..Publish::default()
    };
    assert_eq!(refused(V5, publish(QOS_1, 7)), ["PUBACK 7 0x87"]);
    assert_eq!(refused(V5, publish(QOS_0, 0)), [""; 0]);
    assert_eq!(refused(V311, publish(QOS_1, 7)), ["PUBACK 7"]);
}

/// Holds 5.0: 3.1.2-29.
#[test]
fn mqtt_3_1_2_11_7_no_reason_string_for_who_wants_none() {
    let mut stage = Stage::default();
    let client = stage.client_with(headrace_core::mqtt::packet::Connect {
        client_id: "terse",
        request_problem_information: Some(false),
        ..plain(V5)
    });
    stage.switchboard.bind(1, 1, &["a"], "topic").unwrap();
    stage.publish(client, "a", QOS_1, 7, "");
    stage.durable(false);
    assert_eq!(stage.hears(client), ["PUBACK 7 0x80"]);
}

/// Holds 5.0: 3.2.2-15.
#[test]
fn mqtt_3_2_2_3_6_a_packet_above_the_maximum_is_refused_before_its_body() {
    for (version, answer) in [
        (V5, &["DISCONNECT 0x95", "closed: packet_too_large"][..]),
        (V311, &["closed: packet_too_large"]),
    ] {
        let mut stage = Stage::default();
        let client = stage.client(version, "a");
        stage.send_bytes(client, &[0x30, 0x80, 0x80, 0x80, 0x01]);
        assert_eq!(stage.hears(client), answer);
    }
}

/// Holds 5.0: 2.2.1-5, 3.3.4-1, 4.3.2-4.
/// Holds 3.1.1: 2.3.1-6, 3.3.4-1, 4.3.2-2.
#[test]
fn mqtt_3_4_2_1_puback_says_when_nobody_wanted_it() {
    let mut stage = Stage::default();
    let five = stage.client(V5, "five");
    let three = stage.client(V311, "three");
    stage.publish(five, "a", QOS_1, 1, "x");
    stage.publish(three, "a", QOS_1, 2, "x");
    assert_eq!(stage.hears(five), ["PUBACK 1 0x10"]);
    let unmatched = "mqtt_messages_dropped_total{reason=\"no_match\"}";
    assert_eq!(stage.statistic(unmatched), 2);
    assert_eq!(stage.raw(three), [0x40, 2, 0, 2]);
    stage.subscribe(three, "a", QOS_0);
    stage.publish(five, "a", QOS_1, 3, "x");
    assert_eq!(stage.hears(five), ["PUBACK 3"]);
}

/// Holds 5.0: 3.3.4-7, 4.13.1-1.
#[test]
fn mqtt_3_3_4_9_more_than_the_receive_maximum_ends_a_connection_of_5_0() {
    let mut stage = Stage::new(Limits {
        receive_max: 3,
        ..Limits::default()
    });
    stage.switchboard.bind(1, 1, &["a"], "topic").unwrap();
    let client = stage.client(V5, "a");
    for packet_id in 1..=3 {
        stage.publish(client, "a", QOS_1, packet_id, "x");
    }
    assert_eq!(stage.hears(client), [""; 0]);
    stage.publish(client, "a", QOS_1, 4, "x");
    assert_eq!(
        stage.hears(client),
        ["DISCONNECT 0x93", "closed: receive_maximum_exceeded"]
    );
    // What was taken is stored all the same.
    assert_eq!(stage.appends.len(), 3);
    for _ in 0..3 {
        stage.durable(true);
    }
    assert_eq!(stage.statistic("mqtt_undurable_bytes"), 0);
}

#[test]
fn a_client_of_3_1_1_is_read_no_further_instead() {
    let mut stage = Stage::new(Limits {
        receive_max: 3,
        ..Limits::default()
    });
    stage.switchboard.bind(1, 1, &["a"], "topic").unwrap();
    let client = stage.client(V311, "a");
    let publish = |packet_id| {
        Packet::Publish(Publish {
            topic: "a",
            qos: QOS_1,
            packet_id,
            ..Publish::default()
        })
    };
    let bytes: Vec<u8> = (1..=9)
        .flat_map(|packet_id| stage.bytes(client, &publish(packet_id)))
        .collect();
    stage.send_bytes(client, &bytes);
    stage.send(client, &Packet::Pingreq);
    assert_eq!(stage.reads.get(&client), Some(&false));
    assert_eq!(stage.hears(client), [""; 0]);
    stage.durable(true);
    assert_eq!(stage.hears(client), ["PUBACK 1", "PUBACK 2", "PUBACK 3"]);
    assert_eq!(stage.reads.get(&client), Some(&false), "three more wait");
    stage.durable(true);
    stage.durable(true);
    let expected: Vec<String> = (4..=9).map(|id| format!("PUBACK {id}")).collect();
    let mut heard = stage.hears(client);
    let ping = heard.iter().position(|line| line == "PINGRESP").unwrap();
    heard.remove(ping);
    assert_eq!(heard, expected);
    assert_eq!(stage.reads.get(&client), Some(&true));
}

#[test]
fn however_the_bytes_are_cut_the_packets_are_the_same() {
    let transcript = |cuts: &[usize]| {
        let mut stage = Stage::default();
        let client = stage.client(V5, "a");
        stage.subscribe(client, "#", QOS_1);
        let mut bytes = Vec::new();
        for (packet_id, payload) in [
            (1, "one".to_owned()),
            (2, "2".repeat(300)),
            (3, String::new()),
        ] {
            let publish = Publish {
                topic: "a/b",
                qos: QOS_1,
                packet_id,
                payload: payload.as_bytes(),
                ..Publish::default()
            };
            bytes.extend(stage.bytes(client, &Packet::Publish(publish)));
            bytes.extend(stage.bytes(client, &Packet::Pingreq));
        }
        let mut from = 0;
        for cut in cuts.iter().copied().chain([bytes.len()]) {
            stage.send_bytes(client, &bytes[from..cut.min(bytes.len())]);
            from = cut.min(bytes.len());
        }
        stage.hears(client)
    };
    let expected = transcript(&[]);
    assert_eq!(expected.len(), 9);
    for first in 1..340 {
        assert_eq!(transcript(&[first]), expected, "cut at {first}");
        assert_eq!(transcript(&[first, first + 1, first + 3]), expected);
    }
    let every: Vec<usize> = (1..340).collect();
    assert_eq!(transcript(&every), expected, "byte by byte");
}

/// What came in one read may match millions of subscriptions, or nearly: others are served in
/// between.
#[test]
fn a_flood_that_many_subscriptions_match_leaves_others_their_turn() {
    for (end, delivered) in [("", 1_000), ("/more", 0)] {
        let mut stage = Stage::default();
        let listener = stage.client(V5, "listener");
        for bits in 0..512 {
            let levels: Vec<_> = (0..9).map(|at| ["a", "+"][bits >> at & 1]).collect();
            stage.subscribe(listener, &(levels.join("/") + end), QOS_0);
        }
        let flood = stage.client(V5, "flood");
        let publish = Packet::Publish(Publish {
            topic: "a/a/a/a/a/a/a/a/a",
            ..Publish::default()
        });
        // What comes behind another packet is looked for anew.
        let flow = [publish, Packet::Pingreq].map(|packet| stage.bytes(flood, &packet));
        let flow = flow.concat().repeat(1_000);
        stage.switchboard.receive(flood, &flow, stage.now).unwrap();
        let received = "mqtt_messages_received_total";
        let taken = stage.statistic(received);
        assert!((10..30).contains(&taken), "1,000 places each: {taken}");
        let other = stage.client(V5, "other");
        stage.publish(other, "elsewhere", QOS_1, 1, "");
        assert_eq!(stage.hears(other), ["PUBACK 1 0x10"]);
        while stage.statistic(received) < 1_001 {
            assert_eq!(stage.wake_at, Some(stage.now.mono_ms), "it goes on");
            stage.run();
        }
        assert_eq!(stage.hears(listener).len(), delivered);
    }
}

/// What the publisher and a watcher hear, where packets come one by one or in one read.
fn heard(packets: &[&Packet<'_>], is_one_read: bool) -> [Vec<String>; 2] {
    let mut stage = Stage::default();
    stage.switchboard.bind(1, 1, &["s"], "topic").unwrap();
    let watcher = stage.client(V5, "watcher");
    stage.subscribe(watcher, "+", QOS_1);
    let client = stage.client(V5, "client");
    let packets = packets.iter().map(|packet| stage.bytes(client, packet));
    let packets: Vec<Vec<u8>> = packets.collect();
    if is_one_read {
        stage.send_bytes(client, &packets.concat());
    } else {
        for packet in &packets {
            stage.send_bytes(client, packet);
        }
    }
    while !stage.appends.is_empty() {
        stage.durable(true);
    }
    [stage.hears(client), stage.hears(watcher)]
}

#[test]
fn what_comes_in_one_read_goes_where_it_goes_alone() {
    let publish = |topic, qos, retain| {
        Packet::Publish(Publish {
            topic,
            qos,
            retain,
            packet_id: u16::from(qos != QOS_0),
            ..Publish::default()
        })
    };
    let no_local = SubscriptionRequest {
        no_local: true,
        ..request("a", QOS_0)
    };
    let subscribe = |request| {
        Packet::Subscribe(Subscribe {
            packet_id: 2,
            filters: vec![request],
            ..Subscribe::default()
        })
    };
    let kinds = [
        publish("a", QOS_0, false),
        publish("a", QOS_0, true),
        publish("a", QOS_1, false),
        publish("b", QOS_0, false),
        publish("s", QOS_0, false),
        publish("$queue/none", QOS_0, false),
        subscribe(request("a", QOS_0)),
        subscribe(no_local),
        Packet::Unsubscribe(Unsubscribe {
            packet_id: 3,
            filters: vec!["a"],
            ..Unsubscribe::default()
        }),
    ];
    for [first, second, third] in
        (0..kinds.len().pow(3)).map(|at| [at / 81, at / 9 % 9, at % 9].map(|kind| &kinds[kind]))
    {
        let packets = [first, second, &kinds[0], third, &kinds[0]];
        let alone = heard(&packets, false);
        assert!(alone[1].len() >= 2, "{alone:?}");
        assert_eq!(heard(&packets, true), alone, "{packets:?}");
    }
}
