//! A publish that very many sessions get, handed out in shares.
//!
//! To match a publish with a million subscribers and to queue it for each takes seconds, in which
//! nobody else is served. So where a publish matches more than [`Limits::crowd_min`](super::Limits)
//! sessions, that is all that is found out when it is taken. It waits in the order of its
//! publisher's answers; when its turn comes, all who get it are looked up in one pass, and then
//! each turn of the loop serves a share of them. PUBACK follows the last of them.
//!
//! Order: until it is out its publisher is read no further, and what else is published under its
//! name (a will) waits behind it, so nobody gets a later publish first. Back-pressure: who is full
//! gets it when there is room, and the publisher waits for that as it does for any full subscriber.
//! Memory: [`PENDING_MAX`] such publishes of clients are taken; of one at a time the receivers are
//! looked up, and those count to the bytes that wait.
//!
//! Who gets it: whoever had subscribed when it was published and has not unsubscribed before its
//! turn comes, whose session is still the same.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use super::connection::Park;
use super::outbuffer::Lump;
use super::outgoing::{topic_of, Outgoing};
use super::permit::hears;
use super::publish::{Route, Subject, Target};
use super::{Counter, Switchboard, DOOR};
use crate::mqtt::packet::{QoS, Version};
use crate::session::{
    Answer, Deferred, Due, GroupId, Held, Ids, Memory, Message, Owner, Subscription, Terms,
};
use crate::topic;
use crate::Now;

/// Publishes of clients to crowds that are taken and not out; who publishes another one waits.
const PENDING_MAX: usize = 8;

/// Receivers that are looked up in the time that serving one takes.
const LOOKED_UP_PER_SERVED: usize = 32;

/// Who waits for a full client, as its publishers do.
const CROWD: u32 = u32::MAX;

/// A subscription that matched.
#[derive(Clone, Copy, Debug)]
struct Match {
    session: u32,
    /// Subscription Identifier.
    id: u32,
    qos: QoS,
    retain: bool,
}

/// Sessions that get a publish, in the order of their slots.
#[derive(Debug, Default)]
pub(super) struct Receivers {
    matches: Vec<Match>,
    at: usize,
    /// A copy for each subscription.
    each: bool,
}

impl Receivers {
    /// The subscriptions of the next copy, all of one session.
    fn next_copy(&mut self) -> Option<Range<usize>> {
        let first = self.matches.get(self.at)?.session;
        let begin = self.at;
        self.at += 1;
        while !self.each
            && self
                .matches
                .get(self.at)
                .is_some_and(|next| next.session == first)
        {
            self.at += 1;
        }
        Some(begin..self.at)
    }

    fn held(&self, memory: &Memory) -> Held {
        memory.hold(self.matches.len() * size_of::<Match>())
    }
}

impl Iterator for Receivers {
    type Item = Target;

    fn next(&mut self) -> Option<Target> {
        let copy = self.next_copy()?;
        let session = self.matches[copy.start].session;
        let terms = terms(self.matches[copy].iter()).expect("it has one");
        Some(Target { session, terms })
    }
}

/// What subscriptions make of one copy; None where there are none.
fn terms<'a>(mut matches: impl Iterator<Item = &'a Match>) -> Option<Terms> {
    let first = matches.next()?;
    let mut terms = Terms {
        qos: first.qos,
        retain: first.retain,
        ids: Ids::of(first.id),
        group: None,
        lease: None,
    };
    for more in matches {
        terms.join(more.qos, more.retain, more.id);
    }
    Some(terms)
}

/// A publish on its way.
#[derive(Debug)]
struct Spread {
    /// Session slot, or [`DOOR`].
    origin: u32,
    /// What follows, and to whom of that session.
    answer: Answer,
    asks: Option<u64>,
    deferred: Deferred,
    is_looked_up: bool,
    /// Sessions that began later are others.
    births: u64,
    receivers: Receivers,
    dues: VecDeque<Due>,
    groups: Vec<GroupId>,
    /// Those that were full.
    full: Vec<Match>,
    full_dues: VecDeque<Due>,
    /// One of those may have room since.
    is_released: bool,
    /// The payload on its way to clients.
    lump: Option<Arc<Lump>>,
    held: Option<Held>,
}

/// Publishes on their way to very many.
#[derive(Debug, Default)]
pub(super) struct Crowds {
    queue: VecDeque<Spread>,
    /// All but full receivers have had these.
    resting: Vec<Spread>,
    /// A client for which some rest may have room.
    is_released: bool,
    /// Connections whose publish waits to be taken.
    waiting: VecDeque<u64>,
    /// Publishes that are taken and not out.
    pending: Memory,
}

