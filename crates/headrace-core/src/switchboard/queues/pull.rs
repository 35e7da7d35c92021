//! Messages for who has no session: asked for once, collected, and taken by the shell.
//!
//! A pull stands in the line of its group like a consumer, until it has all that it asked for, or
//! the group has nothing more at hand. What was taken stays in flight until its deadline, for there
//! is nobody whose going would be noticed, unless the shell gives it back.

use std::collections::BTreeSet;

use super::consumers::{group_key, unfit_name};
use super::{Queues, Sharing};
use crate::mqtt::packet::Publish;
use crate::switchboard::connect::decode_own;
use crate::switchboard::{Error, Switchboard};
use crate::topic::Filter;
use crate::Now;

/// Of the number of a pull, and of no consumer's.
const PULL: u64 = 1 << 63;

/// Messages of a group that are in flight, from which on it is not pulled from: some 20 MB, for
/// nothing else bounds what is pulled and never settled.
const FLYING_MAX: usize = 100_000;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullTerms {
    /// Messages at most; 1 at least.
    pub messages_max: usize,
    /// Bytes of messages; the last may go beyond.
    pub bytes_max: usize,
    /// From a delivery until it counts as a failure, milliseconds; without, as the queue has it.
    pub deadline_ms: Option<u64>,
    /// Where there is no message it waits for one, until [`Switchboard::end_pull`].
    pub waits: bool,
}

/// A message that was delivered to a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PulledMessage {
    /// Where it lies.
    pub partition: u32,
    /// Where in it.
    pub offset: i64,
    /// Which delivery of it this is, from 1.
    pub attempt: u32,
    /// A PUBLISH of 5.0.
    pub packet: Box<[u8]>,
}

impl PulledMessage {
    /// What it says.
    pub fn publish(&self) -> Publish<'_> {
        decode_own(&self.packet)
    }
}

/// The end of a pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// As it was given out.
    pub number: u64,
    /// What it has got.
    pub messages: Vec<PulledMessage>,
}

#[derive(Debug)]
pub(super) struct Pull {
    pub group: u32,
    terms: PullTerms,
    pulled: Vec<PulledMessage>,
    bytes: usize,
}

impl Pull {
    fn is_full(&self) -> bool {
        self.pulled.len() >= self.terms.messages_max || self.bytes >= self.terms.bytes_max
    }
}

/// Whether a delivery is, or was, one to a pull.
pub(super) const fn is_pull(holder: u64) -> bool {
    holder & PULL != 0
}

impl Switchboard {
    /// Has a group of a queue, which begins with it if there is none, deliver to somebody without a
    /// session: its number, which comes back from [`Switchboard::pulled`].
    ///
    /// # Errors
    /// The stream is no queue, or it cannot be served: why.
    pub fn pull_queue(
        &mut self,
        stream: u64,
        (group, filter): (&str, Option<&str>),
        terms: PullTerms,
    ) -> Result<u64, Error> {
        let invalid = |text: &str| Err(Error::Invalid(text.into()));
        let queue = self.queues.by_stream.get(&stream).copied();
        let queue = queue.ok_or(Error::Stream(stream, 0))?;
        let name = pulled_group(group, filter).map_err(Error::Invalid)?;
        if !self.persistence.is_on() {
            return invalid("queues need mqtt.persistence = true");
        }
        if self.queues.all[queue as usize].settings.sharing != Sharing::Shared {
            return invalid("the queue gives all to one connected consumer (consumers = single or exclusive): it cannot be pulled from");
        }
        if !self.has_room_for_group(Some(queue), &name) {
            return Err(Error::GroupLimit);
        }
        let slot = self.queues.group_of(queue, &name);
        let parts = self.queues.groups[slot as usize].parts.iter();
        let flying: usize = parts.map(|part| part.ledger.in_flight()).sum();
        if flying >= FLYING_MAX {
            return invalid("the group has 100,000 messages in flight; settle some of them first");
        }
        let number = self.queues.number() | PULL;
        let pull = Pull {
            group: slot,
            terms,
            pulled: Vec::new(),
            bytes: 0,
        };
        self.queues.pulls.insert(number, pull);
        self.queues.groups[slot as usize].line.push_back(number);
        self.queues.touch(slot);
        if !self.queues.groups[slot as usize].is_due {
            self.queues.end_dry_pulls(slot);
        }
        Ok(number)
    }

    /// A pull waits no longer: it ends as soon as nothing is at hand for it, and at once where it
    /// was told so before.
    pub fn end_pull(&mut self, number: u64) {
        let Some(pull) = self.queues.pulls.get_mut(&number) else {
            return;
        };
        let slot = pull.group;
        if std::mem::take(&mut pull.terms.waits) {
            self.queues.end_dry_pulls(slot);
        } else {
            self.queues.end_pull(number);
        }
    }

