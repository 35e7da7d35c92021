//! Messages a second through the switchboard alone: `cargo bench -p headrace-core --bench switchboard`.
//!
//! Bytes in, bytes out, one core; reads of 64 KiB as a busy socket gives them. No socket, no
//! Python, no disk: what is left for them of a core's second.

use std::sync::Arc;
use std::time::Instant;

use headrace_core::access::{Draft, Rules};
use headrace_core::hash::Key;
use headrace_core::mqtt::encode;
use headrace_core::mqtt::packet::{
    Connect, Packet, Publish, PublishProperties, QoS, Subscribe, SubscriptionRequest, Version,
};
use headrace_core::switchboard::{Access, Limits, Strategy, Switchboard, Users};
use headrace_core::Now;

const NOW: Now = Now {
    mono_ms: 1,
    wall_ms: 1_700_000_000_000,
};
const READ_BYTES: usize = 64 * 1024;
/// As wide as every sequence of a run.
const SEQUENCE: &str = "000000000000";

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
            let mut bench = Bench::relay(100, QoS::AtMostOnce);
            bench.deny_subscribing(denied);
            bench.relay_to(&name, subscribers, QoS::AtMostOnce, "#");
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

struct Bench {
    switchboard: Switchboard,
    publish: Vec<u8>,
    per_read: usize,
    /// Connections from here on acknowledge nothing.
    deaf_from: u64,
    /// Digits of a sequence in the first publish, where it has one, and the last one used.
    sequence: Option<(usize, u64)>,
}

impl Bench {
    fn new(publish: &Publish<'_>) -> Self {
        let mut packet = Vec::new();
        encode::publish(Version::V5, publish, &mut packet);
        let per_read = (READ_BYTES / packet.len()).max(1);
        let limits = Limits {
            receive_max: 65_535,
            ..Limits::default()
        };
        Self {
            switchboard: Switchboard::new(Key(1, 2), limits),
            publish: packet.repeat(per_read),
            per_read,
            deaf_from: u64::MAX,
            sequence: packet
                .windows(SEQUENCE.len())
                .position(|window| window == SEQUENCE.as_bytes())
                .map(|at| (at, 0)),
        }
    }

    /// One that publishes so many bytes again and again.
    fn relay(bytes: usize, qos: QoS) -> Self {
        let payload = vec![b'x'; bytes];
        Self::new(&Publish {
            qos,
            topic: "fleet/node-1/gpu-1/power",
            packet_id: u16::from(qos != QoS::AtMostOnce),
            payload: &payload,
            ..Publish::default()
        })
    }

    fn relay_to(&mut self, name: &str, subscribers: u64, qos: QoS, filter: &str) {
        self.connect(0, None);
        for connection in 1..=subscribers {
            self.connect(connection, Some((filter, qos)));
        }
        self.run(&format!("{name}, to {subscribers}"), subscribers as usize);
    }

    fn deny_subscribing(&mut self, topic: &str) {
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
        let nobody = Users::with_hasher(self.switchboard.hash_key());
        self.switchboard.control(Some(access), &nobody, NOW);
    }