impl Crowds {
    /// Whether something is to be done in the next turn.
    pub fn are_due(&self) -> bool {
        !self.queue.is_empty()
            || self.is_released && !self.resting.is_empty()
            || !self.waiting.is_empty() && !self.are_many()
    }

    /// Whether as many are taken as may be.
    pub fn are_many(&self) -> bool {
        self.pending.bytes() >= PENDING_MAX
    }

    /// Those that are taken, and not out to all.
    pub fn len(&self) -> usize {
        self.pending.bytes() + self.resting.len()
    }

    /// A connection waits until its publish can be taken.
    pub fn wait(&mut self, connection: u64) {
        self.waiting.push_back(connection);
    }

    /// A full client has room, or is not waited for any longer.
    pub fn released(&mut self, publishers: &BTreeSet<u32>) {
        self.is_released |= publishers.contains(&CROWD);
    }

    /// Those that rest go on where that may be of use.
    fn wake(&mut self) {
        if std::mem::take(&mut self.is_released) {
            for spread in &mut self.queue {
                spread.is_released = true;
            }
            for spread in self.resting.drain(..).rev() {
                self.queue.push_front(spread);
            }
        }
    }
}

impl Switchboard {
    /// Puts a publish off that goes to very many, or comes behind one that does.
    pub(super) fn put_off(
        &mut self,
        origin: u32,
        route: &Route,
        outgoing: &mut Outgoing<'_>,
        dues: Vec<Due>,
    ) -> Option<Deferred> {
        if route.targets.is_empty() && route.groups.is_empty() {
            return None;
        }
        let message = outgoing.message();
        message.hold(&self.memory);
        self.store_for(origin, &message, &dues);
        let crowd = route.is_crowd.then(|| self.crowds.pending.hold(1));
        if crowd.is_some() {
            self.counters.count(Counter::Crowds);
        }
        Some(Deferred {
            arrival: self.arrivals,
            message,
            dues,
            is_whole: true,
            crowd,
        })
    }

    /// The turn of a publish has come that goes to very many.
    pub(super) fn begin_spread(&mut self, origin: u32, mut answer: Answer) {
        let deferred = answer.deferred.take().expect("it is deferred");
        self.inbound(origin).set_spreading(true);
        self.crowds.queue.push_back(Spread {
            origin,
            answer,
            asks: self.asks(origin),
            deferred,
            is_looked_up: false,
            births: 0,
            receivers: Receivers::default(),
            dues: VecDeque::new(),
            groups: Vec::new(),
            full: Vec::new(),
            full_dues: VecDeque::new(),
            is_released: false,
            lump: None,
            held: None,
        });
    }

    /// The connection of an origin.
    fn asks(&self, origin: u32) -> Option<u64> {
        if origin == DOOR {
            return None;
        }
        let slot = self.sessions[origin as usize].connection?;
        Some(self.connections[slot as usize].id)
    }

    /// Hands out a share of what is on its way to very many.
    pub(super) fn spread(&mut self, now: Now) {
        self.crowds.wake();
        let mut share = self.limits.crowd_turn_max;
        while share > 0 {
            let Some(mut spread) = self.crowds.queue.pop_front() else {
                break;
            };
            if !spread.is_looked_up {
                self.look_up(&mut spread);
                let looked_up = spread.receivers.matches.len() / LOOKED_UP_PER_SERVED;
                share = share.saturating_sub(looked_up);
            }
            if !self.serve_share(&mut spread, &mut share, now) {
                self.crowds.queue.push_front(spread);
            } else if spread.full.is_empty() && spread.full_dues.is_empty() {
                self.spread_over(spread, now);
            } else {
                self.rest_for_full(spread);
            }
        }
        self.take_next();
    }

    /// Finds out who gets a publish.
    fn look_up(&mut self, spread: &mut Spread) {
        spread.is_looked_up = true;
        spread.births = self.births;
        spread.receivers = self.receivers(&subject(&spread.deferred, spread.origin));
        spread.held = Some(spread.receivers.held(&self.memory));
        let topic = topic_of(&spread.deferred.message);
        let (access, sessions) = (self.access.as_ref(), &self.sessions);
        let mut slots = Vec::new();
        let is_heard = |session: u32| hears(access, &sessions[session as usize], || topic);
        self.groups.matches(topic, &mut slots, is_heard);
        let owed = spread.deferred.groups();
        slots.retain(|slot| owed.binary_search(slot).is_err());
        spread.groups = slots.iter().map(|slot| self.groups.id(*slot)).collect();
        spread.dues = std::mem::take(&mut spread.deferred.dues).into();
    }

