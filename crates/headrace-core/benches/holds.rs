//! How long one call holds up the loop when very much hangs on one event:
//! `cargo bench -p headrace-core --bench holds [-- NUMBER]`.
//!
//! The switchboard alone, with a disk that is as fast as it can be. Each event is had three times,
//! each with a fresh switchboard: what counts is the least of the three longest calls, for a machine
//! that others use makes calls longer and none shorter.

use std::time::{Duration, Instant};

use headrace_core::hash::Key;
use headrace_core::mqtt::encode;
use headrace_core::mqtt::packet::{
    Connect, Packet, Publish, QoS, Subscribe, SubscriptionRequest, Unsubscribe, Version,
};
use headrace_core::switchboard::{Limits, Switchboard, BATCH_BYTES_MAX};
use headrace_core::Now;

const NOW: Now = Now {
    mono_ms: 1,
    wall_ms: 1_700_000_000_000,
};
/// Of one session, nearly as many as it may have, and as many as a packet holds.
const FILTERS: usize = 60_000;
const PUBLISHER: u64 = u64::MAX;

fn main() {
    let asked = std::env::args().find_map(|text| text.parse().ok());
    let sizes = asked.map_or(vec![100_000, 1_000_000], |number| vec![number]);
    for size in sizes {
        hold(&format!("QoS 1 to {size} clients"), 1, || {
            let mut board = Board::new(false);
            (0..size as u64).for_each(|id| board.listener(id, false));
            board
        });
        hold(&format!("QoS 1 to {size} sessions on the log"), 1, || {
            let mut board = Board::new(true);
            (0..size as u64).for_each(|id| board.listener(id, true));
            board
        });
        hold(&format!("QoS 0 where {size} filters match"), 0, || {
            let mut board = Board::new(false);
            overlapping(&mut board, size, "");
            board
        });
        hold(&format!("QoS 1 to {size} groups"), 1, || {
            let mut board = Board::new(false);
            overlapping(&mut board, size, "$share");
            board
        });
        hold(&format!("QoS 1 to {size} groups on the log"), 1, || {
            let mut board = Board::new(true);
            overlapping(&mut board, size, "$share");
            board
        });
    }
    for (name, shares, on_log) in [
        ("", false, false),
        (" on the log", false, true),
        (" shared", true, false),
    ] {
        one_session(name, shares, on_log);
    }
}

/// One publish.
fn hold(name: &str, qos: u8, new: impl Fn() -> Board) {
    let longest = (0..3).map(|_| {
        let mut board = new();
        board.connect(PUBLISHER, false);
        board.turns();
        let publish = Publish {
            topic: "a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a",
            qos: if qos == 0 {
                QoS::AtMostOnce
            } else {
                QoS::AtLeastOnce
            },
            packet_id: qos.into(),
            payload: b"21.5",
            ..Publish::default()
        };
        let first = board.send(PUBLISHER, &Packet::Publish(publish));
        board.turns().after(first)
    });
    tell(name, &longest.collect::<Vec<_>>());
}

/// Subscriptions that all match the topic, of as many sessions as may have so many: each level of
/// twenty is `a` or `+`.
fn overlapping(board: &mut Board, count: usize, share: &str) {
    for (id, first) in (0..count).step_by(FILTERS).enumerate() {
        board.connect(id as u64, board.on_log);
        let numbers = first..count.min(first + FILTERS);
        let filter = |number: usize| match share {
            "" => {
                let levels = (0..20).map(|at| ["a", "+"][number >> at & 1]);
                levels.collect::<Vec<_>>().join("/")
            }
            share => format!("{share}/{number}/#"),
        };
        let filters: Vec<_> = numbers.map(filter).collect();
        for filters in filters.chunks(FILTERS / 3) {
            board.subscribe(id as u64, filters);
            board.turns();
        }
    }
}

