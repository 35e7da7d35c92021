//! A consumer of a queue: what it has been handed, and what of it is settled when.
use std::collections::VecDeque;
use std::time::Duration;

use crate::plan::{Plan, Queue};
use crate::wire;

/// How long what is to be settled waits for more of its batch.
pub(crate) const LINGER: Duration = Duration::from_millis(5);

/// Bytes of `PARTITION:OFFSET:ATTEMPT` at most: the longest numbers of 32, 63 and 32 bits.
const MESSAGE_ID_MAX: usize = 10 + 1 + 19 + 1 + 10;

/// What settles a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settles {
    /// PUBACK with this packet id.
    Puback(u16),
    /// A publish with this message id.
    Ack([u8; MESSAGE_ID_MAX], u8),
}

/// A delivery that is open; times in microseconds since the start of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) settles: Settles,
    /// When its message was due; `None` where that is not timed.
    pub(crate) due: Option<u32>,
    pub(crate) came: u32,
}

impl Delivery {
    /// A delivery with this message id; `None` where that is longer than any of a queue.
    pub(crate) fn with_id(message_id: &[u8], due: Option<u32>, came: u32) -> Option<Self> {
        let mut bytes = [0; MESSAGE_ID_MAX];
        bytes
            .get_mut(..message_id.len())?
            .copy_from_slice(message_id);
        Some(Self {
            settles: Settles::Ack(bytes, message_id.len() as u8),
            due,
            came,
        })
    }
}

/// The attempt that a message id names.
pub(crate) fn attempt_of(message_id: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(message_id).ok()?;
    text.rsplit_once(':')?.1.parse().ok()
}

pub(crate) struct Consumer {
    is_stuck: bool,
    ack_batch: usize,
    topic: String,
    /// Deliveries that stay open.
    keeps: usize,
    /// State of a xorshift, where what is settled is drawn.
    draws: Option<u64>,
    open: usize,
    held: VecDeque<Delivery>,
    /// To be settled as soon as there are enough of them, and a packet id.
    ready: VecDeque<Delivery>,
    /// When the first of those was ready, microseconds.
    since: u64,
    /// Packet ids that may be used, from the end.
    free: Vec<u16>,
    /// What is being settled, by packet id.
    busy: Vec<Vec<Delivery>>,
}

impl Consumer {
    pub(crate) fn new(plan: &Plan, queue: Queue, subscriber: u32) -> Self {
        let working = u64::from(plan.working().max(1));
        let share = (queue.open + u64::from(subscriber)) / working;
        Self {
            is_stuck: subscriber >= plan.working(),
            ack_batch: queue.ack_batch,
            topic: format!("$queue/{}/$ack", plan.prefix),
            keeps: share as usize,
            draws: queue.at_random.then_some(u64::from(subscriber) + 1),
            open: 0,
            held: VecDeque::new(),
            ready: VecDeque::new(),
            since: 0,
            free: Vec::new(),
            busy: Vec::new(),
        }
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.is_stuck
    }

    /// The server's bound on what may be under way is known.
    pub(crate) fn admitted(&mut self, receive_maximum: u16) {
        self.free = (1..=receive_maximum).rev().collect();
        self.busy = vec![Vec::new(); usize::from(receive_maximum) + 1];
    }

    /// Deliveries that are open.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Whether something is being settled, and was not answered yet.
    pub(crate) fn is_settling(&self) -> bool {
        self.busy.iter().any(|batch| !batch.is_empty())
    }

    /// Keeps nothing open any more.
    pub(crate) fn release(&mut self) {
        self.keeps = 0;
    }

    /// Takes a delivery.
    pub(crate) fn take(&mut self, delivery: Delivery) {
        self.open += 1;
        self.held.push_back(delivery);
    }

    /// Settles what is not kept, as far as batches are full, or `all` is to go; what PUBACK has
    /// settled goes to `settled`.
    pub(crate) fn settle(
        &mut self,
        now: u64,
        all: bool,
        out: &mut Vec<u8>,
        settled: &mut Vec<Delivery>,
    ) {
        while self.held.len() > self.keeps {
            let delivery = self.draw();
            if let Settles::Puback(id) = delivery.settles {
                wire::acknowledge(4, id, out);
                self.open -= 1;
                settled.push(delivery);
                continue;
            }
            if self.ready.is_empty() {
                self.since = now;
            }
            self.ready.push_back(delivery);
        }
        let least = if all { 1 } else { self.ack_batch };
        while self.ready.len() >= least.max(1) {
            let Some(id) = self.free.pop() else {
                return;
            };
            let batch = self.ready.len().min(self.ack_batch);
            let batch: Vec<Delivery> = self.ready.drain(..batch).collect();
            let ids = batch.iter().map(|delivery| match &delivery.settles {
                Settles::Ack(bytes, length) => &bytes[..usize::from(*length)],
                Settles::Puback(_) => unreachable!("it was settled"),
            });
            wire::settle(&self.topic, id, ids, out);
            self.busy[usize::from(id)] = batch;
        }
    }

