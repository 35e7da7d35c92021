//! Random lives of devices that keep their side of every exchange: connections break and are taken
//! over at any moment, acknowledgements are late or lost, the disk refuses, the node crashes between
//! any two effects on its disk, at times with the power, and comes back with what that holds.
//! Whatever happens, `QoS` 2 delivers once, `QoS` 1 at least once, in order, within the window of
//! each connection (MQTT 5.0 4.3, 4.4, 4.6, 4.9). A failure names its seed and replays from it.

mod hears;
mod judge;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headrace_core::hash::Key;
use headrace_core::mqtt::encode;
use headrace_core::mqtt::packet::*;
use headrace_core::record::partition_of;
use headrace_core::session::Ending;
use headrace_core::switchboard::{Limits, Switchboard};
use headrace_core::testing::Random;
use headrace_core::Now;

use super::disk::{Disk, PARTITIONS, STREAMS};
use super::stage::{plain, request, QOS_0, QOS_1, QOS_2};
use Version::{V311, V5};

const SEEDS: u64 = 40;
const EVENTS: usize = 1_500;
const RECEIVE_MAX: u16 = 8;
const TOPICS: [&str; 3] = ["s/a", "s/b", "r"];
/// In all partitions of the log of sessions; two of them in one.
const CLIENTS: [&str; 4] = ["pump", "valve", "sensor", "fan"];

#[test]
fn devices_lie_in_all_partitions() {
    let partition = |client: &str| partition_of(client.as_bytes(), PARTITIONS);
    let partitions = CLIENTS.map(partition).into_iter().collect::<BTreeSet<_>>();
    assert_eq!(partitions.len(), PARTITIONS as usize);
}

/// Holds 5.0: 4.6.0-5, 4.6.0-6.
/// Holds 3.1.1: 4.6.0-5, 4.6.0-6.
#[test]
fn exchanges_survive_connections() {
    run(0..SEEDS, Life::InMemory);
}

#[test]
fn exchanges_survive_crashes() {
    let (statistics, checkpoints) = run(0..SEEDS, Life::OnDisk);
    assert!(checkpoints > 0, "no seed has a checkpoint");
    assert!(statistics["mqtt_sessions_resumed_total"] > 0);
}

#[test]
fn acknowledgements_that_do_not_wait_for_the_disk_are_found_within_a_few_seeds() {
    let lives = |seed| World::new(seed, Life::OnDiskInHaste).run();
    let found = (0..20).find(|seed| std::panic::catch_unwind(|| lives(*seed)).is_err());
    assert!(
        found.is_some(),
        "what was acknowledged and lost is not missed"
    );
}

#[test]
#[ignore = "minutes; for changes of sessions"]
fn exchanges_survive_crashes_for_many_seeds() {
    let seeds = std::env::var("SEEDS").ok();
    let last = seeds.map_or(20_000, |seeds| seeds.parse().expect("a number"));
    run(SEEDS..last, Life::OnDisk);
}

#[test]
#[ignore = "minutes; for changes of sessions"]
fn exchanges_survive_connections_for_many_seeds() {
    run(SEEDS..20_000, Life::InMemory);
}

/// Where sessions live.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Life {
    InMemory,
    /// The node crashes at times.
    OnDisk,
    /// And its shell takes what it has appended for durable: a planted fault.
    OnDiskInHaste,
}

fn run(seeds: std::ops::Range<u64>, life: Life) -> (BTreeMap<&'static str, u64>, usize) {
    let mut total: BTreeMap<&str, u64> = BTreeMap::new();
    let mut checkpoints = 0;
    for seed in seeds {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed, life);
            world.run();
            (world.board.statistics(), world.disk.checkpoints())
        });
        let Ok((statistics, of_this)) = run else {
            panic!("seed {seed}");
        };
        checkpoints += of_this;
        for (name, value) in statistics {
            *total.entry(name).or_default() += value;
        }
    }
    for name in [
        "mqtt_sessions_resumed_total",
        "mqtt_takeovers_total",
        "mqtt_messages_sent_again_total",
        "mqtt_messages_received_again_total",
        "mqtt_messages_dropped_total{reason=\"not_stored\"}",
    ] {
        assert!(total[name] > 0, "no seed reaches {name}");
    }
    (total, checkpoints)
}

