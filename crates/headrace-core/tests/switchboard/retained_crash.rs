//! Random lives of retained messages, each cut short: what a life has acknowledged, clears
//! included, or something newer, is retained in the next. A life begins with the last state that
//! was kept, which is read page by page while publishes go on, and with the records behind it.
//! A failure names its seed and replays from it.

use std::collections::BTreeMap;

use headrace_core::mqtt::packet::Publish;
use headrace_core::switchboard::Append;

use super::fuzz::Random;
use super::retained_log::{lasting, PARTITIONS, STREAM};
use super::stage::*;

const SEEDS: u64 = 60;
const LIVES: usize = 8;
const EVENTS: u64 = 120;
const TOPICS: u64 = 6;

#[test]
fn what_was_acknowledged_is_retained_in_the_next_life() {
    run(0..SEEDS);
}

#[test]
#[ignore = "minutes; for changes of what lasts"]
fn what_was_acknowledged_is_retained_in_the_next_life_for_many_seeds() {
    run(SEEDS..10_000);
}

fn run(seeds: std::ops::Range<u64>) {
    let (mut kept, mut lost) = (0, 0);
    for seed in seeds {
        let life = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            (0..LIVES).for_each(|_| world.live());
            (world.kept, world.lost)
        });
        let Ok(counts) = life else {
            panic!("seed {seed}");
        };
        kept += counts.0;
        lost += counts.1;
    }
    assert!(kept > 0 && lost > 0, "{kept} states, {lost} appends lost");
}

/// One partition on disk.
#[derive(Clone, Default)]
struct Log {
    batches: Vec<Vec<u8>>,
    state: Vec<u8>,
    /// Batches that the state holds.
    applied: usize,
}

/// A state that is being read.
struct Reading {
    partition: u32,
    applied: usize,
    state: Vec<u8>,
    from: String,
}

/// One topic: what was published there, in the order of arrivals.
#[derive(Default)]
struct Topic {
    published: Vec<String>,
    /// So many of these, the last of them, are known to last.
    acknowledged: usize,
}

