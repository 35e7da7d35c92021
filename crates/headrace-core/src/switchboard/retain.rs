//! A publish that is to be retained, from its arrival to the disk, and back at a start.
//!
//! Where retained messages last, each change is a record of a stream of the node's own, and the
//! order of that log is the order in which they came. One that was promised (`QoS` 1 and 2) is
//! retained once its record is durable; its publisher hears of it after that. One at `QoS` 0 is
//! retained at once, and overtakes those of its topic that still wait, as it does in the log.
//!
//! Invariant: what is retained is what the durable records of each topic come to, or something
//! newer that was not promised. So a state of it is true of all records that are durable.

use std::sync::Arc;

use bytes::Bytes;

use super::announce::BELOW;
use super::outgoing::{topic_of, Outgoing};
use super::publish::Incoming;
use super::retained::Page;
use super::retained_record::{self as record, HEADER};
use super::route::Subject;
use super::streams::Waiter;
use super::{Counter, Error, Switchboard, DOOR};
use crate::hash::{Key, Map};
use crate::mqtt::packet::Publish;
use crate::record::{BatchBuilder, Batches, Records, DECOMPRESSED_BYTES_MAX};
use crate::session::{Ending, Message, Outcome, OVERHEAD_BYTES};
use crate::topic::{Cursor, Filter};
use crate::{record as batch, Now};

/// Bytes of a batch of a state, and of a page of it.
const STATE_BYTES: usize = 1024 * 1024;

/// Changes of retained messages on their way to the disk.
#[derive(Debug)]
pub(super) struct Keeping {
    /// Slot of the stream that keeps them; None where they last as long as the node runs.
    stream: Option<u32>,
    /// What was promised, by the ticket of its record.
    promised: Map<u64, Vec<Promised>>,
    topics: Map<Box<str>, Waiting>,
    bytes: usize,
}

/// A message that is retained once it is durable.
#[derive(Debug)]
struct Promised {
    message: Arc<Message>,
    /// Session slot, or a door.
    origin: u32,
    arrival: u64,
}

/// What waits of one topic.
#[derive(Debug, Default)]
struct Waiting {
    promised: usize,
    /// Something that came then was retained at once: what came before is over.
    overtaken: u64,
}

impl Keeping {
    pub fn new(hash_key: Key) -> Self {
        Self {
            stream: None,
            promised: Map::with_hasher(hash_key),
            topics: Map::with_hasher(hash_key),
            bytes: 0,
        }
    }

    /// Changes that wait.
    pub fn len(&self) -> usize {
        self.promised.values().map(Vec::len).sum()
    }

    fn promise(&mut self, ticket: u64, promised: Promised) {
        self.bytes += promised.message.bytes();
        let topic = topic_of(&promised.message);
        if let Some(waiting) = self.topics.get_mut(topic) {
            waiting.promised += 1;
        } else {
            let (promised, overtaken) = (1, 0);
            let waiting = Waiting {
                promised,
                overtaken,
            };
            self.topics.insert(topic.into(), waiting);
        }
        self.promised.entry(ticket).or_default().push(promised);
    }

    /// A promised message waits no more; whether nothing has overtaken it.
    fn end(&mut self, promised: &Promised) -> bool {
        self.bytes -= promised.message.bytes();
        let topic = topic_of(&promised.message);
        let waiting = self.topics.get_mut(topic).expect("it waits");
        waiting.promised -= 1;
        let is_newest = waiting.overtaken < promised.arrival;
        if waiting.promised == 0 {
            self.topics.remove(topic);
        }
        is_newest
    }

    fn overtake(&mut self, topic: &str, arrival: u64) {
        if let Some(waiting) = self.topics.get_mut(topic) {
            waiting.overtaken = arrival;
        }
    }

    pub fn validate(&self) {
        let all = || self.promised.values().flatten();
        let bytes: usize = all().map(|each| each.message.bytes()).sum();
        let waiting: usize = self.topics.values().map(|each| each.promised).sum();
        assert_eq!((bytes, all().count()), (self.bytes, waiting));
    }
}

/// What a start has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Records taken in.
    pub records: usize,
    /// Those that are none of a retained message.
    pub ignored: usize,
    /// Offset after the last batch.
    pub next_offset: i64,
}

/// A part of what is retained, as a start reads it back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetainedState {
    /// Of each partition asked for: record batches, each of base offset 0, and records in them.
    pub parts: Vec<(Vec<u8>, usize)>,
    /// Where the next part begins; None at the end.
    pub next: Option<String>,
}

impl Switchboard {
    /// Has retained messages last in a stream, which is bound and has no filters, and whose
    /// records are read back by [`Switchboard::restore_retained`].
    ///
    /// # Errors
    /// The stream is not bound.
    pub fn keep_retained(&mut self, stream: u64) -> Result<(), Error> {
        let slot = self.streams.slot(stream).ok_or(Error::Stream(stream, 0))?;
        self.keeping.stream = Some(slot);
        Ok(())
    }

