//! The memory of all connections together, and who gives way where it is used up.

use std::collections::BTreeMap;

use headrace_core::mqtt::packet::{Connect, Packet, Publish};
use headrace_core::switchboard::{Limits, Policy, SHARE_BYTES};
use headrace_core::testing::Random;

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

/// A publish of so many bytes to a topic that nobody has subscribed to.
fn large(stage: &Stage, client: u64, bytes: usize) -> Vec<u8> {
    let payload = vec![b'x'; bytes];
    let publish = Publish {
        topic: "u",
        payload: &payload,
        ..Publish::default()
    };
    stage.bytes(client, &Packet::Publish(publish))
}

const ENDED: [&str; 2] = ["DISCONNECT 0x97", "closed: memory_full"];
const REFUSED: &str = "mqtt_packets_refused_total{reason=\"memory_full\"}";

#[test]
fn who_began_a_large_packet_first_and_does_not_go_on_gives_way() {
    let mut stage = stage(300_000);
    let clients = ["a", "b", "c"].map(|name| stage.client(V5, name));
    let packet = large(&stage, clients[0], 200_000);
    for client in clients {
        stage.send_bytes(client, &packet[..100_000]);
    }
    assert_eq!(stage.hears(clients[0]), ENDED);
    assert_eq!(stage.statistic(REFUSED), 1);
    for client in &clients[1..] {
        assert_eq!(stage.hears(*client), [""; 0]);
    }
    stage.send_bytes(clients[2], &packet[100_000..]);
    assert_eq!(stage.statistic("mqtt_messages_received_total"), 1);
    // What follows a packet that is whole is as young as what others begin now.
    stage.send_bytes(clients[1], &packet[100_000..]);
    stage.send_bytes(clients[2], &packet[..100_000]);
    stage.send_bytes(clients[1], &[&packet[..], &packet[..100_000]].concat());
    let another = stage.client(V5, "d");
    stage.send_bytes(another, &packet[..100_000]);
    assert_eq!(stage.hears(clients[2]), ENDED);
    assert_eq!(stage.statistic("mqtt_messages_received_total"), 3);
    for client in clients.into_iter().chain([another]) {
        stage.hang_up(client);
    }
    assert_eq!(stage.statistic("mqtt_buffered_bytes"), 0);
}

/// 500 connections that began and do not go on had everybody ended who sent large packets.
#[test]
fn idle_beginnings_keep_nobody_out() {
    let mut stage = stage(8_000_000);
    let idle: Vec<u64> = (0..500)
        .map(|number| {
            let version = if number % 2 == 0 { V5 } else { V311 };
            let client = stage.client(version, &format!("idle-{number}"));
            let packet = large(&stage, client, 1_000_000);
            stage.send_bytes(client, &packet[..=SHARE_BYTES]);
            client
        })
        .collect();
    let held = stage.statistic("mqtt_buffered_bytes");
    assert!(held <= 6_000_000, "{held}");
    let ended = stage.statistic(REFUSED);
    let other = stage.client(V5, "other");
    for _ in 0..3 {
        for piece in large(&stage, other, 1_000_000).chunks(10_000) {
            stage.send_bytes(other, piece);
        }
    }
    // A large CONNECT is the beginning of a large packet, too.
    let late = stage.open();
    let text = "x".repeat(SHARE_BYTES - 1);
    let connect = Connect {
        username: Some(&text),
        password: Some(&text.as_bytes()[..60_000]),
        client_id: "late",
        ..plain(V5)
    };
    let connect = stage.bytes(late, &Packet::Connect(Box::new(connect)));
    for piece in connect.chunks(SHARE_BYTES + 1) {
        stage.send_bytes(late, piece);
    }
    assert_eq!(stage.hears(other), [""; 0]);
    assert_eq!(stage.statistic("mqtt_messages_received_total"), 3);
    stage.decide(0);
    assert!(stage.hears(late)[0].starts_with("CONNACK 0x00"));
    let more = stage.statistic(REFUSED) - ended;
    assert!(
        (1..=17).contains(&more),
        "as many as one packet needs: {more}"
    );
    let first = stage.statistic(REFUSED) as usize;
    for (number, client) in idle.into_iter().enumerate() {
        let heard = stage.hears(client);
        match (number < first, number % 2 == 0) {
            (true, true) => assert_eq!(heard, ENDED),
            (true, false) => assert_eq!(heard, ENDED[1..]),
            (false, _) => assert_eq!(heard, [""; 0]),
        }
    }
}

