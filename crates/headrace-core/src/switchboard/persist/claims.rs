//! Who is owed a publish by the log.

use std::sync::Arc;

use super::record::{write_claim, Copy};
use crate::mqtt::packet::QoS;
use crate::session::{Claim, Due, Message, Owner, Terms};
use crate::switchboard::outgoing::Outgoing;
use crate::switchboard::publish::Incoming;
use crate::switchboard::route::{Route, Subject};
use crate::switchboard::streams::Waiter;
use crate::switchboard::{Counter, Switchboard, DOOR};

impl Switchboard {
    /// Gives a place to each session and group that lasts and gets the publish at hand.
    pub(in crate::switchboard) fn dues(&mut self, route: &Route, qos: QoS) -> Vec<Due> {
        let mut dues = Vec::new();
        if qos == QoS::AtMostOnce || !self.persistence.is_on() {
            return dues;
        }
        for target in &route.targets {
            dues.extend(self.due(target.session, &target.terms));
        }
        for slot in &route.groups {
            dues.extend(self.due_of_group(*slot));
        }
        dues
    }

    pub(in crate::switchboard) fn due_of_group(&mut self, slot: u32) -> Option<Due> {
        let durable = self.groups.durable(slot)?;
        let number = durable.number;
        let owner = Owner::Group { slot, number };
        Some(Due {
            claim: Claim::new(owner, durable.places.give(), &self.persistence.ends),
            terms: None,
        })
    }

    pub(in crate::switchboard) fn due(&mut self, slot: u32, terms: &Terms) -> Option<Due> {
        let durable = self.sessions[slot as usize].durable.as_mut()?;
        if terms.qos == QoS::AtMostOnce {
            return None;
        }
        let number = durable.number;
        let owner = Owner::Session { slot, number };
        Some(Due {
            claim: Claim::new(owner, durable.places.give(), &self.persistence.ends),
            terms: Some(terms.clone()),
        })
    }

    /// Has a publish wait for the log, where that must have it: for who is owed it, and at `QoS` 2
    /// for its packet id. True where it waits.
    pub(in crate::switchboard) fn must_wait(
        &mut self,
        incoming: &Incoming<'_>,
        dues: &[Due],
    ) -> bool {
        let (origin, qos) = (incoming.origin, incoming.publish.qos);
        let ordinal = self.inbound(origin).next_ordinal();
        self.waits_for_log(
            Waiter { origin, ordinal },
            qos,
            incoming.token,
            !dues.is_empty(),
        )
    }

    /// The same for one whose place among the publishes of its origin is known.
    pub(in crate::switchboard) fn waits_for_log(
        &mut self,
        waiter: Waiter,
        qos: QoS,
        token: u64,
        is_owed: bool,
    ) -> bool {
        let origin = waiter.origin;
        let mut must_wait = is_owed;
        if origin != DOOR && token != 0 && qos == QoS::ExactlyOnce {
            let session = &mut self.sessions[origin as usize];
            must_wait |= session.durable.is_some();
            self.persistence.cursor_due(session);
        }
        if must_wait {
            self.persistence.wait(Some(waiter));
        }
        must_wait
    }

    /// Stores a message for those who are owed it, beside what else its publisher has on the log.
    pub(in crate::switchboard) fn store_for(
        &mut self,
        origin: u32,
        message: &Arc<Message>,
        dues: &[Due],
    ) {
        if dues.is_empty() {
            return;
        }
        let mut claims = Vec::new();
        for due in dues {
            write_due(due, &mut claims);
        }
        self.store_with(origin, message, claims);
    }

    /// The same with claims that are written already.
    pub(in crate::switchboard) fn store_with(
        &mut self,
        origin: u32,
        message: &Arc<Message>,
        claims: Vec<u8>,
    ) {
        let partition = match origin {
            DOOR => 0,
            origin => {
                let client_id = &self.sessions[origin as usize].client_id;
                self.persistence.partition_of(client_id)
            }
        };
        self.persistence.store(message, partition, claims.into());
    }

    /// Whether one who is owed a publish has given up all that matched it: nothing comes behind
    /// UNSUBACK.
    pub(in crate::switchboard) fn has_left(&self, due: &Due, subject: &Subject<'_>) -> bool {
        match due.claim.owner {
            Owner::Session { slot, number } if self.is_numbered(slot, number) => {
                let unsubscribed = self.sessions[slot as usize].unsubscribed;
                unsubscribed >= subject.arrival && self.still_matching(slot, subject).is_empty()
            }
            _ => false,
        }
    }

    /// Delivers to one who is owed a message, now that the log has it, or drops it where it has
    /// expired; not to one that ended meanwhile.
    pub(in crate::switchboard) fn deliver_due(
        &mut self,
        Due { claim, terms }: &Due,
        expired: bool,
        outgoing: &mut Outgoing<'_>,
    ) {
        let kept = Some(Arc::clone(claim));
        match (claim.owner, terms) {
            (Owner::Session { slot, number }, Some(terms)) => {
                if !self.is_numbered(slot, number) || !self.hears(slot, outgoing) {
                    return;
                }
                if expired {
                    self.drops(slot, Counter::DroppedExpired, outgoing, 0);
                } else {
                    self.deliver(slot, terms, kept, outgoing);
                }
            }
            (Owner::Group { slot, number }, _) => {
                let durable = self.groups.durable(slot);
                if durable.is_none_or(|durable| durable.number != number) {
                    return;
                }
                if expired {
                    self.drops(DOOR, Counter::DroppedExpired, outgoing, 0);
                } else {
                    self.deliver_to_group(slot, kept, outgoing);
                }
            }
            (Owner::Session { .. }, None) => unreachable!("a session has terms"),
            (Owner::Feed { .. }, _) => unreachable!("a feed is owed nothing"),
        }
    }

    /// Whether a slot still is that session's.
    pub(in crate::switchboard) fn is_numbered(&self, slot: u32, number: u64) -> bool {
        let session = self.sessions.get(slot as usize);
        let durable = session.and_then(|session| session.durable.as_ref());
        durable.is_some_and(|durable| durable.number == number)
    }
}

/// Adds a claim to those of a message.
pub(in crate::switchboard) fn write_due(Due { claim, terms }: &Due, claims: &mut Vec<u8>) {
    let copy = terms.as_ref().map_or_else(Copy::default, |terms| Copy {
        qos: terms.qos,
        retain: terms.retain,
        ids: terms.ids.clone(),
    });
    write_claim(claim.owner.number(), claim.place, &copy, claims);
}
