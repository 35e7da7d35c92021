//! Queues under a switchboard: the shell that appends to the logs of their streams and reads them.

use std::collections::{BTreeMap, BTreeSet};

use headrace_core::mqtt::decode;
use headrace_core::mqtt::packet::{Ack, Packet, Subscribe};
use headrace_core::queue::{Backoff, Order, Policy};
use headrace_core::record::{
    set_base_offset, unpack, BatchBuilder, Batches, Codec, Record, Records, Share,
    DECOMPRESSED_BYTES_MAX,
};
use headrace_core::session::Ending;
use headrace_core::switchboard::{Depth, QueueSettings, Sharing, BATCH_BYTES_MAX};

use super::stage::*;

/// The stream of the queue `jobs`, and of its dead letters.
pub const JOBS: u64 = 7;
pub const DEAD: u64 = 8;

#[derive(Clone, Default)]
pub struct Log {
    pub start: i64,
    pub end: i64,
    batches: Vec<(i64, Vec<u8>)>,
}

impl Log {
    /// Power loss takes what is behind.
    pub fn cut(&mut self, end: i64) {
        self.batches.retain(|(base, _)| *base < end);
        self.end = end;
    }

    /// A bit of a batch flips.
    pub fn damage(&mut self, batch: usize) {
        *self.batches[batch].1.last_mut().unwrap() ^= 1;
    }
}

/// A stage with a queue.
pub struct Depot {
    pub stage: Stage,
    pub logs: BTreeMap<(u64, u32), Log>,
    pub settings: QueueSettings,
    pub partitions: u32,
    /// Appends of these streams are refused.
    pub refused: BTreeSet<u64>,
    /// No read is answered.
    pub is_stuck: bool,
    pub has_dead_letters: bool,
    packet_id: u16,
}

/// A message that a client was handed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handed {
    pub packet_id: u16,
    pub topic: String,
    pub payload: String,
    pub user: BTreeMap<String, String>,
}

impl Handed {
    pub fn id(&self) -> &str {
        &self.user["message-id"]
    }
}

pub fn settings() -> QueueSettings {
    QueueSettings {
        name: "jobs".into(),
        policy: Policy {
            order: Order::None,
            deadline_ms: 30_000,
            backoff: Backoff {
                initial_ms: 1_000,
                growth_percent: 200,
                max_ms: 60_000,
                jitter_percent: 0,
            },
            failures_max: 3,
            total_ms: 0,
            ttl_ms: 0,
            read_ahead: 100,
            prioritises: false,
        },
        depth: Depth::default(),
        batch_messages: 500,
        prefetch: 10,
        is_fnv1a: true,
        is_paused: false,
        sharing: Sharing::Shared,
        keeps_dead: true,
        dead_letters: None,
    }
}

impl Depot {
    pub fn new(partitions: u32, settings: QueueSettings) -> Self {
        let mut depot = Self {
            stage: Stage::default(),
            logs: BTreeMap::new(),
            settings,
            partitions,
            refused: BTreeSet::new(),
            is_stuck: false,
            has_dead_letters: false,
            packet_id: 0,
        };
        depot.begin();
        depot
    }

    fn begin(&mut self) {
        let switchboard = &mut self.stage.switchboard;
        switchboard.keep_sessions(2, 1 << 20, BATCH_BYTES_MAX);
        let key = "property:partition-key";
        switchboard
            .bind(JOBS, self.partitions, &["bound/#"], key)
            .unwrap();
        self.settings.dead_letters = self.has_dead_letters.then_some(DEAD);
        if self.has_dead_letters {
            self.bind_dead();
        }
        self.stage
            .switchboard
            .set_queue(JOBS, self.settings.clone())
            .unwrap();
        for partition in 0..self.partitions {
            self.logs.entry((JOBS, partition)).or_default();
        }
    }

