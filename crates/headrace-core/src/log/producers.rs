//! Idempotent producers of one log: the last five batches of each (KIP-98).
//!
//! A client keeps at most five requests in flight, so an exact repeat of one of the last five
//! batches is answered with the first copy's offset; anything else must follow on.
//!
//! A producer that is silent for long is forgotten, by the wall clock of appends: what clients say
//! of the time counts for nothing. Who was met in records that a crash made us read again counts
//! as heard when the log opens, so no one is forgotten early.

use std::collections::{BTreeMap, VecDeque};

use super::codec::{maybe, seal, unseal, Put, Take};
use super::error::Error;
use crate::record::BatchHeader;

/// Batches remembered for each producer: `max.in.flight.requests.per.connection` of an
/// idempotent client is at most 5 (KIP-98; Kafka `ProducerStateEntry`).
const BATCHES: usize = 5;
/// Producers kept for sure in one log; at most twice as many are held. Every client that begins
/// draws a new id and none says when it ends, so the bound keeps ids from eating memory until they
/// expire: those whose last batch is oldest go first.
const PRODUCERS_MAX: usize = 10_000;
const MAGIC: [u8; 8] = *b"HRPROD\0\x02";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Written {
    first_sequence: i32,
    last_sequence: i32,
    base_offset: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Producer {
    epoch: i16,
    /// The wall clock when it last wrote; None: not known since a crash.
    heard_ms: Option<i64>,
    batches: VecDeque<Written>,
}

impl Producer {
    fn is_silent(&self, wall_ms: i64, expiry_ms: u64) -> bool {
        let heard = self.heard_ms.unwrap_or(wall_ms);
        u64::try_from(wall_ms.saturating_sub(heard)).is_ok_and(|silent| silent > expiry_ms)
    }
}

/// What is known of each producer id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Producers(BTreeMap<i64, Producer>);

/// The verdict on a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It follows on.
    New,
    /// It was stored before, at this base offset.
    Duplicate(i64),
}

/// Sequences run from 0 to 2^31 - 1 and wrap to 0.
fn after(sequence: i32, steps: i32) -> i32 {
    sequence.wrapping_add(steps) & i32::MAX
}

impl Producers {
    /// Whether `header` may be appended.
    pub(super) fn check(&self, header: &BatchHeader) -> Result<Verdict, Error> {
        if !header.has_producer() {
            return Ok(Verdict::New);
        }
        let found = header.base_sequence;
        let out_of_order = |expected| Error::OutOfOrderSequence {
            producer_id: header.producer_id,
            expected,
            found,
        };
        // A producer that this log has not met may begin anywhere: its past may have expired.
        let Some(producer) = self.0.get(&header.producer_id) else {
            return Ok(Verdict::New);
        };
        if header.producer_epoch < producer.epoch {
            return Err(Error::StaleProducerEpoch {
                producer_id: header.producer_id,
                current: producer.epoch,
                found: header.producer_epoch,
            });
        }
        if header.producer_epoch > producer.epoch {
            return if found == 0 {
                Ok(Verdict::New)
            } else {
                Err(out_of_order(0))
            };
        }
        let last_sequence = after(found, header.last_offset_delta);
        let repeat = producer
            .batches
            .iter()
            .find(|b| b.first_sequence == found && b.last_sequence == last_sequence);
        if let Some(first) = repeat {
            return Ok(Verdict::Duplicate(first.base_offset));
        }
        let last = producer
            .batches
            .back()
            .expect("a producer has written")
            .last_sequence;
        let expected = after(last, 1);
        if found == expected {
            Ok(Verdict::New)
        } else {
            Err(out_of_order(expected))
        }
    }

    /// Base offset of the last batch of each producer that stands below `end`.
    pub(super) fn last_batches(&self, end: i64) -> BTreeMap<i64, i64> {
        let last = |producer: &Producer| {
            let offsets = producer.batches.iter().map(|batch| batch.base_offset);
            offsets.rev().find(|offset| *offset < end)
        };
        let producers = self.0.iter();
        producers
            .filter_map(|(id, producer)| Some((*id, last(producer)?)))
            .collect()
    }

    /// Forgets a producer that has been silent for longer than `expiry_ms`.
    pub(super) fn forget_if_silent(&mut self, producer_id: i64, wall_ms: i64, expiry_ms: u64) {
        let producer = self.0.get(&producer_id);
        if producer.is_some_and(|producer| producer.is_silent(wall_ms, expiry_ms)) {
            self.0.remove(&producer_id);
        }
    }

