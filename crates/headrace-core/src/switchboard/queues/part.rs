//! One partition of a queue, as a group has it: its ledger, and what is at hand of its log.

use std::collections::{BTreeMap, BTreeSet};

use super::dead::Death;
use super::Piece;
use crate::queue::Ledger;

/// One partition, as a group has it.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is about something else"
)]
pub(super) struct Part {
    pub ledger: Ledger,
    /// What is read on from.
    pub piece: Option<Piece>,
    /// What is looked through for messages that overtake others.
    pub ahead: Option<Piece>,
    /// What the shell was asked for.
    pub asked: Option<u64>,
    /// Packets of messages that are known and not handed out, by offset.
    pub kept: BTreeMap<i64, Box<[u8]>>,
    pub kept_bytes: usize,
    /// Messages that are dead, until the log of dead letters has them.
    pub deaths: BTreeMap<i64, Death>,
    /// Of those, the ones that are not on their way to it.
    pub unburied: BTreeSet<i64>,
    /// When what the shell could not read is asked for again.
    pub retry_ms: Option<u64>,
    /// When dead letters that were refused are given out again.
    pub bury_ms: Option<u64>,
    /// When the first message, which nobody takes, is too old.
    pub expire_ms: Option<u64>,
    /// When something is to be done, as in `Group::wakes`.
    pub wake_ms: Option<u64>,
    /// In `Group::hot`.
    pub is_hot: bool,
    /// Its first message is at hand, and when that is too old is known: more behind it tells nothing
    /// as long as nobody takes any.
    pub is_aged: bool,
    /// In `Queues::changed`.
    pub is_changed: bool,
    /// Where its log ends is not known yet.
    pub is_restored: bool,
    /// Nothing can be given out, for what is known waits for what has failed.
    pub is_blocked: bool,
}

impl Part {
    /// Nothing is at hand of it.
    pub fn new(ledger: Ledger) -> Self {
        Self {
            ledger,
            piece: None,
            ahead: None,
            asked: None,
            kept: BTreeMap::new(),
            kept_bytes: 0,
            deaths: BTreeMap::new(),
            unburied: BTreeSet::new(),
            retry_ms: None,
            bury_ms: None,
            expire_ms: None,
            wake_ms: None,
            is_hot: false,
            is_aged: false,
            is_changed: false,
            is_restored: false,
            is_blocked: false,
        }
    }

    /// When something is to be done, of its ledger's doing or its own.
    pub fn first_wake(&self, of_ledger: Option<u64>) -> Option<u64> {
        let wakes = [of_ledger, self.retry_ms, self.bury_ms, self.expire_ms];
        wakes.into_iter().flatten().min()
    }

    /// What was due by then is.
    pub fn forget_wakes(&mut self, mono_ms: u64) {
        for wake_ms in [&mut self.retry_ms, &mut self.bury_ms, &mut self.expire_ms] {
            *wake_ms = wake_ms.filter(|at| *at > mono_ms);
        }
    }
}
