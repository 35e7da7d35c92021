//! Messages a second through the switchboard alone: `cargo bench -p headrace-core --bench switchboard`.
//!
//! Bytes in, bytes out, one core; reads of 64 KiB as a busy socket gives them. No socket, no
//! Python, no disk: what is left for them of a core's second.

use std::sync::Arc;
use std::time::Instant;

use headrace_core::access::{Draft, Rules};
use headrace_core::hash::Key;
use headrace_core::mqtt::packet::QoS;
use headrace_core::switchboard::{Access, Limits, Strategy, Switchboard, Users};
use headrace_core::testing::kernels::{acknowledge, Relay, NOW};

fn main() {
    for subscribers in [1, 10, 100] {
        relay(
            "relay QoS 0, 100 B",
            subscribers,
            100,
            QoS::AtMostOnce,
            "fleet/#",
        );
    }
    relay(
        "relay QoS 0, 100 B, exact filter",
        1,
        100,
        QoS::AtMostOnce,
        "fleet/node-1/gpu-1/power",
    );
    for (name, denied) in [
        ("under a rule that leaves no hole", "$SYS/secret/#"),
        ("under one that does", "secret/#"),
    ] {
        for subscribers in [10, 100] {
            let name = format!("relay QoS 0, 100 B, {name}");
            let mut relay = Relay::of_bytes(100, QoS::AtMostOnce);
            deny_subscribing(&mut relay.switchboard, denied);
            relay_to(&mut relay, &name, subscribers, QoS::AtMostOnce, "#");
        }
    }
    relay("relay QoS 1, 100 B", 1, 100, QoS::AtLeastOnce, "fleet/#");
    relay(
        "relay QoS 0, 64 KiB",
        10,
        65_536,
        QoS::AtMostOnce,
        "fleet/#",
    );
    store("store QoS 1, 300 B", false, 0);
    store("store QoS 1, 300 B, with a source", true, 0);
    store("store QoS 1, 300 B, one subscriber", false, 1);
    for strategy in [
        "round-robin",
        "least-in-flight",
        "hash-topic",
        "hash-client",
    ] {
        for members in [1, 1_000] {
            share(strategy, members);
        }
    }
    for strategy in ["round-robin", "random", "least-in-flight"] {
        share_of_busy(strategy);
    }
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        crowd(qos);
    }
}

/// To so many, for a second.
fn relay_to(relay: &mut Relay, name: &str, subscribers: u32, qos: QoS, filter: &str) {
    relay.subscribe(subscribers, filter, qos);
    run(relay, &format!("{name}, to {subscribers}"), subscribers);
}

fn deny_subscribing(switchboard: &mut Switchboard, topic: &str) {
    let mut rules = Rules::new(true);
    let draft = Draft {
        actions: &["subscribe".to_owned()],
        topics: &[topic.to_owned()],
        ..Draft::default()
    };
    rules.add(&draft).expect("it is a rule");
    let access = Access {
        rules: Arc::new(rules),
        lets_anonymous: true,
        ..Access::default()
    };
    let nobody = Users::with_hasher(switchboard.hash_key());
    switchboard.control(Some(access), &nobody, NOW);
}

/// Reads until a second has passed.
fn run(relay: &mut Relay, name: &str, deliveries: u32) {
    let (mut messages, start) = (0, Instant::now());
    while start.elapsed().as_millis() < 1000 {
        for _ in 0..4 {
            relay.turn();
            messages += relay.per_read;
        }
    }
    let micros = start.elapsed().as_micros() as usize;
    let rate = messages * 1_000_000 / micros;
    println!(
        "{name:<40} {:>10} messages/s {:>12} deliveries/s",
        rate,
        rate * deliveries as usize
    );
}

fn relay(name: &str, subscribers: u32, bytes: usize, qos: QoS, filter: &str) {
    let mut relay = Relay::of_bytes(bytes, qos);
    relay_to(&mut relay, name, subscribers, qos, filter);
}