    /// Pulls that have ended since the last call.
    pub fn pulled(&mut self) -> Vec<Pulled> {
        std::mem::take(&mut self.queues.pulled)
    }

    /// Whoever pulled has gone, and may have none of what it was to get: it is delivered again, at
    /// once, which is no failure. What is settled stays so.
    pub fn return_pull(&mut self, stream: u64, (group, filter): (&str, Option<&str>), number: u64) {
        self.queues.end_pull(number);
        self.queues.pulled.retain(|pulled| pulled.number != number);
        let (Some(queue), Ok(name)) = (
            self.queues.by_stream.get(&stream),
            pulled_group(group, filter),
        ) else {
            return;
        };
        let groups = &self.queues.all[*queue as usize].groups;
        if let Some(slot) = groups.get(&*name).copied() {
            self.queues.return_all(slot, number, false);
        }
    }

    /// The node ends: what was pulled and is not settled is delivered again, as another attempt and
    /// no failure.
    pub(in crate::switchboard) fn return_pulled(&mut self, now: Now) {
        let mut held = BTreeSet::new();
        for (slot, group) in &self.queues.groups {
            let holders = group.parts.iter().flat_map(|part| part.ledger.holders());
            held.extend(
                holders
                    .filter(|holder| is_pull(*holder))
                    .map(|holder| (slot as u32, holder)),
            );
        }
        for (slot, holder) in held {
            self.queues.return_all(slot, holder, false);
        }
        self.return_rest(now);
    }

    /// Gives a message to a pull.
    pub(super) fn hand_to_pull(
        &mut self,
        slot: u32,
        number: u64,
        (partition, offset): (u32, i64),
        now: Now,
    ) {
        let packet = self.queues.take(slot, partition, offset);
        let packet = packet.expect("it is at hand");
        let attempt = self.begin_delivery(slot, number, (partition, offset), now);
        let pull = self.queues.pulls.get_mut(&number).expect("it is in line");
        pull.bytes += packet.len();
        pull.pulled.push(PulledMessage {
            partition,
            offset,
            attempt,
            packet,
        });
        let is_full = pull.is_full();
        if let Some(deadline_ms) = pull.terms.deadline_ms {
            let place = (partition, offset, attempt);
            let extended = self.extend_delivery(slot, place, Some(deadline_ms), now);
            extended.expect("it has just begun");
        }
        self.queues.change(slot, partition);
        if is_full {
            self.queues.end_pull(number);
        }
    }
}

impl Queues {
    /// Ends pulls for which a group has nothing more at hand: those that have something, and those
    /// that do not wait.
    pub(super) fn end_dry_pulls(&mut self, slot: u32) {
        if self.pulls.is_empty() {
            return;
        }
        let group = &self.groups[slot as usize];
        let settings = &self.all[group.queue as usize].settings;
        let is_served = !settings.is_paused && settings.sharing == Sharing::Shared;
        let is_dry = group.hot.is_empty() && group.parts.iter().all(|part| part.asked.is_none());
        if is_served && !is_dry {
            return;
        }
        for number in self.pulls_of(slot) {
            let pull = &self.pulls[&number];
            if !pull.terms.waits || !pull.pulled.is_empty() {
                self.end_pull(number);
            }
        }
    }

    /// The numbers of the pulls that stand in the line of a group.
    pub(super) fn pulls_of(&self, slot: u32) -> Vec<u64> {
        let of_group = self.pulls.iter().filter(|(_, pull)| pull.group == slot);
        of_group.map(|(number, _)| *number).collect()
    }

    /// Ends a pull with what it has.
    pub(super) fn end_pull(&mut self, number: u64) {
        let Some(pull) = self.pulls.remove(&number) else {
            return;
        };
        let line = &mut self.groups[pull.group as usize].line;
        line.retain(|each| *each != number);
        let messages = pull.pulled;
        self.pulled.push(Pulled { number, messages });
    }

    /// What pulls of a group have collected can no longer be settled.
    pub(super) fn empty_pulls(&mut self, slot: u32) {
        for pull in self.pulls.values_mut() {
            if pull.group == slot {
                pull.pulled.clear();
                pull.bytes = 0;
            }
        }
    }

    /// Asserts what must always hold.
    pub(super) fn validate_pulls(&self) {
        for (number, pull) in &self.pulls {
            assert!(!pull.is_full(), "it has ended");
            let line = &self.groups[pull.group as usize].line;
            assert_eq!(line.iter().filter(|each| *each == number).count(), 1);
        }
    }
}

/// The group that a pull is of.
fn pulled_group(group: &str, filter: Option<&str>) -> Result<std::sync::Arc<str>, String> {
    if let Some(why) = unfit_name(group) {
        return Err(why.into());
    }
    let filter = filter.filter(|filter| *filter != "#");
    if let Some(Err(error)) = filter.map(Filter::parse) {
        return Err(format!("filter: {error}"));
    }
    Ok(group_key(group, filter))
}
