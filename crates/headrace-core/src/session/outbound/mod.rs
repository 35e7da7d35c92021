//! `QoS` 1 and 2 publishes to one client: what is in flight, and a queue behind it
//! (MQTT 5.0 4.3, 4.4, 4.6, 4.9).
//!
//! A message stays in flight until the exchange is over, also across connections: a new one sends
//! it again under its packet id. How many may be under way is said by each connection anew, so
//! what is in flight may exceed the window of the present one, and then waits in its old order.

mod exchanges;
mod queue;
mod returns;

use std::collections::VecDeque;

pub use exchanges::Exchange;
use queue::Queue;

use super::{Delivery, GroupId};
use crate::mqtt::packet::QoS;

/// An id is used again once so many others have been freed after it, or none else is left: late
/// acknowledgements then find nothing, and a session that was busy once does not keep a place for
/// every id that there is.
const RESTING_IDS: usize = 64;

#[derive(Debug)]
enum State {
    /// PUBLISH was sent. The message is kept where the session may outlive its connection.
    Published(QoS, Option<Delivery>),
    /// PUBREC came, PUBREL was sent (4.3.3).
    Released,
}

#[derive(Debug)]
struct InFlight {
    state: State,
    /// Place in the order of what was sent; of PUBRECs, once it is released.
    ordinal: u64,
    /// Sent on this connection, so it takes a place in its window.
    is_counted: bool,
}

/// What is to be sent next.
#[derive(Debug)]
pub enum Sending {
    /// PUBLISH, for the first time.
    New(u16, Delivery),
    /// PUBLISH with DUP (4.4).
    Again(u16, Delivery),
    /// PUBREL.
    Release(u16),
}

/// What an acknowledgement ends or begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receipt {
    /// PUBREL is due.
    Release,
    /// The client refused the message: the exchange is over.
    Over,
    /// Nothing is in flight under this id.
    Unknown,
    /// What is in flight under this id is at another step.
    Misplaced,
}

/// What a client has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Messages that it has not finished, sent or not.
    pub messages: usize,
    /// Whether its window has a place for another one.
    pub has_room: bool,
}

/// What a client is sent at `QoS` 1 and 2.
#[derive(Debug)]
pub struct Outbound {
    /// Ids are 1 to this.
    in_flight_max: u16,
    /// By packet id, less one.
    slots: Vec<Option<InFlight>>,
    free: VecDeque<u16>,
    next_ordinal: u64,
    kept_bytes: usize,
    /// Ids of an earlier connection that this one has not sent yet, in order.
    again: VecDeque<u16>,
    /// The client's Receive Maximum.
    window: u16,
    /// Of the window.
    counted: u16,
    /// Exchanges at `QoS` 2.
    exactly_once: usize,
    /// Whether messages in flight are kept to be sent again.
    keeps: bool,
    queue: Queue,
}

impl Outbound {
    /// Nothing in flight; at most `in_flight_max` ever will be.
    pub fn new(in_flight_max: u16) -> Self {
        Self {
            in_flight_max,
            slots: Vec::new(),
            free: VecDeque::new(),
            next_ordinal: 0,
            kept_bytes: 0,
            again: VecDeque::new(),
            window: 0,
            counted: 0,
            exactly_once: 0,
            keeps: false,
            queue: Queue::default(),
        }
    }

    /// A connection begins: all that is in flight is to be sent again, first what was released, in
    /// the order of PUBRECs, then what was published, in that order (4.4, 4.6). `keeps` says
    /// whether the session may outlive the connection.
    pub fn attach(&mut self, receive_maximum: u16, keeps: bool) {
        self.window = receive_maximum;
        self.keeps = keeps;
        self.counted = 0;
        let mut again = Vec::new();
        for (slot, entry) in (1..).zip(&mut self.slots) {
            if let Some(entry) = entry {
                entry.is_counted = false;
                let is_publish = matches!(entry.state, State::Published(..));
                again.push((is_publish, entry.ordinal, slot));
            }
        }
        again.sort_unstable();
        self.again = again.into_iter().map(|(.., id)| id).collect();
    }

