//! Record batches, version 2, byte for byte as the Kafka protocol ships and stores them.
//!
//! Owns: the layout of a batch and of a record, the compression codecs, Kafka's key hash, and
//! the decoding of batches into Arrow columns. Must not know: where batches are kept, who sent
//! them, what a topic or a partition is.
//!
//! Invariants. What is read is never trusted: every length is checked before it is used, memory
//! is bounded by the input or by [`DECOMPRESSED_BYTES_MAX`], and each fault is an [`Error`] that
//! says which batch is wrong and how. Base offset and leader epoch stand outside the CRC, so a
//! broker stamps them without touching what the producer signed.
//!
//! ```text
//! byte  0 base offset i64        21 attributes i16            43 producer id i64
//!       8 length i32 (from 12)   23 last offset delta i32     51 producer epoch i16
//!      12 leader epoch i32       27 base timestamp i64 ms     53 base sequence i32
//!      16 magic i8 = 2           35 max timestamp i64 ms      57 record count i32
//!      17 CRC-32C u32 of 21..                                 61 records, maybe compressed
//! ```
//!
//! Source: Kafka protocol guide, "Record Batch" and "Record"; KIP-98, KIP-534.

mod builder;
mod codec;
mod columns;
mod error;
mod filter;
mod header;
mod murmur2;
mod recode;
mod records;
mod source;
mod spread;
mod unpack;
mod validate;
mod varint;

pub use builder::{mark, placeholder, record_bytes, BatchBuilder, Producer, LATER_RECORD_BYTES};
pub use columns::{decode_columns, BinaryColumn, Columns, COLUMN_BYTES_MAX};
pub use error::{Error, Fault};
pub use filter::{hollow, stretch, Filter};
pub use header::{set_base_offset, set_leader_epoch, Batch, BatchHeader, Batches, Codec};
pub use murmur2::{fnv1a, murmur2, partition_of};
pub use recode::recode;
pub(crate) use records::Mark;
pub use records::{Headers, Record, Records};
pub use source::{Source, SOURCES_MAX, SOURCE_EXPIRY_MS};
pub use spread::{digest, Spread};
pub use unpack::{unpack, Share, Unpacked, UNPACKED_HEADERS_MAX};
pub use validate::{validate, Compressed, Summary};

/// Bytes of a batch before its first record.
pub const HEADER_BYTES: usize = 61;

/// Bytes to which the records of one batch may decompress, unless the caller chooses.
///
/// Clients close a batch by its size before compression (1 MiB at most, unless configured), so
/// this leaves a factor of 128, and yet no small batch can claim the memory of a node.
pub const DECOMPRESSED_BYTES_MAX: usize = 128 << 20;
