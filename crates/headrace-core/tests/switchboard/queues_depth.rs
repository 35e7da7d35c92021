//! What a queue may owe, which of its messages comes first, and what grows old while nobody takes it.

use headrace_core::queue::Policy;
use headrace_core::record::{fnv1a, BatchBuilder, Codec};
use headrace_core::switchboard::{Depth, Excess, QueueSettings};

use super::depot::*;
use super::queues::with;

fn bounded(messages_max: u64, excess: Excess) -> QueueSettings {
    QueueSettings {
        depth: Depth {
            messages_max,
            bytes_max: 0,
            excess,
        },
        ..settings()
    }
}

const G: [(&str, &str); 2] = [("consumer-group", "g"), ("prefetch", "1")];

#[test]
fn a_full_queue_refuses_more_until_something_is_settled() {
    let (mut depot, publisher, worker) = with(bounded(3, Excess::Refuse), 2);
    let user = [("dedup-id", "first")];
    let one = depot.enqueue(publisher, "$queue/jobs", "0", &user);
    assert_eq!(one, Some(0));
    // Several at once: what is on its way counts.
    let ids: Vec<u16> = ["1", "2", "3", "4"]
        .map(|payload| depot.send(publisher, "$queue/jobs", payload, &[]))
        .to_vec();
    depot.settle();
    let codes: Vec<_> = ids
        .iter()
        .map(|id| depot.reason_code(publisher, *id))
        .collect();
    assert_eq!(codes, [Some(0), Some(0), Some(0x97), Some(0x97)]);
    let again = depot.enqueue(publisher, "$queue/jobs", "0", &user);
    assert_eq!(again, Some(0), "it has that one");
    let bound = depot.enqueue(publisher, "bound/x", "5", &[]);
    assert_eq!(bound, Some(0x97), "whichever way it comes");
    depot.subscribe(worker, "$queue/jobs", &G);
    let handed = depot.take(worker);
    assert_eq!(
        depot.enqueue(publisher, "$queue/jobs", "5", &[]),
        Some(0x97),
        "what is in flight is owed"
    );
    depot.ack(worker, &handed[0]);
    let codes = ["6", "7"].map(|payload| depot.enqueue(publisher, "$queue/jobs", payload, &[]));
    assert_eq!(codes, [Some(0), Some(0x97)]);
    depot.crash();
    let publisher = depot.client("publisher");
    let after = depot.enqueue(publisher, "$queue/jobs", "8", &[]);
    assert_eq!(after, Some(0x97), "over a crash too");
}

#[test]
fn the_oldest_that_nobody_has_make_room() {
    let (mut depot, publisher, worker) = with(bounded(3, Excess::Drop), 1);
    depot.subscribe(worker, "$queue/jobs", &G);
    for number in 0..10 {
        let code = depot.enqueue(publisher, "$queue/jobs", &number.to_string(), &[]);
        assert_eq!(code, Some(0));
    }
    assert_eq!(depot.depth(JOBS), 3);
    let mut seen = Vec::new();
    loop {
        let handed = depot.take(worker);
        let Some(one) = handed.first() else { break };
        seen.push(one.payload.clone());
        assert_eq!(depot.ack(worker, one), Some(0));
    }
    assert_eq!(seen, ["0", "8", "9"], "what was in flight stays");
}

#[test]
fn the_oldest_become_dead_letters_whether_anybody_consumes_or_not() {
    let (mut depot, publisher, worker) = with(bounded(4, Excess::DeadLetter), 1);
    depot.subscribe(worker, "$queue/jobs", &G);
    depot.stage.hang_up(worker);
    for number in 0..10 {
        let code = depot.enqueue(publisher, "$queue/jobs", &number.to_string(), &[]);
        assert_eq!(code, Some(0));
    }
    assert_eq!(depot.depth(JOBS), 4);
    let dead: Vec<String> = depot
        .dead_letters()
        .into_iter()
        .map(|letter| letter.1)
        .collect();
    assert_eq!(dead.len(), 6, "{dead:?}");
    let people = depot.client("people");
    depot.subscribe(people, "$queue/jobs/$dlq", &[("prefetch", "100")]);
    let letters = depot.take(people);
    assert!(letters
        .iter()
        .all(|letter| letter.user["reason"] == "depth"));
}