    /// Whether messages in flight are kept to be sent again.
    pub fn keeps(&self) -> bool {
        self.keeps
    }

    /// Messages that the client takes at a time.
    pub fn window(&self) -> u16 {
        self.window
    }

    /// Bytes that wait for the window, [`super::OVERHEAD_BYTES`] of each message included.
    pub fn queued_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Bytes of what is in flight and may have to be sent again.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Those, and those that wait.
    pub fn held_bytes(&self) -> usize {
        self.queue.bytes() + self.kept_bytes
    }

    /// Messages that wait for the window.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Exchanges that are not over.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// What the client has to do.
    pub fn load(&self) -> Load {
        Load {
            messages: self.in_flight() + self.queued(),
            has_room: self.has_room(),
        }
    }

    /// True where a new message would be sent at once and overtake none.
    pub fn has_room(&self) -> bool {
        self.again.is_empty() && self.queue.is_empty() && self.window_has_room()
    }

    /// True where something waits that [`Self::next_sending`] would give.
    pub fn has_next(&self) -> bool {
        match self.again.front() {
            Some(id) => !self.is_published(*id) || self.counted < self.window,
            None => !self.queue.is_empty() && self.window_has_room(),
        }
    }

    fn window_has_room(&self) -> bool {
        self.counted < self.window && self.in_flight() < usize::from(self.in_flight_max)
    }

    /// A packet id for a message that is sent at once; `kept` where it may have to be again.
    ///
    /// # Panics
    /// Without room.
    pub fn begin(&mut self, qos: QoS, kept: Option<Delivery>) -> u16 {
        assert!(self.window_has_room(), "only what has room is sent");
        self.kept_bytes += kept.as_ref().map_or(0, bytes);
        self.counted += 1;
        self.exactly_once += usize::from(qos == QoS::ExactlyOnce);
        let entry = InFlight {
            state: State::Published(qos, kept),
            ordinal: self.next_ordinal,
            is_counted: true,
        };
        self.next_ordinal += 1;
        let fresh = self.slots.len() < usize::from(self.in_flight_max);
        let freed = (self.free.len() >= RESTING_IDS || !fresh).then(|| self.free.pop_front());
        if let Some(id) = freed.flatten() {
            self.slots[usize::from(id) - 1] = Some(entry);
            return id;
        }
        self.slots.push(Some(entry));
        self.slots.len() as u16
    }

    /// Queues a message.
    pub fn enqueue(&mut self, delivery: Delivery) {
        self.queue.push(delivery);
    }

    /// What is to be sent now, if the window has room for it.
    ///
    /// # Panics
    /// Where something was not kept and is to be sent again.
    pub fn next_sending(&mut self) -> Option<Sending> {
        while let Some(id) = self.again.front().copied() {
            if self.is_published(id) && self.counted >= self.window {
                return None;
            }
            self.again.pop_front();
            let Some(entry) = &mut self.slots[usize::from(id) - 1] else {
                continue; // It was acknowledged before it was sent again.
            };
            return Some(match &entry.state {
                State::Released => Sending::Release(id),
                State::Published(_, kept) => {
                    entry.is_counted = true;
                    self.counted += 1;
                    let kept = kept.as_ref().expect("a session that went on keeps");
                    Sending::Again(id, kept.clone())
                }
            });
        }
        if !self.window_has_room() {
            return None;
        }
        let delivery = self.pop()?;
        let keeps = self.keeps || delivery.terms.group.is_some();
        let kept = keeps.then(|| delivery.clone());
        Some(Sending::New(self.begin(delivery.terms.qos, kept), delivery))
    }

    /// Takes what has waited longest.
    pub fn pop(&mut self) -> Option<Delivery> {
        self.queue.pop()
    }

    fn is_published(&self, id: u16) -> bool {
        matches!(self.state(id), Some(State::Published(..)))
    }

    fn state(&self, id: u16) -> Option<&State> {
        let slot = usize::from(id).checked_sub(1)?;
        let entry = self.slots.get(slot)?.as_ref()?;
        Some(&entry.state)
    }

