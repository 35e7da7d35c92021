//! Stored batches as frames, each behind its offset.

use std::fmt;

use super::layout::put;
use crate::record::{self, Batch, BatchHeader, Batches, Records, DECOMPRESSED_BYTES_MAX};

/// Why stored records cannot go out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// They are damaged.
    Record(record::Error),
    /// No frame holds the record at this offset: a header's name is too long.
    Unwritable(i64),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Record(error) => error.fmt(f),
            Self::Unwritable(offset) => write!(
                f,
                "the record at offset {offset} has a header with a name of more than 32,767 bytes, \
                 which no frame holds; read on behind it"
            ),
        }
    }
}

impl std::error::Error for Error {}

/// A batch whose records are going out.
#[derive(Debug)]
struct Opened {
    header: BatchHeader,
    /// Its records, where they were compressed; else they are in the data, up to `end`.
    body: Option<Vec<u8>>,
    end: usize,
    /// Bytes of records that have not gone.
    left: usize,
    /// Records that have.
    index: u32,
}

/// Whole batches on their way to one consumer, a piece at a time.
///
/// Each record is `offset i64` and its frame. Batches for brokers and places of records that
/// compaction took are passed over.
#[derive(Debug)]
pub struct Outflow<D> {
    data: D,
    at: usize,
    opened: Option<Opened>,
    next_offset: i64,
    frames: u64,
    /// Met behind records that have gone first.
    failed: Option<Error>,
}

impl<D: AsRef<[u8]>> Outflow<D> {
    /// What `data` has from offset `start` on; what it cuts off is left.
    pub fn new(data: D, start: i64) -> Self {
        Self {
            data,
            at: 0,
            opened: None,
            next_offset: start,
            frames: 0,
            failed: None,
        }
    }

    /// Offset behind all that has gone out, or that is nothing to go out.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// Frames that have gone out.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Bytes held.
    pub fn held_bytes(&self) -> usize {
        let body = self.opened.as_ref().and_then(|each| each.body.as_ref());
        self.data.as_ref().len() + body.map_or(0, Vec::len)
    }

    /// Whether going on means to decompress, which takes a while.
    pub fn is_slow(&self) -> bool {
        Batches::new(&self.data.as_ref()[self.at..])
            .map_while(Result::ok)
            .any(|batch| batch.is_compressed())
    }

    /// The next frames: some `bytes_max` bytes, at least one frame; empty once all have gone.
    pub fn write(&mut self, bytes_max: usize) -> Result<Vec<u8>, Error> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let mut out = Vec::new();
        while out.len() < bytes_max {
            let more = match self.opened.take() {
                Some(opened) => self.write_some(opened, &mut out, bytes_max),
                None => self.open(),
            };
            match more {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) if out.is_empty() => return Err(error),
                Err(error) => {
                    self.failed = Some(error);
                    break;
                }
            }
        }
        Ok(out)
    }

    /// Goes on to the next batch that has something; false where there is none.
    fn open(&mut self) -> Result<bool, Error> {
        let data = self.data.as_ref();
        let Some(Ok(batch)) = Batches::new(&data[self.at..]).next() else {
            return Ok(false); // cut off: the next read brings it
        };
        let start = self.at;
        self.at += batch.bytes.len();
        batch.check_crc().map_err(Error::Record)?;
        let header = batch.header;
        if header.is_control() || header.count <= 0 || header.last_offset() < self.next_offset {
            self.next_offset = self.next_offset.max(header.next_offset());
            return Ok(true);
        }
        let body = decompressed(&batch).map_err(Error::Record)?;
        let left = body.as_ref().map_or(batch.body().len(), Vec::len);
        self.opened = Some(Opened {
            header,
            body,
            end: start + batch.bytes.len(),
            left,
            index: 0,
        });
        Ok(true)
    }

    /// Records of the opened batch, as far as there is room.
    fn write_some(
        &mut self,
        mut opened: Opened,
        out: &mut Vec<u8>,
        bytes_max: usize,
    ) -> Result<bool, Error> {
        let plain = &self.data.as_ref()[..opened.end];
        let body = opened.body.as_deref().unwrap_or(plain);
        let rest = &body[body.len() - opened.left..];
        let mut records = Records::resume(&opened.header, rest, opened.index);
        while out.len() < bytes_max {
            let Some(record) = records.next() else {
                self.next_offset = self.next_offset.max(opened.header.next_offset());
                return Ok(true);
            };
            let record = record.map_err(|fault| {
                Error::Record(record::Error {
                    position: 0,
                    base_offset: opened.header.base_offset,
                    fault,
                })
            })?;
            opened.left = records.bytes_left();
            opened.index += 1;
            if record.offset < self.next_offset {
                continue;
            }
            let start = out.len();
            out.extend_from_slice(&record.offset.to_be_bytes());
            if put(
                out,
                record.timestamp,
                record.key,
                record.value,
                record.headers,
            )
            .is_err()
            {
                out.truncate(start);
                return Err(Error::Unwritable(record.offset));
            }
            self.next_offset = record.offset.saturating_add(1);
            self.frames += 1;
        }
        self.opened = Some(opened);
        Ok(true)
    }
}

