//! Decoding a run of batches into Arrow buffers, without an object per record.
//!
//! Source: Arrow columnar format 1.0, "Variable-size Binary Layout" and "Validity bitmaps".

use super::{Batch, Batches, Error, Fault, Record, Records, DECOMPRESSED_BYTES_MAX};

/// Bytes of records that one call decodes, unless its first batch alone holds more.
///
/// Bounds what hostile batches, each within [`DECOMPRESSED_BYTES_MAX`], add up to; and keeps
/// every column within the int32 offsets of Arrow, for no batch reaches 2 GiB.
pub const COLUMN_BYTES_MAX: usize = 2 * DECOMPRESSED_BYTES_MAX;

/// Smallest record: length, attributes, timestamp, offset, key, value, header count.
const RECORD_BYTES_MIN: usize = 7;

/// A nullable column of byte strings, as Arrow lays it out (little-endian).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryColumn {
    /// One bit per row, least significant first, clear for a null; None without a null.
    pub validity: Option<Vec<u8>>,
    /// An i32 per row, and one more: where each row begins and the last one ends.
    pub offsets: Vec<u8>,
    /// The rows, one after the other.
    pub data: Vec<u8>,
}

/// Decoded records, column by column (little-endian).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Number of records.
    pub records: usize,
    /// Where to read on: no record below it is missing here, unless below the `start` asked for.
    pub next_offset: i64,
    /// Offsets, an i64 per record.
    pub offsets: Vec<u8>,
    /// Microseconds since 1970, an i64 per record.
    pub timestamps_us: Vec<u8>,
    /// Keys.
    pub keys: BinaryColumn,
    /// Values.
    pub values: BinaryColumn,
    /// An i32 per record, and one more: where each record's headers begin in the next two.
    pub header_lists: Vec<u8>,
    /// Header names, UTF-8; of a name that is not, each byte beyond ASCII is `?`.
    pub header_keys: BinaryColumn,
    /// Header values.
    pub header_values: BinaryColumn,
}

/// Decodes the records of `data` with offsets in `start..end`.
///
/// Decodes whole batches while they add up to at most `max_records` and [`COLUMN_BYTES_MAX`], and
/// at least one; a batch that `data` cuts off is left for the next call. Control batches give no
/// records but are passed over.
pub fn decode_columns(
    data: &[u8],
    start: i64,
    end: i64,
    max_records: usize,
) -> Result<Columns, Error> {
    let mut columns = Columns::new(start);
    let mut scratch = Vec::new();
    let mut decoded_bytes = 0;
    for batch in Batches::new(data) {
        let batch = match batch {
            Err(Error {
                fault: Fault::Truncated { .. },
                ..
            }) => break,
            batch => batch?,
        };
        let header = &batch.header;
        if header.base_offset >= end {
            // What lies between the last batch and this one was compacted away.
            columns.next_offset = end;
            break;
        }
        check(&batch)?;
        if header.is_control() || header.last_offset() < start {
            columns.next_offset = columns.next_offset.max(header.next_offset());
            continue;
        }
        let first = columns.records == 0;
        if !first && columns.records + header.count as usize > max_records {
            break;
        }
        let body = batch.open(&mut scratch, DECOMPRESSED_BYTES_MAX)?;
        if !first && decoded_bytes + body.len() > COLUMN_BYTES_MAX {
            break;
        }
        decoded_bytes += body.len();
        columns.reserve(body.len(), header.count as usize);
        columns
            .extend(&batch, body, start, end)
            .map_err(|fault| batch.wrong(fault))?;
        columns.next_offset = header.next_offset();
    }
    Ok(columns)
}

/// What any stored batch satisfies; compaction may have taken records, so there may be fewer than
/// the last offset delta says.
fn check(batch: &Batch) -> Result<(), Error> {
    batch.check_crc()?;
    let (count, last_offset_delta) = (batch.header.count, batch.header.last_offset_delta);
    if batch.header.is_mark() {
        return Ok(());
    }
    if count < 0 || last_offset_delta < 0 || count - 1 > last_offset_delta {
        return Err(batch.wrong(Fault::Count {
            count,
            last_offset_delta,
        }));
    }
    Ok(())
}

impl Columns {
    fn new(next_offset: i64) -> Self {
        Self {
            records: 0,
            next_offset,
            offsets: Vec::new(),
            timestamps_us: Vec::new(),
            keys: BinaryColumn::new(),
            values: BinaryColumn::new(),
            header_lists: vec![0; 4],
            header_keys: BinaryColumn::new(),
            header_values: BinaryColumn::new(),
        }
    }