/// A publish whose exchange is not over.
struct Sent {
    packet_id: u16,
    qos: QoS,
    topic: &'static str,
    payload: String,
    is_released: bool,
}

/// A device: what it must remember, and its connection.
struct Device {
    granted: QoS,
    sent: Vec<Sent>,
    next_id: u16,
    /// Packet ids at `QoS` 2 that it has taken and that are not released.
    unreleased: BTreeSet<u16>,
    /// Everything that it was given.
    taken: Vec<String>,

    connection: u64,
    version: Version,
    window: usize,
    /// CONNACK has come.
    is_connected: bool,
    is_gone: bool,
    credit: usize,
    bytes: Vec<u8>,
    /// What it will answer.
    answers: VecDeque<Packet<'static>>,
    /// Packet ids that this connection brought and that are not over.
    in_flight: BTreeSet<u16>,
}

struct World {
    random: Random,
    now: Now,
    board: Switchboard,
    devices: Vec<Device>,
    next_connection: u64,
    next_number: u64,
    /// What was published, at which quality of service.
    published: BTreeMap<String, QoS>,
    refused: BTreeSet<String>,
    disk: Disk,
    life: Life,
    seed: u64,
    /// Whether the disk may refuse; what is sent again then comes out of order.
    fails: bool,
    /// Whether it has.
    has_failed: bool,
    has_crashed: bool,
}

impl World {
    /// A switchboard that has nothing yet.
    fn board(seed: u64, life: Life) -> Switchboard {
        let limits = Limits {
            receive_max: RECEIVE_MAX,
            in_flight_max: 5,
            queued_messages_max: 1_000_000,
            queued_bytes_max: 1 << 40,
            queued_bytes_of_node_max: 1 << 40,
            outbound_bytes_max: 1 << 40,
            crowd_min: [1, 2, 4096][seed as usize % 3],
            crowd_turn_max: 1 + seed as usize % 2,
            ..Limits::default()
        };
        let mut board = Switchboard::new(Key(seed, 1), limits);
        let [(_, of_one), (_, of_two)] = STREAMS;
        board.bind(1, of_one, &["s/#"], "property:key").unwrap();
        board.bind(2, of_two, &["s/a"], "topic").unwrap();
        if life != Life::InMemory {
            board.keep_sessions(PARTITIONS, 20_000, 500);
        }
        board
    }

    fn new(seed: u64, life: Life) -> Self {
        let device = |granted| Device {
            granted,
            sent: Vec::new(),
            next_id: 0,
            unreleased: BTreeSet::new(),
            taken: Vec::new(),
            connection: 0,
            version: V5,
            window: 0,
            is_connected: false,
            is_gone: true,
            credit: 0,
            bytes: Vec::new(),
            answers: VecDeque::new(),
            in_flight: BTreeSet::new(),
        };
        Self {
            random: Random::new(seed),
            now: Now {
                mono_ms: 5,
                wall_ms: 1_700_000_000_000,
            },
            board: Self::board(seed, life),
            devices: [QOS_2, QOS_2, QOS_1, QOS_0].map(device).into(),
            next_connection: 1,
            next_number: 1,
            published: BTreeMap::new(),
            refused: BTreeSet::new(),
            disk: match life {
                Life::InMemory => Disk::Tickets(Vec::new()),
                _ => Disk::platter(),
            },
            life,
            seed,
            fails: seed % 2 == 0,
            has_failed: false,
            has_crashed: false,
        }
    }

