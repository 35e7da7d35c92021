//! Live traces, told as the lines that a person reads.

use std::fmt::Write;

use headrace_core::mqtt::packet::{Connect, Packet};
use headrace_core::switchboard::{Limits, Policy, TraceLine, TraceSubject, TraceWay, TRACES_MAX};

use super::stage::*;

fn client(stage: &mut Stage, client_id: &str) -> u64 {
    let subject = TraceSubject::Client(client_id.into());
    let begun = stage.switchboard.start_trace(subject, 100).unwrap();
    begun.expect("there is room")
}

fn topic(stage: &mut Stage, filter: &str) -> u64 {
    let subject = TraceSubject::Topic(filter.into());
    let begun = stage.switchboard.start_trace(subject, 3).unwrap();
    begun.expect("there is room")
}

fn seen(stage: &mut Stage, trace: u64) -> Vec<String> {
    let (lines, lost) = stage.switchboard.take_trace(trace).unwrap();
    assert_eq!(lost, 0);
    lines.iter().map(line).collect()
}

fn line(line: &TraceLine) -> String {
    let way = match line.way {
        TraceWay::In => "in",
        TraceWay::Out => "out",
        TraceWay::Drop => "drop",
        TraceWay::Rest => "rest",
        TraceWay::Close => "close",
    };
    let mut text = format!("{}: {way}", line.client_id);
    for part in [line.packet, &line.topic] {
        if !part.is_empty() {
            text = text + " " + part;
        }
    }
    if line.packet_id > 0 {
        write!(text, " id {}", line.packet_id).unwrap();
    }
    if let Some(code) = line.reason_code {
        write!(text, " {code:#04x}").unwrap();
    }
    if !line.text.is_empty() {
        write!(text, " ({})", line.text).unwrap();
    }
    if !line.payload.is_empty() {
        let payload = String::from_utf8_lossy(&line.payload);
        write!(text, ": {payload} of {} bytes", line.bytes).unwrap();
    }
    text
}

#[test]
fn a_client_is_followed_from_connect_to_its_end() {
    let mut stage = Stage::default();
    let trace = client(&mut stage, "c");
    let other = stage.client(V5, "other");
    let connection = stage.client(V5, "c");
    stage.subscribe(connection, "a/#", QOS_1);
    stage.publish(other, "a/1", QOS_1, 5, "hi");
    stage.acknowledge(connection, 1);
    stage.publish(connection, "b", QOS_2, 7, "there");
    stage.release(connection, 7);
    stage.send(connection, &Packet::Pingreq);
    stage.hang_up(connection);
    let expected = [
        "c: in CONNECT (MQTT 5.0, clean, keep-alive 0 s)",
        "c: out CONNACK 0x00",
        "c: in SUBSCRIBE id 1 (a/# qos 1)",
        "c: out SUBACK id 1 0x01 (0x01)",
        "c: out PUBLISH a/1 id 1: hi of 12 bytes",
        "c: in PUBACK id 1 0x00",
        "c: in PUBLISH b id 7: there of 13 bytes",
        "c: drop b (no_match)",
        "c: out PUBREC id 7 0x00",
        "c: in PUBREL id 7 0x00",
        "c: out PUBCOMP id 7 0x00",
        "c: in PINGREQ",
        "c: out PINGRESP",
        "c: close (gone)",
    ];
    assert_eq!(seen(&mut stage, trace), expected);
}

#[test]
fn who_is_refused_is_seen_by_its_name() {
    let mut stage = Stage::default();
    let trace = client(&mut stage, "c");
    stage.asks(Connect {
        client_id: "c",
        username: Some("ann"),
        password: Some(b"secret"),
        ..plain(V5)
    });
    stage.decide(0x87);
    let expected = [
        "c: in CONNECT (MQTT 5.0, clean, keep-alive 0 s, user ann)",
        "c: out CONNACK 0x87",
        "c: close (refused)",
    ];
    assert_eq!(seen(&mut stage, trace), expected);
}

