//! The MQTT data plane of one event loop: connections, sessions, subscriptions and streams.
//!
//! Owns every decision that is made per message. An event goes in, effects wait for
//! [`Switchboard::collect`]: nothing here performs, blocks or reads a clock. Single-threaded by
//! design. Must not know sockets, files or policy: who may connect is asked of the shell.
//!
//! Invariants ([`Switchboard::validate`] asserts them):
//! - a PUBACK leaves after the tickets of its publish, and in the order of the publishes;
//! - what one publisher sends to one topic reaches a subscriber in that order;
//! - bytes on the way to a client, and bytes on the way to the disk, are bounded; who overruns a
//!   bound waits at most a named time or is counted as dropped, with a reason;
//! - a connection's own acknowledgements are read on but for waits that end by themselves: those
//!   for the disk, those of [`Limits::stall_ms_max`], and that for the client to read.
//!
//! ```text
//! receive ─ packets ─┬─ connect ─── sessions    beginning, takeover, end, wills
//!                    ├─ authenticate           AUTH
//!                    ├─ permit                 what a client may do
//!                    ├─ subscribe ─ retained, groups
//!                    ├─ exchange               PUBACK, PUBREC, PUBREL, PUBCOMP
//!                    └─ admit ─ publish ─┬─ streams ─ answers   keys, batches, tickets
//!                                        ├─ persist           sessions on the log
//!                                        └─ deliver ─ overflow  windows, queues
//! ```

mod administer;
mod admit;
mod alias;
mod announce;
mod answers;
mod authenticate;
mod bind;
mod budget;
mod configure;
mod connect;
mod connection;
mod counters;
mod deliver;
mod exchange;
mod groups;
mod inbuffer;
mod outbuffer;
mod outgoing;
mod overflow;
mod packets;
mod partition;
mod permit;
mod persist;
mod publish;
mod publish_record;
mod retain;
mod retained;
mod retained_record;
mod sessions;
mod sources;
mod statistics;
mod streams;
mod subscribe;
mod sums;
mod timers;
mod trace;
mod validate;

use std::collections::VecDeque;
use std::fmt;

use slab::Slab;

use crate::hash::{Key, Map};
use crate::session::{Ending, Holding, Inbound, Memory, Session, Subscription};
use crate::topic::Tree;
use crate::Now;
use authenticate::Pending;
use configure::Highest;
use connection::{Connection, Park, Phase};
use counters::{Counter, Counters};
use groups::Groups;
use persist::Persistence;
use publish::Route;
use streams::Streams;
use sums::OfConnections;
use timers::{Timer, Timers};

pub use administer::{
    ConnectionReport, SessionReport, SessionSummary, Wanted, WillReport, SESSIONS_PAGE_MAX,
    SUBSCRIPTIONS_SHOWN_MAX,
};
pub use alias::{ALIAS_BYTES_MAX, OUT_MAX as ALIASES_OUT_MAX};
pub use budget::SHARE_BYTES;
pub use connect::{Asks, ConnectRequest, Verdict};
pub use groups::Strategy;
pub use overflow::Policy;
pub use permit::{Access, Users};
pub use persist::SessionAppend;
pub use publish::Published;
pub use retain::{Restored, RetainedState};
pub use retained::{Page, RetainedMessage, PAGE_MAX};
pub use streams::{Append, KeyRule, BATCH_BYTES_MAX};
pub use subscribe::FILTER_BYTES_MEAN_MAX;
pub use trace::{Subject as TraceSubject, TraceLine, Way as TraceWay, TRACES_MAX, TRACE_BYTES_MAX};

/// Input that may wait for a decision on its CONNECT before the socket is paused. Clients that do
/// not wait for CONNACK send a few hundred bytes; pausing costs two system calls.
pub const DECISION_BYTES_MAX: usize = 16 * 1024;

/// Answers that a client may leave unread beyond [`Limits::outbound_bytes_max`] before it is read
/// no further.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// The origin of publishes from other doors.
const DOOR: u32 = u32::MAX;

