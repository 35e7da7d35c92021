//! Random lives of watchers and workers. A watcher that has caught up knows exactly what is
//! retained, however it was interrupted. A group finishes each message once, whoever of its
//! members comes and goes, and at `QoS` 2 nobody else ever sees it (MQTT 5.0 3.3.1.3, 4.8.2). Where
//! its strategy has keys, one member at a time works on each, in order.
//! A failure names its seed and replays from it.

mod order;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headrace_core::hash::Key;
use headrace_core::mqtt::packet::*;
use headrace_core::mqtt::{decode, encode};
use headrace_core::switchboard::{Limits, Strategy, Switchboard, Written};
use headrace_core::testing::Random;
use headrace_core::topic;
use headrace_core::Now;

use self::order::Order;
use super::stage::{plain, request, QOS_0, QOS_1, QOS_2, V5};

const SEEDS: u64 = 40;
const EVENTS: usize = 1_000;
/// The first is a worker that never leaves the group for good.
const NAMES: u64 = 8;
const WORKERS: u64 = 4;
const FILTERS: [&str; 5] = ["v/#", "v/+/1", "v/2/+", "+/3/#", "v/1/1"];
const SHARE: &str = "$share/g/w/+";
const STRATEGIES: [Strategy; 8] = [
    Strategy::RoundRobin,
    Strategy::Random,
    Strategy::Sticky,
    Strategy::LeastInFlight,
    Strategy::HashTopic,
    Strategy::HashTopic,
    Strategy::HashClient,
    Strategy::HashClient,
];

#[test]
fn watchers_and_workers_get_what_is_theirs() {
    run(0..SEEDS);
}

#[test]
#[ignore = "minutes; for changes of routing"]
fn watchers_and_workers_get_what_is_theirs_for_many_seeds() {
    run(SEEDS..20_000);
}

fn run(seeds: std::ops::Range<u64>) {
    let mut total: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in seeds {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            (0..EVENTS).for_each(|_| world.event());
            world.settle();
            world.board.statistics()
        });
        let Ok(statistics) = run else {
            panic!("seed {seed}");
        };
        for (name, value) in statistics {
            *total.entry(name).or_default() += value;
        }
    }
    for name in [
        "mqtt_shared_returned_total",
        "mqtt_retained_messages",
        "mqtt_sessions_resumed_total",
        "mqtt_messages_sent_again_total",
    ] {
        assert!(total[name] > 0, "no seed reaches {name}");
    }
}

/// A client's lasting state, and its connection if it has one.
#[derive(Default)]
struct Client {
    connection: Option<u64>,
    bytes: Vec<u8>,
    /// What it subscribed to.
    filter: Option<&'static str>,
    /// The last payload of each topic.
    view: BTreeMap<String, String>,
    /// `(packet id, qos, work)` that it has not answered.
    unanswered: VecDeque<(u16, QoS, Option<String>)>,
    /// Work by packet ids of `QoS` 2 that are not released.
    received: BTreeMap<u16, Option<String>>,
}

