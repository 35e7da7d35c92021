//! Records of a log: payloads that say who sent them, and the judge of those that were read.
//!
//! A flow is what one producer sends to one partition: a log promises its order. Its number and
//! place are in the stamp of each payload.
use std::ops::Range;

use hdrhistogram::Histogram;

use crate::report::{histogram, Latency};
use crate::stamp::{checksum, Stamp, LENGTH};
use crate::tally::{Arrival, Heard};

/// The payloads of one flow, in their order.
pub struct Payloads {
    flow: u32,
    topic_checksum: u32,
    payload: Vec<u8>,
    next: u64,
}

impl Payloads {
    /// Payloads of `size` bytes, at least [`LENGTH`]: a stamp, then bytes that compress to about a
    /// half, as readings do.
    pub fn new(topic: &str, flow: u32, size: usize) -> Self {
        let mut state = u64::from(flow) | 1;
        let payload = (0..size.max(LENGTH))
            .map(|index| {
                // Marsaglia's xorshift (2003): four bits of noise in each byte.
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                b'a' + ((state >> 33) as u8 & 0x0f) + (index as u8 & 0x01)
            })
            .collect();
        Self {
            flow,
            topic_checksum: checksum(topic.as_bytes()),
            payload,
            next: 0,
        }
    }

    /// The next one; `due` is when it should leave, in microseconds of any clock.
    pub fn stamped(&mut self, due: u64) -> &[u8] {
        let stamp = Stamp {
            publisher: self.flow,
            sequence: self.next,
            micros: due as u32,
        };
        stamp.write(self.topic_checksum, &mut self.payload);
        self.next += 1;
        &self.payload
    }
}

/// What was read, held against what was sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Read {
    /// Records that came, repeats and damaged ones included.
    pub received: u64,
    /// Acknowledged and not read.
    pub lost: u64,
    /// Read again.
    pub duplicated: u64,
    /// Read behind a later one of their flow.
    pub reordered: u64,
    /// With a wrong checksum, length or topic, or never sent.
    pub corrupted: u64,
    /// From when a record was due to when it was read, of those that were due in time.
    pub latency: Latency,
}

/// Judges what readers of one topic get.
pub struct RecordJudge {
    topic: String,
    size: usize,
    flows: Vec<(Heard, u64)>,
    read: Read,
    latency: Histogram<u64>,
    measured: Range<u64>,
}

impl RecordJudge {
    /// A judge of so many flows with payloads of `size` bytes; times those due in `measured`.
    pub fn new(topic: &str, flows: u32, size: usize, measured: Range<u64>) -> Self {
        Self {
            topic: topic.to_owned(),
            size: size.max(LENGTH),
            flows: (0..flows).map(|_| (Heard::default(), 0)).collect(),
            read: Read::default(),
            latency: histogram(),
            measured,
        }
    }

    /// Records that came so far.
    pub fn received(&self) -> u64 {
        self.read.received
    }

    /// Different ones among them.
    pub fn distinct(&self) -> u64 {
        self.read.received - self.read.duplicated - self.read.corrupted
    }

    /// Takes the value of a record that was read at `now`, microseconds of the sender's clock.
    pub fn take(&mut self, value: &[u8], now: u64) {
        self.read.received += 1;
        let stamp = Stamp::read(self.topic.as_bytes(), value).filter(|_| value.len() == self.size);
        let Some((stamp, (heard, distinct))) = stamp.and_then(|stamp| {
            let flow = self.flows.get_mut(stamp.publisher as usize)?;
            Some((stamp, flow))
        }) else {
            self.read.corrupted += 1;
            return;
        };
        match heard.arrived(stamp.sequence) {
            Arrival::Again => {
                self.read.duplicated += 1;
                return;
            }
            Arrival::Late => self.read.reordered += 1,
            Arrival::InOrder => {}
        }
        *distinct += 1;
        let micros = u64::from((now as u32).wrapping_sub(stamp.micros));
        if self.measured.contains(&now.saturating_sub(micros)) {
            self.latency.saturating_record(micros);
        }
    }

    /// As [`RecordJudge::take`], of values that stand one behind the other.
    pub fn take_joined(&mut self, values: &[u8], now: u64) {
        let records = values.chunks_exact(self.size);
        if !records.remainder().is_empty() {
            self.take(records.remainder(), now);
        }
        for value in records {
            self.take(value, now);
        }
    }

    /// What came of `acknowledged` records of each flow, of `sent` ones.
    pub fn read(&self, acknowledged: &[u64], sent: &[u64]) -> Read {
        let mut read = self.read.clone();
        for ((heard, distinct), (acknowledged, sent)) in
            self.flows.iter().zip(acknowledged.iter().zip(sent))
        {
            read.lost += acknowledged.saturating_sub(*distinct);
            read.corrupted += heard.next().saturating_sub(*sent);
        }
        read.latency = Latency::of(&self.latency);
        read
    }
}

#[cfg(test)]
mod tests {
    use super::{Payloads, Read, RecordJudge};

    fn judged(take: impl Fn(&mut RecordJudge, &[Vec<u8>])) -> Read {
        let mut payloads = Payloads::new("t", 1, 40);
        let values: Vec<Vec<u8>> = (0..10)
            .map(|n| payloads.stamped(n * 100).to_vec())
            .collect();
        let mut judge = RecordJudge::new("t", 2, 40, 300..700);
        take(&mut judge, &values);
        judge.read(&[0, 10], &[0, 10])
    }

    #[test]
    fn all_that_was_sent_is_read_and_timed() {
        let read = judged(|judge, values| judge.take_joined(&values.concat(), 1_000));
        assert_eq!((read.received, read.latency.count), (10, 4));
        assert_eq!((read.lost, read.duplicated, read.reordered), (0, 0, 0));
        assert!((read.latency.max - 700e-6).abs() < 1e-6);
    }

    #[test]
    fn each_fault_is_counted() {
        let read = judged(|judge, values| {
            for index in [0, 1, 3, 2, 2, 4, 9] {
                judge.take(&values[index], 0);
            }
            judge.take(&values[5][..39], 0);
            judge.take(&[0; 40], 0);
        });
        assert_eq!((read.received, read.lost), (9, 4));
        assert_eq!((read.duplicated, read.reordered, read.corrupted), (1, 1, 2));
    }

    #[test]
    fn another_topic_and_what_was_never_sent_are_told() {
        let mut payloads = Payloads::new("t", 0, 20);
        let (first, second) = (payloads.stamped(0).to_vec(), payloads.stamped(0).to_vec());
        let mut judge = RecordJudge::new("u", 1, 20, 0..1);
        judge.take(&first, 0);
        assert_eq!(judge.read(&[0], &[0]).corrupted, 1);
        let mut judge = RecordJudge::new("t", 1, 20, 0..1);
        judge.take(&first, 0);
        judge.take(&second, 0);
        assert_eq!(judge.read(&[1], &[1]).corrupted, 1);
    }
}
