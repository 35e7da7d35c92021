//! Rounds that are taken back: what they had to do first has failed, and the journal tells nothing.
//!
//! A log is made before the journal tells of it. Where the disk has no room for its files, or no
//! descriptor is left, there is no log, whoever wanted it is told, and all others go on. The same
//! holds for the deletion of a stream of which the journal knows no log. Files and folders that were
//! made go again; where one cannot, it is empty, and the next try takes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::disk::{DiskError, DiskOp, Path};
use super::machine::{Completion, Deletion, Machine};
use super::partition::LogId;
use super::round::Round;

impl Round {
    /// The effects that take back what a round had begun to make, however far it came.
    pub fn undoes(&self) -> Vec<DiskOp> {
        let attempts = self.before[..self.attempts].iter().rev();
        let undo = |op: &DiskOp| match op {
            DiskOp::Create { path } => Some(DiskOp::LetGo { path: path.clone() }),
            DiskOp::CreateFolder { path } => Some(DiskOp::RemoveEmpty { path: path.clone() }),
            _ => None,
        };
        attempts.filter_map(undo).collect()
    }
}

impl Machine {
    /// One of the round's first [`Round::attempts`] effects has failed, and none after it was
    /// performed: the round counts for nothing. Returns the appends that ended.
    ///
    /// # Panics
    /// Where the round has no such effects.
    pub fn round_refused(&mut self, round: Round, why: &DiskError) -> Vec<Completion> {
        assert!(round.attempts > 0, "the round may be in the journal");
        if why.lossy {
            // What the sync had to write may have been names of other streams.
            return self.round_done(round, Err(why.text.clone()), 0, 0);
        }
        (self.round_under_way, self.round_is_alone) = (false, false);
        let why: Arc<str> = Arc::from(&*why.text);
        let mut gone: BTreeSet<LogId> = round.registered.iter().copied().collect();
        if let Some((stream, trash)) = round.deleted {
            gone.extend(self.give_up_deletion(trash));
            self.refusals.insert(stream, why.clone());
        }
        for id in &gone {
            let Some(log) = self.logs.remove(id) else {
                continue;
            };
            let name = (log.stream.clone(), log.partition);
            if self.names.get(&name) == Some(&log.id) {
                self.names.remove(&name);
            }
            self.producers -= log.producers.len();
            self.regain_segments(log.segments.len() as u64);
            // Who deletes the stream meanwhile asks for something else.
            if !self.deleted.remove(&log.id) {
                self.refusals.insert(log.stream, why.clone());
            }
        }
        self.count_segments();
        self.end_queued(&gone, &why);
        self.ended()
    }

    /// The deletion that was drafted last is none. Its folder may stand in the trash already: nobody
    /// wants what it holds, and where it stands no other can go. Returns its logs, of which the
    /// journal knows nothing.
    fn give_up_deletion(&mut self, trash: Path) -> Vec<LogId> {
        self.trash.push(trash);
        self.next_id += 1;
        let deletion = self.deletions.pop_front();
        let Deletion { stream, below, .. } = deletion.expect("it was drafted");
        let logs = self.logs.values();
        let logs = logs.filter(|log| log.stream == stream && log.id.0 < below);
        logs.map(|log| log.id).collect()
    }

    /// Logs of `stream` are asked for that the journal does not know yet.
    pub fn is_creating(&self, stream: &str) -> bool {
        let logs = self.logs.values().filter(|log| &*log.stream == stream);
        let mut fresh = logs.filter(|log| !log.registered);
        fresh.any(|log| !self.deleted.contains(&log.id))
    }

    /// Why logs of `stream` could not be made, or it could not be deleted; told once.
    pub fn refusal(&mut self, stream: &str) -> Option<Arc<str>> {
        self.refusals.remove(stream)
    }

    /// Ends what is queued for these logs.
    pub(super) fn end_queued(&mut self, gone: &BTreeSet<LogId>, why: &Arc<str>) {
        let submitted = self.queue.iter().take(self.submitted);
        self.submitted = submitted
            .filter(|queued| !gone.contains(&queued.log))
            .count();
        let (ends, stays): (Vec<_>, _) = self
            .queue
            .drain(..)
            .partition(|queued| gone.contains(&queued.log));
        self.queue = stays.into();
        self.end(ends, why);
    }
}
