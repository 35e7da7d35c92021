//! Reading committed batches: pure plans, and the walk over bytes that a [`Disk`] reads.
//!
//! A plan is made under the machine's lock and carried out without it. Indexes are hints: the
//! batch found must be the one that the entry names, else the segment is walked from its start.

use std::ops::Range;

use super::disk::{Disk, Path};
use super::epochs::Epochs;
use super::error::{Damage, Error};
use super::index::Index;
use super::layout;
use super::machine::Machine;
use super::partition::{Log, LogId};
use super::scan;
use super::segment::Segment;
use crate::record::{Batch, BatchHeader, Batches, Records, DECOMPRESSED_BYTES_MAX, HEADER_BYTES};

/// Bytes of one read on the way from an index entry to the batch.
pub(super) const SLACK_BYTES: usize = 8 << 10;

/// What to read next.
#[derive(Debug)]
pub enum Plan {
    /// There is nothing at or after what was asked for.
    Nothing,
    /// The segment's index is not in memory: load it, give it to [`Machine::indexed`], ask again.
    Load(IndexFiles),
    /// The walk starts here.
    Walk(Walk),
}

/// The files of one segment's index.
#[derive(Debug)]
pub struct IndexFiles {
    log: LogId,
    files: scan::Files,
    /// Bytes of the segment.
    committed: u64,
    interval: u64,
}

/// An index read from disk or rebuilt.
#[derive(Debug)]
pub struct LoadedIndex {
    log: LogId,
    base: i64,
    generation: u32,
    index: Index,
}

/// A way through the committed bytes of one segment.
#[derive(Clone, Debug)]
pub struct Walk {
    path: Path,
    base: i64,
    /// Committed bytes.
    end: u64,
    /// Offset after them.
    next: i64,
    epochs: Epochs,
    /// Where an index entry says that a batch with this last offset begins.
    hint: Option<(i64, u64)>,
}

impl Machine {
    /// The way to the committed batch that holds `offset`, or stands for it where compaction took
    /// its record.
    pub fn plan_read(&self, log: LogId, offset: i64) -> Result<Plan, Error> {
        let log = self.log(log)?;
        let (start, end) = (log.start_offset, log.high_watermark);
        if offset < start || offset > end {
            return Err(Error::Argument(format!(
                "offset {offset} is outside [{start}, {end}]"
            )));
        }
        let at = log
            .segments
            .partition_point(|segment| segment.base <= offset)
            - 1;
        if offset == end || log.segments[at].committed == 0 {
            return Ok(Plan::Nothing);
        }
        self.plan(log.id, at, |index, base| {
            index.floor((offset - base) as u32)
        })
    }

    /// Bytes that a read from `offset` brings at most, but for a batch larger than asked for: those
    /// of its segment from there on, as far as is known without reading.
    pub fn readable_bytes(&self, log: LogId, offset: i64) -> Result<u64, Error> {
        Ok(match self.plan_read(log, offset)? {
            Plan::Nothing => 0,
            Plan::Load(files) => files.committed,
            Plan::Walk(walk) => walk.end - walk.hint.map_or(0, |(_, position)| position),
        })
    }

    /// The way to the first committed batch, from the segment after `after` on, that may hold a
    /// timestamp of at least `timestamp`.
    pub fn plan_time(
        &self,
        log: LogId,
        timestamp: i64,
        after: Option<&Walk>,
    ) -> Result<Plan, Error> {
        let log = self.log(log)?;
        let from = after.map_or(0, |walk| {
            log.segments
                .partition_point(|segment| segment.base <= walk.base)
        });
        for (at, segment) in log.segments.iter().enumerate().skip(from) {
            if segment.committed > 0 && segment.may_reach(timestamp) {
                return self.plan(log.id, at, |index, _| {
                    index.floor(index.floor_of_time(timestamp))
                });
            }
        }
        Ok(Plan::Nothing)
    }

    fn plan(
        &self,
        id: LogId,
        at: usize,
        floor: impl FnOnce(&Index, i64) -> Option<(u32, u32)>,
    ) -> Result<Plan, Error> {
        let log = self.log(id)?;
        let segment = &log.segments[at];
        let Some(index) = &segment.index else {
            return Ok(Plan::Load(IndexFiles {
                log: id,
                files: segment.on_disk(&log.folder),
                committed: segment.committed,
                interval: self.options.index_interval_bytes,
            }));
        };
        let hint = floor(index, segment.base)
            .map(|(last, position)| (segment.base + i64::from(last), u64::from(position)))
            .filter(|(_, position)| *position < segment.committed);
        Ok(Plan::Walk(log.walk(at, hint)))
    }

