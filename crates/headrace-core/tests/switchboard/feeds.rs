//! Streams that clients read: subscriptions, where they begin, and what they bring.

use headrace_core::mqtt::packet::{Connect, Packet, Subscribe, SubscriptionRequest};
use headrace_core::record::Codec;
use headrace_core::session::Ending;
use headrace_core::switchboard::{Limits, READ_BYTES};

use super::shelf::*;
use super::stage::*;

/// A stage with a stream of so many partitions, and a client.
fn stage_with_shelf(partitions: u32) -> (Stage, Shelf, u64) {
    let mut stage = Stage::default();
    let shelf = Shelf::new(&mut stage, partitions);
    let client = stage.client(V5, "reader");
    (stage, shelf, client)
}

#[test]
fn a_subscriber_gets_what_comes_from_then_on_in_the_order_of_each_partition() {
    let (mut stage, mut shelf, client) = stage_with_shelf(2);
    shelf.produce(&mut stage, 0, 3, Codec::None);
    shelf.subscribe(&mut stage, client, ("$stream/s/#", QOS_1), None);
    assert_eq!(stage.hears(client), ["SUBACK 1 [0x01]"]);
    shelf.produce(&mut stage, 0, 2, Codec::None);
    shelf.produce(&mut stage, 1, 2, Codec::Zstd);
    let all = heard(&mut stage, client);
    assert_eq!(payloads(&all), ["0:3", "0:4", "1:0", "1:1"]);
    for each in all {
        assert_eq!((&*each.topic, each.qos), ("$stream/s/k", QOS_1));
        assert_eq!(each.place, each.payload);
    }
    assert_eq!(stage.statistic("mqtt_stream_records_total"), 4);
    assert_eq!(stage.statistic("mqtt_stream_subscriptions"), 1);
    stage.unsubscribe(client, &["$stream/s/#"]);
    shelf.produce(&mut stage, 0, 1, Codec::None);
    assert_eq!(stage.hears(client), ["UNSUBACK 2 [0x00]"]);
    assert!(!stage.switchboard.advanced(STREAM, 0, 9), "nobody reads");
}

#[test]
fn what_comes_behind_a_subscribe_waits_for_its_place() {
    let (mut stage, mut shelf, client) = stage_with_shelf(1);
    let subscribe = Subscribe {
        packet_id: 1,
        filters: vec![request("a", QOS_0), request("$stream/s/#", QOS_0)],
        ..Subscribe::default()
    };
    let mut bytes = stage.bytes(client, &Packet::Subscribe(subscribe));
    bytes.extend(stage.bytes(client, &Packet::Pingreq));
    stage.send_bytes(client, &bytes);
    stage.send(client, &Packet::Pingreq);
    assert_eq!(stage.hears(client), [""; 0]);
    assert_eq!(stage.requests[0].streams, ["s"]);
    shelf.place(&mut stage, Some(0));
    assert_eq!(
        stage.hears(client),
        ["SUBACK 1 [0x00 0x00]", "PINGRESP", "PINGRESP"]
    );
    // One that goes meanwhile is none's any more.
    stage.send(
        client,
        &Packet::Subscribe(Subscribe {
            packet_id: 2,
            filters: vec![request("$stream/s/#", QOS_0)],
            ..Subscribe::default()
        }),
    );
    stage.hang_up(client);
    shelf.place(&mut stage, Some(0));
    assert_eq!(stage.statistic("mqtt_stream_subscriptions"), 0);
}

