//! Publishes that so many get whose sessions last that their claims are given in shares.

use headrace_core::mqtt::packet::{Connect, Packet, Publish, Unsubscribe};
use headrace_core::session::Ending;
use headrace_core::switchboard::{Limits, BATCH_BYTES_MAX};

use super::groups::payloads;
use super::stage::*;

const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// Two claims and two receivers a turn, where more than three get a publish.
fn keeping() -> Stage {
    let mut stage = Stage::new(Limits {
        crowd_min: 3,
        crowd_turn_max: 2,
        ..Limits::default()
    });
    stage.switchboard.keep_sessions(2, 1 << 20, BATCH_BYTES_MAX);
    stage
        .switchboard
        .bind(1, 1, &["stored/#"], "topic")
        .unwrap();
    stage
}

/// Connects a client whose session lasts.
fn lasting(stage: &mut Stage, name: &str, will: Option<Will<'_>>) -> u64 {
    let connection = stage.asks(Connect {
        client_id: name,
        clean_start: false,
        session_expiry_s: Some(1_000),
        will,
        ..plain(V5)
    });
    stage.decide(0);
    stage.write_all(Ending::Stored);
    connection
}

/// Clients whose sessions last, that subscribe to `t/#` and `stored/#`.
fn crowd(stage: &mut Stage) -> Vec<u64> {
    let open = |name: &&str| {
        let client = lasting(stage, name, None);
        for filter in ["t/#", "stored/#"] {
            stage.subscribe_with(client, request(filter, QOS_2));
            stage.write_all(Ending::Stored);
        }
        stage.hears(client);
        client
    };
    NAMES.iter().map(open).collect()
}

/// A publish that is in, and has had no turn yet.
fn put(stage: &mut Stage, client: u64, topic: &str, qos: QoS, payload: &str) {
    let publish = Packet::Publish(Publish {
        topic,
        qos,
        packet_id: 5,
        payload: payload.as_bytes(),
        ..Publish::default()
    });
    let (bytes, now) = (stage.bytes(client, &publish), stage.now);
    stage.switchboard.receive(client, &bytes, now).unwrap();
}

/// One turn; whether something is to be written then.
fn turn(stage: &mut Stage) -> bool {
    if let Some(effects) = stage.switchboard.collect(stage.now) {
        stage.perform(effects);
    }
    assert_eq!(stage.switchboard.persist(stage.now), None);
    while let Some(append) = stage.switchboard.session_append() {
        stage.written.push(append);
    }
    stage.switchboard.validate();
    !stage.written.is_empty()
}

fn restarted(stage: &Stage) -> Stage {
    let mut again = keeping();
    again.restore(stage);
    again.run();
    again
}

/// What waits for each of them.
fn waiting(stage: &mut Stage) -> Vec<Vec<String>> {
    let get = |name: &&str| {
        let client = lasting(stage, name, None);
        payloads(stage, client)
    };
    NAMES.iter().map(get).collect()
}

#[test]
fn the_log_has_a_message_once_all_are_known_who_are_owed_it() {
    for qos in [QOS_1, QOS_2] {
        let mut stage = keeping();
        let clients = crowd(&mut stage);
        for client in clients {
            stage.hang_up(client);
        }
        stage.write_all(Ending::Stored);
        let publisher = stage.client(V5, "p");
        put(&mut stage, publisher, "t/1", qos, "x");
        let mut turns = 0;
        while !turn(&mut stage) {
            turns += 1;
        }
        assert!(turns >= 3, "{turns}");
        assert_eq!(waiting(&mut restarted(&stage)), [[""; 0]; 7]);
        assert_eq!(stage.hears(publisher), [""; 0]);
        stage.write_all(Ending::Stored);
        assert_eq!(waiting(&mut restarted(&stage)), [["x"]; 7]);
        let answer = if qos == QOS_1 { "PUBACK 5" } else { "PUBREC 5" };
        assert_eq!(stage.hears(publisher), [answer]);
        assert_eq!(waiting(&mut stage), [["x"]; 7]);
    }
}

#[test]
fn a_packet_id_is_on_the_log_with_its_message_or_not_at_all() {
    let mut stage = keeping();
    crowd(&mut stage);
    let publisher = lasting(&mut stage, "p", None);
    put(&mut stage, publisher, "t/1", QOS_2, "x");
    turn(&mut stage);
    // Something else has the log say how far its session is.
    let (bytes, now) = (
        stage.bytes(
            publisher,
            &Packet::Pubrel(headrace_core::mqtt::packet::Ack {
                packet_id: 77,
                ..Default::default()
            }),
        ),
        stage.now,
    );
    stage.switchboard.receive(publisher, &bytes, now).unwrap();
    assert!(turn(&mut stage));
    let round = std::mem::take(&mut stage.written);
    for append in &round {
        let log = stage.log.entry(append.partition).or_default();
        let offset = log.last().map_or(0, |(last, _)| last + 1);
        log.push((offset, append.batch.clone()));
    }
    let mut again = restarted(&stage);
    let publisher = lasting(&mut again, "p", None);
    again.hears(publisher);
    again.publish(publisher, "t/1", QOS_2, 5, "x");
    again.write_all(Ending::Stored);
    assert_eq!(again.hears(publisher), ["PUBREC 5"]);
    assert_eq!(
        waiting(&mut again),
        [["x"]; 7],
        "it is not taken for a repeat"
    );
}

