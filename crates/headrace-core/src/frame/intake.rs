//! What the bytes of one producer come to: a batch for each partition, and acknowledgements.

use super::layout::{parse, Fault, Frame};
use crate::record::{partition_of, BatchBuilder, Codec, HEADER_BYTES, LATER_RECORD_BYTES};

/// Beyond it, room for what is not whole is given back once it is not needed.
const KEPT_BYTES: usize = 64 << 10;

/// No batch of this read is open for a partition.
const NONE: u32 = u32::MAX;

/// What holds for frames now.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Of the stream, at least 1.
    pub partitions: u32,
    /// Where all frames go; None where their keys say.
    pub partition: Option<u32>,
    /// Largest batch.
    pub message_bytes_max: usize,
    /// Each must have a key.
    pub needs_key: bool,
    /// Of the batches.
    pub codec: Codec,
    /// Milliseconds since 1970, for frames that say no time.
    pub wall_ms: i64,
}

impl Rules {
    /// The greatest length of a frame, which at worst has a batch of its own.
    pub fn length_max(&self) -> usize {
        self.message_bytes_max.saturating_sub(HEADER_BYTES)
    }
}

/// A batch of frames, to be appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenBatch {
    /// Where it goes.
    pub partition: u32,
    /// Record batch v2.
    pub bytes: Vec<u8>,
}

/// Frames that follow one another and stand so in one batch.
#[derive(Clone, Copy, Debug)]
struct Run {
    batch: u32,
    first: u32,
    count: u32,
}

/// What one read has brought.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// In the order in which they are to be appended.
    pub batches: Vec<TakenBatch>,
    /// Frames in all of them.
    pub frames: u32,
    /// What ends the connection, and the number of the frame, from 0: all before it are taken.
    pub fault: Option<(u64, Fault)>,
    runs: Vec<Run>,
}

impl Taken {
    /// Acknowledgements of the frames, in their order, up to the first whose batch has no place in
    /// the log; and how many that are.
    ///
    /// `bases` has the offset of the first record of each batch. Each acknowledgement is
    /// `frames u32, partition i32, offset i64` of the first; the others follow it.
    pub fn acknowledge(&self, bases: &[Option<i64>]) -> (Vec<u8>, u32) {
        let mut out = Vec::with_capacity(16 * self.runs.len());
        let mut total = 0;
        let mut last: Option<(u32, u32, i64)> = None; // frames, partition, offset
        for run in &self.runs {
            let batch = run.batch as usize;
            let Some(base) = bases.get(batch).copied().flatten() else {
                break;
            };
            let (partition, offset) = (self.batches[batch].partition, base + i64::from(run.first));
            total += run.count;
            last = match last {
                Some((frames, of, first))
                    if of == partition && first + i64::from(frames) == offset =>
                {
                    Some((frames + run.count, of, first))
                }
                before => {
                    put(&mut out, before);
                    Some((run.count, partition, offset))
                }
            };
        }
        put(&mut out, last);
        (out, total)
    }
}

fn put(out: &mut Vec<u8>, acknowledgement: Option<(u32, u32, i64)>) {
    if let Some((frames, partition, offset)) = acknowledgement {
        out.extend_from_slice(&frames.to_be_bytes());
        out.extend_from_slice(&partition.to_be_bytes());
        out.extend_from_slice(&offset.to_be_bytes());
    }
}

/// One producer: what of it is not whole, and where its frames without a key go next.
#[derive(Clone, Debug)]
pub struct Intake {
    kept: Vec<u8>,
    frames: u64,
    turn: u32,
}

impl Intake {
    /// Its first frames without a key go to partition `turn`, modulo their number.
    pub fn new(turn: u32) -> Self {
        Self {
            kept: Vec::new(),
            frames: 0,
            turn,
        }
    }

    /// Bytes of a frame that is not whole.
    pub fn kept_bytes(&self) -> usize {
        self.kept.len()
    }

