//! What the store's threads share, and what two of them do.
//!
//! The flusher performs round after round; whatever queued while one ran is the next, so commits
//! group by themselves and an idle store answers after one sync. The keeper performs chores
//! (syncing segments, readying the next journal file) beside it, so that rounds do not wait for
//! them. The machine is locked only to take work and to report it.

use std::io;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use headrace_core::log::{Completion, Disk, DiskError, DiskOp, Error, Machine};

use crate::files::Files;
use crate::reading::{ReadEnd, Reads};
use crate::wake::Wake;

/// How often the keeper looks how full the disk is. What this store writes is counted between, so
/// a second is for what others write: at a gigabyte in it the reserve should be larger.
const SPACE_CHECK: Duration = Duration::from_secs(1);

/// How often it tries to remove what could not be removed: somebody has to do something first.
const LEFTOVERS_RETRY: Duration = Duration::from_secs(60);

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
    /// Held while sources are kept, and taken before the machine's lock.
    pub(crate) keeping: Mutex<()>,
    outbox: Mutex<Outbox>,
    pub(crate) wake: Wake,
    began: Instant,
}

/// What ended and nobody has asked for yet. The eventfd is readable exactly while there is any.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    /// The store failed; the disk became too full, or is no longer; or other files are left over.
    pub(crate) changed: bool,
    pub(crate) ended: Vec<Completion>,
    pub(crate) reads: Vec<ReadEnd>,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) machine: Machine,
    stopping: bool,
    /// The outbox says that the machine has failed.
    told: bool,
}

impl Shared {
    pub(crate) fn new(machine: Machine, files: Files) -> io::Result<Self> {
        Ok(Self {
            state: Mutex::new(State {
                machine,
                stopping: false,
                told: false,
            }),
            round_due: Condvar::new(),
            chore_due: Condvar::new(),
            ended: Condvar::new(),
            overtaken: Condvar::new(),
            files,
            reads: Reads::default(),
            keeping: Mutex::default(),
            outbox: Mutex::default(),
            wake: Wake::new()?,
            began: Instant::now(),
        })
    }

    /// Has the threads end after what they have under way, as a crash would.
    pub(crate) fn stop(&self) {
        // Also after a panic: dropping must not panic again.
        let state = self.state.lock();
        state.unwrap_or_else(PoisonError::into_inner).stopping = true;
        self.round_due.notify_all();
        self.chore_due.notify_all();
        self.reads.stop();
    }

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

