//! Streams: tickets, what waits for them, other doors.

use headrace_core::record::{Batches, Records};
use headrace_core::switchboard::{Append, Error, Limits, Published};

use super::stage::*;

type Record = (Option<String>, String, Vec<(String, String)>);

/// Key, value and headers of each record of an append.
pub fn records(append: &Append) -> Vec<Record> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let batch = Batches::new(&append.batch).next().unwrap().unwrap();
    batch.check_crc().unwrap();
    Records::new(&batch.header, batch.body())
        .map(|record| {
            let record = record.unwrap();
            let headers = record
                .headers
                .map(|(name, value)| (text(name), text(value.unwrap())))
                .collect();
            (record.key.map(text), text(record.value.unwrap()), headers)
        })
        .collect()
}

pub fn values(append: &Append) -> Vec<String> {
    records(append).into_iter().map(|record| record.1).collect()
}

pub fn source<'a>(epoch: &'a str, sequence: &'a str) -> PublishProperties<'a> {
    user(&[("source", "s"), ("epoch", epoch), ("sequence", sequence)])
}

/// A stream of one partition that stores everything, and a publisher.
pub fn stage_with_stream() -> (Stage, u64) {
    let mut stage = Stage::default();
    stage.switchboard.bind(9, 1, &["#"], "topic").unwrap();
    let client = stage.client(V5, "publisher");
    (stage, client)
}

#[test]
fn puback_waits_for_the_ticket_and_subscribers_at_qos_1_wait_with_it() {
    let (mut stage, client) = stage_with_stream();
    let zero = stage.client(V5, "zero");
    let one = stage.client(V5, "one");
    stage.subscribe(zero, "a", QOS_0);
    stage.subscribe(one, "a", QOS_1);
    stage.publish(client, "a", QOS_1, 3, "x");
    stage.publish(client, "a", QOS_0, 0, "y");
    assert_eq!(stage.hears(client), [""; 0]);
    assert_eq!(
        stage.hears(zero),
        ["PUBLISH a qos 0: x", "PUBLISH a qos 0: y"],
        "QoS 0 never waits"
    );
    assert_eq!(stage.hears(one), ["PUBLISH a qos 0: y"]);
    stage.durable(true);
    assert_eq!(stage.hears(client), ["PUBACK 3"]);
    assert_eq!(stage.hears(one), ["PUBLISH a qos 1 id 1: x"]);
    assert_eq!(stage.hears(zero), [""; 0]);
}

/// Holds 5.0: 3.8.4-4.
/// Holds 3.1.1: 3.8.4-3.
#[test]
fn mqtt_3_8_4_replacing_a_subscription_loses_nothing_that_waits_for_the_disk() {
    let (mut stage, client) = stage_with_stream();
    let lower = stage.client(V5, "lower");
    let higher = stage.client(V5, "higher");
    let late = stage.client(V5, "late");
    stage.subscribe(lower, "a", QOS_1);
    stage.subscribe(higher, "a", QOS_0);
    stage.publish(client, "a", QOS_1, 1, "x");
    // Whoever repeats itself, while others publish, changes nothing of what came before.
    for _ in 0..3 {
        stage.subscribe_with(lower, request("a", QOS_0));
        stage.subscribe_with(higher, request("a", QOS_1));
        stage.subscribe_with(late, request("a", QOS_1));
        stage.publish(client, "b", QOS_0, 0, "z");
    }
    while !stage.appends.is_empty() {
        stage.durable(true);
    }
    stage.publish(client, "a", QOS_1, 2, "y");
    while !stage.appends.is_empty() {
        stage.durable(true);
    }
    let mut got = |connection| {
        let mut lines = stage.hears(connection);
        lines.retain(|line| line.starts_with("PUBLISH"));
        lines
    };
    assert_eq!(
        got(lower),
        ["PUBLISH a qos 1 id 1: x", "PUBLISH a qos 0: y"]
    );
    assert_eq!(
        got(higher),
        ["PUBLISH a qos 0: x", "PUBLISH a qos 1 id 1: y"]
    );
    assert_eq!(got(late), ["PUBLISH a qos 1 id 1: y"], "it came before");
}