    /// Forgets all such.
    pub(super) fn forget_silent(&mut self, wall_ms: i64, expiry_ms: u64) {
        self.0
            .retain(|_, producer| !producer.is_silent(wall_ms, expiry_ms));
    }

    /// Those of whom that is not known were heard at `wall_ms`.
    pub(super) fn heard_by(&mut self, wall_ms: i64) {
        for producer in self.0.values_mut() {
            producer.heard_ms.get_or_insert(wall_ms);
        }
    }

    /// Takes note of a batch that stands at `header.base_offset`, and of when it came.
    pub(super) fn note(&mut self, header: &BatchHeader, wall_ms: Option<i64>) {
        if !header.has_producer() {
            return;
        }
        if self.0.len() >= 2 * PRODUCERS_MAX && !self.0.contains_key(&header.producer_id) {
            self.keep_newest(PRODUCERS_MAX);
        }
        let producer = self
            .0
            .entry(header.producer_id)
            .or_insert_with(|| Producer {
                epoch: header.producer_epoch,
                heard_ms: wall_ms,
                batches: VecDeque::with_capacity(BATCHES),
            });
        producer.heard_ms = wall_ms;
        if producer.epoch != header.producer_epoch {
            producer.epoch = header.producer_epoch;
            producer.batches.clear();
        }
        if producer.batches.len() == BATCHES {
            producer.batches.pop_front();
        }
        producer.batches.push_back(Written {
            first_sequence: header.base_sequence,
            last_sequence: after(header.base_sequence, header.last_offset_delta),
            base_offset: header.base_offset,
        });
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Keeps so many, those with the newest batches.
    pub(super) fn keep_newest(&mut self, count: usize) {
        let newest = |producer: &Producer| producer.batches.back().map(|batch| batch.base_offset);
        let mut offsets: Vec<Option<i64>> = self.0.values().map(newest).collect();
        let forgotten = offsets.len() - count;
        let oldest_kept = *offsets.select_nth_unstable(forgotten).1;
        self.0.retain(|_, producer| newest(producer) >= oldest_kept);
    }

    /// A line for each, for people.
    pub(super) fn describe(&self) -> Vec<String> {
        let line = |(id, producer): (&i64, &Producer)| {
            let last = producer.batches.back().map_or_else(String::new, |batch| {
                let (sequence, offset) = (batch.last_sequence, batch.base_offset);
                format!(", last sequence {sequence} in the batch at offset {offset}")
            });
            format!("producer {id}, epoch {}{last}", producer.epoch)
        };
        self.0.iter().map(line).collect()
    }

    /// The snapshot file.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.put_u32(self.0.len() as u32);
        for (id, producer) in &self.0 {
            body.put_i64(*id);
            body.put_u32(producer.epoch as u32);
            body.put_maybe(producer.heard_ms);
            body.put_u8(producer.batches.len() as u8);
            for batch in &producer.batches {
                body.put_u32(batch.first_sequence as u32);
                body.put_u32(batch.last_sequence as u32);
                body.put_i64(batch.base_offset);
            }
        }
        seal(MAGIC, &body)
    }

