//! What can be wrong with bytes that should be record batches.

use std::fmt;

use super::Codec;

/// A batch that cannot be used, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// First byte of the batch within the data that was read.
    pub position: usize,
    /// The batch's base offset; 0 where the data ends before it.
    pub base_offset: i64,
    /// What is wrong.
    pub fault: Fault,
}

/// The ways in which a batch can be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The data ends inside the batch.
    Truncated {
        /// Bytes that the batch needs.
        needed: usize,
        /// Bytes that are there.
        available: usize,
    },
    /// The length field is smaller than a batch header.
    Length(i32),
    /// The magic byte is not 2: a message set of before Kafka 0.11, or no batch at all.
    Magic(i8),
    /// The stored CRC-32C is not that of the bytes.
    Crc {
        /// The CRC in the header.
        stored: u32,
        /// The CRC of the bytes.
        computed: u32,
    },
    /// Attribute bits that no version of the protocol defines.
    Attributes(i16),
    /// A codec number that no version of the protocol defines.
    Codec(u8),
    /// The record count disagrees with the last offset delta, or is negative.
    Count {
        /// Record count in the header.
        count: i32,
        /// Last offset delta in the header.
        last_offset_delta: i32,
    },
    /// A producer that is known by an id numbers its batches from 0.
    Producer {
        /// Its id.
        producer_id: i64,
        /// Its epoch.
        epoch: i16,
        /// The sequence of the first record.
        sequence: i32,
    },
    /// A record is malformed.
    Record {
        /// Its index in the batch.
        index: u32,
        /// The part that is wrong.
        part: &'static str,
    },
    /// The compressed data is not what its codec writes.
    Compression(Codec),
    /// The records decompress to more than the bound.
    TooLarge {
        /// The codec.
        codec: Codec,
        /// The bound in bytes.
        limit: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "record batch at byte {} (base offset {}): {}",
            self.position, self.base_offset, self.fault
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { needed, available } => {
                write!(f, "needs {needed} bytes, {available} are there")
            }
            Self::Length(length) => write!(f, "length {length} is shorter than a batch header"),
            Self::Magic(magic) => write!(f, "magic {magic} is not supported, only 2 is"),
            Self::Crc { stored, computed } => {
                write!(f, "CRC-32C is {computed:08x}, the header says {stored:08x}")
            }
            Self::Attributes(bits) => write!(f, "attributes {bits:#06x} hold undefined bits"),
            Self::Codec(codec) => write!(f, "codec {codec} is unknown"),
            Self::Count {
                count,
                last_offset_delta,
            } => write!(
                f,
                "record count {count} does not fit the last offset delta {last_offset_delta}"
            ),
            Self::Producer {
                producer_id,
                epoch,
                sequence,
            } => write!(
                f,
                "producer {producer_id} sent epoch {epoch} and sequence {sequence}: neither is negative"
            ),
            Self::Record { index, part } => write!(f, "record {index}: {part} is malformed"),
            Self::Compression(codec) => write!(f, "its {codec} data is malformed"),
            Self::TooLarge { codec, limit } => {
                write!(
                    f,
                    "its {codec} data decompresses to more than {limit} bytes"
                )
            }
        }
    }
}

impl std::error::Error for Error {}
