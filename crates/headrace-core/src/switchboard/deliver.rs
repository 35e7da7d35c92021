//! PUBLISH out: windows and queues (MQTT 5.0 3.3.4, 4.4, 4.6, 4.9).

use std::sync::Arc;

use super::alias::Alias;
use super::connection::Connection;
use super::outgoing::{Form, Outgoing};
use super::permit::hears;
use super::{Counter, Switchboard};
use crate::mqtt::packet::{Ack, Packet, QoS, Version};
use crate::session::{Claim, Delivery, Memory, Sending, Terms};
use crate::Now;

/// A topic alias, and what the lengths of its property section and its packet may grow by.
const ALIAS_PROPERTY_BYTES_MAX: usize = 3 + 2;

impl Switchboard {
    /// Sends a publish to one session, or queues or drops it.
    /// `claim` is whose it is on the log.
    pub(super) fn deliver(
        &mut self,
        session: u32,
        terms: &Terms,
        claim: Option<Arc<Claim>>,
        outgoing: &mut Outgoing<'_>,
    ) {
        let slot = self.sessions[session as usize].connection;
        let connection = slot.map(|slot| &self.connections[slot as usize]);
        let bytes_max = connection.map_or(usize::MAX, |connection| connection.packet_bytes_max);
        let version = connection.map_or(Version::V5, |connection| connection.version);
        let bytes = outgoing.bytes(version, terms);
        if bytes > bytes_max {
            return self.drops(session, Counter::DroppedTooLarge, outgoing, bytes);
        }
        if !self.has_room(session, terms.qos, bytes, outgoing) {
            return;
        }
        let state = &mut self.sessions[session as usize];
        let outbound = &mut state.outbound;
        let Some(slot) = slot.filter(|_| terms.qos == QoS::AtMostOnce || outbound.has_room())
        else {
            outbound.enqueue(outgoing.delivery(terms, claim, &self.memory));
            return self.recount_session(session);
        };
        let mut packet_id = 0;
        if terms.qos > QoS::AtMostOnce {
            // What a group gave may have to go to another member.
            let keeps = outbound.keeps() || terms.group.is_some();
            let kept = keeps.then(|| outgoing.delivery(terms, claim, &self.memory));
            packet_id = outbound.begin(terms.qos, kept);
        }
        let connection = &mut self.connections[slot as usize];
        if terms.qos == QoS::ExactlyOnce && state.durable.is_some() {
            self.persistence.cursor_due(state);
            self.persistence.gate(connection);
        }
        self.send_now(session, slot, (terms, packet_id), outgoing, bytes);
    }

    /// Sends a publish to a client with room for it, under a packet id that is its own.
    pub(super) fn send_now(
        &mut self,
        session: u32,
        slot: u32,
        (terms, packet_id): (&Terms, u16),
        outgoing: &mut Outgoing<'_>,
        bytes: usize,
    ) {
        let connection = &mut self.connections[slot as usize];
        let form = (terms, packet_id, false);
        send(connection, form, outgoing, &self.lumps);
        if self.tracer.is_on() {
            let client_id = &self.sessions[session as usize].client_id;
            self.tracer
                .publish_out(client_id, terms, packet_id, false, outgoing, bytes);
        }
        self.counters.count(Counter::Delivered);
        self.counters
            .add(Counter::PayloadSent, outgoing.payload().len());
        if packet_id != 0 {
            self.recount_session(session);
        }
        self.recount(slot);
        self.touch(slot);
    }

    /// Counts a message that a session does not get.
    pub(super) fn drops(
        &mut self,
        session: u32,
        why: Counter,
        outgoing: &Outgoing<'_>,
        bytes: usize,
    ) {
        self.counters.count(why);
        if self.tracer.is_on() {
            self.trace_drop(session, why, outgoing.topic_text(), bytes);
        }
    }

