//! Which member of a group gets a message (MQTT 5.0 4.8.2).

use std::hash::BuildHasher;

use super::members::Group;
use super::standings::Standings;
use super::work::{Waits, ONLY_LANE};
use super::{Member, Switchboard};
use crate::hash::Key;
use crate::mqtt::packet::QoS;
use crate::session::{Load, Message, OVERHEAD_BYTES};
use crate::switchboard::outgoing::{topic_of, Outgoing};
use crate::switchboard::route::Route;
use crate::switchboard::{Counter, Limits, DOOR};
use crate::{topic, Now};

/// Members that are asked in their places before those that are known to have room: most of the time
/// one of these has, and they cost no order.
const PROBES_MAX: usize = 4;

/// Which member gets the next message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// Any.
    Random,
    /// Always the same one, until it goes or can take no more.
    Sticky,
    /// One for each topic, in order. Only the topics of a member that comes or goes move.
    HashTopic,
    /// One for each publisher, in order.
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

    /// Whether it gives all of one key to one member, in order.
    pub(super) const fn has_keys(self) -> bool {
        matches!(self, Self::HashTopic | Self::HashClient)
    }

    /// Whether its members are asked in an order of theirs.
    pub(super) const fn has_standings(self) -> bool {
        matches!(self, Self::RoundRobin | Self::Random | Self::LeastInFlight)
    }

    /// Whether a member is given more than its window has room for.
    const fn is_pinned(self) -> bool {
        matches!(self, Self::Sticky) || self.has_keys()
    }

    /// The lane of a publish in a group.
    pub(super) fn key(self, hash_key: Key, topic: &[u8], publisher: u32) -> u64 {
        match self {
            Self::HashTopic => hash_key.hash_one(topic),
            Self::HashClient => mix(u64::from(publisher)),
            _ => ONLY_LANE,
        }
    }

    /// The lane of a message in a group.
    pub(super) fn key_of(self, hash_key: Key, message: &Message) -> u64 {
        let topic = topic_of(message).as_bytes();
        self.key(hash_key, topic, message.publisher)
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
    Wait(Waits),
    /// Nobody who is there can ever take it.
    Drop(Counter),
}

impl Switchboard {
    /// Has each group go by the strategy that limits now name for it.
    pub(in crate::switchboard) fn renew_strategies(&mut self, now: Now) {
        let mut renewed = Vec::new();
        for (slot, group) in &mut self.groups.slots {
            let strategy = Strategy::of(&group.text, &self.limits);
            if strategy != group.strategy {
                group.renew(strategy, self.hash_key);
                renewed.push(slot as u32);
            }
        }
        for slot in renewed {
            self.pump_group(slot, None, now);
        }
    }

    /// Hash of who published, where one of the groups of its route asks for it ([`Strategy::HashClient`]).
    /// What waits keeps it on the log, so it is the same after a restart.
    pub(in crate::switchboard) fn publisher_hash(&self, origin: u32, route: &Route) -> u32 {
        let strategy = |slot: &u32| self.groups.slots[*slot as usize].strategy;
        let mut strategies = route.groups.iter().map(strategy);
        // Of a crowd the route has not all groups.
        let may_ask = route.is_crowd || strategies.any(|each| each == Strategy::HashClient);
        if origin == DOOR || !may_ask {
            return 0;
        }
        Key::default().hash_one(&*self.sessions[origin as usize].client_id) as u32
    }

    /// The member that gets a message; `first` is asked first where it does not matter. Whoever has
    /// room again asks for itself, so while work waits the others need not be asked: asking all for
    /// each acknowledgement would cost their number.
    pub(super) fn choose(
        &mut self,
        slot: u32,
        key: u64,
        outgoing: &Outgoing<'_>,
        first: Option<u32>,
    ) -> Choice {
        let group = &self.groups.slots[slot as usize];
        let strategy = group.strategy;
        if group.here.is_empty() {
            return Choice::Wait(Waits::Anyone);
        }
        if strategy.has_keys() {
            return self.choose_by_key(slot, key, outgoing);
        }
        let place = |session: u32| group.places.get(&session).copied();
        let can_take = |place: &usize| self.can_take(slot, *place, outgoing);
        let first = first.and_then(place);
        let favourite = group.favourite.filter(|_| strategy == Strategy::Sticky);
        let favourite = favourite.and_then(place);
        let place = match favourite.filter(can_take).or(first.filter(can_take)) {
            Some(place) => Some(place),
            None => match first.map(|place| &group.here[place]) {
                Some(asks) if !group.is_picky && self.is_busy(asks, outgoing) => {
                    return Choice::Wait(Waits::Anyone);
                }
                _ => self.free_member(slot, outgoing),
            },
        };
        let Some(place) = place else {
            return self.why_nobody(slot, outgoing);
        };
        // What the favourite may never have is no reason to leave it.
        let stays = favourite.is_some_and(|place| !self.may_take(slot, place, outgoing));
        let group = &mut self.groups.slots[slot as usize];
        let member = group.here[place];
        group.turn = place + 1;
        if !stays {
            group.favourite = Some(member.session);
        }
        if strategy == Strategy::LeastInFlight {
            let turn = self.groups.next_turn();
            let state = &mut self.sessions[member.session as usize];
            let load = state.outbound.load().messages + 1;
            state.told = None;
            let group = &mut self.groups.slots[slot as usize];
            group.standings.give(member.session, load, turn);
        }
        Choice::Give(member)
    }

