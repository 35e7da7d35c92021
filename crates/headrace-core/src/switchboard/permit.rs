//! What a client may do (`crate::access`): asked where it connects, publishes, subscribes and
//! leaves a will, and asked again of all that is there when users or rules change.
//!
//! A subscription of which rules deny a part is counted in its session, and only such sessions are
//! asked about each topic on its way to them.
//!
//! A session belongs to the user that began it: nobody else may come back to it, for what waits
//! there is that user's.

use std::borrow::Cow;
use std::sync::Arc;

use super::connect::{decode_own, Connecting};
use super::outgoing::Outgoing;
use super::packets::Flow;
use super::queues::Wanted;
use super::{Counter, Switchboard};
use crate::access::{Action, Decision, Identity, Principal, Rules};
use crate::hash::Map;
use crate::mqtt::packet::{Publish, QoS, Version};
use crate::mqtt::reason;
use crate::session::{Outcome, Session, Will};
use crate::topic;
use crate::Now;

/// Who is let in, and what they may do then.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a setting of its own"
)]
pub struct Access {
    /// For all of them.
    pub rules: Arc<Rules>,
    /// Whether a client needs no user.
    pub lets_anonymous: bool,
    /// Whether a certificate may name a user that is not in the list of users.
    pub lets_certified: bool,
    /// Whether publishing where one may not ends the connection, and is not only dropped.
    pub closes: bool,
    /// Whether clients are not told that it is rights that they lack (5.0 3.4.2.1, 3.9.3).
    pub is_silent: bool,
}

/// Roles by user.
pub type Users = Map<Box<str>, Box<[Box<str>]>>;

impl Switchboard {
    /// Sets who is let in; None lets everybody do everything. Clients that are connected are held
    /// to it at once: those whose user is gone lose their session; those that subscribed to what
    /// they may not any more lose that, and their connection, so that they notice.
    pub fn control(&mut self, access: Option<Access>, users: &Users, now: Now) {
        self.access = access;
        let sessions: Vec<u32> = self.sessions.iter().map(|(slot, _)| slot as u32).collect();
        for session in sessions {
            let is_there = self.sessions.get(session as usize);
            if is_there.is_some_and(|session| !session.is_ended) {
                self.review(session, users, now);
            }
        }
    }

    fn review(&mut self, session: u32, users: &Users, now: Now) {
        let Some(access) = &self.access else {
            let state = &mut self.sessions[session as usize];
            (state.identity, state.narrowed) = (None, 0);
            return;
        };
        let state = &mut self.sessions[session as usize];
        let identity = state.identity.take();
        let principal = identity.map_or_else(Principal::default, |identity| identity.principal);
        let identity = known(access, principal, users)
            .map(|principal| access.rules.identify(principal, &state.client_id))
            .filter(|identity| {
                let connects = access
                    .rules
                    .decide(identity, &state.client_id, Action::Connect, "");
                connects.is_allowed
            });
        let Some(identity) = identity else {
            return self.banish(session, now);
        };
        state.identity = Some(Box::new(identity));
        self.hold_will(session);
        let has_lost = self.hold_subscriptions(session, now);
        let connection = self.sessions[session as usize].connection;
        if let Some(slot) = connection.filter(|_| has_lost) {
            self.close_with(slot, reason::NOT_AUTHORIZED, now);
        }
    }

    fn hold_will(&mut self, session: u32) {
        let will = self.sessions[session as usize].will.as_ref();
        let topic = will.map(|will| decode_own(&will.packet).topic.to_owned());
        if topic.is_some_and(|topic| !self.may(session, Action::Will, &topic)) {
            self.set_will(session, None);
            let state = &mut self.sessions[session as usize];
            self.persistence.head_due(state);
        }
    }

    /// Holds the subscriptions of a session to what its client may now; whether it lost any.
    pub(super) fn hold_subscriptions(&mut self, session: u32, now: Now) -> bool {
        let state = &self.sessions[session as usize];
        let (mut narrowed, mut lost) = (0, Vec::new());
        for text in state.subscriptions.keys() {
            let action = Action::Subscribe;
            let decision = decide(self.access.as_ref(), state, action, &filter_of(text));
            narrowed += u32::from(decision.hole.is_some());
            // A message that a consumer may not see would be owed by its group for ever.
            let is_torn = decision.hole.is_some() && Wanted::of(text).is_some();
            if !decision.is_allowed || is_torn {
                lost.push(text.clone());
            }
        }
        self.sessions[session as usize].narrowed = narrowed;
        for filter in &lost {
            self.take_subscription(session, filter);
        }
        self.forget_filters(session, lost.iter().map(|filter| &**filter), now);
        !lost.is_empty()
    }

    /// Ends a session and its connection; its will is not published.
    fn banish(&mut self, session: u32, now: Now) {
        self.set_will(session, None);
        self.set_expiry(session, 0);
        match self.sessions[session as usize].connection {
            Some(slot) => self.close_with(slot, reason::NOT_AUTHORIZED, now),
            None => self.end_session(session, now),
        }
    }

