//! Writing what is due, and what follows when it is durable or was refused.

use std::collections::VecDeque;
use std::sync::Weak;

use super::record::{self, write_group, Copy, Cursor, Filter, Head, Key, Sent, WILL_ALONE};
use super::{
    Checkpoint, Part, Persistence, Round, SessionAppend, Unit, CHECKPOINT_SLICE_BYTES, GRAVES_MAX,
    REST_MS,
};
use crate::mqtt::reason;
use crate::session::{Delivery, Due, End, Ending, Message, Owner, Session};
use crate::switchboard::streams::Waiter;
use crate::switchboard::timers::Timer;
use crate::switchboard::Switchboard;
use crate::Now;

impl Switchboard {
    /// Keeps sessions that may outlive their connection on a log of so many partitions. Called
    /// before the first connection; what the log holds comes in by [`Switchboard::restore`].
    /// A partition that has more than `checkpoint_bytes_min` is written anew at times; a batch has
    /// `batch_bytes_max` and a record at most.
    pub fn keep_sessions(
        &mut self,
        partitions: u32,
        checkpoint_bytes_min: u64,
        batch_bytes_max: usize,
    ) {
        self.persistence.checkpoint_bytes_min = checkpoint_bytes_min;
        self.persistence.batch_bytes_max = batch_bytes_max;
        let logs = &mut self.persistence.logs;
        logs.resize_with(partitions as usize, Default::default);
    }

    /// What is to be appended to the log of sessions. Called once after each
    /// [`collect`](Switchboard::collect), when its appends have been performed or refused: what
    /// is refused by then is not written. Where one of them is refused, those after it must be, too:
    /// they may rest on it.
    pub fn persist(&mut self, now: Now) -> Vec<SessionAppend> {
        if !self.persistence.is_on() {
            return Vec::new();
        }
        self.persistence.forget_unsaid();
        self.apply_ends();
        self.begin_checkpoint();
        if !self.persistence.is_due(now.mono_ms) {
            return Vec::new();
        }
        let persistence = &mut self.persistence;
        persistence.is_urgent = false;
        persistence.exhume();
        let units = std::mem::take(&mut persistence.due);
        // A group's record may say that a member has a message: after that member's.
        for is_of_group in [false, true] {
            for unit in &units {
                if matches!(unit, Unit::Group(_)) == is_of_group {
                    self.write(unit, now);
                }
            }
            self.persistence.end_parts();
        }
        // Last: what it says of a session may rest on a message that is due.
        let ends_checkpoint = self.write_checkpoint(now);
        let appends = self.appends(ends_checkpoint);
        self.persistence.close_round(units, &appends);
        if appends.is_empty() {
            self.rounds_over(now);
        }
        appends
    }

    /// Notes what has ended since the last round.
    fn apply_ends(&mut self) {
        for end in self.persistence.ends.take() {
            match end {
                End::Claim(Owner::Session { slot, number }, place) => {
                    if self.is_numbered(slot, number) {
                        let session = &mut self.sessions[slot as usize];
                        self.persistence.cursor_due(session);
                        let durable = session.durable.as_mut();
                        durable.expect("it has a number").places.end(place);
                    }
                }
                End::Claim(Owner::Group { slot, number }, place) => {
                    self.groups
                        .end_place(slot, number, place, &mut self.persistence);
                }
                End::Message { partition, number } => {
                    let persistence = &mut self.persistence;
                    persistence.logs[partition as usize].live.remove(&number);
                    let round = persistence.round;
                    persistence.graves.push_back((round, partition, number));
                }
            }
        }
    }

