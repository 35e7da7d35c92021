//! What a client's PUBLISH must pass before it is taken (MQTT 5.0 3.3, 4.3.3, 4.9): its alias, its
//! rate, its window, whether it came before, and room where it goes.

use super::connection::Park;
use super::packets::Flow;
use super::publish::Incoming;
use super::queues::Address;
use super::route::Routed;
use super::timers::Timer;
use super::{Counter, Switchboard};
use crate::access::Action;
use crate::mqtt::packet::{Ack, Packet, Publish, QoS, Version};
use crate::mqtt::{encode, reason};
use crate::session::{Outcome, Repeat};
use crate::Now;

/// Windows full of packet ids at `QoS` 2 that a client may hold and not release. One of 3.1.1 knows
/// no window and may write thousands of publishes before it reads the first PUBREC, and one of 5.0
/// may bring back on each connection what it had not released on earlier ones.
const UNRELEASED_WINDOWS: usize = 16;

impl Switchboard {
    /// A client's PUBLISH; an alias is as good as its topic from here on.
    pub(super) fn publish_packet<'a>(
        &mut self,
        slot: u32,
        packet: &[u8],
        publish: &Publish<'a>,
        routed: &mut Routed<'a>,
        now: Now,
    ) -> Flow {
        let Some(alias) = publish.properties.topic_alias else {
            return self.publish_in_full(slot, packet, publish, routed, now);
        };
        *routed = None;
        let mut aliases = std::mem::take(&mut self.connections[slot as usize].aliases);
        let alias_max = self.limits.topic_alias_max;
        let flow = match aliases.resolve(alias, publish.topic, alias_max, self.hash_key) {
            Ok(topic) => {
                let mut publish = Publish {
                    topic,
                    ..publish.clone()
                };
                publish.properties.topic_alias = None;
                let mut packet = std::mem::take(&mut self.packet);
                packet.clear();
                encode::publish(Version::V5, &publish, &mut packet);
                let flow = self.publish_in_full(slot, &packet, &publish, &mut None, now);
                self.packet = packet;
                flow
            }
            Err(reason::QUOTA_EXCEEDED) => {
                self.counters.count(Counter::RefusedAlias);
                self.close(
                    slot,
                    "topic_aliases_full",
                    Some(reason::QUOTA_EXCEEDED),
                    now,
                );
                Flow::Stop
            }
            Err(reason_code) => self.refuse(slot, reason_code, now),
        };
        self.connections[slot as usize].aliases = aliases;
        flow
    }

    /// Nothing has happened yet where it parks.
    fn publish_in_full<'a>(
        &mut self,
        slot: u32,
        packet: &[u8],
        publish: &Publish<'a>,
        routed: &mut Routed<'a>,
        now: Now,
    ) -> Flow {
        let is_fleeting = publish.qos == QoS::AtMostOnce && !publish.retain;
        let is_routed = routed.take() == Some(publish.topic) && is_fleeting;
        let session = self.session_of(slot);
        let version = self.connections[slot as usize].version;
        if let Err(reason_code) = acceptable(publish) {
            return self.refuse(slot, reason_code, now);
        }
        if self.sessions[session as usize].inbound.is_held_up() {
            // Read on once what it has published before is out.
            return Flow::Park(Park::Window);
        }
        if let Some(due_ms) = self.next_message_ms(slot, now) {
            self.timers.set(due_ms, Timer::Rate(slot));
            self.counters.count(Counter::RatePauses);
            return Flow::Park(Park::Rate);
        }
        if self.releases_too_little(session, publish) {
            return self.refuse(slot, reason::RECEIVE_MAXIMUM_EXCEEDED, now);
        }
        if self.window_is_full(session, version, publish) {
            return match version {
                Version::V5 => self.refuse(slot, reason::RECEIVE_MAXIMUM_EXCEEDED, now),
                Version::V311 => Flow::Park(Park::Window),
            };
        }
        if publish.qos == QoS::ExactlyOnce && self.is_repeat(slot, session, publish.packet_id) {
            self.pay(slot, now);
            return Flow::Next;
        }
        if publish.qos == QoS::ExactlyOnce
            && self.of_sessions.unreleased >= self.limits.unreleased_of_node_max
        {
            self.pay(slot, now);
            self.counters.count(Counter::DroppedUnreleased);
            let token = u64::from(publish.packet_id);
            let full = Outcome::UnreleasedFull;
            self.answer_in_turn(session, token, publish.qos, full, now);
            // An answer that cannot say no has ended the connection.
            let is_open = self.connections[slot as usize].session.is_some();
            return if is_open { Flow::Next } else { Flow::Stop };
        }
        if is_routed {
            self.route.visited += self.route.targets.len();
        } else if let Err(flow) = self.route_publish(slot, packet, publish, now) {
            return flow;
        }
        let is_stored = !self.route.streams.is_empty()
            || (publish.qos > QoS::AtMostOnce && self.persistence.is_on());
        if is_stored && self.undurable_bytes() >= self.limits.undurable_bytes_max {
            self.disk_waiters.push(slot);
            return Flow::Park(Park::Disk);
        }
        let connection = self.connections[slot as usize].id;
        if self.route.is_crowd && !self.crowds.admits(connection) {
            return Flow::Park(Park::Crowd);
        }
        if self.stalls(slot, packet.len(), now) {
            return Flow::Park(Park::Stall);
        }
        self.pay(slot, now);
        if is_fleeting && self.route.is_short() {
            *routed = Some(publish.topic);
        }
        self.take(
            Incoming {
                origin: session,
                token: u64::from(publish.packet_id),
                is_answered: publish.qos > QoS::AtMostOnce,
                version,
                packet,
                publish,
            },
            now,
        );
        Flow::Next
    }

    /// Fills the route of a client's publish; how input goes on where it has none.
    fn route_publish(
        &mut self,
        slot: u32,
        packet: &[u8],
        publish: &Publish<'_>,
        now: Now,
    ) -> Result<(), Flow> {
        let session = self.session_of(slot);
        if publish.topic.starts_with('$') {
            return Err(match Address::of(publish.topic) {
                Some(address) => self.publish_to_queue(slot, packet, publish, address, now),
                None => self.reserved_topic(session, publish, now),
            });
        }
        if !self.may(session, Action::Publish, publish.topic) {
            self.pay(slot, now);
            return Err(self.deny_publish(slot, session, publish, now));
        }
        self.match_topic(&self.subject(publish, session));
        Ok(())
    }

    /// When a client may publish next, if not now: after as many messages as it may send in a
    /// second, one each time that a place in the second is free again.
    fn next_message_ms(&self, slot: u32, now: Now) -> Option<u64> {
        let interval_us = self.limits.message_interval_us()?;
        let paid_us = self.connections[slot as usize].paid_us;
        let due_ms = (paid_us + interval_us).div_ceil(1000);
        (due_ms > now.mono_ms).then_some(due_ms)
    }

    /// Counts one message to the rate of a client.
    pub(super) fn pay(&mut self, slot: u32, now: Now) {
        if let Some(interval_us) = self.limits.message_interval_us() {
            let paid_us = &mut self.connections[slot as usize].paid_us;
            let second_ago_us = (now.mono_ms * 1000).saturating_sub(1_000_000);
            *paid_us = second_ago_us.max(*paid_us) + interval_us;
        }
    }

    /// Whether a client may publish no more for now (4.9). One of 3.1.1 is told no bound, so what
    /// it has not released does not count: the PUBREL may be behind the publish.
    fn window_is_full(&self, session: u32, version: Version, publish: &Publish<'_>) -> bool {
        let inbound = &self.sessions[session as usize].inbound;
        let is_open = publish.qos == QoS::ExactlyOnce && inbound.is_open(publish.packet_id);
        let open = match version {
            Version::V5 => inbound.open(),
            Version::V311 => inbound.len(),
        };
        publish.qos > QoS::AtMostOnce && !is_open && open >= usize::from(self.limits.receive_max)
    }

    /// Whether a client has as many packet ids at `QoS` 2 that it does not release as anybody may.
    /// Reading it no further would keep the PUBREL from us that makes room.
    fn releases_too_little(&self, session: u32, publish: &Publish<'_>) -> bool {
        let inbound = &self.sessions[session as usize].inbound;
        let unreleased_max = usize::from(self.limits.receive_max) * UNRELEASED_WINDOWS;
        publish.qos == QoS::ExactlyOnce
            && inbound.unreleased() >= unreleased_max
            && !inbound.holds(publish.packet_id)
    }

    /// Answers a publish at `QoS` 2 whose packet id has not been released since it came before,
    /// whatever its DUP flag says (4.3.3).
    fn is_repeat(&mut self, slot: u32, session: u32, packet_id: u16) -> bool {
        let repeat = self.sessions[session as usize].inbound.repeat(packet_id);
        if repeat == Repeat::New {
            return false;
        }
        self.counters.count(Counter::ReceivedAgain);
        if repeat == Repeat::Taken {
            let ack = Ack {
                packet_id,
                ..Ack::default()
            };
            self.answer(slot, &Packet::Pubrec(ack));
        }
        true
    }

    /// Topics that begin with `$` are the broker's own (4.7.2). 3.1.1 acknowledges what it does not
    /// take, or ends the connection (3.3.5); a client that does this once should not lose that.
    pub(super) fn reserved_topic(&mut self, session: u32, publish: &Publish<'_>, now: Now) -> Flow {
        self.counters.count(Counter::DroppedTopic);
        if publish.qos > QoS::AtMostOnce {
            let token = u64::from(publish.packet_id);
            self.answer_in_turn(session, token, publish.qos, Outcome::NotAuthorized, now);
        }
        Flow::Next
    }
}

/// What is not served of a PUBLISH.
fn acceptable(publish: &Publish<'_>) -> Result<(), u8> {
    let properties = &publish.properties;
    if !properties.subscription_ids.is_empty() {
        // 3.3.4: a client does not send them.
        return Err(reason::PROTOCOL_ERROR);
    }
    if properties.payload_format == Some(1) && std::str::from_utf8(publish.payload).is_err() {
        return Err(reason::PAYLOAD_FORMAT_INVALID);
    }
    Ok(())
}
