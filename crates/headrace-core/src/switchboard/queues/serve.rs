//! Which consumer is handed which message, and what must be read for it.

use std::sync::Arc;

use super::address::BELOW;
use super::lost::Unread;
use super::message::{meta_of, write_topic};
use super::{Asked, Piece, Queues, ENDS_MAX, FAILED_MS, STEPS_MAX};
use crate::queue::{Ledger, Next};
use crate::record::Record;
use crate::switchboard::feeds::StreamRead;
use crate::switchboard::{Counter, Switchboard, READ_BYTES};
use crate::topic;
use crate::Now;

/// What a partition has for its group.
pub(super) enum Found {
    /// This message, with its packet at hand.
    Message(i64),
    /// Nothing, until something changes.
    Nothing,
    /// The turn is over.
    Turn,
}

impl Switchboard {
    /// Hands out what groups have for consumers with room.
    pub(in crate::switchboard) fn serve_queues(&mut self, now: Now) {
        (self.queues.steps, self.queues.ends) = (STEPS_MAX, ENDS_MAX);
        self.return_on(now);
        for _ in 0..self.queues.due.len() {
            if self.queues.steps == 0 {
                break; // who has had no turn is first in the next
            }
            let Some(slot) = self.queues.due.pop_front() else {
                break;
            };
            self.queues.groups[slot as usize].is_due = false;
            self.serve_group(slot, now);
        }
    }

    /// The time of a group has come: it has its turn.
    pub(in crate::switchboard) fn queue_due(&mut self, slot: u32) {
        if let Some(group) = self.queues.groups.get_mut(slot as usize) {
            group.timer_ms = None;
            self.queues.touch(slot);
        }
    }

    /// Lets deliveries fail whose deadline has passed, as many as the turn has room for, and goes on
    /// with what has rested.
    fn wake_parts(&mut self, slot: u32, now: Now) {
        while let Some((at, partition)) = self.queues.groups[slot as usize].wakes.first().copied() {
            if at > now.mono_ms {
                break;
            }
            loop {
                if self.queues.ends == 0 {
                    return self.queues.touch(slot);
                }
                let random = self.queues.random();
                let group = &mut self.queues.groups[slot as usize];
                let part = &mut group.parts[partition as usize];
                part.forget_wakes(now.mono_ms);
                let Some((flight, failed)) = part.ledger.overdue(now, random) else {
                    break;
                };
                group.counts.failed += 1;
                self.queues.ends -= 1;
                self.queues.release(flight.holder);
                self.has_failed(slot, partition, flight.offset, failed, Some("deadline"));
            }
            self.queues.heat(slot, partition);
            let group = &mut self.queues.groups[slot as usize];
            let part = &mut group.parts[partition as usize];
            // What has rested joins the others as soon as somebody has room for it.
            let wake_ms = part.first_wake(part.ledger.wake_after_ms(now.mono_ms));
            if let Some(before) = std::mem::replace(&mut part.wake_ms, wake_ms) {
                group.wakes.remove(&(before, partition));
            }
            group.wakes.remove(&(at, partition));
            group.wakes.extend(wake_ms.map(|at| (at, partition)));
        }
    }

    fn serve_group(&mut self, slot: u32, now: Now) {
        self.wake_parts(slot, now);
        self.shed(slot, now);
        let queue = self.queues.groups[slot as usize].queue;
        let settings = &self.queues.all[queue as usize].settings;
        let (is_paused, mut left) = (settings.is_paused, settings.batch_messages);
        loop {
            let Some(consumer) = self.next_consumer(slot).filter(|_| !is_paused) else {
                self.age(slot, now);
                break;
            };
            if left == 0 {
                self.queues.touch(slot);
                break;
            }
            match self.find_message(slot, now) {
                Found::Message(offset) => {
                    let group = &mut self.queues.groups[slot as usize];
                    let partition = group.hot[0];
                    group.hot.rotate_left(1);
                    if group.line.front() == Some(&consumer) {
                        group.line.rotate_left(1);
                    }
                    self.hand_out(slot, consumer, (partition, offset), now);
                    left -= 1;
                }
                Found::Nothing => break,
                Found::Turn => {
                    self.queues.touch(slot);
                    break;
                }
            }
        }
        self.queues.end_dry_pulls(slot);
        self.bury_ready(slot, now);
        self.set_queue_timer(slot);
    }

