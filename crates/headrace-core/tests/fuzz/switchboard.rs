//! Target: a switchboard with four connections. Whatever they send, however it is cut, decided and
//! stored, its invariants hold, and it sends nothing that is no packet; with sessions and retained
//! messages in memory or on logs, with rules of access or without, and groups that have keys or not.

use std::collections::BTreeMap;
use std::sync::Arc;

use headrace_core::access::{Draft, Rules};
use headrace_core::hash::Key;
use headrace_core::mqtt::decode;
use headrace_core::mqtt::packet::Version;
use headrace_core::queue::{Backoff, Order, Policy};
use headrace_core::record::{set_base_offset, Batches};
use headrace_core::session::Ending;
use headrace_core::switchboard::{
    Access, Depth, Effects, Excess, Limits, QueueSettings, Sharing, Strategy, Switchboard, Users,
};
use headrace_core::Now;

use super::engine::{Corpus, Input, Words};

pub const CORPUS: Corpus = Corpus {
    target: run,
    lines: include_str!("switchboard.txt"),
    file: "switchboard.txt",
};

const CONNECTIONS: usize = 4;

/// What policy may say.
const DECISIONS: [u8; 6] = [0x00, 0x18, 0x86, 0x87, 0x8C, 0x97];

fn limits(has_rules: bool, has_keys: bool) -> Limits {
    let strategies = [Strategy::LeastInFlight, Strategy::HashTopic];
    Limits {
        shared_strategy: strategies[usize::from(has_keys)],
        packet_bytes_max: 300,
        receive_max: 3,
        topic_alias_max: 2,
        in_flight_max: 3,
        queued_messages_max: 4,
        queued_bytes_max: 2_000,
        queued_bytes_of_node_max: 6_000,
        group_messages_max: 3,
        group_bytes_max: 1_500,
        retained_messages_max: 3,
        retained_bytes_max: 1_500,
        outbound_bytes_max: 1_000,
        sessions_max: 5,
        sessions_kept_max: 3,
        undurable_bytes_max: 600,
        crowd_min: if has_rules { 1 } else { 4096 },
        crowd_turn_max: 1,
        ..Limits::default()
    }
}

/// A piece begins with what is done, and to which connection (`action * 4 + connection`); in the
/// first one the bits above say of what kind the switchboard is.
fn run(input: &Input) -> Words {
    let kind = input.iter().flatten().next().map_or(0, |what| what >> 5);
    let kind @ (lasts, has_rules, has_keys) = (kind & 1 != 0, kind & 2 != 0, kind & 4 != 0);
    let mut world = World::new(lasts, has_rules, has_keys);
    for piece in input {
        let Some((what, rest)) = piece.split_first() else {
            continue;
        };
        let at = usize::from(what % 4);
        let number = rest.first().copied().unwrap_or(0);
        match what / 4 % 8 {
            0 | 1 => world.receive(at, &[rest]),
            2 => world.receive(at, &rest.chunks(1).collect::<Vec<_>>()),
            3 => world.hang_up(at),
            4 => world.wait(u64::from(number) * u64::from(number)),
            5 if number >= 0xF0 => world.is_full = number % 2 == 1,
            5 => world.ends(number % 4 != 3),
            6 => world.decide(number),
            _ if world.has_rules && number > 0x80 => world.control(number % 2 == 0),
            _ => world.credit(at, usize::from(number) * 8),
        }
        world.collect();
    }
    world.end(kind)
}

/// Nobody may publish or subscribe below `a` and `s/d`.
fn access() -> Access {
    let list = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut rules = Rules::new(true);
    let deny = Draft {
        allows: false,
        actions: &list(&["publish", "subscribe", "will"]),
        topics: &list(&["a/#", "s/d/#"]),
        ..Draft::default()
    };
    rules.add(&deny).unwrap();
    Access {
        rules: Arc::new(rules),
        lets_anonymous: true,
        ..Access::default()
    }
}

/// The queue `q`, which has its own dead letters.
fn queue() -> QueueSettings {
    QueueSettings {
        name: "q".into(),
        policy: Policy {
            order: Order::Key,
            deadline_ms: 1_000,
            backoff: Backoff {
                initial_ms: 10,
                growth_percent: 200,
                max_ms: 100,
                jitter_percent: 50,
            },
            failures_max: 3,
            total_ms: 0,
            ttl_ms: 60_000,
            read_ahead: 2,
            prioritises: true,
        },
        depth: Depth {
            messages_max: 20,
            bytes_max: 0,
            excess: Excess::DeadLetter,
        },
        batch_messages: 3,
        prefetch: 2,
        is_fnv1a: true,
        is_paused: false,
        sharing: Sharing::Shared,
        keeps_dead: true,
        dead_letters: Some(3),
    }
}

