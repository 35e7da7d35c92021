//! Retained messages that last: acknowledged once they are durable, and read back by a start.

use headrace_core::mqtt::packet::{Connect, Publish, SubscriptionRequest};
use headrace_core::record::{Batches, Records};
use headrace_core::switchboard::{Append, Limits, Restored, RetainedState};

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

fn stage() -> Stage {
    lasting(Limits::default())
}

/// Topic, payload and the names of the headers of each record.
fn records(append: &Append) -> Vec<(String, Option<String>, Vec<String>)> {
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
fn settle(stage: &mut Stage) -> Vec<u8> {
    let mut log = Vec::new();
    while !stage.appends.is_empty() {
        log.extend_from_slice(&stage.appends[0].batch);
        stage.durable(true);
    }
    log
}

/// A new life that begins with what a log holds, some time later on both clocks.
fn restarted(log: &[u8], now_of: &Stage, ms: u64) -> Stage {
    let mut stage = stage();
    stage.now.wall_ms = now_of.now.wall_ms + ms as i64;
    stage.now.mono_ms = 17; // of another boot
    let restored = stage.switchboard.restore_retained(log, stage.now);
    assert_eq!(restored.unwrap().ignored, 0);
    stage
}

/// A state of all partitions, read in pages, in one walk.
fn state(stage: &Stage) -> Vec<u8> {
    let partitions: Vec<u32> = (0..PARTITIONS).collect();
    state_of(stage, &partitions).concat()
}

/// A state of each partition.
fn state_of(stage: &Stage, partitions: &[u32]) -> Vec<Vec<u8>> {
    let mut all = vec![Vec::new(); partitions.len()];
    let mut from = Some(String::new());
    while let Some(at) = from {
        let page = stage
            .switchboard
            .retained_state(partitions, &at, 3, stage.now);
        for (all, (batches, _)) in all.iter_mut().zip(page.parts) {
            all.extend(batches);
        }
        from = page.next;
    }
    all
}

#[test]
fn a_walk_for_several_partitions_finds_what_one_for_each_finds() {
    let mut stage = stage();
    let client = stage.client(V5, "publisher");
    for number in 0..20 {
        stage.retain(client, &format!("t/{number}"), QOS_0, "x");
    }
    let together = state_of(&stage, &[2, 0]);
    let apart: Vec<_> = [[2], [0]]
        .iter()
        .flat_map(|of| state_of(&stage, of))
        .collect();
    let names = |state: &[u8]| -> Vec<String> {
        let batches = Batches::new(state).map(Result::unwrap);
        let keys = batches.flat_map(|batch| {
            let records = Records::new(&batch.header, batch.body());
            records.map(|each| String::from_utf8(each.unwrap().key.unwrap().into()).unwrap())
        });
        keys.collect()
    };
    assert!(together.iter().all(|state| names(state).len() > 3));
    for (one, other) in together.iter().zip(&apart) {
        assert_eq!(names(one), names(other));
    }
}

/// What a new subscriber is sent.
fn told(stage: &mut Stage, filter: &str) -> Vec<String> {
    let client = stage.client(V5, "curious");
    stage.subscribe_with(client, request(filter, QOS_2));
    let heard = stage.hears(client);
    stage.hang_up(client);
    heard[1..].to_vec()
}

fn expires(seconds: u32) -> PublishProperties<'static> {
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
fn a_start_reads_back_what_a_life_has_retained() {
    let mut stage = stage();
    let (v5, v311) = (stage.client(V5, "5"), stage.client(V311, "3"));
    stage.retain_with(v5, "a", QOS_2, "x", user(&[("k", "v"), ("k", "w")]));
    stage.release(v5, 9);
    stage.retain(v311, "a/b", QOS_1, "y");
    stage.retain(v5, "a/c", QOS_0, "old");
    stage.retain(v5, "a/c", QOS_1, "new");
    stage.retain(v5, "gone", QOS_1, "z");
    stage.retain(v311, "gone", QOS_1, "");
    stage.retain_with(v5, "brief", QOS_1, "e", expires(100));
    let log = settle(&mut stage);
    let before = told(&mut stage, "#");
    assert_eq!(before.len(), 4);
    for log in [log, state(&stage)] {
        let mut next = restarted(&log, &stage, 0);
        assert_eq!(told(&mut next, "#"), before);
        for name in ["mqtt_retained_messages", "mqtt_retained_bytes"] {
            assert_eq!(next.statistic(name), stage.statistic(name));
        }
        // And again, from what that life would keep.
        let mut third = restarted(&state(&next), &next, 0);
        assert_eq!(told(&mut third, "#"), before);
    }
}

#[test]
fn a_state_and_what_follows_it_are_what_all_records_are() {
    let mut stage = stage();
    let client = stage.client(V5, "p");
    for topic in 0..50 {
        stage.retain(client, &format!("t/{topic}"), QOS_1, "old");
    }
    settle(&mut stage);
    let kept = state(&stage);
    for topic in 0..25 {
        stage.retain(client, &format!("t/{topic}"), QOS_1, ["new", ""][topic % 2]);
    }
    let tail = settle(&mut stage);
    let before = told(&mut stage, "#");
    assert_eq!(before.len(), 38);
    let mut next = restarted(&[kept, tail].concat(), &stage, 0);
    assert_eq!(told(&mut next, "#"), before);
}

#[test]
fn mqtt_3_3_2_3_3_a_message_expires_while_the_node_is_down() {
    let mut stage = stage();
    let client = stage.client(V5, "p");
    stage.retain_with(client, "brief", QOS_1, "x", expires(10));
    stage.retain_with(client, "long", QOS_1, "x", expires(60));
    let log = settle(&mut stage);
    stage.wait(4_300);
    for log in [log, state(&stage)] {
        let of = |ms: u64| told(&mut restarted(&log, &stage, ms), "#").join(", ");
        assert!(of(0).contains("expiry 6") && of(0).contains("expiry 56"));
        assert!(of(5_700).contains("PUBLISH brief"), "its last millisecond");
        let later = of(5_701);
        assert!(
            !later.contains("brief") && later.contains("expiry 50"),
            "{later}"
        );
        assert_eq!(of(100_000), "");
        // A clock that was put back lets nothing live longer than it was published for.
        let mut early = restarted(&log, &stage, 0);
        early.now.wall_ms -= 1_000_000;
        let board = &mut early.switchboard;
        board.restore_retained(&log, early.now).unwrap();
        assert!(told(&mut early, "brief")[0].contains("expiry 10"));
    }
}

#[test]
fn what_expires_or_is_deleted_goes_from_the_log_too() {
    let mut stage = stage();
    let client = stage.client(V5, "p");
    stage.retain_with(client, "a", QOS_1, "x", expires(5));
    stage.retain(client, "b", QOS_1, "x");
    let mut log = settle(&mut stage);
    stage.wait(6_000);
    let expired: Vec<_> = stage.appends.iter().flat_map(records).collect();
    assert_eq!(expired, [("a".to_owned(), None, vec![])]);
    log.extend(settle(&mut stage));
    // One that is on its way when all is deleted goes too.
    stage.retain(client, "b", QOS_1, "y");
    let deleted = stage.switchboard.delete_retained("#", "", 7, stage.now);
    assert_eq!(deleted.unwrap().found, 1);
    stage.run();
    assert_eq!(stage.switchboard.published(), []);
    log.extend(settle(&mut stage));
    assert_eq!(stage.switchboard.published()[0].request, 7, "it is durable");
    assert_eq!(told(&mut stage, "#"), [""; 0]);
    assert_eq!(told(&mut restarted(&log, &stage, 0), "#"), [""; 0]);
    // Expired while the node was down, it goes by the first tick of the next life.
    stage.retain_with(client, "c", QOS_1, "x", expires(5));
    let log = settle(&mut stage);
    let mut next = restarted(&log, &stage, 60_000);
    next.wait(1);
    let expired: Vec<_> = next.appends.iter().flat_map(records).collect();
    assert_eq!(expired, [("c".to_owned(), None, vec![])]);
    assert_eq!(next.statistic("mqtt_retained_messages"), 0);
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
        .shape(STREAM, headrace_core::record::Codec::None, 1_000)
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

/// Key, value and header of a record.
type Case<'a> = (&'a [u8], Option<&'a [u8]>, &'a [u8]);

#[test]
fn what_is_no_record_of_this_kind_is_left_out_and_damage_is_told() {
    let mut stage = stage();
    let client = stage.client(V5, "p");
    stage.retain_with(client, "t", QOS_1, "payload", expires(10));
    let batch = stage.appends[0].batch.clone();
    let board = &mut stage.switchboard;
    for at in 0..batch.len() {
        let mut damaged = batch.clone();
        damaged[at] ^= 0x10;
        // Not all of the header is under the CRC; what is not is not looked at.
        let restored = board.restore_retained(&damaged, stage.now);
        assert!(at < 21 || restored.is_err(), "byte {at}");
    }
    let header = b"mqtt.retained";
    let fine = [&[1, 1][..], &[0; 8], &[0]].concat();
    let cases: [Case<'_>; 9] = [
        (b"a/+", Some(b"x"), &fine),
        (b"\xFF", Some(b"x"), &fine),
        (b"t", Some(b""), &fine),
        (b"t", Some(b"x"), b""),
        (b"t", Some(b"x"), &[2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (b"t", Some(b"x"), &[1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (b"t", Some(b"x"), &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 5]),
        (b"t", Some(b"x"), &[1, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0]),
        (b"t", Some(b"x"), &[1, 1, 0, 0, 0, 0, 0, 0, 0, 9, 2, 2, 0]),
    ];
    for (key, value, fields) in cases {
        let mut builder = headrace_core::record::BatchBuilder::new();
        builder.push(0, Some(key), value, [(&header[..], Some(fields))]);
        let restored = stage
            .switchboard
            .restore_retained(&builder.finish(), stage.now);
        let expected = Restored {
            records: 1,
            ignored: 1,
            next_offset: 1,
        };
        assert_eq!(restored, Ok(expected), "{fields:?}");
    }
}

#[test]
fn a_state_of_nothing_is_empty() {
    let board = stage();
    let page = board.switchboard.retained_state(&[0], "", 9, board.now);
    let parts = vec![(Vec::new(), 0)];
    assert_eq!(page, RetainedState { parts, next: None });
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
