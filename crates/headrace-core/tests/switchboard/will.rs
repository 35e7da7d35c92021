//! Wills (MQTT 5.0 3.1.2.5, 3.1.3.2, 3.14.4).

use headrace_core::mqtt::packet::{Connect, Disconnect, Packet};

use super::stage::*;

fn will(qos: QoS) -> Will<'static> {
    Will {
        topic: "gone/a",
        payload: b"bye",
        qos,
        ..Will::default()
    }
}

/// A subscriber to wills, and a client with one.
fn cast(stage: &mut Stage, version: Version, will: Will<'_>) -> (u64, u64) {
    let watcher = stage.client(V5, "watcher");
    stage.subscribe(watcher, "gone/#", QOS_1);
    let mortal = stage.client_with(Connect {
        client_id: "mortal",
        keep_alive_s: 10,
        will: Some(will),
        ..plain(version)
    });
    (watcher, mortal)
}

#[test]
fn mqtt_3_14_4_3_a_normal_disconnect_deletes_the_will() {
    for version in [V5, V311] {
        let mut stage = Stage::default();
        let (watcher, mortal) = cast(&mut stage, version, will(QOS_0));
        stage.send(mortal, &Packet::Disconnect(Disconnect::default()));
        assert_eq!(stage.hears(mortal), ["closed: client_disconnect"]);
        stage.hang_up(mortal);
        assert_eq!(stage.hears(watcher), [""; 0]);
    }
}

#[test]
fn mqtt_3_1_2_8_every_other_end_publishes_the_will_once() {
    type End = fn(&mut Stage, u64);
    let ends: [(&str, End); 6] = [
        ("the socket is lost", |stage, mortal| stage.hang_up(mortal)),
        ("DISCONNECT with will", |stage, mortal| {
            let disconnect = Disconnect {
                reason_code: 4,
                ..Disconnect::default()
            };
            stage.send(mortal, &Packet::Disconnect(disconnect));
        }),
        ("a session made longer (3.14.2.2.2)", |stage, mortal| {
            let disconnect = Disconnect {
                session_expiry_s: Some(3_600),
                ..Disconnect::default()
            };
            stage.send(mortal, &Packet::Disconnect(disconnect));
            let answer = ["DISCONNECT 0x82", "closed: protocol_error"];
            assert_eq!(stage.hears(mortal), answer);
        }),
        ("keep-alive", |stage, _| stage.wait(15_000)),
        ("a protocol error", |stage, mortal| {
            stage.send(mortal, &Packet::Connect(Box::new(plain(V5))));
        }),
        ("takeover", |stage, _| {
            stage.client(V5, "mortal");
        }),
    ];
    for (name, end) in ends {
        let mut stage = Stage::default();
        let (watcher, mortal) = cast(&mut stage, V5, will(QOS_0));
        end(&mut stage, mortal);
        assert_eq!(
            stage.hears(watcher),
            ["PUBLISH gone/a qos 0: bye"],
            "{name}"
        );
        if name != "the socket is lost" {
            stage.hang_up(mortal);
        }
        assert_eq!(stage.hears(watcher), [""; 0], "{name}");
        assert_eq!(stage.statistic("mqtt_wills_total"), 1, "{name}");
    }
}

#[test]
fn mqtt_3_1_3_2_the_properties_of_a_will_are_forwarded() {
    let mut stage = Stage::default();
    let (watcher, mortal) = cast(
        &mut stage,
        V5,
        Will {
            properties: PublishProperties {
                will_delay: Some(60),
                content_type: Some("text/plain"),
                user: vec![("b", "1"), ("a", "2"), ("b", "3")],
                ..PublishProperties::default()
            },
            ..will(QOS_0)
        },
    );
    stage.hang_up(mortal);
    let expected = PublishProperties {
        content_type: Some("text/plain"),
        user: vec![("b", "1"), ("a", "2"), ("b", "3")],
        ..PublishProperties::default()
    };
    assert_eq!(
        stage.hears(watcher),
        [format!("PUBLISH gone/a qos 0: bye {expected:?}")]
    );
}

#[test]
fn a_will_that_a_stream_stores_waits_for_the_disk_though_its_session_is_over() {
    let mut stage = Stage::default();
    stage.switchboard.bind(1, 1, &["gone/#"], "topic").unwrap();
    let (watcher, mortal) = cast(&mut stage, V5, will(QOS_1));
    stage.hang_up(mortal);
    assert_eq!(stage.hears(watcher), [""; 0]);
    assert_eq!(stage.appends.len(), 1);
    stage.durable(true);
    assert_eq!(stage.hears(watcher), ["PUBLISH gone/a qos 1 id 1: bye"]);
}

#[test]
fn mqtt_3_1_2_6_what_is_not_served_of_a_will_refuses_the_connect() {
    let text = PublishProperties {
        payload_format: Some(1),
        ..PublishProperties::default()
    };
    let cases = [
        (
            0x9A,
            Will {
                retain: true,
                ..will(QOS_0)
            },
        ),
        (
            0x87,
            Will {
                topic: "$SYS/a",
                ..will(QOS_0)
            },
        ),
        (
            0x99,
            Will {
                payload: b"\xFF",
                properties: text,
                ..will(QOS_0)
            },
        ),
    ];
    for (code, will) in cases {
        let mut stage = Stage::default();
        let client = stage.asks(Connect {
            client_id: "a",
            will: Some(will),
            ..plain(V5)
        });
        let answer = [format!("CONNACK {code:#04x}"), "closed: refused".into()];
        assert_eq!(stage.hears(client), answer);
    }
}
