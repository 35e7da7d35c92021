//! What a run of a queue does beside what others do: it fills the queue before anybody consumes,
//! waits until as much is open as is to stay so, and lets go of that in the end.
use std::io;
use std::time::{Duration, Instant};

use super::{Run, Shared, BEAT};
use crate::client::State;
use crate::plan::{Pace, Queue};

impl Run {
    /// Enqueues what is to be there before consumers come, as fast as the server takes it.
    pub(super) fn fill_queue(&mut self, queue: Queue, shared: &Shared) -> io::Result<()> {
        let began = Instant::now();
        let pace = self.judge.plan.pace;
        self.judge.plan.pace = Pace::Closed {
            window: u16::MAX.into(),
        };
        self.fill_up(queue.fill, shared)?;
        self.judge.plan.pace = pace;
        if !queue.fills_only {
            for flow in &mut self.judge.flows {
                flow.limit = u64::MAX;
            }
        }
        self.judge.report.queue.fill_seconds = began.elapsed().as_secs_f64();
        Ok(())
    }

    /// Waits until consumers have open what they are to keep open.
    pub(super) fn open_deliveries(&mut self, queue: Queue, shared: &Shared) -> io::Result<()> {
        self.enter("opening", shared);
        self.while_answered(shared, |run| Ok(run.judge.open() < queue.open))
    }

    /// Consumers keep nothing open any more, and the stuck ones go, so that others get what they
    /// have.
    pub(super) fn release(&mut self, shared: &Shared) {
        for subscriber in 0..self.judge.consumers.len() {
            let index = self.publishers + subscriber;
            if self.judge.consumers[subscriber].is_stuck() {
                self.say_goodbye(index, false);
                self.part(index);
            } else {
                self.judge.consumers[subscriber].release();
                self.settle(subscriber as u32);
            }
        }
        self.beat(shared);
    }

    /// Settles what has waited long enough for more of its batch.
    pub(super) fn flush_batches(&mut self) {
        let now = self.micros();
        for subscriber in 0..self.judge.consumers.len() {
            if self.judge.consumers[subscriber].lingers(now) == Some(0) {
                self.settle(subscriber as u32);
            }
        }
    }

    /// Until a batch has waited long enough.
    pub(super) fn until_flush(&self) -> Duration {
        let now = self.micros();
        let consumers = self.judge.consumers.iter();
        let soonest = consumers.filter_map(|each| each.lingers(now)).min();
        soonest.map_or(BEAT, Duration::from_micros)
    }

    fn settle(&mut self, subscriber: u32) {
        let now = self.micros();
        let index = self.publishers + subscriber as usize;
        let client = &mut self.clients[index];
        if client.state == State::Ready {
            self.judge.settle(subscriber, now, true, &mut client.output);
            self.flush(index);
        }
    }
}
