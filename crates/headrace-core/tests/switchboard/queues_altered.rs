//! Settings of a queue that change while it serves, and logs that change under it.

use headrace_core::switchboard::{Lost, QueueSettings, Unread};

use super::depot::*;
use super::queues::with;

const G: [(&str, &str); 1] = [("consumer-group", "g")];

fn alter(depot: &mut Depot, change: impl FnOnce(&mut QueueSettings)) {
    change(&mut depot.settings);
    let settings = depot.settings.clone();
    depot.stage.switchboard.set_queue(JOBS, settings).unwrap();
    depot.settle();
}

#[test]
fn an_age_holds_for_what_is_known_too() {
    let (mut depot, publisher, worker) = with(settings(), 1);
    let one = [G[0], ("prefetch", "1")];
    depot.subscribe(worker, "$queue/jobs", &one);
    for payload in ["a", "b", "c"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    let held = depot.take(worker);
    assert_eq!(payloads(&held), ["a"]);
    alter(&mut depot, |settings| settings.policy.ttl_ms = 5_000);
    assert_eq!(depot.depth(JOBS), 3);
    depot.wait(5_000);
    let dead: Vec<_> = depot.dead_letters().into_iter().collect();
    assert_eq!(dead.len(), 2, "{dead:?}");
    assert_eq!(
        depot.ack(worker, &held[0]),
        Some(0),
        "who has it may settle"
    );
    assert_eq!(depot.depth(JOBS), 0);
}

#[test]
fn an_age_that_is_longer_keeps_what_would_have_died() {
    let mut aging = settings();
    aging.policy.ttl_ms = 5_000;
    let (mut depot, publisher, worker) = with(aging, 1);
    depot.subscribe(worker, "$queue/jobs", &[G[0], ("prefetch", "1")]);
    depot.enqueue(publisher, "$queue/jobs", "a", &[]);
    depot.enqueue(publisher, "$queue/jobs", "b", &[]);
    let held = depot.take(worker);
    alter(&mut depot, |settings| settings.policy.ttl_ms = 60_000);
    depot.wait(10_000);
    assert_eq!(depot.ack(worker, &held[0]), Some(0));
    assert_eq!(payloads(&depot.take(worker)), ["b"]);
}

#[test]
fn a_prefetch_holds_from_the_next_delivery() {
    let (mut depot, publisher, worker) = with(settings(), 1);
    depot.subscribe(worker, "$queue/jobs", &G);
    let own = depot.client("own");
    depot.subscribe(
        own,
        "$queue/jobs",
        &[("consumer-group", "h"), ("prefetch", "3")],
    );
    for payload in ["a", "b", "c"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    let held = depot.take(worker);
    assert_eq!(held.len(), 3);
    alter(&mut depot, |settings| settings.prefetch = 2);
    depot.enqueue(publisher, "$queue/jobs", "d", &[]);
    assert_eq!(
        depot.take(own).len(),
        3,
        "who has said how many has as many"
    );
    depot.ack(worker, &held[0]);
    assert_eq!(payloads(&depot.take(worker)), [""; 0]);
    depot.ack(worker, &held[1]);
    assert_eq!(payloads(&depot.take(worker)), ["d"]);
    depot.enqueue(publisher, "$queue/jobs", "e", &[]);
    assert_eq!(payloads(&depot.take(worker)), [""; 0]);
    alter(&mut depot, |settings| settings.prefetch = 3);
    assert_eq!(payloads(&depot.take(worker)), ["e"]);
}

#[test]
fn what_cannot_be_read_is_told_of_once() {
    let (mut depot, publisher, worker) = with(settings(), 1);
    for payload in ["a", "b", "c"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    depot.logs.get_mut(&(JOBS, 0)).unwrap().damage(1);
    depot.subscribe(worker, "$queue/jobs", &G);
    assert_eq!(payloads(&depot.take(worker)), ["a", "c"]);
    let lost = Lost {
        stream: JOBS,
        group: "g".into(),
        partition: 0,
        offset: 1,
        count: 1,
        why: Unread::Damaged,
    };
    assert_eq!(depot.stage.lost, [lost]);
    assert_eq!(depot.depth(JOBS), 2);
}