    /// Makes room for `count` records, as far as `body_bytes` can hold that many.
    fn reserve(&mut self, body_bytes: usize, count: usize) {
        let count = count.min(body_bytes / RECORD_BYTES_MIN);
        self.offsets.reserve(8 * count);
        self.timestamps_us.reserve(8 * count);
        self.keys.offsets.reserve(4 * count);
        self.values.offsets.reserve(4 * count);
        self.header_lists.reserve(4 * count);
    }

    fn extend(&mut self, batch: &Batch, body: &[u8], start: i64, end: i64) -> Result<(), Fault> {
        let last_offset = batch.header.last_offset();
        let mut lowest = batch.header.base_offset;
        for (index, record) in Records::new(&batch.header, body).enumerate() {
            let record = record?;
            if record.offset < lowest || record.offset > last_offset {
                return Err(Fault::Record {
                    index: index as u32,
                    part: "offset",
                });
            }
            lowest = record.offset.saturating_add(1);
            if (start..end).contains(&record.offset) {
                self.push(record);
            }
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, record: Record<'_>) {
        self.offsets.extend_from_slice(&record.offset.to_le_bytes());
        let timestamp_us = record.timestamp.saturating_mul(1000);
        self.timestamps_us
            .extend_from_slice(&timestamp_us.to_le_bytes());
        self.keys.push(record.key);
        self.values.push(record.value);
        for (name, value) in record.headers {
            self.header_keys.push_text(name);
            self.header_values.push(value);
        }
        let headers = self.header_keys.rows() as u32;
        self.header_lists.extend_from_slice(&headers.to_le_bytes());
        self.records += 1;
    }
}

impl BinaryColumn {
    fn new() -> Self {
        Self {
            validity: None,
            offsets: vec![0; 4],
            data: Vec::new(),
        }
    }

    fn rows(&self) -> usize {
        self.offsets.len() / 4 - 1
    }

    #[inline]
    fn push(&mut self, row: Option<&[u8]>) {
        if self.validity.is_some() || row.is_none() {
            self.mark(row.is_some());
        }
        if let Some(bytes) = row {
            self.data.extend_from_slice(bytes);
        }
        let end = self.data.len() as u32;
        self.offsets.extend_from_slice(&end.to_le_bytes());
    }

    #[inline]
    fn push_text(&mut self, text: &[u8]) {
        let at = self.data.len();
        self.push(Some(text));
        if !text.is_ascii() && std::str::from_utf8(text).is_err() {
            let beyond = self.data[at..].iter_mut().filter(|byte| !byte.is_ascii());
            beyond.for_each(|byte| *byte = b'?');
        }
    }

    /// Sets the validity of the row about to be pushed; all before the first null are valid.
    #[cold]
    fn mark(&mut self, valid: bool) {
        let row = self.rows();
        let bits = self.validity.get_or_insert_with(|| {
            let mut bits = vec![0xFF; row / 8];
            bits.extend((row % 8 > 0).then_some((1 << (row % 8)) - 1));
            bits
        });
        if row % 8 == 0 {
            bits.push(0);
        }
        bits[row / 8] |= u8::from(valid) << (row % 8);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{set_base_offset, BatchBuilder, Codec};
    use super::*;

    type Headers = Vec<(&'static str, Option<&'static str>)>;
    type Row = (i64, i64, Option<String>, Option<String>, Headers);

    fn text(row: Option<&[u8]>) -> Option<String> {
        row.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
    }

    impl BinaryColumn {
        fn row(&self, row: usize) -> Option<&[u8]> {
            let at = |index| i32_at(&self.offsets, index) as usize;
            let valid = self
                .validity
                .as_ref()
                .is_none_or(|v| v[row / 8] >> (row % 8) & 1 == 1);
            valid.then(|| &self.data[at(row)..at(row + 1)])
        }
    }

    fn i32_at(bytes: &[u8], index: usize) -> i32 {
        i32::from_le_bytes(bytes[4 * index..4 * index + 4].try_into().unwrap())
    }

    fn i64_at(bytes: &[u8], index: usize) -> i64 {
        i64::from_le_bytes(bytes[8 * index..8 * index + 8].try_into().unwrap())
    }

    /// `count` records at `base`: offset n has key n (null where 3 divides it), a null value
    /// where 5 does, and n % 3 headers.
    fn batch(base: i64, count: i64, codec: Codec) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for n in base..base + count {
            let number = n.to_string();
            let headers = [(&b"one"[..], Some(&b"1"[..])), (b"two", None)];
            builder.push(
                1_000 + n,
                (n % 3 > 0).then_some(number.as_bytes()),
                (n % 5 > 0).then_some(number.as_bytes()),
                headers.into_iter().take((n % 3) as usize),
            );
        }
        let mut batch = builder.finish_with(codec);
        set_base_offset(&mut batch, base);
        batch
    }

