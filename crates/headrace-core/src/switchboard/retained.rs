//! Retained messages: the last one of each topic, kept for subscribers yet to come
//! (MQTT 5.0 3.3.1.3, 3.3.2.3.3, 3.8.3.1).
//!
//! A subscriber is sent them as it reads and acknowledges: what it has room for, and then a
//! position is all that waits. Looking for them is counted in names, a bounded number a collect,
//! so that no search holds up the loop.
//!
//! When a message is set, and how it lasts, is in `retain`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::announce::BELOW;
use super::outgoing::{topic_of, Outgoing};
use super::permit::hears;
use super::timers::Timer;
use super::{Counter, Error, Switchboard};
use crate::mqtt::packet::QoS;
use crate::session::{Ids, Message, Replay, Terms, OVERHEAD_BYTES};
use crate::topic::{Cursor, Filter, Retained};
use crate::Now;

/// Names that searches of one collect look at, all sessions together: about 2 ms.
pub(super) const STEPS_MAX: usize = 10_000;

/// Bytes that may wait for a client when it is sent the next retained message: enough to keep a
/// socket busy, little enough for thousands of slow readers.
pub(super) const AHEAD_BYTES_MAX: usize = 64 * 1024;

/// Messages whose expiry passed that one tick removes.
const PURGE_MAX: usize = 10_000;

/// Names that one call of administration looks at, about 10 ms.
pub const PAGE_MAX: usize = 50_000;

/// A message that is kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub message: Arc<Message>,
    /// Its place in the order of arrivals.
    stamp: u64,
    /// Of the stream that keeps it.
    pub partition: u32,
}

impl Kept {
    fn bytes(&self) -> usize {
        kept_bytes(&self.message)
    }
}

fn kept_bytes(message: &Message) -> usize {
    message.topic_bytes + message.head.len() + message.payload.len() + OVERHEAD_BYTES
}

/// When a message must be gone.
fn due_ms(message: &Message) -> Option<u64> {
    let expiry = message.expiry?;
    Some(message.arrived_ms + u64::from(expiry.seconds) * 1000 + 1)
}

/// All retained messages.
#[derive(Debug, Default)]
pub(super) struct Store {
    names: Retained<Kept>,
    bytes: usize,
    /// Those with an expiry, by when they must be gone and by stamp.
    expiring: BTreeMap<(u64, u64), Arc<Message>>,
    timer_ms: Option<u64>,
}

impl Store {
    pub fn len(&self) -> usize {
        self.names.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a message of that topic and size fits in.
    pub fn has_room(&self, topic: &str, bytes: usize, count_max: usize, bytes_max: usize) -> bool {
        let before = self.names.get(topic);
        let others = self.bytes - before.map_or(0, Kept::bytes);
        (before.is_some() || self.names.len() < count_max) && others + bytes <= bytes_max
    }

    pub fn set(&mut self, message: Arc<Message>, stamp: u64, partition: u32) {
        self.bytes += kept_bytes(&message);
        if let Some(due_ms) = due_ms(&message) {
            self.expiring.insert((due_ms, stamp), Arc::clone(&message));
        }
        let topic = topic_of(&message).to_owned();
        let kept = Kept {
            message,
            stamp,
            partition,
        };
        let before = self.names.insert(&topic, kept);
        self.let_go(before);
    }

    pub fn clear(&mut self, topic: &str) -> bool {
        let before = self.names.remove(topic);
        self.let_go(before)
    }

    /// The next message that a filter matches, as [`Retained::next`].
    pub fn next(&self, filter: Filter<'_>, at: &mut Cursor, steps: &mut usize) -> Option<&Kept> {
        self.names.next(filter, at, steps)
    }

    fn let_go(&mut self, kept: Option<Kept>) -> bool {
        let Some(kept) = kept else { return false };
        self.bytes -= kept.bytes();
        if let Some(due_ms) = due_ms(&kept.message) {
            self.expiring.remove(&(due_ms, kept.stamp));
        }
        true
    }

    /// Asserts what must hold, where `all` matches every name that it keeps.
    pub fn validate(&self, all: &str) {
        let (mut cursor, mut steps) = (Cursor::default(), usize::MAX);
        let (mut bytes, mut expiring, mut count) = (0, 0, 0);
        let all = Filter::parse(all).expect("it is a filter");
        while let Some(kept) = self.names.next(all, &mut cursor, &mut steps) {
            bytes += kept.bytes();
            count += 1;
            if let Some(due_ms) = due_ms(&kept.message) {
                expiring += 1;
                let found = self.expiring.get(&(due_ms, kept.stamp));
                assert!(found.is_some_and(|found| Arc::ptr_eq(found, &kept.message)));
            }
            assert!(!kept.message.payload.is_empty());
        }
        let kept = (self.names.len(), self.bytes, self.expiring.len());
        assert_eq!((count, bytes, expiring), kept);
        let first = self.expiring.keys().next();
        assert_eq!(self.timer_ms.is_some(), first.is_some());
    }
}

/// A retained message, as administration sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetainedMessage {
    /// Topic.
    pub topic: String,
    /// As published.
    pub payload: Bytes,
    /// As published.
    pub qos: QoS,
    /// Seconds until it expires; None where it does not.
    pub expiry_s: Option<u32>,
}

