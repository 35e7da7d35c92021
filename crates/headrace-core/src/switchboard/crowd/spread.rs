//! Handing a publish out to very many, a share a turn.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::receivers::{Match, Receivers, Slices};
use super::{subject, CROWD};
use crate::mqtt::packet::{QoS, Version};
use crate::session::{Answer, Deferred, Due, GroupId, Held, Owner, Terms};
use crate::switchboard::outbuffer::Lump;
use crate::switchboard::outgoing::Outgoing;
use crate::switchboard::overflow::Policy;
use crate::switchboard::{Counter, Switchboard, DOOR};
use crate::Now;

/// Receivers that are looked up in the time that serving one takes.
pub(super) const LOOKED_UP_PER_SERVED: usize = 32;

/// To choose a member of a group, and to give it to that, takes as long as so many receivers.
const GROUP_RECEIVERS: usize = 4;

/// A publish on its way.
#[derive(Debug)]
pub(super) struct Spread {
    /// Session slot, or [`DOOR`].
    pub origin: u32,
    /// What follows, and to whom of that session.
    answer: Answer,
    asks: Option<u64>,
    deferred: Deferred,
    /// Sessions that began later are others.
    births: u64,
    receivers: Receivers,
    dues: VecDeque<Due>,
    /// Slots of the groups that are owed it.
    owed_groups: Vec<u32>,
    group_slices: Slices,
    groups: Vec<GroupId>,
    /// Those that were full.
    full: Vec<Match>,
    full_dues: VecDeque<Due>,
    /// One of those may have room since.
    pub is_released: bool,
    /// The payload on its way to clients.
    lump: Option<Arc<Lump>>,
    /// Those that were full, counted.
    held: Option<Held>,
}

impl Switchboard {
    /// The turn of a publish has come that goes to very many.
    pub(in crate::switchboard) fn begin_spread(&mut self, origin: u32, mut answer: Answer) {
        let mut deferred = answer.deferred.take().expect("it is deferred");
        self.inbound(origin).set_spreading(true);
        let spread = Spread {
            origin,
            answer,
            asks: self.asks(origin),
            births: self.births,
            receivers: self.receivers(),
            owed_groups: deferred.groups(),
            dues: std::mem::take(&mut deferred.dues).into(),
            group_slices: self.group_slices(),
            groups: Vec::new(),
            full: Vec::new(),
            full_dues: VecDeque::new(),
            is_released: false,
            lump: None,
            held: None,
            deferred,
        };
        self.crowds.queue.push_back(spread);
    }

    /// Hands out a share of what is on its way to very many.
    pub(in crate::switchboard) fn spread(&mut self, now: Now) {
        self.crowds.wake();
        let mut share = self.limits.crowd_turn_max;
        while share > 0 {
            let Some(mut spread) = self.crowds.queue.pop_front() else {
                break;
            };
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

    /// Serves receivers as far as the share goes; whether all have been.
    fn serve_share(&mut self, spread: &mut Spread, share: &mut usize, now: Now) -> bool {
        let message = Arc::clone(&spread.deferred.message);
        let outgoing = Outgoing::of_message(&message, now.mono_ms);
        let mut outgoing = outgoing.with_lump(spread.lump.take());
        let expired = message.is_expired(now.mono_ms);
        let waits = self.asks(spread.origin).is_some();
        let mut is_over = false;
        while *share > 0 {
            let mut steps = LOOKED_UP_PER_SERVED;
            if let Some(copy) = spread.receivers.next_copy() {
                if !self.serve_session(spread, &copy, expired, waits, &mut outgoing, now) {
                    spread.full.extend_from_slice(spread.receivers.get(copy));
                }
            } else if !spread.receivers.are_known() {
                let subject = subject(&spread.deferred, spread.origin);
                steps = self.look_up(&mut spread.receivers, &subject);
            } else if let Some(due) = spread.dues.pop_front() {
                let has_left = self.has_left(&due, &subject(&spread.deferred, spread.origin));
                if !has_left && waits && !expired && self.due_waits(&due, &outgoing, now) {
                    spread.full_dues.push_back(due);
                } else if !has_left {
                    self.deliver_due(&due, expired, &mut outgoing);
                }
            } else if let Some(id) = spread.groups.pop() {
                steps *= GROUP_RECEIVERS;
                match self.groups.slot_of(id) {
                    Some(_) if expired => self.drops(DOOR, Counter::DroppedExpired, &outgoing, 0),
                    Some(slot) => self.deliver_to_group(slot, None, &mut outgoing),
                    None => {}
                }
            } else if !spread.group_slices.are_over() {
                steps = self.look_up_groups_of(spread);
            } else {
                is_over = true;
                break;
            }
            *share = share.saturating_sub(steps / LOOKED_UP_PER_SERVED);
        }
        spread.lump = outgoing.into_lump();
        is_over
    }

    /// Looks groups up that get a publish and are not owed it.
    fn look_up_groups_of(&mut self, spread: &mut Spread) -> usize {
        let mut slots = Vec::new();
        let subject = subject(&spread.deferred, spread.origin);
        let steps = self.look_up_groups(&mut spread.group_slices, &subject, &mut slots);
        slots.retain(|slot| spread.owed_groups.binary_search(slot).is_err());
        let ids = slots.iter().map(|slot| self.groups.id(*slot));
        spread.groups.extend(ids);
        steps
    }

    /// Serves one session, unless it is full and is waited for: false then.
    fn serve_session(
        &mut self,
        spread: &Spread,
        copy: &Range<usize>,
        expired: bool,
        waits: bool,
        outgoing: &mut Outgoing<'_>,
        now: Now,
    ) -> bool {
        let subject = subject(&spread.deferred, spread.origin);
        let Some(terms) = self.terms_now(&spread.receivers, copy, spread.births, &subject) else {
            return true;
        };
        let session = spread.receivers.get(copy.clone())[0].session;
        if !self.hears(session, outgoing) {
            return true;
        }
        match terms.qos {
            QoS::AtMostOnce if !spread.deferred.is_whole => return true, // It was served at once.
            QoS::AtLeastOnce | QoS::ExactlyOnce if self.is_durable(session) => return true, // Owed.
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
        if self.limits.overflow != Policy::PushBack {
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
        let full = std::mem::take(&mut spread.full);
        let full_dues = std::mem::take(&mut spread.full_dues);
        spread.held = Some(self.crowds.full.hold(full.len() + full_dues.len()));
        spread.receivers = Receivers::of(full, self.limits.copies_each);
        spread.dues = full_dues;
        (spread.deferred.crowd, spread.deferred.owed) = (None, None);
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
}