    /// Looks for a message in the partitions of a group, in turn; that of the one that is found
    /// stands first then.
    fn find_message(&mut self, slot: u32, now: Now) -> Found {
        while let Some(partition) = self.queues.groups[slot as usize].hot.front().copied() {
            match self.look(slot, partition, now) {
                Found::Nothing => {
                    let group = &mut self.queues.groups[slot as usize];
                    group.hot.pop_front();
                    group.parts[partition as usize].is_hot = false;
                    self.queues.change(slot, partition);
                }
                found => return found,
            }
        }
        Found::Nothing
    }

    /// Goes on with a partition until it has a message to hand out.
    fn look(&mut self, slot: u32, partition: u32, now: Now) -> Found {
        self.look_for(slot, partition, now, Ledger::next)
    }

    /// As [`Self::look`], for what `next` says of the ledger.
    pub(super) fn look_for(
        &mut self,
        slot: u32,
        partition: u32,
        now: Now,
        next: impl Fn(&mut Ledger, Now) -> Next,
    ) -> Found {
        loop {
            if self.queues.steps == 0 {
                return Found::Turn;
            }
            self.queues.steps -= 1;
            let group = &mut self.queues.groups[slot as usize];
            let part = &mut group.parts[partition as usize];
            let next = next(&mut part.ledger, now);
            part.is_blocked = next == Next::Blocked;
            match next {
                Next::Deliver(offset) => {
                    if part.kept.contains_key(&offset) {
                        return Found::Message(offset);
                    }
                    self.queues.want(slot, partition, offset);
                    return Found::Nothing;
                }
                Next::Dead(offset, cause) => {
                    part.ledger.give_up(offset, cause);
                    self.dies(slot, partition, offset, cause, None);
                }
                Next::Scan(offset) => {
                    if !self.scan_on(slot, partition, offset, now) {
                        self.queues.ask(slot, partition, offset, true);
                        return Found::Nothing;
                    }
                }
                Next::Read(offset) => {
                    if !self.read_on(slot, partition, offset, now) {
                        self.queues.want(slot, partition, offset);
                        return Found::Nothing;
                    }
                }
                Next::Wait | Next::Blocked => return Found::Nothing,
            }
        }
    }

    /// Takes the next record at `offset` or behind it from the piece at hand; false where there is
    /// none.
    pub(super) fn read_on(&mut self, slot: u32, partition: u32, offset: i64, now: Now) -> bool {
        let group = &mut self.queues.groups[slot as usize];
        let Some(mut piece) = group.parts[partition as usize].piece.take() else {
            return false;
        };
        if piece.from() > offset {
            // It was asked for by who knew a message that lies ahead.
            self.queues.drop_piece(&piece);
            return false;
        }
        let seen = piece.see(offset, |record, damaged| {
            // Before what is behind is met, for then it would count as nothing.
            let damaged = damaged.into_iter().flatten();
            self.pass_over(slot, partition, damaged, Unread::Damaged);
            self.meet(slot, partition, record, now);
        });
        let damaged = piece.take_damaged().into_iter().flatten();
        self.pass_over(slot, partition, damaged, Unread::Damaged);
        let part = &mut self.queues.groups[slot as usize].parts[partition as usize];
        if seen.is_some() {
            part.piece = Some(piece);
            return true;
        }
        let is_on = piece.next() > offset;
        if is_on {
            // Nothing of it was a message.
            part.ledger.pass(piece.next());
            self.queues.change(slot, partition);
        }
        self.queues.drop_piece(&piece);
        is_on
    }