    /// Keeps an index that [`Plan::Load`] asked for.
    pub fn indexed(&mut self, loaded: LoadedIndex) {
        let segment = self.segment_mut(loaded.log, loaded.base);
        let waits = |segment: &&mut Segment| {
            segment.index.is_none() && segment.generation == loaded.generation
        };
        if let Some(segment) = segment.filter(waits) {
            segment.index = Some(loaded.index);
            self.keep_index(loaded.log, loaded.base);
        }
    }

    /// Counts the index of a closed segment, and unloads others until all have room.
    pub(super) fn keep_index(&mut self, log: LogId, base: i64) {
        let bytes = self
            .segment_mut(log, base)
            .and_then(|segment| segment.index.as_ref())
            .map_or(0, Index::memory_bytes);
        self.indexes.push_back((log, base, bytes));
        self.index_bytes += bytes;
        while self.index_bytes > self.options.bounds.index_bytes && self.indexes.len() > 1 {
            let (log, base, bytes) = self.indexes.pop_front().expect("there are several");
            self.index_bytes -= bytes;
            if let Some(segment) = self.segment_mut(log, base) {
                segment.unload();
            }
        }
    }

    fn segment_mut(&mut self, log: LogId, base: i64) -> Option<&mut Segment> {
        self.logs.get_mut(&log)?.segment_mut(base)
    }
}

impl Log {
    /// Ways through all committed segments from the one that holds `offset`.
    pub(super) fn walks(&self, offset: i64) -> Vec<Walk> {
        let from = self
            .segments
            .partition_point(|segment| segment.base <= offset);
        let segments = from.saturating_sub(1)..self.segments.len();
        let written = segments.filter(|at| self.segments[*at].committed > 0);
        written.map(|at| self.walk(at, None)).collect()
    }

    /// The way through the segment `at`, from `hint` on.
    fn walk(&self, at: usize, hint: Option<(i64, u64)>) -> Walk {
        let segment = &self.segments[at];
        let after = self.segments.get(at + 1).filter(|after| after.begun);
        Walk {
            path: segment.path.clone(),
            base: segment.base,
            end: segment.committed,
            next: after.map_or(self.high_watermark, |after| after.base),
            epochs: self.epochs.clone(),
            hint,
        }
    }
}

impl IndexFiles {
    /// Reads the index, or rebuilds it from the segment where the files do not fit it.
    pub fn load(&self, disk: &impl Disk) -> Result<LoadedIndex, Error> {
        let index = match self.files.index(disk)? {
            Some(index) => index,
            None => self.files.rebuild(disk, self.interval)?,
        };
        Ok(LoadedIndex {
            log: self.log,
            base: self.files.base,
            generation: self.files.generation,
            index,
        })
    }
}

impl Walk {
    /// Offset of the segment's first record.
    pub(super) fn base(&self) -> i64 {
        self.base
    }

    /// Whole batches from the one that holds `offset`, or stands for it: at least one, else at most
    /// `bytes_max`. They end before a mark, which is no reader's business.
    ///
    /// The way there is read in small pieces and what is wanted in one, so that nothing is copied.
    pub fn read(&self, disk: &impl Disk, offset: i64, bytes_max: usize) -> Result<Vec<u8>, Error> {
        let mut found = None;
        self.each(disk, SLACK_BYTES, |position, header, rest| {
            if header.last_offset() < offset || header.is_mark() {
                return true;
            }
            let (first, left) = (header.batch_bytes(), (self.end - position) as usize);
            let wanted = bytes_max.max(first).min(left);
            found = Some((
                position,
                first,
                wanted,
                rest.get(..wanted).map(<[u8]>::to_vec),
            ));
            false
        })?;
        let Some((position, first, wanted, few)) = found else {
            return Ok(Vec::new());
        };
        let mut bytes = match few {
            Some(few) => few,
            None => self.readable(disk, position, wanted, first)?,
        };
        let sound = sound_bytes(&bytes, &self.epochs);
        let sound = sound.map_err(|what| self.damage(position, Some(offset), &what))?;
        bytes.truncate(sound);
        if bytes.capacity() - sound > SLACK_BYTES.max(sound / 8) {
            // Whoever holds what was found, and counts that, must not hold all that was read.
            bytes.shrink_to_fit();
        }
        Ok(bytes)
    }