    /// The one whose key it is; while another one has some of that key, or it has no room, nobody.
    fn choose_by_key(&mut self, slot: u32, key: u64, outgoing: &Outgoing<'_>) -> Choice {
        let group = &self.groups.slots[slot as usize];
        let owner = group.ring.owner(key).expect("somebody is there");
        let mut place = Some(group.places[&owner]);
        if !place.is_some_and(|place| self.may_take(slot, place, outgoing)) {
            // The highest of as many random weights, for the same reason: no key moves but for
            // members that come or go (rendezvous hashing: Thaler, Ravishankar 1998).
            let places = 0..group.here.len();
            let able = places.filter(|place| self.may_take(slot, *place, outgoing));
            place = able.max_by_key(|place| mix(group.here[*place].hash ^ key));
        }
        let Some(place) = place else {
            return self.why_nobody(slot, outgoing);
        };
        let member = group.here[place];
        let holder = group.work.holder(key);
        let is_held = holder.is_some_and(|holder| holder != member.session);
        if is_held && outgoing.qos > QoS::AtMostOnce {
            return Choice::Wait(Waits::Lease);
        }
        if self.can_take(slot, place, outgoing) {
            Choice::Give(member)
        } else {
            Choice::Wait(Waits::Member(member.session))
        }
    }

    /// Nobody can take a message now: whether somebody can later.
    fn why_nobody(&mut self, slot: u32, outgoing: &Outgoing<'_>) -> Choice {
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
        let is_picky = if group.strategy.has_standings() {
            !group.standings.is_empty()
        } else {
            let is_idle = |member: &Member| !self.is_busy(member, outgoing);
            group.here.iter().any(is_idle)
        };
        self.groups.slots[slot as usize].is_picky = is_picky;
        Choice::Wait(Waits::Anyone)
    }

    /// A client has more to do, or less, or has room again: tells the groups that ask.
    pub(super) fn tell_load(&mut self, session: u32) {
        let state = &mut self.sessions[session as usize];
        let load = state.outbound.load();
        let told = state.told.replace(load);
        if told == Some(load) {
            return;
        }
        let Load { messages, has_room } = load;
        let had_room = told.is_some_and(|told| told.has_room);
        for slot in &state.groups {
            let group = &mut self.groups.slots[*slot as usize];
            match group.strategy {
                Strategy::LeastInFlight => group.standings.set(session, messages),
                Strategy::RoundRobin | Strategy::Random if has_room && !had_room => {
                    group.standings.set(session, 0);
                }
                _ => {}
            }
        }
    }

    /// Whether a member's window has no room for a message, of whatever size.
    fn is_busy(&self, member: &Member, outgoing: &Outgoing<'_>) -> bool {
        let qos = member.subscription.qos.min(outgoing.qos);
        let outbound = &self.sessions[member.session as usize].outbound;
        qos > QoS::AtMostOnce && !outbound.has_room()
    }

    /// Where a member stands that can take a message at once.
    fn free_member(&mut self, slot: u32, outgoing: &Outgoing<'_>) -> Option<usize> {
        let Group { strategy, turn, .. } = self.groups.slots[slot as usize];
        let begin = match strategy {
            Strategy::Random => self.groups.next_random() as usize,
            _ => turn,
        };
        if strategy.has_standings() {
            let found = match strategy {
                Strategy::LeastInFlight => None,
                _ => self.free_from(begin, PROBES_MAX, slot, outgoing),
            };
            let found = found.or_else(|| self.first_standing(slot, outgoing));
            // At QoS 0, those without room in their windows may have it all the same.
            if found.is_some() || outgoing.qos > QoS::AtMostOnce {
                return found;
            }
        }
        self.free_from(begin, usize::MAX, slot, outgoing)
    }

    /// The first, of so many from a place on, that can take a message at once.
    fn free_from(
        &self,
        begin: usize,
        probes: usize,
        slot: u32,
        outgoing: &Outgoing<'_>,
    ) -> Option<usize> {
        let count = self.groups.slots[slot as usize].here.len();
        let mut places = (0..count.min(probes)).map(|step| (begin % count + step) % count);
        places.find(|place| self.can_take(slot, *place, outgoing))
    }

    /// Where the first one stands, in the order of the strategy, that can take a message at once.
    fn first_standing(&mut self, slot: u32, outgoing: &Outgoing<'_>) -> Option<usize> {
        let strategy = self.groups.slots[slot as usize].strategy;
        let (from, turn) = match strategy {
            Strategy::Random => (self.groups.next_random(), self.groups.next_random()),
            _ => (0, self.groups.next_turn()),
        };
        let group = &mut self.groups.slots[slot as usize];
        let none = Standings::new(self.hash_key);
        let mut standings = std::mem::replace(&mut group.standings, none);
        let group = &self.groups.slots[slot as usize];
        let load = |session: u32| {
            let is_busy = self.is_busy(&group.here[group.places[&session]], outgoing);
            let outbound = &self.sessions[session as usize].outbound;
            (!is_busy).then(|| match strategy {
                Strategy::LeastInFlight => outbound.load().messages,
                _ => 0,
            })
        };
        let can_take = |session: u32| self.can_take(slot, group.places[&session], outgoing);
        let first = standings.first(from, load, can_take);
        if let Some(session) = first.filter(|_| strategy != Strategy::LeastInFlight) {
            standings.give(session, 0, turn);
        }
        let place = first.map(|session| group.places[&session]);
        for session in standings.left_out() {
            self.sessions[session as usize].told = None;
        }
        self.groups.slots[slot as usize].standings = standings;
        place
    }

    /// Whether a member that is there can take a message within its bounds: at once, or where the
    /// message must go to it, later.
    pub(super) fn can_take(&self, slot: u32, place: usize, outgoing: &Outgoing<'_>) -> bool {
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
