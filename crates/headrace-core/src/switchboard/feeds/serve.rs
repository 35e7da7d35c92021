//! Sends the records of a piece of a log to a client, as far as it has room.

use std::sync::Arc;

use super::{Feeds, REST_MS, STEPS_MAX, TURN_READ_BYTES_MAX};
use crate::mqtt::encode;
use crate::mqtt::packet::{Publish, QoS, Version};
use crate::record::{Batch, Batches, Mark, Record, Records};
use crate::session::{Claim, Ids, Owner, Terms, Wanted};
use crate::switchboard::outgoing::Outgoing;
use crate::switchboard::record_publish::{stream_of, Texts};
use crate::switchboard::retained::AHEAD_BYTES_MAX;
use crate::switchboard::{Counter, Switchboard};
use crate::topic;
use crate::Now;

/// Steps of one session before others have theirs.
const STEPS_AT_ONCE: usize = STEPS_MAX / 8;

/// Bytes of records that cost as much as a step: they are checked, and copied twice.
const STEP_BYTES: usize = 1024;

/// Batches that were read for a feed, and how far it is in them.
#[derive(Debug)]
pub(super) struct Slice {
    filter: Box<str>,
    wanted: Wanted,
    batches: Arc<[u8]>,
    /// Where the batch at hand begins.
    at: usize,
    /// Where in its records it is; None where it has not begun.
    mark: Option<Mark>,
    stamp: u64,
}

impl Slice {
    /// What it costs.
    pub fn bytes(&self) -> usize {
        self.batches.len()
    }

    pub fn number(&self) -> u64 {
        self.wanted.number
    }

    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    pub fn stamped(self, stamp: u64) -> Self {
        Self { stamp, ..self }
    }
}

/// How serving a piece ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Served {
    /// All of it was looked at, or nobody wants it any more.
    All,
    /// The client has no room.
    Full,
    /// The turn is over.
    Turn,
}

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It is behind the feed.
    Passed,
    /// There is no room for it.
    Waits,
}

impl Feeds {
    /// A turn begins.
    pub fn begin_turn(&mut self) {
        self.turn_bytes = TURN_READ_BYTES_MAX;
        self.steps = STEPS_MAX;
        self.last = None;
    }
}

impl Switchboard {
    /// Whether the client of a session has room for a record of a stream: records never queue.
    pub(super) fn reader_has_room(&self, session: u32) -> bool {
        let state = &self.sessions[session as usize];
        let Some(slot) = state.connection else {
            return false;
        };
        let connection = &self.connections[slot as usize];
        let waiting = connection.out.len() + state.outbound.queued_bytes();
        let bytes_max = AHEAD_BYTES_MAX.min(self.outbound_bytes_max() / 2);
        let feeds = state.feeds.as_ref();
        let mut feeds = feeds.into_iter().flat_map(|feeds| feeds.iter());
        waiting <= bytes_max
            && (state.outbound.has_room() || feeds.any(|(_, feed)| feed.qos == QoS::AtMostOnce))
    }

    /// Goes on with what a session reads.
    pub(in crate::switchboard) fn feed(&mut self, session: u32, now: Now) {
        if let Some(slice) = self.feeds.take_slice(session) {
            self.serve_piece(session, slice, now);
        }
        if self.sessions.contains(session as usize) {
            self.line_up(session);
        }
    }

    /// A piece has come for a session.
    pub(super) fn serve_slice(
        &mut self,
        session: u32,
        wanted: Wanted,
        batches: Arc<[u8]>,
        now: Now,
    ) {
        let feeds = self.sessions[session as usize].feeds.as_mut();
        if let Some((filter, _)) = feeds.and_then(|feeds| feeds.numbered(wanted.number)) {
            let slice = Slice {
                filter: filter.into(),
                wanted,
                batches,
                at: 0,
                mark: None,
                stamp: 0,
            };
            self.serve_piece(session, slice, now);
        }
        self.line_up(session);
    }

    fn serve_piece(&mut self, session: u32, mut slice: Slice, now: Now) {
        if self.sessions[session as usize].connection.is_none() {
            return;
        }
        let mut texts = std::mem::take(&mut self.feeds.texts);
        let mut packet = std::mem::take(&mut self.feeds.packet);
        let spare = self.feeds.steps.saturating_sub(STEPS_AT_ONCE);
        self.feeds.steps -= spare;
        let mut served = Served::Turn;
        while served == Served::Turn && self.feeds.steps > 0 {
            served = self.serve_batch(session, &mut slice, (&mut texts, &mut packet), now);
        }
        self.feeds.steps += spare;
        self.feeds.texts = texts;
        self.feeds.packet = packet;
        match served {
            Served::All => {}
            Served::Full => self.feeds.hold(session, slice),
            Served::Turn => {
                self.feeds.hold(session, slice);
                self.wait_for_turn(session);
            }
        }
    }

