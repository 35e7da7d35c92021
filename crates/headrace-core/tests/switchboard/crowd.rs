//! Publishes that so many get that they are handed out in shares.

use headrace_core::mqtt::packet::{Connect, Packet, Publish, Subscribe, Unsubscribe};
use headrace_core::session::Ending;
use headrace_core::switchboard::{Limits, Published, BATCH_BYTES_MAX};

use super::group_work::lasting;
use super::groups::payloads;
use super::stage::*;

/// Two receivers a turn, where more than three get a publish.
pub fn small() -> Limits {
    Limits {
        crowd_min: 3,
        crowd_turn_max: 2,
        ..Limits::default()
    }
}

/// Clients that subscribe to `t/#`.
pub fn crowd(stage: &mut Stage, count: usize, qos: QoS) -> Vec<u64> {
    let open = |number| {
        let client = stage.client(V5, &format!("c{number}"));
        stage.subscribe(client, "t/#", qos);
        client
    };
    (0..count).map(open).collect()
}

/// Input that has had no turn yet.
pub fn put(stage: &mut Stage, client: u64, topic: &str, qos: QoS, packet_id: u16, payload: &str) {
    let publish = Packet::Publish(Publish {
        topic,
        qos,
        packet_id,
        payload: payload.as_bytes(),
        ..Publish::default()
    });
    let bytes = stage.bytes(client, &publish);
    stage
        .switchboard
        .receive(client, &bytes, stage.now)
        .unwrap();
}

pub fn turn(stage: &mut Stage) {
    if let Some(effects) = stage.switchboard.collect(stage.now) {
        stage.perform(effects);
    }
    stage.switchboard.validate();
}

/// How many of them have been sent something since they last looked.
pub fn heard(stage: &mut Stage, clients: &[u64]) -> usize {
    let heard = clients
        .iter()
        .filter(|client| !stage.hears(**client).is_empty());
    heard.count()
}

#[test]
fn a_crowd_is_served_in_shares_and_others_between_them() {
    for qos in [QOS_0, QOS_1, QOS_2] {
        let mut stage = Stage::new(small());
        let clients = crowd(&mut stage, 9, qos);
        let publisher = stage.client(V5, "p");
        let other = stage.client(V5, "other");
        put(&mut stage, publisher, "t/1", qos, qos as u16, "x");
        let mut served = Vec::new();
        while served.iter().sum::<usize>() < 9 {
            put(&mut stage, other, "u", QOS_1, 1, "");
            turn(&mut stage);
            assert_eq!(stage.hears(other), ["PUBACK 1 0x10"]);
            served.push(heard(&mut stage, &clients));
            if qos == QOS_1 && served.iter().sum::<usize>() < 9 {
                assert_eq!(stage.hears(publisher), [""; 0], "PUBACK is last");
            }
        }
        assert_eq!(served, [2, 2, 2, 2, 1]);
        stage.run();
        let answer: &[&str] = match qos {
            QoS::AtMostOnce => &[],
            QoS::AtLeastOnce => &["PUBACK 1"],
            QoS::ExactlyOnce => &["PUBREC 2"],
        };
        assert_eq!(stage.hears(publisher), answer);
        assert_eq!(stage.statistic("mqtt_crowd_messages_total"), 1);
        assert_eq!(stage.statistic("mqtt_crowd_messages"), 0);
        if qos == QOS_0 {
            assert_eq!(stage.statistic("mqtt_queued_bytes"), 0);
        }
    }
}

#[test]
fn nobody_gets_a_later_publish_of_the_same_client_first() {
    for qos in [QOS_0, QOS_1, QOS_2] {
        let mut stage = Stage::new(small());
        let clients = crowd(&mut stage, 7, QOS_1);
        let publisher = stage.client_with(Connect {
            client_id: "p",
            will: Some(Will {
                topic: "t/1",
                payload: b"4",
                qos,
                ..Will::default()
            }),
            ..plain(V5)
        });
        for number in 1..=3 {
            let id = if qos == QOS_0 { 0 } else { number };
            put(&mut stage, publisher, "t/1", qos, id, &number.to_string());
        }
        turn(&mut stage);
        stage.hang_up(publisher);
        // The others were never read.
        for client in clients {
            assert_eq!(payloads(&mut stage, client), ["1", "4"]);
        }
    }
}

