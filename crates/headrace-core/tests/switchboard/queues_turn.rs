//! Whose turn it is: one consumer at a time.

use headrace_core::mqtt::packet::Connect;
use headrace_core::switchboard::{QueueSettings, Sharing};

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
