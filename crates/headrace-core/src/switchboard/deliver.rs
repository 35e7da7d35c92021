//! PUBLISH out: windows, queues, and what happens when a client does not keep up
//! (MQTT 5.0 3.3.4, 4.6, 4.9).
//!
//! At its outbound bound a client first holds up those who publish to it at `QoS` 0, for a named
//! time at most. Then the newest messages to it are dropped and counted, until it has drained
//! below half. Waiting is only ever for that time, so no circle of clients can wait for ever.

use super::connection::{Connection, Overflow, Park};
use super::outgoing::{Form, Outgoing};
use super::publish::Target;
use super::timers::Timer;
use super::{Counter, Switchboard};
use crate::mqtt::packet::QoS;
use crate::session::{Delivery, Terms};
use crate::Now;

impl Switchboard {
    /// Sends a publish to one session, or queues or drops it.
    pub(super) fn deliver(&mut self, session: u32, terms: &Terms, outgoing: &mut Outgoing<'_>) {
        let state = &mut self.sessions[session as usize];
        let Some(slot) = state.connection else { return };
        let connection = &mut self.connections[slot as usize];
        let bytes = outgoing.bytes(connection.version, terms);
        if bytes > connection.packet_bytes_max {
            return self.counters.count(Counter::DroppedTooLarge);
        }
        // What queues may pass the bound by the overhead of one message.
        let waiting = connection.out.len() + state.outbound.queued_bytes();
        let is_dropping = matches!(connection.overflow, Overflow::Dropping);
        if is_dropping || waiting + bytes > self.limits.outbound_bytes_max {
            return self.counters.count(Counter::DroppedFull);
        }
        let packet_id = match terms.qos {
            QoS::AtMostOnce => 0,
            _ => match state.outbound.take_id() {
                Some(id) => id,
                None => return state.outbound.enqueue(outgoing.delivery(terms), bytes),
            },
        };
        send(connection, terms, packet_id, outgoing);
        self.counters.count(Counter::Delivered);
        self.touch(slot);
    }

    /// A client's PUBACK makes room in its window.
    pub(super) fn puback(&mut self, slot: u32, packet_id: u16, now: Now) {
        let session = self.session_of(slot);
        let outbound = &mut self.sessions[session as usize].outbound;
        if !outbound.acknowledge(packet_id) {
            return self.counters.count(Counter::UnknownAcks);
        }
        let connection = &mut self.connections[slot as usize];
        self.counters.add(
            Counter::DroppedExpired,
            outbound.discard_expired(now.mono_ms),
        );
        while let Some((packet_id, Delivery { message, terms })) = outbound.next_queued() {
            let mut outgoing = Outgoing::of_message(&message, now.mono_ms);
            send(connection, &terms, packet_id, &mut outgoing);
            self.counters.count(Counter::Delivered);
            self.counters.add(
                Counter::DroppedExpired,
                outbound.discard_expired(now.mono_ms),
            );
        }
        self.touch(slot);
    }

    /// Whether the `QoS` 0 publish that was just matched must wait for a full subscriber. It
    /// waits for all of them at once, so that their times end together.
    pub(super) fn stalls(&mut self, publisher: u32, bytes: usize, now: Now) -> bool {
        let route = std::mem::take(&mut self.route);
        let mut stalls = false;
        for Target { session, .. } in &route.targets {
            let state = &self.sessions[*session as usize];
            let Some(slot) = state.connection else {
                continue;
            };
            let connection = &self.connections[slot as usize];
            let waiting = connection.out.len() + state.outbound.queued_bytes();
            let max = self.limits.outbound_bytes_max;
            if waiting + bytes > max
                && bytes <= max.min(connection.packet_bytes_max)
                && !matches!(connection.overflow, Overflow::Dropping)
            {
                self.wait_for(slot, publisher, now);
                stalls = true;
            }
        }
        self.route = route;
        stalls
    }

    fn wait_for(&mut self, full: u32, publisher: u32, now: Now) {
        let connection = &mut self.connections[full as usize];
        if let Overflow::Stalling { publishers, .. } = &mut connection.overflow {
            if !publishers.contains(&publisher) {
                publishers.push(publisher);
            }
            return;
        }
        let until_ms = now.mono_ms + self.limits.stall_ms_max;
        connection.overflow = Overflow::Stalling {
            until_ms,
            publishers: vec![publisher],
        };
        self.timers.set(until_ms, Timer::Stall(full));
        self.counters.count(Counter::Stalls);
    }

    /// A full client had its time.
    pub(super) fn stalled_out(&mut self, slot: u32) {
        self.release_publishers(slot);
        self.connections[slot as usize].overflow = Overflow::Dropping;
    }

    /// Lets those go on who waited for a full client.
    pub(super) fn release_publishers(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        let overflow = std::mem::replace(&mut connection.overflow, Overflow::No);
        if let Overflow::Stalling {
            until_ms,
            publishers,
        } = overflow
        {
            self.timers.cancel(until_ms, Timer::Stall(slot));
            self.runnable.extend(publishers);
        }
    }

    /// A client may have been written to: ends its overflow once it has drained below half, and
    /// reads it on where it had left too much unread.
    pub(super) fn drained(&mut self, slot: u32) {
        let connection = &self.connections[slot as usize];
        let waiting = connection.out.len() + self.queued_bytes(connection);
        if connection.parked == Some(Park::Answers)
            && connection.out.len() <= self.limits.outbound_bytes_max
        {
            self.runnable.push_back(slot);
        }
        if waiting <= self.limits.outbound_bytes_max / 2 {
            self.release_publishers(slot);
        }
    }

    /// Bytes that wait for the window of a connection's session.
    pub(super) fn queued_bytes(&self, connection: &Connection) -> usize {
        connection.session.map_or(0, |session| {
            self.sessions[session as usize].outbound.queued_bytes()
        })
    }
}

fn send(connection: &mut Connection, terms: &Terms, packet_id: u16, outgoing: &mut Outgoing<'_>) {
    let form = Form {
        version: connection.version,
        dup: false,
        packet_id,
        terms,
    };
    connection.out.write(|out| outgoing.write(&form, out));
    if let Some(payload) = outgoing.large_payload() {
        connection.out.push_shared(payload);
    }
}