#[test]
fn who_comes_or_goes_between_two_shares_does_not_get_it() {
    let mut stage = Stage::new(small());
    let clients = crowd(&mut stage, 8, QOS_0);
    let publisher = stage.client(V5, "p");
    put(&mut stage, publisher, "t/1", QOS_0, 0, "x");
    turn(&mut stage);
    assert_eq!(heard(&mut stage, &clients), 2);
    let leaves = Packet::Unsubscribe(Unsubscribe {
        packet_id: 2,
        filters: vec!["t/#"],
        ..Unsubscribe::default()
    });
    let comes = Packet::Subscribe(Subscribe {
        packet_id: 3,
        filters: vec![request("t/#", QOS_0)],
        ..Subscribe::default()
    });
    let now = stage.now;
    for (client, packet) in [(clients[7], leaves), (publisher, comes)] {
        let bytes = stage.bytes(client, &packet);
        stage.switchboard.receive(client, &bytes, now).unwrap();
    }
    stage.switchboard.closed(clients[6], now).unwrap();
    stage.run();
    assert_eq!(stage.hears(clients[7]), ["UNSUBACK 2 [0x00]"]);
    assert_eq!(stage.hears(publisher), ["SUBACK 3 [0x00]"]);
    assert_eq!(heard(&mut stage, &clients[2..6]), 4);
}

#[test]
fn another_session_in_the_place_of_one_that_ended_does_not_get_it() {
    let mut stage = Stage::new(small());
    let clients = crowd(&mut stage, 8, QOS_0);
    let publisher = stage.client(V5, "p");
    let connect = Packet::Connect(Box::new(Connect {
        client_id: "heir",
        ..plain(V5)
    }));
    put(&mut stage, publisher, "t/1", QOS_0, 0, "x");
    turn(&mut stage);
    let now = stage.now;
    stage.switchboard.closed(clients[7], now).unwrap();
    stage.switchboard.opened(1_000, now).unwrap();
    let bytes = stage.bytes(publisher, &connect);
    stage.switchboard.receive(1_000, &bytes, now).unwrap();
    let mut asked = None;
    let mut sent = Vec::new();
    while let Some(effects) = stage.switchboard.collect(now) {
        asked = asked.or(effects.decisions.first().map(|asked| asked.request));
        for (connection, written) in effects.writes {
            if connection == 1_000 {
                sent.extend(written.into_bytes());
            }
        }
        if let Some(request) = asked.take() {
            stage.switchboard.writable(1_000, usize::MAX).unwrap();
            stage.switchboard.decided(request, 0, now).unwrap();
        }
    }
    assert_eq!(sent[0], 0x20);
    assert_eq!(sent.len(), 2 + sent[1] as usize, "CONNACK and nothing else");
}

#[test]
fn a_full_client_holds_up_the_publisher_and_nobody_else() {
    let mut stage = Stage::new(Limits {
        outbound_bytes_max: 100,
        ..small()
    });
    let clients = crowd(&mut stage, 8, QOS_1);
    let slow = clients[0];
    let publisher = stage.client(V5, "p");
    stage.credit(slow, 0);
    let payload = "x".repeat(60);
    stage.publish(publisher, "t/1", QOS_1, 1, &payload);
    assert_eq!(stage.hears(publisher), ["PUBACK 1"]);
    assert_eq!(heard(&mut stage, &clients), 7);
    stage.publish(publisher, "t/1", QOS_1, 2, &payload);
    assert_eq!(heard(&mut stage, &clients), 7, "the others have it");
    assert_eq!(stage.hears(publisher), [""; 0], "and it waits");
    assert_eq!(stage.statistic("mqtt_stalls_total"), 1);
    let another = stage.client(V5, "another");
    stage.publish(another, "t/2", QOS_0, 0, "y");
    assert_eq!(heard(&mut stage, &clients), 7, "another is not held up");
    stage.credit(slow, usize::MAX);
    assert_eq!(stage.hears(publisher), ["PUBACK 2"]);
    assert_eq!(payloads(&mut stage, slow).len(), 3, "nothing is lost");
    // One that reads nothing is waited for no longer than any.
    stage.credit(slow, 0);
    for id in 3..=4 {
        stage.publish(publisher, "t/1", QOS_1, id, &payload);
    }
    assert_eq!(stage.hears(publisher), ["PUBACK 3"]);
    stage.wait(100);
    assert_eq!(stage.hears(publisher), ["PUBACK 4"]);
    let dropped = "mqtt_messages_dropped_total{reason=\"outbound_full\"}";
    assert_eq!(stage.statistic(dropped), 1);
}

