//! A walk over a segment that goes on after damage, at the next batch that is sound.

use crate::log::disk::Disk;
use crate::log::epochs::Epochs;
use crate::log::error::Error;
use crate::log::scan::{scan, Depth, Range};
use crate::record::{Batch, BatchHeader, HEADER_BYTES};

/// Bytes searched at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Where a batch says its format, which is 2.
const MAGIC_AT: usize = 16;

/// A stretch of a segment that cannot be read, and the offsets that stood there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    pub(super) position: u64,
    pub(super) bytes: u64,
    pub(super) first: i64,
    /// Offset after them.
    pub(super) next: i64,
    pub(super) what: String,
}

/// What a walk found.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Offset after the last batch, or after what is lost behind it.
    pub(super) next: i64,
    pub(super) lost: Vec<Lost>,
    /// Batches whose stamp alone is wrong, which no CRC covers: position, offset. Nothing of them
    /// is lost.
    pub(super) stamps: Vec<(u64, i64)>,
}

impl Survey {
    /// The log went on to `named` at least, or further, where the header of a torn batch says so:
    /// these offsets had been given out, so what stood there is lost, and they are not free.
    pub(super) fn reach(
        &mut self,
        disk: &impl Disk,
        range: Range,
        named: i64,
    ) -> Result<(), Error> {
        let last = self.lost.last_mut();
        let torn = last.filter(|lost| lost.position + lost.bytes == range.end);
        let told = match &torn {
            Some(torn) => told_by_header(disk, range.path, torn)?,
            None => None,
        };
        let reached = named.max(told.unwrap_or(named));
        if reached <= self.next || reached - range.offset > i64::from(i32::MAX) {
            return Ok(()); // no segment holds so many, so it is no name of this log's
        }
        match torn {
            Some(torn) => torn.next = reached,
            None => self.lost.push(Lost {
                position: range.end,
                bytes: 0,
                first: self.next,
                next: reached,
                what: "records are missing there: the log's other files tell of them".into(),
            }),
        }
        self.next = reached;
        Ok(())
    }
}

/// The offset after the batch that is torn, where its header is whole.
fn told_by_header(disk: &impl Disk, path: &str, torn: &Lost) -> Result<Option<i64>, Error> {
    let bytes = disk.read(path, torn.position, HEADER_BYTES)?;
    let header = BatchHeader::parse(&bytes).ok();
    let is_whole = |header: &BatchHeader| {
        let records = i64::from(header.last_offset_delta) + 1;
        header.base_offset == torn.first && i64::from(header.count) == records
    };
    Ok(header.filter(is_whole).map(|header| header.next_offset()))
}

/// Walks `range` with CRCs; `visit` sees the sound batches.
///
/// `after` is the offset that follows the segment, where that is known. Marks tell their epochs
/// themselves: several may stand at one offset.
pub(super) fn survey(
    disk: &impl Disk,
    mut range: Range,
    after: Option<i64>,
    epochs: &Epochs,
    mut visit: impl FnMut(&BatchHeader, u64),
) -> Result<Survey, Error> {
    let mut found = Survey::default();
    loop {
        let stamps = &mut found.stamps;
        let visit = |header: &BatchHeader, position| {
            let epoch = epochs.at(header.base_offset);
            if !header.is_mark() && epoch.is_some_and(|epoch| epoch != header.leader_epoch) {
                stamps.push((position, header.base_offset));
            }
            visit(header, position);
        };
        let damage = match scan(disk, range, Depth::Bodies, visit) {
            Ok(next) => {
                found.next = after.map_or(next, |after| after.max(next));
                if next < found.next {
                    found.lost.push(Lost {
                        position: range.end,
                        bytes: 0,
                        first: next,
                        next: found.next,
                        what: "records that were durable are missing there".into(),
                    });
                }
                return Ok(found);
            }
            Err(Error::Corrupt(damage)) => damage,
            Err(error) => return Err(error),
        };
        let first = damage.offset.expect("a scan knows the offset");
        let place = Range {
            position: damage.position,
            offset: first,
            ..range
        };
        let further = resume(disk, place, after)?;
        let (position, next) = further.unwrap_or((range.end, after.unwrap_or(first)));
        if is_misstamped(disk, place, position, next)? {
            found.stamps.push((damage.position, first));
        } else {
            found.lost.push(Lost {
                position: damage.position,
                bytes: position - damage.position,
                first,
                next,
                what: damage.what,
            });
        }
        if further.is_none() {
            found.next = next;
            return Ok(found);
        }
        range.position = position;
        range.offset = next;
    }
}

