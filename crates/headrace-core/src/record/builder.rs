//! Building a batch: one growing buffer, nothing allocated per record.

use super::codec::compress;
use super::header::{seal, BatchHeader, CONTROL, FOLLOWS, GOES_ON, PUBLISHED};
use super::{varint, Codec, HEADER_BYTES};

/// Bytes kept free for a record's length: two suit all lengths from 64 to 8,191, the common
/// case; another length moves the record once.
const LENGTH_GAP: usize = 2;
/// Bytes kept free for the header count: one suits up to 63 headers.
const COUNT_GAP: usize = 1;

/// What a record takes more at most where it is not the first of its batch: longer deltas of
/// timestamp and offset, and so a longer length.
pub const LATER_RECORD_BYTES: usize = 9 + 4 + 1;

/// Bytes of a record that is the first of its batch.
pub fn record_bytes<'a>(
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
) -> usize {
    let field = |bytes: Option<&[u8]>| {
        bytes.map_or(1, |bytes| varint::size(bytes.len() as i64) + bytes.len())
    };
    let (mut count, mut bytes) = (0, 3 + field(key) + field(value)); // attributes and two deltas
    for (name, value) in headers {
        count += 1;
        bytes += field(Some(name)) + field(value);
    }
    bytes += varint::size(count);
    varint::size(bytes as i64) + bytes
}

/// Who wrote a batch, so that its repeats can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    /// As the broker gave it, or -1 for a producer whose repeats are not told.
    pub id: i64,
    /// Counts up with each producer of this id; -1 without one.
    pub epoch: i16,
    /// Of the first record; -1 without an id.
    pub sequence: i32,
}

impl Producer {
    /// Its repeats are not told.
    pub const NONE: Self = Self {
        id: -1,
        epoch: -1,
        sequence: -1,
    };
}

/// Collects records and finishes them as one batch with base offset 0.
#[derive(Clone, Debug, Default)]
pub struct BatchBuilder {
    /// The header's place, then the records; empty before the first record.
    buffer: Vec<u8>,
    base_timestamp: i64,
    max_timestamp: i64,
    count: i32,
    /// Size of the last batch: the next one begins with that room.
    last_bytes: usize,
}

impl BatchBuilder {
    /// No records yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a record. `timestamp` is in milliseconds since 1970; `None` is a null.
    pub fn push<'a>(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) {
        if self.count == 0 {
            self.begin(timestamp);
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let out = &mut self.buffer;
        out.reserve(64 + key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len));

        let record = out.len();
        out.extend_from_slice(&[0; LENGTH_GAP + 1]); // and the attributes, of which none exist
        varint::put(out, timestamp.wrapping_sub(self.base_timestamp));
        varint::put(out, i64::from(self.count));
        put_bytes(out, key);
        put_bytes(out, value);

