//! Writing what is due.

use std::collections::VecDeque;
use std::sync::Weak;

use super::record::{self, write_group, Copy, Cursor, Feed, Filter, Head, Key, Sent, WILL_ALONE};
use super::{Part, Persistence, SessionAppend, SessionTrim, Unit};
use crate::session::{Delivery, End, Message, Owner, Progress, Session};
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

    /// Closes a round of what is due, for [`session_append`](Switchboard::session_append) to give
    /// out; what of the log may go. Called once after each [`collect`](Switchboard::collect), when
    /// its appends have been performed or refused: what is refused by then is not written.
    ///
    /// # Panics
    /// Where the shell has not taken all of the last round.
    pub fn persist(&mut self, now: Now) -> Option<SessionTrim> {
        let persistence = &mut self.persistence;
        if !persistence.is_on() {
            return None;
        }
        assert!(persistence.appends.is_empty(), "a round is left");
        let trim = persistence.end_checkpoint();
        persistence.forget_unsaid();
        self.apply_ends();
        self.note_changed();
        self.begin_checkpoint();
        if self.persistence.is_due(now.mono_ms) {
            self.write_round(now);
        }
        trim
    }

    fn write_round(&mut self, now: Now) {
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
        self.write_checkpoint(now);
        let appends = self.appends();
        self.persistence.close_round(units, appends);
        self.rounds_over(now); // one that has nothing to append
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
                End::Claim(
                    Owner::Feed {
                        slot,
                        number,
                        partition,
                    },
                    offset,
                ) => self.end_of_record(slot, number, partition, offset as i64),
                End::Message { partition, number } => {
                    let persistence = &mut self.persistence;
                    persistence.logs[partition as usize].live.remove(&number);
                    let round = persistence.round;
                    persistence.graves.push_back((round, partition, number));
                }
            }
        }
    }

    /// What a session was sent of a stream is over.
    fn end_of_record(&mut self, slot: u32, number: u64, partition: u32, offset: i64) {
        let Some(session) = self.sessions.get_mut(slot as usize) else {
            return;
        };
        let feeds = session.feeds.as_mut();
        let Some((filter, feed)) = feeds.and_then(|feeds| feeds.numbered(number)) else {
            return;
        };
        if feed.partitions[partition as usize].end(offset) {
            let filter: Box<str> = filter.into();
            self.persistence.feed_due(session, &filter);
        }
    }

    /// Writes the record of a thing as it is now, or that it is no more.
    pub(super) fn write(&mut self, unit: &Unit, now: Now) {
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
            Unit::Feed(client_id, filter) => {
                let session = self.session_to_write(client_id);
                let value = session.and_then(|session| feed_of(session, filter));
                (None, Key::Feed(client_id, filter), value)
            }
            Unit::Group(text) => {
                let durable = self.groups.durable_of(text);
                let value = durable.map(|durable| {
                    durable.is_cursor_due = false;
                    write_group(durable.number, &durable.places)
                });
                (None, Key::Group(text), value)
            }
            Unit::Chunk(place) | Unit::WholeChunk(place) => {
                let lies = self
                    .persistence
                    .partition_of_chunk(place.stream, place.partition);
                let is_whole = matches!(unit, Unit::WholeChunk(_));
                let value = self.chunk_record(place, is_whole);
                (Some(lies), Key::Chunk(place.clone()), value)
            }
            Unit::Message(partition, number) => {
                let live = &self.persistence.logs[*partition as usize].live;
                let message = live.get(number).and_then(Weak::upgrade);
                let value = message.map(|message| write_message(&message, now));
                (Some(*partition), Key::Message(*number), value)
            }
        };
        let partition = partition.unwrap_or_else(|| match &key {
            Key::Head(name)
            | Key::Cursor(name)
            | Key::Filter(name, _)
            | Key::Feed(name, _)
            | Key::Group(name) => self.persistence.partition_of(name),
            Key::Message(_) | Key::Chunk(_) => unreachable!("it says where it lies"),
        });
        self.push(partition, &key, value.as_deref(), now);
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
                self.push(partition, &Key::Message(stored.number), Some(&value), now);
            }
        }
    }

    fn push(&mut self, partition: u32, key: &Key<'_>, value: Option<&[u8]>, now: Now) {
        let builder = &mut self.persistence.logs[partition as usize].builder;
        builder.push(now.wall_ms, Some(&key.bytes()), value, []);
        if builder.bytes() >= self.persistence.batch_bytes_max {
            self.persistence.end_part(partition);
        }
    }

    /// The batches of the round.
    fn appends(&mut self) -> VecDeque<SessionAppend> {
        let parts = std::mem::take(&mut self.persistence.parts);
        let partitions: Vec<u32> = parts.iter().map(|part| part.partition).collect();
        let mut appends = VecDeque::with_capacity(parts.len());
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
            let ticket = self.streams.ticket();
            let begins = self.persistence.count(partition, batch.len(), ticket);
            appends.push_back(SessionAppend {
                partition,
                batch,
                ticket,
                begins,
            });
        }
        appends
    }
}

impl Persistence {
    /// Closes a batch of the round.
    fn end_part(&mut self, partition: u32) {
        let builder = std::mem::take(&mut self.logs[partition as usize].builder);
        self.parts.push(Part { partition, builder });
    }

    pub(super) fn end_parts(&mut self) {
        for partition in 0..self.logs.len() {
            if !self.logs[partition].builder.is_empty() {
                self.end_part(partition as u32);
            }
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
        consumption: {
            let consuming = session.consuming.as_ref();
            consuming.and_then(|consuming| consuming.terms.get(filter).cloned())
        },
    };
    Some(record.write())
}

fn feed_of(session: &mut Session, filter: &str) -> Option<Vec<u8>> {
    let number = session.durable.as_ref().expect("it is kept").number;
    let feed = session.feeds.as_mut()?.get_mut(filter)?;
    feed.is_due = false;
    let positions = feed.partitions.iter().map(Progress::position);
    let record = Feed {
        number,
        stream: feed.stream,
        positions: positions.collect(),
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
