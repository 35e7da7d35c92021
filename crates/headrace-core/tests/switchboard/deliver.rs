//! PUBLISH out: quality of service, properties, windows, sizes, expiry (MQTT 5.0 3.3, 4.3, 4.9).

use headrace_core::mqtt::packet::Connect;

use super::stage::*;

/// Holds 5.0: 3.8.4-8.
/// Holds 3.1.1: 3.8.4-6.
#[test]
fn mqtt_3_8_4_8_the_lower_qos_of_publish_and_subscription_holds() {
    let mut stage = Stage::default();
    let zero = stage.client(V5, "zero");
    let one = stage.client(V311, "one");
    let publisher = stage.client(V5, "publisher");
    stage.subscribe(zero, "a", QOS_0);
    stage.subscribe(one, "a", QOS_1);
    stage.publish(publisher, "a", QOS_0, 0, "low");
    stage.publish(publisher, "a", QOS_1, 5, "high");
    assert_eq!(
        stage.hears(zero),
        ["PUBLISH a qos 0: low", "PUBLISH a qos 0: high"]
    );
    assert_eq!(
        stage.hears(one),
        ["PUBLISH a qos 0: low", "PUBLISH a qos 1 id 1: high"]
    );
}

/// Holds 5.0: 3.3.2-4, 3.3.2-15, 3.3.2-16, 3.3.2-17, 3.3.2-18, 3.3.2-20.
#[test]
fn mqtt_3_3_2_3_properties_are_forwarded_unaltered_and_not_to_3_1_1() {
    let properties = PublishProperties {
        payload_format: Some(1),
        content_type: Some("application/json"),
        response_topic: Some("reply/to"),
        correlation_data: Some(b"\x00\x01"),
        user: vec![("z", "1"), ("a", "2"), ("z", "1")],
        ..PublishProperties::default()
    };
    for (qos, packet_id, label) in [(QOS_0, 0, "qos 0"), (QOS_1, 1, "qos 1 id 1")] {
        let mut stage = Stage::default();
        let five = stage.client(V5, "five");
        let three = stage.client(V311, "three");
        let publisher = stage.client(V5, "publisher");
        stage.subscribe(five, "a", QOS_1);
        stage.subscribe(three, "a", QOS_1);
        stage.publish_with(publisher, "a", qos, packet_id, "x", properties.clone());
        let expected = format!("PUBLISH a {label}: x {properties:?}");
        assert_eq!(stage.hears(five), [expected]);
        assert_eq!(stage.hears(three), [format!("PUBLISH a {label}: x")]);
    }
}

#[test]
fn a_publish_of_3_1_1_reaches_5_0_without_properties() {
    let mut stage = Stage::default();
    let five = stage.client(V5, "five");
    let publisher = stage.client(V311, "publisher");
    stage.subscribe(five, "a", QOS_1);
    stage.publish(publisher, "a", QOS_0, 0, "x");
    stage.publish(publisher, "a", QOS_1, 1, "y");
    assert_eq!(
        stage.hears(five),
        ["PUBLISH a qos 0: x", "PUBLISH a qos 1 id 1: y"]
    );
}

/// Holds 5.0: 3.3.4-9, 3.3.4-10, 4.9.0-1, 4.9.0-2.
#[test]
fn mqtt_3_3_4_7_no_more_in_flight_than_the_clients_receive_maximum() {
    let mut stage = Stage::default();
    let subscriber = stage.client_with(Connect {
        client_id: "subscriber",
        receive_maximum: Some(2),
        ..plain(V5)
    });
    stage.subscribe(subscriber, "a", QOS_1);
    let publisher = stage.client(V5, "publisher");
    for packet_id in 1..=5 {
        stage.publish(publisher, "a", QOS_1, packet_id, &packet_id.to_string());
    }
    stage.publish(publisher, "a", QOS_0, 0, "beside the window");
    assert_eq!(
        stage.hears(subscriber),
        [
            "PUBLISH a qos 1 id 1: 1",
            "PUBLISH a qos 1 id 2: 2",
            "PUBLISH a qos 0: beside the window",
        ]
    );
    assert_eq!(stage.statistic("mqtt_outbound_in_flight"), 2);
    stage.acknowledge(subscriber, 2);
    assert_eq!(stage.hears(subscriber), ["PUBLISH a qos 1 id 3: 3"]);
    stage.acknowledge(subscriber, 1);
    stage.acknowledge(subscriber, 3);
    assert_eq!(
        stage.hears(subscriber),
        ["PUBLISH a qos 1 id 4: 4", "PUBLISH a qos 1 id 5: 5"]
    );
    assert_eq!(stage.statistic("mqtt_outbound_queued_bytes"), 0);
}

#[test]
fn a_puback_for_nothing_in_flight_is_counted_and_nothing_else() {
    let mut stage = Stage::default();
    let client = stage.client(V5, "a");
    for packet_id in [1, 1024, 65_535] {
        stage.acknowledge(client, packet_id);
    }
    assert_eq!(stage.hears(client), [""; 0]);
    assert_eq!(stage.statistic("mqtt_unknown_acks_total"), 3);
}