    /// Takes what was read. After a fault nothing more is to be given.
    pub fn receive(&mut self, data: &[u8], rules: &Rules) -> Taken {
        let mut batching = Batching::new(rules, self.turn % rules.partitions);
        let mut kept = std::mem::take(&mut self.kept);
        let fault = if kept.is_empty() {
            let (read, fault) = batching.take(data);
            kept.extend_from_slice(&data[read..]);
            fault
        } else {
            kept.extend_from_slice(data);
            let (read, fault) = batching.take(&kept);
            kept.drain(..read);
            fault
        };
        if kept.len() < KEPT_BYTES && kept.capacity() > KEPT_BYTES {
            kept.shrink_to(KEPT_BYTES);
        }
        self.kept = kept;
        if batching.has_keyless {
            self.turn = self.turn.wrapping_add(1);
        }
        let mut taken = batching.finish();
        self.frames += u64::from(taken.frames);
        taken.fault = fault.map(|fault| (self.frames, fault));
        taken
    }
}

/// One read at work.
struct Batching<'r> {
    rules: &'r Rules,
    /// Where frames without a key go: one partition for all of a read, so that batches are few.
    keyless: u32,
    has_keyless: bool,
    batches: Vec<(u32, BatchBuilder)>,
    /// The batch that is open for each partition.
    open: Vec<u32>,
    runs: Vec<Run>,
    frames: u32,
}

impl<'r> Batching<'r> {
    fn new(rules: &'r Rules, keyless: u32) -> Self {
        Self {
            rules,
            keyless,
            has_keyless: false,
            batches: Vec::new(),
            open: vec![NONE; rules.partitions as usize],
            runs: Vec::new(),
            frames: 0,
        }
    }

    /// Takes whole frames off the front of `data`: their bytes, and what is wrong with the next.
    fn take(&mut self, data: &[u8]) -> (usize, Option<Fault>) {
        let length_max = self.rules.length_max();
        let mut read = 0;
        loop {
            match parse(&data[read..], length_max) {
                Ok(None) => return (read, None),
                Ok(Some(frame)) => match self.push(&frame) {
                    Ok(()) => read += frame.bytes,
                    Err(fault) => return (read, Some(fault)),
                },
                Err(fault) => return (read, Some(fault)),
            }
        }
    }

    fn push(&mut self, frame: &Frame) -> Result<(), Fault> {
        let partition = self.partition_of(frame)?;
        let batch = self.batch_for(partition, frame);
        let builder = &mut self.batches[batch as usize].1;
        let timestamp = match frame.timestamp {
            0 | -1 => self.rules.wall_ms,
            said => said,
        };
        let first = builder.count();
        builder.push(timestamp, frame.key, frame.value, frame.headers.clone());
        self.frames += 1;
        match self.runs.last_mut() {
            Some(run) if run.batch == batch => run.count += 1,
            _ => self.runs.push(Run {
                batch,
                first,
                count: 1,
            }),
        }
        Ok(())
    }

    fn partition_of(&mut self, frame: &Frame) -> Result<u32, Fault> {
        if frame.key.is_none() && self.rules.needs_key {
            return Err(Fault::Keyless);
        }
        Ok(match (self.rules.partition, frame.key) {
            (Some(partition), _) => partition,
            (None, Some(key)) => partition_of(key, self.rules.partitions),
            (None, None) => {
                self.has_keyless = true;
                self.keyless
            }
        })
    }

    /// The batch that has room for a frame, which may be a new one.
    fn batch_for(&mut self, partition: u32, frame: &Frame) -> u32 {
        let open = self.open[partition as usize];
        if open != NONE {
            // A header takes at most a byte more in a record than in a frame; all else takes less.
            let record_bytes = frame.bytes + frame.headers.len();
            let held = self.batches[open as usize].1.bytes();
            if held + LATER_RECORD_BYTES + record_bytes <= self.rules.message_bytes_max {
                return open;
            }
        }
        let batch = self.batches.len() as u32;
        self.batches.push((partition, BatchBuilder::new()));
        self.open[partition as usize] = batch;
        batch
    }

