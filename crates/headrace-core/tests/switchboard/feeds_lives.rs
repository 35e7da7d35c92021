//! Lives of subscribers of a stream: records come, clients acknowledge late, go and come back, and
//! the node is killed between any two writes of its log. A failure names its seed.

use std::collections::{BTreeMap, BTreeSet};

use headrace_core::mqtt::decode;
use headrace_core::mqtt::packet::{Ack, Connect, Packet};
use headrace_core::record::Codec;
use headrace_core::session::Ending;
use headrace_core::switchboard::Limits;
use headrace_core::testing::Random;

use super::shelf::*;
use super::stage::*;

const PARTITIONS: u32 = 3;
const STEPS: usize = 80;

/// A client as the specification wants it.
struct Reader {
    id: String,
    qos: QoS,
    connection: Option<u64>,
    /// The last offset of each partition.
    last: BTreeMap<u32, i64>,
    /// Since it came back, the last one: what it may have comes again, in order.
    run: BTreeMap<u32, i64>,
    /// At `QoS` 2, what it has received and was not told to release.
    held: BTreeSet<u16>,
    /// Packets that it has not acknowledged.
    owes: Vec<Packet<'static>>,
    lasts: bool,
}

impl Reader {
    fn new(id: &str, qos: QoS, lasts: bool) -> Self {
        Self {
            id: id.to_owned(),
            qos,
            connection: None,
            last: BTreeMap::new(),
            run: BTreeMap::new(),
            held: BTreeSet::new(),
            owes: Vec::new(),
            lasts,
        }
    }

    fn come(&mut self, stage: &mut Stage, logs: &mut Shelf, receive_maximum: u16) {
        self.run.clear();
        self.owes.clear();
        let client = stage.asks(Connect {
            client_id: &self.id,
            receive_maximum: Some(receive_maximum),
            session_expiry_s: self.lasts.then_some(100_000),
            ..Connect::new(V5)
        });
        stage.decide(0);
        self.connection = Some(client);
        logs.tell(stage);
    }

