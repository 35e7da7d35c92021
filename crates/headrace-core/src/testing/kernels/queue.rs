//! A queue through a switchboard alone: enqueued, delivered, settled, and never on a disk.

use super::{Kernel, NOW, READ_BYTES};
use crate::hash::Key;
use crate::mqtt::packet::{
    Connect, Packet, Publish, PublishProperties, QoS, Subscribe, SubscriptionRequest, Version,
};
use crate::mqtt::{decode, encode};
use crate::queue::{Backoff, Order, Policy};
use crate::record::{set_base_offset, BatchBuilder};
use crate::switchboard::{Depth, Limits, QueueSettings, Sharing, Switchboard, BATCH_BYTES_MAX};

/// Messages that come in one read of a socket, or of the log, at most.
const READ: usize = 200;

/// Stream of the queue.
const STREAM: u64 = 7;

/// Stands before what settles a delivery.
const MESSAGE_ID: &[u8] = b"message-id";

/// How the queue is used.
#[derive(Clone, Copy, Debug)]
pub struct QueueShape {
    /// Of the queue; with consumers, one.
    pub partitions: u32,
    /// Clients that publish; their messages have keys where there are several partitions.
    pub publishers: u32,
    /// Clients of one group that are given messages and settle them.
    pub consumers: u32,
    /// Bytes of a message.
    pub payload: usize,
    /// Deliveries that one publish to `$ack` settles; 0 for by PUBACK.
    pub ack_batch: usize,
}

impl Default for QueueShape {
    fn default() -> Self {
        Self {
            partitions: 1,
            publishers: 0,
            consumers: 0,
            payload: 25,
            ack_batch: 1,
        }
    }
}

/// A queue, its publishers on connections from 1 on, and behind them its consumers.
pub struct Queue {
    board: Switchboard,
    shape: QueueShape,
    /// What a publisher sends at a time.
    publishes: Vec<u8>,
    /// What the log has of as many messages.
    records: Vec<u8>,
    /// Messages of a read.
    read: usize,
    /// Messages of the log, and those that were settled.
    end: i64,
    settled: i64,
    /// What each connection has been sent and has not answered.
    heard: Vec<Vec<u8>>,
}

impl Queue {
    /// One whose clients are connected.
    ///
    /// # Panics
    /// Consumers take one partition.
    pub fn new(shape: &QueueShape) -> Self {
        assert!(shape.consumers == 0 || shape.partitions == 1);
        let read = (READ_BYTES / shape.payload.max(1)).clamp(1, READ);
        let payload = vec![b'x'; shape.payload];
        let mut queue = Self {
            board: board(shape.partitions),
            shape: *shape,
            publishes: publishes(read, shape.partitions, &payload),
            records: records(read, &payload),
            read,
            end: 0,
            settled: 0,
            heard: vec![Vec::new(); 1 + (shape.publishers + shape.consumers) as usize],
        };
        for connection in 1..queue.heard.len() as u64 {
            connect(&mut queue.board, connection);
            if connection > u64::from(shape.publishers) {
                queue.consume(connection);
            }
        }
        queue
    }

    fn consume(&mut self, connection: u64) {
        let settle = if self.shape.ack_batch > 0 {
            "ack"
        } else {
            "puback"
        };
        let filter = format!("$queue/bench?group=g&settle={settle}&prefetch=1000");
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
        self.receive(connection, &bytes);
    }

    fn receive(&mut self, connection: u64, bytes: &[u8]) {
        let received = self.board.receive(connection, bytes, NOW);
        received.expect("it is open");
    }

    /// A read from each publisher, to their PUBACKs.
    fn enqueue(&mut self) -> u64 {
        let publishes = std::mem::take(&mut self.publishes);
        for connection in 1..=u64::from(self.shape.publishers) {
            self.receive(connection, &publishes);
        }
        self.publishes = publishes;
        let mut answered = 0;
        while let Some(effects) = self.board.collect(NOW) {
            for append in effects.appends {
                let ended = self.board.durable(append.ticket, true, NOW);
                ended.expect("it is on its way");
            }
            for (connection, bytes) in effects.writes {
                if connection <= u64::from(self.shape.publishers) {
                    answered += bytes.len() / 4; // a PUBACK each
                } else {
                    self.heard[connection as usize].extend(bytes.into_bytes());
                }
            }
        }
        let enqueued = self.read as u64 * u64::from(self.shape.publishers);
        assert_eq!(answered as u64, enqueued, "each publish has its PUBACK");
        enqueued
    }

    /// As many messages as a read has, from the log to consumers, until all are settled.
    fn deliver(&mut self) -> u64 {
        set_base_offset(&mut self.records, self.end);
        self.end += self.read as i64;
        self.board.advanced(STREAM, 0, self.end);
        while self.settled < self.end {
            self.turn();
            let before = self.settled;
            for connection in 1..self.heard.len() {
                self.answer(connection);
            }
            assert!(self.settled > before, "there are messages to settle");
        }
        self.turn();
        self.read as u64
    }

