//! One commit round: from queued runs to the effects that make them durable.
//!
//! A [`Draft`] is taken from the machine under its lock and built outside of it. The order of
//! the effects is the proof of durability: all of `before` ends with the `fdatasync` that covers
//! the whole round, `after` is page cache only and may be lost, for the journal can rebuild it.

use std::sync::Arc;

use super::disk::{DiskOp, Path};
use super::journal::{entry_bytes_max, Chain, FileHeader, Swap, PAGE, ROUND_HEADER_BYTES};
use super::partition::{LogId, Run};
use super::roll::Roll;

/// What waits for a round, or is in one.
#[derive(Debug)]
pub(super) struct Queued {
    /// Of an append.
    pub(super) ticket: Option<u64>,
    pub(super) log: LogId,
    pub(super) work: Work,
    /// When it was queued, for the latency histogram.
    pub(super) since_ns: u64,
    /// By when it is to be synced, where it ever is; 0 is with its round.
    pub(super) sync_at_ns: Option<u64>,
}

#[derive(Debug)]
pub(super) enum Work {
    /// It is durable once all before it is.
    Repeat,
    Run(Run),
    Roll(Roll),
}

impl Work {
    /// Bytes of batches.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Run(run) => run.bytes.len() as u64,
            Self::Repeat | Self::Roll(_) => 0,
        }
    }

    /// The epoch that begins with it.
    pub(super) fn epoch(&self) -> Option<i32> {
        match self {
            Self::Run(run) => run.epoch,
            Self::Repeat | Self::Roll(_) => None,
        }
    }

    /// The segment that it writes to.
    pub(super) fn segment(&self) -> Option<i64> {
        match self {
            Self::Repeat => None,
            Self::Run(run) => Some(run.segment),
            Self::Roll(roll) => Some(roll.segment),
        }
    }
}

/// All runs of one log and one segment in a round, one after the other.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) log: LogId,
    pub(super) segment: i64,
    pub(super) path: Path,
    /// Folders whose entries are to be synced before a direct write is noted.
    pub(super) folders: Vec<Path>,
    pub(super) position: u64,
    pub(super) parts: Vec<Arc<Vec<u8>>>,
    pub(super) bytes: u64,
    pub(super) next_offset: i64,
    /// Epochs that begin in the group, and where.
    pub(super) epochs: Vec<(i32, i64)>,
    /// What the file of epochs then says, where it changes.
    pub(super) epochs_file: Vec<DiskOp>,
    /// The segment begins with the group.
    pub(super) roll: Option<Roll>,
    /// Committed bytes of the page in which the group begins.
    pub(super) page: Vec<u8>,
    /// They stand in the journal's active file already.
    pub(super) page_logged: bool,
    /// Its pages go straight to the segment.
    pub(super) direct: bool,
}

/// What a round journals.
#[derive(Debug)]
pub(super) enum Piece {
    Register {
        log: LogId,
        partition: u32,
        incarnation: u64,
        created_ms: Option<i64>,
        stream: Arc<str>,
    },
    Trim {
        log: LogId,
        start_offset: i64,
    },
    Replace {
        log: LogId,
        swap: Swap,
    },
    Delete {
        stream: Arc<str>,
    },
    Checkpoint(Vec<u8>),
    Group(Group),
}

/// The journal file that a round goes on to, in place of one that is full.
#[derive(Debug)]
pub(super) struct Rotation {
    pub(super) header: FileHeader,
    pub(super) path: Path,
    pub(super) checkpoint: Vec<u8>,
}

/// Where a round stands in the journal.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: Path,
    pub(super) position: u64,
    pub(super) chain: Chain,
    pub(super) seed: u32,
    /// The first round that may not be synced.
    pub(super) synced: u64,
    pub(super) rotation: Option<Rotation>,
}

/// How a log stands once the round is committed.
#[derive(Debug)]
pub(super) struct Frontier {
    pub(super) log: LogId,
    pub(super) segment: i64,
    pub(super) bytes: u64,
    pub(super) next_offset: i64,
    pub(super) tail: Vec<u8>,
    pub(super) page_logged: bool,
}

/// A round as the machine decided it; pure work remains.
#[derive(Debug)]
pub struct Draft {
    /// Effects before the journal's.
    pub(super) first: Vec<DiskOp>,
    /// How many of them, from the first on, may fail.
    pub(super) attempts: usize,
    pub(super) pieces: Vec<Piece>,
    pub(super) place: Place,
    /// The journal is synced.
    pub(super) sync: bool,
    pub(super) items: Vec<Queued>,
    /// A stream that is gone then, and where its folder stands.
    pub(super) deleted: Option<(Arc<str>, Path)>,
    pub(super) closes: bool,
}

/// A round as effects.
#[derive(Debug)]
pub struct Round {
    /// In order, ending with the sync that makes the round durable, where a log asks for it. Where
    /// one fails, nothing of the round is acknowledged and nothing more is written.
    pub before: Vec<DiskOp>,
    /// How many of these, from the first on, change nothing that counts where one of them fails: then
    /// the round may be taken back ([`Machine::round_refused`](super::Machine::round_refused)).
    pub attempts: usize,
    /// In order, without a sync; then readers may see the round and it is acknowledged.
    pub after: Vec<DiskOp>,
    pub(super) items: Vec<Queued>,
    pub(super) frontiers: Vec<Frontier>,
    pub(super) registered: Vec<LogId>,
    pub(super) trimmed: Vec<(LogId, i64)>,
    pub(super) replaces: bool,
    pub(super) direct_writes: u64,
    pub(super) synced: bool,
    pub(super) deleted: Option<(Arc<str>, Path)>,
    pub(super) closes: bool,
    /// The journal after the round; None where it wrote nothing.
    pub(super) journal: Option<Journalled>,
}

/// Where the journal stands after a round.
#[derive(Debug)]
pub(super) struct Journalled {
    pub(super) chain: Chain,
    pub(super) position: u64,
    pub(super) bytes: u64,
    pub(super) rotated: Option<(FileHeader, Path)>,
}

impl Group {
    pub(super) fn roll_ops(&self) -> impl Iterator<Item = DiskOp> + '_ {
        self.roll.iter().flat_map(|roll| roll.ops.iter().cloned())
    }

    /// Bytes of the group that go through the journal: all of it, or up to the next page.
    pub(super) fn journalled(&self) -> u64 {
        if self.direct {
            (self.position.next_multiple_of(PAGE as u64) - self.position).min(self.bytes)
        } else {
            self.bytes
        }
    }
}

/// Upper bound of the journal bytes of a group of `bytes`.
pub(super) fn group_bytes_max(bytes: u64, direct: bool) -> u64 {
    let run = if direct { PAGE as u64 } else { bytes };
    run + (PAGE + 3 * entry_bytes_max(0)) as u64
}

/// Bytes of a round whose entries take `bytes`.
pub(super) fn round_bytes(bytes: u64) -> u64 {
    (bytes + ROUND_HEADER_BYTES as u64).next_multiple_of(PAGE as u64)
}
