//! The running store, and what callers ask of it.
//!
//! Owns every decision about the disk: order, journal place, rotation, release. Knows no file
//! descriptor, thread or clock. A shell drives it so:
//!
//! ```text
//! append(log, batches, ticket)          queues; decides offset and position
//! submit()                              the next round may take what is queued
//! next_round(now) -> Draft -> Round     one at a time; perform before, then after
//! round_done(round, outcome, now)       -> completions; or round_refused
//! next_chore() -> Chore                 one at a time, beside the rounds
//! chore_done(chore, outcome)
//! sync_ended(outcome) -> outcome        each sync, whoever performs it, before what follows on it
//! ```
//!
//! Invariants. One round is under way at most; a round takes what was submitted in order, so journal
//! order is offset order. A journal file is released only when everything that it could rebuild
//! is synced. After any failed effect nothing more is written and every append ends in that error:
//! that of a round under way, too, whose syncs count no more. One file is synced by one at a time, and
//! each sync is told before the next of that file begins.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::chore::Dirt;
use super::compact::Replacement;
use super::disk::{DiskOp, Path};
use super::error::Error;
use super::journal::{Chain, FileHeader};
use super::options::{Options, STREAM_NAME_BYTES_MAX};
use super::partition::{Log, LogId};
use super::round::{Queued, Work};
use super::space::Space;
use super::statistics::Statistics;

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

/// The journal as the machine sees it.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) path: Path,
    pub(super) header: FileHeader,
    pub(super) chain: Chain,
    /// Where the next round goes.
    pub(super) position: u64,
    /// The first round that may not be synced.
    pub(super) synced: u64,
    /// When that is to be done at the latest.
    pub(super) sync_at_ns: Option<u64>,
    /// The file before this one, until its segments are synced.
    pub(super) previous: Option<u64>,
    /// The next file is ready.
    pub(super) spare: bool,
}

impl Journal {
    /// Every round that was written is synced.
    pub(super) fn is_synced(&self) -> bool {
        self.synced == self.chain.round
    }

    pub(super) fn is_sync_due(&self, now_ns: u64) -> bool {
        self.sync_at_ns.is_some_and(|at| at <= now_ns)
    }