    fn draw(&mut self) -> Delivery {
        let Some(state) = &mut self.draws else {
            return self.held.pop_front().expect("more is held than kept");
        };
        // Marsaglia's xorshift (2003).
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let at = *state as usize % self.held.len();
        self.held.swap_remove_back(at).expect("it is within")
    }

    /// Microseconds until what is ready has waited long enough; `None` where nothing is.
    pub(crate) fn lingers(&self, now: u64) -> Option<u64> {
        let until = self.since + LINGER.as_micros() as u64;
        let waits = !self.ready.is_empty() && !self.free.is_empty();
        waits.then(|| until.saturating_sub(now))
    }

    /// A publish of this packet id was answered: what it was to settle.
    pub(crate) fn answered(&mut self, id: u16) -> Option<Vec<Delivery>> {
        let batch = std::mem::take(self.busy.get_mut(usize::from(id))?);
        if batch.is_empty() {
            return None;
        }
        self.open -= batch.len();
        self.free.push(id);
        Some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::{attempt_of, Consumer, Delivery, Settles};
    use crate::plan::tests::plan;
    use crate::plan::{Pattern, Queue};

    const QUEUE: Queue = Queue {
        ack_batch: 1,
        prefetch: 100,
        stuck: 0,
        keys: 0,
        fill: 0,
        fills_only: false,
        open: 0,
        at_random: false,
    };

    fn consumer(queue: Queue) -> Consumer {
        let plan = plan(Pattern::Queue(queue));
        let mut consumer = Consumer::new(&plan, queue, 0);
        consumer.admitted(2);
        consumer
    }

    fn take(consumer: &mut Consumer, offset: u32, out: &mut Vec<u8>) {
        let id = format!("0:{offset}:1");
        let delivery = Delivery::with_id(id.as_bytes(), Some(offset), offset).unwrap();
        consumer.take(delivery);
        consumer.settle(u64::from(offset), false, out, &mut Vec::new());
    }

    #[test]
    fn batches_wait_until_they_are_full_or_are_to_go() {
        let mut consumer = consumer(Queue {
            ack_batch: 2,
            ..QUEUE
        });
        let mut out = Vec::new();
        take(&mut consumer, 1, &mut out);
        assert_eq!((out.len(), consumer.lingers(1)), (0, Some(5_000)));
        take(&mut consumer, 2, &mut out);
        assert_eq!(consumer.lingers(2), None);
        let text = String::from_utf8_lossy(&out).into_owned();
        assert!(text.contains("0:1:1") && text.contains("0:2:1"), "{text}");
        take(&mut consumer, 3, &mut out);
        assert_eq!((consumer.lingers(9_000), consumer.open()), (Some(0), 3));
        consumer.settle(9_000, true, &mut out, &mut Vec::new());
        let settled = consumer.answered(1).unwrap();
        assert_eq!(settled.iter().map(|each| each.came).sum::<u32>(), 3);
        assert_eq!((consumer.open(), consumer.answered(1)), (1, None));
    }

    #[test]
    fn no_more_is_under_way_than_the_server_allows() {
        let mut consumer = consumer(QUEUE);
        let mut out = Vec::new();
        for offset in 0..3 {
            take(&mut consumer, offset, &mut out);
        }
        let two = out.len();
        consumer.settle(3, true, &mut out, &mut Vec::new());
        assert_eq!((out.len(), consumer.open()), (two, 3));
        assert!(consumer.answered(2).is_some());
        consumer.settle(4, false, &mut out, &mut Vec::new());
        assert!(out.len() > two);
    }

    #[test]
    fn so_many_stay_open_and_the_first_or_any_goes() {
        for at_random in [false, true] {
            let mut consumer = consumer(Queue {
                open: 50,
                at_random,
                ..QUEUE
            });
            let mut out = Vec::new();
            for offset in 0..50 {
                take(&mut consumer, offset, &mut out);
            }
            assert_eq!((out.len(), consumer.open()), (0, 50));
            take(&mut consumer, 50, &mut out);
            let gone = consumer.answered(1).or_else(|| consumer.answered(2));
            assert_eq!(gone.unwrap()[0].came == 0, !at_random);
            consumer.release();
            consumer.settle(60, true, &mut out, &mut Vec::new());
            assert_eq!(consumer.open(), 50);
        }
    }

    #[test]
    fn puback_settles_at_once() {
        let mut consumer = consumer(Queue {
            ack_batch: 0,
            ..QUEUE
        });
        consumer.take(Delivery {
            settles: Settles::Puback(7),
            due: None,
            came: 1,
        });
        let (mut out, mut settled) = (Vec::new(), Vec::new());
        consumer.settle(1, false, &mut out, &mut settled);
        assert_eq!(out, b"\x40\x02\x00\x07");
        assert_eq!((settled.len(), consumer.open()), (1, 0));
    }

    #[test]
    fn a_message_id_says_which_attempt_it_is() {
        assert_eq!(attempt_of(b"3:17:4"), Some(4));
        assert_eq!(attempt_of(b"3:17:x"), None);
        assert_eq!(attempt_of(b""), None);
    }
}
