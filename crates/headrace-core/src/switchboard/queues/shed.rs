//! What a queue does with more than it may owe, and with what grows old while nobody takes it.

use super::serve::Found;
use super::{Excess, Part, Queues, Sharing};
use crate::queue::{share, Cause, Ledger, Oldest};
use crate::record::Batches;
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
        while let Some((partition, many)) = self.queues.excess(slot, is_kept) {
            for _ in 0..many {
                if self.queues.steps == 0 {
                    return self.queues.touch(slot);
                }
                self.queues.steps -= 1;
                let Some(oldest) = self.queues.oldest(slot, partition, is_kept) else {
                    break; // of this one; others are owed too
                };
                if !self.shed_one(slot, partition, oldest, is_kept, now) {
                    return; // goes on once that is read
                }
            }
        }
    }

    /// Lets go of a message; false where it is to be read first.
    fn shed_one(
        &mut self,
        slot: u32,
        partition: u32,
        oldest: Oldest,
        is_kept: bool,
        now: Now,
    ) -> bool {
        let part = &mut self.queues.groups[slot as usize].parts[partition as usize];
        match oldest {
            Oldest::Known(offset) | Oldest::Unread(offset) if !is_kept => {
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
                    self.queues.want(slot, partition, offset);
                    return false;
                }
            }
        }
        self.queues.change(slot, partition);
        true
    }

    /// Nobody takes what a group has: the first messages may grow too old.
    pub(super) fn age(&mut self, slot: u32, now: Now) {
        while let Some(partition) = self.queues.groups[slot as usize].aging.pop_first() {
            match self.look_for(slot, partition, now, Ledger::next_to_die) {
                Found::Message(offset) => {
                    let group = &mut self.queues.groups[slot as usize];
                    let part = &mut group.parts[partition as usize];
                    part.expire_ms = part.ledger.expires_ms(offset, now);
                    part.is_aged = true;
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

    /// Whether it is all one to a group that there is more of a partition, until somebody comes who
    /// could take some, or the time of its first message.
    pub(super) fn is_asleep(&self, slot: u32, partition: u32) -> bool {
        let group = &self.queues.groups[slot as usize];
        let settings = &self.queues.all[group.queue as usize].settings;
        let sheds = settings.depth.is_bounded() && settings.depth.excess != Excess::Refuse;
        let part = &group.parts[partition as usize];
        if sheds || !part.is_aged || !part.is_hot {
            return false;
        }
        match settings.sharing {
            Sharing::Shared => group.line.is_empty(),
            _ => !group.members.iter().any(|number| self.is_here(*number)),
        }
    }

    /// What a queue may still be given has changed, or how much of it is.
    pub(super) fn measure_again(&mut self, queue: u32) {
        let queue = &mut self.queues.all[queue as usize];
        queue.is_measured = false;
        let left = if queue.settings.depth.refuses() {
            (0, 0) // measured when the next publish comes
        } else {
            (u64::MAX, u64::MAX)
        };
        if let Some(stream) = self.streams.slot(queue.stream) {
            self.streams.set_room(stream, left);
        }
    }

    /// Whether there is room for so many messages more in each of these streams that is a queue.
    pub(in crate::switchboard) fn measure_room(&mut self, streams: &[u32], messages: u64) {
        for slot in streams {
            if self.streams.has_room_for(*slot, messages) {
                continue;
            }
            let (stream, coming, coming_bytes) = self.streams.on_their_way(*slot);
            let Some(number) = self.queues.by_stream.get(&stream).copied() else {
                continue;
            };
            let queue = &mut self.queues.all[number as usize];
            if std::mem::replace(&mut queue.is_measured, true) {
                continue; // it is as full as it was
            }
            let queue = &self.queues.all[number as usize];
            let (owed, owed_bytes) = self.queues.owed(queue);
            let depth = queue.settings.depth;
            let left = depth.left(owed + coming, owed_bytes + coming_bytes);
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

    /// Whether a queue takes batches from another door: how many messages they are, which count to
    /// what is owed from now on until [`Switchboard::room_taken`]. None: it has no room for them.
    pub fn take_room(&mut self, stream: u64, batches: &[u8]) -> Option<u64> {
        let bytes = batches.len() as u64;
        let batches = Batches::new(batches).map_while(Result::ok);
        let messages = batches
            .map(|batch| u64::from(batch.header.count.unsigned_abs()))
            .sum();
        let Some(slot) = self.streams.slot(stream) else {
            return Some(messages);
        };
        self.measure_room(&[slot], messages);
        let is_taken = self.streams.has_room_for(slot, messages);
        if is_taken {
            self.streams.takes_way(slot, messages, bytes);
        }
        is_taken.then_some(messages)
    }

    /// An append from another door has ended.
    pub fn room_taken(&mut self, stream: u64, messages: u64, bytes: u64) {
        if let Some(slot) = self.streams.slot(stream) {
            self.streams.leaves_way(slot, messages, bytes);
        }
        self.room_returned(stream);
    }

    /// Something that was on its way to a stream may not be stored: where that is a queue, it is
    /// less full than was measured.
    pub(in crate::switchboard) fn room_returned(&mut self, stream: u64) {
        if let Some(slot) = self.queues.by_stream.get(&stream) {
            self.queues.all[*slot as usize].is_measured = false;
        }
    }
}

impl Queues {
    /// Messages and bytes that a queue owes to the group that it owes most; to a queue without
    /// groups, all that its log has.
    fn owed(&self, queue: &super::Queue) -> (u64, u64) {
        let groups = queue.groups.values().map(|slot| self.owed_to(*slot, false));
        let most = groups.reduce(|a, b| (a.0.max(b.0), a.1.max(b.1)));
        most.unwrap_or_else(|| {
            let logs = queue.ends.iter().zip(&queue.sizes);
            logs.map(|(end, (start, sizes))| ((end - start).max(0) as u64, sizes.from(*start)))
                .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
        })
    }

    /// Messages that a group is owed, and what they take of the log: of the bytes from the first on
    /// the share that is not settled.
    fn owed_to(&self, slot: u32, sheds: bool) -> (u64, u64) {
        let group = &self.groups[slot as usize];
        let queue = &self.all[group.queue as usize];
        let is_weighed = queue.settings.depth.bytes_max > 0;
        let is_part = group.named().1.is_some();
        let parts = group.parts.iter().zip(&queue.ends).zip(&queue.sizes);
        let owed = parts.map(|((part, end), (_, sizes))| {
            let messages = owed_of(&part.ledger, is_part, sheds);
            let floor = part.ledger.settled().floor();
            if !is_weighed || *end <= floor {
                return (messages, 0);
            }
            let whole = (end - floor) as u64;
            (messages, share(sizes.from(floor), messages, whole))
        });
        owed.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
    }

    fn oldest(&mut self, slot: u32, partition: u32, is_kept: bool) -> Option<Oldest> {
        let group = &mut self.groups[slot as usize];
        let is_part = group.named().1.is_some();
        oldest_of(&mut group.parts[partition as usize], is_kept, is_part)
    }

    /// Where a group is owed too much, the partition of which it is owed most, of those that have
    /// something to let go, and how many messages are to go before that is asked anew.
    fn excess(&mut self, slot: u32, is_kept: bool) -> Option<(u32, u64)> {
        let group = &self.groups[slot as usize];
        let depth = self.all[group.queue as usize].settings.depth;
        let (messages, bytes) = self.owed_to(slot, true);
        let over = |max: u64, has: u64| if max > 0 { has.saturating_sub(max) } else { 0 };
        let of_bytes = over(depth.bytes_max, bytes);
        let of_bytes = if of_bytes > 0 {
            share(messages, of_bytes, bytes).max(1)
        } else {
            0
        };
        let excess = over(depth.messages_max, messages).max(of_bytes);
        if excess == 0 {
            return None;
        }
        let group = &mut self.groups[slot as usize];
        let is_part = group.named().1.is_some();
        let mut most = (0, 0);
        let mut second = 0;
        for (partition, part) in (0..).zip(&mut group.parts) {
            if oldest_of(part, is_kept, is_part).is_none() {
                continue; // all of it is in flight
            }
            let owed = owed_of(&part.ledger, is_part, true);
            if owed > most.1 {
                second = most.1;
                most = (partition, owed);
            } else {
                second = second.max(owed);
            }
        }
        (most.1 > 0).then(|| (most.0, excess.min(most.1 - second + 1)))
    }
}

/// Messages that a group is owed of a partition. One that takes a part of the queue is owed what it
/// has looked at: what is behind that may be none of its work. What it has out would have each that
/// it looks at be too many, to the end of the log, so that `sheds` nothing.
fn owed_of(ledger: &Ledger, is_part: bool, sheds: bool) -> u64 {
    match (is_part, sheds) {
        (false, _) => ledger.owed(),
        (true, false) => ledger.known(),
        (true, true) => ledger.known() - ledger.in_flight() as u64,
    }
}

/// The oldest that can be let go. What is to be read first can where it may be of the group, and the
/// log can be read.
fn oldest_of(part: &mut Part, is_kept: bool, is_part: bool) -> Option<Oldest> {
    let is_unreadable = is_part || is_kept && part.retry_ms.is_some();
    let oldest = part.ledger.oldest(is_kept);
    oldest.filter(|oldest| !is_unreadable || matches!(oldest, Oldest::Known(_)))
}