#[test]
fn narrower_filters_and_wildcards_match_topics_below_the_stream() {
    let (mut stage, mut shelf, client) = stage_with_shelf(1);
    for filter in ["#", "+/s/#"] {
        stage.subscribe(client, filter, QOS_0);
    }
    shelf.subscribe(&mut stage, client, ("$stream/s/dcgm/+/power", QOS_0), None);
    shelf.subscribe(&mut stage, client, ("$stream/s", QOS_0), None);
    assert_eq!(stage.hears(client), ["SUBACK 1 [0x00]", "SUBACK 1 [0x00]"]);
    let published = [
        ("mqtt.topic", "dcgm/b/power"),
        ("mqtt.content-type", "t"),
        ("u", "1"),
    ];
    shelf.append(
        0,
        Codec::None,
        5_000,
        &[
            (Some(b"dcgm/a/power"), b"1", &[]),
            (Some(b"dcgm/a/heat"), b"2", &[]),
            (None, b"3", &[]),
            (Some(b"x"), b"4", &published),
        ],
    );
    shelf.tell(&mut stage);
    let mut lines = stage.hears(client);
    for line in &mut lines {
        let end = line.find(" PublishProperties").unwrap_or(line.len());
        line.truncate(end);
    }
    lines.sort();
    assert_eq!(
        lines,
        [
            "PUBLISH $stream/s qos 0: 3",
            "PUBLISH $stream/s/dcgm/a/power qos 0: 1",
            "PUBLISH $stream/s/dcgm/b/power qos 0: 4",
        ]
    );
}

#[test]
fn what_cannot_be_read_is_refused_with_a_reason() {
    let (mut stage, mut shelf, client) = stage_with_shelf(1);
    let no_local = SubscriptionRequest {
        no_local: true,
        ..request("$stream/s/#", QOS_0)
    };
    for (request, code, why) in [
        (request("$stream/t/#", QOS_0), "0x8f", "unknown_stream"),
        (request("$stream/+/a", QOS_0), "0x8f", "unknown_stream"),
        (request("$stream", QOS_0), "0x8f", "unknown_stream"),
        (
            request("$share/g/$stream/s/#", QOS_0),
            "0x9e",
            "shared_stream",
        ),
        (no_local, "0x83", "stream_options"),
    ] {
        let name = format!("mqtt_subscriptions_refused_total{{reason=\"{why}\"}}");
        let before = stage.statistic(&name);
        stage.subscribe_with(client, request);
        shelf.place(&mut stage, None);
        let lines = stage.hears(client);
        assert!(
            lines[0].starts_with(&format!("SUBACK 1 [{code}] {}: ", request.filter)),
            "{lines:?}"
        );
        assert_eq!(stage.statistic(&name), before + 1);
    }
    // 3.1.1 knows one code for all of that.
    let older = stage.client(V311, "older");
    stage.subscribe_with(older, request("$stream/t/#", QOS_0));
    shelf.place(&mut stage, None);
    assert_eq!(stage.hears(older), ["SUBACK 1 [0x80]"]);
}

#[test]
fn a_slow_reader_holds_a_piece_and_no_more_and_others_are_not_kept_waiting() {
    for (qos, receive_maximum) in [(QOS_0, 10), (QOS_1, 3), (QOS_2, 1)] {
        let mut stage = Stage::default();
        stage.is_validating = false;
        let mut shelf = Shelf::new(&mut stage, 1);
        let slow = stage.client_with(Connect {
            client_id: "slow",
            receive_maximum: Some(receive_maximum),
            ..plain(V5)
        });
        let quick = stage.client(V5, "quick");
        shelf.subscribe(&mut stage, slow, ("$stream/s/#", qos), None);
        shelf.subscribe(&mut stage, quick, ("$stream/s/#", QOS_0), None);
        stage.raw(quick);
        stage.raw(slow);
        stage.credit(slow, 0);
        for _ in 0..100 {
            shelf.produce(&mut stage, 0, 100, Codec::Lz4);
        }
        assert_eq!(heard(&mut stage, quick).len(), 10_000);
        assert!(stage.statistic("mqtt_outbound_bytes") < 100_000);
        assert!(stage.statistic("mqtt_stream_held_bytes") < 8 * READ_BYTES as u64);
        assert_eq!(stage.statistic("mqtt_outbound_queued_messages"), 0);
        stage.credit(slow, usize::MAX);
        let mut offset = 0;
        while offset < 10_000 {
            shelf.serve(&mut stage);
            let got = heard(&mut stage, slow);
            assert!(!got.is_empty(), "it goes on at {offset}");
            for each in got {
                assert_eq!(each.payload, format!("0:{offset}"));
                offset += 1;
                match qos {
                    QOS_0 => {}
                    QOS_1 => stage.acknowledge(slow, each.id),
                    _ => stage.complete(slow, each.id),
                }
            }
        }
        stage.switchboard.validate();
        assert_eq!(heard(&mut stage, slow), []);
    }
}

