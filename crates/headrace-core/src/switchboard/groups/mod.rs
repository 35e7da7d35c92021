//! Shared subscriptions: groups whose members share the work (MQTT 5.0 4.8.2).
//!
//! A group is what `$share/{name}/{filter}` names. A publish that the filter matches goes to one
//! member that is there; which one is the group's [`Strategy`]. Work belongs to the group: while
//! nobody can take it, it waits in the group's own queue, and what a member that goes has not
//! finished at `QoS` 1 comes back to its front, also of one that has unsubscribed since. At `QoS` 2
//! what was sent stays with its member (MQTT-4.8.2-4, MQTT-4.8.2-5). What a member refuses is over
//! (MQTT-4.8.2-6).
//!
//! Who gets a message is in [`choice`].
//!
//! Invariants: a group has a member; what bears a group's mark was sent to a member of it, or waits
//! for one; nothing overtakes what waits in the queue.

mod choice;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;

use slab::Slab;

pub use choice::Strategy;
use choice::{mix, Choice};

use super::outgoing::Outgoing;
use super::overflow::Policy;
use super::persist::Persistence;
use super::{Counter, Switchboard, DOOR};
use crate::hash::{Key, Map};
use crate::mqtt::packet::QoS;
use crate::session::{Claim, Durable, GroupId, Ids, Message, Owed, Subscription, Terms};
use crate::sums::sums;
use crate::topic::{Filter, Tree};
use crate::Now;

/// A session in a group.
#[derive(Clone, Copy, Debug)]
struct Member {
    session: u32,
    subscription: Subscription,
    /// Of its client id.
    hash: u64,
}

impl Member {
    /// What its subscription makes of a message.
    fn terms(&self, group: GroupId, qos: QoS, retain: bool) -> Terms {
        Terms {
            qos: self.subscription.qos.min(qos),
            retain: retain && self.subscription.retain_as_published,
            ids: Ids::of(self.subscription.id),
            group: Some(group),
        }
    }
}

#[derive(Debug)]
struct Group {
    id: GroupId,
    strategy: Strategy,
    /// As subscribed to, `$share/` included.
    text: Box<str>,
    /// Members whose clients are there.
    here: Vec<Member>,
    /// Where a session stands among those.
    places: Map<u32, usize>,
    /// Members whose clients are away, by session.
    away: BTreeMap<u32, Member>,
    /// Whose turn it is.
    turn: usize,
    /// The member that gets everything.
    favourite: Option<u32>,
    queue: VecDeque<Owed>,
    queued_bytes: usize,
    /// Somebody had a place in its window for what waits, and no room: what comes behind that may
    /// be small enough.
    is_picky: bool,
    /// What the log has of it, once a member's session is kept there.
    durable: Option<Box<Durable>>,
}

