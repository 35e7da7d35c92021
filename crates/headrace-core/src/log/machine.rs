//! The running store: what is queued, what a round writes, what is committed.
//!
//! Owns every decision about the disk: order, journal place, rotation, release. Knows no file
//! descriptor, thread or clock. A shell drives it so:
//!
//! ```text
//! append(log, batches, ticket)          queues; decides offset and position
//! next_round() -> Draft -> Round        one at a time; perform before, then after
//! round_done(round, outcome, now)       -> completions
//! next_chore() -> Chore                 one at a time, beside the rounds
//! chore_done(chore, outcome)
//! ```
//!
//! Invariants. One round is under way at most; a round takes what is queued in order, so journal
//! order is offset order. A journal file is released only when everything that it could rebuild
//! is synced. After any failed effect nothing more is written and every append ends in that error.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::disk::{DiskOp, Path};
use super::error::Error;
use super::journal::{Chain, Checkpoint, FileHeader, PAGE};
use super::layout;
use super::partition::{Log, LogId, Shape};
use super::round::{
    group_bytes_max, round_bytes, Draft, Frontier, Group, Piece, Place, Queued, Rotation, Round,
};
use super::statistics::Statistics;

/// Bytes of batches that one round takes at most: what an ordinary disk writes in some 10 ms, so
/// that a deep queue costs latency only to those who made it.
const ROUND_BYTES_MAX: u64 = 4 << 20;
/// Smallest journal file: rounds must stay small beside it.
pub const JOURNAL_BYTES_MIN: u64 = 128 << 10;
/// Bytes of a log in a checkpoint, or of its registration, without its older segments: fixed
/// fields and a name of at most 249 bytes.
const LOG_STATE_BYTES_MAX: u64 = 320;
/// A stream's name is a folder's name (CONTRACT: at most 249 characters).
const STREAM_NAME_BYTES_MAX: usize = 249;

/// How a store lays out its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes of one journal file; there are two, three for a moment.
    pub journal_bytes: u64,
    /// Bytes at which a segment is closed.
    pub segment_bytes: u64,
    /// Bytes between two entries of an offset index.
    pub index_interval_bytes: u64,
    /// Bytes of one log in one round from which they go straight to the segment.
    pub direct_write_bytes: u64,
    /// A number that no client knows: it starts the journal's first CRC.
    pub seed: u32,
}

impl Options {
    /// Refuses what cannot work.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |text: String| Err(Error::Argument(text));
        if self.journal_bytes < JOURNAL_BYTES_MIN || self.journal_bytes % PAGE as u64 != 0 {
            return wrong(format!(
                "journal_bytes is at least {JOURNAL_BYTES_MIN} and a multiple of {PAGE}"
            ));
        }
        if self.direct_write_bytes < PAGE as u64 || self.direct_write_bytes > self.journal_bytes / 4
        {
            return wrong(format!(
                "direct_write_bytes is {PAGE} to a quarter of journal_bytes"
            ));
        }
        if self.segment_bytes == 0 || self.index_interval_bytes == 0 {
            return wrong("segment_bytes and index_interval_bytes are positive".into());
        }
        Ok(())
    }

    /// Journal bytes that a round may need at most, so that any round fits a fresh file.
    fn round_need_max(&self) -> u64 {
        self.journal_bytes / 4
    }

    pub(super) fn shape(&self) -> Shape {
        Shape {
            segment_bytes: self.segment_bytes,
            index_interval_bytes: self.index_interval_bytes,
        }
    }
}

/// Where a queued append will stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of its first record.
    pub base_offset: i64,
    /// It repeats what an idempotent producer has stored at `base_offset`.
    pub duplicate: bool,
}

/// The end of one append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The caller's number for it.
    pub ticket: u64,
    /// Its log.
    pub log: LogId,
    /// None: durable. Else why it never will be.
    pub error: Option<Arc<str>>,
}

/// Work beside the rounds: syncing segments, readying the next journal file.
#[derive(Debug)]
pub struct Chore {
    /// In order.
    pub ops: Vec<DiskOp>,
    released: Option<u64>,
}