    /// All that the shell has to do: what is due is durable at once, and read.
    fn turn(&mut self) {
        loop {
            let effects = self.board.collect(NOW);
            self.board.persist(NOW);
            let mut is_over = effects.is_none();
            for (connection, bytes) in effects.into_iter().flat_map(|effects| effects.writes) {
                self.heard[connection as usize].extend(bytes.into_bytes());
            }
            while let Some(append) = self.board.session_append() {
                is_over = false;
                self.board.session_appended(append.ticket, 0);
                let ended = self.board.durable(append.ticket, true, NOW);
                ended.expect("it is on its way");
            }
            while let Some(read) = self.board.next_read(NOW) {
                is_over = false;
                let records = self.records.as_slice().into();
                self.board.fed(read.ticket, records, &[], NOW);
            }
            if is_over {
                return;
            }
        }
    }

    /// Answers and settles what came to a connection.
    fn answer(&mut self, connection: usize) {
        let heard = std::mem::take(&mut self.heard[connection]);
        let (mut bytes, mut handed, mut rest) = (Vec::new(), Vec::new(), &heard[..]);
        while let Some(frame) = decode::frame(rest, usize::MAX).expect("it is a packet") {
            let (packet, behind) = rest.split_at(frame.bytes());
            if packet[0] >> 4 == 3 {
                let digits = packet[1..].iter().take_while(|byte| **byte >= 0x80);
                let body = &packet[2 + digits.count()..];
                let at = 2 + usize::from(u16::from_be_bytes([body[0], body[1]]));
                bytes.extend([0x40, 2, body[at], body[at + 1]]);
                handed.push(message_id(&body[at..]));
            }
            rest = behind;
        }
        let batch = self.shape.ack_batch;
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
        self.settled += handed.len() as i64;
        if !bytes.is_empty() {
            self.receive(connection as u64, &bytes);
        }
    }

    /// How many messages the group has settled, as the switchboard counts.
    ///
    /// # Panics
    /// Without consumers.
    pub fn settled(&self) -> u64 {
        let groups = self.board.queue_groups(STREAM);
        groups.expect("it is a queue")[0].counts[2]
    }
}

impl Kernel for Queue {
    fn run(&mut self, operations: u64) -> u64 {
        let mut done = 0;
        while done < operations {
            let enqueued = (self.shape.publishers > 0).then(|| self.enqueue());
            let delivered = (self.shape.consumers > 0).then(|| self.deliver());
            done += enqueued.or(delivered).expect("somebody uses the queue");
        }
        if self.shape.consumers > 0 {
            assert_eq!(self.settled(), self.end as u64);
        }
        done
    }
}

/// As a queue has it that says nothing else.
pub const POLICY: Policy = Policy {
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
    ttl_ms: 0,
    read_ahead: 1_000,
    prioritises: false,
};

/// A switchboard with the queue `bench`.
fn board(partitions: u32) -> Switchboard {
    let limits = Limits {
        receive_max: 65_535,
        in_flight_max: 65_535,
        ..Limits::default()
    };
    let mut board = Switchboard::new(Key(1, 2), limits);
    board.keep_sessions(1, u64::MAX, BATCH_BYTES_MAX);
    let bound = board.bind(STREAM, partitions, &[], "property:partition-key");
    bound.expect("the key is well formed");
    let settings = QueueSettings {
        name: "bench".into(),
        policy: POLICY,
        depth: Depth::default(),
        batch_messages: 500,
        prefetch: 100,
        is_fnv1a: true,
        is_paused: false,
        sharing: Sharing::Shared,
        keeps_dead: true,
        dead_letters: None,
    };
    board.set_queue(STREAM, settings).expect("it is bound");
    board
}

fn connect(board: &mut Switchboard, connection: u64) {
    board.opened(connection, NOW).expect("it is new");
    board.writable(connection, usize::MAX).expect("it is open");
    let client_id = format!("client{connection}");
    let connect = Connect {
        client_id: &client_id,
        ..Connect::new(Version::V5)
    };
    let mut bytes = Vec::new();
    encode::packet(Version::V5, &Packet::Connect(connect.into()), &mut bytes);
    board.receive(connection, &bytes, NOW).expect("it is open");
    let effects = board.collect(NOW).expect("a decision is due");
    let decided = board.decided(effects.decisions[0].request, 0, NOW);
    decided.expect("it waits for that");
    while board.collect(NOW).is_some() {}
}

/// Publishes with a property, which is their key where there are several partitions.
fn publishes(count: usize, partitions: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for packet_id in 1..=count as u16 {
        let key = format!("key-{}", packet_id % 64);
        let property = if partitions > 1 {
            ("partition-key", &*key)
        } else {
            ("kind", "bench")
        };
        let publish = Publish {
            topic: "$queue/bench",
            qos: QoS::AtLeastOnce,
            packet_id,
            payload,
            properties: PublishProperties {
                user: vec![property],
                ..PublishProperties::default()
            },
            ..Publish::default()
        };
        encode::publish(Version::V5, &publish, &mut bytes);
    }
    bytes
}

fn records(count: usize, payload: &[u8]) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for _ in 0..count {
        let topic = (&b"mqtt.topic"[..], Some(&b"$queue/bench/0"[..]));
        builder.push(NOW.wall_ms, None, Some(payload), [topic]);
    }
    builder.finish()
}

/// What settles a delivery, of what is behind its topic.
fn message_id(body: &[u8]) -> &str {
    let mut names = body.windows(MESSAGE_ID.len());
    let at = names.position(|window| window == MESSAGE_ID);
    let value = &body[at.expect("a delivery has one") + MESSAGE_ID.len()..];
    let length = usize::from(u16::from_be_bytes([value[0], value[1]]));
    std::str::from_utf8(&value[2..2 + length]).expect("properties are UTF-8")
}
