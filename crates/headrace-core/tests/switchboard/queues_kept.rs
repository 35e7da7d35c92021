//! Durable queues beyond one message: crashes, deletion, time, pauses, single consumers, replay.

use headrace_core::queue::Policy;
use headrace_core::switchboard::{QueueSettings, Sharing};

use super::depot::*;
use super::queues::{depot, with};

#[test]
fn settlement_outlives_a_crash_and_what_was_in_flight_comes_again() {
    let (mut depot, publisher, worker) = with(settings(), 3);
    depot.subscribe(
        worker,
        "$queue/jobs",
        &[("consumer-group", "g"), ("prefetch", "100")],
    );
    for number in 0..60 {
        depot.enqueue(publisher, "$queue/jobs", &number.to_string(), &[]);
    }
    let handed = depot.take(worker);
    assert_eq!(handed.len(), 60);
    for each in handed.iter().filter(|each| each.payload.len() == 1) {
        assert_eq!(depot.ack(worker, each), Some(0));
    }
    depot.crash();
    assert_eq!(
        depot.depth(JOBS),
        50,
        "the group is there without a consumer"
    );
    let worker = depot.client("worker");
    depot.subscribe(
        worker,
        "$queue/jobs",
        &[("consumer-group", "g"), ("prefetch", "100")],
    );
    let mut again: Vec<u32> = depot
        .take(worker)
        .iter()
        .map(|each| each.payload.parse().unwrap())
        .collect();
    again.sort_unstable();
    assert_eq!(again, (10..60).collect::<Vec<u32>>());
}

#[test]
fn a_slow_reader_of_the_log_or_of_the_socket_holds_up_nobody_else() {
    let (mut depot, publisher, worker) = depot();
    let other = depot.client("other");
    depot.subscribe(worker, "$queue/jobs", &[("consumer-group", "a")]);
    depot.subscribe(other, "$queue/jobs", &[("consumer-group", "b")]);
    // One that takes nothing: its group waits, and the other goes on.
    for number in 0..30 {
        depot.enqueue(publisher, "$queue/jobs", &number.to_string(), &[]);
    }
    assert_eq!(depot.take(worker).len(), 10, "as many as it may have");
    let mut seen = 0;
    loop {
        let handed = depot.take(other);
        if handed.is_empty() {
            break;
        }
        seen += handed.len();
        for each in &handed {
            depot.ack(other, each);
        }
    }
    assert_eq!(seen, 30);
}

#[test]
fn a_queue_that_is_deleted_ends_its_consumers_and_leaves_nothing() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs", &[]);
    depot.enqueue(publisher, "$queue/jobs", "one", &[]);
    depot.take(worker);
    depot.stage.switchboard.unbind(JOBS).unwrap();
    depot.stage.run();
    let said = depot.stage.hears(worker);
    assert_eq!(said.last().unwrap(), "closed: queue_deleted", "{said:?}");
    assert_eq!(depot.stage.switchboard.queue_groups(JOBS), None);
    assert_eq!(depot.enqueue(publisher, "$queue/jobs", "", &[]), Some(0x90));
}

#[test]
fn a_group_without_consumers_can_be_forgotten() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs", &[("consumer-group", "g")]);
    depot.enqueue(publisher, "$queue/jobs", "one", &[]);
    let switchboard = &mut depot.stage.switchboard;
    assert!(switchboard.forget_queue_group(JOBS, "g").is_err());
    assert_eq!(switchboard.forget_queue_group(JOBS, "h"), Ok(false));
    depot.stage.unsubscribe(worker, &["$queue/jobs"]);
    depot.settle();
    assert_eq!(
        depot.stage.switchboard.forget_queue_group(JOBS, "g"),
        Ok(true)
    );
    depot.settle();
    depot.crash();
    assert_eq!(depot.stage.switchboard.queue_groups(JOBS), Some(vec![]));
    assert_eq!(depot.stage.switchboard.queue_floors(JOBS), None);
}

