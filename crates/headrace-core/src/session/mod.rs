//! MQTT sessions: what the broker knows of a client beyond its connection.
//!
//! Owns a client's identity, its subscriptions, its will, the `QoS` 1 publishes that it sent and
//! that are not acknowledged yet ([`Inbound`]), and those that it is sent ([`Outbound`]). Must not
//! know bytes, sockets or protocol versions: a cluster runs a session on one node and its
//! connection on another.
//!
//! Invariants: acknowledgements leave in the order of their packets; a packet id in flight is
//! unique; nothing waits in the queue while the window has room.

mod inbound;
mod message;
mod outbound;
mod subscription;

pub use inbound::{Answer, Ending, Inbound, Outcome};
pub use message::{Expiry, Message, Will, OVERHEAD_BYTES, SHARED_BYTES_MIN};
pub use outbound::{Outbound, PacketIds};
pub use subscription::{Delivery, Ids, Subscription, Terms};

use crate::hash::{Key, Map};

/// The state of one client.
///
/// A session of this broker ends with its connection; it lingers, without connection and
/// subscriptions, while publishes of the client still wait for the disk.
#[derive(Debug)]
pub struct Session {
    /// Client identifier, assigned ones included.
    pub client_id: Box<str>,
    /// Slot of the connection; None after the end.
    pub connection: Option<u32>,
    /// By filter.
    pub subscriptions: Map<Box<str>, Subscription>,
    /// Of all filters together.
    pub filter_bytes: usize,
    /// Sent at the end unless the client said good-bye.
    pub will: Option<Will>,
    /// From the client.
    pub inbound: Inbound,
    /// To the client.
    pub outbound: Outbound,
    /// Scratch of routing: where the session stands among the receivers of the publish at hand.
    pub mark: usize,
}

impl Session {
    /// A session of a client whose Receive Maximum is `window`.
    pub fn new(hash_key: Key, client_id: Box<str>, connection: u32, window: u16) -> Self {
        Self {
            client_id,
            connection: Some(connection),
            subscriptions: Map::with_hasher(hash_key),
            filter_bytes: 0,
            will: None,
            inbound: Inbound::default(),
            outbound: Outbound::new(window),
            mark: 0,
        }
    }

    /// True when nothing refers to the session any more.
    pub fn is_over(&self) -> bool {
        self.connection.is_none() && self.inbound.is_empty()
    }
}
