//! Durable queues: what clients publish to and subscribe to below `$queue/`, and what settles.

use headrace_core::mqtt::packet::{Disconnect, Packet};
use headrace_core::queue::{Order, Policy};
use headrace_core::switchboard::QueueSettings;

use super::depot::*;
use super::stage::*;

pub fn depot() -> (Depot, u64, u64) {
    with(settings(), 1)
}

pub fn with(settings: QueueSettings, partitions: u32) -> (Depot, u64, u64) {
    let mut depot = Depot::new(partitions, settings);
    let (publisher, worker) = (depot.client("publisher"), depot.client("worker"));
    (depot, publisher, worker)
}

#[test]
fn a_message_is_kept_handed_out_and_settled() {
    let (mut depot, publisher, worker) = depot();
    let user = [("b", "1"), ("partition-key", "k"), ("message-id", "9:9:9")];
    assert_eq!(
        depot.enqueue(publisher, "$queue/jobs/eu/3", "one", &user),
        Some(0)
    );
    assert_eq!(
        depot.subscribe(worker, "$queue/jobs", &[]),
        "SUBACK 1 [0x01]"
    );
    let handed = depot.take(worker);
    assert_eq!(payloads(&handed), ["one"]);
    assert_eq!(handed[0].topic, "$queue/jobs/eu/3");
    let enqueued = 1_700_000_000_000_i64.to_string();
    for (name, value) in [
        ("b", "1"),
        ("partition-key", "k"),
        ("message-id", "0:0:1"),
        ("group-id", "worker"),
        ("queue", "jobs"),
        ("partition", "0"),
        ("offset", "0"),
        ("sequence", "0"),
        ("attempt", "1"),
        ("first-enqueued", &enqueued),
        ("x-source-topic", "$queue/jobs/eu/3"),
    ] {
        assert_eq!(handed[0].user[name], value, "{name}");
    }
    assert_eq!(handed[0].user.len(), 11);
    assert_eq!(depot.depth(JOBS), 1);
    assert_eq!(depot.ack(worker, &handed[0]), Some(0));
    assert_eq!(depot.depth(JOBS), 0);
    assert_eq!(depot.ack(worker, &handed[0]), Some(0x10), "it was before");
    depot.wait(100_000);
    assert_eq!(depot.take(worker), []);
}

#[test]
fn a_topic_that_is_bound_is_queued_below_the_queue() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs/bound/+", &[]);
    depot.enqueue(publisher, "bound/a", "1", &[]);
    depot.enqueue(publisher, "bound/a/b", "2", &[]);
    depot.enqueue(publisher, "bound/b", "3", &[]);
    let handed = depot.take(worker);
    assert_eq!(payloads(&handed), ["1", "3"], "as the filter says");
    assert_eq!(handed[0].topic, "$queue/jobs/bound/a");
    assert_eq!(handed[0].user["x-source-topic"], "bound/a");
    assert_eq!(
        depot.depth(JOBS),
        2,
        "the other one is none of this group's"
    );
}

#[test]
fn what_no_queue_has_is_refused() {
    let (mut depot, publisher, worker) = depot();
    assert_eq!(depot.enqueue(publisher, "$queue/none", "", &[]), Some(0x90));
    assert_eq!(
        depot.enqueue(publisher, "$queue/jobs/$dlq", "", &[]),
        Some(0x87)
    );
    assert_eq!(
        depot.enqueue(publisher, "$queue/jobs/$ack", "", &[]),
        Some(0x83)
    );
    for (filter, user, code) in [
        ("$queue/none", [("a", "b")], "0x8f"),
        ("$queue/+", [("a", "b")], "0x8f"),
        ("$queue", [("a", "b")], "0x8f"),
        ("$queue/jobs", [("prefetch", "0")], "0x83"),
        ("$queue/jobs", [("settle", "never")], "0x83"),
        ("$queue/jobs", [("consumer-group", "")], "0x83"),
    ] {
        let said = depot.subscribe(worker, filter, &user);
        assert!(said.starts_with(&format!("SUBACK 1 [{code}] ")), "{said}");
    }
    let said = depot.subscribe(worker, "$share/g/$queue/jobs", &[]);
    assert!(said.starts_with("SUBACK 1 [0x9e] "), "{said}");
    let said = depot.subscribe_at(worker, "$queue/jobs", QOS_0, &[("settle", "puback")]);
    assert!(said.starts_with("SUBACK 1 [0x83] "), "{said}");
    // 3.1.1 has no answer that says no.
    let older = depot.stage.client(V311, "older");
    depot.stage.publish(older, "$queue/none", QOS_1, 3, "");
    assert_eq!(depot.stage.hears(older), ["closed: unknown_queue"]);
    assert_eq!(
        depot
            .stage
            .statistic("mqtt_messages_dropped_total{reason=\"unknown_queue\"}"),
        2
    );
}

