//! What a queue costs without sockets and disk: `cargo bench -p headrace-core --bench queues`.
//!
//! The loops of the original design were such ones: messages of 25 bytes with a property, into
//! memory. Consumption is that of one client, bytes in and bytes out, as it settles one way or
//! another. Settlement is measured with a thousand and a million deliveries open, and a restart with
//! ten million messages settled in no order.

use std::time::Instant;

use headrace_core::hash::Key;
use headrace_core::mqtt::packet::{
    Connect, Packet, Publish, PublishProperties, QoS, Subscribe, SubscriptionRequest, Version,
};
use headrace_core::mqtt::{decode, encode};
use headrace_core::queue::{read, Backoff, Ledger, Meta, Next, Order, Policy, Settled};
use headrace_core::record::{set_base_offset, BatchBuilder};
use headrace_core::switchboard::{
    Depth, Limits, QueueSettings, Sharing, Switchboard, BATCH_BYTES_MAX,
};
use headrace_core::testing::Random;
use headrace_core::Now;

const NOW: Now = Now {
    mono_ms: 1,
    wall_ms: 1_700_000_000_000,
};

const POLICY: Policy = Policy {
    order: Order::None,
    deadline_ms: 30_000,
    backoff: Backoff {
        initial_ms: 1_000,
        growth_percent: 200,
        max_ms: 60_000,
        jitter_percent: 20,
    },
    failures_max: 10,
    total_ms: 0,
    read_ahead: 1_000,
    prioritises: false,
};

const PLAIN: Meta = Meta {
    key: None,
    priority: 0,
    since_ms: 0,
    due_ms: 0,
    expires_ms: i64::MAX,
};

/// Messages that come in one read of a socket, or of the log.
const READ: u16 = 200;

/// Stands before what settles a delivery.
const MESSAGE_ID: &[u8] = b"message-id";

fn main() {
    let rate = enqueue(4_000_000);
    println!("enqueue, one partition, QoS 1, in memory: {rate:>12.0} messages/s");
    for (batch, name) in [
        (0, "by PUBACK"),
        (1, "by $ack"),
        (100, "a hundred by one $ack"),
    ] {
        let nanos = consume(1_000_000, batch);
        println!("from the log to a client, settled {name}: {nanos:>6.0} ns a message");
    }
    for open in [1_000, 1_000_000] {
        let nanos = settle(open);
        println!("deliver and settle, {open:>9} open: {nanos:>12.0} ns a message");
    }
    let (millis, bytes) = restart(10_000_000);
    println!("10,000,000 settled in no order: {bytes} bytes of records, read in {millis:.1} ms");
}

/// A queue `bench` of one partition, and a client on connection 1.
fn board() -> Switchboard {
    let limits = Limits {
        receive_max: 65_535,
        in_flight_max: 65_535,
        ..Limits::default()
    };
    let mut board = Switchboard::new(Key(1, 2), limits);
    board.keep_sessions(1, u64::MAX, BATCH_BYTES_MAX);
    board.bind(7, 1, &[], "property:partition-key").unwrap();
    let settings = QueueSettings {
        name: "bench".into(),
        policy: POLICY,
        ttl_ms: 0,
        depth: Depth::default(),
        batch_messages: 500,
        prefetch: 100,
        is_fnv1a: true,
        is_paused: false,
        sharing: Sharing::Shared,
        keeps_dead: true,
        dead_letters: None,
    };
    board.set_queue(7, settings).unwrap();
    board.opened(1, NOW).unwrap();
    board.writable(1, usize::MAX).unwrap();
    let connect = Connect {
        client_id: "client",
        ..Connect::new(Version::V5)
    };
    let mut bytes = Vec::new();
    encode::packet(Version::V5, &Packet::Connect(connect.into()), &mut bytes);
    board.receive(1, &bytes, NOW).unwrap();
    let request = board.collect(NOW).unwrap().decisions[0].request;
    board.decided(request, 0, NOW).unwrap();
    board
}

fn enqueue(count: u32) -> f64 {
    let mut board = board();
    let mut bytes = Vec::new();
    for packet_id in 1..=READ {
        let publish = Publish {
            topic: "$queue/bench",
            qos: QoS::AtLeastOnce,
            packet_id,
            payload: b"0123456789012345678901234",
            properties: PublishProperties {
                user: vec![("kind", "bench")],
                ..PublishProperties::default()
            },
            ..Publish::default()
        };
        encode::publish(Version::V5, &publish, &mut bytes);
    }
    let began = Instant::now();
    let mut acknowledged = 0;
    while acknowledged < count {
        board.receive(1, &bytes, NOW).unwrap();
        while let Some(effects) = board.collect(NOW) {
            for append in effects.appends {
                board.durable(append.ticket, true, NOW).unwrap();
            }
        }
        acknowledged += u32::from(READ);
    }
    f64::from(acknowledged) / began.elapsed().as_secs_f64()
}

