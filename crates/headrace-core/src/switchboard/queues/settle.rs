//! Publishes below `$queue/`: into a queue, and what settles its deliveries.

use std::borrow::Cow;

use super::address::{Verb, BELOW};
use super::hand::Place;
use super::message::{
    number_of, unsound, DEADLINE_MS_MAX, DELAY_MS_MAX, GROUP_FILTER, GROUP_ID, MESSAGE_ID,
};
use super::{Address, Group, Queues};
use crate::access::Action;
use crate::mqtt::packet::{Publish, QoS, Version};
use crate::queue::Late;
use crate::session::{Answer, Outcome, FAR_DEADLINE};
use crate::switchboard::connection::Park;
use crate::switchboard::packets::Flow;
use crate::switchboard::publish::Incoming;
use crate::switchboard::streams::Waiter;
use crate::switchboard::{Counter, Error, Switchboard};
use crate::Now;

impl Switchboard {
    /// A client's PUBLISH below `$queue/`, which nothing forbids and which has room in its window.
    pub(in crate::switchboard) fn publish_to_queue(
        &mut self,
        slot: u32,
        packet: &[u8],
        publish: &Publish<'_>,
        address: Address<'_>,
        now: Now,
    ) -> Flow {
        let session = self.session_of(slot);
        // Rules are asked about one topic of a verb, whatever stands before it.
        let topic = match address {
            Address::Settle(name, verb) => [BELOW, name, "/$", verb.name()].concat().into(),
            _ => Cow::Borrowed(publish.topic),
        };
        if !self.may(session, Action::Publish, &topic) {
            self.pay(slot, now);
            return self.deny_publish(slot, session, publish, now);
        }
        if self.undurable_bytes() >= self.limits.undurable_bytes_max {
            self.disk_waiters.push(slot);
            return Flow::Park(Park::Disk);
        }
        self.pay(slot, now);
        let (name, verb) = match address {
            Address::Nowhere => {
                let why = ("reserved_topic", Counter::DroppedTopic, Outcome::NoVerb);
                return self.refuse_place(slot, session, publish, why, now);
            }
            Address::Enqueue(name) => (name, None),
            Address::Settle(name, verb) => (name, Some(verb)),
        };
        let Some(queue) = self.queues.find(name) else {
            let why = ("unknown_queue", Counter::DroppedNoQueue, Outcome::NoQueue);
            return self.refuse_place(slot, session, publish, why, now);
        };
        match verb {
            None => {
                let incoming = Incoming {
                    origin: session,
                    token: u64::from(publish.packet_id),
                    is_answered: publish.qos > QoS::AtMostOnce,
                    version: self.connections[slot as usize].version,
                    packet,
                    publish,
                };
                self.enqueue(queue, incoming, now);
            }
            Some(verb) => self.settle_deliveries(session, queue, verb, publish, now),
        }
        Flow::Next
    }

