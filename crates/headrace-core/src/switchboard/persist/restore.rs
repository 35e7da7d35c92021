//! What the log of sessions holds, taken in when a node starts: all records, the last of each key.
//! What they come to is made of them once ([`super::revive`]).

use std::collections::BTreeMap;

use bytes::Bytes;

use super::record::{self, read_claims, read_group, Cursor, Feed, Filter, Head, Key};
use super::Log;
use crate::mqtt::packet::QoS;
use crate::record::{Batch, Batches, Codec, Record, Records};
use crate::session::{Expiry, Places};
use crate::switchboard::queues::{ChunkPlace, Kept};
use crate::switchboard::{Error, Switchboard};

/// A message as the log has it.
#[derive(Debug)]
pub(super) struct Found {
    pub partition: u32,
    pub qos: QoS,
    pub retain: bool,
    pub publisher: u32,
    pub arrived_ms: u64,
    pub expiry: Option<Expiry>,
    pub head: Box<[u8]>,
    pub topic_bytes: usize,
    pub payload: Bytes,
    pub claims: Box<[u8]>,
}

/// Records read so far.
#[derive(Debug, Default)]
pub(super) struct Restoring {
    pub heads: BTreeMap<Box<str>, Head>,
    pub cursors: BTreeMap<Box<str>, Cursor>,
    pub filters: BTreeMap<Box<str>, BTreeMap<Box<str>, Filter>>,
    pub feeds: BTreeMap<(Box<str>, Box<str>), Feed>,
    pub groups: BTreeMap<Box<str>, (u64, Places)>,
    pub messages: BTreeMap<u64, Found>,
    pub chunks: Kept,
    /// By partition, batches that count once the last of them is there.
    parts: BTreeMap<u32, Vec<u8>>,
    /// The highest number that anything has.
    pub last_number: u64,
}

impl Restoring {
    /// Takes a record in; None where it is none.
    fn take(&mut self, partition: u32, record: &Record<'_>) -> Option<()> {
        let value = record.value;
        match Key::read(record.key?)? {
            Key::Head(client_id) => {
                put(&mut self.heads, client_id, value, Head::read)?;
                self.seen(self.heads.get(client_id).map(|head| head.number));
            }
            Key::Cursor(client_id) => put(&mut self.cursors, client_id, value, Cursor::read)?,
            Key::Filter(client_id, filter) => {
                let filters = self.filters.entry(client_id.into()).or_default();
                put(filters, filter, value, Filter::read)?;
            }
            Key::Feed(client_id, filter) => {
                let key = (client_id.into(), filter.into());
                match value {
                    None => self.feeds.remove(&key),
                    Some(value) => self.feeds.insert(key, Feed::read(value)?),
                };
            }
            Key::Group(text) => {
                put(&mut self.groups, text, value, read_group)?;
                self.seen(self.groups.get(text).map(|group| group.0));
            }
            Key::Chunk(ChunkPlace {
                stream,
                partition,
                chunk,
                group,
            }) => {
                let groups = self.chunks.entry(stream).or_default();
                let chunks = groups
                    .entry(group)
                    .or_default()
                    .entry(partition)
                    .or_default();
                match value {
                    None => drop(chunks.remove(&chunk)),
                    Some(value) => chunks.entry(chunk).or_default().take_in(value)?,
                }
            }
            Key::Message(number) => {
                self.seen(Some(number));
                let Some(value) = value else {
                    self.messages.remove(&number);
                    return Some(());
                };
                let message = record::Message::read(value)?;
                for (owner, ..) in read_claims(message.claims)? {
                    self.seen(Some(owner));
                }
                self.messages.insert(number, found(partition, &message));
            }
        }
        Some(())
    }

    /// A number that is in use.
    fn seen(&mut self, number: Option<u64>) {
        self.last_number = self.last_number.max(number.unwrap_or(0));
    }
}

/// Keeps what a key has, or forgets it where it has nothing any more; None where that is malformed.
fn put<T>(
    map: &mut BTreeMap<Box<str>, T>,
    key: &str,
    value: Option<&[u8]>,
    read: impl FnOnce(&[u8]) -> Option<T>,
) -> Option<()> {
    match value {
        None => map.remove(key),
        Some(value) => map.insert(key.into(), read(value)?),
    };
    Some(())
}

fn found(partition: u32, message: &record::Message<'_>) -> Found {
    Found {
        partition,
        qos: message.qos,
        retain: message.retain,
        publisher: message.publisher,
        arrived_ms: message.arrived_ms,
        expiry: message.expiry,
        head: message.head.into(),
        topic_bytes: message.topic_bytes,
        payload: Bytes::copy_from_slice(message.payload),
        claims: message.claims.into(),
    }
}

impl Switchboard {
    /// Takes in batches of one partition of the log, in their order; the offset behind them, 0 where
    /// there are none.
    ///
    /// # Errors
    /// There is no such partition, or a record is not what it should be: where.
    pub fn restore(&mut self, partition: u32, batches: &[u8]) -> Result<i64, Error> {
        let log = self.persistence.logs.get_mut(partition as usize);
        let log: &mut Log = log.ok_or(Error::Stream(0, partition))?;
        log.bytes += batches.len() as u64;
        log.checkpoint_bytes = log.bytes / 2;
        let restoring = self.persistence.restoring.get_or_insert_default();
        let mut next_offset = 0;
        for batch in Batches::new(batches) {
            let batch = batch.map_err(|error| malformed(partition, &error))?;
            take_batch(restoring, partition, &batch)?;
            let header = &batch.header;
            next_offset = header.base_offset + i64::from(header.last_offset_delta) + 1;
        }
        Ok(next_offset)
    }
}

fn take_batch(restoring: &mut Restoring, partition: u32, batch: &Batch<'_>) -> Result<(), Error> {
    if batch.header.is_control() {
        return Ok(());
    }
    let checked = batch.check_crc();
    checked.map_err(|error| malformed(partition, &error))?;
    if batch.header.codec() != Ok(Codec::None) {
        return Err(malformed(partition, &"a batch is compressed"));
    }
    let begun = restoring.parts.remove(&partition);
    if batch.header.follows() && begun.is_none() {
        return Err(malformed(partition, &"the beginning of a round is missing"));
    }
    // What was begun before and did not go on was refused, or the node ended: nobody was told.
    let mut parts = begun.filter(|_| batch.header.follows()).unwrap_or_default();
    if batch.header.goes_on() {
        parts.extend_from_slice(batch.bytes);
        restoring.parts.insert(partition, parts);
        return Ok(());
    }
    for part in Batches::new(&parts) {
        let part = part.map_err(|error| malformed(partition, &error))?;
        take_records(restoring, partition, &part)?;
    }
    take_records(restoring, partition, batch)
}

fn take_records(restoring: &mut Restoring, partition: u32, batch: &Batch<'_>) -> Result<(), Error> {
    for record in Records::new(&batch.header, batch.body()) {
        let record = record.map_err(|fault| malformed(partition, &fault))?;
        if restoring.take(partition, &record).is_none() {
            let text = format!("the record at offset {} is none of ours", record.offset);
            return Err(malformed(partition, &text));
        }
    }
    Ok(())
}

fn malformed(partition: u32, why: &dyn std::fmt::Display) -> Error {
    Error::Invalid(format!(
        "partition {partition} of the log of sessions: {why}"
    ))
}