    /// Stands a session behind all others that have a piece and had no turn for it.
    fn wait_for_turn(&mut self, session: u32) {
        let feeds = self.sessions[session as usize].feeds.as_mut();
        if feeds.is_some_and(|feeds| !std::mem::replace(&mut feeds.is_in_turn, true)) {
            self.feeds.turns.push_back(session);
        }
    }

    /// Goes on with those who had no turn before, in their order.
    pub(in crate::switchboard) fn serve_turns(&mut self, now: Now) {
        while self.feeds.steps > 0 {
            let Some(session) = self.feeds.turns.pop_front() else {
                return;
            };
            let state = self.sessions.get_mut(session as usize);
            let feeds = state.and_then(|state| state.feeds.as_mut());
            if feeds.is_some_and(|feeds| std::mem::take(&mut feeds.is_in_turn)) {
                self.feed(session, now);
            }
        }
    }

    /// Serves the batch at hand; `Turn` where another one follows it, or the turn is over.
    fn serve_batch(
        &mut self,
        session: u32,
        slice: &mut Slice,
        (texts, packet): (&mut Texts, &mut Vec<u8>),
        now: Now,
    ) -> Served {
        let batches = Arc::clone(&slice.batches);
        // What the read has cut off at its end is read again.
        let Some(Ok(batch)) = Batches::new(&batches[slice.at..]).next() else {
            return Served::All;
        };
        if slice.mark.is_none() && !self.open_batch(session, slice, &batch) {
            return self.next_batch(session, slice, &batch);
        }
        let body = batch.body();
        let mut records = match slice.mark {
            Some(mark) => {
                let rest = &body[body.len() - mark.bytes_left..];
                Records::resume(&batch.header, rest, mark.index)
            }
            None => Records::new(&batch.header, body),
        };
        slice.mark = Some(records.mark());
        let served = loop {
            if self.feeds.steps == 0 {
                break Some(Served::Turn);
            }
            slice.mark = Some(records.mark());
            let record = match records.next() {
                Some(Ok(record)) => record,
                Some(Err(_)) => {
                    self.counters.count(Counter::DroppedDamaged);
                    break None;
                }
                None => break None,
            };
            let before = slice.mark.map_or(0, |mark| mark.bytes_left);
            self.spend(before - records.mark().bytes_left);
            match self.send_record(session, slice, &record, (texts, packet), now) {
                Some(Step::Passed) => {}
                Some(Step::Waits) => break Some(Served::Full),
                None => break Some(Served::All),
            }
        };
        match served {
            Some(served) => served,
            None => self.next_batch(session, slice, &batch),
        }
    }

    /// Takes the steps that a record costs, or a batch that is looked at.
    fn spend(&mut self, bytes: usize) {
        let steps = 1 + bytes / STEP_BYTES;
        self.feeds.steps = self.feeds.steps.saturating_sub(steps);
    }

    /// Looks at a batch for the first time; whether it has something for the feed. What is still
    /// compressed could not be decompressed.
    fn open_batch(&mut self, session: u32, slice: &mut Slice, batch: &Batch<'_>) -> bool {
        let Some(next) = self.next_of(session, slice) else {
            return false;
        };
        if batch.header.is_control() || batch.header.next_offset() <= next {
            return false;
        }
        // A checksum costs a tenth of what copies do.
        self.spend(batch.bytes.len() / 10);
        let is_sound = batch.check_crc().is_ok() && !batch.is_compressed();
        if !is_sound {
            let lost = (batch.header.next_offset() - next).max(0);
            self.counters.add(Counter::DroppedDamaged, lost as usize);
        }
        is_sound
    }

    /// Goes on behind a batch.
    fn next_batch(&mut self, session: u32, slice: &mut Slice, batch: &Batch<'_>) -> Served {
        slice.at += batch.bytes.len();
        slice.mark = None;
        let Some(next) = self.next_of(session, slice) else {
            return Served::All;
        };
        self.pass(session, slice, next.max(batch.header.next_offset()));
        Served::Turn
    }

