//! Work of one group that waits, in lanes: one for each key where the group's strategy keeps keys
//! in order, else a single one.
//!
//! A lane waits for its own reason ([`Waits`]) and holds up no other. Whoever takes from lanes takes
//! what has waited longest first, over all lanes that wait for it. A lane is there while something
//! waits in it, or a member has not finished what it was given of it ([`Lease`]).
//!
//! Must not know members beyond their sessions, nor why one can take no more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::sync::{Arc, Weak};

use crate::hash::{Key, Map};
use crate::session::{Ends, GroupId, Lease, Memory, Owed};

/// The lane of a group whose strategy knows no keys.
pub(super) const ONLY_LANE: u64 = 0;

/// Places for lanes that a group may keep free.
const SPARE_LANES: usize = 1024;

/// What a lane waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waits {
    /// Nothing: it is to be looked at.
    Due,
    /// Whoever has room, or comes.
    Anyone,
    /// Room at one session.
    Member(u32),
    /// That who has the lease finishes: the key has moved.
    Lease,
}

#[derive(Debug)]
struct Lane {
    /// With their place in the order of all lanes.
    queue: VecDeque<(i64, Owed)>,
    waits: Waits,
    lease: Weak<Lease>,
    /// The session that has the lease.
    holder: u32,
}

impl Lane {
    fn is_over(&self) -> bool {
        self.queue.is_empty() && self.lease.strong_count() == 0
    }
}

/// The lanes of a group.
#[derive(Debug)]
pub(super) struct Work {
    /// Most of them wait for nothing: a lookup is all that a message costs then.
    lanes: Map<u64, Lane>,
    /// Keys of lanes in which something waits.
    waiting: BTreeSet<u64>,
    /// The same by the place of their first message.
    fronts: BTreeMap<i64, u64>,
    /// The same by what they wait for.
    calls: BTreeSet<(Waits, i64)>,
    queued: usize,
    bytes: usize,
    /// Nothing that waits expires before.
    expires_ms: u64,
    /// Places are from here...
    begin: i64,
    /// ... to below here.
    end: i64,
}

impl Work {
    pub fn new(hash_key: Key) -> Self {
        Self {
            lanes: Map::with_hasher(hash_key),
            waiting: BTreeSet::new(),
            fronts: BTreeMap::new(),
            calls: BTreeSet::new(),
            queued: 0,
            bytes: 0,
            expires_ms: u64::MAX,
            begin: 0,
            end: 0,
        }
    }

    /// Messages that wait.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Bytes of those.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What a lane waits for, where something waits in it.
    pub fn waits(&self, key: u64) -> Option<Waits> {
        if self.queued == 0 {
            return None;
        }
        let lane = self.lanes.get(&key)?;
        (!lane.queue.is_empty()).then_some(lane.waits)
    }

    /// The lane that has waited longest for something.
    pub fn first(&self, waits: Waits) -> Option<u64> {
        let (_, place) = self.calls_for(waits).next()?;
        Some(self.fronts[place])
    }

    fn calls_for(&self, waits: Waits) -> impl Iterator<Item = &(Waits, i64)> {
        self.calls.range((waits, i64::MIN)..=(waits, i64::MAX))
    }

    /// What is first in a lane in which something waits.
    pub fn front(&self, key: u64) -> &Owed {
        &self.lanes[&key].queue[0].1
    }

    /// Has a message wait behind all else; where it is the first of its lane, for `waits`.
    pub fn push(&mut self, key: u64, owed: Owed, waits: Waits) {
        self.count(&owed);
        let place = self.end;
        self.end += 1;
        let lane = self.lane(key);
        lane.queue.push_back((place, owed));
        if lane.queue.len() == 1 {
            lane.waits = waits;
            self.waiting.insert(key);
            self.fronts.insert(place, key);
            self.calls.insert((waits, place));
        }
    }

