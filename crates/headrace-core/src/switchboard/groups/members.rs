//! A group and who is in it.

use std::collections::BTreeMap;

use super::ring::Ring;
use super::standings::Standings;
use super::work::{Waits, Work};
use super::Strategy;
use crate::hash::{Key, Map};
use crate::mqtt::packet::QoS;
use crate::session::{Durable, GroupId, Ids, Subscription, Terms};

/// A session in a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub session: u32,
    pub subscription: Subscription,
    /// Of its client id.
    pub hash: u64,
}

impl Member {
    /// What its subscription makes of a message.
    pub fn terms(&self, group: GroupId, qos: QoS, retain: bool) -> Terms {
        Terms {
            qos: self.subscription.qos.min(qos),
            retain: retain && self.subscription.retain_as_published,
            ids: Ids::of(self.subscription.id),
            group: Some(group),
            lease: None,
        }
    }
}

/// A group.
#[derive(Debug)]
pub(super) struct Group {
    pub id: GroupId,
    pub strategy: Strategy,
    /// As subscribed to, `$share/` included.
    pub text: Box<str>,
    /// Members whose clients are there.
    pub here: Vec<Member>,
    /// Where a session stands among those.
    pub places: Map<u32, usize>,
    /// Members whose clients are away, by session.
    pub away: BTreeMap<u32, Member>,
    /// Whose turn it is.
    pub turn: usize,
    /// The member that gets everything.
    pub favourite: Option<u32>,
    /// Whose a key is, where the strategy has keys.
    pub ring: Ring,
    /// Who is asked first, where the strategy has an order.
    pub standings: Standings,
    /// What waits.
    pub work: Work,
    /// Somebody had a place in its window for what waits, and no room: what comes behind that may
    /// be small enough.
    pub is_picky: bool,
    /// What the log has of it, once a member's session is kept there.
    pub durable: Option<Box<Durable>>,
}

impl Group {
    pub fn new(hash_key: Key, id: GroupId, strategy: Strategy, text: &str) -> Self {
        Self {
            id,
            strategy,
            text: text.into(),
            here: Vec::new(),
            places: Map::with_hasher(hash_key),
            away: BTreeMap::new(),
            turn: 0,
            favourite: None,
            ring: Ring::default(),
            standings: Standings::new(hash_key),
            work: Work::new(hash_key),
            is_picky: false,
            durable: None,
        }
    }

    pub fn len(&self) -> usize {
        self.here.len() + self.away.len()
    }

    /// Has a session take part, or be away.
    pub fn put(&mut self, member: Member, is_here: bool) {
        self.take_out(member.session);
        if is_here {
            self.places.insert(member.session, self.here.len());
            self.here.push(member);
            self.enrol(&member);
        } else {
            self.away.insert(member.session, member);
        }
    }

    /// Takes a session out. What waits for it is to be looked at.
    pub fn take_out(&mut self, session: u32) -> Option<Member> {
        let Some(place) = self.places.remove(&session) else {
            return self.away.remove(&session);
        };
        let member = self.here.swap_remove(place);
        if let Some(moved) = self.here.get(place) {
            self.places.insert(moved.session, place);
        }
        self.ring.remove(session, member.hash);
        self.standings.remove(session);
        self.work.release(session);
        Some(member)
    }

    /// Lets the strategy know of a member that is there.
    fn enrol(&mut self, member: &Member) {
        let Member { session, hash, .. } = *member;
        if self.strategy.has_keys() {
            self.ring.insert(session, hash);
            if self.work.queued() > 0 {
                let keys = self.ring.keys(session, hash);
                self.work.claim(session, keys);
            }
        }
        if self.strategy.has_standings() {
            self.standings.set(session, 0);
        }
    }

    /// Goes by another strategy. What waits is in its lanes, to be looked at.
    pub fn renew(&mut self, strategy: Strategy, hash_key: Key) {
        self.strategy = strategy;
        self.ring = Ring::default();
        self.standings = Standings::new(hash_key);
        for owed in std::mem::replace(&mut self.work, Work::new(hash_key)).into_all() {
            let key = strategy.key_of(hash_key, &owed.message);
            self.work.push(key, owed, Waits::Due);
        }
        for member in self.here.clone() {
            self.enrol(&member);
        }
    }

    pub fn member(&self, session: u32) -> Option<&Member> {
        let here = self.places.get(&session).map(|place| &self.here[*place]);
        here.or_else(|| self.away.get(&session))
    }

    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.here.iter().chain(self.away.values())
    }

    /// Whether any member takes what must not be lost.
    pub fn keeps(&self) -> bool {
        self.members()
            .any(|member| member.subscription.qos > QoS::AtMostOnce)
    }
}
