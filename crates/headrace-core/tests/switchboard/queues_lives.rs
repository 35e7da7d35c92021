//! Lives of queues: work comes, consumers settle it, fail, go and come back, the disk refuses, and
//! the node is killed between any two writes. A failure names its seed.
//!
//! What is promised: whatever was acknowledged to its publisher is settled by each group, once, or
//! is dead, or still owed; what a group was told to be settled it never sees again, over crashes
//! too; of two deliveries of one message the later has the higher attempt and the earlier had ended;
//! with an order by key none passes an earlier one of its key.

mod puller;

use std::collections::{BTreeMap, BTreeSet};

use headrace_core::mqtt::packet::{Connect, Disconnect, Packet, Subscribe};
use headrace_core::queue::{Order, Policy};
use headrace_core::session::Ending;
use headrace_core::switchboard::{Depth, Excess, QueueSettings};
use headrace_core::testing::Random;

use super::depot::*;
use super::stage::*;
use puller::Puller;

const STEPS: usize = 250;
const GROUPS: [&str; 2] = ["a", "b"];

/// A message of the queue, as its place says: partition and offset.
type Place = (u32, i64);

/// What is known of one group.
#[derive(Default)]
struct Group {
    /// What is done with, durable or not, since the last crash.
    done: BTreeSet<Place>,
    /// What was so before it, and may be.
    maybe: BTreeSet<Place>,
    /// What a client was told to be done with, and to be dead.
    told: [BTreeSet<Place>; 2],
    /// The last attempt of what was delivered since the last crash.
    attempts: BTreeMap<Place, u32>,
}

struct Consumer {
    id: String,
    group: usize,
    connection: Option<u64>,
    /// What it was handed and has not ended; whether it has said so.
    holds: Vec<Handed>,
    /// Of what it has asked, by packet id: which kind of end that is of what, if any.
    asked: BTreeMap<u16, Option<(usize, Place)>>,
}

struct Life {
    depot: Depot,
    random: Random,
    order: Order,
    publisher: u64,
    consumers: Vec<Consumer>,
    puller: Puller,
    groups: [Group; 2],
    sent: u32,
    /// Payloads by packet id, on their way.
    waiting: BTreeMap<u16, String>,
    stored: BTreeSet<String>,
    /// Key and payload of what was delivered.
    keys: BTreeMap<Place, (String, String)>,
}

