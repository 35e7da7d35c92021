//! Random clients, random credit, tickets that end in any order and either way; what must hold
//! is checked after each event. A failure names its seed and replays from it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headrace_core::hash::Key;
use headrace_core::mqtt::encode;
use headrace_core::mqtt::packet::*;
use headrace_core::switchboard::{Limits, Switchboard, TraceSubject, TraceWay, SHARE_BYTES};
use headrace_core::testing::Random;
use headrace_core::Now;

use super::stage::{door, plain, request, QOS_1};
use Version::{V311, V5};

mod hears;

const SEEDS: u64 = 60;
const EVENTS: usize = 1_500;

#[test]
fn whatever_happens_the_promises_hold() {
    run(0..SEEDS);
}

#[test]
#[ignore = "minutes; for changes of the machine itself"]
fn whatever_happens_the_promises_hold_for_many_seeds() {
    run(SEEDS..10_000);
}

fn run(seeds: std::ops::Range<u64>) {
    let mut total: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in seeds {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            world.run();
            world.board.statistics()
        });
        let Ok(statistics) = run else {
            panic!("seed {seed}");
        };
        for (name, value) in statistics {
            *total.entry(name).or_default() += value;
        }
    }
    for name in REACHED {
        assert!(total[name] > 0, "no seed reaches {name}");
    }
}

/// What the seeds must bring about between them, or they prove little.
const REACHED: [&str; 16] = [
    "mqtt_crowd_messages_total",
    "mqtt_sessions_resumed_total",
    "mqtt_sessions_expired_total",
    "mqtt_messages_sent_again_total",
    "mqtt_messages_dropped_total{reason=\"away\"}",
    "mqtt_messages_dropped_total{reason=\"queue_full\"}",
    "mqtt_messages_dropped_total{reason=\"memory_full\"}",
    "mqtt_messages_stored_total",
    "mqtt_messages_delivered_total",
    "mqtt_wills_total",
    "mqtt_takeovers_total",
    "mqtt_stalls_total",
    "mqtt_messages_dropped_total{reason=\"outbound_full\"}",
    "mqtt_messages_dropped_total{reason=\"not_stored\"}",
    "mqtt_packets_refused_total{reason=\"malformed\"}",
    "mqtt_packets_refused_total{reason=\"memory_full\"}",
];

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let transcript = |seed| {
        let mut world = World::new(seed);
        world.run();
        world.transcript
    };
    assert_eq!(transcript(3), transcript(3));
    assert_ne!(transcript(3), transcript(4));
}

#[derive(Default)]
struct Client {
    version: Option<Version>,
    /// Behaves, so far.
    is_sane: bool,
    /// Of its name.
    number: u64,
    is_connected: bool,
    is_closed: bool,
    credit: usize,
    bytes: Vec<u8>,
    /// `(packet id, payload)` of publishes whose PUBACK or PUBREC has not come.
    unanswered: VecDeque<(u16, String)>,
    /// Packet ids of which PUBREL was sent.
    releasing: BTreeSet<u16>,
    /// Packet ids received and not acknowledged.
    in_flight: BTreeMap<u16, QoS>,
    /// Of those at `QoS` 2, acknowledged and not released.
    received: BTreeSet<u16>,
    /// The last number seen by publisher, topic and levels.
    last: BTreeMap<String, u64>,
}

struct World {
    random: Random,
    now: Now,
    board: Switchboard,
    clients: BTreeMap<u64, Client>,
    next_connection: u64,
    next_number: u64,
    /// Never used twice, so that a session remembers nothing that its client does not know.
    next_id: u16,
    /// Payloads by ticket, until it ends.
    tickets: BTreeMap<u64, Vec<String>>,
    /// Payloads whose every append so far ended well, or had one that did not.
    waiting: BTreeMap<String, usize>,
    failed: BTreeSet<String>,
    stored: BTreeSet<String>,
    asked: Vec<u64>,
    transcript: Vec<u8>,
    trace: Option<u64>,
    traced_out: u64,
}

/// So many clients may send junk, and never go on with a session.
const MAD: u64 = 4;
const TOPICS: [&str; 5] = ["s/a", "s/b", "r/a", "r/b", "r"];
const FILTERS: [&str; 7] = ["#", "s/#", "+/a", "r/a", "r/#", "s/+", "s/b"];

impl World {
    fn new(seed: u64) -> Self {
        let limits = Limits {
            packet_bytes_max: if seed % 4 == 3 { 100_000 } else { 2_000 },
            receive_max: 8,
            outbound_bytes_max: 4_000,
            queued_messages_max: 15,
            queued_bytes_max: 8_000,
            queued_bytes_of_node_max: 20_000,
            stall_ms_max: 100,
            undurable_bytes_max: 3_000,
            crowd_min: [1, 2, 4096][seed as usize % 3],
            crowd_turn_max: 1 + seed as usize % 2,
            ..Limits::default()
        };
        let mut board = Switchboard::new(Key(seed, 1), limits);
        board.bind(1, 3, &["s/#"], "property:key").unwrap();
        board.bind(2, 1, &["s/a"], "topic").unwrap();
        let all = TraceSubject::Topic("#".into());
        let trace = (seed % 2 == 1).then(|| board.start_trace(all, 10).unwrap().unwrap());
        Self {
            random: Random::new(seed),
            now: Now {
                mono_ms: 5,
                wall_ms: 1_700_000_000_000,
            },
            board,
            clients: BTreeMap::new(),
            next_connection: 1,
            next_number: 1,
            next_id: 0,
            tickets: BTreeMap::new(),
            waiting: BTreeMap::new(),
            failed: BTreeSet::new(),
            stored: BTreeSet::new(),
            asked: Vec::new(),
            transcript: Vec::new(),
            trace,
            traced_out: 0,
        }
    }

