//! The beginning of a run of batches, decompressed, in a piece that does not take long.

use super::header::seal;
use super::{Batch, BatchHeader, Batches, Codec, Fault, Records, HEADER_BYTES};

/// Headers of a record that is unpacked: an empty one takes two bytes, so a small batch may
/// decompress to millions, and each is looked at by whoever gets the record.
pub const UNPACKED_HEADERS_MAX: usize = 65_535;

/// How much to unpack.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// First offset.
    pub offset: i64,
    /// Of all records, but for the first.
    pub bytes_max: usize,
    /// Of the first batch, compressed or not.
    pub batch_bytes_max: usize,
    /// Of a record, which is left out if it has more, or more than [`UNPACKED_HEADERS_MAX`].
    pub record_bytes_max: usize,
}

/// What was unpacked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Batches that are not compressed, but for those that are damaged.
    pub batches: Vec<u8>,
    /// Offsets of records that are larger than they may be.
    pub left_out: Vec<i64>,
}

/// What batches hold from an offset on, decompressed: some `bytes_max` bytes, and a record at least.
/// A batch that is cut short there says so in its header.
///
/// None where the first batch is larger than it may be. What is damaged is left as it is, as are
/// batches that are small and not compressed.
pub fn unpack(data: &[u8], share: &Share) -> Option<Unpacked> {
    let (mut unpacked, mut scratch) = (Unpacked::default(), Vec::new());
    for batch in Batches::new(data).map_while(Result::ok) {
        let held = unpacked.batches.len();
        let room = share.bytes_max.saturating_sub(held);
        if !batch.is_compressed() && batch.bytes.len() <= room {
            unpacked.batches.extend_from_slice(batch.bytes);
            continue;
        }
        let opened_max = if held == 0 {
            share.batch_bytes_max
        } else {
            room
        };
        match open(&batch, &mut scratch, opened_max)
            .and_then(|records| unpacked.put(&batch, records, share, room))
        {
            Ok(true) => {}
            Err(Fault::TooLarge { .. }) if held == 0 => return None,
            Ok(false) | Err(Fault::TooLarge { .. }) => break,
            Err(_) => {
                unpacked.batches.truncate(held);
                unpacked.batches.extend_from_slice(batch.bytes);
            }
        }
    }
    Some(unpacked)
}

/// The records of a batch that is whole.
fn open<'s>(
    batch: &Batch<'s>,
    scratch: &'s mut Vec<u8>,
    bytes_max: usize,
) -> Result<&'s [u8], Fault> {
    if batch.bytes.len() > bytes_max && !batch.is_compressed() {
        return Err(Fault::TooLarge {
            codec: Codec::None,
            limit: bytes_max,
        });
    }
    // A new checksum would vouch for what the old one does not.
    let records = batch
        .check_crc()
        .and_then(|()| batch.open(scratch, bytes_max));
    records.map_err(|error| error.fault)
}