/// The journal as the machine sees it.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) path: Path,
    pub(super) sequence: u64,
    pub(super) seed: u32,
    pub(super) chain: Chain,
    /// Where the next round goes.
    pub(super) position: u64,
    /// The file before this one, until its segments are synced.
    pub(super) previous: Option<u64>,
    /// The next file is ready.
    pub(super) spare: bool,
}

/// Files and folders with unsynced changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Dirt {
    pub(super) files: BTreeSet<Path>,
    pub(super) folders: BTreeSet<Path>,
    /// Files that are complete: their descriptors may go once they are synced.
    pub(super) finished: BTreeSet<Path>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Life {
    #[default]
    Open,
    Closing,
    Closed,
}

/// The store as a machine.
#[derive(Debug)]
pub struct Machine {
    pub(super) options: Options,
    pub(super) logs: BTreeMap<LogId, Log>,
    pub(super) names: BTreeMap<(Arc<str>, u32), LogId>,
    /// Partitions that have records on disk and no place in the journal.
    pub(super) strangers: BTreeSet<(String, u32)>,
    pub(super) next_id: u32,
    pub(super) journal: Journal,
    pub(super) dirt: Dirt,
    /// What the chore under way is syncing.
    syncing: Dirt,
    queue: VecDeque<Queued>,
    registrations: Vec<LogId>,
    deletions: VecDeque<Arc<str>>,
    /// Logs of streams whose deletion is queued.
    deleted: BTreeSet<LogId>,
    /// Ends of appends that no round carries.
    ended: Vec<Completion>,
    round_under_way: bool,
    chore_under_way: bool,
    life: Life,
    failed: Option<Arc<str>>,
    statistics: Statistics,
}

impl Machine {
    pub(super) fn new(options: Options, journal: Journal) -> Self {
        Self {
            options,
            logs: BTreeMap::new(),
            names: BTreeMap::new(),
            strangers: BTreeSet::new(),
            next_id: 0,
            journal,
            dirt: Dirt::default(),
            syncing: Dirt::default(),
            queue: VecDeque::new(),
            registrations: Vec::new(),
            deletions: VecDeque::new(),
            deleted: BTreeSet::new(),
            ended: Vec::new(),
            round_under_way: false,
            chore_under_way: false,
            life: Life::Open,
            failed: None,
            statistics: Statistics::default(),
        }
    }

    pub(super) fn adopt(&mut self, log: Log) {
        self.names
            .insert((log.stream.clone(), log.partition), log.id);
        self.logs.insert(log.id, log);
    }

    // --- what callers ask ---------------------------------------------------------------------

    /// The handle of a log, which begins to exist where it did not.
    pub fn open_log(
        &mut self,
        stream: &str,
        partition: u32,
        incarnation: u64,
    ) -> Result<LogId, Error> {
        self.refuse_writes()?;
        check_name(stream)?;
        if let Some(id) = self.names.get(&(Arc::from(stream), partition)) {
            let found = self.logs[id].incarnation;
            if found == incarnation {
                return Ok(*id);
            }
            return Err(Error::Storage(format!(
                "{} belongs to incarnation {found} of the stream, not {incarnation}: \
                 delete the stream first",
                layout::log_folder(stream, partition)
            )));
        }
        if self.strangers.contains(&(stream.to_owned(), partition)) {
            return Err(Error::Storage(format!(
                "{} holds segments that the journal does not know: move the folder away",
                layout::log_folder(stream, partition)
            )));
        }
        self.refuse_more_logs()?;
        let id = LogId(self.next_id);
        self.next_id += 1;
        self.adopt(Log::new(id, &Arc::from(stream), partition, incarnation));
        self.registrations.push(id);
        Ok(id)
    }

