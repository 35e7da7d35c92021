//! Retained messages (MQTT 5.0 3.3.1.3, 3.3.2.3.3, 3.8.3.1).

use headrace_core::mqtt::packet::{Connect, SubscriptionRequest};
use headrace_core::switchboard::{Limits, Page};

use super::stage::*;

fn expires(seconds: u32) -> PublishProperties<'static> {
    PublishProperties {
        message_expiry: Some(seconds),
        ..PublishProperties::default()
    }
}

/// What a new subscriber hears after its SUBACK.
fn told(stage: &mut Stage, client_id: &str, filter: &str) -> Vec<String> {
    let client = stage.client(V5, client_id);
    stage.subscribe_with(client, request(filter, QOS_1));
    let heard = stage.hears(client);
    stage.hang_up(client);
    heard[1..].to_vec()
}

/// Holds 5.0: 3.3.1-5, 3.3.1-8.
/// Holds 3.1.1: 3.3.1-5, 3.3.1-6, 3.3.1-7, 3.3.1-8, 3.3.1-9, 3.3.1-12.
#[test]
fn mqtt_3_3_1_5_the_last_retained_message_of_a_topic_is_kept() {
    for version in [V311, V5] {
        let mut stage = Stage::default();
        let publisher = stage.client(version, "p");
        let live = stage.client(version, "live");
        stage.subscribe(live, "#", QOS_1);
        for payload in ["old", "new"] {
            stage.retain(publisher, "a/b", QOS_0, payload);
        }
        stage.publish(publisher, "a/b", QOS_0, 0, "passing");
        // Who was there gets it as any other message.
        assert_eq!(
            stage.hears(live),
            [
                "PUBLISH a/b qos 0: old",
                "PUBLISH a/b qos 0: new",
                "PUBLISH a/b qos 0: passing"
            ]
        );
        let client = stage.client(version, "c");
        stage.subscribe_with(client, request("a/#", QOS_1));
        assert_eq!(
            stage.hears(client),
            ["SUBACK 1 [0x01]", "PUBLISH a/b qos 0 retain: new"]
        );
        assert_eq!(stage.statistic("mqtt_retained_messages"), 1);
    }
}

/// Holds 5.0: 3.3.1-5, 3.8.4-8.
#[test]
fn mqtt_3_3_1_8_it_comes_at_the_lower_quality_of_service() {
    for (published, granted, line) in [
        (QOS_0, QOS_2, "PUBLISH t qos 0 retain: x"),
        (QOS_1, QOS_2, "PUBLISH t qos 1 id 1 retain: x"),
        (QOS_2, QOS_2, "PUBLISH t qos 2 id 1 retain: x"),
        (QOS_2, QOS_1, "PUBLISH t qos 1 id 1 retain: x"),
        (QOS_2, QOS_0, "PUBLISH t qos 0 retain: x"),
    ] {
        let mut stage = Stage::default();
        let (publisher, client) = (stage.client(V5, "p"), stage.client(V5, "c"));
        stage.retain(publisher, "t", published, "x");
        stage.subscribe_with(client, request("t", granted));
        assert_eq!(stage.hears(client)[1..], [line]);
    }
}

/// Holds 5.0: 3.3.1-6, 3.3.1-7.
/// Holds 3.1.1: 3.3.1-10, 3.3.1-11.
#[test]
fn mqtt_3_3_1_6_7_an_empty_one_clears_and_is_sent_but_not_kept() {
    for qos in [QOS_0, QOS_1, QOS_2] {
        for is_stored in [false, true] {
            let mut stage = Stage::default();
            if is_stored {
                stage.switchboard.bind(1, 1, &["#"], "topic").unwrap();
            }
            let (publisher, live) = (stage.client(V5, "p"), stage.client(V311, "live"));
            stage.subscribe(live, "#", QOS_0);
            for payload in ["x", ""] {
                stage.retain(publisher, "t", qos, payload);
                while !stage.appends.is_empty() {
                    stage.durable(true);
                }
                if qos == QOS_2 {
                    stage.release(publisher, 9);
                }
            }
            assert_eq!(
                stage.hears(live),
                ["PUBLISH t qos 0: x", "PUBLISH t qos 0: "]
            );
            assert_eq!(told(&mut stage, "c", "#"), [""; 0]);
            assert_eq!(stage.statistic("mqtt_retained_messages"), 0);
            assert_eq!(stage.statistic("mqtt_retained_bytes"), 0);
            // One that clears what is not there is nothing special.
            stage.retain(publisher, "u", QOS_0, "");
            assert_eq!(stage.statistic("mqtt_retained_messages"), 0);
        }
    }
}

