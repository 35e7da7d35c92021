//! Durable queues: `$queue/NAME/…`, with settlement of each message (docs/queues.md).
//!
//! A queue is a stream, and groups consume it, each all of it. Of each partition a group has a
//! [`Ledger`], which knows what is settled, in flight, resting and next. As long as a consumer of the
//! group has room, pieces of the log are asked of the shell as for readers of streams
//! ([`Switchboard::next_read`]), and messages go from them to consumers in turn. What is settled is
//! written to the log of sessions, in the rounds that it has ([`keep`]).
//!
//! Owns who consumes what, and what the words of the protocol mean to a ledger. Must not know how
//! long anything rests or which message is next: that is the ledger's.
//!
//! Invariants: a message is handed to a consumer that has room for it, and to nobody else before it
//! failed or was given back; who settles is answered once that is durable; a message that is dead
//! is settled once the log of dead letters has it; a consumer that is slow keeps its own messages
//! and nobody else's.

mod address;
mod ahead;
mod consumers;
mod dead;
mod groups;
mod hand;
mod held;
mod keep;
mod latency;
mod lost;
mod message;
mod part;
mod peek;
mod piece;
mod pull;
mod report;
mod returns;
mod serve;
mod settings;
mod settle;
mod shed;
mod turn;
mod validate;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use slab::Slab;

use super::timers::Timer;
use super::{Error, Switchboard};
use crate::hash::{Key, Map};
use crate::mqtt::packet::QoS;
use crate::queue::{Ledger, Settled, Sizes};
use crate::Now;
use dead::Burial;
use part::Part;
use piece::Piece;
use pull::Pull;
use returns::{Return, ENDS_MAX};

pub(super) use address::{Address, Unwanted, Wanted, BELOW};
pub(super) use keep::{ChunkPlace, Kept};
pub use latency::{Latency, LATENCY_BOUNDS_MS};
pub use lost::{Lost, Unread};
pub use peek::{PeekTerms, PeekedMessage};
pub use pull::{PullTerms, Pulled, PulledMessage};
pub use report::{QueueConsumer, QueueGroup, QueuePartition};
pub use settings::{Depth, Excess, QueueSettings, Sharing};

/// Messages that a turn gives out, or looks at: 5 ms or less.
const STEPS_MAX: usize = 5_000;

/// Until what could not be read or stored is tried again, milliseconds.
const FAILED_MS: u64 = 1_000;

#[derive(Debug)]
struct Queue {
    stream: u64,
    settings: QueueSettings,
    /// Of each partition, the offset behind its last durable record.
    ends: Vec<i64>,
    /// Of each, its first offset and how many bytes lie where, if the shell says so.
    sizes: Vec<(i64, Sizes)>,
    /// Slots, by name.
    groups: BTreeMap<Arc<str>, u32>,
    /// The shell was asked for the stream of dead letters.
    has_asked: bool,
    /// What there is room for was measured, and nothing has given room back since.
    is_measured: bool,
}

/// What happened in a group since the node started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    delivered: u64,
    redelivered: u64,
    settled: u64,
    failed: u64,
    dead: u64,
    lost: u64,
    latency: Latency,
}

/// Who consumes a queue together.
#[derive(Debug)]
struct Group {
    /// Which no group before had.
    number: u64,
    queue: u32,
    /// With its filter behind a NUL, where it has one.
    name: Arc<str>,
    parts: Vec<Part>,
    /// Consumers that are subscriptions.
    members: BTreeSet<u64>,
    /// Of those, the one that is given all, where the queue gives to one: its client is connected.
    active: Option<u64>,
    /// Of the members, the ones that may have room, and pulls, in turn.
    line: VecDeque<u64>,
    /// Partitions that may have something to give out, in turn.
    hot: VecDeque<u32>,
    /// Partitions with messages that are dead and not settled.
    mourning: BTreeSet<u32>,
    /// Partitions of which the first message may be dead, though nobody takes it.
    aging: BTreeSet<u32>,
    /// Time and partition.
    wakes: BTreeSet<(u64, u32)>,
    timer_ms: Option<u64>,
    /// Messages may be set aside, for who can take them.
    has_aside: bool,
    /// In `Queues::due`.
    is_due: bool,
    counts: Counts,
}