    /// Counts messages that waited for a session.
    pub(super) fn drops_waiting<'a>(
        &mut self,
        session: u32,
        why: Counter,
        gone: impl ExactSizeIterator<Item = &'a Delivery>,
    ) {
        self.counters.add(why, gone.len());
        if self.tracer.is_on() {
            let client_id = &self.sessions[session as usize].client_id;
            for delivery in gone {
                self.tracer
                    .dropped_message(client_id, why, &delivery.message);
            }
        }
    }

    /// Sends what waits for a client and what it must be sent again, as far as its window and its
    /// outbound bound allow (4.4, 4.9).
    pub(super) fn pump(&mut self, slot: u32, now: Now) {
        let session = self.session_of(slot);
        let outbound_bytes_max = self.outbound_bytes_max();
        let state = &mut self.sessions[session as usize];
        let connection = &mut self.connections[slot as usize];
        while connection.out.len() < outbound_bytes_max {
            let outbound = &mut state.outbound;
            while let Some(expired) = outbound.pop_expired(now.mono_ms) {
                let why = Counter::DroppedExpired;
                self.counters.count(why);
                if self.tracer.is_on() {
                    self.tracer
                        .dropped_message(&state.client_id, why, &expired.message);
                }
            }
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
                    if state.durable.is_some() {
                        self.persistence.gate(connection);
                    }
                    let packet = Packet::Pubrel(ack);
                    connection.answer(&packet);
                    if self.tracer.is_on() {
                        self.tracer.packet_out(&state.client_id, &packet);
                    }
                    continue;
                }
            };
            let Delivery { message, terms, .. } = delivery;
            let mut outgoing = Outgoing::of_message(&message, now.mono_ms);
            let bytes = outgoing.bytes(connection.version, &terms);
            let is_heard = || hears(self.access.as_ref(), state, || outgoing.topic_text());
            // The client's bound (3.1.2.11.4) and its rules may be others than when it queued. What
            // it was sent before is sent again (4.4).
            let why = match bytes > connection.packet_bytes_max {
                true => Some(Counter::DroppedTooLarge),
                false if dup || is_heard() => None,
                false => Some(Counter::DroppedDenied),
            };
            if let Some(why) = why {
                state.outbound.end(packet_id);
                self.counters.count(why);
                if self.tracer.is_on() {
                    let topic = outgoing.topic_text();
                    self.tracer.dropped(&state.client_id, why, topic, bytes);
                }
                continue;
            }
            if terms.qos == QoS::ExactlyOnce && state.durable.is_some() {
                self.persistence.cursor_due(state);
                self.persistence.gate(connection);
            }
            let form = (&terms, packet_id, dup);
            send(connection, form, &mut outgoing, &self.lumps);
            if self.tracer.is_on() {
                self.tracer
                    .publish_out(&state.client_id, &terms, packet_id, dup, &outgoing, bytes);
            }
            self.counters
                .add(Counter::PayloadSent, outgoing.payload().len());
            self.counters.count(if dup {
                Counter::SentAgain
            } else {
                Counter::Delivered
            });
        }
        self.recount_session(session);
        self.recount(slot);
        self.touch(slot);
    }
}

fn send(
    connection: &mut Connection,
    (terms, packet_id, dup): (&Terms, u16, bool),
    outgoing: &mut Outgoing<'_>,
    lumps: &Memory,
) {
    let alias = match &mut connection.aliases_out {
        None => Alias::None,
        // An alias may make the packet longer by its property.
        Some(_)
            if outgoing.bytes(connection.version, terms) + ALIAS_PROPERTY_BYTES_MAX
                > connection.packet_bytes_max =>
        {
            Alias::None
        }
        Some(aliases) => aliases.next(outgoing.topic()),
    };
    let form = Form {
        version: connection.version,
        dup,
        packet_id,
        alias,
        terms,
    };
    connection.out.write(|out| outgoing.write(&form, out));
    if let Some(payload) = outgoing.large_payload(lumps) {
        connection.out.push_shared(payload);
    }
}
