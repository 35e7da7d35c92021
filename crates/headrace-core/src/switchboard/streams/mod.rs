//! What streams store of the publishes that pass: keys, partitions, batches, tickets, repeats.
//!
//! Owns the way from a matched publish to an append and from the append's end to those who wait
//! for it. Must not know connections or sessions: a waiter is a number and an ordinal.
//!
//! Invariants: a waiter is settled once for each ticket that it waits for, a repeat once; a repeat
//! waits for every append in flight of its partition, so it is never acknowledged before the first
//! copy is durable; bytes in `undurable_bytes` are those of records whose ticket has not ended.

mod batches;
mod known;

use slab::Slab;

use super::partition::{Partition, Ticket};
use super::publish_record::PublishRecord;
use super::sources::{Verdict, SOURCES_OF_NODE_MAX};
use crate::hash::{Key, Map};
use crate::mqtt::packet::Publish;
use crate::record::{fnv1a, partition_of, record_bytes, Codec, Source, HEADER_BYTES};
use crate::session::Outcome;

pub use super::partition::Waiter;
pub use super::publish_record::KeyRule;

/// A batch is closed at this size and the next begins: what a Kafka consumer fetches from one
/// partition in a request unless told otherwise (`max.partition.fetch.bytes`).
pub const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// An append for the shell to perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    /// The stream's id.
    pub stream: u64,
    /// Partition.
    pub partition: u32,
    /// Record batch v2, base offset 0.
    pub batch: Vec<u8>,
    /// Comes back in [`durable`](super::Switchboard::durable).
    pub ticket: u64,
}

/// What became of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Accepted, already stored or stale.
    pub outcome: Outcome,
    /// Records appended.
    pub records: usize,
    /// Tickets for which the waiter waits.
    pub tickets: u32,
}

#[derive(Debug)]
struct Stream {
    id: u64,
    key: KeyRule,
    codec: Codec,
    /// No batch is larger before it is compressed.
    batch_bytes_max: usize,
    /// Only the last record of each key is kept in the end.
    compacts: bool,
    partitions: Vec<Partition>,
    /// Where the next record without a key goes.
    turn: u32,
    /// Keys are spread by FNV-1a, not by murmur2.
    is_fnv1a: bool,
    /// Messages and bytes that it takes before its room is measured again.
    room: (u64, u64),
    /// Of those that were taken, what has not ended yet.
    on_their_way: (u64, u64),
}

impl Stream {
    /// Messages are on their way.
    fn took(&mut self, messages: u64, bytes: u64) {
        let (left, bytes_left) = self.room;
        self.room = (
            left.saturating_sub(messages),
            bytes_left.saturating_sub(bytes),
        );
        self.on_their_way.0 += messages;
        self.on_their_way.1 += bytes;
    }

    fn record_bytes(&self, record: &PublishRecord<'_, '_>) -> usize {
        let (key, value) = self.key_and_value(record.publish);
        record_bytes(key, value, record.headers())
    }

    /// Where only the last record of a key is kept, an empty payload removes the key, as it removes
    /// a retained message: it is a tombstone, which MQTT has no other word for.
    fn key_and_value<'a>(&self, publish: &Publish<'a>) -> (Option<&'a [u8]>, Option<&'a [u8]>) {
        let key = self.key.key(publish).map(str::as_bytes);
        let removes = self.compacts && key.is_some() && publish.payload.is_empty();
        (key, (!removes).then_some(publish.payload))
    }
}

/// The streams that store publishes.
#[derive(Debug)]
pub struct Streams {
    hash_key: Key,
    slots: Slab<Stream>,
    by_id: Map<u64, u32>,
    /// Partitions with an open ticket.
    touched: Vec<(u32, u32)>,
    finished: Vec<Append>,
    in_flight: Map<u64, Ticket>,
    next_ticket: u64,
    undurable_bytes: usize,
    /// Sources of all partitions, at most.
    sources: usize,
    round: Vec<Placed>,
}