impl Group {
    /// The name that people know, and what its messages must match.
    fn named(&self) -> (&str, Option<&str>) {
        named(&self.name)
    }
}

fn named(group: &str) -> (&str, Option<&str>) {
    match group.split_once('\0') {
        Some((name, filter)) => (name, Some(filter)),
        None => (group, None),
    }
}

/// A subscription that consumes.
#[derive(Debug)]
struct Consumer {
    session: u32,
    group: u32,
    /// Which no other has: who came before has a lower one, and who comes back comes anew.
    since: u64,
    /// Deliveries that may be open, as it has said; 0 where that is the queue's to say.
    prefetch: usize,
    /// Deliveries that are open.
    held: usize,
    qos: QoS,
    /// Subscription Identifier; 0 without one.
    id: u32,
    /// PUBACK settles.
    settles_by_puback: bool,
    /// In the line of its group.
    is_in_line: bool,
    /// Of a packet, that its client takes, as far as is known.
    packet_bytes_max: usize,
}

/// What was asked of the shell.
#[derive(Clone, Copy, Debug)]
struct Asked {
    group: u32,
    number: u64,
    partition: u32,
    offset: i64,
    /// For messages that overtake others.
    is_ahead: bool,
}

/// The queues of a node.
#[derive(Debug)]
pub(super) struct Queues {
    hash_key: Key,
    all: Slab<Queue>,
    by_stream: Map<u64, u32>,
    by_name: Map<Box<str>, u32>,
    groups: Slab<Group>,
    consumers: BTreeMap<u64, Consumer>,
    pulls: BTreeMap<u64, Pull>,
    /// Pulls that have ended.
    pulled: Vec<Pulled>,
    subscriptions: usize,
    /// Of a group, or of a consumer.
    next_number: u64,
    /// Groups that may have something to give out to somebody.
    due: VecDeque<u32>,
    /// Group and number, partition, offset: to be read, in turn.
    line: VecDeque<Asked>,
    asked: Map<u64, Asked>,
    /// Partitions with something to be written.
    changed: Vec<(u32, u32)>,
    /// By ticket, what has died.
    burials: Map<u64, Vec<Burial>>,
    /// Streams whose dead letters have no stream yet.
    wants_dead: Vec<u64>,
    /// Messages that were passed over.
    lost: Vec<Lost>,
    /// Of streams that are no queue yet, or none any more.
    kept: Kept,
    /// Of pieces, and of packets, at hand.
    pieces_bytes: usize,
    kept_bytes: usize,
    /// Slots of queues whose stream is no more.
    gone: Vec<u32>,
    /// What is to come again, in turn.
    returns: VecDeque<Return>,
    steps: usize,
    /// Of the turn, as [`ENDS_MAX`].
    ends: usize,
    draws: u64,
    topic: String,
    packet: Vec<u8>,
}

impl Queues {
    /// None.
    pub fn new(hash_key: Key) -> Self {
        Self {
            hash_key,
            all: Slab::new(),
            by_stream: Map::with_hasher(hash_key),
            by_name: Map::with_hasher(hash_key),
            groups: Slab::new(),
            consumers: BTreeMap::new(),
            pulls: BTreeMap::new(),
            pulled: Vec::new(),
            subscriptions: 0,
            next_number: 1,
            due: VecDeque::new(),
            line: VecDeque::new(),
            asked: Map::with_hasher(hash_key),
            changed: Vec::new(),
            burials: Map::with_hasher(hash_key),
            wants_dead: Vec::new(),
            lost: Vec::new(),
            kept: Kept::new(),
            pieces_bytes: 0,
            kept_bytes: 0,
            gone: Vec::new(),
            returns: VecDeque::new(),
            steps: STEPS_MAX,
            ends: ENDS_MAX,
            draws: 0,
            topic: String::new(),
            packet: Vec::new(),
        }
    }