#[test]
fn a_message_waits_for_its_time_and_holds_up_nobody() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs", &[]);
    let at = (depot.stage.now.wall_ms + 2_000).to_string();
    depot.enqueue(publisher, "$queue/jobs", "later", &[("delay", "3s")]);
    depot.enqueue(publisher, "$queue/jobs", "then", &[("deliver-at", &at)]);
    depot.enqueue(publisher, "$queue/jobs", "now", &[]);
    assert_eq!(payloads(&depot.take(worker)), ["now"]);
    depot.wait(1_999);
    assert_eq!(depot.take(worker), []);
    depot.wait(1);
    assert_eq!(payloads(&depot.take(worker)), ["then"]);
    depot.crash();
    let worker = depot.client("worker");
    depot.subscribe(worker, "$queue/jobs", &[]);
    assert_eq!(payloads(&depot.take(worker)), ["then", "now"]);
    depot.wait(1_000);
    let later = depot.take(worker);
    assert_eq!(payloads(&later), ["later"]);
    assert_eq!(later[0].user["attempt"], "1");
    let publisher = depot.client("publisher");
    for wrong in [("delay", "soon"), ("deliver-at", "noon")] {
        assert_eq!(
            depot.enqueue(publisher, "$queue/jobs", "", &[wrong]),
            Some(0x83)
        );
    }
}

#[test]
fn a_queue_that_is_paused_takes_messages_and_gives_none_out() {
    let (mut depot, publisher, worker) = depot();
    let pause = |depot: &mut Depot, is_paused| {
        let settings = QueueSettings {
            is_paused,
            ..settings()
        };
        depot.stage.switchboard.set_queue(JOBS, settings).unwrap();
        depot.settle();
    };
    pause(&mut depot, true);
    depot.subscribe(worker, "$queue/jobs", &[]);
    assert_eq!(depot.enqueue(publisher, "$queue/jobs", "one", &[]), Some(0));
    assert_eq!(depot.take(worker), []);
    pause(&mut depot, false);
    assert_eq!(payloads(&depot.take(worker)), ["one"]);
}

