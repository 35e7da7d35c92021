//! One partition of a stream: the batch that is being built, what is on its way to the disk, and who
//! waits for it.

use std::collections::VecDeque;

use super::sources::{Sources, Undo};
use crate::hash::Key;
use crate::record::BatchBuilder;
use crate::session::Ending;

/// Who waits for a ticket: the publish with this ordinal of this origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiter {
    /// Session slot, or a door.
    pub origin: u32,
    /// Ordinal in the origin's [`Inbound`](crate::session::Inbound).
    pub ordinal: u64,
}

/// A partition, as far as publishes are on their way to it.
#[derive(Debug)]
pub struct Partition {
    /// Of the batch that comes next.
    pub builder: BatchBuilder,
    /// The ticket of what is in the builder.
    pub open: Option<Ticket>,
    /// Ascending, all below that of `open`.
    pub in_flight: VecDeque<u64>,
    /// In the order in which they came.
    pub repeats: VecDeque<Repeat>,
    /// What it knows of those who say who they are.
    pub sources: Sources,
}

/// A publish that is stored or on its way. It waits for the tickets up to `last` as one, so that
/// many repeats behind a slow disk cost no more than themselves.
#[derive(Debug)]
pub struct Repeat {
    pub waiter: Waiter,
    /// The newest ticket that may hold the first copy.
    pub last: u64,
    /// How the tickets of these ended so far.
    pub ending: Ending,
}

impl Partition {
    /// Nothing on its way.
    pub fn new(hash_key: Key) -> Self {
        Self {
            builder: BatchBuilder::new(),
            open: None,
            in_flight: VecDeque::new(),
            repeats: VecDeque::new(),
            sources: Sources::new(hash_key),
        }
    }

    /// The ticket of what came last.
    pub fn newest(&self) -> Option<u64> {
        let open = self.open.as_ref().map(|ticket| ticket.number);
        open.or(self.in_flight.back().copied())
    }

    /// The ticket of what has been on its way longest.
    pub fn oldest(&self) -> Option<u64> {
        let open = self.open.as_ref().map(|ticket| ticket.number);
        self.in_flight.front().copied().or(open)
    }

    /// A ticket ended, in whatever order; the repeats that wait for nothing more, and how their
    /// first copies ended.
    pub fn ended(&mut self, ticket: u64, ending: Ending) -> Vec<(Waiter, Ending)> {
        let at = self.in_flight.iter().position(|number| *number == ticket);
        at.and_then(|at| self.in_flight.remove(at));
        if ending != Ending::Stored {
            let waiting = self.repeats.iter_mut().filter(|each| each.last >= ticket);
            waiting.for_each(|each| each.ending = ending);
        }
        let oldest = self.oldest().unwrap_or(u64::MAX);
        let over = self.repeats.partition_point(|each| each.last < oldest);
        let over = self.repeats.drain(..over);
        over.map(|each| (each.waiter, each.ending)).collect()
    }
}

/// An append that has not ended.
#[derive(Debug)]
pub struct Ticket {
    pub number: u64,
    pub stream: u64,
    pub partition: u32,
    pub bytes: usize,
    pub messages: u64,
    pub waiters: Vec<Waiter>,
    pub undos: Vec<Undo>,
}
