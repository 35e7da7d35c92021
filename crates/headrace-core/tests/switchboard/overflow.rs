//! What happens at the outbound bound of a client, and that nobody waits for ever.

use headrace_core::mqtt::packet::{Connect, Packet};
use headrace_core::switchboard::{Limits, ANSWER_BYTES_MAX};

use super::stage::*;

const OUTBOUND_BYTES_MAX: usize = 10_000;

const DROPPED: &str = "mqtt_messages_dropped_total{reason=\"outbound_full\"}";

/// A publisher, and a subscriber to `t` that reads nothing.
fn cast(qos: QoS) -> (Stage, u64, u64) {
    let mut stage = Stage::new(Limits {
        outbound_bytes_max: OUTBOUND_BYTES_MAX,
        ..Limits::default()
    });
    let publisher = stage.client(V5, "publisher");
    let slow = stage.client(V5, "slow");
    stage.subscribe(slow, "t", qos);
    stage.credit(slow, 0);
    (stage, publisher, slow)
}

fn flood(stage: &mut Stage, publisher: u64, qos: QoS, count: u16) {
    for packet_id in 1..=count {
        let packet_id = if qos == QOS_0 { 0 } else { packet_id };
        stage.publish(publisher, "t", qos, packet_id, &"x".repeat(994));
    }
}

#[test]
fn the_publisher_of_qos_0_waits_at_the_bound_and_goes_on_when_there_is_room() {
    let (mut stage, publisher, slow) = cast(QOS_0);
    flood(&mut stage, publisher, QOS_0, 9);
    assert_eq!(stage.reads.get(&publisher), None);
    flood(&mut stage, publisher, QOS_0, 3);
    assert_eq!(stage.reads.get(&publisher), Some(&false));
    assert_eq!(stage.statistic("mqtt_stalls_total"), 1);
    assert_eq!(stage.statistic("mqtt_messages_received_total"), 9);
    stage.wait(99);
    assert_eq!(stage.reads.get(&publisher), Some(&false));
    stage.credit(slow, usize::MAX);
    assert_eq!(stage.reads.get(&publisher), Some(&true));
    assert_eq!(stage.hears(slow).len(), 12);
    assert_eq!(stage.statistic(DROPPED), 0);
}

#[test]
fn after_the_stall_the_newest_are_dropped_until_half_is_drained() {
    let (mut stage, publisher, slow) = cast(QOS_0);
    flood(&mut stage, publisher, QOS_0, 12);
    stage.wait(100);
    assert_eq!(stage.reads.get(&publisher), Some(&true));
    assert_eq!(stage.statistic(DROPPED), 3);
    assert_eq!(stage.statistic("mqtt_connections_full"), 1);
    // One episode holds publishers up once.
    flood(&mut stage, publisher, QOS_0, 5);
    assert_eq!(stage.reads.get(&publisher), Some(&true));
    assert_eq!(stage.statistic(DROPPED), 8);
    // Room for one is not enough to end it.
    stage.switchboard.writable(slow, 3_000).unwrap();
    let effects = stage.switchboard.collect(stage.now).unwrap();
    stage.perform(effects);
    stage.credit(slow, 0);
    flood(&mut stage, publisher, QOS_0, 1);
    assert_eq!(stage.statistic(DROPPED), 9);
    stage.credit(slow, usize::MAX);
    assert_eq!(stage.hears(slow).len(), 9, "the oldest arrive");
    assert_eq!(stage.statistic("mqtt_connections_full"), 0);
    flood(&mut stage, publisher, QOS_0, 1);
    assert_eq!(stage.hears(slow).len(), 1);
}

#[test]
fn who_goes_on_reading_is_waited_for_and_loses_nothing() {
    let (mut stage, publisher, slow) = cast(QOS_0);
    flood(&mut stage, publisher, QOS_0, 12);
    let take = |stage: &mut Stage, bytes| {
        stage.switchboard.writable(slow, bytes).unwrap();
        let effects = stage.switchboard.collect(stage.now).unwrap();
        stage.perform(effects);
        stage.credit(slow, 0);
    };
    for _ in 0..3 {
        stage.wait(99);
        take(&mut stage, OUTBOUND_BYTES_MAX / 32 + 1);
        stage.wait(1);
        assert_eq!(stage.reads.get(&publisher), Some(&false), "waits on");
    }
    stage.wait(99);
    take(&mut stage, OUTBOUND_BYTES_MAX / 32 - 1);
    stage.wait(1);
    assert_eq!(stage.reads.get(&publisher), Some(&true), "too slow");
    assert_eq!(stage.statistic("mqtt_stalls_total"), 1);
}

