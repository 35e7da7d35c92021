//! Members of a group that have room for more, in the order in which they are asked: by what they
//! have to do, by when they were given something last, or by chance.
//!
//! What is known of a member is what it was when it was given something, was visited or looked at
//! last, so whoever looks for the first corrects what it meets. A member that is found without room
//! is left out until it tells that it has room again, and keeps its turn meanwhile.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use crate::hash::{Key, Map};

/// So many members are corrected for one message: what all members get, each from elsewhere, must
/// not make their group look at all of them for each message.
const CORRECTIONS_MAX: usize = 8;

/// Members by load, where that counts; among equals by turn.
#[derive(Debug)]
pub(super) struct Standings {
    by_load: BTreeSet<Standing>,
    /// Of all members, those left out too.
    of: Map<u32, Standing>,
    /// Those found without room since they were asked for.
    left_out: Vec<u32>,
}

/// One member: messages that it has not finished, its turn, its session.
type Standing = (usize, u64, u32);

impl Standings {
    pub fn new(hash_key: Key) -> Self {
        Self {
            by_load: BTreeSet::new(),
            of: Map::with_hasher(hash_key),
            left_out: Vec::new(),
        }
    }

    /// A member comes, or has room again: with this load, and the turn that it had.
    pub fn set(&mut self, session: u32, load: usize) {
        let turn = self.of.get(&session).map_or(0, |(_, turn, _)| *turn);
        self.put((load, turn, session));
    }

    /// A member is given one message more; its load with that, its next turn. One that is left out
    /// stays so.
    pub fn give(&mut self, session: u32, load: usize, turn: u64) {
        let standing = (load, turn, session);
        let is_in = self
            .of
            .get(&session)
            .is_some_and(|before| self.by_load.contains(before));
        if is_in {
            self.put(standing);
        } else {
            self.of.insert(session, standing);
        }
    }

    fn put(&mut self, standing: Standing) {
        if let Some(before) = self.of.insert(standing.2, standing) {
            self.by_load.remove(&before);
        }
        self.by_load.insert(standing);
    }

    /// A member goes.
    pub fn remove(&mut self, session: u32) {
        if let Some(standing) = self.of.remove(&session) {
            self.by_load.remove(&standing);
        }
    }

    /// Members that were found without room since the last call: they must tell when they have.
    pub fn left_out(&mut self) -> std::vec::Drain<'_, u32> {
        self.left_out.drain(..)
    }

    pub fn is_empty(&self) -> bool {
        self.by_load.is_empty()
    }

    /// Asserts what must always hold, of so many members.
    pub fn validate(&self, members: usize) {
        assert_eq!(self.of.len(), members);
        for standing in &self.by_load {
            assert_eq!(self.of.get(&standing.2), Some(standing));
        }
        assert!(self.left_out.is_empty());
    }

    /// The first member, from a turn on and around the end, for which `can_take` holds. `load` tells
    /// what a member has to do now, None where it has no room.
    pub fn first(
        &mut self,
        from: u64,
        load: impl Fn(u32) -> Option<usize>,
        can_take: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let begin = (from > 0).then_some((0, from, 0));
        let (mut seen, mut is_around) = (begin, begin.is_none());
        let mut corrections = 0;
        loop {
            let is_left = |next: &Standing| !is_around || begin.is_none_or(|begin| *next < begin);
            let Some(standing) = self.behind(seen).filter(is_left) else {
                if is_around {
                    return None;
                }
                (seen, is_around) = (None, true);
                continue;
            };
            let (known, _, session) = standing;
            match load(session) {
                None => {
                    self.by_load.remove(&standing);
                    self.left_out.push(session);
                }
                Some(now) if now > known && corrections < CORRECTIONS_MAX => {
                    corrections += 1;
                    self.set(session, now);
                }
                Some(_) if can_take(session) => return Some(session),
                Some(_) => seen = Some(standing),
            }
        }
    }

    fn behind(&self, seen: Option<Standing>) -> Option<Standing> {
        let Some(seen) = seen else {
            return self.by_load.first().copied();
        };
        self.by_load
            .range((Excluded(seen), Unbounded))
            .next()
            .copied()
    }
}
