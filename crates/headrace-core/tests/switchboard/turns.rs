//! What one turn of the loop does at most, so that nobody is held up by what others have left.

use std::collections::BTreeSet;

use headrace_core::mqtt::packet::{Connect, Packet, Publish, Subscribe, Unsubscribe};
use headrace_core::session::Ending;
use headrace_core::switchboard::{
    Limits, BATCH_BYTES_MAX, SMALL_BYTES, TURN_BYTES_MAX, TURN_CONNECTIONS_MAX, TURN_TIMERS_MAX,
};

use super::stage::*;

const CREDIT_BYTES: usize = 64 * 1024;

/// Clients that subscribe to `t` and may be written so much in a turn.
fn listeners(stage: &mut Stage, count: usize, credit_bytes: usize) -> Vec<u64> {
    let open = |number| {
        let client = stage.client(V5, &format!("listener-{number}"));
        stage.subscribe(client, "t", QOS_0);
        stage.credit(client, credit_bytes);
        client
    };
    (0..count).map(open).collect()
}

/// A publish that is in, and has had no turn yet.
fn send(stage: &mut Stage, client: u64, topic: &str, qos: QoS, payload: &str) {
    let publish = Packet::Publish(Publish {
        topic,
        qos,
        packet_id: qos as u16,
        payload: payload.as_bytes(),
        ..Publish::default()
    });
    let bytes = stage.bytes(client, &publish);
    let now = stage.now;
    stage.switchboard.receive(client, &bytes, now).unwrap();
}

/// One turn: who was written to, and how many bytes in all.
fn turn(stage: &mut Stage) -> (Vec<u64>, usize) {
    let Some(effects) = stage.switchboard.collect(stage.now) else {
        return (Vec::new(), 0);
    };
    let written = effects.writes.iter().map(|(client, _)| *client).collect();
    let bytes = effects.writes.iter().map(|(_, bytes)| bytes.len()).sum();
    stage.perform(effects);
    (written, bytes)
}

#[test]
fn a_turn_hands_out_a_share_of_what_many_have_left_and_everybody_in_turn() {
    let mut stage = Stage::default();
    let slow = listeners(&mut stage, 100, CREDIT_BYTES);
    let publisher = stage.client(V5, "publisher");
    let other = stage.client(V5, "other");
    send(
        &mut stage,
        publisher,
        "t",
        QOS_0,
        &"x".repeat(2 * CREDIT_BYTES),
    );
    let mut waiting: BTreeSet<u64> = slow.iter().copied().collect();
    let mut turns = 0;
    while !waiting.is_empty() {
        send(&mut stage, other, "u", QOS_1, "");
        let (written, bytes) = turn(&mut stage);
        assert!(bytes <= TURN_BYTES_MAX + CREDIT_BYTES, "{bytes}");
        assert!(bytes >= TURN_BYTES_MAX.min(waiting.len() * CREDIT_BYTES));
        assert_eq!(
            stage.hears(other),
            ["PUBACK 1 0x10"],
            "little comes at once"
        );
        for client in written.iter().filter(|client| **client != other) {
            assert!(waiting.remove(client) || waiting.is_empty(), "not again");
        }
        turns += 1;
    }
    assert_eq!(turns, 100 * CREDIT_BYTES / TURN_BYTES_MAX + 1);
    stage.run();
    for client in slow {
        assert_eq!(stage.hears(client).len(), 1);
    }
}

#[test]
fn who_has_little_to_take_is_served_in_every_turn() {
    let mut stage = Stage::default();
    let many = listeners(&mut stage, 200, CREDIT_BYTES);
    let publisher = stage.client(V5, "publisher");
    send(
        &mut stage,
        publisher,
        "t",
        QOS_0,
        &"x".repeat(SMALL_BYTES - 100),
    );
    let (written, bytes) = turn(&mut stage);
    assert_eq!(written.len(), many.len());
    assert!(bytes > TURN_BYTES_MAX);
}

