//! What a queue costs without sockets and disk: `cargo bench -p headrace-core --bench queues`.
//!
//! The loops of the original design were such ones: messages of 25 bytes with a property, into
//! memory. Consumption is that of one client, bytes in and bytes out, as it settles one way or
//! another. Settlement is measured with a thousand and a million deliveries open, and a restart with
//! ten million messages settled in no order.

use std::time::Instant;

use headrace_core::hash::Key;
use headrace_core::queue::{Chunk, Ledger, Meta, Next, Settled};
use headrace_core::testing::kernels::{Kernel, Queue, QueueShape, NOW, POLICY};
use headrace_core::testing::Random;

const PLAIN: Meta = Meta {
    key: None,
    priority: 0,
    since_ms: 0,
    due_ms: 0,
    delay_ms: u64::MAX,
    expires_ms: i64::MAX,
};

fn main() {
    let publishers = QueueShape {
        publishers: 1,
        ..QueueShape::default()
    };
    let rate = 1e9 / timed(publishers, 4_000_000);
    println!("enqueue, one partition, QoS 1, in memory: {rate:>12.0} messages/s");
    for (batch, name) in [
        (0, "by PUBACK"),
        (1, "by $ack"),
        (100, "a hundred by one $ack"),
    ] {
        let consumer = QueueShape {
            consumers: 1,
            payload: 100,
            ack_batch: batch,
            ..QueueShape::default()
        };
        let nanos = timed(consumer, 1_000_000);
        println!("from the log to a client, settled {name}: {nanos:>6.0} ns a message");
    }
    for open in [1_000, 1_000_000] {
        let nanos = settle(open);
        println!("deliver and settle, {open:>9} open: {nanos:>12.0} ns a message");
    }
    let (millis, bytes) = restart(10_000_000);
    println!("10,000,000 settled in no order: {bytes} bytes of records, read in {millis:.1} ms");
}

/// Nanoseconds for a message; the rate is what is left of a second.
fn timed(shape: QueueShape, count: u32) -> f64 {
    let mut queue = Queue::new(&shape);
    let began = Instant::now();
    assert_eq!(queue.run(count.into()), u64::from(count));
    began.elapsed().as_secs_f64() * 1e9 / f64::from(count)
}

/// Nanoseconds for a delivery and its settlement, records of settlement included.
fn settle(open: i64) -> f64 {
    let rounds = 1_000_000_u32;
    let mut ledger = Ledger::new(POLICY, Settled::new(0), open + i64::from(rounds), Key(1, 2));
    let mut random = Random::new(1);
    let mut out: Vec<(i64, u32)> = Vec::new();
    let next = |ledger: &mut Ledger| loop {
        match ledger.next(NOW) {
            Next::Deliver(offset) => return (offset, ledger.deliver(offset, 1, NOW)),
            Next::Read(offset) => ledger.met(offset, PLAIN, NOW),
            other => unreachable!("{other:?}"),
        }
    };
    while out.len() < open as usize {
        out.push(next(&mut ledger));
    }
    let began = Instant::now();
    for round in 0..rounds {
        let at = random.below(out.len());
        let (offset, attempt) = std::mem::replace(&mut out[at], next(&mut ledger));
        ledger.ack(offset, attempt).unwrap();
        if round % 100 == 0 {
            // A round of the log of sessions, as often as one has come after so many.
            for chunk in ledger.settled_mut().take_changed() {
                std::hint::black_box(ledger.settled_mut().record(chunk));
            }
        }
    }
    began.elapsed().as_secs_f64() * 1e9 / f64::from(rounds)
}

fn restart(count: i64) -> (f64, usize) {
    let mut settled = Settled::new(0);
    let mut random = Random::new(2);
    for offset in 1..count {
        if random.chance(90) {
            settled.settle(offset);
        }
    }
    let records: Vec<(i64, Vec<u8>)> = settled
        .numbers()
        .filter_map(|chunk| Some((chunk, settled.whole_record(chunk)?)))
        .collect();
    let bytes = records.iter().map(|(_, record)| record.len()).sum();
    let began = Instant::now();
    let chunks = records.iter().map(|(number, record)| {
        let mut chunk = Chunk::default();
        chunk.take_in(record).unwrap();
        (*number, chunk)
    });
    let again = Settled::restored(chunks).unwrap();
    let mut ledger = Ledger::new(POLICY, again, count, Key(1, 2));
    assert_eq!(ledger.next(NOW), Next::Read(0));
    (began.elapsed().as_secs_f64() * 1e3, bytes)
}
