//! When publishers send: at once, as far as their windows allow, or when a schedule says so.
use std::cmp::Reverse;
use std::time::Duration;

use super::{Run, BEAT};
use crate::client::State;
use crate::plan::Pace;

/// Put into one socket before the next has its turn: large enough for few calls.
const WRITE_BYTES: usize = 64 << 10;

impl Run {
    pub(super) fn start_publishing(&mut self) {
        self.publishing = true;
        let now = self.micros();
        let publishers = self.judge.plan.publishers;
        if let Pace::Open { rate } = self.judge.plan.pace {
            // Spread over one interval: publishers that all begin at once would be a storm.
            let interval = 1e6 / rate;
            for publisher in 0..publishers {
                let phase = interval * f64::from(publisher) / f64::from(publishers);
                self.judge.flows[publisher as usize].due = now as f64 + phase;
                self.schedule
                    .push(Reverse(((now as f64 + phase) as u64, publisher)));
            }
        } else {
            self.judge.woken.extend(0..publishers);
        }
    }

    pub(super) fn until_due(&self) -> Duration {
        match self.schedule.peek() {
            Some(Reverse((due, _))) if self.publishing => {
                Duration::from_micros(due.saturating_sub(self.micros()))
            }
            _ => BEAT,
        }
    }

    pub(super) fn publish(&mut self) {
        let now = self.micros();
        while let Some(&Reverse((due, publisher))) = self.schedule.peek() {
            if due > now {
                break;
            }
            self.schedule.pop();
            self.judge.woken.push(publisher);
        }
        let mut woken = std::mem::take(&mut self.judge.woken);
        woken.sort_unstable();
        woken.dedup();
        for publisher in woken {
            self.fill(publisher, now);
            self.flush(publisher as usize);
        }
    }

    /// Puts into a publisher's output what it may send now.
    fn fill(&mut self, publisher: u32, now: u64) {
        let plan = &self.judge.plan;
        let body = &self.judge.body;
        let flow = &mut self.judge.flows[publisher as usize];
        let client = &mut self.clients[publisher as usize];
        if client.state != State::Ready {
            return;
        }
        let interval = match plan.pace {
            Pace::Open { rate } => Some(1e6 / rate),
            Pace::Closed { .. } => None,
        };
        while flow.may_send(plan) && client.has_room(WRITE_BYTES) {
            let Some(interval) = interval else {
                flow.send(plan, body, now as u32, &mut client.output);
                continue;
            };
            if flow.due > now as f64 {
                self.schedule.push(Reverse((flow.due as u64, publisher)));
                return;
            }
            flow.send(plan, body, flow.due as u64 as u32, &mut client.output);
            flow.due += interval;
        }
        if interval.is_none() && flow.may_send(plan) && client.has_room(usize::MAX) {
            self.judge.woken.push(publisher);
        }
    }
}