#[test]
fn a_crowd_is_written_to_in_turns_and_others_in_each_of_them() {
    let mut stage = Stage::new(Limits::default());
    stage.is_validating = false; // It would look at all of them for each.
    let crowd = listeners(&mut stage, 3 * TURN_CONNECTIONS_MAX, CREDIT_BYTES);
    let publisher = stage.client(V5, "publisher");
    let other = stage.client(V5, "other");
    for number in 1..=2 {
        send(&mut stage, publisher, "t", QOS_0, &number.to_string());
    }
    let mut turns = 0;
    loop {
        send(&mut stage, other, "u", QOS_1, "");
        let (written, _) = turn(&mut stage);
        assert!(written.len() <= 2 * TURN_CONNECTIONS_MAX, "a share of them");
        assert_eq!(stage.hears(other), ["PUBACK 1 0x10"], "turn {turns}");
        turns += 1;
        if written.len() == 1 {
            break;
        }
    }
    assert_eq!(turns, 5);
    stage.switchboard.validate();
    for client in crowd {
        assert_eq!(stage.hears(client).len(), 2);
    }
}

#[test]
fn who_waits_for_its_turn_is_not_slow() {
    let mut stage = Stage::new(Limits {
        outbound_bytes_max: 100_000,
        ..Limits::default()
    });
    let clients = listeners(&mut stage, 30, usize::MAX);
    let publisher = stage.client(V5, "publisher");
    for _ in 0..2 {
        send(&mut stage, publisher, "t", QOS_0, &"x".repeat(90_000));
        turn(&mut stage);
    }
    assert_eq!(stage.reads.get(&publisher), Some(&false), "some are full");
    stage.now.mono_ms += 100;
    stage.switchboard.tick(stage.now);
    stage.run();
    assert_eq!(stage.reads.get(&publisher), Some(&true));
    for client in clients {
        assert_eq!(stage.hears(client).len(), 2);
    }
}

#[test]
fn a_flood_of_pings_is_answered_in_turns() {
    let mut stage = Stage::default();
    let flood = stage.client(V5, "flood");
    let pings = stage.bytes(flood, &Packet::Pingreq).repeat(100_000);
    stage.switchboard.receive(flood, &pings, stage.now).unwrap();
    let received = |stage: &Stage| stage.statistic("mqtt_packets_received_total");
    let share = received(&stage);
    assert!(share < 21_000, "{share}");
    let mut answered = 0;
    while received(&stage) < 100_001 {
        let before = received(&stage);
        answered += turn(&mut stage).1;
        assert!(received(&stage) - before < 21_000);
    }
    answered += turn(&mut stage).1;
    assert_eq!(answered, pings.len(), "two bytes for two");
}

#[test]
fn those_who_publish_what_matches_much_share_a_turn() {
    let mut stage = Stage::default();
    let listener = stage.client(V5, "listener");
    for bits in 0..512 {
        let levels: Vec<_> = (0..9).map(|at| ["a", "+"][bits >> at & 1]).collect();
        stage.subscribe(listener, &(levels.join("/") + "/more"), QOS_0);
    }
    let floods: Vec<u64> = (0..50)
        .map(|number| stage.client(V5, &format!("flood-{number}")))
        .collect();
    let publish = Packet::Publish(Publish {
        topic: "a/a/a/a/a/a/a/a/a",
        ..Publish::default()
    });
    // What comes behind another packet is looked for anew.
    let flow = [publish, Packet::Pingreq].map(|packet| stage.bytes(floods[0], &packet));
    let flow = flow.concat().repeat(100);
    let received = |stage: &Stage| stage.statistic("mqtt_messages_received_total");
    for flood in &floods {
        stage.switchboard.receive(*flood, &flow, stage.now).unwrap();
    }
    // Each publish is looked for at 1,000 places.
    let mut taken = received(&stage);
    assert!(taken <= 50 * 25, "a share for each: {taken}");
    while taken < 50 * 100 {
        turn(&mut stage);
        let more = received(&stage) - taken;
        assert!((1..=250).contains(&more), "a turn for all: {more}");
        taken += more;
    }
}

#[test]
fn those_who_waited_for_a_full_subscriber_share_a_turn() {
    let mut stage = Stage::new(Limits {
        outbound_bytes_max: 100,
        ..Limits::default()
    });
    stage.is_validating = false;
    let slow = listeners(&mut stage, 1, 0)[0];
    let publishers: Vec<u64> = (0..15)
        .map(|number| stage.client(V5, &format!("publisher-{number}")))
        .collect();
    let payload = "x".repeat(70);
    send(&mut stage, publishers[0], "t", QOS_0, &payload);
    let pings = stage.bytes(slow, &Packet::Pingreq).repeat(20_000);
    for publisher in &publishers {
        send(&mut stage, *publisher, "t", QOS_0, &payload);
        stage
            .switchboard
            .receive(*publisher, &pings, stage.now)
            .unwrap();
    }
    let received = |stage: &Stage| stage.statistic("mqtt_packets_received_total");
    turn(&mut stage);
    stage.now.mono_ms += 100;
    stage.switchboard.tick(stage.now);
    let (begin, mut turns) = (received(&stage), 0);
    while received(&stage) < begin + 15 * 20_001 {
        let before = received(&stage);
        turn(&mut stage);
        assert!(received(&stage) - before <= 220_000);
        turns += 1;
    }
    assert!(turns > 1);
}