#[test]
fn beginnings_leave_subscribers_a_quarter_and_give_way_to_them_beyond() {
    let mut stage = stage(800_000);
    let idle = ["a", "b", "c", "d", "e"].map(|name| stage.client(V5, name));
    let packet = large(&stage, idle[0], 200_000);
    for client in idle {
        stage.send_bytes(client, &packet[..100_000]);
    }
    let slow = stage.client(V5, "slow");
    stage.subscribe(slow, "t", QOS_0);
    stage.credit(slow, 0);
    let publisher = stage.client(V5, "publisher");
    for _ in 0..7 {
        stage.publish(publisher, "t", QOS_0, 0, &"x".repeat(60_000));
    }
    let heard = idle.map(|client| stage.hears(client).len());
    assert_eq!(heard, [2, 2, 2, 0, 0]);
    stage.credit(slow, usize::MAX);
    assert_eq!(stage.hears(slow).len(), 7, "none was lost");
}

/// Each connection may hold 64 KiB, and enough of them that do not go on filled the budget for good.
#[test]
fn idle_beginnings_of_small_packets_give_way_to_who_goes_on() {
    let mut stage = stage(8_000_000);
    let idle: Vec<u64> = (0..200)
        .map(|number| {
            let client = stage.client(V5, &format!("idle-{number}"));
            let packet = large(&stage, client, SHARE_BYTES);
            stage.send_bytes(client, &packet[..SHARE_BYTES]);
            client
        })
        .collect();
    let held = stage.statistic("mqtt_buffered_bytes");
    assert!(held <= 6_000_000, "{held}");
    let ended = stage.statistic(REFUSED);
    let other = stage.client(V5, "other");
    for _ in 0..3 {
        for piece in large(&stage, other, 1_000_000).chunks(10_000) {
            stage.send_bytes(other, piece);
        }
    }
    assert_eq!(stage.statistic("mqtt_messages_received_total"), 3);
    assert_eq!(stage.hears(other), [""; 0]);
    let first = stage.statistic(REFUSED);
    assert!((1..=17).contains(&(first - ended)), "as many as one needs");
    for (number, client) in idle.into_iter().enumerate() {
        let heard = stage.hears(client);
        assert_eq!(heard.is_empty(), number as u64 >= first, "{number}");
    }
}

#[test]
fn small_beginnings_leave_subscribers_a_quarter_and_have_one_of_their_own() {
    let mut stage = stage(800_000);
    let idle = ["a", "b", "c", "d", "e"].map(|name| stage.client(V5, name));
    let packet = large(&stage, idle[0], SHARE_BYTES);
    for client in idle {
        stage.send_bytes(client, &packet[..60_000]);
    }
    let slow = stage.client(V5, "slow");
    stage.subscribe(slow, "t", QOS_0);
    stage.credit(slow, 0);
    let publisher = stage.client(V5, "publisher");
    for _ in 0..7 {
        stage.publish(publisher, "t", QOS_0, 0, &"x".repeat(60_000));
    }
    // Large ones have theirs beside it.
    let other = stage.client(V5, "other");
    stage.send_bytes(other, &large(&stage, other, 200_000)[..180_000]);
    let heard = idle.map(|client| stage.hears(client));
    let is_ended = heard.map(|heard| heard == ENDED);
    assert_eq!(is_ended, [true, true, false, false, false]);
    assert_eq!(stage.hears(other), [""; 0]);
    stage.credit(slow, usize::MAX);
    assert_eq!(stage.hears(slow).len(), 7, "none was lost");
}

