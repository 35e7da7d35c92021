//! Groups that give each key to one member: what waits for one holds up no other, and a key that
//! moves stays in order (MQTT 5.0 4.8.2; ADR 0037).

use std::collections::BTreeMap;

use headrace_core::hash::Key;
use headrace_core::mqtt::packet::{Ack, Connect, Packet, Publish};
use headrace_core::session::Ending;
use headrace_core::switchboard::{Limits, Policy, Strategy, Switchboard, BATCH_BYTES_MAX};

use super::group_work::{lasting, member};
use super::groups::payloads;
use super::stage::*;

const SHARE: &str = "$share/g/#";
const TOPICS: usize = 40;

fn topic(number: usize) -> String {
    format!("t/{number}")
}

/// Limits under which a member holds its window and nothing behind it.
fn narrow(strategy: Strategy) -> Limits {
    Limits {
        shared_strategy: strategy,
        queued_bytes_max: 1_000,
        ..Limits::default()
    }
}

fn ack(packet_id: u16) -> Ack<'static> {
    Ack {
        packet_id,
        ..Ack::default()
    }
}

/// Whose each topic is now, by its number.
fn owners(stage: &mut Stage, publisher: u64, members: &[u64]) -> BTreeMap<usize, u64> {
    for number in 0..TOPICS {
        let payload = number.to_string();
        stage.publish(publisher, &topic(number), QOS_0, 0, &payload);
    }
    let mut owners = BTreeMap::new();
    for member in members {
        let heard = payloads(stage, *member).into_iter();
        owners.extend(heard.map(|number| (number.parse().unwrap(), *member)));
    }
    assert_eq!(owners.len(), TOPICS);
    owners
}

/// Topics of one member.
fn topics_of(owners: &BTreeMap<usize, u64>, member: u64) -> Vec<String> {
    let of = owners.iter().filter(|(_, owner)| **owner == member);
    of.map(|(number, _)| topic(*number)).collect()
}

/// Publishes numbered payloads of a length.
fn publish(stage: &mut Stage, publisher: u64, topic: &str, numbers: std::ops::Range<u16>) {
    for number in numbers {
        let payload = format!("{number:0>40}");
        stage.publish(publisher, topic, QOS_1, number + 1, &payload);
    }
}

fn numbers(stage: &mut Stage, member: u64) -> Vec<u16> {
    let heard = payloads(stage, member);
    let heard = heard.iter().map(|payload| payload.parse().unwrap());
    heard.collect()
}

#[test]
fn a_full_member_holds_up_its_own_keys_only() {
    let mut stage = Stage::new(narrow(Strategy::HashTopic));
    let publisher = stage.client(V5, "p");
    let full = member(&mut stage, "full", 1, SHARE);
    let other = member(&mut stage, "other", 100, SHARE);
    let owners = owners(&mut stage, publisher, &[full, other]);
    let (of_full, of_other) = (topics_of(&owners, full), topics_of(&owners, other));
    for (number, topic) in (0..).zip(&of_full[..6]) {
        publish(&mut stage, publisher, topic, number..number + 1);
    }
    let waiting = stage.statistic("mqtt_shared_queued_messages");
    assert!(waiting > 0, "the member is full");
    assert_eq!(numbers(&mut stage, full), [0]);
    for (id, number) in (1..).zip(10..20) {
        publish(
            &mut stage,
            publisher,
            &of_other[usize::from(id) % 3],
            number..number + 1,
        );
        assert_eq!(numbers(&mut stage, other), [number]);
        stage.acknowledge(other, id);
    }
    assert_eq!(stage.statistic("mqtt_shared_queued_messages"), waiting);
    // It goes on with what has waited longest, and what comes when it has room does not push in.
    let ack = stage.bytes(full, &Packet::Puback(ack(1)));
    stage.switchboard.receive(full, &ack, stage.now).unwrap();
    publish(&mut stage, publisher, &of_full[6], 6..7);
    assert_eq!(numbers(&mut stage, full), [1]);
    for id in 2..=7 {
        stage.acknowledge(full, id);
        let expected: Vec<u16> = (id..7).take(1).collect();
        assert_eq!(numbers(&mut stage, full), expected);
    }
    assert_eq!(stage.statistic("mqtt_shared_queued_messages"), 0);
}

