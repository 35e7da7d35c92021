//! Checkpoints: what lives in a partition that has become long is written again at its end, a slice
//! a round; once all of it is durable, the partition may begin there.
//!
//! Invariants: one checkpoint at a time, which is over when it is durable; what begins while it is
//! written is due by itself, so a checkpoint looks once at what was there when it began.

use std::collections::VecDeque;
use std::ops::Range;

use super::{Persistence, SessionTrim, Unit};
use crate::switchboard::Switchboard;
use crate::Now;

/// A partition gets a checkpoint when it has so many times the bytes of its last one. So what is
/// written again is at most half of what is written.
const RATIO: u64 = 3;

/// Bytes of a checkpoint that one round takes along.
const SLICE_BYTES: usize = 1024 * 1024;

/// Things that one round looks at or writes for a checkpoint: some 5 ms, however many sessions there
/// are (`cargo bench --bench sessions`).
const SLICE_STEPS: usize = 8192;

/// A partition whose living records are written again.
#[derive(Debug)]
pub(super) struct Checkpoint {
    partition: u32,
    walk: Walk,
    /// The ticket of its first batch.
    begins: Option<u64>,
    /// Where the log has that.
    offset: Option<i64>,
    /// The round that has the last of it.
    last_round: Option<u64>,
    bytes: u64,
    /// Of the partition before it.
    bytes_before: u64,
}

/// What a checkpoint has not looked at, of all that was there when it began: slots, and numbers.
#[derive(Debug)]
struct Walk {
    sessions: Range<usize>,
    groups: Range<usize>,
    queue_groups: Range<usize>,
    messages: Range<u64>,
    /// Of the last one that it has looked at.
    units: VecDeque<Unit>,
}

impl Switchboard {
    /// Begins to write again what lives in the next partition that has become long, in turn: one that
    /// grows faster than checkpoints are written must not keep the others from theirs.
    pub(super) fn begin_checkpoint(&mut self) {
        let persistence = &mut self.persistence;
        if persistence.checkpoint.is_some() {
            return;
        }
        let bytes_min = persistence.checkpoint_bytes_min;
        let is_long = |bytes: u64, last: u64| bytes > bytes_min.max(RATIO * last);
        let (logs, first) = (&persistence.logs, persistence.next_checkpoint);
        let mut turns = (0..logs.len()).map(|step| (first + step) % logs.len());
        let Some(at) = turns.find(|at| is_long(logs[*at].bytes, logs[*at].checkpoint_bytes)) else {
            return;
        };
        persistence.next_checkpoint = at + 1;
        persistence.checkpoint = Some(Checkpoint {
            partition: at as u32,
            walk: Walk {
                sessions: 0..self.sessions.capacity(),
                groups: 0..self.groups.capacity(),
                queue_groups: 0..self.queues.groups_capacity(),
                messages: 0..persistence.next_number,
                units: VecDeque::new(),
            },
            begins: None,
            offset: None,
            last_round: None,
            bytes: 0,
            bytes_before: std::mem::take(&mut persistence.logs[at].bytes),
        });
    }

    /// Takes a slice of a checkpoint along.
    pub(super) fn write_checkpoint(&mut self, now: Now) {
        let checkpoint = &mut self.persistence.checkpoint;
        let Some(mut checkpoint) = checkpoint.take_if(|of| of.last_round.is_none()) else {
            return;
        };
        let (partition, parts) = (checkpoint.partition, self.persistence.parts.len());
        // One record at least: that it is durable brings the next slice.
        self.write(&Unit::Message(partition, 0), now);
        for _ in 0..SLICE_STEPS {
            if let Some(unit) = checkpoint.walk.units.pop_front() {
                self.write(&unit, now);
            } else if !self.look_at_next(partition, &mut checkpoint.walk) {
                checkpoint.last_round = Some(self.persistence.round);
                break;
            }
            let bytes = self.persistence.logs[partition as usize].builder.bytes();
            if bytes >= SLICE_BYTES || self.persistence.parts.len() > parts {
                break;
            }
        }
        self.persistence.end_parts();
        self.persistence.checkpoint = Some(checkpoint);
    }

