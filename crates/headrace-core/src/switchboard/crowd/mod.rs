//! A publish that very many get, handed out in shares.
//!
//! To match a publish with a million subscribers and to queue it for each takes seconds, in which
//! nobody else is served. So where a publish matches more than [`Limits::crowd_min`](super::Limits)
//! sessions, or as many groups, that is all that is found out when it is taken. Sessions and groups
//! that last are given their claims in shares ([`claims`]), and the log has them all at once. It waits
//! in the order of its publisher's answers; when its turn comes, those who get it are looked up a
//! slice at a time ([`receivers`]), and each turn of the loop serves a share of them ([`spread`]).
//! PUBACK follows the last of them.
//!
//! Order: until it is out its publisher is read no further, and what else is published under its
//! name (a will) waits behind it, so nobody gets a later publish first. Back-pressure: who is full
//! gets it when there is room, and the publisher waits for that as it does for any full subscriber.
//! Memory: [`PENDING_MAX`] such publishes of clients are taken, others in the order in which they
//! came; who is owed them, and who was full, is bounded by number.
//!
//! Who gets it: whoever had subscribed when it was published and has not unsubscribed before its
//! turn comes, whose session is still the same.

mod claims;
mod receivers;
mod spread;

use std::collections::{BTreeSet, VecDeque};

use super::connection::Park;
use super::outgoing::Outgoing;
use super::route::{Route, Subject};
use super::{Counter, Switchboard, DOOR};
use crate::session::{Deferred, Due, Memory};
use claims::Claiming;
use spread::Spread;

/// Publishes of clients to crowds that are taken and not out; who publishes another one waits.
const PENDING_MAX: usize = 8;

/// Sessions that were full, of all publishes that wait for them, beyond which no publish of a client
/// to a crowd is taken: 12 bytes each.
const FULL_MAX: usize = 4_000_000;

/// Who waits for a full client, as its publishers do.
const CROWD: u32 = u32::MAX;

/// Publishes on their way to very many.
#[derive(Debug, Default)]
pub(super) struct Crowds {
    /// Those of which it is being found out who is owed them.
    claiming: VecDeque<Claiming>,
    queue: VecDeque<Spread>,
    /// All but full receivers have had these.
    resting: Vec<Spread>,
    /// A client for which some rest may have room.
    is_released: bool,
    /// Connections whose publish waits to be taken.
    waiting: VecDeque<u64>,
    /// Publishes that are taken and not out.
    pending: Memory,
    /// Who is owed them.
    owed: Memory,
    /// Full receivers of those that rest.
    full: Memory,
}

impl Crowds {
    /// Whether something is to be done in the next turn.
    pub fn are_due(&self) -> bool {
        !self.queue.is_empty()
            || self.is_released && !self.resting.is_empty()
            || !self.waiting.is_empty() && self.free() > 0
            || !self.claiming.is_empty() && !self.owe_much()
    }

    /// How many more may be taken.
    fn free(&self) -> usize {
        if self.full.bytes() > FULL_MAX {
            return 0;
        }
        PENDING_MAX.saturating_sub(self.pending.bytes())
    }

    /// Those that are taken, and not out to all.
    pub fn len(&self) -> usize {
        self.pending.bytes() + self.resting.len()
    }

    /// Whether a connection's publish is taken now: those that wait longer come first. If not, it
    /// waits.
    pub fn admits(&mut self, connection: u64) -> bool {
        let free = self.free();
        let mut first = self.waiting.iter().take(PENDING_MAX);
        match first.position(|each| *each == connection) {
            Some(at) if at < free => {
                self.waiting.remove(at);
                true
            }
            Some(_) => false,
            None if self.waiting.len() < free => true,
            None => {
                self.waiting.push_back(connection);
                false
            }
        }
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
            is_claiming: false,
            crowd,
            owed: None,
        })
    }

    /// The connection of an origin.
    fn asks(&self, origin: u32) -> Option<u64> {
        if origin == DOOR {
            return None;
        }
        let slot = self.sessions[origin as usize].connection?;
        Some(self.connections[slot as usize].id)
    }

    /// Lets those clients go on whose publish can be taken, and forgets those that have no other
    /// reason to rest than one of their own, or none.
    fn take_next(&mut self) {
        let mut at = 0;
        while at < self.crowds.free() {
            let Some(connection) = self.crowds.waiting.get(at) else {
                return;
            };
            let slot = self.slot(*connection).ok();
            let is_waiting =
                |slot: &u32| self.connections[*slot as usize].parked == Some(Park::Crowd);
            if let Some(slot) = slot.filter(is_waiting) {
                self.runnable.push_back(slot);
                at += 1;
            } else {
                self.crowds.waiting.remove(at);
            }
        }
    }

    /// Asserts what must hold of publishes on their way to very many.
    pub(super) fn validate_crowds(&self) {
        let crowds = &self.crowds;
        let spread = crowds.queue.iter().chain(&crowds.resting);
        let origins = spread.map(|each| each.origin);
        let origins = origins.chain(crowds.claiming.iter().map(Claiming::origin));
        for origin in origins {
            let inbound = match origin {
                DOOR => &self.door,
                origin => &self.sessions[origin as usize].inbound,
            };
            assert!(
                inbound.is_held_up() || !inbound.is_empty(),
                "nothing overtakes it"
            );
        }
        for (_, connection) in &self.connections {
            assert!(
                connection.parked != Some(Park::Crowd)
                    || crowds.waiting.contains(&connection.id)
                    || !self.runnable.is_empty(),
                "who waits is let go on"
            );
        }
    }
}

fn subject(deferred: &Deferred, origin: u32) -> Subject<'_> {
    Subject::of(&deferred.message, origin, deferred.arrival)
}
