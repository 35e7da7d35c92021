//! Work beside the rounds: what is unsynced, and how journal files come and go.
//!
//! A journal file is released once everything that was written up to its end is synced; then it
//! is the next spare. A round that finds its file full waits for a spare. Large batches fill
//! segments and leave the journal almost empty, so finished files are synced for their own sake
//! too: each holds a descriptor until it is. Where they are many, rolls wait for that.

use std::collections::BTreeSet;

use super::disk::{DiskOp, Path};
use super::layout;
use super::machine::{Completion, Life, Machine};

/// Files that a roll finishes.
const ROLL_FILES: usize = 4;

/// Files that one chore removes, or an orderly close: removing a gibibyte takes a quarter of a second,
/// and meanwhile neither a journal file is released nor a stream deleted. Those of a large trim go by
/// and by.
pub(super) const LET_GO_FILES: usize = 24;

/// Files that a node keeps descriptors for, for each of its logs: the active segment, and as many of
/// those that rolls have finished.
pub(super) const LOG_DESCRIPTORS: u64 = 1 + LOG_FILES as u64;
pub(super) const LOG_FILES: usize = 3;

/// Work beside the rounds: syncing segments, readying the next journal file.
#[derive(Debug)]
pub struct Chore {
    /// In order.
    pub ops: Vec<DiskOp>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Syncs what is unsynced.
    Sync,
    /// The same, whereupon the journal's previous file becomes the spare.
    Release,
    /// Makes a spare.
    Prepare,
}

/// Files and folders with unsynced changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Dirt {
    pub(super) files: BTreeSet<Path>,
    pub(super) folders: BTreeSet<Path>,
    /// Files that are complete: their descriptors may go once they are synced.
    pub(super) finished: BTreeSet<Path>,
}

impl Machine {
    /// How many segments may begin before a chore has closed what those before them left: all logs
    /// may roll at once, faster than a disk syncs, and must not take all descriptors of the node.
    pub(super) fn rolls_left(&self) -> usize {
        let most = self.options.bounds.finished_files + LOG_FILES * self.logs.len();
        let held = self.dirt.finished.len() + self.syncing.finished.len();
        most.saturating_sub(held) / ROLL_FILES
    }

    /// Background work that is due; None where there is none or one is under way.
    pub fn next_chore(&mut self) -> Option<Chore> {
        let over = self.failed.is_some() || self.life == Life::Closed;
        if over || self.chore_under_way || self.round_is_alone {
            return None;
        }
        let (spare, path) = (layout::SPARE, layout::JOURNAL.into());
        let folder = DiskOp::SyncFolder { path };
        let finished_max = self.options.bounds.finished_files;
        let (kind, ops) = match (self.journal.spare, self.journal.previous) {
            // A deletion waits for the chore under way, and must not wait for one after the other.
            (true, _) if !self.deletions.is_empty() => return None,
            (true, _) if self.dirt.finished.len() < finished_max && !self.has_shed => return None,
            (true, _) => (Kind::Sync, self.sync_all()),
            (false, Some(previous)) => {
                let mut ops = self.sync_all();
                ops.push(DiskOp::Rename {
                    from: layout::journal_file(previous),
                    to: spare.into(),
                });
                ops.push(folder);
                (Kind::Release, ops)
            }
            (false, None) => {
                let (path, bytes) = (Path::from(spare), self.options.journal_bytes);
                let zero = DiskOp::Zero {
                    path: path.clone(),
                    bytes,
                };
                (Kind::Prepare, vec![zero, DiskOp::Sync { path }, folder])
            }
        };
        self.chore_under_way = true;
        Some(Chore { ops, kind })
    }

    fn sync_all(&mut self) -> Vec<DiskOp> {
        self.syncing = std::mem::take(&mut self.dirt);
        let obsolete = self.obsolete(LET_GO_FILES);
        self.syncing.files.retain(|path| !obsolete.contains(path));
        let mut ops = self.syncing.clone().syncs();
        ops.extend(obsolete.into_iter().map(|path| DiskOp::LetGo { path }));
        ops
    }

    /// So many at most of the files that are not needed any more. They go here and not in a round, for a
    /// chore may be syncing them then; and after all is synced, for what replaces them may not be yet.
    pub(super) fn obsolete(&mut self, most: usize) -> BTreeSet<Path> {
        let mut gone = BTreeSet::new();
        self.has_shed = false;
        // A later stream of a name that is being deleted may have files of these names.
        let logs = self.logs.values_mut();
        for log in logs.filter(|log| !self.deleted.contains(&log.id)) {
            let count = log.obsolete.len().min(most - gone.len());
            gone.extend(log.obsolete.drain(..count));
            self.has_shed |= !log.obsolete.is_empty();
        }
        gone
    }

    /// The chore was performed, or failed. Returns the appends that ended by its failure.
    pub fn chore_done(&mut self, chore: &Chore, outcome: Result<(), String>) -> Vec<Completion> {
        self.chore_under_way = false;
        self.syncing = Dirt::default();
        if let Err(why) = outcome {
            self.fail(&format!("{why}, then restart"));
            return std::mem::take(&mut self.ended);
        }
        self.statistics.syncs += chore.ops.iter().filter(|op| op.is_sync()).count() as u64;
        match chore.kind {
            Kind::Sync => {}
            Kind::Release => (self.journal.previous, self.journal.spare) = (None, true),
            Kind::Prepare => self.journal.spare = true,
        }
        Vec::new()
    }
}

impl Dirt {
    /// Takes note of what `ops` left unsynced in the streams' folders.
    pub(super) fn note<'a>(&mut self, ops: impl IntoIterator<Item = &'a DiskOp>) {
        for op in ops {
            match op {
                DiskOp::Write { path, .. } | DiskOp::SetLength { path, .. } => self.file(path),
                DiskOp::Create { path } => {
                    self.file(path);
                    self.entry(path);
                }
                DiskOp::CreateFolder { path } => self.entry(path),
                DiskOp::Remove { path } | DiskOp::LetGo { path } => {
                    self.files.remove(path);
                    self.finished.remove(path);
                    self.entry(path);
                }
                DiskOp::SyncFolder { path } => drop(self.folders.remove(path)),
                _ => {}
            }
        }
    }

    fn file(&mut self, path: &Path) {
        if !path.starts_with(layout::STREAMS) || self.files.contains(path) {
            return;
        }
        self.files.insert(path.clone());
        if !path.ends_with(layout::SEGMENT) {
            self.finished.insert(path.clone()); // side files are written in one go
        }
    }

    fn entry(&mut self, path: &Path) {
        let Some((folder, _)) = path.rsplit_once('/') else {
            return;
        };
        if folder.starts_with(layout::STREAMS) {
            self.folders.insert(folder.into());
        }
    }

    /// The effects that make all of it durable.
    pub(super) fn syncs(self) -> Vec<DiskOp> {
        // All of them are under way before the first is waited for: they share the disk's commits.
        let begun: Vec<DiskOp> = self
            .files
            .iter()
            .cloned()
            .map(|path| DiskOp::WriteOut { path })
            .collect();
        let files = self.files.into_iter().map(|path| DiskOp::Sync { path });
        let folders = self
            .folders
            .into_iter()
            .map(|path| DiskOp::SyncFolder { path });
        let finished = self.finished.into_iter().map(|path| DiskOp::Close { path });
        begun
            .into_iter()
            .chain(files)
            .chain(folders)
            .chain(finished)
            .collect()
    }
}