#[test]
fn a_bound_of_bytes_holds_for_what_is_owed() {
    let (mut depot, publisher, worker) = with(
        QueueSettings {
            depth: Depth {
                messages_max: 0,
                bytes_max: 10_000,
                excess: Excess::Refuse,
            },
            ..settings()
        },
        1,
    );
    depot.subscribe(worker, "$queue/jobs", &G);
    let payload = "x".repeat(1_000);
    let mut stored = 0;
    while depot.enqueue(publisher, "$queue/jobs", &payload, &[]) == Some(0) {
        stored += 1;
        assert!(stored < 20, "it is bounded");
    }
    assert!((9..=10).contains(&stored), "{stored}");
    for _ in 0..5 {
        let handed = depot.take(worker);
        assert_eq!(depot.ack(worker, &handed[0]), Some(0));
    }
    let mut more = 0;
    while depot.enqueue(publisher, "$queue/jobs", &payload, &[]) == Some(0) {
        more += 1;
    }
    assert!((4..=6).contains(&more), "{more}");
}

#[test]
fn urgent_messages_overtake_those_before_them() {
    let mut urgent = settings();
    urgent.policy.prioritises = true;
    let (mut depot, publisher, worker) = with(urgent, 1);
    for (payload, priority) in [("a", "1"), ("b", ""), ("c", "9"), ("d", "4"), ("e", "6")] {
        let user = [("priority", priority)];
        let user = if priority.is_empty() { &[][..] } else { &user };
        let code = depot.enqueue(publisher, "$queue/jobs", payload, user);
        assert_eq!(code, Some(0));
    }
    let none = depot.enqueue(publisher, "$queue/jobs", "x", &[("priority", "10")]);
    assert_eq!(none, Some(0x83));
    depot.subscribe(worker, "$queue/jobs", &G);
    let mut seen = String::new();
    loop {
        depot.wait(1);
        let handed = depot.take(worker);
        let Some(one) = handed.first() else { break };
        seen.push_str(&one.payload);
        if seen.len() == 3 {
            depot.enqueue(publisher, "$queue/jobs", "f", &[("priority", "7")]);
        }
        assert_eq!(depot.ack(worker, one), Some(0));
    }
    assert_eq!(seen, "cebfda");
}

#[test]
fn a_priority_that_a_queue_would_ignore_is_refused() {
    let (mut depot, publisher, _) = with(settings(), 1);
    let user = [("priority", "9")];
    let code = depot.enqueue(publisher, "$queue/jobs", "x", &user);
    assert_eq!(code, Some(0x83));
    let code = depot.enqueue(publisher, "bound/x", "x", &user);
    assert_eq!(code, Some(0), "of others it is a property as any");
}

#[test]
fn what_grows_too_old_dies_though_nobody_consumes() {
    let aging = QueueSettings {
        policy: Policy {
            ttl_ms: 10_000,
            ..settings().policy
        },
        ..settings()
    };
    let (mut depot, publisher, worker) = with(aging, 1);
    depot.subscribe(worker, "$queue/jobs", &G);
    depot.stage.hang_up(worker);
    for number in 0..3 {
        depot.enqueue(publisher, "$queue/jobs", &number.to_string(), &[]);
        depot.wait(1_000);
    }
    depot.wait(6_999);
    assert_eq!(depot.dead_letters().len(), 0);
    depot.wait(1);
    assert_eq!(depot.dead_letters().len(), 1);
    depot.wait(2_000);
    assert_eq!(depot.dead_letters().len(), 3);
    assert_eq!(depot.depth(JOBS), 0);
}

#[test]
fn dead_letters_can_be_waited_for_before_there_are_any() {
    let (mut depot, publisher, worker) = with(settings(), 1);
    let people = depot.client("people");
    let said = depot.subscribe(people, "$queue/jobs/$dlq", &[]);
    assert_eq!(said, depot.subscribe(worker, "$queue/jobs", &G));
    depot.enqueue(publisher, "$queue/jobs", "x", &[]);
    let handed = depot.take(worker);
    let id = [("message-id", handed[0].id())];
    assert_eq!(depot.end(worker, "$reject", &id), Some(0));
    assert_eq!(payloads(&depot.take(people)), ["x"]);
}

/// So many messages of one of two partitions.
fn send_to(depot: &mut Depot, publisher: u64, partition: u32, many: usize) {
    let mut keys = (0..).map(|number: u32| number.to_string());
    let key = keys.find(|key| fnv1a(key.as_bytes()) % 2 == partition);
    let key = key.unwrap();
    for _ in 0..many {
        depot.send(publisher, "$queue/jobs", "x", &[("partition-key", &key)]);
    }
}