/// FLUXMQ.md 5.3: a nacked message comes back to a consumer that is alone.
#[test]
fn what_failed_comes_again_after_its_back_off_to_a_lone_consumer_too() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs", &[]);
    depot.enqueue(publisher, "$queue/jobs", "one", &[]);
    let first = depot.take(worker);
    let nack = |depot: &mut Depot, id: &str, more: &[(&str, &str)]| {
        let mut user = vec![("message-id", id)];
        user.extend(more);
        depot.end(worker, "$nack", &user)
    };
    assert_eq!(nack(&mut depot, first[0].id(), &[]), Some(0));
    depot.wait(999);
    assert_eq!(depot.take(worker), []);
    depot.wait(1);
    let second = depot.take(worker);
    assert_eq!(second[0].id(), "0:0:2");
    assert_eq!(second[0].user["attempt"], "2");
    assert_eq!(
        depot.ack(worker, &first[0]),
        Some(0x83),
        "it is another delivery's"
    );
    assert_eq!(nack(&mut depot, "0:0:2", &[("delay", "5s")]), Some(0));
    depot.wait(4_999);
    assert_eq!(depot.take(worker), []);
    depot.wait(1);
    let third = depot.take(worker);
    assert_eq!(third[0].id(), "0:0:3");
    assert_eq!(nack(&mut depot, "0:0:3", &[("delay", "soon")]), Some(0x83));
    assert_eq!(depot.ack(worker, &third[0]), Some(0));
}

#[test]
fn a_deadline_that_passed_is_a_failure_and_may_be_put_off() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs", &[]);
    depot.enqueue(publisher, "$queue/jobs", "one", &[]);
    let first = depot.take(worker);
    depot.wait(29_999);
    let user = [("message-id", first[0].id()), ("delay", "10s")];
    assert_eq!(depot.end(worker, "$extend", &user), Some(0));
    depot.wait(9_999);
    assert_eq!(depot.depth(JOBS), 1);
    assert_eq!(depot.take(worker), []);
    depot.wait(1);
    depot.wait(1_000);
    let second = depot.take(worker);
    assert_eq!(second[0].id(), "0:0:2");
    assert_eq!(depot.ack(worker, &first[0]), Some(0x83));
    assert_eq!(depot.ack(worker, &second[0]), Some(0));
}