    /// Why a publish that asks to be retained cannot be.
    pub(super) fn refuses_to_retain(
        &self,
        publish: &Publish<'_>,
        packet_bytes: usize,
    ) -> Option<Outcome> {
        if !publish.retain {
            return None;
        }
        let topic = publish.topic;
        if let Some(slot) = self.keeping.stream {
            if !self
                .streams
                .takes(slot, record::bytes_max(topic, packet_bytes))
            {
                return Some(Outcome::TooLarge);
            }
        }
        if publish.payload.is_empty() {
            return None;
        }
        let bytes = topic.len() + packet_bytes + OVERHEAD_BYTES + self.keeping.bytes;
        let waiting = self.keeping.topics.len();
        let is_known = self.keeping.topics.contains_key(topic);
        let count_max = self.limits.retained_messages_max + usize::from(is_known);
        let (count_max, bytes_max) = (
            count_max.saturating_sub(waiting),
            self.limits.retained_bytes_max,
        );
        let has_room = self.retained.has_room(topic, bytes, count_max, bytes_max);
        (!has_room).then_some(Outcome::RetainedFull)
    }

    /// Retains a publish (MQTT-3.3.1-5, -6), or promises to; for how many tickets its publisher
    /// waits.
    pub(super) fn retain(
        &mut self,
        incoming: &Incoming<'_>,
        outgoing: &mut Outgoing<'_>,
        waiter: Option<Waiter>,
        now: Now,
    ) -> u32 {
        let message = outgoing.message();
        let arrival = self.arrivals;
        let ticket = self.record_retained(&message, waiter, now);
        if let (Some(ticket), true) = (ticket, waiter.is_some()) {
            let origin = incoming.origin;
            let promised = Promised {
                message,
                origin,
                arrival,
            };
            self.keeping.promise(ticket, promised);
            return 1;
        }
        self.keeping.overtake(topic_of(&message), arrival);
        self.set_retained(&message, now);
        0
    }

    /// The publisher of a repeat waits for what may be on its way; for how many tickets.
    pub(super) fn retained_before(&mut self, topic: &str, waiter: Option<Waiter>) -> u32 {
        let Some(slot) = self.keeping.stream else {
            return 0;
        };
        let partition = self.streams.partition(slot, topic.as_bytes());
        self.streams.wait(slot, partition, waiter)
    }

    /// Appends a record of what a topic retains from now on; its ticket where there is one.
    fn record_retained(
        &mut self,
        message: &Message,
        waiter: Option<Waiter>,
        now: Now,
    ) -> Option<u64> {
        let slot = self.keeping.stream?;
        let topic = topic_of(message).as_bytes();
        let value = (!message.payload.is_empty()).then_some(&*message.payload);
        let header = value.map(|_| record::header(message, now));
        let header = header.as_ref().map(|header| (HEADER, &header[..]));
        self.counters.count(Counter::RetainedStored);
        let record = (topic, value);
        Some(
            self.streams
                .record(slot, record, header, now.wall_ms, waiter),
        )
    }

    /// The append of a ticket ended: what was promised with it is retained, and who has subscribed
    /// since it came is told.
    pub(super) fn retained_durable(&mut self, ticket: u64, ending: Ending, now: Now) {
        for promised in self.keeping.promised.remove(&ticket).unwrap_or_default() {
            let is_newest = self.keeping.end(&promised);
            if is_newest && ending == Ending::Stored {
                self.arrivals += 1;
                self.set_retained(&promised.message, now);
                self.tell_late(&promised, now);
            }
        }
    }

    /// The search of a subscription may have passed the place of a message that came before it.
    fn tell_late(&mut self, promised: &Promised, now: Now) {
        let message = &promised.message;
        let subject = Subject {
            retain: true,
            ..Subject::of(message, promised.origin, promised.arrival)
        };
        self.match_topic(&subject);
        if message.is_expired(now.mono_ms) {
            return;
        }
        let mut outgoing = Outgoing::of_message(message, now.mono_ms);
        if self.route.is_crowd {
            for (session, terms) in self.late_receivers(&subject) {
                if self.hears(session, &outgoing) {
                    self.deliver(session, &terms, None, &mut outgoing);
                }
            }
            return;
        }
        let route = std::mem::take(&mut self.route);
        for target in &route.targets[route.late_at..] {
            self.deliver(target.session, &target.terms, None, &mut outgoing);
        }
        self.route = route;
    }

    /// Retained messages go without a publish: because they expired, or somebody deletes them and
    /// waits for so many tickets.
    pub(super) fn let_go(
        &mut self,
        messages: &[Arc<Message>],
        waiter: Option<Waiter>,
        now: Now,
    ) -> u32 {
        self.arrivals += 1;
        let mut tickets = 0;
        for message in messages {
            let cleared = Message {
                payload: Bytes::new(),
                ..message.fresh()
            };
            let ticket = self.record_retained(&cleared, waiter, now);
            tickets += u32::from(ticket.is_some());
            self.keeping.overtake(topic_of(message), self.arrivals);
            self.retained.clear(topic_of(message));
        }
        self.set_retained_timer();
        tickets
    }

