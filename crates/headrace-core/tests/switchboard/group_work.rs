//! What becomes of the work of a shared subscription whose members come and go (MQTT 5.0 4.8.2).

use std::collections::{BTreeMap, BTreeSet};

use headrace_core::mqtt::packet::{Ack, Connect, Packet};
use headrace_core::switchboard::{Limits, Policy, Strategy};

use super::groups::{group, payloads, with, STRATEGIES};
use super::stage::*;

/// A member that takes so many messages at a time.
pub fn member(stage: &mut Stage, client_id: &str, receive_maximum: u16, filter: &str) -> u64 {
    let member = stage.client_with(Connect {
        client_id,
        receive_maximum: Some(receive_maximum),
        ..plain(V5)
    });
    stage.subscribe(member, filter, QOS_1);
    member
}

/// A client whose session waits for it.
pub fn lasting(stage: &mut Stage, client_id: &str, receive_maximum: u16) -> u64 {
    let connection = stage.asks(Connect {
        client_id,
        clean_start: false,
        session_expiry_s: Some(1_000),
        receive_maximum: Some(receive_maximum),
        ..plain(V5)
    });
    stage.decide(0);
    connection
}

fn refuses(stage: &mut Stage, client: u64, packet: fn(Ack<'static>) -> Packet<'static>) {
    stage.send(
        client,
        &packet(Ack {
            packet_id: 1,
            reason_code: 0x83,
            ..Ack::default()
        }),
    );
}

#[test]
fn what_a_member_that_unsubscribed_has_not_finished_is_not_lost_with_its_session() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    let leaver = member(&mut stage, "leaver", 10, "$share/g/t");
    for number in 1..=3 {
        stage.publish(publisher, "t", QOS_1, number, &number.to_string());
    }
    assert_eq!(payloads(&mut stage, leaver), ["1", "2", "3"]);
    let stayer = member(&mut stage, "stayer", 10, "$share/g/t");
    stage.unsubscribe(leaver, &["$share/g/t"]);
    stage.hears(leaver);
    stage.acknowledge(leaver, 2);
    assert_eq!(payloads(&mut stage, stayer), [""; 0], "it may finish");
    stage.hang_up(leaver);
    assert_eq!(payloads(&mut stage, stayer), ["1", "3"]);
}

#[test]
fn what_a_group_has_given_that_ended_comes_to_no_other_group() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    let lasting = Connect {
        client_id: "last",
        clean_start: false,
        session_expiry_s: Some(100),
        ..plain(V5)
    };
    let last = stage.client_with(lasting.clone());
    stage.subscribe(last, "$share/g/t", QOS_1);
    stage.publish(publisher, "t", QOS_1, 1, "x");
    assert_eq!(payloads(&mut stage, last), ["x"]);
    stage.unsubscribe(last, &["$share/g/t"]);
    assert_eq!(stage.statistic("mqtt_shared_groups"), 0);
    // One that takes its place, and one of its name.
    let others = ["$share/h/u", "$share/g/t"].map(|filter| member(&mut stage, filter, 10, filter));
    stage.hang_up(last);
    for other in others {
        assert_eq!(payloads(&mut stage, other), [""; 0]);
    }
    let last = stage.asks(lasting);
    stage.decide(0);
    let heard = stage.hears(last);
    assert_eq!(
        heard,
        ["CONNACK 0x00 present", "PUBLISH t qos 1 id 1 dup: x"]
    );
}

#[test]
fn a_member_of_many_groups_leaves_the_work_of_each_in_its_order() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    let filters: Vec<String> = (0..20).map(|name| format!("$share/g/{name}")).collect();
    let goes = member(&mut stage, "goes", 60, "x");
    for filter in &filters {
        stage.subscribe(goes, filter, QOS_1);
    }
    for number in 0..60_u16 {
        let topic = (number % 20).to_string();
        stage.publish(publisher, &topic, QOS_1, number + 1, &number.to_string());
    }
    assert_eq!(payloads(&mut stage, goes).len(), 60);
    let stays = member(&mut stage, "stays", 200, "x");
    for filter in &filters {
        stage.subscribe_with(stays, request(filter, QOS_1));
    }
    stage.acknowledge(goes, 1);
    stage.hang_up(goes);
    let heard = stage.hears(stays);
    for topic in 0..20 {
        let begins = format!("PUBLISH {topic} ");
        let of = heard.iter().filter(|line| line.starts_with(&begins));
        let of = of.map(|line| line.rsplit(": ").next().unwrap().parse().unwrap());
        let of: Vec<u16> = of.collect();
        let first = u16::from(topic == 0);
        let expected: Vec<u16> = (first..3).map(|round| round * 20 + topic).collect();
        assert_eq!(of, expected);
    }
}

