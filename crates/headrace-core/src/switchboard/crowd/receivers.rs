//! Who gets a publish that very many get, looked up a slice of the slots of sessions or groups at a
//! time. Who stands in a slot may change between two slices; the slots do not.

use std::ops::Range;

use crate::mqtt::packet::QoS;
use crate::session::{Ids, Subscription, Terms};
use crate::switchboard::permit::hears;
use crate::switchboard::route::Subject;
use crate::switchboard::Switchboard;
use crate::topic;

/// The first slice has such a part of the slots that are served in a turn: should each of its sessions
/// have a hundred subscriptions that match, it takes a few milliseconds.
const FIRST_SLICE_PARTS: usize = 8;

/// What a slice should find, or the places at which it looks: a millisecond.
const SLICE_STEPS: usize = 16 * 1024;

/// A subscription that matched.
#[derive(Clone, Copy, Debug)]
pub(in crate::switchboard) struct Match {
    pub session: u32,
    /// Subscription Identifier.
    id: u32,
    qos: QoS,
    retain: bool,
}

impl Match {
    /// None where it does not get that publish.
    fn of(
        session: u32,
        subscription: &Subscription,
        granted: Option<QoS>,
        subject: &Subject<'_>,
    ) -> Option<Self> {
        if subscription.no_local && session == subject.origin {
            return None;
        }
        Some(Self {
            session,
            id: subscription.id,
            qos: granted?.min(subject.qos),
            retain: subject.retain && subscription.retain_as_published,
        })
    }
}

/// Slots that have not been looked at, and how many of them the next slice has.
#[derive(Debug)]
pub(super) struct Slices {
    rest: Range<u32>,
    step: u32,
}

impl Slices {
    fn of(slots: usize, turn_max: usize) -> Self {
        Self {
            rest: 0..slots as u32,
            step: (turn_max / FIRST_SLICE_PARTS).max(1) as u32,
        }
    }

    pub fn are_over(&self) -> bool {
        self.rest.is_empty()
    }

    fn next(&mut self) -> Range<u32> {
        let end = self.rest.start.saturating_add(self.step).min(self.rest.end);
        let slice = self.rest.start..end;
        self.rest.start = end;
        slice
    }

    /// Has the next slice find about as much as it should. Where the filters are very many, each
    /// slice looks at all of them, so that one has all that is left.
    fn learn(&mut self, places: usize, found: usize) -> usize {
        if places > SLICE_STEPS {
            self.step = u32::MAX;
        } else if places + found < SLICE_STEPS / 4 {
            self.step = self.step.saturating_mul(4);
        } else if found > SLICE_STEPS {
            self.step = (self.step / 2).max(1);
        }
        places + found
    }
}

/// Sessions that get a publish, in the order of their slots.
#[derive(Debug)]
pub(super) struct Receivers {
    matches: Vec<Match>,
    at: usize,
    /// A copy for each subscription.
    each: bool,
    slices: Slices,
}

impl Receivers {
    /// Of those matches alone.
    pub fn of(matches: Vec<Match>, each: bool) -> Self {
        Self {
            matches,
            at: 0,
            each,
            slices: Slices::of(0, 0),
        }
    }

