//! What comes again because its time has passed, or who had it has gone.
//!
//! A million may be in flight, so they come again in shares, a turn each. What a consumer had when it
//! went is in nobody's hands from then on: the consumer may be back, or its session gone, before all
//! of it has come again.

use super::Queues;
use crate::queue::Failed;
use crate::switchboard::Switchboard;
use crate::Now;

/// Deliveries that end in a turn because their time has passed, or who had them has gone: 5 ms.
pub(super) const ENDS_MAX: usize = 2_000;

/// Deliveries of a group that are to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Return {
    group: u32,
    /// Of the group.
    number: u64,
    /// In whose hands they are.
    pub holder: u64,
    has_failed: bool,
}

impl Switchboard {
    /// Has a share of what nobody has any more come again.
    pub(super) fn return_on(&mut self, now: Now) {
        while let Some(Return {
            group: slot,
            number,
            holder,
            has_failed,
        }) = self.queues.returns.front().copied()
        {
            let group = self.queues.groups.get(slot as usize);
            let group = group.filter(|group| group.number == number);
            let partitions = group.map_or(0, |group| group.parts.len() as u32);
            for partition in 0..partitions {
                while self.return_one(slot, partition, (holder, has_failed), now) {}
            }
            if self.queues.ends == 0 {
                return;
            }
            self.queues.returns.pop_front();
        }
    }

    /// Has one delivery of a partition come again; false where there is none, or the turn is over.
    fn return_one(
        &mut self,
        slot: u32,
        partition: u32,
        (holder, has_failed): (u64, bool),
        now: Now,
    ) -> bool {
        if self.queues.ends == 0 {
            return false;
        }
        let random = self.queues.random();
        let group = &mut self.queues.groups[slot as usize];
        let ledger = &mut group.parts[partition as usize].ledger;
        let Some((offset, failed)) = ledger.gone(holder, has_failed, now, random) else {
            return false;
        };
        self.queues.ends -= 1;
        group.counts.failed += u64::from(has_failed);
        self.has_failed(slot, partition, offset, failed, None);
        true
    }

    /// As [`Self::return_on`], of all there is.
    pub(super) fn return_rest(&mut self, now: Now) {
        self.queues.ends = usize::MAX;
        self.return_on(now);
    }

    /// What became of a message that was not settled.
    pub(super) fn has_failed(
        &mut self,
        group: u32,
        partition: u32,
        offset: i64,
        failed: Failed,
        reason: Option<&str>,
    ) {
        if let Failed::Dead(cause) = failed {
            self.dies(group, partition, offset, cause, reason);
        }
        self.queues.change(group, partition);
        self.queues.heat(group, partition);
    }
}

impl Queues {
    /// What a consumer has comes again, to others first.
    pub(super) fn return_held(&mut self, consumer: u64, has_failed: bool) {
        let state = self.consumers.get_mut(&consumer).expect("it is one");
        let (group, held) = (state.group, std::mem::take(&mut state.held));
        let active = &mut self.groups[group as usize].active;
        if *active == Some(consumer) {
            *active = None;
            self.touch(group); // who is next may have room
        }
        if held == 0 {
            return;
        }
        let nobody = self.number();
        for part in &mut self.groups[group as usize].parts {
            part.ledger.pass_on(consumer, nobody);
        }
        self.return_all(group, nobody, has_failed);
    }

    /// As [`Self::return_held`], of whoever has something of a group and takes no more.
    pub(super) fn return_all(&mut self, group: u32, holder: u64, has_failed: bool) {
        let number = self.groups[group as usize].number;
        self.returns.push_back(Return {
            group,
            number,
            holder,
            has_failed,
        });
    }
}