struct World {
    random: Random,
    now: Now,
    board: Switchboard,
    clients: Vec<Client>,
    watches: bool,
    publisher: u64,
    connections: u64,
    next: u64,
    /// What is retained.
    retained: BTreeMap<String, String>,
    /// Work above `QoS` 0.
    work: BTreeSet<String>,
    finished: BTreeSet<String>,
    /// Who was sent work at `QoS` 2.
    owners: BTreeMap<String, usize>,
    /// Work at `QoS` 2 whose session ended.
    gone: BTreeSet<String>,
    order: Order,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        // Of little room for each client nobody can be sure to see all that is retained.
        let watches = random.chance(60);
        let limits = Limits {
            shared_strategy: random.pick(&STRATEGIES),
            queued_messages_max: 100_000,
            queued_bytes_max: if watches { 16 << 20 } else { 1_000 },
            crowd_min: random.pick(&[1, 4096]),
            crowd_turn_max: 1,
            ..Limits::default()
        };
        let mut world = Self {
            random,
            now: Now {
                mono_ms: 5,
                wall_ms: 1_700_000_000_000,
            },
            board: Switchboard::new(Key(seed, 1), limits),
            clients: (0..NAMES).map(|_| Client::default()).collect(),
            watches,
            publisher: 0,
            connections: 0,
            next: 0,
            retained: BTreeMap::new(),
            work: BTreeSet::new(),
            finished: BTreeSet::new(),
            owners: BTreeMap::new(),
            gone: BTreeSet::new(),
            order: Order::default(),
        };
        world.publisher = world.open(None, true);
        world.connect(0);
        world.subscribe(0);
        world
    }

    fn event(&mut self) {
        let name = self.random.below(NAMES) as usize;
        match self.random.below(100) {
            0..=5 => self.connect(name),
            6..=9 => self.hang_up(name),
            10..=17 => self.subscribe(name),
            18..=20 if name > 0 => self.unsubscribe(name),
            21..=55 => self.answer(name),
            56..=75 => self.retain(),
            76..=97 => self.publish_work(),
            98 if self.random.chance(10) => self.change_strategy(),
            _ => {
                self.now.mono_ms += self.random.below(100);
                self.board.tick(self.now);
            }
        }
        self.board.validate();
        if self.random.chance(80) {
            self.collect();
        }
    }

    fn change_strategy(&mut self) {
        self.collect();
        self.order = Order::default();
        let limits = Limits {
            shared_strategy: self.random.pick(&STRATEGIES),
            ..self.board.limits().clone()
        };
        self.board.set_limits(limits, self.now);
    }

    /// The key that a topic's work has, where it is kept in order.
    fn key(&self, topic: &str) -> Option<String> {
        match self.board.limits().shared_strategy {
            Strategy::HashTopic => Some(topic.to_owned()),
            Strategy::HashClient => Some("the publisher".to_owned()),
            _ => None,
        }
    }

    /// A connection of a client, or of the publisher.
    fn open(&mut self, name: Option<usize>, clean_start: bool) -> u64 {
        self.connections += 1;
        let connection = self.connections;
        if let Some(name) = name {
            self.clients[name].connection = Some(connection);
        }
        let client_id = &format!("{name:?}");
        self.board.opened(connection, self.now).unwrap();
        self.board.writable(connection, usize::MAX).unwrap();
        let connect = Connect {
            client_id,
            clean_start,
            session_expiry_s: Some(1_000),
            receive_maximum: Some(3),
            topic_alias_maximum: Some(0),
            ..plain(V5)
        };
        self.send(connection, &Packet::Connect(Box::new(connect)));
        while let Some(effects) = self.board.collect(self.now) {
            for asked in &effects.decisions {
                self.board.decided(asked.request, 0, self.now).unwrap();
            }
            self.hear(effects.writes);
        }
        connection
    }

    fn connect(&mut self, name: usize) {
        self.hang_up(name);
        let clean_start = name > 0 && self.random.chance(20);
        if clean_start {
            self.forget(name);
        }
        self.open(Some(name), clean_start);
    }

    /// The session ends: what it had received at `QoS` 2 and not finished is nobody's.
    fn forget(&mut self, name: usize) {
        let client = &mut self.clients[name];
        *client = Client::default();
        let mine = self.owners.iter().filter(|(_, owner)| **owner == name);
        let unfinished = mine.filter(|(work, _)| !self.finished.contains(*work));
        self.gone.extend(unfinished.map(|(work, _)| work.clone()));
    }

    fn hang_up(&mut self, name: usize) {
        self.collect();
        let client = &mut self.clients[name];
        client.bytes.clear();
        // What stays with it at `QoS` 2 holds up nobody.
        let unanswered = std::mem::take(&mut client.unanswered);
        let at_qos_2 = unanswered.iter().filter(|(_, qos, _)| *qos == QOS_2);
        for work in at_qos_2.filter_map(|(.., work)| work.as_deref()) {
            self.order.remove(work);
        }
        let client = &mut self.clients[name];
        if let Some(connection) = client.connection.take() {
            self.board.closed(connection, self.now).unwrap();
        }
    }

    fn subscribe(&mut self, name: usize) {
        let Some(connection) = self.clients[name].connection else {
            return;
        };
        let is_worker = (name as u64) < WORKERS;
        let filter = match self.clients[name].filter {
            Some(filter) => filter,
            None if is_worker => SHARE,
            None if !self.watches => return,
            None => self.random.pick(&FILTERS),
        };
        self.clients[name].filter = Some(filter);
        let qos = self.random.pick(&[QOS_1, QOS_2]);
        let subscribe = Subscribe {
            packet_id: 1,
            filters: vec![request(filter, qos)],
            ..Subscribe::default()
        };
        self.send(connection, &Packet::Subscribe(subscribe));
    }

    fn unsubscribe(&mut self, name: usize) {
        let Some(connection) = self.clients[name].connection else {
            return;
        };
        let Some(filter) = self.clients[name].filter.take() else {
            return;
        };
        let unsubscribe = Unsubscribe {
            packet_id: 2,
            filters: vec![filter],
            ..Unsubscribe::default()
        };
        self.send(connection, &Packet::Unsubscribe(unsubscribe));
        // What was on its way comes, and is over.
        self.collect();
        while !self.clients[name].unanswered.is_empty() {
            self.answer(name);
            self.collect();
        }
        self.clients[name].view.clear();
    }

    fn retain(&mut self) {
        let topic = format!("v/{}/{}", self.random.below(5), self.random.below(5));
        self.next += 1;
        let payload = if self.random.chance(25) {
            String::new()
        } else {
            let padding = "x".repeat(self.random.below(300) as usize);
            format!("{} {padding}", self.next)
        };
        if payload.is_empty() {
            self.retained.remove(&topic);
        } else {
            self.retained.insert(topic.clone(), payload.clone());
        }
        self.publish(&topic, &payload, true);
    }

    fn publish_work(&mut self) {
        self.next += 1;
        let topic = format!("w/{}", self.random.below(6));
        let payload = self.next.to_string();
        if self.publish(&topic, &payload, false) > QOS_0 {
            if let Some(key) = self.key(&topic) {
                self.order.add(key, self.next);
            }
            self.work.insert(payload);
        }
    }

    fn publish(&mut self, topic: &str, payload: &str, retain: bool) -> QoS {
        let qos = self.random.pick(&[QOS_0, QOS_1, QOS_2]);
        // What a watcher must see is never sent at QoS 0, which may be lost.
        let qos = if retain { qos.max(QOS_1) } else { qos };
        let packet_id = if qos == QOS_0 { 0 } else { 7 };
        let publish = Publish {
            topic,
            qos,
            retain,
            packet_id,
            payload: payload.as_bytes(),
            ..Publish::default()
        };
        self.send(self.publisher, &Packet::Publish(publish));
        if qos == QOS_2 {
            self.send(self.publisher, &Packet::Pubrel(ack(packet_id)));
        }
        qos
    }

    /// Answers the oldest publish that a client was sent.
    fn answer(&mut self, name: usize) {
        let client = &mut self.clients[name];
        let Some(connection) = client.connection else {
            return;
        };
        let Some((packet_id, qos, work)) = client.unanswered.pop_front() else {
            return;
        };
        if qos == QOS_2 {
            client.received.insert(packet_id, work.clone());
        }
        if let Some(work) = work {
            self.order.remove(&work);
            self.finished.insert(work);
        }
        if qos == QOS_2 {
            self.send(connection, &Packet::Pubrec(ack(packet_id)));
        } else {
            self.send(connection, &Packet::Puback(ack(packet_id)));
        }
    }

    fn send(&mut self, connection: u64, packet: &Packet<'_>) {
        let mut bytes = Vec::new();
        encode::packet(V5, packet, &mut bytes);
        self.board.receive(connection, &bytes, self.now).unwrap();
    }

    fn collect(&mut self) {
        while let Some(effects) = self.board.collect(self.now) {
            assert_eq!(effects.closes, [], "nobody does wrong");
            self.hear(effects.writes);
            self.board.validate();
        }
    }

    fn hear(&mut self, writes: Vec<(u64, Written)>) {
        for (connection, written) in writes {
            let mut known = self.clients.iter();
            let name = known.position(|client| client.connection == Some(connection));
            if let Some(name) = name {
                self.clients[name].bytes.extend(written.into_bytes());
                self.look(name, connection);
            }
        }
    }

    fn look(&mut self, name: usize, connection: u64) {
        let bytes = std::mem::take(&mut self.clients[name].bytes);
        let mut at = 0;
        while at < bytes.len() {
            let frame = decode::frame(&bytes[at..], usize::MAX).unwrap().unwrap();
            at += frame.bytes();
            match decode::packet(Some(V5), frame).unwrap() {
                Packet::Publish(publish) => self.take(name, &publish),
                Packet::Pubrel(release) => {
                    self.clients[name].received.remove(&release.packet_id);
                    self.send(connection, &Packet::Pubcomp(ack(release.packet_id)));
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, name: usize, publish: &Publish<'_>) {
        let payload = std::str::from_utf8(publish.payload).unwrap().to_owned();
        let client = &mut self.clients[name];
        let mut work = None;
        if publish.topic.starts_with("v/") {
            client.view.insert(publish.topic.to_owned(), payload);
        } else if publish.qos > QOS_0 && (name as u64) < WORKERS {
            assert!(!self.finished.contains(&payload), "{payload} is finished");
            if publish.qos == QOS_2 {
                let owner = *self.owners.entry(payload.clone()).or_insert(name);
                assert_eq!(owner, name, "{payload} stays with its member");
            }
            let unanswered = self.clients[name].unanswered.iter();
            let has: Vec<_> = unanswered
                .filter_map(|(.., work)| work.as_deref())
                .collect();
            self.order.check(&payload, &has);
            work = Some(payload);
        }
        let client = &mut self.clients[name];
        if publish.qos > QOS_0 {
            let entry = (publish.packet_id, publish.qos, work);
            client.unanswered.push_back(entry);
        }
    }

    /// Everyone comes, finishes what it has, and is compared.
    fn settle(&mut self) {
        for name in 0..NAMES as usize {
            if self.clients[name].connection.is_none() {
                self.hang_up(name);
                self.open(Some(name), false);
            }
        }
        for _ in 0..20_000 {
            self.collect();
            let mut is_idle = true;
            for name in 0..NAMES as usize {
                is_idle &= self.clients[name].unanswered.is_empty();
                self.answer(name);
            }
            if is_idle {
                break;
            }
        }
        for client in &self.clients[WORKERS as usize..] {
            let Some(filter) = client.filter else {
                continue;
            };
            let mut known = client.view.clone();
            known.retain(|_, payload| !payload.is_empty());
            let mut expected = self.retained.clone();
            expected.retain(|topic, _| topic::matches(filter, topic));
            assert_eq!(known, expected, "{filter}");
        }
        let unfinished: BTreeSet<_> = self.work.difference(&self.finished).collect();
        assert!(
            unfinished.iter().all(|work| self.gone.contains(*work)),
            "{unfinished:?}"
        );
        let statistics: BTreeMap<_, _> = self.board.statistics().into_iter().collect();
        assert_eq!(statistics["mqtt_shared_queued_messages"], 0);
        assert_eq!(
            statistics["mqtt_retained_messages"],
            self.retained.len() as u64
        );
        assert_eq!(statistics["mqtt_queued_bytes"], 0, "nobody holds anything");
    }
}

fn ack(packet_id: u16) -> Ack<'static> {
    Ack {
        packet_id,
        ..Ack::default()
    }
}
