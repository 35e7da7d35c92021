//! A disk in memory that loses what was not synced.
//!
//! Performs the same [`DiskOp`]s as `headrace-io`. Files have durable and current bytes; folders
//! have durable entries and a list of pending changes. A power cut keeps, drops, tears or garbles
//! each unsynced page, and keeps or drops each unsynced entry, independently of each other: more
//! than any file system dares. A kill of the process keeps everything.
//!
//! Also: an effect that fails, for good or once, with what such a failure leaves half done; sectors
//! that read as an error; bytes that change by themselves; and a disk that lies about syncing.

mod faults;
mod file;
mod names;

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::random::Random;
use crate::log::{Disk, DiskError, DiskOp, Path};
pub use faults::Refused;
use faults::{Fuse, Refusals};
use file::{File, PAGE};
use names::{ancestors, below, parent, Change, Names, Node};

/// Lies that a disk may tell. No log survives them; they prove that the checks find a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lie {
    /// It keeps what it says.
    #[default]
    None,
    /// Syncs of files below this folder do nothing.
    SyncBelow(&'static str),
    /// Syncs of folders do nothing.
    SyncFolders,
}

#[derive(Clone, Debug, Default)]
struct State {
    files: Vec<File>,
    current: Names,
    durable: Names,
    pending: Vec<Change>,
    fuse: Option<Fuse>,
    failed: bool,
    refusals: Option<Refusals>,
    /// Effects that were refused once.
    refused: usize,
    /// A sync has failed.
    has_lost: bool,
    /// Something that was let go could not be removed.
    has_leftovers: bool,
    lie: Lie,
    ops: usize,
    /// `(path, sector)` that read as an error.
    unreadable: BTreeSet<(usize, usize)>,
}

/// The disk. Cloning it takes a snapshot.
#[derive(Clone, Debug, Default)]
pub struct SimDisk(RefCell<State>);

impl SimDisk {
    /// An empty disk that tells a lie.
    pub fn lying(lie: Lie) -> Self {
        let disk = Self::default();
        disk.0.borrow_mut().lie = lie;
        disk
    }

    /// The effect after `count` more fails with `why`, and so does everything after it. A write
    /// that fails has written some of its bytes, a sync some of its pages; the rest of them is
    /// dropped and looks clean.
    pub fn fail_after(&self, count: usize, why: &str) {
        let mut state = self.0.borrow_mut();
        state.fuse = Some(Fuse {
            left: count,
            why: why.to_owned(),
            random: Random::new((state.ops + count) as u64),
        });
    }

    /// From now on one effect in so many is refused, as `random` says, and what follows is
    /// performed: what the disk refuses it may take a moment later. A sync that has failed has lost
    /// what [`SimDisk::fail_after`] tells of all the same.
    pub fn refuse_one_in(&self, one_in: u64, what: Refused, random: Random) {
        self.0.borrow_mut().refusals = Some(Refusals {
            what,
            one_in,
            random,
        });
    }

    /// Nothing is refused any more.
    pub fn refuse_nothing(&self) {
        self.0.borrow_mut().refusals = None;
    }

    /// Effects that were refused so far, those that may fail included.
    pub fn refused(&self) -> usize {
        self.0.borrow().refused
    }

    /// A sync has failed: what it was to write may be gone, and no later one tells.
    pub fn has_lost(&self) -> bool {
        self.0.borrow().has_lost
    }

    /// An effect has failed, and all after it do.
    pub fn has_failed(&self) -> bool {
        self.0.borrow().failed
    }

    /// Something that was let go could not be removed.
    pub fn has_leftovers(&self) -> bool {
        self.0.borrow().has_leftovers
    }

    /// Effects so far, the failed ones included.
    pub fn ops(&self) -> usize {
        self.0.borrow().ops
    }

    /// The bytes of a file.
    ///
    /// # Panics
    /// Where there is no such file.
    pub fn bytes(&self, path: &str) -> Vec<u8> {
        let state = self.0.borrow();
        let at = state.file(path).expect("the file exists");
        state.files[at].current.clone()
    }

    /// Puts bytes there behind everybody's back, durably.
    ///
    /// # Panics
    /// Where there is no such file.
    pub fn overwrite(&self, path: &str, bytes: Vec<u8>) {
        let mut state = self.0.borrow_mut();
        let at = state.file(path).expect("the file exists");
        state.files[at] = File::of(bytes);
    }

    /// Removes a file behind everybody's back, durably.
    pub fn erase(&self, path: &str) {
        let mut state = self.0.borrow_mut();
        state.current.remove(path);
        state.durable.remove(path);
    }

