//! Drives the store as `headrace-io` does, one effect at a time, so that anything may happen in
//! between: a round, a chore and an errand of the caller's are under way beside each other.

use std::collections::VecDeque;

use super::compactor::Compactor;
use super::disk::SimDisk;
use super::random::Random;
use super::sabotage::{Sabotage, Saboteur};
use super::trace::Trace;
use crate::log::{
    open, Chore, CompactionSettings, Completion, Disk, DiskError, DiskOp, Error, LogId, Machine,
    Options, Plan, Recovery, Round, Saving,
};

/// Work under way, and the effects that it still needs.
#[derive(Debug)]
struct UnderWay<T> {
    work: T,
    ops: VecDeque<DiskOp>,
    /// How many of them, from the first on, the disk may refuse.
    attempts: usize,
}

#[derive(Debug)]
pub(super) struct Shell {
    pub(super) port: Saboteur,
    pub(super) machine: Machine,
    /// The clock.
    pub(super) now_ns: u64,
    round: Option<UnderWay<Round>>,
    chore: Option<UnderWay<Chore>>,
    pub(super) compactor: Option<Compactor>,
    /// Sources that a caller keeps by itself.
    errand: Option<UnderWay<Saving>>,
    /// Appends that a sync which failed has ended.
    ended: Vec<Completion>,
    /// Syncs that a sabotaged shell puts off.
    late: Vec<DiskOp>,
}

impl Shell {
    /// Opens the store on what a life before left, if there was one.
    pub(super) fn open(port: Saboteur, options: Options) -> Result<(Self, Recovery), Error> {
        let (machine, recovery) = open(&port, options)?;
        let shell = Self {
            port,
            machine,
            now_ns: 0,
            round: None,
            chore: None,
            compactor: None,
            errand: None,
            ended: Vec::new(),
            late: Vec::new(),
        };
        Ok((shell, recovery))
    }

    pub(super) fn disk(&self) -> &SimDisk {
        &self.port.disk
    }

    /// Nothing is under way.
    pub(super) fn is_idle(&self) -> bool {
        let nothing_waits = self.compactor.is_none() && self.errand.is_none();
        self.round.is_none() && self.chore.is_none() && nothing_waits
    }

    fn perform(&mut self, lane: &str, op: &DiskOp, trace: &mut Trace) -> Result<(), DiskError> {
        let mut outcome = self.port.perform(op);
        if op.is_sync() {
            outcome = self.machine.sync_ended(outcome);
            if outcome.is_err() {
                self.ended.extend(self.machine.ended());
            }
        }
        trace.effect(lane, op, outcome.is_err());
        outcome
    }

    /// One effect of the round under way, or its end, or the beginning of the next.
    pub(super) fn advance_round(&mut self, trace: &mut Trace) -> Vec<Completion> {
        let mut ended = std::mem::take(&mut self.ended);
        let Some(mut round) = self.round.take() else {
            self.round = self.begin_round(trace);
            return ended;
        };
        let outcome = match round.ops.pop_front() {
            Some(op) => self.perform("round", &op, trace),
            None => Ok(()),
        };
        if outcome.is_ok() && !round.ops.is_empty() {
            round.attempts = round.attempts.saturating_sub(1);
            self.round = Some(round);
            return ended;
        }
        ended.extend(match outcome {
            Err(why) if round.attempts > 0 => self.refuse(round.work, &why, trace),
            outcome => self.end(round.work, outcome.map_err(|error| error.text)),
        });
        ended
    }

    fn end(&mut self, round: Round, outcome: Result<(), String>) -> Vec<Completion> {
        self.remember(&round, outcome.is_ok());
        let now_ns = self.now_ns;
        self.machine.round_done(round, outcome, now_ns, now_ns)
    }

    /// The disk has refused what the round had to do first.
    fn refuse(&mut self, round: Round, why: &DiskError, trace: &mut Trace) -> Vec<Completion> {
        for op in round.undoes().iter().filter(|_| !why.lossy) {
            let _ = self.perform("round", op, trace); // the next try takes what stays
        }
        if self.port.sabotage == Sabotage::KeepRefused {
            return self.end(round, Ok(()));
        }
        let mut ended = self.machine.round_refused(round, why);
        let lives = self.machine.failed().is_none();
        if self.port.sabotage == Sabotage::AcknowledgeRefused && lives {
            for completion in &mut ended {
                completion.error = None;
            }
        }
        ended
    }

    fn begin_round(&mut self, trace: &mut Trace) -> Option<UnderWay<Round>> {
        let work = self.machine.next_round(self.now_ns)?.build();
        for op in std::mem::take(&mut self.late) {
            let _ = self.perform("late", &op, trace); // nobody waits for it
        }
        let mut ops: VecDeque<DiskOp> = work.before.iter().chain(&work.after).cloned().collect();
        let mut attempts = work.attempts;
        if self.port.sabotage == Sabotage::AcknowledgeEarly {
            self.late = ops.iter().filter(|op| op.is_sync()).cloned().collect();
            let first = work.before[..attempts].iter();
            attempts = first.filter(|op| !op.is_sync()).count();
            ops.retain(|op| !op.is_sync());
        }
        // A round that only syncs is one that an interval has asked for.
        if self.port.sabotage == Sabotage::SkipTimedSync && ops.iter().all(DiskOp::is_sync) {
            ops.clear();
        }
        Some(UnderWay {
            work,
            ops,
            attempts,
        })
    }

    /// The journal's last round, where it is not the first of its file.
    fn remember(&mut self, round: &Round, done: bool) {
        for op in round.before.iter().filter(|_| done) {
            match op {
                DiskOp::Write { path, position, .. } if path.ends_with(".journal") => {
                    self.port.last_round = Some((path.to_string(), *position));
                }
                DiskOp::Rename { .. } => self.port.last_round = None,
                _ => {}
            }
        }
    }

