//! A stored batch without some of its records, as log compaction leaves it (KIP-58, KIP-534).
//!
//! Offsets, sequences and the codec stay. Records that stay keep their bytes, unless the batch
//! gets a delete horizon: that takes the place of the base timestamp, from which they count.

use std::ops::Range;

use super::codec::compress;
use super::header::seal;
use super::varint::{put, size, take, take_i32};
use super::{Batch, BatchHeader, Codec, Fault, Record, Records, HEADER_BYTES};

/// Attribute bit 6: the base timestamp is the delete horizon.
const DELETE_HORIZON: i16 = 0x40;
/// Attribute bits 0 to 2.
const CODEC: i16 = 0x07;
const NO_TIMESTAMP: i64 = -1;

/// Which records of a batch stay.
#[derive(Debug)]
pub struct Filter<'a> {
    header: BatchHeader,
    codec: Codec,
    body: &'a [u8],
    kept: Vec<Range<usize>>,
    max_timestamp: i64,
    /// A record that stays has no value.
    pub has_tombstone: bool,
}

impl<'a> Filter<'a> {
    /// Asks `keep` of every record of `body`, which is the decompressed body of `header`'s batch.
    pub fn new(
        header: &BatchHeader,
        body: &'a [u8],
        mut keep: impl FnMut(&Record) -> bool,
    ) -> Result<Self, Fault> {
        let mut filter = Self {
            header: *header,
            codec: header.codec()?,
            body,
            kept: Vec::new(),
            max_timestamp: NO_TIMESTAMP,
            has_tombstone: false,
        };
        let mut records = Records::new(header, body);
        loop {
            let start = body.len() - records.bytes_left();
            let Some(record) = records.next() else {
                return Ok(filter);
            };
            let record = record?;
            if !keep(&record) {
                continue;
            }
            filter.kept.push(start..body.len() - records.bytes_left());
            filter.max_timestamp = filter.max_timestamp.max(record.timestamp);
            filter.has_tombstone |= record.value.is_none();
        }
    }

    /// Records that stay.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Records that go.
    pub fn removed(&self) -> usize {
        self.header.count as usize - self.kept.len()
    }

    /// Appends the batch of what stays, which gets the delete horizon `horizon_ms` where it has
    /// none.
    pub fn build(&self, horizon_ms: Option<i64>, out: &mut Vec<u8>) {
        let mut header = self.header;
        let mut body = Vec::with_capacity(self.body.len());
        let records = self.kept.iter().map(|range| &self.body[range.clone()]);
        if let Some(horizon_ms) = horizon_ms {
            let sooner = self.header.base_timestamp.wrapping_sub(horizon_ms);
            records.for_each(|record| shift(record, sooner, &mut body));
            header.attributes |= DELETE_HORIZON;
            header.base_timestamp = horizon_ms;
        } else {
            records.for_each(|record| body.extend_from_slice(record));
        }
        if !header.is_log_append_time() {
            header.max_timestamp = self.max_timestamp;
        }
        header.count = self.kept.len() as i32;
        write(header, self.codec, &body, out);
    }
}

/// Appends the batch without records, for what its header tells of its producer. It is not the
/// place of a delete horizon, and nothing in it is compressed, as Kafka leaves it.
pub fn hollow(batch: &Batch, out: &mut Vec<u8>) {
    let mut header = batch.header;
    header.attributes &= !(DELETE_HORIZON | CODEC);
    header.base_timestamp = NO_TIMESTAMP;
    header.count = 0;
    write(header, Codec::None, &[], out);
}

/// Has a stored batch stand for all offsets before `next_offset`, and not just for those of its
/// records; false where it cannot: of a producer's batch the offsets are also its sequences, and
/// control batches tell of themselves.
///
/// # Panics
/// Where `batch` is not a whole batch: the caller has parsed it.
pub fn stretch(batch: &mut [u8], next_offset: i64) -> bool {
    let mut header = BatchHeader::parse(batch).expect("a whole batch");
    let Ok(delta) = i32::try_from(next_offset - 1 - header.base_offset) else {
        return false;
    };
    if header.has_producer() || header.is_control() {
        return false;
    }
    header.last_offset_delta = delta;
    header.write(batch);
    seal(batch);
    true
}

fn write(mut header: BatchHeader, codec: Codec, body: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + HEADER_BYTES, 0);
    compress(codec, body, out);
    header.set_batch_bytes(out.len() - start);
    header.write(&mut out[start..]);
    seal(&mut out[start..]);
}

