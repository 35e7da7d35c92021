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
    /// Written since, later ones over earlier ones.
    pieces: Vec<(u64, Vec<u8>)>,
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

    fn file(&self, path: &str) -> Result<Option<File>, DiskError> {
        if let Some(changed) = self.changed.borrow().get(path) {
            return Ok(changed.clone());
        }
        let bytes = self.below.size(path)?;
        Ok(bytes.map(|bytes| File {
            bytes,
            below: Some((path.to_owned(), bytes)),
            pieces: Vec::new(),
        }))
    }

    fn change(&self, path: &str, change: impl FnOnce(&mut File)) -> Result<(), DiskError> {
        let mut file = self.file(path)?.unwrap_or_default();
        change(&mut file);
        self.changed
            .borrow_mut()
            .insert(path.to_owned(), Some(file));
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
        Ok(self.file(path)?.map(|file| file.bytes))
    }

    fn read(&self, path: &str, position: u64, bytes: usize) -> Result<Vec<u8>, DiskError> {
        let Some(Some(file)) = self.changed.borrow().get(path).cloned() else {
            return self.below.read(path, position, bytes);
        };
        let end = file.bytes.min(position.saturating_add(bytes as u64));
        let mut found = vec![0; end.saturating_sub(position) as usize];
        if let Some((below, shown)) = &file.below {
            let wanted = shown.min(&end).saturating_sub(position) as usize;
            let bytes = self.below.read(below, position, wanted)?;
            found[..bytes.len()].copy_from_slice(&bytes);
        }
        for (at, piece) in &file.pieces {
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

    fn perform(&self, op: &DiskOp) -> Result<(), DiskError> {
        match op {
            DiskOp::Create { path } => self.change(path, |_| {}),
            DiskOp::Write {
                path,
                position,
                data,
            } => self.change(path, |file| {
                file.bytes = file.bytes.max(position + data.len() as u64);
                file.pieces.push((*position, data.to_vec()));
            }),
            DiskOp::SetLength { path, bytes } => self.change(path, |file| {
                file.bytes = *bytes;
                if let Some((_, shown)) = &mut file.below {
                    *shown = (*shown).min(*bytes);
                }
                file.pieces.retain(|(at, _)| at < bytes);
                for (at, piece) in &mut file.pieces {
                    piece.truncate((*bytes - *at) as usize);
                }
            }),
            DiskOp::Rename { from, to } => {
                let file = self.file(from)?;
                let mut changed = self.changed.borrow_mut();
                changed.insert(from.to_string(), None);
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
            | DiskOp::DropCache { .. }
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