/// Nanoseconds for a message of 100 bytes from the log to a client and its settlement, each by a
/// publish to `$ack` or `batch` of them by one; 0 for by PUBACK.
fn consume(count: u32, batch: usize) -> f64 {
    let mut board = board();
    let settle = if batch > 0 { "ack" } else { "puback" };
    let filter = format!("$queue/bench?settle={settle}&prefetch=1000");
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
    let mut bytes = Vec::new();
    encode::packet(Version::V5, &Packet::Subscribe(subscribe), &mut bytes);
    board.receive(1, &bytes, NOW).unwrap();
    let mut builder = BatchBuilder::new();
    for _ in 0..READ {
        let topic = (&b"mqtt.topic"[..], Some(&b"$queue/bench/0"[..]));
        builder.push(NOW.wall_ms, None, Some(&[b'x'; 100]), [topic]);
    }
    let mut records = builder.finish();
    let began = Instant::now();
    let (mut end, mut settled) = (0, 0);
    while end < i64::from(count) {
        set_base_offset(&mut records, end);
        end += i64::from(READ);
        board.advanced(7, 0, end);
        while settled < end {
            let heard = turn(&mut board, &records);
            settled += answer(&mut board, &heard, batch);
        }
    }
    turn(&mut board, &records);
    assert_eq!(
        board.queue_groups(7).unwrap()[0].counts[2],
        u64::from(count)
    );
    began.elapsed().as_secs_f64() * 1e9 / f64::from(count)
}

/// All that the shell has to do: what is due is durable at once, and read. What clients are sent.
fn turn(board: &mut Switchboard, records: &[u8]) -> Vec<u8> {
    let mut heard = Vec::new();
    loop {
        let effects = board.collect(NOW);
        board.persist(NOW);
        let mut is_over = effects.is_none();
        for (_, bytes) in effects.into_iter().flat_map(|effects| effects.writes) {
            heard.extend(bytes);
        }
        while let Some(append) = board.session_append() {
            is_over = false;
            board.session_appended(append.ticket, 0);
            board.durable(append.ticket, true, NOW).unwrap();
        }
        while let Some(read) = board.next_read(NOW) {
            is_over = false;
            board.fed(read.ticket, records.into(), 0, NOW);
        }
        if is_over {
            return heard;
        }
    }
}

/// Answers and settles what came; how many messages that were.
fn answer(board: &mut Switchboard, heard: &[u8], batch: usize) -> i64 {
    let (mut bytes, mut handed, mut rest) = (Vec::new(), Vec::new(), heard);
    while let Some(frame) = decode::frame(rest, usize::MAX).unwrap() {
        let (packet, behind) = rest.split_at(frame.bytes());
        if packet[0] >> 4 == 3 {
            let digits = packet[1..].iter().take_while(|byte| **byte >= 0x80);
            let body = &packet[2 + digits.count()..];
            let at = 2 + usize::from(u16::from_be_bytes([body[0], body[1]]));
            bytes.extend([0x40, 2, body[at], body[at + 1]]);
            let mut names = body.windows(MESSAGE_ID.len()).rev();
            let behind = names.position(|window| window == MESSAGE_ID).unwrap();
            let value = &body[body.len() - behind..];
            let length = usize::from(u16::from_be_bytes([value[0], value[1]]));
            handed.push(std::str::from_utf8(&value[2..2 + length]).unwrap());
        }
        rest = behind;
    }
    for (packet_id, ids) in (1..).zip(handed.chunks(batch.max(1))) {
        if batch > 0 {
            let publish = Publish {
                topic: "$queue/bench/$ack",
                qos: QoS::AtLeastOnce,
                packet_id,
                properties: PublishProperties {
                    user: ids.iter().map(|id| ("message-id", *id)).collect(),
                    ..PublishProperties::default()
                },
                ..Publish::default()
            };
            encode::publish(Version::V5, &publish, &mut bytes);
        }
    }
    board.receive(1, &bytes, NOW).unwrap();
    handed.len() as i64
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
                std::hint::black_box(ledger.settled().record(chunk));
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
        .filter_map(|chunk| Some((chunk, settled.record(chunk)?)))
        .collect();
    let bytes = records.iter().map(|(_, record)| record.len()).sum();
    let began = Instant::now();
    let chunks = records
        .iter()
        .map(|(chunk, record)| (*chunk, read(record).unwrap()));
    let again = Settled::restored(chunks).unwrap();
    let mut ledger = Ledger::new(POLICY, again, count, Key(1, 2));
    assert_eq!(ledger.next(NOW), Next::Read(0));
    (began.elapsed().as_secs_f64() * 1e3, bytes)
}
