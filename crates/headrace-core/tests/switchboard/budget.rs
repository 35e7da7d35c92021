//! The memory of all connections together, and who gives way where it is used up.

use headrace_core::mqtt::packet::{Packet, Publish};
use headrace_core::switchboard::{Limits, Policy, SHARE_BYTES};

use super::stage::*;

fn stage(buffered_bytes_max: usize) -> Stage {
    Stage::new(Limits {
        buffered_bytes_max,
        overflow: Policy::DropNewest,
        ..Limits::default()
    })
}

#[test]
fn slow_readers_share_what_there_is_and_nobody_else_loses_anything() {
    let mut stage = stage(300_000);
    let publisher = stage.client(V5, "publisher");
    let slow: Vec<u64> = (0..10)
        .map(|number| {
            let client = stage.client(V5, &format!("slow-{number}"));
            stage.subscribe(client, "t", QOS_0);
            stage.credit(client, 0);
            client
        })
        .collect();
    let quick = stage.client(V5, "quick");
    stage.subscribe(quick, "t", QOS_0);
    for _ in 0..100 {
        stage.publish(publisher, "t", QOS_0, 0, &"x".repeat(1_000));
        assert_eq!(stage.hears(quick).len(), 1);
    }
    let held = stage.statistic("mqtt_buffered_bytes");
    assert!(
        (300_000..300_000 + 10 * SHARE_BYTES as u64).contains(&held),
        "{held}"
    );
    let dropped = "mqtt_messages_dropped_total{reason=\"memory_full\"}";
    assert!(stage.statistic(dropped) > 300);
    for client in slow {
        stage.credit(client, usize::MAX);
        assert!(stage.hears(client).len() >= 30);
    }
    assert_eq!(stage.statistic("mqtt_buffered_bytes"), 0);
    stage.publish(publisher, "t", QOS_0, 0, "x");
    assert_eq!(stage.hears(quick).len(), 1);
}

#[test]
fn a_large_message_that_many_have_not_read_counts_once() {
    let mut stage = stage(300_000);
    let publisher = stage.client(V5, "publisher");
    let slow: Vec<u64> = (0..10)
        .map(|number| {
            let client = stage.client(V5, &format!("slow-{number}"));
            stage.subscribe(client, "t", QOS_0);
            stage.credit(client, 0);
            client
        })
        .collect();
    for _ in 0..2 {
        stage.publish(publisher, "t", QOS_0, 0, &"x".repeat(100_000));
    }
    let held = stage.statistic("mqtt_buffered_bytes");
    assert!((200_000..201_000).contains(&held), "{held}");
    assert!(stage.statistic("mqtt_outbound_bytes") > 2_000_000);
    stage.hang_up(slow[0]);
    stage.credit(slow[1], 150_000);
    assert!(stage.statistic("mqtt_buffered_bytes") > 200_000);
    for client in &slow[1..] {
        stage.credit(*client, usize::MAX);
        assert_eq!(stage.hears(*client).len(), 2, "none was lost");
    }
    assert_eq!(stage.statistic("mqtt_buffered_bytes"), 0);
}

#[test]
fn a_message_larger_than_the_share_still_comes_to_who_has_read_everything() {
    let mut stage = stage(10);
    let client = stage.client(V5, "a");
    stage.subscribe(client, "t", QOS_0);
    let other = stage.client(V5, "other");
    stage.credit(other, 0);
    stage.subscribe_with(other, request("u", QOS_0));
    assert!(stage.statistic("mqtt_buffered_bytes") < 10);
    stage.publish(other, "u", QOS_0, 0, &"x".repeat(100));
    stage.publish(client, "t", QOS_0, 0, &"x".repeat(2 * SHARE_BYTES));
    assert_eq!(stage.hears(client).len(), 1);
}

