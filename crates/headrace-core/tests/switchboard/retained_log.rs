//! Retained messages that last: acknowledged once they are durable, and read back by a start.

use headrace_core::mqtt::packet::{Connect, Publish, SubscriptionRequest};
use headrace_core::record::{Batches, Records};
use headrace_core::switchboard::{Append, Limits, Restored};

use super::stage::*;

/// The stream that keeps them.
pub const STREAM: u64 = 40;
pub const PARTITIONS: u32 = 3;

/// A switchboard whose retained messages last.
pub fn lasting(limits: Limits) -> Stage {
    let mut stage = Stage::new(limits);
    let board = &mut stage.switchboard;
    board.bind(STREAM, PARTITIONS, &[], "topic").unwrap();
    board.keep_retained(STREAM).unwrap();
    stage
}

pub fn stage() -> Stage {
    lasting(Limits::default())
}

/// Topic, payload and the names of the headers of each record.
pub fn records(append: &Append) -> Vec<(String, Option<String>, Vec<String>)> {
    assert_eq!(append.stream, STREAM);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let batch = Batches::new(&append.batch).next().unwrap().unwrap();
    let records = Records::new(&batch.header, batch.body());
    records
        .map(|record| {
            let record = record.unwrap();
            let headers = record.headers.map(|(name, _)| text(name)).collect();
            (text(record.key.unwrap()), record.value.map(text), headers)
        })
        .collect()
}

/// All that is on its way becomes durable; its batches, in their order.
pub fn settle(stage: &mut Stage) -> Vec<u8> {
    let mut log = Vec::new();
    while !stage.appends.is_empty() {
        log.extend_from_slice(&stage.appends[0].batch);
        stage.durable(true);
    }
    log
}

/// A new life that begins with what a log holds, some time later on both clocks.
pub fn restarted(log: &[u8], now_of: &Stage, ms: u64) -> Stage {
    let mut stage = stage();
    stage.now.wall_ms = now_of.now.wall_ms + ms as i64;
    stage.now.mono_ms = 17; // of another boot
    let restored = stage.switchboard.restore_retained(log, stage.now);
    assert_eq!(restored.unwrap().ignored, 0);
    stage
}

/// What a new subscriber is sent.
pub fn told(stage: &mut Stage, filter: &str) -> Vec<String> {
    let client = stage.client(V5, "curious");
    stage.subscribe_with(client, request(filter, QOS_2));
    let heard = stage.hears(client);
    stage.hang_up(client);
    heard[1..].to_vec()
}

pub fn expires(seconds: u32) -> PublishProperties<'static> {
    PublishProperties {
        payload_format: Some(1),
        message_expiry: Some(seconds),
        ..PublishProperties::default()
    }
}

#[test]
fn mqtt_3_3_1_5_a_retained_message_is_acknowledged_once_it_is_durable() {
    for (qos, answer) in [(QOS_1, "PUBACK 9 0x10"), (QOS_2, "PUBREC 9")] {
        for payload in ["x", ""] {
            let mut stage = stage();
            let client = stage.client(V5, "p");
            stage.retain(client, "t", qos, payload);
            assert_eq!(stage.hears(client), [""; 0]);
            assert_eq!(stage.statistic("mqtt_retained_undurable"), 1);
            assert!(stage.statistic("mqtt_undurable_bytes") > 0);
            stage.durable(true);
            assert_eq!(stage.hears(client)[0], answer);
            assert_eq!(stage.statistic("mqtt_retained_undurable"), 0);
            let kept = u64::from(!payload.is_empty());
            assert_eq!(stage.statistic("mqtt_retained_messages"), kept);
        }
    }
}

#[test]
fn at_qos_0_it_is_retained_at_once_and_stored_without_a_promise() {
    let mut stage = stage();
    let client = stage.client(V5, "p");
    stage.retain(client, "t", QOS_0, "x");
    assert_eq!(told(&mut stage, "t"), ["PUBLISH t qos 0 retain: x"]);
    assert_eq!(stage.appends.len(), 1);
    stage.durable(false);
    assert_eq!(told(&mut stage, "t"), ["PUBLISH t qos 0 retain: x"]);
    assert_eq!(stage.statistic("mqtt_retained_records_total"), 1);
}

