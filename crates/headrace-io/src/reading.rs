//! Reading: at once what is in memory, the rest on threads of its own.
//!
//! Owns the queue of reads that wait for the disk. Must not know what batches mean. Invariants: no
//! lock is held while the disk works, so appends never wait for reads; reads begin in the order in
//! which they were asked for; at most [`UNCLAIMED_BYTES_MAX`] and a read for each thread lie ready
//! that nobody has taken yet.

use std::collections::VecDeque;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use headrace_core::log::{Error, LogId, Plan};

use crate::shared::Shared;
use crate::store::Store;
use crate::warm::{Ahead, Warm};

/// Threads that read: enough to keep a disk's queue filled, few enough not to make it seek.
pub(crate) const READERS: usize = 4;
/// Read on the caller's thread, which has others to serve: a millisecond of copying.
const WARM_BYTES_MAX: usize = 4 << 20;
/// Bytes read and not yet taken, beyond which no further read begins.
const UNCLAIMED_BYTES_MAX: usize = 64 << 20;

/// What a read is after.
#[derive(Clone, Copy, Debug)]
enum Wanted {
    Batches { offset: i64, bytes_max: usize },
    Time(i64),
}

/// What it found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Whole committed batches.
    Batches(Vec<u8>),
    /// `(offset, timestamp)` of a record, where there is one.
    Place(Option<(i64, i64)>),
}

/// The end of one read.
#[derive(Clone, Debug)]
pub struct ReadEnd {
    /// The caller's number for it.
    pub ticket: u64,
    /// What it found, or why not.
    pub outcome: Result<Found, Error>,
}

#[derive(Debug)]
struct Job {
    ticket: u64,
    log: LogId,
    wanted: Wanted,
}

/// Reads that wait for a thread.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    queue: Mutex<Queue>,
    /// A read may begin.
    due: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Job>,
    unclaimed_bytes: usize,
    stopping: bool,
}

impl Reads {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Its parts are sound at every step.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, job: Job) {
        self.lock().waiting.push_back(job);
        self.due.notify_one();
    }

    /// The next read, once there is one and room for it; None at the end.
    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if queue.stopping {
                return None;
            }
            if queue.unclaimed_bytes < UNCLAIMED_BYTES_MAX {
                if let Some(job) = queue.waiting.pop_front() {
                    return Some(job);
                }
            }
            queue = self.due.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The readers end after what they are reading.
    pub(crate) fn stop(&self) {
        self.lock().stopping = true;
        self.due.notify_all();
    }
}

impl ReadEnd {
    fn bytes(&self) -> usize {
        match &self.outcome {
            Ok(Found::Batches(batches)) => batches.len(),
            _ => 0,
        }
    }
}

impl Store {
    /// Whole committed batches from the one that holds `offset`: at least one where there is
    /// one, else at most `bytes_max`. Waits for the disk.
    pub fn read(&self, log: LogId, offset: i64, bytes_max: usize) -> Result<Vec<u8>, Error> {
        self.shared.read(log, offset, bytes_max)
    }

    /// As [`Store::read`], and never waits: None where the disk must bring something; the ticket
    /// then ends in [`Store::poll_reads`].
    pub fn fetch(
        &self,
        log: LogId,
        offset: i64,
        bytes_max: usize,
        ticket: u64,
    ) -> Result<Option<Vec<u8>>, Error> {
        let plan = self.shared.lock().machine.plan_read(log, offset)?;
        match plan {
            Plan::Nothing => return Ok(Some(Vec::new())),
            Plan::Walk(walk) => {
                let warm = Warm::new(&self.shared.files, WARM_BYTES_MAX);
                // Why not, the thread that tries again will tell.
                if let Ok(batches) = walk.read(&warm, offset, bytes_max) {
                    return Ok(Some(batches));
                }
            }
            Plan::Load(_) => {}
        }
        let wanted = Wanted::Batches { offset, bytes_max };
        self.begin(ticket, log, wanted);
        Ok(None)
    }

