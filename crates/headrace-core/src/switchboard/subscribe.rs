//! SUBSCRIBE and UNSUBSCRIBE (MQTT 5.0 3.8 to 3.11).

use std::borrow::Cow;
use std::ops::Range;

use super::connection::Park;
use super::feeds::Placements;
use super::packets::Flow;
use super::permit::filter_of;
use super::queues::Wanted;
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

/// Filters of one SUBSCRIBE or UNSUBSCRIBE that are served in a turn, and those of sessions that end:
/// 5 ms.
pub(super) const FILTERS_TURN_MAX: usize = 4096;

/// What one of them counts where the matches of publishes do.
const FILTER_VISITS: usize = 10;

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

impl Refusal {
    /// Of a filter that names a queue.
    pub fn of_queue(reason_code: u8, text: Cow<'static, str>) -> Self {
        Self {
            counter: match reason_code {
                reason::TOPIC_FILTER_INVALID => Counter::FilterUnknownQueue,
                _ => Counter::FilterQueueOptions,
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

/// What has been done of a SUBSCRIBE or UNSUBSCRIBE whose filters are served in turns.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Of the filters that were served.
    reason_codes: Vec<u8>,
    /// Why some of them are refused.
    texts: String,
}

impl Listed {
    /// The filters that have their turn, of so many.
    fn share(&self, count: usize) -> Range<usize> {
        let first = self.reason_codes.len();
        first..count.min(first + FILTERS_TURN_MAX)
    }
}

impl Switchboard {
    pub(super) fn subscribe(&mut self, slot: u32, subscribe: &Subscribe<'_>) -> Flow {
        if self.asks_for_streams(slot, subscribe) {
            return Flow::Next;
        }
        let mut listed = self.listed(slot);
        let share = listed.share(subscribe.filters.len());
        let none = Placements::new();
        self.subscribe_some(slot, subscribe, share, (&none, &mut listed));
        if listed.reason_codes.len() < subscribe.filters.len() {
            return self.go_on_later(slot, listed);
        }
        self.answer_subscribe(slot, subscribe.packet_id, listed);
        Flow::Next
    }

    /// Subscribes to each filter and answers; `placements` are of the streams that they name.
    pub(super) fn subscribe_each(
        &mut self,
        slot: u32,
        subscribe: &Subscribe<'_>,
        placements: &Placements,
    ) {
        let mut listed = Listed::default();
        let all = 0..subscribe.filters.len();
        self.subscribe_some(slot, subscribe, all, (placements, &mut listed));
        self.answer_subscribe(slot, subscribe.packet_id, listed);
    }

    fn subscribe_some(
        &mut self,
        slot: u32,
        subscribe: &Subscribe<'_>,
        some: Range<usize>,
        (placements, listed): (&Placements, &mut Listed),
    ) {
        let session = self.session_of(slot);
        let id = subscribe.subscription_id.unwrap_or(0);
        self.route.visited += some.len() * FILTER_VISITS;
        for request in &subscribe.filters[some] {
            if let Some(wanted) = Wanted::of(request.filter) {
                let told = &subscribe.user;
                let granted = self.subscribe_to_queue(slot, id, request, (wanted, told));
                self.granted(request, granted, listed);
                continue;
            }
            let granted = match stream_of(request.filter) {
                None => self.subscribe_one(session, id, request),
                Some(Ok(name)) => {
                    self.subscribe_to_stream(session, id, request, placements.get(name))
                }
                Some(Err(())) => {
                    let text = "name the stream: $stream/NAME/#";
                    let code = reason::TOPIC_FILTER_INVALID;
                    Err(Refusal::of_stream(code, text.into()))
                }
            };
            self.granted(request, granted, listed);
        }
    }

    /// Notes what became of one filter.
    fn granted(
        &mut self,
        request: &SubscriptionRequest<'_>,
        granted: Result<QoS, Refusal>,
        listed: &mut Listed,
    ) {
        listed.reason_codes.push(match granted {
            Ok(granted) => granted as u8,
            Err(refused) => {
                self.counters.count(refused.counter);
                let texts = &mut listed.texts;
                if let (Some(text), true) = (refused.text, texts.len() < REASONS_BYTES_MAX) {
                    let separator = if texts.is_empty() { "" } else { "; " };
                    let filter = cut(request.filter, FILTER_SHOWN_BYTES_MAX);
                    texts.extend([separator, filter, ": ", &*text]);
                }
                self.told(Version::V5, refused.reason_code)
            }
        });
    }

    fn answer_subscribe(&mut self, slot: u32, packet_id: u16, listed: Listed) {
        let wants_reasons = self.connections[slot as usize].wants_reasons;
        let texts = cut(&listed.texts, REASONS_BYTES_MAX);
        let ack = ListAck {
            packet_id,
            reason_codes: listed.reason_codes,
            reason_string: (wants_reasons && !texts.is_empty()).then_some(texts),
            ..ListAck::default()
        };
        self.gate_durable(slot, self.session_of(slot));
        if self.note_changed() {
            // A group that has begun owes its consumers all that comes from now on.
            self.persistence.gate(&mut self.connections[slot as usize]);
        }
        self.answer(slot, &Packet::Suback(ack));
    }

    /// What has been done of the packet at hand.
    fn listed(&mut self, slot: u32) -> Listed {
        let listed = self.connections[slot as usize].listed.take();
        listed.map_or_else(Listed::default, |listed| *listed)
    }

    /// Others have their turn; the packet comes again.
    fn go_on_later(&mut self, slot: u32, listed: Listed) -> Flow {
        self.connections[slot as usize].listed = Some(Box::new(listed));
        self.runnable.push_back(slot);
        Flow::Park(Park::Turn)
    }

    /// Counts a filter that a session subscribes to, where it has not; whether it has not. It takes
    /// so many places: one, and of a stream one for each partition.
    pub(super) fn make_room_for_filter(
        &mut self,
        session: u32,
        filter: &str,
        decision: Decision,
        places: usize,
    ) -> Result<bool, Counter> {
        let session_state = &self.sessions[session as usize];
        if session_state.subscriptions.contains_key(filter) {
            return Ok(false);
        }
        let bytes = session_state.filter_bytes + filter.len();
        let count_max = self.limits.subscriptions_max;
        let bytes_max = count_max.saturating_mul(FILTER_BYTES_MEAN_MAX);
        if session_state.places() + places > count_max || bytes > bytes_max {
            return Err(Counter::FilterQuota);
        }
        if self.places() + places > self.limits.subscriptions_of_node_max {
            return Err(Counter::FilterNode);
        }
        let session_state = &mut self.sessions[session as usize];
        session_state.filter_bytes = bytes;
        session_state.narrowed += u32::from(decision.hole.is_some());
        Ok(true)
    }

    /// What the subscriptions of all sessions count to the bound on them.
    pub(super) fn places(&self) -> usize {
        self.subscriptions.len()
            + self.groups.sums().members
            + self.feeds.positions()
            + self.queues.subscriptions()
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
        if Wanted::of(parsed.filter.as_str()).is_some() {
            let text = "the consumers of a queue share it by their group: say consumer-group";
            let code = reason::SHARED_SUBSCRIPTIONS_NOT_SUPPORTED;
            return Err(Refusal::of_queue(code, text.into()));
        }
        let decision = self.decide_subscription(session, parsed.filter.as_str());
        if !decision.is_allowed {
            return Err(Counter::FilterDenied.into());
        }
        let is_new = self.make_room_for_filter(session, request.filter, decision, 1)?;
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

    pub(super) fn unsubscribe(
        &mut self,
        slot: u32,
        unsubscribe: &Unsubscribe<'_>,
        now: Now,
    ) -> Flow {
        let session = self.session_of(slot);
        let mut listed = self.listed(slot);
        let share = listed.share(unsubscribe.filters.len());
        self.route.visited += share.len() * FILTER_VISITS;
        let mut gone = Vec::new();
        for filter in &unsubscribe.filters[share] {
            listed
                .reason_codes
                .push(if topic::Subscription::parse(filter).is_err() {
                    reason::TOPIC_FILTER_INVALID
                } else if self.take_subscription(session, filter) {
                    gone.push(*filter);
                    reason::SUCCESS
                } else {
                    reason::NO_SUBSCRIPTION_EXISTED
                });
        }
        self.forget_filters(session, gone.into_iter(), now);
        if listed.reason_codes.len() < unsubscribe.filters.len() {
            return self.go_on_later(slot, listed);
        }
        let ack = ListAck {
            packet_id: unsubscribe.packet_id,
            reason_codes: listed.reason_codes,
            ..ListAck::default()
        };
        self.gate_durable(slot, session);
        self.answer(slot, &Packet::Unsuback(ack));
        Flow::Next
    }

    /// What is answered for a session that lasts waits for the log.
    fn gate_durable(&mut self, slot: u32, session: u32) {
        if self.is_durable(session) {
            self.persistence.gate(&mut self.connections[slot as usize]);
        }
    }

    /// Takes a subscription from a session, if it has it; [`Self::forget_filters`] follows.
    pub(super) fn take_subscription(&mut self, session: u32, filter: &str) -> bool {
        let session_state = &mut self.sessions[session as usize];
        if session_state.subscriptions.remove(filter).is_none() {
            return false;
        }
        session_state.unsubscribed = self.arrivals;
        if session_state.narrowed > 0 {
            let decision = self.decide_subscription(session, &filter_of(filter));
            self.sessions[session as usize].narrowed -= u32::from(decision.hole.is_some());
        }
        let session_state = &mut self.sessions[session as usize];
        session_state.filter_bytes -= filter.len();
        session_state.replays.forget(filter);
        self.persistence.filter_due(session_state, filter);
        true
    }

    /// Nothing that these filters match comes to a session any more.
    pub(super) fn forget_filters<'f>(
        &mut self,
        session: u32,
        filters: impl Iterator<Item = &'f str>,
        now: Now,
    ) {
        let mut left = Vec::new();
        for text in filters {
            let parsed = topic::Subscription::parse(text).expect("it was parsed when subscribed");
            if Wanted::of(text).is_some() {
                self.leave_queue(session, text);
            } else if stream_of(text).is_some() {
                self.forget_feed(session, text);
            } else if parsed.group.is_some() {
                left.push((text, parsed.filter));
            } else {
                self.subscriptions.remove(parsed.filter, &session);
            }
        }
        if !left.is_empty() {
            self.leave_groups(session, &left, now);
        }
    }

    /// The session of an open connection.
    pub(super) fn session_of(&self, slot: u32) -> u32 {
        let session = self.connections[slot as usize].session;
        session.expect("an open connection has a session")
    }
}
