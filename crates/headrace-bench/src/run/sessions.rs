//! Sessions that outlive their connections: called back, and ended.
use std::io;
use std::ops::Range;

use super::{Run, Shared};
use crate::wire::Session;

impl Run {
    /// Opens the connections of all subscribers anew, some at a time, until each is answered or
    /// gone.
    pub(super) fn call(&mut self, session: Session, shared: &Shared) -> io::Result<()> {
        let mut waiting = self.subscribers();
        self.while_answered(shared, |run| {
            while run.opening < run.judge.plan.opening {
                let Some(index) = waiting.next() else {
                    break;
                };
                run.clients[index] = run.dial(index, session)?;
            }
            Ok(run.opening > 0)
        })
    }

    /// Ends sessions that only a clean one in their place ends (3.1.1 3.1.2.4).
    pub(super) fn end_sessions(&mut self, shared: &Shared) -> io::Result<()> {
        if !self.judge.plan.lasts() || self.judge.plan.version == 5 {
            return Ok(());
        }
        for index in self.subscribers() {
            self.part(index);
        }
        self.opening = 0;
        self.judge.is_returning = true;
        let session = Session {
            is_clean: true,
            expiry_s: 0,
        };
        self.call(session, shared)?;
        self.leave();
        Ok(())
    }

    pub(super) fn subscribers(&self) -> Range<usize> {
        let end = self.publishers + self.judge.plan.subscribers as usize;
        self.publishers..end.min(self.clients.len())
    }
}
