//! What happens when a client does not keep up, or stays away (MQTT 5.0 4.9).
//!
//! Three bounds hold for each receiver: bytes on the way to its connection, bytes that its session
//! holds, and messages while it is away, and the bytes that all sessions hold together. A commit
//! releases thousands of messages at once, so a client that is there is not held to a number of
//! them: that would lose what it could have read a moment later. Which message gives way is a
//! setting ([`Policy`]). To push back is to hold up those who publish to it, until it has drained
//! below half or has taken next to nothing for a named time; after that the newest messages are
//! dropped until it has drained below half. Each such time needs progress to be followed by
//! another, so no circle of clients can wait for ever. Progress is what the connection took, not
//! how much less waits: publishers that are not held yet fill up what it takes. One that has been
//! given nothing because others have their turn is not slow.

use std::collections::BTreeSet;

use super::connection::{Connection, Overflow, Park};
use super::outgoing::Outgoing;
use super::route::Target;
use super::timers::Timer;
use super::{Counter, Switchboard, SMALL_BYTES};
use crate::mqtt::packet::QoS;
use crate::mqtt::reason;
use crate::session::{Delivery, Session, OVERHEAD_BYTES};
use crate::Now;

/// What a full client must take of its bound within a stall to be waited for further: below that
/// it is slow, and nobody waits for it. Of 16 MiB in 100 ms these are 5 MiB/s, half of what a
/// subscriber of 80,000 messages of 100 bytes a second takes.
const PROGRESS_PARTS: usize = 32;

/// What gives way at a bound of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The publishers, while the client takes something within [`super::Limits::stall_ms_max`];
    /// then as [`Self::DropNewest`]. Nobody waits for a client that is away.
    #[default]
    PushBack,
    /// What has waited longest. What is written to the connection cannot be taken back.
    DropOldest,
    /// The message at hand.
    DropNewest,
    /// The connection: DISCONNECT 0x97. What waits for the session stays.
    Disconnect,
}

impl Policy {
    /// Reads the name of a setting; None for any other.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "push-back" => Some(Self::PushBack),
            "drop-oldest" => Some(Self::DropOldest),
            "drop-newest" => Some(Self::DropNewest),
            "disconnect" => Some(Self::Disconnect),
            _ => None,
        }
    }
}

impl Switchboard {
    /// Whether a message of so many bytes may be sent to a session, or wait for it; makes room for
    /// it where something has expired or the policy says so, and counts it where not.
    pub(super) fn has_room(
        &mut self,
        session: u32,
        qos: QoS,
        bytes: usize,
        outgoing: &Outgoing<'_>,
    ) -> bool {
        let waiting_bytes = outgoing.waiting_bytes();
        let connection = self.sessions[session as usize].connection;
        if connection.is_none() && qos == QoS::AtMostOnce {
            self.drops(session, Counter::DroppedAway, outgoing, bytes);
            return false;
        }
        while let Some(bound) = self.bound_reached(session, qos, bytes, waiting_bytes) {
            let outbound = &mut self.sessions[session as usize].outbound;
            let expired = outbound.purge_expired(outgoing.arrived_ms());
            self.drops_waiting(session, Counter::DroppedExpired, expired.iter());
            if !expired.is_empty() {
                self.recount_session(session);
                continue;
            }
            if let Some(oldest) = self.oldest_gives_way(session, qos, bytes, bound) {
                let oldest = std::slice::from_ref(&oldest).iter();
                self.drops_waiting(session, Counter::DroppedOldest, oldest);
                self.recount_session(session);
                continue;
            }
            self.drops(session, bound, outgoing, bytes);
            if let (Policy::Disconnect, Some(slot)) = (self.limits.overflow, connection) {
                let connection = &mut self.connections[slot as usize];
                if !matches!(connection.overflow, Overflow::Ending) {
                    connection.overflow = Overflow::Ending;
                    self.doomed.push(connection.id);
                    self.recount(slot);
                }
            }
            return false;
        }
        true
    }