/// Holds 5.0: 4.6.0-2, 4.6.0-5, 4.6.0-6.
/// Holds 3.1.1: 4.6.0-2, 4.6.0-5, 4.6.0-6.
#[test]
fn mqtt_4_6_pubacks_and_deliveries_keep_their_order_though_tickets_do_not() {
    let mut stage = Stage::default();
    stage
        .switchboard
        .bind(1, 8, &["s/#"], "property:key")
        .unwrap();
    let client = stage.client(V5, "publisher");
    let watcher = stage.client(V5, "watcher");
    stage.subscribe(watcher, "s/#", QOS_1);
    for (packet_id, key) in [(1, "a"), (2, "b"), (3, "c")] {
        let key = [("key", key)];
        stage.publish_with(client, "s/t", QOS_1, packet_id, "", user(&key));
    }
    stage.publish(client, "unstored", QOS_1, 4, "");
    let tickets: Vec<u64> = stage.appends.iter().map(|append| append.ticket).collect();
    stage.ends(tickets[2], true);
    stage.ends(tickets[1], true);
    assert_eq!(stage.hears(client), [""; 0]);
    assert_eq!(stage.hears(watcher), [""; 0]);
    stage.ends(tickets[0], true);
    assert_eq!(
        stage.hears(client),
        ["PUBACK 1", "PUBACK 2", "PUBACK 3", "PUBACK 4 0x10"]
    );
    let keys: Vec<String> = stage
        .hears(watcher)
        .iter()
        .map(|line| line.split("(\"key\", \"").nth(1).unwrap()[..1].to_owned())
        .collect();
    assert_eq!(keys, ["a", "b", "c"]);
}

#[test]
fn all_streams_that_match_must_have_stored_it() {
    let (mut stage, client) = stage_with_stream();
    stage.switchboard.bind(10, 1, &["a"], "topic").unwrap();
    stage.publish(client, "a", QOS_1, 1, "x");
    stage.durable(true);
    assert_eq!(stage.hears(client), [""; 0]);
    stage.durable(true);
    assert_eq!(stage.hears(client), ["PUBACK 1"]);
}

#[test]
fn what_was_not_stored_is_not_acknowledged_and_not_delivered_at_qos_1() {
    let (mut stage, client) = stage_with_stream();
    stage.switchboard.bind(10, 1, &["a"], "topic").unwrap();
    let watcher = stage.client(V5, "watcher");
    stage.subscribe(watcher, "a", QOS_1);
    let old = stage.client(V311, "old");
    stage.publish(client, "a", QOS_1, 1, "x");
    stage.durable(false);
    stage.durable(true);
    assert_eq!(
        stage.hears(client),
        ["PUBACK 1 0x80 not stored: the broker's disk refused"]
    );
    stage.publish(old, "a", QOS_1, 1, "x");
    stage.publish(old, "a", QOS_1, 2, "x");
    while !stage.appends.is_empty() {
        stage.durable(false);
    }
    assert_eq!(stage.hears(old), ["closed: not_stored"]);
    assert_eq!(stage.hears(watcher), [""; 0]);
    assert_eq!(
        stage.statistic("mqtt_messages_dropped_total{reason=\"not_stored\"}"),
        3
    );
}

#[test]
fn what_a_stream_was_given_before_it_was_unbound_is_still_appended() {
    let (mut stage, client) = stage_with_stream();
    stage
        .switchboard
        .receive(client, b"\x32\x06\0\x01a\0\x01\0", stage.now)
        .unwrap();
    stage.switchboard.unbind(9).unwrap();
    stage.run();
    assert_eq!(stage.appends.len(), 1);
    stage.publish(client, "a", QOS_1, 2, "x");
    assert_eq!(stage.hears(client), [""; 0], "in its turn");
    stage.durable(true);
    assert_eq!(stage.hears(client), ["PUBACK 1", "PUBACK 2 0x10"]);
}