    /// Deletes retained messages that a filter matches; how many, page by page as
    /// [`Switchboard::retained`]. Subscribers are not told, as nothing is published. `request`
    /// comes back from [`Switchboard::published`] once that is durable.
    ///
    /// # Errors
    /// The filter is malformed.
    pub fn delete_retained(
        &mut self,
        filter: &str,
        from: &str,
        request: u64,
        now: Now,
    ) -> Result<Page<usize>, Error> {
        if filter.starts_with(BELOW) {
            let text = format!("filter \"{filter}\": the broker keeps what it says of itself");
            return Err(Error::Invalid(text));
        }
        let mut messages = Vec::new();
        let next = self.each_retained(filter, from, |message| {
            messages.push(Arc::clone(message));
            true
        })?;
        let waiter = Waiter {
            origin: DOOR,
            ordinal: self.door.next_ordinal(),
        };
        let tickets = self.let_go(&messages, Some(waiter), now);
        self.answer_request(request, tickets, now);
        let found = messages.len();
        Ok(Page { found, next })
    }

    /// Keeps the last message of its topic, or none where it is empty.
    fn set_retained(&mut self, message: &Message, now: Now) {
        let topic = topic_of(message);
        if message.payload.is_empty() || message.is_expired(now.mono_ms) {
            self.retained.clear(topic);
        } else {
            let partition = self.retained_partition(topic);
            self.retained
                .set(Arc::new(message.fresh()), self.arrivals, partition);
        }
        self.set_retained_timer();
    }

    fn retained_partition(&self, topic: &str) -> u32 {
        let slot = self.keeping.stream;
        slot.map_or(0, |slot| self.streams.partition(slot, topic.as_bytes()))
    }

    /// Takes records in: those of a state, or of the stream in its order. More may be retained
    /// afterwards than the bounds allow, where they were lowered: nothing that was promised goes.
    ///
    /// # Errors
    /// A batch is damaged; what stands before it is taken in.
    pub fn restore_retained(&mut self, batches: &[u8], now: Now) -> Result<Restored, batch::Error> {
        let (mut restored, mut scratch) = (Restored::default(), Vec::new());
        for batch in Batches::new(batches) {
            let batch = batch?;
            batch.check_crc()?;
            restored.next_offset = batch.header.next_offset();
            if batch.header.is_control() {
                continue;
            }
            let body = batch.open(&mut scratch, DECOMPRESSED_BYTES_MAX)?;
            for each in Records::new(&batch.header, body) {
                let each = each.map_err(|fault| batch.wrong(fault))?;
                restored.records += 1;
                self.arrivals += 1;
                match record::read(&each, now) {
                    // One that has expired is let go of in the log as well, by the next tick.
                    Some((topic, Some(message))) => {
                        let partition = self.retained_partition(topic);
                        self.retained
                            .set(Arc::new(message), self.arrivals, partition);
                    }
                    Some((topic, None)) => {
                        self.retained.clear(topic);
                    }
                    None => restored.ignored += 1,
                }
            }
        }
        self.set_retained_timer();
        Ok(restored)
    }

    /// What is retained of some partitions of the stream, page by page; begins at `from`, which is
    /// `next` of the page before, and looks at so many names (10,000 take about 5 ms) of all
    /// partitions. What changes between two pages may be missing or there: the records that follow
    /// the first page tell.
    ///
    /// # Panics
    /// Never.
    pub fn retained_state(
        &self,
        partitions: &[u32],
        from: &str,
        names: usize,
        now: Now,
    ) -> RetainedState {
        let all = Filter::parse("#").expect("it is a filter");
        let (mut cursor, mut steps) = (Cursor::at(from), names);
        let mut parts: Vec<_> = partitions
            .iter()
            .map(|_| (BatchBuilder::new(), 0))
            .collect();
        while let Some(kept) = self.retained.next(all, &mut cursor, &mut steps) {
            let Some(at) = partitions.iter().position(|each| *each == kept.partition) else {
                continue;
            };
            let (builder, records) = &mut parts[at];
            let message = &kept.message;
            let header = record::header(message, now);
            let topic = topic_of(message).as_bytes();
            let header = [(HEADER, Some(&header[..]))];
            builder.push(now.wall_ms, Some(topic), Some(&message.payload), header);
            *records += 1;
            if builder.bytes() >= STATE_BYTES {
                break;
            }
        }
        let finish = |(mut builder, records): (BatchBuilder, usize)| match records {
            0 => (Vec::new(), 0),
            _ => (builder.finish(), records),
        };
        RetainedState {
            parts: parts.into_iter().map(finish).collect(),
            next: (!cursor.is_over()).then(|| cursor.position()),
        }
    }
}
