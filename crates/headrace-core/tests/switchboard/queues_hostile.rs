//! Records that no MQTT client could have sent, and moments that nobody waits for.

use headrace_core::mqtt::packet::{Disconnect, Packet};
use headrace_core::queue::{Order, Policy};
use headrace_core::switchboard::{Depth, Excess, QueueSettings};
use headrace_core::testing::Random;

use super::depot::*;
use super::queues::with;

const G: [(&str, &str); 2] = [("consumer-group", "g"), ("prefetch", "1000")];

#[test]
fn a_record_that_mqtt_has_no_words_for_is_delivered_all_the_same() {
    let (mut depot, _, worker) = with(settings(), 1);
    depot.subscribe(worker, "$queue/jobs", &G);
    let long = vec![b'k'; 70_000];
    let deep = [&b"$queue/jobs"[..], &b"/".repeat(60_000)].concat();
    let keys: [Option<&[u8]>; 5] = [
        None,
        Some(b"k"),
        Some(b"\0\0\0\x2a"),
        Some(&long),
        Some(b"\xff"),
    ];
    let topics: [&[u8]; 7] = [
        b"$queue/jobs/a",
        b"$queue/jobs/a/+/#",
        b"$queue/jobs/a\x01\n",
        b"$queue/jobs/\xff",
        &deep,
        b"x/+/#",
        b"",
    ];
    let mut sent = 0;
    for key in keys {
        for topic in topics {
            depot.produce(key, b"v", &[(b"mqtt.topic", topic), (b"message-id", &long)]);
            sent += 1;
        }
    }
    let handed = depot.take(worker);
    assert_eq!(handed.len(), sent);
    for each in &handed {
        assert!(each.topic.starts_with("$queue/jobs"), "{}", each.topic);
        let id = [("message-id", each.id())];
        assert_eq!(depot.end(worker, "$reject", &id), Some(0));
    }
    assert_eq!((depot.depth(JOBS), depot.ends_of("g")), (0, 0));
}

#[test]
fn whatever_bytes_a_record_has_it_is_delivered() {
    let (mut depot, _, worker) = with(settings(), 1);
    depot.subscribe(worker, "$queue/jobs", &G);
    let mut random = Random::new(7);
    let names: [&[u8]; 9] = [
        b"mqtt.topic",
        b"mqtt.content-type",
        b"mqtt.response-topic",
        b"mqtt.correlation-data",
        b"mqtt.payload-format-indicator",
        b"mqtt.message-expiry-interval",
        b"delay",
        b"priority",
        b"partition-key",
    ];
    let words: [&[u8]; 8] = [
        b"$queue/jobs/",
        b"/",
        b"+",
        b"\0",
        b"9",
        b"\xc2\x85",
        b"#",
        b"\xed\xa0\x80",
    ];
    for _ in 0..300 {
        let mut text = || {
            let mut text = Vec::new();
            for _ in 0..random.below(4_u8) {
                text.extend_from_slice(random.pick(&words));
            }
            text
        };
        let (key, one, two) = (text(), text(), text());
        let headers = [(random.pick(&names), &*one), (random.pick(&names), &*two)];
        let is_ever = headers
            .iter()
            .all(|(name, _)| *name != b"mqtt.message-expiry-interval" && *name != b"delay");
        if is_ever {
            depot.produce(Some(&key), b"v", &headers);
        }
    }
    for handed in depot.take(worker) {
        assert_eq!(depot.ack(worker, &handed), Some(0));
    }
    assert_eq!(depot.depth(JOBS), 0);
}

#[test]
fn what_dies_while_it_is_read_takes_nothing_with_it() {
    let mut urgent = settings();
    urgent.policy.prioritises = true;
    urgent.keeps_dead = false;
    urgent.policy.ttl_ms = 0;
    let (mut depot, publisher, worker) = with(urgent, 1);
    depot.subscribe(
        worker,
        "$queue/jobs",
        &[("consumer-group", "g"), ("prefetch", "1")],
    );
    for number in 0..50 {
        depot.enqueue(publisher, "$queue/jobs", &number.to_string(), &[]);
    }
    let first = depot.take(worker);
    depot.produce(
        None,
        b"urgent",
        &[(b"priority", b"9"), (b"mqtt.message-expiry-interval", b"1")],
    );
    depot.wait(1);
    // Its packet is asked for, and it grows too old before that comes.
    depot.is_stuck = true;
    assert_eq!(depot.ack(worker, &first[0]), Some(0));
    depot.stage.wait(2_000);
    depot.stage.run();
    depot.is_stuck = false;
    depot.settle();
    assert_eq!(depot.depth(JOBS), 49, "nothing else has gone");
}

