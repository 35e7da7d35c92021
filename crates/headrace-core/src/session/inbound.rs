//! Publishes from one origin that are not answered yet, in order, and the packet ids at `QoS` 2
//! that the client has not released (MQTT 5.0 4.3.3, 4.6, 4.9).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::{Claim, Ending, Held, Message, Outcome, Owner, Terms};
use crate::mqtt::packet::QoS;

/// A publish whose turn has come to be answered.
#[derive(Debug)]
pub struct Answer {
    /// Packet id of a client's publish, request of another door's, 0 where no one asks.
    pub token: u64,
    /// As published; tells PUBACK from PUBREC.
    pub qos: QoS,
    /// How it ended.
    pub outcome: Outcome,
    /// Streams that matched it.
    pub streams: u32,
    /// What happens once it is durable.
    pub deferred: Option<Deferred>,
    /// Its topic, while somebody traces.
    pub traced: Option<Box<str>>,
}

/// What subscribers above `QoS` 0 get once it is durable.
#[derive(Debug)]
pub struct Deferred {
    /// Its arrival.
    pub arrival: u64,
    /// The message.
    pub message: Arc<Message>,
    /// Who is owed it by the log.
    pub dues: Vec<Due>,
    /// Nobody has had it: those at `QoS` 0 wait for it as well.
    pub is_whole: bool,
    /// Those are not all known yet.
    pub is_claiming: bool,
    /// Its place among the publishes that very many get, where it is one.
    pub crowd: Option<Held>,
    /// Those who are owed it, counted with those of other such publishes.
    pub owed: Option<Held>,
}

impl Deferred {
    /// The slots of the groups that are owed it, ascending.
    pub fn groups(&self) -> Vec<u32> {
        let owners = self.dues.iter().map(|due| due.claim.owner);
        let mut groups: Vec<u32> = owners
            .filter_map(|owner| match owner {
                Owner::Group { slot, .. } => Some(slot),
                Owner::Session { .. } | Owner::Feed { .. } => None,
            })
            .collect();
        groups.sort_unstable();
        groups
    }
}

/// A receiver that is owed a message by the log.
#[derive(Debug)]
pub struct Due {
    /// Its claim.
    pub claim: Arc<Claim>,
    /// Of a session; a group's are those of the member that gets it.
    pub terms: Option<Terms>,
}

#[derive(Debug)]
struct Entry {
    answer: Answer,
    /// Tickets that have not ended.
    waiting: u32,
}

/// A packet id at `QoS` 2 that its client has not released.
#[derive(Debug)]
struct Unreleased {
    /// The publish is taken: PUBREC may be, or has been sent.
    is_taken: bool,
    place: Place,
    /// The client has sent it on this connection, so PUBREC is due, and it takes a place in the
    /// window.
    is_asked: bool,
}

/// Where a packet id at `QoS` 2 stands on the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nowhere yet: who is owed its message is still being told.
    Nowhere,
    /// Beside its message, or not at all.
    Claimed,
    /// Its message could not be stored, and will be answered so in its turn.
    Refused,
}

/// What a PUBLISH at `QoS` 2 repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Nothing.
    New,
    /// A publish that is taken: PUBREC is due.
    Taken,
    /// A publish whose PUBREC will come.
    Waiting,
}

/// Publishes in the order of their packets. Tickets end in any order, answers leave in this one
/// (MQTT 5.0 4.6), and so do deliveries that waited, which keeps the order of each topic.
///
/// Packet ids at `QoS` 2 outlive a connection: what is published again under one that is not
/// released is not published twice.
#[derive(Debug, Default)]
pub struct Inbound {
    entries: VecDeque<Entry>,
    /// Ordinal of the first entry.
    first: u64,
    unreleased: BTreeMap<u16, Unreleased>,
    /// Publishes of this connection whose exchange is not over.
    open: usize,
    /// Entries with something deferred.
    deferring: usize,
    /// Those of them that nobody has had.
    whole: usize,
    /// One that was taken out is on its way to very many: no other may overtake it.
    is_spreading: bool,
    /// PUBREC has refused something since the client connected: a PUBREL for an unknown id may be
    /// of a client that did not see that. Any other one is repeated, or about nothing.
    has_refused: bool,
}