    /// The offset that the feed of a piece looks at next; None where there is no such feed any more.
    fn next_of(&mut self, session: u32, slice: &Slice) -> Option<i64> {
        let feeds = self.sessions[session as usize].feeds.as_ref()?;
        let feed = feeds.get(&slice.filter)?;
        let is_same = feed.number == slice.wanted.number;
        is_same.then(|| feed.partitions[slice.wanted.partition as usize].next())
    }

    fn pass(&mut self, session: u32, slice: &Slice, next: i64) {
        let Wanted {
            stream, partition, ..
        } = slice.wanted;
        let end = self.feeds.end(stream, partition);
        let state = &mut self.sessions[session as usize];
        let feeds = state.feeds.as_mut().expect("it has just been looked at");
        feeds.pass(&slice.filter, partition, next, end);
        self.persistence.feed_due(state, &slice.filter);
    }

    /// Sends a record where the filter matches it; None where there is no such feed any more.
    fn send_record(
        &mut self,
        session: u32,
        slice: &Slice,
        record: &Record<'_>,
        (texts, packet): (&mut Texts, &mut Vec<u8>),
        now: Now,
    ) -> Option<Step> {
        let next = self.next_of(session, slice)?;
        if record.offset < next {
            return Some(Step::Passed);
        }
        if !self.reader_has_room(session) {
            return Some(Step::Waits);
        }
        let filter = &*slice.filter;
        let name = stream_of(filter)?.ok()?;
        let topic = texts.name(name, slice.wanted.partition, record);
        if topic::matches(filter, topic) {
            match texts.publish(record, now.wall_ms) {
                Some(publish) => {
                    if self.send(session, slice, (record.offset, publish), packet, now)
                        == Step::Waits
                    {
                        return Some(Step::Waits);
                    }
                }
                None => self.counters.count(Counter::DroppedExpired),
            }
        }
        self.pass(session, slice, record.offset + 1);
        Some(Step::Passed)
    }

    fn send(
        &mut self,
        session: u32,
        slice: &Slice,
        (offset, publish): (i64, Publish<'_>),
        packet: &mut Vec<u8>,
        now: Now,
    ) -> Step {
        let state = &mut self.sessions[session as usize];
        let (Some(slot), Some(feeds)) = (state.connection, state.feeds.as_mut()) else {
            return Step::Waits;
        };
        let feed = feeds.get(&slice.filter);
        let feed = feed.expect("it has just been looked at");
        let (qos, number) = (feed.qos, feed.number);
        if qos > QoS::AtMostOnce && !state.outbound.has_room() {
            return Step::Waits;
        }
        let terms = Terms {
            qos,
            retain: false,
            ids: Ids::of(feed.id),
            group: None,
            lease: None,
        };
        let publish = Publish {
            qos,
            packet_id: u16::from(qos > QoS::AtMostOnce),
            ..publish
        };
        packet.clear();
        encode::publish(Version::V5, &publish, packet);
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut outgoing = Outgoing::of(Version::V5, packet, &publish, now.mono_ms, &mut scratch);
        let connection = &self.connections[slot as usize];
        let bytes = outgoing.bytes(connection.version, &terms);
        let ever_fits = bytes <= self.bytes_max(connection, qos);
        let bound = self.bound_reached(session, qos, bytes, outgoing.waiting_bytes());
        let step = if ever_fits && bound.is_some() {
            self.rest(session, now.mono_ms + REST_MS);
            Step::Waits
        } else {
            let claim = self.claim(session, slice, offset, qos, number);
            self.deliver(session, &terms, claim, &mut outgoing);
            self.counters
                .add(Counter::StreamRecords, usize::from(ever_fits));
            Step::Passed
        };
        drop(outgoing);
        self.scratch = scratch;
        step
    }

    /// At `QoS` 1 of a session that lasts, what is sent is open until its end is told.
    fn claim(
        &mut self,
        session: u32,
        slice: &Slice,
        offset: i64,
        qos: QoS,
        number: u64,
    ) -> Option<Arc<Claim>> {
        let state = &mut self.sessions[session as usize];
        if qos != QoS::AtLeastOnce || state.durable.is_none() {
            return None;
        }
        let partition = slice.wanted.partition;
        let feed = state.feeds.as_mut()?.get_mut(&slice.filter)?;
        feed.partitions[partition as usize].open(offset);
        let owner = Owner::Feed {
            slot: session,
            number,
            partition,
        };
        Some(self.persistence.claim(owner, offset as u64))
    }
}