impl Group {
    fn new(hash_key: Key, id: GroupId, strategy: Strategy, text: &str) -> Self {
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

    fn len(&self) -> usize {
        self.here.len() + self.away.len()
    }

    fn put(&mut self, member: Member, is_here: bool) {
        self.take_out(member.session);
        if is_here {
            self.places.insert(member.session, self.here.len());
            self.here.push(member);
        } else {
            self.away.insert(member.session, member);
        }
    }

    fn take_out(&mut self, session: u32) -> Option<Member> {
        let Some(place) = self.places.remove(&session) else {
            return self.away.remove(&session);
        };
        let member = self.here.swap_remove(place);
        if let Some(moved) = self.here.get(place) {
            self.places.insert(moved.session, place);
        }
        Some(member)
    }

    fn member(&self, session: u32) -> Option<&Member> {
        let here = self.places.get(&session).map(|place| &self.here[*place]);
        here.or_else(|| self.away.get(&session))
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        self.here.iter().chain(self.away.values())
    }

    /// Whether any member takes what must not be lost.
    fn keeps(&self) -> bool {
        self.members()
            .any(|member| member.subscription.qos > QoS::AtMostOnce)
    }
}

sums! {
    /// What groups hold.
    OfGroups {
        members,
        /// Messages that wait.
        queued,
        /// Bytes of those.
        queued_bytes,
    }
}

/// All groups.
#[derive(Debug)]
pub(super) struct Groups {
    hash_key: Key,
    slots: Slab<Group>,
    by_text: Map<Box<str>, u32>,
    by_id: Map<GroupId, u32>,
    next_id: GroupId,
    tree: Tree<u32, ()>,
    /// Those with work that waits.
    waiting: BTreeSet<u32>,
    sums: OfGroups,
    random: u64,
}

impl Groups {
    pub fn new(hash_key: Key) -> Self {
        Self {
            hash_key,
            slots: Slab::new(),
            by_text: Map::with_hasher(hash_key),
            by_id: Map::with_hasher(hash_key),
            next_id: GroupId::FIRST,
            tree: Tree::new(hash_key),
            waiting: BTreeSet::new(),
            sums: OfGroups::default(),
            random: hash_key.hash_one("groups"),
        }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// What all of them hold.
    pub fn sums(&self) -> OfGroups {
        self.sums
    }

    /// Has work wait in a group, behind all else or before it.
    fn push(&mut self, slot: u32, owed: Owed, is_first: bool) {
        let bytes = owed.message.bytes();
        let group = &mut self.slots[slot as usize];
        group.queued_bytes += bytes;
        if is_first {
            group.queue.push_front(owed);
        } else {
            group.queue.push_back(owed);
        }
        self.waiting.insert(slot);
        self.sums.queued += 1;
        self.sums.queued_bytes += bytes;
    }

    /// Takes what has waited longest in a group.
    fn pop(&mut self, slot: u32) -> Option<Owed> {
        let group = &mut self.slots[slot as usize];
        let owed = group.queue.pop_front()?;
        let bytes = owed.message.bytes();
        group.queued_bytes -= bytes;
        if group.queue.is_empty() {
            self.waiting.remove(&slot);
        }
        self.sums.queued -= 1;
        self.sums.queued_bytes -= bytes;
        Some(owed)
    }

    /// Begins the group that a filter names.
    fn begin(&mut self, text: &str, filter: Filter<'_>, strategy: Strategy) -> u32 {
        let id = self.next_id;
        self.next_id = id.next();
        let slot = self
            .slots
            .insert(Group::new(self.hash_key, id, strategy, text)) as u32;
        self.by_text.insert(text.into(), slot);
        self.by_id.insert(id, slot);
        self.tree.insert(filter, slot, ());
        slot
    }

    /// What the messages of a group bear.
    pub fn id(&self, slot: u32) -> GroupId {
        self.slots[slot as usize].id
    }

    /// Removes a group that has no member any more.
    fn end(&mut self, slot: u32, filter: Filter<'_>) -> Group {
        let group = self.slots.remove(slot as usize);
        self.by_text.remove(&group.text);
        self.by_id.remove(&group.id);
        self.tree.remove(filter, &slot);
        self.waiting.remove(&slot);
        self.sums.queued -= group.queue.len();
        self.sums.queued_bytes -= group.queued_bytes;
        group
    }

    /// Adds the groups that match a topic, and have a member to which its messages may come; at how
    /// many places and groups it looked.
    #[inline]
    pub fn matches(&self, topic: &str, into: &mut Vec<u32>, hears: impl Fn(u32) -> bool) -> usize {
        into.clear();
        if self.tree.is_empty() {
            return 0;
        }
        let mut groups = 0;
        let places = self.tree.matches(topic, &mut |slot, ()| {
            groups += 1;
            let mut members = self.slots[*slot as usize].members();
            if members.any(|member| hears(member.session)) {
                into.push(*slot);
            }
        });
        places + groups
    }

    /// Those of a session that have work waiting.
    fn waiting_of(&self, of: &BTreeSet<u32>) -> Vec<u32> {
        if self.waiting.len() < of.len() {
            let waiting = self.waiting.iter();
            return waiting
                .copied()
                .filter(|group| of.contains(group))
                .collect();
        }
        let waits = |group: &u32| self.waiting.contains(group);
        of.iter().copied().filter(waits).collect()
    }

    /// What the log has of the group at a slot.
    pub fn durable(&mut self, slot: u32) -> Option<&mut Durable> {
        self.slots.get_mut(slot as usize)?.durable.as_deref_mut()
    }

    /// What the log has of a group.
    pub fn durable_of(&mut self, text: &str) -> Option<&mut Durable> {
        let slot = *self.by_text.get(text)?;
        self.durable(slot)
    }

    /// Texts of the groups in a partition of the log.
    pub fn durable_texts(&self, partition: u32) -> impl Iterator<Item = &str> + '_ {
        let slots = self.slots.iter();
        slots.filter_map(move |(_, group)| {
            let durable = group.durable.as_ref()?;
            (durable.partition == partition).then_some(&*group.text)
        })
    }

