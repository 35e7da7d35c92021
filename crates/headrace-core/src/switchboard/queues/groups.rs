//! Groups of a queue: how one begins, and how it ends.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::{Counts, Group, Part, Queues};
use crate::queue::{Ledger, Settled};
use crate::switchboard::Switchboard;

/// Why another group cannot begin.
pub(super) const NO_MORE_GROUPS: &str =
    "queues have as many groups as limits.queue_groups allows; delete some";

impl Switchboard {
    /// Whether a group is there, or another may be.
    pub(super) fn has_room_for_group(&self, queue: Option<u32>, group: &str) -> bool {
        let queue = queue.map(|slot| &self.queues.all[slot as usize]);
        let is_there = queue.is_some_and(|queue| queue.groups.contains_key(group));
        is_there || self.queues.groups.len() < self.limits.queue_groups_max
    }
}

impl Queues {
    /// The group of that key, which begins where there is none.
    pub(super) fn group_of(&mut self, queue: u32, key: &Arc<str>) -> u32 {
        let of = &self.all[queue as usize];
        let partitions = of.ends.len();
        let group = of.groups.get(key).copied();
        group.unwrap_or_else(|| {
            let none = (0..partitions).map(|_| None).collect();
            self.begin_group(queue, key, none)
        })
    }

    /// A group that may be asked for, with as many partitions as its queue.
    pub(super) fn begin_group(
        &mut self,
        queue: u32,
        name: &Arc<str>,
        settled: Vec<Option<Settled>>,
    ) -> u32 {
        let number = self.number();
        let of = &mut self.all[queue as usize];
        let (policy, hash_key) = (of.settings.policy, self.hash_key);
        let settled = settled.into_iter();
        let parts = settled.zip(&of.ends).map(|(settled, end)| {
            let settled = settled.unwrap_or_else(|| Settled::new(0));
            Part::new(Ledger::new(policy, settled, *end, hash_key))
        });
        let group = Group {
            number,
            queue,
            name: Arc::clone(name),
            parts: parts.collect(),
            members: BTreeSet::new(),
            active: None,
            line: VecDeque::new(),
            hot: VecDeque::new(),
            mourning: BTreeSet::new(),
            aging: BTreeSet::new(),
            wakes: BTreeSet::new(),
            timer_ms: None,
            has_aside: false,
            is_due: false,
            counts: Counts::default(),
        };
        let slot = self.groups.insert(group) as u32;
        of.groups.insert(Arc::clone(name), slot);
        for partition in 0..self.groups[slot as usize].parts.len() as u32 {
            self.change(slot, partition);
            self.heat(slot, partition);
        }
        slot
    }

    /// Forgets a group without consumers.
    pub(super) fn end_group(&mut self, slot: u32) -> Group {
        for pull in self.pulls_of(slot) {
            self.end_pull(pull);
        }
        self.let_go(slot);
        let group = self.groups.remove(slot as usize);
        assert!(group.members.is_empty(), "it has no consumers");
        let queue = &mut self.all[group.queue as usize];
        queue.groups.remove(&group.name);
        self.due.retain(|each| *each != slot);
        self.changed.retain(|(each, _)| *each != slot);
        self.line.retain(|asked| asked.number != group.number);
        group
    }
}