/// What a call that goes through retained messages came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page<T> {
    /// The result for this part.
    pub found: T,
    /// Where the next call goes on; None at the end.
    pub next: Option<String>,
}

impl Switchboard {
    pub(super) fn set_retained_timer(&mut self) {
        let first = self.retained.expiring.keys().next();
        let due_ms = first.map(|(due_ms, _)| *due_ms);
        if due_ms != self.retained.timer_ms {
            if let Some(due_ms) = self.retained.timer_ms {
                self.timers.cancel(due_ms, Timer::Retained);
            }
            if let Some(due_ms) = due_ms {
                self.timers.set(due_ms, Timer::Retained);
            }
            self.retained.timer_ms = due_ms;
        }
    }

    /// Lets go of messages whose expiry has passed.
    pub(super) fn purge_retained(&mut self, now: Now) {
        self.retained.timer_ms = None;
        let first = self.retained.expiring.iter().take(PURGE_MAX);
        let expired = first.take_while(|((due_ms, _), _)| *due_ms <= now.mono_ms);
        let expired: Vec<_> = expired.map(|(_, message)| Arc::clone(message)).collect();
        self.counters.add(Counter::RetainedExpired, expired.len());
        self.let_go(&expired, None, now);
    }

    /// Sends a client the retained messages that it has yet to get, as far as it has room.
    pub(super) fn replay(&mut self, slot: u32, now: Now) {
        let Some(session) = self.connections[slot as usize].session else {
            return;
        };
        while !self.sessions[session as usize].replays.is_empty() {
            if self.replay_steps == 0 {
                self.touch(slot);
                self.searched.get_or_insert(self.due.touched.len());
                return;
            }
            match self.next_retained(slot, session, now) {
                Next::Send(message, terms) => {
                    // Its payload is retained anyway, so it waits for no room of the node.
                    let mut outgoing = Outgoing::of_message(&message, now.mono_ms).placed();
                    self.deliver(session, &terms, None, &mut outgoing);
                }
                Next::Look => {}
                Next::Wait => return,
            }
        }
    }