    /// `(offset, timestamp)` of the first record in `offsets` at or after `timestamp`.
    pub fn find_time(
        &self,
        disk: &impl Disk,
        timestamp: i64,
        offsets: Range<i64>,
    ) -> Result<Option<(i64, i64)>, Error> {
        // The batch in which the log begins may hold no such record from there on.
        let mut batches = Vec::new();
        let mut passed = Ok(());
        self.each(disk, SLACK_BYTES, |position, header, rest| {
            // What a batch is passed over for is its own word.
            passed = self.hold(disk, position, header, rest);
            if passed.is_err() {
                return false;
            }
            let holds = header.count > 0; // compaction keeps a producer's last batch without records
            if holds && header.max_timestamp >= timestamp && header.last_offset() >= offsets.start {
                batches.push((position, *header));
            }
            batches
                .last()
                .is_none_or(|(_, last)| last.base_offset < offsets.start)
        })?;
        passed?;
        for (position, header) in batches {
            let found = self.first_at(disk, position, &header, timestamp, offsets.start)?;
            if let Some(found) = found.filter(|(offset, _)| *offset < offsets.end) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The first record of one batch from the offset `start` on and at or after `timestamp`.
    fn first_at(
        &self,
        disk: &impl Disk,
        position: u64,
        header: &BatchHeader,
        timestamp: i64,
        start: i64,
    ) -> Result<Option<(i64, i64)>, Error> {
        let bytes = self.bytes(disk, position, header.batch_bytes())?;
        let batch = self.sound(position, header, &bytes)?;
        let mut scratch = Vec::new();
        let Ok(body) = batch.open(&mut scratch, DECOMPRESSED_BYTES_MAX) else {
            let first = header.base_offset.max(start);
            return Ok(Some((first, header.max_timestamp)));
        };
        let found = Records::new(&batch.header, body)
            .map_while(Result::ok)
            .find(|record| record.offset >= start && record.timestamp >= timestamp);
        let found = found.map(|record| (record.offset, record.timestamp));
        let told =
            (header.base_offset >= start).then_some((header.base_offset, header.max_timestamp));
        Ok(found.or(told))
    }

    /// The batch is what its CRC says; `rest` is what was read from its first byte on.
    fn hold(
        &self,
        disk: &impl Disk,
        position: u64,
        header: &BatchHeader,
        rest: &[u8],
    ) -> Result<(), Error> {
        let bytes = header.batch_bytes();
        if rest.len() >= bytes {
            return self.sound(position, header, rest).map(drop);
        }
        let whole = self.bytes(disk, position, bytes)?;
        self.sound(position, header, &whole).map(drop)
    }

    /// The batch at the front of `bytes`, which stand at `position`.
    fn sound<'b>(
        &self,
        position: u64,
        header: &BatchHeader,
        bytes: &'b [u8],
    ) -> Result<Batch<'b>, Error> {
        let damage = |what: &str| self.damage(position, Some(header.base_offset), what);
        let batch = Batches::new(bytes).next().and_then(Result::ok);
        let batch = batch.ok_or_else(|| damage("the segment ends inside a batch"))?;
        let held = batch.check_crc();
        held.map_err(|error| damage(&error.fault.to_string()))?;
        Ok(batch)
    }

