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
//!                    ├─ subscribe ─ retained, groups, feeds
//!                    ├─ exchange               PUBACK, PUBREC, PUBREL, PUBCOMP
//!                    └─ admit ─ publish ─┬─ streams ─ answers   keys, batches, tickets
//!                                        ├─ persist           sessions on the log
//!                                        ├─ crowd             very many receivers, in shares
//!                                        └─ deliver ─ overflow  windows, queues
//! ```

mod administer;
mod admit;
mod alias;
mod announce;
mod answers;
mod authenticate;
mod beginnings;
mod bind;
mod budget;
mod collect;
mod configure;
mod connect;
mod connection;
mod counters;
mod crowd;
mod deliver;
mod exchange;
mod feeds;
mod groups;
mod inbuffer;
mod limits;
mod outbuffer;
mod outgoing;
mod overflow;
mod packets;
mod partition;
mod permit;
mod persist;
mod publish;
mod publish_record;
mod queues;
mod record_publish;
mod retain;
mod retained;
mod retained_record;
mod route;
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

use bytes::Bytes;
use slab::Slab;

use crate::hash::{Key, Map};
use crate::session::{Ending, Holding, Inbound, Memory, Session, Subscription};
use crate::topic::Tree;
use crate::Now;
use authenticate::Pending;
use beginnings::Beginnings;
use collect::Due;
use configure::Highest;
use connection::{Connection, Park, Phase};
use counters::{Counter, Counters};
use crowd::Crowds;
use feeds::Feeds;
use groups::Groups;
use persist::Persistence;
use queues::Queues;
use route::Route;
use streams::Streams;
use subscribe::FILTERS_TURN_MAX;
use sums::OfConnections;
use timers::{Timer, Timers};

pub use administer::{
    ConnectionReport, SessionReport, SessionSummary, Wanted, WillReport, SESSIONS_PAGE_MAX,
    SUBSCRIPTIONS_SHOWN_MAX,
};
pub use alias::{ALIAS_BYTES_MAX, OUT_MAX as ALIASES_OUT_MAX};
pub use budget::SHARE_BYTES;
pub use collect::{Effects, DECISION_BYTES_MAX, SMALL_BYTES, TURN_BYTES_MAX, TURN_CONNECTIONS_MAX};
pub use connect::{Asks, ConnectRequest, Verdict};
pub use feeds::{
    Placement, StreamLag, StreamRead, StreamReading, StreamRequest, HELD_BYTES_MAX,
    POSITIONS_SHOWN_MAX, READ_BYTES, STREAM_SUBSCRIPTIONS_MAX, TURN_READ_BYTES_MAX,
};
pub use groups::Strategy;
pub use limits::Limits;
pub use outbuffer::Written;
pub use overflow::Policy;
pub use permit::{Access, Users};
pub use persist::{SessionAppend, SessionTrim};
pub use publish::Published;
pub use queues::{
    Depth, Excess, Latency, Lost, PeekTerms, PeekedMessage, PullTerms, Pulled, PulledMessage,
    QueueConsumer, QueueGroup, QueuePartition, QueueSettings, Sharing, Unread, LATENCY_BOUNDS_MS,
};
pub use retain::{Restored, RetainedState};
pub use retained::{Page, RetainedMessage, PAGE_MAX};
pub use streams::{Append, KeyRule, BATCH_BYTES_MAX};
pub use subscribe::FILTER_BYTES_MEAN_MAX;
pub use trace::{Subject as TraceSubject, TraceLine, Way as TraceWay, TRACES_MAX, TRACE_BYTES_MAX};

/// Answers that a client may leave unread beyond [`Limits::outbound_bytes_max`] before it is read
/// no further.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Timers that one call serves: 10 to 20 ms. All clients of a network that fails are silent at once.
pub const TURN_TIMERS_MAX: usize = 2000;