/// Holds 5.0: 3.3.1-9, 3.3.1-10, 3.3.1-11, 3.8.4-4.
#[test]
fn mqtt_3_3_1_9_10_11_retain_handling_says_when_they_are_sent() {
    for (handling, new, again) in [(0, true, true), (1, true, false), (2, false, false)] {
        let mut stage = Stage::default();
        let (publisher, client) = (stage.client(V5, "p"), stage.client(V5, "c"));
        stage.retain(publisher, "t", QOS_0, "x");
        for comes in [new, again] {
            let request = SubscriptionRequest {
                retain_handling: handling,
                ..request("t", QOS_0)
            };
            stage.subscribe_with(client, request);
            let heard = stage.hears(client);
            assert_eq!(heard.len(), 1 + usize::from(comes), "{handling} {heard:?}");
        }
        // Unsubscribed meanwhile, it is new.
        stage.unsubscribe(client, &["t"]);
        stage.hears(client);
        let request = SubscriptionRequest {
            retain_handling: handling,
            ..request("t", QOS_0)
        };
        stage.subscribe_with(client, request);
        assert_eq!(stage.hears(client).len(), 1 + usize::from(new));
    }
}

/// Holds 5.0: 3.3.1-12, 3.3.1-13.
#[test]
fn mqtt_3_3_1_12_13_retain_as_published_keeps_the_flag() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    let (kept, not) = (stage.client(V5, "kept"), stage.client(V5, "not"));
    let as_published = SubscriptionRequest {
        retain_as_published: true,
        ..request("t", QOS_0)
    };
    stage.subscribe_with(kept, as_published);
    stage.subscribe_with(not, request("t", QOS_0));
    stage.hears(kept);
    stage.hears(not);
    for payload in ["x", ""] {
        stage.retain(publisher, "t", QOS_1, payload);
        assert_eq!(
            stage.hears(kept),
            [format!("PUBLISH t qos 0 retain: {payload}")]
        );
        assert_eq!(stage.hears(not), [format!("PUBLISH t qos 0: {payload}")]);
    }
    stage.publish(publisher, "t", QOS_1, 1, "y");
    assert_eq!(stage.hears(kept), ["PUBLISH t qos 0: y"]);
}

#[test]
fn mqtt_3_3_4_a_retained_message_carries_the_identifier_of_its_subscription() {
    let mut stage = Stage::default();
    let (publisher, client) = (stage.client(V5, "p"), stage.client(V5, "c"));
    stage.retain(publisher, "a/b", QOS_0, "x");
    stage.subscribe_as(client, Some(300), request("a/+", QOS_0));
    assert_eq!(
        stage.hears(client)[1..],
        ["PUBLISH a/b qos 0 retain: x ids [300]"]
    );
    stage.subscribe_as(client, None, request("+/b", QOS_0));
    assert_eq!(stage.hears(client)[1..], ["PUBLISH a/b qos 0 retain: x"]);
}

/// Holds 5.0: 4.7.2-1.
#[test]
fn mqtt_4_7_2_1_a_leading_wildcard_brings_no_retained_message_of_the_brokers_own() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    stage.retain(publisher, "$SYS/a", QOS_1, "x");
    assert_eq!(stage.hears(publisher), ["PUBACK 9 0x87"]);
    assert_eq!(stage.statistic("mqtt_retained_messages"), 0);
    stage.retain(publisher, "a", QOS_0, "x");
    for filter in ["#", "+/a", "+/#", "$SYS/#"] {
        let heard = told(&mut stage, "c", filter);
        assert!(heard.iter().all(|line| !line.contains("$SYS")), "{heard:?}");
    }
}

#[test]
fn mqtt_3_3_2_3_3_a_retained_message_says_how_long_it_is_good_for_and_goes_by_itself() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    stage.retain_with(publisher, "t", QOS_0, "x", expires(10));
    stage.retain_with(publisher, "u", QOS_0, "x", expires(3));
    stage.wait(4_000);
    assert_eq!(
        told(&mut stage, "c", "#"),
        ["PUBLISH t qos 0 retain: x expiry 6"]
    );
    assert_eq!(stage.statistic("mqtt_retained_messages"), 1);
    stage.wait(6_000);
    assert_eq!(
        told(&mut stage, "c", "#"),
        ["PUBLISH t qos 0 retain: x expiry 0"]
    );
    // Nobody needs to come for it.
    let due = stage.wake_at.unwrap();
    stage.wait(due - stage.now.mono_ms);
    assert_eq!(stage.statistic("mqtt_retained_messages"), 0);
    assert_eq!(stage.statistic("mqtt_retained_expired_total"), 2);
    assert_eq!(told(&mut stage, "c", "#"), [""; 0]);
    // One that replaces another has its own time.
    stage.retain_with(publisher, "t", QOS_0, "x", expires(1));
    stage.retain(publisher, "t", QOS_0, "y");
    stage.wait(5_000);
    assert_eq!(told(&mut stage, "c", "#"), ["PUBLISH t qos 0 retain: y"]);
}

