//! Random lives of clients that leave wills, each cut short by a kill or a power cut: whatever a
//! CONNACK has accepted is published once, and given to a session that lasts once, unless the
//! client said good-bye and saw its connection end; then it never is. A failure names its seed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::catch_unwind;

use headrace_core::mqtt::packet::{Ack, Connect, Disconnect, Packet};
use headrace_core::switchboard::Limits;
use headrace_core::testing::Random;

use super::platter::{Death, Platter, SESSIONS};
use super::stage::*;

const LIVES: usize = 6;
const EVENTS: u64 = 120;
const PARTITIONS: u32 = 3;
const CLIENTS: u64 = 5;

#[test]
fn wills_survive_crashes() {
    run(0..15);
}

#[test]
#[ignore = "minutes; for changes of wills"]
fn wills_survive_crashes_for_many_seeds() {
    run(15..5_000);
}

fn run(seeds: Range<u64>) {
    let mut judged = [0; 3];
    for seed in seeds {
        let Ok(fates) = catch_unwind(|| World::new(seed).run()) else {
            panic!("seed {seed}");
        };
        for fate in fates {
            judged[fate as usize] += 1;
        }
    }
    assert!(judged.iter().all(|count| *count > 0), "{judged:?}");
}

/// What a will is known to be in for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// CONNACK has not come, or a DISCONNECT is on its way.
    Open,
    Published,
    Forgotten,
}

struct World {
    random: Random,
    stage: Stage,
    platter: Platter,
    /// By payload.
    fates: BTreeMap<String, Fate>,
    /// Connection, payload of its will, whether it said good-bye; by client.
    here: BTreeMap<u64, (u64, String, bool)>,
    watcher: u64,
    heard: BTreeMap<String, usize>,
    /// Packet ids that it has taken and that are not released.
    unreleased: BTreeSet<u16>,
}

impl World {
    fn board() -> Stage {
        let mut stage = Stage::new(Limits::default());
        stage.switchboard.keep_sessions(PARTITIONS, 4_000, 500);
        stage
    }

    fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            stage: Self::board(),
            platter: Platter::new(&[(SESSIONS, PARTITIONS)]),
            fates: BTreeMap::new(),
            here: BTreeMap::new(),
            watcher: 0,
            heard: BTreeMap::new(),
            unreleased: BTreeSet::new(),
        }
    }

    fn run(&mut self) -> Vec<Fate> {
        for life in 0..LIVES {
            self.watch(life == 0);
            for _ in 0..self.random.below(EVENTS) {
                match self.random.below(100) {
                    0..=24 => self.connect(),
                    25..=39 => self.leave(),
                    40..=44 => self.stage.wait(500),
                    _ => self.disk_works(),
                }
                self.go_on();
            }
            self.crash();
        }
        self.watch(false);
        self.stage.wait(1_000_000);
        self.settle();
        self.judge()
    }

    /// The session that gets all wills.
    fn watch(&mut self, is_first: bool) {
        self.watcher = self.stage.asks(Connect {
            client_id: "watcher",
            clean_start: false,
            session_expiry_s: Some(u32::MAX),
            ..plain(V5)
        });
        self.stage.decide(0);
        if is_first {
            self.stage
                .subscribe_with(self.watcher, request("gone/#", QOS_2));
        }
        self.settle();
    }

    fn connect(&mut self) {
        let client = self.random.below(CLIENTS);
        let payload = format!("{}", self.fates.len());
        let expiry_s = self.random.pick(&[0, 0, 60]);
        let will = Will {
            topic: "gone/a",
            payload: payload.as_bytes(),
            qos: QOS_2,
            properties: PublishProperties {
                will_delay: self.random.chance(30).then_some(1),
                ..PublishProperties::default()
            },
            ..Will::default()
        };
        let client_id = format!("client {client}");
        // A clean start, for a will that waits for its client would be over by its return.
        let connection = self.stage.asks(Connect {
            client_id: &client_id,
            clean_start: true,
            session_expiry_s: Some(expiry_s),
            will: Some(will),
            ..plain(V5)
        });
        self.stage.decide(0);
        self.fates.insert(payload.clone(), Fate::Open);
        if let Some(older) = self.here.insert(client, (connection, payload, false)) {
            self.look(&older);
        }
    }

    fn leave(&mut self) {
        let client = self.random.below(CLIENTS);
        let Some((connection, payload, is_leaving)) = self.here.remove(&client) else {
            return;
        };
        if is_leaving || self.random.chance(50) {
            self.look(&(connection, payload, is_leaving));
            self.stage.hang_up(connection);
            return;
        }
        self.look(&(connection, payload.clone(), false));
        let fate = self.fates.get_mut(&payload).unwrap();
        *fate = Fate::Open;
        let goodbye = Packet::Disconnect(Disconnect::default());
        self.stage.send(connection, &goodbye);
        self.here.insert(client, (connection, payload, true));
    }

    /// What a client has been told by now.
    fn look(&mut self, (connection, payload, is_leaving): &(u64, String, bool)) {
        let fate = self.fates.get_mut(payload).unwrap();
        for line in self.stage.hears(*connection) {
            match &*line {
                "CONNACK 0x00" if !is_leaving => *fate = Fate::Published,
                "closed: client_disconnect" => *fate = Fate::Forgotten,
                _ => {}
            }
        }
    }

    fn disk_works(&mut self) {
        for _ in 0..self.random.below(8) {
            for ticket in self.platter.step() {
                self.stage.ends(ticket, true);
            }
            if self.random.chance(30) {
                self.platter.step_chore();
            }
        }
    }

    /// What is due goes to the disk, and clients look at what they were told.
    fn go_on(&mut self) {
        for append in std::mem::take(&mut self.stage.written) {
            let ticket = append.ticket;
            let offset = self.platter.append_session(append);
            self.stage.switchboard.session_appended(ticket, offset);
        }
        for trim in std::mem::take(&mut self.stage.trims) {
            self.platter.trim(trim);
        }
        self.platter.submit();
        for (client, at) in self.here.clone() {
            self.look(&at);
            if self.fates[&at.1] == Fate::Forgotten {
                self.here.remove(&client);
            }
        }
        for line in self.stage.hears(self.watcher) {
            let (head, payload) = line.split_once(": ").unwrap_or((&line, ""));
            let mut words = head.split(' ');
            let kind = words.next();
            let ack = |packet_id: &str| Ack {
                packet_id: packet_id.parse().unwrap(),
                ..Ack::default()
            };
            let answer = match kind {
                Some("PUBLISH") => {
                    let ack = ack(words.nth(4).unwrap());
                    if self.unreleased.insert(ack.packet_id) {
                        *self.heard.entry(payload.to_owned()).or_default() += 1;
                    }
                    Packet::Pubrec(ack)
                }
                Some("PUBREL") => {
                    let ack = ack(words.next().unwrap());
                    self.unreleased.remove(&ack.packet_id);
                    Packet::Pubcomp(ack)
                }
                Some("CONNACK" | "SUBACK") => continue,
                _ => panic!("{line}"),
            };
            self.stage.send(self.watcher, &answer);
        }
    }

    fn settle(&mut self) {
        self.go_on();
        while !self.platter.is_idle() {
            for ticket in self.platter.settle() {
                self.stage.ends(ticket, true);
            }
            self.go_on();
        }
    }

    fn crash(&mut self) {
        self.here.clear();
        let death = self.random.pick(&[Death::Kill, Death::PowerCut]);
        self.platter.die(death, self.random.below(u64::MAX));
        let now = self.stage.now;
        self.stage = Self::board();
        self.stage.now.wall_ms = now.wall_ms + 10;
        for partition in 0..PARTITIONS {
            let batches = self.platter.read((SESSIONS, partition), 0);
            self.stage.switchboard.restore(partition, &batches).unwrap();
        }
        self.stage.switchboard.restored(self.stage.now);
        self.stage.run();
    }

    fn judge(&self) -> Vec<Fate> {
        for (payload, fate) in &self.fates {
            let copies = self.heard.get(payload).copied().unwrap_or(0);
            let is_right = match fate {
                Fate::Open => copies <= 1,
                Fate::Published => copies == 1,
                Fate::Forgotten => copies == 0,
            };
            assert!(is_right, "will {payload}, {fate:?}, came {copies} times");
        }
        self.fates.values().copied().collect()
    }
}
