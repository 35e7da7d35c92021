//! Sessions that outlive a crash: what of them is on the log, and who waits for it
//! (MQTT 5.0 4.1, 4.3, 4.4).
//!
//! The log is an internal stream whose records are small things under keys ([`record`]). What has
//! changed is due; once a loop iteration all that is due is written as it is now ([`write`]), in one
//! round. An acknowledgement that promises something is held back at its place in the bytes of its
//! connection until its round is durable ([`Persistence::gate`]). A publish for sessions that last
//! is one message with a claim for each of them, and is delivered once that is durable.
//!
//! Space comes back by checkpoints: a partition that has become long has all that lives in it
//! written again at its end, a little each round, and then begins there ([`checkpoint`]). A start
//! reads the log from there ([`restore`], [`revive`]).
//!
//! Invariants: nothing is acknowledged before its round is durable, and rounds are so in order; of
//! a round a partition has all or nothing, for records rest on each other (a message and its packet
//! id), and of its partitions a later one nothing where an earlier one has nothing; a message goes
//! from the log after a round in which nobody was owed it; a record may be written twice, and says
//! the same.

mod checkpoint;
mod claims;
mod codec;
mod record;
mod restore;
mod revive;
mod rounds;
mod write;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Weak};

use super::connection::Connection;
use super::queues::ChunkPlace;
use super::record_publish::stream_of;
use super::streams::Waiter;
use crate::hash::{Key, Map};
use crate::record::{partition_of, BatchBuilder};
use crate::session::{Claim, Due, Durable, Ends, Message, Owner, Session, Stored};
use checkpoint::Checkpoint;
pub(super) use claims::write_due;
use restore::Restoring;

/// Messages that nobody is owed any more, before a round is written for them alone.
const GRAVES_MAX: usize = 4096;

/// Time between a round that failed and the next, milliseconds: a disk that is nearly full stays
/// so for a while.
const REST_MS: u64 = 100;

/// An append to the log of sessions, for the shell to perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionAppend {
    /// Partition.
    pub partition: u32,
    /// Record batch v2, base offset 0.
    pub batch: Vec<u8>,
    /// Comes back in [`durable`](super::Switchboard::durable).
    pub ticket: u64,
    /// A checkpoint of the partition begins with it: let it begin a file, so that one can go later.
    pub begins: bool,
}

/// Where a partition of the log of sessions may begin: all that lives there is written again from
/// there on, and durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionTrim {
    /// Partition.
    pub partition: u32,
    /// The first offset that is needed.
    pub offset: i64,
}

/// A batch of the round that is written, before it is known whether others of its partition follow.
#[derive(Debug)]
struct Part {
    partition: u32,
    builder: BatchBuilder,
}

/// A thing whose record is to be written as it then is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Head(Box<str>),
    Cursor(Box<str>),
    Filter(Box<str>, Box<str>),
    Feed(Box<str>, Box<str>),
    Group(Box<str>),
    Message(u32, u64),
    /// As far as it has changed.
    Chunk(ChunkPlace),
    WholeChunk(ChunkPlace),
}

/// What was written together.
#[derive(Debug)]
struct Round {
    number: u64,
    /// Those that have not ended.
    tickets: usize,
    bytes: usize,
    waiters: Vec<Waiter>,
    /// To be written again if it fails.
    units: Vec<Unit>,
}

/// One partition of the log.
#[derive(Debug, Default)]
struct Log {
    builder: BatchBuilder,
    /// Messages by number.
    live: BTreeMap<u64, Weak<Message>>,
    /// Since its last checkpoint began.
    bytes: u64,
    /// Of its last checkpoint.
    checkpoint_bytes: u64,
}

/// What of the sessions is on the log.
#[derive(Debug)]
pub(super) struct Persistence {
    ends: Ends,
    /// By partition; none while nothing is kept.
    logs: Vec<Log>,
    next_number: u64,
    due: Vec<Unit>,
    /// Somebody waits for what is due.
    is_urgent: bool,
    waiters: Vec<Waiter>,
    /// The next round.
    round: u64,
    /// On their way to the disk.
    rounds: VecDeque<Round>,
    /// Round by ticket, of what the shell has been given.
    tickets: Map<u64, u64>,
    /// Of the last round, what it has not been given.
    appends: VecDeque<SessionAppend>,
    /// Connections whose bytes wait for a round.
    gated: VecDeque<(u64, u64)>,
    /// Messages that nobody is owed: the first round that says so, partition, number.
    graves: VecDeque<(u64, u32, u64)>,
    /// Who was owed a message that was refused, of which the log may have a part all the same: the
    /// first round that says that there is none.
    unsaid: VecDeque<(u64, Vec<Due>)>,
    checkpoint: Option<Checkpoint>,
    /// The partition that is looked at first for the next one.
    next_checkpoint: usize,
    /// A partition is left alone while it is shorter.
    checkpoint_bytes_min: u64,
    /// At which a batch is closed.
    batch_bytes_max: usize,
    checkpoints: u64,
    rests_until_ms: u64,
    undurable_bytes: usize,
    /// Of the round that is written.
    parts: Vec<Part>,
    restoring: Option<Box<Restoring>>,
}

