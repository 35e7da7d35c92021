//! How long one call holds up the loop while a partition of the log of sessions is written anew:
//! `cargo bench -p headrace-core --bench sessions`.
//!
//! The switchboard alone, with a disk that is as fast as it can be: what is left is its own work.

use std::time::{Duration, Instant};

use headrace_core::hash::Key;
use headrace_core::mqtt::encode;
use headrace_core::mqtt::packet::{Connect, Packet, QoS, Subscribe, SubscriptionRequest, Version};
use headrace_core::switchboard::{Limits, Switchboard, BATCH_BYTES_MAX};
use headrace_core::Now;

const NOW: Now = Now {
    mono_ms: 1,
    wall_ms: 1_700_000_000_000,
};
const PARTITIONS: u32 = 16;

fn main() {
    for sessions in [100_000, 1_000_000] {
        Bench::new(sessions).checkpoint(sessions);
    }
}

struct Bench(Switchboard);

impl Bench {
    /// So many sessions that wait for their clients, with a subscription each.
    fn new(sessions: usize) -> Self {
        let limits = Limits {
            sessions_max: sessions,
            sessions_kept_max: sessions,
            ..Limits::default()
        };
        let mut board = Switchboard::new(Key(1, 2), limits);
        board.keep_sessions(PARTITIONS, u64::MAX, BATCH_BYTES_MAX);
        let mut bench = Self(board);
        for connection in 0..sessions as u64 {
            bench.session(connection);
        }
        bench
    }

    fn session(&mut self, connection: u64) {
        let client_id = format!("meter-{connection}");
        let filter = format!("site/{client_id}/set");
        let connect = Connect {
            client_id: &client_id,
            session_expiry_s: Some(86_400),
            ..Connect::new(Version::V5)
        };
        let subscribe = Subscribe {
            packet_id: 1,
            filters: vec![SubscriptionRequest {
                filter: &filter,
                qos: QoS::AtLeastOnce,
                no_local: false,
                retain_as_published: false,
                retain_handling: 0,
            }],
            ..Subscribe::default()
        };
        let board = &mut self.0;
        board.opened(connection, NOW).unwrap();
        board.writable(connection, usize::MAX).unwrap();
        let mut bytes = Vec::new();
        encode::packet(Version::V5, &Packet::Connect(connect.into()), &mut bytes);
        board.receive(connection, &bytes, NOW).unwrap();
        let request = board.collect(NOW).unwrap().decisions[0].request;
        board.decided(request, 0, NOW).unwrap();
        bytes.clear();
        encode::packet(Version::V5, &Packet::Subscribe(subscribe), &mut bytes);
        board.receive(connection, &bytes, NOW).unwrap();
        self.turn();
        self.0.closed(connection, NOW).unwrap();
        self.turn();
    }

    /// What is due is durable at once; how long it took, and how many bytes it is.
    fn turn(&mut self) -> (Duration, usize) {
        let start = Instant::now();
        self.0.collect(NOW);
        self.0.persist(NOW);
        let took = start.elapsed();
        let appends: Vec<_> = std::iter::from_fn(|| self.0.session_append()).collect();
        for append in &appends {
            self.0.session_appended(append.ticket, 0);
            self.0.durable(append.ticket, true, NOW).unwrap();
        }
        (took, appends.iter().map(|append| append.batch.len()).sum())
    }

    fn checkpoint(&mut self, sessions: usize) {
        self.0.keep_sessions(PARTITIONS, 1, BATCH_BYTES_MAX);
        let (mut turns, mut bytes) = (Vec::new(), 0);
        while self.checkpoints() < u64::from(PARTITIONS) {
            let (took, of_turn) = self.turn();
            turns.push(took);
            bytes += of_turn;
        }
        let all: Duration = turns.iter().sum();
        turns.sort_unstable();
        println!(
            "{sessions:>9} sessions: {} rounds, {} MiB, {:.1} s; a call {:.1} ms, the longest {:.1} ms",
            turns.len(),
            bytes >> 20,
            all.as_secs_f64(),
            turns[turns.len() / 2].as_secs_f64() * 1e3,
            turns[turns.len() - 1].as_secs_f64() * 1e3,
        );
    }

    fn checkpoints(&self) -> u64 {
        let statistics = self.0.statistics();
        let name = "mqtt_sessions_checkpoints_total";
        let found = statistics.iter().find(|(known, _)| *known == name);
        found.expect("it is counted").1
    }
}