#[test]
fn what_waits_for_a_full_member_goes_to_another_when_it_goes() {
    for hangs_up in [true, false] {
        let mut stage = Stage::new(narrow(Strategy::HashTopic));
        let publisher = stage.client(V5, "p");
        let full = member(&mut stage, "full", 1, SHARE);
        let other = member(&mut stage, "other", 100, SHARE);
        let owners = owners(&mut stage, publisher, &[full, other]);
        let of_full = topics_of(&owners, full);
        for number in 0..6 {
            let topic = &of_full[usize::from(number)];
            publish(&mut stage, publisher, topic, number..number + 1);
        }
        assert_eq!(stage.statistic("mqtt_shared_queued_messages"), 2);
        if hangs_up {
            stage.hang_up(full);
        } else {
            stage.unsubscribe(full, &[SHARE]);
        }
        let mut heard = Vec::new();
        for id in 1..=6 {
            heard.extend(numbers(&mut stage, other));
            stage.acknowledge(other, id);
        }
        let expected: Vec<u16> = (u16::from(!hangs_up)..6).collect();
        assert_eq!(heard, expected);
    }
}

#[test]
fn what_waits_for_a_full_member_is_bounded_and_counted_and_the_others_go_on() {
    for (overflow, kept) in [
        (Policy::DropNewest, [3, 4, 5, 6]),
        (Policy::DropOldest, [3, 7, 8, 9]),
    ] {
        let mut stage = Stage::new(Limits {
            overflow,
            group_messages_max: 3,
            queued_bytes_max: 1_000,
            ..narrow(Strategy::HashTopic)
        });
        let publisher = stage.client(V5, "p");
        let full = member(&mut stage, "full", 3, SHARE);
        let other = member(&mut stage, "other", 100, SHARE);
        let owners = owners(&mut stage, publisher, &[full, other]);
        let (of_full, of_other) = (topics_of(&owners, full), topics_of(&owners, other));
        for number in 0..10 {
            let topic = &of_full[usize::from(number) % 4];
            publish(&mut stage, publisher, topic, number..number + 1);
        }
        let reason = "mqtt_messages_dropped_total{reason=\"group_queue_full\"}";
        assert_eq!(stage.statistic(reason), 3, "{overflow:?}");
        publish(&mut stage, publisher, &of_other[0], 20..23);
        assert_eq!(numbers(&mut stage, other), [20, 21, 22]);
        assert_eq!(numbers(&mut stage, full), [0, 1, 2]);
        for id in 1..=6 {
            stage.acknowledge(full, id);
        }
        let mut heard = numbers(&mut stage, full);
        heard.sort_unstable();
        assert_eq!(heard, kept, "{overflow:?}");
    }
}

/// A member that has some of a topic which is another's once that has come.
struct Moved {
    stage: Stage,
    publisher: u64,
    before: u64,
    after: u64,
    topic: String,
}

/// The first member has so much of a topic at `QoS` 2 or 1.
fn moved(receive_maximum: u16, qos: QoS) -> Moved {
    let strategy = Limits {
        shared_strategy: Strategy::HashTopic,
        ..Limits::default()
    };
    let mut stage = Stage::new(strategy.clone());
    // Whose a topic will be is seen where nothing is at stake.
    let publisher = stage.client(V5, "p");
    let trial = ["before", "after"].map(|name| member(&mut stage, name, 10, SHARE));
    let owners = owners(&mut stage, publisher, &trial);
    let topic = topics_of(&owners, trial[1])[0].clone();
    let mut stage = Stage::new(strategy);
    let publisher = stage.client(V5, "p");
    let before = lasting(&mut stage, "before", receive_maximum);
    stage.subscribe_with(before, request(SHARE, qos));
    stage.hears(before);
    for number in 1..=3_u16 {
        stage.publish(publisher, &topic, qos, number, &number.to_string());
        stage.release(publisher, number);
    }
    let after = member(&mut stage, "after", 10, SHARE);
    stage.publish(publisher, &topic, QOS_1, 4, "4");
    Moved {
        stage,
        publisher,
        before,
        after,
        topic,
    }
}

#[test]
fn a_key_that_moves_comes_once_its_former_member_has_finished() {
    for receive_maximum in [10, 1] {
        let Moved {
            mut stage,
            publisher,
            before,
            after,
            topic,
        } = moved(receive_maximum, QOS_1);
        stage.publish(publisher, &topic, QOS_1, 5, "5");
        for id in 1..=3 {
            assert_eq!(payloads(&mut stage, after), [""; 0], "{id} is not finished");
            stage.acknowledge(before, id);
        }
        assert_eq!(payloads(&mut stage, before), ["1", "2", "3"]);
        assert_eq!(payloads(&mut stage, after), ["4", "5"]);
        stage.publish(publisher, &topic, QOS_1, 6, "6");
        assert_eq!(payloads(&mut stage, after), ["6"], "it is its own now");
        assert_eq!(stage.statistic("mqtt_shared_queued_messages"), 0);
    }
}

#[test]
fn a_key_that_moves_comes_after_what_its_former_member_gives_back() {
    let mut of = moved(1, QOS_1);
    of.stage.hang_up(of.before);
    assert_eq!(payloads(&mut of.stage, of.after), ["1", "2", "3", "4"]);
}

