//! What follows a publish once its tickets have ended: PUBACK or PUBREC, in the order of the
//! publishes, and delivery above `QoS` 0 (MQTT 5.0 3.4, 3.5, 4.6).

use super::collect::TURN_VISITS_MAX;
use super::connection::Park;
use super::outgoing::Outgoing;
use super::publish::Published;
use super::route::{Subject, Target};
use super::streams::Waiter;
use super::{Counter, Switchboard, DOOR};
use crate::mqtt::packet::{Ack, Packet, QoS, Version};
use crate::mqtt::{encode, reason};
use crate::session::{Answer, Deferred, Ending, Inbound, Outcome};
use crate::Now;

impl Switchboard {
    pub(super) fn inbound(&mut self, origin: u32) -> &mut Inbound {
        if origin == DOOR {
            &mut self.door
        } else {
            &mut self.sessions[origin as usize].inbound
        }
    }

    /// A ticket ended: who waited for it, and whether it stored what they wait for.
    pub(super) fn settle(&mut self, waiters: &[(Waiter, Ending)], now: Now) {
        for same in waiters.chunk_by(|(a, _), (b, _)| a.origin == b.origin) {
            let origin = same[0].0.origin;
            for (waiter, ending) in same {
                let dues = self.inbound(origin).settle(waiter.ordinal, *ending);
                self.persistence.unsay(dues);
            }
            let is_refused = same.iter().any(|(_, ending)| *ending != Ending::Stored);
            if is_refused && origin != DOOR {
                // A packet id may be free again, at once: nobody is owed its message any more.
                let session = &mut self.sessions[origin as usize];
                self.persistence.cursor_due(session);
            }
            self.answer_origin(origin, now);
        }
    }

    /// Answers a request of another door that published nothing, once so many tickets have ended.
    pub(super) fn answer_request(&mut self, request: u64, tickets: u32, now: Now) {
        let answer = Answer {
            token: request,
            qos: QoS::AtLeastOnce,
            outcome: Outcome::Accepted,
            streams: 0,
            deferred: None,
            traced: None,
        };
        self.door.push(answer, tickets);
        self.answer_origin(DOOR, now);
    }

    /// Has something of our own delivered in its turn, of which nobody asks to hear.
    pub(super) fn answer_deferred(&mut self, deferred: Option<Deferred>, now: Now) {
        let answer = Answer {
            token: 0,
            qos: QoS::AtMostOnce,
            outcome: Outcome::Accepted,
            streams: 0,
            deferred,
            traced: None,
        };
        self.door.push(answer, 0);
        self.answer_origin(DOOR, now);
    }

    /// Answers every publish of an origin whose turn has come.
    pub(super) fn answer_origin(&mut self, origin: u32, now: Now) {
        loop {
            if self.answered_visits >= TURN_VISITS_MAX {
                // Others have their turn, and what a commit has let go has the next.
                self.owing.push_back(origin);
                break;
            }
            let Some(answer) = self.next_answer(origin) else {
                break;
            };
            let why = match answer.outcome {
                Outcome::NotStored => Some(Counter::DroppedNotStored),
                Outcome::NoRoom => Some(Counter::DroppedNoRoom),
                _ => None,
            };
            if let Some(why) = why {
                self.counters.count(why);
                if let Some(topic) = &answer.traced {
                    self.trace_drop(origin, why, topic, 0);
                }
            }
            // Whoever receives its own message gets PUBREC before it, for onward delivery belongs
            // behind it (4.3.3), and PUBACK after it.
            let is_asked = origin != DOOR && answer.token != 0;
            let is_first = answer.qos == QoS::ExactlyOnce;
            if is_asked && is_first {
                self.acknowledge(origin, &answer, now);
            }
            if let Some(deferred) = &answer.deferred {
                if !self.deliver_deferred(origin, deferred, now) {
                    self.begin_spread(origin, answer);
                    break;
                }
            }
            self.end_answer(origin, &answer, now);
        }
        if origin != DOOR {
            self.recount_inbound(origin);
            self.window_opened(origin);
            self.forget_if_over(origin);
        }
    }

    /// The last of an answer: all that the publish comes to is on its way.
    pub(super) fn end_answer(&mut self, origin: u32, answer: &Answer, now: Now) {
        if answer.token == 0 {
            return;
        }
        if origin == DOOR {
            self.published.push(Published {
                request: answer.token,
                reason_code: match answer.outcome {
                    Outcome::TooLarge => reason::PACKET_TOO_LARGE,
                    Outcome::RetainedFull => reason::RETAIN_NOT_SUPPORTED,
                    Outcome::QueueFull => reason::MESSAGE_RATE_TOO_HIGH,
                    outcome => outcome.reason_code(),
                },
                streams: answer.streams,
            });
        } else if answer.qos != QoS::ExactlyOnce {
            self.acknowledge(origin, answer, now);
        }
    }

    /// What came from a client may be over, and so may its session.
    fn recount_inbound(&mut self, session: u32) {
        if self.sessions.contains(session as usize) {
            self.recount_session(session);
        }
    }

    /// A client that had sent too much, or all of which waits for a publish, may be read on.
    fn window_opened(&mut self, session: u32) {
        let session = self.sessions.get(session as usize);
        if let Some(slot) = session.and_then(|session| session.connection) {
            if self.connections[slot as usize].parked == Some(Park::Window) {
                self.runnable.push_back(slot);
            }
        }
    }