impl Unpacked {
    /// Appends a batch of those records that are wanted and fit, one at least; whether that is all.
    fn put(
        &mut self,
        batch: &Batch<'_>,
        records: &[u8],
        share: &Share,
        room: usize,
    ) -> Result<bool, Fault> {
        let out = &mut self.batches;
        let start = out.len();
        out.resize(start + HEADER_BYTES, 0);
        let (mut end, mut count, mut left_out) = (0, 0, Vec::new());
        let mut last_offset = batch.header.last_offset();
        let mut before = batch.header.base_offset;
        let mut walk = Records::new(&batch.header, records);
        let mut is_whole = true;
        while let Some(record) = walk.next() {
            let record = record?;
            let begin = end;
            end = records.len() - walk.bytes_left();
            if record.offset < share.offset {
                continue;
            }
            if count > 0 && out.len() - start + (end - begin) > room {
                (is_whole, last_offset) = (false, before);
                break;
            }
            before = record.offset;
            if end - begin > share.record_bytes_max || record.headers.len() > UNPACKED_HEADERS_MAX {
                left_out.push(record.offset);
                continue;
            }
            out.extend_from_slice(&records[begin..end]);
            count += 1;
        }
        let batch_bytes = out.len() - start;
        let header = BatchHeader {
            length: batch.header.length + (batch_bytes as i32 - batch.bytes.len() as i32),
            attributes: batch.header.attributes & !0x07,
            last_offset_delta: (last_offset - batch.header.base_offset) as i32,
            count,
            ..batch.header
        };
        header.write(&mut out[start..]);
        seal(&mut out[start..]);
        self.left_out.extend(left_out);
        Ok(is_whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{recode, set_base_offset, BatchBuilder};

    fn batch(base: i64, values: &[&[u8]], codec: Codec) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for value in values {
            builder.push(7, Some(b"k"), Some(value), []);
        }
        let mut batch = recode(&builder.finish(), codec, usize::MAX).unwrap();
        set_base_offset(&mut batch, base);
        batch
    }

    fn share(offset: i64, bytes_max: usize, batch_bytes_max: usize) -> Share {
        Share {
            offset,
            bytes_max,
            batch_bytes_max,
            record_bytes_max: usize::MAX,
        }
    }

    /// Offsets and values of what is there, and the offset behind it.
    fn read(data: &[u8]) -> (Vec<(i64, Vec<u8>)>, i64) {
        let (mut found, mut next) = (Vec::new(), 0);
        for batch in Batches::new(data) {
            let batch = batch.unwrap();
            batch.check_crc().unwrap();
            assert!(!batch.is_compressed());
            next = batch.header.next_offset();
            for record in Records::new(&batch.header, batch.body()) {
                let record = record.unwrap();
                assert_eq!((record.timestamp, record.key), (7, Some(&b"k"[..])));
                found.push((record.offset, record.value.unwrap().to_vec()));
            }
        }
        (found, next)
    }

    #[test]
    fn piece_by_piece_all_records_of_every_codec_come_once_in_their_order() {
        let values: [&[u8]; 5] = [b"a", &[7; 300], b"", &[9; 40], b"e"];
        for codec in Codec::ALL {
            let mut data = batch(5, &values, codec);
            data.extend(batch(10, &values, Codec::None));
            data.extend(batch(15, &values, codec));
            let all: Vec<_> = (5..20)
                .map(|offset| (offset, values[(offset as usize - 5) % 5].to_vec()))
                .collect();
            for bytes_max in [1, 80, 200, 400, 1 << 20] {
                let (mut came, mut next) = (Vec::new(), 6);
                while next < 20 {
                    let rest = Batches::new(&data)
                        .map(Result::unwrap)
                        .find(|batch| batch.header.next_offset() > next)
                        .unwrap();
                    let at = rest.bytes.as_ptr() as usize - data.as_ptr() as usize;
                    let piece = unpack(&data[at..], &share(next, bytes_max, 1 << 20)).unwrap();
                    assert!(piece.left_out.is_empty());
                    let piece = piece.batches;
                    assert!(
                        piece.len() <= bytes_max.max(HEADER_BYTES + 310),
                        "{bytes_max}"
                    );
                    let (found, behind) = read(&piece);
                    assert!(behind > next);
                    came.extend(found.into_iter().filter(|(offset, _)| *offset >= next));
                    next = behind;
                }
                assert_eq!(came, all[1..], "{codec} {bytes_max}");
            }
        }
    }

    #[test]
    fn what_is_too_large_is_told_and_what_is_damaged_is_left() {
        let large = batch(0, &[&vec![0; 100_000]], Codec::Zstd);
        assert!(large.len() < 1_000);
        let small = share(0, 1_000, 1_000);
        assert_eq!(unpack(&large, &small), None);
        assert_eq!(unpack(&batch(0, &[&[0; 2_000]], Codec::None), &small), None);
        let all = unpack(&large, &share(0, 1_000, 200_000)).unwrap();
        assert!(all.batches.len() > 100_000);
        let mut behind = batch(0, &[b"a"], Codec::Zstd);
        behind.extend(&large);
        assert_eq!(read(&unpack(&behind, &small).unwrap().batches).0.len(), 1);
        let mut damaged = batch(0, &[b"a", b"b"], Codec::Lz4);
        *damaged.last_mut().unwrap() ^= 1;
        assert_eq!(unpack(&damaged, &small).unwrap().batches, damaged);
        assert_eq!(
            unpack(&large[..large.len() - 1], &small).unwrap(),
            Unpacked::default()
        );
    }

    #[test]
    fn records_that_are_too_large_are_left_out_and_told() {
        let headers = vec![(&b""[..], Some(&b""[..])); UNPACKED_HEADERS_MAX + 1];
        let mut builder = BatchBuilder::new();
        builder.push(7, Some(b"k"), Some(b"a"), []);
        builder.push(7, Some(b"k"), Some(&[1; 5_000]), []);
        builder.push(7, Some(b"k"), Some(b"b"), headers.iter().copied());
        builder.push(7, Some(b"k"), Some(b"c"), headers[..7].iter().copied());
        builder.push(7, Some(b"k"), Some(&[1; 5_000]), []);
        let batch = recode(&builder.finish(), Codec::Zstd, usize::MAX).unwrap();
        let share = Share {
            record_bytes_max: 4_000,
            ..share(0, 1 << 20, 1 << 20)
        };
        let unpacked = unpack(&batch, &share).unwrap();
        assert_eq!(unpacked.left_out, [1, 2, 4]);
        let (found, next) = read(&unpacked.batches);
        assert_eq!(found, [(0, b"a".to_vec()), (3, b"c".to_vec())]);
        assert_eq!(next, 5);
    }
}
