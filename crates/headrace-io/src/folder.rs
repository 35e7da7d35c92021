//! The data folder of a stopped node: looked at beside others who do, or repaired alone.

use std::collections::BTreeMap;
use std::path::Path as FsPath;

use headrace_core::log::inspect::{
    journal, journal_bytes, logs, repair, snapshots, verify, Action, Consent, Finding,
    JournalEntry, LogFacts, Snapshot,
};
use headrace_core::log::{Error, Options};

use crate::files::Files;
use crate::lock::Lock;

/// A data folder that no node uses.
#[derive(Debug)]
pub struct Folder {
    files: Files,
    options: Options,
    _lock: Lock,
}

/// Stream and incarnation of each definition.
type Incarnations = BTreeMap<String, u64>;

impl Folder {
    /// Locks the folder, which must be a node's. `repairs`: to change it; else nothing there is.
    /// Its journal stays as long as it is, where that can be read.
    pub fn open(path: &FsPath, mut options: Options, repairs: bool) -> Result<Self, Error> {
        let wrong = |what: &str| Error::Storage(format!("{} {what}", path.display()));
        let root = path
            .canonicalize()
            .map_err(|error| wrong(&format!("cannot be opened: {error}")))?;
        if !root.join("streams").is_dir() && !root.join("journal").is_dir() {
            return Err(wrong(
                "is no data folder: it has neither streams/ nor journal/; name one with --data",
            ));
        }
        let lock = if repairs {
            Lock::take(&root)
        } else {
            Lock::share(&root)
        };
        let lock = lock.map_err(Error::Storage)?;
        let files = Files::of_stopped(root);
        if let Ok(Some(bytes)) = journal_bytes(&files) {
            options.journal_bytes = bytes;
        }
        Ok(Self {
            files,
            options,
            _lock: lock,
        })
    }

    /// As [`verify`].
    pub fn verify(
        &self,
        incarnations: &Incarnations,
        wanted: impl Fn(&str, u32) -> bool,
        progress: impl FnMut(u64),
    ) -> Result<Vec<Finding>, Error> {
        verify(&self.files, self.options, incarnations, wanted, progress)
    }

    /// As [`repair`].
    pub fn repair(
        &self,
        incarnations: &Incarnations,
        wanted: impl Fn(&str, u32) -> bool,
        consent: Consent,
        dry: bool,
    ) -> Result<Vec<Action>, Error> {
        repair(
            &self.files,
            self.options,
            incarnations,
            wanted,
            consent,
            dry,
        )
    }

    /// As [`journal`].
    pub fn journal(&self) -> Result<Vec<JournalEntry>, Error> {
        journal(&self.files)
    }

    /// As [`logs`].
    pub fn logs(&self, incarnations: &Incarnations) -> Result<Vec<LogFacts>, Error> {
        logs(&self.files, incarnations)
    }

    /// As [`snapshots`].
    pub fn snapshots(&self, stream: &str, partition: u32) -> Result<Vec<Snapshot>, Error> {
        snapshots(&self.files, stream, partition)
    }
}
