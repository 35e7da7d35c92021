//! What the options of subscriptions make of a copy (MQTT 5.0 3.3.4, 3.8.2.1.2, 3.8.3.1).

use headrace_core::mqtt::packet::{Connect, Packet, Publish, Subscribe};
use headrace_core::switchboard::Limits;

use super::retained_log::lasting;
use super::stage::*;

/// The smallest and largest identifier of each length.
const IDS: [u32; 8] = [
    1,
    127,
    128,
    16_383,
    16_384,
    2_097_151,
    2_097_152,
    268_435_455,
];

/// Holds 5.0: 3.3.4-3, 3.3.4-4.
#[test]
fn mqtt_3_3_4_3_one_copy_carries_the_identifiers_of_all_matching_subscriptions() {
    let mut stage = Stage::default();
    let (client, publisher) = (stage.client(V5, "a"), stage.client(V5, "p"));
    for (id, filter, qos) in [
        (Some(7), "a/b", QOS_0),
        (Some(3), "a/#", QOS_1),
        (None, "+/b", QOS_0),
        (Some(3), "a/+", QOS_0),
        (Some(9), "b/#", QOS_1),
    ] {
        stage.subscribe_as(client, id, request(filter, qos));
    }
    stage.hears(client);
    stage.publish(publisher, "a/b", QOS_1, 1, "x");
    // At the highest quality of service; the same identifier twice comes twice.
    assert_eq!(
        stage.hears(client),
        ["PUBLISH a/b qos 1 id 1: x ids [3, 3, 7]"]
    );
    stage.publish(publisher, "c/b", QOS_1, 2, "x");
    assert_eq!(stage.hears(client), ["PUBLISH c/b qos 0: x"]);
}

/// Holds 5.0: 3.3.4-2, 3.3.4-3, 3.3.4-5.
#[test]
fn overlapping_subscriptions_bring_a_copy_each_where_that_is_set() {
    let mut stage = Stage::new(Limits {
        copies_each: true,
        ..Limits::default()
    });
    let (client, publisher) = (stage.client(V5, "a"), stage.client(V5, "p"));
    stage.switchboard.bind(1, 1, &["s/#"], "topic").unwrap();
    for (id, filter, qos) in [
        (Some(7), "s/b", QOS_0),
        (Some(3), "s/#", QOS_1),
        (None, "+/b", QOS_2),
        (Some(9), "b/#", QOS_1),
    ] {
        stage.subscribe_as(client, id, request(filter, qos));
    }
    stage.hears(client);
    stage.publish(publisher, "s/b", QOS_1, 1, "x");
    let live = ["PUBLISH s/b qos 0: x ids [7]"];
    assert_eq!(stage.hears(client), live, "the others wait for the disk");
    stage.durable(true);
    let stored = [
        "PUBLISH s/b qos 1 id 1: x",
        "PUBLISH s/b qos 1 id 2: x ids [3]",
    ];
    assert_eq!(stage.hears(client), stored);
}

#[test]
fn a_subscription_that_came_while_a_message_was_retained_has_a_copy_of_its_own_with_each() {
    for (copies_each, copies) in [(false, 1), (true, 2)] {
        let mut stage = lasting(Limits {
            copies_each,
            ..Limits::default()
        });
        let (client, publisher) = (stage.client(V5, "a"), stage.client(V5, "p"));
        stage.subscribe(client, "s", QOS_1);
        stage.retain(publisher, "s", QOS_1, "x");
        stage.subscribe(client, "+", QOS_1);
        stage.durable(true);
        assert_eq!(stage.hears(client).len(), copies);
    }
}

#[test]
fn mqtt_3_3_4_an_identifier_of_every_length_fits_between_every_other_property() {
    for expiry in [None, Some(60)] {
        for padding in [0, 110, 115, 120, 16_370, 16_380] {
            let mut stage = Stage::default();
            let (client, publisher) = (stage.client(V5, "a"), stage.client(V5, "p"));
            for (at, id) in IDS.iter().enumerate() {
                let filter = "+/".repeat(at) + "#";
                stage.subscribe_as(client, Some(*id), request(&filter, QOS_0));
            }
            stage.hears(client);
            let text = "x".repeat(padding);
            let mut properties = user(&[("a", &text)]);
            properties.payload_format = Some(1);
            properties.message_expiry = expiry;
            for level in 0..IDS.len() {
                let topic = "t/".repeat(level);
                let topic = topic.strip_suffix('/').unwrap_or("t");
                stage.publish_with(publisher, topic, QOS_0, 0, "payload", properties.clone());
                let heard = stage.hears(client);
                let ids = &IDS[..=level.max(1)];
                let begins = format!("PUBLISH {topic} qos 0: payload ids {ids:?}");
                assert_eq!(heard.len(), 1);
                assert!(heard[0].starts_with(&begins), "{heard:?}");
            }
        }
    }
}