    /// Subscriptions of all sessions to queues, whether there are such queues or not.
    pub const fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    /// Whether another turn brings something on.
    pub fn is_due(&self) -> bool {
        !self.due.is_empty() || !self.returns.is_empty()
    }

    /// The stream may be a queue, and is no more.
    pub fn stream_gone(&mut self, stream: u64) {
        if let Some(slot) = self.by_stream.remove(&stream) {
            self.by_name.remove(&self.all[slot as usize].settings.name);
            self.gone.push(slot);
        }
    }

    /// Whether somebody must be told that a queue is no more.
    pub fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    /// What the shell is to make: streams of dead letters of these streams.
    pub fn take_wants(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.wants_dead)
    }

    /// Deliveries that a consumer may have open.
    fn prefetch_of(&self, consumer: &Consumer) -> usize {
        let queue = self.groups[consumer.group as usize].queue;
        match consumer.prefetch {
            0 => self.all[queue as usize].settings.prefetch,
            prefetch => prefetch,
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number - 1
    }

    /// For jitter; it repeats with the key.
    fn random(&mut self) -> u64 {
        use std::hash::BuildHasher;

        self.draws += 1;
        self.hash_key.hash_one(("queues", self.draws))
    }

    fn find(&self, name: &str) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// A group may have something to give out to somebody.
    fn touch(&mut self, slot: u32) {
        let group = &mut self.groups[slot as usize];
        let is_idle = group.hot.is_empty() && group.wakes.is_empty();
        if !is_idle && !std::mem::replace(&mut group.is_due, true) {
            self.due.push_back(slot);
        }
    }

    /// A consumer may have room again.
    fn line_up(&mut self, number: u64) {
        let consumer = self.consumers.get_mut(&number).expect("it is one");
        let group = consumer.group;
        if !std::mem::replace(&mut consumer.is_in_line, true) {
            self.groups[group as usize].line.push_back(number);
        }
        let of = &self.groups[group as usize];
        if !of.hot.is_empty() || of.has_aside {
            self.touch(group);
        }
    }

    /// A partition may have something to give out.
    fn heat(&mut self, slot: u32, partition: u32) {
        let group = &mut self.groups[slot as usize];
        let part = &mut group.parts[partition as usize];
        if !std::mem::replace(&mut part.is_hot, true) {
            group.hot.push_back(partition);
        }
        part.is_aged = false;
        group.aging.insert(partition);
        self.touch(slot);
    }

    /// What is settled of a partition has changed, or when it is to be looked at.
    fn change(&mut self, slot: u32, partition: u32) {
        let group = &mut self.groups[slot as usize];
        self.all[group.queue as usize].is_measured = false;
        let part = &mut group.parts[partition as usize];
        if !std::mem::replace(&mut part.is_changed, true) {
            self.changed.push((slot, partition));
        }
        let wake_ms = part.first_wake(part.ledger.wake_ms());
        if part.wake_ms != wake_ms {
            if let Some(at) = std::mem::replace(&mut part.wake_ms, wake_ms) {
                group.wakes.remove(&(at, partition));
            }
            group.wakes.extend(wake_ms.map(|at| (at, partition)));
        }
    }
}

