//! Shared subscriptions: groups whose members share the work (MQTT 5.0 4.8.2).
//!
//! A group is what `$share/{name}/{filter}` names. A publish that the filter matches goes to one
//! member that is there; which one is the group's [`Strategy`]. Work belongs to the group: while
//! nobody can take it, it waits in the group's own queue, and what a member that goes has not
//! finished at `QoS` 1 comes back to its front, also of one that has unsubscribed since. At `QoS` 2
//! what was sent stays with its member (MQTT-4.8.2-4, MQTT-4.8.2-5). What a member refuses is over
//! (MQTT-4.8.2-6).
//!
//! Who gets a message is in [`choice`], and what waits in [`work`].
//!
//! Invariants: a group has a member; what bears a group's mark was sent to a member of it, or waits
//! for one; nothing overtakes what waits in its lane; of what is kept in order by keys, one member
//! at a time has something of a key.

mod choice;
mod members;
mod ring;
mod standings;
mod table;
mod validate;
mod work;

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use choice::Choice;
pub use choice::Strategy;
use members::Member;
pub(super) use table::Groups;
use work::Waits;

use super::outgoing::Outgoing;
use super::overflow::Policy;
use super::{Counter, Switchboard, DOOR};
use crate::mqtt::packet::QoS;
use crate::session::{Claim, GroupId, Message, Owed, Subscription};
use crate::topic::Filter;
use crate::Now;

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

    /// A session unsubscribes from groups. What it was sent it may finish (MQTT-3.10.4-3), and if it
    /// goes before that, comes back; what it was not sent yet goes to the others.
    pub(super) fn leave_groups(&mut self, session: u32, left: &[(&str, Filter<'_>)], now: Now) {
        let state = &mut self.sessions[session as usize];
        let mut returned: BTreeMap<GroupId, Vec<Owed>> = BTreeMap::new();
        for (text, _) in left {
            let slot = *self.groups.by_text.get(*text).expect("it was joined");
            state.groups.remove(&slot);
            let group = &mut self.groups.slots[slot as usize];
            group.take_out(session).expect("it was a member");
            returned.insert(group.id, Vec::new());
        }
        self.groups.sums.members -= left.len();
        for (id, owed) in state.outbound.withdraw(|id| returned.contains_key(&id)) {
            returned.entry(id).or_default().push(owed);
        }
        self.recount_session(session);
        for (text, filter) in left {
            let slot = *self.groups.by_text.get(*text).expect("it is there");
            let returned = returned.remove(&self.groups.id(slot));
            self.end_membership(slot, *filter, returned.unwrap_or_default(), now);
        }
    }

    /// A member has left: what it gives back goes to the others, where there are any.
    fn end_membership(&mut self, slot: u32, filter: Filter<'_>, returned: Vec<Owed>, now: Now) {
        if self.groups.slots[slot as usize].len() > 0 {
            self.give_back(slot, returned);
            return self.pump_group(slot, None, now);
        }
        let group = self.groups.end(slot, filter);
        if group.durable.is_some() {
            self.persistence.group_due(&group.text);
        }
        for owed in returned.into_iter().chain(group.work.into_all()) {
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

    /// A client has gone: what it has not finished goes to the others, and what waited for it.
    pub(super) fn members_away(&mut self, session: u32, now: Now) {
        let state = &mut self.sessions[session as usize];
        let mut due: BTreeMap<u32, Vec<Owed>> = BTreeMap::new();
        for slot in &state.groups {
            let group = &mut self.groups.slots[*slot as usize];
            let member = *group.member(session).expect("it was a member");
            group.put(member, false);
            if group.work.first(Waits::Due).is_some() {
                due.insert(*slot, Vec::new());
            }
        }
        let by_id = &self.groups.by_id;
        for (id, owed) in state.outbound.withdraw_all(|id| by_id.contains_key(&id)) {
            due.entry(by_id[&id]).or_default().push(owed);
        }
        self.recount_session(session);
        for (slot, returned) in due {
            self.give_back(slot, returned);
            self.pump_group(slot, None, now);
        }
    }

    /// Puts work back before what waits, in its order.
    fn give_back(&mut self, slot: u32, returned: Vec<Owed>) {
        self.counters.add(Counter::Returned, returned.len());
        for owed in returned.into_iter().rev() {
            self.groups.give_back(slot, owed);
        }
    }

    /// Looks at the keys of which members have finished all that they had.
    pub(super) fn end_leases(&mut self, now: Now) {
        for (id, key) in self.groups.leases.take() {
            let Some(slot) = self.groups.by_id.get(&id).copied() else {
                continue;
            };
            let work = &mut self.groups.slots[slot as usize].work;
            work.returned(key);
            if work.first(Waits::Due).is_some() {
                self.pump_group(slot, None, now);
            }
        }
    }

    pub(super) fn deliver_to_groups(&mut self, slots: &[u32], outgoing: &mut Outgoing<'_>) {
        for slot in slots {
            self.deliver_to_group(*slot, None, outgoing);
        }
    }

    /// Gives a publish to a group: to a member, or to its lane behind what waits.
    pub(super) fn deliver_to_group(
        &mut self,
        slot: u32,
        claim: Option<Arc<Claim>>,
        outgoing: &mut Outgoing<'_>,
    ) {
        let group = &self.groups.slots[slot as usize];
        let (topic, publisher) = (outgoing.topic(), outgoing.publisher);
        let key = group.strategy.key(self.hash_key, topic, publisher);
        let may_wait = outgoing.qos > QoS::AtMostOnce;
        let before = group.work.waits(key).filter(|_| may_wait);
        let mut choice = match before {
            Some(waits) => Choice::Wait(waits),
            None => self.choose(slot, key, outgoing, None),
        };
        if let (true, Choice::Give(member)) = (may_wait, &choice) {
            let work = &self.groups.slots[slot as usize].work;
            // Other keys of that member wait for the room that this one would take.
            let waits = Waits::Member(member.session);
            if work.first(waits).is_some() {
                choice = Choice::Wait(waits);
            }
        }
        match choice {
            Choice::Give(member) => self.give(slot, key, &member, claim, outgoing),
            Choice::Drop(why) => self.drops(DOOR, why, outgoing, 0),
            Choice::Wait(waits) if may_wait => {
                self.wait_in_group(slot, key, waits, claim, outgoing);
            }
            Choice::Wait(_) => self.drops(DOOR, Counter::DroppedGroupAway, outgoing, 0),
        }
    }

    /// Gives a message to a member.
    fn give(
        &mut self,
        slot: u32,
        key: u64,
        member: &Member,
        claim: Option<Arc<Claim>>,
        outgoing: &mut Outgoing<'_>,
    ) {
        let id = self.groups.id(slot);
        let mut terms = member.terms(id, outgoing.qos, outgoing.retain);
        if terms.qos > QoS::AtMostOnce {
            terms.lease = self.groups.lend(slot, key, member.session, &self.memory);
        }
        self.deliver(member.session, &terms, claim, outgoing);
    }

    /// Queues a publish that no member can take now, within the group's bounds.
    fn wait_in_group(
        &mut self,
        slot: u32,
        key: u64,
        waits: Waits,
        claim: Option<Arc<Claim>>,
        outgoing: &mut Outgoing<'_>,
    ) {
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
            let work = &self.groups.slots[slot as usize].work;
            if work.queued() < limits.group_messages_max
                && work.bytes() + bytes <= limits.group_bytes_max
            {
                break;
            }
            let expired = self.groups.purge_expired(slot, outgoing.arrived_ms());
            if !expired.is_empty() {
                for owed in expired {
                    self.drops_work(Counter::DroppedExpired, &owed.message);
                }
                continue;
            }
            let limits = &self.limits;
            let is_oldest =
                limits.overflow == Policy::DropOldest && bytes <= limits.group_bytes_max;
            let oldest = is_oldest.then(|| self.groups.pop_oldest(slot)).flatten();
            let is_full = oldest.is_none();
            let gone = oldest.map_or_else(|| Arc::clone(&message), |oldest| oldest.message);
            self.drops_work(Counter::DroppedGroupQueue, &gone);
            if is_full {
                return;
            }
        }
        let owed = Owed::new(message, claim, &self.memory);
        self.groups.push(slot, key, owed, waits);
    }

    /// A session may have room again: gives it what waits in its groups.
    pub(super) fn refill(&mut self, session: u32, now: Now) {
        self.tell_load(session);
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

    /// Gives out what waits in a group, as far as members can take it: what is to be looked at, or
    /// for a session that asks what waits for that.
    fn pump_group(&mut self, slot: u32, first: Option<u32>, now: Now) {
        let has_keys = self.groups.slots[slot as usize].strategy.has_keys();
        let asks: &[Waits] = match first {
            Some(session) if has_keys => &[Waits::Due, Waits::Member(session)],
            Some(_) => &[Waits::Anyone],
            None => &[Waits::Due, Waits::Anyone],
        };
        for asked in asks {
            while let Some(key) = self.groups.slots[slot as usize].work.first(*asked) {
                if self.give_first(slot, key, first, now) == Some(*asked) {
                    break;
                }
            }
        }
    }

    /// Gives out what is first in a lane; for what it waits, where nobody can take it.
    fn give_first(&mut self, slot: u32, key: u64, first: Option<u32>, now: Now) -> Option<Waits> {
        let owed = self.groups.slots[slot as usize].work.front(key);
        let (message, claim) = (Arc::clone(&owed.message), owed.claim.clone());
        let mut outgoing = Outgoing::of_message(&message, now.mono_ms).placed();
        let choice = if message.is_expired(now.mono_ms) {
            Choice::Drop(Counter::DroppedExpired)
        } else {
            self.choose(slot, key, &outgoing, first)
        };
        if let Choice::Wait(waits) = choice {
            self.groups.slots[slot as usize].work.wait(key, waits);
            return Some(waits);
        }
        self.groups.pop(slot, key);
        match choice {
            Choice::Give(member) => self.give(slot, key, &member, claim, &mut outgoing),
            Choice::Drop(why) => self.drops_work(why, &message),
            Choice::Wait(_) => unreachable!("it was looked at"),
        }
        None
    }

    /// Counts a message that no member of a group gets.
    fn drops_work(&mut self, why: Counter, message: &Message) {
        self.counters.count(why);
        if self.tracer.is_on() {
            self.tracer.dropped_message("", why, message);
        }
    }
}