impl Life {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let order = random.pick(&[Order::None, Order::Key, Order::Strict]);
        let partitions = if order == Order::Strict {
            1
        } else {
            random.pick(&[1, 3])
        };
        let settings = QueueSettings {
            policy: Policy {
                order,
                failures_max: random.pick(&[0, 3]),
                read_ahead: random.pick(&[1, 5, 100]),
                prioritises: random.chance(50),
                ..settings().policy
            },
            depth: Depth {
                messages_max: random.pick(&[0, 5, 20]),
                bytes_max: 0,
                excess: random.pick(&[Excess::Refuse, Excess::DeadLetter]),
            },
            batch_messages: random.pick(&[1, 500]),
            prefetch: random.pick(&[1, 4, 20]),
            ..settings()
        };
        let mut depot = Depot::new(partitions, settings);
        let publisher = depot.client("publisher");
        let consumers = ["a1", "a2", "b1"].map(|id| Consumer {
            id: id.to_owned(),
            group: usize::from(id.starts_with('b')),
            connection: None,
            holds: Vec::new(),
            asked: BTreeMap::new(),
        });
        Self {
            depot,
            random,
            order,
            publisher,
            consumers: consumers.into(),
            puller: Puller::default(),
            groups: Default::default(),
            sent: 0,
            waiting: BTreeMap::new(),
            stored: BTreeSet::new(),
            keys: BTreeMap::new(),
        }
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..20 => self.publish(),
            20..50 => self.consume(),
            50..56 => self.come_or_go(),
            56..62 => self.pull(),
            62..66 => {
                let wait_ms = self.random.pick(&[1, 500, 1_000, 5_000, 31_000]);
                self.depot.stage.wait(wait_ms);
            }
            66..68 => self.crash(),
            _ => self.work(),
        }
        self.look();
    }

    fn publish(&mut self) {
        self.sent += 1;
        let key = self.random.pick(&["x", "y", "z"]);
        let payload = format!("{key}{}", self.sent);
        let mut user = vec![("partition-key", key)];
        if self.depot.settings.policy.prioritises {
            user.push(("priority", self.random.pick(&["0", "4", "9"])));
        }
        let id = self
            .depot
            .send(self.publisher, "$queue/jobs", &payload, &user);
        self.waiting.insert(id, payload);
    }

    /// The shell does some of what it has to.
    fn work(&mut self) {
        let depot = &mut self.depot;
        depot.stage.run();
        depot.give_dead_letters();
        for _ in 0..self.random.below(4) {
            let is_refused = self.random.chance(8);
            depot.append_next(!is_refused);
        }
        if self.random.chance(60) {
            let ending = if self.random.chance(4) {
                Ending::Refused
            } else {
                Ending::Stored
            };
            depot.stage.write_once(ending);
        }
        depot.tell();
        for _ in 0..self.random.below(4) {
            let is_read = !self.random.chance(8);
            depot.read_next(is_read);
        }
        depot.stage.run();
    }

    /// Looks at what everybody was sent.
    fn look(&mut self) {
        let mut answers = Vec::new();
        self.depot.stage.sift(self.publisher, |packet| {
            if let Packet::Puback(ack) = packet {
                answers.push((ack.packet_id, ack.reason_code));
            }
            false
        });
        for (id, code) in answers {
            let payload = self.waiting.remove(&id).expect("it was published");
            if code == 0 {
                self.stored.insert(payload);
            }
        }
        if self.depot.stage.is_closed(self.publisher) {
            self.waiting.clear();
            self.depot.stage.hang_up(self.publisher);
            self.publisher = self.depot.client("publisher");
        }
        for index in 0..self.consumers.len() {
            self.look_at(index);
        }
        self.answer_pulls();
    }

    fn look_at(&mut self, index: usize) {
        let consumer = &mut self.consumers[index];
        let Some(connection) = consumer.connection else {
            return;
        };
        let mut answers = Vec::new();
        self.depot.stage.sift(connection, |packet| {
            if let Packet::Puback(ack) = packet {
                answers.push((ack.packet_id, ack.reason_code));
                return false;
            }
            matches!(packet, Packet::Publish(_))
        });
        for (id, code) in answers {
            let end = consumer.asked.remove(&id).expect("it was asked");
            if let (0, Some((kind, place))) = (code, end) {
                self.groups[consumer.group].told[kind].insert(place);
            }
        }
        if self.depot.stage.is_closed(connection) {
            self.depot.stage.sift(connection, |_| false);
            consumer.connection = None;
            consumer.holds.clear();
            consumer.asked.clear();
            return self.depot.stage.hang_up(connection);
        }
        for handed in self.depot.take_unanswered(connection) {
            self.depot.puback(connection, handed.packet_id, 0);
            self.take(index, handed);
        }
    }

    fn take(&mut self, index: usize, handed: Handed) {
        let dead = self.depot.dead_letters();
        let consumer = &mut self.consumers[index];
        let group = &mut self.groups[consumer.group];
        let place = place_of(&handed);
        let attempt: u32 = handed.user["attempt"].parse().unwrap();
        let id = handed.id();
        for told in &group.told {
            assert!(!told.contains(&place), "{id} comes after its end was told");
        }
        assert!(!group.done.contains(&place), "{id} comes after its end");
        group.maybe.remove(&place);
        if let Some(before) = group.attempts.insert(place, attempt) {
            assert!(attempt > before, "{id} after attempt {before}");
        }
        let key = handed.user["partition-key"].clone();
        if self.order != Order::None {
            let is_same = |other: &str| self.order == Order::Strict || other == key;
            let earlier = self.keys.range((place.0, 0)..place);
            for (other, (of, payload)) in earlier.filter(|(_, (of, _))| is_same(of)) {
                let is_dead = dead.contains(&(GROUPS[consumer.group].to_owned(), payload.clone()));
                let is_done = group.done.contains(other) || group.maybe.contains(other);
                let has_ended = is_done || is_dead;
                assert!(has_ended, "{id} passes {other:?} of {of}");
            }
        }
        self.keys.insert(place, (key, handed.payload.clone()));
        consumer.holds.push(handed);
    }

    /// A consumer ends something that it has, or has lost.
    fn consume(&mut self) {
        let index = self.random.below(self.consumers.len());
        let consumer = &mut self.consumers[index];
        let Some(connection) = consumer.connection.filter(|_| !consumer.holds.is_empty()) else {
            return;
        };
        let at = self.random.below(consumer.holds.len());
        let handed = consumer.holds[at].clone();
        let verbs = ["$ack", "$ack", "$ack", "$nack", "$reject", "$extend"];
        let verb = self.random.pick(&verbs);
        let mut user = vec![("message-id", handed.id())];
        if verb != "$ack" {
            user.push(("delay", self.random.pick(&["0", "1s", "40s"])));
        }
        let name = GROUPS[consumer.group];
        let before = self.depot.ends_of(name);
        let id = self
            .depot
            .send(connection, &format!("$queue/jobs/{verb}"), "", &user);
        let after = self.depot.ends_of(name);
        let place = place_of(&handed);
        if after > before {
            self.groups[consumer.group].done.insert(place);
        }
        let kind = usize::from(verb == "$reject");
        let is_end = after > before || kind == 1;
        consumer.asked.insert(id, is_end.then_some((kind, place)));
        if verb != "$extend" {
            consumer.holds.remove(at);
        }
    }

    fn come_or_go(&mut self) {
        let index = self.random.below(self.consumers.len());
        if self.consumers[index].connection.is_none() {
            return self.come(index);
        }
        let consumer = &mut self.consumers[index];
        let connection = consumer.connection.take().expect("it is there");
        if self.random.chance(50) {
            let packet = Packet::Disconnect(Disconnect::default());
            self.depot.stage.send(connection, &packet);
        }
        self.depot.stage.sift(connection, |_| false);
        self.depot.stage.hang_up(connection);
        consumer.holds.clear();
        consumer.asked.clear();
    }

    fn come(&mut self, index: usize) {
        let consumer = &mut self.consumers[index];
        let connection = self.depot.stage.asks(Connect {
            client_id: &consumer.id,
            clean_start: true,
            ..Connect::new(V5)
        });
        self.depot.stage.decide(0);
        let group = [("consumer-group", GROUPS[consumer.group])];
        let subscribe = Subscribe {
            packet_id: 1,
            user: group.to_vec(),
            filters: vec![request("$queue/jobs", QOS_1)],
            ..Subscribe::default()
        };
        self.depot
            .stage
            .send(connection, &Packet::Subscribe(subscribe));
        consumer.connection = Some(connection);
    }

    fn crash(&mut self) {
        self.depot.crash_now();
        self.publisher = self.depot.client("publisher");
        self.waiting.clear();
        self.puller = Puller::default();
        for group in &mut self.groups {
            // What nobody was told of may not have been durable.
            let done = std::mem::replace(&mut group.done, group.told[0].clone());
            group.maybe.extend(done);
            group.attempts.clear();
        }
        for consumer in &mut self.consumers {
            consumer.connection = None;
            consumer.holds.clear();
            consumer.asked.clear();
        }
    }

    /// All that is owed comes in the end.
    fn end(&mut self) {
        for _ in 0..400 {
            self.depot.settle();
            self.look();
            let mut is_idle = true;
            for index in 0..self.consumers.len() {
                let Some(connection) = self.consumers[index].connection else {
                    self.come(index);
                    is_idle = false;
                    continue;
                };
                let consumer = &mut self.consumers[index];
                let name = GROUPS[consumer.group];
                for handed in std::mem::take(&mut consumer.holds) {
                    is_idle = false;
                    let user = [("message-id", handed.id())];
                    let before = self.depot.ends_of(name);
                    let id = self.depot.send(connection, "$queue/jobs/$ack", "", &user);
                    if self.depot.ends_of(name) > before {
                        self.groups[consumer.group].done.insert(place_of(&handed));
                    }
                    consumer.asked.insert(id, None);
                }
            }
            if is_idle && self.depot.depth(JOBS) == 0 {
                break;
            }
            self.depot.settle();
            self.look();
            self.depot.stage.wait(10_000);
        }
        assert_eq!(self.depot.depth(JOBS), 0, "nothing is owed for ever");
        let dead = self.depot.dead_letters();
        let places = self.depot.places();
        for payload in &self.stored {
            let place = places[payload];
            for (name, group) in GROUPS.iter().zip(&self.groups) {
                let is_dead = dead.contains(&((*name).to_owned(), payload.clone()));
                let is_done = group.done.contains(&place) || group.maybe.contains(&place);
                assert!(is_done || is_dead, "group {name} never had {payload}");
            }
        }
    }
}

fn place_of(handed: &Handed) -> Place {
    let partition = handed.user["partition"].parse().unwrap();
    (partition, handed.user["offset"].parse().unwrap())
}

fn live(seed: u64) {
    let mut life = Life::new(seed);
    for _ in 0..STEPS {
        life.step();
    }
    life.end();
}

#[test]
fn nothing_is_lost_or_settled_twice() {
    for seed in 0..40 {
        println!("seed {seed}");
        live(seed);
    }
}

/// `cargo test --release -- --ignored many_seeds_of_queues`
#[test]
#[ignore = "long"]
fn many_seeds_of_queues() {
    let count = std::env::var("SEEDS").map_or(1_000, |text| text.parse().unwrap());
    for seed in 0..count {
        println!("seed {seed}");
        live(seed);
    }
}