/// Where one stream puts the publish at hand.
#[derive(Clone, Copy, Debug)]
struct Placed {
    slot: u32,
    partition: u32,
    verdict: Verdict,
}

impl Streams {
    /// No streams.
    pub fn new(hash_key: Key) -> Self {
        Self {
            hash_key,
            slots: Slab::new(),
            by_id: Map::with_hasher(hash_key),
            touched: Vec::new(),
            finished: Vec::new(),
            in_flight: Map::with_hasher(hash_key),
            // Odd ones only: even tickets are the shell's own.
            next_ticket: 1,
            sources: 0,
            undurable_bytes: 0,
            round: Vec::new(),
        }
    }

    /// A ticket for an append that is no stream's.
    pub fn ticket(&mut self) -> u64 {
        self.next_ticket += 2;
        self.next_ticket - 2
    }

    /// Adds a stream, or gives one another rule and number of partitions. Its slot.
    pub fn bind(&mut self, id: u64, partitions: u32, key: KeyRule) -> u32 {
        let slot = self.by_id.get(&id).copied().unwrap_or_else(|| {
            let slot = self.slots.insert(Stream {
                id,
                key: KeyRule::Topic,
                codec: Codec::None,
                batch_bytes_max: usize::MAX,
                compacts: false,
                partitions: Vec::new(),
                turn: 0,
                is_fnv1a: false,
                room: (u64::MAX, u64::MAX),
                on_their_way: (0, 0),
            }) as u32;
            self.by_id.insert(id, slot);
            slot
        });
        self.finish_all();
        let hash_key = self.hash_key;
        let stream = &mut self.slots[slot as usize];
        stream.key = key;
        stream.turn = 0;
        stream
            .partitions
            .resize_with(partitions as usize, || Partition::new(hash_key));
        slot
    }

    /// Says how the batches of a stream are compressed from the next one on, and how large they may
    /// be before that, and whether it is compacted; false where it is not bound.
    pub fn shape(&mut self, id: u64, codec: Codec, batch_bytes_max: usize, compacts: bool) -> bool {
        let Some(slot) = self.by_id.get(&id).copied() else {
            return false;
        };
        self.finish_all();
        let stream = &mut self.slots[slot as usize];
        (stream.codec, stream.batch_bytes_max) = (codec, batch_bytes_max);
        stream.compacts = compacts;
        true
    }

    /// Says by which hash the keys of a stream that is bound are spread over its partitions.
    pub fn spread_by(&mut self, id: u64, is_fnv1a: bool) {
        if let Some(slot) = self.by_id.get(&id) {
            self.slots[*slot as usize].is_fnv1a = is_fnv1a;
        }
    }

    /// How many messages and bytes a stream takes until it is measured again.
    pub fn set_room(&mut self, slot: u32, room: (u64, u64)) {
        self.slots[slot as usize].room = room;
    }

    /// Whether a stream takes another message.
    pub fn has_room(&self, slot: u32) -> bool {
        let (messages, bytes) = self.slots[slot as usize].room;
        messages > 0 && bytes > 0
    }

    /// Whether a stream takes so many more.
    pub fn has_room_for(&self, slot: u32, messages: u64) -> bool {
        self.has_room(slot) && messages <= self.slots[slot as usize].room.0
    }

    /// Messages are on their way to a stream by another door.
    pub fn takes_way(&mut self, slot: u32, messages: u64, bytes: u64) {
        self.slots[slot as usize].took(messages, bytes);
    }

    /// They have got there, or not.
    pub fn leaves_way(&mut self, slot: u32, messages: u64, bytes: u64) {
        let stream = &mut self.slots[slot as usize];
        stream.on_their_way.0 = stream.on_their_way.0.saturating_sub(messages);
        stream.on_their_way.1 = stream.on_their_way.1.saturating_sub(bytes);
    }