impl Switchboard {
    /// A stream that is bound is a queue, or is served otherwise from now on.
    ///
    /// # Errors
    /// The stream is not bound.
    pub fn set_queue(&mut self, stream: u64, settings: QueueSettings) -> Result<(), Error> {
        let partitions = self.streams.partitions(stream);
        if partitions == 0 {
            return Err(Error::Stream(stream, 0));
        }
        self.streams.spread_by(stream, settings.is_fnv1a);
        let queues = &mut self.queues;
        let Some(slot) = queues.by_stream.get(&stream).copied() else {
            let name = settings.name.clone();
            let slot = queues.all.insert(Queue {
                stream,
                settings,
                ends: vec![0; partitions],
                sizes: (0..partitions).map(|_| Default::default()).collect(),
                groups: BTreeMap::new(),
                has_asked: false,
                is_measured: false,
            }) as u32;
            queues.by_stream.insert(stream, slot);
            queues.by_name.insert(name, slot);
            self.restore_queue(slot);
            self.measure_again(slot);
            return Ok(());
        };
        let queue = &mut queues.all[slot as usize];
        queue.ends.resize(partitions, 0);
        queue.sizes.resize_with(partitions, Default::default);
        queue.settings = settings;
        queue.has_asked &= queue.settings.dead_letters.is_none();
        let (policy, groups) = (queue.settings.policy, queue.groups.clone());
        for group in groups.into_values() {
            let held = queues.groups[group as usize].parts.len();
            for part in &mut queues.groups[group as usize].parts {
                part.ledger.set_policy(policy);
            }
            for partition in held..partitions {
                let ledger = Ledger::new(policy, Settled::new(0), 0, queues.hash_key);
                queues.groups[group as usize].parts.push(Part::new(ledger));
                queues.change(group, partition as u32);
            }
            for partition in 0..partitions as u32 {
                queues.heat(group, partition);
            }
            for member in queues.groups[group as usize].members.clone() {
                queues.line_up(member); // it may have open more than before
            }
        }
        self.measure_again(slot);
        Ok(())
    }

    /// Streams are no more: nobody consumes them, and nothing is kept of who did.
    pub(super) fn end_gone_queues(&mut self, now: Now) {
        for slot in std::mem::take(&mut self.queues.gone) {
            let first = |queues: &Queues| queues.all[slot as usize].groups.values().next().copied();
            while let Some(group) = first(&self.queues) {
                self.end_consumers(group, now);
                // With the last of its consumers it may have ended, and others before it.
                if first(&self.queues) == Some(group) {
                    self.forget_group(group);
                }
            }
            self.queues.all.remove(slot as usize);
        }
    }

    /// Records of a partition of a queue are durable below `end`; false where it is none.
    pub(super) fn queue_grown(&mut self, stream: u64, partition: u32, end: i64) -> bool {
        let Some(slot) = self.queues.by_stream.get(&stream).copied() else {
            return false;
        };
        let queue = &mut self.queues.all[slot as usize];
        let Some(known) = queue.ends.get_mut(partition as usize) else {
            return true;
        };
        *known = end.max(*known);
        let end = *known;
        let groups: Vec<u32> = queue.groups.values().copied().collect();
        for group in groups {
            let part = &mut self.queues.groups[group as usize].parts[partition as usize];
            if std::mem::take(&mut part.is_restored) {
                part.ledger.clip(end);
                self.queues.change(group, partition);
            }
            let part = &mut self.queues.groups[group as usize].parts[partition as usize];
            part.ledger.grown(end);
            if !self.is_asleep(group, partition) {
                self.queues.heat(group, partition);
            }
        }
        self.measure_again(slot);
        true
    }

    /// Sets the timer of a group for the first of its partitions that has something to be done.
    fn set_queue_timer(&mut self, slot: u32) {
        let group = &mut self.queues.groups[slot as usize];
        let due_ms = group.wakes.first().map(|(at, _)| *at);
        if group.timer_ms != due_ms {
            if let Some(at) = std::mem::replace(&mut group.timer_ms, due_ms) {
                self.timers.cancel(at, Timer::Queue(slot));
            }
            if let Some(at) = due_ms {
                self.timers.set(at, Timer::Queue(slot));
            }
        }
    }
}

#[cfg(test)]
mod tests;
