//! Shared subscriptions (MQTT 5.0 4.8.2).

use std::collections::{BTreeMap, BTreeSet};

use headrace_core::mqtt::packet::{Connect, SubscriptionRequest};
use headrace_core::switchboard::{Limits, Strategy};

use super::group_work::lasting;
use super::stage::*;

pub const STRATEGIES: [Strategy; 6] = [
    Strategy::RoundRobin,
    Strategy::Random,
    Strategy::Sticky,
    Strategy::HashTopic,
    Strategy::HashClient,
    Strategy::LeastInFlight,
];

pub fn with(strategy: Strategy) -> Stage {
    Stage::new(Limits {
        shared_strategy: strategy,
        ..Limits::default()
    })
}

/// Members of `$share/g/#` at `QoS` 1, and a publisher.
pub fn group(stage: &mut Stage, count: usize) -> (u64, Vec<u64>) {
    let publisher = stage.client(V5, "p");
    let members = (0..count).map(|at| {
        let member = stage.client(V5, &format!("m{at}"));
        stage.subscribe(member, "$share/g/#", QOS_1);
        member
    });
    let members = members.collect();
    (publisher, members)
}

/// Payloads of the publishes that a client heard.
pub fn payloads(stage: &mut Stage, client: u64) -> Vec<String> {
    let heard = stage.hears(client);
    let publishes = heard.iter().filter(|line| line.starts_with("PUBLISH"));
    let payload = |line: &String| line.rsplit(": ").next().unwrap().to_owned();
    publishes.map(payload).collect()
}

#[test]
fn mqtt_4_8_2_each_message_goes_to_one_member_whatever_the_strategy() {
    for strategy in STRATEGIES {
        for qos in [QOS_0, QOS_1] {
            let mut stage = with(strategy);
            let (publisher, members) = group(&mut stage, 3);
            let alone = stage.client(V311, "alone");
            stage.subscribe(alone, "#", QOS_0);
            for number in 1..=90 {
                let topic = format!("t/{}", number % 30);
                stage.publish(publisher, &topic, qos, number, &number.to_string());
            }
            assert_eq!(stage.hears(alone).len(), 90);
            let shares: Vec<_> = members.iter().map(|m| payloads(&mut stage, *m)).collect();
            let all: BTreeSet<&String> = shares.iter().flatten().collect();
            let counts: Vec<usize> = shares.iter().map(Vec::len).collect();
            assert_eq!((all.len(), counts.iter().sum()), (90, 90), "{strategy:?}");
            match strategy {
                Strategy::RoundRobin => assert_eq!(counts, [30, 30, 30]),
                Strategy::LeastInFlight if qos == QOS_1 => assert_eq!(counts, [30, 30, 30]),
                Strategy::Sticky | Strategy::HashClient => assert!(counts.contains(&90)),
                Strategy::HashTopic | Strategy::Random => {
                    assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
                }
                Strategy::LeastInFlight => {}
            }
        }
    }
}

#[test]
fn mqtt_4_8_2_the_same_name_with_another_filter_is_another_group() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    let mut members = Vec::new();
    for filter in ["$share/g/a/+", "$share/g/+/b", "$share/h/a/b"] {
        let member = stage.client(V311, filter);
        stage.subscribe(member, filter, QOS_0);
        members.push(member);
    }
    assert_eq!(stage.statistic("mqtt_shared_groups"), 3);
    stage.publish(publisher, "a/b", QOS_0, 0, "x");
    for member in members {
        assert_eq!(stage.hears(member), ["PUBLISH a/b qos 0: x"]);
        stage.hang_up(member);
    }
    assert_eq!(stage.statistic("mqtt_shared_groups"), 0);
}

/// Holds 5.0: 4.8.2-1, 4.8.2-2.
#[test]
fn mqtt_4_8_2_1_2_names_that_are_none_are_refused() {
    let mut stage = Stage::default();
    let client = stage.client(V5, "a");
    for filter in [
        "$share//x",
        "$share/a+/x",
        "$share/+/x",
        "$share/a#/x",
        "$share/#",
        "$share/a",
        "$share/a/",
        "$share/",
        "$share/a/x#",
    ] {
        stage.subscribe_with(client, request(filter, QOS_0));
        assert_eq!(stage.hears(client), ["SUBACK 1 [0x8f]"], "{filter}");
    }
    assert_eq!(stage.statistic("mqtt_subscriptions"), 0);
    assert_eq!(stage.statistic("mqtt_shared_groups"), 0);
}