#[test]
fn publishers_of_stored_messages_wait_while_too_much_waits_for_the_disk() {
    let mut stage = Stage::new(Limits {
        undurable_bytes_max: 1_000,
        ..Limits::default()
    });
    stage.switchboard.bind(1, 1, &["s"], "topic").unwrap();
    let storing = stage.client(V5, "storing");
    let relaying = stage.client(V5, "relaying");
    stage.subscribe(relaying, "r", QOS_0);
    stage.publish(storing, "s", QOS_0, 0, &"x".repeat(1_000));
    stage.publish(storing, "s", QOS_1, 1, "y");
    stage.publish(storing, "s", QOS_1, 2, "z");
    assert_eq!(stage.reads.get(&storing), Some(&false));
    assert_eq!(stage.appends.len(), 1);
    stage.publish(relaying, "r", QOS_0, 0, "not held up");
    assert_eq!(stage.hears(relaying), ["PUBLISH r qos 0: not held up"]);
    stage.durable(true);
    assert_eq!(stage.reads.get(&storing), Some(&true));
    assert_eq!(values(&stage.appends[0]), ["y", "z"]);
    stage.durable(true);
    assert_eq!(stage.hears(storing), ["PUBACK 1", "PUBACK 2"]);
    assert_eq!(stage.statistic("mqtt_undurable_bytes"), 0);
}

#[test]
fn another_door_hears_when_its_publish_is_durable() {
    let (mut stage, _) = stage_with_stream();
    let watcher = stage.client(V5, "watcher");
    stage.subscribe(watcher, "#", QOS_1);
    let now = stage.now;
    let board = &mut stage.switchboard;
    board
        .publish(&door("a", b"one", QOS_1, &[("k", "v")]), 71, now)
        .unwrap();
    board
        .publish(&door("a", b"two", QOS_0, &[]), 72, now)
        .unwrap();
    assert_eq!(board.published(), []);
    stage.run();
    assert_eq!(stage.hears(watcher), ["PUBLISH a qos 0: two"]);
    stage.durable(true);
    let ended = |request, reason_code, streams| Published {
        request,
        reason_code,
        streams,
    };
    let published = stage.switchboard.published();
    assert_eq!(published, [ended(71, 0x00, 1), ended(72, 0x00, 1)]);
    assert!(stage.hears(watcher)[0].starts_with("PUBLISH a qos 1 id 1: one"));

    stage
        .switchboard
        .publish(&door("a", b"", QOS_1, &[]), 73, now)
        .unwrap();
    stage.run();
    stage.durable(false);
    assert_eq!(stage.switchboard.published(), [ended(73, 0x80, 1)]);
    stage.switchboard.unbind(9).unwrap();
    stage
        .switchboard
        .publish(&door("a", b"", QOS_1, &[]), 74, now)
        .unwrap();
    assert_eq!(stage.switchboard.published(), [ended(74, 0x00, 0)]);
}

#[test]
fn another_door_may_publish_only_what_a_client_could() {
    let mut stage = Stage::default();
    let now = stage.now;
    let long = "x".repeat(65_536);
    let large = vec![0; 1_114_112];
    let cases: [(&str, &[u8], (&str, &str)); 6] = [
        ("", b"", ("k", "v")),
        ("a/+", b"", ("k", "v")),
        ("$SYS/a", b"", ("k", "v")),
        ("a", b"", ("k", &long)),
        ("a", b"", ("k\0", "v")),
        ("a", &large, ("k", "v")),
    ];
    for (topic, payload, property) in cases {
        let published =
            stage
                .switchboard
                .publish(&door(topic, payload, QOS_1, &[property]), 1, now);
        assert!(matches!(published, Err(Error::Invalid(_))), "{topic}");
    }
}
