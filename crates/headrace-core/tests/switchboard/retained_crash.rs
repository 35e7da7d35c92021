//! Random lives of retained messages, each cut short: by a kill, which leaves what was written, or
//! by a power cut, which leaves pages that were not synced, tears them or drops them. What a life has
//! acknowledged, clears included, or something newer, is retained in the next. A life begins with
//! the last state that was kept, which is read page by page while publishes go on, and with the
//! records behind it. A failure names its seed and replays from it.
//!
//! Planted faults show that the judge can find what is wrong.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::catch_unwind;

use headrace_core::mqtt::packet::{Packet, Publish};
use headrace_core::record::{BatchBuilder, Batches, Records};
use headrace_core::switchboard::Limits;
use headrace_core::testing::Random;

use super::platter::{Death, Place, Platter};
use super::retained_log::{lasting, PARTITIONS, STREAM};
use super::stage::*;

const SEEDS: u64 = 60;
const LIVES: usize = 8;
const EVENTS: u64 = 160;
const TOPICS: u64 = 6;
const NAME: &str = "__retained";

#[test]
fn what_was_acknowledged_is_retained_in_the_next_life() {
    run(0..SEEDS);
}

#[test]
#[ignore = "minutes; for changes of what lasts"]
fn what_was_acknowledged_is_retained_in_the_next_life_for_many_seeds() {
    run(SEEDS..10_000);
}

fn run(seeds: Range<u64>) {
    let (mut kept, mut lost) = (0, 0);
    for seed in seeds {
        let life = catch_unwind(|| live(seed, Fault::None));
        let Ok(counts) = life else {
            panic!("seed {seed}");
        };
        kept += counts.0;
        lost += counts.1;
    }
    assert!(kept > 0 && lost > 0, "{kept} states, {lost} appends lost");
}

/// States that were kept, and appends that a crash has met.
fn live(seed: u64, fault: Fault) -> (usize, usize) {
    let mut world = World::new(seed, fault);
    (0..LIVES).for_each(|_| world.live());
    (world.kept, world.lost)
}

/// What a shell may do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Records that clear a topic are left out.
    ClearsUnlogged,
    /// An append has ended when it begins.
    EndsEarly,
    /// A state is said to hold what came while it was read.
    StateTooNew,
}

#[test]
fn planted_faults_are_found_within_a_few_seeds() {
    for fault in [Fault::ClearsUnlogged, Fault::EndsEarly, Fault::StateTooNew] {
        let found = (0..30).find(|seed| catch_unwind(|| live(*seed, fault)).is_err());
        assert!(found.is_some(), "{fault:?} is not found");
    }
}

/// A state that is being read.
struct Reading {
    partition: u32,
    applied: i64,
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
    fault: Fault,
    stage: Stage,
    platter: Platter,
    /// Publishes that are not acknowledged: topic and place, by connection, in their order.
    waiting: BTreeMap<u64, Vec<(u64, usize)>>,
    /// Deletions that are not: by request.
    deleting: BTreeMap<u64, (u64, usize)>,
    topics: Vec<Topic>,
    reading: Option<Reading>,
    publishers: Vec<u64>,
    is_over: bool,
    next_request: u64,
    kept: usize,
    lost: usize,
}

impl World {
    fn new(seed: u64, fault: Fault) -> Self {
        Self {
            random: Random::new(seed),
            fault,
            stage: lasting(Limits::default()),
            platter: Platter::new(&[(NAME, PARTITIONS)]),
            waiting: BTreeMap::new(),
            deleting: BTreeMap::new(),
            topics: (0..TOPICS).map(|_| Topic::default()).collect(),
            reading: None,
            publishers: Vec::new(),
            is_over: false,
            next_request: 1,
            kept: 0,
            lost: 0,
        }
    }

    fn live(&mut self) {
        self.start();
        for _ in 0..self.random.below(EVENTS) {
            match self.random.below(100) {
                0..=44 => self.publish(),
                45..=79 => self.disk_works(),
                80..=85 => self.delete(),
                _ => self.keep(),
            }
            if self.is_over {
                break;
            }
        }
        self.lost += usize::from(!self.platter.is_idle());
        let is_cut = std::mem::take(&mut self.is_over) || self.random.chance(60);
        let death = if is_cut { Death::PowerCut } else { Death::Kill };
        self.platter.die(death, self.random.below(u64::MAX));
    }