    /// Slot and number of each group that the log has.
    pub fn numbers(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let slots = self.slots.iter();
        slots.filter_map(|(slot, group)| Some((slot as u32, group.durable.as_ref()?.number)))
    }

    /// A group is owed a message no longer.
    pub fn end_place(&mut self, slot: u32, number: u64, place: u64, log: &mut Persistence) {
        let Some(group) = self.slots.get_mut(slot as usize) else {
            return;
        };
        let durable = group.durable.as_mut();
        let Some(durable) = durable.filter(|durable| durable.number == number) else {
            return;
        };
        durable.places.end(place);
        if !std::mem::replace(&mut durable.is_cursor_due, true) {
            log.group_due(&group.text);
        }
    }

    /// Takes in what a group is owed by the log.
    pub fn revive(&mut self, slot: u32, owed: impl IntoIterator<Item = Owed>) {
        for owed in owed {
            self.push(slot, owed, false);
        }
    }

    /// `SplitMix64`.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.random)
    }
}

impl Switchboard {
    /// A session subscribes to `$share/{name}/{filter}`, or changes how.
    pub(super) fn join_group(
        &mut self,
        session: u32,
        text: &str,
        filter: Filter<'_>,
        subscription: Subscription,
    ) {
        let groups = &mut self.groups;
        let known = groups.by_text.get(text).copied();
        let slot = known.unwrap_or_else(|| {
            let strategy = Strategy::of(text, &self.limits);
            groups.begin(text, filter, strategy)
        });
        let state = &mut self.sessions[session as usize];
        state.groups.insert(slot);
        let member = Member {
            session,
            subscription,
            hash: self.hash_key.hash_one(&*state.client_id),
        };
        let group = &mut groups.slots[slot as usize];
        let members = group.len();
        group.put(member, state.connection.is_some());
        groups.sums.members += group.len() - members;
        if state.durable.is_some() && group.durable.is_none() {
            group.durable = Some(self.persistence.begin(text).into());
            self.persistence.group_due(text);
        }
    }

    /// A session unsubscribes. What it was sent it may finish (MQTT-3.10.4-3), and if it goes before
    /// that, comes back; what it was not sent yet goes to the others.
    pub(super) fn leave_group(&mut self, session: u32, text: &str, filter: Filter<'_>, now: Now) {
        let slot = *self.groups.by_text.get(text).expect("it was joined");
        let state = &mut self.sessions[session as usize];
        state.groups.remove(&slot);
        let returned = state.outbound.withdraw(self.groups.id(slot));
        let group = &mut self.groups.slots[slot as usize];
        group.take_out(session).expect("it was a member");
        let is_over = group.len() == 0;
        self.groups.sums.members -= 1;
        self.recount_session(session);
        if !is_over {
            return self.give_back(slot, returned, now);
        }
        let group = self.groups.end(slot, filter);
        if group.durable.is_some() {
            self.persistence.group_due(&group.text);
        }
        for owed in returned.iter().chain(&group.queue) {
            self.drops_work(Counter::DroppedEnded, &owed.message);
        }
    }

