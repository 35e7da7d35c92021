//! MQTT sessions: what the broker knows of a client beyond its connection.
//!
//! Owns who a client is, its subscriptions, its will, when it ends, the publishes that it sent
//! and that are not over ([`Inbound`]), and those that it is sent ([`Outbound`]). Must not know
//! bytes, sockets or protocol versions: a cluster runs a session on one node and its connection on
//! another.
//!
//! Invariants: acknowledgements leave in the order of their packets; a packet id in flight is
//! unique, and so is one that the client has not released; at most one will is published.

mod consuming;
mod feed;
mod holding;
mod inbound;
mod lease;
mod message;
mod outbound;
mod outcome;
mod replay;
mod stored;
mod subscription;

pub use consuming::{Consuming, Consumption, Handed};
pub use feed::{Feed, Feeds, Progress, Wanted};
pub use holding::Holding;
pub use inbound::{Answer, Deferred, Due, Inbound, Repeat};
pub use lease::Lease;
pub use message::{
    Expiry, Held, Memory, Message, Seat, Will, OVERHEAD_BYTES, PLACE_BYTES, SHARED_BYTES_MIN,
};
pub use outbound::{Exchange, Load, Outbound, Receipt, Sending};
pub use outcome::{Ending, Outcome, FAR_DEADLINE};
pub use replay::{Replay, Replays};
pub use stored::{Claim, Durable, End, Ends, Owner, Places, Stored};
pub use subscription::{Delivery, GroupId, Ids, Owed, Subscription, Terms};

use std::collections::BTreeSet;

use crate::access::Identity;
use crate::hash::{Key, Map};

/// The Session Expiry Interval of a session that does not expire (MQTT 5.0 3.1.2.11.2).
pub const NEVER_S: u32 = u32::MAX;

/// The state of one client.
///
/// It waits for the client where its expiry interval lets it. After its end it lingers without
/// connection while publishes of the client still wait for the disk, or while its subscriptions, which
/// get nothing any more, are taken from where they are found.
#[derive(Debug)]
pub struct Session {
    /// Client identifier, assigned ones included.
    pub client_id: Box<str>,
    /// Whose it is; None where everybody may do everything.
    pub identity: Option<Box<Identity>>,
    /// Slot of the connection; None while the client is away.
    pub connection: Option<u32>,
    /// Which no session before it had that was in its place.
    pub birth: u64,
    /// The last arrival before it last gave a subscription up.
    pub unsubscribed: u64,
    /// No client will come back to it.
    pub is_ended: bool,
    /// For how long after its connection it lives, seconds; [`NEVER_S`] is for ever.
    pub expiry_s: u32,
    /// When it ends unless the client comes back.
    pub ends_ms: Option<u64>,
    /// When the will is published unless the client comes back.
    pub will_ms: Option<u64>,
    /// When its timer is set for.
    pub timer_ms: Option<u64>,
    /// By filter.
    pub subscriptions: Map<Box<str>, Subscription>,
    /// Subscriptions that may not have all that they match; 1 at least of a session that has ended.
    pub narrowed: u32,
    /// Slots of the groups that it is a member of.
    pub groups: BTreeSet<u32>,
    /// What it last told its groups of what it has to do; None where they take it for more.
    pub told: Option<Load>,
    /// Of all filters together.
    pub filter_bytes: usize,
    /// Published at the end of the connection or later, unless the client said good-bye.
    pub will: Option<Will>,
    /// Retained messages to come.
    pub replays: Replays,
    /// Streams that it reads.
    pub feeds: Option<Box<Feeds>>,
    /// Queues that it consumes.
    pub consuming: Option<Box<Consuming>>,
    /// From the client.
    pub inbound: Inbound,
    /// To the client.
    pub outbound: Outbound,
    /// What the log has of it, where it is kept there.
    pub durable: Option<Box<Durable>>,
    /// The log has its will and nothing else: it ends with its connection.
    pub is_will_kept: bool,
    /// What it was counted with last.
    pub counted: Holding,
    /// Scratch of routing: where the session stands among the receivers of the publish at hand.
    pub mark: usize,
}

impl Session {
    /// What its subscriptions count to the bound on them: one to a stream holds a position in each
    /// partition.
    pub fn places(&self) -> usize {
        let feeds = self.feeds.as_ref();
        let more = feeds.map_or(0, |feeds| feeds.positions() - feeds.len());
        self.subscriptions.len() + more
    }

    /// A session without connection that is sent at most `in_flight_max` messages at a time.
    pub fn new(hash_key: Key, client_id: Box<str>, in_flight_max: u16) -> Self {
        Self {
            client_id,
            identity: None,
            connection: None,
            birth: 0,
            unsubscribed: 0,
            is_ended: false,
            expiry_s: 0,
            ends_ms: None,
            will_ms: None,
            timer_ms: None,
            subscriptions: Map::with_hasher(hash_key),
            narrowed: 0,
            groups: BTreeSet::new(),
            told: None,
            filter_bytes: 0,
            will: None,
            replays: Replays::default(),
            feeds: None,
            consuming: None,
            inbound: Inbound::default(),
            outbound: Outbound::new(in_flight_max),
            durable: None,
            is_will_kept: false,
            counted: Holding::default(),
            mark: 0,
        }
    }

    /// A connection begins whose client reads `receive_maximum` messages at a time.
    pub fn attach(&mut self, connection: u32, receive_maximum: u16) {
        self.connection = Some(connection);
        self.ends_ms = None;
        self.will_ms = None;
        self.outbound.attach(receive_maximum, self.expiry_s > 0);
    }

    /// The connection is gone: when the session ends and its will is due, at once where it does not
    /// outlive its connection (3.1.3.2.2).
    pub fn detach(&mut self, mono_ms: u64) {
        self.connection = None;
        self.inbound.detach();
        let after = |seconds| mono_ms + u64::from(seconds) * 1000;
        self.ends_ms = (self.expiry_s < NEVER_S).then(|| after(self.expiry_s));
        let will_ms = self.will.as_ref().map(|will| after(will.delay_s));
        self.will_ms = will_ms.map(|due_ms| self.ends_ms.map_or(due_ms, |end| end.min(due_ms)));
    }

    /// When something is due while the client is away.
    pub fn next_ms(&self) -> Option<u64> {
        self.ends_ms.into_iter().chain(self.will_ms).min()
    }

    /// True when nothing refers to the session any more.
    pub fn is_over(&self) -> bool {
        self.is_ended && self.inbound.is_empty() && self.subscriptions.is_empty()
    }
}
