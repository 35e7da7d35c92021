//! Streams that clients read: `$stream/NAME/…`, live and from the past.
//!
//! A session holds a position in each partition and nothing else ([`Feed`]). As long as its client
//! has room, a piece of the log is asked of the shell ([`Switchboard::next_read`]) and sent record
//! by record; when it has none, reading rests. So what a stream holds waits in its log, whoever is
//! slow or away, and a publish costs nothing more because somebody reads.
//!
//! Owns positions, turns and pieces. Must not know what names streams have, or where they begin and
//! end: the shell places a subscription ([`Switchboard::placed`]) and tells when a partition has
//! grown ([`Switchboard::advanced`]).
//!
//! Invariants: of each partition a feed sends every record that its filter matches and that the
//! log has, in the order of offsets, each once for each time that it passes the place; the position
//! that is kept of a session that lasts is never behind a record whose exchange is open; pieces of
//! all sessions together are bounded, as each can be read again.

mod place;
mod readers;
mod report;
mod serve;
mod validate;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::record_publish::Texts;
use super::timers::Timer;
use super::{Counter, Switchboard};
use crate::hash::{Key, Map};
use crate::session::{Feed, Wanted};
use crate::Now;
use place::Subscribing;
use serve::Slice;

pub(super) use place::Placements;
pub use place::{Placement, StreamRequest, SUBSCRIPTIONS_MAX as STREAM_SUBSCRIPTIONS_MAX};
pub use report::{StreamLag, StreamReading, POSITIONS_SHOWN_MAX};

/// Bytes asked for at a time: a few hundred records, enough to keep a socket busy.
pub const READ_BYTES: usize = 64 * 1024;

/// Bytes asked for in a turn by all sessions, so that nobody who reads the past holds up what is
/// live: some 5 ms of decoding and encoding.
pub const TURN_READ_BYTES_MAX: usize = 512 * 1024;

/// Records that a turn looks at, matched or not: 5 ms or less.
const STEPS_MAX: usize = 10_000;

/// Bytes of pieces that sessions hold because their clients have no room. Beyond it the piece that
/// has rested longest goes, and is read again.
pub const HELD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Until somebody who found the memory of the node full tries again, milliseconds.
const REST_MS: u64 = 100;

/// Until what could not be read is tried again, milliseconds.
const FAILED_MS: u64 = 1_000;

/// A piece of a log for the shell to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRead {
    /// Comes back in [`Switchboard::fed`], [`Switchboard::missed`] or [`Switchboard::unread`].
    pub ticket: u64,
    /// The stream's id.
    pub stream: u64,
    /// Partition.
    pub partition: u32,
    /// First offset.
    pub offset: i64,
    /// Whole batches of so many bytes, one at least.
    pub bytes: usize,
}

/// A stream that is read.
#[derive(Debug, Default)]
struct Source {
    /// Of each partition, the offset behind its last durable record.
    ends: Vec<i64>,
    /// Session slots, with how many of their filters.
    readers: BTreeMap<u32, usize>,
}

/// What is read for a session.
#[derive(Clone, Copy, Debug)]
struct Asked {
    session: u32,
    wanted: Wanted,
}

/// A place of a log: stream, partition, offset.
type Place = (u64, u32, i64);

/// The streams that are read, and for whom.
#[derive(Debug)]
pub(super) struct Feeds {
    sources: Map<u64, Source>,
    /// Session slots that have a feed.
    readers: BTreeSet<u32>,
    /// Feeds of all sessions.
    count: usize,
    /// Partitions of all of them.
    positions: usize,
    next_number: u64,
    /// SUBSCRIBE packets that wait to be placed, by request.
    placing: Map<u64, Subscribing>,
    requests: Vec<StreamRequest>,
    /// Session slots for which is to be read, in turn.
    line: VecDeque<u32>,
    /// Session slots whose turn ended before their piece, in turn.
    turns: VecDeque<u32>,
    asked: Map<u64, Asked>,
    next_ticket: u64,
    /// A queue had the last read.
    is_readers_turn: bool,
    turn_bytes: usize,
    steps: usize,
    /// What was read last: others may be at the same place.
    last: Option<(Place, Arc<[u8]>)>,
    slices: BTreeMap<u32, Slice>,
    held_bytes: usize,
    stamp: u64,
    /// Sessions that try again when the timer comes.
    resting: BTreeSet<u32>,
    timer_ms: Option<u64>,
    /// Streams that are no more.
    gone: Vec<u64>,
    /// Sessions that would hold too many positions, and the streams that have more partitions.
    outgrown: Vec<(u32, u64)>,
    texts: Texts,
    packet: Vec<u8>,
}

