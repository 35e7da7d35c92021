//! Every bound of sessions and clients, and what gives way there.

use std::collections::BTreeSet;

use headrace_core::mqtt::packet::{Ack, Connect, Disconnect, Packet};
use headrace_core::switchboard::{Limits, Policy};

use super::stage::*;

fn dropped(stage: &Stage, reason: &str) -> u64 {
    let name = format!("mqtt_messages_dropped_total{{reason=\"{reason}\"}}");
    let statistics = stage.switchboard.statistics();
    let found = statistics.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no statistic {name}")).1
}

#[test]
fn every_figure_has_a_name_of_its_own() {
    let statistics = Stage::default().switchboard.statistics();
    let names: BTreeSet<&str> = statistics.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), statistics.len());
}

/// A client whose session lives on, and that is sent one message at a time.
fn keeper(stage: &mut Stage, client_id: &str) -> (u64, Vec<String>) {
    let client = stage.asks(Connect {
        client_id,
        clean_start: false,
        session_expiry_s: Some(60),
        receive_maximum: Some(1),
        ..plain(V5)
    });
    stage.decide(0);
    let heard = stage.hears(client);
    (client, heard)
}

/// A publisher, and a subscriber to `t` that has room for three messages behind the one in flight.
fn cast(overflow: Policy) -> (Stage, u64, u64) {
    let mut stage = Stage::new(Limits {
        overflow,
        queued_messages_max: 3,
        queued_bytes_max: 700,
        ..Limits::default()
    });
    let publisher = stage.client(V5, "publisher");
    let (slow, _) = keeper(&mut stage, "slow");
    stage.subscribe(slow, "t", QOS_1);
    (stage, publisher, slow)
}

fn publish(stage: &mut Stage, publisher: u64, numbers: std::ops::RangeInclusive<u16>) {
    for number in numbers {
        stage.publish(publisher, "t", QOS_1, number, &number.to_string());
    }
}

/// Acknowledges until nothing more comes; the payloads.
fn drain(stage: &mut Stage, client: u64) -> Vec<String> {
    let mut payloads = Vec::new();
    loop {
        let heard = stage.hears(client);
        if heard.is_empty() {
            return payloads;
        }
        for line in heard {
            let words: Vec<&str> = line.split(' ').collect();
            payloads.push(words[words.len() - 1].to_owned());
            let ack = Ack {
                packet_id: words[5].trim_end_matches(':').parse().unwrap(),
                ..Ack::default()
            };
            stage.send(client, &Packet::Puback(ack));
        }
    }
}

#[test]
fn a_full_queue_pushes_back_for_a_time_and_then_drops_the_newest() {
    let (mut stage, publisher, slow) = cast(Policy::PushBack);
    publish(&mut stage, publisher, 1..=5);
    assert_eq!(stage.reads.get(&publisher), Some(&false), "the fifth waits");
    assert_eq!(dropped(&stage, "queue_full"), 0);
    assert_eq!(drain(&mut stage, slow), ["1", "2", "3", "4", "5"]);
    assert_eq!(stage.reads.get(&publisher), Some(&true));
    publish(&mut stage, publisher, 6..=12);
    stage.wait(100);
    assert_eq!(stage.reads.get(&publisher), Some(&true));
    assert_eq!(drain(&mut stage, slow), ["6", "7", "8", "9"]);
    publish(&mut stage, publisher, 13..=13);
    assert_eq!(drain(&mut stage, slow), ["13"], "it keeps up again");
    let lost = dropped(&stage, "queue_full") + dropped(&stage, "outbound_full");
    assert_eq!(lost, 3);
}

