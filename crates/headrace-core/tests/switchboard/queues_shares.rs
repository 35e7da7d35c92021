//! What comes again of deliveries that nobody has any more, or whose time has passed: in shares, so
//! that no call takes long, and in the order that the queue keeps.

use std::collections::BTreeMap;

use headrace_core::mqtt::packet::{Connect, Packet, Publish, PublishProperties};
use headrace_core::queue::{Order, Policy};
use headrace_core::switchboard::QueueSettings;

use super::depot::*;
use super::queues::with;
use super::stage::*;

/// Deliveries that a turn may end.
const SHARE: u64 = 2_000;

const HELD: usize = 5_000;

fn large(order: Order) -> QueueSettings {
    QueueSettings {
        policy: Policy {
            order,
            read_ahead: 2 * HELD,
            failures_max: 0,
            ..settings().policy
        },
        prefetch: 2 * HELD,
        ..settings()
    }
}

/// A queue with so many messages, and a consumer that has all of them that it may have.
fn held(order: Order, keys: usize) -> (Depot, u64) {
    let (mut depot, publisher, worker) = with(large(order), 2);
    depot.stage.is_validating = false; // it looks at all there is
    depot.subscribe_at(worker, "$queue/jobs?group=g", QOS_0, &[]);
    for number in 1..=HELD {
        let key = (number % keys).to_string();
        let text = number.to_string();
        let properties = PublishProperties {
            user: vec![("partition-key", &key)],
            ..PublishProperties::default()
        };
        let packet_id = (number % 60_000) as u16;
        let stage = &mut depot.stage;
        stage.publish_with(
            publisher,
            "$queue/jobs",
            QOS_1,
            packet_id,
            &text,
            properties,
        );
        if number % 500 == 0 {
            depot.settle();
        }
    }
    (depot, worker)
}

/// Deliveries of the group that have failed, and those that are open.
fn failed(depot: &Depot) -> (u64, usize) {
    let groups = depot.stage.switchboard.queue_groups(JOBS).unwrap();
    let open = groups[0].partitions.iter().map(|part| part.in_flight);
    (groups[0].counts[3], open.sum())
}

/// Turns of the loop until all that was open has failed: how many. None does more than its share.
fn turns(depot: &mut Depot, all: u64) -> usize {
    let (mut before, mut turns) = (failed(depot).0, 0);
    while before < all {
        let stage = &mut depot.stage;
        let effects = stage.switchboard.collect(stage.now);
        let effects = effects.expect("there is more to do");
        assert_eq!(effects.wake_at, Some(stage.now.mono_ms), "at once");
        stage.perform(effects);
        stage.switchboard.validate();
        let after = failed(depot).0;
        assert!(after - before <= SHARE, "{before} to {after}");
        (before, turns) = (after, turns + 1);
        assert!(turns < 100, "{before} of {all}");
    }
    turns
}

/// Takes all that a client is handed.
fn all(depot: &mut Depot, client: u64) -> Vec<Handed> {
    let more = || Some(depot.take(client)).filter(|handed| !handed.is_empty());
    std::iter::from_fn(more).flatten().collect()
}

#[test]
fn who_drops_with_much_in_its_hands_keeps_nobody_waiting() {
    let (mut depot, worker) = held(Order::None, HELD);
    let other = depot.client("other");
    depot.subscribe_at(other, "$queue/jobs?group=g", QOS_0, &[]);
    assert_eq!(failed(&depot), (0, HELD));
    let now = depot.stage.now;
    depot.stage.switchboard.closed(worker, now).unwrap();
    assert_eq!(failed(&depot), (0, HELD), "its session is no more");
    assert_eq!(
        turns(&mut depot, HELD as u64),
        HELD.div_ceil(SHARE as usize)
    );
    depot.settle();
    let handed = all(&mut depot, other);
    assert_eq!(handed.len(), HELD);
    assert!(handed.iter().all(|each| each.user["attempt"] == "2"));
}

