//! What clients are told when an append has ended, and what that promises.

use super::anomaly::{Anomaly, Kind};
use super::clients::Fate;
use super::sabotage::Sabotage;
use super::simulation::{By, Sent, Simulation};
use crate::log::{Completion, Fsync, LogId};

impl Simulation {
    /// Tells clients what has ended.
    pub(super) fn completed(&mut self, ended: Vec<Completion>) -> Result<(), Anomaly> {
        for completion in ended {
            let Completion { ticket, log, error } = completion;
            self.trace.note(format_args!("ended {ticket}: {error:?}"));
            let careless = self.shell.port.sabotage == Sabotage::DropCompletion;
            if careless && self.random.chance(1) {
                continue;
            }
            let Some(sent) = self.tickets.remove(&ticket) else {
                return Err(Self::refused("?", format!("ticket {ticket} ended twice")));
            };
            match error {
                None => {
                    self.ends_in_order(&sent, ticket)?;
                    self.is_there(&sent, log)?;
                    self.acknowledged(&sent);
                }
                Some(_) if self.shell.machine.bounds(log).is_err() => self.never_stored(&sent),
                Some(why) => self.in_doubt(&sent, &why)?,
            }
        }
        let machine = &self.shell.machine;
        self.deleting.retain(|stream| machine.is_deleting(stream));
        Ok(())
    }

    /// Appends of one log are stored in their order, marks and repeats too.
    fn ends_in_order(&mut self, sent: &Sent, ticket: u64) -> Result<(), Anomaly> {
        let clients = self.logs.get_mut(&sent.name);
        let Some(clients) = clients.filter(|found| found.incarnation == sent.incarnation) else {
            return Ok(());
        };
        let last = std::mem::replace(&mut clients.last_ticket, ticket);
        if last < ticket {
            return Ok(());
        }
        let text = format!("append {ticket} was stored after append {last}");
        Err(Self::refused(&clients.label, text))
    }

    /// What is acknowledged is there for readers.
    fn is_there(&self, sent: &Sent, log: LogId) -> Result<(), Anomaly> {
        let next = sent.offset + sent.values.len() as i64;
        let bounds = self.shell.machine.bounds(log);
        if bounds.as_ref().is_ok_and(|(_, end)| next <= *end) {
            return Ok(());
        }
        Err(Anomaly {
            kind: Kind::Lost,
            log: format!("{:?}", sent.name),
            text: format!("an append up to {next} was acknowledged, and {bounds:?}"),
        })
    }

    /// One sync makes everything durable that was written before it, of whichever log.
    pub(super) fn all_is_synced(&mut self) {
        for clients in self.logs.values_mut() {
            if let Ok((_, end)) = self.shell.machine.bounds(clients.id) {
                clients.synced = end.max(clients.synced);
            }
        }
    }

    fn acknowledged(&mut self, sent: &Sent) {
        let is_strict = sent.fsync == Fsync::Commit;
        if is_strict {
            self.all_is_synced();
        }
        // MQTT does not say where; but nobody could tell which of a relaxed log may be gone.
        let placed = !matches!(sent.by, By::Source(..)) || !is_strict;
        for (at, (value, _)) in sent.values.iter().enumerate() {
            let offset = sent.offset + at as i64;
            self.checker.stored(*value, placed.then_some(offset));
        }
        let clients = self.logs.get_mut(&sent.name);
        let Some(clients) = clients.filter(|found| found.incarnation == sent.incarnation) else {
            return;
        };
        match sent.by {
            By::Anyone => {}
            By::Producer(at, sequence) => {
                // A repeat may end after its producer has begun a newer epoch.
                let batch = clients.producers[at].find(sequence);
                if let Some(batch) = batch.filter(|batch| batch.values == sent.values) {
                    batch.fate = Fate::Stored;
                }
            }
            By::Source(at, sequence) => {
                let source = &mut clients.sources[at];
                if sequence > source.stored {
                    (source.stored, source.stored_at) = (sequence, sent.offset);
                }
                source
                    .pending
                    .retain(|publish| publish.sequence != sequence);
            }
        }
    }

    /// Its log could not be made.
    fn never_stored(&mut self, sent: &Sent) {
        for (value, _) in &sent.values {
            self.checker.failed(*value);
        }
    }

    /// The store will not say that it is durable, which does not mean that it is not.
    fn in_doubt(&mut self, sent: &Sent, why: &str) -> Result<(), Anomaly> {
        for (value, _) in &sent.values {
            self.checker.unknown(*value);
        }
        let lives = self
            .logs
            .get(&sent.name)
            .is_some_and(|found| found.incarnation == sent.incarnation);
        if lives && self.shell.machine.failed().is_none() {
            return Err(Self::refused(&format!("{:?}", sent.name), why.to_owned()));
        }
        Ok(())
    }
}
