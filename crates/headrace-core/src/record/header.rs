//! The 61 bytes before a batch's records, and the walk from batch to batch.

use std::fmt;

use super::codec::decompress;
use super::{Error, Fault, HEADER_BYTES};

/// Bytes before the part that the length field counts: base offset and length.
const PREFIX_BYTES: usize = 12;
const LEADER_EPOCH: usize = 12;
const MAGIC: usize = 16;
const CRC: usize = 17;
/// First byte that the CRC covers.
const ATTRIBUTES: usize = 21;
/// The batch is for brokers.
pub(super) const CONTROL: i16 = 0x20;
/// The records were published to this broker, over MQTT or HTTP. No version of the protocol has
/// given this bit a meaning: clients of Kafka read past it, and its door takes no batch with it.
pub(super) const PUBLISHED: i16 = 0x4000;
/// Another batch of this broker's own goes on with the batch, and must be there for it to count.
pub(super) const GOES_ON: i16 = 0x2000;
/// The batch goes on with the one before it.
pub(super) const FOLLOWS: i16 = 0x1000;
/// Codec, timestamp type, transactional, control, delete horizon (KIP-98, KIP-534).
const ATTRIBUTES_KNOWN: i16 = 0x7F;

/// Compression of the records of a batch (attribute bits 0 to 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// Not compressed.
    #[default]
    None = 0,
    /// RFC 1952.
    Gzip = 1,
    /// Snappy, in the xerial framing or raw.
    Snappy = 2,
    /// The LZ4 frame format.
    Lz4 = 3,
    /// RFC 8878.
    Zstd = 4,
}

impl Codec {
    /// Every codec, by number.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec of that number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The codec of that name, as the settings of Kafka spell it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }

    /// Its name, as the settings of Kafka spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The header of one batch, decoded. Field order is that of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the batch's first record.
    pub base_offset: i64,
    /// Bytes after the length field.
    pub length: i32,
    /// Epoch of the leader that appended the batch.
    pub leader_epoch: i32,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Codec and flags; see the methods.
    pub attributes: i16,
    /// Offset of the last record, less the base offset. Compaction may leave it above
    /// `count - 1`.
    pub last_offset_delta: i32,
    /// Milliseconds; timestamp of the first record, or the delete horizon.
    pub base_timestamp: i64,
    /// Milliseconds; the greatest timestamp in the batch, or the time of the append.
    pub max_timestamp: i64,
    /// Producer id, or -1.
    pub producer_id: i64,
    /// Producer epoch, or -1.
    pub producer_epoch: i16,
    /// Sequence of the first record, or -1.
    pub base_sequence: i32,
    /// Number of records.
    pub count: i32,
}

impl BatchHeader {
    /// Decodes the header at the start of `data`; the records need not be there yet.
    pub fn parse(data: &[u8]) -> Result<Self, Error> {
        let base_offset = data
            .first_chunk()
            .map_or(0, |bytes| i64::from_be_bytes(*bytes));
        let wrong = |fault| Error {
            position: 0,
            base_offset,
            fault,
        };
        let bytes: &[u8; HEADER_BYTES] = data.first_chunk().ok_or_else(|| {
            wrong(Fault::Truncated {
                needed: HEADER_BYTES,
                available: data.len(),
            })
        })?;
        let header = Self {
            base_offset,
            length: i32_at(bytes, 8),
            leader_epoch: i32_at(bytes, LEADER_EPOCH),
            crc: i32_at(bytes, CRC) as u32,
            attributes: i16_at(bytes, ATTRIBUTES),
            last_offset_delta: i32_at(bytes, 23),
            base_timestamp: i64_at(bytes, 27),
            max_timestamp: i64_at(bytes, 35),
            producer_id: i64_at(bytes, 43),
            producer_epoch: i16_at(bytes, 51),
            base_sequence: i32_at(bytes, 53),
            count: i32_at(bytes, 57),
        };
        // The magic byte tells how to read all others, the length included.
        if bytes[MAGIC] != 2 {
            return Err(wrong(Fault::Magic(bytes[MAGIC] as i8)));
        }
        if header.length < (HEADER_BYTES - PREFIX_BYTES) as i32 {
            return Err(wrong(Fault::Length(header.length)));
        }
        Ok(header)
    }