struct World {
    board: Switchboard,
    /// Of the queue: its log, as far as it is durable.
    log: Vec<Vec<u8>>,
    end: i64,
    /// By ticket, what is on its way to it.
    pending: BTreeMap<u64, Vec<u8>>,
    now: Now,
    connections: [Option<Connection>; CONNECTIONS],
    next_connection: u64,
    /// What is on its way to the disk: whether it is of the log of sessions, and its ticket.
    appends: Vec<(bool, u64)>,
    /// The disk refuses at once.
    is_full: bool,
    has_rules: bool,
    /// Not yet decided.
    requests: Vec<u64>,
    words: Words,
}

struct Connection {
    id: u64,
    is_closed: bool,
    /// Written and not looked at.
    bytes: Vec<u8>,
}

impl World {
    fn new(lasts: bool, has_rules: bool, has_keys: bool) -> Self {
        let mut board = Switchboard::new(Key(1, 2), limits(has_rules, has_keys));
        board.bind(1, 2, &["s/#"], "topic").unwrap();
        if lasts {
            board.bind(2, 1, &[], "topic").unwrap();
            board.keep_retained(2).unwrap();
            board.keep_sessions(2, 2_000, 1_000);
            board.bind(3, 1, &[], "topic").unwrap();
            board.set_queue(3, queue()).unwrap();
        }
        let mut world = Self {
            board,
            log: Vec::new(),
            end: 0,
            pending: BTreeMap::new(),
            now: Now {
                mono_ms: 1_000,
                wall_ms: 1_700_000_000_000,
            },
            connections: [const { None }; CONNECTIONS],
            next_connection: 1,
            appends: Vec::new(),
            is_full: false,
            has_rules,
            requests: Vec::new(),
            words: Words::default(),
        };
        world.control(has_rules);
        world
    }

    fn control(&mut self, has_rules: bool) {
        let users = Users::with_hasher(Key(1, 2));
        self.board.control(has_rules.then(access), &users, self.now);
    }

    /// A connection that still is open, or a new one.
    fn connection(&mut self, at: usize) -> u64 {
        let known = self.connections[at].as_ref();
        if let Some(open) = known.filter(|connection| !connection.is_closed) {
            return open.id;
        }
        self.hang_up(at);
        let id = self.next_connection;
        self.next_connection += 1;
        self.connections[at] = Some(Connection {
            id,
            is_closed: false,
            bytes: Vec::new(),
        });
        self.board.opened(id, self.now).unwrap();
        self.board.writable(id, 1 << 20).unwrap();
        id
    }

    fn receive(&mut self, at: usize, chunks: &[&[u8]]) {
        let id = self.connection(at);
        for chunk in chunks {
            self.board.receive(id, chunk, self.now).unwrap();
            self.board.validate();
        }
    }

    fn hang_up(&mut self, at: usize) {
        if let Some(connection) = self.connections[at].take() {
            self.board.closed(connection.id, self.now).unwrap();
        }
    }

    fn wait(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.wall_ms += ms as i64;
        self.board.tick(self.now);
    }

    fn ends(&mut self, is_stored: bool) {
        if self.appends.is_empty() {
            return;
        }
        let (is_of_sessions, ticket) = self.appends.remove(0);
        let pending = self.pending.remove(&ticket).filter(|_| is_stored);
        self.board.durable(ticket, is_stored, self.now).unwrap();
        if let Some(mut batch) = pending {
            set_base_offset(&mut batch, self.end);
            let header = Batches::new(&batch).next().unwrap().unwrap().header;
            self.end = header.next_offset();
            self.log.push(batch);
            self.board.advanced(3, 0, self.end);
        }
        if is_of_sessions && !is_stored {
            // What comes behind rests on it, so that is refused, too.
            let all = std::mem::take(&mut self.appends).into_iter();
            let (others, rest): (Vec<_>, Vec<_>) = all.partition(|(of_sessions, _)| *of_sessions);
            self.appends = rest;
            for (_, ticket) in others {
                self.board.durable(ticket, false, self.now).unwrap();
            }
        }
    }