/// A group of so many members, and as many topics as a read has publishes.
fn share(strategy: &str, members: u64) {
    let mut relay = Relay::of_bytes(100, QoS::AtLeastOnce);
    let limits = Limits {
        receive_max: 65_535,
        shared_strategy: Strategy::parse(strategy).expect("it is one"),
        ..Limits::default()
    };
    relay.switchboard.set_limits(limits, NOW);
    let packet_bytes = relay.publish.len() / relay.per_read;
    for (number, packet) in relay.publish.chunks_exact_mut(packet_bytes).enumerate() {
        let at = packet.windows(4).position(|bytes| bytes == b"node");
        let at = at.expect("it is in the topic");
        packet[at..at + 4].copy_from_slice(format!("{number:04}").as_bytes());
    }
    let name = format!("share QoS 1, 100 B, {strategy}");
    relay.connect(0, None);
    for connection in 1..=members {
        relay.connect(connection, Some(("$share/g/fleet/#", QoS::AtLeastOnce)));
    }
    run(&mut relay, &format!("{name}, of {members}"), 1);
}

/// A group of 1,000 members of which 990 acknowledge nothing.
fn share_of_busy(strategy: &str) {
    let mut relay = Relay::of_bytes(100, QoS::AtLeastOnce);
    let limits = Limits {
        receive_max: 65_535,
        in_flight_max: 16,
        shared_strategy: Strategy::parse(strategy).expect("it is one"),
        ..Limits::default()
    };
    relay.switchboard = Switchboard::new(Key(1, 2), limits);
    relay.deaf_from = 11;
    relay.connect(0, None);
    for connection in 1..=1_000 {
        relay.connect(connection, Some(("$share/g/fleet/#", QoS::AtLeastOnce)));
    }
    let name = format!("share QoS 1, 100 B, {strategy}, 990 of 1000 busy");
    run(&mut relay, &name, 1);
}

/// The longest call while one publish goes to a million subscribers.
fn crowd(qos: QoS) {
    const SUBSCRIBERS: u64 = 1_000_000;
    let mut relay = Relay::of_bytes(100, qos);
    relay.connect(0, None);
    for connection in 1..=SUBSCRIBERS {
        relay.connect(connection, Some(("#", qos)));
    }
    while relay.switchboard.collect(NOW).is_some() {}
    let packet_bytes = relay.publish.len() / relay.per_read;
    for _ in 0..3 {
        let (mut calls, mut delivered, start) = (Vec::new(), 0, Instant::now());
        let publish = &relay.publish[..packet_bytes];
        let begun = Instant::now();
        relay.switchboard.receive(0, publish, NOW).unwrap();
        calls.push(begun.elapsed());
        let mut acks = Vec::new();
        loop {
            let begun = Instant::now();
            let effects = relay.switchboard.collect(NOW);
            calls.push(begun.elapsed());
            let Some(effects) = effects else { break };
            for (connection, bytes) in effects.writes {
                if connection > 0 {
                    delivered += 1;
                    acks.clear();
                    acknowledge(&bytes.into_bytes(), &mut acks);
                    relay.switchboard.receive(connection, &acks, NOW).unwrap();
                }
            }
        }
        assert_eq!(delivered, SUBSCRIBERS);
        calls.sort_unstable();
        println!(
            "to {SUBSCRIBERS} subscribers at QoS {}: longest of {} calls {:.1} ms, half at most {:.2} \
             ms, all in {:.2} s",
            qos as u8,
            calls.len(),
            calls[calls.len() - 1].as_secs_f64() * 1e3,
            calls[calls.len() / 2].as_secs_f64() * 1e3,
            start.elapsed().as_secs_f64(),
        );
    }
}

fn store(name: &str, with_source: bool, subscribers: u32) {
    let mut relay = Relay::stored(300, with_source, subscribers);
    run(&mut relay, name, subscribers);
}