        let headers_at = out.len();
        out.extend_from_slice(&[0; COUNT_GAP]);
        let mut headers_count = 0;
        for (name, value) in headers {
            put_bytes(out, Some(name));
            put_bytes(out, value);
            headers_count += 1;
        }
        fill_gap(out, headers_at, COUNT_GAP, headers_count);
        let length = out.len() - record - LENGTH_GAP;
        fill_gap(out, record, LENGTH_GAP, length as i64);
        self.count += 1;
    }

    /// Records so far.
    pub fn count(&self) -> u32 {
        self.count as u32
    }

    /// True before the first record.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of the batch so far.
    pub fn bytes(&self) -> usize {
        self.buffer.len()
    }

    /// The batch, not compressed; the builder begins anew.
    ///
    /// # Panics
    /// Without a record, or where the batch is longer than its length field can say (2 GiB):
    /// who builds bounds what is pushed.
    pub fn finish(&mut self) -> Vec<u8> {
        self.finish_with(Codec::None)
    }

    /// The batch, compressed by `codec`; the builder begins anew.
    ///
    /// # Panics
    /// As [`BatchBuilder::finish`].
    pub fn finish_with(&mut self, codec: Codec) -> Vec<u8> {
        self.close(codec, 0, Producer::NONE)
    }

    /// As [`BatchBuilder::finish_with`], of a producer.
    ///
    /// # Panics
    /// As [`BatchBuilder::finish`].
    pub fn finish_for(&mut self, codec: Codec, producer: Producer) -> Vec<u8> {
        self.close(codec, 0, producer)
    }

    /// As [`BatchBuilder::finish_with`], of records that were published to this broker
    /// ([`BatchHeader::is_published`]).
    ///
    /// # Panics
    /// As [`BatchBuilder::finish`].
    pub fn finish_published(&mut self, codec: Codec) -> Vec<u8> {
        self.close(codec, PUBLISHED, Producer::NONE)
    }

    /// As [`BatchBuilder::finish`], of a batch that is one of several which count together: it
    /// follows another, goes on in another, or both.
    ///
    /// # Panics
    /// As [`BatchBuilder::finish`].
    pub fn finish_part(&mut self, follows: bool, goes_on: bool) -> Vec<u8> {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags = flag(follows, FOLLOWS) | flag(goes_on, GOES_ON);
        self.close(Codec::None, flags, Producer::NONE)
    }

    fn close(&mut self, codec: Codec, flags: i16, producer: Producer) -> Vec<u8> {
        assert!(self.count > 0, "a batch has a record");
        let mut batch = std::mem::take(&mut self.buffer);
        self.last_bytes = batch.len();
        if codec != Codec::None {
            let plain = std::mem::replace(&mut batch, vec![0; HEADER_BYTES]);
            compress(codec, &plain[HEADER_BYTES..], &mut batch);
        }
        let header = BatchHeader {
            base_offset: 0,
            length: i32::try_from(batch.len() - 12).expect("a batch is shorter than 2 GiB"),
            leader_epoch: -1,
            crc: 0,
            attributes: codec as i16 | flags,
            last_offset_delta: self.count - 1,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            base_sequence: producer.sequence,
            count: self.count,
        };
        header.write(&mut batch);
        seal(&mut batch);
        self.count = 0;
        batch
    }

    fn begin(&mut self, timestamp: i64) {
        self.buffer.reserve(self.last_bytes.max(HEADER_BYTES));
        self.buffer.resize(HEADER_BYTES, 0);
        self.base_timestamp = timestamp;
        self.max_timestamp = timestamp;
    }
}

/// A control batch without records, which takes no offset ([`BatchHeader::is_mark`]); `body` follows
/// the header, where record batches have their records.
pub fn mark(body: &[u8]) -> Vec<u8> {
    let mut batch = empty(0, -1, 0, CONTROL, HEADER_BYTES + body.len());
    batch.extend_from_slice(body);
    seal(&mut batch);
    batch
}

/// The header of a batch of `bytes` without records, to be sealed.
fn empty(
    base_offset: i64,
    last_offset_delta: i32,
    leader_epoch: i32,
    attributes: i16,
    bytes: usize,
) -> Vec<u8> {
    let mut batch = vec![0; HEADER_BYTES];
    let header = BatchHeader {
        base_offset,
        length: (bytes - 12) as i32,
        leader_epoch,
        crc: 0,
        attributes,
        last_offset_delta,
        base_timestamp: -1,
        max_timestamp: -1,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        count: 0,
    };
    header.write(&mut batch);
    batch
}

/// Batches without records that stand for the offsets from `base_offset` to before `next_offset`,
/// as compaction leaves them where batches have lost all of their records. None where these are none.
pub fn placeholder(base_offset: i64, next_offset: i64, leader_epoch: i32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut from = base_offset;
    while from < next_offset {
        let offsets = (next_offset - from).min(i64::from(i32::MAX));
        let mut batch = empty(from, (offsets - 1) as i32, leader_epoch, 0, HEADER_BYTES);
        seal(&mut batch);
        out.extend_from_slice(&batch);
        from += offsets;
    }
    out
}

#[inline]
fn put_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            varint::put(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
        None => varint::put(out, -1),
    }
}

/// Writes `value` into the `gap` bytes kept free at `at`, moving what follows where it needs
/// another number of bytes.
#[inline]
fn fill_gap(out: &mut Vec<u8>, at: usize, gap: usize, value: i64) {
    let size = varint::size(value);
    if size != gap {
        move_tail(out, at + gap, at + size);
    }
    varint::write(&mut out[at..at + size], value);
}