    /// Reads a snapshot file; None where it is not whole.
    pub(super) fn decode(file: &[u8]) -> Option<Self> {
        let mut take = Take(unseal(MAGIC, file)?);
        let mut producers = BTreeMap::new();
        for _ in 0..take.u32()? {
            let id = take.i64()?;
            let epoch = take.u32()? as i16;
            let heard_ms = maybe(take.i64()?);
            let mut batches = VecDeque::with_capacity(BATCHES);
            for _ in 0..take.u8()? {
                batches.push_back(Written {
                    first_sequence: take.u32()? as i32,
                    last_sequence: take.u32()? as i32,
                    base_offset: take.i64()?,
                });
            }
            let producer = Producer {
                epoch,
                heard_ms,
                batches,
            };
            producers.insert(id, producer);
        }
        Some(Self(producers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(epoch: i16, sequence: i32, count: i32, base_offset: i64) -> BatchHeader {
        BatchHeader {
            base_offset,
            length: 49,
            leader_epoch: 0,
            crc: 0,
            attributes: 0,
            last_offset_delta: count - 1,
            base_timestamp: 0,
            max_timestamp: 0,
            producer_id: 7,
            producer_epoch: epoch,
            base_sequence: sequence,
            count,
        }
    }

    fn after_six() -> Producers {
        let mut producers = Producers::default();
        for at in 0..6 {
            producers.note(&batch(1, 2 * at, 2, i64::from(10 * at)), Some(0));
        }
        producers
    }

    #[test]
    fn an_exact_repeat_of_the_last_five_has_the_first_offset() {
        let producers = after_six();
        for at in 1..6 {
            let verdict = producers.check(&batch(1, 2 * at, 2, 0));
            assert_eq!(verdict, Ok(Verdict::Duplicate(i64::from(10 * at))));
        }
        assert!(matches!(
            producers.check(&batch(1, 0, 2, 0)),
            Err(Error::OutOfOrderSequence {
                expected: 12,
                found: 0,
                ..
            })
        ));
        assert!(
            producers.check(&batch(1, 10, 1, 0)).is_err(),
            "not the same batch"
        );
    }

    #[test]
    fn only_the_next_sequence_follows_on() {
        let producers = after_six();
        assert_eq!(producers.check(&batch(1, 12, 3, 0)), Ok(Verdict::New));
        assert!(producers.check(&batch(1, 13, 3, 0)).is_err());
    }

    #[test]
    fn a_newer_epoch_begins_at_zero_and_shuts_out_the_older() {
        let mut producers = after_six();
        assert!(producers.check(&batch(2, 5, 1, 0)).is_err());
        assert_eq!(producers.check(&batch(2, 0, 1, 0)), Ok(Verdict::New));
        producers.note(&batch(2, 0, 1, 99), Some(0));
        assert!(matches!(
            producers.check(&batch(1, 12, 1, 0)),
            Err(Error::StaleProducerEpoch {
                current: 2,
                found: 1,
                ..
            })
        ));
        assert_eq!(
            producers.check(&batch(2, 0, 1, 0)),
            Ok(Verdict::Duplicate(99))
        );
    }

    #[test]
    fn a_sequence_wraps_after_two_to_the_31_less_one() {
        let mut producers = Producers::default();
        producers.note(&batch(0, i32::MAX - 1, 4, 0), Some(0));
        assert_eq!(producers.check(&batch(0, 2, 1, 0)), Ok(Verdict::New));
        assert_eq!(
            producers.check(&batch(0, i32::MAX - 1, 4, 0)),
            Ok(Verdict::Duplicate(0))
        );
    }

    #[test]
    fn a_snapshot_reads_back_and_a_torn_one_does_not() {
        let producers = after_six();
        let file = producers.encode();
        assert_eq!(Producers::decode(&file), Some(producers));
        for end in 0..file.len() {
            assert_eq!(Producers::decode(&file[..end]), None);
        }
    }

    #[test]
    fn a_producer_is_forgotten_once_it_has_been_silent_for_long() {
        let mut producers = Producers::default();
        producers.note(&batch(1, 0, 1, 0), Some(100));
        producers.forget_if_silent(7, 150, 50);
        assert!(producers.check(&batch(1, 5, 1, 0)).is_err(), "it is known");
        producers.forget_if_silent(7, 151, 50);
        assert_eq!(producers.check(&batch(1, 5, 1, 0)), Ok(Verdict::New));
    }

    #[test]
    fn who_was_met_again_after_a_crash_was_heard_when_the_log_opened() {
        let mut producers = Producers::default();
        producers.note(&batch(1, 0, 1, 0), None);
        producers.forget_silent(i64::MAX, 0);
        producers.heard_by(1000);
        producers.heard_by(0);
        producers.forget_silent(1050, 50);
        assert_eq!(producers.0.len(), 1);
        let mut restarted = Producers::decode(&producers.encode()).unwrap();
        restarted.forget_silent(1051, 50);
        assert_eq!(restarted.0.len(), 0);
        producers.forget_silent(i64::MIN, 50);
        assert_eq!(
            producers.0.len(),
            1,
            "a clock that goes back forgets no one"
        );
    }

    #[test]
    fn memory_is_bounded_and_the_longest_silent_go_first() {
        let mut producers = Producers::default();
        for at in 0..5 * PRODUCERS_MAX as i32 {
            let offset = 2 * i64::from(at);
            let mut other = batch(0, 0, 1, offset);
            other.producer_id = 100 + i64::from(at);
            producers.note(&other, Some(0));
            producers.note(&batch(0, at, 1, offset + 1), Some(0));
            assert!(producers.0.len() <= 2 * PRODUCERS_MAX);
        }
        assert!(producers.0.len() >= PRODUCERS_MAX);
        assert!(producers.check(&batch(0, 5, 1, 0)).is_err(), "it is known");
        let known = |id| producers.0.contains_key(&id);
        assert!(!known(100) && known(99 + 5 * PRODUCERS_MAX as i64));
    }
}