fn enqueue_to(depot: &mut Depot, publisher: u64, partition: u32, many: usize) {
    for _ in 0..many {
        send_to(depot, publisher, partition, 1);
        depot.settle();
    }
}

#[test]
fn a_partition_that_is_all_in_flight_saves_none_of_the_others() {
    let (mut depot, publisher, worker) = with(bounded(6, Excess::Drop), 2);
    depot.subscribe(
        worker,
        "$queue/jobs",
        &[("consumer-group", "g"), ("prefetch", "5")],
    );
    enqueue_to(&mut depot, publisher, 0, 5);
    enqueue_to(&mut depot, publisher, 1, 4);
    assert_eq!(depot.depth(JOBS), 6, "five that are out, and the newest");
}

#[test]
fn the_end_of_the_group_that_is_owed_most_makes_room() {
    let (mut depot, publisher, worker) = with(bounded(3, Excess::Refuse), 1);
    depot.subscribe(worker, "$queue/jobs", &[("consumer-group", "stale")]);
    depot.stage.unsubscribe(worker, &["$queue/jobs"]);
    for payload in ["0", "1", "2"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    depot.subscribe(worker, "$queue/jobs", &[("consumer-group", "g")]);
    for handed in depot.take(worker) {
        depot.ack(worker, &handed);
    }
    depot.stage.run(); // nothing is left to be looked at
    let full = depot.send(publisher, "$queue/jobs", "3", &[]);
    assert_eq!(depot.reason_code(publisher, full), Some(0x97));
    let switchboard = &mut depot.stage.switchboard;
    assert_eq!(switchboard.forget_queue_group(JOBS, "stale"), Ok(true));
    let code = depot.enqueue(publisher, "$queue/jobs", "3", &[]);
    assert_eq!(code, Some(0));
}

#[test]
fn what_could_not_be_stored_takes_no_room() {
    let (mut depot, publisher, _) = with(bounded(3, Excess::Refuse), 1);
    let send = |depot: &mut Depot| depot.send(publisher, "$queue/jobs", "x", &[]);
    let ids = [(); 4].map(|()| send(&mut depot));
    while !depot.stage.appends.is_empty() {
        depot.append_next(false);
    }
    let codes = ids.map(|id| depot.reason_code(publisher, id));
    assert_eq!(codes, [Some(0x80), Some(0x80), Some(0x80), Some(0x97)]);
    let ids = [(); 4].map(|()| send(&mut depot));
    depot.settle();
    let codes = ids.map(|id| depot.reason_code(publisher, id));
    assert_eq!(codes, [Some(0), Some(0), Some(0), Some(0x97)]);
}

#[test]
fn a_batch_that_was_refused_takes_no_room_from_smaller_ones() {
    let (mut depot, publisher, _) = with(bounded(100, Excess::Refuse), 1);
    for number in 0..50 {
        depot.enqueue(publisher, "$queue/jobs", &number.to_string(), &[]);
    }
    let batch_of = |messages: u32| {
        let mut builder = BatchBuilder::new();
        for _ in 0..messages {
            builder.push(1, None, Some(b"x"), std::iter::empty());
        }
        builder.finish_published(Codec::None)
    };
    let (large, small) = (batch_of(60), batch_of(50));
    let switchboard = &mut depot.stage.switchboard;
    let taken = [&large, &large, &small, &small].map(|each| switchboard.take_room(JOBS, each));
    assert_eq!(taken, [None, None, Some(50), None]);
    // It did not get there, and what others take is asked about anew.
    switchboard.room_taken(JOBS, 50, small.len() as u64);
    assert_eq!(switchboard.take_room(JOBS, &small), Some(50));
}

#[test]
fn a_partition_that_runs_out_of_what_may_go_saves_none_of_the_others() {
    let (mut depot, publisher, worker) = with(bounded(6, Excess::Drop), 2);
    let group = [("consumer-group", "g"), ("prefetch", "4")];
    depot.subscribe(worker, "$queue/jobs", &group);
    enqueue_to(&mut depot, publisher, 0, 4);
    // All at once, and nothing more is told.
    send_to(&mut depot, publisher, 0, 1);
    send_to(&mut depot, publisher, 1, 4);
    depot.stage.run();
    while !depot.stage.appends.is_empty() {
        depot.append_next(true);
    }
    depot.tell();
    depot.stage.run();
    assert_eq!(depot.depth(JOBS), 6, "four that are out, and two more");
}
