//! Connections that have nothing to say say so, before the server takes them for gone.
use std::time::Instant;

use super::Run;
use crate::client::State;
use crate::wire::PINGREQ;

impl Run {
    /// Sends the PINGREQs that are due: from half a keep-alive on, one for each connection in each
    /// such half, spread over it.
    pub(super) fn keep_alive(&mut self, now: Instant) {
        let half = f64::from(self.judge.keep_alive_s) / 2.0;
        let halves = now.duration_since(self.started).as_secs_f64() / half - 1.0;
        if halves <= 0.0 {
            return;
        }
        let count = self.clients.len() as u64;
        let due = (halves * count as f64) as u64;
        while self.pinged < due {
            let index = (self.pinged % count) as usize;
            self.pinged += 1;
            if self.clients[index].state == State::Ready {
                self.clients[index].output.extend(PINGREQ);
                self.flush(index);
            }
        }
    }
}