#[test]
fn identifiers_stay_with_what_waits_for_the_disk_or_the_window() {
    let mut stage = Stage::default();
    stage.switchboard.bind(1, 1, &["s"], "topic").unwrap();
    let client = stage.client_with(Connect {
        client_id: "a",
        receive_maximum: Some(1),
        ..plain(V5)
    });
    let publisher = stage.client(V5, "p");
    stage.subscribe_as(client, Some(5), request("s", QOS_1));
    stage.hears(client);
    for (packet_id, payload) in [(1, "one"), (2, "two")] {
        stage.publish(publisher, "s", QOS_1, packet_id, payload);
    }
    while !stage.appends.is_empty() {
        stage.durable(true);
    }
    assert_eq!(stage.hears(client), ["PUBLISH s qos 1 id 1: one ids [5]"]);
    stage.acknowledge(client, 1);
    assert_eq!(stage.hears(client), ["PUBLISH s qos 1 id 2: two ids [5]"]);
}

#[test]
fn mqtt_3_8_4_3_a_new_subscription_to_the_same_filter_has_its_own_identifier() {
    let mut stage = Stage::default();
    let (client, publisher) = (stage.client(V5, "a"), stage.client(V5, "p"));
    for (id, line) in [
        (Some(5), "PUBLISH t qos 0: x ids [5]"),
        (Some(6), "PUBLISH t qos 0: x ids [6]"),
        (None, "PUBLISH t qos 0: x"),
    ] {
        stage.subscribe_as(client, id, request("t", QOS_0));
        stage.hears(client);
        stage.publish(publisher, "t", QOS_0, 0, "x");
        assert_eq!(stage.hears(client), [line]);
    }
}

/// Holds 5.0: 3.3.4-6.
#[test]
fn mqtt_3_3_4_an_identifier_that_the_client_sends_is_a_protocol_error() {
    let mut stage = Stage::default();
    let client = stage.client(V5, "a");
    let properties = PublishProperties {
        subscription_ids: vec![1],
        ..PublishProperties::default()
    };
    stage.publish_with(client, "t", QOS_0, 0, "x", properties);
    let refused = ["DISCONNECT 0x82", "closed: protocol_error"];
    assert_eq!(stage.hears(client), refused);
}

#[test]
fn mqtt_3_8_2_1_2_identifier_0_is_a_protocol_error() {
    let mut stage = Stage::default();
    let client = stage.client(V5, "a");
    stage.send_bytes(client, b"\x82\x09\0\x01\x02\x0b\x00\0\x01t\0");
    let refused = ["DISCONNECT 0x82", "closed: protocol_error"];
    assert_eq!(stage.hears(client), refused);
}

#[test]
fn identifiers_are_counted_to_the_clients_maximum_packet_size() {
    let mut stage = Stage::default();
    let publish = Publish {
        topic: "t",
        payload: &[b'x'; 100],
        ..Publish::default()
    };
    let publisher = stage.client(V5, "p");
    let bytes = stage.bytes(publisher, &Packet::Publish(publish)).len() as u32;
    let filters = vec![request("t", QOS_0)];
    for (room, comes) in [(2, false), (3, true)] {
        let client = stage.client_with(Connect {
            client_id: "a",
            maximum_packet_size: Some(bytes + room),
            ..plain(V5)
        });
        let subscribe = Subscribe {
            packet_id: 1,
            subscription_id: Some(200),
            filters: filters.clone(),
            ..Subscribe::default()
        };
        stage.send(client, &Packet::Subscribe(subscribe));
        stage.hears(client);
        stage.publish(publisher, "t", QOS_0, 0, &"x".repeat(100));
        assert_eq!(stage.hears(client).len(), usize::from(comes));
    }
}