#[test]
fn a_full_queue_drops_the_oldest_the_newest_or_the_client() {
    for (overflow, expected) in [
        (Policy::DropOldest, ["1", "4", "5", "6"]),
        (Policy::DropNewest, ["1", "2", "3", "4"]),
    ] {
        let (mut stage, publisher, slow) = cast(overflow);
        publish(&mut stage, publisher, 1..=6);
        assert_ne!(stage.reads.get(&publisher), Some(&false));
        assert_eq!(drain(&mut stage, slow), expected);
        let lost = dropped(&stage, "queue_full") + dropped(&stage, "queue_full_oldest");
        assert_eq!(lost, 2);
    }
    let (mut stage, publisher, slow) = cast(Policy::Disconnect);
    publish(&mut stage, publisher, 1..=6);
    assert_eq!(
        stage.hears(slow),
        [
            "PUBLISH t qos 1 id 1: 1",
            "DISCONNECT 0x97",
            "closed: outbound_full"
        ]
    );
    assert_eq!(dropped(&stage, "queue_full"), 2);
    let (_, heard) = keeper(&mut stage, "slow");
    assert_eq!(heard[1], "PUBLISH t qos 1 id 1 dup: 1", "what waited stays");
    assert_eq!(stage.statistic("mqtt_outbound_queued_messages"), 3);
}

#[test]
fn while_a_client_is_away_its_queue_gives_way_and_nobody_waits() {
    for (overflow, expected) in [
        (Policy::PushBack, ["1", "2", "3"]),
        (Policy::DropNewest, ["1", "2", "3"]),
        (Policy::Disconnect, ["1", "2", "3"]),
        (Policy::DropOldest, ["4", "5", "6"]),
    ] {
        let (mut stage, publisher, slow) = cast(overflow);
        stage.hang_up(slow);
        publish(&mut stage, publisher, 1..=6);
        assert_eq!(stage.hears(publisher).len(), 6);
        let (slow, heard) = keeper(&mut stage, "slow");
        assert_eq!(heard[1].rsplit(' ').next(), Some(expected[0]));
        let first = Ack {
            packet_id: 1,
            ..Ack::default()
        };
        stage.send(slow, &Packet::Puback(first));
        assert_eq!(drain(&mut stage, slow), expected[1..]);
    }
}

/// A client of 3.1.1 knows no window, and its PUBREL may be behind thousands of publishes.
#[test]
fn a_client_that_releases_nothing_ends_at_sixteen_windows() {
    for version in [V311, V5] {
        let mut stage = Stage::new(Limits {
            receive_max: 2,
            ..Limits::default()
        });
        let keeps = |packet_ids: &[u16], stage: &mut Stage| {
            let client = stage.asks(Connect {
                client_id: "keeps",
                clean_start: false,
                session_expiry_s: (version == V5).then_some(60),
                ..plain(version)
            });
            stage.decide(0);
            for packet_id in packet_ids {
                stage.publish(client, "t", QOS_2, *packet_id, "");
            }
            (client, stage.hears(client))
        };
        // What a connection brings back counts as well: two at a time in 5.0.
        for first in (1..=32).step_by(2) {
            let (client, heard) = keeps(&[first, first + 1], &mut stage);
            assert_eq!(heard.last(), Some(&format!("PUBREC {}", first + 1)));
            stage.hang_up(client);
        }
        let (client, heard) = keeps(&[32], &mut stage);
        assert_eq!(heard[1..], ["PUBREC 32"], "it is one of them");
        stage.release(client, 32);
        assert_eq!(stage.hears(client), ["PUBCOMP 32"]);
        stage.publish(client, "t", QOS_2, 32, "");
        assert_eq!(stage.hears(client), ["PUBREC 32"], "there is room again");
        stage.publish(client, "t", QOS_2, 33, "");
        let heard = stage.hears(client);
        assert_eq!(heard.last().unwrap(), "closed: receive_maximum_exceeded");
        assert_eq!(heard.len(), if version == V5 { 2 } else { 1 });
        let refused = "mqtt_packets_refused_total{reason=\"receive_maximum_exceeded\"}";
        assert_eq!(stage.statistic(refused), 1);
        assert_eq!(stage.statistic("mqtt_inbound_unreleased"), 32);
    }
}