#[test]
fn a_subscription_that_is_repeated_goes_on_or_begins_anew_where_it_says() {
    let (mut stage, mut shelf, client) = stage_with_shelf(1);
    shelf.produce(&mut stage, 0, 3, Codec::None);
    shelf.subscribe(&mut stage, client, ("$stream/s/#", QOS_0), Some(1));
    assert_eq!(payloads(&heard(&mut stage, client)), ["0:1", "0:2"]);
    shelf.subscribe(&mut stage, client, ("$stream/s/#", QOS_1), None);
    shelf.produce(&mut stage, 0, 1, Codec::None);
    let all = heard(&mut stage, client);
    assert_eq!((all[0].qos, payloads(&all)), (QOS_1, vec!["0:3"]));
    shelf.subscribe(&mut stage, client, ("$stream/s/#", QOS_0), Some(2));
    assert_eq!(payloads(&heard(&mut stage, client)), ["0:2", "0:3"]);
    assert_eq!(stage.statistic("mqtt_stream_subscriptions"), 1);
}

#[test]
fn what_retention_has_let_go_is_counted_and_reading_goes_on_behind_it() {
    let (mut stage, mut shelf, client) = stage_with_shelf(1);
    stage.credit(client, 0);
    shelf.subscribe(&mut stage, client, ("$stream/s/#", QOS_0), None);
    for _ in 0..40 {
        shelf.produce(&mut stage, 0, 100, Codec::None);
    }
    shelf.trim(0, 3_900);
    stage.credit(client, usize::MAX);
    shelf.tell(&mut stage);
    let all = heard(&mut stage, client);
    let trimmed = stage.statistic("mqtt_messages_dropped_total{reason=\"trimmed\"}");
    assert!(trimmed > 0);
    assert_eq!(all.len() as u64 + trimmed, 4_000);
    assert_eq!(all.last().unwrap().payload, "0:3999");
}

#[test]
fn a_damaged_batch_is_counted_and_passed_and_a_failed_read_is_tried_again() {
    let (mut stage, mut shelf, client) = stage_with_shelf(1);
    for _ in 0..3 {
        shelf.produce(&mut stage, 0, 2, Codec::None);
    }
    shelf.damage(0, 1);
    shelf.is_broken = true;
    shelf.subscribe(&mut stage, client, ("$stream/s/#", QOS_0), Some(0));
    assert_eq!(payloads(&heard(&mut stage, client)), [""; 0]);
    shelf.is_broken = false;
    shelf.serve(&mut stage);
    assert_eq!(payloads(&heard(&mut stage, client)), [""; 0]);
    stage.wait(1_000);
    shelf.serve(&mut stage);
    assert_eq!(
        payloads(&heard(&mut stage, client)),
        ["0:0", "0:1", "0:4", "0:5"]
    );
    assert_eq!(stage.statistic("mqtt_stream_reads_failed_total"), 1);
    let damaged = "mqtt_messages_dropped_total{reason=\"damaged\"}";
    assert_eq!(stage.statistic(damaged), 2);
}

