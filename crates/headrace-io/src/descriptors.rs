//! Descriptors for reading: the files read last stay open, up to a bound.
//!
//! Must not know: who reads, or what is written. Invariant: a name that is forgotten never finds
//! the file that it had before, also where that was being opened meanwhile.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headrace_core::hash::Map;
use headrace_core::log::Path;

/// Files kept open. Readers at more places than these open theirs again for each read, which
/// costs them microseconds beside the megabyte that they read.
const DESCRIPTORS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Descriptors(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: Map<Path, Kept>,
    /// Counts uses, to tell which file was used least recently.
    uses: u64,
    /// Counts calls of [`Descriptors::forget`].
    forgotten: u64,
}

#[derive(Debug)]
struct Kept {
    file: Arc<File>,
    used: u64,
}

impl Descriptors {
    /// The file, where it is open.
    pub(crate) fn get(&self, path: &str) -> Option<Arc<File>> {
        let mut state = self.lock();
        state.uses += 1;
        let used = state.uses;
        let kept = state.open.get_mut(path)?;
        kept.used = used;
        Some(kept.file.clone())
    }

    /// The file, opened where it is not.
    pub(crate) fn open(
        &self,
        path: &str,
        open: impl FnOnce() -> io::Result<File>,
    ) -> io::Result<Arc<File>> {
        if let Some(file) = self.get(path) {
            return Ok(file);
        }
        let forgotten = self.lock().forgotten;
        let file = Arc::new(open()?);
        let mut state = self.lock();
        if state.forgotten == forgotten {
            state.make_room();
            let used = state.uses;
            let file = file.clone();
            state.open.insert(path.into(), Kept { file, used });
        }
        Ok(file)
    }

    /// How many are open.
    pub(crate) fn count(&self) -> usize {
        self.lock().open.len()
    }

    /// Closes files; `gone` says which.
    pub(crate) fn forget(&self, gone: impl Fn(&str) -> bool) {
        let mut state = self.lock();
        state.forgotten += 1;
        state.open.retain(|path, _| !gone(path));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A map of descriptors is sound whatever a thread that died was doing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn make_room(&mut self) {
        if self.open.len() < DESCRIPTORS_MAX {
            return;
        }
        let oldest = self.open.iter().min_by_key(|(_, kept)| kept.used);
        if let Some(path) = oldest.map(|(path, _)| path.clone()) {
            self.open.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn null() -> io::Result<File> {
        File::open("/dev/null")
    }

    #[test]
    fn the_least_recently_used_file_is_closed() {
        let descriptors = Descriptors::default();
        for at in 0..DESCRIPTORS_MAX {
            descriptors.open(&format!("{at}"), null).unwrap();
        }
        assert!(descriptors.get("0").is_some());
        descriptors.open("one more", null).unwrap();
        assert_eq!(descriptors.lock().open.len(), DESCRIPTORS_MAX);
        assert!(descriptors.get("0").is_some());
        assert!(descriptors.get("1").is_none());
    }

    #[test]
    fn a_file_that_was_replaced_while_it_was_opened_is_not_kept() {
        let descriptors = Descriptors::default();
        let opened = descriptors.open("a", || {
            descriptors.forget(|path| path == "a");
            null()
        });
        assert!(opened.is_ok());
        assert!(descriptors.get("a").is_none());
    }
}
