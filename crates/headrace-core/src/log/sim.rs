//! A disk in memory that loses what was not synced, for the tests of this folder.
//!
//! Files have durable and current bytes; folders have durable entries and a list of pending
//! changes. A power cut keeps, drops, tears or garbles each unsynced page, and keeps or drops
//! each unsynced entry, independently of each other: more than any file system dares.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::disk::{Disk, DiskError, DiskOp};

const PAGE: usize = 4096;
const SECTOR: usize = 512;

/// The `SplitMix64` generator: a seed gives the same run everywhere.
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Lies that a disk may tell; each must be found out by the tests that check the tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Lie {
    #[default]
    None,
    /// Syncs of files below this folder do nothing.
    SyncBelow(&'static str),
    /// Syncs of folders do nothing.
    SyncFolders,
}

#[derive(Clone, Debug, Default)]
struct File {
    durable: Vec<u8>,
    current: Vec<u8>,
    dirty: BTreeSet<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Folder,
    File(usize),
}

#[derive(Clone, Debug)]
enum Change {
    Link(String, Node),
    Unlink(String),
    Move(String, String),
}

impl Change {
    fn follow(&mut self, from: &str, to: &str) {
        let (Self::Link(path, _) | Self::Unlink(path) | Self::Move(path, _)) = self;
        if below(path, from) {
            *path = format!("{to}{}", &path[from.len()..]);
        }
    }
}

type Names = BTreeMap<String, Node>;

#[derive(Clone, Debug, Default)]
struct State {
    files: Vec<File>,
    current: Names,
    durable: Names,
    pending: Vec<Change>,
    /// Effects until the one that fails, and why it does.
    fuse: Option<(usize, &'static str)>,
    failed: bool,
    lie: Lie,
    ops: usize,
}

/// The disk. Cloning it takes a snapshot.
#[derive(Clone, Debug, Default)]
pub(super) struct SimDisk(RefCell<State>);

impl SimDisk {
    pub(super) fn lying(lie: Lie) -> Self {
        let disk = Self::default();
        disk.0.borrow_mut().lie = lie;
        disk
    }

    /// The effect after `count` more fails with `why`, and so does everything after it.
    pub(super) fn fail_after(&self, count: usize, why: &'static str) {
        self.0.borrow_mut().fuse = Some((count, why));
    }

    pub(super) fn has_failed(&self) -> bool {
        self.0.borrow().failed
    }

    /// Effects performed so far.
    pub(super) fn ops(&self) -> usize {
        self.0.borrow().ops
    }

    /// The bytes of a file.
    pub(super) fn bytes(&self, path: &str) -> Vec<u8> {
        let state = self.0.borrow();
        let at = state.file(path).expect("the file exists");
        state.files[at].current.clone()
    }

    /// Puts bytes there behind everybody's back, durably.
    pub(super) fn overwrite(&self, path: &str, bytes: Vec<u8>) {
        let mut state = self.0.borrow_mut();
        let at = state.file(path).expect("the file exists");
        state.files[at] = File {
            durable: bytes.clone(),
            current: bytes,
            dirty: BTreeSet::new(),
        };
    }

    /// Removes a file behind everybody's back, durably.
    pub(super) fn erase(&self, path: &str) {
        let mut state = self.0.borrow_mut();
        state.current.remove(path);
        state.durable.remove(path);
    }

    /// The first file of a kind.
    pub(super) fn path_of(&self, kind: &str) -> String {
        let is = |path: &String| path.rsplit('.').next() == Some(kind);
        self.paths().into_iter().find(is).expect("there is one")
    }

    /// Every file, sorted.
    pub(super) fn paths(&self) -> Vec<String> {
        let state = self.0.borrow();
        let files = state
            .current
            .iter()
            .filter(|(_, node)| **node != Node::Folder);
        files.map(|(path, _)| path.clone()).collect()
    }

    /// All that was written is durable: the process died, the machine did not.
    pub(super) fn killed(&self) -> Self {
        let mut state = self.0.borrow().clone();
        state.fuse = None;
        state.failed = false;
        Self(RefCell::new(state))
    }

    /// What a power cut leaves.
    pub(super) fn power_cut(&self, random: &mut Random) -> Self {
        let state = self.0.borrow();
        let mut names = state.durable.clone();
        for change in &state.pending {
            if random.chance(50) {
                apply(&mut names, change);
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

impl File {
    fn write(&mut self, position: usize, data: &[u8]) {
        let end = position + data.len();
        if self.current.len() < end {
            self.current.resize(end, 0);
        }
        self.current[position..end].copy_from_slice(data);
        if !data.is_empty() {
            self.dirty.extend(position / PAGE..=(end - 1) / PAGE);
        }
    }

    fn sync(&mut self) {
        self.durable.clone_from(&self.current);
        self.dirty.clear();
    }

    /// Each unsynced page on its own; the length is any that the file had at a page boundary.
    fn after_cut(&self, random: &mut Random) -> Self {
        let (before, after) = (self.durable.len(), self.current.len());
        let length = match random.below(3) {
            0 => before,
            1 => after,
            _ => {
                let (low, high) = (before.min(after), before.max(after));
                (low + random.below(high - low + 1))
                    .next_multiple_of(PAGE)
                    .clamp(low, high)
            }
        };
        let mut bytes = self.durable.clone();
        bytes.resize(length, 0);
        for page in &self.dirty {
            let start = page * PAGE;
            let end = (start + PAGE).min(length).min(after);
            if start >= end {
                continue;
            }
            match random.below(4) {
                0 => {}
                1 => bytes[start..end].copy_from_slice(&self.current[start..end]),
                2 => {
                    for sector in (start..end).step_by(SECTOR) {
                        let end = (sector + SECTOR).min(end);
                        if random.chance(50) {
                            bytes[sector..end].copy_from_slice(&self.current[sector..end]);
                        }
                    }
                }
                _ => bytes[start..end]
                    .iter_mut()
                    .for_each(|byte| *byte = random.next() as u8),
            }
        }
        Self {
            durable: bytes.clone(),
            current: bytes,
            dirty: BTreeSet::new(),
        }
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
        apply(&mut self.current, &change);
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
            let here = match &change {
                Change::Link(path, _) | Change::Unlink(path) => parent(path) == folder,
                // Both folders of a move are synced, one right after the other.
                Change::Move(_, to) => parent(to) == folder,
            };
            if here {
                apply(&mut self.durable, &change);
                if let Change::Move(from, to) = &change {
                    // What was pending inside went along.
                    self.pending
                        .iter_mut()
                        .for_each(|earlier| earlier.follow(from, to));
                }
            } else {
                self.pending.push(change);
            }
        }
        Ok(())
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
            }
            DiskOp::Zero { path, bytes } => {
                let at = self.create(path)?;
                self.files[at].write(0, &vec![0; *bytes as usize]);
            }
            DiskOp::SetLength { path, bytes } => {
                let file = self.open(path)?;
                file.current.resize(*bytes as usize, 0);
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
                self.change(Change::Move(from.to_string(), to.to_string()));
            }
            DiskOp::Remove { path } => {
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
                for name in inside.into_iter().rev() {
                    self.change(Change::Unlink(name));
                }
            }
            DiskOp::WriteOut { .. } | DiskOp::Close { .. } => {}
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
        Ok(current[start..(start + bytes).min(current.len())].to_vec())
    }

    fn perform(&self, op: &DiskOp) -> Result<(), DiskError> {
        let mut state = self.0.borrow_mut();
        state.ops += 1;
        match &mut state.fuse {
            Some((0, why)) => {
                let why = (*why).to_owned();
                state.failed = true;
                return Err(DiskError(why));
            }
            Some((left, _)) => *left -= 1,
            None => {}
        }
        state.perform(op)
    }
}

fn missing(path: &str) -> DiskError {
    DiskError(format!("{path}: no such file or folder"))
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}

/// Applies a change where it can be; a power cut may have dropped what it builds on.
fn apply(names: &mut Names, change: &Change) {
    match change {
        Change::Link(path, node) => {
            names.insert(path.clone(), *node);
        }
        Change::Unlink(path) => {
            names.remove(path);
        }
        Change::Move(from, to) => {
            let moved: Vec<String> = names
                .keys()
                .filter(|path| below(path, from))
                .cloned()
                .collect();
            for path in moved {
                let node = names.remove(&path).expect("it was just listed");
                names.insert(format!("{to}{}", &path[from.len()..]), node);
            }
        }
    }
}