/// Bug 21 of other brokers: what has expired keeps out what has not.
#[test]
fn what_has_expired_gives_way_first_though_its_client_is_away() {
    let mut stage = Stage::new(Limits {
        queued_messages_max: 4,
        ..Limits::default()
    });
    let (client, _) = keeper(&mut stage, "a");
    stage.subscribe(client, "t", QOS_1);
    stage.hang_up(client);
    let publisher = stage.client(V5, "publisher");
    for (packet_id, expiry) in [(1, None), (2, Some(2)), (3, Some(1)), (4, Some(9))] {
        let properties = PublishProperties {
            message_expiry: expiry,
            ..PublishProperties::default()
        };
        stage.publish_with(publisher, "t", QOS_1, packet_id, "x", properties);
    }
    stage.wait(2_001);
    publish(&mut stage, publisher, 5..=7);
    assert_eq!(dropped(&stage, "expired"), 2);
    assert_eq!(dropped(&stage, "queue_full"), 1);
    assert_eq!(stage.statistic("mqtt_outbound_queued_messages"), 4);
    stage.wait(8_000);
    publish(&mut stage, publisher, 8..=8);
    let (client, _) = keeper(&mut stage, "a");
    let first = Ack {
        packet_id: 1,
        ..Ack::default()
    };
    stage.send(client, &Packet::Puback(first));
    assert_eq!(drain(&mut stage, client), ["5", "6", "8"]);
}

#[test]
fn what_is_written_cannot_be_taken_back() {
    let mut stage = Stage::new(Limits {
        overflow: Policy::DropOldest,
        outbound_bytes_max: 3_000,
        ..Limits::default()
    });
    let publisher = stage.client(V5, "publisher");
    let (slow, _) = keeper(&mut stage, "slow");
    stage.subscribe(slow, "t", QOS_1);
    stage.credit(slow, 0);
    publish(&mut stage, publisher, 1..=3);
    stage.publish(publisher, "t", QOS_0, 0, &"x".repeat(2_900));
    assert_eq!(
        dropped(&stage, "outbound_full"),
        1,
        "at QoS 0, nothing gives way"
    );
    assert_eq!(stage.statistic("mqtt_outbound_queued_messages"), 2);
    stage.publish(publisher, "t", QOS_1, 4, &"x".repeat(2_900));
    assert_eq!(dropped(&stage, "queue_full_oldest"), 2);
    stage.credit(slow, usize::MAX);
    assert_eq!(drain(&mut stage, slow).len(), 2);
}

#[test]
fn a_client_that_is_there_is_not_held_to_a_number_of_messages() {
    let mut stage = Stage::new(Limits {
        queued_messages_max: 3,
        ..Limits::default()
    });
    stage.switchboard.bind(1, 1, &["t"], "topic").unwrap();
    let (client, _) = keeper(&mut stage, "slow");
    stage.subscribe(client, "t", QOS_1);
    let publisher = stage.client(V5, "publisher");
    publish(&mut stage, publisher, 1..=1_000);
    while !stage.appends.is_empty() {
        stage.durable(true);
    }
    assert_eq!(drain(&mut stage, client).len(), 1_000);
}

/// What is in flight to a client counts as long as it may have to be sent again.
#[test]
fn messages_in_flight_of_a_session_that_lives_on_count_to_its_bytes() {
    let mut stage = Stage::new(Limits {
        overflow: Policy::DropNewest,
        queued_bytes_max: 10_000,
        ..Limits::default()
    });
    let publisher = stage.client(V5, "publisher");
    for (client_id, expiry_s, arrive) in [("kept", 60, 8), ("not", 0, 12)] {
        let client = stage.client_with(Connect {
            client_id,
            session_expiry_s: Some(expiry_s),
            ..plain(V5)
        });
        stage.subscribe(client, client_id, QOS_1);
        for packet_id in 1..=12 {
            stage.publish(publisher, client_id, QOS_1, packet_id, &"x".repeat(994));
        }
        assert_eq!(stage.hears(client).len(), arrive);
    }
    assert_eq!(dropped(&stage, "queue_full"), 4);
}

/// Bug 20 of other brokers: dead sessions eat the memory of the node.
#[test]
fn all_that_waits_for_clients_is_bounded_and_each_message_counts_once() {
    let mut stage = Stage::new(Limits {
        queued_bytes_of_node_max: 17_000,
        ..Limits::default()
    });
    for client_id in ["a", "b", "c", "d"] {
        let (client, _) = keeper(&mut stage, client_id);
        stage.subscribe(client, "t", QOS_1);
        stage.hang_up(client);
    }
    let publisher = stage.client(V5, "publisher");
    stage.subscribe(publisher, "t", QOS_1);
    for packet_id in 1..=15 {
        stage.publish(publisher, "t", QOS_1, packet_id, &"x".repeat(994));
    }
    assert_eq!(
        stage.hears(publisher).len(),
        30,
        "who is there misses nothing"
    );
    assert_eq!(stage.statistic("mqtt_outbound_queued_messages"), 40);
    assert_eq!(dropped(&stage, "memory_full"), 20);
    let held = stage.statistic("mqtt_queued_bytes");
    assert!((16_000..=17_000).contains(&held), "{held}");
    for client_id in ["a", "b", "c", "d"] {
        let (client, _) = keeper(&mut stage, client_id);
        let end = Disconnect {
            session_expiry_s: Some(0),
            ..Disconnect::default()
        };
        stage.send(client, &Packet::Disconnect(end));
    }
    assert_eq!(stage.statistic("mqtt_queued_bytes"), 0);
}