    /// A client has come: its session takes part again.
    pub(super) fn members_here(&mut self, session: u32) {
        for slot in &self.sessions[session as usize].groups {
            let group = &mut self.groups.slots[*slot as usize];
            let member = *group.member(session).expect("it was a member");
            group.put(member, true);
        }
    }

    /// A client has gone: what it has not finished goes to the others.
    pub(super) fn members_away(&mut self, session: u32, now: Now) {
        let state = &mut self.sessions[session as usize];
        for slot in &state.groups {
            let group = &mut self.groups.slots[*slot as usize];
            let member = *group.member(session).expect("it was a member");
            group.put(member, false);
        }
        let by_id = &self.groups.by_id;
        let withdrawn = state.outbound.withdraw_all(|id| by_id.contains_key(&id));
        let mut returned: BTreeMap<u32, Vec<Owed>> = BTreeMap::new();
        for (id, owed) in withdrawn {
            returned.entry(by_id[&id]).or_default().push(owed);
        }
        self.recount_session(session);
        for (slot, owed) in returned {
            self.give_back(slot, owed, now);
        }
    }

    /// Puts work back before what waits, in its order.
    fn give_back(&mut self, slot: u32, returned: Vec<Owed>, now: Now) {
        if returned.is_empty() {
            return;
        }
        self.counters.add(Counter::Returned, returned.len());
        for owed in returned.into_iter().rev() {
            self.groups.push(slot, owed, true);
        }
        self.pump_group(slot, None, now);
    }

    pub(super) fn deliver_to_groups(&mut self, slots: &[u32], outgoing: &mut Outgoing<'_>) {
        for slot in slots {
            self.deliver_to_group(*slot, None, outgoing);
        }
    }

    /// Gives a publish to a group: to a member, or to the queue behind what waits.
    pub(super) fn deliver_to_group(
        &mut self,
        slot: u32,
        claim: Option<Arc<Claim>>,
        outgoing: &mut Outgoing<'_>,
    ) {
        let waits = !self.groups.slots[slot as usize].queue.is_empty();
        let qos = outgoing.qos;
        let choice = if waits && qos > QoS::AtMostOnce {
            Choice::Wait
        } else {
            self.choose(slot, outgoing, None)
        };
        match choice {
            Choice::Give(member) => {
                let terms = member.terms(self.groups.id(slot), qos, outgoing.retain);
                self.deliver(member.session, &terms, claim, outgoing);
            }
            Choice::Drop(why) => self.drops(DOOR, why, outgoing, 0),
            Choice::Wait if qos > QoS::AtMostOnce => self.wait_in_group(slot, claim, outgoing),
            Choice::Wait => self.drops(DOOR, Counter::DroppedGroupAway, outgoing, 0),
        }
    }

    /// Queues a publish that no member can take now, within the group's bounds.
    fn wait_in_group(&mut self, slot: u32, claim: Option<Arc<Claim>>, outgoing: &mut Outgoing<'_>) {
        if !self.groups.slots[slot as usize].keeps() {
            return self.drops(DOOR, Counter::DroppedGroupAway, outgoing, 0);
        }
        let message = outgoing.message();
        let bytes = message.bytes();
        let in_all = self.waiting_bytes() + outgoing.waiting_bytes();
        if in_all > self.limits.queued_bytes_of_node_max {
            return self.drops(DOOR, Counter::DroppedMemory, outgoing, bytes);
        }
        loop {
            let limits = &self.limits;
            let group = &self.groups.slots[slot as usize];
            if group.queue.len() < limits.group_messages_max
                && group.queued_bytes + bytes <= limits.group_bytes_max
            {
                break;
            }
            let is_oldest =
                limits.overflow == Policy::DropOldest && bytes <= limits.group_bytes_max;
            let oldest = is_oldest.then(|| self.groups.pop(slot)).flatten();
            let is_full = oldest.is_none();
            let gone = oldest.map_or_else(|| Arc::clone(&message), |oldest| oldest.message);
            self.drops_work(Counter::DroppedGroupQueue, &gone);
            if is_full {
                return;
            }
        }
        let owed = Owed::new(message, claim, &self.memory);
        self.groups.push(slot, owed, false);
    }