    /// A stream's id, and messages and bytes on their way to it.
    pub fn on_their_way(&self, slot: u32) -> (u64, u64, u64) {
        let stream = &self.slots[slot as usize];
        (stream.id, stream.on_their_way.0, stream.on_their_way.1)
    }

    /// Removes a stream; its slot. What it was given before is still appended.
    pub fn unbind(&mut self, id: u64) -> Option<u32> {
        self.finish_all();
        let slot = self.by_id.remove(&id)?;
        for partition in self.slots.remove(slot as usize).partitions {
            let newest = partition.in_flight.back();
            for repeat in partition.repeats {
                let ticket = newest.and_then(|ticket| self.in_flight.get_mut(ticket));
                let ticket = ticket.expect("a repeat waits for something");
                ticket.waiters.push(repeat.waiter);
            }
        }
        Some(slot)
    }

    /// Partitions of a stream; 0 where it is not bound.
    pub fn partitions(&self, id: u64) -> usize {
        let slot = self.by_id.get(&id);
        slot.map_or(0, |slot| self.slots[*slot as usize].partitions.len())
    }

    /// The slot of a stream, which stays as long as it is bound.
    pub fn slot(&self, id: u64) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// Bytes of records whose tickets have not ended.
    pub fn undurable_bytes(&self) -> usize {
        self.undurable_bytes
    }

    /// Tickets that have not ended.
    pub fn tickets(&self) -> usize {
        self.in_flight.len() + self.touched.len()
    }

    /// Streams bound.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Gives a publish to the streams at `slots`. A stale epoch at one of them refuses it whole, and
    /// so does one that takes no record so large, or has no room.
    pub fn store(
        &mut self,
        slots: &[u32],
        publish: &Publish,
        wall_ms: i64,
        waiter: Option<Waiter>,
    ) -> Stored {
        let user = &publish.properties.user;
        let source = Source::find(
            user.iter()
                .map(|(name, value)| (name.as_bytes(), value.as_bytes())),
        );
        let mut round = std::mem::take(&mut self.round);
        round.clear();
        round.extend(
            slots
                .iter()
                .map(|slot| self.place(*slot, publish, source.as_ref())),
        );
        let mut stored = Stored {
            outcome: Outcome::AlreadyStored,
            records: 0,
            tickets: 0,
        };
        let record = PublishRecord::of(publish);
        if round.iter().any(|placed| !self.fits(placed, &record)) {
            stored.outcome = Outcome::TooLarge;
        } else if round.iter().any(|placed| placed.verdict == Verdict::Stale) {
            stored.outcome = Outcome::StaleEpoch;
        } else if round.iter().any(|placed| self.is_full_for(placed)) {
            stored.outcome = Outcome::QueueFull;
        } else {
            for placed in &round {
                match placed.verdict {
                    Verdict::New => {
                        stored.outcome = Outcome::Accepted;
                        stored.records += 1;
                        stored.tickets += 1;
                        self.append(*placed, &record, source.as_ref(), wall_ms, waiter);
                    }
                    _ => stored.tickets += self.wait(placed.slot, placed.partition, waiter),
                }
            }
        }
        self.round = round;
        stored
    }

    fn place(&mut self, slot: u32, publish: &Publish, source: Option<&Source>) -> Placed {
        let stream = &mut self.slots[slot as usize];
        let partitions = stream.partitions.len() as u32;
        let partition = if let Some(key) = stream.key.key(publish) {
            if stream.is_fnv1a {
                fnv1a(key.as_bytes()) % partitions
            } else {
                partition_of(key.as_bytes(), partitions)
            }
        } else if let Some(one) = source.filter(|source| source.is_one_message()) {
            partition_of(one.name.as_bytes(), partitions) // where it is known again
        } else {
            stream.turn = (stream.turn + 1) % partitions;
            stream.turn
        };
        let sources = &stream.partitions[partition as usize].sources;
        let verdict = source.map_or(Verdict::New, |source| sources.verdict(source));
        Placed {
            slot,
            partition,
            verdict,
        }
    }

