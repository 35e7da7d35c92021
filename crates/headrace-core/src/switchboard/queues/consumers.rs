//! Who consumes: subscriptions to `$queue/NAME`, with a group, room for so many deliveries, and how
//! they settle.

use std::sync::Arc;

use super::address::DEAD_LETTERS;
use super::groups::NO_MORE_GROUPS;
use super::message::number_of;
use super::{Consumer, Sharing, Unwanted, Wanted};
use crate::mqtt::packet::{QoS, SubscriptionRequest, Version};
use crate::mqtt::reason;
use crate::session::{Consuming, Consumption, Handed, Subscription};
use crate::switchboard::connect::is_assigned;
use crate::switchboard::subscribe::Refusal;
use crate::switchboard::{Counter, Switchboard};
use crate::topic::Filter;
use crate::Now;

/// Deliveries that a consumer may ask to have open: as many as a Receive Maximum can say.
const PREFETCH_MAX: u32 = 65_535;

/// Longest name of a group, bytes: that of a client id, or of Kafka's group ids in practice.
const GROUP_BYTES_MAX: usize = 1024;

/// Why a connection ends: a queue that its client consumed is no more, or another client has it.
const DELETED: (&str, u8) = ("queue_deleted", reason::ADMINISTRATIVE_ACTION);
const TAKEN: (&str, u8) = ("queue_taken", reason::QUOTA_EXCEEDED);

/// How a subscription consumes, as options of its filter and user properties say.
///
/// # Errors
/// They cannot be served: why.
fn consumption_of(
    wanted: &Wanted<'_>,
    told: &[(&str, &str)],
    version: Version,
) -> Result<Consumption, String> {
    let group = wanted.option("consumer-group", told);
    if let Some(why) = group.and_then(unfit_name) {
        return Err(why.into());
    }
    let prefetch = match wanted.option("prefetch", told) {
        None => 0,
        Some(text) => match number_of(text) {
            Some(prefetch @ 1..=PREFETCH_MAX) => prefetch,
            _ => return Err("prefetch is a number from 1 to 65535".into()),
        },
    };
    let by_puback = match wanted.option("settle", told) {
        None => version == Version::V311,
        Some("puback") => true,
        Some("ack") if version == Version::V5 => false,
        Some("ack") => return Err("MQTT 3.1.1 settles by PUBACK alone".into()),
        Some(_) => return Err("settle is one of ack, puback".into()),
    };
    Ok(Consumption {
        group: group.map(Into::into),
        prefetch,
        by_puback,
    })
}