    /// Writes the record of a thing as it is now, or that it is no more.
    fn write(&mut self, unit: &Unit, now: Now) {
        let (partition, key, value) = match unit {
            Unit::Head(client_id) => {
                let slot = self.by_client.get(client_id);
                let session = slot.map(|slot| &mut self.sessions[*slot as usize]);
                let value = session.and_then(head_of).map(|head| head.write());
                (None, Key::Head(client_id), value)
            }
            Unit::Cursor(client_id) => {
                self.adopt(client_id, now);
                let session = self.session_to_write(client_id);
                let value = session.map(|session| cursor_of(session).write());
                (None, Key::Cursor(client_id), value)
            }
            Unit::Filter(client_id, filter) => {
                let session = self.session_to_write(client_id);
                let value = session.and_then(|session| filter_of(session, filter));
                (None, Key::Filter(client_id, filter), value)
            }
            Unit::Group(text) => {
                let durable = self.groups.durable_of(text);
                let value = durable.map(|durable| {
                    durable.is_cursor_due = false;
                    write_group(durable.number, &durable.places)
                });
                (None, Key::Group(text), value)
            }
            Unit::Message(partition, number) => {
                let live = &self.persistence.logs[*partition as usize].live;
                let message = live.get(number).and_then(Weak::upgrade);
                let value = message.map(|message| write_message(&message, now));
                (Some(*partition), Key::Message(*number), value)
            }
        };
        let partition = partition.unwrap_or_else(|| match key {
            Key::Head(name) | Key::Cursor(name) | Key::Filter(name, _) | Key::Group(name) => {
                self.persistence.partition_of(name)
            }
            Key::Message(_) => unreachable!("a message says where it lies"),
        });
        self.push(partition, key, value.as_deref(), now);
    }

    fn session_to_write(&mut self, client_id: &str) -> Option<&mut Session> {
        let slot = *self.by_client.get(client_id)?;
        let session = &mut self.sessions[slot as usize];
        session.durable.is_some().then_some(session)
    }

    /// Stores what a session has been sent at `QoS` 2 and the log does not have, as is a retained
    /// message: the client knows its packet id.
    fn adopt(&mut self, client_id: &str, now: Now) {
        let Some(slot) = self.by_client.get(client_id).copied() else {
            return;
        };
        let session = &self.sessions[slot as usize];
        let Some(durable) = &session.durable else {
            return;
        };
        let partition = durable.partition;
        let sent = session.outbound.exchanges().into_iter();
        let sent = sent.filter_map(|exchange| exchange.sent);
        let sent = sent.filter(|delivery| delivery.message.stored.get().is_none());
        let messages: Vec<_> = sent.map(|delivery| delivery.message.clone()).collect();
        for message in messages {
            self.persistence.store(&message, partition, Box::default());
            if let Some(stored) = message.stored.get() {
                let value = write_message(&message, now);
                self.push(partition, Key::Message(stored.number), Some(&value), now);
            }
        }
    }

    fn push(&mut self, partition: u32, key: Key<'_>, value: Option<&[u8]>, now: Now) {
        let builder = &mut self.persistence.logs[partition as usize].builder;
        builder.push(now.wall_ms, Some(&key.bytes()), value, []);
        if builder.bytes() >= self.persistence.batch_bytes_max {
            self.persistence.end_part(partition);
        }
    }

    /// The batches of the round.
    fn appends(&mut self, ends_checkpoint: bool) -> Vec<SessionAppend> {
        let parts = std::mem::take(&mut self.persistence.parts);
        let partitions: Vec<u32> = parts.iter().map(|part| part.partition).collect();
        let mut appends = Vec::with_capacity(parts.len());
        for (
            at,
            Part {
                partition,
                mut builder,
            },
        ) in parts.into_iter().enumerate()
        {
            let follows = partitions[..at].contains(&partition);
            let goes_on = partitions[at + 1..].contains(&partition);
            let batch = builder.finish_part(follows, goes_on);
            let begins = self.persistence.count(partition, batch.len());
            appends.push(SessionAppend {
                partition,
                batch,
                ticket: self.streams.ticket(),
                begins,
                ends: false,
            });
        }
        if ends_checkpoint {
            let last = appends.last_mut();
            last.expect("a checkpoint has a record").ends = true;
            self.persistence.end_checkpoint();
        }
        appends
    }