    /// The subscriptions of the next copy, all of one session.
    pub fn next_copy(&mut self) -> Option<Range<usize>> {
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

    pub fn get(&self, copy: Range<usize>) -> &[Match] {
        &self.matches[copy]
    }

    /// Whether all have been looked up.
    pub fn are_known(&self) -> bool {
        self.slices.are_over()
    }

    /// How many copies the session of a copy gets.
    fn copies_of(&self, copy: &Range<usize>) -> usize {
        let session = self.matches[copy.start].session;
        let first = self.matches.partition_point(|each| each.session < session);
        let last = self.matches.partition_point(|each| each.session <= session);
        last - first
    }
}

/// What subscriptions make of one copy; None where there are none.
pub(super) fn terms<'a>(mut matches: impl Iterator<Item = &'a Match>) -> Option<Terms> {
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

impl Switchboard {
    /// All who may get a publish: nobody has been looked up.
    pub(super) fn receivers(&self) -> Receivers {
        Receivers {
            matches: Vec::new(),
            at: 0,
            each: self.limits.copies_each,
            slices: Slices::of(self.sessions.capacity(), self.limits.crowd_turn_max),
        }
    }

    /// All groups that may get a publish.
    pub(super) fn group_slices(&self) -> Slices {
        Slices::of(self.groups.capacity(), self.limits.crowd_turn_max)
    }

    /// Looks the next slice up, of those who had subscribed when the publish came; how many steps
    /// that took.
    pub(super) fn look_up(&self, receivers: &mut Receivers, subject: &Subject<'_>) -> usize {
        self.look_up_where(receivers, subject, |each| each.qos_at(subject.arrival))
    }

    fn look_up_where(
        &self,
        receivers: &mut Receivers,
        subject: &Subject<'_>,
        granted: impl Fn(&Subscription) -> Option<QoS>,
    ) -> usize {
        let Receivers {
            matches,
            at,
            slices,
            ..
        } = receivers;
        matches.clear();
        *at = 0;
        let tree = &self.subscriptions;
        let places = tree.matches_within(subject.topic, slices.next(), &mut |session, each| {
            matches.extend(Match::of(*session, each, granted(each), subject));
        });
        if !matches.is_sorted_by_key(|each| each.session) {
            matches.sort_by_key(|each| each.session);
        }
        slices.learn(places, matches.len())
    }

    /// Looks the next slice of groups up that get a publish.
    pub(super) fn look_up_groups(
        &self,
        slices: &mut Slices,
        subject: &Subject<'_>,
        found: &mut Vec<u32>,
    ) -> usize {
        found.clear();
        let (access, sessions) = (self.access.as_ref(), &self.sessions);
        let is_heard = |session: u32| hears(access, &sessions[session as usize], || subject.topic);
        let slots = slices.next();
        let places = self
            .groups
            .matches_within(subject.topic, slots, found, is_heard);
        slices.learn(places, found.len())
    }

    /// Those who have subscribed since a publish came that is retained now.
    pub(in crate::switchboard) fn late_receivers(
        &self,
        subject: &Subject<'_>,
    ) -> Vec<(u32, Terms)> {
        let is_late = |each: &Subscription| each.qos_at(subject.arrival).is_none();
        let late = |each: &Subscription| is_late(each).then_some(each.qos);
        let (mut receivers, mut found) = (self.receivers(), Vec::new());
        while !receivers.are_known() {
            self.look_up_where(&mut receivers, subject, late);
            while let Some(copy) = receivers.next_copy() {
                let copy = receivers.get(copy);
                let session = copy[0].session;
                if receivers.each || self.still_matching(session, subject).is_empty() {
                    found.extend(terms(copy.iter()).map(|terms| (session, terms)));
                }
            }
        }
        found
    }

    /// What of a session matches a publish, and did when that came.
    pub(in crate::switchboard) fn still_matching(
        &self,
        session: u32,
        subject: &Subject<'_>,
    ) -> Vec<Match> {
        let subscriptions = self.sessions[session as usize].subscriptions.iter();
        let matching = subscriptions.filter_map(|(filter, each)| {
            let of = Match::of(session, each, each.qos_at(subject.arrival), subject)?;
            // Shared ones, and those of streams, match no topic of a publish.
            topic::matches(filter, subject.topic).then_some(of)
        });
        matching.collect()
    }

    /// What the session of a copy gets now; None where it has ended, or has given up what matched.
    pub(super) fn terms_now(
        &self,
        receivers: &Receivers,
        copy: &Range<usize>,
        births: u64,
        subject: &Subject<'_>,
    ) -> Option<Terms> {
        let matches = receivers.get(copy.clone());
        let session = matches[0].session;
        let state = self.sessions.get(session as usize)?;
        if state.is_ended || state.birth > births {
            return None;
        }
        if state.unsubscribed < subject.arrival {
            return terms(matches.iter());
        }
        let still = self.still_matching(session, subject);
        if !receivers.each {
            return terms(still.iter());
        }
        let known = matches[0];
        let is_same = |each: &Match| (each.id, each.qos) == (known.id, known.qos);
        // Where none is gone the others have been replaced, which loses nothing (3.8.4).
        let is_there = still.len() >= receivers.copies_of(copy) || still.iter().any(is_same);
        is_there.then(|| terms(matches.iter()))?
    }
}
