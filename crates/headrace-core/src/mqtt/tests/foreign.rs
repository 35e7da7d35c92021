//! Bytes that other implementations wrote, captured on loopback.

use super::super::packet::*;
use super::{bytes, decode, encoded};

/// The packet that `hex` holds, which our encoder must write the same way.
fn same_bytes(version: Version, hex: &str, packet: &Packet<'_>) {
    let data = bytes(hex);
    assert_eq!(decode(version, &data).as_ref(), Ok(packet));
    assert_eq!(encoded(version, packet), data);
}

/// The packet that `hex` holds, whose properties are in another order than ours.
fn same_packet(hex: &str, packet: &Packet<'_>) {
    let data = bytes(hex);
    assert_eq!(decode(Version::V5, &data).as_ref(), Ok(packet));
    assert_eq!(encoded(Version::V5, packet).len(), data.len());
}

fn will(properties: PublishProperties<'_>) -> Will<'_> {
    Will {
        topic: "w",
        payload: b"bye",
        qos: QoS::AtLeastOnce,
        retain: true,
        properties,
    }
}

/// Holds 3.1.1: 3.1.3-1, 3.1.3-3.
#[test]
fn paho_mqtt_2_2_0_speaks_3_1_1() {
    let connect = Connect {
        clean_start: true,
        keep_alive_s: 30,
        client_id: "p",
        will: Some(will(PublishProperties::default())),
        username: Some("user"),
        password: Some(b"pass"),
        ..Connect::new(Version::V311)
    };
    let hex = "102100044d51545404ee001e0001700001770003627965000475736572000470617373";
    same_bytes(Version::V311, hex, &Packet::Connect(Box::new(connect)));
    let retained = Publish {
        retain: true,
        topic: "t/1",
        payload: b"{}",
        ..Publish::default()
    };
    same_bytes(
        Version::V311,
        "31070003742f317b7d",
        &Packet::Publish(retained),
    );
    let twice = Publish {
        qos: QoS::ExactlyOnce,
        topic: "t/2",
        packet_id: 2,
        payload: "é".as_bytes(),
        ..Publish::default()
    };
    same_bytes(
        Version::V311,
        "34090003742f320002c3a9",
        &Packet::Publish(twice),
    );
    let release = Ack {
        packet_id: 2,
        ..Ack::default()
    };
    same_bytes(Version::V311, "62020002", &Packet::Pubrel(release));
    let request = |filter, qos| SubscriptionRequest {
        filter,
        qos,
        no_local: false,
        retain_as_published: false,
        retain_handling: 0,
    };
    let subscribe = Subscribe {
        packet_id: 3,
        filters: vec![
            request("a/#", QoS::AtMostOnce),
            request("b", QoS::ExactlyOnce),
        ],
        ..Subscribe::default()
    };
    same_bytes(
        Version::V311,
        "820c00030003612f230000016202",
        &Packet::Subscribe(subscribe),
    );
    let unsubscribe = Unsubscribe {
        packet_id: 4,
        filters: vec!["b"],
        ..Unsubscribe::default()
    };
    same_bytes(
        Version::V311,
        "a2050004000162",
        &Packet::Unsubscribe(unsubscribe),
    );
    same_bytes(
        Version::V311,
        "e000",
        &Packet::Disconnect(Disconnect::default()),
    );
}

/// Holds 5.0: 3.1.3-1, 3.1.3-3.
#[test]
fn paho_mqtt_2_2_0_connects_with_5_0() {
    let connect = Connect {
        clean_start: true,
        keep_alive_s: 30,
        client_id: "p",
        will: Some(will(PublishProperties {
            will_delay: Some(5),
            content_type: Some("text"),
            ..PublishProperties::default()
        })),
        username: Some("user"),
        password: Some(b"pass"),
        session_expiry_s: Some(60),
        receive_maximum: Some(10),
        maximum_packet_size: Some(1000),
        user: vec![("a", "b")],
        ..Connect::new(Version::V5)
    };
    same_packet(
        "104300044d51545405ee001e14110000003c21000a2600016100016227000003e80001700c0300047465787418\
         000000050001770003627965000475736572000470617373",
        &Packet::Connect(Box::new(connect)),
    );
}

#[test]
fn paho_mqtt_2_2_0_publishes_with_5_0() {
    let publish = Publish {
        qos: QoS::AtLeastOnce,
        topic: "t/1",
        packet_id: 1,
        properties: PublishProperties {
            payload_format: Some(1),
            message_expiry: Some(9),
            topic_alias: Some(3),
            response_topic: Some("r"),
            correlation_data: Some(&[1, 2]),
            user: vec![("source", "s"), ("epoch", "1"), ("sequence", "2")],
            content_type: Some("json"),
            ..PublishProperties::default()
        },
        payload: b"{}",
        ..Publish::default()
    };
    same_packet(
        "32490003742f3100013f010102000000090300046a736f6e080001720900020102230003260006736f757263\
         6500017326000565706f636800013126000873657175656e63650001327b7d",
        &Packet::Publish(publish),
    );
}

#[test]
fn paho_mqtt_2_2_0_subscribes_and_leaves_with_5_0() {
    let subscribe = Subscribe {
        packet_id: 3,
        subscription_id: Some(200),
        filters: vec![SubscriptionRequest {
            filter: "a/+/#",
            qos: QoS::ExactlyOnce,
            no_local: true,
            retain_as_published: true,
            retain_handling: 2,
        }],
        ..Subscribe::default()
    };
    let hex = "820e0003030bc8010005612f2b2f232e";
    same_bytes(Version::V5, hex, &Packet::Subscribe(subscribe));
    let filters = vec!["a/+/#", "b"];
    let unsubscribe = Unsubscribe {
        packet_id: 4,
        filters,
        ..Unsubscribe::default()
    };
    let hex = "a20d0004000005612f2b2f23000162";
    same_bytes(Version::V5, hex, &Packet::Unsubscribe(unsubscribe));
    let disconnect = Disconnect {
        reason_code: 4,
        reason_string: Some("done"),
        ..Disconnect::default()
    };
    same_bytes(
        Version::V5,
        "e00904071f0004646f6e65",
        &Packet::Disconnect(disconnect),
    );
}

#[test]
fn mosquitto_pub_2_0_11_speaks_5_0() {
    let connect = Connect {
        clean_start: true,
        keep_alive_s: 60,
        client_id: "m",
        session_expiry_s: Some(7),
        receive_maximum: Some(20),
        ..Connect::new(Version::V5)
    };
    let hex = "101600044d5154540502003c08110000000721001400016d";
    same_bytes(Version::V5, hex, &Packet::Connect(Box::new(connect)));
    let publish = Publish {
        qos: QoS::AtLeastOnce,
        topic: "a",
        packet_id: 1,
        properties: PublishProperties {
            user: vec![("k", "v")],
            content_type: Some("c"),
            ..PublishProperties::default()
        },
        payload: b"hi",
        ..Publish::default()
    };
    same_packet(
        "321300016100010b2600016b000176030001636869",
        &Packet::Publish(publish),
    );
}