#[test]
fn who_has_room_for_what_is_smaller_gets_it_though_another_asked() {
    let mut stage = Stage::new(Limits {
        queued_bytes_max: 1_000,
        ..Limits::default()
    });
    let publisher = stage.client(V5, "p");
    // What it holds leaves no room for a large message, and its window has room.
    let holds = member(&mut stage, "holds", 10, "$share/g/t");
    stage.publish(publisher, "t", QOS_1, 1, &"h".repeat(500));
    let busy = member(&mut stage, "busy", 1, "$share/g/t");
    stage.publish(publisher, "t", QOS_1, 2, "busy");
    assert_eq!(payloads(&mut stage, busy), ["busy"]);
    stage.publish(publisher, "t", QOS_1, 3, &"l".repeat(500));
    for (packet_id, payload) in [(4, "small"), (5, "too")] {
        stage.publish(publisher, "t", QOS_1, packet_id, payload);
    }
    assert_eq!(stage.statistic("mqtt_shared_queued_messages"), 3);
    stage.hears(holds);
    stage.acknowledge(busy, 1);
    assert_eq!(payloads(&mut stage, busy).len(), 1, "the large one");
    assert_eq!(
        payloads(&mut stage, holds),
        ["small"],
        "it asked for nothing"
    );
    assert_eq!(stage.statistic("mqtt_shared_queued_messages"), 1);
}

#[test]
fn what_a_member_has_not_finished_goes_to_another_at_once_when_it_goes() {
    for strategy in STRATEGIES {
        let mut stage = with(strategy);
        let (publisher, members) = group(&mut stage, 3);
        for number in 1..=60 {
            let topic = format!("a/{}", number % 10);
            stage.publish(publisher, &topic, QOS_1, number, &number.to_string());
        }
        let mut heard: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for member in &members {
            heard.insert(*member, payloads(&mut stage, *member));
        }
        let busiest = *heard.iter().max_by_key(|(_, heard)| heard.len()).unwrap().0;
        // It finishes two and leaves the rest.
        stage.acknowledge(busiest, 1);
        stage.acknowledge(busiest, 2);
        stage.hang_up(busiest);
        let left: BTreeSet<String> = heard[&busiest][2..].iter().cloned().collect();
        let mut again = BTreeSet::new();
        for member in members.iter().filter(|member| **member != busiest) {
            let more = payloads(&mut stage, *member);
            let numbers: Vec<u32> = more.iter().map(|number| number.parse().unwrap()).collect();
            assert!(
                numbers.is_sorted(),
                "{strategy:?} in their order {numbers:?}"
            );
            again.extend(more);
        }
        assert_eq!(again, left, "{strategy:?}");
        assert_eq!(
            stage.statistic("mqtt_shared_returned_total"),
            left.len() as u64
        );
        assert_eq!(stage.statistic("mqtt_shared_queued_messages"), 0);
    }
}

/// Holds 5.0: 4.8.2-4, 4.8.2-5.
#[test]
fn mqtt_4_8_2_4_5_what_was_sent_at_qos_2_stays_with_its_member() {
    for ends in [false, true] {
        let mut stage = Stage::default();
        let publisher = stage.client(V5, "p");
        let first = lasting(&mut stage, "first", 10);
        stage.subscribe_with(first, request("$share/g/t", QOS_2));
        stage.publish(publisher, "t", QOS_2, 1, "x");
        stage.hears(first);
        let second = stage.client(V5, "second");
        stage.subscribe(second, "$share/g/t", QOS_2);
        stage.hang_up(first);
        if ends {
            stage.wait(1_000_001);
        } else {
            let first = lasting(&mut stage, "first", 10);
            let heard = stage.hears(first);
            assert_eq!(heard[1..], ["PUBLISH t qos 2 id 1 dup: x"]);
        }
        assert_eq!(stage.hears(second), [""; 0]);
        assert_eq!(stage.statistic("mqtt_shared_returned_total"), 0);
    }
}

