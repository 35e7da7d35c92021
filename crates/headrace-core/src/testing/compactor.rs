//! A compaction beside the rounds, as `headrace-io` runs it, but one effect at a time: what it is
//! to write is put off, so that anything may happen between any two of its effects.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};

use super::sabotage::{Sabotage, Saboteur};
use crate::log::{
    Compaction, Disk, DiskError, DiskOp, Error, Group, LogId, Machine, Pass, Path, Replacement,
    Saving, Survey,
};

#[derive(Debug)]
pub(super) struct Compactor {
    log: LogId,
    /// Of the log, when the pass was planned.
    edition: u64,
    /// The pass, until the dirty part is read.
    pass: Option<Pass>,
    survey: Option<Survey>,
    /// Those that are to be rewritten; the first is under way.
    groups: VecDeque<Group>,
    /// Effects that are due, before anything else.
    ops: VecDeque<DiskOp>,
    /// Sources that they keep.
    saving: Option<Saving>,
    /// What was written of the first group.
    written: Option<Replacement>,
    /// A round swaps it.
    is_swapping: bool,
}

impl Compactor {
    pub(super) fn new(machine: &Machine, log: LogId, pass: Pass) -> Result<Self, Error> {
        Ok(Self {
            log,
            edition: machine.edition(log)?,
            pass: Some(pass),
            survey: None,
            groups: VecDeque::new(),
            ops: VecDeque::new(),
            saving: None,
            written: None,
            is_swapping: false,
        })
    }

    /// The dirty part is to be read, and what it tells of sources is to be kept.
    pub(super) fn will_keep_sources(&self) -> bool {
        self.pass.is_some()
    }

    /// Sources are being kept.
    pub(super) fn keeps_sources(&self) -> bool {
        self.saving.is_some()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.pass.is_none() && self.survey.is_none() && self.ops.is_empty()
    }

    /// The effect that is due; None where something follows on the last.
    pub(super) fn next_op(&mut self) -> Option<DiskOp> {
        self.ops.pop_front()
    }

    /// What follows on the last effect.
    pub(super) fn go_on(&mut self, machine: &mut Machine, port: &Saboteur) -> Result<(), Error> {
        if let Some(saving) = self.saving.take() {
            machine.sources_saved(saving);
        }
        if let Some(pass) = self.pass.take() {
            let mut survey = pass.survey(port, &mut Compaction::default())?;
            self.saving = machine.keep_sources(&mut survey)?;
            let saving = self.saving.iter();
            self.ops
                .extend(saving.flat_map(|saving| saving.ops.iter().cloned()));
            self.groups = survey.groups().into();
            self.survey = Some(survey);
            return Ok(());
        }
        let (Some(survey), Some(group)) = (&self.survey, self.groups.front()) else {
            self.survey = None; // all is done
            return Ok(());
        };
        if let Some(written) = self.written.take() {
            self.is_swapping = machine.replace(written)?;
        } else if !self.is_swapping {
            let disk = Deferred::new(port);
            self.written = Some(survey.clean(&disk, group, &mut Compaction::default())?);
            self.ops = disk.into_ops();
            return Ok(());
        }
        if machine.is_replacing() {
            return Ok(());
        }
        if self.is_swapping && machine.has_replaced(survey, group) {
            self.is_swapping = false;
            self.groups.pop_front();
            return Ok(());
        }
        Err(Error::Storage("the segments were not swapped".into()))
    }

    /// What something else did away with is no error.
    pub(super) fn give_up(
        &mut self,
        machine: &Machine,
        port: &Saboteur,
        error: Error,
    ) -> Result<(), Error> {
        self.pass = None;
        self.saving = None;
        self.ops.clear();
        let is_other = machine.edition(self.log) != Ok(self.edition);
        let mut overtaken = is_other || !machine.has_log(self.log);
        if let (Some(survey), Some(group)) = (self.survey.take(), self.groups.front()) {
            overtaken = machine.is_overtaken(&survey, group);
            if machine.is_abandoned(&survey, group) {
                let disk = Deferred::new(port);
                survey.sweep(&disk, group)?;
                self.ops = disk.into_ops();
            }
        }
        if overtaken || !machine.is_live(self.log) {
            return Ok(());
        }
        Err(error)
    }
}

/// The disk, with effects put off.
struct Deferred<'a> {
    port: &'a Saboteur,
    ops: RefCell<Vec<DiskOp>>,
    /// Files that were read.
    read: RefCell<BTreeSet<String>>,
}

impl<'a> Deferred<'a> {
    fn new(port: &'a Saboteur) -> Self {
        Self {
            port,
            ops: RefCell::default(),
            read: RefCell::default(),
        }
    }

    fn into_ops(self) -> VecDeque<DiskOp> {
        let mut ops = self.ops.into_inner();
        match self.port.sabotage {
            Sabotage::SwapUnsynced => ops.retain(|op| !op.is_sync()),
            Sabotage::RemoveBeforeSwap => {
                let read = self.read.into_inner().into_iter();
                ops.extend(read.map(|path| DiskOp::Remove {
                    path: Path::from(path),
                }));
            }
            _ => {}
        }
        ops.into()
    }
}

impl Disk for Deferred<'_> {
    fn list(&self, folder: &str) -> Result<Vec<String>, DiskError> {
        self.port.list(folder)
    }

    fn size(&self, path: &str) -> Result<Option<u64>, DiskError> {
        self.port.size(path)
    }

    fn read(&self, path: &str, position: u64, bytes: usize) -> Result<Vec<u8>, DiskError> {
        self.read.borrow_mut().insert(path.to_owned());
        self.port.read(path, position, bytes)
    }

    fn perform(&self, op: &DiskOp) -> Result<(), DiskError> {
        self.ops.borrow_mut().push(op.clone());
        Ok(())
    }
}
