//! Messages that do not come again: where they go, and when they are settled.

use std::fmt::Write;

use super::address::DEAD_LETTERS;
use super::message::{DELAY, DELIVER_AT, FIRST_ENQUEUED, OF_DELIVERY, SOURCE_TOPIC};
use super::{Queues, FAILED_MS};
use crate::mqtt::packet::Publish;
use crate::queue::Cause;
use crate::session::Ending;
use crate::switchboard::connect::decode_own;
use crate::switchboard::{Counter, Switchboard};
use crate::Now;

/// What died.
#[derive(Clone, Debug)]
pub struct Death {
    cause: Cause,
    /// What its last consumer said.
    reason: Option<Box<str>>,
    attempts: u32,
}

/// A dead message on its way to the log.
#[derive(Clone, Copy, Debug)]
pub struct Burial {
    group: u32,
    number: u64,
    partition: u32,
    offset: i64,
}

/// User properties of a dead letter, beside its own and those of [`super::message`].
const REASON: &str = "reason";
const DETAIL: &str = "reason-detail";
const ATTEMPTS: &str = "attempts";
const DIED: &str = "died";
const FROM: &str = "x-source-queue";
const PLACE: &str = "x-source-message";

const GROUP: &str = "x-source-group";
const ENQUEUED: &str = "x-source-enqueued";

/// What a consumer said, for every client: one may end its connection over a control character or
/// a code point that is none (MQTT 5.0 1.5.4), and come back for the letter, and again.
fn readable(reason: &str) -> String {
    let is_none = |point: u32| (0xFDD0..=0xFDEF).contains(&point) || point & 0xFFFE == 0xFFFE;
    let shown = |each: char| {
        if each.is_control() || is_none(each.into()) {
            ' '
        } else {
            each
        }
    };
    reason.chars().map(shown).collect()
}

const fn name_of(cause: Cause) -> &'static str {
    match cause {
        Cause::Rejected => "rejected",
        Cause::Attempts => "attempts",
        Cause::TotalTime => "total_time",
        Cause::Expired => "expired",
        Cause::Depth => "depth",
    }
}

impl Queues {
    /// Whether there is a queue of this name, or there will be: that of dead letters is made for
    /// whoever wants to see them, and who consumes it does so once it is there.
    pub(super) fn will_be(&mut self, name: &str) -> bool {
        if self.find(name).is_some() {
            return true;
        }
        let of = name
            .strip_suffix(DEAD_LETTERS)
            .and_then(|name| self.find(name));
        let Some(queue) = of.map(|slot| &mut self.all[slot as usize]) else {
            return false;
        };
        let is_wanted = queue.settings.keeps_dead;
        if is_wanted && !std::mem::replace(&mut queue.has_asked, true) {
            self.wants_dead.push(queue.stream);
        }
        is_wanted
    }
}

impl Switchboard {
    /// A message of a group is dead. It is settled at once where nobody keeps those.
    pub(super) fn dies(
        &mut self,
        slot: u32,
        partition: u32,
        offset: i64,
        cause: Cause,
        reason: Option<&str>,
    ) {
        let queues = &mut self.queues;
        let group = &mut queues.groups[slot as usize];
        group.counts.dead += 1;
        let queue = &mut queues.all[group.queue as usize];
        let part = &mut group.parts[partition as usize];
        if !queue.settings.keeps_dead {
            self.counters.count(Counter::DroppedDead);
            part.ledger.buried(offset);
            queues.take(slot, partition, offset);
            return queues.change(slot, partition);
        }
        let death = Death {
            cause,
            reason: reason.map(Into::into),
            attempts: part.ledger.attempts(offset),
        };
        part.deaths.insert(offset, death);
        part.unburied.insert(offset);
        if !queues.has_room(slot, partition, false) {
            queues.take(slot, partition, offset); // it is read again
        }
        let group = &mut queues.groups[slot as usize];
        group.mourning.insert(partition);
        queues.heat(slot, partition);
        queues.touch(slot);
    }

    /// Gives the dead messages of a group whose packets are at hand to the log that keeps them.
    pub(super) fn bury_ready(&mut self, slot: u32, now: Now) {
        let group = &self.queues.groups[slot as usize];
        if group.mourning.is_empty() {
            return;
        }
        let mourning: Vec<u32> = group.mourning.iter().copied().collect();
        let queue = &mut self.queues.all[group.queue as usize];
        if !queue.settings.keeps_dead {
            for partition in mourning {
                self.drop_dead(slot, partition);
            }
            return;
        }
        let stream = queue.settings.dead_letters;
        let Some(letters) = stream.and_then(|stream| self.streams.slot(stream)) else {
            // Its log may have been deleted meanwhile.
            if !std::mem::replace(&mut queue.has_asked, true) {
                self.queues.wants_dead.push(queue.stream);
            }
            return;
        };
        for partition in mourning {
            let part = &self.queues.groups[slot as usize].parts[partition as usize];
            if part.deaths.is_empty() {
                self.queues.groups[slot as usize]
                    .mourning
                    .remove(&partition);
                continue;
            }
            if part.bury_ms.is_some() {
                continue;
            }
            let unburied: Vec<i64> = part.unburied.iter().copied().collect();
            for offset in unburied {
                let Some(packet) = self.queues.take(slot, partition, offset) else {
                    self.queues.want(slot, partition, offset);
                    break; // what comes with it is found too
                };
                self.bury(slot, partition, offset, &packet, letters, now);
                if self.queues.has_room(slot, partition, false) {
                    self.queues.keep(slot, partition, offset, packet); // for another try
                }
            }
        }
    }