#[test]
fn who_goes_gives_back_what_it_has_and_has_failed_unless_it_said_good_bye() {
    let (mut depot, publisher, worker) = depot();
    let group = [("consumer-group", "g")];
    depot.subscribe(worker, "$queue/jobs", &group);
    for payload in ["1", "2"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    assert_eq!(depot.take(worker).len(), 2);
    let other = depot.client("other");
    depot.subscribe(other, "$queue/jobs", &group);
    assert_eq!(depot.take(other), []);
    depot.stage.hang_up(worker);
    depot.settle();
    let handed = depot.take(other);
    assert_eq!(payloads(&handed), ["1", "2"], "at once");
    assert_eq!(handed[1].id(), "0:1:2");
    depot
        .stage
        .send(other, &Packet::Disconnect(Disconnect::default()));
    depot.stage.hang_up(other);
    let third = depot.client("third");
    depot.subscribe(third, "$queue/jobs", &group);
    assert_eq!(payloads(&depot.take(third)), ["1", "2"]);
    let groups = depot.stage.switchboard.queue_groups(JOBS).unwrap();
    assert_eq!(
        groups[0].counts,
        [6, 4, 0, 2, 0, 0],
        "delivered, again, settled, failed, dead, lost"
    );
}

#[test]
fn work_is_shared_in_turn_as_far_as_each_has_room() {
    let (mut depot, publisher, worker) = depot();
    let other = depot.client("other");
    let group = [("consumer-group", "g")];
    depot.subscribe(
        worker,
        "$queue/jobs",
        &[("consumer-group", "g"), ("prefetch", "2")],
    );
    depot.subscribe(other, "$queue/jobs?prefetch=4", &group);
    for payload in ["1", "2", "3", "4", "5", "6", "7"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    let (mine, others) = (depot.take(worker), depot.take(other));
    assert_eq!(payloads(&mine), ["1", "3"]);
    assert_eq!(
        payloads(&others),
        ["2", "4", "5", "6"],
        "who is full keeps nobody waiting"
    );
    depot.ack(worker, &mine[0]);
    assert_eq!(payloads(&depot.take(worker)), ["7"]);
}

#[test]
fn groups_have_each_message_and_their_own_progress() {
    let (mut depot, publisher, worker) = depot();
    let other = depot.client("other");
    depot.subscribe(worker, "$queue/jobs", &[("consumer-group", "a")]);
    depot.subscribe(other, "$queue/jobs", &[("consumer-group", "b")]);
    depot.enqueue(publisher, "$queue/jobs", "one", &[]);
    let mine = depot.take(worker);
    assert_eq!(payloads(&depot.take(other)), ["one"]);
    depot.ack(worker, &mine[0]);
    assert_eq!(depot.depth(JOBS), 1);
    // A client of both says which.
    let both = [("message-id", "0:0:1"), ("group-id", "b")];
    assert_eq!(depot.end(worker, "$ack", &both), Some(0));
    assert_eq!(depot.depth(JOBS), 0);
    assert_eq!(depot.stage.switchboard.queue_floors(JOBS), Some(vec![1]));
}

#[test]
fn puback_settles_where_a_client_asks_for_it_and_for_3_1_1_always() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs", &[("settle", "puback")]);
    for payload in ["1", "2"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    let handed = depot.take_unanswered(worker);
    assert_eq!(depot.depth(JOBS), 2);
    depot.puback(worker, handed[0].packet_id, 0);
    depot.puback(worker, handed[1].packet_id, 0x80);
    depot.settle();
    assert_eq!(depot.depth(JOBS), 1);
    depot.wait(1_000);
    let again = depot.take(worker);
    assert_eq!(again[0].id(), "0:1:2", "a PUBACK that refuses is a failure");
    assert_eq!(depot.depth(JOBS), 0);
    let older = depot.stage.client(V311, "older");
    depot
        .stage
        .subscribe_with(older, request("$queue/jobs?group=old", QOS_1));
    depot.settle();
    assert_eq!(
        depot.stage.hears(older),
        [
            "SUBACK 1 [0x01]",
            "PUBLISH $queue/jobs qos 1 id 1: 1",
            "PUBLISH $queue/jobs qos 1 id 2: 2"
        ]
    );
    depot.stage.acknowledge(older, 1);
    depot.settle();
    assert_eq!(depot.depth(JOBS), 1);
}

#[test]
fn what_is_rejected_or_fails_too_often_becomes_a_dead_letter_with_its_reason() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs", &[("consumer-group", "g")]);
    let user = [("u", "v"), ("delay", "1s")];
    depot.enqueue(publisher, "$queue/jobs/x", "bad", &user);
    depot.wait(1_000);
    depot.enqueue(publisher, "bound/y", "worse", &[]);
    let handed = depot.take(worker);
    let why = [("message-id", handed[0].id()), ("reason", "no such model")];
    assert_eq!(depot.end(worker, "$reject", &why), Some(0));
    for wait_ms in [1_000, 2_000, 0] {
        let id = format!(
            "0:1:{}",
            match wait_ms {
                1_000 => 1,
                2_000 => 2,
                _ => 3,
            }
        );
        assert_eq!(depot.end(worker, "$nack", &[("message-id", &id)]), Some(0));
        depot.wait(wait_ms);
        depot.take(worker);
    }
    assert_eq!(depot.depth(JOBS), 0);
    let undertaker = depot.client("undertaker");
    assert_eq!(
        depot.subscribe(undertaker, "$queue/jobs/$dlq", &[]),
        "SUBACK 1 [0x01]"
    );
    let dead = depot.take(undertaker);
    assert_eq!(payloads(&dead), ["bad", "worse"]);
    assert_eq!(dead[0].topic, "$queue/jobs.dlq/$queue/jobs/x");
    for (name, value) in [
        ("u", "v"),
        ("reason", "rejected"),
        ("reason-detail", "no such model"),
        ("x-source-topic", "$queue/jobs/x"),
        ("x-source-queue", "jobs"),
        ("x-source-message", "0:0"),
        ("attempts", "1"),
        ("x-source-group", "g"),
        ("x-source-enqueued", "1700000000000"),
        ("group-id", "undertaker"),
        ("queue", "jobs.dlq"),
    ] {
        assert_eq!(dead[0].user[name], value, "{name}");
    }
    assert_eq!(dead[1].user["reason"], "attempts");
    assert_eq!(dead[1].user["attempts"], "3");
    assert_eq!(dead[1].user["x-source-topic"], "bound/y");
}

/// FLUXMQ.md 4: a failed append of a dead letter loses nothing.
#[test]
fn a_dead_letter_that_could_not_be_stored_is_owed_until_it_is() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs", &[]);
    depot.enqueue(publisher, "$queue/jobs", "bad", &[]);
    let handed = depot.take(worker);
    depot.refused.insert(DEAD);
    assert_eq!(
        depot.end(worker, "$reject", &[("message-id", handed[0].id())]),
        Some(0)
    );
    assert_eq!(depot.depth(JOBS), 1);
    depot.wait(1_000);
    assert_eq!(depot.depth(JOBS), 1, "it was tried again");
    depot.refused.clear();
    depot.wait(1_000);
    assert_eq!(depot.depth(JOBS), 0);
    assert_eq!(depot.logs[&(DEAD, 0)].end, 1);
}