#[test]
fn of_one_consumer_at_a_time_the_next_takes_over() {
    let single = QueueSettings {
        sharing: Sharing::Single,
        ..settings()
    };
    let (mut depot, publisher, worker) = with(single, 1);
    let other = depot.client("other");
    let group = [("consumer-group", "g")];
    depot.subscribe(worker, "$queue/jobs", &group);
    depot.subscribe(other, "$queue/jobs", &group);
    for payload in ["1", "2"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    assert_eq!(payloads(&depot.take(worker)), ["1", "2"]);
    assert_eq!(depot.take(other), []);
    depot.stage.hang_up(worker);
    depot.settle();
    assert_eq!(payloads(&depot.take(other)), ["1", "2"]);
}

#[test]
fn an_exclusive_queue_refuses_a_second_consumer_while_the_first_is_there() {
    let exclusive = QueueSettings {
        sharing: Sharing::Exclusive,
        ..settings()
    };
    let (mut depot, _, worker) = with(exclusive, 1);
    let other = depot.client("other");
    let group = [("consumer-group", "g")];
    assert_eq!(
        depot.subscribe(worker, "$queue/jobs", &group),
        "SUBACK 1 [0x01]"
    );
    assert_eq!(
        depot.subscribe(worker, "$queue/jobs", &group),
        "SUBACK 1 [0x01]"
    );
    let said = depot.subscribe(other, "$queue/jobs", &group);
    assert!(
        said.starts_with("SUBACK 1 [0x97] $queue/jobs: worker consumes it"),
        "{said}"
    );
    assert_eq!(
        depot.subscribe(other, "$queue/jobs", &[]),
        "SUBACK 1 [0x01]",
        "its own group"
    );
    depot.stage.hang_up(worker);
    assert_eq!(
        depot.subscribe(other, "$queue/jobs", &group),
        "SUBACK 1 [0x01]"
    );
}

#[test]
fn a_group_goes_on_from_where_it_is_told_to() {
    let (mut depot, publisher, worker) = with(settings(), 2);
    depot.subscribe(worker, "$queue/jobs", &[("consumer-group", "g")]);
    for payload in ["1", "2", "3", "4"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    let first = depot.take(worker);
    depot.ack(worker, &first[0]);
    let seek = |depot: &mut Depot, name: Option<&str>, offsets: &[i64]| {
        let now = depot.stage.now;
        let moved = depot
            .stage
            .switchboard
            .seek_queue(JOBS, name, offsets, 77, now);
        depot.stage.run();
        assert_eq!(
            depot.stage.switchboard.published(),
            [],
            "that is not durable yet"
        );
        depot.settle();
        assert_eq!(depot.stage.switchboard.published().len(), 1);
        moved.unwrap()
    };
    assert_eq!(seek(&mut depot, Some("g"), &[0, 1]), 1);
    assert_eq!(depot.depth(JOBS), 3);
    let again = depot.take(worker);
    assert_eq!(again.len(), 3, "what was settled comes again");
    assert_eq!(seek(&mut depot, None, &[2, 2]), 1, "a purge");
    assert_eq!(depot.depth(JOBS), 0);
    assert_eq!(depot.ack(worker, &again[0]), Some(0x10));
    let now = depot.stage.now;
    let none = depot
        .stage
        .switchboard
        .seek_queue(JOBS, Some("h"), &[0, 0], 78, now);
    assert_eq!(none, Ok(0));
    assert!(depot
        .stage
        .switchboard
        .seek_queue(JOBS, None, &[0], 79, now)
        .is_err());
    depot.crash();
    assert_eq!(depot.depth(JOBS), 0);
}

#[test]
fn what_settles_nothing_is_answered_at_once() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs", &[]);
    for payload in ["one", "two"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    let handed = depot.take(worker);
    depot.ack(worker, &handed[0]);
    let first = [("message-id", handed[0].id())];
    let second = [("message-id", handed[1].id()), ("delay", "1m")];
    for (verb, user, code) in [
        ("$ack", &first[..], " 0x10"),
        ("$nack", &first, " 0x10"),
        ("$extend", &second, ""),
    ] {
        let id = depot.send(worker, &format!("$queue/jobs/{verb}"), "", user);
        let said = depot.stage.hears(worker);
        assert!(
            said[0].starts_with(&format!("PUBACK {id}{code}")),
            "{said:?}"
        );
        assert!(depot.stage.written.is_empty());
    }
}

#[test]
fn who_was_not_handed_a_message_settles_it_only_by_naming_the_group() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs", &[("consumer-group", "g")]);
    depot.enqueue(publisher, "$queue/jobs", "one", &[]);
    let handed = depot.take(worker);
    let id = ("message-id", handed[0].id());
    assert_eq!(depot.end(publisher, "$ack", &[id]), Some(0x83));
    assert_eq!(
        depot.end(publisher, "$ack", &[id, ("group-id", "h")]),
        Some(0x83)
    );
    assert_eq!(
        depot.end(publisher, "$ack", &[id, ("group-id", "g")]),
        Some(0)
    );
    assert_eq!(depot.depth(JOBS), 0);
}

#[test]
fn a_message_with_a_dedup_id_is_kept_once_whoever_publishes_it() {
    let (mut depot, publisher, worker) = with(settings(), 3);
    depot.subscribe(worker, "$queue/jobs", &[]);
    let id = [("dedup-id", "job-7")];
    assert_eq!(depot.enqueue(publisher, "$queue/jobs", "one", &id), Some(0));
    for client in [publisher, worker] {
        assert_eq!(depot.enqueue(client, "$queue/jobs", "again", &id), Some(0));
    }
    depot.enqueue(publisher, "$queue/jobs", "other", &[("dedup-id", "job-8")]);
    let mut handed = payloads(&depot.take(worker)).join(" ");
    if handed.starts_with("other") {
        handed = "one other".into();
    }
    assert_eq!(handed, "one other");
    assert_eq!(depot.stage.statistic("mqtt_repeats_total"), 2);
}

#[test]
fn the_group_of_a_client_without_an_id_goes_with_it() {
    let (mut depot, publisher, _) = depot();
    depot.enqueue(publisher, "$queue/jobs", "one", &[]);
    let groups = |depot: &Depot| depot.stage.switchboard.queue_groups(JOBS).unwrap().len();
    let nameless = depot.client("");
    depot.subscribe(nameless, "$queue/jobs", &[]);
    assert_eq!(payloads(&depot.take(nameless)), ["one"], "it may look");
    assert_eq!(groups(&depot), 1);
    depot.stage.hang_up(nameless);
    depot.settle();
    assert_eq!(groups(&depot), 0);
    let nameless = depot.client("");
    depot.subscribe(nameless, "$queue/jobs", &[]);
    depot.subscribe(
        publisher,
        "$queue/jobs",
        &[("consumer-group", "auto-scaling")],
    );
    depot.crash();
    assert_eq!(groups(&depot), 1, "that of a name stays");
}

/// A deadline is kept though nobody has room, and something else was due in between.
#[test]
fn a_deadline_is_kept_while_the_consumer_is_full() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs", &[("prefetch", "1")]);
    for payload in ["one", "two"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    let one = depot.take(worker);
    depot.end(worker, "$nack", &[("message-id", one[0].id())]);
    assert_eq!(payloads(&depot.take(worker)), ["two"]);
    depot.wait(1_000); // one may come again, and there is no room for it
    assert_eq!(depot.take(worker), []);
    let due = depot.stage.wake_at.expect("a deadline is awaited");
    assert!(due <= depot.stage.now.mono_ms + 29_000);
    depot.wait(29_000);
    assert_eq!(payloads(&depot.take(worker)), ["one"]);
}

#[test]
fn what_the_log_has_lost_is_owed_when_it_comes_anew() {
    let (mut depot, publisher, worker) = depot();
    depot.subscribe(worker, "$queue/jobs", &[("prefetch", "100")]);
    for number in 0..20 {
        depot.enqueue(publisher, "$queue/jobs", &number.to_string(), &[]);
    }
    for each in depot.take(worker) {
        depot.ack(worker, &each);
    }
    depot.logs.get_mut(&(JOBS, 0)).unwrap().cut(12);
    depot.crash();
    let (publisher, worker) = (depot.client("publisher"), depot.client("worker"));
    depot.subscribe(worker, "$queue/jobs", &[]);
    assert_eq!(depot.take(worker), []);
    depot.enqueue(publisher, "$queue/jobs", "anew", &[]);
    assert_eq!(payloads(&depot.take(worker)), ["anew"]);
}

#[test]
fn a_group_that_begins_late_costs_no_more_than_another() {
    let (mut depot, publisher, worker) = depot();
    let log = depot.logs.get_mut(&(JOBS, 0)).unwrap();
    (log.start, log.end) = (1_000_000_000_000, 1_000_000_000_000);
    depot.subscribe(worker, "$queue/jobs", &[]);
    depot.enqueue(publisher, "$queue/jobs", "one", &[]);
    let handed = depot.take(worker);
    assert_eq!(handed[0].id(), "0:1000000000000:1");
    depot.ack(worker, &handed[0]);
    depot.crash();
    assert_eq!(depot.depth(JOBS), 0);
}

#[test]
fn a_late_settlement_touches_no_other_group_of_the_name() {
    let (mut depot, publisher, worker) = depot();
    let other = depot.client("other");
    depot.subscribe(worker, "$queue/jobs?group=g", &[]);
    depot.subscribe(other, "$queue/jobs/eu/#", &[("consumer-group", "g")]);
    depot.enqueue(publisher, "$queue/jobs/eu/1", "one", &[]);
    let (mine, others) = (depot.take(worker), depot.take(other));
    assert_eq!(mine[0].id(), others[0].id());
    let whose = [("message-id", mine[0].id()), ("group-id", "g")];
    assert_eq!(depot.end(worker, "$ack", &whose), Some(0));
    assert_eq!(depot.end(worker, "$ack", &whose), Some(0x10));
    assert_eq!(depot.depth(JOBS), 1, "the other one has its delivery");
    assert_eq!(depot.ack(other, &others[0]), Some(0));
}

#[test]
fn a_client_that_subscribes_again_goes_on_in_its_group() {
    let (mut depot, publisher, _) = depot();
    let nameless = depot.client("");
    depot.subscribe(nameless, "$queue/jobs", &[]);
    for payload in ["one", "two"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    let handed = depot.take(nameless);
    depot.ack(nameless, &handed[0]);
    depot.subscribe(nameless, "$queue/jobs", &[("prefetch", "5")]);
    assert_eq!(payloads(&depot.take(nameless)), ["two"]);
    // Or leaves it for another one, and with that none that nobody can come back to.
    depot.subscribe(nameless, "$queue/jobs", &[("consumer-group", "g")]);
    assert_eq!(payloads(&depot.take(nameless)), ["one", "two"]);
    let groups = depot.stage.switchboard.queue_groups(JOBS).unwrap();
    let names: Vec<&str> = groups.iter().map(|group| &*group.name).collect();
    assert_eq!(names, ["g"]);
}

#[test]
fn what_is_too_old_before_its_time_is_dead_then() {
    let (mut depot, publisher, worker) = with(
        QueueSettings {
            policy: Policy {
                ttl_ms: 5_000,
                ..settings().policy
            },
            ..settings()
        },
        1,
    );
    depot.subscribe(worker, "$queue/jobs", &[]);
    for at in ["253402300799999", "0"] {
        depot.enqueue(publisher, "$queue/jobs", at, &[("deliver-at", at)]);
    }
    let handed = depot.take(worker);
    assert_eq!(payloads(&handed), ["0"]);
    let long = [("message-id", handed[0].id()), ("delay", "36525d")];
    assert_eq!(depot.end(worker, "$nack", &long), Some(0));
    depot.wait(5_000);
    assert_eq!(depot.logs[&(DEAD, 0)].end, 2, "what has failed too");
}
