//! The last `(source, epoch, sequence)` of each MQTT publisher in one log.
//!
//! Kept beside the log as `<offset>.sources`: what is true of all records below that offset.
//! After a crash the records from there on are read for the rest.

use std::collections::BTreeMap;

use super::codec::{seal, unseal, Put, Take};
use super::disk::{Disk, DiskOp, Path};
use super::error::Error;
use super::layout;
use super::machine::Machine;
use super::partition::{replace, LogId, SNAPSHOTS};
use super::read::{newest, Walk};
use crate::record::{Batch, Batches, Records, DECOMPRESSED_BYTES_MAX};

const MAGIC: [u8; 8] = *b"HRSRCS\0\x01";

/// Name, epoch, sequence.
pub type SourceState = (String, u64, u64);

/// How to find the sources of a log.
#[derive(Debug)]
pub struct SourcesPlan {
    folder: Path,
    walks: Vec<Walk>,
    end: i64,
}

impl Machine {
    /// The way to the sources of the committed records of `log`.
    pub fn plan_sources(&self, log: LogId) -> Result<SourcesPlan, Error> {
        let (start, end) = self.bounds(log)?;
        let (folder, walks) = self.plan_all(log, start)?;
        Ok(SourcesPlan { folder, walks, end })
    }

    /// The effects that keep `sources`, which hold for all records of `log` below `end`; to be
    /// performed at once, by the caller.
    pub fn save_sources(
        &mut self,
        log: LogId,
        end: i64,
        sources: &[SourceState],
    ) -> Result<Vec<DiskOp>, Error> {
        let log = self.log_mut(log)?;
        if end == 0 {
            return Ok(Vec::new()); // no record, no source; maybe no folder yet
        }
        let folder = &log.folder;
        let mut body = Vec::new();
        body.put_u32(sources.len() as u32);
        for (name, epoch, sequence) in sources {
            body.put_text(name);
            body.put_u64(*epoch);
            body.put_u64(*sequence);
        }
        let path = layout::file(folder, end, layout::SOURCES);
        let fresh: Path = format!("{path}.new").into();
        let mut ops = Vec::new();
        replace(&mut ops, fresh.clone(), seal(MAGIC, &body));
        ops.push(DiskOp::Sync {
            path: fresh.clone(),
        });
        ops.push(DiskOp::Close {
            path: fresh.clone(),
        });
        ops.push(DiskOp::Rename {
            from: fresh,
            to: path,
        });
        if let Err(place) = log.source_snapshots.binary_search(&end) {
            log.source_snapshots.insert(place, end);
        }
        let old = log.source_snapshots.len().saturating_sub(SNAPSHOTS);
        for offset in log.source_snapshots.drain(..old) {
            let path = layout::file(folder, offset, layout::SOURCES);
            ops.push(DiskOp::LetGo { path });
        }
        ops.push(DiskOp::SyncFolder {
            path: folder.clone(),
        });
        Ok(ops)
    }
}

impl SourcesPlan {
    /// Offset after the last record that it takes note of.
    pub fn end(&self) -> i64 {
        self.end
    }

    /// Loads the newest snapshot and reads on from there.
    pub fn read(&self, disk: &impl Disk) -> Result<Vec<SourceState>, Error> {
        let mut scratch = Vec::new();
        let mut sources = Sources::load(disk, &self.folder, self.end)?;
        let from = sources.from;
        let first = self
            .walks
            .iter()
            .rposition(|walk| walk.base() <= from)
            .unwrap_or(0);
        for walk in &self.walks[first..] {
            let mut wanted = Vec::new();
            walk.each(disk, super::read::SLACK_BYTES, |position, header, _| {
                if (from..self.end).contains(&header.last_offset()) {
                    wanted.push((position, header.batch_bytes()));
                }
                true
            })?;
            for (position, bytes) in wanted {
                let bytes = walk.bytes(disk, position, bytes)?;
                for batch in Batches::new(&bytes).map_while(Result::ok) {
                    sources.note(&batch, &mut scratch);
                }
            }
        }
        Ok(sources.states())
    }
}

/// The sources of the records below an offset, as far as they were read.
#[derive(Debug)]
pub(super) struct Sources {
    /// Of a snapshot that tells of all records below.
    from: i64,
    /// They hold for all records below.
    pub(super) end: i64,
    last: BTreeMap<String, (u64, u64)>,
}

impl Sources {
    /// What the newest snapshot tells that is of no later offset than `end`.
    pub(super) fn load(disk: &impl Disk, folder: &str, end: i64) -> Result<Self, Error> {
        let saved = newest(
            disk,
            folder,
            layout::SOURCES,
            |offset| offset <= end,
            decode,
        )?;
        let (from, saved) = saved.unwrap_or_default();
        let saved = saved.into_iter();
        Ok(Self {
            from,
            end,
            last: saved
                .map(|(name, epoch, last)| (name, (epoch, last)))
                .collect(),
        })
    }

    pub(super) fn note(&mut self, batch: &Batch, scratch: &mut Vec<u8>) {
        if !batch.header.is_published() {
            return; // what another door's client copies from elsewhere is no publisher's word
        }
        // What cannot be opened is no batch of this node's making.
        let Ok(body) = batch.open(scratch, DECOMPRESSED_BYTES_MAX) else {
            return;
        };
        let records = Records::new(&batch.header, body).map_while(Result::ok);
        for record in records {
            let Some(source) = record.source() else {
                continue;
            };
            let found = (source.epoch, source.sequence);
            match self.last.get_mut(source.name) {
                Some(last) => *last = found.max(*last),
                None => drop(self.last.insert(source.name.to_owned(), found)),
            }
        }
    }

    /// Whether they tell more than the snapshots.
    pub(super) fn is_news(&self) -> bool {
        self.end > self.from && !self.last.is_empty()
    }

    pub(super) fn states(self) -> Vec<SourceState> {
        let last = self.last.into_iter();
        last.map(|(name, (epoch, last))| (name, epoch, last))
            .collect()
    }
}

pub(super) fn decode(file: &[u8]) -> Option<Vec<SourceState>> {
    let mut take = Take(unseal(MAGIC, file)?);
    (0..take.u32()?)
        .map(|_| Some((take.text()?.to_owned(), take.u64()?, take.u64()?)))
        .collect()
}
