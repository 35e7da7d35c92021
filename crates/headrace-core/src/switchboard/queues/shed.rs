//! What a queue does with more than it may owe, and with what grows old while nobody takes it.

use super::serve::Found;
use super::{Excess, Queues};
use crate::queue::{share, Cause, Oldest};
use crate::switchboard::{Counter, Switchboard};
use crate::Now;

impl Switchboard {
    /// Lets go of the oldest messages of a group, as far as it is owed more than may be.
    pub(super) fn shed(&mut self, slot: u32, now: Now) {
        let queue = self.queues.groups[slot as usize].queue;
        let depth = self.queues.all[queue as usize].settings.depth;
        if !depth.is_bounded() || depth.excess == Excess::Refuse {
            return;
        }
        let is_kept = depth.excess == Excess::DeadLetter;
        while self.queues.owes_too_much(slot) {
            if self.queues.steps == 0 {
                return self.queues.touch(slot);
            }
            self.queues.steps -= 1;
            let Some((partition, oldest)) = self.queues.oldest(slot, is_kept) else {
                return;
            };
            let part = &mut self.queues.groups[slot as usize].parts[partition as usize];
            match oldest {
                oldest @ (Oldest::Known(offset) | Oldest::Unread(offset)) if !is_kept => {
                    part.ledger.drop(oldest);
                    self.counters.count(Counter::DroppedDepth);
                    self.queues.take(slot, partition, offset);
                }
                Oldest::Known(offset) => {
                    part.ledger.give_up(offset, Cause::Depth);
                    self.dies(slot, partition, offset, Cause::Depth, None);
                }
                Oldest::Unread(offset) => {
                    if !self.read_on(slot, partition, offset, now) {
                        return self.queues.want(slot, partition, offset);
                    }
                }
            }
            self.queues.change(slot, partition);
        }
    }

    /// Nobody takes what a group has: the first messages may grow too old.
    pub(super) fn age(&mut self, slot: u32, now: Now) {
        while let Some(partition) = self.queues.groups[slot as usize].aging.pop_first() {
            match self.look(slot, partition, now) {
                Found::Message(offset) => {
                    let group = &mut self.queues.groups[slot as usize];
                    let part = &mut group.parts[partition as usize];
                    part.expire_ms = part.ledger.expires_ms(offset, now);
                }
                Found::Nothing => {}
                Found::Turn => {
                    let group = &mut self.queues.groups[slot as usize];
                    group.aging.insert(partition);
                    return self.queues.touch(slot);
                }
            }
            self.queues.change(slot, partition);
        }
    }

    /// What a queue may still be given has changed, or how much of it is.
    pub(super) fn measure_again(&mut self, queue: u32) {
        let queue = &self.queues.all[queue as usize];
        let left = if queue.settings.depth.refuses() {
            (0, 0) // measured when the next publish comes
        } else {
            (u64::MAX, u64::MAX)
        };
        if let Some(stream) = self.streams.slot(queue.stream) {
            self.streams.set_room(stream, left);
        }
    }

    /// Whether there is room for another message in each of these streams that is a queue.
    pub(in crate::switchboard) fn measure_room(&mut self, streams: &[u32]) {
        for slot in streams {
            if self.streams.has_room(*slot) {
                continue;
            }
            let (stream, messages, bytes) = self.streams.on_their_way(*slot);
            let Some(queue) = self.queues.by_stream.get(&stream) else {
                continue;
            };
            let queue = &self.queues.all[*queue as usize];
            let (owed, owed_bytes) = self.queues.owed(queue);
            let depth = queue.settings.depth;
            let left = depth.left(owed + messages, owed_bytes + bytes);
            self.streams.set_room(*slot, left);
        }
    }

    /// The log of a partition of a queue has so many bytes, from its first record to its end.
    pub fn sized(&mut self, stream: u64, partition: u32, (start, end): (i64, i64), bytes: u64) {
        let Some(slot) = self.queues.by_stream.get(&stream).copied() else {
            return;
        };
        let queue = &mut self.queues.all[slot as usize];
        if let Some((first, sizes)) = queue.sizes.get_mut(partition as usize) {
            *first = start;
            sizes.told(start, end, bytes);
            self.measure_again(slot);
        }
    }

    /// Whether a queue takes nothing more until something of it is settled; false where the stream
    /// is none.
    pub fn is_full(&mut self, stream: u64) -> bool {
        let Some(slot) = self.streams.slot(stream) else {
            return false;
        };
        self.measure_room(&[slot]);
        !self.streams.has_room(slot)
    }
}

impl Queues {
    /// Messages and bytes that a queue owes to the group that it owes most; to a queue without
    /// groups, all that its log has.
    fn owed(&self, queue: &super::Queue) -> (u64, u64) {
        let groups = queue.groups.values().map(|slot| self.owed_to(*slot));
        let most = groups.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)));
        most.unwrap_or_else(|| {
            let logs = queue.ends.iter().zip(&queue.sizes);
            logs.map(|(end, (start, sizes))| ((end - start).max(0) as u64, sizes.from(*start)))
                .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
        })
    }

    /// Messages that a group is owed, and what they take of the log: of the bytes from the first on
    /// the share that is not settled.
    fn owed_to(&self, slot: u32) -> (u64, u64) {
        let group = &self.groups[slot as usize];
        let queue = &self.all[group.queue as usize];
        let is_weighed = queue.settings.depth.bytes_max > 0;
        let parts = group.parts.iter().zip(&queue.ends).zip(&queue.sizes);
        let owed = parts.map(|((part, end), (_, sizes))| {
            let messages = part.ledger.owed();
            let floor = part.ledger.settled().floor();
            if !is_weighed || *end <= floor {
                return (messages, 0);
            }
            let whole = (end - floor) as u64;
            (messages, share(sizes.from(floor), messages, whole))
        });
        owed.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    }

    fn owes_too_much(&self, slot: u32) -> bool {
        let group = &self.groups[slot as usize];
        let depth = self.all[group.queue as usize].settings.depth;
        let (messages, bytes) = self.owed_to(slot);
        let is_over = |max: u64, has: u64| max > 0 && has > max;
        is_over(depth.messages_max, messages) || is_over(depth.bytes_max, bytes)
    }

    /// The oldest message that can be let go of the partition that has most.
    fn oldest(&mut self, slot: u32, is_kept: bool) -> Option<(u32, Oldest)> {
        let parts = &mut self.groups[slot as usize].parts;
        let mut by_depth: Vec<_> = (0..)
            .zip(parts.iter_mut())
            .map(|(partition, part)| (part.ledger.owed(), partition))
            .collect();
        by_depth.sort_unstable_by_key(|(owed, partition)| (u64::MAX - owed, *partition));
        by_depth.into_iter().find_map(|(_, partition)| {
            let oldest = parts[partition as usize].ledger.oldest(is_kept)?;
            Some((partition, oldest))
        })
    }
}