/// Holds 5.0: 4.8.2-6.
#[test]
fn mqtt_4_8_2_6_what_a_member_refuses_goes_to_nobody_else() {
    for (qos, packet) in [
        (QOS_1, Packet::Puback as fn(Ack<'static>) -> Packet<'static>),
        (QOS_2, Packet::Pubrec),
    ] {
        let mut stage = Stage::default();
        let publisher = stage.client(V5, "p");
        let members = ["first", "second"].map(|client_id| {
            let member = stage.client(V5, client_id);
            stage.subscribe(member, "$share/g/t", qos);
            member
        });
        stage.publish(publisher, "t", qos, 1, "x");
        assert_eq!(stage.hears(members[0]).len(), 1);
        refuses(&mut stage, members[0], packet);
        stage.hang_up(members[0]);
        assert_eq!(stage.hears(members[1]), [""; 0]);
    }
}

#[test]
fn work_waits_in_the_group_while_all_members_are_away() {
    for strategy in STRATEGIES {
        let mut stage = with(strategy);
        let publisher = stage.client(V5, "p");
        for client_id in ["first", "second"] {
            let member = lasting(&mut stage, client_id, 4);
            stage.subscribe_with(member, request("$share/g/#", QOS_1));
            stage.hang_up(member);
        }
        for number in 1..=20 {
            let topic = format!("t/{}", number % 5);
            stage.publish(publisher, &topic, QOS_1, number, &number.to_string());
        }
        stage.publish(publisher, "t", QOS_0, 0, "lost");
        let away = "mqtt_messages_dropped_total{reason=\"group_away\"}";
        assert_eq!(stage.statistic(away), 1);
        assert_eq!(stage.statistic("mqtt_shared_queued_messages"), 20);
        assert!(stage.statistic("mqtt_shared_queued_bytes") > 20 * 160);
        // Whoever comes first gets it, as far as its window allows, and the rest when it goes on.
        let second = lasting(&mut stage, "second", 4);
        let mut heard = payloads(&mut stage, second);
        assert_eq!(heard.len(), 4);
        for id in 1..=20 {
            stage.acknowledge(second, id);
            heard.extend(payloads(&mut stage, second));
        }
        let expected: Vec<String> = (1..=20).map(|number| number.to_string()).collect();
        assert_eq!(heard, expected, "{strategy:?}");
        assert_eq!(stage.statistic("mqtt_shared_queued_messages"), 0);
        assert_eq!(stage.statistic("mqtt_queued_bytes"), 0);
    }
}

#[test]
fn who_is_there_comes_before_who_is_away() {
    for strategy in STRATEGIES {
        let mut stage = with(strategy);
        let publisher = stage.client(V5, "p");
        for number in 0..5 {
            let member = lasting(&mut stage, &format!("away{number}"), 10);
            stage.subscribe_with(member, request("$share/g/#", QOS_1));
            stage.hang_up(member);
        }
        let here = stage.client(V5, "here");
        stage.subscribe(here, "$share/g/#", QOS_1);
        for number in 1..=10 {
            let topic = format!("t/{number}");
            stage.publish(publisher, &topic, QOS_1, number, "x");
        }
        assert_eq!(stage.hears(here).len(), 10, "{strategy:?}");
    }
}

#[test]
fn a_busy_member_is_passed_over_and_what_nobody_can_take_waits() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    let slow = lasting(&mut stage, "slow", 1);
    let fast = lasting(&mut stage, "fast", 3);
    for member in [slow, fast] {
        stage.subscribe_with(member, request("$share/g/#", QOS_1));
        stage.hears(member);
    }
    for number in 1..=10 {
        stage.publish(publisher, "t", QOS_1, number, &number.to_string());
    }
    assert_eq!(payloads(&mut stage, slow), ["1"]);
    assert_eq!(payloads(&mut stage, fast), ["2", "3", "4"]);
    assert_eq!(stage.statistic("mqtt_shared_queued_messages"), 6);
    stage.acknowledge(fast, 2);
    assert_eq!(payloads(&mut stage, fast), ["5"]);
    stage.acknowledge(slow, 1);
    assert_eq!(payloads(&mut stage, slow), ["6"]);
    // One that unsubscribes may finish what it has, is given no more, and leaves the rest.
    stage.unsubscribe(fast, &["$share/g/#"]);
    stage.hears(fast);
    stage.acknowledge(fast, 1);
    assert_eq!(payloads(&mut stage, fast), [""; 0]);
    stage.hang_up(fast);
    assert_eq!(stage.statistic("mqtt_shared_returned_total"), 2);
    for (id, payload) in [(2, "4"), (3, "5"), (4, "7")] {
        stage.acknowledge(slow, id);
        assert_eq!(payloads(&mut stage, slow), [payload]);
    }
    // The last one takes the group with it.
    stage.unsubscribe(slow, &["$share/g/#"]);
    assert_eq!(stage.statistic("mqtt_shared_groups"), 0);
    let ended = "mqtt_messages_dropped_total{reason=\"session_ended\"}";
    assert_eq!(stage.statistic(ended), 3);
}