struct World {
    random: Random,
    stage: Stage,
    logs: Vec<Log>,
    /// Publishes that are not acknowledged: topic and place, by connection, in their order.
    waiting: BTreeMap<u64, Vec<(u64, usize)>>,
    topics: Vec<Topic>,
    reading: Option<Reading>,
    publishers: Vec<u64>,
    kept: usize,
    lost: usize,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            random: Random(seed),
            stage: lasting(headrace_core::switchboard::Limits::default()),
            logs: vec![Log::default(); PARTITIONS as usize],
            waiting: BTreeMap::new(),
            topics: (0..TOPICS).map(|_| Topic::default()).collect(),
            reading: None,
            publishers: Vec::new(),
            kept: 0,
            lost: 0,
        }
    }

    fn live(&mut self) {
        self.start();
        for _ in 0..self.random.below(EVENTS) {
            match self.random.below(100) {
                0..=49 => self.publish(),
                50..=79 => self.durable(),
                80..=83 => self.delete(),
                _ => self.keep(),
            }
        }
        self.lost += self.stage.appends.len();
    }

    /// The power was cut: a new switchboard reads what lasts, and is compared.
    fn start(&mut self) {
        let now = self.stage.now;
        self.stage = lasting(headrace_core::switchboard::Limits::default());
        self.stage.now.wall_ms = now.wall_ms + 1_000;
        self.reading = None;
        self.waiting.clear();
        for log in &self.logs {
            let tail = log.batches[log.applied..].concat();
            for records in [&log.state, &tail] {
                let board = &mut self.stage.switchboard;
                board.restore_retained(records, self.stage.now).unwrap();
            }
        }
        let mut found = BTreeMap::new();
        let page = self
            .stage
            .switchboard
            .retained("#", "", 100, self.stage.now);
        for each in page.unwrap().found {
            let payload = String::from_utf8(each.payload.to_vec()).unwrap();
            found.insert(each.topic, payload);
        }
        for (name, topic) in self.topics.iter_mut().enumerate() {
            let payload = found.remove(&format!("t/{name}")).unwrap_or_default();
            let at = topic.published.iter().rposition(|each| *each == payload);
            let at = at.map_or(0, |at| at + 1);
            assert!(at > 0 || payload.is_empty(), "{payload} was published");
            let acknowledged = topic.acknowledged;
            assert!(
                at >= acknowledged,
                "t/{name}: {at} is older than {acknowledged}"
            );
            topic.acknowledged = at;
            topic.published.truncate(at);
        }
        assert!(found.is_empty());
        let names = ["a", "b", "c"];
        self.publishers = names.map(|name| self.stage.client(V5, name)).to_vec();
    }

    fn publish(&mut self) {
        let topic = self.random.below(TOPICS);
        let connection = self.random.pick(&self.publishers.clone());
        let qos = self.random.pick(&[QOS_0, QOS_1, QOS_1, QOS_2]);
        let published = &mut self.topics[topic as usize].published;
        let payload = if self.random.chance(30) {
            String::new()
        } else {
            format!("{topic}.{}", published.len() + 1)
        };
        published.push(payload.clone());
        let place = published.len();
        let waiting = self.waiting.entry(connection).or_default();
        let packet_id = if qos == QOS_0 {
            0
        } else {
            1 + waiting.len() as u16
        };
        if qos > QOS_0 {
            waiting.push((topic, place));
        }
        let packet = headrace_core::mqtt::packet::Packet::Publish(Publish {
            topic: &format!("t/{topic}"),
            qos,
            retain: true,
            packet_id,
            payload: payload.as_bytes(),
            ..Publish::default()
        });
        self.stage.send(connection, &packet);
        self.hear(connection);
    }

    /// Somebody deletes what there is: no promise, and no publish.
    fn delete(&mut self) {
        let topic = self.random.below(TOPICS);
        let board = &mut self.stage.switchboard;
        let filter = format!("t/{topic}");
        let page = board.delete_retained(&filter, "", 1, self.stage.now);
        if page.unwrap().found > 0 {
            self.topics[topic as usize].published.push(String::new());
        }
        self.stage.run();
    }

    /// The oldest append of a partition ends: stored, or refused, which leaves no trace.
    fn durable(&mut self) {
        let partition = self.random.below(u64::from(PARTITIONS)) as u32;
        let mut appends = self.stage.appends.iter();
        let Some(at) = appends.position(|each| each.partition == partition) else {
            return;
        };
        let Append {
            stream,
            batch,
            ticket,
            ..
        } = self.stage.appends.remove(at);
        assert_eq!(stream, STREAM);
        let is_stored = self.random.chance(95);
        if is_stored {
            self.logs[partition as usize].batches.push(batch);
        }
        self.stage.ends(ticket, is_stored);
        for connection in self.publishers.clone() {
            self.hear(connection);
        }
    }

    /// Answers come in order; a PUBREC is an acknowledgement too.
    fn hear(&mut self, connection: u64) {
        for line in self.stage.hears(connection) {
            let waiting = self.waiting.get_mut(&connection).unwrap();
            let mut words = line.split(' ').skip(1);
            let packet_id: u16 = words.next().unwrap().parse().unwrap();
            let is_refused = words.next().is_some_and(|code| code == "0x80");
            let (topic, place) = waiting[usize::from(packet_id) - 1];
            let topic = &mut self.topics[topic as usize];
            if !is_refused {
                topic.acknowledged = topic.acknowledged.max(place);
            }
        }
    }

    /// Reads a page of a state, or keeps one that is whole.
    fn keep(&mut self) {
        let partition = self.random.below(u64::from(PARTITIONS)) as u32;
        let log = &self.logs[partition as usize];
        let mut reading = self.reading.take().unwrap_or_else(|| Reading {
            partition,
            applied: log.batches.len(),
            state: Vec::new(),
            from: String::new(),
        });
        let board = &self.stage.switchboard;
        let page = board.retained_state(reading.partition, &reading.from, 2, self.stage.now);
        reading.state.extend(page.batches);
        if let Some(next) = page.next {
            reading.from = next;
            self.reading = Some(reading);
            return;
        }
        let log = &mut self.logs[reading.partition as usize];
        (log.state, log.applied) = (reading.state, reading.applied);
        self.kept += 1;
    }
}