    /// Looks at the trace, which half of the seeds have.
    fn watch(&mut self) {
        let Some(trace) = self.trace else { return };
        let (lines, lost) = self.board.take_trace(trace).unwrap();
        assert_eq!(lost, 0);
        let out = lines.iter().filter(|line| line.way == TraceWay::Out);
        self.traced_out += out.count() as u64;
    }

    /// Nothing leaves for a client that a trace does not see.
    fn nothing_went_unseen(&mut self) {
        self.watch();
        let statistics: BTreeMap<_, _> = self.board.statistics().into_iter().collect();
        let sent = [
            "mqtt_messages_delivered_total",
            "mqtt_messages_sent_again_total",
        ];
        let sent: u64 = sent.iter().map(|name| statistics[name]).sum();
        assert!(self.trace.is_none() || self.traced_out == sent);
    }

    fn run(&mut self) {
        for _ in 0..EVENTS {
            self.event();
            self.board.validate();
            self.watch();
            if self.random.chance(70) {
                self.collect();
            }
        }
        self.settle();
        self.nothing_went_unseen();
    }

    fn event(&mut self) {
        match self.random.below(100) {
            0..=4 => self.open(),
            5..=6 => self.hang_up(),
            7..=14 => self.decide(),
            15..=22 => self.credit(),
            23..=34 => self.end_ticket(),
            35..=38 => {
                self.now.mono_ms += self.random.below(80);
                self.board.tick(self.now);
            }
            39 => self.junk(),
            40 => self.change_limits(),
            41..=43 => {
                let payload = self.payload("door");
                let topic = self.random.pick(&TOPICS);
                let publish = door(topic, payload.as_bytes(), QOS_1, &[]);
                self.board.publish(&publish, 1, self.now).unwrap();
            }
            44..=52 => self.acknowledge(),
            53..=60 => self.subscribe(),
            _ => self.publish(),
        }
    }

    fn pick_client(&mut self) -> Option<u64> {
        let open = self.clients.iter().filter(|(_, client)| !client.is_closed);
        let open: Vec<u64> = open.map(|(id, _)| *id).collect();
        (!open.is_empty()).then(|| self.random.pick(&open))
    }

    fn open(&mut self) {
        let id = self.next_connection;
        self.next_connection += 1;
        let version = self.random.pick(&[V5, V311]);
        let client = Client {
            version: Some(version),
            is_sane: true,
            ..Client::default()
        };
        self.clients.insert(id, client);
        self.board.opened(id, self.now).unwrap();
        // A few names, so that clients take each other over.
        let name = self.random.below(12);
        let client_id = format!("client-{name}");
        self.clients.get_mut(&id).unwrap().number = name;
        let will = Will {
            topic: "s/b",
            payload: b"0 will",
            qos: self.qos(),
            properties: PublishProperties {
                will_delay: Some(self.random.below(2) as u32),
                ..PublishProperties::default()
            },
            ..Will::default()
        };
        let connect = Connect {
            client_id: &client_id,
            clean_start: name < MAD || self.random.chance(30),
            session_expiry_s: Some(self.random.pick(&[0, 1, 1_000])),
            receive_maximum: (version == V5).then_some(3),
            will: self.random.chance(50).then_some(will),
            ..plain(version)
        };
        self.send(id, &Packet::Connect(Box::new(connect)));
    }

