//! What the records of a log come to, kept beside it as `<offset>.state`: true of all records
//! below that offset. A start reads it, and the records from there on.
//!
//! Opaque here. Invariants: a state is whole and durable before the older one goes, and then it does:
//! what compaction has taken since would come back with it. One that is damaged, or of records that
//! the log has not, is never given out, and is named; the records are always true.

use super::disk::{Disk, DiskOp};
use super::error::Error;
use super::kept::{Kept, Kind};
use super::layout;
use super::machine::Machine;
use super::partition::LogId;

pub(super) const STATES: Kind = Kind {
    name: layout::STATE,
    magic: *b"HRSTATE\x01",
};

/// Where the states of a log are.
#[derive(Debug)]
pub struct StatePlace {
    kept: Kept,
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
        let kept = Kept::beside(self.log(log)?, STATES);
        Ok(StatePlace { kept, end })
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
        let mut older = self.kept.offsets(disk)?;
        older.retain(|found| *found < offset);
        let ops = self.kept.put(offset, state, older);
        Ok(disk.perform_all(&ops)?)
    }

    /// The newest state, where it is of use. One of records that are not there would come true of
    /// others: it goes.
    pub fn load(&self, disk: &impl Disk) -> Result<FoundState, Error> {
        let mut found = FoundState::default();
        for offset in self.kept.offsets(disk)?.into_iter().rev() {
            let path = self.kept.file(offset);
            if offset > self.end {
                let end = self.end;
                found
                    .ignored
                    .push(format!("{path} is newer than the log, which ends at {end}"));
                disk.perform(&DiskOp::Remove { path })?;
                continue;
            }
            match self.kept.get(disk, offset)? {
                Some(state) => (found.offset, found.state) = (offset, state),
                None => found.ignored.push(format!("{path} is damaged")),
            }
            break; // an older one may be too old
        }
        Ok(found)
    }
}
