//! Streams that clients read: what one client may ask for, and what a turn does for all of them.

use headrace_core::mqtt::packet::{Packet, Subscribe};
use headrace_core::record::Codec;
use headrace_core::switchboard::{Limits, STREAM_SUBSCRIPTIONS_MAX};

use super::shelf::*;
use super::stage::*;

/// Subscribes to all of these at once; how many were granted, and the packet.
fn subscribe_all(
    stage: &mut Stage,
    shelf: &mut Shelf,
    client: u64,
    filters: &[String],
) -> (usize, String) {
    let filters = filters.iter();
    let subscribe = Subscribe {
        packet_id: 1,
        filters: filters.map(|filter| request(filter, QOS_0)).collect(),
        ..Subscribe::default()
    };
    stage.send(client, &Packet::Subscribe(subscribe));
    shelf.place(stage, None);
    let suback = stage.hears(client).remove(0);
    (suback.matches("0x00").count(), suback)
}

#[test]
fn why_filters_are_refused_is_a_line_however_many_and_long_they_are() {
    let mut stage = Stage::default();
    let mut shelf = Shelf::new(&mut stage, 1);
    let client = stage.client(V5, "client");
    let long = "ü".repeat(32_700);
    for filters in [
        vec![format!("$stream/{long}")],
        vec![format!("$stream/+/{long}")],
        vec![format!("$share/g/$stream/s/{long}")],
        (0..3_000).map(|n| format!("$stream/t{n}/#")).collect(),
        (0..3_000).map(|n| format!("$stream/+/{n}")).collect(),
    ] {
        let (granted, suback) = subscribe_all(&mut stage, &mut shelf, client, &filters);
        assert_eq!(granted, 0);
        let (_, text) = suback.split_once("] ").unwrap();
        assert!((20..=1024).contains(&text.len()), "{}", text.len());
    }
    stage.subscribe_with(client, request("a", QOS_0));
    assert_eq!(stage.hears(client), ["SUBACK 1 [0x00]"]);
}

#[test]
fn a_position_in_each_partition_is_a_subscription_to_the_bounds() {
    let mut stage = Stage::new(Limits {
        subscriptions_max: 10,
        subscriptions_of_node_max: 14,
        ..Limits::default()
    });
    let mut shelf = Shelf::new(&mut stage, 3);
    let client = stage.client(V5, "client");
    let other = stage.client(V5, "other");
    stage.subscribe(client, "a", QOS_0);
    stage.hears(client);
    let filters: Vec<_> = (0..5).map(|n| format!("$stream/s/{n}")).collect();
    let granted = subscribe_all(&mut stage, &mut shelf, client, &filters).0;
    assert_eq!(granted, 3, "of ten places one is taken");
    assert_eq!(
        subscribe_all(&mut stage, &mut shelf, client, &filters[..1]).0,
        1
    );
    assert_eq!(subscribe_all(&mut stage, &mut shelf, other, &filters).0, 1);
    assert_eq!(stage.statistic("mqtt_stream_subscriptions"), 4);
    assert_eq!(stage.statistic("mqtt_stream_positions"), 12);
    let refused = |why| format!("mqtt_subscriptions_refused_total{{reason=\"{why}\"}}");
    assert_eq!(stage.statistic(&refused("quota_exceeded")), 2);
    assert_eq!(stage.statistic(&refused("subscriptions_full")), 4);
    stage.unsubscribe(client, &["$stream/s/0", "$stream/s/1"]);
    stage.hears(client);
    assert_eq!(stage.statistic("mqtt_stream_positions"), 6);
    // A stream that outgrows a client is told, and the client keeps the rest.
    shelf.widen(&mut stage, 10);
    stage.run();
    assert_eq!(
        stage.hears(client),
        ["DISCONNECT 0x97", "closed: stream_outgrown"]
    );
    assert_eq!(stage.hears(other), [""; 0]);
    assert_eq!(stage.statistic("mqtt_stream_positions"), 10);
}

#[test]
fn one_client_reads_so_many_streams_and_no_more_names_are_asked_about() {
    let mut stage = Stage::default();
    let mut shelf = Shelf::new(&mut stage, 1);
    let client = stage.client(V5, "client");
    let filters: Vec<_> = (0..STREAM_SUBSCRIPTIONS_MAX + 9)
        .map(|n| format!("$stream/s/{n}"))
        .collect();
    let granted = subscribe_all(&mut stage, &mut shelf, client, &filters).0;
    assert_eq!(granted, STREAM_SUBSCRIPTIONS_MAX);
    let names = (0..STREAM_SUBSCRIPTIONS_MAX + 9).map(|n| format!("$stream/t{n}/#"));
    let names: Vec<String> = names.collect();
    let subscribe = Subscribe {
        packet_id: 2,
        filters: names.iter().map(|filter| request(filter, QOS_0)).collect(),
        ..Subscribe::default()
    };
    stage.send(client, &Packet::Subscribe(subscribe));
    assert_eq!(stage.requests[0].streams.len(), STREAM_SUBSCRIPTIONS_MAX);
}

/// One turn of the loop, and the reads that it has room for.
fn turn(stage: &mut Stage, shelf: &Shelf) {
    if let Some(effects) = stage.switchboard.collect(stage.now) {
        stage.perform(effects);
    }
    while let Some(read) = stage.switchboard.next_read(stage.now) {
        shelf.answer(stage, read);
    }
}

#[test]
fn who_has_much_to_look_at_leaves_others_their_turn() {
    let mut stage = Stage::default();
    stage.is_validating = false;
    let mut shelf = Shelf::new(&mut stage, 2);
    for _ in 0..3 {
        shelf.produce(&mut stage, 0, 60_000, Codec::Zstd);
    }
    let live = stage.client(V5, "live");
    shelf.subscribe(&mut stage, live, ("$stream/s/#", QOS_0), None);
    for number in 0..5 {
        let greedy = stage.client(V5, &format!("greedy-{number}"));
        stage.subscribe_with(greedy, request("$stream/s/none", QOS_0));
        shelf.answer_places(&mut stage, Some(0));
    }
    for offset in 0..5 {
        shelf.append(1, Codec::None, 1, &[(Some(b"k"), b"now", &[])]);
        stage.switchboard.advanced(STREAM, 1, offset + 1);
        let mut turns = 0;
        while payloads(&heard(&mut stage, live)) != ["now"] {
            turn(&mut stage, &shelf);
            turns += 1;
            assert!(
                turns < 10,
                "others look at 900,000 records, and nobody waits for that"
            );
        }
    }
    assert!(
        stage.switchboard.collect(stage.now).is_some(),
        "and they still do"
    );
}

#[test]
fn who_subscribes_is_read_for_whether_or_not_the_log_grows_again() {
    let mut stage = Stage::default();
    let mut shelf = Shelf::new(&mut stage, 2);
    shelf.produce(&mut stage, 1, 5, Codec::None);
    for name in ["first", "second"] {
        let client = stage.client(V5, name);
        stage.subscribe_with(client, request("$stream/s/#", QOS_0));
        shelf.answer_places(&mut stage, Some(3));
        shelf.serve(&mut stage);
        assert_eq!(payloads(&heard(&mut stage, client)), ["1:3", "1:4"]);
        stage.hang_up(client);
    }
}