    /// None too where an answer has just ended the origin.
    fn next_answer(&mut self, origin: u32) -> Option<Answer> {
        if origin == DOOR {
            return self.door.next_answer();
        }
        let session = self.sessions.get_mut(origin as usize)?;
        session.inbound.next_answer()
    }

    /// PUBACK or PUBREC.
    fn acknowledge(&mut self, session: u32, answer: &Answer, now: Now) {
        let Some(slot) = self.sessions[session as usize].connection else {
            return;
        };
        let packet_id = answer.token as u16;
        let version = self.connections[slot as usize].version;
        let reason_code = match (version, answer.outcome) {
            // 3.1.1 has no answer that says no, so the connection ends without one.
            (Version::V311, Outcome::NotStored) => {
                return self.close(slot, "not_stored", None, now)
            }
            (Version::V311, Outcome::NoRoom) => return self.close(slot, "disk_full", None, now),
            (Version::V311, Outcome::RetainedFull) => {
                return self.close(slot, "retained_full", None, now)
            }
            (Version::V311, Outcome::UnreleasedFull) => {
                return self.close(slot, "unreleased_full", None, now)
            }
            (Version::V311, Outcome::QueueFull) => {
                return self.close(slot, "queue_refused", None, now)
            }
            (Version::V311, Outcome::TooLarge) => {
                return self.close(slot, "message_too_large", None, now)
            }
            (Version::V311, _) => reason::SUCCESS,
            // The exchange has just begun, and some clients know no longer PUBREC that goes on.
            (Version::V5, Outcome::NoSubscribers) if answer.qos == QoS::ExactlyOnce => {
                reason::SUCCESS
            }
            (Version::V5, outcome) => self.told(Version::V5, outcome.reason_code()),
        };
        let connection = &mut self.connections[slot as usize];
        let reason_string = answer.outcome.reason_string();
        let reason_string = reason_string.filter(|_| connection.wants_reasons);
        if answer.qos == QoS::AtLeastOnce && reason_code == 0 && reason_string.is_none() {
            connection.out.write(|out| encode::puback(packet_id, out));
            if self.tracer.is_on() {
                let ack = Ack {
                    packet_id,
                    ..Ack::default()
                };
                self.trace_out(slot, &Packet::Puback(ack), 4);
            }
            return self.touch(slot);
        }
        let ack = Ack {
            packet_id,
            reason_code,
            reason_string,
            ..Ack::default()
        };
        if answer.qos == QoS::ExactlyOnce && reason_code >= reason::UNSPECIFIED_ERROR {
            // The client may use its packet id for another message: the log must not take that one
            // for this.
            let session = self.session_of(slot);
            self.sessions[session as usize].inbound.refused();
            self.after_cursor(slot);
        }
        let packet = match answer.qos {
            QoS::ExactlyOnce => Packet::Pubrec(ack),
            _ => Packet::Puback(ack),
        };
        self.answer(slot, &packet);
    }

    /// Delivers what has become durable; `QoS` 0 was served when it came, unless it waited too.
    /// False where very many get it, and nobody has.
    fn deliver_deferred(&mut self, origin: u32, deferred: &Deferred, now: Now) -> bool {
        let Deferred {
            arrival, message, ..
        } = deferred;
        if deferred.crowd.is_some() {
            return false;
        }
        let visited = std::mem::take(&mut self.route.visited);
        let subject = Subject::of(message, origin, *arrival);
        self.match_topic(&subject);
        self.answered_visits += self.route.visited;
        self.route.visited += visited;
        if self.route.is_crowd {
            return false;
        }
        let route = std::mem::take(&mut self.route);
        let mut outgoing = Outgoing::of_message(message, now.mono_ms);
        let expired = message.is_expired(now.mono_ms);
        for Target { session, terms } in &route.targets[..route.late_at] {
            match terms.qos {
                QoS::AtMostOnce if !deferred.is_whole => {}
                // It is owed it, and gets it below.
                QoS::AtLeastOnce | QoS::ExactlyOnce if self.is_durable(*session) => {}
                _ if expired => self.drops(*session, Counter::DroppedExpired, &outgoing, 0),
                _ => self.deliver(*session, terms, None, &mut outgoing),
            }
        }
        for due in &deferred.dues {
            if !self.has_left(due, &subject) {
                self.deliver_due(due, expired, &mut outgoing);
            }
        }
        let owed = deferred.groups();
        for slot in &route.groups {
            if owed.binary_search(slot).is_ok() {
                continue;
            }
            if expired {
                self.drops(DOOR, Counter::DroppedExpired, &outgoing, 0);
            } else {
                self.deliver_to_group(*slot, None, &mut outgoing);
            }
        }
        self.route = route;
        true
    }

    /// Answers a publish that waits for nothing, in its turn.
    pub(super) fn answer_in_turn(
        &mut self,
        origin: u32,
        token: u64,
        qos: QoS,
        outcome: Outcome,
        now: Now,
    ) {
        let answer = Answer {
            token,
            qos,
            outcome,
            streams: 0,
            deferred: None,
            traced: None,
        };
        self.inbound(origin).push(answer, 0);
        self.answer_origin(origin, now);
    }
}
