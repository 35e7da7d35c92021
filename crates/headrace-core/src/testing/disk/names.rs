//! The entries of folders, and changes to them that no folder sync has made durable.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Folder,
    File(usize),
}

#[derive(Clone, Debug)]
pub(super) enum Change {
    Link(String, Node),
    Unlink(String),
    Move(String, String),
}

pub(super) type Names = BTreeMap<String, Node>;

impl Change {
    /// The change after the folder `from`, in which it happened, was renamed to `to`.
    pub(super) fn follow(&mut self, from: &str, to: &str) {
        let paths = match self {
            Self::Link(path, _) | Self::Unlink(path) => vec![path],
            Self::Move(path, target) => vec![path, target],
        };
        for path in paths.into_iter().filter(|path| below(path, from)) {
            *path = format!("{to}{}", &path[from.len()..]);
        }
    }

    /// A sync of `folder` makes it durable. Both folders of a move are synced, one right after
    /// the other.
    pub(super) fn is_in(&self, folder: &str) -> bool {
        let (Self::Link(path, _) | Self::Unlink(path) | Self::Move(_, path)) = self;
        parent(path) == folder
    }

    /// Makes the change where it can be made; a power cut may have dropped what it builds on.
    pub(super) fn apply(&self, names: &mut Names) {
        match self {
            Self::Link(path, node) => {
                names.insert(path.clone(), *node);
            }
            Self::Unlink(path) => {
                names.remove(path);
            }
            Self::Move(from, to) => {
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
}

pub(super) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

pub(super) fn below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(super) fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(at, _)| &path[..at])
}