    fn bind_dead(&mut self) {
        let switchboard = &mut self.stage.switchboard;
        switchboard.bind(DEAD, 1, &[], "topic").unwrap();
        let settings = QueueSettings {
            name: "jobs.dlq".into(),
            keeps_dead: false,
            dead_letters: None,
            policy: Policy {
                failures_max: 0,
                ..settings().policy
            },
            ..settings()
        };
        switchboard.set_queue(DEAD, settings).unwrap();
        self.logs.entry((DEAD, 0)).or_default();
    }

    /// A node that begins after a crash: what was not durable is gone.
    pub fn crash(&mut self) {
        self.crash_now();
        self.settle();
    }

    /// As [`Depot::crash`], and nothing is done yet.
    pub fn crash_now(&mut self) {
        let before = std::mem::take(&mut self.stage);
        self.stage.now = before.now;
        self.begin();
        self.stage.restore(&before);
    }

    pub fn client(&mut self, client_id: &str) -> u64 {
        self.stage.client(V5, client_id)
    }

    /// SUBSCRIBE with user properties; what SUBACK says, and what else has come by then.
    pub fn subscribe(&mut self, client: u64, filter: &str, user: &[(&str, &str)]) -> String {
        self.subscribe_at(client, filter, QOS_1, user)
    }

    pub fn subscribe_at(
        &mut self,
        client: u64,
        filter: &str,
        qos: QoS,
        user: &[(&str, &str)],
    ) -> String {
        let subscribe = Subscribe {
            packet_id: 1,
            user: user.to_vec(),
            filters: vec![request(filter, qos)],
            ..Subscribe::default()
        };
        self.stage.send(client, &Packet::Subscribe(subscribe));
        self.stage.write_all(Ending::Stored);
        let mut said = self.stage.hears(client);
        self.settle();
        said.remove(0)
    }

    /// Enqueues at `QoS` 1; the reason code of PUBACK, where it has come.
    pub fn enqueue(
        &mut self,
        client: u64,
        topic: &str,
        payload: &str,
        user: &[(&str, &str)],
    ) -> Option<u8> {
        let packet_id = self.send(client, topic, payload, user);
        self.settle();
        self.reason_code(client, packet_id)
    }

    /// Settles as `verb` says, and all that comes of it.
    pub fn end(&mut self, client: u64, verb: &str, user: &[(&str, &str)]) -> Option<u8> {
        let packet_id = self.send(client, &format!("$queue/jobs/{verb}"), "", user);
        self.settle();
        self.reason_code(client, packet_id)
    }

    pub fn ack(&mut self, client: u64, handed: &Handed) -> Option<u8> {
        self.end(client, "$ack", &[("message-id", handed.id())])
    }

    pub fn send(&mut self, client: u64, topic: &str, payload: &str, user: &[(&str, &str)]) -> u16 {
        self.packet_id = self.packet_id % 60_000 + 1;
        let properties = PublishProperties {
            user: user.to_vec(),
            ..PublishProperties::default()
        };
        self.stage
            .publish_with(client, topic, QOS_1, self.packet_id, payload, properties);
        self.packet_id
    }

    /// Takes the PUBACK of a packet from what a client has heard.
    pub fn reason_code(&mut self, client: u64, packet_id: u16) -> Option<u8> {
        let mut found = None;
        self.stage.sift(client, |packet| match packet {
            Packet::Puback(ack) if ack.packet_id == packet_id => {
                found = Some(ack.reason_code);
                false
            }
            _ => true,
        });
        found
    }

    /// Takes the messages that a client was handed, and answers each with PUBACK.
    pub fn take(&mut self, client: u64) -> Vec<Handed> {
        let handed = self.take_unanswered(client);
        for each in &handed {
            if each.packet_id != 0 {
                self.puback(client, each.packet_id, 0);
            }
        }
        self.settle();
        handed
    }

