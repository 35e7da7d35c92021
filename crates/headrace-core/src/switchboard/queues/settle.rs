//! Publishes below `$queue/`: into a queue, and what settles its deliveries.

use super::address::Verb;
use super::hand::Place;
use super::message::{unsound, GROUP_ID, MESSAGE_ID};
use super::Address;
use crate::access::Action;
use crate::mqtt::packet::{Publish, QoS, Version};
use crate::queue::Late;
use crate::session::{Answer, Outcome};
use crate::switchboard::connection::Park;
use crate::switchboard::packets::Flow;
use crate::switchboard::publish::Incoming;
use crate::switchboard::streams::Waiter;
use crate::switchboard::{Counter, Switchboard};
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
        if !self.may(session, Action::Publish, publish.topic) {
            self.pay(slot, now);
            return self.deny_publish(slot, session, publish, now);
        }
        if self.undurable_bytes() >= self.limits.undurable_bytes_max {
            self.disk_waiters.push(slot);
            return Flow::Park(Park::Disk);
        }
        self.pay(slot, now);
        let (name, verb) = match address {
            Address::Nowhere => return self.reserved_topic(session, publish, now),
            Address::Enqueue(name) => (name, None),
            Address::Settle(name, verb) => (name, Some(verb)),
        };
        let Some(queue) = self.queues.find(name) else {
            return self.no_queue(slot, session, publish, now);
        };
        match verb {
            None => match unsound(publish, &self.queues.all[queue as usize].settings) {
                None => self.enqueue(slot, queue, packet, publish, now),
                Some(outcome) => {
                    self.counters.count(match outcome {
                        Outcome::BadDelay => Counter::DroppedQueueTime,
                        _ => Counter::DroppedQueuePriority,
                    });
                    if publish.qos > QoS::AtMostOnce {
                        let token = publish.packet_id.into();
                        self.answer_in_turn(session, token, publish.qos, outcome, now);
                    }
                }
            },
            Some(verb) => self.settle_deliveries(session, queue, verb, publish, now),
        }
        Flow::Next
    }

    /// 3.1.1 has no answer that says no, and a message must not be lost in silence.
    fn no_queue(&mut self, slot: u32, session: u32, publish: &Publish<'_>, now: Now) -> Flow {
        self.counters.count(Counter::DroppedNoQueue);
        if self.connections[slot as usize].version == Version::V311 {
            self.close(slot, "unknown_queue", None, now);
            return Flow::Stop;
        }
        if publish.qos > QoS::AtMostOnce {
            let token = u64::from(publish.packet_id);
            self.answer_in_turn(session, token, publish.qos, Outcome::NoQueue, now);
        }
        Flow::Next
    }

    fn enqueue(&mut self, slot: u32, queue: u32, packet: &[u8], publish: &Publish<'_>, now: Now) {
        let stream = self.queues.all[queue as usize].stream;
        let stream = self.streams.slot(stream).expect("a queue is bound");
        self.route_to_stream(stream);
        let publish = Publish {
            retain: false, // a queue keeps what it is given
            ..publish.clone()
        };
        self.take(
            Incoming {
                origin: self.session_of(slot),
                token: u64::from(publish.packet_id),
                is_answered: publish.qos > QoS::AtMostOnce,
                version: self.connections[slot as usize].version,
                packet,
                publish: &publish,
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
        let mut outcome = Outcome::NoMessageId;
        let delay_ms = told("delay").map(parse_duration_ms);
        if delay_ms == Some(None) {
            outcome = Outcome::BadDelay;
        } else {
            for (_, text) in ids {
                let one = match place_of(text) {
                    None => Outcome::NoMessageId,
                    Some(place) => self.settle_one(
                        (session, queue),
                        told(GROUP_ID),
                        (verb, place),
                        (delay_ms.flatten(), told("reason")),
                        now,
                    ),
                };
                // The worst of them is told.
                let is_first = outcome == Outcome::NoMessageId && one != Outcome::NoMessageId;
                if is_first || one.reason_code() > outcome.reason_code() {
                    outcome = one;
                }
            }
        }
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

    fn settle_one(
        &mut self,
        (session, queue): (u32, u32),
        group: Option<&str>,
        (verb, place): (Verb, Place),
        (delay_ms, reason): (Option<u64>, Option<&str>),
        now: Now,
    ) -> Outcome {
        let groups = self.groups_of(session, queue, group);
        let (partition, offset, _) = place;
        let ledger = |slot: &u32| {
            let parts = &self.queues.groups[*slot as usize].parts;
            parts.get(partition as usize).map(|part| &part.ledger)
        };
        // The one that owes it; others of the client may have had it passed by.
        let owes = |slot: &&u32| ledger(slot).is_some_and(|ledger| ledger.is_open(offset));
        let Some(group) = groups.iter().find(owes).or(groups.first()).copied() else {
            return Outcome::NoDelivery;
        };
        let ended = match verb {
            Verb::Ack => self.end_delivery(group, place),
            Verb::Nack => self.fail_delivery(group, place, delay_ms, reason, now),
            Verb::Reject => self.reject_delivery(group, place, reason),
            Verb::Extend => self.extend_delivery(group, place, delay_ms, now),
        };
        match ended {
            Ok(()) => Outcome::Accepted,
            Err(Late::Settled) => Outcome::SettledBefore,
            Err(Late::Superseded) => Outcome::TooLate,
            Err(Late::Unknown) => Outcome::NoDelivery,
        }
    }

    /// The groups whose deliveries a client may mean: those in which it consumes, and others of a
    /// name that it says, for who settles need not be who was handed the message.
    fn groups_of(&self, session: u32, queue: u32, named: Option<&str>) -> Vec<u32> {
        let queues = &self.queues;
        let is_named = |slot: &u32| {
            let group = &queues.groups[*slot as usize];
            named.is_none_or(|named| group.named().0 == named)
        };
        let consuming = self.sessions[session as usize].consuming.iter();
        let numbers = consuming.flat_map(|consuming| consuming.consumers.values());
        let own = numbers.map(|number| queues.consumers[number].group);
        let is_of_queue = |slot: &u32| queues.groups[*slot as usize].queue == queue;
        let mut groups: Vec<u32> = own
            .filter(|slot| is_of_queue(slot) && is_named(slot))
            .collect();
        if named.is_some() && groups.is_empty() {
            let all = queues.all[queue as usize].groups.values().copied();
            groups.extend(all.filter(is_named));
        }
        groups
    }
}

/// Reads `PARTITION:OFFSET:ATTEMPT`.
fn place_of(text: &str) -> Option<Place> {
    let mut parts = text.split(':');
    let partition = parts.next()?.parse().ok()?;
    let offset = parts.next()?.parse().ok().filter(|offset| *offset >= 0)?;
    let attempt = parts.next()?.parse().ok()?;
    parts
        .next()
        .is_none()
        .then_some((partition, offset, attempt))
}

/// Reads a time such as `250ms`, `30s`, `5m`, `2h`, `1d`; a number alone is milliseconds.
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
    number.parse::<u64>().ok()?.checked_mul(unit_ms)
}