/// All subscriptions of one session come and go.
fn one_session(name: &str, shares: bool, on_log: bool) {
    let prefix = if shares { "$share/g/" } else { "" };
    let filters: Vec<_> = (0..FILTERS)
        .map(|number| format!("{prefix}{number}"))
        .collect();
    let (mut comes, mut goes, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..3 {
        let mut board = Board::new(on_log);
        board.connect(1, on_log);
        board.turns();
        let first = board.subscribe(1, &filters);
        comes.push(board.turns().after(first));
        if shares {
            // What waits for its window would be looked through for each of them.
            board.connect(PUBLISHER, false);
            for number in 0..FILTERS {
                let publish = Publish {
                    topic: &number.to_string(),
                    qos: QoS::AtLeastOnce,
                    packet_id: 1,
                    ..Publish::default()
                };
                board.send(PUBLISHER, &Packet::Publish(publish));
            }
            board.switchboard.collect(NOW);
        }
        let unsubscribe = Unsubscribe {
            packet_id: 2,
            filters: filters.iter().map(|filter| &**filter).collect(),
            ..Unsubscribe::default()
        };
        let first = board.send(1, &Packet::Unsubscribe(unsubscribe));
        goes.push(board.turns().after(first));
        board.subscribe(1, &filters);
        board.turns();
        let begun = Instant::now();
        board.switchboard.delete_session("c1", 1, NOW);
        let first = begun.elapsed();
        ends.push(board.turns().after(first));
    }
    tell(&format!("SUBSCRIBE of {FILTERS} filters{name}"), &comes);
    tell(&format!("UNSUBSCRIBE of them{name}"), &goes);
    tell(&format!("the end of their session{name}"), &ends);
}

fn tell(name: &str, calls: &[Calls]) {
    let best = calls.iter().min_by_key(|calls| calls.longest);
    let best = best.expect("there are three");
    println!(
        "{name:<44} longest call {:>8.2} ms ({}), all {:>7.2} s",
        best.longest.as_secs_f64() * 1e3,
        best.what,
        best.all.as_secs_f64(),
    );
}

/// What calls took.
#[derive(Default)]
struct Calls {
    longest: Duration,
    what: &'static str,
    all: Duration,
}

impl Calls {
    fn time<T>(&mut self, what: &'static str, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let answer = call();
        self.add(what, begun.elapsed());
        answer
    }

    fn add(&mut self, what: &'static str, took: Duration) {
        self.all += took;
        if took > self.longest {
            (self.longest, self.what) = (took, what);
        }
    }

    fn after(mut self, first: Duration) -> Self {
        self.add("receive", first);
        self
    }
}

struct Board {
    switchboard: Switchboard,
    on_log: bool,
}

impl Board {
    fn new(on_log: bool) -> Self {
        let limits = Limits {
            receive_max: 65_535,
            queued_bytes_of_node_max: 1 << 32,
            sessions_max: 2_000_000,
            sessions_kept_max: 2_000_000,
            ..Limits::default()
        };
        let mut switchboard = Switchboard::new(Key(1, 2), limits);
        if on_log {
            switchboard.keep_sessions(4, u64::MAX, BATCH_BYTES_MAX);
        }
        Self {
            switchboard,
            on_log,
        }
    }

    fn send(&mut self, id: u64, packet: &Packet<'_>) -> Duration {
        let mut bytes = Vec::new();
        encode::packet(Version::V5, packet, &mut bytes);
        let begun = Instant::now();
        self.switchboard.receive(id, &bytes, NOW).unwrap();
        begun.elapsed()
    }

    fn connect(&mut self, id: u64, lasts: bool) {
        self.switchboard.opened(id, NOW).unwrap();
        self.switchboard.writable(id, usize::MAX).unwrap();
        let connect = Connect {
            client_id: &format!("c{id}"),
            session_expiry_s: lasts.then_some(86_400),
            receive_maximum: Some(10),
            ..Connect::new(Version::V5)
        };
        self.send(id, &Packet::Connect(Box::new(connect)));
        let effects = self.switchboard.collect(NOW).unwrap();
        let request = effects.decisions[0].request;
        self.switchboard.decided(request, 0, NOW).unwrap();
    }

    /// One that subscribes to all; away where it lasts.
    fn listener(&mut self, id: u64, lasts: bool) {
        self.connect(id, lasts);
        self.subscribe(id, &["#".to_owned()]);
        self.turns();
        if lasts {
            self.switchboard.closed(id, NOW).unwrap();
            self.turns();
        }
    }

    fn subscribe(&mut self, id: u64, filters: &[String]) -> Duration {
        let request = |filter| SubscriptionRequest {
            filter,
            qos: QoS::AtLeastOnce,
            no_local: false,
            retain_as_published: false,
            retain_handling: 0,
        };
        let subscribe = Subscribe {
            packet_id: 1,
            filters: filters.iter().map(|filter| request(filter)).collect(),
            ..Subscribe::default()
        };
        self.send(id, &Packet::Subscribe(subscribe))
    }

    /// All that is due, with a disk that stores it at once.
    fn turns(&mut self) -> Calls {
        let mut calls = Calls::default();
        let board = &mut self.switchboard;
        loop {
            let effects = calls.time("collect", || board.collect(NOW));
            calls.time("persist", || board.persist(NOW));
            let appends: Vec<_> = std::iter::from_fn(|| board.session_append()).collect();
            for append in &appends {
                board.session_appended(append.ticket, 0);
                calls.time("durable", || {
                    board.durable(append.ticket, true, NOW).unwrap();
                });
            }
            if effects.is_none() && appends.is_empty() {
                return calls;
            }
        }
    }
}
