//! A publish on its way from a client, a will or another door: what stores it, and to whom it goes at
//! once (MQTT 5.0 3.3.4). What it must pass before is in `admit`, who gets it in `route`, what follows
//! its tickets in `answers`.

use super::connect::decode_own;
use super::outgoing::Outgoing;
use super::queues::Address;
use super::route::{Route, Subject, Target};
use super::streams::{Stored, Waiter};
use super::{Counter, Error, Switchboard, DOOR};
use crate::mqtt::encode;
use crate::mqtt::packet::{Publish, QoS, Version};
use crate::session::{Answer, Deferred, Due, Outcome};
use crate::topic;
use crate::Now;

/// The end of a publish from another door.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// As given.
    pub request: u64,
    /// What PUBACK would say: from 0x80 on, it is not stored. Of one that is too large for a stream
    /// 0x95, of one that there is no room to retain 0x9A, of one that a queue has no room for 0x96,
    /// which no PUBACK may say.
    pub reason_code: u8,
    /// Streams that matched it.
    pub streams: u32,
}

/// A publish on its way through.
#[derive(Clone, Copy)]
pub(super) struct Incoming<'a> {
    /// Session slot, or [`DOOR`].
    pub origin: u32,
    /// To answer: packet id, request, or 0 where no one asks.
    pub token: u64,
    /// Whether an answer waits in the origin's [`Inbound`].
    pub is_answered: bool,
    pub version: Version,
    pub packet: &'a [u8],
    pub publish: &'a Publish<'a>,
}

impl Incoming<'_> {
    /// Whether nobody asks what became of it, and it is for those alone who are there.
    fn is_fleeting(&self) -> bool {
        self.publish.qos == QoS::AtMostOnce && !self.publish.retain && !self.is_answered
    }
}

/// What is known of a publish once it is taken.
struct Taken {
    /// Whether delivery above `QoS` 0 waits: for a ticket, or behind an earlier publish that does.
    waits: bool,
    /// Whether all of it does: for a turn, or behind an earlier publish that does.
    is_whole: bool,
    /// Who is owed it by the log.
    dues: Vec<Due>,
}