#[test]
fn a_record_is_what_tools_for_kafka_can_read() {
    let mut stage = stage();
    let client = stage.client(V5, "p");
    stage.retain(client, "a/b", QOS_0, "21.5");
    stage.retain(client, "a/b", QOS_0, "");
    stage.publish(client, "a/b", QOS_0, 0, "passing");
    let header = || vec!["mqtt.retained".to_owned()];
    let records: Vec<_> = stage.appends.iter().flat_map(records).collect();
    let topic = || "a/b".to_owned();
    let expected = [
        (topic(), Some("21.5".to_owned()), header()),
        (topic(), None, vec![]),
    ];
    assert_eq!(records, expected);
}

#[test]
fn what_is_refused_by_the_disk_is_not_retained() {
    for is_bound in [false, true] {
        for refused in [0, 1] {
            let mut stage = stage();
            if is_bound {
                stage.switchboard.bind(1, 1, &["t"], "topic").unwrap();
            }
            let publisher = stage.client(V5, "p");
            stage.retain(publisher, "t", QOS_1, "x");
            assert_eq!(told(&mut stage, "t"), [""; 0]);
            let both = if is_bound { 2 } else { 1 };
            assert_eq!(stage.appends.len(), both);
            (0..both).for_each(|at| stage.durable(at != refused));
            let is_refused = refused < both;
            assert_eq!(stage.hears(publisher).join("").contains("0x80"), is_refused);
            if !is_bound {
                assert_eq!(told(&mut stage, "t").is_empty(), is_refused);
            }
        }
    }
}

#[test]
fn who_subscribes_before_it_is_durable_is_told_once_it_is() {
    for qos in [QOS_0, QOS_1] {
        for is_bound in [false, true] {
            let mut stage = stage();
            if is_bound {
                stage.switchboard.bind(1, 1, &["t"], "topic").unwrap();
            }
            let (publisher, client) = (stage.client(V5, "p"), stage.client(V5, "c"));
            let live = stage.client(V5, "live");
            stage.subscribe(live, "t", QOS_0);
            stage.retain(publisher, "t", QOS_1, "x");
            stage.subscribe(client, "t", qos);
            stage.subscribe_as(client, Some(4), request("+", qos));
            // Subscribed before, at QoS 0 it was served when it came.
            assert_eq!(stage.hears(live), ["PUBLISH t qos 0: x"]);
            stage.subscribe(live, "+", QOS_1);
            stage.hears(client);
            settle(&mut stage);
            let heard = stage.hears(client);
            assert_eq!(heard.len(), 1, "{heard:?}");
            assert!(heard[0].ends_with(": x ids [4]"), "{heard:?}");
            assert_eq!(stage.hears(live), [""; 0]);
            // A message that is not retained is not for who came later.
            stage.publish(publisher, "t", QOS_1, 1, "y");
            let later = stage.client(V5, "later");
            stage.subscribe_with(later, request("t", QOS_1));
            let told = ["SUBACK 1 [0x01]", "PUBLISH t qos 1 id 1 retain: x"];
            assert_eq!(stage.hears(later), told);
            settle(&mut stage);
            assert_eq!(stage.hears(later), [""; 0]);
        }
    }
}

#[test]
fn mqtt_3_8_3_3_no_local_holds_for_who_subscribes_before_it_is_durable() {
    let mut stage = stage();
    let client = stage.client(V5, "p");
    stage.retain(client, "t", QOS_1, "x");
    let no_local = SubscriptionRequest {
        no_local: true,
        ..request("t", QOS_1)
    };
    stage.subscribe_with(client, no_local);
    settle(&mut stage);
    assert_eq!(stage.hears(client), ["SUBACK 1 [0x01]", "PUBACK 9 0x10"]);
}