    fn run(&mut self) {
        let fails = std::mem::replace(&mut self.fails, false);
        for device in 0..self.devices.len() {
            self.connect(device);
            self.credit(device, usize::MAX);
            let subscribe = Subscribe {
                packet_id: 1,
                filters: vec![request("#", self.devices[device].granted)],
                ..Subscribe::default()
            };
            self.send(device, &Packet::Subscribe(subscribe));
            self.collect();
        }
        while !self.disk.is_idle() {
            self.disk_works(); // What has been acknowledged is what must hold.
            self.collect();
        }
        self.fails = fails;
        for _ in 0..EVENTS {
            self.event();
            self.board.validate();
            if self.random.chance(70) {
                self.collect();
            }
        }
        self.settle();
        self.judge();
    }

    fn event(&mut self) {
        let device = self.random.below(self.devices.len() as u64) as usize;
        match self.random.below(100) {
            0..=3 => self.connect(device),
            4..=5 => self.hang_up(device),
            6..=12 => {
                let credit = self.random.pick(&[0, 7, 500, usize::MAX]);
                self.credit(device, credit);
            }
            13..=24 => self.disk_works(),
            25..=28 => {
                self.now.mono_ms += self.random.below(80);
                self.board.tick(self.now);
            }
            29 if self.life != Life::InMemory && self.random.chance(25) => self.crash(),
            29..=59 => self.answer(device),
            _ => self.publish(device),
        }
    }

    /// A new connection, which takes over from an older one that is still there.
    fn connect(&mut self, index: usize) {
        let connection = self.next_connection;
        self.next_connection += 1;
        let version = self.random.pick(&[V5, V311]);
        let window = self.random.pick(&[1, 2, 5]);
        let device = &mut self.devices[index];
        device.connection = connection;
        device.version = version;
        device.window = usize::from(if version == V5 { window } else { 5 });
        device.is_connected = false;
        device.is_gone = false;
        device.credit = 0;
        device.bytes.clear();
        device.answers.clear();
        device.in_flight.clear();
        self.board.opened(connection, self.now).unwrap();
        let client_id = CLIENTS[index];
        let connect = Connect {
            client_id,
            clean_start: false,
            session_expiry_s: (version == V5).then_some(u32::MAX),
            receive_maximum: (version == V5).then_some(window),
            ..plain(version)
        };
        self.send(index, &Packet::Connect(Box::new(connect)));
        self.collect();
    }

    fn hang_up(&mut self, index: usize) {
        if self.devices[index].is_gone {
            return;
        }
        if self.random.chance(30) {
            self.send(index, &Packet::Disconnect(Disconnect::default()));
        }
        let device = &mut self.devices[index];
        device.is_gone = true;
        device.is_connected = false;
        self.board.closed(device.connection, self.now).unwrap();
    }

    fn credit(&mut self, index: usize, credit: usize) {
        let device = &mut self.devices[index];
        if !device.is_gone {
            device.credit = credit;
            self.board.writable(device.connection, credit).unwrap();
        }
    }

    fn disk_works(&mut self) {
        for ticket in self.disk.works(&mut self.random) {
            if self.life == Life::OnDiskInHaste {
                continue;
            }
            // Where sessions are on the disk, one that has accepted and fails ends the node.
            let may_fail = self.fails && self.life == Life::InMemory;
            let stored = !may_fail || self.random.chance(95);
            self.has_failed |= !stored;
            self.board.durable(ticket, stored, self.now).unwrap();
        }
    }

    /// The node is gone, and comes back with what the disk has.
    fn crash(&mut self) {
        self.has_crashed = true;
        self.now.mono_ms += self.random.below(2_000);
        self.now.wall_ms += 1_000;
        self.seed += 1_000_000;
        self.board = Self::board(self.seed, self.life);
        for (partition, batches) in (0..).zip(self.disk.crash(&mut self.random)) {
            self.board.restore(partition, &batches).unwrap();
        }
        self.board.restored(self.now);
        self.board.validate();
        for device in &mut self.devices {
            device.is_gone = true;
            device.is_connected = false;
        }
    }