    /// Looks at what has come.
    fn look(&mut self, stage: &mut Stage) {
        let Some(connection) = self.connection else {
            return;
        };
        let bytes = stage.raw(connection);
        let mut at = 0;
        while at < bytes.len() {
            let frame = decode::frame(&bytes[at..], usize::MAX).unwrap().unwrap();
            at += frame.bytes();
            let ack = |packet_id| Ack {
                packet_id,
                ..Ack::default()
            };
            match decode::packet(Some(V5), frame).unwrap() {
                Packet::Publish(publish) => {
                    let id = publish.packet_id;
                    let is_new = self.qos != QOS_2 || self.held.insert(id);
                    if is_new {
                        self.take(std::str::from_utf8(publish.payload).unwrap());
                    }
                    match self.qos {
                        QOS_0 => {}
                        QOS_1 => self.owes.push(Packet::Puback(ack(id))),
                        QOS_2 => self.owes.push(Packet::Pubrec(ack(id))),
                    }
                }
                Packet::Pubrel(release) => {
                    self.held.remove(&release.packet_id);
                    self.owes.push(Packet::Pubcomp(ack(release.packet_id)));
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, payload: &str) {
        let (partition, offset) = payload.split_once(':').unwrap();
        let (partition, offset) = (partition.parse().unwrap(), offset.parse().unwrap());
        let last = self.last.entry(partition).or_insert(-1);
        assert!(
            offset <= *last + 1,
            "{}: {payload} skips after {last}",
            self.id
        );
        if self.qos != QOS_1 {
            assert_eq!(offset, *last + 1, "{}: {payload} comes twice", self.id);
        }
        if let Some(before) = self.run.insert(partition, offset) {
            assert!(offset > before, "{}: {payload} out of order", self.id);
        }
        *last = offset.max(*last);
    }

    fn acknowledge(&mut self, stage: &mut Stage, count: usize) {
        let Some(connection) = self.connection else {
            return;
        };
        for packet in self.owes.drain(..count.min(self.owes.len())) {
            stage.send(connection, &packet);
        }
    }
}

fn lasting(shelf: Option<(&Shelf, &Stage)>) -> Stage {
    let mut stage = Stage::new(Limits::default());
    // So little that partitions are written anew at times.
    stage.switchboard.keep_sessions(2, 2_000, 1 << 20);
    if let Some((shelf, before)) = shelf {
        shelf.bind(&mut stage);
        stage.now = before.now;
        stage.restore(before);
    }
    stage
}

fn life(seed: u64) {
    let mut random = Random::new(seed);
    let mut stage = lasting(None);
    let mut shelf = Shelf::new(&mut stage, PARTITIONS);
    let mut readers = [
        Reader::new("one", QOS_1, true),
        Reader::new("two", QOS_2, true),
        Reader::new("zero", QOS_0, false),
    ];
    for reader in &mut readers {
        reader.come(&mut stage, &mut shelf, 5);
        stage.write_all(Ending::Stored);
        let connection = reader.connection.unwrap();
        shelf.subscribe(&mut stage, connection, ("$stream/s/#", reader.qos), Some(0));
        stage.write_all(Ending::Stored);
    }
    for _ in 0..STEPS {
        let at = random.between(0, 1);
        match random.below(10_u64) {
            0..=3 => {
                let codec = random.pick(&[Codec::None, Codec::Zstd]);
                let (partition, count) = (random.below(PARTITIONS), random.between(1, 12));
                shelf.produce(&mut stage, partition, count, codec);
            }
            4..=6 => {
                let count = random.between(0, 8);
                readers[at].acknowledge(&mut stage, count);
            }
            7 => {
                if let Some(connection) = readers[at].connection.take() {
                    stage.hang_up(connection);
                } else {
                    let window = random.between(1, 9) as u16;
                    readers[at].come(&mut stage, &mut shelf, window);
                }
            }
            8 => stage.write_all(Ending::Stored),
            _ if random.chance(30) => {
                // What was given to the disk and not written is lost, with what clients were not sent.
                for reader in &mut readers {
                    reader.connection = None;
                }
                let next = lasting(Some((&shelf, &stage)));
                stage = next;
                for reader in &mut readers[..2] {
                    reader.come(&mut stage, &mut shelf, 5);
                }
                stage.write_all(Ending::Stored);
                readers[2].last.clear();
            }
            _ => {}
        }
        shelf.serve(&mut stage);
        for reader in &mut readers {
            reader.look(&mut stage);
        }
    }
    for reader in &mut readers[..2] {
        if reader.connection.is_none() {
            reader.come(&mut stage, &mut shelf, 9);
        }
    }
    let ends: i64 = (0..PARTITIONS).map(|partition| shelf.end(partition)).sum();
    let has_all = |reader: &Reader, shelf: &Shelf| {
        let last = |partition| reader.last.get(&partition).map_or(-1, |last| *last);
        (0..PARTITIONS).all(|partition| last(partition) + 1 == shelf.end(partition))
    };
    for _ in 0..4 * ends + 10 {
        if readers[..2].iter().all(|reader| has_all(reader, &shelf)) {
            break;
        }
        stage.write_all(Ending::Stored);
        shelf.serve(&mut stage);
        for reader in &mut readers[..2] {
            reader.look(&mut stage);
            reader.acknowledge(&mut stage, usize::MAX);
        }
    }
    for reader in &readers[..2] {
        assert!(has_all(reader, &shelf), "{} has all", reader.id);
    }
    stage.switchboard.validate();
}

#[test]
fn each_subscriber_gets_every_record_in_order_whoever_goes_or_is_killed() {
    for seed in 0..40 {
        let lived = std::panic::catch_unwind(|| life(seed));
        assert!(lived.is_ok(), "seed {seed}");
    }
}