    /// A new switchboard reads what lasts, and is compared.
    fn start(&mut self) {
        let now = self.stage.now;
        self.stage = lasting(Limits::default());
        self.stage.now.wall_ms = now.wall_ms + 1_000;
        self.reading = None;
        self.waiting.clear();
        self.deleting.clear();
        for partition in 0..PARTITIONS {
            let (offset, state) = self.platter.kept((NAME, partition));
            let tail = self.platter.read((NAME, partition), offset);
            for records in [state, tail] {
                let board = &mut self.stage.switchboard;
                board.restore_retained(&records, self.stage.now).unwrap();
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
            let padding = "x".repeat(self.random.pick(&[0, 0, 300]));
            format!("{topic}.{} {padding}", published.len() + 1)
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
        let packet = Packet::Publish(Publish {
            topic: &format!("t/{topic}"),
            qos,
            retain: true,
            packet_id,
            payload: payload.as_bytes(),
            ..Publish::default()
        });
        self.stage.send(connection, &packet);
        self.append_all();
    }

    /// Somebody deletes what there is.
    fn delete(&mut self) {
        let topic = self.random.below(TOPICS);
        let request = self.next_request;
        self.next_request += 1;
        let board = &mut self.stage.switchboard;
        let filter = format!("t/{topic}");
        let page = board.delete_retained(&filter, "", request, self.stage.now);
        if page.unwrap().found > 0 {
            let published = &mut self.topics[topic as usize].published;
            published.push(String::new());
            let place = published.len();
            self.deleting.insert(request, (topic, place));
        }
        self.stage.run();
        self.append_all();
    }

    /// What is due goes to the disk, or is refused there, which leaves no trace.
    fn append_all(&mut self) {
        for append in std::mem::take(&mut self.stage.appends) {
            assert_eq!(append.stream, STREAM);
            let place: Place = (NAME, append.partition);
            if self.random.chance(5) {
                self.stage.ends(append.ticket, false);
                continue;
            }
            let batch = match self.fault {
                Fault::ClearsUnlogged => without_clears(&append.batch),
                _ => Some(append.batch),
            };
            match batch {
                Some(batch) => drop(self.platter.append(place, batch, append.ticket)),
                None => self.stage.ends(append.ticket, true),
            }
            if self.fault == Fault::EndsEarly {
                self.stage.ends(append.ticket, true);
            }
        }
        self.platter.submit();
        self.hear();
    }

    fn disk_works(&mut self) {
        for _ in 0..self.random.below(12) {
            for ticket in self.platter.step() {
                if self.fault != Fault::EndsEarly {
                    self.stage.ends(ticket, true);
                }
            }
            if self.random.chance(30) {
                self.platter.step_chore();
            }
        }
        self.hear();
    }

    /// Answers come in order; a PUBREC is an acknowledgement too.
    fn hear(&mut self) {
        for connection in self.publishers.clone() {
            for line in self.stage.hears(connection) {
                let mut words = line.split(' ').skip(1);
                let packet_id: u16 = words.next().unwrap().parse().unwrap();
                let is_refused = words.next().is_some_and(|code| code == "0x80");
                let waited_for = self.waiting[&connection][usize::from(packet_id) - 1];
                if !is_refused {
                    self.acknowledged(waited_for);
                }
            }
        }
        for ended in self.stage.switchboard.published() {
            let waited_for = self.deleting.remove(&ended.request);
            if let (Some(waited_for), true) = (waited_for, ended.reason_code < 0x80) {
                self.acknowledged(waited_for);
            }
        }
    }

    fn acknowledged(&mut self, (topic, place): (u64, usize)) {
        let topic = &mut self.topics[topic as usize];
        topic.acknowledged = topic.acknowledged.max(place);
    }

    /// Reads a page of a state, or keeps one that is whole; at times the power goes meanwhile.
    fn keep(&mut self) {
        let partition = self.random.below(u64::from(PARTITIONS)) as u32;
        let mut reading = self.reading.take().unwrap_or_else(|| Reading {
            partition,
            applied: self.platter.told((NAME, partition)),
            state: Vec::new(),
            from: String::new(),
        });
        let board = &self.stage.switchboard;
        let page = board.retained_state(&[reading.partition], &reading.from, 2, self.stage.now);
        reading.state.extend(&page.parts[0].0);
        if let Some(next) = page.next {
            reading.from = next;
            self.reading = Some(reading);
            return;
        }
        let place = (NAME, reading.partition);
        if self.fault == Fault::StateTooNew {
            reading.applied = self.platter.told(place);
        }
        if reading.applied > 0 {
            let effects = self
                .random
                .chance(10)
                .then(|| self.random.below(6) as usize);
            let is_kept = self
                .platter
                .keep(place, reading.applied, &reading.state, effects);
            self.is_over = effects.is_some();
            self.kept += usize::from(is_kept);
        }
    }
}

/// The batch without its clears; None where there is nothing else.
fn without_clears(batch: &[u8]) -> Option<Vec<u8>> {
    let mut builder = BatchBuilder::new();
    let batch = Batches::new(batch).next().unwrap().unwrap();
    for record in Records::new(&batch.header, batch.body()) {
        let record = record.unwrap();
        if record.value.is_some() {
            let headers = record.headers.clone();
            builder.push(record.timestamp, record.key, record.value, headers);
        }
    }
    (!builder.is_empty()).then(|| builder.finish())
}