#[test]
fn who_reads_is_waited_for_though_others_refill_what_it_takes() {
    let (mut stage, publisher, slow) = cast(QOS_0);
    flood(&mut stage, publisher, QOS_0, 12);
    for round in 0..5 {
        let refiller = stage.client(V5, &format!("refiller {round}"));
        stage.switchboard.writable(slow, 1_100).unwrap();
        let effects = stage.switchboard.collect(stage.now).unwrap();
        stage.perform(effects);
        stage.credit(slow, 0);
        flood(&mut stage, refiller, QOS_0, 2);
        stage.wait(100);
        assert_eq!(stage.reads.get(&publisher), Some(&false), "waits on");
    }
    assert_eq!(stage.statistic(DROPPED), 0);
    stage.credit(slow, usize::MAX);
    assert_eq!(stage.hears(slow).len(), 12 + 2 * 5);
}

#[test]
fn a_stall_delivers_to_others_once() {
    let (mut stage, publisher, slow) = cast(QOS_0);
    let fast = stage.client(V5, "fast");
    stage.subscribe(fast, "t", QOS_0);
    flood(&mut stage, publisher, QOS_0, 10);
    assert_eq!(
        stage.hears(fast).len(),
        9,
        "the tenth waits for the slow one"
    );
    stage.wait(100);
    assert_eq!(stage.hears(fast).len(), 1);
    stage.credit(slow, usize::MAX);
    assert_eq!(stage.hears(slow).len(), 9);
}

#[test]
fn a_publish_above_qos_0_waits_too_and_is_then_dropped_for_the_full_one_alone() {
    for qos in [QOS_0, QOS_1, QOS_2] {
        let (mut stage, publisher, slow) = cast(qos);
        flood(&mut stage, publisher, QOS_1, 12);
        assert_eq!(stage.hears(publisher).len(), 9);
        stage.wait(100);
        assert_eq!(stage.hears(publisher).len(), 3, "each is acknowledged");
        assert_eq!(stage.statistic(DROPPED), 3);
        stage.credit(slow, usize::MAX);
        assert_eq!(stage.hears(slow).len(), 9);
    }
}

#[test]
fn what_waits_for_the_window_counts_to_the_bound() {
    let mut stage = Stage::new(Limits {
        outbound_bytes_max: OUTBOUND_BYTES_MAX,
        ..Limits::default()
    });
    let publisher = stage.client(V5, "publisher");
    let slow = stage.client_with(Connect {
        client_id: "slow",
        receive_maximum: Some(1),
        ..plain(V5)
    });
    stage.subscribe(slow, "t", QOS_1);
    flood(&mut stage, publisher, QOS_1, 15);
    stage.wait(100);
    assert_eq!(stage.hears(slow).len(), 1);
    assert_eq!(stage.statistic(DROPPED), 6, "one written, eight queued");
    let queued = stage.statistic("mqtt_outbound_queued_bytes") as usize;
    assert!(
        queued <= OUTBOUND_BYTES_MAX && queued > 8 * 1_000,
        "{queued}"
    );
    stage.hang_up(slow);
    assert_eq!(stage.statistic("mqtt_outbound_queued_bytes"), 0);
}

#[test]
fn a_message_that_never_fits_stalls_nobody() {
    let (mut stage, publisher, _) = cast(QOS_0);
    stage.publish(publisher, "t", QOS_0, 0, &"x".repeat(OUTBOUND_BYTES_MAX));
    assert_eq!(stage.reads.get(&publisher), None);
    assert_eq!(stage.statistic(DROPPED), 1);
}

