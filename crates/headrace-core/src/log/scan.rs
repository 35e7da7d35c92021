//! Walking a segment's bytes at recovery.

use super::disk::Disk;
use super::error::{Damage, Error};
use super::index::Index;
use super::layout;
use crate::record::{Batch, BatchHeader, Batches, HEADER_BYTES};

/// Bytes read at once; a longer batch is read whole.
const CHUNK_BYTES: usize = 1 << 20;

/// How closely a scan looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// Headers: layout and offsets.
    Headers,
    /// CRCs too.
    Bodies,
}

/// The committed bytes of a segment, to be walked from `position` to `end`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range<'a> {
    pub(super) path: &'a str,
    pub(super) position: u64,
    pub(super) end: u64,
    /// Offset that the first batch must have.
    pub(super) offset: i64,
}

/// Walks every batch of `range`; the offset after the last one. A batch that is not sound, or
/// not the one that follows, is damage.
pub(super) fn scan(
    disk: &impl Disk,
    range: Range,
    depth: Depth,
    mut visit: impl FnMut(&BatchHeader, u64),
) -> Result<i64, Error> {
    let Range {
        path,
        mut position,
        end,
        mut offset,
    } = range;
    while position < end {
        let mut wanted = CHUNK_BYTES;
        let taken = loop {
            let bytes = disk.read(path, position, wanted.min((end - position) as usize))?;
            let mut taken = 0;
            for batch in Batches::new(&bytes) {
                let Ok(batch) = batch else { break };
                check(&batch, offset, depth).map_err(|what| {
                    Error::Corrupt(Damage {
                        path: path.to_owned(),
                        position: position + batch.position as u64,
                        offset: Some(offset),
                        what,
                    })
                })?;
                visit(&batch.header, position + batch.position as u64);
                offset = batch.header.next_offset();
                taken = batch.position + batch.bytes.len();
            }
            if taken > 0 {
                break taken as u64;
            }
            // Not one whole batch: it is longer than what was read, or none stands there.
            let needed = BatchHeader::parse(&bytes).map_or(0, |header| header.batch_bytes());
            if needed <= bytes.len().max(HEADER_BYTES) || needed as u64 > end - position {
                return Err(Error::Corrupt(Damage {
                    path: path.to_owned(),
                    position,
                    offset: Some(offset),
                    what: "no whole record batch stands there".into(),
                }));
            }
            wanted = needed;
        };
        position += taken;
    }
    Ok(offset)
}

fn check(batch: &Batch, offset: i64, depth: Depth) -> Result<(), String> {
    let header = &batch.header;
    if header.base_offset != offset || header.last_offset_delta < 0 {
        return Err(format!("the batch says offset {}", header.base_offset));
    }
    match depth {
        Depth::Headers => Ok(()),
        Depth::Bodies => batch.check_crc().map_err(|error| error.fault.to_string()),
    }
}

/// The index files of a segment of `bytes` bytes; None where they are missing or do not fit.
pub(super) fn index_files(
    disk: &impl Disk,
    folder: &str,
    base: i64,
    bytes: u64,
) -> Result<Option<Index>, Error> {
    let offsets = whole_file(disk, &layout::file(folder, base, layout::INDEX))?;
    let times = whole_file(disk, &layout::file(folder, base, layout::TIME_INDEX))?;
    Ok(Index::decode(&offsets, &times, bytes))
}

/// The index of a segment, from its batches.
pub(super) fn rebuild(
    disk: &impl Disk,
    folder: &str,
    base: i64,
    bytes: u64,
    interval: u64,
) -> Result<Index, Error> {
    let mut index = Index::default();
    let path = layout::file(folder, base, layout::SEGMENT);
    let range = Range {
        path: &path,
        position: 0,
        end: bytes,
        offset: base,
    };
    scan(disk, range, Depth::Headers, |header, position| {
        index.add(base, header, position as u32, interval);
    })?;
    index.finish();
    Ok(index)
}

/// All bytes of a file; none where there is no file.
pub(super) fn whole_file(disk: &impl Disk, path: &str) -> Result<Vec<u8>, Error> {
    match disk.size(path)? {
        Some(bytes) => Ok(disk.read(path, 0, bytes as usize)?),
        None => Ok(Vec::new()),
    }
}