impl Feeds {
    /// Nobody reads.
    pub fn new(hash_key: Key) -> Self {
        Self {
            sources: Map::with_hasher(hash_key),
            readers: BTreeSet::new(),
            count: 0,
            positions: 0,
            next_number: 1,
            placing: Map::with_hasher(hash_key),
            requests: Vec::new(),
            line: VecDeque::new(),
            turns: VecDeque::new(),
            asked: Map::with_hasher(hash_key),
            next_ticket: 1,
            is_readers_turn: false,
            turn_bytes: TURN_READ_BYTES_MAX,
            steps: STEPS_MAX,
            last: None,
            slices: BTreeMap::new(),
            held_bytes: 0,
            stamp: 0,
            resting: BTreeSet::new(),
            timer_ms: None,
            gone: Vec::new(),
            outgrown: Vec::new(),
            texts: Texts::default(),
            packet: Vec::new(),
        }
    }

    /// Feeds of all sessions.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Partitions of all feeds, of each of which a position is held.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Bytes of pieces that wait for clients.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether somebody must be told that a stream is read no longer.
    pub fn has_gone(&self) -> bool {
        !self.gone.is_empty() || !self.outgrown.is_empty()
    }

    /// Whether another turn brings pieces on that are there.
    pub fn has_turns(&self) -> bool {
        !self.turns.is_empty()
    }

    /// What policy is asked.
    pub fn take_requests(&mut self) -> Vec<StreamRequest> {
        std::mem::take(&mut self.requests)
    }

    /// The stream may have been read by somebody, and is no more.
    pub fn stream_gone(&mut self, stream: u64) {
        if self.sources.contains_key(&stream) {
            self.gone.push(stream);
        }
    }

    fn hold(&mut self, session: u32, slice: Slice) {
        self.stamp += 1;
        self.held_bytes += slice.bytes();
        let slice = slice.stamped(self.stamp);
        self.slices.insert(session, slice);
        while self.held_bytes > HELD_BYTES_MAX && self.slices.len() > 1 {
            let oldest = self.slices.iter().min_by_key(|(_, slice)| slice.stamp());
            let oldest = *oldest.expect("there are two").0;
            self.take_slice(oldest);
        }
    }

    fn take_slice(&mut self, session: u32) -> Option<Slice> {
        let slice = self.slices.remove(&session)?;
        self.held_bytes -= slice.bytes();
        Some(slice)
    }

    fn end(&self, stream: u64, partition: u32) -> i64 {
        let source = self.sources.get(&stream);
        let end = source.and_then(|source| source.ends.get(partition as usize));
        end.copied().unwrap_or(0)
    }

    fn set_end(&mut self, stream: u64, partition: u32, end: i64) {
        if let Some(source) = self.sources.get_mut(&stream) {
            let count = source.ends.len().max(partition as usize + 1);
            source.ends.resize(count, 0);
            source.ends[partition as usize] = end;
        }
    }

    /// As [`Self::set_end`], from who may have looked a while ago.
    fn raise_end(&mut self, stream: u64, partition: u32, end: i64) {
        if self.end(stream, partition) < end {
            self.set_end(stream, partition, end);
        }
    }

    /// A ticket that no read had.
    pub fn ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket - 1
    }

    /// A number that no feed had.
    pub fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    fn begin(&mut self, session: u32, feed: &Feed) {
        self.count += 1;
        self.readers.insert(session);
        self.positions += feed.partitions.len();
        let source = self.sources.entry(feed.stream).or_default();
        *source.readers.entry(session).or_default() += 1;
    }

    fn forget(&mut self, session: u32, feed: &Feed) {
        self.count -= 1;
        self.positions -= feed.partitions.len();
        let stream = feed.stream;
        let Some(source) = self.sources.get_mut(&stream) else {
            return;
        };
        if let Some(count) = source.readers.get_mut(&session) {
            *count -= 1;
            if *count == 0 {
                source.readers.remove(&session);
            }
        }
        if source.readers.is_empty() {
            self.sources.remove(&stream);
        }
    }
}

