//! Whose turn it is: one consumer at a time, and those that cannot take a message.

use headrace_core::mqtt::packet::Connect;
use headrace_core::switchboard::{PullTerms, QueueSettings, Sharing};

use super::depot::*;
use super::queues::with;
use super::stage::*;

const GROUP: [(&str, &str); 1] = [("consumer-group", "g")];

/// A client that comes, or comes back, to a session that lasts.
fn comes(depot: &mut Depot, client_id: &str) -> u64 {
    let connect = Connect {
        client_id,
        clean_start: false,
        session_expiry_s: Some(1_000),
        ..plain(V5)
    };
    let client = depot.stage.asks(connect);
    depot.stage.decide(0);
    depot.settle(); // CONNACK waits for the log
    client
}

/// As [`comes`], and is told nothing but that it may.
fn stays(depot: &mut Depot, client_id: &str) -> u64 {
    let client = comes(depot, client_id);
    let said = depot.stage.hears(client);
    assert!(
        matches!(&said[..], [one] if one.starts_with("CONNACK 0x00")),
        "{said:?}"
    );
    client
}

fn of_one(sharing: Sharing) -> (Depot, u64) {
    let settings = QueueSettings {
        sharing,
        ..settings()
    };
    let (depot, publisher, _) = with(settings, 1);
    (depot, publisher)
}

#[test]
fn who_comes_back_to_a_queue_of_one_consumer_stands_behind_those_that_are_there() {
    let (mut depot, publisher) = of_one(Sharing::Single);
    let (alf, zed) = (stays(&mut depot, "alf"), stays(&mut depot, "zed"));
    depot.subscribe(alf, "$queue/jobs", &GROUP);
    depot.subscribe(zed, "$queue/jobs", &GROUP);
    depot.stage.hang_up(alf);
    depot.enqueue(publisher, "$queue/jobs", "1", &[]);
    let handed = depot.take(zed);
    assert_eq!(payloads(&handed), ["1"]);
    let alf = stays(&mut depot, "alf");
    depot.enqueue(publisher, "$queue/jobs", "2", &[]);
    assert_eq!(payloads(&depot.take(zed)), ["2"], "it is still there");
    assert_eq!(depot.take(alf), []);
    depot.stage.hang_up(zed);
    depot.settle();
    assert_eq!(payloads(&depot.take(alf)), ["1", "2"]);
    // After a crash it is who comes back first.
    depot.crash();
    let publisher = depot.client("publisher");
    let zed = comes(&mut depot, "zed");
    assert_eq!(payloads(&depot.take(zed)), ["1", "2"]);
    let alf = stays(&mut depot, "alf");
    depot.enqueue(publisher, "$queue/jobs", "3", &[]);
    assert_eq!(payloads(&depot.take(zed)), ["3"]);
    assert_eq!(depot.take(alf), []);
}