#[test]
fn a_group_that_takes_a_part_loses_none_of_it_to_the_bound() {
    let bounded = QueueSettings {
        depth: Depth {
            messages_max: 10,
            bytes_max: 0,
            excess: Excess::Drop,
        },
        ..settings()
    };
    let (mut depot, publisher, worker) = with(bounded, 1);
    depot.subscribe(worker, "$queue/jobs/eu/#", &G);
    depot.stage.hang_up(worker);
    for number in 0..60 {
        let topic = if number % 10 == 0 {
            "$queue/jobs/eu/x"
        } else {
            "$queue/jobs/us/x"
        };
        assert_eq!(
            depot.enqueue(publisher, topic, &number.to_string(), &[]),
            Some(0)
        );
    }
    let worker = depot.client("another");
    depot.subscribe(worker, "$queue/jobs/eu/#", &G);
    let groups = depot.stage.switchboard.queue_groups(JOBS).unwrap();
    assert_eq!((groups[0].counts[0], depot.depth(JOBS)), (6, 6));
}

#[test]
fn the_oldest_go_from_behind_a_key_that_is_stuck_too() {
    for order in [Order::Key, Order::Strict] {
        let mut bounded = settings();
        bounded.policy.order = order;
        bounded.depth = Depth {
            messages_max: 5,
            bytes_max: 0,
            excess: Excess::DeadLetter,
        };
        let (mut depot, publisher, worker) = with(bounded, 1);
        depot.subscribe(worker, "$queue/jobs", &G);
        for number in 0..20 {
            let user = [("partition-key", "k")];
            depot.enqueue(publisher, "$queue/jobs", &number.to_string(), &user);
        }
        let mut seen = Vec::new();
        assert_eq!(depot.depth(JOBS), 5, "{order:?}");
        loop {
            let handed = depot.take(worker);
            let Some(one) = handed.first() else { break };
            seen.push(one.payload.clone());
            assert_eq!(depot.ack(worker, one), Some(0));
        }
        assert_eq!(seen, ["0", "16", "17", "18", "19"], "{order:?}");
    }
}

#[test]
fn what_rests_for_longer_than_it_lives_dies_in_time() {
    let aging = QueueSettings {
        policy: Policy {
            ttl_ms: 5_000,
            ..settings().policy
        },
        ..settings()
    };
    let (mut depot, publisher, worker) = with(aging, 1);
    depot.subscribe(worker, "$queue/jobs", &G);
    depot.enqueue(publisher, "$queue/jobs", "x", &[]);
    let handed = depot.take(worker);
    let id = [("message-id", handed[0].id()), ("delay", "3650d")];
    assert_eq!(depot.end(worker, "$nack", &id), Some(0));
    depot.wait(5_000);
    assert_eq!((depot.depth(JOBS), depot.dead_letters().len()), (0, 1));
}

#[test]
fn dead_letters_that_cannot_be_stored_are_bounded_in_memory() {
    let aging = QueueSettings {
        policy: Policy {
            ttl_ms: 1_000,
            ..settings().policy
        },
        ..settings()
    };
    let (mut depot, publisher, worker) = with(aging, 1);
    depot.subscribe(worker, "$queue/jobs", &G);
    depot.stage.hang_up(worker);
    depot.refused.insert(DEAD);
    let payload = "x".repeat(100_000);
    for _ in 0..60 {
        depot.enqueue(publisher, "$queue/jobs", &payload, &[]);
    }
    for _ in 0..5 {
        depot.wait(2_000);
    }
    let held = depot.stage.statistic("mqtt_queue_held_bytes");
    assert!(held < 4 << 20, "{held} bytes of dead messages are held");
    depot.refused.clear();
    for _ in 0..70 {
        depot.wait(2_000);
    }
    assert_eq!((depot.depth(JOBS), depot.ends_of("g")), (0, 0));
}

#[test]
fn what_is_dead_goes_when_nobody_keeps_it_any_more() {
    for is_on_its_way in [false, true] {
        let (mut depot, publisher, worker) = with(settings(), 1);
        depot.subscribe(worker, "$queue/jobs", &G);
        depot.refused.insert(DEAD);
        for payload in ["0", "1", "2"] {
            depot.enqueue(publisher, "$queue/jobs", payload, &[]);
        }
        for handed in depot.take(worker) {
            depot.end(worker, "$reject", &[("message-id", handed.id())]);
        }
        assert_eq!(depot.depth(JOBS), 3, "they cannot be stored");
        if is_on_its_way {
            depot.stage.wait(1_000);
            assert!(!depot.stage.appends.is_empty());
        }
        depot.settings.keeps_dead = false;
        depot.settings.dead_letters = None;
        let settings = depot.settings.clone();
        depot.stage.switchboard.set_queue(JOBS, settings).unwrap();
        depot.settle();
        depot.wait(1_000);
        assert_eq!((depot.depth(JOBS), depot.dead_letters().len()), (0, 0));
        let dropped = "mqtt_messages_dropped_total{reason=\"dead\"}";
        assert_eq!(depot.stage.statistic(dropped), 3);
        assert!(
            depot.stage.dead_letters.is_empty(),
            "nor asks for their log"
        );
    }
}