    /// One effect of the chore under way, or its end, or the beginning of the next.
    pub(super) fn advance_chore(&mut self, trace: &mut Trace) -> Vec<Completion> {
        let Some(mut chore) = self.chore.take() else {
            let careless = self.port.sabotage == Sabotage::ReuseJournal;
            let skips = |op: &DiskOp| {
                careless && matches!(op, DiskOp::Sync { path } if path.starts_with("streams/"))
            };
            for op in self.machine.empty_trash() {
                let _ = self.perform("trash", &op, trace); // else the next start does it
            }
            self.chore = self.machine.next_chore().map(|work| {
                let ops = work.ops.iter().filter(|op| !skips(op)).cloned().collect();
                UnderWay {
                    work,
                    ops,
                    attempts: 0,
                }
            });
            return Vec::new();
        };
        let outcome = match chore.ops.pop_front() {
            Some(op) => self.perform("chore", &op, trace),
            None => Ok(()),
        };
        if outcome.is_ok() && !chore.ops.is_empty() {
            self.chore = Some(chore);
            return Vec::new();
        }
        let outcome = outcome.map_err(|error| error.text);
        self.machine.chore_done(&chore.work, outcome)
    }

    /// Plans a compaction; false where there is nothing to do.
    pub(super) fn begin_compaction(
        &mut self,
        log: LogId,
        settings: CompactionSettings,
    ) -> Result<bool, Error> {
        let pass = self.machine.plan_compaction(log, settings)?;
        let begun = pass.map(|pass| Compactor::new(&self.machine, log, pass));
        self.compactor = begun.transpose()?;
        Ok(self.compactor.is_some())
    }

    /// One effect of the compaction under way, or what follows on the last.
    pub(super) fn advance_compaction(&mut self, trace: &mut Trace) -> Result<(), Error> {
        let waits = |compactor: &Compactor| compactor.will_keep_sources() && self.has_errand();
        if self.compactor.as_ref().is_none_or(waits) {
            return Ok(());
        }
        let mut compactor = self.compactor.take().expect("just seen");
        let outcome = match compactor.next_op() {
            Some(op) => {
                let outcome = self.perform("compaction", &op, trace);
                outcome.map_err(Error::from)
            }
            None => compactor.go_on(&mut self.machine, &self.port),
        };
        let outcome = outcome.or_else(|error| compactor.give_up(&self.machine, &self.port, error));
        self.compactor = Some(compactor).filter(|under_way| !under_way.has_ended());
        outcome
    }

    /// Begins an errand; false while another is under way.
    pub(super) fn run_errand(&mut self, work: Saving) {
        let ops = work.ops.clone().into();
        self.errand = Some(UnderWay {
            work,
            ops,
            attempts: 0,
        });
    }

    /// The same, all of it before anything else happens; false where that failed.
    pub(super) fn run_at_once(&mut self, work: Saving, trace: &mut Trace) -> bool {
        let mut ops = work.ops.iter();
        let done = ops.all(|op| self.perform("errand", op, trace).is_ok());
        if done {
            self.machine.sources_saved(work);
        }
        done
    }

    fn has_errand(&self) -> bool {
        self.errand.is_some()
    }

    /// Sources are being kept: one at a time does.
    pub(super) fn keeps_sources(&self) -> bool {
        self.has_errand()
            || self
                .compactor
                .as_ref()
                .is_some_and(Compactor::keeps_sources)
    }

    /// One effect of the errand; one that fails ends it.
    pub(super) fn advance_errand(&mut self, trace: &mut Trace) {
        let Some(mut errand) = self.errand.take() else {
            return;
        };
        match errand.ops.pop_front() {
            Some(op) if self.perform("errand", &op, trace).is_err() => {}
            Some(_) => self.errand = Some(errand),
            None => self.machine.sources_saved(errand.work),
        }
    }

    /// As `headrace-io` reads.
    pub(super) fn read(
        &mut self,
        log: LogId,
        offset: i64,
        bytes_max: usize,
    ) -> Result<Vec<u8>, Error> {
        loop {
            match self.machine.plan_read(log, offset)? {
                Plan::Nothing => return Ok(Vec::new()),
                Plan::Load(files) => {
                    let index = files.load(&self.port)?;
                    self.machine.indexed(index);
                }
                Plan::Walk(walk) => return walk.read(&self.port, offset, bytes_max),
            }
        }
    }

    /// As `headrace-io` looks for a time.
    pub(super) fn find_time(
        &mut self,
        log: LogId,
        timestamp: i64,
    ) -> Result<Option<(i64, i64)>, Error> {
        let (start, end) = self.machine.bounds(log)?;
        let mut walked = None;
        loop {
            match self.machine.plan_time(log, timestamp, walked.as_ref())? {
                Plan::Nothing => return Ok(None),
                Plan::Load(files) => {
                    let index = files.load(&self.port)?;
                    self.machine.indexed(index);
                }
                Plan::Walk(walk) => match walk.find_time(&self.port, timestamp, start..end)? {
                    Some(found) => return Ok(Some(found)),
                    None => walked = Some(walk),
                },
            }
        }
    }

    /// The process dies; with the power, where `random` says what the disk keeps.
    pub(super) fn die(&self, power_cut: Option<&mut Random>) -> Saboteur {
        let disk = &self.port.disk;
        Saboteur {
            disk: power_cut.map_or_else(|| disk.killed(), |random| disk.power_cut(random)),
            ..self.port.clone()
        }
    }
}
