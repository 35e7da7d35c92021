//! A disk over a disk: what is written stays in memory, so that a start can be tried out.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use crate::log::disk::{Disk, DiskError, DiskOp};

/// A file that was changed.
#[derive(Clone, Debug, Default)]
struct File {
    bytes: u64,
    /// What it was below, and how many bytes of that still show.
    below: Option<(String, u64)>,
    /// Written since, by position; none lies over another.
    pieces: BTreeMap<u64, Vec<u8>>,
}

impl File {
    fn write(&mut self, position: u64, data: &[u8]) {
        let end = position + data.len() as u64;
        self.bytes = self.bytes.max(end);
        if data.is_empty() {
            return;
        }
        let before = self.pieces.range(..position).next_back();
        let over = before.map(|(at, _)| *at).into_iter();
        let over = over.chain(self.pieces.range(position..end).map(|(at, _)| *at));
        for at in over.collect::<Vec<_>>() {
            let mut piece = self.pieces.remove(&at).expect("it was found");
            let length = piece.len() as u64;
            if at + length > end {
                let rest = piece.split_off((end - at) as usize);
                self.pieces.insert(end, rest);
            }
            if at < position {
                piece.truncate((position - at) as usize);
                self.pieces.insert(at, piece);
            }
        }
        self.pieces.insert(position, data.to_vec());
    }

    fn set_length(&mut self, bytes: u64) {
        self.bytes = bytes;
        if let Some((_, shown)) = &mut self.below {
            *shown = (*shown).min(bytes);
        }
        drop(self.pieces.split_off(&bytes));
        if let Some((at, piece)) = self.pieces.iter_mut().next_back() {
            piece.truncate((bytes - at) as usize);
        }
    }

    fn read(&self, disk: &impl Disk, position: u64, bytes: usize) -> Result<Vec<u8>, DiskError> {
        let end = self.bytes.min(position.saturating_add(bytes as u64));
        let mut found = vec![0; end.saturating_sub(position) as usize];
        if let Some((below, shown)) = &self.below {
            let wanted = shown.min(&end).saturating_sub(position) as usize;
            let bytes = disk.read(below, position, wanted)?;
            found[..bytes.len()].copy_from_slice(&bytes);
        }
        let before = self.pieces.range(..position).next_back();
        let within = position..end.max(position);
        for (at, piece) in before.into_iter().chain(self.pieces.range(within)) {
            let from = (*at).max(position);
            let to = (at + piece.len() as u64).min(end);
            if from < to {
                let (into, out) = ((from - position) as usize, (from - at) as usize);
                let count = (to - from) as usize;
                found[into..into + count].copy_from_slice(&piece[out..out + count]);
            }
        }
        Ok(found)
    }
}

/// The disk `below` and what was changed since; None marks a file that is gone.
pub(super) struct Overlay<'a, D> {
    below: &'a D,
    changed: RefCell<BTreeMap<String, Option<File>>>,
}

impl<'a, D: Disk> Overlay<'a, D> {
    pub(super) fn new(below: &'a D) -> Self {
        Self {
            below,
            changed: RefCell::default(),
        }
    }

    /// The file as it is on the disk below.
    fn below(&self, path: &str) -> Result<Option<File>, DiskError> {
        let bytes = self.below.size(path)?;
        Ok(bytes.map(|bytes| File {
            bytes,
            below: Some((path.to_owned(), bytes)),
            pieces: BTreeMap::new(),
        }))
    }

    fn change(&self, path: &str, change: impl FnOnce(&mut File)) -> Result<(), DiskError> {
        let mut changed = self.changed.borrow_mut();
        if !changed.contains_key(path) {
            changed.insert(path.to_owned(), self.below(path)?);
        }
        let file = changed.get_mut(path).expect("it was put there");
        change(file.get_or_insert_default());
        Ok(())
    }
}

