//! What is due when. One entry an owner; moving one costs a logarithm, so owners that are busy
//! leave theirs where it stands and look again when it comes due.

use std::collections::BTreeSet;

/// Whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// A connection's CONNECT or keep-alive.
    Silence(u32),
    /// The end of the stall that a full connection causes.
    Stall(u32),
    /// A connection may publish again.
    Rate(u32),
    /// The end or the will of a session whose client is away.
    Session(u32),
    /// The first expiry among the retained messages.
    Retained,
    /// Those who read streams and had to rest.
    Streams,
    /// The first deadline of a group of a queue, or the end of a rest.
    Queue(u32),
    /// What could not be written of the sessions is tried again.
    Persist,
}

/// Timers in the order of their time.
#[derive(Debug, Default)]
pub struct Timers(BTreeSet<(u64, Timer)>);

impl Timers {
    /// Sets a timer for `due_ms`.
    pub fn set(&mut self, due_ms: u64, timer: Timer) {
        self.0.insert((due_ms, timer));
    }

    /// Takes back what was set for `due_ms`.
    pub fn cancel(&mut self, due_ms: u64, timer: Timer) {
        self.0.remove(&(due_ms, timer));
    }

    /// When the next is due.
    pub fn next(&self) -> Option<u64> {
        self.0.first().map(|(due_ms, _)| *due_ms)
    }

    /// Takes the next that is due.
    pub fn pop(&mut self, mono_ms: u64) -> Option<Timer> {
        if self.next()? > mono_ms {
            return None;
        }
        self.0.pop_first().map(|(_, timer)| timer)
    }
}