impl Persistence {
    /// Keeps nothing.
    pub fn new(hash_key: Key) -> Self {
        Self {
            ends: Ends::default(),
            logs: Vec::new(),
            next_number: 1,
            due: Vec::new(),
            is_urgent: false,
            waiters: Vec::new(),
            round: 0,
            rounds: VecDeque::new(),
            tickets: Map::with_hasher(hash_key),
            appends: VecDeque::new(),
            gated: VecDeque::new(),
            graves: VecDeque::new(),
            unsaid: VecDeque::new(),
            checkpoint: None,
            next_checkpoint: 0,
            checkpoint_bytes_min: 0,
            batch_bytes_max: 0,
            checkpoints: 0,
            rests_until_ms: 0,
            undurable_bytes: 0,
            parts: Vec::new(),
            restoring: None,
        }
    }

    pub fn is_on(&self) -> bool {
        !self.logs.is_empty()
    }

    /// Messages on the log.
    pub fn messages(&self) -> usize {
        self.logs.iter().map(|log| log.live.len()).sum()
    }

    /// Checkpoints that are durable.
    pub fn checkpoints(&self) -> u64 {
        self.checkpoints
    }

    /// Bytes of the log since the last checkpoint of each partition began.
    pub fn log_bytes(&self) -> u64 {
        self.logs.iter().map(|log| log.bytes).sum()
    }

    /// Bytes whose tickets have not ended.
    pub fn undurable_bytes(&self) -> usize {
        self.undurable_bytes
    }

    /// Tickets that have not ended.
    pub fn tickets(&self) -> usize {
        self.tickets.len()
    }

    /// Rounds below this one are durable.
    pub fn settled(&self) -> u64 {
        self.rounds.front().map_or(self.round, |round| round.number)
    }