impl Switchboard {
    /// A publish from another door, at `QoS` 0 or 1. `request` comes back from
    /// [`Switchboard::published`] once it is as durable as its streams ask.
    ///
    /// # Errors
    /// The topic is no topic name, or the broker's own and no queue's, or a time of a message for a
    /// queue is none, or a text is longer than 65,535 bytes.
    pub fn publish(&mut self, publish: &Publish<'_>, request: u64, now: Now) -> Result<(), Error> {
        let topic = publish.topic;
        let invalid = |text: String| Err(Error::Invalid(text));
        if let Err(error) = topic::validate_name(topic) {
            return invalid(format!("topic \"{topic}\": {error}"));
        }
        if topic.starts_with('$') {
            if let Err(why) = self.queues.takes(publish) {
                return invalid(format!("topic \"{topic}\": {why}"));
            }
        }
        let texts = publish
            .properties
            .user
            .iter()
            .flat_map(|(name, value)| [name, value]);
        if texts
            .clone()
            .any(|text| text.len() > usize::from(u16::MAX) || text.contains('\0'))
        {
            return invalid("a property is longer than 65,535 bytes or holds U+0000".into());
        }
        let qos = publish.qos.min(QoS::AtLeastOnce);
        let publish = Publish {
            qos,
            packet_id: u16::from(qos != QoS::AtMostOnce),
            ..publish.clone()
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
        if self.tracer.is_on() {
            self.trace_own(origin, &publish, packet.len());
        }
        let incoming = Incoming {
            origin,
            token,
            is_answered,
            version: Version::V5,
            packet,
            publish: &publish,
        };
        if let Some(address) = Address::of(publish.topic) {
            return self.enqueue_own(incoming, address, now);
        }
        self.match_topic(&self.subject(&publish, origin));
        self.take(incoming, now);
    }

    /// A publish that has just come.
    pub(super) fn subject<'a>(&self, publish: &Publish<'a>, origin: u32) -> Subject<'a> {
        Subject {
            topic: publish.topic,
            qos: publish.qos,
            retain: publish.retain,
            origin,
            arrival: self.arrivals + 1,
        }
    }

    /// Stores and delivers a publish that nothing holds up any more.
    pub(super) fn take(&mut self, incoming: Incoming<'_>, now: Now) {
        self.counters.count(Counter::Received);
        let payload_bytes = incoming.publish.payload.len();
        self.counters.add(Counter::PayloadReceived, payload_bytes);
        self.arrivals += 1;
        let is_fleeting = self.route.is_short() && incoming.is_fleeting();
        if is_fleeting && !self.inbound(incoming.origin).is_held_up() {
            return self.take_fleeting(&incoming, now);
        }
        let not_retained = self.refuses_to_retain(incoming.publish, incoming.packet.len());
        if let Some(outcome) = not_retained {
            self.goes_nowhere(&incoming, Counter::DroppedRetained);
            let (token, qos) = (incoming.token, incoming.publish.qos);
            if token != 0 && qos > QoS::AtMostOnce {
                return self.answer_in_turn(incoming.origin, token, qos, outcome, now);
            }
        }
        let route = std::mem::take(&mut self.route);
        let has_receivers = !route.targets.is_empty() || !route.groups.is_empty() || route.is_own;
        if route.streams.is_empty() && !has_receivers && !incoming.publish.retain {
            self.goes_nowhere(&incoming, Counter::DroppedUnmatched);
        }
        // The answer may be the end of a session that has ended.
        let publisher = self.publisher_hash(incoming.origin, &route);
        let waiter = incoming.is_answered.then(|| Waiter {
            origin: incoming.origin,
            ordinal: self.inbound(incoming.origin).next_ordinal(),
        });
        let mut stored = self.store(&incoming, &route.streams, waiter, now);
        let outcome = match stored.outcome {
            Outcome::NoSubscribers if has_receivers => Outcome::Accepted,
            outcome => outcome,
        };
        let Incoming {
            version,
            packet,
            publish,
            token,
            ..
        } = incoming;
        let qos = publish.qos;
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut outgoing = Outgoing::of(version, packet, publish, now.mono_ms, &mut scratch)
            .owned_by(self.owned.clone());
        outgoing.retain &= not_retained.is_none();
        outgoing.publisher = publisher;
        let is_taken = matches!(stored.outcome, Outcome::Accepted | Outcome::NoSubscribers);
        if is_taken && outgoing.retain {
            stored.tickets += self.retain(&incoming, &mut outgoing, waiter, now);
        } else if publish.retain && stored.outcome == Outcome::AlreadyStored {
            stored.tickets += self.retained_before(publish.topic, waiter);
        }
        let mut tickets = stored.tickets;
        let mut dues = Vec::new();
        let is_claiming = is_taken && self.claims_in_turns(incoming.origin, qos, &route);
        if is_claiming {
            tickets += 1;
        } else if is_taken {
            dues = self.dues(&route, qos);
            tickets += u32::from(self.must_wait(&incoming, &dues));
        }
        let inbound = self.inbound(incoming.origin);
        let is_whole = route.is_crowd || inbound.is_held_up();
        let waits = tickets > 0 || is_whole || inbound.is_deferring();
        let is_answered_first = incoming.is_answered && qos == QoS::ExactlyOnce && !waits;
        if is_answered_first {
            self.answer_in_turn(incoming.origin, token, qos, outcome, now);
        }
        let mut deferred = None;
        if is_taken {
            let known = Taken {
                waits,
                is_whole,
                dues,
            };
            deferred = self.pass_on(incoming.origin, &route, &mut outgoing, known);
        }
        if let Some(deferred) = deferred.as_mut().filter(|_| is_claiming) {
            self.begin_claims(deferred, waiter.expect("it is answered"), token);
        }
        self.scratch = scratch;
        let is_due = incoming.is_answered || deferred.is_some();
        if is_due && !is_answered_first {
            let answer = Answer {
                token,
                qos,
                outcome,
                streams: route.streams.len() as u32,
                deferred,
                traced: self.tracer.is_on().then(|| publish.topic.into()),
            };
            // Nobody tells of the tickets of a publish that is not answered.
            let tickets = if incoming.is_answered { tickets } else { 0 };
            self.inbound(incoming.origin).push(answer, tickets);
            if tickets == 0 {
                self.answer_origin(incoming.origin, now);
            } else if incoming.origin != DOOR {
                self.recount_session(incoming.origin);
            }
        }
        self.route = route;
    }

    /// The same for one that nobody keeps: most are, and need little of it.
    fn take_fleeting(&mut self, incoming: &Incoming<'_>, now: Now) {
        let targets = std::mem::take(&mut self.route.targets);
        if targets.is_empty() && !self.route.is_own {
            self.goes_nowhere(incoming, Counter::DroppedUnmatched);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let (packet, publish) = (incoming.packet, incoming.publish);
        let mut outgoing =
            Outgoing::of(incoming.version, packet, publish, now.mono_ms, &mut scratch)
                .owned_by(self.owned.clone());
        for Target { session, terms } in &targets {
            self.deliver(*session, terms, None, &mut outgoing);
        }
        self.scratch = scratch;
        self.route.targets = targets;
    }

    /// Counts a publish that is not stored, retained or delivered.
    pub(super) fn goes_nowhere(&mut self, incoming: &Incoming<'_>, why: Counter) {
        self.counters.count(why);
        if self.tracer.is_on() {
            let (topic, bytes) = (incoming.publish.topic, incoming.packet.len());
            self.trace_drop(incoming.origin, why, topic, bytes);
        }
    }

    /// Delivers what need not wait; what must, and for whom, is deferred.
    fn pass_on(
        &mut self,
        origin: u32,
        route: &Route,
        outgoing: &mut Outgoing<'_>,
        taken: Taken,
    ) -> Option<Deferred> {
        let Taken {
            waits,
            is_whole,
            dues,
        } = taken;
        if is_whole {
            return self.put_off(origin, route, outgoing, dues);
        }
        let mut deferred = None;
        for Target { session, terms } in &route.targets {
            if terms.qos > QoS::AtMostOnce && waits {
                deferred = Some(outgoing.message());
            } else {
                self.deliver(*session, terms, None, outgoing);
            }
        }
        if !route.groups.is_empty() {
            if outgoing.qos > QoS::AtMostOnce && waits {
                deferred = Some(outgoing.message());
            } else {
                self.deliver_to_groups(&route.groups, outgoing);
            }
        }
        deferred.map(|message| {
            self.store_for(origin, &message, &dues);
            Deferred {
                arrival: self.arrivals,
                message,
                dues,
                is_whole: false,
                is_claiming: false,
                crowd: None,
                owed: None,
            }
        })
    }

    fn store(
        &mut self,
        incoming: &Incoming<'_>,
        streams: &[u32],
        waiter: Option<Waiter>,
        now: Now,
    ) -> Stored {
        if streams.is_empty() {
            return Stored {
                outcome: Outcome::NoSubscribers,
                records: 0,
                tickets: 0,
            };
        }
        let publish = incoming.publish;
        self.measure_room(streams, 1);
        let stored = self.streams.store(streams, publish, now.wall_ms, waiter);
        self.counters.add(Counter::Stored, stored.records);
        match stored.outcome {
            Outcome::AlreadyStored => self.counters.count(Counter::Repeats),
            Outcome::StaleEpoch => self.goes_nowhere(incoming, Counter::DroppedStale),
            Outcome::TooLarge => self.goes_nowhere(incoming, Counter::DroppedMessageTooLarge),
            Outcome::QueueFull => self.goes_nowhere(incoming, Counter::DroppedQueueFull),
            _ => {}
        }
        stored
    }
}
