//! How a queue is served, as the shell says.

use crate::queue::Policy;

/// Who of a group is given messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// All, in turn.
    #[default]
    Shared,
    /// One at a time: who of those that are there came first.
    Single,
    /// One, and no other may come while it is there.
    Exclusive,
}

/// What becomes of messages beyond the most that a queue may owe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Excess {
    /// The new one is not taken.
    #[default]
    Refuse,
    /// The oldest is dropped.
    Drop,
    /// The oldest goes to the dead letters.
    DeadLetter,
}

/// How much a queue may owe to the group that it owes most; 0 is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Messages.
    pub messages_max: u64,
    /// What they take of the log, bytes.
    pub bytes_max: u64,
    /// What becomes of more.
    pub excess: Excess,
}

impl Depth {
    /// Whether there is a bound.
    pub const fn is_bounded(&self) -> bool {
        self.messages_max > 0 || self.bytes_max > 0
    }

    /// Whether publishes beyond it are refused.
    pub fn refuses(&self) -> bool {
        self.is_bounded() && self.excess == Excess::Refuse
    }

    /// How much more there may be of each.
    pub fn left(&self, messages: u64, bytes: u64) -> (u64, u64) {
        let left = |max: u64, has: u64| match max {
            0 => u64::MAX,
            max => max.saturating_sub(has),
        };
        (
            left(self.messages_max, messages),
            left(self.bytes_max, bytes),
        )
    }
}

/// How a queue is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// Its name, which is its stream's.
    pub name: Box<str>,
    /// What its groups do with messages.
    pub policy: Policy,
    /// How much it may owe.
    pub depth: Depth,
    /// Messages that are given out in one turn, before other queues have theirs; 1 at least.
    pub batch_messages: usize,
    /// Deliveries that a consumer may have open, unless it says otherwise; 1 at least.
    pub prefetch: usize,
    /// Whether keys are spread by FNV-1a instead of murmur2.
    pub is_fnv1a: bool,
    /// Nothing is handed out.
    pub is_paused: bool,
    /// Who of a group is given messages.
    pub sharing: Sharing,
    /// Whether dead messages are kept.
    pub keeps_dead: bool,
    /// The stream that keeps them, where it is there.
    pub dead_letters: Option<u64>,
}