/// Holds 5.0: 3.8.3-4.
#[test]
fn mqtt_3_8_3_4_no_local_on_a_shared_subscription_is_a_protocol_error() {
    let mut stage = Stage::default();
    let client = stage.client(V5, "a");
    let no_local = SubscriptionRequest {
        no_local: true,
        ..request("$share/g/t", QOS_0)
    };
    stage.subscribe_with(client, no_local);
    let refused = ["DISCONNECT 0x82", "closed: protocol_error"];
    assert_eq!(stage.hears(client), refused);
}

/// Holds 5.0: 4.8.2-3.
#[test]
fn mqtt_4_8_2_it_brings_no_retained_messages_and_has_its_own_options() {
    let mut stage = Stage::default();
    let (publisher, client) = (stage.client(V5, "p"), stage.client(V5, "c"));
    stage.retain(publisher, "t", QOS_1, "old");
    stage.hears(publisher);
    let as_published = SubscriptionRequest {
        retain_as_published: true,
        ..request("$share/g/+", QOS_1)
    };
    stage.subscribe_as(client, Some(7), as_published);
    assert_eq!(stage.hears(client), ["SUBACK 1 [0x01]"]);
    stage.retain(publisher, "t", QOS_2, "new");
    assert_eq!(
        stage.hears(client),
        ["PUBLISH t qos 1 id 1 retain: new ids [7]"]
    );
    // Another subscription of the session has a copy of its own.
    stage.subscribe_with(client, request("t", QOS_0));
    stage.hears(client);
    stage.publish(publisher, "t", QOS_0, 0, "x");
    assert_eq!(
        stage.hears(client),
        ["PUBLISH t qos 0: x", "PUBLISH t qos 0: x ids [7]"]
    );
    // Subscribed again, it is the same membership with other options.
    stage.subscribe_with(client, request("$share/g/+", QOS_0));
    stage.hears(client);
    assert_eq!(stage.statistic("mqtt_shared_members"), 1);
    stage.unsubscribe(client, &["t"]);
    stage.hears(client);
    stage.publish(publisher, "t", QOS_1, 1, "x");
    assert_eq!(stage.hears(client), ["PUBLISH t qos 0: x"]);
}

/// Holds 5.0: 4.7.2-1.
#[test]
fn mqtt_4_7_2_1_a_leading_wildcard_shares_nothing_of_the_brokers_own() {
    for filter in ["$share/g/#", "$share/g/+/a"] {
        let mut stage = Stage::default();
        let (publisher, client) = (stage.client(V5, "p"), stage.client(V5, "c"));
        stage.subscribe(client, filter, QOS_1);
        stage.publish(publisher, "$SYS/a", QOS_1, 1, "x");
        assert_eq!(stage.hears(client), [""; 0]);
    }
}

#[test]
fn a_topic_keeps_its_member_while_others_come_and_go() {
    let mut stage = with(Strategy::HashTopic);
    let (publisher, mut members) = group(&mut stage, 8);
    let owners = |stage: &mut Stage, members: &[u64]| {
        let mut owners: BTreeMap<usize, u64> = BTreeMap::new();
        for topic in 0..200 {
            stage.publish(
                publisher,
                &format!("t/{topic}"),
                QOS_0,
                0,
                &topic.to_string(),
            );
        }
        for member in members {
            for payload in payloads(stage, *member) {
                assert_eq!(owners.insert(payload.parse().unwrap(), *member), None);
            }
        }
        assert_eq!(owners.len(), 200);
        owners
    };
    let before = owners(&mut stage, &members);
    let newcomer = stage.client(V5, "newcomer");
    stage.subscribe(newcomer, "$share/g/#", QOS_1);
    members.push(newcomer);
    let after = owners(&mut stage, &members);
    let moved = before
        .iter()
        .filter(|(topic, owner)| after[topic] != **owner);
    assert!(moved.clone().all(|(topic, _)| after[topic] == newcomer));
    let moved = moved.count();
    assert!((5..60).contains(&moved), "a ninth of them: {moved}");
    stage.hang_up(newcomer);
    members.pop();
    assert_eq!(owners(&mut stage, &members), before);
    let gone = members.remove(3);
    stage.hang_up(gone);
    for (topic, owner) in owners(&mut stage, &members) {
        assert!(before[&topic] == owner || before[&topic] == gone);
    }
}