    /// All who get a publish, as it was when it came.
    pub(super) fn receivers(&self, subject: &Subject<'_>) -> Receivers {
        self.receivers_where(subject, |subscription| subscription.qos_at(subject.arrival))
    }

    /// Those who have subscribed since a publish came that is retained now.
    pub(super) fn late_receivers(&self, subject: &Subject<'_>) -> Receivers {
        let is_late = |each: &Subscription| each.qos_at(subject.arrival).is_none();
        let late = |each: &Subscription| is_late(each).then_some(each.qos);
        let mut receivers = self.receivers_where(subject, late);
        let has_it = |session: u32| self.has_matching(session, subject, |each| !is_late(each));
        if !receivers.each {
            receivers.matches.retain(|late| !has_it(late.session));
        }
        receivers
    }

    fn receivers_where(
        &self,
        subject: &Subject<'_>,
        granted: impl Fn(&Subscription) -> Option<QoS>,
    ) -> Receivers {
        let mut matches = Vec::new();
        self.subscriptions
            .matches(subject.topic, &mut |session, subscription| {
                let is_own = subscription.no_local && *session == subject.origin;
                let granted = granted(subscription).filter(|_| !is_own);
                matches.extend(granted.map(|granted| Match {
                    session: *session,
                    id: subscription.id,
                    qos: granted.min(subject.qos),
                    retain: subject.retain && subscription.retain_as_published,
                }));
            });
        if !matches.is_sorted_by_key(|each| each.session) {
            matches.sort_by_key(|each| each.session);
        }
        Receivers {
            matches,
            at: 0,
            each: self.limits.copies_each,
        }
    }

    /// Whether a session has a subscription that matches a publish and is as asked.
    fn has_matching(
        &self,
        session: u32,
        subject: &Subject<'_>,
        is_asked: impl Fn(&Subscription) -> bool,
    ) -> bool {
        let mut subscriptions = self.sessions[session as usize].subscriptions.iter();
        subscriptions.any(|(text, subscription)| {
            let parsed = topic::Subscription::parse(text).expect("it was parsed when subscribed");
            is_asked(subscription) && parsed.group.is_none() && parsed.filter.matches(subject.topic)
        })
    }

    /// Serves receivers as far as the share goes; whether all have been.
    fn serve_share(&mut self, spread: &mut Spread, share: &mut usize, now: Now) -> bool {
        let message = Arc::clone(&spread.deferred.message);
        let outgoing = Outgoing::of_message(&message, now.mono_ms);
        let mut outgoing = outgoing.with_lump(spread.lump.take());
        let expired = message.is_expired(now.mono_ms);
        let waits = self.asks(spread.origin).is_some();
        let mut is_over = false;
        while *share > 0 {
            *share -= 1;
            if let Some(copy) = spread.receivers.next_copy() {
                let copy = &spread.receivers.matches[copy];
                if !self.serve_session(spread, copy, expired, waits, &mut outgoing, now) {
                    let copy = copy.to_vec();
                    spread.full.extend(copy);
                }
            } else if let Some(due) = spread.dues.pop_front() {
                if waits && !expired && self.due_waits(&due, &outgoing, now) {
                    spread.full_dues.push_back(due);
                } else {
                    self.deliver_due(&due, expired, &mut outgoing);
                }
            } else if let Some(id) = spread.groups.pop() {
                let slot = self.groups.slot_of(id);
                match slot {
                    Some(_) if expired => self.drops(DOOR, Counter::DroppedExpired, &outgoing, 0),
                    Some(slot) => self.deliver_to_group(slot, None, &mut outgoing),
                    None => {}
                }
            } else {
                is_over = true;
                break;
            }
        }
        spread.lump = outgoing.into_lump();
        is_over
    }