    /// Begins to write again what lives in the partition that has become long.
    fn begin_checkpoint(&mut self) {
        let persistence = &self.persistence;
        if persistence.checkpoint.is_some() {
            return;
        }
        let bytes_min = persistence.checkpoint_bytes_min;
        let mut logs = persistence.logs.iter();
        let Some(at) = logs.position(|log| log.is_long(bytes_min)) else {
            return;
        };
        let partition = at as u32;
        let units = self.units_of(partition);
        let log = &mut self.persistence.logs[at];
        self.persistence.checkpoint = Some(Checkpoint {
            partition,
            units,
            is_begun: false,
            bytes: 0,
            bytes_before: std::mem::take(&mut log.bytes),
        });
    }

    /// All that lives in a partition, and one record at least.
    fn units_of(&self, partition: u32) -> VecDeque<Unit> {
        let mut units = VecDeque::from([Unit::Message(partition, 0)]);
        for (_, session) in &self.sessions {
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
            }
        }
        let texts = self.groups.durable_texts(partition);
        units.extend(texts.map(|text| Unit::Group(text.into())));
        let live = self.persistence.logs[partition as usize].live.keys();
        units.extend(live.map(|number| Unit::Message(partition, *number)));
        units
    }

    /// Takes a part of a checkpoint along; true for its last.
    fn write_checkpoint(&mut self, now: Now) -> bool {
        let Some(mut checkpoint) = self.persistence.checkpoint.take() else {
            return false;
        };
        let (partition, mut units) = (checkpoint.partition, std::mem::take(&mut checkpoint.units));
        self.persistence.checkpoint = Some(checkpoint);
        let parts = self.persistence.parts.len();
        while let Some(unit) = units.pop_front() {
            self.write(&unit, now);
            let bytes = self.persistence.logs[partition as usize].builder.bytes();
            let is_enough = self.persistence.parts.len() > parts;
            if is_enough || bytes >= CHECKPOINT_SLICE_BYTES {
                break;
            }
        }
        self.persistence.end_parts();
        let is_over = units.is_empty();
        if let Some(checkpoint) = &mut self.persistence.checkpoint {
            checkpoint.units = units;
        }
        is_over
    }

    /// The end of one append, if the ticket is one of ours.
    pub(in crate::switchboard) fn persisted(
        &mut self,
        ticket: u64,
        ending: Ending,
        now: Now,
    ) -> bool {
        let Some(number) = self.persistence.tickets.remove(&ticket) else {
            return false;
        };
        let first = self.persistence.settled();
        let round = &mut self.persistence.rounds[(number - first) as usize];
        round.tickets -= 1;
        if ending != Ending::Stored {
            let waiters = std::mem::take(&mut round.waiters);
            let units = std::mem::take(&mut round.units);
            self.round_failed(number, ending, waiters, units, now);
        }
        self.rounds_over(now);
        true
    }

    /// A round was refused, which is known before the next is written: nothing of it is
    /// acknowledged, and what it said is said again, later. Who asked to connect is refused, and
    /// leaves no will (3.1.4).
    fn round_failed(
        &mut self,
        number: u64,
        ending: Ending,
        waiters: Vec<Waiter>,
        units: Vec<Unit>,
        now: Now,
    ) {
        self.persistence.write_again(number, units, now);
        let due_ms = self.persistence.rests_until_ms;
        self.timers.set(due_ms, Timer::Persist);
        let gated = self.persistence.gated_by(number);
        for connection in gated {
            let Ok(slot) = self.slot(connection) else {
                continue;
            };
            let (reason, reason_code) = match ending {
                Ending::NoRoom => ("disk_full", reason::QUOTA_EXCEEDED),
                _ => ("not_stored", reason::UNSPECIFIED_ERROR),
            };
            let connection = &mut self.connections[slot as usize];
            let mut told = Some(reason_code);
            if let (false, Some(session)) = (connection.give_up(number), connection.session) {
                self.set_will(session, None);
                self.deny_connect(slot, reason_code);
                told = None;
            }
            self.close(slot, reason, told, now);
            self.touch(slot);
        }
        let waiters: Vec<_> = waiters.into_iter().map(|each| (each, ending)).collect();
        self.settle(&waiters, now);
    }

    /// Lets go who waited for rounds that are durable.
    fn rounds_over(&mut self, now: Now) {
        let is_over = |round: &Round| round.tickets == 0;
        while self.persistence.rounds.front().is_some_and(is_over) {
            let round = self.persistence.rounds.pop_front();
            let round = round.expect("it has just been looked at");
            self.persistence.undurable_bytes -= round.bytes;
            for connection in self.persistence.gated_by(round.number) {
                if let Ok(slot) = self.slot(connection) {
                    self.touch(slot);
                }
            }
            let waiters = round.waiters.into_iter();
            let waiters: Vec<_> = waiters.map(|each| (each, Ending::Stored)).collect();
            self.settle(&waiters, now);
        }
    }
}

