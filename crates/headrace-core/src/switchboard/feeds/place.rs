//! SUBSCRIBE to streams: where reading begins is for the shell to say, as it knows what streams
//! there are and what their logs hold. Until it has, the client's further input waits.

use std::collections::{BTreeMap, BTreeSet};

use crate::mqtt::packet::{QoS, Subscribe, SubscriptionRequest};
use crate::mqtt::reason;
use crate::session::{Feed, Progress, Subscription};
use crate::switchboard::connection::{Park, Phase};
use crate::switchboard::record_publish::stream_of;
use crate::switchboard::subscribe::Refusal;
use crate::switchboard::{Counter, Error, Switchboard};
use crate::topic::Filter;
use crate::Now;

/// Subscriptions of one session to streams, as many as there may be streams: each looks at all
/// records of its own, so they cost what as many readers do.
pub const SUBSCRIPTIONS_MAX: usize = 1024;

/// A client subscribes to streams. Its further input waits for [`Switchboard::placed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRequest {
    /// Comes back with the answer.
    pub request: u64,
    /// The names of streams that filters have, each once.
    pub streams: Vec<String>,
    /// User properties of the packet.
    pub properties: Vec<(String, String)>,
}

/// Where a subscription to a stream begins, or why it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// It begins.
    At {
        /// The stream's id.
        stream: u64,
        /// By partition, the first offset to be sent, and the one behind the last durable record.
        positions: Vec<(i64, i64)>,
        /// Whether the client has said where. If not, a subscription that is there goes on.
        is_asked: bool,
    },
    /// It does not.
    Refused {
        /// Of SUBACK.
        reason_code: u8,
        /// For whoever reads the client's log.
        text: String,
    },
}

/// A SUBSCRIBE that waits.
#[derive(Debug)]
pub(super) struct Subscribing {
    connection: u64,
    packet_id: u16,
    subscription_id: Option<u32>,
    user: Vec<(String, String)>,
    filters: Vec<Request>,
    streams: Vec<String>,
}

fn borrowed(user: &[(String, String)]) -> Vec<(&str, &str)> {
    user.iter()
        .map(|(name, value)| (&**name, &**value))
        .collect()
}

/// Where subscriptions to streams begin, by name.
pub type Placements = BTreeMap<String, Placement>;

/// A filter of it.
#[derive(Debug)]
struct Request {
    filter: Box<str>,
    qos: QoS,
    no_local: bool,
    retain_as_published: bool,
    retain_handling: u8,
}

impl Switchboard {
    /// Whether a SUBSCRIBE must be placed first; then it is kept, and policy asked.
    pub(in crate::switchboard) fn asks_for_streams(
        &mut self,
        slot: u32,
        subscribe: &Subscribe<'_>,
    ) -> bool {
        let filters = subscribe.filters.iter();
        let named = filters.filter_map(|request| stream_of(request.filter)?.ok());
        let named: BTreeSet<&str> = named.collect();
        if named.is_empty() {
            return false;
        }
        // What is not asked about is refused.
        let named = named.into_iter().take(SUBSCRIPTIONS_MAX);
        let streams: Vec<String> = named.map(str::to_owned).collect();
        let request = self.next_request;
        self.next_request += 1;
        let connection = &mut self.connections[slot as usize];
        connection.placing = Some(request);
        connection.parked = Some(Park::Decision);
        let filters = subscribe.filters.iter().map(|each| Request {
            filter: each.filter.into(),
            qos: each.qos,
            no_local: each.no_local,
            retain_as_published: each.retain_as_published,
            retain_handling: each.retain_handling,
        });
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let properties: Vec<_> = subscribe.user.iter().map(owned).collect();
        let subscribing = Subscribing {
            connection: connection.id,
            packet_id: subscribe.packet_id,
            subscription_id: subscribe.subscription_id,
            user: properties.clone(),
            filters: filters.collect(),
            streams: streams.clone(),
        };
        self.feeds.placing.insert(request, subscribing);
        self.feeds.requests.push(StreamRequest {
            request,
            streams,
            properties,
        });
        true
    }