    /// 3.1.1 has no answer that says no, and a message must not be lost in silence.
    fn refuse_place(
        &mut self,
        slot: u32,
        session: u32,
        publish: &Publish<'_>,
        (name, why, outcome): (&'static str, Counter, Outcome),
        now: Now,
    ) -> Flow {
        self.counters.count(why);
        if self.connections[slot as usize].version == Version::V311 {
            self.close(slot, name, None, now);
            return Flow::Stop;
        }
        if publish.qos > QoS::AtMostOnce {
            let token = u64::from(publish.packet_id);
            self.answer_in_turn(session, token, publish.qos, outcome, now);
        }
        Flow::Next
    }

    /// A will, or what another door publishes, below `$queue/`.
    pub(in crate::switchboard) fn enqueue_own(
        &mut self,
        incoming: Incoming<'_>,
        address: Address<'_>,
        now: Now,
    ) {
        let Address::Enqueue(name) = address else {
            return self.goes_nowhere(&incoming, Counter::DroppedTopic); // a will of before
        };
        if let Some(queue) = self.queues.find(name) {
            return self.enqueue(queue, incoming, now);
        }
        self.goes_nowhere(&incoming, Counter::DroppedNoQueue);
        if incoming.token != 0 {
            let (origin, token, qos) = (incoming.origin, incoming.token, incoming.publish.qos);
            self.answer_in_turn(origin, token, qos, Outcome::NoQueue, now);
        }
    }

    fn enqueue(&mut self, queue: u32, incoming: Incoming<'_>, now: Now) {
        let settings = &self.queues.all[queue as usize].settings;
        if let Some(outcome) = unsound(&incoming.publish.properties.user, settings) {
            let why = match outcome {
                Outcome::BadDelay => Counter::DroppedQueueTime,
                _ => Counter::DroppedQueuePriority,
            };
            self.goes_nowhere(&incoming, why);
            let (origin, token, qos) = (incoming.origin, incoming.token, incoming.publish.qos);
            if incoming.is_answered && token != 0 {
                self.answer_in_turn(origin, token, qos, outcome, now);
            }
            return;
        }
        let stream = self.queues.all[queue as usize].stream;
        let stream = self.streams.slot(stream).expect("a queue is bound");
        self.route_to_stream(stream);
        let publish = Publish {
            retain: false, // a queue keeps what it is given
            ..incoming.publish.clone()
        };
        self.take(
            Incoming {
                publish: &publish,
                ..incoming
            },
            now,
        );
    }

    /// Ends deliveries, or one, as user properties say; answered once that is durable.
    fn settle_deliveries(
        &mut self,
        session: u32,
        queue: u32,
        verb: Verb,
        publish: &Publish<'_>,
        now: Now,
    ) {
        let user = &publish.properties.user;
        let told = |name: &str| user.iter().find(|(key, _)| *key == name).map(|pair| pair.1);
        let ids = user.iter().filter(|(key, _)| *key == MESSAGE_ID);
        let delay_ms = told("delay").map(parse_duration_ms);
        let outcome = if delay_ms == Some(None) {
            Outcome::BadDelay
        } else if verb == Verb::Extend && delay_ms.flatten() > Some(DEADLINE_MS_MAX) {
            Outcome::BadDeadline
        } else {
            let groups = self.groups_of(session, queue, (told(GROUP_ID), told(GROUP_FILTER)));
            let with = (delay_ms.flatten(), told("reason"));
            let mut end = |text| {
                let place = place_of(text).ok_or(Outcome::NoMessageId)?;
                let group = self.group_of_delivery(&groups, place)?;
                Ok(outcome_of(self.settle_one(group, (verb, place), with, now)))
            };
            let ends = ids.map(|(_, text)| end(text).unwrap_or_else(|refused| refused));
            let worst = ends.reduce(|worst, one| {
                if one.reason_code() > worst.reason_code() {
                    one
                } else {
                    worst
                }
            });
            match worst {
                // With a group that is not there, no id can be its.
                Some(Outcome::NoDelivery) if groups.is_empty() && told(GROUP_ID).is_some() => {
                    Outcome::NoGroup
                }
                worst => worst.unwrap_or(Outcome::NoMessageId),
            }
        };
        if outcome.reason_code() >= 0x80 {
            self.counters.count(Counter::QueueLate);
        }
        if publish.qos == QoS::AtMostOnce {
            return;
        }
        let origin = session;
        let ordinal = self.inbound(origin).next_ordinal();
        self.note_changed();
        // What was found may rest on a round that is not durable yet, though it changes nothing.
        let tickets = u32::from(!self.persistence.is_quiet());
        if tickets > 0 {
            self.persistence.wait(Some(Waiter { origin, ordinal }));
        }
        let answer = Answer {
            token: u64::from(publish.packet_id),
            qos: publish.qos,
            outcome,
            streams: 0,
            deferred: None,
            traced: None,
        };
        self.inbound(origin).push(answer, tickets);
        if tickets == 0 {
            return self.answer_origin(origin, now);
        }
        self.recount_session(origin);
    }

    /// Ends deliveries of a group, or one, for who has no session: what became of each, by their
    /// `PARTITION:OFFSET:ATTEMPT`; None where the queue has no such group. Without a filter, all
    /// groups of the name are meant; `#` is that of the one without. The end of `request` is told
    /// once that is durable.
    ///
    /// # Errors
    /// The stream is no queue, or no such verb, id or delay is, or several groups have such a
    /// delivery; nothing was settled.
    pub fn settle_queue(
        &mut self,
        stream: u64,
        (group, filter): (&str, Option<&str>),
        (verb, ids): (&str, &[String]),
        (delay, reason): (Option<&str>, Option<&str>),
        request: u64,
        now: Now,
    ) -> Result<Option<Vec<Result<(), Late>>>, Error> {
        let queue = self.queues.by_stream.get(&stream).copied();
        let queue = queue.ok_or(Error::Stream(stream, 0))?;
        let verb = Verb::of(verb).ok_or_else(|| Error::Invalid(format!("no verb {verb}")))?;
        let delay_ms = match delay.map(parse_duration_ms) {
            Some(None) => return Err(Error::Invalid("delay is a time such as 30s or 5m".into())),
            Some(Some(ms)) if verb == Verb::Extend && ms > DEADLINE_MS_MAX => {
                return Err(Error::Invalid(FAR_DEADLINE.into()));
            }
            delay_ms => delay_ms.flatten(),
        };
        let places = ids.iter().map(|id| {
            let text = || format!("message id \"{id}\" is no PARTITION:OFFSET:ATTEMPT");
            place_of(id).ok_or_else(|| Error::Invalid(text()))
        });
        let places: Vec<Place> = places.collect::<Result<_, _>>()?;
        let groups = self.meant_groups(queue, (Some(group), filter));
        let of = places.iter();
        let of: Vec<_> = of
            .map(|place| self.group_of_delivery(&groups, *place))
            .collect();
        if let Some(at) = of.iter().position(|of| *of == Err(Outcome::WhichGroup)) {
            let id = &ids[at];
            let text = format!("message id \"{id}\" is of several groups; say which: filter");
            return Err(Error::Invalid(text));
        }
        let mut end = |(of, place): (Result<u32, _>, Place)| {
            let of = of.map_err(|_| Late::Unknown)?;
            self.settle_one(of, (verb, place), (delay_ms, reason), now)
        };
        let ends: Vec<_> = of.into_iter().zip(places).map(&mut end).collect();
        let late = |end: &&Result<(), Late>| outcome_of(**end).reason_code() >= 0x80;
        let late = ends.iter().filter(late).count();
        self.counters.add(Counter::QueueLate, late);
        self.note_changed();
        self.answer_once_kept(request, now);
        Ok((!groups.is_empty()).then_some(ends))
    }

    /// Of groups the one that has a delivery in flight. Where none has, one that can say why: it
    /// owes the message, which others may have had passed by.
    ///
    /// # Errors
    /// There is none, or several have it.
    fn group_of_delivery(
        &self,
        groups: &[u32],
        (partition, offset, attempt): Place,
    ) -> Result<u32, Outcome> {
        let ledger = |slot: &u32| {
            let parts = &self.queues.groups[*slot as usize].parts;
            parts.get(partition as usize).map(|part| &part.ledger)
        };
        let is_flying =
            |slot: &&u32| ledger(slot).is_some_and(|ledger| ledger.is_flying(offset, attempt));
        let mut flying = groups.iter().filter(is_flying);
        let first = flying.next();
        if flying.next().is_some() {
            return Err(Outcome::WhichGroup);
        }
        let owes = |slot: &&u32| ledger(slot).is_some_and(|ledger| ledger.is_open(offset));
        let owing = || groups.iter().find(owes).or(groups.first());
        first.or_else(owing).copied().ok_or(Outcome::NoDelivery)
    }

    fn settle_one(
        &mut self,
        group: u32,
        (verb, place): (Verb, Place),
        (delay_ms, reason): (Option<u64>, Option<&str>),
        now: Now,
    ) -> Result<(), Late> {
        match verb {
            Verb::Ack => self.end_delivery(group, place),
            Verb::Nack => self.fail_delivery(group, place, delay_ms, reason, now),
            Verb::Reject => self.reject_delivery(group, place, reason),
            Verb::Extend => self.extend_delivery(group, place, delay_ms, now),
        }
    }

    /// The groups whose deliveries a client may mean: those in which it consumes, and others of a
    /// name that it says, for who settles need not be who was handed the message.
    fn groups_of(&self, session: u32, queue: u32, said: (Option<&str>, Option<&str>)) -> Vec<u32> {
        let queues = &self.queues;
        let consuming = self.sessions[session as usize].consuming.iter();
        let numbers = consuming.flat_map(|consuming| consuming.consumers.values());
        let own = numbers.map(|number| queues.consumers[number].group);
        let is_of_queue = |slot: &u32| queues.groups[*slot as usize].queue == queue;
        let mut groups: Vec<u32> = own
            .filter(|slot| is_of_queue(slot) && queues.groups[*slot as usize].is_meant(said))
            .collect();
        groups.sort_unstable();
        groups.dedup(); // it may consume in one twice
        if groups.is_empty() && said.0.is_some() {
            groups = self.meant_groups(queue, said);
        }
        groups
    }

    /// All groups of a queue that may be meant.
    fn meant_groups(&self, queue: u32, said: (Option<&str>, Option<&str>)) -> Vec<u32> {
        let groups = self.queues.all[queue as usize].groups.values().copied();
        groups
            .filter(|slot| self.queues.groups[*slot as usize].is_meant(said))
            .collect()
    }
}

impl Group {
    /// Whether its name and its filter are those, as far as they are said: each filter that a name
    /// has goes with a group of its own, `#` with the one of all.
    fn is_meant(&self, (name, filter): (Option<&str>, Option<&str>)) -> bool {
        let (own, own_filter) = self.named();
        name.is_none_or(|name| name == own)
            && filter.is_none_or(|filter| filter == own_filter.unwrap_or("#"))
    }
}

const fn outcome_of(ended: Result<(), Late>) -> Outcome {
    match ended {
        Ok(()) => Outcome::Accepted,
        Err(Late::Settled) => Outcome::SettledBefore,
        Err(Late::Superseded) => Outcome::TooLate,
        Err(Late::Unknown) => Outcome::NoDelivery,
    }
}

impl Queues {
    /// Why a queue, if it is there, cannot do with a message as its publisher says, if so.
    pub fn unsound(&self, name: &str, user: &[(&str, &str)]) -> Option<Outcome> {
        let queue = &self.all[self.find(name)? as usize];
        unsound(user, &queue.settings)
    }