    /// Queues the removal of a stream and its logs; appends that wait for it end in an error.
    pub fn delete_stream(&mut self, stream: &str) -> Result<(), Error> {
        self.refuse_writes()?;
        check_name(stream)?;
        let logs = self.logs.values().filter(|log| &*log.stream == stream);
        let gone: BTreeSet<LogId> = logs.map(|log| log.id).collect();
        let (ends, stays): (Vec<_>, _) = self
            .queue
            .drain(..)
            .partition(|queued| gone.contains(&queued.log));
        self.registrations.retain(|id| !gone.contains(id));
        self.queue = stays.into();
        self.end(ends, &Arc::from(format!("stream {stream} was deleted")));
        self.names.retain(|(name, _), _| &**name != stream);
        self.strangers.retain(|(name, _)| name != stream);
        self.deleted.extend(gone);
        self.deletions.push_back(Arc::from(stream));
        Ok(())
    }

    /// A deletion is queued or under way.
    pub fn is_deleting(&self, stream: &str) -> bool {
        self.deletions.iter().any(|name| &**name == stream)
    }

    /// Stamps and queues a run of validated batches.
    pub fn append(
        &mut self,
        log: LogId,
        batches: Vec<u8>,
        ticket: u64,
        now_ns: u64,
    ) -> Result<Appended, Error> {
        self.refuse_writes()?;
        let shape = self.options.shape();
        let owner = self
            .logs
            .get_mut(&log)
            .filter(|_| !self.deleted.contains(&log));
        let placed = owner.ok_or_else(|| unknown(log))?.append(batches, shape)?;
        let duplicate = placed.run.is_none();
        self.statistics.duplicates += u64::from(duplicate);
        self.statistics.queued_bytes += placed.run.as_ref().map_or(0, |run| run.bytes.len() as u64);
        self.queue.push_back(Queued {
            ticket,
            log,
            run: placed.run,
            since_ns: now_ns,
        });
        Ok(Appended {
            base_offset: placed.base_offset,
            duplicate,
        })
    }

    /// No more appends; once the queue is empty the last round marks the folder clean.
    pub fn close(&mut self) {
        if self.life == Life::Open {
            self.life = Life::Closing;
        }
    }

    /// The last round has ended: all is synced.
    pub fn is_closed(&self) -> bool {
        self.life == Life::Closed
    }

    /// Why nothing more is written, or None.
    pub fn failed(&self) -> Option<&Arc<str>> {
        self.failed.as_ref()
    }