#[test]
fn who_unsubscribes_finishes_what_it_was_sent_before_others_go_on() {
    let mut of = moved(2, QOS_1);
    let stage = &mut of.stage;
    stage.unsubscribe(of.before, &[SHARE]);
    assert_eq!(payloads(stage, of.before), ["1", "2"]);
    assert_eq!(payloads(stage, of.after), [""; 0]);
    stage.acknowledge(of.before, 2);
    assert_eq!(payloads(stage, of.after), [""; 0]);
    stage.acknowledge(of.before, 1);
    assert_eq!(payloads(stage, of.after), ["3", "4"]);
}

/// Holds 5.0: 4.8.2-5.
#[test]
fn mqtt_4_8_2_5_what_stays_at_qos_2_with_a_member_that_is_away_holds_up_nobody() {
    let mut of = moved(10, QOS_2);
    let stage = &mut of.stage;
    // PUBREC says that the message is there.
    stage.complete(of.before, 1);
    assert_eq!(payloads(stage, of.after), [""; 0]);
    stage.hang_up(of.before);
    assert_eq!(payloads(stage, of.after), ["4"]);
    let before = lasting(stage, "before", 10);
    assert_eq!(payloads(stage, before), ["2", "3"], "they are its own");
}

#[test]
fn what_rules_or_its_size_keep_from_the_owner_of_a_key_is_in_the_order_of_the_key() {
    let mut stage = Stage::new(narrow(Strategy::HashClient));
    let publisher = stage.client(V5, "p");
    let members = ["one", "two"].map(|client_id| {
        let member = stage.client_with(Connect {
            client_id,
            maximum_packet_size: (client_id == "one").then_some(40),
            ..plain(V5)
        });
        stage.subscribe(member, SHARE, QOS_1);
        member
    });
    let [small, large] = members;
    // As many publishers as it takes for one to be the small member's.
    let mut names = (0..).map(|number| format!("p{number}"));
    let of_small = loop {
        let publisher = stage.client(V5, &names.next().unwrap());
        stage.publish(publisher, "t", QOS_0, 0, "whose");
        if !payloads(&mut stage, small).is_empty() {
            break publisher;
        }
        stage.hears(large);
    };
    let long = "l".repeat(40);
    for (id, payload) in [(1, "a"), (2, &*long), (3, "b")] {
        stage.publish(of_small, "t", QOS_1, id, payload);
    }
    stage.publish(publisher, "t", QOS_0, 0, "others go on");
    assert_eq!(payloads(&mut stage, small)[0], "a");
    stage.hears(large);
    stage.acknowledge(small, 1);
    assert_eq!(payloads(&mut stage, large), [&*long]);
    assert_eq!(payloads(&mut stage, small), [""; 0]);
    stage.acknowledge(large, 1);
    assert_eq!(payloads(&mut stage, small), ["b"]);
}

#[test]
fn another_strategy_takes_over_what_waits() {
    let mut stage = Stage::new(narrow(Strategy::HashTopic));
    let publisher = stage.client(V5, "p");
    let full = member(&mut stage, "full", 1, SHARE);
    let other = member(&mut stage, "other", 100, SHARE);
    let owners = owners(&mut stage, publisher, &[full, other]);
    let of_full = topics_of(&owners, full);
    for number in 0..6 {
        publish(
            &mut stage,
            publisher,
            &of_full[usize::from(number) % 4],
            number..number + 1,
        );
    }
    let waiting = stage.statistic("mqtt_shared_queued_messages");
    assert!(waiting > 0);
    for strategy in [
        Strategy::LeastInFlight,
        Strategy::HashTopic,
        Strategy::RoundRobin,
    ] {
        stage.switchboard.set_limits(narrow(strategy), stage.now);
        stage.run();
    }
    assert_eq!(stage.statistic("mqtt_shared_queued_messages"), 0);
    let heard = numbers(&mut stage, other);
    assert!(heard.is_sorted(), "{heard:?}");
    assert_eq!(heard.len() as u64, waiting);
}