    /// PUBACK.
    pub fn acknowledge(&mut self, id: u16) -> Receipt {
        self.end_where(id, |state| {
            matches!(state, State::Published(QoS::AtLeastOnce, ..))
        })
    }

    /// PUBREC. A second one for a message is answered like the first.
    pub fn receive(&mut self, id: u16, is_refused: bool) -> Receipt {
        match self.state(id) {
            Some(State::Published(QoS::ExactlyOnce, ..)) if is_refused => {
                self.end(id);
                Receipt::Over
            }
            Some(State::Published(QoS::ExactlyOnce, ..)) => {
                self.release(id);
                Receipt::Release
            }
            Some(State::Released) if !is_refused => Receipt::Release,
            Some(_) => Receipt::Misplaced,
            None => Receipt::Unknown,
        }
    }

    fn release(&mut self, id: u16) {
        let entry = self.slots[usize::from(id) - 1].as_mut();
        let entry = entry.expect("its state was seen");
        entry.ordinal = self.next_ordinal;
        self.next_ordinal += 1;
        if let State::Published(_, Some(kept)) = &entry.state {
            self.kept_bytes -= bytes(kept);
        }
        entry.state = State::Released;
    }

    /// PUBCOMP.
    pub fn complete(&mut self, id: u16) -> Receipt {
        self.end_where(id, |state| matches!(state, State::Released))
    }

    fn end_where(&mut self, id: u16, is_due: impl FnOnce(&State) -> bool) -> Receipt {
        match self.state(id) {
            None => Receipt::Unknown,
            Some(state) if is_due(state) => {
                self.end(id);
                Receipt::Over
            }
            Some(_) => Receipt::Misplaced,
        }
    }

    /// The exchange is over, one way or another.
    ///
    /// # Panics
    /// Where none is under way.
    pub fn end(&mut self, id: u16) {
        let entry = self.slots[usize::from(id) - 1].take();
        let entry = entry.expect("only what is in flight ends");
        if let State::Published(_, Some(kept)) = &entry.state {
            self.kept_bytes -= bytes(kept);
        }
        let is_exactly_once = !matches!(entry.state, State::Published(QoS::AtLeastOnce, _));
        self.exactly_once -= usize::from(is_exactly_once);
        self.counted -= u16::from(entry.is_counted);
        self.free.push_back(id);
    }

    /// Takes all messages whose expiry has passed. Costs nothing while none has.
    pub fn purge_expired(&mut self, mono_ms: u64) -> VecDeque<Delivery> {
        self.queue.purge_expired(mono_ms)
    }

    /// Takes the first message where its expiry has passed.
    pub fn pop_expired(&mut self, mono_ms: u64) -> Option<Delivery> {
        self.queue.pop_expired(mono_ms)
    }

    /// The groups whose messages wait in the queue.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        let queue = self.queue.iter();
        queue.filter_map(|delivery| delivery.terms.group)
    }

    /// Drops everything; the messages that had not been sent.
    pub fn clear(&mut self) -> VecDeque<Delivery> {
        std::mem::replace(self, Self::new(self.in_flight_max))
            .queue
            .into_all()
    }

    /// Asserts what must always hold.
    ///
    /// # Panics
    /// Where it does not.
    pub fn validate(&self) {
        let entries = || self.slots.iter().flatten();
        assert_eq!(entries().count(), self.in_flight(), "an id is free or not");
        assert!(self.slots.len() <= usize::from(self.in_flight_max));
        let is_at_2 = |state: &State| !matches!(state, State::Published(QoS::AtLeastOnce, _));
        let at_2 = entries().filter(|entry| is_at_2(&entry.state)).count();
        assert_eq!(at_2, self.exactly_once);
        let counted = entries().filter(|entry| entry.is_counted).count();
        assert_eq!(counted, usize::from(self.counted));
        let kept = entries().map(|entry| match &entry.state {
            State::Published(_, Some(kept)) => bytes(kept),
            _ => 0,
        });
        assert_eq!(kept.sum::<usize>(), self.kept_bytes);
        self.queue.validate();
    }
}

fn bytes(delivery: &Delivery) -> usize {
    delivery.message.bytes()
}

#[cfg(test)]
mod tests;