#[test]
fn what_is_too_old_is_dead_without_a_delivery() {
    let old = QueueSettings {
        policy: Policy {
            ttl_ms: 5_000,
            ..settings().policy
        },
        ..settings()
    };
    let (mut depot, publisher, worker) = with(old, 1);
    depot.enqueue(publisher, "$queue/jobs", "old", &[]);
    depot.wait(5_000);
    depot.enqueue(publisher, "$queue/jobs", "new", &[]);
    depot.subscribe(worker, "$queue/jobs", &[]);
    let handed = depot.take(worker);
    assert_eq!(payloads(&handed), ["new"]);
    assert_eq!(depot.logs[&(DEAD, 0)].end, 1);
    assert_eq!(depot.depth(JOBS), 1);
}

#[test]
fn of_a_key_one_is_out_at_a_time_and_a_stuck_key_blocks_itself_alone() {
    let ordered = QueueSettings {
        policy: Policy {
            order: Order::Key,
            ..settings().policy
        },
        ..settings()
    };
    let (mut depot, publisher, worker) = with(ordered, 1);
    depot.subscribe(worker, "$queue/jobs", &[]);
    for (key, payload) in [
        ("a", "a1"),
        ("a", "a2"),
        ("b", "b1"),
        ("a", "a3"),
        ("b", "b2"),
    ] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[("partition-key", key)]);
    }
    let first = depot.take(worker);
    assert_eq!(payloads(&first), ["a1", "b1"]);
    assert_eq!(
        depot.end(worker, "$nack", &[("message-id", first[0].id())]),
        Some(0)
    );
    depot.ack(worker, &first[1]);
    let next = depot.take(worker);
    assert_eq!(payloads(&next), ["b2"], "what failed keeps its place");
    depot.wait(1_000);
    let again = depot.take(worker);
    assert_eq!(payloads(&again), ["a1"]);
    depot.ack(worker, &again[0]);
    let then = depot.take(worker);
    assert_eq!(payloads(&then), ["a2"]);
}