    /// Puts a message before all else. Its lane is to be looked at.
    pub fn give_back(&mut self, key: u64, owed: Owed) {
        self.count(&owed);
        self.begin -= 1;
        let place = self.begin;
        let lane = self.lane(key);
        if let Some((second, _)) = lane.queue.front() {
            let (second, waits) = (*second, lane.waits);
            self.fronts.remove(&second);
            self.calls.remove(&(waits, second));
        }
        let lane = self.lane(key);
        lane.queue.push_front((place, owed));
        lane.waits = Waits::Due;
        self.waiting.insert(key);
        self.fronts.insert(place, key);
        self.calls.insert((Waits::Due, place));
    }

    fn count(&mut self, owed: &Owed) {
        self.queued += 1;
        self.bytes += owed.message.bytes();
        self.expires_ms = self.expires_ms.min(owed.message.expires_ms());
    }

    fn lane(&mut self, key: u64) -> &mut Lane {
        self.lanes.entry(key).or_insert_with(|| Lane {
            queue: VecDeque::new(),
            waits: Waits::Due,
            lease: Weak::new(),
            holder: 0,
        })
    }

    /// Takes what is first in a lane in which something waits.
    pub fn pop(&mut self, key: u64) -> Owed {
        let lane = self.lanes.get_mut(&key).expect("something waits there");
        let (place, owed) = lane.queue.pop_front().expect("something waits there");
        if let Some((next, _)) = lane.queue.front() {
            self.fronts.insert(*next, key);
            self.calls.insert((lane.waits, *next));
        } else {
            self.waiting.remove(&key);
        }
        self.fronts.remove(&place);
        self.calls.remove(&(lane.waits, place));
        if lane.is_over() {
            self.forget(key);
        }
        self.queued -= 1;
        self.bytes -= owed.message.bytes();
        owed
    }

    /// Takes what has waited longest of all.
    pub fn pop_oldest(&mut self) -> Option<Owed> {
        let (_, key) = self.fronts.first_key_value()?;
        Some(self.pop(*key))
    }

    /// Takes all that has expired. Costs nothing while nothing has.
    pub fn purge_expired(&mut self, mono_ms: u64) -> Vec<Owed> {
        if mono_ms <= self.expires_ms {
            return Vec::new();
        }
        let is_expired = |owed: &Owed| owed.message.is_expired(mono_ms);
        let mut gone = Vec::new();
        for key in self.waiting.clone() {
            while self.waiting.contains(&key) && is_expired(self.front(key)) {
                gone.push(self.pop(key));
            }
            let Some(lane) = self.lanes.get_mut(&key) else {
                continue;
            };
            let queue = std::mem::take(&mut lane.queue).into_iter();
            let (expired, kept): (VecDeque<_>, VecDeque<_>) =
                queue.partition(|(_, owed)| is_expired(owed));
            lane.queue = kept;
            let expired = expired.into_iter().map(|(_, owed)| owed);
            gone.extend(expired.inspect(|owed| {
                self.queued -= 1;
                self.bytes -= owed.message.bytes();
            }));
        }
        let waiting = self.lanes.values().flat_map(|lane| &lane.queue);
        let expiries = waiting.map(|(_, owed)| owed.message.expires_ms());
        self.expires_ms = expiries.min().unwrap_or(u64::MAX);
        gone
    }

    /// Says what a lane in which something waits waits for.
    pub fn wait(&mut self, key: u64, waits: Waits) {
        let lane = self.lanes.get_mut(&key).expect("something waits there");
        let (place, _) = lane.queue.front().expect("something waits there");
        self.calls.insert((waits, *place));
        if lane.waits != waits {
            self.calls.remove(&(lane.waits, *place));
        }
        lane.waits = waits;
    }

    /// The session that has something of a key.
    pub fn holder(&self, key: u64) -> Option<u32> {
        let lane = self.lanes.get(&key)?;
        (lane.lease.strong_count() > 0).then_some(lane.holder)
    }

    /// What is given to a session of a key, which nobody else has, bears this.
    pub fn lend(
        &mut self,
        key: u64,
        session: u32,
        group: GroupId,
        ends: &Ends<(GroupId, u64)>,
        memory: &Memory,
    ) -> Arc<Lease> {
        let lane = self.lane(key);
        if let Some(lease) = lane.lease.upgrade() {
            assert_eq!(lane.holder, session, "a key is one member's at a time");
            return lease;
        }
        let lease = Lease::new(group, key, ends, memory);
        (lane.lease, lane.holder) = (Arc::downgrade(&lease), session);
        lease
    }