#[test]
fn who_gets_all_from_now_on_waits_for_what_others_have() {
    let (mut depot, publisher) = of_one(Sharing::Shared);
    let (first, second) = (depot.client("first"), depot.client("second"));
    depot.subscribe(first, "$queue/jobs", &GROUP);
    depot.subscribe(second, "$queue/jobs", &GROUP);
    for payload in ["1", "2"] {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    let (one, two) = (depot.take(first), depot.take(second));
    assert_eq!((payloads(&one), payloads(&two)), (vec!["1"], vec!["2"]));
    depot.settings.sharing = Sharing::Single;
    let settings = depot.settings.clone();
    depot.stage.switchboard.set_queue(JOBS, settings).unwrap();
    depot.enqueue(publisher, "$queue/jobs", "3", &[]);
    assert_eq!((depot.take(first), depot.take(second)), (vec![], vec![]));
    assert_eq!(depot.ack(second, &two[0]), Some(0));
    assert_eq!(payloads(&depot.take(first)), ["3"]);
}

#[test]
fn who_comes_back_to_an_exclusive_queue_that_another_has_by_now_is_told() {
    let (mut depot, publisher) = of_one(Sharing::Exclusive);
    let alf = stays(&mut depot, "alf");
    depot.subscribe(alf, "$queue/jobs", &GROUP);
    depot.stage.hang_up(alf);
    let alf = stays(&mut depot, "alf"); // nobody else has it
    depot.stage.hang_up(alf);
    let zed = stays(&mut depot, "zed");
    assert_eq!(
        depot.subscribe(zed, "$queue/jobs", &GROUP),
        "SUBACK 1 [0x01]"
    );
    let alf = comes(&mut depot, "alf");
    let said = depot.stage.hears(alf);
    let end = &said[said.len() - 2..];
    assert_eq!(end, ["DISCONNECT 0x97", "closed: queue_taken"], "{said:?}");
    depot.enqueue(publisher, "$queue/jobs", "1", &[]);
    assert_eq!(payloads(&depot.take(zed)), ["1"]);
    // Its subscription has ended, so it may be there for other things.
    let alf = stays(&mut depot, "alf");
    let said = depot.subscribe(alf, "$queue/jobs", &GROUP);
    assert!(said.starts_with("SUBACK 1 [0x97]"), "{said}");
}

#[test]
fn who_cannot_take_a_message_leaves_it_to_those_that_can() {
    let (mut depot, publisher, able) = with(settings(), 1);
    let tiny = Connect {
        client_id: "tiny",
        maximum_packet_size: Some(1_000),
        ..plain(V5)
    };
    let tiny = depot.stage.client_with(tiny);
    let one = [("consumer-group", "g"), ("prefetch", "1")];
    depot.subscribe(able, "$queue/jobs", &one);
    depot.enqueue(publisher, "$queue/jobs", "held", &[]);
    let mut held = depot.take(able);
    assert_eq!(payloads(&held), ["held"]);
    depot.subscribe(tiny, "$queue/jobs", &GROUP);
    let large = ["a", "b", "c"].map(|name| name.repeat(5_000));
    for payload in large.iter().map(String::as_str).chain(["small"]) {
        depot.enqueue(publisher, "$queue/jobs", payload, &[]);
    }
    // They hold up none that it takes.
    let small = depot.take(tiny);
    assert_eq!(payloads(&small), ["small"]);
    assert_eq!(depot.ack(tiny, &small[0]), Some(0));
    for payload in &large {
        assert_eq!(depot.ack(able, &held[0]), Some(0));
        held = depot.take(able);
        assert_eq!((&held[0].payload, held.len()), (payload, 1));
        assert_eq!(held[0].user["attempt"], "1", "nobody has failed at it");
    }
    // One that could is away, and may come back.
    let away = comes(&mut depot, "away");
    depot.stage.hears(away);
    depot.subscribe(away, "$queue/jobs", &GROUP);
    depot.stage.hang_up(away);
    depot.enqueue(publisher, "$queue/jobs", &large[0], &[]);
    assert_eq!(depot.ack(able, &held[0]), Some(0));
    held = depot.take(able);
    assert_eq!(payloads(&held), [&large[0]]);
    depot.stage.unsubscribe(able, &["$queue/jobs"]);
    depot.settle();
    depot.wait(500_000); // its session lasts
    assert_eq!(depot.depth(JOBS), 1);
    let away = comes(&mut depot, "away");
    held = depot.take(away);
    assert_eq!(payloads(&held), [&large[0]]);
    assert_eq!(held[0].user["attempt"], "2", "the first was given back");
    depot.stage.unsubscribe(away, &["$queue/jobs"]);
    // Nobody that is left takes it.
    for _ in 0..9 {
        depot.wait(60_000);
    }
    assert_eq!(depot.take(tiny), []);
    assert_eq!(depot.depth(JOBS), 0);
    let letters = depot.dead_letters();
    assert_eq!(letters.len(), 1);
}

#[test]
fn a_message_that_a_member_cannot_take_goes_to_who_pulls() {
    let (mut depot, publisher, _) = with(settings(), 1);
    let tiny = Connect {
        client_id: "tiny",
        maximum_packet_size: Some(1_000),
        ..plain(V5)
    };
    let tiny = depot.stage.client_with(tiny);
    depot.subscribe(tiny, "$queue/jobs", &GROUP);
    let terms = PullTerms {
        messages_max: 1,
        bytes_max: 1 << 20,
        deadline_ms: None,
        waits: true,
    };
    let switchboard = &mut depot.stage.switchboard;
    let number = switchboard.pull_queue(JOBS, ("g", None), terms).unwrap();
    depot.enqueue(publisher, "$queue/jobs", &"a".repeat(5_000), &[]);
    let pulled = depot.stage.switchboard.pulled();
    assert_eq!((pulled.len(), pulled[0].number), (1, number));
    assert_eq!(pulled[0].messages[0].attempt, 1);
}
