//! Planted faults: what a shell or a disk may do wrong. Each must be found, or the checks are
//! worth nothing. They work from outside: the machines know nothing of them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::disk::{Lie, SimDisk};
use crate::log::{Disk, DiskError, DiskOp, Slice};

/// A fault that a run is to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sabotage {
    /// None.
    #[default]
    None,
    /// Appends are acknowledged before the journal's sync.
    AcknowledgeEarly,
    /// Journal files are used again before the segments are synced.
    ReuseJournal,
    /// A start takes the last acknowledged round for torn and cuts what it wrote.
    CutDurable,
    /// Folders are never synced.
    SkipFolderSync,
    /// Indexes that were written once are not written again.
    StaleIndex,
    /// Snapshots of producers are those of the first that was taken.
    ForgetProducers,
    /// Now and then a completion goes missing.
    DropCompletion,
    /// The disk says that it has synced files, and has not.
    LostSync,
    /// A compaction does not sync what it wrote.
    SwapUnsynced,
    /// A compaction removes segments before those that replace them count.
    RemoveBeforeSwap,
    /// The sync that an interval asks for is put off for ever.
    SkipTimedSync,
    /// What the disk has refused is taken for done.
    SwallowRefusal,
    /// A sync that has failed is called again, and believed then.
    SyncAgain,
    /// Appends to a log that could not be made are acknowledged.
    AcknowledgeRefused,
    /// A round that was refused is taken for done, and its logs for made.
    KeepRefused,
}

impl Sabotage {
    /// All but none.
    pub const ALL: [Self; 15] = [
        Self::AcknowledgeEarly,
        Self::ReuseJournal,
        Self::CutDurable,
        Self::SkipFolderSync,
        Self::StaleIndex,
        Self::ForgetProducers,
        Self::DropCompletion,
        Self::LostSync,
        Self::SwapUnsynced,
        Self::RemoveBeforeSwap,
        Self::SkipTimedSync,
        Self::SwallowRefusal,
        Self::SyncAgain,
        Self::AcknowledgeRefused,
        Self::KeepRefused,
    ];

    /// As a command line says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::AcknowledgeEarly => "acknowledge-early",
            Self::ReuseJournal => "reuse-journal",
            Self::CutDurable => "cut-durable",
            Self::SkipFolderSync => "skip-folder-sync",
            Self::StaleIndex => "stale-index",
            Self::ForgetProducers => "forget-producers",
            Self::DropCompletion => "drop-completion",
            Self::LostSync => "lost-sync",
            Self::SwapUnsynced => "swap-unsynced",
            Self::RemoveBeforeSwap => "remove-before-swap",
            Self::SkipTimedSync => "skip-timed-sync",
            Self::SwallowRefusal => "swallow-refusal",
            Self::SyncAgain => "sync-again",
            Self::AcknowledgeRefused => "acknowledge-refused",
            Self::KeepRefused => "keep-refused",
        }
    }

    /// The fault of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = std::iter::once(Self::None).chain(Self::ALL);
        all.into_iter().find(|fault| fault.name() == name)
    }

    pub(super) fn disk(self) -> SimDisk {
        match self {
            Self::LostSync => SimDisk::lying(Lie::SyncBelow("")),
            _ => SimDisk::default(),
        }
    }
}

/// The disk as a shell with that fault uses it.
#[derive(Clone, Debug)]
pub(super) struct Saboteur {
    pub(super) disk: SimDisk,
    pub(super) sabotage: Sabotage,
    /// The first snapshot of producers of each folder.
    pub(super) snapshots: RefCell<BTreeMap<String, Slice>>,
    /// The place of the last acknowledged round.
    pub(super) last_round: Option<(String, u64)>,
}

impl Saboteur {
    pub(super) fn new(disk: SimDisk, sabotage: Sabotage) -> Self {
        Self {
            disk,
            sabotage,
            snapshots: RefCell::default(),
            last_round: None,
        }
    }

    fn is_written(&self, path: &str) -> bool {
        self.disk.size(path).is_ok_and(|bytes| bytes > Some(0))
    }

    /// What is performed in place of `op`; None: nothing.
    fn twist(&self, op: &DiskOp) -> Option<DiskOp> {
        match (self.sabotage, op) {
            (Sabotage::SkipFolderSync, DiskOp::SyncFolder { .. }) => None,
            (Sabotage::StaleIndex, DiskOp::SetLength { path, .. } | DiskOp::Write { path, .. })
                if path.ends_with("index") && self.is_written(path) =>
            {
                None
            }
            (
                Sabotage::ForgetProducers,
                DiskOp::Write {
                    path,
                    position,
                    data,
                },
            ) if path.ends_with(".producers") => {
                let (folder, _) = path.rsplit_once('/').expect("it is in a folder");
                let mut snapshots = self.snapshots.borrow_mut();
                let first = snapshots
                    .entry(folder.to_owned())
                    .or_insert_with(|| data.clone());
                Some(DiskOp::Write {
                    path: path.clone(),
                    position: *position,
                    data: first.clone(),
                })
            }
            _ => Some(op.clone()),
        }
    }
}

impl Disk for Saboteur {
    fn list(&self, folder: &str) -> Result<Vec<String>, DiskError> {
        self.disk.list(folder)
    }

    fn size(&self, path: &str) -> Result<Option<u64>, DiskError> {
        self.disk.size(path)
    }

    fn read(&self, path: &str, position: u64, bytes: usize) -> Result<Vec<u8>, DiskError> {
        let mut found = self.disk.read(path, position, bytes)?;
        if let Some((journal, round)) = &self.last_round {
            if self.sabotage == Sabotage::CutDurable && journal == path {
                let kept = round.saturating_sub(position).min(found.len() as u64);
                found[kept as usize..].fill(0);
            }
        }
        Ok(found)
    }

    fn perform(&self, op: &DiskOp) -> Result<(), DiskError> {
        let perform = |op: Option<&DiskOp>| op.map_or(Ok(()), |op| self.disk.perform(op));
        let twisted = self.twist(op);
        let outcome = perform(twisted.as_ref());
        match self.sabotage {
            Sabotage::SwallowRefusal if !op.is_sync() => Ok(()),
            Sabotage::SyncAgain if op.is_sync() && outcome.is_err() => perform(twisted.as_ref()),
            _ => outcome,
        }
    }
}