#[test]
fn beginnings_of_large_packets_end_their_connection_where_there_is_no_room() {
    let mut stage = stage(150_000);
    let clients = ["a", "b"].map(|name| stage.client(V5, name));
    let payload = "x".repeat(200_000);
    let packet = stage.bytes(
        clients[0],
        &Packet::Publish(Publish {
            topic: "t",
            payload: payload.as_bytes(),
            ..Publish::default()
        }),
    );
    for client in clients {
        stage.send_bytes(client, &packet[..100_000]);
    }
    assert_eq!(stage.hears(clients[0]), [""; 0]);
    let ended = ["DISCONNECT 0x97", "closed: memory_full"];
    assert_eq!(stage.hears(clients[1]), ended);
    let refused = "mqtt_packets_refused_total{reason=\"memory_full\"}";
    assert_eq!(stage.statistic(refused), 1);
    stage.send_bytes(clients[0], &packet[100_000..]);
    assert_eq!(stage.statistic("mqtt_messages_received_total"), 1);
    stage.hang_up(clients[1]);
    stage.hang_up(clients[0]);
    assert_eq!(stage.statistic("mqtt_buffered_bytes"), 0);
}

/// A thousand clients that ping and read nothing could each hold their whole bound in answers.
#[test]
fn answers_that_nobody_reads_are_bounded_for_all_connections_together() {
    let mut stage = stage(300_000);
    let deaf: Vec<u64> = (0..10)
        .map(|number| stage.client(V5, &format!("deaf-{number}")))
        .collect();
    let pings = stage.bytes(deaf[0], &Packet::Pingreq).repeat(1_000);
    let mut sent = 0;
    for client in &deaf {
        stage.credit(*client, 0);
        while stage.reads.get(client) != Some(&false) {
            stage.send_bytes(*client, &pings);
            sent += 1_000;
            assert!(sent < 1_000_000);
        }
    }
    let held = stage.statistic("mqtt_outbound_bytes");
    assert!(held < 300_000 + 10 * (SHARE_BYTES as u64 + 2_000), "{held}");
    let mut heard = 0;
    for client in &deaf {
        stage.credit(*client, usize::MAX);
        assert_eq!(stage.reads.get(client), Some(&true));
        heard += stage.hears(*client).len();
    }
    assert_eq!(heard, sent);
}

#[test]
fn subscribers_that_read_nothing_do_not_end_who_publishes_large_messages() {
    let mut stage = stage(300_000);
    let slow = stage.client(V5, "slow");
    stage.subscribe(slow, "t", QOS_0);
    stage.credit(slow, 0);
    let publisher = stage.client(V5, "publisher");
    for _ in 0..4 {
        stage.publish(publisher, "t", QOS_0, 0, &"x".repeat(90_000));
    }
    assert!(stage.statistic("mqtt_buffered_bytes") > 300_000);
    let payload = "x".repeat(90_000);
    let packet = stage.bytes(
        publisher,
        &Packet::Publish(Publish {
            topic: "u",
            payload: payload.as_bytes(),
            ..Publish::default()
        }),
    );
    stage.send_bytes(publisher, &packet[..70_000]);
    stage.send_bytes(publisher, &packet[70_000..]);
    assert_eq!(stage.hears(publisher), [""; 0]);
    assert_eq!(stage.statistic("mqtt_messages_received_total"), 5);
    stage.send_bytes(publisher, &packet[..76_000]);
    let ended = ["DISCONNECT 0x97", "closed: memory_full"];
    assert_eq!(stage.hears(publisher), ended, "a quarter is all it gets");
}

#[test]
fn who_waits_for_a_full_subscriber_is_not_ended_for_what_it_sent_meanwhile() {
    let mut stage = Stage::new(Limits {
        buffered_bytes_max: 10_000,
        outbound_bytes_max: 10_000,
        ..Limits::default()
    });
    let publisher = stage.client(V5, "publisher");
    let slow = stage.client(V5, "slow");
    stage.subscribe(slow, "t", QOS_0);
    stage.credit(slow, 0);
    for _ in 0..100 {
        stage.publish(publisher, "t", QOS_0, 0, &"x".repeat(1_000));
    }
    assert_eq!(stage.reads.get(&publisher), Some(&false));
    assert!(stage.statistic("mqtt_buffered_bytes") > SHARE_BYTES as u64 + 10_000);
    stage.credit(slow, usize::MAX);
    assert_eq!(stage.hears(slow).len(), 100);
    assert_eq!(stage.hears(publisher), [""; 0]);
}
