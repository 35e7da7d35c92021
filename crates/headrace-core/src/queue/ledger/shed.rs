//! What is let go where more is owed than may be: the oldest that nobody has.

use super::{Ledger, State};
use crate::queue::{Next, DYING_MAX};

/// The oldest message that can be let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oldest {
    /// It is known ([`Ledger::give_up`]).
    Known(i64),
    /// It is to be read first, from this offset ([`Ledger::met`]).
    Unread(i64),
}

impl Ledger {
    /// The oldest that can be let go: what is in flight or is dead already cannot, and where it
    /// `is_kept` as a dead letter nothing that may not be read yet.
    pub fn oldest(&mut self, is_kept: bool) -> Option<Oldest> {
        if is_kept && self.dying >= DYING_MAX {
            return None;
        }
        let mut at = self.settled.next_unsettled(self.shed_from);
        while at < self.end {
            let state = self.open.get(&at).map(|entry| entry.state);
            let is_held = match state {
                None | Some(State::Ready | State::Resting(_) | State::Behind) => false,
                Some(State::Flying(_) | State::Dying) => true,
            };
            if !is_held {
                self.shed_from = at;
                return match state {
                    Some(_) => Some(Oldest::Known(at)),
                    None if !is_kept || self.next_in_log() == Next::Read(at) => {
                        Some(Oldest::Unread(at))
                    }
                    None => None,
                };
            }
            at = self.settled.next_unsettled(at + 1);
        }
        self.shed_from = at;
        None
    }

    /// A message is owed no longer, whoever has not seen it.
    pub fn drop(&mut self, oldest: Oldest) {
        match oldest {
            Oldest::Known(offset) => self.end_of(offset),
            Oldest::Unread(offset) => {
                self.settled.settle(offset);
            }
        }
    }
}
