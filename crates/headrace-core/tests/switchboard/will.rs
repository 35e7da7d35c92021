//! Wills (MQTT 5.0 3.1.2.5, 3.1.3.2, 3.14.4).

use headrace_core::mqtt::packet::{Connect, Disconnect, Packet};
use headrace_core::switchboard::Limits;

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

/// Holds 5.0: 3.1.2-10, 3.14.4-3.
/// Holds 3.1.1: 3.1.2-10, 3.14.4-3.
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

/// Holds 5.0: 3.1.2-7, 3.1.2-8, 3.1.2-10.
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

/// Holds 5.0: 3.1.3-10.
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

/// How a connection with a will ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Lost,
    KeepAlive,
    ProtocolError,
    Stop,
    Goodbye,
    GoodbyeWithWill,
    GoodbyeForAMinute,
    TakenOver { clean_start: bool },
    BackAfter { ms: u64, clean_start: bool },
}

/// When the will is published after that end, in milliseconds; None for never.
fn expected(delay_s: u64, expiry_s: u64, end: End) -> Option<u64> {
    let due_ms = delay_s.min(expiry_s) * 1000;
    match end {
        End::Goodbye => None,
        End::Lost | End::KeepAlive | End::ProtocolError | End::Stop | End::GoodbyeWithWill => {
            Some(due_ms)
        }
        End::GoodbyeForAMinute if expiry_s == 0 => Some(0), // 0x82 instead
        End::GoodbyeForAMinute => Some(delay_s.min(60) * 1000),
        End::TakenOver { clean_start: true } => Some(0),
        End::TakenOver { clean_start: false } => (due_ms == 0).then_some(0),
        End::BackAfter { ms, clean_start } if due_ms > ms => clean_start.then_some(ms),
        End::BackAfter { .. } => Some(due_ms),
    }
}

fn mortal(delay_s: u64, expiry_s: u64) -> Connect<'static> {
    Connect {
        client_id: "mortal",
        clean_start: false,
        keep_alive_s: 10,
        session_expiry_s: Some(expiry_s as u32),
        will: Some(Will {
            properties: PublishProperties {
                will_delay: Some(delay_s as u32),
                ..PublishProperties::default()
            },
            ..will(QOS_2)
        }),
        ..plain(V5)
    }
}

fn ends(stage: &mut Stage, client: u64, end: End, again: Connect<'_>) {
    let disconnect = |reason_code, session_expiry_s| {
        Packet::Disconnect(Disconnect {
            reason_code,
            session_expiry_s,
            ..Disconnect::default()
        })
    };
    match end {
        End::Lost | End::BackAfter { .. } => stage.hang_up(client),
        End::KeepAlive => stage.wait(15_000),
        End::ProtocolError => stage.send(client, &Packet::Connect(Box::new(plain(V5)))),
        End::Stop => {
            stage.switchboard.disconnect_all(0x8B, stage.now);
            stage.run();
        }
        End::Goodbye => stage.send(client, &disconnect(0, None)),
        End::GoodbyeWithWill => stage.send(client, &disconnect(4, None)),
        End::GoodbyeForAMinute => stage.send(client, &disconnect(4, Some(60))),
        End::TakenOver { clean_start } => {
            let next = Connect {
                clean_start,
                ..again
            };
            stage.client_with(next);
        }
    }
}