    /// Whether a publish makes a batch that its stream takes.
    fn fits(&self, placed: &Placed, record: &PublishRecord<'_, '_>) -> bool {
        let stream = &self.slots[placed.slot as usize];
        HEADER_BYTES + stream.record_bytes(record) <= stream.batch_bytes_max
    }

    fn is_full_for(&self, placed: &Placed) -> bool {
        placed.verdict == Verdict::New && !self.has_room(placed.slot)
    }

    fn append(
        &mut self,
        placed: Placed,
        record: &PublishRecord<'_, '_>,
        source: Option<&Source>,
        wall_ms: i64,
        waiter: Option<Waiter>,
    ) -> u64 {
        let bytes = self.slots[placed.slot as usize].record_bytes(record);
        let ticket = self.open(placed.slot, placed.partition, bytes, waiter);
        let stream = &mut self.slots[placed.slot as usize];
        let (key, value) = stream.key_and_value(record.publish);
        let partition = &mut stream.partitions[placed.partition as usize];
        partition
            .builder
            .push(wall_ms, key, value, record.headers());
        if let Some(source) = source {
            let known = partition.sources.len();
            let undo = partition.sources.note(source, ticket, wall_ms);
            let open = partition.open.as_mut().expect("it has just been opened");
            open.undos.extend(undo);
            self.sources += partition.sources.len().saturating_sub(known);
        }
        self.pushed(placed.slot, placed.partition);
        if self.sources > SOURCES_OF_NODE_MAX {
            self.bound_sources();
        }
        ticket
    }

    /// Appends a publish of the switchboard's own; the ticket of its batch.
    pub fn store_own(&mut self, slot: u32, publish: &Publish<'_>, wall_ms: i64) -> u64 {
        let placed = self.place(slot, publish, None);
        self.append(placed, &PublishRecord::of(publish), None, wall_ms, None)
    }

    /// Appends a record of the switchboard's own, which no source has sent, to the partition of
    /// its key; the ticket of its batch.
    pub fn record(
        &mut self,
        slot: u32,
        (key, value): (&[u8], Option<&[u8]>),
        header: Option<(&[u8], &[u8])>,
        wall_ms: i64,
        waiter: Option<Waiter>,
    ) -> u64 {
        let header = header.map(|(name, value)| (name, Some(value)));
        let partition = self.partition(slot, key);
        let ticket = self.open(
            slot,
            partition,
            record_bytes(Some(key), value, header),
            waiter,
        );
        let state = &mut self.slots[slot as usize].partitions[partition as usize];
        state.builder.push(wall_ms, Some(key), value, header);
        self.pushed(slot, partition);
        ticket
    }

    /// Where a stream puts records of that key.
    pub fn partition(&self, slot: u32, key: &[u8]) -> u32 {
        partition_of(key, self.slots[slot as usize].partitions.len() as u32)
    }

    /// Whether a stream takes a record that is so large.
    pub fn takes(&self, slot: u32, record_bytes: usize) -> bool {
        HEADER_BYTES + record_bytes <= self.slots[slot as usize].batch_bytes_max
    }

    /// Asserts what must always hold.
    ///
    /// # Panics
    /// Where it does not.
    pub fn validate(&self) {
        let open = self.slots.iter().flat_map(|(_, stream)| {
            let partitions = stream.partitions.iter();
            partitions.filter_map(|partition| partition.open.as_ref())
        });
        let bytes: usize = open
            .chain(self.in_flight.values())
            .map(|ticket| ticket.bytes)
            .sum();
        assert_eq!(bytes, self.undurable_bytes);
        assert!(
            self.in_flight.keys().all(|ticket| ticket % 2 == 1),
            "tickets are odd"
        );
    }
}

#[cfg(test)]
mod tests;