#[test]
fn each_topic_stays_in_order_as_members_come_and_go() {
    let mut stage = with(Strategy::HashTopic);
    let publisher = stage.client(V5, "p");
    let mut members: Vec<u64> = Vec::new();
    let mut last: BTreeMap<String, u32> = BTreeMap::new();
    let mut number = 0;
    for round in 0..40 {
        if round % 3 == 0 {
            let member = stage.client_with(Connect {
                client_id: &format!("m{round}"),
                receive_maximum: Some(2),
                ..plain(V5)
            });
            stage.subscribe(member, "$share/g/#", QOS_1);
            members.push(member);
        }
        for topic in 0..10 {
            number += 1;
            let packet_id = (number % 1000) as u16 + 1;
            let topic = format!("t/{topic}");
            stage.publish(publisher, &topic, QOS_1, packet_id, &number.to_string());
        }
        if round % 5 == 4 && members.len() > 1 {
            // It has finished nothing since it last looked.
            let member = members.remove(round % members.len());
            stage.hang_up(member);
        }
        // Everyone finishes what it has before anybody comes.
        loop {
            let mut is_idle = true;
            for member in &members {
                for line in stage.hears(*member) {
                    let mut words = line.split(' ');
                    let topic = words.nth(1).unwrap().to_owned();
                    let id = words.nth(3).unwrap().trim_end_matches(':').parse().unwrap();
                    let payload: u32 = line.rsplit(": ").next().unwrap().parse().unwrap();
                    let before = last.insert(topic, payload);
                    assert!(before.is_none_or(|before| before < payload), "{line}");
                    stage.acknowledge(*member, id);
                    is_idle = false;
                }
            }
            if is_idle {
                break;
            }
        }
    }
    assert_eq!(stage.statistic("mqtt_shared_queued_messages"), 0);
}

#[test]
fn what_a_stream_stores_goes_to_a_group_once_it_is_durable() {
    let mut stage = Stage::default();
    stage.switchboard.bind(1, 1, &["t"], "topic").unwrap();
    let (publisher, members) = group(&mut stage, 1);
    stage.publish(publisher, "t", QOS_1, 1, "x");
    assert_eq!(stage.hears(members[0]), [""; 0]);
    stage.durable(true);
    assert_eq!(stage.hears(members[0]), ["PUBLISH t qos 1 id 1: x"]);
    stage.publish(publisher, "t", QOS_1, 2, "y");
    stage.durable(false);
    assert_eq!(stage.hears(members[0]), [""; 0]);
    assert_eq!(stage.hears(publisher).len(), 2);
}

#[test]
fn groups_that_come_and_go_leave_nothing() {
    let mut stage = Stage::default();
    stage.is_validating = false;
    let client = stage.client(V5, "c");
    for round in 0..20 {
        let filters: Vec<String> = (0..1_000)
            .map(|at| format!("$share/g{round}/t/{at}/#"))
            .collect();
        for filter in &filters {
            stage.subscribe_with(client, request(filter, QOS_1));
        }
        let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
        stage.unsubscribe(client, &filters);
        stage.raw(client);
    }
    stage.switchboard.validate();
    assert_eq!(stage.statistic("mqtt_shared_groups"), 0);
    assert_eq!(stage.statistic("mqtt_subscriptions"), 0);
}

/// A member that acknowledges nothing and takes one message at a time.
fn busy(stage: &mut Stage, client_id: &str, packet_bytes: Option<u32>) -> u64 {
    let member = stage.client_with(Connect {
        client_id,
        receive_maximum: Some(1),
        maximum_packet_size: packet_bytes,
        ..plain(V5)
    });
    stage.subscribe(member, "$share/g/#", QOS_1);
    member
}

#[test]
fn a_full_favourite_is_left_for_another_one() {
    let mut stage = Stage::new(Limits {
        shared_strategy: Strategy::Sticky,
        queued_bytes_max: 1_500,
        ..Limits::default()
    });
    let publisher = stage.client(V5, "p");
    let members = ["a", "b", "c"].map(|name| busy(&mut stage, name, None));
    for number in 1..=10 {
        stage.publish(publisher, "t", QOS_1, number, &number.to_string());
    }
    let mut all = Vec::new();
    for member in members {
        let mut id = 1;
        let mut got = Vec::new();
        loop {
            let more = payloads(&mut stage, member);
            if more.is_empty() {
                break;
            }
            got.extend(more);
            stage.acknowledge(member, id);
            id += 1;
        }
        let numbers: Vec<u64> = got.iter().map(|text| text.parse().unwrap()).collect();
        assert!(
            numbers.is_sorted(),
            "each has its part in order: {numbers:?}"
        );
        all.push(numbers);
    }
    assert!(all[0].starts_with(&[1, 2]) && !all[1].is_empty(), "{all:?}");
    assert_eq!(all.concat().len(), 10);
}

