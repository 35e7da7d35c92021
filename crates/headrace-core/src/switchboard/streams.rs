//! What streams store of the publishes that pass: keys, partitions, batches, tickets, repeats.
//!
//! Owns the way from a matched publish to an append and from the append's end to those who wait
//! for it. Must not know connections or sessions: a waiter is a number and an ordinal.
//!
//! Invariants: a waiter is settled once for each ticket that it waits for, a repeat once; a repeat
//! waits for every append in flight of its partition, so it is never acknowledged before the first
//! copy is durable; bytes in `undurable_bytes` are those of records whose ticket has not ended.

use slab::Slab;

use super::partition::{Partition, Repeat, Ticket};
use super::publish_record::headers;
use super::sources::{Sources, Verdict, SOURCES_OF_NODE_MAX};
use crate::hash::{Key, Map};
use crate::mqtt::packet::Publish;
use crate::record::{partition_of, record_bytes, Codec, Source, HEADER_BYTES, LATER_RECORD_BYTES};
use crate::session::{Ending, Outcome};

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
    partitions: Vec<Partition>,
    /// Where the next record without a key goes.
    turn: u32,
}

impl Stream {
    /// Of a publish.
    fn record_bytes(&self, publish: &Publish) -> usize {
        let key = self.key.key(publish).map(str::as_bytes);
        record_bytes(key, Some(publish.payload), headers(publish))
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
                partitions: Vec::new(),
                turn: 0,
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
    /// be before that; false where it is not bound.
    pub fn shape(&mut self, id: u64, codec: Codec, batch_bytes_max: usize) -> bool {
        let Some(slot) = self.by_id.get(&id).copied() else {
            return false;
        };
        self.finish_all();
        let stream = &mut self.slots[slot as usize];
        (stream.codec, stream.batch_bytes_max) = (codec, batch_bytes_max);
        true
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

    /// The slot of a stream, which stays as long as it is bound.
    pub fn slot(&self, id: u64) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// The sources of a partition.
    pub fn sources(&mut self, id: u64, partition: u32) -> Option<&mut Sources> {
        let slot = *self.by_id.get(&id)?;
        let stream = &mut self.slots[slot as usize];
        stream
            .partitions
            .get_mut(partition as usize)
            .map(|partition| &mut partition.sources)
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
    /// so does one that takes no record so large.
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
        if round.iter().any(|placed| !self.fits(placed, publish)) {
            stored.outcome = Outcome::TooLarge;
        } else if round.iter().any(|placed| placed.verdict == Verdict::Stale) {
            stored.outcome = Outcome::StaleEpoch;
        } else {
            for placed in &round {
                match placed.verdict {
                    Verdict::New => {
                        stored.outcome = Outcome::Accepted;
                        stored.records += 1;
                        stored.tickets += 1;
                        self.append(*placed, publish, source.as_ref(), wall_ms, waiter);
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
            partition_of(key.as_bytes(), partitions)
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
    fn fits(&self, placed: &Placed, publish: &Publish) -> bool {
        let stream = &self.slots[placed.slot as usize];
        HEADER_BYTES + stream.record_bytes(publish) <= stream.batch_bytes_max
    }

    fn append(
        &mut self,
        placed: Placed,
        publish: &Publish,
        source: Option<&Source>,
        wall_ms: i64,
        waiter: Option<Waiter>,
    ) {
        let bytes = self.slots[placed.slot as usize].record_bytes(publish);
        let ticket = self.open(placed.slot, placed.partition, bytes, waiter);
        let stream = &mut self.slots[placed.slot as usize];
        let partition = &mut stream.partitions[placed.partition as usize];
        partition.builder.push(
            wall_ms,
            stream.key.key(publish).map(str::as_bytes),
            Some(publish.payload),
            headers(publish),
        );
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

    /// Begins a batch where there is none, or none with room for the record that comes; its
    /// ticket.
    fn open(&mut self, slot: u32, partition: u32, bytes: usize, waiter: Option<Waiter>) -> u64 {
        let stream = &self.slots[slot as usize];
        let bytes = stream.partitions[partition as usize].builder.bytes() + bytes;
        if bytes + LATER_RECORD_BYTES > stream.batch_bytes_max {
            self.finish_touched(slot, partition);
        }
        let stream = &mut self.slots[slot as usize];
        let state = &mut stream.partitions[partition as usize];
        let ticket = state.open.get_or_insert_with(|| {
            self.touched.push((slot, partition));
            self.next_ticket += 2;
            Ticket {
                number: self.next_ticket - 2,
                stream: stream.id,
                partition,
                bytes: 0,
                waiters: Vec::new(),
                undos: Vec::new(),
            }
        });
        ticket.waiters.extend(waiter);
        ticket.number
    }

    /// Counts the record that was added to a partition.
    fn pushed(&mut self, slot: u32, partition: u32) {
        let state = &mut self.slots[slot as usize].partitions[partition as usize];
        let ticket = state.open.as_mut().expect("a record is in a batch");
        let before = std::mem::replace(&mut ticket.bytes, state.builder.bytes());
        self.undurable_bytes += ticket.bytes - before;
        if state.builder.bytes() >= BATCH_BYTES_MAX {
            self.finish_touched(slot, partition);
        }
    }

    /// Notes sources that the log holds. None where there is no such partition.
    pub fn load_sources<'a>(
        &mut self,
        id: u64,
        partition: u32,
        sources: impl IntoIterator<Item = (&'a str, u64, u64)>,
    ) -> Option<()> {
        let window = self.sources(id, partition)?;
        for (name, epoch, sequence) in sources {
            window.load(name, epoch, sequence);
        }
        self.bound_sources();
        Some(())
    }

    /// Counts the sources, and has them forgotten until they are few enough.
    fn bound_sources(&mut self) {
        loop {
            let streams = self.slots.iter_mut();
            let windows = streams.flat_map(|(_, stream)| &mut stream.partitions);
            let mut most: Option<&mut Sources> = None;
            self.sources = 0;
            for window in windows.map(|partition| &mut partition.sources) {
                self.sources += window.len();
                if most.as_ref().is_none_or(|most| most.len() < window.len()) {
                    most = Some(window);
                }
            }
            match most {
                Some(most) if self.sources > SOURCES_OF_NODE_MAX => most.turn(),
                _ => return,
            }
        }
    }

    /// Makes the waiter of a repeat wait for all that is in flight to a partition; 0 where nothing
    /// is, else it is settled once.
    pub fn wait(&mut self, slot: u32, partition: u32, waiter: Option<Waiter>) -> u32 {
        let stream = &mut self.slots[slot as usize];
        let partition = &mut stream.partitions[partition as usize];
        let (Some(waiter), Some(last)) = (waiter, partition.newest()) else {
            return 0;
        };
        partition.repeats.push_back(Repeat {
            waiter,
            last,
            ending: Ending::Stored,
        });
        1
    }

    /// Finishes the batch of one partition, where one is open.
    fn finish_touched(&mut self, slot: u32, partition: u32) {
        let open = self.touched.len();
        self.touched.retain(|touched| *touched != (slot, partition));
        if self.touched.len() < open {
            self.finish(slot, partition);
        }
    }

    fn finish(&mut self, slot: u32, partition: u32) {
        let stream = &mut self.slots[slot as usize];
        let Partition {
            builder,
            open,
            in_flight,
            ..
        } = &mut stream.partitions[partition as usize];
        let ticket = open.take().expect("a touched partition has a ticket");
        self.finished.push(Append {
            stream: stream.id,
            partition,
            batch: builder.finish_published(stream.codec),
            ticket: ticket.number,
        });
        in_flight.push_back(ticket.number);
        self.in_flight.insert(ticket.number, ticket);
    }

    fn finish_all(&mut self) {
        for (slot, partition) in std::mem::take(&mut self.touched) {
            self.finish(slot, partition);
        }
    }

    /// The appends that are due, in the order of their tickets within a partition.
    pub fn collect(&mut self) -> Vec<Append> {
        self.finish_all();
        std::mem::take(&mut self.finished)
    }

    /// The append of `ticket` ended; who waits no more, and how what they wait for ended. None
    /// where no such ticket is in flight.
    pub fn durable(&mut self, ticket: u64, ending: Ending) -> Option<Vec<(Waiter, Ending)>> {
        let ticket = self.in_flight.remove(&ticket)?;
        self.undurable_bytes -= ticket.bytes;
        let settled = ticket.waiters.into_iter().map(|waiter| (waiter, ending));
        let mut settled: Vec<_> = settled.collect();
        if let Some(slot) = self.by_id.get(&ticket.stream) {
            let partitions = &mut self.slots[*slot as usize].partitions;
            if let Some(partition) = partitions.get_mut(ticket.partition as usize) {
                settled.extend(partition.ended(ticket.number, ending));
                if ending != Ending::Stored {
                    let undos = ticket.undos.into_iter().rev();
                    undos.for_each(|undo| partition.sources.take_back(undo));
                }
            }
        }
        Some(settled)
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
mod tests {
    use super::*;
    use crate::mqtt::packet::PublishProperties;

    fn send(streams: &mut Streams, slot: u32, source: &str, sequence: u64, ordinal: u64) -> Stored {
        let sequence = sequence.to_string();
        let publish = Publish {
            topic: "t",
            properties: PublishProperties {
                user: vec![("source", source), ("epoch", "1"), ("sequence", &sequence)],
                ..PublishProperties::default()
            },
            ..Publish::default()
        };
        let waiter = Waiter { origin: 0, ordinal };
        let stored = streams.store(&[slot], &publish, 0, Some(waiter));
        streams.collect();
        stored
    }

    #[test]
    fn the_sources_of_all_partitions_together_are_bounded() {
        let mut streams = Streams::new(Key(1, 2));
        let slots: Vec<u32> = (0..5)
            .map(|id| streams.bind(id, 1, KeyRule::Topic))
            .collect();
        let known = |streams: &mut Streams| -> usize {
            (0..5).map(|id| streams.sources(id, 0).unwrap().len()).sum()
        };
        for at in 0..5 * SOURCES_OF_NODE_MAX as u64 {
            // A tenth of the streams has nine tenths of the sources.
            let slot = slots[if at % 10 == 0 {
                1 + at as usize / 10 % 4
            } else {
                0
            }];
            send(&mut streams, slot, &at.to_string(), 1, at);
            assert!(streams.sources <= SOURCES_OF_NODE_MAX);
            assert!(known(&mut streams) <= streams.sources);
        }
        assert!(known(&mut streams) > SOURCES_OF_NODE_MAX / 2);
        let names: Vec<String> = (0..2 * SOURCES_OF_NODE_MAX)
            .map(|at| format!("x{at}"))
            .collect();
        let loaded = names.iter().map(|name| (name.as_str(), 1, 1));
        streams.load_sources(4, 0, loaded).unwrap();
        assert!(known(&mut streams) <= SOURCES_OF_NODE_MAX);
    }

    #[test]
    fn a_repeat_costs_the_same_however_much_is_in_flight() {
        let mut streams = Streams::new(Key(1, 2));
        let slot = streams.bind(1, 1, KeyRule::Topic);
        let mut tickets = Vec::new();
        for ordinal in 0..100 {
            send(&mut streams, slot, "s", ordinal, ordinal);
            tickets.push(1 + 2 * ordinal);
        }
        for ordinal in 100..200 {
            assert_eq!(send(&mut streams, slot, "s", 5, ordinal).tickets, 1);
        }
        let ends: Vec<usize> = tickets
            .into_iter()
            .map(|ticket| {
                streams
                    .durable(ticket, Ending::Stored)
                    .expect("in flight")
                    .len()
            })
            .collect();
        assert_eq!(ends[..99], [1; 99]);
        assert_eq!(ends[99], 101, "the last publish, and every repeat once");
    }
}
