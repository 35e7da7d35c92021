//! Target: a switchboard with four connections. Whatever they send, however it is cut, decided and
//! stored, its invariants hold, and it sends nothing that is no packet.

use headrace_core::hash::Key;
use headrace_core::mqtt::decode;
use headrace_core::mqtt::packet::Version;
use headrace_core::switchboard::{Append, Effects, Limits, Switchboard};
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

fn limits() -> Limits {
    Limits {
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
        ..Limits::default()
    }
}

/// A piece begins with what is done, and to which connection (`action * 4 + connection`).
fn run(input: &Input) -> Words {
    let mut world = World::new();
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
            5 => world.ends(number % 4 != 3),
            6 => world.decide(number),
            _ => world.credit(at, usize::from(number) * 8),
        }
        world.collect();
    }
    world.end()
}

struct World {
    board: Switchboard,
    now: Now,
    connections: [Option<Connection>; CONNECTIONS],
    next_connection: u64,
    appends: Vec<Append>,
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
    fn new() -> Self {
        let mut board = Switchboard::new(Key(1, 2), limits());
        board.bind(1, 2, &["s/#"], "topic").unwrap();
        Self {
            board,
            now: Now {
                mono_ms: 1_000,
                wall_ms: 1_700_000_000_000,
            },
            connections: [const { None }; CONNECTIONS],
            next_connection: 1,
            appends: Vec::new(),
            requests: Vec::new(),
            words: Words::default(),
        }
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
        if !self.appends.is_empty() {
            let ticket = self.appends.remove(0).ticket;
            self.board.durable(ticket, is_stored, self.now).unwrap();
        }
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
        while let Some(effects) = self.board.collect(self.now) {
            self.perform(effects);
            self.board.validate();
        }
    }

    fn perform(&mut self, effects: Effects) {
        self.appends.extend(effects.appends);
        let asked = effects.decisions.iter().map(|asked| asked.request);
        self.requests.extend(asked);
        for (id, bytes) in effects.writes {
            let connection = self.find(id);
            connection.bytes.extend(bytes);
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
    fn end(mut self) -> Words {
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
                .say((name, value.checked_ilog2().map(|log| log / 2)));
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
