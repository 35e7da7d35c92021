//! Logs that begin to exist: all that a change of a stream asks for, or none of them.
//!
//! What they need is judged for all together, before the first one is made: a place in every
//! checkpoint, inodes, descriptors. Else those that came before the one that is refused would stay,
//! unserved, and each try would leave more of them. One round makes them all
//! (`Machine::draft_registrations`), so a disk that refuses one refuses all
//! ([`Machine::round_refused`]).

use std::sync::Arc;

use super::chore::LOG_DESCRIPTORS;
use super::error::Error;
use super::layout;
use super::machine::{check_name, Machine};
use super::partition::{Log, LogId};

/// Descriptors that logs leave alone, beside those of finished files: journals, folders that are
/// synced, and of a moment's connections.
const RESERVE_DESCRIPTORS: u64 = 16;

impl Machine {
    /// Refuses logs that could not be opened, and changes nothing. `descriptors`: so many the
    /// store's files may have in all, where the shell knows.
    pub fn check_logs(
        &self,
        stream: &str,
        partitions: impl Iterator<Item = u32>,
        incarnation: u64,
        descriptors: Option<u64>,
    ) -> Result<(), Error> {
        self.refuse_writes()?;
        check_name(stream)?;
        let mut fresh = 0;
        for partition in partitions {
            let known = self.known_log(stream, partition, incarnation)?;
            fresh += u64::from(known.is_none());
        }
        if fresh == 0 {
            return Ok(());
        }
        self.refuse_logs_beyond_checkpoint(fresh)?;
        self.refuse_logs_without_files(fresh)?;
        descriptors.map_or(Ok(()), |left| {
            self.refuse_logs_without_descriptors(fresh, left)
        })
    }

    /// The handles of logs, which begin to exist where they did not: all, or none. Their active
    /// segments age from `wall_ms` where nothing tells when they began.
    pub fn open_logs(
        &mut self,
        stream: &str,
        partitions: impl Iterator<Item = u32> + Clone,
        incarnation: u64,
        wall_ms: i64,
    ) -> Result<Vec<LogId>, Error> {
        self.check_logs(stream, partitions.clone(), incarnation, None)?;
        let stream = Arc::from(stream);
        let open = |partition| self.opened(&stream, partition, incarnation, wall_ms);
        Ok(partitions.map(open).collect())
    }

    /// The handle of one log: as [`Machine::open_logs`].
    pub fn open_log(
        &mut self,
        stream: &str,
        partition: u32,
        incarnation: u64,
        wall_ms: i64,
    ) -> Result<LogId, Error> {
        let one = std::iter::once(partition);
        Ok(self.open_logs(stream, one, incarnation, wall_ms)?[0])
    }

    fn opened(
        &mut self,
        stream: &Arc<str>,
        partition: u32,
        incarnation: u64,
        wall_ms: i64,
    ) -> LogId {
        let known = self.names.get(&(stream.clone(), partition));
        if let Some(log) = known.and_then(|id| self.logs.get_mut(id)) {
            log.begins_at(wall_ms);
            return log.id;
        }
        let id = LogId(self.next_id);
        self.next_id += 1;
        let settings = self.options.log_settings();
        let mut log = Log::new(id, stream, partition, incarnation, settings);
        log.begins_at(wall_ms);
        self.adopt(log);
        self.registrations.push(id);
        self.spend_segment();
        id
    }

    /// The log, where there is one. Refused where there is another in its place.
    fn known_log(
        &self,
        stream: &str,
        partition: u32,
        incarnation: u64,
    ) -> Result<Option<LogId>, Error> {
        let known = self.names.get(&(Arc::from(stream), partition)).copied();
        let found = known.map_or(incarnation, |id| self.logs[&id].incarnation);
        if found != incarnation {
            return Err(Error::Storage(format!(
                "{} belongs to incarnation {found} of the stream, not {incarnation}: \
                 restore its definition from a copy",
                layout::log_folder(stream, partition)
            )));
        }
        if known.is_none() && self.strangers.contains(&(stream.to_owned(), partition)) {
            return Err(Error::Storage(format!(
                "{} holds segments that the journal does not know, as where the folder journal/ was \
                 removed or is another node's: bring that back, move the partition's folder away, \
                 or make them known with: headrace log repair --rebuild-journal --data DIR",
                layout::log_folder(stream, partition)
            )));
        }
        Ok(known)
    }

    fn refuse_logs_beyond_checkpoint(&self, fresh: u64) -> Result<(), Error> {
        if self.has_room_for(fresh) {
            return Ok(());
        }
        Err(Error::Limit(format!(
            "{} partitions with {} segments, and {fresh} more, do not fit a checkpoint of the \
             journal: raise log.journal_bytes, or keep fewer segments (retention, segment.bytes)",
            self.logs.len(),
            self.segments
        )))
    }

    fn refuse_logs_without_descriptors(&self, fresh: u64, left: u64) -> Result<(), Error> {
        let logs = self.logs.len() as u64 + fresh;
        let finished = self.options.bounds.finished_files as u64;
        let needed = logs * LOG_DESCRIPTORS + finished + RESERVE_DESCRIPTORS;
        if left >= needed {
            return Ok(());
        }
        Err(Error::Storage(format!(
            "{fresh} more partitions and those that are there may need {needed} descriptors, and \
             the rest of the node leaves {left}: raise the limit of open files (ulimit -n), or let \
             fewer connect (limits.connections)"
        )))
    }
}
