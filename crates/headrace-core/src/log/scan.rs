//! Walking a segment's bytes at recovery.

use super::disk::{Disk, Path};
use super::error::{Damage, Error};
use super::index::{self, Index};
use super::journal::PAGE;
use super::layout;
use crate::record::{Batch, BatchHeader, Batches, HEADER_BYTES};

/// Bytes read at once; a longer batch is read whole.
pub(super) const CHUNK_BYTES: usize = 1 << 20;
/// Bytes of a snapshot: a million producers or sources come to half as many.
const SIDE_BYTES_MAX: u64 = 256 << 20;
/// Bytes of an entry of the time index, the longer one.
const ENTRY_BYTES_MAX: u64 = 12;

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
    scan_batches(disk, range, depth, |batch, position| {
        visit(&batch.header, position);
        true
    })
}

/// The same with whole batches, until `visit` returns false; the offset after the last that it
/// saw.
pub(super) fn scan_batches(
    disk: &impl Disk,
    range: Range,
    depth: Depth,
    mut visit: impl FnMut(&Batch, u64) -> bool,
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
            let wanted_now = wanted.min((end - position) as usize);
            let bytes = read(disk, path, position, wanted_now, Some(offset))?;
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
                offset = batch.header.next_offset();
                if !visit(&batch, position + batch.position as u64) {
                    return Ok(offset);
                }
                taken = batch.position + batch.bytes.len();
            }
            if taken > 0 {
                break taken as u64;
            }
            // Not one whole batch: it is longer than what was read, or none stands there.
            let needed = BatchHeader::parse(&bytes).map_or(0, |header| header.batch_bytes());
            let is_cut = bytes.len() < wanted_now; // the file is: more will not be there
            let is_none = needed <= bytes.len().max(HEADER_BYTES) || needed as u64 > end - position;
            if is_none || is_cut {
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
    if header.base_offset != offset || (header.last_offset_delta < 0 && !header.is_mark()) {
        return Err(format!("the batch says offset {}", header.base_offset));
    }
    match depth {
        Depth::Headers => Ok(()),
        Depth::Bodies => batch.check_crc().map_err(|error| error.fault.to_string()),
    }
}

/// A segment's files, as far as it is committed.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) folder: Path,
    pub(super) base: i64,
    pub(super) generation: u32,
    pub(super) bytes: u64,
    pub(super) index_crc: Option<u32>,
}

impl Files {
    pub(super) fn path(&self, kind: &str) -> Path {
        layout::segment_file(&self.folder, self.base, self.generation, kind)
    }

    /// All batches of the `.log` file, which is `path`.
    pub(super) fn range<'p>(&self, path: &'p str) -> Range<'p> {
        Range {
            path,
            position: 0,
            end: self.bytes,
            offset: self.base,
        }
    }

    /// The index that was written; None where the files do not hold that.
    pub(super) fn index(&self, disk: &impl Disk) -> Result<Option<Index>, Error> {
        let (offsets, times) = self.index_files(disk)?;
        let is_sound = self.index_crc == Some(index::crc(&offsets, &times));
        let decode = || Index::decode(&offsets, &times, self.bytes);
        Ok(is_sound.then(decode).flatten())
    }

    /// The index that stands in the files, whoever wrote it; else the kind of the file that cannot be
    /// one.
    pub(super) fn any_index(
        &self,
        disk: &impl Disk,
    ) -> Result<std::result::Result<Index, &'static str>, Error> {
        let (offsets, times) = self.index_files(disk)?;
        let decode = |times: &[u8]| Index::decode(&offsets, times, self.bytes);
        Ok(decode(&times).ok_or_else(|| match decode(&[]) {
            Some(_) => layout::TIME_INDEX,
            None => layout::INDEX,
        }))
    }

    fn index_files(&self, disk: &impl Disk) -> Result<(Vec<u8>, Vec<u8>), Error> {
        // An entry names a batch, and none is shorter than its header.
        let bytes_max = ENTRY_BYTES_MAX * (self.bytes / HEADER_BYTES as u64 + 1);
        let file = |kind| bounded_file(disk, &self.path(kind), bytes_max);
        Ok((file(layout::INDEX)?, file(layout::TIME_INDEX)?))
    }

    /// The index, from the segment's batches: what it tells of them stands under their CRC.
    pub(super) fn rebuild(&self, disk: &impl Disk, interval: u64) -> Result<Index, Error> {
        let mut index = Index::default();
        let path = self.path(layout::SEGMENT);
        scan(
            disk,
            self.range(&path),
            Depth::Bodies,
            |header, position| {
                index.add(self.base, header, position as u32, interval);
            },
        )?;
        index.finish();
        Ok(index)
    }
}

/// All bytes of a side file, which can be made anew: none where there is no file, where it is
/// longer than any that was written, or where the medium does not give it back.
pub(super) fn side_file(disk: &impl Disk, path: &str) -> Result<Vec<u8>, Error> {
    bounded_file(disk, path, SIDE_BYTES_MAX)
}

fn bounded_file(disk: &impl Disk, path: &str, bytes_max: u64) -> Result<Vec<u8>, Error> {
    match disk.size(path)? {
        Some(bytes) if bytes <= bytes_max => {
            Ok(copy(disk, path, 0, bytes as usize)?.unwrap_or_default())
        }
        _ => Ok(Vec::new()),
    }
}

/// What stands where something else holds the same; None where the medium does not give it back.
pub(super) fn copy(
    disk: &impl Disk,
    path: &str,
    position: u64,
    bytes: usize,
) -> Result<Option<Vec<u8>>, Error> {
    match disk.read(path, position, bytes) {
        Err(error) if error.unreadable => Ok(None),
        outcome => Ok(Some(outcome?)),
    }
}

/// `bytes` and zeros up to the end of their last page, as far as the file goes: a page that cannot
/// be read can be written, if that is done at once. What stood there behind `bytes` comes after them
/// in the journal.
pub(super) fn whole_pages(
    disk: &impl Disk,
    path: &str,
    position: u64,
    mut bytes: Vec<u8>,
) -> Result<Vec<u8>, Error> {
    let end = position + bytes.len() as u64;
    let size = disk.size(path)?.unwrap_or(0);
    let to = end.next_multiple_of(PAGE as u64).min(size).max(end);
    bytes.resize((to - position) as usize, 0);
    Ok(bytes)
}

/// Bytes that nothing else holds: where the medium does not give them back, they are damaged.
pub(super) fn read(
    disk: &impl Disk,
    path: &str,
    position: u64,
    bytes: usize,
    offset: Option<i64>,
) -> Result<Vec<u8>, Error> {
    disk.read(path, position, bytes).map_err(|error| {
        if error.unreadable {
            let what = "the disk does not give back what stands there (Input/output error)";
            Error::Corrupt(Damage {
                path: path.to_owned(),
                position,
                offset,
                what: what.to_owned(),
            })
        } else {
            error.into()
        }
    })
}