    /// Policy has placed the subscriptions of a [`StreamRequest`], one answer for each stream. The
    /// request of a connection that has gone is ignored.
    ///
    /// # Errors
    /// No such request was made.
    ///
    /// # Panics
    /// Where there is not an answer for each stream.
    pub fn placed(
        &mut self,
        request: u64,
        placements: Vec<Placement>,
        now: Now,
    ) -> Result<(), Error> {
        self.tracer.at(now);
        if request == 0 || request >= self.next_request {
            return Err(Error::Request(request));
        }
        let Some(waiting) = self.feeds.placing.remove(&request) else {
            return Ok(());
        };
        assert_eq!(waiting.streams.len(), placements.len(), "each is placed");
        let placements: Placements = waiting.streams.into_iter().zip(placements).collect();
        let slot = self.slot(waiting.connection)?;
        let connection = &mut self.connections[slot as usize];
        if connection.phase != Phase::Open {
            return Ok(());
        }
        connection.placing = None;
        let filters = waiting.filters.iter().map(|each| SubscriptionRequest {
            filter: &each.filter,
            qos: each.qos,
            no_local: each.no_local,
            retain_as_published: each.retain_as_published,
            retain_handling: each.retain_handling,
        });
        let subscribe = Subscribe {
            packet_id: waiting.packet_id,
            subscription_id: waiting.subscription_id,
            user: borrowed(&waiting.user),
            filters: filters.collect(),
        };
        self.subscribe_each(slot, &subscribe, &placements);
        self.unpark(slot, now);
        Ok(())
    }

    /// The connection waits no more.
    pub(in crate::switchboard) fn stop_placing(&mut self, slot: u32) {
        if let Some(request) = self.connections[slot as usize].placing.take() {
            self.feeds.placing.remove(&request);
        }
    }

    /// One filter that names a stream.
    pub(in crate::switchboard) fn subscribe_to_stream(
        &mut self,
        session: u32,
        id: u32,
        request: &SubscriptionRequest<'_>,
        placement: Option<&Placement>,
    ) -> Result<QoS, Refusal> {
        let filter = request.filter;
        Filter::parse(filter).map_err(|_| Counter::FilterInvalid)?;
        let decision = self.decide_subscription(session, filter);
        if !decision.is_allowed {
            return Err(Counter::FilterDenied.into());
        }
        let (stream, positions, is_asked) = match placement {
            None => return Err(Counter::FilterQuota.into()),
            Some(Placement::At {
                stream,
                positions,
                is_asked,
            }) => (*stream, positions, *is_asked),
            Some(Placement::Refused { reason_code, text }) => {
                return Err(Refusal::of_stream(*reason_code, text.clone().into()))
            }
        };
        if request.no_local {
            let text = "No Local is not served: a stream does not say who published a record";
            return Err(Refusal::of_stream(
                reason::IMPLEMENTATION_SPECIFIC,
                text.into(),
            ));
        }
        if self.streams.slot(stream).is_none() {
            let text = "the stream was deleted meanwhile".into();
            return Err(Refusal::of_stream(reason::TOPIC_FILTER_INVALID, text));
        }
        let feeds = self.sessions[session as usize].feeds.as_ref();
        let is_full = feeds
            .is_some_and(|feeds| feeds.len() >= SUBSCRIPTIONS_MAX && feeds.get(filter).is_none());
        if is_full {
            return Err(Counter::FilterQuota.into());
        }
        self.make_room_for_filter(session, filter, decision, positions.len())?;
        let state = &mut self.sessions[session as usize];
        let subscription = Subscription {
            qos: request.qos,
            no_local: false,
            retain_as_published: request.retain_as_published,
            id,
            before: None,
            since: self.arrivals,
        };
        state.subscriptions.insert(filter.into(), subscription);
        self.persistence.filter_due(state, filter);
        if !is_asked && self.goes_on(session, filter, stream, &subscription) {
            return Ok(request.qos);
        }
        self.forget_feed(session, filter);
        let at = positions.iter().map(|(next, _)| Progress::at(*next));
        let feed = Feed {
            number: self.feeds.number(),
            stream,
            qos: request.qos,
            id,
            partitions: at.collect(),
            is_due: false,
        };
        let ends = positions.iter().map(|(_, end)| *end);
        self.begin_feed(session, filter, feed, ends);
        self.line_up(session);
        Ok(request.qos)
    }

    /// A subscription that is there goes on where it is, as it is now (MQTT 5.0 3.8.4).
    fn goes_on(&mut self, session: u32, filter: &str, stream: u64, as_now: &Subscription) -> bool {
        let state = &mut self.sessions[session as usize];
        let feeds = state.feeds.as_mut();
        let feed = feeds.and_then(|feeds| feeds.get_mut(filter));
        let Some(feed) = feed.filter(|feed| feed.stream == stream) else {
            return false;
        };
        (feed.qos, feed.id) = (as_now.qos, as_now.id);
        self.line_up(session);
        true
    }
}