#[test]
fn publishers_go_on_when_the_full_client_goes() {
    let (mut stage, publisher, slow) = cast(QOS_0);
    flood(&mut stage, publisher, QOS_0, 12);
    stage.hang_up(slow);
    assert_eq!(stage.reads.get(&publisher), Some(&true));
    assert_eq!(stage.statistic("mqtt_messages_received_total"), 12);
}

#[test]
fn a_publisher_that_goes_while_it_waits_is_forgotten() {
    let (mut stage, publisher, slow) = cast(QOS_0);
    flood(&mut stage, publisher, QOS_0, 12);
    stage.hang_up(publisher);
    let reuses_its_place = stage.client(V5, "another");
    stage.wait(100);
    stage.credit(slow, usize::MAX);
    assert_eq!(stage.hears(slow).len(), 9);
    assert_eq!(stage.hears(reuses_its_place), [""; 0]);
}

#[test]
fn two_clients_that_flood_each_other_and_read_nothing_do_not_deadlock() {
    let mut stage = Stage::new(Limits {
        outbound_bytes_max: OUTBOUND_BYTES_MAX,
        ..Limits::default()
    });
    let clients = ["a", "b"].map(|name| {
        let client = stage.client(V5, name);
        stage.subscribe(client, "t", QOS_0);
        stage.credit(client, 0);
        client
    });
    for _ in 0..20 {
        for client in clients {
            stage.publish(client, "t", QOS_0, 0, &"x".repeat(994));
        }
    }
    for client in clients {
        stage.send(client, &Packet::Pingreq);
        assert_eq!(stage.reads.get(&client), Some(&false));
    }
    // Both wait for both; the time is up for both at once.
    stage.wait(100);
    assert_eq!(stage.statistic("mqtt_messages_received_total"), 40);
    for client in clients {
        assert_eq!(stage.reads.get(&client), Some(&true));
        stage.credit(client, usize::MAX);
        let heard = stage.hears(client);
        assert_eq!(heard.len(), 10);
        assert_eq!(heard[9], "PINGRESP");
    }
}

#[test]
fn a_client_that_floods_itself_waits_no_longer_than_others() {
    let (mut stage, _, slow) = cast(QOS_0);
    flood(&mut stage, slow, QOS_0, 12);
    assert_eq!(stage.reads.get(&slow), Some(&false));
    stage.wait(100);
    assert_eq!(stage.reads.get(&slow), Some(&true));
    assert_eq!(stage.statistic(DROPPED), 3);
}

#[test]
fn keep_alive_does_not_count_against_who_is_not_read() {
    let mut stage = Stage::new(Limits {
        undurable_bytes_max: 1,
        ..Limits::default()
    });
    stage.switchboard.bind(1, 1, &["t"], "topic").unwrap();
    let client = stage.client_with(Connect {
        client_id: "a",
        keep_alive_s: 1,
        ..plain(V5)
    });
    stage.publish(client, "t", QOS_0, 0, "x");
    stage.publish(client, "t", QOS_0, 0, "y");
    assert_eq!(stage.reads.get(&client), Some(&false));
    stage.wait(60_000);
    assert_eq!(stage.hears(client), [""; 0]);
    stage.durable(true);
    assert_eq!(stage.reads.get(&client), Some(&true));
    stage.wait(1_500);
    assert_eq!(
        stage.hears(client),
        ["DISCONNECT 0x8d", "closed: keep_alive_timeout"]
    );
}

#[test]
fn a_client_that_leaves_its_answers_unread_is_read_no_further() {
    let (mut stage, _, deaf) = cast(QOS_0);
    let pings = stage.bytes(deaf, &Packet::Pingreq).repeat(10_000);
    let mut sent = 0;
    while stage.reads.get(&deaf) != Some(&false) {
        stage.send_bytes(deaf, &pings);
        sent += 10_000;
    }
    let bound = OUTBOUND_BYTES_MAX + ANSWER_BYTES_MAX;
    assert!(stage.statistic("mqtt_outbound_bytes") as usize <= bound + 2);
    stage.credit(deaf, usize::MAX);
    assert_eq!(stage.reads.get(&deaf), Some(&true));
    assert_eq!(stage.hears(deaf).len(), sent);
}
