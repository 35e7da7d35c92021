//! All groups: found by text, number and topic, and what waits in them.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;

use slab::Slab;

use super::choice::mix;
use super::members::Group;
use super::work::Waits;
use super::Strategy;
use crate::hash::{Key, Map};
use crate::session::{Durable, Ends, GroupId, Lease, Memory, Message, Owed};
use crate::sums::sums;
use crate::switchboard::persist::Persistence;
use crate::topic::{Filter, Tree};

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
pub(in crate::switchboard) struct Groups {
    pub(super) hash_key: Key,
    pub(super) slots: Slab<Group>,
    pub(super) by_text: Map<Box<str>, u32>,
    pub(super) by_id: Map<GroupId, u32>,
    next_id: GroupId,
    pub(super) tree: Tree<u32, ()>,
    /// Those with work that waits.
    pub(super) waiting: BTreeSet<u32>,
    pub(super) sums: OfGroups,
    /// Leases that have ended.
    pub(super) leases: Ends<(GroupId, u64)>,
    random: u64,
    /// Turns given out.
    turns: u64,
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
            leases: Ends::default(),
            random: hash_key.hash_one("groups"),
            turns: 0,
        }
    }

    /// Whether keys are to be looked at of which members have finished all that they had.
    pub fn has_ends(&self) -> bool {
        !self.leases.is_empty()
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// What all of them hold.
    pub fn sums(&self) -> OfGroups {
        self.sums
    }

    /// Has work wait in a group, behind all else, for `waits` where it is the first of its lane.
    pub(super) fn push(&mut self, slot: u32, key: u64, owed: Owed, waits: Waits) {
        self.count(slot, &owed.message);
        let group = &mut self.slots[slot as usize];
        group.work.push(key, owed, waits);
    }

    /// Puts work back, before all else.
    pub(super) fn give_back(&mut self, slot: u32, owed: Owed) {
        self.count(slot, &owed.message);
        let group = &mut self.slots[slot as usize];
        let key = group.strategy.key_of(self.hash_key, &owed.message);
        group.work.give_back(key, owed);
    }

    fn count(&mut self, slot: u32, message: &Message) {
        self.waiting.insert(slot);
        self.sums.queued += 1;
        self.sums.queued_bytes += message.bytes();
    }

    /// Takes what waits first in a lane of a group.
    pub(super) fn pop(&mut self, slot: u32, key: u64) {
        let owed = self.slots[slot as usize].work.pop(key);
        self.discount(slot, &owed.message);
    }

    /// Takes what has waited longest in a group.
    pub(super) fn pop_oldest(&mut self, slot: u32) -> Option<Owed> {
        let owed = self.slots[slot as usize].work.pop_oldest()?;
        self.discount(slot, &owed.message);
        Some(owed)
    }

    /// Takes what has expired in a group. Costs nothing while nothing has.
    pub(super) fn purge_expired(&mut self, slot: u32, mono_ms: u64) -> Vec<Owed> {
        let expired = self.slots[slot as usize].work.purge_expired(mono_ms);
        for owed in &expired {
            self.discount(slot, &owed.message);
        }
        expired
    }

    fn discount(&mut self, slot: u32, message: &Message) {
        if self.slots[slot as usize].work.queued() == 0 {
            self.waiting.remove(&slot);
        }
        self.sums.queued -= 1;
        self.sums.queued_bytes -= message.bytes();
    }

    /// What a member is given of a key bears this, where keys are kept in order.
    pub(super) fn lend(
        &mut self,
        slot: u32,
        key: u64,
        session: u32,
        memory: &Memory,
    ) -> Option<Arc<Lease>> {
        let group = &mut self.slots[slot as usize];
        let work = &mut group.work;
        let has_keys = group.strategy.has_keys();
        has_keys.then(|| work.lend(key, session, group.id, &self.leases, memory))
    }

    /// Begins the group that a filter names.
    pub(super) fn begin(&mut self, text: &str, filter: Filter<'_>, strategy: Strategy) -> u32 {
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

    /// Where the group stands whose messages bear an id.
    pub fn slot_of(&self, id: GroupId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// Removes a group that has no member any more.
    pub(super) fn end(&mut self, slot: u32, filter: Filter<'_>) -> Group {
        let group = self.slots.remove(slot as usize);
        self.by_text.remove(&group.text);
        self.by_id.remove(&group.id);
        self.tree.remove(filter, &slot);
        self.waiting.remove(&slot);
        self.sums.queued -= group.work.queued();
        self.sums.queued_bytes -= group.work.bytes();
        group
    }

    /// Finds the groups that match a topic, and have a member to which its messages may come, until
    /// they are more than `enough`; at how many places and groups it looked.
    #[inline]
    pub fn matches(
        &self,
        topic: &str,
        into: &mut Vec<u32>,
        enough: usize,
        hears: impl Fn(u32) -> bool,
    ) -> usize {
        into.clear();
        if self.tree.is_empty() {
            return 0;
        }
        let mut groups = 0;
        let places = self.tree.matches_while(topic, &mut |slot, ()| {
            groups += 1;
            if self.is_heard(*slot, &hears) {
                into.push(*slot);
            }
            into.len() <= enough
        });
        places + groups
    }

    /// The same for the groups at a range of slots, all of them.
    pub fn matches_within(
        &self,
        topic: &str,
        slots: Range<u32>,
        into: &mut Vec<u32>,
        hears: impl Fn(u32) -> bool,
    ) -> usize {
        self.tree.matches_within(topic, slots, &mut |slot, ()| {
            if self.is_heard(*slot, &hears) {
                into.push(*slot);
            }
        })
    }

    fn is_heard(&self, slot: u32, hears: &impl Fn(u32) -> bool) -> bool {
        let mut members = self.slots[slot as usize].members();
        members.any(|member| hears(member.session))
    }

    /// Those of a session that have work waiting.
    pub(super) fn waiting_of(&self, of: &BTreeSet<u32>) -> Vec<u32> {
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

    /// The bound of all slots.
    pub fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// The text of the group at a slot, if it is in that partition of the log.
    pub fn durable_text(&self, slot: usize, partition: u32) -> Option<&str> {
        let group = self.slots.get(slot)?;
        let durable = group.durable.as_ref()?;
        (durable.partition == partition).then_some(&*group.text)
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
            let group = &self.slots[slot as usize];
            let key = group.strategy.key_of(self.hash_key, &owed.message);
            self.push(slot, key, owed, Waits::Anyone);
        }
    }

    /// Later than all before.
    pub(super) fn next_turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// `SplitMix64`.
    pub(super) fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.random)
    }
}
