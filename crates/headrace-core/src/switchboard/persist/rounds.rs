//! Rounds: what was written together, and what follows when it is durable or was refused.

use std::collections::VecDeque;

use super::{Persistence, Round, SessionAppend, Unit, GRAVES_MAX, REST_MS};
use crate::mqtt::reason;
use crate::session::{Due, Ending};
use crate::switchboard::streams::Waiter;
use crate::switchboard::timers::Timer;
use crate::switchboard::Switchboard;
use crate::Now;

impl Switchboard {
    /// The next append of the round that [`persist`](Switchboard::persist) has closed; None where the
    /// shell has all of them. It performs or refuses ([`durable`](Switchboard::durable)) each before
    /// it asks for the next: what follows a refused one may rest on it, and is not given out.
    pub fn session_append(&mut self) -> Option<SessionAppend> {
        let persistence = &mut self.persistence;
        let append = persistence.appends.pop_front()?;
        let of_last = persistence.round - 1;
        persistence.tickets.insert(append.ticket, of_last);
        Some(append)
    }

    /// The log has taken an append that [`begins`](SessionAppend::begins) a checkpoint, at `offset`.
    pub fn session_appended(&mut self, ticket: u64, offset: i64) {
        self.persistence.appended(ticket, offset);
    }

    /// The end of one append, if the ticket is one of ours.
    pub(in crate::switchboard) fn persisted(
        &mut self,
        ticket: u64,
        ending: Ending,
        now: Now,
    ) -> bool {
        let Some(number) = self.persistence.tickets.remove(&ticket) else {
            return false;
        };
        let first = self.persistence.settled();
        let round = &mut self.persistence.rounds[(number - first) as usize];
        round.tickets -= 1;
        if ending != Ending::Stored {
            if number + 1 == self.persistence.round {
                round.tickets -= self.persistence.appends.drain(..).len();
            }
            let waiters = std::mem::take(&mut round.waiters);
            let units = std::mem::take(&mut round.units);
            self.round_failed(number, ending, waiters, units, now);
        }
        self.rounds_over(now);
        true
    }

    /// A round was refused, which is known before the next is written: nothing of it is
    /// acknowledged, and what it said is said again, later. Who asked to connect is refused, and
    /// leaves neither a will nor a new session.
    fn round_failed(
        &mut self,
        number: u64,
        ending: Ending,
        waiters: Vec<Waiter>,
        units: Vec<Unit>,
        now: Now,
    ) {
        let units = self.chunks_again(units);
        self.persistence.write_again(number, units, now);
        self.note_changed();
        let due_ms = self.persistence.rests_until_ms;
        self.timers.set(due_ms, Timer::Persist);
        let gated = self.persistence.gated_by(number);
        for connection in gated {
            let Ok(slot) = self.slot(connection) else {
                continue;
            };
            let (reason, reason_code) = match ending {
                Ending::NoRoom => ("disk_full", reason::QUOTA_EXCEEDED),
                _ => ("not_stored", reason::UNSPECIFIED_ERROR),
            };
            let connection = &mut self.connections[slot as usize];
            let mut told = Some(reason_code);
            if let (false, Some(session)) = (connection.give_up(number), connection.session) {
                let began = connection.began_session();
                self.take_back(session, began);
                self.deny_connect(slot, reason_code);
                told = None;
            }
            self.close(slot, reason, told, now);
            self.touch(slot);
        }
        let waiters: Vec<_> = waiters.into_iter().map(|each| (each, ending)).collect();
        self.settle(&waiters, now);
    }

    /// Lets go who waited for rounds that are durable.
    pub(super) fn rounds_over(&mut self, now: Now) {
        let is_over = |round: &Round| round.tickets == 0;
        while self.persistence.rounds.front().is_some_and(is_over) {
            let round = self.persistence.rounds.pop_front();
            let round = round.expect("it has just been looked at");
            self.persistence.undurable_bytes -= round.bytes;
            for connection in self.persistence.gated_by(round.number) {
                if let Ok(slot) = self.slot(connection) {
                    self.touch(slot);
                }
            }
            let waiters = round.waiters.into_iter();
            let waiters: Vec<_> = waiters.map(|each| (each, Ending::Stored)).collect();
            self.settle(&waiters, now);
        }
    }
}

impl Persistence {
    /// Whether a round is to be written now: at once where somebody waits, else when the last one
    /// is durable, so that what can wait goes together.
    pub(super) fn is_due(&self, mono_ms: u64) -> bool {
        let is_idle = self.rounds.is_empty();
        let is_wanted = !self.due.is_empty()
            || !self.waiters.is_empty()
            || self.is_checkpoint_due()
            || self.graves.len() > GRAVES_MAX;
        mono_ms >= self.rests_until_ms && is_wanted && (is_idle || self.is_urgent)
    }

    /// Keeps what was owed open until the log says that there is no such message: if the log has it,
    /// and its packet id, and the node ends before that, all of them get it, not some.
    pub fn unsay(&mut self, dues: Vec<Due>) {
        if !dues.is_empty() {
            self.unsaid.push_back((self.round, dues));
        }
    }

    /// Messages are gone once a durable round has said that nobody is owed them.
    pub(super) fn exhume(&mut self) {
        let settled = self.settled();
        while let Some((round, partition, number)) = self.graves.front().copied() {
            if round >= settled {
                return;
            }
            self.graves.pop_front();
            self.due.push(Unit::Message(partition, number));
        }
    }

    /// Lets go what a durable round has taken back.
    pub(super) fn forget_unsaid(&mut self) {
        let settled = self.settled();
        let over = self.unsaid.partition_point(|(round, _)| *round < settled);
        self.unsaid.drain(..over);
    }

    /// Connections whose bytes wait for a round; they do no more.
    fn gated_by(&mut self, round: u64) -> Vec<u64> {
        let from = self.gated.partition_point(|(of, _)| *of < round);
        let to = self.gated.partition_point(|(of, _)| *of <= round);
        self.gated.drain(from..to).map(|(_, id)| id).collect()
    }

    pub(super) fn close_round(&mut self, units: Vec<Unit>, appends: VecDeque<SessionAppend>) {
        let bytes = appends.iter().map(|append| append.batch.len()).sum();
        self.undurable_bytes += bytes;
        self.rounds.push_back(Round {
            number: self.round,
            tickets: appends.len(),
            bytes,
            waiters: std::mem::take(&mut self.waiters),
            units,
        });
        self.appends = appends;
        self.round += 1;
    }

    /// What a refused round has told is told by the next.
    fn write_again(&mut self, number: u64, units: Vec<Unit>, now: Now) {
        self.due.extend(units);
        let later = self.graves.iter_mut().filter(|(of, ..)| *of >= number);
        for (of, ..) in later {
            *of = self.round;
        }
        let later = self.unsaid.iter_mut().filter(|(of, _)| *of >= number);
        for (of, _) in later {
            *of = self.round;
        }
        self.rests_until_ms = now.mono_ms + REST_MS;
        self.give_up_checkpoint(number);
    }
}