/// Bugs 6 and 7 of other brokers: one will or none, never before its delay, and no later than the
/// end of the session.
/// Holds 5.0: 3.1.2-7, 3.1.2-8, 3.1.3-9.
#[test]
fn mqtt_3_1_3_2_2_every_delay_expiry_and_end() {
    let mut cases = vec![
        End::Lost,
        End::KeepAlive,
        End::ProtocolError,
        End::Stop,
        End::Goodbye,
        End::GoodbyeWithWill,
        End::GoodbyeForAMinute,
    ];
    for clean_start in [false, true] {
        cases.push(End::TakenOver { clean_start });
        for ms in [1, 2_999, 4_999, 59_999] {
            cases.push(End::BackAfter { ms, clean_start });
        }
    }
    for end in cases {
        for (delay_s, expiry_s) in [(0, 0), (0, 60), (5, 0), (5, 3), (5, 60), (60, 60), (90, 60)] {
            let what = format!("{end:?}, delay {delay_s}, expiry {expiry_s}");
            let mut stage = Stage::default();
            stage.switchboard.bind(1, 1, &["gone/a"], "topic").unwrap();
            let client = stage.client_with(mortal(delay_s, expiry_s));
            let again = Connect {
                will: None,
                session_expiry_s: Some(1_000),
                ..mortal(0, 0)
            };
            ends(&mut stage, client, end, again.clone());
            let mut seen = Vec::new();
            let mut look = |stage: &mut Stage, ms| {
                if !stage.appends.is_empty() {
                    seen.push(ms);
                    stage.durable(true);
                }
            };
            look(&mut stage, 0);
            let mut passed = 0;
            for at in [
                1, 2_999, 3_000, 4_999, 5_000, 59_999, 60_000, 90_000, 200_000,
            ] {
                stage.wait(at - passed);
                passed = at;
                look(&mut stage, at);
                if let End::BackAfter { ms, clean_start } = end {
                    if ms == at {
                        stage.client_with(Connect {
                            clean_start,
                            ..again.clone()
                        });
                        look(&mut stage, at);
                    }
                }
            }
            let expected: Vec<u64> = expected(delay_s, expiry_s, end).into_iter().collect();
            assert_eq!(seen, expected, "{what}");
            assert_eq!(stage.statistic("mqtt_wills_total"), expected.len() as u64);
        }
    }
}

#[test]
fn mqtt_3_1_2_6_a_will_is_published_at_its_quality_of_service() {
    for (version, qos) in [(V5, QOS_0), (V311, QOS_1), (V5, QOS_2), (V311, QOS_2)] {
        let mut stage = Stage::default();
        let watcher = stage.client(V5, "watcher");
        stage.subscribe(watcher, "gone/#", QOS_2);
        let mortal = stage.client_with(Connect {
            client_id: "mortal",
            will: Some(will(qos)),
            ..plain(version)
        });
        stage.hang_up(mortal);
        let heard = stage.hears(watcher);
        let id = if qos == QOS_0 { "" } else { " id 1" };
        let expected = format!("PUBLISH gone/a qos {}{id}: bye", qos as u8);
        assert_eq!(heard, [expected]);
    }
}

#[test]
fn mqtt_3_1_2_5_the_will_of_the_new_connection_replaces_the_old_one() {
    let mut stage = Stage::default();
    let watcher = stage.client(V5, "watcher");
    stage.subscribe(watcher, "gone/#", QOS_0);
    let first = stage.client_with(mortal(5, 60));
    stage.hang_up(first);
    let second = Will {
        payload: b"second",
        ..will(QOS_0)
    };
    let client = stage.client_with(Connect {
        will: Some(second),
        ..mortal(5, 60)
    });
    stage.wait(10_000);
    assert_eq!(stage.hears(watcher), [""; 0], "the first is gone for good");
    stage.hang_up(client);
    assert_eq!(stage.hears(watcher), ["PUBLISH gone/a qos 0: second"]);
}

#[test]
fn wills_count_to_all_that_waits_and_are_refused_where_there_is_no_room() {
    let mut stage = Stage::new(Limits {
        queued_bytes_of_node_max: 2_500,
        ..Limits::default()
    });
    let payload = "x".repeat(1_000);
    let connect = |client_id| Connect {
        client_id,
        will: Some(Will {
            payload: payload.as_bytes(),
            ..will(QOS_1)
        }),
        ..plain(V5)
    };
    let [a, b] = ["a", "b"].map(|client_id| stage.client_with(connect(client_id)));
    let two = stage.statistic("mqtt_queued_bytes");
    assert!((2_000..2_500).contains(&two), "{two}");
    let third = stage.asks(connect("c"));
    stage.decide(0);
    assert_eq!(stage.hears(third), ["CONNACK 0x97", "closed: refused"]);
    let refused = "mqtt_packets_refused_total{reason=\"memory_full\"}";
    assert_eq!(stage.statistic(refused), 1);
    // One that comes back has the place of its last will; without a will there is always one.
    let again = stage.client_with(connect("a"));
    assert_eq!(stage.hears(a), ["DISCONNECT 0x8e", "closed: taken_over"]);
    stage.client(V5, "plain");
    // Publishing a will frees its place, and so does a good-bye.
    stage.hang_up(b);
    stage.send(again, &Packet::Disconnect(Disconnect::default()));
    assert_eq!(stage.statistic("mqtt_queued_bytes"), 0);
    stage.client_with(connect("c"));
}