    /// Looks at the next name or names of a session's search.
    fn next_retained(&mut self, slot: u32, session: u32, now: Now) -> Next {
        let connection = &self.connections[slot as usize];
        let state = &mut self.sessions[session as usize];
        let waiting = connection.out.len() + state.outbound.queued_bytes();
        if waiting > AHEAD_BYTES_MAX.min(self.limits.outbound_bytes_max / 2) {
            return Next::Wait;
        }
        let Some((filter, replay)) = state.replays.current() else {
            return Next::Look;
        };
        let filter = Filter::parse(filter).expect("it was parsed when subscribed");
        let (cursor, steps) = (&mut replay.cursor, &mut self.replay_steps);
        let store = if filter.as_str().starts_with(BELOW) {
            &self.announced
        } else {
            &self.retained
        };
        let Some(kept) = store.names.next(filter, cursor, steps) else {
            if cursor.is_over() {
                let ended = state.replays.end();
                self.persistence.filter_due(state, &ended);
            }
            return Next::Look;
        };
        let terms = Terms {
            qos: kept.message.qos.min(replay.qos),
            retain: true,
            ids: Ids::of(replay.id),
            group: None,
            lease: None,
        };
        let is_newer = kept.stamp > replay.since; // It was delivered as it came.
        let access = self.access.as_ref();
        let is_heard = hears(access, state, || topic_of(&kept.message));
        if is_newer || !is_heard || kept.message.is_expired(now.mono_ms) {
            return Next::Look;
        }
        let outgoing = Outgoing::of_message(&kept.message, now.mono_ms);
        let bytes = outgoing.bytes(connection.version, &terms);
        let message = Arc::new(kept.message.fresh());
        let is_window_full = terms.qos > QoS::AtMostOnce && !state.outbound.has_room();
        let ever_fits = bytes <= self.bytes_max(connection, terms.qos);
        let bound = self.bound_reached(session, terms.qos, bytes, 0);
        if is_window_full || (ever_fits && bound.is_some()) {
            let replays = &mut self.sessions[session as usize].replays;
            let (_, replay) = replays.current().expect("it has just been looked at");
            replay.cursor.back();
            return Next::Wait;
        }
        Next::Send(message, terms)
    }

    /// Begins to send a session what is retained for a subscription.
    pub(super) fn begin_replay(&mut self, session: u32, filter: &str, qos: QoS, id: u32) {
        let parsed = Filter::parse(filter).expect("it was parsed when subscribed");
        if self.kept_for(parsed).len() > 0 {
            let replay = Replay {
                cursor: Cursor::default(),
                qos,
                id,
                since: self.arrivals,
            };
            let replays = &mut self.sessions[session as usize].replays;
            replays.begin(filter, replay);
        }
    }

    /// Retained messages that a filter matches, in the order of their topics, at most `count_max`
    /// of them; begins at `from`, which is `next` of the page before.
    ///
    /// # Errors
    /// The filter is malformed.
    pub fn retained(
        &self,
        filter: &str,
        from: &str,
        count_max: usize,
        now: Now,
    ) -> Result<Page<Vec<RetainedMessage>>, Error> {
        let mut found = Vec::new();
        let next = self.each_retained(filter, from, |message| {
            if !message.is_expired(now.mono_ms) {
                let left = message.expiry_left(now.mono_ms);
                found.push(RetainedMessage {
                    topic: topic_of(message).into(),
                    payload: message.payload.clone(),
                    qos: message.qos,
                    expiry_s: left.map(|left| left.seconds),
                });
            }
            found.len() < count_max
        })?;
        Ok(Page { found, next })
    }

    /// How many retained messages a filter matches, page by page as [`Switchboard::retained`].
    ///
    /// # Errors
    /// The filter is malformed.
    pub fn count_retained(&self, filter: &str, from: &str) -> Result<Page<usize>, Error> {
        let mut found = 0;
        let next = self.each_retained(filter, from, |_| {
            found += 1;
            true
        })?;
        Ok(Page { found, next })
    }

    /// Visits what a filter matches until `visit` says that it is enough, or enough names have
    /// been looked at; where to go on, if there may be more.
    pub(super) fn each_retained(
        &self,
        filter: &str,
        from: &str,
        mut visit: impl FnMut(&Arc<Message>) -> bool,
    ) -> Result<Option<String>, Error> {
        let filter = Filter::parse(filter)
            .map_err(|error| Error::Invalid(format!("filter \"{filter}\": {error}")))?;
        let (mut cursor, mut steps) = (Cursor::at(from), PAGE_MAX);
        let store = self.kept_for(filter);
        while let Some(kept) = store.names.next(filter, &mut cursor, &mut steps) {
            if !visit(&kept.message) {
                break;
            }
        }
        Ok((!cursor.is_over()).then(|| cursor.position()))
    }
}

/// What a search comes to.
enum Next {
    Send(Arc<Message>, Terms),
    /// Nothing here; look on.
    Look,
    /// The client has no room.
    Wait,
}
