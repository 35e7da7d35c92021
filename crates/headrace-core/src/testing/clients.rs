//! Clients of a simulated store: what each has sent, what it was told, what it sends again.

use std::collections::{BTreeMap, VecDeque};

use super::payload::{payload, value_of};
use super::random::Random;
use crate::log::{Fsync, LogId};
use crate::record::{BatchBuilder, Batches, Codec, Record, Records, DECOMPRESSED_BYTES_MAX};

use super::checker::Seen;

/// Batches that a producer has under way at most, and that the store knows again (KIP-98).
pub(super) const WINDOW: usize = 5;
/// Keys that records have: few, so that they are written over.
const KEYS: u64 = 7;
/// Carries the value of a record that has none.
const VALUE_HEADER: &[u8] = b"value";

/// A log's name: stream and partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(pub(super) &'static str, pub(super) u32);

/// What a client has sent and not been told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// To be sent, for the first time or again.
    Due,
    UnderWay,
    Stored,
}

/// A batch of an idempotent producer.
#[derive(Clone, Debug)]
pub(super) struct Produced {
    pub(super) sequence: i32,
    pub(super) batch: Vec<u8>,
    pub(super) values: Vec<Value>,
    pub(super) fate: Fate,
    /// Where the store said that it stands.
    pub(super) offset: i64,
}

/// A record as it was sent: value and timestamp.
pub(super) type Value = (u64, i64);

/// An idempotent producer of one log.
#[derive(Clone, Debug)]
pub(super) struct Producer {
    pub(super) id: i64,
    pub(super) epoch: i16,
    pub(super) sequence: i32,
    /// Of this epoch, the newest last.
    pub(super) batches: VecDeque<Produced>,
}

/// A publish of an MQTT source.
#[derive(Clone, Debug)]
pub(super) struct Published {
    pub(super) sequence: u64,
    pub(super) batch: Vec<u8>,
    pub(super) value: Value,
    pub(super) fate: Fate,
}

/// A publisher that numbers what it sends.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) name: String,
    pub(super) sequence: u64,
    /// The greatest that was acknowledged.
    pub(super) stored: u64,
    /// Its offset.
    pub(super) stored_at: i64,
    pub(super) pending: VecDeque<Published>,
}

/// One log and its clients.
#[derive(Clone, Debug)]
pub(super) struct LogClients {
    pub(super) id: LogId,
    pub(super) incarnation: u64,
    /// The log in the history.
    pub(super) label: String,
    /// Where somebody asked it to begin.
    pub(super) start_wanted: i64,
    pub(super) producers: Vec<Producer>,
    pub(super) sources: Vec<Source>,
    /// When appends are synced, those that come.
    pub(super) fsync: Fsync,
    /// What stands below is never lost.
    pub(super) synced: i64,
    /// What stands below is not, once nothing is due any more.
    pub(super) synced_in_time: i64,
    /// After all that was appended.
    pub(super) appended: i64,
    /// The leader's epoch.
    pub(super) epoch: i32,
    /// In which epoch each batch was appended, by its offset.
    pub(super) epochs: BTreeMap<i64, i32>,
    /// The last append that was stored.
    pub(super) last_ticket: u64,
    /// Where each reader stands.
    pub(super) readers: BTreeMap<&'static str, i64>,
    /// It is compacted: to which offset at most, and when.
    pub(super) compactions: Option<Vec<(i64, i64)>>,
}

impl LogClients {
    pub(super) fn new(name: Name, incarnation: u64, id: LogId, compacted: bool) -> Self {
        let producer = |id| Producer {
            id,
            epoch: 0,
            sequence: 0,
            batches: VecDeque::new(),
        };
        let source = |name: &str| Source {
            name: name.to_owned(),
            sequence: 0,
            stored: 0,
            stored_at: 0,
            pending: VecDeque::new(),
        };
        Self {
            id,
            incarnation,
            label: format!("{}/{}#{incarnation}", name.0, name.1),
            start_wanted: 0,
            producers: vec![producer(7), producer(8)],
            sources: vec![source("meter"), source("probe")],
            fsync: Fsync::Commit,
            synced: 0,
            synced_in_time: 0,
            appended: 0,
            epoch: 0,
            epochs: BTreeMap::new(),
            last_ticket: 0,
            readers: BTreeMap::new(),
            compactions: compacted.then(Vec::new),
        }
    }

    /// The node is gone: what it has not answered is to be sent again.
    pub(super) fn crashed(&mut self) {
        self.start_wanted = 0; // a trim that had not returned may have been for nothing
        let produced = self.producers.iter_mut().flat_map(|p| &mut p.batches);
        let published = self.sources.iter_mut().flat_map(|s| &mut s.pending);
        for fate in produced
            .map(|b| &mut b.fate)
            .chain(published.map(|p| &mut p.fate))
        {
            if *fate == Fate::UnderWay {
                *fate = Fate::Due;
            }
        }
    }

    /// A power cut took what stood at `end` and behind, if anything: who was told so sends it again.
    pub(super) fn lost_from(&mut self, end: i64) {
        for at in self.readers.values_mut() {
            *at = end.min(*at);
        }
        for (below, _) in self.compactions.iter_mut().flatten() {
            *below = end.min(*below);
        }
        for source in &mut self.sources {
            if source.stored_at >= end {
                (source.stored, source.stored_at) = (0, 0); // what it has sent before, nobody knows
            }
        }
        self.producers
            .iter_mut()
            .for_each(|producer| producer.lost_from(end));
    }
}