    pub fn take_unanswered(&mut self, client: u64) -> Vec<Handed> {
        let mut handed = Vec::new();
        self.stage.sift(client, |packet| {
            let Packet::Publish(publish) = packet else {
                return true;
            };
            let user = publish.properties.user.iter();
            let user = user.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            handed.push(Handed {
                packet_id: publish.packet_id,
                topic: publish.topic.to_owned(),
                payload: String::from_utf8(publish.payload.to_vec()).unwrap(),
                user: user.collect(),
            });
            false
        });
        handed
    }

    pub fn puback(&mut self, client: u64, packet_id: u16, reason_code: u8) {
        let ack = Ack {
            packet_id,
            reason_code,
            ..Ack::default()
        };
        self.stage.send(client, &Packet::Puback(ack));
    }

    pub fn wait(&mut self, ms: u64) {
        self.stage.wait(ms);
        self.settle();
    }

    /// Does all that the shell has to, until nothing is left.
    pub fn settle(&mut self) {
        loop {
            self.stage.run();
            self.give_dead_letters();
            let appends = std::mem::take(&mut self.stage.appends);
            let mut has_done = !appends.is_empty() || !self.stage.written.is_empty();
            for append in appends {
                let is_stored = !self.refused.contains(&append.stream);
                if is_stored {
                    self.append(append.stream, append.partition, append.batch);
                }
                self.stage.ends(append.ticket, is_stored);
            }
            self.stage.write_all(Ending::Stored);
            self.tell();
            while let Some(read) = (!self.is_stuck)
                .then(|| self.stage.switchboard.next_read(self.stage.now))
                .flatten()
            {
                has_done = true;
                self.answer(read);
            }
            if !has_done {
                return;
            }
        }
    }

    /// Makes the stream of dead letters, where it is wanted.
    pub fn give_dead_letters(&mut self) {
        for stream in std::mem::take(&mut self.stage.dead_letters) {
            assert_eq!(stream, JOBS);
            self.has_dead_letters = true;
            self.bind_dead();
            self.settings.dead_letters = Some(DEAD);
            let settings = self.settings.clone();
            self.stage.switchboard.set_queue(JOBS, settings).unwrap();
        }
    }

    /// Ends the first append that waits, if one does.
    pub fn append_next(&mut self, is_stored: bool) {
        if self.stage.appends.is_empty() {
            return;
        }
        let append = self.stage.appends.remove(0);
        if is_stored {
            self.append(append.stream, append.partition, append.batch);
        }
        self.stage.ends(append.ticket, is_stored);
    }

    /// Answers the next read, if one is asked for.
    pub fn read_next(&mut self, is_read: bool) {
        let now = self.stage.now;
        if let Some(read) = self.stage.switchboard.next_read(now) {
            if is_read {
                self.answer(read);
            } else {
                self.stage.switchboard.unread(read.ticket, now);
            }
        }
    }

    /// Messages that a group has settled since the node began.
    pub fn ends_of(&self, group: &str) -> u64 {
        let groups = self.stage.switchboard.queue_groups(JOBS).unwrap();
        let found = groups.iter().find(|each| each.name == group);
        found.map_or(0, |group| group.counts[2])
    }

