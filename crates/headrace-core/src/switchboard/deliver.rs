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
use crate::mqtt::packet::{Ack, Packet, QoS, Version};
use crate::session::{Delivery, Sending, Terms, OVERHEAD_BYTES};
use crate::Now;

impl Switchboard {
    /// Sends a publish to one session, or queues or drops it.
    pub(super) fn deliver(&mut self, session: u32, terms: &Terms, outgoing: &mut Outgoing<'_>) {
        let state = &mut self.sessions[session as usize];
        let Some(slot) = state.connection else {
            return self.deliver_later(session, terms, outgoing);
        };
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
        let mut packet_id = 0;
        if terms.qos > QoS::AtMostOnce {
            if !state.outbound.has_room() {
                return self.deliver_later(session, terms, outgoing);
            }
            let keeps = state.outbound.keeps();
            let kept = keeps.then(|| outgoing.delivery(terms));
            packet_id = state.outbound.begin(terms.qos, kept);
        }
        send(connection, terms, packet_id, false, outgoing);
        self.counters.count(Counter::Delivered);
        self.touch(slot);
    }

    /// Queues a publish for a client that is away, or whose window is full.
    fn deliver_later(&mut self, session: u32, terms: &Terms, outgoing: &mut Outgoing<'_>) {
        if terms.qos == QoS::AtMostOnce {
            return self.counters.count(Counter::DroppedAway);
        }
        let outbound = &mut self.sessions[session as usize].outbound;
        let bytes = outbound.held_bytes() + outgoing.bytes(Version::V5, terms) + OVERHEAD_BYTES;
        if outbound.queued() >= self.limits.queued_messages_max
            || bytes > self.limits.queued_bytes_max
        {
            return self.counters.count(Counter::DroppedQueue);
        }
        outbound.enqueue(outgoing.delivery(terms));
    }

    /// Sends what waits for a client and what it must be sent again, as far as its window and its
    /// outbound bound allow (4.4, 4.9).
    pub(super) fn pump(&mut self, slot: u32, now: Now) {
        let session = self.session_of(slot);
        let outbound = &mut self.sessions[session as usize].outbound;
        let connection = &mut self.connections[slot as usize];
        while connection.out.len() < self.limits.outbound_bytes_max {
            let expired = outbound.discard_expired(now.mono_ms);
            self.counters.add(Counter::DroppedExpired, expired);
            let Some(sending) = outbound.next_sending() else {
                break;
            };
            let (packet_id, delivery, dup) = match sending {
                Sending::New(packet_id, delivery) => (packet_id, delivery, false),
                Sending::Again(packet_id, delivery) => (packet_id, delivery, true),
                Sending::Release(packet_id) => {
                    let ack = Ack {
                        packet_id,
                        ..Ack::default()
                    };
                    connection.answer(&Packet::Pubrel(ack));
                    continue;
                }
            };
            let Delivery { message, terms } = delivery;
            let mut outgoing = Outgoing::of_message(&message, now.mono_ms);
            // The client's bound may be another than when it queued (3.1.2.11.4).
            if outgoing.bytes(connection.version, &terms) > connection.packet_bytes_max {
                outbound.end(packet_id);
                self.counters.count(Counter::DroppedTooLarge);
                continue;
            }
            send(connection, &terms, packet_id, dup, &mut outgoing);
            self.counters.count(if dup {
                Counter::SentAgain
            } else {
                Counter::Delivered
            });
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

    /// A client may have been written to: ends its overflow once it has drained below half, sends
    /// on what there was no room for, and reads it on where it had left too much unread.
    pub(super) fn drained(&mut self, slot: u32, now: Now) {
        let connection = &self.connections[slot as usize];
        let waiting = connection.out.len() + self.queued_bytes(connection);
        if connection.parked == Some(Park::Answers)
            && connection.out.len() <= self.limits.outbound_bytes_max
        {
            self.runnable.push_back(slot);
        }
        let has_room = connection.out.len() <= self.limits.outbound_bytes_max / 2;
        let session = connection.session;
        if waiting <= self.limits.outbound_bytes_max / 2 {
            self.release_publishers(slot);
        }
        let waits = |session| self.sessions[session as usize].outbound.has_next();
        if has_room && session.is_some_and(waits) {
            self.pump(slot, now);
        }
    }

    /// Bytes that wait for the window of a connection's session.
    pub(super) fn queued_bytes(&self, connection: &Connection) -> usize {
        connection.session.map_or(0, |session| {
            self.sessions[session as usize].outbound.queued_bytes()
        })
    }
}

fn send(
    connection: &mut Connection,
    terms: &Terms,
    packet_id: u16,
    dup: bool,
    outgoing: &mut Outgoing<'_>,
) {
    let form = Form {
        version: connection.version,
        dup,
        packet_id,
        terms,
    };
    connection.out.write(|out| outgoing.write(&form, out));
    if let Some(payload) = outgoing.large_payload() {
        connection.out.push_shared(payload);
    }
}