/// Holds 5.0: 3.1.2-15.
/// Holds 3.1.1: 3.1.2-7, 3.1.2-17.
#[test]
fn a_will_may_be_retained() {
    let mut stage = Stage::default();
    let client = stage.client_with(Connect {
        client_id: "a",
        will: Some(Will {
            topic: "status/a",
            payload: b"gone",
            retain: true,
            ..Will::default()
        }),
        ..plain(V5)
    });
    stage.hang_up(client);
    assert_eq!(
        told(&mut stage, "c", "status/+"),
        ["PUBLISH status/a qos 0 retain: gone"]
    );
}

#[test]
fn more_than_may_be_retained_are_refused_and_counted() {
    let limits = || Limits {
        retained_messages_max: 2,
        retained_bytes_max: 2_000,
        ..Limits::default()
    };
    let full = "mqtt_messages_dropped_total{reason=\"retained_full\"}";
    let refused = "PUBACK 9 0x97 the broker retains as many messages as it may";
    for (qos, large) in [(QOS_0, false), (QOS_1, false), (QOS_1, true)] {
        let mut stage = Stage::new(limits());
        let (publisher, live) = (stage.client(V5, "p"), stage.client(V5, "live"));
        stage.retain(publisher, "a", QOS_0, "x");
        if !large {
            stage.retain(publisher, "b", QOS_0, "x");
        }
        stage.subscribe_with(live, request("#", QOS_0));
        stage.hears(live);
        let payload = "x".repeat(if large { 1_700 } else { 1 });
        stage.retain(publisher, "c", qos, &payload);
        assert_eq!(stage.statistic(full), 1);
        assert!(told(&mut stage, "c", "c").is_empty());
        if qos == QOS_0 {
            // Nobody could be told, so it goes to those who are there.
            assert_eq!(stage.hears(live), ["PUBLISH c qos 0: x"]);
        } else {
            assert_eq!(stage.hears(live), [""; 0]);
            assert_eq!(stage.hears(publisher), [refused]);
        }
        // What is there may be replaced and cleared, and that makes room.
        stage.retain(publisher, "a", QOS_1, "y");
        stage.retain(publisher, "a", QOS_1, "");
        stage.retain(publisher, "c", QOS_1, "z");
        assert_eq!(stage.hears(publisher), ["PUBACK 9", "PUBACK 9", "PUBACK 9"]);
        assert_eq!(told(&mut stage, "c", "c").len(), 1);
    }
    let mut stage = Stage::new(limits());
    let client = stage.client(V311, "old");
    for topic in ["a", "b", "c"] {
        stage.retain(client, topic, QOS_1, "x");
    }
    assert_eq!(
        stage.hears(client),
        ["PUBACK 9", "PUBACK 9", "closed: retained_full"]
    );
}

#[test]
fn they_can_be_listed_counted_and_deleted_by_filter() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    for topic in 0..25 {
        stage.retain_with(publisher, &format!("t/{topic:02}"), QOS_1, "x", expires(60));
    }
    stage.retain(publisher, "u", QOS_0, "y");
    let (board, now) = (&mut stage.switchboard, stage.now);
    let (mut topics, mut from) = (Vec::new(), String::new());
    loop {
        let page = board.retained("t/+", &from, 10, now).unwrap();
        assert!(page.found.iter().all(|each| each.expiry_s == Some(60)));
        topics.extend(page.found.into_iter().map(|each| each.topic));
        let Some(next) = page.next else { break };
        from = next;
    }
    let expected: Vec<String> = (0..25).map(|topic| format!("t/{topic:02}")).collect();
    assert_eq!(topics, expected);
    let all = |found| Page { found, next: None };
    assert_eq!(board.count_retained("#", "").unwrap(), all(26));
    assert_eq!(
        board
            .delete_retained("t/1+", "", 1, now)
            .unwrap_err()
            .to_string(),
        "filter \"t/1+\": + must stand alone in its level of a topic filter"
    );
    assert_eq!(board.delete_retained("t/#", "", 2, now).unwrap(), all(25));
    assert_eq!(board.count_retained("#", "").unwrap(), all(1));
    board.validate();
}