#[test]
fn the_queue_of_a_group_is_bounded_in_messages_and_bytes() {
    for (overflow, kept) in [
        (Policy::PushBack, ["1", "2", "3"]),
        (Policy::DropNewest, ["1", "2", "3"]),
        (Policy::DropOldest, ["3", "4", "5"]),
    ] {
        let limits = Limits {
            overflow,
            group_messages_max: 3,
            group_bytes_max: 2_000,
            ..Limits::default()
        };
        let mut stage = Stage::new(limits);
        let publisher = stage.client(V5, "p");
        let member = lasting(&mut stage, "m", 10);
        stage.subscribe_with(member, request("$share/g/t", QOS_1));
        stage.hang_up(member);
        for number in 1..=5 {
            stage.publish(publisher, "t", QOS_1, number, &number.to_string());
        }
        let large = "x".repeat(2_000);
        stage.publish(publisher, "t", QOS_1, 9, &large);
        let full = "mqtt_messages_dropped_total{reason=\"group_queue_full\"}";
        assert_eq!(stage.statistic(full), 3);
        let member = lasting(&mut stage, "m", 10);
        assert_eq!(payloads(&mut stage, member), kept);
    }
}

#[test]
fn what_waits_in_a_group_expires() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    let member = lasting(&mut stage, "m", 10);
    stage.subscribe_with(member, request("$share/g/t", QOS_1));
    stage.hang_up(member);
    for (packet_id, seconds) in [(1, 5), (2, 50)] {
        let properties = PublishProperties {
            message_expiry: Some(seconds),
            ..PublishProperties::default()
        };
        stage.publish_with(publisher, "t", QOS_1, packet_id, "x", properties);
    }
    stage.wait(10_000);
    let member = lasting(&mut stage, "m", 10);
    let heard = stage.hears(member);
    assert_eq!(heard[1..], ["PUBLISH t qos 1 id 1: x expiry 40"]);
}

#[test]
fn what_nobody_can_take_holds_up_nothing_behind_it() {
    let mut stage = Stage::default();
    let member = stage.client_with(Connect {
        client_id: "member",
        receive_maximum: Some(1),
        maximum_packet_size: Some(50),
        ..plain(V5)
    });
    let writer = stage.client(V5, "writer");
    stage.subscribe(member, "$share/g/t", QOS_1);
    for (id, payload) in [(1, "first"), (2, &*"x".repeat(60)), (3, "last")] {
        stage.publish(writer, "t", QOS_1, id, payload);
    }
    assert_eq!(stage.hears(member), ["PUBLISH t qos 1 id 1: first"]);
    stage.acknowledge(member, 1);
    assert_eq!(stage.hears(member), ["PUBLISH t qos 1 id 2: last"]);
}

#[test]
fn mqtt_3_1_2_25_a_message_goes_to_a_member_that_it_is_not_too_large_for() {
    let mut stage = Stage::default();
    let publisher = stage.client(V5, "p");
    let mut join = |client_id, maximum_packet_size| {
        let member = stage.client_with(Connect {
            client_id,
            maximum_packet_size,
            ..plain(V5)
        });
        stage.subscribe(member, "$share/g/t", QOS_1);
        member
    };
    let (small, large) = (join("small", Some(200)), join("large", None));
    let text = "x".repeat(300);
    for packet_id in 1..=4 {
        stage.publish(publisher, "t", QOS_1, packet_id, &text);
    }
    assert_eq!(stage.hears(large).len(), 4);
    assert_eq!(stage.hears(small), [""; 0]);
    stage.hang_up(large);
    let too_large = "mqtt_messages_dropped_total{reason=\"packet_too_large\"}";
    assert_eq!(stage.statistic(too_large), 4);
    stage.publish(publisher, "t", QOS_1, 5, "fits");
    assert_eq!(payloads(&mut stage, small), ["fits"]);
}

#[test]
fn a_group_may_have_a_strategy_of_its_own() {
    let mut stage = Stage::new(Limits {
        shared_strategies: vec![("one".into(), Strategy::Sticky)],
        ..Limits::default()
    });
    let publisher = stage.client(V5, "p");
    let members = ["a", "b"].map(|name| member(&mut stage, name, 100, "x"));
    for member in members {
        for filter in ["$share/one/s", "$share/all/t"] {
            stage.subscribe(member, filter, QOS_1);
        }
    }
    let counts = |stage: &mut Stage, topic: &str| {
        for number in 1..=10 {
            stage.publish(publisher, topic, QOS_1, number, "x");
        }
        let mut counts = members.map(|member| payloads(stage, member).len());
        counts.sort_unstable();
        counts
    };
    assert_eq!(counts(&mut stage, "s"), [0, 10]);
    assert_eq!(counts(&mut stage, "t"), [5, 5]);
    let limits = Limits {
        shared_strategies: vec![("all".into(), Strategy::Sticky)],
        ..Limits::default()
    };
    stage.switchboard.set_limits(limits, stage.now);
    stage.run();
    assert_eq!(counts(&mut stage, "s"), [5, 5]);
    assert_eq!(counts(&mut stage, "t"), [0, 10]);
}