    /// Bytes of the whole batch, header and records.
    pub fn batch_bytes(&self) -> usize {
        PREFIX_BYTES + self.length as usize
    }

    /// The whole batch takes so many bytes, header and records.
    pub(super) fn set_batch_bytes(&mut self, bytes: usize) {
        self.length = (bytes - PREFIX_BYTES) as i32;
    }

    /// Offset of the last record.
    pub fn last_offset(&self) -> i64 {
        self.base_offset
            .wrapping_add(i64::from(self.last_offset_delta))
    }

    /// Offset after the batch.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().wrapping_add(1)
    }

    /// The codec of the records.
    pub fn codec(&self) -> Result<Codec, Fault> {
        let number = (self.attributes & 0x07) as u8;
        Codec::from_number(number).ok_or(Fault::Codec(number))
    }

    /// The broker's append time replaces the timestamps of the records (bit 3).
    pub fn is_log_append_time(&self) -> bool {
        self.attributes & 0x08 != 0
    }

    /// The batch belongs to a transaction (bit 4).
    pub fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }

    /// The records are markers for brokers, not data (bit 5).
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL != 0
    }

    /// The records were published to this broker, not produced: what their headers say of their
    /// publisher is what that said itself.
    pub fn is_published(&self) -> bool {
        self.attributes & PUBLISHED != 0
    }

    /// The next batch belongs to it: the log has all of them or none ([`BatchBuilder::finish_part`]).
    ///
    /// [`BatchBuilder::finish_part`]: super::BatchBuilder::finish_part
    pub fn goes_on(&self) -> bool {
        self.attributes & GOES_ON != 0
    }

    /// It belongs to the batch before it.
    pub fn follows(&self) -> bool {
        self.attributes & FOLLOWS != 0
    }

    /// A control batch without records, which takes no offset: it stands before the record whose
    /// offset it has. Only the broker itself writes such.
    pub fn is_mark(&self) -> bool {
        self.is_control() && self.last_offset_delta == -1 && self.count == 0
    }

    /// `base_timestamp` is the time from which compaction may drop tombstones (bit 6, KIP-534).
    pub fn has_delete_horizon(&self) -> bool {
        self.attributes & 0x40 != 0
    }

    /// An idempotent producer wrote the batch.
    pub fn has_producer(&self) -> bool {
        self.producer_id >= 0
    }

    /// Refuses attribute bits that no version of the protocol defines.
    pub(super) fn check_attributes(&self) -> Result<(), Fault> {
        if self.attributes & !ATTRIBUTES_KNOWN != 0 {
            return Err(Fault::Attributes(self.attributes));
        }
        self.codec().map(drop)
    }

    /// Writes the header over the first bytes of a batch; the CRC is then set by [`seal`].
    pub(super) fn write(&self, batch: &mut [u8]) {
        batch[0..8].copy_from_slice(&self.base_offset.to_be_bytes());
        batch[8..12].copy_from_slice(&self.length.to_be_bytes());
        batch[12..16].copy_from_slice(&self.leader_epoch.to_be_bytes());
        batch[MAGIC] = 2;
        batch[17..21].copy_from_slice(&self.crc.to_be_bytes());
        batch[21..23].copy_from_slice(&self.attributes.to_be_bytes());
        batch[23..27].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        batch[27..35].copy_from_slice(&self.base_timestamp.to_be_bytes());
        batch[35..43].copy_from_slice(&self.max_timestamp.to_be_bytes());
        batch[43..51].copy_from_slice(&self.producer_id.to_be_bytes());
        batch[51..53].copy_from_slice(&self.producer_epoch.to_be_bytes());
        batch[53..57].copy_from_slice(&self.base_sequence.to_be_bytes());
        batch[57..61].copy_from_slice(&self.count.to_be_bytes());
    }
}

/// Stamps the base offset into a batch; the CRC does not cover it.
///
/// # Panics
/// Where `batch` is shorter than a batch header: the caller has parsed it.
pub fn set_base_offset(batch: &mut [u8], offset: i64) {
    assert!(batch.len() >= HEADER_BYTES, "a batch has a header");
    batch[0..8].copy_from_slice(&offset.to_be_bytes());
}

