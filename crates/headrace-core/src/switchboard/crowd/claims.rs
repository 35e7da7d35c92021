//! Who is owed a publish that very many get, found out in shares before the log has it.
//!
//! A message stands in one record with the claims of all who are owed it, so that after a crash all
//! get it or none. That record is written once the last of them is known; until then its publisher
//! waits for one ticket more, and the log does not have its packet id at `QoS` 2. What else is
//! published under its name meanwhile (a will, other doors) lines up here as well, and so everybody's
//! places are in the order of its publishes.

use std::sync::Arc;

use super::receivers::{Receivers, Slices};
use super::spread::LOOKED_UP_PER_SERVED;
use super::Crowds;
use crate::mqtt::packet::QoS;
use crate::session::{Deferred, Due, Ending, Message};
use crate::switchboard::persist::write_due;
use crate::switchboard::route::{Route, Subject};
use crate::switchboard::streams::Waiter;
use crate::switchboard::Switchboard;
use crate::Now;

/// Receivers that are owed publishes to crowds, beyond which those of no other are found out: 130
/// bytes each.
const OWED_MAX: usize = 1_000_000;

/// A publish whose claims are given.
#[derive(Debug)]
pub(super) struct Claiming {
    waiter: Waiter,
    token: u64,
    message: Arc<Message>,
    arrival: u64,
    /// Sessions that began later are others.
    births: u64,
    receivers: Receivers,
    groups: Slices,
    found_groups: Vec<u32>,
    dues: Vec<Due>,
    /// The same as the log has them.
    claims: Vec<u8>,
}

impl Claiming {
    pub fn origin(&self) -> u32 {
        self.waiter.origin
    }
}

impl Crowds {
    /// Whether as many are owed something as may be.
    pub(super) fn owe_much(&self) -> bool {
        self.owed.bytes() > OWED_MAX
    }
}

impl Switchboard {
    /// Whether it is found out in turns who is owed the publish at hand.
    pub(in crate::switchboard) fn claims_in_turns(
        &mut self,
        origin: u32,
        qos: QoS,
        route: &Route,
    ) -> bool {
        if qos == QoS::AtMostOnce || !self.persistence.is_on() {
            return false;
        }
        let has_receivers = !route.targets.is_empty() || !route.groups.is_empty();
        let is_held_up = self.inbound(origin).is_held_up();
        let mut claiming = self.crowds.claiming.iter();
        let mut is_behind = || is_held_up && claiming.any(|each| each.origin() == origin);
        has_receivers && (route.is_crowd || is_behind())
    }

    /// Begins to find out who is owed a publish; the log has it when `waiter` is told.
    pub(in crate::switchboard) fn begin_claims(
        &mut self,
        deferred: &mut Deferred,
        waiter: Waiter,
        token: u64,
    ) {
        deferred.is_claiming = true;
        let (receivers, groups) = (self.receivers(), self.group_slices());
        self.crowds.claiming.push_back(Claiming {
            waiter,
            token,
            message: Arc::clone(&deferred.message),
            arrival: deferred.arrival,
            births: self.births,
            receivers,
            groups,
            found_groups: Vec::new(),
            dues: Vec::new(),
            claims: Vec::new(),
        });
    }

    /// Gives a share of the claims that are to be given.
    pub(in crate::switchboard) fn claim_on(&mut self, now: Now) {
        let mut share = self.limits.crowd_turn_max;
        while share > 0 && !self.crowds.owe_much() {
            let Some(mut claiming) = self.crowds.claiming.pop_front() else {
                return;
            };
            if self.claim_share(&mut claiming, &mut share) {
                self.end_claims(claiming, now);
            } else {
                self.crowds.claiming.push_front(claiming);
            }
        }
    }

    /// Gives claims as far as the share goes; whether all have theirs.
    fn claim_share(&mut self, claiming: &mut Claiming, share: &mut usize) -> bool {
        let message = Arc::clone(&claiming.message);
        let subject = Subject::of(&message, claiming.origin(), claiming.arrival);
        let one = LOOKED_UP_PER_SERVED;
        while *share > 0 {
            let (due, steps) = if let Some(copy) = claiming.receivers.next_copy() {
                let session = claiming.receivers.get(copy.clone())[0].session;
                let receivers = &claiming.receivers;
                let terms = self.terms_now(receivers, &copy, claiming.births, &subject);
                (terms.and_then(|terms| self.due(session, &terms)), one)
            } else if !claiming.receivers.are_known() {
                (None, self.look_up(&mut claiming.receivers, &subject))
            } else if let Some(slot) = claiming.found_groups.pop() {
                (self.due_of_group(slot), one)
            } else if !claiming.groups.are_over() {
                let Claiming {
                    groups,
                    found_groups,
                    ..
                } = claiming;
                (None, self.look_up_groups(groups, &subject, found_groups))
            } else {
                return true;
            };
            if let Some(due) = due {
                write_due(&due, &mut claiming.claims);
                claiming.dues.push(due);
            }
            *share = share.saturating_sub(steps / LOOKED_UP_PER_SERVED);
        }
        false
    }

    /// All who are owed a publish are known: the log gets it.
    fn end_claims(&mut self, claiming: Claiming, now: Now) {
        let Claiming {
            waiter,
            token,
            message,
            dues,
            claims,
            ..
        } = claiming;
        let owed = (!dues.is_empty()).then(|| self.crowds.owed.hold(dues.len()));
        let is_owed = owed.is_some();
        let is_taken = self
            .inbound(waiter.origin)
            .claimed(waiter.ordinal, dues, owed);
        if is_taken && is_owed {
            self.store_with(waiter.origin, &message, claims);
        }
        if !is_taken || !self.waits_for_log(waiter, message.qos, token, is_owed) {
            self.settle(&[(waiter, Ending::Stored)], now);
        }
    }
}
