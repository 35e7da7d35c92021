//! Bounds that change while clients are connected.

use headrace_core::mqtt::packet::{Connect, Disconnect, Packet};
use headrace_core::switchboard::{Limits, Policy};

use super::stage::*;

fn set(stage: &mut Stage, change: impl FnOnce(&mut Limits)) {
    let mut limits = stage.switchboard.limits().clone();
    change(&mut limits);
    let now = stage.now;
    stage.switchboard.set_limits(limits, now);
    stage.run();
}

#[test]
fn a_bound_that_is_lowered_leaves_what_waits_and_takes_no_more() {
    let mut stage = Stage::new(Limits {
        overflow: Policy::DropNewest,
        ..Limits::default()
    });
    let publisher = stage.client(V5, "publisher");
    let slow = Connect {
        client_id: "slow",
        session_expiry_s: Some(60),
        ..plain(V5)
    };
    let client = stage.client_with(slow.clone());
    stage.subscribe(client, "t", QOS_1);
    stage.hang_up(client);
    for number in 1..=5 {
        stage.publish(publisher, "t", QOS_1, number, "x");
    }
    set(&mut stage, |limits| {
        limits.queued_messages_max = 2;
        limits.queued_bytes_max = 300;
    });
    stage.publish(publisher, "t", QOS_1, 6, "x");
    assert_eq!(stage.statistic("mqtt_outbound_queued_messages"), 5);
    set(&mut stage, |limits| {
        limits.queued_messages_max = 6;
        limits.queued_bytes_max = 10_000;
    });
    stage.publish(publisher, "t", QOS_1, 7, "x");
    assert_eq!(stage.statistic("mqtt_outbound_queued_messages"), 6);
}

#[test]
fn who_rests_for_a_bound_that_is_raised_goes_on_at_once() {
    let mut stage = Stage::new(Limits {
        undurable_bytes_max: 100,
        ..Limits::default()
    });
    stage.switchboard.bind(1, 1, &["t"], "topic").unwrap();
    let client = stage.client(V5, "a");
    for number in 1..=3 {
        stage.publish(client, "t", QOS_1, number, &"x".repeat(100));
    }
    assert_eq!(stage.reads.get(&client), Some(&false));
    set(&mut stage, |limits| limits.undurable_bytes_max = 100_000);
    assert_eq!(stage.reads.get(&client), Some(&true));
    while !stage.appends.is_empty() {
        stage.durable(true);
    }
    assert_eq!(stage.hears(client).len(), 3);
}

#[test]
fn a_client_that_does_not_read_gets_more_once_it_may() {
    let mut stage = Stage::new(Limits {
        packet_bytes_max: 2_000,
        outbound_bytes_max: 4_000,
        overflow: Policy::DropNewest,
        ..Limits::default()
    });
    let publisher = stage.client(V5, "publisher");
    let slow = stage.client(V5, "slow");
    stage.subscribe(slow, "t", QOS_1);
    stage.credit(slow, 0);
    let dropped = "mqtt_messages_dropped_total{reason=\"outbound_full\"}";
    for number in 1..=4 {
        stage.publish(publisher, "t", QOS_1, number, &"x".repeat(1_500));
    }
    assert_eq!(stage.statistic(dropped), 2);
    set(&mut stage, |limits| limits.outbound_bytes_max = 100_000);
    stage.publish(publisher, "t", QOS_1, 5, &"x".repeat(1_500));
    assert_eq!(stage.statistic(dropped), 2);
    set(&mut stage, |limits| limits.outbound_bytes_max = 4_000);
    stage.publish(publisher, "t", QOS_1, 6, &"x".repeat(1_500));
    assert_eq!(stage.statistic(dropped), 3);
}

#[test]
fn what_clients_were_told_stays() {
    let mut stage = Stage::default();
    set(&mut stage, |limits| {
        limits.receive_max = 1;
        limits.packet_bytes_max = 100;
        limits.topic_alias_max = 0;
        limits.in_flight_max = 1;
        limits.keep_alive_s_max = 60;
    });
    let limits = stage.switchboard.limits();
    let told = (
        limits.receive_max,
        limits.topic_alias_max,
        limits.in_flight_max,
    );
    assert_eq!(told, (1_024, 32, 1_024));
    assert_eq!(limits.keep_alive_s_max, 60);
}

#[test]
fn a_session_that_was_granted_no_time_gets_none_when_it_ends() {
    let mut stage = Stage::new(Limits {
        session_expiry_s_max: 0,
        ..Limits::default()
    });
    let connect = Connect {
        client_id: "c",
        clean_start: false,
        session_expiry_s: Some(60),
        ..plain(V5)
    };
    let client = stage.asks(connect.clone());
    stage.decide(0);
    assert_eq!(stage.hears(client), ["CONNACK 0x00 expiry 0"]);
    stage.subscribe(client, "t", QOS_1);
    let publisher = stage.client(V5, "p");
    stage.publish(publisher, "t", QOS_1, 1, "not acknowledged");
    set(&mut stage, |limits| limits.session_expiry_s_max = 3600);
    let disconnect = Disconnect {
        session_expiry_s: Some(60),
        ..Disconnect::default()
    };
    stage.send(client, &Packet::Disconnect(disconnect));
    assert_eq!(stage.statistic("mqtt_sessions"), 1);
    let again = stage.asks(connect);
    stage.decide(0);
    assert_eq!(stage.hears(again), ["CONNACK 0x00"]);
}