    pub(crate) fn now_ns(&self) -> u64 {
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

    /// Performs effects in order; the machine hears how each sync has ended.
    pub(crate) fn perform(&self, ops: &[DiskOp]) -> Result<(), DiskError> {
        self.files.perform_heard(ops, &|ended| self.hear(ended))
    }

    /// Tells the machine of a sync, and who waits, where that ends the store.
    fn hear(&self, outcome: Result<(), DiskError>) -> Result<(), DiskError> {
        let mut state = self.lock();
        let outcome = state.machine.sync_ended(outcome);
        if outcome.is_err() {
            let ended = state.machine.ended();
            self.tell_of_failure(state, ended);
        }
        outcome
    }

    fn tell_of_failure(&self, mut state: MutexGuard<'_, State>, ended: Vec<Completion>) {
        self.deliver(&mut state, ended);
        self.ended.notify_all();
        self.overtaken.notify_all();
    }

    /// Puts into the outbox what has ended; and, once, that the store has failed: what failed may
    /// have been nothing that anybody waits for.
    pub(crate) fn deliver(&self, state: &mut State, ended: Vec<Completion>) {
        let fails = !state.told && state.machine.failed().is_some();
        if fails || !ended.is_empty() {
            state.told |= fails;
            self.put(|outbox| {
                outbox.changed |= fails;
                outbox.ended.extend(ended);
            });
        }
    }

    /// A thread that panics found a bug. It would leave everyone waiting for what it does, so the
    /// store fails, and who waits hears of it.
    pub(crate) fn guarded(&self, name: &str, run: impl FnOnce(&Self)) {
        if catch_unwind(AssertUnwindSafe(|| run(self))).is_ok() {
            return;
        }
        self.abort(&format!(
            "a fault ended the {name} thread: report it, and restart"
        ));
    }

    /// Nothing more is written, and who waits hears why.
    pub(crate) fn abort(&self, why: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = state.machine.abort(why);
        self.tell_of_failure(state, ended);
    }

    /// The flusher thread.
    pub(crate) fn flush(&self) {
        let mut state = self.lock();
        while !state.stopping {
            let Some(draft) = state.machine.next_round(self.now_ns()) else {
                let ended = state.machine.ended();
                self.deliver(&mut state, ended);
                self.ended.notify_all();
                state = self.wait_for_round(state);
                continue;
            };
            drop(state);
            let began_ns = self.now_ns();
            let round = draft.build();
            let (attempts, before) = round.before.split_at(round.attempts);
            let refused = self.perform(attempts).err();
            let outcome = match &refused {
                Some(why) if why.lossy => Ok(()), // nothing more is written
                Some(_) => self.perform(&round.undoes()),
                None => self
                    .perform(before)
                    .and_then(|()| self.perform(&round.after)),
            };
            let outcome = outcome.map_err(|error| error.text);
            state = self.lock();
            let ended = match refused {
                Some(why) => state.machine.round_refused(round, &why),
                None => state
                    .machine
                    .round_done(round, outcome, began_ns, self.now_ns()),
            };
            self.deliver(&mut state, ended);
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

    /// Looks what the disk has left.
    pub(crate) fn look_for_room(&self) -> MutexGuard<'_, State> {
        if let Some(why) = self.files.moved() {
            self.abort(&why);
        }
        let room = self.files.room();
        let mut has_news = self.files.leftovers.has_news();
        let mut state = self.lock();
        if let Some(room) = room {
            has_news |= state.machine.disk_free(room.bytes, room.files);
        }
        if has_news {
            self.put(|outbox| outbox.changed = true);
        }
        state
    }

    /// The keeper thread.
    pub(crate) fn keep(&self) {
        let mut looked = Instant::now();
        let mut retried = Instant::now();
        let mut state = self.lock();
        while !state.stopping {
            if retried.elapsed() >= LEFTOVERS_RETRY {
                retried = Instant::now();
                drop(state);
                self.files.retry_leftovers();
                state = self.lock();
                continue;
            }
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
            let outcome = self.perform(&chore.ops).map_err(|error| error.text);
            state = self.lock();
            let ended = state.machine.chore_done(&chore, outcome);
            self.deliver(&mut state, ended);
            self.round_due.notify_one();
            self.ended.notify_all();
        }
    }
}

/// The files, for work beside the rounds and the chores. What a sync that fails has lost may be
/// theirs, and ends all writing. One that could not begin is for who wanted it alone: a deletion
/// may have moved the folder away meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Beside<'a>(pub(crate) &'a Shared);

impl Disk for Beside<'_> {
    fn list(&self, folder: &str) -> Result<Vec<String>, DiskError> {
        self.0.files.list(folder)
    }

    fn size(&self, path: &str) -> Result<Option<u64>, DiskError> {
        self.0.files.size(path)
    }

    fn read(&self, path: &str, position: u64, bytes: usize) -> Result<Vec<u8>, DiskError> {
        self.0.files.read(path, position, bytes)
    }

    fn perform(&self, op: &DiskOp) -> Result<(), DiskError> {
        self.0.perform(std::slice::from_ref(op))
    }
}

impl Outbox {
    fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.reads.is_empty() && !self.changed
    }
}

pub(crate) fn refuse_failed(machine: &Machine) -> Result<(), Error> {
    refuse(machine.failed().cloned())
}

/// For the reason that there is, where there is one.
pub(crate) fn refuse(why: Option<Arc<str>>) -> Result<(), Error> {
    why.map_or(Ok(()), |why| Err(Error::Storage(why.to_string())))
}