#[test]
fn what_a_stream_stores_goes_to_a_crowd_once_it_is_durable() {
    let mut stage = Stage::new(small());
    stage.switchboard.bind(9, 1, &["#"], "topic").unwrap();
    let clients = crowd(&mut stage, 8, QOS_0);
    let publisher = stage.client(V5, "p");
    stage.publish(publisher, "t/1", QOS_1, 1, "x");
    assert_eq!(heard(&mut stage, &clients), 0);
    stage.durable(true);
    assert_eq!(heard(&mut stage, &clients), 8);
    assert_eq!(stage.hears(publisher), ["PUBACK 1"]);
    stage.publish(publisher, "t/1", QOS_1, 2, "x");
    stage.durable(false);
    assert_eq!(heard(&mut stage, &clients), 0);
    assert!(stage.hears(publisher)[0].starts_with("PUBACK 2 0x80"));
    stage.publish(publisher, "t/1", QOS_0, 0, "it goes on");
    assert_eq!(heard(&mut stage, &clients), 8);
}

#[test]
fn as_many_publishes_to_crowds_are_taken_as_may_be_and_the_others_wait() {
    let mut stage = Stage::new(small());
    let clients = crowd(&mut stage, 8, QOS_1);
    let publishers: Vec<u64> = (0..20)
        .map(|number| stage.client(V5, &format!("p{number}")))
        .collect();
    for publisher in &publishers {
        put(&mut stage, *publisher, "t/1", QOS_1, 1, "x");
    }
    let mut most = 0;
    while heard(&mut stage, &publishers) < publishers.len() {
        most = most.max(stage.statistic("mqtt_crowd_messages"));
        for _ in 0..200 {
            turn(&mut stage);
        }
    }
    assert!((2..=8).contains(&most), "{most}");
    for client in clients {
        assert_eq!(payloads(&mut stage, client).len(), 20);
    }
}

#[test]
fn sessions_that_last_get_what_a_crash_interrupted() {
    let mut stage = Stage::new(small());
    stage.switchboard.keep_sessions(2, 1 << 20, BATCH_BYTES_MAX);
    let names = ["a", "b", "c", "d", "e", "f"];
    let connect = |stage: &mut Stage| {
        names.map(|name| {
            let client = lasting(stage, name, 10);
            stage.write_all(Ending::Stored);
            stage.hears(client);
            client
        })
    };
    let clients = connect(&mut stage);
    for client in clients {
        stage.subscribe_with(client, request("t/#", QOS_1));
        stage.write_all(Ending::Stored);
        stage.hears(client);
    }
    let publisher = stage.client(V5, "p");
    stage.publish(publisher, "t/1", QOS_1, 1, "x");
    // The round is durable, and a first share is out.
    for append in std::mem::take(&mut stage.written) {
        let log = stage.log.entry(append.partition).or_default();
        let offset = log.last().map_or(0, |(last, _)| last + 1);
        log.push((offset, append.batch));
        let now = stage.now;
        stage.switchboard.durable(append.ticket, true, now).unwrap();
    }
    let mut served = 0;
    while served == 0 {
        turn(&mut stage);
        served = heard(&mut stage, &clients);
    }
    assert!(served <= 2, "{served}");
    assert_eq!(stage.hears(publisher), [""; 0]);
    let mut again = Stage::new(small());
    again.switchboard.keep_sessions(2, 1 << 20, BATCH_BYTES_MAX);
    again.restore(&stage);
    for name in names {
        let client = lasting(&mut again, name, 10);
        again.write_all(Ending::Stored);
        assert_eq!(payloads(&mut again, client), ["x"], "{name}");
    }
}

#[test]
fn a_client_that_came_back_is_not_told_of_a_publish_of_its_last_connection() {
    let mut stage = Stage::new(small());
    crowd(&mut stage, 8, QOS_1);
    let publisher = lasting(&mut stage, "p", 10);
    stage.hears(publisher);
    put(&mut stage, publisher, "t/1", QOS_1, 1, "x");
    turn(&mut stage);
    let now = stage.now;
    stage.switchboard.closed(publisher, now).unwrap();
    let again = lasting(&mut stage, "p", 10);
    let told = stage.hears(again);
    assert!(
        told[0].starts_with("CONNACK") && told.len() == 1,
        "{told:?}"
    );
}