    /// A record that the group has not seen.
    fn meet(&mut self, slot: u32, partition: u32, record: &Record<'_>, now: Now) {
        let queues = &mut self.queues;
        let group = &queues.groups[slot as usize];
        let settings = &queues.all[group.queue as usize].settings;
        let meta = meta_of(record, settings, queues.hash_key);
        let queue: Box<str> = settings.name.clone();
        let offset = record.offset;
        if !queues.is_wanted(slot, record) {
            let part = &mut queues.groups[slot as usize].parts[partition as usize];
            part.ledger.pass(offset + 1);
            return queues.change(slot, partition);
        }
        let packet = queues.packet_of(&queue, partition, record, now);
        let part = &mut queues.groups[slot as usize].parts[partition as usize];
        part.ledger.met(offset, meta, now);
        let ledger = &queues.groups[slot as usize].parts[partition as usize].ledger;
        let is_ready = ledger.is_ready(offset);
        let waits = is_ready || ledger.is_behind(offset);
        // What is given out next goes from what was read, and needs no read of its own.
        if waits && (queues.has_room(slot, partition, is_ready) || ledger.is_next(offset)) {
            queues.keep(slot, partition, offset, packet);
        }
    }

    /// The next read for a queue; None where there is none.
    pub(in crate::switchboard) fn next_queue_read(&mut self) -> Option<StreamRead> {
        loop {
            let asked = self.queues.line.pop_front()?;
            let Some(group) = self.queues.groups.get_mut(asked.group as usize) else {
                continue;
            };
            if group.number != asked.number {
                continue;
            }
            let stream = self.queues.all[group.queue as usize].stream;
            let ticket = self.feeds.ticket();
            let part = &mut group.parts[asked.partition as usize];
            part.asked = Some(ticket);
            self.queues.asked.insert(ticket, asked);
            self.counters.count(Counter::StreamReads);
            return Some(StreamRead {
                ticket,
                stream,
                partition: asked.partition,
                offset: asked.offset,
                bytes: READ_BYTES,
            });
        }
    }

    /// What was asked for a queue has been read; false where the ticket is of no queue.
    pub(in crate::switchboard) fn queue_fed(
        &mut self,
        ticket: u64,
        (batches, left_out): (&Arc<[u8]>, &[i64]),
        now: Now,
    ) -> bool {
        let Some(asked) = self.queues.asked.remove(&ticket) else {
            return false;
        };
        let Asked {
            group: slot,
            partition,
            offset,
            ..
        } = asked;
        if !self.queues.answered(asked) {
            return true;
        }
        self.counters.add(Counter::StreamBytes, batches.len());
        self.pass_over(slot, partition, left_out.iter().copied(), Unread::TooLarge);
        if batches.is_empty() {
            self.queues.retry(slot, partition, now);
            self.set_queue_timer(slot);
            return true;
        }
        let mut piece = Piece::new(Arc::clone(batches), offset);
        if asked.is_ahead {
            self.queues.hold_piece(slot, partition, piece, true);
        } else if self.queues.is_known(slot, partition, offset) {
            self.find_again(slot, partition, &mut piece, offset, now);
        } else {
            self.queues.hold_piece(slot, partition, piece, false);
        }
        self.queues.heat(slot, partition);
        true
    }