/// The bounds of a switchboard.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest packet that is read, bytes.
    pub packet_bytes_max: usize,
    /// Publishes above `QoS` 0 of one client whose exchange may not be over.
    pub receive_max: u16,
    /// Topic aliases that one client may set; 0 for none.
    pub topic_alias_max: u16,
    /// Longest time for which a session waits for its client, seconds.
    pub session_expiry_s_max: u32,
    /// Messages in flight to one client, however large its Receive Maximum.
    pub in_flight_max: u16,
    /// Messages that may wait for one client while it is away.
    pub queued_messages_max: usize,
    /// Bytes that may wait for one client, with those in flight that may have to be sent again.
    pub queued_bytes_max: usize,
    /// Bytes of all messages that wait for clients, each counted once.
    pub queued_bytes_of_node_max: usize,
    /// Which member of a group gets the next message.
    pub shared_strategy: Strategy,
    /// The same, for groups of these names.
    pub shared_strategies: Vec<(Box<str>, Strategy)>,
    /// Messages that may wait for one group while no member can take them.
    pub group_messages_max: usize,
    /// Bytes of those.
    pub group_bytes_max: usize,
    /// Retained messages.
    pub retained_messages_max: usize,
    /// Bytes of those, with what each costs beside.
    pub retained_bytes_max: usize,
    /// Bytes that may wait for one client to read them.
    pub outbound_bytes_max: usize,
    /// Bytes that all connections together may hold, to be read and not whole yet.
    pub buffered_bytes_max: usize,
    /// A client gets a copy of a publish for each of its subscriptions that match, with the
    /// identifier and the quality of service of that one; otherwise one for all of them (3.3.4).
    pub copies_each: bool,
    /// What gives way at a bound of a receiver.
    pub overflow: Policy,
    /// Time in which a full subscriber must take something to hold up publishers longer,
    /// milliseconds.
    pub stall_ms_max: u64,
    /// Sessions, of clients that are away too.
    pub sessions_max: usize,
    /// Those of them that may outlive their connection.
    pub sessions_kept_max: usize,
    /// Subscriptions of one session.
    pub subscriptions_max: usize,
    /// Subscriptions of all sessions.
    pub subscriptions_of_node_max: usize,
    /// Messages that one client may publish in a second; 0 for any number.
    pub messages_per_s_max: u32,
    /// Bytes of records that may wait for the disk.
    pub undurable_bytes_max: usize,
    /// Longest keep-alive, seconds; 5.0 clients are told, 3.1.1 clients cannot be.
    pub keep_alive_s_max: u16,
    /// What a client is told that asks on which topics it may be answered (3.2.2.3.15).
    pub response_information: Option<Box<str>>,
    /// Longest time from the connection to the answer on its CONNECT, milliseconds.
    pub connect_timeout_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            packet_bytes_max: 1024 * 1024 + 64 * 1024,
            receive_max: 1024,
            topic_alias_max: 32,
            session_expiry_s_max: 14 * 86_400,
            // At a round trip of a millisecond it still is a million messages a second.
            in_flight_max: 1024,
            queued_messages_max: 1000,
            queued_bytes_max: 16 * 1024 * 1024,
            queued_bytes_of_node_max: 512 * 1024 * 1024,
            shared_strategy: Strategy::RoundRobin,
            shared_strategies: Vec::new(),
            group_messages_max: 10_000,
            group_bytes_max: 64 * 1024 * 1024,
            retained_messages_max: 1_000_000,
            retained_bytes_max: 256 * 1024 * 1024,
            outbound_bytes_max: 16 * 1024 * 1024,
            buffered_bytes_max: 512 * 1024 * 1024,
            copies_each: false,
            overflow: Policy::PushBack,
            stall_ms_max: 100,
            sessions_max: 1_000_000,
            sessions_kept_max: 1_000_000,
            // More than a dashboard for a whole fleet needs, and about 10 MB.
            subscriptions_max: 65_536,
            // Some 2 GB.
            subscriptions_of_node_max: 10_000_000,
            messages_per_s_max: 0,
            undurable_bytes_max: 64 * 1024 * 1024,
            keep_alive_s_max: u16::MAX,
            response_information: None,
            connect_timeout_ms: 10_000,
        }
    }
}

impl Limits {
    /// Time between two messages of a client that sends as many as it may.
    fn message_interval_us(&self) -> Option<u64> {
        1_000_000_u64.checked_div(u64::from(self.messages_per_s_max))
    }
}

