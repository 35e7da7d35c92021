//! PUBLISH in: what is refused, who gets it, what waits for the disk, and the answer
//! (MQTT 5.0 3.3, 3.4, 4.3, 4.4, 4.9).

use std::sync::Arc;

use super::connect::decode_own;
use super::connection::Park;
use super::outgoing::{topic_of, Outgoing};
use super::packets::Flow;
use super::streams::{Stored, Waiter};
use super::timers::Timer;
use super::{Counter, Error, Switchboard, DOOR};
use crate::mqtt::packet::{Ack, Packet, Publish, PublishProperties, QoS, Version};
use crate::mqtt::{encode, reason};
use crate::session::{Answer, Ending, Ids, Inbound, Message, Outcome, Repeat, Subscription, Terms};
use crate::topic;
use crate::Now;

/// The end of a publish from another door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// As given.
    pub request: u64,
    /// What PUBACK would say: from 0x80 on, it is not stored.
    pub reason_code: u8,
    /// Streams that matched it.
    pub streams: u32,
}

/// Who gets the publish at hand.
#[derive(Debug, Default)]
pub(super) struct Route {
    /// Sessions, once each.
    pub targets: Vec<Target>,
    /// From here on those that subscribed after the publish had come.
    pub late_at: usize,
    /// Slots of streams.
    pub streams: Vec<u32>,
    /// Slots of groups.
    pub groups: Vec<u32>,
}

/// A session that gets the publish at hand.
#[derive(Debug)]
pub(super) struct Target {
    /// Its slot.
    pub session: u32,
    /// What its subscriptions make of it.
    pub terms: Terms,
}

/// What subscriptions are matched with.
#[derive(Clone, Copy)]
struct Subject<'a> {
    topic: &'a str,
    qos: QoS,
    retain: bool,
    /// Session slot, or [`DOOR`].
    origin: u32,
    arrival: u64,
}

/// A publish on its way through.
#[derive(Clone, Copy)]
struct Incoming<'a> {
    /// Session slot, or [`DOOR`].
    origin: u32,
    /// To answer: packet id, request, or 0 where no one asks.
    token: u64,
    /// Whether an answer waits in the origin's [`Inbound`].
    is_answered: bool,
    version: Version,
    packet: &'a [u8],
    publish: &'a Publish<'a>,
}