#[test]
fn as_many_sessions_as_there_may_be_and_those_that_are_there_may_go_on() {
    let mut stage = Stage::new(Limits {
        sessions_max: 3,
        sessions_kept_max: 2,
        ..Limits::default()
    });
    let (a, _) = keeper(&mut stage, "a");
    keeper(&mut stage, "b");
    stage.hang_up(a);
    let (c, heard) = keeper(&mut stage, "c");
    assert_eq!(heard, ["CONNACK 0x97", "closed: refused"], "two are kept");
    stage.hang_up(c);
    assert_eq!(keeper(&mut stage, "a").1, ["CONNACK 0x00 present"]);
    let c = stage.client(V311, "c");
    let d = stage.asks(Connect {
        client_id: "d",
        ..plain(V311)
    });
    stage.decide(0);
    assert_eq!(stage.hears(d), ["CONNACK 0x88", "closed: refused"]);
    assert_eq!(
        stage.statistic("mqtt_packets_refused_total{reason=\"sessions_full\"}"),
        2
    );
    stage.hang_up(c);
    stage.client(V311, "d");
    // A clean start, or an interval of 0, gives the place back.
    let a = stage.client(V5, "a");
    assert_eq!(stage.statistic("mqtt_sessions_kept"), 1);
    stage.hang_up(a);
    keeper(&mut stage, "c");
    assert_eq!(stage.statistic("mqtt_sessions_kept"), 2);
}

#[test]
fn a_client_publishes_as_many_messages_in_a_second_as_it_may_and_is_then_held_up() {
    let mut stage = Stage::new(Limits {
        messages_per_s_max: 10,
        ..Limits::default()
    });
    let client = stage.client(V5, "fast");
    let other = stage.client(V5, "other");
    for _ in 0..25 {
        stage.publish(client, "t", QOS_0, 0, "x");
    }
    stage.send(client, &Packet::Pingreq);
    let received = |stage: &Stage| stage.statistic("mqtt_messages_received_total");
    assert_eq!(received(&stage), 10);
    assert_eq!(stage.reads.get(&client), Some(&false));
    stage.publish(other, "t", QOS_0, 0, "x");
    assert_eq!(received(&stage), 11);
    assert_eq!(stage.wake_at, Some(stage.now.mono_ms + 100));
    for tenth in 1..=15 {
        stage.wait(99);
        assert_eq!(received(&stage), 10 + tenth);
        stage.wait(1);
        assert_eq!(received(&stage), 11 + tenth);
    }
    assert_eq!(stage.hears(client), ["PINGRESP"]);
    assert_eq!(stage.reads.get(&client), Some(&true));
    assert!(stage.statistic("mqtt_rate_pauses_total") > 0);
    // A second of silence gives the whole of it back, and two no more.
    stage.wait(2_000);
    for _ in 0..11 {
        stage.publish(client, "t", QOS_0, 0, "x");
    }
    assert_eq!(received(&stage), 26 + 10);
}