impl<D: Disk> Disk for Overlay<'_, D> {
    fn list(&self, folder: &str) -> Result<Vec<String>, DiskError> {
        let mut names: BTreeSet<String> = self.below.list(folder)?.into_iter().collect();
        for (path, file) in &*self.changed.borrow() {
            let name = path
                .strip_prefix(folder)
                .and_then(|rest| rest.strip_prefix('/'));
            let Some(name) = name.filter(|name| !name.contains('/')) else {
                continue;
            };
            if file.is_some() {
                names.insert(name.to_owned());
            } else {
                names.remove(name);
            }
        }
        Ok(names.into_iter().collect())
    }

    fn size(&self, path: &str) -> Result<Option<u64>, DiskError> {
        match self.changed.borrow().get(path) {
            Some(changed) => Ok(changed.as_ref().map(|file| file.bytes)),
            None => self.below.size(path),
        }
    }

    fn read(&self, path: &str, position: u64, bytes: usize) -> Result<Vec<u8>, DiskError> {
        match self.changed.borrow().get(path) {
            Some(Some(file)) => file.read(self.below, position, bytes),
            _ => self.below.read(path, position, bytes),
        }
    }

    fn perform(&self, op: &DiskOp) -> Result<(), DiskError> {
        match op {
            DiskOp::Create { path } => self.change(path, |_| {}),
            DiskOp::Write {
                path,
                position,
                data,
            } => self.change(path, |file| file.write(*position, data)),
            DiskOp::SetLength { path, bytes } => self.change(path, |file| file.set_length(*bytes)),
            DiskOp::Rename { from, to } => {
                let mut changed = self.changed.borrow_mut();
                let file = match changed.insert(from.to_string(), None) {
                    Some(file) => file,
                    None => self.below(from)?,
                };
                changed.insert(to.to_string(), file);
                Ok(())
            }
            DiskOp::Remove { path } | DiskOp::LetGo { path } => {
                self.changed.borrow_mut().insert(path.to_string(), None);
                Ok(())
            }
            // Nothing here is ever durable, and nothing that is tried out needs more of these.
            DiskOp::CreateFolder { .. }
            | DiskOp::RemoveFolder { .. }
            | DiskOp::RemoveEmpty { .. }
            | DiskOp::Zero { .. }
            | DiskOp::WriteOut { .. }
            | DiskOp::Sync { .. }
            | DiskOp::Settle { .. }
            | DiskOp::SyncFolder { .. }
            | DiskOp::Close { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, SimDisk};

    const PATHS: [&str; 3] = ["a/1", "a/2", "a/3"];

    fn op(random: &mut Random, disk: &impl Disk) -> DiskOp {
        let path = |random: &mut Random| PATHS[random.below(PATHS.len())].into();
        let existing = |disk: &dyn Fn(&str) -> bool, random: &mut Random| {
            let there: Vec<&str> = PATHS.into_iter().filter(|path| disk(path)).collect();
            (!there.is_empty()).then(|| there[random.below(there.len())].into())
        };
        let is_there = |path: &str| disk.size(path).unwrap().is_some();
        let Some(file) = existing(&is_there, random) else {
            return DiskOp::Create { path: path(random) };
        };
        match random.below(6) {
            0 => DiskOp::Create { path: path(random) },
            1 => DiskOp::Remove { path: path(random) },
            2 => DiskOp::Rename {
                from: file,
                to: path(random),
            },
            3 => DiskOp::SetLength {
                path: file,
                bytes: random.below(60) as u64,
            },
            _ => DiskOp::Write {
                path: file,
                position: random.below(40) as u64,
                data: vec![random.below(255) as u8 + 1; random.below(30)].into(),
            },
        }
    }

    fn all(disk: &impl Disk) -> Vec<(String, Vec<u8>)> {
        let names = disk.list("a").unwrap();
        let read = |name: String| {
            let path = format!("a/{name}");
            let size = disk.size(&path).unwrap().unwrap();
            let bytes = disk.read(&path, 0, 1000).unwrap();
            assert_eq!(bytes.len() as u64, size);
            let tail = disk.read(&path, size / 3, 7).unwrap();
            let from = (size / 3) as usize;
            assert_eq!(tail, bytes[from..(from + 7).min(bytes.len())]);
            (path, bytes)
        };
        names.into_iter().map(read).collect()
    }

    /// As a start writes the batches of a journal, each with what stands before it in its page.
    #[test]
    fn what_is_written_over_takes_no_room_and_makes_no_read_longer() {
        let mut file = File::default();
        let pages = 1000;
        for at in 0..8 * pages {
            let (position, end) = (at / 8 * 4096, at * 512 + 512);
            file.write(position, &vec![at as u8; (end - position) as usize]);
        }
        let held: usize = file.pieces.values().map(Vec::len).sum();
        assert_eq!((file.bytes, held as u64), (4096 * pages, 4096 * pages));
        assert_eq!(file.pieces.len() as u64, pages);
        assert_eq!(file.pieces.range(4096 * 7..4096 * 9).count(), 2);
    }

    #[test]
    fn what_is_tried_out_is_what_would_be_and_the_disk_below_stays() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let below = SimDisk::default();
            below
                .perform(&DiskOp::CreateFolder { path: "a".into() })
                .unwrap();
            for _ in 0..random.below(8) {
                below.perform(&op(&mut random, &below)).unwrap();
            }
            let (before, model) = (all(&below), below.clone());
            let overlay = Overlay::new(&below);
            for _ in 0..30 {
                let op = op(&mut random, &model);
                model.perform(&op).unwrap();
                overlay.perform(&op).unwrap();
                assert_eq!(all(&overlay), all(&model), "seed {seed}: {op:?}");
            }
            assert_eq!(all(&below), before);
        }
    }
}