#[test]
fn a_topic_is_followed_through_everyone_with_excerpts() {
    let mut stage = Stage::default();
    let trace = topic(&mut stage, "a/+");
    let here = stage.client(V5, "here");
    stage.subscribe(here, "#", QOS_0);
    let away = stage.client_with(Connect {
        client_id: "away",
        session_expiry_s: Some(60),
        ..plain(V5)
    });
    stage.subscribe(away, "a/#", QOS_0);
    stage.hang_up(away);
    let publisher = stage.client(V5, "p");
    stage.publish(publisher, "a/1", QOS_0, 0, "21.5");
    stage.publish(publisher, "b", QOS_0, 0, "unseen");
    let now = stage.now;
    stage
        .switchboard
        .publish(&door("a/2", b"22.5", QOS_0, &[]), 1, now)
        .unwrap();
    let mut lines = seen(&mut stage, trace);
    lines[1..3].sort();
    lines[4..6].sort();
    let expected = [
        "p: in PUBLISH a/1: 21. of 12 bytes",
        "away: drop a/1 (away)",
        "here: out PUBLISH a/1: 21. of 12 bytes",
        ": in PUBLISH a/2 (another door): 22. of 12 bytes",
        "away: drop a/2 (away)",
        "here: out PUBLISH a/2: 22. of 12 bytes",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn an_alias_is_told_as_its_topic() {
    let mut stage = Stage::default();
    let trace = topic(&mut stage, "long/name");
    let publisher = stage.client(V5, "p");
    for topic in ["long/name", ""] {
        let properties = PublishProperties {
            topic_alias: Some(3),
            ..PublishProperties::default()
        };
        stage.publish_with(publisher, topic, QOS_0, 0, "x", properties);
    }
    let lines = seen(&mut stage, trace);
    let came = lines.iter().filter(|line| line.starts_with("p: in"));
    assert_eq!(came.count(), 2, "{lines:?}");
}

#[test]
fn what_waits_is_seen_once_and_why_it_waits() {
    let mut stage = Stage::new(headrace_core::switchboard::Limits {
        messages_per_s_max: 1,
        ..headrace_core::switchboard::Limits::default()
    });
    let publisher = stage.client(V5, "p");
    let trace = client(&mut stage, "p");
    stage.publish(publisher, "a", QOS_0, 0, "1");
    stage.publish(publisher, "a", QOS_0, 0, "2");
    stage.wait(1_000);
    stage.wait(1_000);
    let expected = [
        "p: in PUBLISH a: 1 of 7 bytes",
        "p: drop a (no_match)",
        "p: in PUBLISH a: 2 of 7 bytes",
        "p: rest (rate)",
        "p: drop a (no_match)",
    ];
    assert_eq!(seen(&mut stage, trace), expected);
}

#[test]
fn a_will_is_seen_as_its_client_s() {
    let mut stage = Stage::default();
    let trace = topic(&mut stage, "gone");
    let mortal = stage.client_with(Connect {
        client_id: "m",
        will: Some(Will {
            topic: "gone",
            payload: b"bye",
            ..Will::default()
        }),
        ..plain(V5)
    });
    stage.hang_up(mortal);
    let expected = [
        "m: in PUBLISH gone (will): bye of 12 bytes",
        "m: drop gone (no_match)",
    ];
    assert_eq!(seen(&mut stage, trace), expected);
}

#[test]
fn traces_are_few_and_end() {
    let mut stage = Stage::default();
    let ids: Vec<u64> = (0..TRACES_MAX).map(|_| client(&mut stage, "c")).collect();
    let more = TraceSubject::Client("c".into());
    assert_eq!(stage.switchboard.start_trace(more.clone(), 0), Ok(None));
    let connection = stage.client(V311, "c");
    for id in &ids {
        assert_eq!(seen(&mut stage, *id).len(), 2);
        stage.switchboard.stop_trace(*id);
        assert!(stage.switchboard.take_trace(*id).is_err());
    }
    stage.switchboard.stop_trace(ids[0]);
    assert!(stage.switchboard.start_trace(more, 0).unwrap().is_some());
    stage.hang_up(connection);
    let bad = TraceSubject::Topic("a#".into());
    assert!(stage.switchboard.start_trace(bad, 0).is_err());
}

#[test]
fn what_expired_or_was_left_while_it_waited_is_told() {
    let mut stage = Stage::default();
    let asks = || Connect {
        client_id: "sleeper",
        clean_start: false,
        session_expiry_s: Some(60),
        ..plain(V5)
    };
    let sleeper = stage.client_with(asks());
    stage.subscribe(sleeper, "a", QOS_1);
    stage.hang_up(sleeper);
    let publisher = stage.client(V5, "p");
    for (id, seconds) in [(1, 1), (2, 1), (3, 100)] {
        let properties = PublishProperties {
            message_expiry: Some(seconds),
            ..PublishProperties::default()
        };
        stage.publish_with(publisher, "a", QOS_1, id, "x", properties);
    }
    stage.wait(2_000);
    let traces = [client(&mut stage, "sleeper"), topic(&mut stage, "a")];
    let sleeper = stage.client_with(asks());
    let expected = [
        "sleeper: drop a (expired)",
        "sleeper: drop a (expired)",
        "sleeper: out PUBLISH a id 1: x of 14 bytes",
    ];
    assert_eq!(seen(&mut stage, traces[0])[2..], expected);
    assert_eq!(seen(&mut stage, traces[1]), expected);
    // What is in flight is not left; what waits behind it is.
    let small = stage.client_with(Connect {
        client_id: "small",
        receive_maximum: Some(1),
        ..plain(V5)
    });
    stage.subscribe(small, "b", QOS_1);
    for id in 4..=5 {
        stage.publish(publisher, "b", QOS_1, id, "y");
    }
    let trace = topic(&mut stage, "b");
    stage.hang_up(small);
    stage.hang_up(sleeper);
    assert_eq!(seen(&mut stage, trace), ["small: drop b (session_ended)"]);
}

#[test]
fn the_oldest_that_gives_way_is_told_by_its_own_topic() {
    let mut stage = Stage::new(Limits {
        overflow: Policy::DropOldest,
        queued_messages_max: 1,
        group_messages_max: 1,
        ..Limits::default()
    });
    let publisher = stage.client(V5, "p");
    for (client_id, filter) in [("s", "alone/+"), ("m", "$share/g/shared/+")] {
        let away = stage.client_with(Connect {
            client_id,
            session_expiry_s: Some(60),
            ..plain(V5)
        });
        stage.subscribe(away, filter, QOS_1);
        stage.hang_up(away);
    }
    let trace = topic(&mut stage, "+/old");
    for (id, topic) in [
        (1, "alone/old"),
        (2, "alone/new"),
        (3, "shared/old"),
        (4, "shared/new"),
    ] {
        stage.publish(publisher, topic, QOS_1, id, "x");
    }
    let lines = seen(&mut stage, trace);
    let drops: Vec<&String> = lines.iter().filter(|line| line.contains("drop")).collect();
    let expected = [
        "s: drop alone/old (queue_full_oldest)",
        ": drop shared/old (group_queue_full)",
    ];
    assert_eq!(drops, expected);
}

#[test]
fn what_waits_for_a_group_is_told_when_it_goes() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    let asks = || Connect {
        client_id: "m",
        clean_start: false,
        session_expiry_s: Some(60),
        maximum_packet_size: Some(100),
        ..plain(V5)
    };
    let member = stage.client_with(asks());
    stage.subscribe(member, "$share/g/+", QOS_1);
    stage.hang_up(member);
    let expires = PublishProperties {
        message_expiry: Some(1),
        ..PublishProperties::default()
    };
    stage.publish_with(publisher, "t", QOS_1, 1, "x", expires);
    stage.publish(publisher, "t", QOS_1, 2, &"x".repeat(200));
    stage.wait(2_000);
    let trace = topic(&mut stage, "t");
    let member = stage.asks(asks());
    stage.decide(0);
    let expected = [": drop t (expired)", ": drop t (packet_too_large)"];
    assert_eq!(seen(&mut stage, trace), expected);
    // The last member takes with it what waits.
    stage.hang_up(member);
    stage.publish(publisher, "t", QOS_1, 3, "x");
    seen(&mut stage, trace);
    stage.switchboard.delete_session("m", 1, stage.now);
    stage.run();
    assert_eq!(seen(&mut stage, trace), [": drop t (session_ended)"]);
}

#[test]
fn what_could_not_be_stored_or_expired_on_its_way_to_the_disk_is_told() {
    let mut stage = Stage::default();
    stage.switchboard.bind(1, 1, &["t"], "topic").unwrap();
    let [publisher, subscriber, member] = ["p", "s", "m"].map(|name| stage.client(V5, name));
    stage.subscribe(subscriber, "t", QOS_1);
    stage.subscribe(member, "$share/g/t", QOS_1);
    let trace = topic(&mut stage, "t");
    stage.publish(publisher, "t", QOS_1, 1, "x");
    stage.durable(false);
    let expires = PublishProperties {
        message_expiry: Some(1),
        ..PublishProperties::default()
    };
    stage.publish_with(publisher, "t", QOS_1, 2, "x", expires);
    stage.wait(2_000);
    stage.durable(true);
    let lines = seen(&mut stage, trace);
    let drops: Vec<&String> = lines.iter().filter(|line| line.contains("drop")).collect();
    let expected = [
        "p: drop t (not_stored)",
        "s: drop t (expired)",
        ": drop t (expired)",
    ];
    assert_eq!(drops, expected);
    let counted = "mqtt_messages_dropped_total{reason=\"expired\"}";
    assert_eq!(stage.statistic(counted), 2);
}