/// Holds 5.0: 3.1.2-24, 3.1.2-25.
#[test]
fn mqtt_3_1_2_24_a_publish_longer_than_the_client_reads_is_dropped_for_it_alone() {
    let mut stage = Stage::default();
    let small = stage.client_with(Connect {
        client_id: "small",
        maximum_packet_size: Some(50),
        ..plain(V5)
    });
    stage.subscribe(small, "a", QOS_1);
    let large = stage.client(V5, "large");
    stage.subscribe(large, "a", QOS_1);
    stage.publish(large, "a", QOS_1, 1, &"x".repeat(50));
    stage.publish(large, "a", QOS_1, 2, "y");
    assert_eq!(stage.hears(small), ["PUBLISH a qos 1 id 1: y"]);
    assert_eq!(
        stage.hears(large),
        [
            "PUBLISH a qos 1 id 1: (50 bytes)",
            "PUBACK 1",
            "PUBLISH a qos 1 id 2: y",
            "PUBACK 2",
        ]
    );
    assert_eq!(
        stage.statistic("mqtt_messages_dropped_total{reason=\"packet_too_large\"}"),
        1
    );
}

/// Holds 5.0: 3.3.2-5, 3.3.2-6.
#[test]
fn mqtt_3_3_2_3_3_expiry_is_lowered_by_the_time_that_a_message_waited() {
    let mut stage = Stage::default();
    let subscriber = stage.client_with(Connect {
        client_id: "subscriber",
        receive_maximum: Some(1),
        ..plain(V5)
    });
    stage.subscribe(subscriber, "a", QOS_1);
    let publisher = stage.client(V5, "publisher");
    let expiry = |seconds, payload_format| PublishProperties {
        message_expiry: Some(seconds),
        payload_format,
        ..PublishProperties::default()
    };
    stage.publish_with(publisher, "a", QOS_1, 1, "now", expiry(10, None));
    stage.publish_with(publisher, "a", QOS_1, 2, "dies", expiry(3, None));
    stage.publish_with(publisher, "a", QOS_1, 3, "lives", expiry(10, Some(1)));
    assert_eq!(
        stage.hears(subscriber),
        ["PUBLISH a qos 1 id 1: now expiry 10"]
    );
    stage.wait(4_200);
    stage.acknowledge(subscriber, 1);
    assert_eq!(
        stage.hears(subscriber),
        ["PUBLISH a qos 1 id 2: lives expiry 6"]
    );
    assert_eq!(
        stage.statistic("mqtt_messages_dropped_total{reason=\"expired\"}"),
        1
    );
}

#[test]
fn expiry_counts_while_a_message_waits_for_the_disk() {
    let mut stage = Stage::default();
    stage.switchboard.bind(1, 1, &["a"], "topic").unwrap();
    let client = stage.client(V5, "a");
    stage.subscribe(client, "a", QOS_1);
    let expiry = |seconds| PublishProperties {
        message_expiry: Some(seconds),
        ..PublishProperties::default()
    };
    stage.publish_with(client, "a", QOS_1, 1, "dies", expiry(1));
    stage.publish_with(client, "a", QOS_1, 2, "lives", expiry(5));
    stage.wait(2_000);
    stage.durable(true);
    stage.durable(true);
    assert_eq!(
        stage.hears(client),
        [
            "PUBACK 1",
            "PUBLISH a qos 1 id 1: lives expiry 3",
            "PUBACK 2"
        ]
    );
}

#[test]
fn large_payloads_arrive_whole_at_every_subscriber() {
    let mut stage = Stage::default();
    let subscribers: Vec<u64> = [("a", V5), ("b", V311), ("c", V5)]
        .map(|(name, version)| stage.client(version, name))
        .into();
    for (index, subscriber) in subscribers.iter().enumerate() {
        stage.subscribe(*subscriber, "t", if index == 2 { QOS_1 } else { QOS_0 });
    }
    let publisher = stage.client(V5, "publisher");
    let payload: String = ('a'..='z').cycle().take(1024 * 1024).collect();
    stage.publish(publisher, "t", QOS_1, 1, &payload);
    for subscriber in subscribers {
        let bytes = stage.raw(subscriber);
        assert_eq!(&bytes[bytes.len() - payload.len()..], payload.as_bytes());
        assert!(bytes.len() < payload.len() + 16);
    }
}

#[test]
fn what_is_written_stays_within_the_credit_and_in_order() {
    let mut stage = Stage::default();
    let subscriber = stage.client(V5, "subscriber");
    stage.subscribe(subscriber, "t", QOS_0);
    let publisher = stage.client(V5, "publisher");
    stage.credit(subscriber, 0);
    for index in 0..100 {
        stage.publish(publisher, "t", QOS_0, 0, &format!("message {index}"));
    }
    assert_eq!(stage.hears(subscriber), [""; 0]);
    stage.switchboard.writable(subscriber, 7).unwrap();
    loop {
        let effects = stage.switchboard.collect(stage.now).unwrap();
        assert!(effects.writes.iter().all(|(_, bytes)| bytes.len() <= 7));
        let woken = effects.wake_at == Some(stage.now.mono_ms);
        stage.perform(effects);
        if !woken {
            break;
        }
    }
    let expected: Vec<String> = (0..100)
        .map(|index| format!("PUBLISH t qos 0: message {index}"))
        .collect();
    assert_eq!(stage.hears(subscriber), expected);
}
