//! Bounds that change while clients are connected.
//!
//! A bound that is lowered takes nothing away: what is there already may stay and passes with
//! time, and nothing more is taken in until it has. One that is raised is used at once.

use super::{Limits, Switchboard};
use crate::Now;

/// The largest that some bounds have ever been: what was taken in under them may still be here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Highest {
    pub outbound_bytes: usize,
    pub queued_bytes: usize,
}

impl Highest {
    pub fn of(limits: &Limits) -> Self {
        Self {
            outbound_bytes: limits.outbound_bytes_max,
            queued_bytes: limits.queued_bytes_max,
        }
    }

    fn with(self, limits: &Limits) -> Self {
        Self {
            outbound_bytes: self.outbound_bytes.max(limits.outbound_bytes_max),
            queued_bytes: self.queued_bytes.max(limits.queued_bytes_max),
        }
    }
}

impl Switchboard {
    /// What holds.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Puts limits in force. What clients were told when they connected, and the window that their
    /// sessions were made for, stays as it is.
    pub fn set_limits(&mut self, limits: Limits, now: Now) {
        self.limits = Limits {
            packet_bytes_max: self.limits.packet_bytes_max,
            receive_max: self.limits.receive_max,
            topic_alias_max: self.limits.topic_alias_max,
            in_flight_max: self.limits.in_flight_max,
            ..limits
        };
        self.highest = self.highest.with(&self.limits);
        self.renew_strategies(now);
        self.runnable
            .append(&mut self.disk_waiters.drain(..).collect());
        let slots: Vec<u32> = self
            .connections
            .iter()
            .map(|(slot, _)| slot as u32)
            .collect();
        for slot in slots {
            // Whoever rests for a bound looks again, and what waits for one is sent.
            self.runnable.push_back(slot);
            self.touch(slot);
            self.drained(slot, now);
        }
    }
}