impl Persistence {
    /// Whether a round is to be written now: at once where somebody waits, else when the last one
    /// is durable, so that what can wait goes together.
    fn is_due(&self, mono_ms: u64) -> bool {
        let is_idle = self.rounds.is_empty();
        let is_wanted = !self.due.is_empty()
            || !self.waiters.is_empty()
            || self.checkpoint.is_some()
            || self.graves.len() > GRAVES_MAX;
        mono_ms >= self.rests_until_ms && is_wanted && (is_idle || self.is_urgent)
    }

    /// Keeps what was owed open until the log says that there is no such message: if the log has it,
    /// and its packet id, and the node ends before that, all of them get it, not some.
    pub fn unsay(&mut self, dues: Vec<Due>) {
        if !dues.is_empty() {
            self.unsaid.push_back((self.round, dues));
        }
    }

    /// Messages are gone once a durable round has said that nobody is owed them.
    fn exhume(&mut self) {
        let settled = self.settled();
        while let Some((round, partition, number)) = self.graves.front().copied() {
            if round >= settled {
                return;
            }
            self.graves.pop_front();
            self.due.push(Unit::Message(partition, number));
        }
    }

    /// Lets go what a durable round has taken back.
    fn forget_unsaid(&mut self) {
        let settled = self.settled();
        let over = self.unsaid.partition_point(|(round, _)| *round < settled);
        self.unsaid.drain(..over);
    }

    /// Closes a batch of the round.
    fn end_part(&mut self, partition: u32) {
        let builder = std::mem::take(&mut self.logs[partition as usize].builder);
        self.parts.push(Part { partition, builder });
    }

    fn end_parts(&mut self) {
        for partition in 0..self.logs.len() {
            if !self.logs[partition].builder.is_empty() {
                self.end_part(partition as u32);
            }
        }
    }

    /// Counts a batch that is to be appended; true where a checkpoint begins with it.
    fn count(&mut self, partition: u32, bytes: usize) -> bool {
        self.logs[partition as usize].bytes += bytes as u64;
        let checkpoint = self.checkpoint.as_mut();
        let Some(checkpoint) = checkpoint.filter(|of| of.partition == partition) else {
            return false;
        };
        checkpoint.bytes += bytes as u64;
        !std::mem::replace(&mut checkpoint.is_begun, true)
    }

    fn end_checkpoint(&mut self) {
        let checkpoint = self.checkpoint.take().expect("it has just been written");
        self.logs[checkpoint.partition as usize].checkpoint_bytes = checkpoint.bytes;
        self.checkpoints += 1;
    }

    /// Connections whose bytes wait for a round; they do no more.
    fn gated_by(&mut self, round: u64) -> Vec<u64> {
        let from = self.gated.partition_point(|(of, _)| *of < round);
        let to = self.gated.partition_point(|(of, _)| *of <= round);
        self.gated.drain(from..to).map(|(_, id)| id).collect()
    }