    /// A session may have room again: gives it what waits in its groups.
    pub(super) fn refill(&mut self, session: u32, now: Now) {
        if self.groups.waiting.is_empty() {
            return;
        }
        let due = self
            .groups
            .waiting_of(&self.sessions[session as usize].groups);
        for slot in due {
            self.pump_group(slot, Some(session), now);
        }
    }

    /// Gives out what waits in a group, as far as members can take it.
    fn pump_group(&mut self, slot: u32, first: Option<u32>, now: Now) {
        while let Some(owed) = self.groups.slots[slot as usize].queue.front() {
            let (message, claim) = (Arc::clone(&owed.message), owed.claim.clone());
            let mut outgoing = Outgoing::of_message(&message, now.mono_ms).placed();
            let choice = if message.is_expired(now.mono_ms) {
                Err(Counter::DroppedExpired)
            } else {
                match self.choose(slot, &outgoing, first) {
                    Choice::Give(member) => Ok(member),
                    Choice::Wait => return,
                    Choice::Drop(why) => Err(why),
                }
            };
            self.groups.pop(slot);
            match choice {
                Ok(member) => {
                    let terms = member.terms(self.groups.id(slot), message.qos, message.retain);
                    self.deliver(member.session, &terms, claim, &mut outgoing);
                }
                Err(why) => self.drops_work(why, &message),
            }
        }
    }

    /// Counts a message that no member of a group gets.
    fn drops_work(&mut self, why: Counter, message: &Message) {
        self.counters.count(why);
        if self.tracer.is_on() {
            self.tracer.dropped_message("", why, message);
        }
    }

    pub(super) fn validate_groups(&self) {
        let mut sums = OfGroups::default();
        for (slot, group) in &self.groups.slots {
            let slot = slot as u32;
            assert!(group.len() > 0, "a group has a member");
            assert_eq!(self.groups.by_text.get(&group.text), Some(&slot));
            assert_eq!(self.groups.waiting.contains(&slot), !group.queue.is_empty());
            let bytes: usize = group.queue.iter().map(|owed| owed.message.bytes()).sum();
            assert_eq!(bytes, group.queued_bytes);
            sums += OfGroups {
                members: group.len(),
                queued: group.queue.len(),
                queued_bytes: bytes,
            };
            assert_eq!(group.places.len(), group.here.len());
            for (place, member) in group.here.iter().enumerate() {
                assert_eq!(group.places.get(&member.session), Some(&place));
            }
            let here = group.here.iter().map(|member| (member, true));
            let away = group.away.values().map(|member| (member, false));
            for (member, is_here) in here.chain(away) {
                let state = &self.sessions[member.session as usize];
                assert_eq!(state.connection.is_some(), is_here);
                assert!(state.groups.contains(&slot));
                assert!(state.subscriptions.contains_key(&group.text));
            }
        }
        for (_, state) in &self.sessions {
            for slot in &state.groups {
                assert!(self.groups.slots.contains(*slot as usize));
            }
            for id in state.outbound.groups() {
                let slot = self.groups.by_id.get(&id).expect("it is there");
                assert!(state.groups.contains(slot), "it is a member's");
            }
        }
        assert_eq!(sums, self.groups.sums);
        assert_eq!(self.groups.by_text.len(), self.groups.slots.len());
        assert_eq!(self.groups.tree.len(), self.groups.slots.len());
    }
}
