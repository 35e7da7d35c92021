//! Logs of streams under a switchboard, and the shell that reads them for subscribers.

use std::collections::BTreeMap;

use headrace_core::mqtt::decode;
use headrace_core::mqtt::packet::{Packet, PublishProperties, Subscribe};
use headrace_core::record::{
    recode, set_base_offset, unpack, BatchBuilder, Codec, Share, DECOMPRESSED_BYTES_MAX,
};
use headrace_core::switchboard::{Placement, StreamRead};

use super::stage::*;

/// A stream with the id 7 and the name `s`.
pub const STREAM: u64 = 7;

/// A record: key, value, headers.
pub type Row<'a> = (Option<&'a [u8]>, &'a [u8], &'a [(&'a str, &'a str)]);

/// A publish that a client was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    pub id: u16,
    pub qos: QoS,
    pub topic: String,
    pub payload: String,
    pub place: String,
}

#[derive(Clone, Default)]
struct Log {
    start: i64,
    end: i64,
    /// First offset, and bytes.
    batches: Vec<(i64, Vec<u8>)>,
}

#[derive(Clone)]
pub struct Shelf {
    logs: Vec<Log>,
    pub reads: Vec<StreamRead>,
    /// The next reads fail.
    pub is_broken: bool,
    /// What a read brings, decompressed.
    pub piece_bytes: usize,
}

impl Shelf {
    /// So many partitions, bound at a stage.
    pub fn new(stage: &mut Stage, partitions: u32) -> Self {
        let shelf = Self {
            logs: vec![Log::default(); partitions as usize],
            reads: Vec::new(),
            is_broken: false,
            piece_bytes: DECOMPRESSED_BYTES_MAX,
        };
        shelf.bind(stage);
        shelf
    }

    pub fn bind(&self, stage: &mut Stage) {
        let partitions = self.logs.len() as u32;
        stage
            .switchboard
            .bind(STREAM, partitions, &[], "topic")
            .unwrap();
    }

    pub fn widen(&mut self, stage: &mut Stage, partitions: u32) {
        self.logs.resize_with(partitions as usize, Log::default);
        self.bind(stage);
    }