fn decompressed(batch: &Batch) -> Result<Option<Vec<u8>>, record::Error> {
    if !batch.is_compressed() {
        return Ok(None);
    }
    let mut body = Vec::new();
    batch.open(&mut body, DECOMPRESSED_BYTES_MAX)?;
    Ok(Some(body))
}

#[cfg(test)]
mod tests {
    use super::super::layout::parse;
    use super::*;
    use crate::record::{mark, placeholder, set_base_offset, BatchBuilder, Codec};

    fn batch(base: i64, values: &[&[u8]], codec: Codec) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for (number, value) in values.iter().enumerate() {
            let headers = [(&b"n"[..], None), (&b"v"[..], Some(*value))];
            builder.push(10 + number as i64, Some(b"k"), Some(value), headers);
        }
        let mut batch = builder.finish_with(codec);
        set_base_offset(&mut batch, base);
        batch
    }

    /// Offsets and values of what went out.
    fn read(mut data: &[u8]) -> Vec<(i64, Vec<u8>)> {
        let mut read = Vec::new();
        while let Some((offset, rest)) = data.split_first_chunk() {
            let frame = parse(rest, 1 << 20).unwrap().unwrap();
            assert_eq!(frame.headers.len(), 2);
            read.push((i64::from_be_bytes(*offset), frame.value.unwrap().to_vec()));
            data = &rest[frame.bytes..];
        }
        read
    }

    fn all(outflow: &mut Outflow<Vec<u8>>, bytes_max: usize) -> Vec<(i64, Vec<u8>)> {
        let mut came = Vec::new();
        loop {
            let piece = outflow.write(bytes_max).unwrap();
            if piece.is_empty() {
                return came;
            }
            came.extend(read(&piece));
        }
    }

    #[test]
    fn records_of_every_codec_go_out_from_an_offset_in_pieces_of_any_size() {
        let values: [&[u8]; 4] = [b"a", b"bb", b"", b"dddd"];
        for codec in Codec::ALL {
            let mut data = batch(5, &values, codec);
            data.extend(batch(9, &values, codec));
            for start in [0, 5, 7, 9, 12] {
                for bytes_max in [1, 100, 1 << 20] {
                    let mut outflow = Outflow::new(data.clone(), start);
                    let came = all(&mut outflow, bytes_max);
                    let expected: Vec<_> = (5..13)
                        .map(|offset| (offset, values[(offset as usize - 5) % 4].to_vec()))
                        .filter(|(offset, _)| *offset >= start)
                        .collect();
                    assert_eq!(came, expected);
                    assert_eq!(outflow.next_offset(), 13);
                    assert_eq!(outflow.frames(), expected.len() as u64);
                }
            }
        }
    }

    #[test]
    fn gaps_and_what_is_for_brokers_are_passed_over() {
        let mut data = batch(0, &[b"a"], Codec::None);
        data.extend(placeholder(1, 40, 0));
        data.extend(mark(b"body"));
        data.extend(batch(40, &[b"b"], Codec::Zstd));
        data.extend(placeholder(41, 50, 0));
        let whole = data.len();
        data.extend(&batch(50, &[b"cut off"], Codec::None)[..70]);
        let mut outflow = Outflow::new(data, 0);
        assert!(outflow.is_slow());
        assert_eq!(
            all(&mut outflow, 1 << 20),
            [(0, b"a".to_vec()), (40, b"b".to_vec())]
        );
        assert_eq!(outflow.next_offset(), 50);
        assert!(whole > 0 && !outflow.is_slow());
    }

    #[test]
    fn what_is_wrong_is_told_behind_what_is_right() {
        let mut data = batch(0, &[b"a"], Codec::None);
        let mut damaged = batch(1, &[b"b"], Codec::None);
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        data.extend(damaged);
        let mut outflow = Outflow::new(data, 0);
        assert_eq!(read(&outflow.write(1 << 20).unwrap()).len(), 1);
        assert!(matches!(outflow.write(1 << 20), Err(Error::Record(_))));
        let name = vec![b'n'; 40_000];
        let mut builder = BatchBuilder::new();
        builder.push(1, None, Some(b"a"), [(&b"n"[..], None), (&b"v"[..], None)]);
        builder.push(1, None, None, [(&name[..], None)]);
        let mut outflow = Outflow::new(builder.finish(), 0);
        assert_eq!(read(&outflow.write(1 << 20).unwrap()).len(), 1);
        assert_eq!(outflow.write(1 << 20), Err(Error::Unwritable(1)));
    }
}