#[test]
fn a_stream_that_is_deleted_ends_its_subscriptions_and_tells_their_clients() {
    let (mut stage, mut shelf, client) = stage_with_shelf(1);
    let other = stage.client(V5, "other");
    stage.subscribe(other, "a", QOS_0);
    shelf.subscribe(&mut stage, client, ("$stream/s/#", QOS_0), None);
    stage.hears(client);
    stage.switchboard.unbind(STREAM).unwrap();
    stage.run();
    assert_eq!(
        stage.hears(client),
        ["DISCONNECT 0x98", "closed: stream_deleted"]
    );
    assert_eq!(stage.hears(other), [""; 0]);
    assert_eq!(stage.statistic("mqtt_stream_subscriptions"), 0);
    assert_eq!(stage.statistic("mqtt_subscriptions"), 1);
}

#[test]
fn partitions_that_come_later_are_read_from_their_beginning() {
    let (mut stage, mut shelf, client) = stage_with_shelf(1);
    shelf.produce(&mut stage, 0, 1, Codec::None);
    shelf.subscribe(&mut stage, client, ("$stream/s/#", QOS_0), None);
    shelf.widen(&mut stage, 3);
    shelf.produce(&mut stage, 2, 2, Codec::None);
    assert_eq!(payloads(&heard(&mut stage, client)), ["2:0", "2:1"]);
}

#[test]
fn an_identifier_comes_back_and_nothing_is_retained() {
    let (mut stage, mut shelf, client) = stage_with_shelf(1);
    stage.subscribe_as(client, Some(9), request("$stream/s/#", QOS_0));
    shelf.place(&mut stage, None);
    stage.hears(client);
    shelf.produce(&mut stage, 0, 1, Codec::None);
    let lines = stage.hears(client);
    assert!(
        lines[0].starts_with("PUBLISH $stream/s/k qos 0: 0:0 ids [9]"),
        "{lines:?}"
    );
}

/// A stage whose sessions last, as the log of another says, if any.
fn lasting(before: Option<&Stage>) -> Stage {
    let mut stage = Stage::new(Limits::default());
    stage.switchboard.keep_sessions(2, 1 << 20, 1 << 20);
    if let Some(before) = before {
        stage.switchboard.bind(STREAM, 1, &[], "topic").unwrap();
        stage.restore(before);
    }
    stage
}

fn comes_back(stage: &mut Stage) -> u64 {
    let client = stage.asks(Connect {
        client_id: "reader",
        session_expiry_s: Some(1_000),
        ..Connect::new(V5)
    });
    stage.decide(0);
    stage.write_all(Ending::Stored);
    client
}

#[test]
fn a_session_that_lasts_goes_on_behind_what_it_acknowledged_whatever_happened_to_the_node() {
    for qos in [QOS_1, QOS_2] {
        let mut stage = lasting(None);
        let mut shelf = Shelf::new(&mut stage, 1);
        let client = comes_back(&mut stage);
        shelf.subscribe(&mut stage, client, ("$stream/s/#", qos), None);
        stage.write_all(Ending::Stored);
        stage.hears(client);
        shelf.produce(&mut stage, 0, 5, Codec::None);
        stage.write_all(Ending::Stored);
        let all = heard(&mut stage, client);
        assert_eq!(all.len(), 5);
        for each in &all[..3] {
            match qos {
                QOS_1 => stage.acknowledge(client, each.id),
                _ => stage.complete(client, each.id),
            }
            stage.write_all(Ending::Stored);
        }
        shelf.produce(&mut stage, 0, 2, Codec::None);
        // The node is killed, and what came last was not written.
        let mut again = lasting(Some(&stage));
        shelf.bind(&mut again);
        let client = comes_back(&mut again);
        shelf.tell(&mut again);
        again.write_all(Ending::Stored);
        shelf.tell(&mut again);
        again.write_all(Ending::Stored);
        let all = heard(&mut again, client);
        assert_eq!(payloads(&all), ["0:3", "0:4", "0:5", "0:6"], "{qos:?}");
        let left = comes_back(&mut again);
        assert_eq!(again.statistic("mqtt_stream_subscriptions"), 1);
        again.hang_up(client);
        again.hang_up(left);
    }
}
