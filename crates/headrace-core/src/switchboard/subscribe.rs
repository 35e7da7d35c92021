//! SUBSCRIBE and UNSUBSCRIBE (MQTT 5.0 3.8 to 3.11).

use super::permit::filter_of;
use super::{Counter, Switchboard};
use crate::mqtt::packet::{
    ListAck, Packet, QoS, Subscribe, SubscriptionRequest, Unsubscribe, Version,
};
use crate::mqtt::reason;
use crate::session::Subscription;
use crate::topic;
use crate::Now;

/// Bytes of the filters of one session, for each that it may hold. One filter may have 65,535.
pub const FILTER_BYTES_MEAN_MAX: usize = 128;

impl Switchboard {
    pub(super) fn subscribe(&mut self, slot: u32, subscribe: &Subscribe<'_>) {
        let session = self.session_of(slot);
        let denied = self.told(Version::V5, reason::NOT_AUTHORIZED);
        let id = subscribe.subscription_id.unwrap_or(0);
        let filters = subscribe.filters.iter();
        let reason_codes = filters
            .map(|request| match self.subscribe_one(session, id, request) {
                Ok(granted) => granted as u8,
                Err(refused) => {
                    self.counters.count(refused);
                    match refused {
                        Counter::FilterInvalid => reason::TOPIC_FILTER_INVALID,
                        Counter::FilterDenied => denied,
                        _ => reason::QUOTA_EXCEEDED,
                    }
                }
            })
            .collect();
        let ack = ListAck {
            packet_id: subscribe.packet_id,
            reason_codes,
            ..ListAck::default()
        };
        self.gate_durable(slot, session);
        self.answer(slot, &Packet::Suback(ack));
    }

    fn subscribe_one(
        &mut self,
        session: u32,
        id: u32,
        request: &SubscriptionRequest<'_>,
    ) -> Result<QoS, Counter> {
        let parsed = topic::Subscription::parse(request.filter);
        let parsed = parsed.map_err(|_| Counter::FilterInvalid)?;
        let decision = self.decide_subscription(session, parsed.filter.as_str());
        if !decision.is_allowed {
            return Err(Counter::FilterDenied);
        }
        let session_state = &mut self.sessions[session as usize];
        let subscriptions = &mut session_state.subscriptions;
        let replaced = subscriptions.get(request.filter);
        let is_new = replaced.is_none();
        let (before, since) = Subscription::history(replaced, request.qos, self.arrivals);
        if is_new {
            let bytes = session_state.filter_bytes + request.filter.len();
            let count_max = self.limits.subscriptions_max;
            let bytes_max = count_max.saturating_mul(FILTER_BYTES_MEAN_MAX);
            if subscriptions.len() >= count_max || bytes > bytes_max {
                return Err(Counter::FilterQuota);
            }
            let of_node = self.subscriptions.len() + self.groups.sums().members;
            if of_node >= self.limits.subscriptions_of_node_max {
                return Err(Counter::FilterNode);
            }
            session_state.filter_bytes = bytes;
            session_state.narrowed += u32::from(decision.hole.is_some());
        }
        let subscription = Subscription {
            qos: request.qos,
            no_local: request.no_local,
            retain_as_published: request.retain_as_published,
            id,
            before,
            since,
        };
        subscriptions.insert(request.filter.into(), subscription);
        self.persistence.filter_due(session_state, request.filter);
        if parsed.group.is_some() {
            // It brings no retained messages (4.8.2).
            self.join_group(session, request.filter, parsed.filter, subscription);
            return Ok(subscription.qos);
        }
        self.subscriptions
            .insert(parsed.filter, session, subscription);
        if request.retain_handling == 0 || (request.retain_handling == 1 && is_new) {
            self.begin_replay(session, request.filter, request.qos, id);
        }
        Ok(subscription.qos)
    }

    pub(super) fn unsubscribe(&mut self, slot: u32, unsubscribe: &Unsubscribe<'_>, now: Now) {
        let session = self.session_of(slot);
        let filters = unsubscribe.filters.iter();
        let reason_codes = filters
            .map(|filter| self.unsubscribe_one(session, filter, now))
            .collect();
        let ack = ListAck {
            packet_id: unsubscribe.packet_id,
            reason_codes,
            ..ListAck::default()
        };
        self.gate_durable(slot, session);
        self.answer(slot, &Packet::Unsuback(ack));
    }

    /// What is answered for a session that lasts waits for the log.
    fn gate_durable(&mut self, slot: u32, session: u32) {
        if self.is_durable(session) {
            self.persistence.gate(&mut self.connections[slot as usize]);
        }
    }

    fn unsubscribe_one(&mut self, session: u32, filter: &str, now: Now) -> u8 {
        if topic::Subscription::parse(filter).is_err() {
            return reason::TOPIC_FILTER_INVALID;
        }
        if self.drop_subscription(session, filter, now) {
            reason::SUCCESS
        } else {
            reason::NO_SUBSCRIPTION_EXISTED
        }
    }

    /// Takes a subscription from a session, if it has it.
    pub(super) fn drop_subscription(&mut self, session: u32, filter: &str, now: Now) -> bool {
        let session_state = &mut self.sessions[session as usize];
        if session_state.subscriptions.remove(filter).is_none() {
            return false;
        }
        if session_state.narrowed > 0 {
            let decision = self.decide_subscription(session, filter_of(filter));
            self.sessions[session as usize].narrowed -= u32::from(decision.hole.is_some());
        }
        let session_state = &mut self.sessions[session as usize];
        session_state.filter_bytes -= filter.len();
        session_state.replays.forget(filter);
        self.persistence.filter_due(session_state, filter);
        self.forget_filter(session, filter, now);
        true
    }

    /// Nothing that a filter matches comes to a session any more.
    pub(super) fn forget_filter(&mut self, session: u32, text: &str, now: Now) {
        let parsed = topic::Subscription::parse(text).expect("it was parsed when subscribed");
        if parsed.group.is_some() {
            self.leave_group(session, text, parsed.filter, now);
        } else {
            self.subscriptions.remove(parsed.filter, &session);
        }
    }

    /// The session of an open connection.
    pub(super) fn session_of(&self, slot: u32) -> u32 {
        let session = self.connections[slot as usize].session;
        session.expect("an open connection has a session")
    }
}