impl Switchboard {
    /// A client's PUBLISH; an alias is as good as its topic from here on.
    pub(super) fn publish_packet(
        &mut self,
        slot: u32,
        packet: &[u8],
        publish: Publish<'_>,
        now: Now,
    ) -> Flow {
        let Some(alias) = publish.properties.topic_alias else {
            return self.publish_in_full(slot, packet, &publish, now);
        };
        let mut aliases = std::mem::take(&mut self.connections[slot as usize].aliases);
        let alias_max = self.limits.topic_alias_max;
        let flow = match aliases.resolve(alias, publish.topic, alias_max, self.hash_key) {
            Ok(topic) => {
                let mut publish = Publish { topic, ..publish };
                publish.properties.topic_alias = None;
                let mut packet = std::mem::take(&mut self.packet);
                packet.clear();
                encode::publish(Version::V5, &publish, &mut packet);
                let flow = self.publish_in_full(slot, &packet, &publish, now);
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
    fn publish_in_full(
        &mut self,
        slot: u32,
        packet: &[u8],
        publish: &Publish<'_>,
        now: Now,
    ) -> Flow {
        let session = self.session_of(slot);
        let version = self.connections[slot as usize].version;
        if let Err(reason_code) = acceptable(publish) {
            return self.refuse(slot, reason_code, now);
        }
        if let Some(due_ms) = self.next_message_ms(slot, now) {
            self.timers.set(due_ms, Timer::Rate(slot));
            self.counters.count(Counter::RatePauses);
            return Flow::Park(Park::Rate);
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
        if publish.topic.starts_with('$') {
            return self.reserved_topic(slot, session, publish, now);
        }
        self.match_topic(&self.subject(publish, session));
        let undurable = self.streams.undurable_bytes();
        if !self.route.streams.is_empty() && undurable >= self.limits.undurable_bytes_max {
            self.disk_waiters.push(slot);
            return Flow::Park(Park::Disk);
        }
        if self.stalls(slot, packet.len(), now) {
            return Flow::Park(Park::Stall);
        }
        self.pay(slot, now);
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

    /// When a client may publish next, if not now: after as many messages as it may send in a
    /// second, one each time that a place in the second is free again.
    fn next_message_ms(&self, slot: u32, now: Now) -> Option<u64> {
        let interval_us = self.limits.message_interval_us()?;
        let paid_us = self.connections[slot as usize].paid_us;
        let due_ms = (paid_us + interval_us).div_ceil(1000);
        (due_ms > now.mono_ms).then_some(due_ms)
    }

    /// Counts one message to the rate of a client.
    fn pay(&mut self, slot: u32, now: Now) {
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

    /// Topics that begin with `$` are the broker's own (4.7.2).
    fn reserved_topic(&mut self, slot: u32, session: u32, publish: &Publish<'_>, now: Now) -> Flow {
        if self.connections[slot as usize].version == Version::V311 {
            return self.refuse(slot, reason::NOT_AUTHORIZED, now);
        }
        self.counters.count(Counter::DroppedTopic);
        if publish.qos > QoS::AtMostOnce {
            let token = u64::from(publish.packet_id);
            self.turn_down(session, token, publish.qos, Outcome::NotAuthorized, now);
        }
        Flow::Next
    }

    /// Answers a publish that goes nowhere, in its turn.
    fn turn_down(&mut self, origin: u32, token: u64, qos: QoS, outcome: Outcome, now: Now) {
        let answer = Answer {
            token,
            qos,
            outcome,
            streams: 0,
            deferred: None,
        };
        self.inbound(origin).push(answer, 0);
        self.answer_origin(origin, now);
    }

    /// A publish from another door. `request` comes back from [`Switchboard::published`] once it
    /// is as durable as its streams ask.
    ///
    /// # Errors
    /// The topic is no topic name, or the broker's own, or a text is longer than 65,535 bytes.
    pub fn publish(
        &mut self,
        topic: &str,
        payload: &[u8],
        qos: QoS,
        user: &[(&str, &str)],
        request: u64,
        now: Now,
    ) -> Result<(), Error> {
        let invalid = |text: String| Err(Error::Invalid(text));
        if let Err(error) = topic::validate_name(topic) {
            return invalid(format!("topic \"{topic}\": {error}"));
        }
        if topic.starts_with('$') {
            return invalid(format!(
                "topic \"{topic}\": names that begin with $ are the broker's"
            ));
        }
        let texts = user.iter().flat_map(|(name, value)| [name, value]);
        if texts
            .clone()
            .any(|text| text.len() > usize::from(u16::MAX) || text.contains('\0'))
        {
            return invalid("a property is longer than 65,535 bytes or holds U+0000".into());
        }
        let qos = qos.min(QoS::AtLeastOnce);
        let publish = Publish {
            qos,
            topic,
            packet_id: u16::from(qos != QoS::AtMostOnce),
            properties: PublishProperties {
                user: user.to_vec(),
                ..PublishProperties::default()
            },
            payload,
            ..Publish::default()
        };
        let mut packet = Vec::new();
        encode::publish(Version::V5, &publish, &mut packet);
        if packet.len() > self.limits.packet_bytes_max {
            let max = self.limits.packet_bytes_max;
            return invalid(format!(
                "the message makes a packet of more than {max} bytes"
            ));
        }
        self.publish_own(DOOR, request, true, &packet, now);
        Ok(())
    }

    /// A will of a session, a PUBLISH packet of 5.0.
    pub(super) fn publish_from(&mut self, session: u32, packet: &[u8], now: Now) {
        let is_answered = decode_own(packet).qos > QoS::AtMostOnce;
        self.publish_own(session, 0, is_answered, packet, now);
    }

    /// Publishes a packet of 5.0 that no client is held up for.
    fn publish_own(&mut self, origin: u32, token: u64, is_answered: bool, packet: &[u8], now: Now) {
        let publish = decode_own(packet);
        self.match_topic(&self.subject(&publish, origin));
        self.take(
            Incoming {
                origin,
                token,
                is_answered,
                version: Version::V5,
                packet,
                publish: &publish,
            },
            now,
        );
    }

    /// A publish that has just come.
    fn subject<'a>(&self, publish: &Publish<'a>, origin: u32) -> Subject<'a> {
        Subject {
            topic: publish.topic,
            qos: publish.qos,
            retain: publish.retain,
            origin,
            arrival: self.arrivals + 1,
        }
    }

    /// Fills the route: streams and sessions whose filters match, each once, as it was when the
    /// publish of that arrival came.
    fn match_topic(&mut self, subject: &Subject<'_>) {
        let Self {
            route,
            subscriptions,
            bound,
            groups,
            sessions,
            ..
        } = self;
        groups.matches(subject.topic, &mut route.groups);
        route.streams.clear();
        bound.matches(subject.topic, &mut |stream, ()| {
            if !route.streams.contains(stream) {
                route.streams.push(*stream);
            }
        });
        let targets = &mut route.targets;
        targets.clear();
        let mut late = Vec::new();
        subscriptions.matches(subject.topic, &mut |session, subscription| {
            if subscription.no_local && *session == subject.origin {
                return;
            }
            let mark = &mut sessions[*session as usize].mark;
            if let Some(granted) = subscription.qos_at(subject.arrival) {
                add(targets, mark, *session, granted, subscription, subject);
            } else if subject.retain {
                // It is retained from now on, so who has subscribed meanwhile is told now.
                late.push((*session, *subscription));
            }
        });
        route.late_at = targets.len();
        for (session, subscription) in late {
            let mark = &mut sessions[session as usize].mark;
            let known = targets.get(*mark);
            if !known.is_some_and(|known| known.session == session && *mark < route.late_at) {
                add(
                    targets,
                    mark,
                    session,
                    subscription.qos,
                    &subscription,
                    subject,
                );
            }
        }
    }

    /// Stores and delivers a publish that nothing holds up any more.
    fn take(&mut self, incoming: Incoming<'_>, now: Now) {
        self.counters.count(Counter::Received);
        self.arrivals += 1;
        let can_retain = self.can_retain(incoming.publish, incoming.packet.len());
        if !can_retain {
            self.counters.count(Counter::DroppedRetained);
            let (token, qos) = (incoming.token, incoming.publish.qos);
            if token != 0 && qos > QoS::AtMostOnce {
                return self.turn_down(incoming.origin, token, qos, Outcome::RetainedFull, now);
            }
        }
        let route = std::mem::take(&mut self.route);
        let has_receivers = !route.targets.is_empty() || !route.groups.is_empty();
        if route.streams.is_empty() && !has_receivers && !incoming.publish.retain {
            self.counters.count(Counter::DroppedUnmatched);
        }
        let stored = self.store(&incoming, &route.streams, now);
        let mut deferred = None;
        if matches!(stored.outcome, Outcome::Accepted | Outcome::NoSubscribers) {
            let mut scratch = std::mem::take(&mut self.scratch);
            let Incoming {
                version,
                packet,
                publish,
                ..
            } = incoming;
            let mut outgoing = Outgoing::of(version, packet, publish, now.mono_ms, &mut scratch);
            outgoing.retain &= can_retain;
            for Target { session, terms } in &route.targets {
                if terms.qos > QoS::AtMostOnce && stored.tickets > 0 {
                    deferred = Some((self.arrivals, outgoing.message()));
                } else {
                    self.deliver(*session, terms, &mut outgoing);
                }
            }
            if !route.groups.is_empty() {
                outgoing.publisher = self.publisher_hash(incoming.origin);
                if publish.qos > QoS::AtMostOnce && stored.tickets > 0 {
                    deferred = Some((self.arrivals, outgoing.message()));
                } else {
                    self.deliver_to_groups(&route.groups, &mut outgoing);
                }
            }
            if outgoing.retain {
                if incoming.is_answered && stored.tickets > 0 {
                    deferred = Some((self.arrivals, outgoing.message()));
                } else {
                    self.retain(&outgoing.message(), now);
                }
            }
            self.scratch = scratch;
        }
        let outcome = match stored.outcome {
            Outcome::NoSubscribers if has_receivers => Outcome::Accepted,
            outcome => outcome,
        };
        if incoming.is_answered {
            let answer = Answer {
                token: incoming.token,
                qos: incoming.publish.qos,
                outcome,
                streams: route.streams.len() as u32,
                deferred,
            };
            self.inbound(incoming.origin).push(answer, stored.tickets);
            if stored.tickets == 0 {
                self.answer_origin(incoming.origin, now);
            }
        }
        self.route = route;
    }

    fn store(&mut self, incoming: &Incoming<'_>, streams: &[u32], now: Now) -> Stored {
        if streams.is_empty() {
            return Stored {
                outcome: Outcome::NoSubscribers,
                records: 0,
                tickets: 0,
            };
        }
        let origin = incoming.origin;
        let waiter = incoming.is_answered.then(|| Waiter {
            origin,
            ordinal: self.inbound(origin).next_ordinal(),
        });
        let stored = self
            .streams
            .store(streams, incoming.publish, now.wall_ms, waiter);
        self.counters.add(Counter::Stored, stored.records);
        match stored.outcome {
            Outcome::AlreadyStored => self.counters.count(Counter::Repeats),
            Outcome::StaleEpoch => self.counters.count(Counter::DroppedStale),
            _ => {}
        }
        stored
    }

    pub(super) fn inbound(&mut self, origin: u32) -> &mut Inbound {
        if origin == DOOR {
            &mut self.door
        } else {
            &mut self.sessions[origin as usize].inbound
        }
    }

    /// A ticket ended: who waited for it, and whether it stored what they wait for.
    pub(super) fn settle(&mut self, waiters: &[(Waiter, Ending)], now: Now) {
        for same in waiters.chunk_by(|(a, _), (b, _)| a.origin == b.origin) {
            let origin = same[0].0.origin;
            let inbound = self.inbound(origin);
            for (waiter, ending) in same {
                inbound.settle(waiter.ordinal, *ending);
            }
            self.answer_origin(origin, now);
        }
    }

    /// Answers every publish of an origin whose turn has come.
    fn answer_origin(&mut self, origin: u32, now: Now) {
        while let Some(answer) = self.next_answer(origin) {
            match answer.outcome {
                Outcome::NotStored => self.counters.count(Counter::DroppedNotStored),
                Outcome::NoRoom => self.counters.count(Counter::DroppedNoRoom),
                _ => {}
            }
            if let Some((arrival, message)) = &answer.deferred {
                self.deliver_deferred(origin, *arrival, message, now);
            }
            if origin == DOOR {
                self.published.push(Published {
                    request: answer.token,
                    reason_code: answer.outcome.reason_code(),
                    streams: answer.streams,
                });
            } else if answer.token != 0 {
                self.acknowledge(origin, &answer, now);
            }
        }
        if origin != DOOR {
            self.window_opened(origin);
            self.forget_if_over(origin);
        }
    }

    /// A client of 3.1.1 that had sent too much may be read on.
    fn window_opened(&mut self, session: u32) {
        let session = self.sessions.get(session as usize);
        if let Some(slot) = session.and_then(|session| session.connection) {
            if self.connections[slot as usize].parked == Some(Park::Window) {
                self.runnable.push_back(slot);
            }
        }
    }

    /// None too where an answer has just ended the origin.
    fn next_answer(&mut self, origin: u32) -> Option<Answer> {
        if origin == DOOR {
            return self.door.next_answer();
        }
        let session = self.sessions.get_mut(origin as usize)?;
        session.inbound.next_answer()
    }

    /// PUBACK or PUBREC.
    fn acknowledge(&mut self, session: u32, answer: &Answer, now: Now) {
        let Some(slot) = self.sessions[session as usize].connection else {
            return;
        };
        let connection = &mut self.connections[slot as usize];
        let packet_id = answer.token as u16;
        let reason_code = match (connection.version, answer.outcome) {
            // 3.1.1 has no answer that says no, so the connection ends without one.
            (Version::V311, Outcome::NotStored) => {
                return self.close(slot, "not_stored", None, now)
            }
            (Version::V311, Outcome::NoRoom) => return self.close(slot, "disk_full", None, now),
            (Version::V311, Outcome::RetainedFull) => {
                return self.close(slot, "retained_full", None, now)
            }
            (Version::V311, _) => reason::SUCCESS,
            (Version::V5, outcome) => outcome.reason_code(),
        };
        let reason_string = answer.outcome.reason_string();
        let reason_string = reason_string.filter(|_| connection.wants_reasons);
        if answer.qos == QoS::AtLeastOnce && reason_code == 0 && reason_string.is_none() {
            connection.out.write(|out| encode::puback(packet_id, out));
            return self.touch(slot);
        }
        let ack = Ack {
            packet_id,
            reason_code,
            reason_string,
            ..Ack::default()
        };
        let packet = match answer.qos {
            QoS::ExactlyOnce => Packet::Pubrec(ack),
            _ => Packet::Puback(ack),
        };
        self.answer(slot, &packet);
    }

    /// Delivers above `QoS` 0 what has become durable; `QoS` 0 was served when it came.
    fn deliver_deferred(&mut self, origin: u32, arrival: u64, message: &Arc<Message>, now: Now) {
        self.match_topic(&Subject {
            topic: topic_of(message),
            qos: message.qos,
            retain: message.retain,
            origin,
            arrival,
        });
        let route = std::mem::take(&mut self.route);
        let mut outgoing = Outgoing::of_message(message, now.mono_ms);
        let expired = message.is_expired(now.mono_ms);
        for (at, Target { session, terms }) in route.targets.iter().enumerate() {
            match terms.qos {
                QoS::AtMostOnce if at < route.late_at => {}
                _ if expired => self.counters.count(Counter::DroppedExpired),
                _ => self.deliver(*session, terms, &mut outgoing),
            }
        }
        if !expired {
            self.deliver_to_groups(&route.groups, &mut outgoing);
        }
        self.route = route;
        if message.retain {
            self.arrivals += 1;
            self.retain(message, now);
        }
    }
}

/// Adds one subscription to what a session gets.
fn add(
    targets: &mut Vec<Target>,
    mark: &mut usize,
    session: u32,
    granted: QoS,
    subscription: &Subscription,
    subject: &Subject<'_>,
) {
    let qos = granted.min(subject.qos);
    let retain = subject.retain && subscription.retain_as_published;
    match targets.get_mut(*mark) {
        Some(target) if target.session == session => {
            target.terms.join(qos, retain, subscription.id);
        }
        _ => {
            *mark = targets.len();
            let ids = Ids::of(subscription.id);
            let terms = Terms {
                qos,
                retain,
                ids,
                group: None,
            };
            targets.push(Target { session, terms });
        }
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