/// A call that names what the switchboard does not know, or cannot use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// No such connection.
    Connection(u64),
    /// No such stream, or no such partition of it.
    Stream(u64, u32),
    /// No request of this number was ever made.
    Request(u64),
    /// No append of this ticket is in flight.
    Ticket(u64),
    /// An argument is malformed.
    Invalid(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection(id) => write!(f, "no connection {id}"),
            Self::Stream(id, partition) => write!(f, "no partition {partition} of a stream {id}"),
            Self::Request(request) => write!(f, "no request {request} was made"),
            Self::Ticket(ticket) => write!(f, "no append with ticket {ticket} is in flight"),
            Self::Invalid(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

/// What the shell must do, in this order.
#[derive(Debug, Default)]
pub struct Effects {
    /// To perform; the end of each comes back in [`Switchboard::durable`].
    pub appends: Vec<Append>,
    /// `(connection, bytes)`, one per connection.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// `(connection, true to read on | false to pause)`.
    pub reads: Vec<(u64, bool)>,
    /// For policy to decide.
    pub decisions: Vec<ConnectRequest>,
    /// `(connection, reason)`, after that connection's writes.
    pub closes: Vec<(u64, &'static str)>,
    /// When [`Switchboard::tick`] is due.
    pub wake_at: Option<u64>,
}

impl Effects {
    fn is_empty(&self) -> bool {
        self.appends.is_empty()
            && self.writes.is_empty()
            && self.reads.is_empty()
            && self.decisions.is_empty()
            && self.closes.is_empty()
    }
}

/// The data plane machine.
#[derive(Debug)]
pub struct Switchboard {
    hash_key: Key,
    limits: Limits,
    highest: Highest,
    /// None where everybody may do everything.
    access: Option<Access>,
    counters: Counters,
    timers: Timers,
    tracer: trace::Tracer,

    connections: Slab<Connection>,
    of_connections: OfConnections,
    by_id: Map<u64, u32>,
    /// Connections that the next collect visits.
    touched: Vec<u64>,
    /// Connections whose reason to rest may have gone.
    runnable: VecDeque<u32>,
    /// Connections that rest for the disk.
    disk_waiters: Vec<u32>,
    /// Connections that passed a bound at which they end.
    doomed: Vec<u64>,

    sessions: Slab<Session>,
    of_sessions: Holding,
    /// Sessions whose client is there.
    here: usize,
    /// Sessions that may outlive their connection.
    kept: usize,
    /// What they hold.
    memory: Memory,
    by_client: Map<Box<str>, u32>,
    subscriptions: Tree<u32, Subscription>,
    groups: Groups,
    retained: retained::Store,
    /// What the broker says of itself.
    announced: retained::Store,
    keeping: retain::Keeping,
    /// Names that searches for retained messages may look at until the next collect.
    replay_steps: usize,
    /// How many were touched before those whose search found none left.
    searched: Option<usize>,
    /// Publishes taken so far, and changes of retained messages since they were.
    arrivals: u64,
    /// Client ids assigned so far.
    assigned: u64,

    pending: Map<u64, Pending>,
    next_request: u64,
    decisions: Vec<ConnectRequest>,

    streams: Streams,
    persistence: Persistence,
    bound: Tree<u32, ()>,
    filters: Map<u64, Vec<Box<str>>>,

    door: Inbound,
    published: Vec<Published>,
    /// Scratch of the publish at hand.
    route: Route,
    scratch: Vec<u8>,
    packet: Vec<u8>,
    wake_at: Option<u64>,
}

impl Switchboard {
    /// A switchboard without connections or streams.
    pub fn new(hash_key: Key, limits: Limits) -> Self {
        Self {
            hash_key,
            highest: Highest::of(&limits),
            limits,
            access: None,
            counters: Counters::default(),
            timers: Timers::default(),
            tracer: trace::Tracer::default(),
            connections: Slab::new(),
            of_connections: OfConnections::default(),
            by_id: Map::with_hasher(hash_key),
            touched: Vec::new(),
            runnable: VecDeque::new(),
            disk_waiters: Vec::new(),
            doomed: Vec::new(),
            sessions: Slab::new(),
            of_sessions: Holding::default(),
            here: 0,
            kept: 0,
            memory: Memory::default(),
            by_client: Map::with_hasher(hash_key),
            subscriptions: Tree::new(hash_key),
            groups: Groups::new(hash_key),
            retained: retained::Store::default(),
            announced: retained::Store::default(),
            keeping: retain::Keeping::new(hash_key),
            replay_steps: 0,
            searched: None,
            arrivals: 0,
            assigned: 0,
            pending: Map::with_hasher(hash_key),
            next_request: 1,
            decisions: Vec::new(),
            streams: Streams::new(hash_key),
            persistence: Persistence::new(hash_key),
            bound: Tree::new(hash_key),
            filters: Map::with_hasher(hash_key),
            door: Inbound::default(),
            published: Vec::new(),
            route: Route::default(),
            scratch: Vec::new(),
            packet: Vec::new(),
            wake_at: None,
        }
    }

    /// The key of its hash maps.
    pub const fn hash_key(&self) -> Key {
        self.hash_key
    }

    /// A socket was accepted.
    ///
    /// # Errors
    /// The connection is open already.
    pub fn opened(&mut self, connection: u64, now: Now) -> Result<(), Error> {
        if self.by_id.contains_key(&connection) {
            let text = format!("connection {connection} is open already");
            return Err(Error::Invalid(text));
        }
        let slot = self
            .connections
            .insert(Connection::new(connection, now.mono_ms)) as u32;
        self.by_id.insert(connection, slot);
        self.counters.count(Counter::Connections);
        self.set_silence(slot, now.mono_ms + self.limits.connect_timeout_ms);
        Ok(())
    }

    /// The socket is gone. Called once for each connection opened, whoever closed it.
    ///
    /// # Errors
    /// No such connection.
    pub fn closed(&mut self, connection: u64, now: Now) -> Result<(), Error> {
        let slot = self.slot(connection)?;
        self.close(slot, "gone", None, now);
        self.by_id.remove(&connection);
        let gone = self.connections.remove(slot as usize);
        self.of_connections -= gone.counted;
        Ok(())
    }

    /// Bytes came.
    ///
    /// # Errors
    /// No such connection.
    pub fn receive(&mut self, connection: u64, data: &[u8], now: Now) -> Result<(), Error> {
        let slot = self.slot(connection)?;
        self.counters.add(Counter::BytesReceived, data.len());
        self.tracer.at(now);
        self.route.visited = 0;
        self.read(slot, data, now);
        self.end_if_too_much(slot, now);
        Ok(())
    }

    /// At most `credit_bytes` may be written to the connection per collect.
    ///
    /// # Errors
    /// No such connection.
    pub fn writable(&mut self, connection: u64, credit_bytes: usize) -> Result<(), Error> {
        let slot = self.slot(connection)?;
        self.connections[slot as usize].credit_bytes = credit_bytes;
        self.touch(slot);
        Ok(())
    }

    /// The append of `ticket` ended: acknowledges and delivers what waited for it.
    ///
    /// # Errors
    /// No such append is in flight.
    pub fn durable(
        &mut self,
        ticket: u64,
        ending: impl Into<Ending>,
        now: Now,
    ) -> Result<(), Error> {
        let ending = ending.into();
        self.tracer.at(now);
        if !self.persisted(ticket, ending, now) {
            let waiters = self.streams.durable(ticket, ending);
            let waiters = waiters.ok_or(Error::Ticket(ticket))?;
            self.retained_durable(ticket, ending, now);
            self.settle(&waiters, now);
        }
        if self.undurable_bytes() < self.limits.undurable_bytes_max {
            self.runnable.extend(self.disk_waiters.drain(..));
        }
        Ok(())
    }

    /// DISCONNECT (5.0) to every client, and the end of every connection.
    pub fn disconnect_all(&mut self, reason_code: u8, now: Now) {
        let slots: Vec<u32> = self
            .connections
            .iter()
            .map(|(slot, _)| slot as u32)
            .collect();
        for slot in slots {
            self.close(slot, "shutdown", Some(reason_code), now);
        }
    }

    /// Time passed.
    pub fn tick(&mut self, now: Now) {
        self.tracer.at(now);
        while let Some(timer) = self.timers.pop(now.mono_ms) {
            match timer {
                Timer::Silence(slot) => self.silent(slot, now),
                Timer::Stall(slot) => self.stalled_out(slot, now),
                Timer::Rate(slot) => self.runnable.push_back(slot),
                Timer::Session(session) => self.session_due(session, now),
                Timer::Retained => self.purge_retained(now),
                Timer::Persist => {} // what is due is written by the next `persist`
            }
        }
    }

    /// Publishes of other doors that ended since the last call.
    pub fn published(&mut self) -> Vec<Published> {
        std::mem::take(&mut self.published)
    }

    /// Everything due since the last call; None where nothing is.
    pub fn collect(&mut self, now: Now) -> Option<Effects> {
        self.tracer.at(now);
        for _ in 0..self.runnable.len() {
            if let Some(slot) = self.runnable.pop_front() {
                self.route.visited = 0;
                self.resume(slot, now);
            }
        }
        self.end_doomed(now);
        let mut effects = Effects {
            appends: self.streams.collect(),
            decisions: std::mem::take(&mut self.decisions),
            ..Effects::default()
        };
        self.replay_steps = retained::STEPS_MAX;
        let mut touched = std::mem::take(&mut self.touched);
        for connection in touched.drain(..) {
            if let Ok(slot) = self.slot(connection) {
                self.visit(slot, &mut effects, now);
            }
        }
        // What is touched from here on was kept back for credit, or had no turn to search: that
        // comes first, or the first search would keep all others from theirs.
        if let Some(searched) = self.searched.take() {
            self.touched.rotate_left(searched);
        }
        touched.append(&mut self.touched);
        self.touched = touched;
        let busy = !self.runnable.is_empty() || !self.touched.is_empty();
        effects.wake_at = if busy {
            Some(now.mono_ms)
        } else {
            self.timers.next()
        };
        let woken = std::mem::replace(&mut self.wake_at, effects.wake_at);
        (!effects.is_empty() || woken != effects.wake_at).then_some(effects)
    }

    /// Takes what is due from one connection.
    fn visit(&mut self, slot: u32, effects: &mut Effects, now: Now) {
        let connection = &mut self.connections[slot as usize];
        connection.touched = false;
        let id = connection.id;
        let bytes = connection.take(self.persistence.settled());
        self.counters
            .add(Counter::PacketsSent, connection.out.take_packets());
        if !bytes.is_empty() {
            self.counters.add(Counter::BytesSent, bytes.len());
            effects.writes.push((id, bytes));
        }
        if connection.phase == Phase::Closing {
            if connection.is_gated() {
                return self.recount(slot); // What it is told last may wait for the disk.
            }
            if let Some(reason) = connection.closing.take() {
                connection.out.clear();
                effects.closes.push((id, reason));
            }
            return self.recount(slot);
        }
        let reading = connection.wants_input(DECISION_BYTES_MAX);
        if connection.reading != reading {
            connection.reading = reading;
            effects.reads.push((id, reading));
        }
        if connection.can_take() {
            self.touch(slot);
        }
        self.recount(slot);
        self.drained(slot, now);
        self.replay(slot, now);
        if let Some(session) = self.connections[slot as usize].session {
            self.refill(session, now);
        }
    }

    /// Bytes of records on their way to the disk.
    fn undurable_bytes(&self) -> usize {
        self.streams.undurable_bytes() + self.persistence.undurable_bytes()
    }

    fn slot(&self, connection: u64) -> Result<u32, Error> {
        let slot = self.by_id.get(&connection).copied();
        slot.ok_or(Error::Connection(connection))
    }

    fn touch(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        if !connection.touched {
            connection.touched = true;
            self.touched.push(connection.id);
        }
    }

    /// Sets the only silence timer of a connection.
    fn set_silence(&mut self, slot: u32, due_ms: u64) {
        self.cancel_silence(slot);
        self.connections[slot as usize].timer_ms = Some(due_ms);
        self.timers.set(due_ms, Timer::Silence(slot));
    }

    fn cancel_silence(&mut self, slot: u32) {
        if let Some(due_ms) = self.connections[slot as usize].timer_ms.take() {
            self.timers.cancel(due_ms, Timer::Silence(slot));
        }
    }

    /// A silence timer came due; packets since then have not moved it.
    fn silent(&mut self, slot: u32, now: Now) {
        let connection = &mut self.connections[slot as usize];
        connection.timer_ms = None;
        if connection.phase != Phase::Open {
            return self.close(slot, "connect_timeout", None, now);
        }
        if matches!(
            connection.parked,
            Some(Park::Window | Park::Stall | Park::Disk | Park::Rate | Park::Turn)
        ) {
            // Its packets may be here, unread by our own choice.
            connection.heard_ms = now.mono_ms;
        }
        let due_ms = connection.heard_ms + connection.silence_ms_max;
        if due_ms <= now.mono_ms {
            self.close_with(slot, crate::mqtt::reason::KEEP_ALIVE_TIMEOUT, now);
        } else {
            self.set_silence(slot, due_ms);
        }
    }
}