    /// Counters.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            logs: self.names.len() as u64,
            ..self.statistics
        }
    }

    /// `(log start offset, high watermark)`.
    pub fn bounds(&self, log: LogId) -> Result<(i64, i64), Error> {
        let log = self.log(log)?;
        Ok((log.start_offset(), log.high_watermark))
    }

    /// Committed bytes of a log.
    pub fn size_bytes(&self, log: LogId) -> Result<u64, Error> {
        Ok(self
            .log(log)?
            .segments
            .iter()
            .map(|segment| segment.committed)
            .sum())
    }

    pub(super) fn log(&self, log: LogId) -> Result<&Log, Error> {
        self.logs.get(&log).ok_or_else(|| unknown(log))
    }

    fn refuse_writes(&self) -> Result<(), Error> {
        if let Some(why) = &self.failed {
            return Err(Error::Storage(why.to_string()));
        }
        if self.life != Life::Open {
            return Err(Error::Storage("the store is closed".into()));
        }
        Ok(())
    }

    fn refuse_more_logs(&self) -> Result<(), Error> {
        if (self.logs.len() as u64 + 1) * LOG_STATE_BYTES_MAX <= self.options.journal_bytes / 2 {
            return Ok(());
        }
        Err(Error::Storage(format!(
            "{} logs fill the journal's checkpoint: raise journal_bytes",
            self.logs.len()
        )))
    }

    // --- rounds -------------------------------------------------------------------------------

    /// What to commit next; None where nothing waits, a round is under way, or the journal waits
    /// for a chore.
    pub fn next_round(&mut self) -> Option<Draft> {
        if self.failed.is_some() || self.round_under_way || self.life == Life::Closed {
            return None;
        }
        let draft = if !self.deletions.is_empty() {
            self.draft_deletion()
        } else if !self.registrations.is_empty() {
            self.draft_registrations()
        } else if !self.queue.is_empty() {
            self.draft_appends()
        } else if self.life == Life::Closing {
            self.draft_close()
        } else {
            None
        }?;
        self.round_under_way = true;
        Some(draft)
    }

    /// The round was performed, or failed. Returns the appends that ended.
    ///
    /// # Panics
    /// Where the round is not this machine's.
    pub fn round_done(
        &mut self,
        round: Round,
        outcome: Result<(), String>,
        began_ns: u64,
        now_ns: u64,
    ) -> Vec<Completion> {
        self.round_under_way = false;
        if let Err(why) = outcome {
            self.fail(&why);
            let failed = self.failed.clone().expect("just failed");
            self.end(round.items, &failed);
            return std::mem::take(&mut self.ended);
        }
        let effects = || round.before.iter().chain(&round.after);
        self.statistics.syncs += effects().filter(|op| op.is_sync()).count() as u64;
        self.dirt.note(effects());
        self.statistics.round_ns += now_ns - began_ns;
        if let Some(journal) = round.journal {
            self.statistics.rounds += 1;
            self.statistics.journal_bytes += journal.bytes;
            self.journal.chain = journal.chain;
            self.journal.position = journal.position;
            if let Some((header, path)) = journal.rotated {
                self.rotated(header, path);
            }
        }
        for id in round.registered {
            if let Some(log) = self.logs.get_mut(&id) {
                log.registered = true;
            }
        }
        round
            .frontiers
            .into_iter()
            .for_each(|frontier| self.advance(frontier));
        if let Some(stream) = round.deleted {
            self.deletions.pop_front();
            self.logs
                .retain(|id, log| log.stream != stream || !self.deleted.contains(id));
            self.deleted.retain(|id| self.logs.contains_key(id));
        }
        if round.closes {
            self.life = Life::Closed;
        }
        self.complete(round.items, now_ns)
    }

    /// Ends of appends that no round carries, since the last call.
    pub fn ended(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.ended)
    }

    fn complete(&mut self, items: Vec<Queued>, now_ns: u64) -> Vec<Completion> {
        let mut ended = std::mem::take(&mut self.ended);
        for item in items {
            if let Some(run) = &item.run {
                self.statistics.appended_batches += u64::from(run.batches);
                self.statistics.appended_bytes += run.bytes.len() as u64;
                self.statistics.queued_bytes -= run.bytes.len() as u64;
            }
            self.statistics
                .committed(now_ns.saturating_sub(item.since_ns));
            ended.push(Completion {
                ticket: item.ticket,
                log: item.log,
                error: None,
            });
        }
        ended
    }

    fn end(&mut self, items: Vec<Queued>, why: &Arc<str>) {
        for item in items {
            self.statistics.queued_bytes -= item.run.map_or(0, |run| run.bytes.len() as u64);
            let error = Some(why.clone());
            self.ended.push(Completion {
                ticket: item.ticket,
                log: item.log,
                error,
            });
        }
    }

    fn fail(&mut self, why: &str) {
        if self.failed.is_none() {
            self.failed = Some(Arc::from(why));
        }
        let failed = self.failed.clone().expect("just set");
        let waiting = self.queue.drain(..).collect();
        self.end(waiting, &failed);
    }

    fn advance(&mut self, frontier: Frontier) {
        let Some(log) = self.logs.get_mut(&frontier.log) else {
            return;
        };
        if let Some(full) = log.advance(frontier) {
            self.statistics.segment_rolls += 1;
            self.dirt.finished.insert(full);
        }
    }

    fn draft_appends(&mut self) -> Option<Draft> {
        let (count, bytes) = self.select();
        let mut place = self.place(bytes)?;
        let items: Vec<Queued> = self.queue.drain(..count).collect();
        let pieces: Vec<Piece> = self.groups(&items).into_iter().map(Piece::Group).collect();
        if pieces.is_empty() {
            place.rotation = None;
        }
        Some(Draft {
            pieces,
            items,
            ..Draft::at(place)
        })
    }

    /// How many queued appends the next round takes, and the journal bytes they need at most.
    fn select(&self) -> (usize, u64) {
        let limit = self.options.round_need_max();
        let direct = self.options.direct_write_bytes;
        let need = |bytes: u64| group_bytes_max(bytes, bytes >= direct);
        let mut groups = BTreeMap::new();
        let (mut journal, mut total) = (0, 0);
        for (count, item) in self.queue.iter().enumerate() {
            let Some(run) = &item.run else { continue };
            let bytes = run.bytes.len() as u64;
            let group: &mut u64 = groups.entry((item.log, run.segment)).or_default();
            let before = if *group == 0 { 0 } else { need(*group) };
            let with = journal - before + need(*group + bytes);
            if total > 0 && (with > limit || total + bytes > ROUND_BYTES_MAX) {
                return (count, journal);
            }
            *group += bytes;
            total += bytes;
            journal = with;
        }
        (self.queue.len(), journal)
    }

    fn groups(&self, items: &[Queued]) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        let mut at = BTreeMap::new();
        for item in items {
            let Some(run) = &item.run else { continue };
            let place = *at.entry((item.log, run.segment)).or_insert_with(|| {
                groups.push(self.group(item.log, run));
                groups.len() - 1
            });
            let group = &mut groups[place];
            group.parts.push(run.bytes.clone());
            group.bytes += run.bytes.len() as u64;
            group.next_offset = run.next_offset;
        }
        for group in &mut groups {
            group.direct = group.bytes >= self.options.direct_write_bytes;
        }
        groups
    }

    fn group(&self, id: LogId, run: &super::partition::Run) -> Group {
        let log = &self.logs[&id];
        let unsynced =
            |path: &Path| self.dirt.folders.contains(path) || self.syncing.folders.contains(path);
        let mut folders: Vec<Path> = [
            log.folder.clone(),
            layout::stream_folder(&log.stream),
            layout::STREAMS.into(),
        ]
        .into_iter()
        .filter(unsynced)
        .collect();
        if !run.roll.is_empty() && !folders.contains(&log.folder) {
            folders.push(log.folder.clone());
        }
        let begins = run.position % PAGE as u64 == 0;
        Group {
            log: id,
            segment: run.segment,
            path: layout::file(&log.folder, run.segment, layout::SEGMENT),
            folders,
            position: run.position,
            parts: Vec::new(),
            bytes: 0,
            next_offset: run.next_offset,
            roll: run.roll.clone(),
            page: if begins { Vec::new() } else { log.tail.clone() },
            page_logged: begins || log.page_logged,
            direct: false,
        }
    }

    fn draft_registrations(&mut self) -> Option<Draft> {
        let most = (self.options.round_need_max() / LOG_STATE_BYTES_MAX) as usize;
        let count = self.registrations.len().min(most);
        let place = self.place(count as u64 * LOG_STATE_BYTES_MAX)?;
        let ids: Vec<LogId> = self.registrations.drain(..count).collect();
        let logs = ids.iter().map(|id| &self.logs[id]);
        let pieces = logs
            .clone()
            .map(|log| Piece::Register {
                log: log.id,
                partition: log.partition,
                incarnation: log.incarnation,
                stream: log.stream.clone(),
            })
            .collect();
        let last = logs.flat_map(Log::creation).collect();
        Some(Draft {
            pieces,
            last,
            ..Draft::at(place)
        })
    }

    /// Renaming the folder is what deletes; the journal's entry keeps what it holds from coming
    /// back; the rest is removed at leisure, by the next start if need be.
    fn draft_deletion(&mut self) -> Option<Draft> {
        if self.chore_under_way {
            return None; // it may be syncing files of this stream
        }
        let stream = self.deletions.front()?.clone();
        let place = self.place(STREAM_NAME_BYTES_MAX as u64)?;
        let folder = layout::stream_folder(&stream);
        let trash = layout::trash_folder(&stream);
        let inside = |path: &Path| path.starts_with(&format!("{folder}/"));
        self.dirt.files.retain(|path| !inside(path));
        self.dirt.finished.retain(|path| !inside(path));
        self.dirt
            .folders
            .retain(|path| !inside(path) && *path != folder);
        let first = vec![
            // A stream without records may have no folder yet.
            DiskOp::CreateFolder {
                path: folder.clone(),
            },
            DiskOp::Rename {
                from: folder,
                to: trash.clone(),
            },
            DiskOp::SyncFolder {
                path: layout::STREAMS.into(),
            },
            DiskOp::SyncFolder {
                path: layout::TRASH.into(),
            },
        ];
        let last = vec![
            DiskOp::RemoveFolder { path: trash },
            DiskOp::SyncFolder {
                path: layout::TRASH.into(),
            },
        ];
        Some(Draft {
            first,
            pieces: vec![Piece::Delete {
                stream: stream.clone(),
            }],
            last,
            deleted: Some(stream),
            ..Draft::at(place)
        })
    }

    fn draft_close(&mut self) -> Option<Draft> {
        if self.chore_under_way {
            return None;
        }
        let checkpoint = self.checkpoint(true).encode();
        let place = self.place(checkpoint.len() as u64)?;
        let mut first: Vec<DiskOp> = self
            .logs
            .values_mut()
            .filter(|log| !log.sealed)
            .flat_map(Log::side_files)
            .collect();
        let mut dirt = std::mem::take(&mut self.dirt);
        dirt.note(&first);
        let obsolete = self.obsolete();
        dirt.files.retain(|path| !obsolete.contains(path));
        first.extend(dirt.syncs());
        first.extend(obsolete.into_iter().map(|path| DiskOp::Remove { path }));
        Some(Draft {
            first,
            pieces: vec![Piece::Checkpoint(checkpoint)],
            closes: true,
            ..Draft::at(place)
        })
    }

    /// A place in the journal for entries of `bytes`; None while a full journal has no other file.
    fn place(&mut self, bytes: u64) -> Option<Place> {
        let journal = &self.journal;
        let mut place = Place {
            path: journal.path.clone(),
            position: journal.position,
            chain: journal.chain,
            seed: journal.seed,
            rotation: None,
        };
        if journal.position + round_bytes(bytes) <= self.options.journal_bytes {
            return Some(place);
        }
        if !journal.spare {
            return None;
        }
        let sequence = journal.sequence + 1;
        let rotation = Rotation {
            header: FileHeader {
                sequence,
                first_round: journal.chain.round,
                seed: journal.chain.crc,
            },
            path: layout::journal_file(sequence),
            checkpoint: self.checkpoint(false).encode(),
        };
        let fresh = PAGE as u64 + round_bytes(rotation.checkpoint.len() as u64);
        if fresh + round_bytes(bytes) > self.options.journal_bytes {
            let segments: usize = self.logs.values().map(|log| log.segments.len()).sum();
            self.fail(&format!(
                "a checkpoint of {} logs with {segments} segments does not fit the journal: \
                 raise journal_bytes",
                self.logs.len()
            ));
            return None;
        }
        place.rotation = Some(rotation);
        // The new file must be able to rebuild every page that is written from now on.
        for log in self.logs.values_mut() {
            log.page_logged = false;
        }
        Some(place)
    }

    pub(super) fn checkpoint(&self, clean: bool) -> Checkpoint {
        Checkpoint {
            clean,
            next_id: self.next_id,
            logs: self
                .logs
                .values()
                .filter(|log| log.registered)
                .map(Log::state)
                .collect(),
        }
    }

    fn rotated(&mut self, header: FileHeader, path: Path) {
        self.statistics.journal_rotations += 1;
        self.journal.previous = Some(self.journal.sequence);
        self.journal.sequence = header.sequence;
        self.journal.seed = header.seed;
        self.journal.path = path;
        self.journal.spare = false;
    }

    // --- chores -------------------------------------------------------------------------------

    /// Background work that is due; None where there is none or one is under way.
    pub fn next_chore(&mut self) -> Option<Chore> {
        let idle = !self.chore_under_way && self.deletions.is_empty();
        if self.failed.is_some() || !idle || self.life == Life::Closed || self.journal.spare {
            return None;
        }
        self.chore_under_way = true;
        let mut ops = Vec::new();
        let released = self.journal.previous;
        if let Some(previous) = released {
            self.syncing = std::mem::take(&mut self.dirt);
            let obsolete = self.obsolete();
            self.syncing.files.retain(|path| !obsolete.contains(path));
            ops.extend(self.syncing.clone().syncs());
            ops.extend(obsolete.into_iter().map(|path| DiskOp::Remove { path }));
            let from = layout::journal_file(previous);
            ops.push(DiskOp::Rename {
                from,
                to: layout::SPARE.into(),
            });
        } else {
            let bytes = self.options.journal_bytes;
            ops.push(DiskOp::Zero {
                path: layout::SPARE.into(),
                bytes,
            });
            ops.push(DiskOp::Sync {
                path: layout::SPARE.into(),
            });
        }
        ops.push(DiskOp::SyncFolder {
            path: layout::JOURNAL.into(),
        });
        Some(Chore { ops, released })
    }

    /// Side files that newer ones replace. They go here and not in a round, for a chore may be
    /// syncing them then.
    fn obsolete(&mut self) -> BTreeSet<Path> {
        self.logs
            .values_mut()
            .flat_map(|log| std::mem::take(&mut log.obsolete))
            .collect()
    }

    /// The chore was performed, or failed. Returns the appends that ended by its failure.
    pub fn chore_done(&mut self, chore: &Chore, outcome: Result<(), String>) -> Vec<Completion> {
        self.chore_under_way = false;
        self.syncing = Dirt::default();
        if let Err(why) = outcome {
            self.fail(&why);
            return std::mem::take(&mut self.ended);
        }
        self.statistics.syncs += chore.ops.iter().filter(|op| op.is_sync()).count() as u64;
        if chore.released.is_some() {
            self.journal.previous = None;
        }
        self.journal.spare = true;
        Vec::new()
    }
}