impl Switchboard {
    /// One filter of a SUBSCRIBE that names a queue.
    pub(in crate::switchboard) fn subscribe_to_queue(
        &mut self,
        slot: u32,
        id: u32,
        request: &SubscriptionRequest<'_>,
        (wanted, told): (Result<Wanted<'_>, Unwanted>, &[(&str, &str)]),
    ) -> Result<QoS, Refusal> {
        let wrong = |text: String| Refusal::of_queue(reason::IMPLEMENTATION_SPECIFIC, text.into());
        let (session, version) = (
            self.session_of(slot),
            self.connections[slot as usize].version,
        );
        let filter = request.filter;
        let wanted = wanted.map_err(|why| {
            let (code, text) = why.told();
            Refusal::of_queue(code, text.into())
        })?;
        Filter::parse(filter).map_err(|_| Counter::FilterInvalid)?;
        // A message that a consumer may not see would be owed by its group for ever.
        let decision = self.decide_subscription(session, &wanted.reached());
        if !decision.is_allowed || decision.hole.is_some() {
            return Err(Counter::FilterDenied.into());
        }
        if request.no_local {
            return Err(wrong(
                "No Local is not served: work is for whoever takes it".into(),
            ));
        }
        let terms = consumption_of(&wanted, told, version).map_err(wrong)?;
        let qos = request.qos.min(QoS::AtLeastOnce);
        if qos == QoS::AtMostOnce && terms.by_puback {
            let text = "PUBACK settles, so subscribe at QoS 1";
            return Err(wrong(text.into()));
        }
        if !self.persistence.is_on() {
            return Err(wrong("queues need mqtt.persistence = true".into()));
        }
        if !self.queues.will_be(&wanted.queue) {
            let name = &*wanted.queue;
            let name = name.strip_suffix(DEAD_LETTERS).unwrap_or(name);
            let text = format!("no queue is named {name}; headrace queues create {name}");
            return Err(Refusal::of_queue(reason::TOPIC_FILTER_INVALID, text.into()));
        }
        if let Some(other) = self.rival(session, &wanted, &terms) {
            let text = format!("{other} consumes it, and the queue takes one consumer of a group");
            return Err(Refusal::of_queue(reason::QUOTA_EXCEEDED, text.into()));
        }
        let client_id = &self.sessions[session as usize].client_id;
        let (queue, group) = (
            self.queues.find(&wanted.queue),
            group_name(client_id, &wanted, &terms),
        );
        if !self.has_room_for_group(queue, &group) {
            return Err(Refusal::of_queue(
                reason::QUOTA_EXCEEDED,
                NO_MORE_GROUPS.into(),
            ));
        }
        self.make_room_for_filter(session, filter, decision, 1)?;
        let before = self.stop_consuming(session, filter);
        let state = &mut self.sessions[session as usize];
        let subscription = Subscription {
            qos,
            no_local: false,
            retain_as_published: request.retain_as_published,
            id,
            before: None,
            since: self.arrivals,
        };
        state.subscriptions.insert(filter.into(), subscription);
        let consuming = state.consuming.get_or_insert_default();
        let is_new = consuming.terms.insert(filter.into(), terms).is_none();
        self.queues.subscriptions += usize::from(is_new);
        self.persistence.filter_due(state, filter);
        self.begin_consuming(session, filter);
        if let Some(group) = before {
            self.end_if_nameless(group); // it may consume in another one now
        }
        Ok(qos)
    }

    /// Who consumes already what a session wants, where the queue takes one consumer alone.
    fn rival(&self, session: u32, wanted: &Wanted<'_>, terms: &Consumption) -> Option<&str> {
        let queue = &self.queues.all[self.queues.find(&wanted.queue)? as usize];
        if queue.settings.sharing != Sharing::Exclusive {
            return None;
        }
        let name = group_name(&self.sessions[session as usize].client_id, wanted, terms);
        let other = self.other_consumer(session, *queue.groups.get(&name)?)?;
        Some(&self.sessions[other as usize].client_id)
    }

    /// Another session that consumes in a group, and is connected.
    fn other_consumer(&self, session: u32, group: u32) -> Option<u32> {
        let members = self.queues.groups[group as usize].members.iter();
        let mut here = members.filter(|number| self.is_here(**number));
        here.find_map(|number| {
            let other = self.queues.consumers[number].session;
            (other != session).then_some(other)
        })
    }

    /// A client has come back: it comes behind those that are there. What it consumed of a queue
    /// that takes one consumer of a group, and which another one has by now, it consumes no longer,
    /// and notices by the end of its connection.
    pub(in crate::switchboard) fn return_to_queues(&mut self, session: u32, now: Now) {
        let Some(consuming) = &self.sessions[session as usize].consuming else {
            return;
        };
        let mut taken: Vec<Box<str>> = Vec::new();
        for (filter, number) in &consuming.consumers {
            let since = self.queues.number();
            let packet_bytes_max = self.packet_bytes_max_of(session);
            let consumer = self.queues.consumers.get_mut(number).expect("it is one");
            (consumer.since, consumer.packet_bytes_max) = (since, packet_bytes_max);
            let group = consumer.group;
            let queue = self.queues.groups[group as usize].queue;
            let sharing = self.queues.all[queue as usize].settings.sharing;
            if sharing == Sharing::Exclusive && self.other_consumer(session, group).is_some() {
                taken.push(filter.clone());
            }
        }
        for filter in taken {
            self.end_of_queue(session, &filter, TAKEN, now);
        }
    }

    /// A subscription as the log has it; it consumes as soon as its queue is there.
    pub(in crate::switchboard) fn restore_consumption(
        &mut self,
        session: u32,
        filter: Box<str>,
        terms: Consumption,
    ) {
        let state = &mut self.sessions[session as usize];
        let consuming = state.consuming.get_or_insert_default();
        consuming.terms.insert(filter, terms);
        self.queues.subscriptions += 1;
    }

    /// A subscription of a session consumes from now on, where its queue is there.
    pub(in crate::switchboard) fn begin_consuming(&mut self, session: u32, filter: &str) {
        let Some(Ok(wanted)) = Wanted::of(filter) else {
            return;
        };
        let Some(queue) = self.queues.find(&wanted.queue) else {
            return;
        };
        let state = &mut self.sessions[session as usize];
        let (Some(consuming), Some(subscription)) =
            (&mut state.consuming, state.subscriptions.get(filter))
        else {
            return;
        };
        let terms = consuming.terms.get(filter).cloned().unwrap_or_default();
        let name = group_name(&state.client_id, &wanted, &terms);
        let (qos, id) = (subscription.qos, subscription.id);
        let group = self.queues.group_of(queue, &name);
        let number = self.queues.number();
        let consumer = Consumer {
            session,
            group,
            since: number,
            prefetch: terms.prefetch as usize,
            held: 0,
            qos,
            id,
            settles_by_puback: terms.by_puback,
            is_in_line: false,
            packet_bytes_max: self.packet_bytes_max_of(session),
        };
        self.queues.consumers.insert(number, consumer);
        self.queues.groups[group as usize].members.insert(number);
        self.queues.line_up(number);
        let consuming = self.sessions[session as usize].consuming.as_mut();
        let consuming = consuming.expect("it consumes");
        consuming.consumers.insert(filter.into(), number);
        self.queues.touch(group);
    }

    /// A session consumes by a filter no longer. What it has goes to others.
    pub(in crate::switchboard) fn leave_queue(&mut self, session: u32, filter: &str) {
        if let Some(group) = self.stop_consuming(session, filter) {
            self.end_if_nameless(group);
        }
    }

    /// As [`Self::leave_queue`], where the session may go on in the group, which is told.
    fn stop_consuming(&mut self, session: u32, filter: &str) -> Option<u32> {
        let consuming = self.sessions[session as usize].consuming.as_mut()?;
        self.queues.subscriptions -= usize::from(consuming.terms.remove(filter).is_some());
        // What it was handed and has not acknowledged stays in its window until it does.
        let consumer = consuming.consumers.remove(filter)?;
        self.queues.return_held(consumer, false);
        let gone = self.queues.consumers.remove(&consumer);
        let gone = gone.expect("it was one");
        let group = &mut self.queues.groups[gone.group as usize];
        group.members.remove(&consumer);
        group.line.retain(|each| *each != consumer);
        Some(gone.group)
    }

    /// Ends a group that has the name of a client whose id was assigned, once that has gone: nobody
    /// can come back to it, and what it owes would be kept for ever.
    pub(super) fn end_if_nameless(&mut self, slot: u32) {
        let group = &self.queues.groups[slot as usize];
        if group.members.is_empty() && is_assigned(group.named().0) {
            self.forget_group(slot);
        }
    }

    /// The connection of a session is gone: what it has of queues goes to others, and has failed
    /// where the client did not say good-bye.
    pub(in crate::switchboard) fn rest_consumers(&mut self, session: u32, has_failed: bool) {
        self.end_exchanges(session);
        let Some(consuming) = &self.sessions[session as usize].consuming else {
            return;
        };
        let consumers: Vec<u64> = consuming.consumers.values().copied().collect();
        for consumer in consumers {
            self.queues.return_held(consumer, has_failed);
        }
    }

    /// A client has come back, or has room again.
    pub(in crate::switchboard) fn wake_consumers(&mut self, session: u32) {
        let Some(consuming) = &self.sessions[session as usize].consuming else {
            return;
        };
        for consumer in consuming.consumers.values() {
            self.queues.line_up(*consumer);
        }
    }

    /// PUBACK for something that a queue handed out.
    pub(in crate::switchboard) fn handed_back(
        &mut self,
        session: u32,
        packet_id: u16,
        reason_code: u8,
        now: Now,
    ) {
        let Some(consuming) = &mut self.sessions[session as usize].consuming else {
            return;
        };
        let Some(handed) = consuming.handed.remove(&packet_id) else {
            return;
        };
        let Some(consumer) = self.queues.consumers.get(&handed.consumer) else {
            return;
        };
        if !consumer.settles_by_puback {
            return;
        }
        let Handed {
            partition,
            offset,
            attempt,
            ..
        } = handed;
        let group = consumer.group;
        if reason_code >= reason::UNSPECIFIED_ERROR {
            let _late = self.fail_delivery(group, (partition, offset, attempt), None, None, now);
        } else {
            let _late = self.end_delivery(group, (partition, offset, attempt));
        }
    }

    /// Ends the exchanges of what a session was handed: it is sent none of it again.
    fn end_exchanges(&mut self, session: u32) {
        let state = &mut self.sessions[session as usize];
        let Some(consuming) = &mut state.consuming else {
            return;
        };
        let Consuming { handed, .. } = &mut **consuming;
        for packet_id in std::mem::take(handed).into_keys() {
            state.outbound.end(packet_id);
        }
    }

    /// Takes all consumers from a group that ends.
    pub(super) fn end_consumers(&mut self, group: u32, now: Now) {
        let members = self.queues.groups[group as usize].members.clone();
        for number in members {
            let Some(consumer) = self.queues.consumers.get(&number) else {
                continue; // its session has ended with another one
            };
            let session = consumer.session;
            let consuming = self.sessions[session as usize].consuming.as_ref();
            let mut all = consuming.iter().flat_map(|each| each.consumers.iter());
            let filter = all.find(|(_, consumer)| **consumer == number);
            let filter = filter.map(|(filter, _)| filter.clone());
            if let Some(filter) = filter {
                self.end_of_queue(session, &filter, DELETED, now);
            }
        }
    }

    /// A client loses a subscription to a queue, and notices by the end of its connection.
    fn end_of_queue(
        &mut self,
        session: u32,
        filter: &str,
        (why, code): (&'static str, u8),
        now: Now,
    ) {
        self.take_subscription(session, filter);
        self.leave_queue(session, filter);
        if let Some(slot) = self.sessions[session as usize].connection {
            self.close(slot, why, Some(code), now);
        }
    }
}

/// The group that a client consumes in.
fn group_name(client_id: &str, wanted: &Wanted<'_>, terms: &Consumption) -> Arc<str> {
    group_key(terms.group.as_deref().unwrap_or(client_id), wanted.filter)
}

/// A group's name with its filter, by which queues have it.
pub(super) fn group_key(group: &str, filter: Option<&str>) -> Arc<str> {
    match filter {
        Some(filter) => [group, "\0", filter].concat().into(),
        None => group.into(),
    }
}

/// Why nobody may begin a group of this name, if so. One of a client whose id we have assigned goes
/// with it, whoever else is in it.
pub(super) fn unfit_name(group: &str) -> Option<&'static str> {
    if group.is_empty() || group.len() > GROUP_BYTES_MAX || group.contains('\0') {
        Some("the name of a group has from 1 to 1,024 bytes, and no U+0000")
    } else if is_assigned(group) {
        Some("auto- and 32 digits are the group of a client without an id, and go with it; choose another name")
    } else {
        None
    }
}