#[test]
fn what_is_due_at_the_same_time_is_done_in_turns() {
    let mut stage = Stage::default();
    stage.is_validating = false;
    for number in 0..TURN_TIMERS_MAX + 500 {
        let client_id = format!("c{number}");
        let client = stage.client_with(Connect {
            client_id: &client_id,
            session_expiry_s: Some(1),
            ..plain(V5)
        });
        stage.hang_up(client);
    }
    let expired = |stage: &Stage| stage.statistic("mqtt_sessions_expired_total") as usize;
    stage.now.mono_ms += 2_000;
    stage.switchboard.tick(stage.now);
    assert_eq!(expired(&stage), TURN_TIMERS_MAX);
    stage.switchboard.collect(stage.now);
    stage.switchboard.tick(stage.now);
    assert_eq!(expired(&stage), TURN_TIMERS_MAX + 500);
}

#[test]
fn what_commits_let_go_is_delivered_in_turns() {
    let mut stage = Stage::default();
    stage.is_validating = false;
    stage.switchboard.bind(9, 1, &["#"], "topic").unwrap();
    let listener = stage.client(V5, "listener");
    for bits in 0..512 {
        let levels: Vec<_> = (0..9).map(|at| ["a", "+"][bits >> at & 1]).collect();
        stage.subscribe(listener, &levels.join("/"), QOS_1);
    }
    let publisher = stage.client(V5, "publisher");
    for id in 1..=400 {
        stage.publish(publisher, "a/a/a/a/a/a/a/a/a", QOS_1, id, "");
    }
    let delivered = |stage: &Stage| stage.statistic("mqtt_messages_delivered_total");
    turn(&mut stage);
    for append in std::mem::take(&mut stage.appends) {
        let now = stage.now;
        stage.switchboard.durable(append.ticket, true, now).unwrap();
    }
    let mut before = delivered(&stage);
    assert!((1..=250).contains(&before), "{before}");
    while before < 400 {
        turn(&mut stage);
        let more = delivered(&stage) - before;
        assert!((1..=250).contains(&more), "{more}");
        before += more;
    }
    stage.run();
    let answers: Vec<String> = (1..=400).map(|id| format!("PUBACK {id}")).collect();
    assert_eq!(stage.hears(publisher), answers);
}

/// More filters than a turn serves.
fn many() -> Vec<String> {
    let filters = (0..10_000).map(|number| match number % 3 {
        0 => format!("$share/g{}/t/{number}", number % 7),
        _ => format!("t/{number}"),
    });
    filters.collect()
}

fn subscribe_to(stage: &Stage, client: u64, filters: &[String]) -> Vec<u8> {
    let requests = filters.iter().map(|filter| request(filter, QOS_1));
    let subscribe = Subscribe {
        packet_id: 1,
        filters: requests.collect(),
        ..Subscribe::default()
    };
    stage.bytes(client, &Packet::Subscribe(subscribe))
}

#[test]
fn very_many_filters_of_one_packet_are_served_in_turns() {
    let mut stage = Stage::default();
    stage.is_validating = false;
    let client = stage.client(V5, "many");
    let filters = many();
    let unsubscribe = Unsubscribe {
        packet_id: 2,
        filters: filters.iter().map(|filter| &**filter).collect(),
        ..Unsubscribe::default()
    };
    let mut bytes = subscribe_to(&stage, client, &filters);
    bytes.extend(stage.bytes(client, &Packet::Unsubscribe(unsubscribe)));
    bytes.extend(stage.bytes(client, &Packet::Pingreq));
    let there = |stage: &Stage| stage.statistic("mqtt_subscriptions");
    let now = stage.now;
    stage.switchboard.receive(client, &bytes, now).unwrap();
    let (mut before, mut most, mut heard) = (0, 0, Vec::new());
    while heard.len() < 3 {
        let now = there(&stage);
        assert!(now.abs_diff(before) <= 4096 * 2, "{before} to {now}");
        (before, most) = (now, most.max(now));
        turn(&mut stage);
        stage.switchboard.validate();
        heard.extend(stage.hears(client));
    }
    assert!(most >= 8_192, "{most}");
    let answers = [("SUBACK 1", "0x01"), ("UNSUBACK 2", "0x00")];
    for (line, (start, code)) in heard.iter().zip(answers) {
        assert!(line.starts_with(start));
        assert_eq!(line.matches(code).count(), filters.len());
    }
    assert_eq!(heard[2], "PINGRESP");
    assert_eq!(there(&stage), 0);
}