    /// Reads that touch this byte's page fail from now on, until it is written over or the next
    /// crash.
    ///
    /// # Panics
    /// Where there is no such file.
    pub fn spoil_page(&self, path: &str, byte: usize) {
        let mut state = self.0.borrow_mut();
        let at = state.file(path).expect("the file exists");
        state.unreadable.insert((at, byte / PAGE));
    }

    /// The first file of a kind.
    ///
    /// # Panics
    /// Where there is none.
    pub fn path_of(&self, kind: &str) -> String {
        let is = |path: &String| path.rsplit('.').next() == Some(kind);
        self.paths().into_iter().find(is).expect("there is one")
    }

    /// Every file, sorted.
    pub fn paths(&self) -> Vec<String> {
        let state = self.0.borrow();
        let files = state
            .current
            .iter()
            .filter(|(_, node)| **node != Node::Folder);
        files.map(|(path, _)| path.clone()).collect()
    }

    fn settle(&self, path: &Path) -> Result<(), DiskError> {
        if self.size(path)?.is_none() {
            return Ok(());
        }
        self.perform(&DiskOp::Sync { path: path.clone() })?;
        self.0.borrow_mut().open(path)?.drop_cache();
        Ok(())
    }

    /// All that was written is there: the process died, the machine did not.
    #[must_use]
    pub fn killed(&self) -> Self {
        let mut state = self.0.borrow().clone();
        state.fuse = None;
        state.failed = false;
        state.refusals = None;
        state.has_lost = false;
        state.has_leftovers = false; // the next start removes them
        state.unreadable.clear();
        Self(RefCell::new(state))
    }

    /// What a power cut leaves.
    #[must_use]
    pub fn power_cut(&self, random: &mut Random) -> Self {
        let state = self.0.borrow();
        let mut names = state.durable.clone();
        for change in &state.pending {
            if random.chance(50) {
                change.apply(&mut names);
            }
        }
        let known = names.clone();
        names.retain(|path, _| ancestors(path).all(|folder| known.contains_key(folder)));
        let files = state
            .files
            .iter()
            .map(|file| file.after_cut(random))
            .collect();
        Self(RefCell::new(State {
            files,
            durable: names.clone(),
            current: names,
            lie: state.lie,
            ..State::default()
        }))
    }
}

impl State {
    fn file(&self, path: &str) -> Option<usize> {
        match self.current.get(path) {
            Some(Node::File(at)) => Some(*at),
            _ => None,
        }
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.pending.push(change);
    }

    fn create(&mut self, path: &str) -> Result<usize, DiskError> {
        if let Some(at) = self.file(path) {
            return Ok(at);
        }
        self.need_folder(parent(path))?;
        self.files.push(File::default());
        let at = self.files.len() - 1;
        self.change(Change::Link(path.to_owned(), Node::File(at)));
        Ok(at)
    }

    fn open(&mut self, path: &str) -> Result<&mut File, DiskError> {
        let at = self.file(path).ok_or_else(|| missing(path))?;
        Ok(&mut self.files[at])
    }

    fn unlink(&mut self, paths: impl IntoIterator<Item = String>) {
        for path in paths {
            self.change(Change::Unlink(path));
        }
    }

    /// A folder is renamed to no name that has something in it.
    fn need_vacant(&self, path: &str) -> Result<(), DiskError> {
        let mut inside = self.current.keys().filter(|name| below(name, path));
        let is_taken = inside.any(|name| name != path);
        let why = || format!("{path}: directory not empty").into();
        (!is_taken).then_some(()).ok_or_else(why)
    }

    fn need_folder(&self, path: &str) -> Result<(), DiskError> {
        let there = path.is_empty() || self.current.get(path) == Some(&Node::Folder);
        there.then_some(()).ok_or_else(|| missing(path))
    }