    /// Serves one session, unless it is full and is waited for: false then.
    fn serve_session(
        &mut self,
        spread: &Spread,
        copy: &[Match],
        expired: bool,
        waits: bool,
        outgoing: &mut Outgoing<'_>,
        now: Now,
    ) -> bool {
        let session = copy[0].session;
        let subject = subject(&spread.deferred, spread.origin);
        let Some(state) = self.sessions.get(session as usize) else {
            return true;
        };
        if state.is_ended || state.birth > spread.births || !self.hears(session, outgoing) {
            return true;
        }
        let may_have_left = state.unsubscribed >= subject.arrival;
        let is_there = |each: &&Match| {
            let is_same = |known: &Subscription| {
                let granted = known.qos_at(subject.arrival);
                known.id == each.id && granted.is_some_and(|qos| qos.min(subject.qos) == each.qos)
            };
            !may_have_left || self.has_matching(session, &subject, is_same)
        };
        let Some(terms) = terms(copy.iter().filter(is_there)) else {
            return true;
        };
        match terms.qos {
            QoS::AtMostOnce if !spread.deferred.is_whole => return true, // It was served at once.
            QoS::AtLeastOnce | QoS::ExactlyOnce if state.durable.is_some() => return true, // Owed.
            _ if expired => self.drops(session, Counter::DroppedExpired, outgoing, 0),
            _ if waits && self.session_waits(session, &terms, outgoing, now) => return false,
            _ => self.deliver(session, &terms, None, outgoing),
        }
        true
    }

    /// Whether a session is full and is waited for.
    fn session_waits(
        &mut self,
        session: u32,
        terms: &Terms,
        outgoing: &Outgoing<'_>,
        now: Now,
    ) -> bool {
        if self.limits.overflow != super::Policy::PushBack {
            return false;
        }
        let slot = self.sessions[session as usize].connection;
        let version = slot.map_or(Version::V5, |slot| self.connections[slot as usize].version);
        let bytes = outgoing.bytes(version, terms);
        let full = self.is_waited_for(session, terms.qos, bytes);
        if let Some(full) = full {
            self.wait_for(full, CROWD, now);
        }
        full.is_some()
    }

    fn due_waits(&mut self, due: &Due, outgoing: &Outgoing<'_>, now: Now) -> bool {
        match (due.claim.owner, &due.terms) {
            (Owner::Session { slot, number }, Some(terms)) if self.is_numbered(slot, number) => {
                self.session_waits(slot, terms, outgoing, now)
            }
            _ => false,
        }
    }

    /// All but those that are full have it: others have their turn until there is room.
    fn rest_for_full(&mut self, mut spread: Spread) {
        spread.receivers.matches = std::mem::take(&mut spread.full);
        spread.receivers.at = 0;
        spread.held = Some(spread.receivers.held(&self.memory));
        spread.dues = std::mem::take(&mut spread.full_dues);
        spread.deferred.crowd = None;
        if std::mem::take(&mut spread.is_released) {
            self.crowds.queue.push_front(spread);
        } else {
            self.crowds.resting.push(spread);
        }
    }

    /// All have it.
    fn spread_over(&mut self, spread: Spread, now: Now) {
        let Spread {
            origin,
            mut answer,
            asks,
            deferred,
            ..
        } = spread;
        drop(deferred);
        self.inbound(origin).set_spreading(false);
        if origin != DOOR && self.asks(origin) != asks {
            // A later connection may have given its packet id to another message.
            answer.token = 0;
        }
        self.end_answer(origin, &answer, now);
        self.answer_origin(origin, now);
    }

    /// Lets a client go on whose publish waits to be taken.
    fn take_next(&mut self) {
        while !self.crowds.are_many() {
            let Some(connection) = self.crowds.waiting.pop_front() else {
                return;
            };
            let slot = self.slot(connection).ok();
            let is_waiting =
                |slot: &u32| self.connections[*slot as usize].parked == Some(Park::Crowd);
            if let Some(slot) = slot.filter(is_waiting) {
                return self.runnable.push_back(slot);
            }
        }
    }

    /// Asserts what must hold of publishes on their way to very many.
    pub(super) fn validate_crowds(&self) {
        let spreads = || self.crowds.queue.iter().chain(&self.crowds.resting);
        for spread in spreads() {
            let inbound = match spread.origin {
                DOOR => &self.door,
                origin => &self.sessions[origin as usize].inbound,
            };
            assert!(inbound.is_held_up(), "nothing overtakes it");
        }
        for (_, connection) in &self.connections {
            assert!(
                connection.parked != Some(Park::Crowd)
                    || self.crowds.waiting.contains(&connection.id)
                    || !self.runnable.is_empty(),
                "who waits is let go on"
            );
        }
    }
}

fn subject(deferred: &Deferred, origin: u32) -> Subject<'_> {
    let message: &Message = &deferred.message;
    Subject {
        topic: topic_of(message),
        qos: message.qos,
        retain: message.retain,
        origin,
        arrival: deferred.arrival,
    }
}