impl Switchboard {
    /// Records of a partition are durable below `end`. False where nobody reads the stream: then it
    /// need not be told until somebody does.
    ///
    /// # Panics
    /// Where a reader of the stream has no feed.
    pub fn advanced(&mut self, stream: u64, partition: u32, end: i64) -> bool {
        self.feeds.set_end(stream, partition, end);
        let is_queue = self.queue_grown(stream, partition, end);
        let Some(source) = self.feeds.sources.get(&stream) else {
            return is_queue;
        };
        let readers: Vec<u32> = source.readers.keys().copied().collect();
        for session in readers {
            let feeds = self.sessions[session as usize].feeds.as_mut();
            let feeds = feeds.expect("it reads the stream");
            feeds.grown(stream, partition, end);
            self.line_up(session);
        }
        true
    }

    /// Streams that somebody reads, by id.
    pub fn streams_read(&self) -> Vec<u64> {
        self.feeds.sources.keys().copied().collect()
    }

    /// The next piece that somebody has room for; None where there is none in this turn. The shell
    /// answers each, at once or later, and asks until None comes.
    ///
    /// # Panics
    /// Never.
    pub fn next_read(&mut self, now: Now) -> Option<StreamRead> {
        while self.feeds.turn_bytes > 0 {
            // Queues and readers of streams have their reads in turn.
            let is_queues_turn = !std::mem::take(&mut self.feeds.is_readers_turn);
            let is_theirs = is_queues_turn || self.feeds.line.is_empty();
            if let Some(read) = is_theirs.then(|| self.next_queue_read()).flatten() {
                self.feeds.is_readers_turn = true;
                self.feeds.turn_bytes = self.feeds.turn_bytes.saturating_sub(READ_BYTES);
                return Some(read);
            }
            let session = self.feeds.line.pop_front()?;
            let Some(wanted) = self.wanted(session) else {
                continue;
            };
            let place = (wanted.stream, wanted.partition, wanted.offset);
            let last = self.feeds.last.as_ref().filter(|(at, _)| *at == place);
            if let Some((_, batches)) = last {
                let batches = Arc::clone(batches);
                self.serve_slice(session, wanted, batches, now);
                continue;
            }
            let ticket = self.feeds.ticket();
            self.feeds.asked.insert(ticket, Asked { session, wanted });
            let feeds = self.sessions[session as usize].feeds.as_mut();
            feeds.expect("it wants something").asked = Some(ticket);
            self.feeds.turn_bytes = self.feeds.turn_bytes.saturating_sub(READ_BYTES);
            self.counters.count(Counter::StreamReads);
            return Some(StreamRead {
                ticket,
                stream: wanted.stream,
                partition: wanted.partition,
                offset: wanted.offset,
                bytes: READ_BYTES,
            });
        }
        None
    }

    /// What a session that had its turn in the line wants.
    fn wanted(&mut self, session: u32) -> Option<Wanted> {
        let state = self.sessions.get_mut(session as usize)?;
        let feeds = state.feeds.as_mut().filter(|feeds| feeds.is_in_line)?;
        feeds.is_in_line = false;
        let wanted = feeds.next()?;
        feeds.last = wanted.place();
        state.connection.is_some().then_some(wanted)
    }

