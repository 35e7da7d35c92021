//! The machine of `headrace-core::log`, driven by two threads.
//!
//! The flusher performs round after round; whatever queued while one ran is the next, so commits
//! group by themselves and an idle store answers after one sync. The keeper performs chores
//! (syncing segments, readying the next journal file) beside it, so that rounds do not wait for
//! them. The machine is locked only to take work and to report it.

use std::fs;
use std::os::fd::RawFd;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::Path as FsPath;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use headrace_core::log::{
    open, Appended, Compaction, CompactionSettings, Completion, Disk, DiskOp, Error, LogId,
    LogSettings, Machine, Options, Recovery, SegmentFacts, Statistics,
};

use crate::compactor::Compactor;
use crate::files::Files;
use crate::lock::Lock;
use crate::reading::{ReadEnd, Reads, READERS};
use crate::wake::Wake;

/// How often the keeper looks how full the disk is. What this store writes is counted between, so
/// a second is for what others write: at a gigabyte in it the reserve should be larger.
const SPACE_CHECK: Duration = Duration::from_secs(1);

/// An open data folder.
#[derive(Debug)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
    recovery: Recovery,
    threads: Mutex<Threads>,
    /// Held by the compaction under way: there is one at a time.
    compacting: Mutex<()>,
}

#[derive(Debug)]
struct Threads {
    running: Vec<JoinHandle<()>>,
    lock: Option<Lock>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// The flusher may have a round.
    pub(crate) round_due: Condvar,
    /// The keeper may have a chore.
    chore_due: Condvar,
    /// A round or a chore has ended.
    pub(crate) ended: Condvar,
    /// A compaction that waits for its turn may have to give up.
    pub(crate) overtaken: Condvar,
    pub(crate) files: Files,
    pub(crate) reads: Reads,
    /// Held while sources are kept.
    pub(crate) keeping: Mutex<()>,
    outbox: Mutex<Outbox>,
    wake: Wake,
    began: Instant,
}

/// What ended and nobody has asked for yet. The eventfd is readable exactly while there is any.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// The disk became too full, or is no longer.
    room_changed: bool,
    ended: Vec<Completion>,
    pub(crate) reads: Vec<ReadEnd>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) machine: Machine,
    stopping: bool,
}