    /// Whether a door that only publishes may publish to a topic that begins with `$`: why not.
    pub fn takes(&self, publish: &Publish<'_>) -> Result<(), String> {
        match Address::of(publish.topic) {
            Some(Address::Enqueue(name)) => {
                let outcome = self.unsound(name, &publish.properties.user);
                let why = outcome.and_then(Outcome::reason_string);
                why.map_or(Ok(()), |why| Err(why.into()))
            }
            Some(Address::Settle(name, verb)) => Err(format!(
                "it settles; POST /api/v1/queues/{name}/{} does that",
                verb.name()
            )),
            _ => Err("names that begin with $ are the broker's".into()),
        }
    }
}

/// Reads `PARTITION:OFFSET:ATTEMPT`.
fn place_of(text: &str) -> Option<Place> {
    let mut parts = text.split(':');
    let partition = number_of(parts.next()?)?;
    let offset = number_of(parts.next()?)?;
    let attempt = number_of(parts.next()?)?;
    parts
        .next()
        .is_none()
        .then_some((partition, offset, attempt))
}

/// Reads a time such as `250ms`, `30s`, `5m`, `2h`, `1d`; a number alone is milliseconds.
/// 100 years at most.
pub(super) fn parse_duration_ms(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    let ms = number.parse::<u64>().ok()?.checked_mul(unit_ms)?;
    (ms <= DELAY_MS_MAX).then_some(ms)
}