    fn refuse(&mut self, ticket: u64) {
        let ended = self.board.durable(ticket, Ending::NoRoom, self.now);
        ended.expect("it is on its way");
        self.board.validate();
    }

    fn decide(&mut self, number: u8) {
        for request in std::mem::take(&mut self.requests) {
            let code = DECISIONS[usize::from(number) % DECISIONS.len()];
            // Who said no method cannot be challenged: then it is let in.
            if self.board.decided(request, code, self.now).is_err() {
                self.board.decided(request, 0, self.now).unwrap();
            }
        }
    }

    fn credit(&mut self, at: usize, bytes: usize) {
        if let Some(connection) = &self.connections[at] {
            self.board.writable(connection.id, bytes).unwrap();
        }
    }

    fn collect(&mut self) {
        self.board.validate();
        loop {
            let effects = self.board.collect(self.now);
            self.board.persist(self.now);
            let before = self.appends.len();
            while let Some(append) = self.board.session_append() {
                if self.is_full {
                    self.refuse(append.ticket);
                    let next = self.board.session_append();
                    assert!(next.is_none(), "what follows a refused one stays with it");
                    break;
                }
                self.board.session_appended(append.ticket, 0);
                self.appends.push((true, append.ticket));
            }
            let has_read = self.read();
            if effects.is_none() && self.appends.len() == before && !has_read {
                return;
            }
            self.perform(effects.unwrap_or_default());
            self.board.validate();
        }
    }

    /// Reads the log of the queue, all of it, where that is asked for.
    fn read(&mut self) -> bool {
        let mut has_read = false;
        while let Some(asked) = self.board.next_read(self.now) {
            has_read = true;
            let from = self.log.partition_point(|batch| {
                let header = Batches::new(batch).next().unwrap().unwrap().header;
                header.next_offset() <= asked.offset
            });
            let bytes = self.log[from..].concat();
            if bytes.is_empty() {
                self.board.unread(asked.ticket, self.now);
            } else {
                self.board.fed(asked.ticket, bytes.into(), &[], self.now);
            }
        }
        has_read
    }

    fn perform(&mut self, effects: Effects) {
        for append in &effects.appends {
            if append.stream == 3 && !self.is_full {
                self.pending.insert(append.ticket, append.batch.clone());
            }
            if self.is_full {
                self.refuse(append.ticket);
            } else {
                self.appends.push((false, append.ticket));
            }
        }
        let asked = effects.decisions.iter().map(|asked| asked.request);
        self.requests.extend(asked);
        for (id, bytes) in effects.writes {
            let connection = self.find(id);
            connection.bytes.extend(bytes.into_bytes());
            let words = read(&mut connection.bytes);
            for word in words {
                self.words.say(word);
            }
        }
        for (id, reason) in effects.closes {
            let connection = self.find(id);
            assert!(!connection.is_closed, "closed once");
            connection.is_closed = true;
            self.words.say(reason);
        }
    }

    fn find(&mut self, id: u64) -> &mut Connection {
        let mut open = self.connections.iter_mut().flatten();
        open.find(|connection| connection.id == id)
            .expect("effects are for connections that there are")
    }

    /// The socket of everyone is lost, and the disk ends what it has begun.
    fn end(mut self, kind: (bool, bool, bool)) -> Words {
        self.is_full = false;
        for at in 0..CONNECTIONS {
            self.hang_up(at);
        }
        self.collect();
        while !self.appends.is_empty() {
            self.ends(true);
            self.collect();
        }
        for (name, value) in self.board.statistics() {
            // How often, roughly: once and many times are two things.
            self.words
                .say((kind, name, value.checked_ilog2().map(|log| log / 2)));
        }
        self.words
    }
}

/// Takes whole packets off, each of which one version must know.
fn read(bytes: &mut Vec<u8>) -> Vec<(u8, Option<u8>)> {
    let mut words = Vec::new();
    while let Some(frame) = decode::frame(bytes, usize::MAX).expect("it was framed") {
        let length = frame.bytes();
        let versions = [Version::V311, Version::V5];
        let is_packet = versions.map(|version| decode::packet(Some(version), frame).is_ok());
        assert!(is_packet.contains(&true), "{:02x?}", &bytes[..length]);
        let code = match bytes[0] >> 4 {
            3 => None,
            14 => bytes.get(2).copied(),
            _ => bytes.get(4).copied().filter(|_| length > 4),
        };
        words.push((bytes[0], code));
        bytes.drain(..length);
    }
    words
}