impl Store {
    /// Locks the folder, recovers, starts the threads.
    pub fn open(path: &FsPath, options: Options) -> Result<Self, Error> {
        let unusable = |error| Error::Storage(format!("data folder {}: {error}", path.display()));
        fs::create_dir_all(path).map_err(unusable)?;
        let root = path.canonicalize().map_err(unusable)?;
        let lock = Lock::take(&root).map_err(Error::Storage)?;
        let files = Files::new(root);
        let (mut machine, recovery) = open(&files, options)?;
        files.free_bytes().map(|free| machine.disk_free(free));
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                machine,
                stopping: false,
            }),
            round_due: Condvar::new(),
            chore_due: Condvar::new(),
            ended: Condvar::new(),
            overtaken: Condvar::new(),
            files,
            reads: Reads::default(),
            keeping: Mutex::default(),
            outbox: Mutex::default(),
            wake: Wake::new().map_err(unusable)?,
            began: Instant::now(),
        });
        let start = |name: &'static str, run: fn(&Shared)| {
            let shared = shared.clone();
            Builder::new()
                .name(name.into())
                .spawn(move || shared.guarded(name, run))
                .map_err(unusable)
        };
        let mut running = vec![
            start("flusher", Shared::flush)?,
            start("keeper", Shared::keep)?,
        ];
        for _ in 0..READERS {
            running.push(start("reader", Shared::serve_reads)?);
        }
        let threads = Mutex::new(Threads {
            running,
            lock: Some(lock),
        });
        Ok(Self {
            shared,
            recovery,
            threads,
            compacting: Mutex::default(),
        })
    }

    /// What opening found and mended.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Readable while [`Store::poll`] has something.
    pub fn notify_fd(&self) -> RawFd {
        self.shared.wake.fd()
    }

    /// See [`Machine::open_log`].
    pub fn open_log(
        &self,
        stream: &str,
        partition: u32,
        incarnation: u64,
        wall_ms: i64,
    ) -> Result<LogId, Error> {
        let id = self
            .shared
            .lock()
            .machine
            .open_log(stream, partition, incarnation, wall_ms)?;
        self.shared.round_due.notify_one();
        Ok(id)
    }

    /// See [`Machine::configure`].
    pub fn configure(&self, log: LogId, settings: LogSettings) -> Result<(), Error> {
        self.shared.lock().machine.configure(log, settings)?;
        self.shared.round_due.notify_one();
        Ok(())
    }

    /// Removes a stream; returns when that is durable.
    pub fn delete_stream(&self, stream: &str) -> Result<(), Error> {
        let mut state = self.shared.lock();
        state.machine.delete_stream(stream)?;
        self.shared.overtaken.notify_all();
        self.shared.deliver(state.machine.ended());
        self.shared.round_due.notify_one();
        state = self
            .shared
            .wait_while(state, |machine| machine.is_deleting(stream));
        refuse_failed(&state.machine)
    }

    /// See [`Machine::append`].
    pub fn append(
        &self,
        log: LogId,
        batches: Vec<u8>,
        ticket: u64,
        wall_ms: i64,
    ) -> Result<Appended, Error> {
        let now_ns = self.shared.now_ns();
        self.shared
            .lock()
            .machine
            .append(log, batches, ticket, wall_ms, now_ns)
    }

    /// See [`Machine::lead`].
    pub fn lead(&self, log: LogId, epoch: i32) -> Result<(), Error> {
        self.shared.lock().machine.lead(log, epoch)
    }

    /// See [`Machine::roll`]; it rides the next round.
    pub fn roll(&self, log: LogId, wall_ms: i64) -> Result<(), Error> {
        self.shared.lock().machine.roll(log, wall_ms)?;
        self.shared.round_due.notify_one();
        Ok(())
    }

    /// See [`Machine::trim`]; returns when it is durable.
    pub fn trim(&self, log: LogId, offset: i64) -> Result<(), Error> {
        let mut state = self.shared.lock();
        state.machine.trim(log, offset)?;
        self.shared.round_due.notify_one();
        state = self
            .shared
            .wait_while(state, |machine| machine.is_trimming(log));
        refuse_failed(&state.machine)
    }

    /// See [`Machine::segments`].
    pub fn segments(&self, log: LogId) -> Result<Vec<SegmentFacts>, Error> {
        self.shared.lock().machine.segments(log)
    }

    /// Starts a round with what is queued, or lets it follow the round under way.
    pub fn submit(&self) {
        self.shared.lock().machine.submit();
        self.shared.round_due.notify_one();
    }

    /// Appends that ended since the last call.
    pub fn poll(&self) -> Vec<Completion> {
        self.shared.take(|outbox| {
            outbox.room_changed = false;
            std::mem::take(&mut outbox.ended)
        })
    }

    /// Why appends are refused for want of room, or None; [`Store::notify_fd`] tells of changes.
    pub fn full(&self) -> Option<String> {
        self.shared.lock().machine.full().map(ToString::to_string)
    }

    /// See [`Machine::free_bytes`].
    pub fn free_bytes(&self) -> Option<u64> {
        self.shared.lock().machine.free_bytes()
    }

    /// See [`Machine::bounds`].
    pub fn bounds(&self, log: LogId) -> Result<(i64, i64), Error> {
        self.shared.lock().machine.bounds(log)
    }

    /// See [`Machine::size_bytes`].
    pub fn size_bytes(&self, log: LogId) -> Result<u64, Error> {
        self.shared.lock().machine.size_bytes(log)
    }

    /// Compacts the closed segments of `log`, reading and writing `bytes_per_second` at most; the
    /// store goes on meanwhile. Ends early, and leaves nothing, where a trim or the deletion of the
    /// stream overtakes it. One compaction runs at a time; another waits for it.
    pub fn compact(
        &self,
        log: LogId,
        settings: CompactionSettings,
        bytes_per_second: u64,
    ) -> Result<Compaction, Error> {
        let one = self.compacting.lock();
        let _one = one.unwrap_or_else(PoisonError::into_inner);
        let compactor = Compactor::new(&self.shared, log, bytes_per_second)?;
        compactor.run_in_background(settings)
    }

    /// Why nothing more is written, or None.
    pub fn failed(&self) -> Option<String> {
        self.shared.lock().machine.failed().map(ToString::to_string)
    }

    /// Counters, and files open for writing.
    pub fn statistics(&self) -> (Statistics, usize) {
        (
            self.shared.lock().machine.statistics(),
            self.shared.files.open_count(),
        )
    }

    /// Commits what is queued, syncs everything, marks the folder clean, ends the threads, lets
    /// go of the lock. A second call does nothing.
    pub fn close(&self) -> Result<(), Error> {
        let mut state = self.shared.lock();
        state.machine.close();
        self.shared.overtaken.notify_all();
        self.shared.round_due.notify_one();
        state = self
            .shared
            .wait_while(state, |machine| !machine.is_closed());
        let outcome = refuse_failed(&state.machine);
        drop(state);
        self.stop();
        outcome
    }

    /// Ends the threads after the round and the chore under way, as a crash would.
    fn stop(&self) {
        // Also after a panic: dropping must not panic again.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .stopping = true;
        self.shared.round_due.notify_all();
        self.shared.chore_due.notify_all();
        self.shared.reads.stop();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.running.drain(..) {
            // It has reported by panicking already, and the machine's lock tells everyone.
            let _ = thread.join();
        }
        // Nobody else gets the folder while files are written there.
        drop(self.compacting.lock());
        threads.lock = None;
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic inside the machine is a bug; going on with half a decision could lose data.
        self.state.lock().expect("the store's machine panicked")
    }

    fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts something into the outbox.
    pub(crate) fn put(&self, put: impl FnOnce(&mut Outbox)) {
        let mut outbox = self.outbox();
        let was_empty = outbox.is_empty();
        put(&mut outbox);
        if was_empty {
            self.wake.set();
        }
    }

    /// Takes something out of the outbox.
    pub(crate) fn take<T>(&self, take: impl FnOnce(&mut Outbox) -> Vec<T>) -> Vec<T> {
        let mut outbox = self.outbox();
        let was_empty = outbox.is_empty();
        let taken = take(&mut outbox);
        if !was_empty && outbox.is_empty() {
            self.wake.clear();
        }
        taken
    }

    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    pub(crate) fn wait_while<'a>(
        &self,
        state: MutexGuard<'a, State>,
        mut waiting: impl FnMut(&Machine) -> bool,
    ) -> MutexGuard<'a, State> {
        self.ended
            .wait_while(state, |state| {
                state.machine.failed().is_none() && waiting(&state.machine)
            })
            .expect("the store's machine panicked")
    }

    fn perform(&self, ops: &[DiskOp]) -> Result<(), String> {
        ops.iter()
            .try_for_each(|op| self.files.perform(op))
            .map_err(|error| error.0)
    }

    fn deliver(&self, ended: Vec<Completion>) {
        if !ended.is_empty() {
            self.put(|outbox| outbox.ended.extend(ended));
        }
    }

    /// A thread that panics found a bug. It would leave everyone waiting for what it does, so the
    /// store fails, and who waits hears of it.
    fn guarded(&self, name: &str, run: impl FnOnce(&Self)) {
        if catch_unwind(AssertUnwindSafe(|| run(self))).is_ok() {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let why = format!("a fault ended the {name} thread: report it, and restart");
        let ended = state.machine.abort(&why);
        self.deliver(ended);
        self.ended.notify_all();
    }

    /// The flusher thread.
    fn flush(&self) {
        let mut state = self.lock();
        while !state.stopping {
            let Some(draft) = state.machine.next_round(self.now_ns()) else {
                self.deliver(state.machine.ended());
                self.ended.notify_all();
                state = self.wait_for_round(state);
                continue;
            };
            drop(state);
            let began_ns = self.now_ns();
            let round = draft.build();
            let outcome = self
                .perform(&round.before)
                .and_then(|()| self.perform(&round.after));
            state = self.lock();
            let ended = state
                .machine
                .round_done(round, outcome, began_ns, self.now_ns());
            self.deliver(ended);
            self.chore_due.notify_one();
            self.ended.notify_all();
        }
    }

    /// Until there may be a round, or until the machine wants to look at the clock.
    fn wait_for_round<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(wake_at_ns) = state.machine.wake_at_ns() else {
            let woken = self.round_due.wait(state);
            return woken.expect("the store's machine panicked");
        };
        let pause = Duration::from_nanos(wake_at_ns.saturating_sub(self.now_ns()));
        let woken = self.round_due.wait_timeout(state, pause);
        woken.expect("the store's machine panicked").0
    }

    fn look_for_room(&self) -> MutexGuard<'_, State> {
        let free = self.files.free_bytes();
        let mut state = self.lock();
        if free.is_some_and(|free| state.machine.disk_free(free)) {
            self.put(|outbox| outbox.room_changed = true);
        }
        state
    }

    /// The keeper thread.
    fn keep(&self) {
        let mut looked = Instant::now();
        let mut state = self.lock();
        while !state.stopping {
            if looked.elapsed() >= SPACE_CHECK {
                looked = Instant::now();
                drop(state);
                state = self.look_for_room();
                continue;
            }
            let Some(chore) = state.machine.next_chore() else {
                let pause = SPACE_CHECK.saturating_sub(looked.elapsed());
                let woken = self.chore_due.wait_timeout(state, pause);
                state = woken.expect("the store's machine panicked").0;
                continue;
            };
            drop(state);
            let outcome = self.perform(&chore.ops);
            state = self.lock();
            let ended = state.machine.chore_done(&chore, outcome);
            self.deliver(ended);
            self.round_due.notify_one();
            self.ended.notify_all();
        }
    }
}