/// One whole batch stands between `place.position` and `end`, sound but for its offset, and
/// `next` is what follows it.
fn is_misstamped(disk: &impl Disk, place: Range, end: u64, next: i64) -> Result<bool, Error> {
    let bytes = disk.read(place.path, place.position, HEADER_BYTES)?;
    let fits = |header: &BatchHeader| {
        place.position + header.batch_bytes() as u64 == end
            && place.offset + i64::from(header.last_offset_delta) + 1 == next
    };
    let Some(header) = BatchHeader::parse(&bytes).ok().filter(fits) else {
        return Ok(false);
    };
    let bytes = disk.read(place.path, place.position, header.batch_bytes())?;
    let batch = Batch {
        position: 0,
        header,
        bytes: &bytes,
    };
    Ok(bytes.len() == header.batch_bytes() && batch.check_crc().is_ok())
}

/// The first sound batch after the damage at `place.position`: where, and its offset.
fn resume(disk: &impl Disk, place: Range, after: Option<i64>) -> Result<Option<(u64, i64)>, Error> {
    // Where the damaged batch says that it ends is the likeliest place, and a client may have
    // stored what looks like a batch inside of it.
    let header = disk.read(place.path, place.position, HEADER_BYTES)?;
    if let Ok(header) = BatchHeader::parse(&header) {
        let position = place.position + header.batch_bytes() as u64;
        if let Some(offset) = sound(disk, place, position, after)? {
            return Ok(Some((position, offset)));
        }
    }
    let mut position = place.position + 1;
    while position + HEADER_BYTES as u64 <= place.end {
        let wanted = CHUNK_BYTES.min((place.end - position) as usize);
        let bytes = disk.read(place.path, position, wanted)?;
        if bytes.len() < HEADER_BYTES {
            break;
        }
        let last = bytes.len() - HEADER_BYTES;
        for at in (0..=last).filter(|at| bytes[at + MAGIC_AT] == 2) {
            let at = position + at as u64;
            if let Some(offset) = sound(disk, place, at, after)? {
                return Ok(Some((at, offset)));
            }
        }
        position += last as u64 + 1;
    }
    Ok(None)
}

/// The offset of the batch at `position`, where a sound one stands there that may follow.
fn sound(
    disk: &impl Disk,
    place: Range,
    position: u64,
    after: Option<i64>,
) -> Result<Option<i64>, Error> {
    if position + HEADER_BYTES as u64 > place.end {
        return Ok(None);
    }
    let bytes = disk.read(place.path, position, HEADER_BYTES)?;
    let Ok(header) = BatchHeader::parse(&bytes) else {
        return Ok(None);
    };
    let follows = header.base_offset >= place.offset
        && (header.last_offset_delta >= 0 || header.is_mark())
        && after.is_none_or(|after| header.next_offset() <= after)
        && header.batch_bytes() as u64 <= place.end - position;
    if !follows {
        return Ok(None);
    }
    let bytes = disk.read(place.path, position, header.batch_bytes())?;
    let batch = Batch {
        position: 0,
        header,
        bytes: &bytes,
    };
    let whole = bytes.len() == header.batch_bytes() && batch.check_crc().is_ok();
    Ok(whole.then_some(header.base_offset))
}