    fn finish(self) -> Taken {
        let codec = self.rules.codec;
        let batches = self.batches.into_iter();
        Taken {
            batches: batches
                .map(|(partition, mut builder)| TakenBatch {
                    partition,
                    bytes: builder.finish_with(codec),
                })
                .collect(),
            frames: self.frames,
            fault: None,
            runs: self.runs,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout;
    use super::*;
    use crate::record::{Batches, Records};

    const RULES: Rules = Rules {
        partitions: 4,
        partition: None,
        message_bytes_max: 1 << 20,
        needs_key: false,
        codec: Codec::None,
        wall_ms: 5_000,
    };

    fn frame(key: Option<&[u8]>, value: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let headers = [(&b"h"[..], Some(&b"x"[..]))];
        layout::put(&mut out, 1_000, key, Some(value), headers.into_iter()).unwrap();
        out
    }

    /// Values of a batch, checked.
    fn values(batch: &TakenBatch) -> Vec<Vec<u8>> {
        let read = Batches::new(&batch.bytes).next().unwrap().unwrap();
        read.check_crc().unwrap();
        Records::new(&read.header, read.body())
            .map(|record| record.unwrap().value.unwrap().to_vec())
            .collect()
    }

    #[test]
    fn frames_go_where_kafkas_producers_put_their_keys() {
        let keys: [&[u8]; 5] = [b"a", b"b", b"c", b"d", b"e"];
        let sent: Vec<u8> = keys.iter().flat_map(|key| frame(Some(key), key)).collect();
        let taken = Intake::new(0).receive(&sent, &RULES);
        assert_eq!((taken.frames, taken.fault), (5, None));
        for batch in &taken.batches {
            for value in values(batch) {
                assert_eq!(partition_of(&value, 4), batch.partition);
            }
        }
        assert_eq!(
            taken
                .batches
                .iter()
                .map(|each| values(each).len())
                .sum::<usize>(),
            5
        );
        let only = Rules {
            partition: Some(3),
            ..RULES
        };
        let taken = Intake::new(0).receive(&sent, &only);
        assert_eq!(taken.batches.len(), 1);
        assert_eq!(taken.batches[0].partition, 3);
    }

    #[test]
    fn frames_without_a_key_take_partitions_in_turn_a_read_at_a_time() {
        let mut intake = Intake::new(6);
        let two = [frame(None, b"1"), frame(None, b"2")].concat();
        let mut partitions = Vec::new();
        for _ in 0..5 {
            let taken = intake.receive(&two, &RULES);
            assert_eq!(taken.batches.len(), 1);
            partitions.push(taken.batches[0].partition);
        }
        assert_eq!(partitions, [2, 3, 0, 1, 2]);
    }

    #[test]
    fn however_bytes_are_cut_the_same_frames_come_out() {
        let sent: Vec<u8> = (0..20_u8)
            .flat_map(|n| frame(Some(b"k"), &vec![n; n.into()]))
            .collect();
        let whole = values(&Intake::new(0).receive(&sent, &RULES).batches[0]);
        for piece in [1, 2, 7, 33, 64, 500] {
            let mut intake = Intake::new(0);
            let mut came = Vec::new();
            for bytes in sent.chunks(piece) {
                let taken = intake.receive(bytes, &RULES);
                assert_eq!(taken.fault, None);
                came.extend(taken.batches.iter().flat_map(values));
            }
            assert_eq!(came, whole);
            assert_eq!(intake.kept_bytes(), 0);
        }
    }

    #[test]
    fn what_is_before_a_fault_is_taken_and_what_is_behind_it_is_not() {
        let mut wrong = frame(Some(b"k"), b"wrong");
        let last = wrong.len() - 1;
        wrong[last] ^= 1;
        let (first, behind) = (frame(Some(b"k"), b"first"), frame(Some(b"k"), b"behind"));
        let mut intake = Intake::new(0);
        assert_eq!(intake.receive(&first, &RULES).fault, None);
        let taken = intake.receive(&[first, wrong, behind].concat(), &RULES);
        assert_eq!(values(&taken.batches[0]), [b"first"]);
        let (number, fault) = taken.fault.unwrap();
        assert_eq!((number, fault.reason()), (2, "frame_crc"));
    }

    #[test]
    fn a_stream_that_keeps_the_last_of_each_key_takes_none_without() {
        let rules = Rules {
            needs_key: true,
            ..RULES
        };
        let taken = Intake::new(0).receive(&frame(None, b"v"), &rules);
        assert_eq!(taken.fault, Some((0, Fault::Keyless)));
    }

    #[test]
    fn who_has_no_clock_is_given_the_nodes() {
        for (said, stored) in [(-1, 5_000), (0, 5_000), (1, 1)] {
            let mut sent = Vec::new();
            layout::put(&mut sent, said, None, None, std::iter::empty()).unwrap();
            let taken = Intake::new(0).receive(&sent, &RULES);
            let batch = Batches::new(&taken.batches[0].bytes)
                .next()
                .unwrap()
                .unwrap();
            assert_eq!(batch.header.max_timestamp, stored);
        }
    }

    #[test]
    fn no_batch_is_larger_than_its_stream_allows() {
        let rules = Rules {
            message_bytes_max: 400,
            ..RULES
        };
        let sent: Vec<u8> = (0..50_u8)
            .flat_map(|n| frame(Some(b"k"), &[n; 100]))
            .collect();
        let taken = Intake::new(0).receive(&sent, &rules);
        assert_eq!(taken.fault, None);
        assert!(taken.batches.len() > 15);
        assert!(taken.batches.iter().all(|batch| batch.bytes.len() <= 400));
        let came: Vec<_> = taken.batches.iter().flat_map(values).collect();
        assert_eq!(came, (0..50_u8).map(|n| vec![n; 100]).collect::<Vec<_>>());
        // The longest that is let in, and a byte more.
        let longest = frame(None, &[0; 339 - 26 - 8]);
        assert_eq!(longest.len(), 4 + rules.length_max());
        assert_eq!(Intake::new(0).receive(&longest, &rules).fault, None);
        let longer = frame(None, &[0; 340 - 26 - 8]);
        let (_, fault) = Intake::new(0).receive(&longer[..4], &rules).fault.unwrap();
        assert_eq!(
            fault,
            Fault::TooLarge {
                length: 340,
                length_max: 339
            }
        );
    }

    #[test]
    fn acknowledgements_are_runs_in_the_order_of_frames() {
        let of_a = partition_of(b"a", 4);
        let other = (b'b'..=b'z')
            .find(|key| partition_of(&[*key], 4) != of_a)
            .unwrap();
        let of_b = partition_of(&[other], 4);
        let (a, b) = (frame(Some(b"a"), b"1"), frame(Some(&[other]), b"2"));
        let taken = Intake::new(0).receive(&[&a[..], &a, &b, &a].concat(), &RULES);
        let run = |frames: u32, partition: u32, offset: i64| {
            let mut out = Vec::new();
            put(&mut out, Some((frames, partition, offset)));
            out
        };
        let (all, frames) = taken.acknowledge(&[Some(100), Some(7)]);
        assert_eq!(frames, 4);
        assert_eq!(
            all,
            [run(2, of_a, 100), run(1, of_b, 7), run(1, of_a, 102)].concat()
        );
        // What has no place in the log ends them.
        assert_eq!(
            taken.acknowledge(&[Some(100), None]),
            (run(2, of_a, 100), 2)
        );
        assert_eq!(taken.acknowledge(&[None, Some(7)]), (vec![], 0));
        // Batches that follow one another are one run.
        let rules = Rules {
            message_bytes_max: 110,
            partition: Some(1),
            ..RULES
        };
        let taken = Intake::new(0).receive(&[&a[..], &a, &a].concat(), &rules);
        assert!(taken.batches.len() > 1);
        let mut bases = vec![Some(9)];
        for batch in &taken.batches {
            bases.push(
                bases
                    .last()
                    .unwrap()
                    .map(|base| base + values(batch).len() as i64),
            );
        }
        assert_eq!(taken.acknowledge(&bases), (run(3, 1, 9), 3));
    }
}
