//! The state of logs, as checkpoints and swaps tell it.

use crate::log::codec::{maybe, Put, Take};
use crate::log::epochs::Epochs;
use crate::log::scan;

/// A log as a checkpoint tells it: all of it stands in its segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::log) struct LogState {
    pub(in crate::log) id: u32,
    pub(in crate::log) stream: String,
    pub(in crate::log) partition: u32,
    pub(in crate::log) incarnation: u64,
    pub(in crate::log) start_offset: i64,
    pub(in crate::log) next_offset: i64,
    /// Offset up to which the log was compacted.
    pub(in crate::log) cleaned_to: i64,
    pub(in crate::log) epochs: Epochs,
    /// MQTT sources are kept beside it: there is a file of them.
    pub(in crate::log) has_sources: bool,
    /// Ascending; the last is the active one.
    pub(in crate::log) segments: Vec<SegmentState>,
}

/// A segment as a checkpoint tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::log) struct SegmentState {
    pub(in crate::log) base: i64,
    pub(in crate::log) bytes: u64,
    /// The greatest timestamp; of the active segment at least that.
    pub(in crate::log) newest: Option<i64>,
    /// The wall clock when it began.
    pub(in crate::log) created_ms: Option<i64>,
    /// The compaction that wrote it; 0 for none.
    pub(in crate::log) generation: u32,
    /// When the first of its tombstones may go.
    pub(in crate::log) horizon_ms: Option<i64>,
    /// CRC-32C of its index files, where they are written: they have none of their own.
    pub(in crate::log) index_crc: Option<u32>,
}

impl SegmentState {
    /// A segment that begins.
    pub(in crate::log) fn empty(base: i64, created_ms: Option<i64>) -> Self {
        Self {
            base,
            bytes: 0,
            newest: None,
            created_ms,
            generation: 0,
            horizon_ms: None,
            index_crc: None,
        }
    }

    /// Its files.
    pub(in crate::log) fn files(&self, folder: &str) -> scan::Files {
        scan::Files {
            folder: folder.into(),
            base: self.base,
            generation: self.generation,
            bytes: self.bytes,
            index_crc: self.index_crc,
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_i64(self.base);
        out.put_u64(self.bytes);
        out.put_maybe(self.newest);
        out.put_maybe(self.created_ms);
        out.put_u32(self.generation);
        out.put_maybe(self.horizon_ms);
        out.put_maybe(self.index_crc.map(i64::from));
    }

    pub(super) fn decode(take: &mut Take) -> Option<Self> {
        Some(Self {
            base: take.i64()?,
            bytes: take.u64()?,
            newest: maybe(take.i64()?),
            created_ms: maybe(take.i64()?),
            generation: take.u32()?,
            horizon_ms: maybe(take.i64()?),
            index_crc: maybe(take.i64()?).map(|crc| crc as u32),
        })
    }
}

/// Segments that take the place of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::log) struct Swap {
    /// The first of those that go begins there, as does the first of those that come.
    pub(in crate::log) from: i64,
    /// The first that stays after them begins there.
    pub(in crate::log) to: i64,
    /// Offset up to which the log is compacted then.
    pub(in crate::log) cleaned_to: i64,
    /// As of [`LogState`].
    pub(in crate::log) has_sources: bool,
    /// Those that come, whole and synced.
    pub(in crate::log) segments: Vec<SegmentState>,
}

/// Journals of before there were any end without them.
pub(super) fn flag(take: &mut Take) -> bool {
    take.u8().is_some_and(|found| found != 0)
}

/// The state of every log between two rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::log) struct Checkpoint {
    /// Every byte and every index was synced and the store was closed.
    pub(in crate::log) clean: bool,
    pub(in crate::log) next_id: u32,
    pub(in crate::log) logs: Vec<LogState>,
}

impl Checkpoint {
    pub(in crate::log) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(64 * self.logs.len() + 16);
        body.put_u8(u8::from(self.clean));
        body.put_u32(self.next_id);
        body.put_u32(self.logs.len() as u32);
        for log in &self.logs {
            body.put_u32(log.id);
            body.put_text(&log.stream);
            body.put_u32(log.partition);
            body.put_u64(log.incarnation);
            body.put_i64(log.start_offset);
            body.put_i64(log.next_offset);
            body.put_i64(log.cleaned_to);
            log.epochs.put(&mut body);
            body.put_u32(log.segments.len() as u32);
            for segment in &log.segments {
                segment.encode(&mut body);
            }
        }
        for log in &self.logs {
            body.put_u8(u8::from(log.has_sources));
        }
        body
    }

    pub(super) fn decode(mut take: Take) -> Option<Self> {
        let clean = take.u8()? != 0;
        let next_id = take.u32()?;
        let mut logs = Vec::new();
        for _ in 0..take.u32()? {
            let mut log = LogState {
                id: take.u32()?,
                stream: take.text()?.to_owned(),
                partition: take.u32()?,
                incarnation: take.u64()?,
                start_offset: take.i64()?,
                next_offset: take.i64()?,
                cleaned_to: take.i64()?,
                epochs: Epochs::take(&mut take)?,
                has_sources: false,
                segments: Vec::new(),
            };
            for _ in 0..take.u32()? {
                log.segments.push(SegmentState::decode(&mut take)?);
            }
            logs.push(log);
        }
        for log in &mut logs {
            log.has_sources = flag(&mut take);
        }
        Some(Self {
            clean,
            next_id,
            logs,
        })
    }
}
