//! What has ended: rounds, the appends in them, the store itself.

use std::sync::Arc;

use super::disk::{DiskError, Path};
use super::journal::FileHeader;
use super::machine::{Completion, Life, Machine};
use super::round::{Frontier, Queued, Round, Work};

impl Machine {
    /// A sync has ended, and may count no more: what follows on it is performed only where this
    /// returns no error.
    ///
    /// A page that was lost is told of once, to whoever syncs its file first, and a later sync
    /// succeeds without it. So after one that has failed none counts, whoever's it is and of
    /// whatever: the journal vouches for nothing more, and nothing goes that others were to replace.
    /// One that could not begin has lost nothing, and is for who wanted it to judge.
    pub fn sync_ended(&mut self, outcome: Result<(), DiskError>) -> Result<(), DiskError> {
        if let Err(why) = &outcome {
            if why.lossy {
                self.fail(&format!("{}, then restart", why.text));
            }
            return outcome;
        }
        let failed = self.failed.as_ref();
        failed.map_or(Ok(()), |why| {
            Err(DiskError {
                lossy: true,
                ..DiskError::from(why.to_string())
            })
        })
    }

    /// The round was performed, or failed; one that ends after the store has failed counts as failed.
    /// Returns the appends that ended.
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
        (self.round_under_way, self.round_is_alone) = (false, false);
        if let Some(why) = outcome.err() {
            self.fail(&format!("{why}, then restart"));
        }
        if let Some(failed) = self.failed.clone() {
            self.end(round.items, &failed);
            return std::mem::take(&mut self.ended);
        }
        let effects = || round.before.iter().chain(&round.after);
        self.statistics.syncs += effects().filter(|op| op.is_sync()).count() as u64;
        self.dirt.note(effects());
        self.statistics.direct_writes += round.direct_writes;
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
        self.journal.note_sync(round.synced, &round.items);
        for id in round.registered {
            if let Some(log) = self.logs.get_mut(&id) {
                log.registered = true;
            }
        }
        round
            .frontiers
            .into_iter()
            .for_each(|frontier| self.advance(frontier));
        for (log, start_offset) in round.trimmed {
            self.trimmed(log, start_offset);
        }
        if round.replaces {
            self.replaced();
        }
        if let Some((stream, trash)) = round.deleted {
            self.deletions.pop_front();
            self.trash.push(trash);
            self.logs
                .retain(|id, log| log.stream != stream || !self.deleted.contains(id));
            self.deleted.retain(|id| self.logs.contains_key(id));
            self.count_segments();
            self.producers = self.logs.values().map(|log| log.producers.len()).sum();
        }
        if round.closes {
            self.life = Life::Closed;
        }
        self.complete(round.items, now_ns)
    }

    /// Writes nothing more, for a reason of the shell's own. Returns the appends that ended by it.
    pub fn abort(&mut self, why: &str) -> Vec<Completion> {
        self.fail(why);
        self.ended()
    }

    /// Ends of appends that no round carries, since the last call.
    pub fn ended(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.ended)
    }

    fn complete(&mut self, items: Vec<Queued>, now_ns: u64) -> Vec<Completion> {
        let mut ended = std::mem::take(&mut self.ended);
        for item in items {
            if let Work::Run(run) = &item.work {
                self.statistics.appended_batches += u64::from(run.batches);
                self.statistics.appended_bytes += run.bytes.len() as u64;
                self.statistics.queued_bytes -= run.bytes.len() as u64;
            }
            let Some(ticket) = item.ticket else { continue };
            self.statistics
                .committed(now_ns.saturating_sub(item.since_ns));
            ended.push(Completion {
                ticket,
                log: item.log,
                error: None,
            });
        }
        ended
    }

    pub(super) fn end(&mut self, items: Vec<Queued>, why: &Arc<str>) {
        for item in items {
            self.statistics.queued_bytes -= item.work.bytes();
            let Some(ticket) = item.ticket else { continue };
            let error = Some(why.clone());
            self.ended.push(Completion {
                ticket,
                log: item.log,
                error,
            });
        }
    }

    pub(super) fn fail(&mut self, why: &str) {
        self.trims.clear();
        self.replacement = None;
        if self.failed.is_none() {
            self.failed = Some(Arc::from(why));
        }
        let failed = self.failed.clone().expect("just set");
        self.submitted = 0;
        let waiting = self.queue.drain(..).collect();
        self.end(waiting, &failed);
    }

    fn advance(&mut self, frontier: Frontier) {
        let Some(log) = self.logs.get_mut(&frontier.log) else {
            return;
        };
        let id = log.id;
        if let Some(full) = log.advance(frontier) {
            self.statistics.segment_rolls += 1;
            self.dirt.finished.insert(full.path.clone());
            let base = full.base;
            self.keep_index(id, base);
            self.shed(id);
        }
    }

    fn rotated(&mut self, header: FileHeader, path: Path) {
        self.statistics.journal_rotations += 1;
        self.journal.previous = Some(self.journal.header.sequence);
        self.journal.header = header;
        self.journal.path = path;
        self.journal.spare = false;
    }
}
