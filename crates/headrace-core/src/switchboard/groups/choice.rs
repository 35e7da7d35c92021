//! Which member of a group gets a message (MQTT 5.0 4.8.2).

use std::hash::BuildHasher;

use super::{Member, Switchboard};
use crate::mqtt::packet::QoS;
use crate::session::OVERHEAD_BYTES;
use crate::switchboard::outgoing::Outgoing;
use crate::switchboard::{Counter, Limits, DOOR};
use crate::topic;

/// Which member gets the next message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// Any.
    Random,
    /// Always the same one, until it goes.
    Sticky,
    /// One for each topic. Only the topics of a member that comes or goes move.
    HashTopic,
    /// One for each publisher.
    HashClient,
    /// The one with the least to do.
    LeastInFlight,
}

impl Strategy {
    /// Reads the name of a setting; None for any other.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "round-robin" => Some(Self::RoundRobin),
            "random" => Some(Self::Random),
            "sticky" => Some(Self::Sticky),
            "hash-topic" => Some(Self::HashTopic),
            "hash-client" => Some(Self::HashClient),
            "least-in-flight" => Some(Self::LeastInFlight),
            _ => None,
        }
    }

    /// That of the group of a text, which its name or nothing says.
    pub(super) fn of(text: &str, limits: &Limits) -> Self {
        let parsed = topic::Subscription::parse(text).expect("it was parsed when subscribed");
        let mut named = limits.shared_strategies.iter();
        let own = named.find(|(name, _)| parsed.group == Some(&**name));
        own.map_or(limits.shared_strategy, |(_, strategy)| *strategy)
    }

    /// Whether a message has one member that it must go to, and waits for it where it is busy.
    const fn is_pinned(self) -> bool {
        matches!(self, Self::Sticky | Self::HashTopic | Self::HashClient)
    }
}

/// Spreads the bits of a number (the finalizer of `SplitMix64`).
pub(super) const fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ z >> 31
}

/// What a group can do with a message now.
pub(super) enum Choice {
    Give(Member),
    /// Somebody may be able to take it later.
    Wait,
    /// Nobody who is there can ever take it.
    Drop(Counter),
}

impl Switchboard {
    /// Has each group go by the strategy that limits now name for it.
    pub(in crate::switchboard) fn renew_strategies(&mut self) {
        for (_, group) in &mut self.groups.slots {
            group.strategy = Strategy::of(&group.text, &self.limits);
        }
    }

    /// Hash of who published, where one of so many groups asks for it ([`Strategy::HashClient`]).
    pub(in crate::switchboard) fn publisher_hash(&self, origin: u32, groups: &[u32]) -> u32 {
        let strategy = |slot: &u32| self.groups.slots[*slot as usize].strategy;
        if origin == DOOR
            || !groups
                .iter()
                .any(|slot| strategy(slot) == Strategy::HashClient)
        {
            return 0;
        }
        self.hash_key
            .hash_one(&*self.sessions[origin as usize].client_id) as u32
    }

    /// The member that gets a message; `first` is asked first where it does not matter. Whoever has
    /// room again asks for itself, so while work waits the others need not be asked: asking all for
    /// each acknowledgement would cost their number.
    pub(super) fn choose(
        &mut self,
        slot: u32,
        outgoing: &Outgoing<'_>,
        first: Option<u32>,
    ) -> Choice {
        let group = &self.groups.slots[slot as usize];
        let strategy = group.strategy;
        if group.here.is_empty() {
            return Choice::Wait;
        }
        let place = if strategy.is_pinned() {
            let pinned = self.pinned(slot, outgoing);
            pinned.filter(|place| self.can_take(slot, *place, outgoing))
        } else {
            let first = first.and_then(|session| group.places.get(&session).copied());
            match first {
                Some(place) if self.can_take(slot, place, outgoing) => Some(place),
                Some(place) if !group.is_picky && self.is_busy(&group.here[place], outgoing) => {
                    return Choice::Wait;
                }
                _ => self.free_member(slot, outgoing),
            }
        };
        let group = &mut self.groups.slots[slot as usize];
        if let Some(place) = place {
            let member = group.here[place];
            group.turn = place + 1;
            group.favourite = Some(member.session);
            return Choice::Give(member);
        }
        let group = &self.groups.slots[slot as usize];
        let here = group.here.iter();
        let mut hearers = here.filter(|member| self.hears(member.session, outgoing));
        let mut why = Counter::DroppedDenied;
        let may_later = hearers.any(|member| {
            why = Counter::DroppedTooLarge;
            self.fits(slot, member, outgoing)
        });
        if !may_later {
            return Choice::Drop(why);
        }
        let is_idle = |member: &Member| !self.is_busy(member, outgoing);
        let is_picky = group.here.iter().any(is_idle);
        self.groups.slots[slot as usize].is_picky = is_picky;
        Choice::Wait
    }