#[test]
fn a_queue_that_lets_go_of_much_holds_up_no_other() {
    let (mut depot, publisher, worker) = with(settings(), 1);
    depot.subscribe(worker, "$queue/jobs", &G);
    depot.stage.hang_up(worker);
    for _ in 0..20 {
        for number in 0..400 {
            depot.send(publisher, "$queue/jobs", &number.to_string(), &[]);
        }
        depot.settle();
    }
    let mut bounded = settings();
    bounded.depth = Depth {
        messages_max: 10,
        bytes_max: 0,
        excess: Excess::Drop,
    };
    depot.settings = bounded.clone();
    depot.stage.switchboard.set_queue(JOBS, bounded).unwrap();
    depot.settle();
    assert_eq!(depot.depth(JOBS), 10);
}

/// With its last consumer a group may end, and with a connection all that its session consumes.
#[test]
fn a_queue_that_is_deleted_ends_clients_that_have_no_id_or_several_filters() {
    for (client_id, filters) in [
        ("", &["$queue/jobs"][..]),
        (
            "w",
            &["$queue/jobs", "$queue/jobs/#", "$queue/jobs?prefetch=1"],
        ),
        ("", &["$queue/jobs/a/#", "$queue/jobs/b/#", "$queue/jobs"]),
    ] {
        let (mut depot, publisher, other) = with(settings(), 2);
        let client = depot.client(client_id);
        for filter in filters {
            assert_eq!(depot.subscribe(client, filter, &[]), "SUBACK 1 [0x01]");
        }
        depot.subscribe(other, "$queue/jobs", &G);
        depot.enqueue(publisher, "$queue/jobs/a/1", "one", &[]);
        for each in [client, other] {
            depot.take(each);
        }
        depot.stage.switchboard.unbind(JOBS).unwrap();
        depot.settle();
        for each in [client, other] {
            let said = depot.stage.hears(each);
            assert_eq!(said.last().unwrap(), "closed: queue_deleted", "{said:?}");
        }
        assert_eq!(depot.stage.switchboard.queue_groups(JOBS), None);
        let code = depot.enqueue(publisher, "$queue/jobs", "", &[]);
        assert_eq!(code, Some(0x90), "the node goes on");
    }
}

#[test]
fn a_group_that_takes_a_part_keeps_its_backlog_though_more_is_out_than_may_be_owed() {
    for excess in [Excess::Drop, Excess::DeadLetter] {
        let bounded = QueueSettings {
            depth: Depth {
                messages_max: 5,
                bytes_max: 0,
                excess,
            },
            ..settings()
        };
        let (mut depot, publisher, worker) = with(bounded, 1);
        let group = [("consumer-group", "g"), ("prefetch", "10")];
        depot.subscribe(worker, "$queue/jobs/eu/#", &group);
        depot.stage.hang_up(worker);
        for number in 0..50 {
            let topic = if number % 2 == 0 { "eu/x" } else { "us/x" };
            depot.enqueue(publisher, &format!("$queue/jobs/{topic}"), "x", &[]);
        }
        let worker = depot.client("worker");
        depot.subscribe(worker, "$queue/jobs/eu/#", &group);
        loop {
            let handed = depot.take(worker);
            if handed.is_empty() {
                break;
            }
            depot.enqueue(publisher, "$queue/jobs/us/x", "x", &[]);
            for each in &handed {
                assert_eq!(depot.ack(worker, each), Some(0));
            }
        }
        let groups = depot.stage.switchboard.queue_groups(JOBS).unwrap();
        assert_eq!(groups[0].counts[0], 25, "{excess:?}");
    }
}

/// What is at hand of a stuck key takes none of the room of what goes.
#[test]
fn beside_a_stuck_key_others_go_many_at_a_read() {
    let mut by_key = settings();
    by_key.policy.order = Order::Key;
    by_key.policy.read_ahead = 1_000;
    let (mut depot, publisher, stuck) = with(by_key, 1);
    let payload = "x".repeat(8_000);
    for number in 0..400 {
        let key = number.max(200).to_string();
        let user = [("partition-key", &*key)];
        depot.send(publisher, "$queue/jobs", &payload, &user);
        if number % 8 == 7 {
            depot.settle(); // a read's worth
        }
    }
    let group = |prefetch| [("consumer-group", "g"), ("prefetch", prefetch)];
    depot.subscribe(stuck, "$queue/jobs", &group("1"));
    assert_eq!(depot.take(stuck).len(), 1);
    for client_id in ["a", "b"] {
        let told = |depot: &Depot| {
            let groups = depot.stage.switchboard.queue_groups(JOBS).unwrap();
            let reads = depot.stage.statistic("mqtt_stream_reads_total");
            (groups[0].counts[0], reads)
        };
        let before = told(&depot);
        let worker = depot.client(client_id);
        depot.subscribe(worker, "$queue/jobs", &group("1000"));
        while !depot.take(worker).is_empty() {}
        let after = told(&depot);
        assert_eq!(after.0 - before.0, 199, "all but what is stuck");
        let reads = after.1 - before.1;
        assert!(reads <= 60, "{reads} of 50 batches");
        // It gives all back, and the next one takes what was met before.
        depot
            .stage
            .send(worker, &Packet::Disconnect(Disconnect::default()));
        depot.stage.hang_up(worker);
        depot.settle();
    }
}
