//! What could not be removed. Nothing needs it any more, so nothing is lost by that: people are
//! told, and it is tried again.
//!
//! Invariant: a name that is made anew is no leftover, and never removed as one.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use headrace_core::log::Path;

#[derive(Debug, Default)]
pub(crate) struct Leftovers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Why each is still there.
    files: BTreeMap<Path, String>,
    /// Their names are never used twice.
    folders: BTreeMap<Path, String>,
    has_news: bool,
}

impl Leftovers {
    pub(crate) fn note_file(&self, path: &Path, why: String) {
        let mut state = self.lock();
        state.files.insert(path.clone(), why);
        state.has_news = true;
    }

    pub(crate) fn note_folder(&self, path: &Path, why: String) {
        let mut state = self.lock();
        state.folders.insert(path.clone(), why);
        state.has_news = true;
    }

    /// Files of these names are somebody's again, or go another way.
    pub(crate) fn forget(&self, theirs: impl Fn(&str) -> bool) {
        self.lock().files.retain(|path, _| !theirs(path));
    }

    /// Tries again. Nobody makes a file of a leftover's name meanwhile.
    pub(crate) fn retry(
        &self,
        remove_file: impl Fn(&Path) -> Result<(), String>,
        remove_folder: impl Fn(&Path) -> Result<(), String>,
    ) {
        let mut state = self.lock();
        let before = state.len();
        state.files.retain(|path, _| remove_file(path).is_err());
        state.has_news |= state.len() != before;
        let folders: Vec<Path> = state.folders.keys().cloned().collect();
        drop(state); // gigabytes take seconds
        for path in folders {
            if remove_folder(&path).is_ok() {
                let mut state = self.lock();
                state.folders.remove(&path);
                state.has_news = true;
            }
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// What people should know, or None.
    pub(crate) fn report(&self) -> Option<String> {
        let state = self.lock();
        let (_, why) = state.files.iter().chain(&state.folders).next()?;
        Some(format!(
            "files or folders that nothing needs any more could not be removed, and that will be \
             tried again: {}; the first: {why}",
            state.len()
        ))
    }

    /// The report has changed since this was asked last.
    pub(crate) fn has_news(&self) -> bool {
        std::mem::take(&mut self.lock().has_news)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A map of names is sound whatever a thread that died was doing.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn len(&self) -> usize {
        self.files.len() + self.folders.len()
    }
}