    /// Whether a member's window has no room for a message, of whatever size.
    fn is_busy(&self, member: &Member, outgoing: &Outgoing<'_>) -> bool {
        let qos = member.subscription.qos.min(outgoing.qos);
        let outbound = &self.sessions[member.session as usize].outbound;
        qos > QoS::AtMostOnce && !outbound.has_room()
    }

    /// Where the one member stands that a message must go to; None where it may come to none.
    fn pinned(&self, slot: u32, outgoing: &Outgoing<'_>) -> Option<usize> {
        let group = &self.groups.slots[slot as usize];
        let count = group.here.len();
        let hears = |place: &usize| self.hears(group.here[*place].session, outgoing);
        let hash = match group.strategy {
            Strategy::HashClient => u64::from(outgoing.publisher),
            Strategy::HashTopic => self.hash_key.hash_one(outgoing.topic()),
            _ => {
                let favourite = group
                    .favourite
                    .and_then(|session| group.places.get(&session));
                let others = (0..count).map(|step| (group.turn + step) % count);
                return favourite.copied().into_iter().chain(others).find(hears);
            }
        };
        // The highest of as many random weights: each message keeps its member while that is
        // there, whoever else comes and goes (rendezvous hashing).
        let weight = |place: &usize| mix(group.here[*place].hash ^ hash);
        (0..count).filter(hears).max_by_key(weight)
    }

    /// Where a member stands that can take a message at once.
    fn free_member(&mut self, slot: u32, outgoing: &Outgoing<'_>) -> Option<usize> {
        let group = &self.groups.slots[slot as usize];
        let (count, strategy, turn) = (group.here.len(), group.strategy, group.turn);
        let begin = match strategy {
            Strategy::Random => self.groups.next_random() as usize,
            _ => turn,
        };
        let places = (0..count).map(|step| (begin % count + step) % count);
        let mut free = places.filter(|place| self.can_take(slot, *place, outgoing));
        match strategy {
            Strategy::LeastInFlight => free.min_by_key(|place| {
                let member = &self.groups.slots[slot as usize].here[*place];
                let outbound = &self.sessions[member.session as usize].outbound;
                outbound.in_flight() + outbound.queued()
            }),
            _ => free.next(),
        }
    }

    /// Whether a member that is there can take a message within its bounds: at once, or where the
    /// message must go to it, later.
    fn can_take(&self, slot: u32, place: usize, outgoing: &Outgoing<'_>) -> bool {
        let group = &self.groups.slots[slot as usize];
        let member = &group.here[place];
        let qos = member.subscription.qos.min(outgoing.qos);
        let outbound = &self.sessions[member.session as usize].outbound;
        let may_wait = group.strategy.is_pinned() || qos == QoS::AtMostOnce;
        let bytes = self.bytes_for(slot, member, outgoing);
        // What a group gives is held until it is finished, to be given to another.
        let held = outbound.held_bytes() + bytes + OVERHEAD_BYTES;
        self.may_take(slot, place, outgoing)
            && (may_wait || outbound.has_room())
            && (qos == QoS::AtMostOnce || held <= self.limits.queued_bytes_max)
            && self.bound_reached(member.session, qos, bytes, 0).is_none()
    }

    /// Whether a member that is there can ever take a message.
    fn may_take(&self, slot: u32, place: usize, outgoing: &Outgoing<'_>) -> bool {
        let member = &self.groups.slots[slot as usize].here[place];
        self.hears(member.session, outgoing) && self.fits(slot, member, outgoing)
    }

    fn fits(&self, slot: u32, member: &Member, outgoing: &Outgoing<'_>) -> bool {
        let connection = self.sessions[member.session as usize].connection;
        let connection = &self.connections[connection.expect("it is there") as usize];
        let qos = member.subscription.qos.min(outgoing.qos);
        self.bytes_for(slot, member, outgoing) <= self.bytes_max(connection, qos)
    }

    fn bytes_for(&self, slot: u32, member: &Member, outgoing: &Outgoing<'_>) -> usize {
        let connection = self.sessions[member.session as usize].connection;
        let version = self.connections[connection.expect("it is there") as usize].version;
        let terms = member.terms(self.groups.id(slot), outgoing.qos, outgoing.retain);
        outgoing.bytes(version, &terms)
    }
}