    fn answer(&mut self, index: usize) {
        for _ in 0..=self.random.below(4) {
            let device = &mut self.devices[index];
            if device.is_gone {
                return;
            }
            let Some(answer) = device.answers.pop_front() else {
                return;
            };
            if let Packet::Puback(ack) | Packet::Pubcomp(ack) = &answer {
                device.in_flight.remove(&ack.packet_id);
            }
            self.send(index, &answer);
        }
    }

    fn publish(&mut self, index: usize) {
        for _ in 0..=self.random.below(3) {
            let qos = self.random.pick(&[QOS_0, QOS_1, QOS_2]);
            let topic = self.random.pick(&TOPICS);
            let padding = "x".repeat(self.random.pick(&[0, 10, 400]));
            let device = &mut self.devices[index];
            if !device.is_connected || device.sent.len() >= usize::from(RECEIVE_MAX) {
                return;
            }
            self.next_number += 1;
            let number = self.next_number;
            let payload = format!("{number} {index} {topic} {} {padding}", qos as u8);
            self.published.insert(payload.clone(), qos);
            device.next_id += 1;
            let sent = Sent {
                packet_id: device.next_id,
                qos,
                topic,
                payload,
                is_released: false,
            };
            self.send_publish(index, &sent, false);
            if qos > QOS_0 {
                self.devices[index].sent.push(sent);
            }
        }
    }

    fn send_publish(&mut self, index: usize, sent: &Sent, dup: bool) {
        let publish = Publish {
            dup,
            topic: sent.topic,
            qos: sent.qos,
            packet_id: if sent.qos == QOS_0 { 0 } else { sent.packet_id },
            payload: sent.payload.as_bytes(),
            ..Publish::default()
        };
        self.send(index, &Packet::Publish(publish));
    }

    fn send(&mut self, index: usize, packet: &Packet<'_>) {
        let device = &self.devices[index];
        let mut bytes = Vec::new();
        encode::packet(device.version, packet, &mut bytes);
        let (connection, now) = (device.connection, self.now);
        self.board.receive(connection, &bytes, now).unwrap();
    }

    fn collect(&mut self) {
        loop {
            let mut effects = self.board.collect(self.now);
            let appends = effects.as_mut().map(|effects| &mut effects.appends);
            for append in appends.map(std::mem::take).unwrap_or_default() {
                let ticket = append.ticket;
                let has_room = !self.fails || self.random.chance(95);
                if !self.disk.append(append, has_room) {
                    self.has_failed = true;
                    self.board.durable(ticket, false, self.now).unwrap();
                } else if self.life == Life::OnDiskInHaste {
                    self.board.durable(ticket, true, self.now).unwrap();
                }
            }
            if !self.persist() && effects.is_none() {
                return;
            }
            self.disk.submit();
            let effects = effects.unwrap_or_default();
            let asked = effects.decisions.clone();
            self.perform(effects);
            for asked in asked {
                self.board.decided(asked.request, 0, self.now).unwrap();
            }
            self.board.validate();
        }
    }

    /// Whether there was anything to write of the sessions.
    fn persist(&mut self) -> bool {
        if let Some(trim) = self.board.persist(self.now) {
            self.disk.sessions().trim(trim);
        }
        let mut is_written = false;
        while let Some(append) = self.board.session_append() {
            is_written = true;
            let ticket = append.ticket;
            if self.fails && !self.random.chance(97) {
                self.has_failed = true;
                let ending = Ending::NoRoom;
                self.board.durable(ticket, ending, self.now).unwrap();
                continue;
            }
            let offset = self.disk.sessions().append_session(append);
            self.board.session_appended(ticket, offset);
            if self.life == Life::OnDiskInHaste {
                self.board.durable(ticket, true, self.now).unwrap();
            }
        }
        is_written
    }
}
