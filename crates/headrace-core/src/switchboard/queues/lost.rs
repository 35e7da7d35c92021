//! What a log has no more of what a group is owed, and what it has that nobody can be given.

use super::Queues;
use crate::switchboard::{Counter, Switchboard};

/// Why a message that the log has is given to nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Its bytes are not what was stored, or say nothing.
    Damaged,
    /// It is larger than what is read may be ([`crate::record::unpack`]).
    TooLarge,
}

/// Messages that a group is owed no longer, for nobody can be given them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The queue's stream.
    pub stream: u64,
    /// The group, without its filter.
    pub group: String,
    /// Their partition.
    pub partition: u32,
    /// Of the first.
    pub offset: i64,
    /// How many, of the same read.
    pub count: u64,
    /// Why.
    pub why: Unread,
}

impl Switchboard {
    /// The log has no such offset: its records are those from `start` to below `end`; false where the
    /// ticket is of no queue.
    pub(in crate::switchboard) fn queue_missed(&mut self, ticket: u64, start: i64) -> bool {
        let Some(asked) = self.queues.asked.remove(&ticket) else {
            return false;
        };
        if self.queues.answered(asked) {
            self.queues.trim(asked.group, asked.partition, start);
        }
        true
    }

    /// The log of a partition begins at `start` now. Groups of a queue go on from there: what they
    /// knew of what lay before would count to what they are owed, and be given out.
    pub fn queue_trimmed(&mut self, stream: u64, partition: u32, start: i64) {
        let Some(slot) = self.queues.by_stream.get(&stream) else {
            return;
        };
        let groups = self.queues.all[*slot as usize].groups.clone();
        for group in groups.into_values() {
            let part = &self.queues.groups[group as usize].parts[partition as usize];
            if part.ledger.settled().floor() < start {
                self.queues.trim(group, partition, start);
            }
        }
    }

    /// Messages that a group has not seen are given to nobody: they are owed no longer, and told of.
    pub(super) fn pass_over(
        &mut self,
        slot: u32,
        partition: u32,
        offsets: impl Iterator<Item = i64>,
        why: Unread,
    ) {
        let part = &mut self.queues.groups[slot as usize].parts[partition as usize];
        let (mut first, mut count) = (None, 0);
        for offset in offsets.filter(|offset| part.ledger.skip(*offset)) {
            first = first.or(Some(offset));
            count += 1;
        }
        if let Some(offset) = first {
            self.tell_lost(slot, partition, (offset, count), why);
        }
    }

    /// As [`Self::pass_over`], of one that the group knows, and the log has no more.
    pub(super) fn lose(&mut self, slot: u32, partition: u32, offset: i64) {
        let part = &mut self.queues.groups[slot as usize].parts[partition as usize];
        part.ledger.lost(offset);
        part.deaths.remove(&offset);
        part.unburied.remove(&offset);
        self.tell_lost(slot, partition, (offset, 1), Unread::Damaged);
    }

    fn tell_lost(&mut self, slot: u32, partition: u32, (offset, count): (i64, u64), why: Unread) {
        let counter = match why {
            Unread::Damaged => Counter::DroppedDamaged,
            Unread::TooLarge => Counter::DroppedTooLarge,
        };
        self.counters.add(counter, count as usize);
        let group = &mut self.queues.groups[slot as usize];
        group.counts.lost += count;
        self.queues.lost.push(Lost {
            stream: self.queues.all[group.queue as usize].stream,
            group: group.named().0.to_owned(),
            partition,
            offset,
            count,
            why,
        });
        self.queues.change(slot, partition);
    }
}

impl Queues {
    /// What the shell is to tell people of.
    pub fn take_lost(&mut self) -> Vec<Lost> {
        std::mem::take(&mut self.lost)
    }

    /// A partition of a group has nothing before `start` any more.
    fn trim(&mut self, slot: u32, partition: u32, start: i64) {
        let part = &mut self.groups[slot as usize].parts[partition as usize];
        let holders = part.ledger.trimmed(start);
        part.deaths = part.deaths.split_off(&start);
        part.unburied = part.unburied.split_off(&start);
        self.let_go_before(slot, partition, start);
        for holder in holders {
            self.release(holder);
        }
        self.change(slot, partition);
        self.heat(slot, partition);
    }
}