#[test]
fn a_session_with_very_many_subscriptions_ends_in_turns_and_hears_nothing_meanwhile() {
    for on_log in [false, true] {
        let mut stage = Stage::default();
        stage.is_validating = false;
        if on_log {
            stage.switchboard.keep_sessions(1, 1 << 30, BATCH_BYTES_MAX);
        }
        let connect = Connect {
            client_id: "many",
            session_expiry_s: Some(if on_log { 100 } else { 0 }),
            ..plain(V5)
        };
        let client = stage.asks(connect.clone());
        stage.decide(0);
        stage.write_all(Ending::Stored);
        let bytes = subscribe_to(&stage, client, &many());
        stage.send_bytes(client, &bytes);
        stage.write_all(Ending::Stored);
        let there = |stage: &Stage| stage.statistic("mqtt_subscriptions");
        assert_eq!(there(&stage), 10_000);
        // The client begins anew, with one of them.
        let heir = stage.asks(connect);
        let now = stage.now;
        for asked in std::mem::take(&mut stage.decisions) {
            stage.switchboard.decided(asked.request, 0, now).unwrap();
        }
        assert!(there(&stage) > 0);
        let again = subscribe_to(&stage, heir, &["t/9998".to_owned()]);
        stage.switchboard.receive(heir, &again, now).unwrap();
        for number in [1, 3, 9_998] {
            let topic = format!("t/{number}");
            let publish = door(&topic, b"x", QOS_1, &[]);
            stage.switchboard.publish(&publish, number, now).unwrap();
        }
        stage.switchboard.validate();
        stage.run();
        stage.write_all(Ending::Stored);
        assert_eq!(there(&stage), 1);
        let heard = stage.hears(heir);
        assert_eq!(heard.len(), 3, "{heard:?}");
        assert!(heard[2].starts_with("PUBLISH t/9998"), "{heard:?}");
        stage.switchboard.validate();
        if on_log {
            let mut again = Stage::default();
            again.switchboard.keep_sessions(1, 1 << 30, BATCH_BYTES_MAX);
            again.restore(&stage);
            assert_eq!(there(&again), 1, "as the log has it");
        }
    }
}

#[test]
fn what_waits_for_the_window_of_one_who_leaves_many_groups_goes_to_the_others() {
    let mut stage = Stage::default();
    let (leaver, stayer) = (
        stage.client_with(Connect {
            client_id: "leaver",
            receive_maximum: Some(1),
            ..plain(V5)
        }),
        stage.client(V5, "stayer"),
    );
    let filters = ["$share/a/t", "$share/b/t", "$share/c/t"];
    for filter in filters {
        stage.subscribe(leaver, filter, QOS_1);
    }
    let publisher = stage.client(V5, "publisher");
    for payload in ["1", "2"] {
        stage.publish(publisher, "t", QOS_1, 1, payload);
    }
    for filter in &filters[..2] {
        stage.subscribe_with(stayer, request(filter, QOS_1));
    }
    stage.unsubscribe(leaver, &filters);
    let answers = stage.hears(leaver);
    assert_eq!(answers.last().unwrap(), "UNSUBACK 2 [0x00 0x00 0x00]");
    let sent = answers
        .iter()
        .filter(|line| line.starts_with("PUBLISH"))
        .count();
    let given = super::groups::payloads(&mut stage, stayer).len();
    let gone = "mqtt_messages_dropped_total{reason=\"session_ended\"}";
    let gone = stage.statistic(gone) as usize;
    assert_eq!(
        (sent, sent + given + gone),
        (1, 6),
        "two of three groups each"
    );
    assert!(
        (1..=2).contains(&gone),
        "of the group that is no more: {gone}"
    );
}