/// The origin of publishes from other doors.
const DOOR: u32 = u32::MAX;

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
    /// Queues have as many groups as they may.
    GroupLimit,
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
            Self::GroupLimit => f.write_str("queues have as many groups as they may"),
            Self::Invalid(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

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
    beginnings: Beginnings,
    /// Large payloads on their way to connections.
    lumps: Memory,
    /// The packet that is served, where it came in parts and is large: it need not be copied.
    owned: Option<Bytes>,
    by_id: Map<u64, u32>,
    due: Due,
    /// Connections whose reason to rest may have gone.
    runnable: VecDeque<u32>,
    /// Connections that rest for the disk.
    disk_waiters: Vec<u32>,
    /// Connections that passed a bound at which they end.
    doomed: Vec<u64>,
    /// Origins with answers for which the turn had no time.
    owing: VecDeque<u32>,
    /// What those have matched that were answered since the last collect.
    answered_visits: usize,
    /// Sessions that have ended and still have subscriptions; whether the log has them.
    leaving: VecDeque<(u32, bool)>,
    /// So many subscriptions of sessions that end are taken out until the next collect.
    filters_share: usize,
    /// Publishes on their way to very many.
    crowds: Crowds,

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
    /// Sessions begun so far.
    births: u64,

    pending: Map<u64, Pending>,
    next_request: u64,
    decisions: Vec<ConnectRequest>,

    streams: Streams,
    feeds: Feeds,
    queues: Queues,
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
            beginnings: Beginnings::default(),
            lumps: Memory::default(),
            owned: None,
            by_id: Map::with_hasher(hash_key),
            due: Due::default(),
            runnable: VecDeque::new(),
            disk_waiters: Vec::new(),
            doomed: Vec::new(),
            owing: VecDeque::new(),
            answered_visits: 0,
            leaving: VecDeque::new(),
            filters_share: FILTERS_TURN_MAX,
            crowds: Crowds::default(),
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
            births: 0,
            pending: Map::with_hasher(hash_key),
            next_request: 1,
            decisions: Vec::new(),
            streams: Streams::new(hash_key),
            feeds: Feeds::new(hash_key),
            queues: Queues::new(hash_key),
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
        self.count_input(slot);
        if self.connections[slot as usize].begun.is_some() {
            self.make_room(now);
        }
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
            let stream = self.streams.stream_of(ticket);
            let waiters = self.streams.durable(ticket, ending);
            let waiters = waiters.ok_or(Error::Ticket(ticket))?;
            if let Some(stream) = stream.filter(|_| ending != Ending::Stored) {
                self.room_returned(stream);
            }
            self.retained_durable(ticket, ending, now);
            self.burials_over(ticket, ending, now);
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
        self.return_pulled(now);
    }

    /// Time passed. Does a share of what is due; the rest is so with the next call, for which
    /// [`Effects::wake_at`] asks at once.
    pub fn tick(&mut self, now: Now) {
        self.tracer.at(now);
        self.route.visited = 0;
        for _ in 0..TURN_TIMERS_MAX {
            if self.route.visited >= collect::TURN_VISITS_MAX {
                break;
            }
            let Some(timer) = self.timers.pop(now.mono_ms) else {
                break;
            };
            match timer {
                Timer::Silence(slot) => self.silent(slot, now),
                Timer::Stall(slot) => self.stalled_out(slot, now),
                Timer::Rate(slot) => self.runnable.push_back(slot),
                Timer::Session(session) => self.session_due(session, now),
                Timer::Retained => self.purge_retained(now),
                Timer::Streams => self.wake_readers(now),
                Timer::Queue(group) => self.queue_due(group),
                Timer::Persist => {} // what is due is written by the next `persist`
            }
        }
    }

    /// Publishes of other doors that ended since the last call.
    pub fn published(&mut self) -> Vec<Published> {
        std::mem::take(&mut self.published)
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
            self.due.touched.push_back(connection.id);
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
            Some(
                Park::Decision
                    | Park::Window
                    | Park::Stall
                    | Park::Disk
                    | Park::Rate
                    | Park::Turn
                    | Park::Crowd
            )
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