#[test]
fn a_will_behind_a_crowd_is_owed_behind_it() {
    let mut stage = keeping();
    for client in crowd(&mut stage) {
        stage.hang_up(client);
    }
    stage.write_all(Ending::Stored);
    let publisher = stage.asks(Connect {
        client_id: "p",
        will: Some(Will {
            topic: "t/1",
            payload: b"2",
            qos: QOS_1,
            ..Will::default()
        }),
        ..plain(V5)
    });
    stage.decide(0);
    stage.write_all(Ending::Stored);
    put(&mut stage, publisher, "t/1", QOS_1, "1");
    turn(&mut stage);
    let now = stage.now;
    stage.switchboard.closed(publisher, now).unwrap();
    stage.run();
    stage.write_all(Ending::Stored);
    assert_eq!(waiting(&mut restarted(&stage)), [["1", "2"]; 7]);
    assert_eq!(waiting(&mut stage), [["1", "2"]; 7]);
}

#[test]
fn who_is_owed_it_and_unsubscribes_before_its_turn_does_not_get_it() {
    let mut stage = keeping();
    let clients = crowd(&mut stage);
    let publisher = stage.client(V5, "p");
    put(&mut stage, publisher, "t/1", QOS_1, "x");
    while !turn(&mut stage) {}
    let leaves = Packet::Unsubscribe(Unsubscribe {
        packet_id: 2,
        filters: vec!["t/#"],
        ..Unsubscribe::default()
    });
    let (bytes, now) = (stage.bytes(clients[6], &leaves), stage.now);
    stage.switchboard.receive(clients[6], &bytes, now).unwrap();
    stage.write_all(Ending::Stored);
    assert_eq!(stage.hears(clients[6]), ["UNSUBACK 2 [0x00]"]);
    for client in &clients[..6] {
        assert_eq!(payloads(&mut stage, *client), ["x"]);
    }
    assert_eq!(stage.hears(publisher), ["PUBACK 5"]);
    let owed = waiting(&mut restarted(&stage));
    assert_eq!(owed[6], [""; 0], "nor after a crash");
}

#[test]
fn a_stream_that_refuses_a_publish_ends_it_while_claims_are_given() {
    let mut stage = keeping();
    let clients = crowd(&mut stage);
    let publisher = stage.client(V5, "p");
    put(&mut stage, publisher, "stored/1", QOS_1, "x");
    assert!(!turn(&mut stage));
    let append = stage.appends.remove(0);
    let now = stage.now;
    stage
        .switchboard
        .durable(append.ticket, false, now)
        .unwrap();
    stage.switchboard.validate();
    stage.run();
    stage.write_all(Ending::Stored);
    assert!(stage.hears(publisher)[0].starts_with("PUBACK 5 0x80"));
    stage.publish(publisher, "t/1", QOS_1, 6, "y");
    stage.write_all(Ending::Stored);
    for client in &clients {
        assert_eq!(payloads(&mut stage, *client), ["y"]);
    }
    assert_eq!(stage.hears(publisher), ["PUBACK 6"]);
}

#[test]
fn a_log_that_refuses_a_crowd_leaves_nothing_of_it() {
    let mut stage = keeping();
    let clients = crowd(&mut stage);
    let publisher = stage.client(V5, "p");
    stage.publish(publisher, "t/1", QOS_1, 5, "x");
    stage.write_all(Ending::NoRoom);
    assert!(stage.hears(publisher)[0].starts_with("PUBACK 5 0x97"));
    stage.wait(1_000);
    stage.write_all(Ending::Stored);
    for client in clients {
        assert_eq!(payloads(&mut stage, client), [""; 0]);
    }
    assert_eq!(stage.statistic("mqtt_crowd_messages"), 0);
    assert_eq!(waiting(&mut restarted(&stage)), [[""; 0]; 7]);
}

#[test]
fn sessions_that_last_and_others_and_groups_get_it_once_each() {
    let mut stage = keeping();
    let clients = crowd(&mut stage);
    let others = ["x", "y"].map(|name| {
        let other = stage.client(V5, name);
        stage.subscribe(other, "t/+", QOS_1);
        other
    });
    let member = lasting(&mut stage, "member", None);
    stage.subscribe_with(member, request("$share/g/t/#", QOS_1));
    stage.write_all(Ending::Stored);
    stage.hears(member);
    let publisher = stage.client(V5, "p");
    stage.publish(publisher, "t/1", QOS_1, 5, "x");
    stage.write_all(Ending::Stored);
    for client in clients.into_iter().chain(others).chain([member]) {
        assert_eq!(payloads(&mut stage, client), ["x"]);
    }
    assert_eq!(stage.hears(publisher), ["PUBACK 5"]);
}
