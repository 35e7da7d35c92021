//! What is kept beside logs: sources of messages, and states.
//!
//! Calls wait for the disk, without the machine's lock.

use std::sync::PoisonError;

use headrace_core::log::{
    Disk, Error, FoundState, LogId, Machine, Saving, SourceState, Sources, SourcesPlan,
};

use crate::files::Files;
use crate::shared::{Beside, Shared};
use crate::store::Store;

impl Store {
    /// The last of each MQTT source among the committed records of `log`.
    pub fn last_sources(&self, log: LogId) -> Result<Vec<SourceState>, Error> {
        Ok(self.shared.sources(log, SourcesPlan::read)?.states())
    }

    /// Keeps the sources, which hold for all committed records of `log`.
    pub fn save_sources(&self, log: LogId, sources: &[SourceState]) -> Result<(), Error> {
        let (_, end) = self.bounds(log)?;
        self.shared.keep_sources(log, &Sources::of(end, sources))
    }

    /// Keeps the sources as the log tells them: the next start reads on from here. `around_damage`:
    /// what is damaged is passed over.
    pub fn refresh_sources(&self, log: LogId, around_damage: bool) -> Result<(), Error> {
        let read = if around_damage {
            SourcesPlan::salvage
        } else {
            SourcesPlan::read
        };
        self.shared
            .keep_sources(log, &self.shared.sources(log, read)?)
    }

    /// Bytes of the segments of `log` whose sources are not kept, or in part.
    pub fn unkept_bytes(&self, log: LogId) -> Result<u64, Error> {
        self.shared.lock().machine.unkept_bytes(log)
    }

    /// Keeps what all records below `offset` come to, in place of what was kept before.
    pub fn save_state(&self, log: LogId, offset: i64, state: &[u8]) -> Result<(), Error> {
        let place = self.shared.lock().machine.state_place(log)?;
        place.save(&Beside(&self.shared), offset, state)
    }

    /// What is kept.
    pub fn load_state(&self, log: LogId) -> Result<FoundState, Error> {
        let place = self.shared.lock().machine.state_place(log)?;
        place.load(&Beside(&self.shared))
    }
}

impl Shared {
    /// The sources of the committed records; while they are read, none are kept, so that no
    /// snapshot goes.
    fn sources(
        &self,
        log: LogId,
        read: fn(&SourcesPlan, &Files) -> Result<Sources, Error>,
    ) -> Result<Sources, Error> {
        let _one = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        self.of_one_edition(log, || {
            let plan = self.lock().machine.plan_sources(log)?;
            read(&plan, &self.files)
        })
    }

    fn keep_sources(&self, log: LogId, sources: &Sources) -> Result<(), Error> {
        self.keep_beside(|machine| machine.save_sources(log, sources).map(Some))
    }

    /// One at a time: two may be of one offset, and then of one file.
    pub(crate) fn keep_beside(
        &self,
        plan: impl FnOnce(&Machine) -> Result<Option<Saving>, Error>,
    ) -> Result<(), Error> {
        let _one = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(saving) = plan(&self.lock().machine)? else {
            return Ok(());
        };
        Beside(self).perform_all(&saving.ops)?;
        self.lock().machine.sources_saved(saving);
        Ok(())
    }
}