    /// Group and payload of each dead letter.
    pub fn dead_letters(&self) -> BTreeSet<(String, String)> {
        let mut found = BTreeSet::new();
        self.each_record(DEAD, |_, record| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let group = text(record.header(b"x-source-group").unwrap());
            found.insert((group, text(record.value.unwrap())));
        });
        found
    }

    /// Where each message of the queue is, by payload.
    pub fn places(&self) -> BTreeMap<String, (u32, i64)> {
        let mut found = BTreeMap::new();
        self.each_record(JOBS, |partition, record| {
            let payload = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
            found.insert(payload, (partition, record.offset));
        });
        found
    }

    fn each_record(&self, of: u64, mut see: impl FnMut(u32, &Record<'_>)) {
        for ((stream, partition), log) in &self.logs {
            for (_, batch) in log.batches.iter().filter(|_| *stream == of) {
                let batch = Batches::new(batch).next().unwrap().unwrap();
                for record in Records::new(&batch.header, batch.body()) {
                    see(*partition, &record.unwrap());
                }
            }
        }
    }

    /// Appends a record that no MQTT client sent, as Kafka's may.
    pub fn produce(&mut self, key: Option<&[u8]>, value: &[u8], headers: &[(&[u8], &[u8])]) {
        let mut builder = BatchBuilder::new();
        let headers = headers.iter().map(|(name, value)| (*name, Some(*value)));
        builder.push(self.stage.now.wall_ms, key, Some(value), headers);
        let batch = builder.finish_published(Codec::None);
        self.append(JOBS, 0, batch);
        self.tell();
        self.settle();
    }

    fn append(&mut self, stream: u64, partition: u32, mut batch: Vec<u8>) {
        let log = self.logs.get_mut(&(stream, partition)).unwrap();
        set_base_offset(&mut batch, log.end);
        let next = Batches::new(&batch)
            .next()
            .unwrap()
            .unwrap()
            .header
            .next_offset();
        log.batches.push((log.end, batch));
        log.end = next;
    }

    pub fn tell(&mut self) {
        for ((stream, partition), log) in &self.logs {
            let switchboard = &mut self.stage.switchboard;
            switchboard.advanced(*stream, *partition, log.end);
            let bytes = log.batches.iter().map(|(_, batch)| batch.len() as u64);
            switchboard.sized(*stream, *partition, (log.start, log.end), bytes.sum());
        }
    }

    fn answer(&mut self, read: headrace_core::switchboard::StreamRead) {
        let switchboard = &mut self.stage.switchboard;
        let log = &self.logs[&(read.stream, read.partition)];
        if !(log.start..=log.end).contains(&read.offset) {
            return switchboard.missed(read.ticket, log.start, log.end);
        }
        let first = log
            .batches
            .partition_point(|(base, _)| *base <= read.offset);
        let mut bytes = Vec::new();
        for (_, batch) in &log.batches[first.max(1) - 1..] {
            if !bytes.is_empty() && bytes.len() + batch.len() > read.bytes {
                break;
            }
            bytes.extend_from_slice(batch);
        }
        let share = Share {
            offset: read.offset,
            bytes_max: DECOMPRESSED_BYTES_MAX,
            batch_bytes_max: DECOMPRESSED_BYTES_MAX,
            record_bytes_max: 1 << 20,
        };
        let piece = unpack(&bytes, &share).unwrap();
        let now = self.stage.now;
        switchboard.fed(read.ticket, piece.batches.into(), &piece.left_out, now);
    }

    /// All batches of a log.
    pub fn batches(&self, stream: u64, partition: u32) -> std::sync::Arc<[u8]> {
        let log = &self.logs[&(stream, partition)];
        let batches = log.batches.iter().flat_map(|(_, batch)| batch);
        batches.copied().collect()
    }

    pub fn depth(&self, stream: u64) -> u64 {
        let groups = self.stage.switchboard.queue_groups(stream).unwrap();
        let partitions = groups.iter().flat_map(|group| &group.partitions);
        partitions.map(|partition| partition.depth).sum()
    }
}

pub fn payloads(handed: &[Handed]) -> Vec<&str> {
    handed.iter().map(|each| &*each.payload).collect()
}

/// The packets in what a client was sent, whole ones.
pub fn each_packet(bytes: &[u8], mut see: impl FnMut(&Packet<'_>, &[u8])) {
    let mut at = 0;
    while at < bytes.len() {
        let frame = decode::frame(&bytes[at..], usize::MAX).unwrap().unwrap();
        let end = at + frame.bytes();
        let packet = decode::packet(Some(V5), frame).unwrap();
        see(&packet, &bytes[at..end]);
        at = end;
    }
}