    fn expected(offsets: std::ops::Range<i64>) -> Vec<Row> {
        let row = |n: i64| {
            let headers = vec![("one", Some("1")), ("two", None)];
            (
                n,
                (1_000 + n) * 1_000,
                (n % 3 > 0).then(|| n.to_string()),
                (n % 5 > 0).then(|| n.to_string()),
                headers.into_iter().take((n % 3) as usize).collect(),
            )
        };
        offsets.map(row).collect()
    }

    fn rows(columns: &Columns) -> Vec<Row> {
        let known = |text: String| {
            ["one", "two", "1"]
                .into_iter()
                .find(|k| *k == text)
                .unwrap()
        };
        let header = |index| {
            let name = known(text(columns.header_keys.row(index)).unwrap());
            (name, text(columns.header_values.row(index)).map(known))
        };
        let lists = |row| i32_at(&columns.header_lists, row) as usize;
        (0..columns.records)
            .map(|row| {
                (
                    i64_at(&columns.offsets, row),
                    i64_at(&columns.timestamps_us, row),
                    text(columns.keys.row(row)),
                    text(columns.values.row(row)),
                    (lists(row)..lists(row + 1)).map(header).collect(),
                )
            })
            .collect()
    }

    fn decode(data: &[u8], start: i64, end: i64, max_records: usize) -> (Vec<Row>, i64) {
        let columns = decode_columns(data, start, end, max_records).unwrap();
        (rows(&columns), columns.next_offset)
    }

    #[test]
    fn every_codec_and_range() {
        for codec in Codec::ALL {
            let data = [
                batch(10, 20, codec),
                batch(30, 1, codec),
                batch(31, 9, codec),
            ]
            .concat();
            for start in 10..41 {
                for end in start..42 {
                    let (rows, next) = decode(&data, start, end, 100);
                    assert_eq!(rows, expected(start..end.min(40)));
                    assert!(next >= end.min(40));
                }
            }
        }
    }

    #[test]
    fn whole_batches_up_to_the_record_limit_but_at_least_one() {
        let data = [batch(0, 5, Codec::None), batch(5, 5, Codec::None)].concat();
        assert_eq!(decode(&data, 0, 99, 1), (expected(0..5), 5));
        assert_eq!(decode(&data, 0, 99, 9), (expected(0..5), 5));
        assert_eq!(decode(&data, 0, 99, 10), (expected(0..10), 10));
        assert_eq!(decode(&data, 5, 99, 1), (expected(5..10), 10));
    }

    #[test]
    fn a_batch_that_is_cut_off_is_left() {
        let (first, second) = (batch(0, 5, Codec::None), batch(5, 5, Codec::None));
        for cut in 0..second.len() {
            let data = [&first[..], &second[..cut]].concat();
            assert_eq!(decode(&data, 0, 99, 100), (expected(0..5), 5));
        }
        for cut in 0..first.len() {
            assert_eq!(decode(&first[..cut], 3, 99, 100), (vec![], 3));
        }
    }

    #[test]
    fn a_gap_that_compaction_left_is_passed() {
        let data = [batch(0, 5, Codec::None), batch(50, 5, Codec::None)].concat();
        assert_eq!(decode(&data, 5, 20, 100), (vec![], 20));
        assert_eq!(decode(&data, 5, 60, 100), (expected(50..55), 55));
    }

    #[test]
    fn header_names_are_utf8_whatever_was_sent() {
        let mut builder = BatchBuilder::new();
        builder.push(
            0,
            None,
            None,
            [(&b"a\xFFb"[..], None), ("\u{e9}".as_bytes(), None)],
        );
        let columns = decode_columns(&builder.finish(), 0, 1, 1).unwrap();
        assert_eq!(columns.header_keys.data, "a?b\u{e9}".as_bytes());
    }
}