/// Appends a sound record whose timestamp counts from a base that is `sooner` milliseconds before.
fn shift(record: &[u8], sooner: i64, out: &mut Vec<u8>) {
    const SOUND: &str = "the record was read before";
    let mut rest = record;
    take_i32(&mut rest).expect(SOUND);
    let (attributes, mut rest) = rest.split_first().expect(SOUND);
    let delta = take(&mut rest).expect(SOUND).wrapping_add(sooner);
    put(out, (1 + size(delta) + rest.len()) as i64);
    out.push(*attributes);
    put(out, delta);
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{mark, BatchBuilder, Batches};

    type Row = (i64, i64, Vec<u8>, Option<Vec<u8>>);

    fn sample(codec: Codec) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for at in 0..20_u8 {
            let value = [at; 30];
            let value = (at % 5 != 0).then_some(&value[..]);
            builder.push(
                1000 + i64::from(at),
                Some(&[at % 7]),
                value,
                [(&b"h"[..], None)],
            );
        }
        let mut batch = builder.finish();
        crate::record::set_base_offset(&mut batch, 70);
        let mut out = Vec::new();
        let batch = Batches::new(&batch).next().unwrap().unwrap();
        let mut header = batch.header;
        header.attributes |= codec as i16;
        (
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        ) = (5, 1, 9);
        write(header, codec, batch.body(), &mut out);
        out
    }

    fn rows(batch: &[u8]) -> Vec<Row> {
        let batch = Batches::new(batch).next().unwrap().unwrap();
        batch.check_crc().unwrap();
        let mut scratch = Vec::new();
        let body = batch.open(&mut scratch, 1 << 20).unwrap();
        let row = |record: Record| {
            assert_eq!(record.headers.len(), 1);
            let key = record.key.unwrap().to_vec();
            (
                record.offset,
                record.timestamp,
                key,
                record.value.map(<[u8]>::to_vec),
            )
        };
        Records::new(&batch.header, body)
            .map(|record| row(record.unwrap()))
            .collect()
    }

    #[test]
    fn what_stays_is_as_it_was_in_every_codec_and_with_a_horizon() {
        for codec in Codec::ALL {
            let whole = sample(codec);
            let wanted: Vec<Row> = rows(&whole)
                .into_iter()
                .filter(|row| row.2[0] == 3)
                .collect();
            let batch = Batches::new(&whole).next().unwrap().unwrap();
            let mut scratch = Vec::new();
            let body = batch.open(&mut scratch, 1 << 20).unwrap();
            let filter = Filter::new(&batch.header, body, |record| record.key == Some(&[3]));
            let filter = filter.unwrap();
            assert_eq!((filter.kept(), filter.removed()), (3, 17));
            assert!(filter.has_tombstone);
            for horizon in [None, Some(5_000_000_000_000), Some(-7)] {
                let mut out = Vec::new();
                filter.build(horizon, &mut out);
                assert_eq!(rows(&out), wanted, "{codec} {horizon:?}");
                let header = BatchHeader::parse(&out).unwrap();
                assert_eq!(header.batch_bytes(), out.len());
                assert_eq!(header.has_delete_horizon(), horizon.is_some());
                assert_eq!(header.base_timestamp, horizon.unwrap_or(1000));
                assert_eq!((header.count, header.max_timestamp), (3, 1017));
                assert_eq!((header.base_offset, header.last_offset_delta), (70, 19));
                assert_eq!((header.producer_id, header.base_sequence), (5, 9));
                assert_eq!(header.codec(), Ok(codec));
            }
        }
    }

    #[test]
    fn a_hollow_batch_tells_of_its_producer() {
        let whole = sample(Codec::Lz4);
        let batch = Batches::new(&whole).next().unwrap().unwrap();
        let mut out = Vec::new();
        hollow(&batch, &mut out);
        let found = Batches::new(&out).next().unwrap().unwrap();
        found.check_crc().unwrap();
        assert_eq!(rows(&out), []);
        assert_eq!(found.header.last_offset(), batch.header.last_offset());
        assert_eq!(found.header.max_timestamp, batch.header.max_timestamp);
        assert_eq!(found.header.base_sequence, 9);
        assert_eq!(out.len(), HEADER_BYTES);
    }

    #[test]
    fn a_batch_stands_for_more_offsets_than_it_has_records_but_no_producers_does() {
        let mut builder = BatchBuilder::new();
        builder.push(1, Some(b"k"), None, []);
        let mut batch = builder.finish();
        let records = batch[HEADER_BYTES..].to_vec();
        assert!(stretch(&mut batch, 500));
        let found = Batches::new(&batch).next().unwrap().unwrap();
        found.check_crc().unwrap();
        assert_eq!((found.header.next_offset(), found.header.count), (500, 1));
        assert_eq!(batch[HEADER_BYTES..], records);
        for mut other in [sample(Codec::None), mark(b"m")] {
            let before = other.clone();
            assert!(!stretch(&mut other, 500));
            assert_eq!(other, before);
        }
        let whole = batch.clone();
        assert!(!stretch(&mut batch, 3 << 31), "no delta is so large");
        assert_eq!(batch, whole);
    }

    #[test]
    fn a_malformed_body_is_a_fault() {
        let whole = sample(Codec::None);
        let header = BatchHeader::parse(&whole).unwrap();
        let body = &whole[HEADER_BYTES..whole.len() - 1];
        assert!(Filter::new(&header, body, |_| true).is_err());
    }
}