/// Who reads no answers is read no further, and holds what it has begun for as long as it likes.
#[test]
fn who_reads_no_answers_gives_way_too() {
    let mut stage = stage(300_000);
    let deaf = stage.client(V5, "deaf");
    stage.credit(deaf, 0);
    let ping = stage.bytes(deaf, &Packet::Pingreq);
    stage.send_bytes(deaf, &ping.repeat(120_000));
    let packet = large(&stage, deaf, 100_000);
    stage.send_bytes(deaf, &packet[..70_000]);
    stage.send_bytes(deaf, &packet[70_000..70_001]);
    assert_eq!(stage.reads.get(&deaf), Some(&false));
    let other = stage.client(V5, "other");
    stage.send_bytes(other, &packet[..70_000]);
    stage.send_bytes(other, &packet[70_000..]);
    stage.credit(deaf, usize::MAX);
    assert_eq!(stage.hears(deaf).last().map(String::as_str), Some(ENDED[1]));
    assert_eq!(stage.hears(other), [""; 0]);
    assert_eq!(stage.statistic("mqtt_messages_received_total"), 1);
}

/// What clients hold, and of large and of small beginnings whoever began first in front.
#[derive(Default)]
struct Model {
    held: BTreeMap<u64, usize>,
    large: Vec<u64>,
    small: Vec<u64>,
}

impl Model {
    /// A client sends bytes of packets that all have the same length; who must give way.
    fn sends(&mut self, client: u64, bytes: usize, packet: usize, max: usize) -> Vec<u64> {
        let held = self.held.entry(client).or_default();
        *held += bytes;
        let is_whole = *held >= packet;
        *held %= packet;
        let (is_small, is_large) = ((1..=SHARE_BYTES).contains(held), *held > SHARE_BYTES);
        for (order, is_in_it) in [(&mut self.small, is_small), (&mut self.large, is_large)] {
            order.retain(|each| *each != client || (is_in_it && !is_whole));
            if is_in_it && !order.contains(&client) {
                order.push(client);
            }
        }
        let mut ended = Vec::new();
        while self.held.values().sum::<usize>() > max - max / 4 {
            let bytes = |order: &[u64]| order.iter().map(|each| self.held[each]).sum::<usize>();
            let order = if bytes(&self.large) > max / 4 {
                &mut self.large
            } else if bytes(&self.small) > max / 4 {
                &mut self.small
            } else {
                break;
            };
            ended.push(order.remove(0));
            self.held.remove(ended.last().unwrap());
        }
        ended
    }
}

#[test]
fn whoever_gives_way_began_before_all_others() {
    const MAX: usize = 1_000_000;
    let mut gave_way = 0;
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let mut stage = stage(MAX);
        let mut model = Model::default();
        let mut clients: Vec<u64> = Vec::new();
        let (count, piece) = random.pick(&[(12, 300_000), (30, 40_000)]);
        for step in 0..300 {
            if clients.len() < count {
                clients.push(stage.client(V5, &step.to_string()));
            }
            let client = random.pick(&clients);
            let packet = large(&stage, client, 300_000);
            let at = model.held.get(&client).copied().unwrap_or_default();
            let bytes = 1 + random.below(piece) as usize;
            stage.send_bytes(client, &packet.repeat(2)[at..at + bytes]);
            let ended = model.sends(client, bytes, packet.len(), MAX);
            gave_way += ended.len();
            let held = model.held.values().sum::<usize>();
            assert_eq!(
                stage.statistic("mqtt_buffered_bytes"),
                held as u64,
                "seed {seed}"
            );
            clients.retain(|client| {
                let is_over = ended.contains(client);
                let expected: &[&str] = if is_over { &ENDED } else { &[] };
                assert_eq!(stage.hears(*client), expected, "seed {seed}");
                !is_over
            });
        }
    }
    assert!(gave_way > 1_000, "{gave_way}");
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
