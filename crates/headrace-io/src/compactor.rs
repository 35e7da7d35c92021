//! A compaction beside the store's own threads: on a thread of its own, in pieces, at a pace.
//!
//! The machine is locked to plan, to hand in what was written, and once for each piece of a
//! mebibyte or so, to see whether it is still wanted; never while the disk works.

use std::cell::Cell;
use std::panic::resume_unwind;
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use headrace_core::log::{
    Compaction, CompactionSettings, Disk, DiskError, DiskOp, Error, Group, LogId, Machine, Survey,
};

use crate::shared::{refuse_failed, Beside, Shared, State};

/// What may be read and written at once after a pause: a piece or two at ordinary rates.
const BURST: Duration = Duration::from_millis(20);

/// Of the thread: a tenth of an ordinary one's share where both want the processor.
const NICENESS: libc::c_int = 10;

/// One compaction.
pub(crate) struct Compactor<'a> {
    shared: &'a Shared,
    log: LogId,
    disk: Paced<'a>,
    report: Compaction,
}

/// The disk at a pace, for as long as the log takes appends.
struct Paced<'a> {
    shared: &'a Shared,
    disk: Beside<'a>,
    log: LogId,
    bytes_per_second: u64,
    /// What was read and written so far is paid for by then.
    paid_at: Cell<Instant>,
}

impl<'a> Compactor<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        log: LogId,
        bytes_per_second: u64,
    ) -> Result<Self, Error> {
        if bytes_per_second == 0 {
            return Err(Error::Argument("bytes_per_second is positive".into()));
        }
        let disk = Paced {
            shared,
            disk: Beside(shared),
            log,
            bytes_per_second,
            paid_at: Cell::new(Instant::now()),
        };
        Ok(Self {
            shared,
            log,
            disk,
            report: Compaction::default(),
        })
    }

    /// Runs on a thread that yields to all others, and returns when that has ended.
    pub(crate) fn run_in_background(
        self,
        settings: CompactionSettings,
    ) -> Result<Compaction, Error> {
        let run = || {
            step_back();
            self.run(settings)
        };
        thread::scope(|scope| {
            let thread = Builder::new().name("compactor".into());
            let thread = thread.spawn_scoped(scope, run);
            let thread = thread.map_err(|error| Error::Storage(format!("compaction: {error}")))?;
            thread.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    }

    fn run(mut self, settings: CompactionSettings) -> Result<Compaction, Error> {
        while self.pass(settings)? {}
        let clean_to = self.shared.lock().machine.cleaned_to(self.log);
        self.report.clean_to = clean_to.unwrap_or(0);
        Ok(self.report)
    }

    /// Whether there is more to do.
    fn pass(&mut self, settings: CompactionSettings) -> Result<bool, Error> {
        let mut state = self.shared.lock();
        if !state.machine.has_spare(0) {
            return Ok(false); // it is asked for again when there is room
        }
        let Some(pass) = state.machine.plan_compaction(self.log, settings)? else {
            return Ok(false);
        };
        let edition = state.machine.edition(self.log)?;
        drop(state);
        let mut survey = match pass.survey(&self.disk, &mut self.report) {
            Ok(survey) => survey,
            Err(error) => {
                let state = self.shared.lock();
                let overtaken = state.machine.edition(self.log) != Ok(edition);
                return give_up(overtaken || !state.machine.has_log(self.log), error);
            }
        };
        let kept = self
            .shared
            .keep_beside(|machine| machine.keep_sources(&mut survey));
        if let Err(error) = kept {
            return give_up(!self.shared.lock().machine.has_log(self.log), error);
        }
        for group in survey.groups() {
            // What it becomes stands beside what it was for a while: appends need the reserve more.
            if !self.shared.lock().machine.has_spare(survey.bytes(&group)) {
                return Ok(false);
            }
            if !self.swap(&survey, &group)? {
                return Ok(false);
            }
        }
        Ok(!survey.is_last())
    }

    /// Rewrites a group and puts it in its place; false where something else did away with that.
    fn swap(&mut self, survey: &Survey, group: &Group) -> Result<bool, Error> {
        let outcome = self.try_swap(survey, group);
        if outcome == Ok(true) {
            return outcome;
        }
        let state = self.shared.lock();
        let full = state.machine.full().is_some();
        let overtaken = state.machine.is_overtaken(survey, group) || full;
        let abandoned = state.machine.is_abandoned(survey, group);
        drop(state);
        // What is left of a folder that cannot be cleaned up, the next start removes.
        let swept = if abandoned {
            survey.sweep(&Beside(self.shared), group)
        } else {
            Ok(())
        };
        match outcome {
            Err(error) => give_up(overtaken, error),
            Ok(_) if overtaken => Ok(false),
            Ok(_) => swept.map(|()| false),
        }
    }

    fn try_swap(&mut self, survey: &Survey, group: &Group) -> Result<bool, Error> {
        let replacement = survey.clean(&self.disk, group, &mut self.report)?;
        let mut state = self.shared.lock();
        if !state.machine.replace(replacement)? {
            return Ok(false);
        }
        self.shared.round_due.notify_one();
        state = self.shared.wait_while(state, Machine::is_replacing);
        refuse_failed(&state.machine)?;
        Ok(state.machine.has_replaced(survey, group))
    }
}

/// Lets every thread of ordinary priority go first. Where the system refuses, it is not that
/// important.
fn step_back() {
    // SAFETY: the call takes and returns numbers; 0 is the calling thread (Linux).
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
}

/// What something else did away with is no error.
fn give_up(overtaken: bool, error: Error) -> Result<bool, Error> {
    if overtaken {
        Ok(false)
    } else {
        Err(error)
    }
}

impl Paced<'_> {
    /// Waits until so many bytes more are paid for.
    fn pay(&self, bytes: usize) -> Result<(), DiskError> {
        let price = bytes as u64 * 1_000_000_000 / self.bytes_per_second; // no piece is 18 GB
        let now = Instant::now();
        let since = now.checked_sub(BURST).unwrap_or(now);
        let paid_at = self.paid_at.get().max(since) + Duration::from_nanos(price);
        self.paid_at.set(paid_at);
        let left = paid_at.saturating_duration_since(now);
        let state = self.shared.lock();
        let waits = |state: &mut State| state.machine.is_live(self.log);
        let waited = self.shared.overtaken.wait_timeout_while(state, left, waits);
        let (state, _) = waited.expect("the store's machine panicked");
        if state.machine.is_live(self.log) {
            return Ok(());
        }
        Err("the store is closed".to_owned().into())
    }
}

impl Disk for Paced<'_> {
    fn list(&self, folder: &str) -> Result<Vec<String>, DiskError> {
        self.disk.list(folder)
    }

    fn size(&self, path: &str) -> Result<Option<u64>, DiskError> {
        self.disk.size(path)
    }

    fn read(&self, path: &str, position: u64, bytes: usize) -> Result<Vec<u8>, DiskError> {
        let found = self.disk.read(path, position, bytes)?;
        self.pay(found.len())?;
        Ok(found)
    }

    fn perform(&self, op: &DiskOp) -> Result<(), DiskError> {
        if let DiskOp::Write { data, .. } = op {
            self.pay(data.len())?;
            if self.shared.lock().machine.full().is_some() {
                return Err("the disk is nearly full".to_owned().into());
            }
        }
        self.disk.perform(op)
    }
}
