//! Topic aliases (MQTT 5.0 3.1.2.11.5, 3.2.2.3.8, 3.3.2.3.4).

use headrace_core::mqtt::packet::{Connect, Packet};
use headrace_core::switchboard::{Limits, ALIASES_OUT_MAX, ALIAS_BYTES_MAX};

use super::stage::*;

fn alias(alias: u16) -> PublishProperties<'static> {
    PublishProperties {
        topic_alias: Some(alias),
        ..PublishProperties::default()
    }
}

fn allowing(client_id: &str, topic_alias_maximum: u16) -> Connect<'_> {
    Connect {
        client_id,
        topic_alias_maximum: Some(topic_alias_maximum),
        ..plain(V5)
    }
}

#[test]
fn mqtt_3_3_2_3_4_an_alias_stands_for_the_topic_that_it_was_set_for_last() {
    let mut stage = Stage::default();
    let (publisher, client) = (stage.client(V5, "p"), stage.client(V311, "c"));
    stage.subscribe(client, "#", QOS_1);
    for (topic, number, payload) in [
        ("a", 1, "1"),
        ("", 1, "2"),
        ("b", 32, "3"),
        ("", 1, "4"),
        ("c", 1, "5"),
        ("", 1, "6"),
        ("", 32, "7"),
    ] {
        stage.publish_with(publisher, topic, QOS_0, 0, payload, alias(number));
    }
    let heard = stage.hears(client);
    let topics: Vec<&str> = heard.iter().map(|line| &line[8..9]).collect();
    assert_eq!(topics, ["a", "a", "b", "a", "c", "c", "b"]);
}

#[test]
fn what_an_alias_names_is_stored_retained_and_shared_under_its_topic() {
    let mut stage = Stage::default();
    stage.switchboard.bind(1, 1, &["t/#"], "topic").unwrap();
    let publisher = stage.client(V5, "p");
    let member = stage.client(V5, "m");
    stage.subscribe(member, "$share/g/t/+", QOS_1);
    stage.publish_with(publisher, "t/1", QOS_0, 0, "x", alias(1));
    for qos in [QOS_1, QOS_2] {
        stage.retain_with(publisher, "", qos, "y", alias(1));
    }
    while !stage.appends.is_empty() {
        stage.durable(true);
    }
    let heard = stage.hears(member);
    assert_eq!(heard.len(), 3);
    assert!(
        heard.iter().all(|line| line.starts_with("PUBLISH t/1 ")),
        "{heard:?}"
    );
    let late = stage.client(V5, "late");
    stage.subscribe_with(late, request("t/1", QOS_0));
    assert_eq!(stage.hears(late)[1..], ["PUBLISH t/1 qos 0 retain: y"]);
}

/// Holds 5.0: 3.2.2-17, 3.2.2-18, 3.3.2-8, 3.3.2-9, 3.3.2-12.
#[test]
fn mqtt_3_3_2_8_9_an_alias_of_0_or_beyond_the_maximum_ends_the_connection() {
    for (topic_alias_max, number, is_good) in [
        (32, 0, false),
        (32, 32, true),
        (32, 33, false),
        (0, 1, false),
        (u16::MAX, u16::MAX, true),
    ] {
        let mut stage = Stage::new(Limits {
            topic_alias_max,
            ..Limits::default()
        });
        let client = stage.client(V5, "a");
        stage.publish_with(client, "t", QOS_0, 0, "x", alias(number));
        let refused = ["DISCONNECT 0x94", "closed: topic_alias_invalid"];
        let expected = if is_good { &[][..] } else { &refused[..] };
        assert_eq!(
            stage.hears(client),
            expected,
            "{number} of {topic_alias_max}"
        );
    }
}

/// Holds 5.0: 3.3.2-7.
#[test]
fn mqtt_3_3_4_an_alias_that_was_not_set_is_a_protocol_error_also_on_the_next_connection() {
    let mut stage = Stage::default();
    let client = stage.client(V5, "a");
    stage.publish_with(client, "t", QOS_0, 0, "x", alias(1));
    let client = stage.client(V5, "a");
    stage.publish_with(client, "", QOS_0, 0, "x", alias(1));
    assert_eq!(
        stage.hears(client),
        ["DISCONNECT 0x82", "closed: protocol_error"]
    );
}

