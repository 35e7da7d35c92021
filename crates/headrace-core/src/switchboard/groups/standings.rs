//! Members of a group by what they have to do, those who have room for more.
//!
//! What is known of a member is what it was when it was given something, was visited or looked at
//! last, so whoever looks for the least corrects what it meets. A member that is found without room
//! is left out until it tells that it has room again.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use crate::hash::{Key, Map};

/// So many members are corrected for one message: what all members get, each from elsewhere, must
/// not make their group look at all of them for each message.
const CORRECTIONS_MAX: usize = 8;

/// Members by load. Among equals first who was given something least lately.
#[derive(Debug)]
pub(super) struct Standings {
    by_load: BTreeSet<Standing>,
    of: Map<u32, Standing>,
    /// Turns given out.
    turns: u64,
    /// Those found without room since they were asked for.
    left_out: Vec<u32>,
}

/// One member: messages that it has not finished, when it was given the last one, its session.
pub(super) type Standing = (usize, u64, u32);

impl Standings {
    pub fn new(hash_key: Key) -> Self {
        Self {
            by_load: BTreeSet::new(),
            of: Map::with_hasher(hash_key),
            turns: 0,
            left_out: Vec::new(),
        }
    }

    /// Sets the load of a member.
    pub fn set(&mut self, session: u32, load: usize) {
        let turn = self.of.get(&session).map_or(0, |(_, turn, _)| *turn);
        self.put((load, turn, session));
    }

    /// A member with this load is given one message more.
    pub fn give(&mut self, session: u32, load: usize) {
        self.turns += 1;
        self.put((load + 1, self.turns, session));
    }

    fn put(&mut self, standing: Standing) {
        if let Some(before) = self.of.insert(standing.2, standing) {
            if before == standing {
                return;
            }
            self.by_load.remove(&before);
        }
        self.by_load.insert(standing);
    }

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
        assert!(self.by_load.len() <= members);
        assert!(self
            .by_load
            .iter()
            .eq(self.of.values().collect::<BTreeSet<_>>()));
        assert!(self.left_out.is_empty());
    }

    /// The member with the least to do for which `can_take` holds. `load` tells what a member has
    /// to do now, None where it has no room.
    pub fn least(
        &mut self,
        load: impl Fn(u32) -> Option<usize>,
        can_take: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut corrections = 0;
        let mut seen: Option<Standing> = None;
        loop {
            let next = match seen {
                None => self.by_load.first().copied(),
                Some(seen) => {
                    let behind = self.by_load.range((Excluded(seen), Unbounded));
                    behind.copied().next()
                }
            };
            let standing = next?;
            let (known, _, session) = standing;
            match load(session) {
                None => {
                    self.remove(session);
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
}
