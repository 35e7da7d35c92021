//! SUBSCRIBE, UNSUBSCRIBE and which publishes they bring (MQTT 5.0 3.8 to 3.11, 4.7).

use headrace_core::mqtt::packet::{Packet, Subscribe, SubscriptionRequest};
use headrace_core::switchboard::{Limits, FILTER_BYTES_MEAN_MAX};

use super::stage::*;

/// Holds 5.0: 2.2.1-6, 3.8.4-1, 3.8.4-2, 3.8.4-6, 3.8.4-7, 3.9.3-1, 3.9.3-2.
/// Holds 3.1.1: 2.3.1-7, 3.8.4-1, 3.8.4-2, 3.8.4-5, 3.9.3-1.
#[test]
fn mqtt_3_9_3_each_filter_has_its_own_reason_code() {
    // A filter that breaks the rules ends a connection of 3.1.1 (3.1.1, 4.8).
    for (version, invalid, answer) in [
        (V5, 3, "SUBACK 1 [0x00 0x01 0x02 0x8f 0x8f 0x00 0x8f]"),
        (V311, 0, "SUBACK 1 [0x00 0x01 0x02 0x00]"),
    ] {
        let mut stage = Stage::default();
        let client = stage.client(version, "a");
        let mut filters = vec![
            request("a", QOS_0),
            request("b/+/#", QOS_1),
            request("c", QOS_2),
            request("d/#/e", QOS_0),
            request("f+", QOS_0),
            request("$share/group/a", QOS_0),
            request("$share//a", QOS_0),
        ];
        if version == V311 {
            filters.retain(|each| !["d/#/e", "f+", "$share//a"].contains(&each.filter));
        }
        let subscribe = Subscribe {
            packet_id: 1,
            filters,
            ..Subscribe::default()
        };
        stage.send(client, &Packet::Subscribe(subscribe));
        assert_eq!(stage.hears(client), [answer]);
        assert_eq!(stage.statistic("mqtt_subscriptions"), 4);
        let refused = "mqtt_subscriptions_refused_total{reason=\"topic_filter_invalid\"}";
        assert_eq!(stage.statistic(refused), invalid);
    }
}

/// What a client that subscribes hears of a retained message and then of its own publish; `at_once`
/// puts all filters in one packet.
fn heard_of(version: Version, filters: &[(&str, QoS)], at_once: bool) -> Vec<String> {
    let mut stage = Stage::default();
    let client = stage.client(version, "a");
    stage.retain(client, "c", QOS_0, "kept");
    let all: Vec<_> = filters.iter().map(|(f, qos)| request(f, *qos)).collect();
    for filters in all.chunks(if at_once { all.len() } else { 1 }) {
        let subscribe = Subscribe {
            packet_id: 1,
            filters: filters.to_vec(),
            ..Subscribe::default()
        };
        stage.send(client, &Packet::Subscribe(subscribe));
    }
    stage.publish(client, "a/b", QOS_2, 7, "new");
    let mut heard = stage.hears(client);
    heard.retain(|line| !line.starts_with("SUBACK"));
    heard
}

/// Holds 5.0: 3.8.4-5.
/// Holds 3.1.1: 3.8.4-4.
#[test]
fn mqtt_3_8_4_several_filters_are_served_as_a_packet_for_each() {
    for version in [V5, V311] {
        let filters = [("a/b", QOS_0), ("a/+", QOS_1), ("a/b", QOS_2), ("c", QOS_0)];
        let heard = heard_of(version, &filters, true);
        assert_eq!(heard, heard_of(version, &filters, false));
        assert!(
            heard.contains(&"PUBLISH a/b qos 2 id 1: new".into()),
            "{heard:?}"
        );
    }
}

#[test]
fn subscriptions_of_a_session_are_bounded() {
    let mut stage = Stage::new(Limits {
        subscriptions_max: 3,
        ..Limits::default()
    });
    let client = stage.client(V5, "a");
    for number in 0..4 {
        stage.subscribe_with(client, request(&format!("t/{number}"), QOS_0));
    }
    assert!(stage.hears(client).last().unwrap().ends_with("[0x97]"));
    // One that is there already may still be changed.
    stage.subscribe(client, "t/0", QOS_1);
    stage.hang_up(client);
    assert_eq!(stage.statistic("mqtt_subscriptions"), 0);
}

#[test]
fn subscriptions_of_all_sessions_are_bounded() {
    let mut stage = Stage::new(Limits {
        subscriptions_of_node_max: 3,
        ..Limits::default()
    });
    let clients = ["a", "b"].map(|name| stage.client(V5, name));
    for client in clients {
        stage.subscribe_with(client, request("t/0", QOS_0));
        stage.subscribe_with(client, request("$share/g/t", QOS_0));
    }
    assert_eq!(
        stage.hears(clients[1]),
        ["SUBACK 1 [0x00]", "SUBACK 1 [0x97]"]
    );
    let refused = "mqtt_subscriptions_refused_total{reason=\"subscriptions_full\"}";
    assert_eq!(stage.statistic(refused), 1);
    stage.hang_up(clients[0]);
    stage.subscribe(clients[1], "$share/g/t", QOS_0);
}