#[test]
fn the_least_busy_member_gets_the_next_whatever_else_it_is_sent() {
    let mut stage = Stage::new(Limits {
        shared_strategy: Strategy::LeastInFlight,
        ..Limits::default()
    });
    let publisher = stage.client(V5, "p");
    let [a, b, c] = ["a", "b", "c"].map(|name| member(&mut stage, name, 3, "$share/g/t"));
    stage.subscribe(a, "own/#", QOS_1);
    for number in 1..=2 {
        stage.publish(publisher, "own/x", QOS_1, number, "own");
    }
    assert_eq!(payloads(&mut stage, a).len(), 2);
    let share = |stage: &mut Stage, count: u16| {
        for number in 1..=count {
            stage.publish(publisher, "t", QOS_1, number, "x");
        }
        [a, b, c].map(|member| payloads(stage, member).len())
    };
    assert_eq!(share(&mut stage, 4), [0, 2, 2], "a has two of its own");
    assert_eq!(share(&mut stage, 3), [1, 1, 1], "until they are even");
    stage.publish(publisher, "t", QOS_1, 9, "nobody has room");
    assert_eq!(stage.statistic("mqtt_shared_queued_messages"), 1);
    for id in 1..=3 {
        stage.acknowledge(b, id);
    }
    assert_eq!(payloads(&mut stage, b), ["nobody has room"]);
    stage.acknowledge(c, 1);
    stage.acknowledge(c, 2);
    assert_eq!(share(&mut stage, 3).iter().sum::<usize>(), 3);
    assert_eq!(
        share(&mut stage, 1).iter().sum::<usize>(),
        1,
        "the last place"
    );
    stage.acknowledge(a, 2);
    assert_eq!(share(&mut stage, 1), [1, 0, 0], "who was full is back");
}

/// One loop iteration may bring much before anybody is looked at.
#[test]
fn the_least_busy_member_is_known_within_a_read() {
    let mut stage = Stage::new(Limits {
        shared_strategy: Strategy::LeastInFlight,
        ..Limits::default()
    });
    let publisher = stage.client(V5, "p");
    let members = ["a", "b"].map(|name| member(&mut stage, name, 3, "$share/g/t"));
    stage.subscribe(members[0], "own", QOS_1);
    let read = |stage: &Stage, topics: &[&str]| {
        let packets = (1..).zip(topics).map(|(packet_id, topic)| {
            let publish = Publish {
                topic,
                qos: QOS_1,
                packet_id,
                ..Publish::default()
            };
            stage.bytes(publisher, &Packet::Publish(publish))
        });
        packets.collect::<Vec<_>>().concat()
    };
    let counts = |stage: &mut Stage| members.map(|member| stage.hears_ids(member).len());
    let bytes = read(&stage, &["own", "own", "t", "t"]);
    stage.send_bytes(publisher, &bytes);
    assert_eq!(counts(&mut stage), [2, 2]);
    for id in 1..=2 {
        for member in members {
            stage.acknowledge(member, id);
        }
    }
    // One is full of its own, and has room again before it is looked at.
    let bytes = read(&stage, &["own", "own", "own", "t"]);
    stage
        .switchboard
        .receive(publisher, &bytes, stage.now)
        .unwrap();
    let acks = (3..=5).map(|id| stage.bytes(members[0], &Packet::Puback(ack(id))));
    let acks = acks.collect::<Vec<_>>().concat();
    stage
        .switchboard
        .receive(members[0], &acks, stage.now)
        .unwrap();
    stage.run();
    assert_eq!(counts(&mut stage), [3, 1]);
    let bytes = read(&stage, &["t"]);
    stage.send_bytes(publisher, &bytes);
    assert_eq!(counts(&mut stage), [1, 0]);
}

#[test]
fn what_a_client_published_before_a_restart_and_after_it_is_of_one_key() {
    let limits = Limits {
        shared_strategy: Strategy::HashClient,
        ..Limits::default()
    };
    let keeping = |key| {
        let mut stage = Stage::new(limits.clone());
        stage.switchboard = Switchboard::new(key, limits.clone());
        stage.switchboard.keep_sessions(2, 1 << 20, BATCH_BYTES_MAX);
        stage
    };
    let names = ["one", "two"];
    let publish_all = |stage: &mut Stage, payload: &str| {
        for number in 0..8 {
            let publisher = stage.client(V5, &format!("p{number}"));
            stage.publish(publisher, "t", QOS_1, 1, &format!("{number} {payload}"));
            stage.write_all(Ending::Stored);
        }
    };
    let mut stage = keeping(Key(7, 11));
    for name in names {
        let member = lasting(&mut stage, name, 100);
        stage.subscribe_with(member, request("$share/g/t", QOS_1));
        stage.write_all(Ending::Stored);
        stage.hang_up(member);
    }
    publish_all(&mut stage, "before");
    let mut again = keeping(Key(8, 12));
    again.restore(&stage);
    again.run();
    let [one, two] = names.map(|name| lasting(&mut again, name, 100));
    again.write_all(Ending::Stored);
    assert_eq!(payloads(&mut again, one).len(), 8, "it came first");
    publish_all(&mut again, "after");
    assert_eq!(payloads(&mut again, two), [""; 0]);
    for id in 1..=8 {
        again.acknowledge(one, id);
    }
    let heard = [one, two].map(|member| payloads(&mut again, member).len());
    assert!(heard[1] > 0 && heard[0] + heard[1] == 8, "{heard:?}");
}