    /// Notes what the next thing has in the partition; false where there is none.
    fn look_at_next(&self, partition: u32, walk: &mut Walk) -> bool {
        if let Some(slot) = walk.sessions.next() {
            self.units_of(slot, partition, &mut walk.units);
        } else if let Some(slot) = walk.groups.next() {
            let text = self.groups.durable_text(slot, partition);
            let unit = text.map(|text| Unit::Group(text.into()));
            walk.units.extend(unit);
        } else if let Some(slot) = walk.queue_groups.next() {
            let lies = |stream, of| self.persistence.partition_of_chunk(stream, of) == partition;
            self.chunks_of(slot, lies, |unit| walk.units.push_back(unit));
        } else {
            let live = &self.persistence.logs[partition as usize].live;
            let Some((number, _)) = live.range(walk.messages.clone()).next() else {
                return false;
            };
            walk.messages.start = number + 1;
            walk.units.push_back(Unit::Message(partition, *number));
        }
        true
    }

    fn units_of(&self, slot: usize, partition: u32, units: &mut VecDeque<Unit>) {
        let Some(session) = self.sessions.get(slot) else {
            return;
        };
        let client_id = &session.client_id;
        if session.is_will_kept && self.persistence.partition_of(client_id) == partition {
            units.push_back(Unit::Head(client_id.clone()));
        }
        let durable = session.durable.as_ref();
        if durable.is_some_and(|durable| durable.partition == partition) {
            units.push_back(Unit::Head(client_id.clone()));
            units.push_back(Unit::Cursor(client_id.clone()));
            let filters = session.subscriptions.keys();
            units.extend(filters.map(|filter| Unit::Filter(client_id.clone(), filter.clone())));
            let feeds = session.feeds.iter();
            let filters = feeds.flat_map(|feeds| feeds.iter().map(|(filter, _)| filter));
            units.extend(filters.map(|filter| Unit::Feed(client_id.clone(), filter.into())));
        }
    }
}

impl Persistence {
    /// Whether a checkpoint has more to write.
    pub(super) fn is_checkpoint_due(&self) -> bool {
        let checkpoint = self.checkpoint.as_ref();
        checkpoint.is_some_and(|of| of.last_round.is_none())
    }

    /// Counts a batch that is to be appended; true where a checkpoint begins with it.
    pub(super) fn count(&mut self, partition: u32, bytes: usize, ticket: u64) -> bool {
        self.logs[partition as usize].bytes += bytes as u64;
        let round = self.round;
        let is_of = |of: &&mut Checkpoint| {
            of.partition == partition && of.last_round.is_none_or(|last| last == round)
        };
        let Some(checkpoint) = self.checkpoint.as_mut().filter(is_of) else {
            return false;
        };
        checkpoint.bytes += bytes as u64;
        *checkpoint.begins.get_or_insert(ticket) == ticket
    }

    /// Notes where the log has the batch of a ticket, if a checkpoint begins with it.
    pub(super) fn appended(&mut self, ticket: u64, offset: i64) {
        let checkpoint = self.checkpoint.as_mut();
        if let Some(checkpoint) = checkpoint.filter(|of| of.begins == Some(ticket)) {
            checkpoint.offset = Some(offset);
        }
    }

    /// Ends a checkpoint once all of it is durable: what is before it may go.
    pub(super) fn end_checkpoint(&mut self) -> Option<SessionTrim> {
        let settled = self.settled();
        let is_durable = |of: &mut Checkpoint| of.last_round.is_some_and(|last| last < settled);
        let checkpoint = self.checkpoint.take_if(is_durable)?;
        let partition = checkpoint.partition;
        self.logs[partition as usize].checkpoint_bytes = checkpoint.bytes;
        self.checkpoints += 1;
        let offset = checkpoint
            .offset
            .expect("the shell has said where it begins");
        Some(SessionTrim { partition, offset })
    }

    /// Gives a checkpoint up that a refused round may have been part of: nothing may be let go that
    /// is not written again.
    pub(super) fn give_up_checkpoint(&mut self, round: u64) {
        let may_have = |of: &mut Checkpoint| of.last_round.is_none_or(|last| round <= last);
        if let Some(checkpoint) = self.checkpoint.take_if(may_have) {
            let log = &mut self.logs[checkpoint.partition as usize];
            log.bytes += checkpoint.bytes_before;
        }
    }
}