    /// Walks batch headers from the hint, else from the start: `(position, header, bytes from
    /// there on, as far as they were read)`; false ends the walk.
    pub(super) fn each(
        &self,
        disk: &impl Disk,
        reach: usize,
        mut visit: impl FnMut(u64, &BatchHeader, &[u8]) -> bool,
    ) -> Result<(), Error> {
        let mut position = self.hint.map_or(0, |(_, position)| position);
        let mut hinted = self.hint.map(|(last, _)| last);
        // Offsets stand outside of the CRC: each batch must follow on the one before it.
        let mut next = hinted.is_none().then_some(self.base);
        while position < self.end {
            let wanted = reach.max(HEADER_BYTES).min((self.end - position) as usize);
            let bytes = self.readable(disk, position, wanted, HEADER_BYTES.min(wanted))?;
            let mut at = 0;
            while at < bytes.len() {
                let parsed = BatchHeader::parse(&bytes[at..]).ok().filter(|header| {
                    position + at as u64 + header.batch_bytes() as u64 <= self.end
                        && hinted.is_none_or(|last| header.last_offset() == last)
                        && next.is_none_or(|next| header.base_offset == next)
                });
                let Some(header) = parsed else { break };
                hinted = None;
                next = Some(header.next_offset());
                if !visit(position + at as u64, &header, &bytes[at..]) {
                    return Ok(());
                }
                at += header.batch_bytes();
            }
            if at > 0 {
                position += at as u64;
            } else if hinted.take().is_some() {
                position = 0; // the index names a batch that does not stand there
                next = Some(self.base);
            } else {
                let what = "the record batch that follows does not stand there";
                return Err(self.damage(position, next, what));
            }
        }
        if next == Some(self.next) {
            return Ok(());
        }
        // The last batch says that it is shorter than it is, or longer.
        let what = "the offsets before the next segment are missing";
        Err(self.damage(self.end, next, what))
    }

    /// Bytes of the segment that are committed, read from `position`.
    pub(super) fn bytes(
        &self,
        disk: &impl Disk,
        position: u64,
        bytes: usize,
    ) -> Result<Vec<u8>, Error> {
        scan::read(disk, &self.path, position, bytes, None)
    }

    /// As much of that as the medium gives back in one piece, and at least so much.
    fn readable(
        &self,
        disk: &impl Disk,
        position: u64,
        bytes: usize,
        least: usize,
    ) -> Result<Vec<u8>, Error> {
        let mut wanted = bytes;
        loop {
            match disk.read(&self.path, position, wanted) {
                Err(error) if error.unreadable && wanted > least => {
                    wanted = least.max(wanted / 2);
                }
                Ok(bytes) => return Ok(bytes),
                Err(error) if !error.unreadable => return Err(error.into()), // as: it would wait
                Err(_) => return self.bytes(disk, position, least),
            }
        }
    }

    pub(super) fn damage(&self, position: u64, offset: Option<i64>, what: &str) -> Error {
        Error::Corrupt(Damage {
            path: self.path.to_string(),
            position,
            offset,
            what: what.to_owned(),
        })
    }
}

/// Length of the sound batches at the front of `bytes` that follow on each other, to the next mark;
/// what is wrong where the first is not sound. Clients need not check CRCs, and some do not.
///
/// No CRC covers a batch's offset and epoch: the log tells them.
fn sound_bytes(bytes: &[u8], epochs: &Epochs) -> Result<usize, String> {
    let (mut sound, mut next) = (0, None);
    for batch in Batches::new(bytes).map_while(Result::ok) {
        let header = &batch.header;
        let follows = next.is_none_or(|next| header.base_offset == next);
        if !follows || header.is_mark() {
            break; // whoever reads on from here is told
        }
        let epoch = epochs.at(header.base_offset);
        let fault = match batch.check_crc() {
            Err(error) => Some(error.fault.to_string()),
            Ok(()) if epoch.is_some_and(|epoch| epoch != header.leader_epoch) => {
                Some(format!("the batch says epoch {}", header.leader_epoch))
            }
            Ok(()) => None,
        };
        match fault {
            Some(fault) if sound == 0 => return Err(fault),
            Some(_) => break,
            None => {}
        }
        next = Some(batch.header.next_offset());
        sound = batch.position + batch.bytes.len();
    }
    if sound == 0 {
        return Err("the segment ends inside a batch".into());
    }
    Ok(sound)
}

/// The newest side file of `kind` in `folder` that reads whole, of offsets that are `trusted`.
pub(super) fn newest<T>(
    disk: &impl Disk,
    folder: &str,
    kind: &str,
    trusted: impl Fn(i64) -> bool,
    decode: impl Fn(&[u8]) -> Option<T>,
) -> Result<Option<(i64, T)>, Error> {
    let offsets = layout::offsets(&disk.list(folder)?, kind);
    for offset in offsets.into_iter().rev().filter(|offset| trusted(*offset)) {
        let file = scan::side_file(disk, &layout::file(folder, offset, kind))?;
        if let Some(found) = decode(&file) {
            return Ok(Some((offset, found)));
        }
    }
    Ok(None)
}