#[test]
fn the_order_of_arrivals_is_that_of_the_log_whatever_the_quality_of_service() {
    let mut stage = stage();
    let (a, b) = (stage.client(V5, "a"), stage.client(V5, "b"));
    stage.retain(a, "t", QOS_1, "first");
    stage.retain(b, "t", QOS_0, "second");
    assert_eq!(told(&mut stage, "t"), ["PUBLISH t qos 0 retain: second"]);
    let log = settle(&mut stage);
    assert_eq!(told(&mut stage, "t"), ["PUBLISH t qos 0 retain: second"]);
    let mut next = restarted(&log, &stage, 0);
    assert_eq!(told(&mut next, "t"), ["PUBLISH t qos 0 retain: second"]);
    // A clear overtakes as well.
    stage.retain(a, "t", QOS_1, "third");
    stage.retain(b, "t", QOS_0, "");
    settle(&mut stage);
    assert_eq!(told(&mut stage, "t"), [""; 0]);
    stage.retain(a, "t", QOS_1, "fourth");
    stage.retain(b, "t", QOS_1, "fifth");
    settle(&mut stage);
    assert_eq!(
        told(&mut stage, "t"),
        ["PUBLISH t qos 1 id 1 retain: fifth"]
    );
}

#[test]
fn what_is_on_its_way_counts_and_what_was_promised_stays_though_bounds_were_lowered() {
    let few = |count| Limits {
        retained_messages_max: count,
        ..Limits::default()
    };
    let mut stage = lasting(few(2));
    let client = stage.client(V5, "p");
    for topic in ["a", "b", "c", "a"] {
        stage.retain(client, topic, QOS_1, "x");
    }
    let refused = "PUBACK 9 0x97 the broker retains as many messages as it may";
    let log = settle(&mut stage);
    let answers = stage.hears(client);
    assert_eq!(answers.iter().filter(|each| *each == refused).count(), 1);
    assert_eq!(stage.statistic("mqtt_retained_messages"), 2);

    let mut next = lasting(few(1));
    let restored = next.switchboard.restore_retained(&log, next.now);
    let Restored {
        records, ignored, ..
    } = restored.unwrap();
    assert_eq!((records, ignored), (3, 0));
    assert_eq!(next.statistic("mqtt_retained_messages"), 2);
    let client = next.client(V5, "p");
    next.retain(client, "d", QOS_1, "x");
    assert_eq!(next.hears(client), [refused]);
    next.retain(client, "a", QOS_1, "");
    next.retain(client, "b", QOS_1, "y");
    settle(&mut next);
    assert_eq!(told(&mut next, "#"), ["PUBLISH b qos 1 id 1 retain: y"]);
}

#[test]
fn a_record_that_is_larger_than_its_stream_takes_is_refused() {
    let mut stage = stage();
    let board = &mut stage.switchboard;
    board
        .shape(STREAM, headrace_core::record::Codec::None, 1_000, false)
        .unwrap();
    let client = stage.client(V5, "p");
    stage.retain(client, "t", QOS_1, &"x".repeat(1_000));
    assert!(stage.hears(client)[0].starts_with("PUBACK 9 0x97"));
    stage.retain(client, "t", QOS_1, &"x".repeat(700));
    settle(&mut stage);
    assert_eq!(told(&mut stage, "t").len(), 1);
}

#[test]
fn a_repeat_waits_for_what_the_first_copy_has_retained() {
    let mut stage = stage();
    stage.switchboard.bind(1, 1, &["t"], "topic").unwrap();
    let client = stage.client(V5, "p");
    let source = || user(&[("source", "s"), ("epoch", "1"), ("sequence", "1")]);
    stage.retain_with(client, "t", QOS_1, "x", source());
    let again = stage.client(V5, "again");
    stage.retain_with(again, "t", QOS_1, "x", source());
    stage.durable(true);
    assert_eq!(stage.hears(again), [""; 0]);
    stage.durable(true);
    assert_eq!(stage.hears(again), ["PUBACK 9 0x00 already stored"]);
    assert_eq!(stage.statistic("mqtt_retained_records_total"), 1);
}