    /// Where what belongs to a name lies.
    fn partition_of(&self, name: &str) -> u32 {
        partition_of(name.as_bytes(), self.logs.len() as u32)
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// A session or group that begins to be kept.
    pub fn begin(&mut self, name: &str) -> Durable {
        let partition = self.partition_of(name);
        Durable::new(self.number(), partition)
    }

    /// What a session is has changed.
    pub fn head_due(&mut self, session: &mut Session) {
        let is_due = match &mut session.durable {
            Some(durable) => !std::mem::replace(&mut durable.is_head_due, true),
            None => session.is_will_kept,
        };
        if is_due {
            self.due.push(Unit::Head(session.client_id.clone()));
        }
    }

    /// The will of a session that ends with its connection begins to be kept.
    pub fn keep_will(&mut self, session: &mut Session) {
        if self.is_on() && session.durable.is_none() && session.will.is_some() {
            session.is_will_kept = true;
            self.head_due(session);
        }
    }

    /// How far a session is has changed.
    pub fn cursor_due(&mut self, session: &mut Session) {
        if let Some(durable) = &mut session.durable {
            if !std::mem::replace(&mut durable.is_cursor_due, true) {
                self.due.push(Unit::Cursor(session.client_id.clone()));
            }
        }
    }

    /// A subscription of a session has changed.
    pub fn filter_due(&mut self, session: &Session, filter: &str) {
        if session.durable.is_some() {
            let client_id = session.client_id.clone();
            if stream_of(filter).is_some() && !session.subscriptions.contains_key(filter) {
                self.due.push(Unit::Feed(client_id.clone(), filter.into()));
            }
            self.due.push(Unit::Filter(client_id, filter.into()));
        }
    }

    /// How far a session is in a stream that it reads has changed.
    pub fn feed_due(&mut self, session: &mut Session, filter: &str) {
        if session.durable.is_none() {
            return;
        }
        let feeds = session.feeds.as_mut();
        let feed = feeds.and_then(|feeds| feeds.get_mut(filter));
        if feed.is_some_and(|feed| !std::mem::replace(&mut feed.is_due, true)) {
            let client_id = session.client_id.clone();
            self.due.push(Unit::Feed(client_id, filter.into()));
        }
    }

    /// What an owner was sent, until its end is told.
    pub fn claim(&self, owner: Owner, place: u64) -> Arc<Claim> {
        Claim::new(owner, place, &self.ends)
    }

    /// A group has changed.
    pub fn group_due(&mut self, text: &str) {
        self.due.push(Unit::Group(text.into()));
    }

    /// What a group of a queue has settled has changed.
    pub fn chunk_due(&mut self, place: ChunkPlace) {
        if self.is_on() {
            self.due.push(Unit::Chunk(place));
        }
    }

    /// The same of several things.
    pub fn units_due(&mut self, units: Vec<Unit>) {
        if self.is_on() {
            self.due.extend(units);
        }
    }

    /// Where what a queue has settled lies: by partition of its stream, so that all groups of that
    /// are together.
    fn partition_of_chunk(&self, stream: u64, partition: u32) -> u32 {
        let name = [&stream.to_be_bytes()[..], &partition.to_be_bytes()].concat();
        partition_of(&name, self.logs.len() as u32)
    }

    /// A session has ended: nothing of it is kept any more. Whether it was; then its filters go as
    /// well ([`Self::forget_filters`]).
    pub fn forget(&mut self, session: &mut Session) -> bool {
        let client_id = &session.client_id;
        if std::mem::take(&mut session.is_will_kept) {
            self.due.push(Unit::Head(client_id.clone()));
        }
        let was_kept = session.durable.take().is_some();
        if was_kept {
            self.due.push(Unit::Head(client_id.clone()));
            self.due.push(Unit::Cursor(client_id.clone()));
        }
        was_kept
    }

    /// Filters of a session that has ended. Until the log says that they are gone, those whose
    /// session it does not know are none.
    pub fn forget_filters(&mut self, client_id: &str, filters: Vec<Box<str>>) {
        for filter in filters {
            if stream_of(&filter).is_some() {
                self.due.push(Unit::Feed(client_id.into(), filter.clone()));
            }
            self.due.push(Unit::Filter(client_id.into(), filter));
        }
    }

    /// How much is due: who has made something due can tell.
    pub fn dues(&self) -> usize {
        self.due.len()
    }

    /// Whether all that was ever due is durable.
    pub fn is_quiet(&self) -> bool {
        self.due.is_empty() && self.waiters.is_empty() && self.rounds.is_empty()
    }

    /// A publish waits for what is due.
    pub fn wait(&mut self, waiter: Option<Waiter>) {
        self.is_urgent = true;
        self.waiters.extend(waiter);
    }

    /// Gives a message its place on the log, with who is owed it.
    pub fn store(&mut self, message: &Arc<Message>, partition: u32, claims: Box<[u8]>) {
        let number = self.number();
        let stored = Stored::new(partition, number, claims, &self.ends);
        if message.stored.set(stored).is_ok() {
            let live = &mut self.logs[partition as usize].live;
            live.insert(number, Arc::downgrade(message));
            self.due.push(Unit::Message(partition, number));
        }
    }

    /// What is written to a connection from now on waits until all that has changed so far is
    /// durable.
    pub fn gate(&mut self, connection: &mut Connection) {
        if !self.is_on() {
            return;
        }
        let is_due = !self.due.is_empty() || !self.waiters.is_empty();
        let last = self.rounds.back().map(|round| round.number);
        let Some(round) = (if is_due { Some(self.round) } else { last }) else {
            return;
        };
        self.is_urgent |= is_due;
        if connection.gate(round) {
            self.gated.push_back((round, connection.id));
        }
    }

    /// Asserts what must always hold.
    pub fn validate(&self) {
        let bytes: usize = self.rounds.iter().map(|round| round.bytes).sum();
        assert_eq!(bytes, self.undurable_bytes);
        let tickets: usize = self.rounds.iter().map(|round| round.tickets).sum();
        assert_eq!(tickets, self.tickets.len() + self.appends.len());
        let numbers: Vec<u64> = self.rounds.iter().map(|round| round.number).collect();
        assert!(numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]));
        assert!(
            self.waiters.is_empty() || self.is_urgent,
            "somebody is waited for"
        );
        assert!(self.parts.is_empty() && self.restoring.is_none());
    }
}