#[test]
fn the_filters_of_a_session_are_bounded_in_bytes_too() {
    let mut stage = Stage::new(Limits {
        subscriptions_max: 2_000,
        ..Limits::default()
    });
    let client = stage.client(V5, "a");
    let names: Vec<String> = (0..6).map(|i| format!("{i:0>65000}")).collect();
    for name in &names {
        stage.subscribe_with(client, request(name, QOS_0));
    }
    let granted = 2_000 * FILTER_BYTES_MEAN_MAX / 65_000;
    let answers = stage.hears(client);
    assert_eq!(answers[granted - 1], "SUBACK 1 [0x00]");
    assert_eq!(answers[granted], "SUBACK 1 [0x97]");
    stage.subscribe(client, &names[0], QOS_1);
    stage.unsubscribe(client, &[&names[0]]);
    stage.hears(client);
    stage.subscribe(client, &names[granted], QOS_0);
}

/// Holds 5.0: 3.8.4-3.
/// Holds 3.1.1: 3.8.4-3.
#[test]
fn mqtt_3_8_4_3_a_repeated_filter_replaces_the_subscription() {
    let mut stage = Stage::default();
    let client = stage.client(V5, "a");
    stage.subscribe(client, "t", QOS_1);
    stage.subscribe(client, "t", QOS_0);
    stage.publish(client, "t", QOS_1, 1, "x");
    assert_eq!(stage.hears(client), ["PUBLISH t qos 0: x", "PUBACK 1"]);
    assert_eq!(stage.statistic("mqtt_subscriptions"), 1);
}

/// Holds 5.0: 2.2.1-6, 3.10.4-2, 3.10.4-4, 3.10.4-5, 3.10.4-6, 3.11.3-1, 3.11.3-2.
#[test]
fn mqtt_3_11_3_unsubscribe_says_what_was_there() {
    let mut stage = Stage::default();
    let client = stage.client(V5, "a");
    stage.subscribe(client, "t", QOS_0);
    stage.unsubscribe(client, &["t", "t", "u", "bad/#/filter"]);
    assert_eq!(stage.hears(client), ["UNSUBACK 2 [0x00 0x11 0x11 0x8f]"]);
    stage.publish(client, "t", QOS_0, 0, "x");
    assert_eq!(stage.hears(client), [""; 0]);
}

/// Holds 5.0: 4.7.2-1.
/// Holds 3.1.1: 4.7.2-1.
#[test]
fn mqtt_4_7_2_wildcards_do_not_match_names_that_begin_with_a_dollar() {
    let mut stage = Stage::default();
    stage.switchboard.bind(1, 1, &["#"], "topic").unwrap();
    let client = stage.client(V5, "a");
    stage.subscribe(client, "#", QOS_0);
    stage.subscribe(client, "+/x", QOS_0);
    stage.publish(client, "$SYS/x", QOS_0, 0, "x");
    assert_eq!(stage.hears(client), [""; 0]);
    assert_eq!(stage.appends.len(), 0);
    assert_eq!(
        stage.statistic("mqtt_messages_dropped_total{reason=\"reserved_topic\"}"),
        1
    );
}

/// Holds 5.0: 3.3.4-2.
#[test]
fn mqtt_3_3_4_2_overlapping_subscriptions_bring_one_copy_at_the_highest_qos() {
    let mut stage = Stage::default();
    let subscriber = stage.client(V5, "subscriber");
    let other = stage.client(V5, "other");
    let publisher = stage.client(V5, "publisher");
    stage.subscribe(subscriber, "t/#", QOS_0);
    stage.subscribe(subscriber, "t/a", QOS_1);
    stage.subscribe(subscriber, "+/a", QOS_0);
    stage.subscribe(other, "+/a", QOS_0);
    stage.subscribe(other, "#", QOS_0);
    stage.publish(publisher, "t/a", QOS_1, 1, "x");
    assert_eq!(stage.hears(subscriber), ["PUBLISH t/a qos 1 id 1: x"]);
    assert_eq!(stage.hears(other), ["PUBLISH t/a qos 0: x"]);
}

/// Holds 5.0: 3.8.3-3.
#[test]
fn mqtt_3_8_3_1_no_local_keeps_a_clients_own_publishes_from_it() {
    let mut stage = Stage::default();
    let client = stage.client(V5, "a");
    let other = stage.client(V5, "b");
    let no_local = |filter| SubscriptionRequest {
        no_local: true,
        ..request(filter, QOS_1)
    };
    stage.subscribe_with(client, no_local("t"));
    stage.subscribe_with(other, no_local("t"));
    stage.hears(client);
    stage.hears(other);
    stage.publish(client, "t", QOS_1, 1, "mine");
    assert_eq!(stage.hears(client), ["PUBACK 1"]);
    assert_eq!(stage.hears(other), ["PUBLISH t qos 1 id 1: mine"]);
    // Another subscription of its own without it still brings them.
    stage.subscribe(client, "+", QOS_0);
    stage.publish(client, "t", QOS_0, 0, "mine");
    assert_eq!(stage.hears(client), ["PUBLISH t qos 0: mine"]);
}

#[test]
fn no_local_holds_for_what_waited_for_the_disk() {
    let mut stage = Stage::default();
    stage.switchboard.bind(1, 1, &["t"], "topic").unwrap();
    let client = stage.client(V5, "a");
    let no_local = SubscriptionRequest {
        no_local: true,
        ..request("t", QOS_1)
    };
    stage.subscribe_with(client, no_local);
    stage.hears(client);
    stage.publish(client, "t", QOS_1, 1, "mine");
    stage.durable(true);
    assert_eq!(stage.hears(client), ["PUBACK 1"]);
}