    /// Takes what has waited longest, if the policy says so and that makes room in the end.
    fn oldest_gives_way(
        &mut self,
        session: u32,
        qos: QoS,
        bytes: usize,
        bound: Counter,
    ) -> Option<Delivery> {
        if self.limits.overflow != Policy::DropOldest || qos == QoS::AtMostOnce {
            return None;
        }
        let state = &mut self.sessions[session as usize];
        let connection = state.connection;
        let written = connection.map_or(0, |slot| self.connections[slot as usize].out.len());
        let kept = state.outbound.kept_bytes() + OVERHEAD_BYTES;
        let helps = match bound {
            Counter::DroppedFull => written + bytes <= self.limits.outbound_bytes_max,
            Counter::DroppedQueue => kept + bytes <= self.limits.queued_bytes_max,
            _ => false,
        };
        helps.then(|| state.outbound.pop())?
    }

    /// The bound that a message would pass, as the counter of what is dropped there; it takes
    /// `waiting_bytes` of the node's memory where it waits.
    pub(super) fn bound_reached(
        &self,
        session: u32,
        qos: QoS,
        bytes: usize,
        waiting_bytes: usize,
    ) -> Option<Counter> {
        let Session {
            connection,
            outbound,
            ..
        } = &self.sessions[session as usize];
        let limits = &self.limits;
        let waits = connection.is_none() || !outbound.has_room();
        if let Some(slot) = connection {
            // What queues may pass the bound by the overhead of one message.
            let connection = &self.connections[*slot as usize];
            let waiting = connection.out.len() + outbound.queued_bytes();
            let is_dropping = matches!(connection.overflow, Overflow::Dropping);
            if is_dropping || waiting + bytes > limits.outbound_bytes_max {
                return Some(Counter::DroppedFull);
            }
            if waiting > 0 && waiting + bytes > self.outbound_bytes_max() {
                return Some(Counter::DroppedMemory);
            }
        }
        if qos == QoS::AtMostOnce || !(waits || outbound.keeps()) {
            return None;
        }
        let bytes = bytes + OVERHEAD_BYTES;
        if connection.is_none() && outbound.queued() >= limits.queued_messages_max
            || outbound.held_bytes() + bytes > limits.queued_bytes_max
        {
            return Some(Counter::DroppedQueue);
        }
        let is_too_much = waiting_bytes > 0
            && self.waiting_bytes() + waiting_bytes > limits.queued_bytes_of_node_max;
        is_too_much.then_some(Counter::DroppedMemory)
    }

