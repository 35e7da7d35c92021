//! The disk under a switchboard: what is on its way there, and what a crash leaves of it.

use headrace_core::switchboard::{Append, SessionAppend};

use super::fuzz::Random;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    InFlight,
    Stored,
    Refused,
}

/// An append to the log of sessions, which ends in the order of its partition.
struct Written {
    append: SessionAppend,
    state: State,
}

#[derive(Default)]
pub struct Disk {
    /// To streams.
    tickets: Vec<u64>,
    log: Vec<Written>,
    /// Checkpoints whose space came back.
    pub checkpoints: usize,
}

impl Disk {
    /// False where the disk refuses at once.
    pub fn append(&mut self, append: &Append, has_room: bool) -> bool {
        if has_room {
            self.tickets.push(append.ticket);
        }
        has_room
    }

    /// False where there is no room, as a store says at once.
    pub fn append_session(&mut self, append: SessionAppend, has_room: bool) -> bool {
        let state = if has_room {
            State::InFlight
        } else {
            State::Refused
        };
        self.log.push(Written { append, state });
        has_room
    }

    pub fn is_idle(&self) -> bool {
        self.tickets.is_empty() && self.first_in_flight().is_none()
    }

    fn first_in_flight(&self) -> Option<usize> {
        let in_flight = |written: &Written| written.state == State::InFlight;
        self.log.iter().position(in_flight)
    }

    /// Ends one append; those to the log of sessions in their order, as rounds do.
    pub fn end(&mut self, random: &mut Random) -> Option<u64> {
        let session = self.first_in_flight();
        if !self.tickets.is_empty() && (session.is_none() || random.chance(50)) {
            let at = random.below(self.tickets.len() as u64) as usize;
            return Some(self.tickets.swap_remove(at));
        }
        let at = session?;
        let written = &mut self.log[at];
        written.state = State::Stored;
        let ticket = written.append.ticket;
        if written.append.ends {
            self.trim(at);
        }
        Some(ticket)
    }

    /// A checkpoint is durable: its partition begins where it began, unless a part is missing.
    fn trim(&mut self, end: usize) {
        let partition = self.log[end].append.partition;
        let is_there = |written: &Written| written.append.partition == partition;
        let log = &self.log[..=end];
        let begin = log
            .iter()
            .rposition(|each| is_there(each) && each.append.begins);
        let begin = begin.expect("a checkpoint begins before it ends");
        let mut since = log[begin..].iter().filter(|each| is_there(each));
        if since.any(|each| each.state == State::Refused) {
            return;
        }
        self.checkpoints += 1;
        let mut at = 0;
        self.log.retain(|each| {
            at += 1;
            at > begin || each.append.partition != partition
        });
    }

    /// The power goes: of what was on its way, the first so many reached the disk.
    pub fn crash(&mut self, random: &mut Random) -> Vec<(u32, Vec<u8>)> {
        self.tickets.clear();
        let first = self.first_in_flight().unwrap_or(self.log.len());
        let in_flight = self.log.len() - first;
        let survive = first + random.below(in_flight as u64 + 1) as usize;
        self.log.truncate(survive);
        self.log.retain(|written| written.state != State::Refused);
        for written in &mut self.log {
            written.state = State::Stored;
        }
        let log = self.log.iter();
        log.map(|written| (written.append.partition, written.append.batch.clone()))
            .collect()
    }
}