    fn close_round(&mut self, units: Vec<Unit>, appends: &[SessionAppend]) {
        let tickets = appends.iter().map(|append| (append.ticket, self.round));
        self.tickets.extend(tickets);
        let bytes = appends.iter().map(|append| append.batch.len()).sum();
        self.undurable_bytes += bytes;
        self.rounds.push_back(Round {
            number: self.round,
            tickets: appends.len(),
            bytes,
            waiters: std::mem::take(&mut self.waiters),
            units,
        });
        self.round += 1;
    }

    /// A checkpoint that the round may have been part of is given up, for nothing must be let go
    /// that is not written again; and what it told of messages is told by the next round.
    fn write_again(&mut self, number: u64, units: Vec<Unit>, now: Now) {
        self.due.extend(units);
        let later = self.graves.iter_mut().filter(|(of, ..)| *of >= number);
        for (of, ..) in later {
            *of = self.round;
        }
        let later = self.unsaid.iter_mut().filter(|(of, _)| *of >= number);
        for (of, _) in later {
            *of = self.round;
        }
        self.rests_until_ms = now.mono_ms + REST_MS;
        if let Some(checkpoint) = self.checkpoint.take() {
            let log = &mut self.logs[checkpoint.partition as usize];
            log.bytes += checkpoint.bytes_before;
        }
    }
}

/// None where nothing is kept of the session, or its will alone and that is gone.
fn head_of(session: &mut Session) -> Option<Head> {
    let (number, left_ms) = match &mut session.durable {
        Some(durable) => {
            durable.is_head_due = false;
            (durable.number, durable.left_ms)
        }
        None if session.is_will_kept && session.will.is_some() => (WILL_ALONE, None),
        None => return None,
    };
    Some(Head {
        number,
        expiry_s: session.expiry_s,
        left_ms,
        user: session.identity.as_ref().and_then(|identity| {
            let principal = &identity.principal;
            let name = principal.username.clone()?;
            Some((name, principal.is_certified))
        }),
        will: session.will.clone(),
    })
}

fn filter_of(session: &Session, filter: &str) -> Option<Vec<u8>> {
    let subscription = session.subscriptions.get(filter)?;
    let record = Filter {
        number: session.durable.as_ref().expect("it is kept").number,
        qos: subscription.qos,
        no_local: subscription.no_local,
        retain_as_published: subscription.retain_as_published,
        replays: session.replays.contains(filter),
        id: subscription.id,
    };
    Some(record.write())
}

fn cursor_of(session: &mut Session) -> Cursor {
    let exchanges = session.outbound.exchanges().into_iter();
    let exchanges = exchanges.map(|exchange| (exchange.id, exchange.sent.map(sent_of)));
    let exchanges = exchanges.collect();
    let durable = session.durable.as_mut().expect("it is kept");
    durable.is_cursor_due = false;
    Cursor {
        number: durable.number,
        places: durable.places.clone(),
        unreleased: session.inbound.unreleased_ids().collect(),
        exchanges,
    }
}

fn sent_of(delivery: &Delivery) -> Sent {
    let Delivery {
        message,
        terms,
        claim,
        ..
    } = delivery;
    let claim = claim.as_ref();
    Sent {
        number: message.stored.get().expect("it was adopted").number,
        copy: Copy {
            qos: terms.qos,
            retain: terms.retain,
            ids: terms.ids.clone(),
        },
        claim: claim.map(|claim| (claim.owner.number(), claim.place)),
    }
}

fn write_message(message: &Message, now: Now) -> Vec<u8> {
    let waited_ms = now.mono_ms.saturating_sub(message.arrived_ms);
    let stored = message.stored.get().expect("it is on the log");
    let record = record::Message {
        qos: message.qos,
        retain: message.retain,
        publisher: message.publisher,
        arrived_ms: wall_ms(now).saturating_sub(waited_ms),
        expiry: message.expiry,
        head: &message.head,
        topic_bytes: message.topic_bytes,
        payload: &message.payload,
        claims: &stored.claims,
    };
    record.write()
}

/// A clock before 1970 is as good as none.
pub(super) fn wall_ms(now: Now) -> u64 {
    u64::try_from(now.wall_ms).unwrap_or(0)
}
