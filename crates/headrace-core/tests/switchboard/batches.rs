//! What of a publish a stream is given: record, key, partition, batch.

use headrace_core::mqtt::packet::{Packet, Publish};
use headrace_core::record::{partition_of, Batches, Codec};
use headrace_core::switchboard::{Append, Error, BATCH_BYTES_MAX};

use super::stage::*;
use super::store::{records, stage_with_stream, values};

#[test]
fn a_record_holds_topic_payload_time_and_all_properties_in_order() {
    let (mut stage, client) = stage_with_stream();
    let properties = PublishProperties {
        payload_format: Some(1),
        message_expiry: Some(60),
        content_type: Some("application/json"),
        response_topic: Some("reply"),
        correlation_data: Some(b"7"),
        user: vec![("z", "1"), ("source", "x"), ("z", "2")],
        ..PublishProperties::default()
    };
    stage.publish_with(client, "a/b", QOS_1, 1, "value", properties);
    let headers = [
        ("mqtt.topic", "a/b"),
        ("mqtt.content-type", "application/json"),
        ("mqtt.response-topic", "reply"),
        ("mqtt.correlation-data", "7"),
        ("mqtt.payload-format-indicator", "1"),
        ("mqtt.message-expiry-interval", "60"),
        ("z", "1"),
        ("source", "x"),
        ("z", "2"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let expected = (Some("a/b".to_owned()), "value".to_owned(), headers.to_vec());
    assert_eq!(records(&stage.appends[0]), [expected]);
    let batch = Batches::new(&stage.appends[0].batch)
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(batch.header.base_timestamp, stage.now.wall_ms);
    assert_eq!(batch.header.base_offset, 0);
}

#[test]
fn the_key_rule_decides_key_and_partition() {
    let topic = "dcgm/host/uuid/power";
    let property = user(&[("rack", "r7"), ("rack", "r8")]);
    for (rule, key) in [
        ("topic", Some(topic)),
        ("level:1", Some("dcgm")),
        ("level:3", Some("uuid")),
        ("level:9", Some(topic)),
        ("property:rack", Some("r7")),
        ("property:none", None),
    ] {
        let mut stage = Stage::default();
        stage.switchboard.bind(1, 12, &["dcgm/#"], rule).unwrap();
        let client = stage.client(V5, "a");
        stage.publish_with(client, topic, QOS_0, 0, "x", property.clone());
        let append = &stage.appends[0];
        assert_eq!(records(append)[0].0.as_deref(), key, "{rule}");
        if let Some(key) = key {
            assert_eq!(append.partition, partition_of(key.as_bytes(), 12), "{rule}");
        }
    }
}

#[test]
fn records_without_a_key_go_to_the_partitions_in_turn() {
    let mut stage = Stage::default();
    stage
        .switchboard
        .bind(1, 3, &["a"], "property:none")
        .unwrap();
    let client = stage.client(V5, "a");
    for _ in 0..9 {
        stage.publish(client, "a", QOS_0, 0, "x");
    }
    let mut counts = [0; 3];
    for append in &stage.appends {
        counts[append.partition as usize] += 1;
    }
    assert_eq!(counts, [3, 3, 3]);
}

#[test]
fn a_binding_that_is_malformed_says_how() {
    let mut stage = Stage::default();
    for (partitions, filter, key, text) in [
        (0, "a", "topic", "stream 1 needs at least one partition"),
        (1, "a/#/b", "topic", "filter \"a/#/b\": # must stand alone"),
        (
            1,
            "$share/g/a",
            "topic",
            "filter \"$share/g/a\": a stream stores a filter",
        ),
        (
            1,
            "a",
            "level:0",
            "key \"level:0\": a level is a number from 1",
        ),
        (
            1,
            "a",
            "level:x",
            "key \"level:x\": a level is a number from 1",
        ),
        (
            1,
            "a",
            "property:",
            "key \"property:\" is none of topic, level:N, property:NAME",
        ),
        (
            1,
            "a",
            "topics",
            "key \"topics\" is none of topic, level:N, property:NAME",
        ),
    ] {
        let bound = stage.switchboard.bind(1, partitions, &[filter], key);
        let Err(Error::Invalid(error)) = bound else {
            panic!("{filter} {key} was bound");
        };
        assert!(error.starts_with(text), "{error}");
    }
    assert_eq!(stage.statistic("mqtt_streams"), 0);
}

#[test]
fn what_came_in_one_round_is_one_batch_a_partition_with_an_odd_ticket() {
    let mut stage = Stage::default();
    stage.switchboard.bind(1, 2, &["#"], "topic").unwrap();
    stage.switchboard.bind(2, 1, &["b"], "topic").unwrap();
    let client = stage.client(V5, "publisher");
    let mut bytes = Vec::new();
    for topic in ["a", "b", "c", "d", "a", "b"] {
        let publish = Publish {
            topic,
            payload: topic.as_bytes(),
            ..Publish::default()
        };
        let packet = Packet::Publish(publish);
        bytes.extend(stage.bytes(client, &packet));
    }
    stage.send_bytes(client, &bytes);
    let mut places: Vec<_> = stage
        .appends
        .iter()
        .map(|append| (append.stream, append.partition))
        .collect();
    places.sort_unstable();
    assert_eq!(places, [(1, 0), (1, 1), (2, 0)]);
    assert!(stage.appends.iter().all(|append| append.ticket % 2 == 1));
    let of_b = stage.appends.iter().find(|append| append.stream == 2);
    assert_eq!(values(of_b.unwrap()), ["b", "b"]);
    let stored: usize = stage
        .appends
        .iter()
        .map(|append| values(append).len())
        .sum();
    assert_eq!(stored, 8);
}

#[test]
fn a_batch_ends_near_the_size_that_a_consumer_fetches() {
    let (mut stage, client) = stage_with_stream();
    let payload = "x".repeat(200_000);
    let publish = Publish {
        topic: "a",
        payload: payload.as_bytes(),
        ..Publish::default()
    };
    let packet = Packet::Publish(publish);
    let bytes = stage.bytes(client, &packet).repeat(13);
    stage.send_bytes(client, &bytes);
    let counts: Vec<usize> = stage.appends.iter().map(|a| values(a).len()).collect();
    assert_eq!(counts, [6, 6, 1]);
    assert!(stage
        .appends
        .iter()
        .all(|append| append.batch.len() < BATCH_BYTES_MAX + payload.len() + 1_000));
}

#[test]
fn no_batch_is_larger_than_its_stream_takes_and_a_larger_message_is_refused_whole() {
    let (mut stage, client) = stage_with_stream();
    stage.switchboard.bind(10, 1, &["#"], "topic").unwrap();
    stage.switchboard.shape(9, Codec::None, 400, false).unwrap();
    let payload = "x".repeat(100);
    let publish = Publish {
        topic: "a",
        payload: payload.as_bytes(),
        ..Publish::default()
    };
    let bytes = stage.bytes(client, &Packet::Publish(publish)).repeat(5);
    stage.send_bytes(client, &bytes);
    let appends: Vec<&Append> = stage.appends.iter().filter(|a| a.stream == 9).collect();
    let counts: Vec<usize> = appends.iter().map(|a| values(a).len()).collect();
    assert_eq!(counts, [2, 2, 1]);
    assert!(appends.iter().all(|append| append.batch.len() <= 400));

    let exact = |stage: &mut Stage| {
        stage.appends.clear();
        stage.publish(client, "a", QOS_0, 0, &payload);
        let batch = stage.appends.iter().find(|append| append.stream == 9);
        batch.map(|append| append.batch.len())
    };
    let size = exact(&mut stage).unwrap();
    stage
        .switchboard
        .shape(9, Codec::None, size, false)
        .unwrap();
    assert_eq!(exact(&mut stage), Some(size));
    stage
        .switchboard
        .shape(9, Codec::None, size - 1, false)
        .unwrap();
    assert_eq!(exact(&mut stage), None);
    let watcher = stage.client(V5, "watcher");
    stage.subscribe(watcher, "#", QOS_0);
    stage.publish(client, "a", QOS_1, 1, &payload);
    let why = "larger than max.message.bytes of a stream that stores it";
    assert_eq!(stage.hears(client), [format!("PUBACK 1 0x97 {why}")]);
    assert_eq!(stage.hears(watcher), [""; 0]);
    assert_eq!(
        stage.appends,
        [],
        "the other stream has nothing of it either"
    );
    let now = stage.now;
    let board = &mut stage.switchboard;
    board
        .publish(&door("a", payload.as_bytes(), QOS_1, &[]), 7, now)
        .unwrap();
    assert_eq!(board.published()[0].reason_code, 0x95);
    let old = stage.client(V311, "old");
    stage.publish(old, "a", QOS_1, 1, &payload);
    assert_eq!(stage.hears(old), ["closed: message_too_large"]);
    let dropped = stage.statistic("mqtt_messages_dropped_total{reason=\"message_too_large\"}");
    assert_eq!(dropped, 4);
}
