//! The bounds of a switchboard: numbers, and what they mean. Each is a setting of the shell's.

use super::groups::Strategy;
use super::overflow::Policy;

/// The bounds of a switchboard.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Longest packet that is read, bytes.
    pub packet_bytes_max: usize,
    /// Publishes above `QoS` 0 of one client whose exchange may not be over.
    pub receive_max: u16,
    /// Packet ids at `QoS` 2 of all clients that are not released.
    pub unreleased_of_node_max: usize,
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
    /// Groups of all queues, each of which keeps what it is owed.
    pub queue_groups_max: usize,
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
    /// Sessions that are served at once with a publish that no more get; no setting. Some 5 ms.
    pub crowd_min: usize,
    /// Of publishes that more get, receivers that are served in one turn; no setting. 5 to 15 ms.
    pub crowd_turn_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            packet_bytes_max: 1024 * 1024 + 64 * 1024,
            receive_max: 1024,
            // Some 300 MB.
            unreleased_of_node_max: 10_000_000,
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
            queue_groups_max: 10_000,
            messages_per_s_max: 0,
            undurable_bytes_max: 64 * 1024 * 1024,
            keep_alive_s_max: u16::MAX,
            response_information: None,
            connect_timeout_ms: 10_000,
            crowd_min: 4096,
            crowd_turn_max: 8192,
        }
    }
}

impl Limits {
    /// Time between two messages of a client that sends as many as it may.
    pub(super) fn message_interval_us(&self) -> Option<u64> {
        1_000_000_u64.checked_div(u64::from(self.messages_per_s_max))
    }
}