impl Inbound {
    /// Publishes that are not answered yet.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True where every publish is answered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && !self.is_spreading
    }

    /// True where a publish has come that nobody has had, not even at `QoS` 0: what comes behind it
    /// must not overtake it.
    pub fn is_held_up(&self) -> bool {
        self.whole > 0 || self.is_spreading
    }

    /// The publish that was taken out last is on its way to very many, or no longer.
    pub fn set_spreading(&mut self, is_spreading: bool) {
        self.is_spreading = is_spreading;
    }

    /// True where a delivery waits for its publish to be durable: one that waits for nothing must
    /// not overtake it (4.6).
    pub fn is_deferring(&self) -> bool {
        self.deferring > 0 || self.is_spreading
    }

    /// Publishes of this connection whose exchange is not over: what Receive Maximum bounds (4.9).
    pub fn open(&self) -> usize {
        self.open
    }

    /// Packet ids at `QoS` 2 that are not released.
    pub fn unreleased(&self) -> usize {
        self.unreleased.len()
    }

    /// True where this packet id is not released, of this connection or an earlier one.
    pub fn holds(&self, packet_id: u16) -> bool {
        self.unreleased.contains_key(&packet_id)
    }

    /// True where the exchange of this packet id has a place in the window.
    pub fn is_open(&self, packet_id: u16) -> bool {
        let found = self.unreleased.get(&packet_id);
        found.is_some_and(|unreleased| unreleased.is_asked)
    }

    /// Those packet ids, ascending, but for publishes that could not be stored, or cannot be yet.
    pub fn unreleased_ids(&self) -> impl Iterator<Item = u16> + '_ {
        let unreleased = self.unreleased.iter();
        let stored = unreleased.filter(|(_, each)| each.place == Place::Claimed);
        stored.map(|(id, _)| *id)
    }

    /// Takes in an id as the log has it: of a publish that was taken and not released.
    pub fn restore(&mut self, packet_id: u16) {
        let unreleased = Unreleased {
            is_taken: true,
            place: Place::Claimed,
            is_asked: false,
        };
        self.unreleased.insert(packet_id, unreleased);
    }

    /// The ordinal of the next publish.
    pub fn next_ordinal(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Adds a publish that waits for `waiting` tickets; its ordinal.
    pub fn push(&mut self, answer: Answer, waiting: u32) -> u64 {
        let ordinal = self.next_ordinal();
        if answer.token != 0 {
            self.open += 1;
        }
        if answer.token != 0 && answer.qos == QoS::ExactlyOnce {
            let deferred = answer.deferred.as_ref();
            let unreleased = Unreleased {
                is_taken: false,
                place: if deferred.is_some_and(|deferred| deferred.is_claiming) {
                    Place::Nowhere
                } else {
                    Place::Claimed
                },
                is_asked: true,
            };
            self.unreleased.insert(answer.token as u16, unreleased);
        }
        self.deferring += usize::from(answer.deferred.is_some());
        self.whole += usize::from(is_whole(answer.deferred.as_ref()));
        self.entries.push_back(Entry { answer, waiting });
        ordinal
    }

    /// A PUBLISH at `QoS` 2 came: whether it is one that came before.
    pub fn repeat(&mut self, packet_id: u16) -> Repeat {
        let Some(unreleased) = self.unreleased.get_mut(&packet_id) else {
            return Repeat::New;
        };
        if !unreleased.is_asked {
            unreleased.is_asked = true;
            self.open += 1;
        }
        if unreleased.is_taken {
            Repeat::Taken
        } else {
            Repeat::Waiting
        }
    }

    /// PUBREL: false where the publish under this id has not been answered yet, or may have been
    /// refused.
    pub fn release(&mut self, packet_id: u16) -> bool {
        let found = self.unreleased.get(&packet_id);
        let is_due = found.map_or(!self.has_refused, |unreleased| unreleased.is_taken);
        if is_due {
            self.forget(packet_id);
        }
        is_due
    }

    /// PUBREC has refused a publish.
    pub fn refused(&mut self) {
        self.has_refused = true;
    }

    /// The session is one of before.
    pub fn recover(&mut self) {
        self.has_refused = false;
    }

    fn forget(&mut self, packet_id: u16) {
        let forgotten = self.unreleased.remove(&packet_id);
        if forgotten.is_some_and(|unreleased| unreleased.is_asked) {
            self.open -= 1;
        }
    }

    /// The connection is gone. No later one is told what became of a publish at `QoS` 1: there the
    /// client sends it again, and may then use its id for another.
    pub fn detach(&mut self) {
        for entry in &mut self.entries {
            if entry.answer.qos != QoS::ExactlyOnce {
                entry.answer.token = 0;
            }
        }
        for unreleased in self.unreleased.values_mut() {
            unreleased.is_asked = false;
        }
        self.open = 0;
        self.recover();
    }

    /// A ticket of the publish at `ordinal` ended; who was owed the message and will not get it.
    ///
    /// # Panics
    /// Where that publish waits for no ticket.
    pub fn settle(&mut self, ordinal: u64, ending: Ending) -> Vec<Due> {
        let entry = &mut self.entries[(ordinal - self.first) as usize];
        assert!(entry.waiting > 0, "a ticket ends once");
        entry.waiting -= 1;
        entry.answer.outcome = match ending {
            Ending::Stored => return Vec::new(),
            Ending::Refused => Outcome::NotStored,
            Ending::NoRoom => Outcome::NoRoom,
        };
        let deferred = entry.answer.deferred.take();
        self.deferring -= usize::from(deferred.is_some());
        self.whole -= usize::from(is_whole(deferred.as_ref()));
        let Answer { token, qos, .. } = entry.answer;
        if qos == QoS::ExactlyOnce {
            if let Some(unreleased) = self.unreleased.get_mut(&(token as u16)) {
                unreleased.place = Place::Refused;
            }
        }
        deferred.map_or_else(Vec::new, |deferred| deferred.dues)
    }

    /// All are known who are owed the publish at `ordinal`; false where it has been refused.
    pub fn claimed(&mut self, ordinal: u64, dues: Vec<Due>, owed: Option<Held>) -> bool {
        let answer = &mut self.entries[(ordinal - self.first) as usize].answer;
        let Some(deferred) = &mut answer.deferred else {
            return false;
        };
        (deferred.dues, deferred.owed) = (dues, owed);
        deferred.is_claiming = false;
        if answer.qos == QoS::ExactlyOnce {
            if let Some(unreleased) = self.unreleased.get_mut(&(answer.token as u16)) {
                unreleased.place = Place::Claimed;
            }
        }
        true
    }

    /// The next publish to answer, if its tickets have ended.
    pub fn next_answer(&mut self) -> Option<Answer> {
        if self.is_spreading || self.entries.front()?.waiting > 0 {
            return None;
        }
        self.first += 1;
        let mut answer = self.entries.pop_front()?.answer;
        self.deferring -= usize::from(answer.deferred.is_some());
        self.whole -= usize::from(is_whole(answer.deferred.as_ref()));
        if answer.token == 0 {
            return Some(answer);
        }
        if answer.qos != QoS::ExactlyOnce {
            self.open -= 1;
            return Some(answer);
        }
        let packet_id = answer.token as u16;
        let unreleased = self.unreleased.get_mut(&packet_id)?;
        if !unreleased.is_asked {
            answer.token = 0;
        }
        if answer.outcome.reason_code() < 0x80 {
            unreleased.is_taken = true;
        } else {
            self.forget(packet_id);
        }
        Some(answer)
    }

    /// Asserts what must always hold.
    ///
    /// # Panics
    /// Where it does not.
    pub fn validate(&self) {
        let asked = self.unreleased.values().filter(|each| each.is_asked);
        let answers = self.entries.iter().map(|entry| &entry.answer);
        let at_1 = answers.filter(|each| each.token != 0 && each.qos != QoS::ExactlyOnce);
        assert_eq!(asked.count() + at_1.count(), self.open);
        let deferred = self
            .entries
            .iter()
            .filter_map(|entry| entry.answer.deferred.as_ref());
        assert_eq!(deferred.clone().count(), self.deferring);
        let whole = deferred.filter(|deferred| deferred.is_whole);
        assert_eq!(whole.count(), self.whole);
    }
}

fn is_whole(deferred: Option<&Deferred>) -> bool {
    deferred.is_some_and(|deferred| deferred.is_whole)
}

#[cfg(test)]
mod tests;