#[test]
fn other_doors_and_the_broker_itself_reach_a_crowd() {
    let mut stage = Stage::new(small());
    let clients = crowd(&mut stage, 8, QOS_1);
    for client in &clients {
        stage.subscribe(*client, "$SYS/#", QOS_0);
    }
    let now = stage.now;
    for request in 1..=2 {
        let publish = door("t/1", b"x", QOS_1, &[]);
        stage.switchboard.publish(&publish, request, now).unwrap();
    }
    for text in ["1", "2"] {
        stage
            .switchboard
            .announce("$SYS/a", text.as_bytes(), now)
            .unwrap();
    }
    assert_eq!(stage.switchboard.published(), []);
    stage.run();
    let ended = stage.switchboard.published();
    let answered = |request| Published {
        request,
        reason_code: 0,
        streams: 0,
    };
    assert_eq!(ended, [answered(1), answered(2)]);
    for client in clients {
        assert_eq!(payloads(&mut stage, client), ["x", "x", "1", "2"]);
    }
}

#[test]
fn a_large_payload_that_a_crowd_gets_is_in_memory_once() {
    let mut stage = Stage::new(small());
    let clients = crowd(&mut stage, 8, QOS_0);
    for client in &clients {
        stage.credit(*client, 0);
    }
    let publisher = stage.client(V5, "p");
    stage.publish(publisher, "t/1", QOS_0, 0, &"x".repeat(100_000));
    let held = stage.statistic("mqtt_buffered_bytes");
    assert!((100_000..110_000).contains(&held), "{held}");
}

#[test]
fn overlapping_subscriptions_of_a_crowd_make_one_copy_or_one_each() {
    for each in [false, true] {
        let mut stage = Stage::new(Limits {
            copies_each: each,
            ..small()
        });
        let clients = crowd(&mut stage, 5, QOS_0);
        for (id, filter) in (7..).zip(["t/+", "+/1"]) {
            stage.subscribe_as(clients[4], Some(id), request(filter, QOS_1));
            stage.hears(clients[4]);
        }
        let publisher = stage.client(V5, "p");
        stage.publish(publisher, "t/1", QOS_1, 1, "x");
        let copies = stage.hears(clients[4]);
        assert_eq!(copies.len(), if each { 3 } else { 1 }, "{copies:?}");
        if !each {
            assert!(copies[0].contains("qos 1"), "{copies:?}");
        }
    }
}

#[test]
fn a_subscription_that_was_replaced_between_two_shares_loses_nothing() {
    for each in [false, true] {
        let mut stage = Stage::new(Limits {
            copies_each: each,
            ..small()
        });
        let clients = crowd(&mut stage, 8, QOS_1);
        let last = clients[7];
        stage.subscribe(last, "u/#", QOS_1);
        let publisher = stage.client(V5, "p");
        put(&mut stage, publisher, "t/1", QOS_1, 1, "x");
        while heard(&mut stage, &clients[..6]) == 0 {
            turn(&mut stage);
        }
        let comes = Packet::Subscribe(Subscribe {
            packet_id: 3,
            subscription_id: Some(9),
            filters: vec![request("t/#", QOS_1)],
            ..Subscribe::default()
        });
        let leaves = Packet::Unsubscribe(Unsubscribe {
            packet_id: 4,
            filters: vec!["u/#"],
            ..Unsubscribe::default()
        });
        for packet in [comes, leaves] {
            let bytes = stage.bytes(last, &packet);
            let now = stage.now;
            stage.switchboard.receive(last, &bytes, now).unwrap();
        }
        stage.run();
        let heard = payloads(&mut stage, last);
        assert_eq!(heard.len(), 1, "a copy each: {each}, {heard:?}");
    }
}

#[test]
fn who_waits_with_a_publish_to_a_crowd_comes_before_who_comes_later() {
    let mut stage = Stage::new(small());
    crowd(&mut stage, 8, QOS_0);
    let publishers: Vec<u64> = (0..30)
        .map(|number| stage.client(V5, &format!("p{number}")))
        .collect();
    for publisher in &publishers[..20] {
        put(&mut stage, *publisher, "t/1", QOS_1, 1, "x");
    }
    let mut order = Vec::new();
    for late in &publishers[20..] {
        // It comes when a place may be free, and others wait for that.
        while order.len() < 3 * (*late as usize - publishers[20] as usize) {
            turn(&mut stage);
            let answered = publishers
                .iter()
                .filter(|each| !stage.hears(**each).is_empty());
            order.extend(answered.copied());
        }
        put(&mut stage, *late, "t/1", QOS_1, 1, "x");
    }
    while order.len() < publishers.len() {
        turn(&mut stage);
        let answered = publishers
            .iter()
            .filter(|each| !stage.hears(**each).is_empty());
        order.extend(answered.copied());
    }
    assert_eq!(order, publishers);
}