/// Stamps the leader epoch into a batch; the CRC does not cover it.
///
/// # Panics
/// Where `batch` is shorter than a batch header: the caller has parsed it.
pub fn set_leader_epoch(batch: &mut [u8], epoch: i32) {
    assert!(batch.len() >= HEADER_BYTES, "a batch has a header");
    batch[LEADER_EPOCH..LEADER_EPOCH + 4].copy_from_slice(&epoch.to_be_bytes());
}

/// Sets the CRC of a complete batch.
pub(super) fn seal(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[ATTRIBUTES..]);
    batch[CRC..ATTRIBUTES].copy_from_slice(&crc.to_be_bytes());
}

/// One whole batch, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Its first byte within the data that was read.
    pub position: usize,
    /// Its header.
    pub header: BatchHeader,
    /// All its bytes, header included.
    pub bytes: &'a [u8],
}

impl<'a> Batch<'a> {
    /// The records' bytes, compressed where the codec says so.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES..]
    }

    /// The records are compressed, or their codec is unknown.
    pub fn is_compressed(&self) -> bool {
        self.header.codec() != Ok(Codec::None)
    }

    /// The records' bytes, decompressed into `scratch` where they are compressed.
    pub fn open<'s>(&self, scratch: &'s mut Vec<u8>, bytes_max: usize) -> Result<&'s [u8], Error>
    where
        'a: 's,
    {
        let codec = self.header.codec().map_err(|fault| self.wrong(fault))?;
        if codec == Codec::None {
            return Ok(self.body());
        }
        scratch.clear();
        decompress(codec, self.body(), scratch, bytes_max).map_err(|fault| self.wrong(fault))?;
        Ok(scratch)
    }

    /// Compares the stored CRC with that of the bytes.
    pub fn check_crc(&self) -> Result<(), Error> {
        let computed = crc32c::crc32c(&self.bytes[ATTRIBUTES..]);
        if computed == self.header.crc {
            return Ok(());
        }
        Err(self.wrong(Fault::Crc {
            stored: self.header.crc,
            computed,
        }))
    }

    /// `fault` as an error of this batch.
    pub fn wrong(&self, fault: Fault) -> Error {
        Error {
            position: self.position,
            base_offset: self.header.base_offset,
            fault,
        }
    }
}

/// Walks the batches of `data` by their length fields, without checking their CRC.
///
/// Ends after the last whole batch or after an error; a batch that the data cuts off is the
/// error [`Fault::Truncated`].
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    data: &'a [u8],
    position: usize,
}

impl<'a> Batches<'a> {
    /// The batches of `data`, from its first byte.
    pub fn new(data: &'a [u8]) -> Self {
        Self { data, position: 0 }
    }

    /// Bytes of the batches that were returned.
    pub fn position(&self) -> usize {
        self.position
    }

    fn parse(&self) -> Result<Batch<'a>, Error> {
        let position = self.position;
        let rest = &self.data[position..];
        let header = BatchHeader::parse(rest).map_err(|error| Error { position, ..error })?;
        let needed = header.batch_bytes();
        let bytes = rest.get(..needed).ok_or(Error {
            position,
            base_offset: header.base_offset,
            fault: Fault::Truncated {
                needed,
                available: rest.len(),
            },
        })?;
        Ok(Batch {
            position,
            header,
            bytes,
        })
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<Batch<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position == self.data.len() {
            return None;
        }
        let batch = self.parse();
        match &batch {
            Ok(batch) => self.position += batch.bytes.len(),
            Err(_) => self.data = &self.data[..self.position],
        }
        Some(batch)
    }
}

fn i16_at(bytes: &[u8; HEADER_BYTES], at: usize) -> i16 {
    i16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn i32_at(bytes: &[u8; HEADER_BYTES], at: usize) -> i32 {
    i32::from_be_bytes(std::array::from_fn(|index| bytes[at + index]))
}

fn i64_at(bytes: &[u8; HEADER_BYTES], at: usize) -> i64 {
    i64::from_be_bytes(std::array::from_fn(|index| bytes[at + index]))
}