impl Producer {
    fn lost_from(&mut self, end: i64) {
        let is_lost = |batch: &Produced| batch.fate == Fate::Stored && batch.offset >= end;
        // Older ones that it has forgotten may be lost too: it begins anew.
        if self.batches.front().is_some_and(is_lost) && self.batches[0].sequence > 0 {
            self.begin_anew();
        }
        for batch in self.batches.iter_mut().filter(|batch| is_lost(batch)) {
            batch.fate = Fate::Due;
        }
    }

    /// Under a newer epoch.
    pub(super) fn begin_anew(&mut self) {
        self.epoch += 1;
        self.sequence = 0;
        self.batches.clear();
    }

    pub(super) fn batch(&self, batch: Vec<u8>, epoch: i16, sequence: i32) -> Vec<u8> {
        let mut batch = batch;
        batch[43..51].copy_from_slice(&self.id.to_be_bytes());
        batch[51..53].copy_from_slice(&epoch.to_be_bytes());
        batch[53..57].copy_from_slice(&sequence.to_be_bytes());
        let crc = crc32c::crc32c(&batch[21..]);
        batch[17..21].copy_from_slice(&crc.to_be_bytes());
        batch
    }

    pub(super) fn find(&mut self, sequence: i32) -> Option<&mut Produced> {
        self.batches.iter_mut().find(|b| b.sequence == sequence)
    }

    pub(super) fn count(&self, fate: Fate) -> usize {
        self.batches.iter().filter(|b| b.fate == fate).count()
    }
}

/// The key of the record of a value; a few have none.
pub(super) fn key(value: u64) -> Option<u64> {
    (value % 31 > 0).then_some(value % KEYS)
}

/// The record deletes its key.
pub(super) fn is_tombstone(value: u64) -> bool {
    value / KEYS % 6 == 0
}

/// A batch of these records; each takes some of `bytes`.
pub(super) fn batch(
    values: &[Value],
    bytes: usize,
    codec: Codec,
    source: Option<(&str, u64)>,
) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    let sequence = source.map(|(_, sequence)| sequence.to_string());
    for (value, timestamp) in values {
        let key = key(*value).map(|key| format!("k{key}"));
        let payload = payload(*value, bytes / values.len());
        let names_source = source.iter().flat_map(|(name, _)| {
            let sequence = sequence.as_ref().expect("it has one");
            [
                (&b"source"[..], name.as_bytes()),
                (b"epoch", b"1"),
                (b"sequence", sequence.as_bytes()),
            ]
        });
        let deletes = is_tombstone(*value);
        let header = deletes.then_some((VALUE_HEADER, &payload[..]));
        let headers = names_source.chain(header);
        builder.push(
            *timestamp,
            key.as_ref().map(String::as_bytes),
            (!deletes).then_some(&payload),
            headers.map(|(name, value)| (name, Some(value))),
        );
    }
    match source {
        Some(_) => builder.finish_published(codec),
        None => builder.finish_with(codec),
    }
}

/// Mostly none.
pub(super) fn codec(random: &mut Random) -> Codec {
    match random.below(100) {
        0..15 => random.pick(&Codec::ALL),
        _ => Codec::None,
    }
}

/// Sizes as they come: mostly small, some of pages, a few that go straight to their segment.
pub(super) fn bytes(random: &mut Random, direct_write_bytes: u64) -> usize {
    match random.below(20) {
        0..12 => random.below(300),
        12..18 => random.below(5000),
        _ => direct_write_bytes as usize / 2 + random.below(direct_write_bytes as usize),
    }
}

/// What a client makes of the bytes that it got.
#[derive(Clone, Debug, Default)]
pub(super) struct Decoded {
    pub(super) records: Vec<Seen>,
    /// Offset and leader epoch of each batch.
    pub(super) epochs: Vec<(i64, i32)>,
    /// Offset after the last batch, which compaction may have left without records.
    pub(super) next: Option<i64>,
}

/// The records from `offset` on, as a client reads them: CRCs are checked.
pub(super) fn decode(bytes: &[u8], offset: i64) -> Result<Decoded, String> {
    let mut decoded = Decoded::default();
    let mut scratch = Vec::new();
    for batch in Batches::new(bytes) {
        let batch = batch.map_err(|error| error.to_string())?;
        batch.check_crc().map_err(|error| error.to_string())?;
        let header = &batch.header;
        decoded.next = Some(header.next_offset());
        decoded
            .epochs
            .push((header.base_offset, header.leader_epoch));
        let body = batch.open(&mut scratch, DECOMPRESSED_BYTES_MAX);
        let body = body.map_err(|error| error.to_string())?;
        for record in Records::new(&batch.header, body) {
            let record = record.map_err(|fault| fault.to_string())?;
            if record.offset >= offset {
                decoded.records.push(Seen {
                    offset: record.offset,
                    value: value(&record),
                    timestamp: record.timestamp,
                });
            }
        }
    }
    Ok(decoded)
}

fn value(record: &Record) -> Option<u64> {
    value_of(record.value.or_else(|| record.header(VALUE_HEADER))?)
}