    fn qos(&mut self) -> QoS {
        let all = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];
        self.random.pick(&all)
    }

    fn hang_up(&mut self) {
        let Some(id) = self.pick_client() else { return };
        if self.random.chance(30) {
            self.send(id, &Packet::Disconnect(Disconnect::default()));
        }
        self.board.closed(id, self.now).unwrap();
        self.clients.remove(&id);
    }

    fn decide(&mut self) {
        for request in std::mem::take(&mut self.asked) {
            let code = if self.random.chance(90) { 0 } else { 0x87 };
            self.board.decided(request, code, self.now).unwrap();
        }
    }

    fn credit(&mut self) {
        let Some(id) = self.pick_client() else { return };
        let credit = self.random.pick(&[0, 1, 50, 1_000, usize::MAX]);
        self.clients.get_mut(&id).unwrap().credit = credit;
        self.board.writable(id, credit).unwrap();
    }

    fn end_ticket(&mut self) {
        let tickets: Vec<u64> = self.tickets.keys().copied().collect();
        if tickets.is_empty() {
            return;
        }
        let ticket = self.random.pick(&tickets);
        let stored = self.random.chance(95);
        self.end(ticket, stored);
    }

    fn end(&mut self, ticket: u64, stored: bool) {
        for payload in self.tickets.remove(&ticket).unwrap() {
            *self.waiting.get_mut(&payload).unwrap() -= 1;
            if !stored {
                self.failed.insert(payload);
            }
        }
        self.board.durable(ticket, stored, self.now).unwrap();
    }

    fn junk(&mut self) {
        let Some(id) = self.pick_client() else { return };
        if self.clients[&id].number >= MAD {
            return;
        }
        let mut bytes: Vec<u8> = (0..self.random.below(60))
            .map(|_| self.random.below(256) as u8)
            .collect();
        if self.random.chance(20) {
            // The beginning of a publish of 90,000 bytes; there may be more of it another time.
            bytes = vec![0x30, 0x90, 0xBF, 0x05];
            bytes.resize(SHARE_BYTES + self.random.below(20_000) as usize, 0);
        }
        self.clients.get_mut(&id).unwrap().is_sane = false;
        self.board.receive(id, &bytes, self.now).unwrap();
    }

    fn change_limits(&mut self) {
        let mut limits = self.board.limits().clone();
        limits.outbound_bytes_max = self.random.pick(&[3_000, 4_000, 6_000]);
        limits.queued_messages_max = self.random.pick(&[5, 15, 30]);
        limits.queued_bytes_max = self.random.pick(&[4_000, 8_000]);
        limits.undurable_bytes_max = self.random.pick(&[1_000, 3_000, 9_000]);
        limits.buffered_bytes_max = self.random.pick(&[1_000, 100_000, usize::MAX]);
        limits.stall_ms_max = self.random.pick(&[0, 100]);
        self.board.set_limits(limits, self.now);
    }

    fn acknowledge(&mut self) {
        if let Some(id) = self.pick_client() {
            self.acknowledge_all(id);
        }
    }

    fn acknowledge_all(&mut self, id: u64) {
        let client = self.clients.get_mut(&id).unwrap();
        for (packet_id, qos) in std::mem::take(&mut client.in_flight) {
            let ack = Ack {
                packet_id,
                ..Ack::default()
            };
            if qos == QoS::ExactlyOnce {
                self.clients
                    .get_mut(&id)
                    .unwrap()
                    .received
                    .insert(packet_id);
                self.send(id, &Packet::Pubrec(ack));
            } else {
                self.send(id, &Packet::Puback(ack));
            }
        }
    }

    fn subscribe(&mut self) {
        let Some(id) = self.pick_client() else { return };
        let filter = self.random.pick(&FILTERS);
        if self.random.chance(20) {
            let unsubscribe = Unsubscribe {
                packet_id: 1,
                filters: vec![filter],
                ..Unsubscribe::default()
            };
            return self.send(id, &Packet::Unsubscribe(unsubscribe));
        }
        let qos = self.qos();
        let subscribe = Subscribe {
            packet_id: 1,
            filters: vec![request(filter, qos)],
            ..Subscribe::default()
        };
        self.send(id, &Packet::Subscribe(subscribe));
    }

    /// Unique, in the order of its publisher.
    fn payload(&mut self, publisher: &str) -> String {
        self.next_number += 1;
        let padding = "x".repeat(self.random.pick(&[0, 10, 200, 900]));
        format!("{} {publisher} {padding}", self.next_number)
    }

    fn publish(&mut self) {
        let Some(id) = self.pick_client() else { return };
        for _ in 0..=self.random.below(4) {
            let payload = self.payload(&id.to_string());
            let mut qos = self.qos();
            let client = self.clients.get_mut(&id).unwrap();
            let open = client.unanswered.len() + client.releasing.len();
            if client.version == Some(V5) && open >= 8 {
                // A sane client of 5.0 keeps to the Receive Maximum.
                qos = QoS::AtMostOnce;
            }
            let topic = self.random.pick(&TOPICS);
            let key = self.random.pick(&["1", "2", "3"]);
            let mut packet_id = 0;
            if qos > QoS::AtMostOnce {
                self.next_id += 1;
                packet_id = self.next_id;
                client.unanswered.push_back((packet_id, payload.clone()));
            }
            let publish = Publish {
                topic,
                qos,
                packet_id,
                payload: payload.as_bytes(),
                properties: PublishProperties {
                    user: vec![("key", key)],
                    ..PublishProperties::default()
                },
                ..Publish::default()
            };
            self.send(id, &Packet::Publish(publish));
        }
    }

    /// Sends a packet in one piece or in two.
    fn send(&mut self, id: u64, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        let version = self.clients[&id].version.unwrap();
        encode::packet(version, packet, &mut bytes);
        let cut = if self.random.chance(30) {
            self.random.below(bytes.len() as u64) as usize
        } else {
            0
        };
        for part in [&bytes[..cut], &bytes[cut..]] {
            self.board.receive(id, part, self.now).unwrap();
        }
    }
}