#[test]
fn deadlines_that_pass_together_fail_in_shares() {
    let (mut depot, worker) = held(Order::None, HELD);
    depot.stage.now.mono_ms += 30_000;
    depot.stage.now.wall_ms += 30_000;
    let now = depot.stage.now;
    depot.stage.switchboard.tick(now);
    assert_eq!(failed(&depot), (0, HELD));
    turns(&mut depot, HELD as u64);
    depot.settle();
    all(&mut depot, worker);
    depot.wait(1_000);
    assert_eq!(all(&mut depot, worker).len(), HELD, "after their back-off");
}

#[test]
fn who_is_back_before_all_of_it_has_come_again_is_handed_it_once() {
    let (mut depot, publisher, _) = with(large(Order::None), 1);
    let lasting = |depot: &mut Depot| {
        let connection = depot.stage.asks(Connect {
            client_id: "lasting",
            clean_start: false,
            session_expiry_s: Some(1_000),
            ..plain(V5)
        });
        depot.stage.decide(0);
        depot.settle();
        connection
    };
    let worker = lasting(&mut depot);
    depot.stage.hears(worker);
    depot.stage.is_validating = false;
    depot.subscribe_at(worker, "$queue/jobs?group=g", QOS_0, &[]);
    for number in 1..=HELD {
        depot.send(publisher, "$queue/jobs", "", &[]);
        if number % 500 == 0 {
            depot.settle();
        }
    }
    let first = all(&mut depot, worker);
    assert_eq!(first.len(), HELD);
    // It takes its session over, and is served while what it had comes again.
    let worker = lasting(&mut depot);
    depot.stage.switchboard.validate();
    let again = all(&mut depot, worker);
    assert_eq!(again.len(), HELD);
    assert!(again.iter().all(|each| each.user["attempt"] == "2"));
    assert_eq!(depot.ack(worker, &first[HELD - 1]), Some(0x83), "too late");
    assert_eq!(depot.ack(worker, &again[0]), Some(0));
    assert_eq!(depot.depth(JOBS), HELD as u64 - 1);
}

#[test]
fn messages_of_a_key_keep_their_order_though_shares_of_them_come_again() {
    let (mut depot, worker) = held(Order::Key, 2_500);
    assert_eq!(failed(&depot), (0, 2_500), "one of each key");
    let now = depot.stage.now;
    let other = depot.client("other");
    depot.subscribe_at(other, "$queue/jobs?group=g", QOS_0, &[]);
    depot.stage.switchboard.closed(worker, now).unwrap();
    depot.settle();
    let mut next: BTreeMap<String, usize> = BTreeMap::new();
    loop {
        let handed = depot.take(other);
        if handed.is_empty() {
            break;
        }
        for each in &handed {
            let number: usize = each.payload.parse().unwrap();
            let key = each.user["partition-key"].clone();
            let before = next.insert(key, number).unwrap_or(0);
            assert!(before < number, "{before} before {number}");
        }
        let acks = handed.iter().flat_map(|each| {
            let publish = Publish {
                topic: "$queue/jobs/$ack",
                properties: user(&[("message-id", each.id())]),
                ..Publish::default()
            };
            depot.stage.bytes(other, &Packet::Publish(publish))
        });
        let acks: Vec<u8> = acks.collect();
        depot.stage.send_bytes(other, &acks);
        depot.settle();
    }
    depot.stage.switchboard.validate();
    assert_eq!(depot.depth(JOBS), 0);
}

#[test]
fn a_queue_that_goes_takes_what_was_to_come_again_with_it() {
    let (mut depot, worker) = held(Order::None, HELD);
    let now = depot.stage.now;
    depot.stage.switchboard.closed(worker, now).unwrap();
    depot.stage.switchboard.unbind(JOBS).unwrap();
    depot.settle();
    assert_eq!(depot.stage.switchboard.queue_groups(JOBS), None);
    assert_eq!(depot.stage.switchboard.collect(now).map(|_| ()), None);
}