    /// A lease of a key has ended: what waits there is to be looked at, unless there is a newer one.
    pub fn returned(&mut self, key: u64) {
        let Some(lane) = self.lanes.get(&key) else {
            return;
        };
        if lane.is_over() {
            self.forget(key);
        } else if lane.waits == Waits::Lease && lane.lease.strong_count() == 0 {
            self.wait(key, Waits::Due);
        }
    }

    /// Removes a lane that is over, and after a flood of keys the places of those.
    fn forget(&mut self, key: u64) {
        self.lanes.remove(&key);
        let lanes = self.lanes.len();
        if self.lanes.capacity() > SPARE_LANES.max(8 * lanes) {
            self.lanes.shrink_to(2 * lanes);
        }
    }

    /// A session takes part no longer: what waits for it is to be looked at.
    pub fn release(&mut self, session: u32) {
        while let Some(key) = self.first(Waits::Member(session)) {
            self.wait(key, Waits::Due);
        }
    }

    /// A session has come: what waits for room, of keys in these ranges, waits for its room.
    pub fn claim(&mut self, session: u32, keys: impl Iterator<Item = RangeInclusive<u64>>) {
        let mut claimed = Vec::new();
        for keys in keys.filter(|keys| !keys.is_empty()) {
            let waits = |key: &&u64| self.lanes[*key].waits;
            let for_room = |key: &&u64| matches!(waits(key), Waits::Anyone | Waits::Member(_));
            claimed.extend(self.waiting.range(keys).filter(for_room));
        }
        for key in claimed {
            self.wait(key, Waits::Member(session));
        }
    }

    /// All that waits, in its order.
    pub fn into_all(self) -> impl Iterator<Item = Owed> {
        let lanes = self.lanes.into_values();
        let mut all: Vec<(i64, Owed)> = lanes.flat_map(|lane| lane.queue).collect();
        all.sort_unstable_by_key(|(place, _)| *place);
        all.into_iter().map(|(_, owed)| owed)
    }

    /// What lanes wait for in which something does, with their keys.
    pub fn waiting(&self) -> impl Iterator<Item = (u64, Waits)> + '_ {
        let calls = self.calls.iter();
        calls.map(|(waits, place)| (self.fronts[place], *waits))
    }

    /// Asserts what must always hold.
    pub fn validate(&self) {
        let (mut queued, mut bytes, mut waiting) = (0, 0, 0);
        for (key, lane) in &self.lanes {
            queued += lane.queue.len();
            let of = lane.queue.iter().map(|(_, owed)| owed.message.bytes());
            bytes += of.sum::<usize>();
            let places = lane.queue.iter().map(|(place, _)| *place);
            assert!(places.is_sorted(), "a lane is in order");
            if let Some((place, _)) = lane.queue.front() {
                waiting += 1;
                assert!(self.waiting.contains(key));
                assert_eq!(self.fronts.get(place), Some(key));
                assert!(self.calls.contains(&(lane.waits, *place)));
            }
        }
        assert_eq!((queued, bytes), (self.queued, self.bytes));
        assert_eq!((waiting, waiting), (self.fronts.len(), self.calls.len()));
        assert_eq!(waiting, self.waiting.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_were_many_at_once_leave_no_room_behind() {
        let mut work = Work::new(Key(1, 2));
        let (ends, memory) = (Ends::default(), Memory::default());
        let keys = 0..50_000;
        let lend = |key| work.lend(key, 0, GroupId::FIRST, &ends, &memory);
        let leases: Vec<_> = keys.clone().map(lend).collect();
        assert_eq!(work.lanes.len(), leases.len());
        drop(leases);
        for (_, key) in ends.take() {
            work.returned(key);
        }
        assert_eq!((work.lanes.len(), memory.bytes()), (0, 0));
        assert!(work.lanes.capacity() <= SPARE_LANES);
    }
}