#[test]
fn a_will_is_retained_as_any_other_publish() {
    for qos in [QOS_0, QOS_1, QOS_2] {
        let mut stage = stage();
        let client = stage.client_with(Connect {
            client_id: "a",
            will: Some(Will {
                topic: "status/a",
                payload: b"gone",
                retain: true,
                qos,
                ..Will::default()
            }),
            ..plain(V5)
        });
        stage.hang_up(client);
        let log = settle(&mut stage);
        let here = told(&mut stage, "status/+");
        assert_eq!(here.len(), 1, "{qos:?}");
        let mut next = restarted(&log, &stage, 0);
        assert_eq!(told(&mut next, "status/+"), here);
    }
}

/// Holds 5.0: 4.6.0-5, 4.6.0-6.
/// Holds 3.1.1: 4.6.0-5, 4.6.0-6.
#[test]
fn mqtt_4_6_what_waits_for_nothing_does_not_overtake_what_waits_for_the_disk() {
    for (qos, answers) in [
        (QOS_1, ["PUBACK 9", "PUBACK 10"]),
        (QOS_2, ["PUBREC 9", "PUBREC 10"]),
    ] {
        let mut stage = stage();
        let [publisher, subscriber] = ["p", "s"].map(|name| stage.client(V5, name));
        stage.subscribe(subscriber, "t", qos);
        stage.retain(publisher, "t", qos, "first");
        stage.publish(publisher, "t", qos, 10, "second");
        assert_eq!(stage.hears(subscriber), [""; 0]);
        stage.durable(true);
        let expected = ["first", "second"].map(|payload| {
            let id = if payload == "first" { 1 } else { 2 };
            format!("PUBLISH t qos {} id {id}: {payload}", qos as u8)
        });
        assert_eq!(stage.hears(subscriber), expected);
        assert_eq!(stage.hears(publisher), answers);
        // Nothing waits any more, so the next one is served at once.
        stage.publish(publisher, "t", qos, 11, "third");
        assert_eq!(stage.hears(subscriber).len(), 1);
    }
}

#[test]
fn what_waited_behind_a_publish_that_was_refused_is_delivered() {
    let mut stage = stage();
    let [publisher, subscriber] = ["p", "s"].map(|name| stage.client(V5, name));
    stage.subscribe(subscriber, "t", QOS_1);
    stage.retain(publisher, "t", QOS_1, "first");
    stage.publish(publisher, "t", QOS_1, 10, "second");
    stage.durable(false);
    assert_eq!(stage.hears(subscriber), ["PUBLISH t qos 1 id 1: second"]);
    assert!(stage.hears(publisher)[0].starts_with("PUBACK 9 0x80"));
}

#[test]
fn another_door_retains_and_clears_and_hears_when_that_is_durable() {
    let mut stage = lasting(Limits {
        retained_messages_max: 1,
        ..Limits::default()
    });
    let subscriber = stage.client(V5, "s");
    stage.subscribe(subscriber, "t", QOS_1);
    let mut retain = |payload: &[u8], topic: &str, request| {
        let publish = Publish {
            retain: true,
            ..door(topic, payload, QOS_1, &[])
        };
        let board = &mut stage.switchboard;
        board.publish(&publish, request, stage.now).unwrap();
        stage.run();
        let early = stage.switchboard.published();
        while !stage.appends.is_empty() {
            assert!(early.is_empty(), "it waits for the disk");
            stage.durable(true);
        }
        let mut ended = [early, stage.switchboard.published()].concat();
        let ended = ended.pop().expect("it has ended");
        assert_eq!(ended.request, request);
        let count = stage.statistic("mqtt_retained_messages");
        (ended.reason_code, count)
    };
    assert_eq!(retain(b"x", "t", 1), (0, 1));
    assert_eq!(retain(b"x", "other", 2), (0x9A, 1), "there is no room");
    assert_eq!(retain(b"", "t", 3), (0, 0));
    let expected = ["PUBLISH t qos 1 id 1: x", "PUBLISH t qos 1 id 2: "];
    assert_eq!(stage.hears(subscriber), expected);
}
