//! An open data folder: what callers ask of it, on their own threads.
//!
//! The machine of `headrace-core::log` decides, [`Shared`]'s threads perform.

use std::fs;
use std::ops::Range;
use std::os::fd::RawFd;
use std::path::Path as FsPath;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use headrace_core::log::{
    open, Appended, Compaction, CompactionSettings, Completion, Disk, Error, HeldLog, LogId,
    LogSettings, Options, Recovery, SegmentFacts, Statistics,
};

use crate::compactor::Compactor;
use crate::files::Files;
use crate::lock::Lock;
use crate::reading::READERS;
use crate::shared::{refuse, refuse_failed, Beside, Shared};

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

impl Store {
    /// Locks the folder, recovers, starts the threads.
    pub fn open(path: &FsPath, options: Options) -> Result<Self, Error> {
        let unusable = |error| Error::Storage(format!("data folder {}: {error}", path.display()));
        fs::create_dir_all(path).map_err(unusable)?;
        let root = path.canonicalize().map_err(unusable)?;
        let lock = Lock::take(&root).map_err(Error::Storage)?;
        let mut files = Files::of_stopped(root);
        let (mut machine, recovery) = open(&files, options)?;
        files.run();
        if let Some(room) = files.room() {
            machine.disk_free(room.bytes, room.files);
        }
        let shared = Arc::new(Shared::new(machine, files).map_err(unusable)?);
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

    /// See `Machine::check_logs`; what is left is looked at now.
    pub fn check_logs(
        &self,
        stream: &str,
        partitions: Range<u32>,
        incarnation: u64,
    ) -> Result<(), Error> {
        let descriptors = self.shared.files.descriptors();
        let state = self.shared.look_for_room();
        state
            .machine
            .check_logs(stream, partitions, incarnation, descriptors)
    }

    /// See `Machine::open_logs`.
    pub fn open_logs(
        &self,
        stream: &str,
        partitions: Range<u32>,
        incarnation: u64,
        wall_ms: i64,
    ) -> Result<Vec<LogId>, Error> {
        let mut state = self.shared.lock();
        let ids = state
            .machine
            .open_logs(stream, partitions, incarnation, wall_ms)?;
        self.shared.round_due.notify_one();
        Ok(ids)
    }

    /// See `Machine::open_log`.
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

    /// Returns when the logs that were opened of `stream` are there, in the journal too.
    pub fn created(&self, stream: &str) -> Result<(), Error> {
        let state = self.shared.lock();
        let mut state = self
            .shared
            .wait_while(state, |machine| machine.is_creating(stream));
        refuse_failed(&state.machine)?;
        refuse(state.machine.refusal(stream))
    }

    /// See `Machine::held_logs`.
    pub fn held_logs(&self) -> Vec<HeldLog> {
        self.shared.lock().machine.held_logs()
    }

    /// See `Machine::configure`.
    pub fn configure(&self, log: LogId, settings: LogSettings) -> Result<(), Error> {
        self.shared.lock().machine.configure(log, settings)?;
        self.shared.round_due.notify_one();
        Ok(())
    }

    /// Removes a stream; returns when that is durable and its files are gone, or left over.
    pub fn delete_stream(&self, stream: &str) -> Result<(), Error> {
        // What is being kept is in its folder first: a later stream may have one of that name.
        let keeping = self.shared.keeping.lock();
        let keeping = keeping.unwrap_or_else(PoisonError::into_inner);
        let mut state = self.shared.lock();
        state.machine.delete_stream(stream)?;
        drop(keeping);
        self.shared.overtaken.notify_all();
        let ended = state.machine.ended();
        self.shared.deliver(&mut state, ended);
        self.shared.round_due.notify_one();
        state = self
            .shared
            .wait_while(state, |machine| machine.is_deleting(stream));
        refuse_failed(&state.machine)?;
        let refusal = state.machine.refusal(stream);
        let ops = state.machine.empty_trash();
        drop(state);
        Beside(&self.shared).perform_all(&ops)?;
        refuse(refusal)
    }

    /// See `Machine::append`.
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

    /// See `Machine::lead`.
    pub fn lead(&self, log: LogId, epoch: i32) -> Result<(), Error> {
        self.shared.lock().machine.lead(log, epoch)
    }

    /// See `Machine::roll`; it rides the next round.
    pub fn roll(&self, log: LogId, wall_ms: i64) -> Result<(), Error> {
        self.shared.lock().machine.roll(log, wall_ms)?;
        self.shared.round_due.notify_one();
        Ok(())
    }

    /// See `Machine::forget_silent`.
    pub fn forget_silent(&self, log: LogId, wall_ms: i64) -> Result<(), Error> {
        self.shared.lock().machine.forget_silent(log, wall_ms)
    }

    /// See `Machine::trim`; returns when it is durable.
    pub fn trim(&self, log: LogId, offset: i64) -> Result<(), Error> {
        let mut state = self.shared.lock();
        state.machine.trim(log, offset)?;
        self.shared.round_due.notify_one();
        state = self
            .shared
            .wait_while(state, |machine| machine.is_trimming(log));
        refuse_failed(&state.machine)
    }

    /// See `Machine::segments`.
    pub fn segments(&self, log: LogId) -> Result<Vec<SegmentFacts>, Error> {
        self.shared.lock().machine.segments(log)
    }

    /// Starts a round with what is queued, or lets it follow the round under way.
    pub fn submit(&self) {
        self.shared.lock().machine.submit();
        self.shared.round_due.notify_one();
    }

    /// Appends that ended since the last call. [`Store::notify_fd`] tells too that [`Store::failed`],
    /// [`Store::full`] or [`Store::leftovers`] has changed.
    pub fn poll(&self) -> Vec<Completion> {
        self.shared.take(|outbox| {
            outbox.changed = false;
            std::mem::take(&mut outbox.ended)
        })
    }

    /// Why appends are refused for want of room, or None.
    pub fn full(&self) -> Option<String> {
        self.shared.lock().machine.full().map(ToString::to_string)
    }

    /// Which files could not be removed, in one line, or None.
    pub fn leftovers(&self) -> Option<String> {
        self.shared.files.leftovers.report()
    }

    /// How many these are.
    pub fn leftover_count(&self) -> usize {
        self.shared.files.leftovers.count()
    }

    /// See `Machine::free_bytes`.
    pub fn free_bytes(&self) -> Option<u64> {
        self.shared.lock().machine.free_bytes()
    }

    /// See `Machine::bounds`.
    pub fn bounds(&self, log: LogId) -> Result<(i64, i64), Error> {
        self.shared.lock().machine.bounds(log)
    }

    /// See `Machine::size_bytes`.
    pub fn size_bytes(&self, log: LogId) -> Result<u64, Error> {
        self.shared.lock().machine.size_bytes(log)
    }

    /// See [`Machine::readable_bytes`].
    pub fn readable_bytes(&self, log: LogId, offset: i64) -> Result<u64, Error> {
        self.shared.lock().machine.readable_bytes(log, offset)
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

    /// Writes nothing more, for a reason of the caller's: a sync beside the store has failed.
    pub fn fail(&self, why: &str) {
        self.shared.abort(why);
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
        self.shared.stop();
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use headrace_core::log::{Bounds, DiskOp};

    use super::*;

    fn opened(name: &str) -> (PathBuf, Store) {
        let folder = std::env::temp_dir().join(format!("headrace-{name}-{}", std::process::id()));
        let options = Options {
            journal_bytes: 1 << 20,
            segment_bytes: 1 << 20,
            index_interval_bytes: 4096,
            direct_write_bytes: 64 << 10,
            reserve_bytes: 0,
            seed: 1,
            bounds: Bounds::NODE,
        };
        let store = Store::open(&folder, options).unwrap();
        (folder, store)
    }

    #[test]
    fn after_a_sync_that_failed_none_counts() {
        let (folder, store) = opened("none-counts");
        symlink("/dev/null", folder.join("null")).unwrap(); // of which nothing can be synced
        let sync = |path: &str| {
            let path = path.into();
            store.shared.perform(&[DiskOp::Sync { path }])
        };
        fs::write(folder.join("sound"), "seven").unwrap();
        assert_eq!(sync("sound"), Ok(()));
        let missing = sync("missing").unwrap_err();
        assert!(
            !missing.lossy && store.failed().is_none(),
            "it was not begun"
        );
        let lost = sync("null").unwrap_err();
        assert!(lost.lossy);
        let why = store.failed().unwrap();
        assert_eq!(why, format!("{}, then restart", lost.text));
        let after = sync("sound").unwrap_err();
        assert_eq!((after.lossy, after.text), (true, why));
        drop(store);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_sync_of_what_a_deletion_took_meanwhile_ends_nothing_else() {
        let (folder, store) = opened("overtaken");
        let path = "streams/gone/0".into();
        let overtaken = Beside(&store.shared).perform(&DiskOp::SyncFolder { path });
        assert!(overtaken.is_err_and(|why| !why.lossy));
        assert_eq!(store.failed(), None);
        drop(store);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_thread_that_panics_fails_the_store() {
        let (folder, store) = opened("panics");
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