impl Dirt {
    /// Takes note of what `ops` left unsynced in the streams' folders.
    pub(super) fn note<'a>(&mut self, ops: impl IntoIterator<Item = &'a DiskOp>) {
        for op in ops {
            match op {
                DiskOp::Write { path, .. } | DiskOp::SetLength { path, .. } => self.file(path),
                DiskOp::Create { path } => {
                    self.file(path);
                    self.entry(path);
                }
                DiskOp::CreateFolder { path } | DiskOp::Remove { path } => self.entry(path),
                DiskOp::SyncFolder { path } => drop(self.folders.remove(path)),
                _ => {}
            }
        }
    }

    fn file(&mut self, path: &Path) {
        if !path.starts_with(layout::STREAMS) || self.files.contains(path) {
            return;
        }
        self.files.insert(path.clone());
        if !path.ends_with(layout::SEGMENT) {
            self.finished.insert(path.clone()); // side files are written in one go
        }
    }

    fn entry(&mut self, path: &Path) {
        let Some((folder, _)) = path.rsplit_once('/') else {
            return;
        };
        if folder.starts_with(layout::STREAMS) {
            self.folders.insert(folder.into());
        }
    }

    /// The effects that make all of it durable.
    pub(super) fn syncs(self) -> Vec<DiskOp> {
        let files = self.files.into_iter().map(|path| DiskOp::Sync { path });
        let folders = self
            .folders
            .into_iter()
            .map(|path| DiskOp::SyncFolder { path });
        let finished = self.finished.into_iter().map(|path| DiskOp::Close { path });
        files.chain(folders).chain(finished).collect()
    }
}

impl Draft {
    fn at(place: Place) -> Self {
        Self {
            first: Vec::new(),
            pieces: Vec::new(),
            last: Vec::new(),
            place,
            items: Vec::new(),
            deleted: None,
            closes: false,
        }
    }
}

fn unknown(log: LogId) -> Error {
    Error::Argument(format!("there is no log {}", log.0))
}

fn check_name(stream: &str) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let sound = (1..=STREAM_NAME_BYTES_MAX).contains(&stream.len())
        && stream.chars().all(plain)
        && stream != "."
        && stream != "..";
    if sound {
        return Ok(());
    }
    Err(Error::Argument(format!(
        "{stream:?} is no stream name: letters, digits, '.', '_', '-'"
    )))
}