    /// `(offset, timestamp)` of the first committed record at or after `timestamp`. Waits for
    /// the disk.
    pub fn offset_for_time(&self, log: LogId, timestamp: i64) -> Result<Option<(i64, i64)>, Error> {
        self.shared.offset_for_time(log, timestamp)
    }

    /// As [`Store::offset_for_time`], and never waits: the ticket ends in [`Store::poll_reads`].
    pub fn seek(&self, log: LogId, timestamp: i64, ticket: u64) -> Result<(), Error> {
        self.bounds(log)?;
        self.begin(ticket, log, Wanted::Time(timestamp));
        Ok(())
    }

    fn begin(&self, ticket: u64, log: LogId, wanted: Wanted) {
        self.shared.reads.begin(Job {
            ticket,
            log,
            wanted,
        });
    }

    /// Nobody waits for this read any more. It ends nonetheless where it has begun.
    pub fn cancel_read(&self, ticket: u64) {
        let mut queue = self.shared.reads.lock();
        queue.waiting.retain(|job| job.ticket != ticket);
    }

    /// Reads that ended since the last call.
    pub fn poll_reads(&self) -> Vec<ReadEnd> {
        let ends = self.shared.take(|outbox| std::mem::take(&mut outbox.reads));
        let bytes: usize = ends.iter().map(ReadEnd::bytes).sum();
        if bytes > 0 {
            self.shared.reads.lock().unclaimed_bytes -= bytes;
            self.shared.reads.due.notify_all();
        }
        ends
    }
}

impl Shared {
    /// A reader thread.
    pub(crate) fn serve_reads(&self) {
        while let Some(job) = self.reads.next() {
            let read = || match job.wanted {
                Wanted::Batches { offset, bytes_max } => {
                    self.read(job.log, offset, bytes_max).map(Found::Batches)
                }
                Wanted::Time(timestamp) => {
                    self.offset_for_time(job.log, timestamp).map(Found::Place)
                }
            };
            let outcome = catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
                // A bug, met by this reader alone; who writes is not concerned.
                Err(Error::Storage("a fault ended the read: report it".into()))
            });
            let end = ReadEnd {
                ticket: job.ticket,
                outcome,
            };
            self.reads.lock().unclaimed_bytes += end.bytes();
            self.put(|outbox| outbox.reads.push(end));
        }
    }

    fn read(&self, log: LogId, offset: i64, bytes_max: usize) -> Result<Vec<u8>, Error> {
        self.of_one_edition(log, || loop {
            let plan = self.lock().machine.plan_read(log, offset)?;
            match plan {
                Plan::Nothing => return Ok(Vec::new()),
                Plan::Load(files) => {
                    let index = files.load(&self.files)?;
                    self.lock().machine.indexed(index);
                }
                Plan::Walk(walk) => {
                    let ahead = Ahead::new(&self.files, bytes_max);
                    return walk.read(&ahead, offset, bytes_max);
                }
            }
        })
    }

    fn offset_for_time(&self, log: LogId, timestamp: i64) -> Result<Option<(i64, i64)>, Error> {
        self.of_one_edition(log, || self.find_time(log, timestamp))
    }

    fn find_time(&self, log: LogId, timestamp: i64) -> Result<Option<(i64, i64)>, Error> {
        let (start, end) = self.lock().machine.bounds(log)?;
        let mut walked = None;
        loop {
            let plan = self
                .lock()
                .machine
                .plan_time(log, timestamp, walked.as_ref())?;
            match plan {
                Plan::Nothing => return Ok(None),
                Plan::Load(files) => {
                    let index = files.load(&self.files)?;
                    self.lock().machine.indexed(index);
                }
                Plan::Walk(walk) => {
                    let found = walk.find_time(&self.files, timestamp, start..end)?;
                    if found.is_some() {
                        return Ok(found);
                    }
                    walked = Some(walk);
                }
            }
        }
    }

    /// Reads again where segments went while it read, which it cannot tell from damage.
    pub(crate) fn of_one_edition<T>(
        &self,
        log: LogId,
        read: impl Fn() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let edition = || self.lock().machine.edition(log);
        loop {
            let before = edition()?;
            let outcome = read();
            if outcome.is_ok() || edition()? == before {
                return outcome;
            }
        }
    }
}