/// A queue of references is memory, too: of 20,000 sessions that are away, or are there and
/// acknowledge nothing, each may hold a thousand of them.
#[test]
fn a_message_that_waits_for_many_costs_a_place_for_each() {
    let mut stage = Stage::new(Limits {
        queued_bytes_of_node_max: 50_000,
        ..Limits::default()
    });
    let ids: Vec<_> = (0..100).map(|number| format!("c{number}")).collect();
    for (number, client_id) in ids.iter().enumerate() {
        let (client, _) = keeper(&mut stage, client_id);
        let filter = if number % 2 == 0 { "t" } else { "$share/g/t" };
        stage.subscribe(client, filter, QOS_1);
        if number % 4 < 2 {
            stage.hang_up(client);
        }
    }
    let publisher = stage.client(V5, "publisher");
    for packet_id in 1..=20 {
        stage.publish(publisher, "t", QOS_1, packet_id, "x");
    }
    let held = stage.statistic("mqtt_queued_bytes");
    assert!((49_000..=50_000).contains(&held), "{held}");
    let delivered = stage.statistic("mqtt_messages_delivered_total");
    let waiting = stage.statistic("mqtt_outbound_queued_messages");
    let shared = stage.statistic("mqtt_shared_queued_messages");
    let places = delivered + waiting + shared;
    assert!((300..400).contains(&places), "{places}");
    assert_eq!(dropped(&stage, "memory_full"), 20 * 51 - places);
    for client_id in ids {
        let (client, _) = keeper(&mut stage, &client_id);
        let end = Disconnect {
            session_expiry_s: Some(0),
            ..Disconnect::default()
        };
        stage.send(client, &Packet::Disconnect(end));
    }
    assert_eq!(stage.statistic("mqtt_queued_bytes"), 0);
}

/// Bug 20 of other brokers: one dead session, peers unaffected.
#[test]
fn a_dead_subscriber_costs_no_more_than_its_bound_and_nobody_else_anything() {
    let mut stage = Stage::new(Limits {
        queued_bytes_max: 17_000,
        ..Limits::default()
    });
    let (dead, _) = keeper(&mut stage, "dead");
    stage.subscribe(dead, "t", QOS_2);
    stage.credit(dead, 0);
    let alive = stage.client(V5, "alive");
    stage.subscribe(alive, "t", QOS_0);
    let publisher = stage.client(V5, "publisher");
    for _ in 0..200 {
        stage.publish(publisher, "t", QOS_1, 1, "x");
    }
    stage.wait(100);
    let stalls = stage.statistic("mqtt_stalls_total");
    for _ in 0..10_000 {
        stage.publish(publisher, "t", QOS_1, 1, "x");
    }
    assert_eq!(stage.hears(alive).len(), 10_200);
    assert_eq!(
        stage.statistic("mqtt_stalls_total"),
        stalls,
        "it waits once"
    );
    let own = ["mqtt_outbound_queued_bytes", "mqtt_outbound_kept_bytes"];
    assert!(own.map(|name| stage.statistic(name)).iter().sum::<u64>() <= 17_000);
}

#[test]
fn packet_ids_that_clients_do_not_release_are_bounded_for_all_of_them() {
    let mut stage = Stage::new(Limits {
        unreleased_of_node_max: 3,
        ..Limits::default()
    });
    let one = stage.client(V5, "one");
    let other = stage.client(V5, "other");
    let old = stage.client(V311, "old");
    for (client, id) in [(one, 1), (one, 2), (other, 1)] {
        stage.publish(client, "t", QOS_2, id, "x");
        assert_eq!(stage.hears(client), [format!("PUBREC {id}")]);
    }
    stage.publish(other, "t", QOS_2, 2, "x");
    let refused = &stage.hears(other)[0];
    assert!(refused.starts_with("PUBREC 2 0x97"), "{refused}");
    let dropped = "mqtt_messages_dropped_total{reason=\"unreleased_full\"}";
    assert_eq!(stage.statistic(dropped), 1);
    assert_eq!(stage.statistic("mqtt_inbound_unreleased"), 3);
    stage.publish(other, "t", QOS_2, 1, "x");
    assert_eq!(stage.hears(other), ["PUBREC 1"], "a repeat is no new one");
    stage.publish(other, "t", QOS_1, 3, "x");
    assert_eq!(stage.hears(other), ["PUBACK 3 0x10"]);
    stage.publish(old, "t", QOS_2, 1, "x");
    assert_eq!(stage.hears(old), ["closed: unreleased_full"]);
    stage.release(one, 1);
    assert_eq!(stage.hears(one), ["PUBCOMP 1"]);
    stage.publish(other, "t", QOS_2, 2, "x");
    assert_eq!(stage.hears(other), ["PUBREC 2"], "there is room again");
}