    /// Gives every publish of the next read a sequence of its own.
    fn renumber(&mut self) {
        let Some((at, last)) = &mut self.sequence else {
            return;
        };
        let packet_bytes = self.publish.len() / self.per_read;
        for packet in self.publish.chunks_exact_mut(packet_bytes) {
            *last += 1;
            let mut rest = *last;
            for digit in packet[*at..*at + SEQUENCE.len()].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
    }

    fn connect(&mut self, connection: u64, filter: Option<(&str, QoS)>) {
        let client_id = connection.to_string();
        let mut out = Vec::new();
        let connect = Connect {
            client_id: &client_id,
            ..Connect::new(Version::V5)
        };
        encode::packet(Version::V5, &Packet::Connect(Box::new(connect)), &mut out);
        self.switchboard.opened(connection, NOW).unwrap();
        self.switchboard.writable(connection, usize::MAX).unwrap();
        self.switchboard.receive(connection, &out, NOW).unwrap();
        let effects = self.switchboard.collect(NOW).unwrap();
        self.switchboard
            .decided(effects.decisions[0].request, 0, NOW)
            .unwrap();
        if let Some((filter, qos)) = filter {
            out.clear();
            let request = SubscriptionRequest {
                filter,
                qos,
                no_local: false,
                retain_as_published: false,
                retain_handling: 0,
            };
            let subscribe = Subscribe {
                packet_id: 1,
                filters: vec![request],
                ..Subscribe::default()
            };
            encode::packet(Version::V5, &Packet::Subscribe(subscribe), &mut out);
            self.switchboard.receive(connection, &out, NOW).unwrap();
        }
        self.switchboard.collect(NOW);
    }

    /// Reads, collects, confirms and acknowledges until a second has passed.
    fn run(&mut self, name: &str, deliveries: usize) {
        let mut acks = Vec::new();
        let (mut messages, start) = (0, Instant::now());
        while start.elapsed().as_millis() < 1000 {
            for _ in 0..4 {
                self.renumber();
                self.switchboard.receive(0, &self.publish, NOW).unwrap();
                messages += self.per_read;
                // As a shell does: until nothing is due, for one turn hands out a share only.
                while let Some(effects) = self.switchboard.collect(NOW) {
                    for append in &effects.appends {
                        self.switchboard.durable(append.ticket, true, NOW).unwrap();
                    }
                    for (connection, bytes) in &effects.writes {
                        if (1..self.deaf_from).contains(connection) && bytes[0] == 0x32 {
                            acks.clear();
                            acknowledge(bytes, &mut acks);
                            self.switchboard.receive(*connection, &acks, NOW).unwrap();
                        }
                    }
                }
            }
        }
        let micros = start.elapsed().as_micros() as usize;
        let rate = messages * 1_000_000 / micros;
        println!(
            "{name:<40} {:>10} messages/s {:>12} deliveries/s",
            rate,
            rate * deliveries
        );
    }
}

/// PUBACKs for all publishes in `bytes`.
fn acknowledge(bytes: &[u8], out: &mut Vec<u8>) {
    use headrace_core::mqtt::decode;
    let mut at = 0;
    while let Some(frame) = decode::frame(&bytes[at..], usize::MAX).unwrap() {
        if let Packet::Publish(publish) = decode::packet(Some(Version::V5), frame).unwrap() {
            encode::puback(publish.packet_id, out);
        }
        at += frame.bytes();
    }
}

fn relay(name: &str, subscribers: u64, bytes: usize, qos: QoS, filter: &str) {
    Bench::relay(bytes, qos).relay_to(name, subscribers, qos, filter);
}

/// A group of so many members, and as many topics as a read has publishes.
fn share(strategy: &str, members: u64) {
    let mut bench = Bench::relay(100, QoS::AtLeastOnce);
    let limits = Limits {
        receive_max: 65_535,
        shared_strategy: Strategy::parse(strategy).expect("it is one"),
        ..Limits::default()
    };
    bench.switchboard.set_limits(limits, NOW);
    let packet_bytes = bench.publish.len() / bench.per_read;
    for (number, packet) in bench.publish.chunks_exact_mut(packet_bytes).enumerate() {
        let at = packet.windows(4).position(|bytes| bytes == b"node");
        let at = at.expect("it is in the topic");
        packet[at..at + 4].copy_from_slice(format!("{number:04}").as_bytes());
    }
    let name = format!("share QoS 1, 100 B, {strategy}");
    bench.connect(0, None);
    for connection in 1..=members {
        bench.connect(connection, Some(("$share/g/fleet/#", QoS::AtLeastOnce)));
    }
    bench.run(&format!("{name}, of {members}"), 1);
}

/// A group of 1,000 members of which 990 acknowledge nothing.
fn share_of_busy(strategy: &str) {
    let mut bench = Bench::relay(100, QoS::AtLeastOnce);
    let limits = Limits {
        receive_max: 65_535,
        in_flight_max: 16,
        shared_strategy: Strategy::parse(strategy).expect("it is one"),
        ..Limits::default()
    };
    bench.switchboard = Switchboard::new(Key(1, 2), limits);
    bench.deaf_from = 11;
    bench.connect(0, None);
    for connection in 1..=1_000 {
        bench.connect(connection, Some(("$share/g/fleet/#", QoS::AtLeastOnce)));
    }
    let name = format!("share QoS 1, 100 B, {strategy}, 990 of 1000 busy");
    bench.run(&name, 1);
}

/// The longest call while one publish goes to a million subscribers.
fn crowd(qos: QoS) {
    const SUBSCRIBERS: u64 = 1_000_000;
    let mut bench = Bench::relay(100, qos);
    bench.connect(0, None);
    for connection in 1..=SUBSCRIBERS {
        bench.connect(connection, Some(("#", qos)));
    }
    while bench.switchboard.collect(NOW).is_some() {}
    let packet_bytes = bench.publish.len() / bench.per_read;
    for _ in 0..3 {
        let (mut calls, mut delivered, start) = (Vec::new(), 0, Instant::now());
        let publish = &bench.publish[..packet_bytes];
        let begun = Instant::now();
        bench.switchboard.receive(0, publish, NOW).unwrap();
        calls.push(begun.elapsed());
        let mut acks = Vec::new();
        loop {
            let begun = Instant::now();
            let effects = bench.switchboard.collect(NOW);
            calls.push(begun.elapsed());
            let Some(effects) = effects else { break };
            for (connection, bytes) in effects.writes {
                if connection > 0 {
                    delivered += 1;
                    acks.clear();
                    acknowledge(&bytes, &mut acks);
                    bench.switchboard.receive(connection, &acks, NOW).unwrap();
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

fn store(name: &str, with_source: bool, subscribers: u64) {
    let payload = vec![b'x'; 300];
    let user = vec![("source", "node-1"), ("epoch", "1"), ("sequence", SEQUENCE)];
    let mut bench = Bench::new(&Publish {
        qos: QoS::AtLeastOnce,
        topic: "dcgm/node-1/GPU-5f2a/power",
        packet_id: 1,
        properties: PublishProperties {
            user: if with_source { user } else { Vec::new() },
            ..PublishProperties::default()
        },
        payload: &payload,
        ..Publish::default()
    });
    bench
        .switchboard
        .bind(1, 12, &["dcgm/#"], "level:3")
        .unwrap();
    bench.connect(0, None);
    for connection in 1..=subscribers {
        bench.connect(connection, Some(("dcgm/#", QoS::AtLeastOnce)));
    }
    bench.run(name, subscribers as usize);
}