    /// Dead messages are not kept any more: those that are not on their way are settled.
    fn drop_dead(&mut self, slot: u32, partition: u32) {
        let group = &mut self.queues.groups[slot as usize];
        let part = &mut group.parts[partition as usize];
        let dead = std::mem::take(&mut part.unburied);
        for offset in &dead {
            part.deaths.remove(offset);
            part.ledger.buried(*offset);
        }
        if part.deaths.is_empty() {
            group.mourning.remove(&partition);
        }
        if dead.is_empty() {
            return;
        }
        self.counters.add(Counter::DroppedDead, dead.len());
        for offset in dead {
            self.queues.take(slot, partition, offset);
        }
        self.queues.change(slot, partition);
        self.queues.heat(slot, partition);
    }

    fn bury(
        &mut self,
        slot: u32,
        partition: u32,
        offset: i64,
        packet: &[u8],
        letters: u32,
        now: Now,
    ) {
        let group = &mut self.queues.groups[slot as usize];
        let number = group.number;
        let queue = &self.queues.all[group.queue as usize].settings.name;
        let part = &mut group.parts[partition as usize];
        let death = part.deaths.get(&offset).expect("it is dead");
        let death = death.clone();
        part.unburied.remove(&offset);
        let (name, _) = group.named();
        let (mut attempts, mut died, mut place) = (String::new(), String::new(), String::new());
        write!(attempts, "{}", death.attempts).expect("a string takes all");
        write!(died, "{}", now.wall_ms).expect("a string takes all");
        write!(place, "{partition}:{offset}").expect("a string takes all");
        let mut publish = decode_own(packet);
        let user = &mut publish.properties.user;
        let told = |name| user.iter().find(|(key, _)| *key == name).map(|pair| pair.1);
        let (source, enqueued) = (told(SOURCE_TOPIC), told(FIRST_ENQUEUED));
        // What a former death said of it, this one says; and it has waited for its time.
        let ours = [
            REASON, DETAIL, ATTEMPTS, DIED, FROM, PLACE, GROUP, ENQUEUED, DELAY, DELIVER_AT,
        ];
        user.retain(|(key, _)| !ours.contains(key) && !OF_DELIVERY.contains(key));
        user.extend([
            (REASON, name_of(death.cause)),
            (FROM, queue),
            (PLACE, &place),
            (GROUP, name),
            (ATTEMPTS, &attempts),
            (DIED, &died),
        ]);
        user.extend(enqueued.map(|at| (ENQUEUED, at)));
        let detail = death.reason.as_deref().map(readable);
        user.extend(detail.as_deref().map(|detail| (DETAIL, detail)));
        let publish = Publish {
            topic: source.unwrap_or(publish.topic),
            properties: crate::mqtt::packet::PublishProperties {
                message_expiry: None, // what is dead does not expire once more
                ..publish.properties
            },
            ..publish
        };
        let ticket = self.streams.store_own(letters, &publish, now.wall_ms);
        let burial = Burial {
            group: slot,
            number,
            partition,
            offset,
        };
        self.queues.burials.entry(ticket).or_default().push(burial);
    }

    /// An append has ended: what it held of dead messages is settled, or tried again.
    pub(in crate::switchboard) fn burials_over(&mut self, ticket: u64, ending: Ending, now: Now) {
        let Some(burials) = self.queues.burials.remove(&ticket) else {
            return;
        };
        for Burial {
            group: slot,
            number,
            partition,
            offset,
        } in burials
        {
            let group = self.queues.groups.get_mut(slot as usize);
            let Some(group) = group.filter(|group| group.number == number) else {
                continue;
            };
            let part = &mut group.parts[partition as usize];
            if ending == Ending::Stored {
                part.deaths.remove(&offset);
                part.ledger.buried(offset);
                self.queues.take(slot, partition, offset);
                self.queues.change(slot, partition);
                self.queues.heat(slot, partition);
            } else if part.deaths.contains_key(&offset) {
                part.unburied.insert(offset);
                part.bury_ms = Some(now.mono_ms + FAILED_MS);
                self.queues.change(slot, partition);
            }
            self.set_queue_timer(slot);
        }
    }
}
