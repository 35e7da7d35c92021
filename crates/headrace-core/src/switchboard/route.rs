//! Who gets a publish: the sessions, groups and streams whose filters match (MQTT 5.0 3.3.4).

use super::outgoing::topic_of;
use super::permit::hears;
use super::Switchboard;
use crate::mqtt::packet::QoS;
use crate::session::{Ids, Message, Subscription, Terms};

/// So many receivers are served without more ado.
const SHORT_ROUTE: usize = 16;

/// Who gets the publish at hand.
#[derive(Debug, Default)]
pub(super) struct Route {
    /// Sessions, once each; or once for each subscription, where [`super::Limits::copies_each`] says so.
    pub targets: Vec<Target>,
    /// From here on those that subscribed after the publish had come.
    pub late_at: usize,
    /// Slots of streams.
    pub streams: Vec<u32>,
    /// Slots of groups.
    pub groups: Vec<u32>,
    /// Whether a subscription matched that wants nothing of its own client.
    pub is_own: bool,
    /// There are more targets than [`super::Limits::crowd_min`], or more groups, of which these are
    /// the first.
    pub is_crowd: bool,
    /// Subscriptions and groups that the publishes of this turn have matched, and places of their
    /// trees at which that was looked for.
    pub visited: usize,
}

impl Route {
    /// Whether it leads to a few sessions at the most.
    pub fn is_short(&self) -> bool {
        let is_short = self.targets.len() <= SHORT_ROUTE && !self.is_crowd;
        is_short && self.streams.is_empty() && self.groups.is_empty()
    }
}

/// The topic of the packet before, of the same client and in the same read, where the route still
/// stands for it: it was sent to a few who were there, and nothing has happened since. Most clients
/// send what they have under one topic.
pub(super) type Routed<'a> = Option<&'a str>;

/// A session that gets the publish at hand.
#[derive(Debug)]
pub(super) struct Target {
    /// Its slot.
    pub session: u32,
    /// What its subscriptions make of it.
    pub terms: Terms,
}

/// What subscriptions are matched with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub topic: &'a str,
    pub qos: QoS,
    pub retain: bool,
    /// Session slot, or [`DOOR`].
    pub origin: u32,
    pub arrival: u64,
}

impl<'a> Subject<'a> {
    /// A publish that has waited since its arrival.
    pub fn of(message: &'a Message, origin: u32, arrival: u64) -> Self {
        Self {
            topic: topic_of(message),
            qos: message.qos,
            retain: message.retain,
            origin,
            arrival,
        }
    }
}

impl Switchboard {
    /// Fills the route with one stream and nobody else.
    pub(super) fn route_to_stream(&mut self, stream: u32) {
        let route = &mut self.route;
        route.targets.clear();
        route.late_at = 0;
        route.groups.clear();
        route.streams.clear();
        route.streams.push(stream);
        (route.is_own, route.is_crowd) = (false, false);
    }

    /// Fills the route: streams and sessions whose filters match, each once, as it was when the
    /// publish of that arrival came.
    pub(super) fn match_topic(&mut self, subject: &Subject<'_>) {
        let Self {
            route,
            subscriptions,
            bound,
            groups,
            sessions,
            limits,
            access,
            ..
        } = self;
        let access = access.as_ref();
        let each = limits.copies_each;
        let is_heard = |session: u32| hears(access, &sessions[session as usize], || subject.topic);
        let crowd_min = limits.crowd_min;
        route.visited += groups.matches(subject.topic, &mut route.groups, crowd_min, is_heard);
        route.streams.clear();
        bound.matches(subject.topic, &mut |stream, ()| {
            if !route.streams.contains(stream) {
                route.streams.push(*stream);
            }
        });
        route.is_own = false;
        route.is_crowd = route.groups.len() > crowd_min;
        let targets = &mut route.targets;
        targets.clear();
        let mut late = Vec::new();
        let mut visited = 0;
        let places = subscriptions.matches_while(subject.topic, &mut |session, subscription| {
            visited += 1;
            if targets.len() >= crowd_min {
                route.is_crowd = true;
                return false;
            }
            let state = &mut sessions[*session as usize];
            if !hears(access, state, || subject.topic) {
                return true;
            }
            if subscription.no_local && *session == subject.origin {
                route.is_own = true;
                return true;
            }
            let mark = &mut state.mark;
            if let Some(granted) = subscription.qos_at(subject.arrival) {
                add(
                    targets,
                    mark,
                    *session,
                    granted,
                    subscription,
                    subject,
                    each,
                );
            } else if subject.retain {
                // It is retained from now on, so who has subscribed meanwhile is told now.
                late.push((*session, *subscription));
            }
            true
        });
        route.visited += visited + places;
        route.late_at = targets.len();
        for (session, subscription) in late {
            let mark = &mut sessions[session as usize].mark;
            let known = targets.get(*mark);
            let has_it =
                known.is_some_and(|known| known.session == session && *mark < route.late_at);
            if each || !has_it {
                let qos = subscription.qos;
                add(targets, mark, session, qos, &subscription, subject, each);
            }
        }
    }
}

/// Adds one subscription to what a session gets: to its copy, or as one more with `each`.
fn add(
    targets: &mut Vec<Target>,
    mark: &mut usize,
    session: u32,
    granted: QoS,
    subscription: &Subscription,
    subject: &Subject<'_>,
    each: bool,
) {
    let qos = granted.min(subject.qos);
    let retain = subject.retain && subscription.retain_as_published;
    match targets.get_mut(*mark) {
        Some(target) if target.session == session && !each => {
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
                lease: None,
            };
            targets.push(Target { session, terms });
        }
    }
}
