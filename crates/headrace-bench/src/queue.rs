//! What a run counts of a queue beside what it counts of any load: settlements, and their times.
use hdrhistogram::Histogram;

use crate::client::Role;
use crate::consumer::{attempt_of, Delivery, Settles};
use crate::judge::{unused, Judge};
use crate::plan::Plan;
use crate::report::{histogram, Latency, QueueReport};
use crate::stamp::Stamp;
use crate::tally::Arrival;
use crate::wire;

/// Times of a queue, and the last number of each key.
pub(crate) struct QueueTimes {
    enqueue: Histogram<u64>,
    whole: Histogram<u64>,
    settle: Histogram<u64>,
    /// By publisher and key, behind its highest number that came.
    ends: Vec<u64>,
    keys: u32,
    settled: Vec<Delivery>,
}

impl QueueTimes {
    pub(crate) fn new(plan: &Plan) -> Self {
        let keys = plan.queue().map_or(0, |queue| queue.keys);
        Self {
            enqueue: histogram(),
            whole: histogram(),
            settle: histogram(),
            ends: vec![0; plan.publishers as usize * keys as usize],
            keys,
            settled: Vec::new(),
        }
    }

    pub(crate) fn tell(&self, report: &mut QueueReport) {
        report.enqueue = Latency::of(&self.enqueue);
        report.whole = Latency::of(&self.whole);
        report.settle = Latency::of(&self.settle);
    }

    /// Whether a message is behind a later one of its key.
    fn is_late(&mut self, stamp: Stamp) -> bool {
        if self.keys == 0 {
            return false;
        }
        let key = stamp.sequence % u64::from(self.keys);
        let at = u64::from(stamp.publisher) * u64::from(self.keys) + key;
        let end = &mut self.ends[at as usize];
        let is_late = stamp.sequence + 1 < *end;
        *end = (*end).max(stamp.sequence + 1);
        is_late
    }
}

impl Judge {
    /// A consumer is given a message. At a stuck one it stays, until that goes and it comes to
    /// another.
    pub(crate) fn handed(
        &mut self,
        role: Role,
        (topic, payload): (&[u8], &[u8]),
        (id, properties): (u16, &[u8]),
        now: u64,
        out: &mut Vec<u8>,
    ) {
        let Role::Subscriber(number) = role else {
            return self.trouble(|| "a publisher was sent a message".to_owned());
        };
        let settles_by_puback = self.plan.queue().is_some_and(|queue| queue.ack_batch == 0);
        let is_stuck = self.consumers[number as usize].is_stuck();
        if id > 0 && !settles_by_puback {
            wire::acknowledge(4, id, out);
        }
        let message_id = wire::message_id(properties);
        let attempt = message_id.and_then(attempt_of);
        self.report.queue.redelivered += u64::from(attempt > Some(1));
        if is_stuck {
            self.report.queue.stuck += 1;
            return;
        }
        let is_first = attempt.is_none_or(|attempt| attempt == 1);
        let told = self.delivered(role, (topic, payload), now, is_first);
        if let Some((stamp, arrival)) = told {
            let is_late = arrival != Arrival::Again && self.times.is_late(stamp);
            self.report.reordered += u64::from(is_late);
        }
        let due = told.filter(|_| is_first).map(|(stamp, _)| stamp.micros);
        let came = now as u32;
        let delivery = match message_id {
            _ if settles_by_puback => Some(Delivery {
                settles: Settles::Puback(id),
                due,
                came,
            }),
            Some(message_id) => Delivery::with_id(message_id, due, came),
            None => None,
        };
        let Some(delivery) = delivery else {
            return self.trouble(|| "a delivery has no message-id, so nothing settles it".into());
        };
        self.consumers[number as usize].take(delivery);
        self.settle(number, now, false, out);
    }

    /// A consumer settles what it does not keep.
    pub(crate) fn settle(&mut self, consumer: u32, now: u64, all: bool, out: &mut Vec<u8>) {
        let mut settled = std::mem::take(&mut self.times.settled);
        self.consumers[consumer as usize].settle(now, all, out, &mut settled);
        self.are_settled(&settled, now);
        settled.clear();
        self.times.settled = settled;
    }

    /// The publish that was to settle deliveries is answered.
    pub(crate) fn settlement_answered(
        &mut self,
        consumer: u32,
        id: u16,
        reason: u8,
        now: u64,
        out: &mut Vec<u8>,
    ) {
        let Some(batch) = self.consumers[consumer as usize].answered(id) else {
            return self.trouble(|| unused(id));
        };
        if reason == 0 {
            self.are_settled(&batch, now);
        } else {
            self.report.queue.unsettled += batch.len() as u64;
            self.trouble(|| format!("a settlement was answered with reason code 0x{reason:02x}"));
        }
        self.settle(consumer, now, false, out);
    }

    fn are_settled(&mut self, settled: &[Delivery], now: u64) {
        let report = &mut self.report.queue;
        report.settled += settled.len() as u64;
        if self.measured.contains(&now) {
            report.settled_measured += settled.len() as u64;
            let second = ((now - self.measured.start) / 1_000_000) as usize;
            if let Some(count) = report.settled_by_second.get_mut(second) {
                *count += settled.len() as u64;
            }
        }
        for delivery in settled {
            for (times, since) in [
                (&mut self.times.whole, delivery.due),
                (&mut self.times.settle, Some(delivery.came)),
            ] {
                let Some(since) = since else {
                    continue;
                };
                let micros = u64::from((now as u32).wrapping_sub(since));
                if self.measured.contains(&now.saturating_sub(micros)) {
                    times.saturating_record(micros);
                }
            }
        }
    }

    /// A message that was due then is acknowledged.
    pub(crate) fn enqueued(&mut self, due: u32, now: u64) {
        let micros = u64::from((now as u32).wrapping_sub(due));
        if self.measured.contains(&now.saturating_sub(micros)) {
            self.times.enqueue.saturating_record(micros);
        }
        self.report.queue.enqueued_measured += u64::from(self.measured.contains(&now));
    }
}
