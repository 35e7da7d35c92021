//! Publishers that say who they are: what they send again is stored once.

use headrace_core::mqtt::packet::{Packet, Publish};

use super::stage::*;
use super::store::{source, stage_with_stream, values};

#[test]
fn a_repeat_is_acknowledged_without_being_stored_or_delivered() {
    let (mut stage, client) = stage_with_stream();
    let watcher = stage.client(V5, "watcher");
    stage.subscribe(watcher, "a", QOS_1);
    stage.publish_with(client, "a", QOS_1, 1, "x", source("1", "5"));
    stage.durable(true);
    assert_eq!(stage.hears(watcher).len(), 1);
    stage.hears(client);
    for (packet_id, sequence) in [(2, "5"), (3, "4")] {
        stage.publish_with(client, "a", QOS_1, packet_id, "x", source("1", sequence));
        assert_eq!(
            stage.hears(client),
            [format!("PUBACK {packet_id} 0x00 already stored")]
        );
    }
    stage.publish_with(client, "a", QOS_0, 0, "x", source("1", "5"));
    assert_eq!(stage.appends.len(), 0);
    assert_eq!(stage.hears(watcher), [""; 0]);
    assert_eq!(stage.statistic("mqtt_repeats_total"), 3);
    assert_eq!(
        stage.switchboard.sources(9, 0).unwrap(),
        [("s".to_owned(), 1, 5)]
    );
}

#[test]
fn a_repeat_is_acknowledged_no_sooner_than_the_first_copy_is_durable() {
    for stored in [true, false] {
        let (mut stage, client) = stage_with_stream();
        stage.publish_with(client, "a", QOS_1, 1, "x", source("1", "5"));
        stage.publish_with(client, "a", QOS_1, 2, "y", source("1", "6"));
        let again = stage.client(V5, "again");
        stage.publish_with(again, "a", QOS_1, 1, "x", source("1", "5"));
        assert_eq!(stage.hears(again), [""; 0]);
        stage.durable(stored);
        assert_eq!(stage.hears(again), [""; 0], "the other append may hold it");
        stage.durable(true);
        let answer = if stored {
            "PUBACK 1 0x00 already stored"
        } else {
            "PUBACK 1 0x80 not stored: the broker's disk refused"
        };
        assert_eq!(stage.hears(again), [answer]);
    }
}

#[test]
fn a_repeat_in_the_same_round_waits_for_the_append_of_that_round() {
    let (mut stage, client) = stage_with_stream();
    let again = stage.client(V5, "again");
    let packet = Packet::Publish(Publish {
        topic: "a",
        qos: QOS_1,
        packet_id: 1,
        properties: source("1", "5"),
        ..Publish::default()
    });
    let bytes = stage.bytes(client, &packet);
    for connection in [client, again] {
        let now = stage.now;
        stage.switchboard.receive(connection, &bytes, now).unwrap();
    }
    stage.run();
    assert_eq!(stage.hears(again), [""; 0]);
    stage.durable(true);
    assert_eq!(stage.hears(client), ["PUBACK 1"]);
    assert_eq!(stage.hears(again), ["PUBACK 1 0x00 already stored"]);
}

#[test]
fn a_failed_append_takes_its_sources_back_so_that_a_retry_is_stored() {
    let (mut stage, client) = stage_with_stream();
    stage.switchboard.load_sources(9, 0, [("s", 1, 4)]).unwrap();
    stage.publish_with(client, "a", QOS_1, 1, "x", source("1", "5"));
    stage.durable(false);
    assert!(stage.hears(client)[0].starts_with("PUBACK 1 0x80"));
    stage.publish_with(client, "a", QOS_1, 2, "x", source("1", "4"));
    assert_eq!(stage.hears(client), ["PUBACK 2 0x00 already stored"]);
    stage.publish_with(client, "a", QOS_1, 3, "x", source("1", "5"));
    assert_eq!(stage.appends.len(), 1);
    stage.durable(true);
    assert_eq!(stage.hears(client), ["PUBACK 3"]);
}

#[test]
fn a_lower_epoch_is_stale_and_a_higher_one_begins_anew() {
    let (mut stage, client) = stage_with_stream();
    stage.publish_with(client, "a", QOS_1, 1, "x", source("2", "5"));
    stage.publish_with(client, "a", QOS_1, 2, "x", source("1", "9"));
    stage.publish_with(client, "a", QOS_1, 3, "x", source("3", "0"));
    stage.publish_with(client, "a", QOS_0, 0, "x", source("2", "6"));
    let stored: usize = stage
        .appends
        .iter()
        .map(|append| values(append).len())
        .sum();
    assert_eq!(stored, 2);
    while !stage.appends.is_empty() {
        stage.durable(true);
    }
    assert_eq!(
        stage.hears(client),
        ["PUBACK 1", "PUBACK 2 0x83 stale epoch", "PUBACK 3"]
    );
    assert_eq!(
        stage.statistic("mqtt_messages_dropped_total{reason=\"stale_epoch\"}"),
        2
    );
}

#[test]
fn a_stream_keeps_its_sources_when_it_is_bound_anew() {
    let (mut stage, client) = stage_with_stream();
    stage.publish_with(client, "a", QOS_1, 1, "x", source("1", "5"));
    stage
        .switchboard
        .bind(9, 2, &["a"], "property:none")
        .unwrap();
    stage.run();
    stage.durable(true);
    assert_eq!(stage.hears(client), ["PUBACK 1"]);
    stage.publish(client, "b", QOS_1, 2, "x");
    assert_eq!(
        stage.hears(client),
        ["PUBACK 2 0x10"],
        "the filter has gone"
    );
    assert_eq!(stage.switchboard.sources(9, 0).unwrap().len(), 1);
    assert!(stage.switchboard.sources(9, 1).unwrap().is_empty());
}

#[test]
fn another_door_hears_that_its_epoch_is_stale() {
    let (mut stage, _) = stage_with_stream();
    stage.switchboard.load_sources(9, 0, [("s", 2, 0)]).unwrap();
    let properties = [("source", "s"), ("epoch", "1"), ("sequence", "1")];
    let now = stage.now;
    let board = &mut stage.switchboard;
    board
        .publish(&door("a", b"x", QOS_1, &properties), 7, now)
        .unwrap();
    let published = stage.switchboard.published();
    assert_eq!(published[0].reason_code, 0x83);
}

#[test]
fn a_repeat_is_answered_though_its_stream_goes_meanwhile() {
    let (mut stage, client) = stage_with_stream();
    stage.publish_with(client, "a", QOS_1, 1, "x", source("1", "5"));
    stage.publish_with(client, "a", QOS_1, 2, "y", source("1", "6"));
    stage.publish_with(client, "a", QOS_1, 3, "x", source("1", "5"));
    stage.durable(true);
    stage.switchboard.unbind(9).unwrap();
    assert_eq!(stage.hears(client), ["PUBACK 1"]);
    stage.durable(true);
    let answers = ["PUBACK 2", "PUBACK 3 0x00 already stored"];
    assert_eq!(stage.hears(client), answers);
}
