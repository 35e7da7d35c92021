//! What the records of a log come to, kept beside it as `<offset>.state`: true of all records
//! below that offset. A start reads it, and the records from there on.
//!
//! Opaque here. Invariants: a state is whole and durable before the older one goes, and then it does:
//! what compaction has taken since would come back with it. One that is damaged, or of records that
//! the log has not, is never given out, and is named; the records are always true.

use super::codec::{seal, unseal, Put, Take};
use super::disk::{Disk, DiskOp, Path};
use super::error::Error;
use super::layout;
use super::machine::Machine;
use super::partition::{replace, LogId};
use super::scan;

const MAGIC: [u8; 8] = *b"HRSTATE\x01";

/// Where the states of a log are.
#[derive(Debug)]
pub struct StatePlace {
    folder: Path,
    /// The folder above it.
    stream: Path,
    /// The high watermark.
    end: i64,
}

/// What was found there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundState {
    /// Records below this offset are in `state`.
    pub offset: i64,
    /// Empty where none is of use.
    pub state: Vec<u8>,
    /// Files of no use, and why; the newest first.
    pub ignored: Vec<String>,
}

impl Machine {
    /// Where the states of `log` are.
    pub fn state_place(&self, log: LogId) -> Result<StatePlace, Error> {
        let (_, end) = self.bounds(log)?;
        let log = self.log(log)?;
        Ok(StatePlace {
            folder: log.folder.clone(),
            stream: layout::stream_folder(&log.stream),
            end,
        })
    }
}

impl StatePlace {
    /// Keeps `state`, which is what all records below `offset` come to; durable on return.
    pub fn save(&self, disk: &impl Disk, offset: i64, state: &[u8]) -> Result<(), Error> {
        if offset < 1 || offset > self.end {
            let end = self.end;
            return Err(Error::Argument(format!(
                "offset {offset} is outside [1, {end}]"
            )));
        }
        let mut body = Vec::with_capacity(8 + state.len());
        body.put_i64(offset);
        body.extend_from_slice(state);
        let fresh: Path = format!("{}/state.new", self.folder).into();
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
            to: self.file(offset),
        });
        // A young log's folder is still the journal's to make again, without this file.
        let above = [self.stream.clone(), layout::STREAMS.into()];
        for path in above.into_iter().chain([self.folder.clone()]) {
            ops.push(DiskOp::SyncFolder { path });
        }
        let older = self.offsets(disk)?;
        for offset in older.into_iter().filter(|found| *found < offset) {
            let path = self.file(offset);
            ops.push(DiskOp::LetGo { path });
        }
        ops.iter().try_for_each(|op| Ok(disk.perform(op)?))
    }

    /// The newest state, where it is of use. One of records that are not there would come true of
    /// others: it goes.
    pub fn load(&self, disk: &impl Disk) -> Result<FoundState, Error> {
        let mut found = FoundState::default();
        for offset in self.offsets(disk)?.into_iter().rev() {
            let path = self.file(offset);
            if offset > self.end {
                let end = self.end;
                found
                    .ignored
                    .push(format!("{path} is newer than the log, which ends at {end}"));
                disk.perform(&DiskOp::Remove { path })?;
                continue;
            }
            match decode(&scan::side_file(disk, &path)?, offset) {
                Some(state) => (found.offset, found.state) = (offset, state),
                None => found.ignored.push(format!("{path} is damaged")),
            }
            break; // an older one may be too old
        }
        Ok(found)
    }

    fn offsets(&self, disk: &impl Disk) -> Result<Vec<i64>, Error> {
        Ok(layout::offsets(&disk.list(&self.folder)?, layout::STATE))
    }

    fn file(&self, offset: i64) -> Path {
        layout::file(&self.folder, offset, layout::STATE)
    }
}

fn decode(file: &[u8], offset: i64) -> Option<Vec<u8>> {
    let mut take = Take(unseal(MAGIC, file)?);
    (take.i64()? == offset).then(|| take.0.to_vec())
}
