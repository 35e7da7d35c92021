//! How a client subscribed, and what that makes of a publish on its way to it
//! (MQTT 5.0 3.8.3.1, 3.3.4).

use std::num::NonZeroU64;
use std::sync::Arc;

use super::{Claim, Lease, Memory, Message, Seat};
use crate::mqtt::packet::QoS;

/// How a client subscribed to a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Highest quality of service of what is sent.
    pub qos: QoS,
    /// Never send the client its own publishes.
    pub no_local: bool,
    /// Keep the RETAIN flag as published.
    pub retain_as_published: bool,
    /// Subscription Identifier; 0 without one.
    pub id: u32,
    /// What held for publishes up to the arrival `since`: `qos` of a subscription that this one
    /// replaced, or None where there was none.
    pub before: Option<QoS>,
    /// The last arrival before the subscription, or before the first of those that it replaced one
    /// by one and that were above `QoS` 0 where it is.
    pub since: u64,
}

impl Subscription {
    /// `before` and `since` of a subscription at `qos` that begins or replaces another. What was
    /// sent when it came, at `QoS` 0, and what waits for the disk above it, is told apart by these;
    /// so a client that repeats itself must not move them.
    pub fn history(replaced: Option<&Self>, qos: QoS, arrivals: u64) -> (Option<QoS>, u64) {
        let waits = |qos| qos > QoS::AtMostOnce;
        match replaced {
            Some(same) if waits(same.qos) == waits(qos) => (same.before, same.since),
            other => (other.map(|other| other.qos), arrivals),
        }
    }

    /// What holds for the publish of that arrival, which may still wait for the disk: replacing a
    /// subscription loses nothing (MQTT 5.0 3.8.4). None where there was no subscription yet.
    pub fn qos_at(&self, arrival: u64) -> Option<QoS> {
        if arrival > self.since {
            Some(self.qos)
        } else {
            self.before
        }
    }
}

/// The Subscription Identifiers of one copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Ids {
    /// No subscription that matched has one.
    #[default]
    None,
    /// The usual case costs no allocation.
    One(u32),
    /// Of overlapping subscriptions.
    Many(Vec<u32>),
}

impl Ids {
    /// The identifier of one subscription; 0 is none.
    pub const fn of(id: u32) -> Self {
        match id {
            0 => Self::None,
            id => Self::One(id),
        }
    }

    /// Adds that of another subscription; 0 is none.
    pub fn add(&mut self, id: u32) {
        if id != 0 {
            match self {
                Self::None => *self = Self::One(id),
                Self::One(first) => *self = Self::Many(vec![*first, id]),
                Self::Many(ids) => ids.push(id),
            }
        }
    }

    /// All of them.
    pub fn as_slice(&self) -> &[u32] {
        match self {
            Self::None => &[],
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }
}

/// A shared subscription that gave a message to one of its members. No two groups ever have the
/// same, so what a group has given may outlive it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(NonZeroU64);

impl GroupId {
    /// The first.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// The one after it.
    ///
    /// # Panics
    /// Never: no time is long enough.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.checked_add(1).expect("they are fewer"))
    }
}

/// What the subscriptions of one session make of one publish.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The lower of what was published and what was granted.
    pub qos: QoS,
    /// RETAIN flag of the copy.
    pub retain: bool,
    /// Its Subscription Identifiers.
    pub ids: Ids,
    /// To which group it belongs until the exchange is over.
    pub group: Option<GroupId>,
    /// Where that group keeps its key in order.
    pub lease: Option<Arc<Lease>>,
}

impl Terms {
    /// One more subscription of the session matches: one copy is sent, at the highest quality of
    /// service, with all identifiers (MQTT 5.0 3.3.4).
    pub fn join(&mut self, qos: QoS, retain: bool, id: u32) {
        self.qos = self.qos.max(qos);
        self.retain |= retain;
        self.ids.add(id);
    }
}

/// A message on its way to one session.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// What all receivers have in common.
    pub message: Arc<Message>,
    /// What this one has of its own.
    pub terms: Terms,
    /// Where the log has it that it is owed.
    pub claim: Option<Arc<Claim>>,
    /// What it costs that it waits.
    pub seat: Seat,
}

impl Delivery {
    /// A message that waits for a session: both are counted from now on.
    pub fn new(
        message: Arc<Message>,
        terms: Terms,
        claim: Option<Arc<Claim>>,
        memory: &Memory,
    ) -> Self {
        message.hold(memory);
        let seat = Seat::take(memory);
        Self {
            message,
            terms,
            claim,
            seat,
        }
    }
}

/// A message that waits for a member of a group.
#[derive(Clone, Debug)]
pub struct Owed {
    /// The message.
    pub message: Arc<Message>,
    /// Of the group, where the log has it.
    pub claim: Option<Arc<Claim>>,
    /// What it costs that it waits.
    pub seat: Seat,
}

impl Owed {
    /// A message that waits for a group: both are counted from now on.
    pub fn new(message: Arc<Message>, claim: Option<Arc<Claim>>, memory: &Memory) -> Self {
        message.hold(memory);
        let seat = Seat::take(memory);
        Self {
            message,
            claim,
            seat,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mqtt_3_3_4_identifiers_of_overlapping_subscriptions_are_joined_equal_ones_too() {
        let mut terms = Terms {
            qos: QoS::AtMostOnce,
            retain: false,
            ids: Ids::of(0),
            group: None,
            lease: None,
        };
        assert_eq!(terms.ids.as_slice(), [0; 0]);
        for (qos, id) in [
            (QoS::AtLeastOnce, 7),
            (QoS::AtMostOnce, 0),
            (QoS::AtMostOnce, 9),
            (QoS::AtMostOnce, 7),
        ] {
            terms.join(qos, false, id);
        }
        assert_eq!(terms.ids.as_slice(), [7, 9, 7]);
        assert_eq!(terms.qos, QoS::AtLeastOnce);
    }
}