    /// Bytes of all that waits for clients, and of wills.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.memory.bytes() + self.of_sessions.will_bytes
    }

    /// Ends the connections that passed a bound where the policy says so.
    pub(super) fn end_doomed(&mut self, now: Now) {
        for connection in std::mem::take(&mut self.doomed) {
            if let Ok(slot) = self.slot(connection) {
                self.close_with(slot, reason::QUOTA_EXCEEDED, now);
            }
        }
    }

    /// Whether the publish that was just matched must wait for a full subscriber. It waits for all
    /// of them at once, so that their times end together.
    pub(super) fn stalls(&mut self, publisher: u32, bytes: usize, now: Now) -> bool {
        if self.limits.overflow != Policy::PushBack {
            return false;
        }
        let mut stalls = false;
        // Those of a crowd are asked one by one as it is served.
        let targets = if self.route.is_crowd {
            0
        } else {
            self.route.targets.len()
        };
        for at in 0..targets {
            let Target { session, terms } = &self.route.targets[at];
            if let Some(slot) = self.is_waited_for(*session, terms.qos, bytes) {
                self.wait_for(slot, publisher, now);
                stalls = true;
            }
        }
        stalls
    }

    /// The connection of a session that has no room for a message and may have some soon.
    pub(super) fn is_waited_for(&self, session: u32, qos: QoS, bytes: usize) -> Option<u32> {
        let slot = self.sessions[session as usize].connection?;
        let connection = &self.connections[slot as usize];
        let fits = bytes <= self.bytes_max(connection, qos);
        let is_dropping = matches!(connection.overflow, Overflow::Dropping);
        let is_full = || self.bound_reached(session, qos, bytes, 0).is_some();
        (fits && !is_dropping && is_full()).then_some(slot)
    }

    /// The largest message that there ever is room for.
    pub(super) fn bytes_max(&self, connection: &Connection, qos: QoS) -> usize {
        let outbound = self
            .limits
            .outbound_bytes_max
            .min(connection.packet_bytes_max);
        match qos {
            QoS::AtMostOnce => outbound,
            _ => outbound.min(self.limits.queued_bytes_max.saturating_sub(OVERHEAD_BYTES)),
        }
    }

    pub(super) fn wait_for(&mut self, full: u32, publisher: u32, now: Now) {
        let connection = &mut self.connections[full as usize];
        if let Overflow::Stalling { publishers, .. } = &mut connection.overflow {
            publishers.insert(publisher);
            return;
        }
        let until_ms = now.mono_ms + self.limits.stall_ms_max;
        connection.overflow = Overflow::Stalling {
            until_ms,
            taken_bytes: connection.taken_bytes,
            publishers: BTreeSet::from([publisher]),
        };
        self.timers.set(until_ms, Timer::Stall(full));
        self.counters.count(Counter::Stalls);
        self.recount(full);
    }

    /// A full client had its time: another one where it has used it, or where it waits for its turn
    /// to be written to, else nobody waits longer.
    pub(super) fn stalled_out(&mut self, slot: u32, now: Now) {
        let progress = self.limits.outbound_bytes_max / PROGRESS_PARTS;
        let connection = &mut self.connections[slot as usize];
        let waits_for_turn = connection.takeable() > SMALL_BYTES;
        if let Overflow::Stalling {
            until_ms,
            taken_bytes,
            ..
        } = &mut connection.overflow
        {
            let taken = connection.taken_bytes - *taken_bytes;
            if taken >= progress as u64 || waits_for_turn {
                *until_ms = now.mono_ms + self.limits.stall_ms_max;
                *taken_bytes = connection.taken_bytes;
                let until_ms = *until_ms;
                return self.timers.set(until_ms, Timer::Stall(slot));
            }
        }
        self.release_publishers(slot);
        self.connections[slot as usize].overflow = Overflow::Dropping;
        self.recount(slot);
    }

    /// Lets those go on who waited for a full client.
    pub(super) fn release_publishers(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        let overflow = std::mem::replace(&mut connection.overflow, Overflow::No);
        if let Overflow::Stalling {
            until_ms,
            publishers,
            ..
        } = overflow
        {
            self.timers.cancel(until_ms, Timer::Stall(slot));
            self.crowds.released(&publishers);
            self.runnable.extend(publishers);
        }
        self.recount(slot);
    }

    /// A client may have been written to: ends its overflow once it has drained below half, sends
    /// on what there was no room for, and reads it on where it had left too much unread.
    pub(super) fn drained(&mut self, slot: u32, now: Now) {
        let connection = &self.connections[slot as usize];
        let limits = &self.limits;
        if connection.parked == Some(Park::Answers)
            && connection.out.len() <= self.outbound_bytes_max()
        {
            self.runnable.push_back(slot);
        }
        let Some(session) = connection.session else {
            return;
        };
        let outbound = &self.sessions[session as usize].outbound;
        let has_room = connection.out.len() <= limits.outbound_bytes_max / 2;
        let waits = outbound.has_next();
        let waiting = connection.out.len() + outbound.queued_bytes();
        if waiting <= self.outbound_bytes_max() / 2
            && outbound.held_bytes() <= limits.queued_bytes_max / 2
        {
            self.release_publishers(slot);
        }
        if has_room && waits {
            self.pump(slot, now);
        }
    }
}