#[test]
fn the_topics_that_a_client_gives_aliases_are_bounded_in_bytes() {
    let mut stage = Stage::default();
    let client = stage.client(V5, "a");
    let topic = "x".repeat(ALIAS_BYTES_MAX / 4);
    for number in [1, 2, 3, 4, 4, 1] {
        stage.publish_with(client, &topic, QOS_0, 0, "x", alias(number));
    }
    assert_eq!(stage.hears(client), [""; 0]);
    stage.publish_with(client, "more", QOS_0, 0, "x", alias(5));
    let refused = ["DISCONNECT 0x97", "closed: topic_aliases_full"];
    assert_eq!(stage.hears(client), refused);
}

/// Holds 5.0: 3.1.2-26, 3.1.2-27, 3.3.2-11.
#[test]
fn mqtt_3_1_2_26_27_the_broker_keeps_to_the_clients_maximum() {
    for (allowed, expected) in [
        (
            0,
            [
                "PUBLISH t/1 qos 0: x",
                "PUBLISH t/1 qos 0: x",
                "PUBLISH t/2 qos 0: x",
                "PUBLISH t/1 qos 0: x",
            ],
        ),
        (
            1,
            [
                "PUBLISH t/1 qos 0: x alias 1",
                "PUBLISH  qos 0: x alias 1",
                "PUBLISH t/2 qos 0: x alias 1",
                "PUBLISH t/1 qos 0: x alias 1",
            ],
        ),
        (
            2,
            [
                "PUBLISH t/1 qos 0: x alias 1",
                "PUBLISH  qos 0: x alias 1",
                "PUBLISH t/2 qos 0: x alias 2",
                "PUBLISH  qos 0: x alias 1",
            ],
        ),
    ] {
        let mut stage = Stage::default();
        let publisher = stage.client(V5, "p");
        let client = stage.client_with(allowing("c", allowed));
        stage.subscribe(client, "#", QOS_0);
        for topic in ["a/topic/1", "a/topic/1", "a/topic/2", "a/topic/1"] {
            stage.publish(publisher, topic, QOS_0, 0, "x");
        }
        let expected = expected.map(|line| line.replace("t/", "a/topic/"));
        assert_eq!(stage.hears(client), expected, "{allowed}");
    }
}

#[test]
fn aliases_go_with_everything_else_that_a_copy_has() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    let client = stage.client_with(Connect {
        receive_maximum: Some(2),
        ..allowing("c", u16::MAX)
    });
    stage.subscribe_as(client, Some(300), request("#", QOS_1));
    stage.hears(client);
    let text = "x".repeat(118);
    let mut properties = user(&[("a", &text)]);
    properties.message_expiry = Some(60);
    let payload = "y".repeat(20_000);
    let mut heard = Vec::new();
    for number in 1..=100 {
        let topic = format!("some/topic/{}", number % 40);
        stage.publish_with(
            publisher,
            &topic,
            QOS_1,
            number,
            &payload,
            properties.clone(),
        );
        for line in stage.hears(client) {
            heard.push(line);
        }
        stage.acknowledge(client, number);
    }
    for id in 1..=100 {
        stage.acknowledge(client, id);
        heard.extend(stage.hears(client));
    }
    assert_eq!(heard.len(), 100);
    for line in &heard {
        assert!(line.contains("(20000 bytes)") && line.contains("ids [300] expiry 60"));
        let alias = line.split(" alias ").nth(1).unwrap();
        let alias: u16 = alias.split(' ').next().unwrap().parse().unwrap();
        assert!((1..=ALIASES_OUT_MAX).contains(&alias));
    }
}

#[test]
fn an_alias_makes_no_packet_larger_than_the_client_takes() {
    for room in 0..12 {
        let mut stage = Stage::default();
        let publisher = stage.client(V5, "p");
        let publish = headrace_core::mqtt::packet::Publish {
            topic: "a/long/topic",
            payload: &[b'x'; 105],
            ..Default::default()
        };
        let bytes = stage.bytes(publisher, &Packet::Publish(publish)).len() as u32;
        let client = stage.client_with(Connect {
            maximum_packet_size: Some(bytes + room),
            ..allowing("c", 10)
        });
        stage.subscribe(client, "#", QOS_0);
        for _ in 0..2 {
            stage.publish(publisher, "a/long/topic", QOS_0, 0, &"x".repeat(105));
            let packet = stage.raw(client);
            assert!(
                (1..=(bytes + room) as usize).contains(&packet.len()),
                "{room}"
            );
        }
    }
}
