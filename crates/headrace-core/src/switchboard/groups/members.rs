//! A group and who is in it.

use std::collections::{BTreeMap, VecDeque};

use super::Strategy;
use crate::hash::{Key, Map};
use crate::mqtt::packet::QoS;
use crate::session::{Durable, GroupId, Ids, Owed, Subscription, Terms};

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
    pub queue: VecDeque<Owed>,
    pub queued_bytes: usize,
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
            queue: VecDeque::new(),
            queued_bytes: 0,
            is_picky: false,
            durable: None,
        }
    }

    pub fn len(&self) -> usize {
        self.here.len() + self.away.len()
    }

    pub fn put(&mut self, member: Member, is_here: bool) {
        self.take_out(member.session);
        if is_here {
            self.places.insert(member.session, self.here.len());
            self.here.push(member);
        } else {
            self.away.insert(member.session, member);
        }
    }

    pub fn take_out(&mut self, session: u32) -> Option<Member> {
        let Some(place) = self.places.remove(&session) else {
            return self.away.remove(&session);
        };
        let member = self.here.swap_remove(place);
        if let Some(moved) = self.here.get(place) {
            self.places.insert(moved.session, place);
        }
        Some(member)
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
