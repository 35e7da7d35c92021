//! Sessions leave, messages wait for them, and all of them come back at once.
use std::io;
use std::net::Shutdown;
use std::time::Instant;

use super::{Run, Shared};
use crate::client::State;
use crate::plan::Storm;
use crate::wire::Session;

impl Run {
    /// Measures from the first session that comes back to the last message that waited for one.
    pub(super) fn storm(&mut self, storm: Storm, shared: &Shared) -> io::Result<()> {
        self.dismiss(shared)?;
        let filling = Instant::now();
        self.fill_up(storm.queued * self.publishers as u64, shared)?;
        self.judge.report.storm.fill_seconds = filling.elapsed().as_secs_f64();

        self.enter("returning", shared);
        let (begin, waited) = (self.micros(), self.waited);
        self.judge.begin_storm(begin);
        let expiry_s = self.judge.plan.session_expiry_s;
        let session = Session {
            is_clean: false,
            expiry_s,
        };
        self.call(session, shared)?;
        self.judge.report.storm.back_seconds = (self.micros() - begin) as f64 / 1e6;
        self.enter("draining", shared);
        self.while_answered(shared, |run| Ok(!run.judge.is_complete()))?;
        self.tell_busy(begin, waited);
        let emptied = (self.judge.last - begin) as f64 / 1e6;
        let report = &mut self.judge.report;
        report.seconds = emptied;
        report.storm.emptied_seconds = emptied;
        report.by_second.truncate(emptied as usize);
        Ok(())
    }

    /// Subscribers say goodbye; done when the server has let go of each.
    fn dismiss(&mut self, shared: &Shared) -> io::Result<()> {
        self.enter("leaving", shared);
        for index in self.subscribers() {
            self.say_goodbye(index, false);
            let client = &mut self.clients[index];
            if client.state == State::Ready {
                client.state = State::Leaving;
                self.judge.report.connected -= 1;
                // A server that has gone already need not be told of the end.
                client.stream.shutdown(Shutdown::Write).unwrap_or_default();
            }
        }
        self.while_answered(shared, |run| {
            let mut clients = run.subscribers().map(|index| &run.clients[index]);
            Ok(clients.any(|client| client.state == State::Leaving))
        })?;
        for index in self.subscribers() {
            self.part(index);
        }
        Ok(())
    }
}
