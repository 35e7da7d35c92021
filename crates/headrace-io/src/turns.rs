//! One at a time, by name.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use headrace_core::log::Path;

/// Names whose turn it is.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    taken: Mutex<BTreeSet<Path>>,
    left: Condvar,
}

/// A turn, which ends where this goes.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    name: &'a Path,
}

impl Turns {
    fn names(&self) -> MutexGuard<'_, BTreeSet<Path>> {
        // A set of names is sound whatever a thread that died was doing.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn of `name`.
    pub(crate) fn take<'a>(&'a self, name: &'a Path) -> Turn<'a> {
        let waits = |names: &mut BTreeSet<Path>| !names.insert(name.clone());
        let taken = self.left.wait_while(self.names(), waits);
        drop(taken.unwrap_or_else(PoisonError::into_inner));
        Turn { turns: self, name }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turns.names().remove(self.name);
        self.turns.left.notify_all();
    }
}