    /// Takes the packet of a message that is known from a piece, and those of others that are wanted
    /// and at hand.
    fn find_again(&mut self, slot: u32, partition: u32, piece: &mut Piece, offset: i64, now: Now) {
        let mut from = offset;
        let queue = self.queues.groups[slot as usize].queue;
        let name = self.queues.all[queue as usize].settings.name.clone();
        let mut is_found = false;
        loop {
            let queues = &mut self.queues;
            let seen = piece.see(from, |record, _| {
                let part = &queues.groups[slot as usize].parts[partition as usize];
                let at = record.offset;
                let is_asked = at == offset;
                let is_soon = part.ledger.is_ready(at) || part.unburied.contains(&at);
                let waits = is_soon || part.ledger.is_behind(at) || part.deaths.contains_key(&at);
                let is_wanted = waits
                    && !part.kept.contains_key(&at)
                    && queues.has_room(slot, partition, is_soon);
                if is_asked || is_wanted {
                    let mut topic = std::mem::take(&mut queues.topic);
                    write_topic(&mut topic, &name, record);
                    queues.topic = topic;
                    let packet = queues.packet_of(&name, partition, record, now);
                    queues.keep(slot, partition, record.offset, packet);
                }
                (record.offset, is_asked)
            });
            let Some((at, is_asked)) = seen else { break };
            is_found |= is_asked;
            from = at + 1;
            if !is_found || self.queues.steps == 0 {
                break;
            }
            self.queues.steps -= 1;
        }
        if !is_found {
            self.lose(slot, partition, offset);
        }
    }

    /// What was asked could not be read; false where the ticket is of no queue.
    pub(in crate::switchboard) fn queue_unread(&mut self, ticket: u64, now: Now) -> bool {
        let Some(asked) = self.queues.asked.remove(&ticket) else {
            return false;
        };
        if self.queues.answered(asked) {
            self.counters.count(Counter::StreamReadsFailed);
            self.queues.retry(asked.group, asked.partition, now);
            self.set_queue_timer(asked.group);
        }
        true
    }
}

impl Queues {
    /// Whether a group is owed a record; `self.topic` is its topic then.
    pub(super) fn is_wanted(&mut self, slot: u32, record: &Record<'_>) -> bool {
        let group = &self.groups[slot as usize];
        let name = &self.all[group.queue as usize].settings.name;
        let (_, filter) = group.named();
        write_topic(&mut self.topic, name, record);
        let below = self.topic.get(BELOW.len() + name.len() + 1..);
        filter.is_none_or(|filter| below.is_some_and(|below| topic::matches(filter, below)))
    }

    /// Has a place of a partition read, unless something of it is.
    pub(super) fn want(&mut self, slot: u32, partition: u32, offset: i64) {
        self.ask(slot, partition, offset, false);
    }

    fn ask(&mut self, slot: u32, partition: u32, offset: i64, is_ahead: bool) {
        let group = &mut self.groups[slot as usize];
        let part = &mut group.parts[partition as usize];
        if part.asked.is_none() && part.retry_ms.is_none() {
            part.asked = Some(0); // in the line, without a ticket
            self.line.push_back(Asked {
                group: slot,
                number: group.number,
                partition,
                offset,
                is_ahead,
            });
        }
    }

    /// Whether who asked is still there; it asks for nothing then.
    pub(super) fn answered(&mut self, asked: Asked) -> bool {
        let group = self.groups.get_mut(asked.group as usize);
        let Some(group) = group.filter(|group| group.number == asked.number) else {
            return false;
        };
        group.parts[asked.partition as usize].asked = None;
        true
    }

    /// Whether a message has been met and is owed.
    fn is_known(&self, slot: u32, partition: u32, offset: i64) -> bool {
        let part = &self.groups[slot as usize].parts[partition as usize];
        part.ledger.is_open(offset)
    }

    /// Looks at a partition again in a while.
    pub(super) fn retry(&mut self, slot: u32, partition: u32, now: Now) {
        let part = &mut self.groups[slot as usize].parts[partition as usize];
        part.retry_ms = Some(now.mono_ms + FAILED_MS);
        self.change(slot, partition);
    }

    /// A delivery of a consumer is over.
    pub(super) fn release(&mut self, holder: u64) {
        let Some(consumer) = self.consumers.get_mut(&holder) else {
            return;
        };
        consumer.held = consumer.held.saturating_sub(1);
        self.line_up(holder);
    }
}