#[cold]
fn move_tail(out: &mut Vec<u8>, from: usize, to: usize) {
    let end = out.len();
    if to > from {
        out.resize(end + (to - from), 0);
        out.copy_within(from..end, to);
    } else {
        out.copy_within(from..end, to);
        out.truncate(end - (from - to));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Batches, Record, Records};
    use super::*;

    /// The only batch of `bytes`, checked.
    fn records(bytes: &[u8]) -> Vec<Record<'_>> {
        let batch = Batches::new(bytes).next().unwrap().unwrap();
        assert_eq!(batch.bytes.len(), bytes.len());
        batch.check_crc().unwrap();
        Records::new(&batch.header, batch.body())
            .map(Result::unwrap)
            .collect()
    }

    #[test]
    fn one_record_byte_for_byte() {
        let mut builder = BatchBuilder::new();
        builder.push(
            1_700_000_000_000,
            Some(b"k"),
            Some(b"v"),
            [(&b"h"[..], Some(&b"x"[..]))],
        );
        #[rustfmt::skip]
        let expected = [
            0, 0, 0, 0, 0, 0, 0, 0,                     // base offset
            0, 0, 0, 62,                                // length
            0xFF, 0xFF, 0xFF, 0xFF,                     // leader epoch
            2,                                          // magic
        ];
        let batch = builder.finish();
        assert_eq!(batch[..17], expected);
        #[rustfmt::skip]
        let expected = [
            0, 0,                                       // attributes
            0, 0, 0, 0,                                 // last offset delta
            0, 0, 0x01, 0x8B, 0xCF, 0xE5, 0x68, 0x00,   // base timestamp
            0, 0, 0x01, 0x8B, 0xCF, 0xE5, 0x68, 0x00,   // max timestamp
            0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, // producer id
            0xFF, 0xFF,                                 // producer epoch
            0xFF, 0xFF, 0xFF, 0xFF,                     // base sequence
            0, 0, 0, 1,                                 // count
            24,                                         // length 12
            0, 0, 0,                                    // attributes, timestamp, offset
            2, b'k', 2, b'v',
            2, 2, b'h', 2, b'x',
        ];
        assert_eq!(batch[21..], expected);
        assert_eq!(batch[17..21], crc32c::crc32c(&batch[21..]).to_be_bytes());
    }

    #[test]
    fn every_length_and_header_count_comes_back() {
        let long = vec![7; 20_000];
        for size in [
            0, 1, 50, 51, 52, 60, 100, 8_170, 8_185, 8_191, 8_200, 20_000,
        ] {
            for headers in [0, 1, 63, 64, 200] {
                let mut builder = BatchBuilder::new();
                let fields = vec![(&b"name"[..], None); headers];
                for timestamp in [5, 3, i64::MAX, i64::MIN] {
                    builder.push(timestamp, None, Some(&long[..size]), fields.iter().copied());
                }
                let batch = builder.finish();
                let records = records(&batch);
                assert_eq!(records.len(), 4);
                for (index, (record, timestamp)) in
                    records.iter().zip([5, 3, i64::MAX, i64::MIN]).enumerate()
                {
                    assert_eq!(record.offset, index as i64);
                    assert_eq!(record.timestamp, timestamp);
                    assert_eq!(record.key, None);
                    assert_eq!(record.value, Some(&long[..size]));
                    assert_eq!(record.headers.clone().collect::<Vec<_>>(), fields);
                }
            }
        }
    }

    #[test]
    fn a_batch_says_who_wrote_it() {
        let producer = Producer {
            id: 7,
            epoch: 3,
            sequence: 41,
        };
        let mut builder = BatchBuilder::new();
        builder.push(9, None, Some(b"a"), []);
        let bytes = builder.finish_for(Codec::Lz4, producer);
        let batch = Batches::new(&bytes).next().unwrap().unwrap();
        batch.check_crc().unwrap();
        let header = &batch.header;
        assert_eq!(
            (
                header.producer_id,
                header.producer_epoch,
                header.base_sequence
            ),
            (7, 3, 41)
        );
        assert_eq!(header.codec().unwrap(), Codec::Lz4);
    }

    #[test]
    fn a_builder_begins_anew_after_each_batch() {
        let mut builder = BatchBuilder::new();
        builder.push(9, Some(b"a"), None, []);
        let first = builder.finish();
        assert!(builder.is_empty());
        builder.push(9, Some(b"a"), None, []);
        assert_eq!(builder.finish(), first);
    }
}