    /// Appends a batch; the shell hears of it with [`Shelf::tell`].
    pub fn append(&mut self, partition: u32, codec: Codec, wall_ms: i64, rows: &[Row<'_>]) {
        let log = &mut self.logs[partition as usize];
        let mut builder = BatchBuilder::new();
        for (key, value, headers) in rows {
            let headers = headers.iter();
            let headers = headers.map(|(name, value)| (name.as_bytes(), Some(value.as_bytes())));
            builder.push(wall_ms, *key, Some(value), headers);
        }
        let batch = builder.finish();
        let mut batch = match codec {
            Codec::None => batch,
            codec => recode(&batch, codec, usize::MAX).unwrap(),
        };
        set_base_offset(&mut batch, log.end);
        log.batches.push((log.end, batch));
        log.end += rows.len() as i64;
    }

    /// Records that say where they are: `PARTITION:OFFSET`.
    pub fn produce(&mut self, stage: &mut Stage, partition: u32, count: usize, codec: Codec) {
        let end = self.logs[partition as usize].end;
        let texts: Vec<String> = (end..end + count as i64)
            .map(|offset| format!("{partition}:{offset}"))
            .collect();
        let rows: Vec<Row<'_>> = texts
            .iter()
            .map(|text| (Some(&b"k"[..]), text.as_bytes(), &[][..]))
            .collect();
        self.append(partition, codec, stage.now.wall_ms, &rows);
        self.tell(stage);
    }

    pub fn end(&self, partition: u32) -> i64 {
        self.logs[partition as usize].end
    }

    pub fn damage(&mut self, partition: u32, batch: usize) {
        let bytes = &mut self.logs[partition as usize].batches[batch].1;
        *bytes.last_mut().unwrap() ^= 1;
    }

    pub fn trim(&mut self, partition: u32, start: i64) {
        let log = &mut self.logs[partition as usize];
        let kept = log.batches.partition_point(|(base, _)| *base < start);
        log.batches.drain(..kept);
        log.start = start;
    }

    /// Tells where the logs end, and reads what is asked for.
    pub fn tell(&mut self, stage: &mut Stage) {
        for (partition, log) in (0..).zip(&self.logs) {
            stage.switchboard.advanced(STREAM, partition, log.end);
        }
        self.serve(stage);
    }

    /// Reads as long as something is asked for.
    pub fn serve(&mut self, stage: &mut Stage) {
        loop {
            stage.run();
            let Some(read) = stage.switchboard.next_read(stage.now) else {
                return;
            };
            self.reads.push(read);
            self.answer(stage, read);
        }
    }

    pub fn answer(&self, stage: &mut Stage, read: StreamRead) {
        let log = &self.logs[read.partition as usize];
        if self.is_broken {
            return stage.switchboard.unread(read.ticket, stage.now);
        }
        if !(log.start..=log.end).contains(&read.offset) {
            return stage.switchboard.missed(read.ticket, log.start, log.end);
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
            bytes_max: self.piece_bytes,
            batch_bytes_max: DECOMPRESSED_BYTES_MAX,
            record_bytes_max: 1 << 20,
        };
        let piece = unpack(&bytes, &share).unwrap();
        let batches = piece.batches.into();
        stage
            .switchboard
            .fed(read.ticket, batches, &piece.left_out, stage.now);
    }

    /// Places what was subscribed to: `at` says the first offset of a partition.
    pub fn place(&mut self, stage: &mut Stage, at: Option<i64>) {
        self.answer_places(stage, at);
        self.tell(stage);
    }

    /// As [`Shelf::place`], and reads nothing.
    pub fn answer_places(&self, stage: &mut Stage, at: Option<i64>) {
        for asked in std::mem::take(&mut stage.requests) {
            let answers = asked.streams.iter().map(|name| self.placement(name, at));
            let answers = answers.collect();
            stage
                .switchboard
                .placed(asked.request, answers, stage.now)
                .unwrap();
        }
    }

    fn placement(&self, name: &str, at: Option<i64>) -> Placement {
        if name != "s" {
            return Placement::Refused {
                reason_code: 0x8F,
                text: format!("no stream is named '{name}'"),
            };
        }
        let positions = self.logs.iter().map(|log| (at.unwrap_or(log.end), log.end));
        Placement::At {
            stream: STREAM,
            positions: positions.collect(),
            is_asked: at.is_some(),
        }
    }

    /// Subscribes, with what SUBACK is to say.
    pub fn subscribe(
        &mut self,
        stage: &mut Stage,
        client: u64,
        (filter, qos): (&str, QoS),
        at: Option<i64>,
    ) {
        let subscribe = Subscribe {
            packet_id: 1,
            filters: vec![request(filter, qos)],
            ..Subscribe::default()
        };
        stage.send(client, &Packet::Subscribe(subscribe));
        self.place(stage, at);
    }
}

/// What a client was sent since it last looked: publishes; other packets are passed over.
pub fn heard(stage: &mut Stage, client: u64) -> Vec<Heard> {
    let bytes = stage.raw(client);
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let frame = decode::frame(&bytes[at..], usize::MAX).unwrap().unwrap();
        at += frame.bytes();
        let Packet::Publish(publish) = decode::packet(Some(V5), frame).unwrap() else {
            continue;
        };
        found.push(Heard {
            id: publish.packet_id,
            qos: publish.qos,
            topic: publish.topic.to_owned(),
            payload: String::from_utf8(publish.payload.to_vec()).unwrap(),
            place: place(&publish.properties),
        });
    }
    found
}

fn place(properties: &PublishProperties<'_>) -> String {
    let user: BTreeMap<_, _> = properties.user.iter().copied().collect();
    user.get("stream-offset").copied().unwrap_or("").to_owned()
}

pub fn payloads(heard: &[Heard]) -> Vec<&str> {
    heard.iter().map(|each| &*each.payload).collect()
}
