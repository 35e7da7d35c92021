//! SUBSCRIBE and UNSUBSCRIBE (MQTT 5.0 3.8 to 3.11).

use std::borrow::Cow;

use super::feeds::Placement;
use super::permit::filter_of;
use super::record_publish::stream_of;
use super::{Counter, Switchboard};
use crate::access::Decision;
use crate::mqtt::packet::{
    ListAck, Packet, QoS, Subscribe, SubscriptionRequest, Unsubscribe, Version,
};
use crate::mqtt::reason;
use crate::session::Subscription;
use crate::topic;
use crate::Now;

/// Bytes of the filters of one session, for each that it may hold. One filter may have 65,535.
pub const FILTER_BYTES_MEAN_MAX: usize = 128;

/// Text of a SUBACK that says why filters were refused, bytes: a line or two of somebody's log.
const REASONS_BYTES_MAX: usize = 1024;

/// Of a filter in it.
const FILTER_SHOWN_BYTES_MAX: usize = 256;

/// Why a filter is refused.
#[derive(Debug)]
pub(super) struct Refusal {
    counter: Counter,
    reason_code: u8,
    /// For whoever reads the client's log, where the code does not say it all.
    text: Option<Cow<'static, str>>,
}

impl From<Counter> for Refusal {
    fn from(counter: Counter) -> Self {
        Self {
            counter,
            reason_code: match counter {
                Counter::FilterInvalid => reason::TOPIC_FILTER_INVALID,
                Counter::FilterDenied => reason::NOT_AUTHORIZED,
                _ => reason::QUOTA_EXCEEDED,
            },
            text: None,
        }
    }
}

impl Refusal {
    /// Of a filter that names a stream.
    pub fn of_stream(reason_code: u8, text: Cow<'static, str>) -> Self {
        Self {
            counter: match reason_code {
                reason::TOPIC_FILTER_INVALID => Counter::FilterUnknownStream,
                reason::IMPLEMENTATION_SPECIFIC => Counter::FilterStreamOptions,
                reason::SHARED_SUBSCRIPTIONS_NOT_SUPPORTED => Counter::FilterSharedStream,
                _ => Counter::FilterUnavailable,
            },
            reason_code,
            text: Some(text),
        }
    }
}

/// As much of a text as so many bytes hold.
fn cut(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl Switchboard {
    pub(super) fn subscribe(&mut self, slot: u32, subscribe: &Subscribe<'_>) {
        if !self.asks_for_streams(slot, subscribe) {
            self.subscribe_each(slot, subscribe, Vec::new());
        }
    }

    /// Subscribes to each filter and answers; `placements` are of those that name a stream.
    pub(super) fn subscribe_each(
        &mut self,
        slot: u32,
        subscribe: &Subscribe<'_>,
        placements: Vec<Placement>,
    ) {
        let session = self.session_of(slot);
        let id = subscribe.subscription_id.unwrap_or(0);
        let mut placements = placements.into_iter();
        let mut reason_codes = Vec::with_capacity(subscribe.filters.len());
        let mut texts = String::new();
        for request in &subscribe.filters {
            let granted = match stream_of(request.filter) {
                None => self.subscribe_one(session, id, request),
                Some(Ok(_)) => match placements.next() {
                    Some(placement) => self.subscribe_to_stream(session, id, request, placement),
                    None => unreachable!("policy has placed each of them"),
                },
                Some(Err(())) => {
                    let text = "name the stream: $stream/NAME/#";
                    let code = reason::TOPIC_FILTER_INVALID;
                    Err(Refusal::of_stream(code, text.into()))
                }
            };
            reason_codes.push(match granted {
                Ok(granted) => granted as u8,
                Err(refused) => {
                    self.counters.count(refused.counter);
                    if let (Some(text), true) = (refused.text, texts.len() < REASONS_BYTES_MAX) {
                        let separator = if texts.is_empty() { "" } else { "; " };
                        let filter = cut(request.filter, FILTER_SHOWN_BYTES_MAX);
                        texts.extend([separator, filter, ": ", &*text]);
                    }
                    self.told(Version::V5, refused.reason_code)
                }
            });
        }
        let wants_reasons = self.connections[slot as usize].wants_reasons;
        let texts = cut(&texts, REASONS_BYTES_MAX);
        let ack = ListAck {
            packet_id: subscribe.packet_id,
            reason_codes,
            reason_string: (wants_reasons && !texts.is_empty()).then_some(texts),
            ..ListAck::default()
        };
        self.gate_durable(slot, session);
        self.answer(slot, &Packet::Suback(ack));
    }

    /// Counts a filter that a session subscribes to, where it has not; whether it has not.
    pub(super) fn make_room_for_filter(
        &mut self,
        session: u32,
        filter: &str,
        decision: Decision,
    ) -> Result<bool, Counter> {
        let session_state = &mut self.sessions[session as usize];
        let subscriptions = &session_state.subscriptions;
        if subscriptions.contains_key(filter) {
            return Ok(false);
        }
        let bytes = session_state.filter_bytes + filter.len();
        let count_max = self.limits.subscriptions_max;
        let bytes_max = count_max.saturating_mul(FILTER_BYTES_MEAN_MAX);
        if subscriptions.len() >= count_max || bytes > bytes_max {
            return Err(Counter::FilterQuota);
        }
        let of_node = self.subscriptions.len() + self.groups.sums().members + self.feeds.len();
        if of_node >= self.limits.subscriptions_of_node_max {
            return Err(Counter::FilterNode);
        }
        session_state.filter_bytes = bytes;
        session_state.narrowed += u32::from(decision.hole.is_some());
        Ok(true)
    }

    fn subscribe_one(
        &mut self,
        session: u32,
        id: u32,
        request: &SubscriptionRequest<'_>,
    ) -> Result<QoS, Refusal> {
        let parsed = topic::Subscription::parse(request.filter);
        let parsed = parsed.map_err(|_| Counter::FilterInvalid)?;
        if stream_of(parsed.filter.as_str()).is_some() {
            let text = "a stream is not shared by MQTT clients; Kafka's consumer groups share it";
            let code = reason::SHARED_SUBSCRIPTIONS_NOT_SUPPORTED;
            return Err(Refusal::of_stream(code, text.into()));
        }
        let decision = self.decide_subscription(session, parsed.filter.as_str());
        if !decision.is_allowed {
            return Err(Counter::FilterDenied.into());
        }
        let is_new = self.make_room_for_filter(session, request.filter, decision)?;
        let session_state = &mut self.sessions[session as usize];
        let subscriptions = &mut session_state.subscriptions;
        let replaced = subscriptions.get(request.filter);
        let (before, since) = Subscription::history(replaced, request.qos, self.arrivals);
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
        session_state.unsubscribed = self.arrivals;
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
        if stream_of(text).is_some() {
            self.forget_feed(session, text);
        } else if parsed.group.is_some() {
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