    /// What was asked for was read: batches from the one that holds the offset, decompressed, but for
    /// records, by offset, that are too large for anybody ([`crate::record::unpack`]).
    ///
    /// # Panics
    /// Where who has asked has no feeds.
    pub fn fed(&mut self, ticket: u64, batches: Arc<[u8]>, left_out: &[i64], now: Now) {
        self.tracer.at(now);
        if self.queue_fed(ticket, (&batches, left_out), now) {
            return;
        }
        let Some(Asked { session, wanted }) = self.answered(ticket) else {
            return;
        };
        self.counters.add(Counter::StreamBytes, batches.len());
        self.counters.add(Counter::DroppedTooLarge, left_out.len());
        self.feeds.turn_bytes = self
            .feeds
            .turn_bytes
            .saturating_sub(batches.len().saturating_sub(READ_BYTES));
        if batches.is_empty() {
            // Nothing is there, whatever was said: it is told when that changes.
            let Wanted {
                number,
                stream,
                partition,
                offset,
            } = wanted;
            self.feeds.set_end(stream, partition, offset);
            let feeds = self.sessions[session as usize].feeds.as_mut();
            let feeds = feeds.expect("it has asked");
            if let Some(filter) = feeds.filter_of(number).map(Box::<str>::from) {
                let next = feeds.get(&filter).expect("it has a number").partitions
                    [partition as usize]
                    .next();
                feeds.pass(&filter, partition, next, offset);
            }
            return self.line_up(session);
        }
        let place = (wanted.stream, wanted.partition, wanted.offset);
        self.feeds.last = Some((place, Arc::clone(&batches)));
        self.serve_slice(session, wanted, batches, now);
    }

    /// The log has no such offset: its records are those from `start` to below `end`. Whoever is
    /// before them goes on with the first, and what was let go is counted.
    ///
    /// # Panics
    /// Where who has asked has no feeds.
    pub fn missed(&mut self, ticket: u64, start: i64, end: i64) {
        if self.queue_missed(ticket, start) {
            return;
        }
        let Some(Asked { session, wanted }) = self.answered(ticket) else {
            return;
        };
        self.feeds.set_end(wanted.stream, wanted.partition, end);
        let state = &mut self.sessions[session as usize];
        let feeds = state.feeds.as_mut().expect("it has asked");
        if let Some((filter, feed)) = feeds.numbered(wanted.number) {
            let filter: Box<str> = filter.into();
            let next = feed.partitions[wanted.partition as usize].next();
            let lost = (start - next).max(0);
            feeds.pass(&filter, wanted.partition, next.clamp(start, end), end);
            self.counters.add(Counter::DroppedTrimmed, lost as usize);
            self.persistence.feed_due(state, &filter);
        }
        self.line_up(session);
    }

    /// What was asked for could not be read: it is tried again in a second.
    pub fn unread(&mut self, ticket: u64, now: Now) {
        if self.queue_unread(ticket, now) {
            return;
        }
        if let Some(Asked { session, .. }) = self.answered(ticket) {
            self.counters.count(Counter::StreamReadsFailed);
            self.rest(session, now.mono_ms + FAILED_MS);
        }
    }

    /// Who asked, where it is still there.
    fn answered(&mut self, ticket: u64) -> Option<Asked> {
        let asked = self.feeds.asked.remove(&ticket)?;
        let state = self.sessions.get_mut(asked.session as usize)?;
        let feeds = state.feeds.as_mut()?;
        if feeds.asked != Some(ticket) {
            return None;
        }
        feeds.asked = None;
        state.connection.is_some().then_some(asked)
    }

    fn rest(&mut self, session: u32, due_ms: u64) {
        self.feeds.resting.insert(session);
        if self.feeds.timer_ms.is_none_or(|at| due_ms < at) {
            if let Some(at) = self.feeds.timer_ms.replace(due_ms) {
                self.timers.cancel(at, Timer::Streams);
            }
            self.timers.set(due_ms, Timer::Streams);
        }
    }

    /// Those that rested try again.
    pub(super) fn wake_readers(&mut self, now: Now) {
        self.feeds.timer_ms = None;
        for session in std::mem::take(&mut self.feeds.resting) {
            if self.sessions.contains(session as usize) {
                self.feed(session, now);
            }
        }
    }

    /// Stands a session in the line where its client has room and a partition has something for it.
    fn line_up(&mut self, session: u32) {
        if self.feeds.slices.contains_key(&session) || !self.reader_has_room(session) {
            return;
        }
        let state = &mut self.sessions[session as usize];
        let Some(feeds) = &mut state.feeds else {
            return;
        };
        if feeds.is_in_line || feeds.asked.is_some() {
            return;
        }
        if feeds.next().is_some() {
            feeds.is_in_line = true;
            self.feeds.line.push_back(session);
        }
    }
}
