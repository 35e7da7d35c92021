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

/// How a queue is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSettings {
    /// Its name, which is its stream's.
    pub name: Box<str>,
    /// What its groups do with messages.
    pub policy: Policy,
    /// Age at which a message that is not settled is dead, milliseconds; 0 for no bound.
    pub ttl_ms: u64,
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