    /// A round ended, which synced the journal or left that for later.
    pub(super) fn note_sync(&mut self, synced: bool, items: &[Queued]) {
        if synced {
            self.synced = self.chain.round;
            self.sync_at_ns = None;
        } else if !self.is_synced() {
            let asked = items.iter().filter_map(|item| item.sync_at_ns);
            self.sync_at_ns = asked.chain(self.sync_at_ns).min();
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Life {
    #[default]
    Open,
    Closing,
    Closed,
}

/// A stream that is to be deleted.
#[derive(Clone, Debug)]
pub(super) struct Deletion {
    pub(super) stream: Arc<str>,
    /// Its logs are below this id; a later stream of its name has others.
    pub(super) below: u32,
    /// It has records of which the journal knows nothing.
    pub(super) holds_records: bool,
}

/// The store as a machine.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "a round and a chore come and go by themselves, and beside each other"
)]
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
    pub(super) syncing: Dirt,
    pub(super) queue: VecDeque<Queued>,
    /// How many at the front of the queue may go into the next round.
    pub(super) submitted: usize,
    pub(super) registrations: Vec<LogId>,
    /// Streams to be deleted.
    pub(super) deletions: VecDeque<Deletion>,
    /// Streams whose logs could not be made, and why, until somebody asks.
    pub(super) refusals: BTreeMap<Arc<str>, Arc<str>>,
    /// Folders of streams that are gone, which nobody has begun to remove.
    pub(super) trash: Vec<Path>,
    /// Start offsets that logs are to have.
    pub(super) trims: BTreeMap<LogId, i64>,
    /// Segments that are to take the place of others.
    pub(super) replacement: Option<Replacement>,
    /// Files of segments that were let go wait for a chore.
    pub(super) has_shed: bool,
    /// Producers that all logs know.
    pub(super) producers: usize,
    /// Segments of all logs, at least.
    pub(super) segments: u64,
    /// Logs of streams whose deletion is queued.
    pub(super) deleted: BTreeSet<LogId>,
    /// Ends of appends that no round carries.
    pub(super) ended: Vec<Completion>,
    pub(super) round_under_way: bool,
    /// It sees to what is unsynced itself: no chore begins beside it.
    pub(super) round_is_alone: bool,
    pub(super) chore_under_way: bool,
    pub(super) life: Life,
    pub(super) space: Space,
    pub(super) failed: Option<Arc<str>>,
    pub(super) statistics: Statistics,
    /// Closed segments whose indexes are in memory, the longest there first, and their bytes.
    pub(super) indexes: VecDeque<(LogId, i64, u64)>,
    pub(super) index_bytes: u64,
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
            submitted: 0,
            registrations: Vec::new(),
            deletions: VecDeque::new(),
            refusals: BTreeMap::new(),
            trash: Vec::new(),
            trims: BTreeMap::new(),
            replacement: None,
            has_shed: false,
            producers: 0,
            segments: 0,
            deleted: BTreeSet::new(),
            ended: Vec::new(),
            round_under_way: false,
            round_is_alone: false,
            chore_under_way: false,
            life: Life::Open,
            space: Space::default(),
            failed: None,
            statistics: Statistics::default(),
            indexes: VecDeque::new(),
            index_bytes: 0,
        }
    }

    pub(super) fn adopt(&mut self, log: Log) {
        self.segments += log.segments.len() as u64;
        self.producers += log.producers.len();
        self.has_shed |= !log.obsolete.is_empty();
        self.names
            .insert((log.stream.clone(), log.partition), log.id);
        self.logs.insert(log.id, log);
    }

    /// Queues the removal of a stream and its logs; appends that wait for it end in an error.
    pub fn delete_stream(&mut self, stream: &str) -> Result<(), Error> {
        self.refuse_writes()?;
        check_name(stream)?;
        let logs = self.logs.values().filter(|log| &*log.stream == stream);
        let gone: BTreeSet<LogId> = logs.map(|log| log.id).collect();
        self.registrations.retain(|id| !gone.contains(id));
        self.end_queued(&gone, &Arc::from(format!("stream {stream} was deleted")));
        self.names.retain(|(name, _), _| &**name != stream);
        self.refusals.remove(stream); // that of a change nobody asked about
        let holds_records = self.strangers.iter().any(|(name, _)| name == stream);
        self.strangers.retain(|(name, _)| name != stream);
        for id in gone {
            self.trims.remove(&id);
            self.deleted.insert(id);
        }
        self.deletions.push_back(Deletion {
            stream: Arc::from(stream),
            below: self.next_id,
            holds_records,
        });
        Ok(())
    }

    /// A deletion is queued or under way.
    pub fn is_deleting(&self, stream: &str) -> bool {
        self.deletions.iter().any(|next| &*next.stream == stream)
    }

    /// The effects that remove what deleted streams have left, for the caller to perform: removing
    /// gigabytes takes seconds, which no round and no chore has.
    pub fn empty_trash(&mut self) -> Vec<DiskOp> {
        let trash = std::mem::take(&mut self.trash).into_iter();
        trash.map(|path| DiskOp::RemoveFolder { path }).collect()
    }

    /// Stamps and queues a run of validated batches.
    pub fn append(
        &mut self,
        log: LogId,
        batches: Vec<u8>,
        ticket: u64,
        wall_ms: i64,
        now_ns: u64,
    ) -> Result<Appended, Error> {
        self.refuse_writes()?;
        self.refuse_full()?;
        let interval = self.options.index_interval_bytes;
        let room = self.has_room_for(0);
        let owner = self
            .logs
            .get_mut(&log)
            .filter(|_| !self.deleted.contains(&log));
        let owner = owner.ok_or_else(|| unknown(log))?;
        let sync_at_ns = owner.settings.sync_at_ns(now_ns);
        self.producers -= owner.producers.len();
        let placed = owner.append(batches, interval, wall_ms, room);
        self.producers += owner.producers.len();
        self.bound_producers();
        let placed = placed?;
        if let Some(roll) = placed.roll {
            self.queue_roll(log, roll, now_ns, sync_at_ns);
        }
        let duplicate = placed.run.is_none();
        let work = placed.run.map_or(Work::Repeat, Work::Run);
        self.statistics.duplicates += u64::from(duplicate);
        self.statistics.queued_bytes += work.bytes();
        self.spend(work.bytes());
        self.queue.push_back(Queued {
            ticket: Some(ticket),
            log,
            work,
            since_ns: now_ns,
            sync_at_ns,
        });
        Ok(Appended {
            base_offset: placed.base_offset,
            duplicate,
        })
    }

    /// Where there are too many producers, the log that has the most forgets half of its own: it
    /// hurts those the least whose windows are few.
    fn bound_producers(&mut self) {
        if self.producers <= self.options.bounds.producers {
            return;
        }
        let most = self.logs.values_mut().max_by_key(|log| log.producers.len());
        let producers = &mut most.expect("one was appended to").producers;
        let count = producers.len();
        producers.keep_newest(count.div_ceil(2));
        self.producers -= count - producers.len();
    }

    /// Forgets producers of `log` that have been silent for long: who appends does that too, but
    /// nobody may.
    pub fn forget_silent(&mut self, log: LogId, wall_ms: i64) -> Result<(), Error> {
        let owner = self.log_mut(log)?;
        let before = owner.producers.len();
        owner.forget_silent(&[], wall_ms);
        let gone = before - owner.producers.len();
        self.producers -= gone;
        Ok(())
    }

    /// Lets the next round take all that is queued: what is appended together commits together.
    pub fn submit(&mut self) {
        self.submitted = self.queue.len();
    }

    /// No more appends; once the queue is empty the last round marks the folder clean.
    pub fn close(&mut self) {
        if self.life == Life::Open {
            self.submit();
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
        Ok((log.start_offset, log.high_watermark))
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

    pub(super) fn log_mut(&mut self, log: LogId) -> Result<&mut Log, Error> {
        self.logs.get_mut(&log).ok_or_else(|| unknown(log))
    }

    pub(super) fn refuse_writes(&self) -> Result<(), Error> {
        if let Some(why) = &self.failed {
            return Err(Error::Storage(why.to_string()));
        }
        if self.life != Life::Open {
            return Err(Error::Storage("the store is closed".into()));
        }
        Ok(())
    }
}

pub(super) fn unknown(log: LogId) -> Error {
    Error::Argument(format!("there is no log {}", log.0))
}

pub(super) fn check_name(stream: &str) -> Result<(), Error> {
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
