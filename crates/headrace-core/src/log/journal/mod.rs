//! The journal's bytes: files of rounds, each round one commit.
//!
//! ```text
//! file    page 0: magic "HRJOURNL", version u32, sequence u64, bytes u64, generation u64,
//!         first sequence u64, first round u64, previous CRC u32, CRC u32
//! round   magic u32, CRC u32 of what follows, previous CRC u32, length u32, round u64,
//!         first round that may not have been synced yet u64, entries
//! entry   kind u8, length u32, body
//! ```
//!
//! A round begins at a page boundary, so that no write touches a page that holds anything
//! acknowledged. Its CRC covers the previous round's CRC, so rounds verify only in the order in
//! which they were written. It starts from the file's seed, a CRC of the round before the file and
//! the generation, which each start of the store raises. Hence the remains of an earlier use of a
//! recycled file verify no more, not even those of a file that a power cut kept from its name;
//! nor do bytes that a client stored.
//!
//! A round tells which rounds were synced before it was written: all of them, where logs ask for
//! no less. Hence a round that does not verify was never promised to be durable, unless a later
//! one verifies that tells otherwise: then it is damage, and is said so.

mod entry;
mod state;
mod walk;
mod write;

use super::codec::{Put, Take};

pub(super) use entry::{entries, entry_bytes_max, Entry};
pub(super) use state::{Checkpoint, LogState, SegmentState, Swap};
pub(super) use walk::{file_header, walk, Found};
pub(super) use write::RoundWriter;

/// Unit of the page cache and of every journal write. A power cut may leave any page of an
/// unsynced write as it was, as it should be, or as neither.
pub(super) const PAGE: usize = 4096;
/// Bytes of a round before its entries.
pub(super) const ROUND_HEADER_BYTES: usize = 32;
const FILE_MAGIC: &[u8; 8] = b"HRJOURNL";
const ROUND_MAGIC: u32 = 0x4852_4E44;
const VERSION: u32 = 7;
/// Bytes of a file's header before its CRC.
const FILE_HEADER_BYTES: usize = 56;

/// Where a file stands in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) sequence: u64,
    /// Length of the file.
    pub(super) bytes: u64,
    /// Starts of the store before the file.
    pub(super) generation: u64,
    /// Sequence of the first file that this start wrote: files before it tell nothing more.
    pub(super) first: u64,
    /// The chain before the file's first round.
    pub(super) began: Chain,
}

impl FileHeader {
    /// What the CRC of each of its rounds starts from. Generations that are less than 2^32 apart
    /// have different seeds: a CRC tells any two bursts of 32 bits apart.
    pub(super) fn seed(&self) -> u32 {
        crc32c::crc32c_append(self.began.crc, &self.generation.to_be_bytes())
    }

    /// Appends the header page.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(FILE_MAGIC);
        out.put_u32(VERSION);
        out.put_u64(self.sequence);
        out.put_u64(self.bytes);
        out.put_u64(self.generation);
        out.put_u64(self.first);
        out.put_u64(self.began.round);
        out.put_u32(self.began.crc);
        let crc = crc32c::crc32c(&out[start..]);
        out.put_u32(crc);
        out.resize(start + PAGE, 0);
    }

    pub(super) fn decode(file: &[u8]) -> Option<Self> {
        let mut take = Take(file);
        if take.array()? != *FILE_MAGIC || take.u32()? != VERSION {
            return None;
        }
        let header = Self {
            sequence: take.u64()?,
            bytes: take.u64()?,
            generation: take.u64()?,
            first: take.u64()?,
            began: Chain {
                round: take.u64()?,
                crc: take.u32()?,
            },
        };
        (take.u32()? == crc32c::crc32c(&file[..FILE_HEADER_BYTES])).then_some(header)
    }
}

/// The state of a walk over the journal's files, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    /// The number that the next round must have.
    pub(super) round: u64,
    /// CRC of the last round.
    pub(super) crc: u32,
}

impl Chain {
    /// The chain after a round of this CRC.
    pub(super) fn after(self, crc: u32) -> Self {
        Self {
            round: self.round + 1,
            crc,
        }
    }
}