impl Outbox {
    fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.reads.is_empty() && !self.room_changed
    }
}

pub(crate) fn refuse_failed(machine: &Machine) -> Result<(), Error> {
    machine
        .failed()
        .map_or(Ok(()), |why| Err(Error::Storage(why.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_panics_fails_the_store() {
        let folder = std::env::temp_dir().join(format!("headrace-io-{}", std::process::id()));
        let options = Options {
            journal_bytes: 1 << 20,
            segment_bytes: 1 << 20,
            index_interval_bytes: 4096,
            direct_write_bytes: 64 << 10,
            reserve_bytes: 0,
            seed: 1,
        };
        let store = Store::open(&folder, options).unwrap();
        let log = store.open_log("a", 0, 1, 0).unwrap();
        let batch = {
            let mut builder = headrace_core::record::BatchBuilder::new();
            builder.push(0, None, None, []);
            builder.finish()
        };
        store.append(log, batch.clone(), 2, 0).unwrap();
        store.shared.guarded("test", |_| panic!("planted"));
        let why = "a fault ended the test thread: report it, and restart";
        assert_eq!(store.failed().as_deref(), Some(why));
        assert_eq!(store.poll()[0].error.as_deref(), Some(why));
        let refused = Err(Error::Storage(why.into()));
        assert_eq!(store.append(log, batch, 4, 0), refused);
        assert_eq!(store.close(), Err(Error::Storage(why.into())));
        fs::remove_dir_all(folder).unwrap();
    }
}