    fn sync_folder(&mut self, folder: &str) -> Result<(), DiskError> {
        self.need_folder(folder)?;
        if self.lie == Lie::SyncFolders {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        for change in pending {
            if !change.is_in(folder) {
                self.pending.push(change);
                continue;
            }
            change.apply(&mut self.durable);
            if let Change::Move(from, to) = &change {
                // What was pending inside went along.
                self.pending
                    .iter_mut()
                    .for_each(|earlier| earlier.follow(from, to));
            }
        }
        Ok(())
    }

    /// Pages that are written over whole can be read again, as can those that are cut off.
    fn renew(&mut self, path: &str, position: usize, bytes: usize) {
        let Some(at) = self.file(path) else { return };
        let size = self.files[at].current.len();
        let end = position + bytes;
        let fresh = position.div_ceil(PAGE)..if end < size { end / PAGE } else { usize::MAX };
        self.unreadable
            .retain(|(file, page)| *file != at || !fresh.contains(page));
    }

    fn perform(&mut self, op: &DiskOp) -> Result<(), DiskError> {
        match op {
            DiskOp::CreateFolder { path } => {
                if self.current.get(&**path) != Some(&Node::Folder) {
                    self.need_folder(parent(path))?;
                    self.change(Change::Link(path.to_string(), Node::Folder));
                }
            }
            DiskOp::Create { path } => drop(self.create(path)?),
            DiskOp::Write {
                path,
                position,
                data,
            } => {
                self.open(path)?.write(*position as usize, data);
                self.renew(path, *position as usize, data.len());
            }
            DiskOp::Zero { path, bytes } => {
                let at = self.create(path)?;
                self.files[at].write(0, &vec![0; *bytes as usize]);
                self.renew(path, 0, *bytes as usize);
            }
            DiskOp::SetLength { path, bytes } => {
                let file = self.open(path)?;
                file.current.resize(*bytes as usize, 0);
                self.renew(path, *bytes as usize, 0);
            }
            DiskOp::Sync { path } => {
                let lie = self.lie;
                let file = self.open(path)?;
                if !matches!(lie, Lie::SyncBelow(folder) if path.starts_with(folder)) {
                    file.sync();
                }
            }
            DiskOp::SyncFolder { path } => self.sync_folder(path)?,
            DiskOp::Rename { from, to } => {
                self.current.get(&**from).ok_or_else(|| missing(from))?;
                self.need_vacant(to)?;
                self.change(Change::Move(from.to_string(), to.to_string()));
            }
            DiskOp::Remove { path } | DiskOp::LetGo { path } => {
                if self.file(path).is_some() {
                    self.change(Change::Unlink(path.to_string()));
                }
            }
            DiskOp::RemoveFolder { path } => {
                let inside: Vec<String> = self
                    .current
                    .keys()
                    .filter(|name| below(name, path))
                    .cloned()
                    .collect();
                self.unlink(inside.into_iter().rev());
            }
            DiskOp::RemoveEmpty { path } => {
                let is_inside = |name: &String| below(name, path) && **name != **path;
                let is_there = self.current.get(&**path) == Some(&Node::Folder);
                if is_there && !self.current.keys().any(is_inside) {
                    self.change(Change::Unlink(path.to_string()));
                }
            }
            DiskOp::WriteOut { .. } | DiskOp::Close { .. } => {}
            DiskOp::Settle { .. } => unreachable!("it is many"),
        }
        Ok(())
    }
}

impl Disk for SimDisk {
    fn list(&self, folder: &str) -> Result<Vec<String>, DiskError> {
        let state = self.0.borrow();
        let inside = state.current.keys().filter(|path| parent(path) == folder);
        Ok(inside
            .map(|path| path.rsplit('/').next().unwrap_or(path).to_owned())
            .collect())
    }

    fn size(&self, path: &str) -> Result<Option<u64>, DiskError> {
        let state = self.0.borrow();
        Ok(state
            .file(path)
            .map(|at| state.files[at].current.len() as u64))
    }

    fn read(&self, path: &str, position: u64, bytes: usize) -> Result<Vec<u8>, DiskError> {
        let state = self.0.borrow();
        let at = state.file(path).ok_or_else(|| missing(path))?;
        let current = &state.files[at].current;
        let start = (position as usize).min(current.len());
        let end = start.saturating_add(bytes).min(current.len());
        let bad = (at, start / PAGE)..(at, end.div_ceil(PAGE));
        if start < end && state.unreadable.range(bad).next().is_some() {
            let what = "Input/output error: check the disk and its mount";
            return Err(DiskError {
                text: format!("reading {path} failed: {what}"),
                unreadable: true,
                lossy: false,
            });
        }
        Ok(current[start..end].to_vec())
    }

    fn perform(&self, op: &DiskOp) -> Result<(), DiskError> {
        if let DiskOp::Settle { paths } = op {
            return paths.iter().try_for_each(|path| self.settle(path));
        }
        let mut state = self.0.borrow_mut();
        state.ops += 1;
        let outcome = state.burn(op).and_then(|()| state.refuse(op));
        if outcome.is_err() && op.may_fail() {
            state.has_leftovers = true;
            return Ok(());
        }
        outcome?;
        state.perform(op)
    }
}

fn missing(path: &str) -> DiskError {
    format!("{path}: no such file or folder").into()
}