#[test]
fn what_a_favourite_may_not_have_goes_to_another_and_moves_nothing() {
    let mut stage = with(Strategy::Sticky);
    let publisher = stage.client(V5, "p");
    let narrow = busy(&mut stage, "narrow", Some(100));
    stage.publish(publisher, "t", QOS_1, 1, "1");
    let wide = busy(&mut stage, "wide", None);
    stage.publish(publisher, "t", QOS_1, 2, &"x".repeat(200));
    stage.publish(publisher, "t", QOS_1, 3, "3");
    assert_eq!(payloads(&mut stage, wide).len(), 1);
    stage.acknowledge(narrow, 1);
    assert_eq!(payloads(&mut stage, narrow), ["1", "3"]);
}

#[test]
fn members_whose_windows_are_full_get_what_no_window_holds_back() {
    for strategy in STRATEGIES {
        let mut stage = with(strategy);
        let publisher = stage.client(V5, "p");
        let members = ["a", "b"].map(|name| busy(&mut stage, name, None));
        for number in 1..=4 {
            stage.publish(publisher, &format!("t/{number}"), QOS_1, number, "1");
        }
        for _ in 0..10 {
            stage.publish(publisher, "u", QOS_0, 0, "0");
        }
        let got = members.map(|member| payloads(&mut stage, member));
        let at_0 = got.iter().flatten().filter(|payload| *payload == "0");
        assert_eq!(at_0.count(), 10, "{strategy:?}");
    }
}

#[test]
fn members_that_come_to_have_room_are_given_something_in_turn() {
    for strategy in [Strategy::RoundRobin, Strategy::LeastInFlight] {
        let mut stage = with(strategy);
        let publisher = stage.client(V5, "p");
        let members: Vec<u64> = (0..20)
            .map(|number| busy(&mut stage, &format!("m{number}"), None))
            .collect();
        let mut counts = vec![0; 20];
        for round in 0..3 {
            for number in 1..=25 {
                stage.publish(publisher, "t", QOS_1, round * 25 + number, "x");
            }
            // All are busy, and five messages wait: they go to the first five with room.
            for _ in 0..2 {
                for (member, count) in members.iter().zip(&mut counts) {
                    for id in stage.hears_ids(*member) {
                        *count += 1;
                        stage.acknowledge(*member, id);
                    }
                }
            }
        }
        assert_eq!(counts.iter().sum::<i32>(), 75);
        let (least, most) = (counts.iter().min(), counts.iter().max());
        assert!(
            least >= Some(&3) && most <= Some(&6),
            "{strategy:?} {counts:?}"
        );
    }
}

#[test]
fn what_has_expired_in_a_group_takes_no_room_from_what_has_not() {
    for strategy in STRATEGIES {
        let mut stage = Stage::new(Limits {
            shared_strategy: strategy,
            group_messages_max: 3,
            ..Limits::default()
        });
        let publisher = stage.client(V5, "p");
        let member = lasting(&mut stage, "m", 10);
        stage.subscribe_with(member, request("$share/g/#", QOS_1));
        stage.hang_up(member);
        let short = PublishProperties {
            message_expiry: Some(1),
            ..PublishProperties::default()
        };
        stage.publish(publisher, "t/1", QOS_1, 1, "stays");
        for number in 2..=3 {
            let topic = format!("t/{}", number - 1);
            stage.publish_with(publisher, &topic, QOS_1, number, "old", short.clone());
        }
        stage.wait(3_000);
        for number in 4..=5 {
            stage.publish(publisher, "t/4", QOS_1, number, &number.to_string());
        }
        let expired = "mqtt_messages_dropped_total{reason=\"expired\"}";
        assert_eq!(stage.statistic(expired), 2, "{strategy:?}");
        let member = lasting(&mut stage, "m", 10);
        assert_eq!(payloads(&mut stage, member), ["stays", "4", "5"]);
    }
}
