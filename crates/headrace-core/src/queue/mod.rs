//! Settlement of a queue: what a group was given, what it has settled, and what comes again.
//!
//! A queue is a stream, and a message of it a record. Of each partition a group has a [`Ledger`]:
//! which messages are settled ([`settled`]), which are in flight until a deadline ([`flights`]),
//! which rest after a failure or until their time, and in which order the others come.
//!
//! Owns attempts, deadlines, back-off, order by key, priorities and read-ahead. Must not know where
//! messages lie, who the members of a group are or how they are told: the owner reads the log
//! ([`Next::Read`]), has room for a message or not, and writes what is to be kept
//! ([`Settled::record`]).
//!
//! Invariants: a message is settled once, or still owed; of two deliveries of one message the later
//! alone can settle it; with [`Order::Key`] no two messages of a key are in flight, and none passes
//! an earlier one that is not settled; what is read ahead is bounded, and so is what is known of
//! messages that overtake others.

mod flights;
mod ledger;
mod settled;
mod sizes;
#[cfg(test)]
mod tests;

pub use flights::Flight;
pub use ledger::{Ledger, Oldest};
pub use settled::{Chunk, Settled, Try, CHUNK_MESSAGES};
pub use sizes::{share, Sizes};

/// Priorities: 9 is the highest.
pub const PRIORITIES: usize = 10;

/// Of a message that has none, as JMS has it: some can be more urgent, and some less.
pub const PRIORITY: u8 = 4;

/// Deliveries after which the first message that waits has a turn, whatever its priority.
pub const TURNS: u32 = 8;

/// Messages of one partition that are known and rest, after a failure or until their time, at most:
/// some 10 MB. What is behind the last of them waits for the first.
pub const RESTING_MAX: usize = 100_000;

/// Messages of one partition with a priority of their own that are known before their turn, at most:
/// some 10 MB. What is behind the last of them overtakes nothing until the first is given out.
pub const EARLY_MAX: usize = 100_000;

/// Messages of one partition that are dead and not settled, at most, but for those that a member has
/// rejected: where dead letters cannot be stored, all waits behind them.
pub const DYING_MAX: usize = 10_000;

/// Messages that are looked through for their priority before something is given out, at most: a
/// tenth of a second.
pub const PASS_MAX: i64 = 100_000;

/// In which order messages are given out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As they come; what failed comes later.
    #[default]
    None,
    /// One of a key at a time; what failed keeps its place before the others of its key.
    Key,
    /// One at a time.
    Strict,
}

/// How long a message rests after a failure: `initial_ms` the first time, each time so many percent
/// of the time before, `max_ms` at most; of that up to `jitter_percent` is taken off by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Milliseconds.
    pub initial_ms: u64,
    /// 100 or more; 200 doubles.
    pub growth_percent: u32,
    /// Milliseconds.
    pub max_ms: u64,
    /// From 0 to 100.
    pub jitter_percent: u32,
}

impl Backoff {
    /// After so many failures, one at least.
    pub fn rest_ms(&self, failures: u32, random: u64) -> u64 {
        let percent = |of: u64, share: u32| of.saturating_mul(share.into()) / 100;
        let mut rest_ms = self.initial_ms;
        for _ in 1..failures {
            let longer = percent(rest_ms, self.growth_percent);
            if longer <= rest_ms || rest_ms >= self.max_ms {
                break; // it has come to its end
            }
            rest_ms = longer;
        }
        rest_ms = rest_ms.min(self.max_ms);
        let drawn = random % (percent(rest_ms, self.jitter_percent.min(100)) + 1);
        rest_ms - drawn
    }
}

/// What a group does with messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// In which they are given out.
    pub order: Order,
    /// From a delivery until it counts as a failure, milliseconds.
    pub deadline_ms: u64,
    /// After a failure.
    pub backoff: Backoff,
    /// Failures after which a message is dead; 0 for no bound.
    pub failures_max: u32,
    /// From the first delivery on, after which a failure is the last, milliseconds; 0 for no bound.
    pub total_ms: u64,
    /// Age at which a message that is not settled is dead, milliseconds; 0 for no bound.
    pub ttl_ms: u64,
    /// Messages that are known, and neither in flight nor settled, at most.
    pub read_ahead: usize,
    /// Messages overtake others of a lower priority. With [`Order::None`] alone.
    pub prioritises: bool,
}

/// What is to be known of a message to give it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// A hash of its key; None without one.
    pub key: Option<u64>,
    /// From 0 to 9.
    pub priority: u8,
    /// When it was stored, milliseconds since 1970.
    pub since_ms: i64,
    /// When it is to be given out at the earliest, milliseconds since 1970.
    pub due_ms: i64,
    /// So long at most it waits for that from when it is met, milliseconds, whatever the clock says.
    pub delay_ms: u64,
    /// When it is too old, as its publisher has said, milliseconds since 1970.
    pub expires_ms: i64,
}

impl Meta {
    /// When it is too old to a group with that policy, milliseconds since 1970.
    fn old_ms(&self, policy: &Policy) -> i64 {
        let by_queue = match i64::try_from(policy.ttl_ms).unwrap_or(i64::MAX) {
            0 => i64::MAX,
            ttl_ms => self.since_ms.saturating_add(ttl_ms),
        };
        self.expires_ms.min(by_queue)
    }
}

/// What a group can do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Give this message out ([`Ledger::deliver`]).
    Deliver(i64),
    /// This one is dead: keep it where dead messages are kept ([`Ledger::give_up`]).
    Dead(i64, Cause),
    /// Read on from this offset ([`Ledger::met`]).
    Read(i64),
    /// Look from this offset on for messages that overtake others ([`Ledger::saw`]).
    Scan(i64),
    /// Nothing, until something changes.
    Wait,
    /// Nothing: more is not read ahead, and all that is known waits for what failed.
    Blocked,
}

/// What a message of the log is to a group. Times are on the clock that never steps back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing is owed of it.
    Settled,
    /// It goes to the next who has room.
    Available,
    /// Who has it, and until when.
    InFlight(u64, u64),
    /// After a failure, or until its time: until then.
    Resting(u64),
    /// An earlier one of its key, or one of all where they go one at a time, is not settled.
    Waiting,
    /// It is dead, and that is not durable yet.
    Dead,
}

/// Why a delivery can no longer be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// The message is settled.
    Settled,
    /// It is to be delivered again, or was.
    Superseded,
    /// It was never delivered.
    Unknown,
}

/// Why a message is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A member has rejected it.
    Rejected,
    /// It has failed too often.
    Attempts,
    /// It has failed, too long after its first delivery.
    TotalTime,
    /// It was too old.
    Expired,
    /// More was owed than may be, and it was the oldest.
    Depth,
}

/// What became of a message that was not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// It comes again, at this time of the clock that never steps back.
    Again(u64),
    /// It does not. It is owed until [`Ledger::buried`].
    Dead(Cause),
}