    /// Whom policy has let in, unless a rule, its will, or another user's session speaks against.
    ///
    /// # Errors
    /// The reason code of a CONNACK.
    pub(super) fn admit_client(
        &self,
        connecting: &Connecting,
        principal: Option<Principal>,
    ) -> Result<Option<Box<Identity>>, u8> {
        let Some(access) = &self.access else {
            return Ok(None);
        };
        let client_id = &*connecting.client_id;
        let identity = access
            .rules
            .identify(principal.unwrap_or_default(), client_id);
        let may = |action, topic: &str| {
            let decision = access.rules.decide(&identity, client_id, action, topic);
            decision.is_allowed
        };
        let will_topic = |will: &Will| may(Action::Will, decode_own(&will.packet).topic);
        let leaves_will = connecting.will.as_ref().is_none_or(will_topic);
        if !may(Action::Connect, "") || !leaves_will || !self.is_owner(client_id, &identity) {
            return Err(reason::NOT_AUTHORIZED);
        }
        Ok(Some(Box::new(identity)))
    }

    fn is_owner(&self, client_id: &str, identity: &Identity) -> bool {
        let session = self.by_client.get(client_id);
        let session = session.map(|session| &self.sessions[*session as usize]);
        let owner = session
            .and_then(|session| session.identity.as_ref())
            .and_then(|identity| identity.principal.username.as_ref());
        owner.is_none_or(|owner| Some(owner) == identity.principal.username.as_ref())
    }

    /// Whether a client may do something; `topic` as `Rules::decide` takes it.
    pub(super) fn may(&self, session: u32, action: Action, topic: &str) -> bool {
        let state = &self.sessions[session as usize];
        decide(self.access.as_ref(), state, action, topic).is_allowed
    }

    /// What is decided about a subscription of a session to a filter without its `$share/GROUP/`.
    pub(super) fn decide_subscription(&self, session: u32, filter: &str) -> Decision {
        let state = &self.sessions[session as usize];
        decide(self.access.as_ref(), state, Action::Subscribe, filter)
    }

    /// Whether a message may come to a session.
    pub(super) fn hears(&self, session: u32, outgoing: &Outgoing<'_>) -> bool {
        let state = &self.sessions[session as usize];
        hears(self.access.as_ref(), state, || outgoing.topic_text())
    }

    /// What a client is told for a reason code.
    pub(super) fn told(&self, version: Version, reason_code: u8) -> u8 {
        let is_silent = self.access.as_ref().is_some_and(|access| access.is_silent);
        match (version, reason_code) {
            (Version::V5, reason::NOT_AUTHORIZED) if is_silent => reason::UNSPECIFIED_ERROR,
            _ => reason_code,
        }
    }

    /// A publish to where its client may not (3.3.5).
    pub(super) fn deny_publish(
        &mut self,
        slot: u32,
        session: u32,
        publish: &Publish<'_>,
        now: Now,
    ) -> Flow {
        self.counters.count(Counter::DroppedDenied);
        if self.access.as_ref().is_some_and(|access| access.closes) {
            return self.refuse(slot, reason::NOT_AUTHORIZED, now);
        }
        if publish.qos > QoS::AtMostOnce {
            let token = u64::from(publish.packet_id);
            self.answer_in_turn(session, token, publish.qos, Outcome::NotAuthorized, now);
        }
        Flow::Next
    }
}

fn decide(access: Option<&Access>, session: &Session, action: Action, topic: &str) -> Decision {
    let rules = access.map(|access| &access.rules);
    match (rules, &session.identity) {
        (Some(rules), Some(identity)) => rules.decide(identity, &session.client_id, action, topic),
        (rules, _) => Decision {
            is_allowed: rules.is_none_or(|rules| rules.no_match()),
            hole: None,
            rule: None,
        },
    }
}

/// Whether messages to a topic that a session has subscribed to may come to it.
#[inline]
pub(super) fn hears<'a>(
    access: Option<&Access>,
    session: &Session,
    topic: impl FnOnce() -> &'a str,
) -> bool {
    let is_allowed = || decide(access, session, Action::Subscribe, topic()).is_allowed;
    session.narrowed == 0 || !session.is_ended && is_allowed()
}

/// A principal with the roles that its user has now; None where it may not stay.
fn known(access: &Access, principal: Principal, users: &Users) -> Option<Principal> {
    let Some(username) = &principal.username else {
        return access.lets_anonymous.then_some(principal);
    };
    let roles = match users.get(username) {
        Some(roles) => roles.clone(),
        None if principal.is_certified && access.lets_certified => Box::default(),
        None => return None,
    };
    Some(Principal { roles, ..principal })
}

/// What a subscription reaches.
pub(super) fn filter_of(text: &str) -> Cow<'_, str> {
    if let Some(Ok(wanted)) = Wanted::of(text) {
        return wanted.reached().into();
    }
    let parsed = topic::Subscription::parse(text).expect("it was parsed when subscribed");
    parsed.filter.as_str().into()
}
