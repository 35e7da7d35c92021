//! What is due of all connections, once for each turn of the shell's loop.
//!
//! No turn may be long, whatever clients have left to be done: bytes to hand out, and publishes
//! that match much, are served in shares. Who has just got something and has little to take is
//! served at once; who has much, and those of a crowd that all have got something, wait in the order
//! in which they came.

use std::collections::VecDeque;

use super::connection::{Park, Phase};
use super::outbuffer::Written;
use super::queues::Lost;
use super::{retained, Append, ConnectRequest, Counter, StreamRequest, Switchboard};
use crate::Now;

/// Input that may wait for a decision on its CONNECT before the socket is paused. Clients that do
/// not wait for CONNACK send a few hundred bytes; pausing costs two system calls.
pub const DECISION_BYTES_MAX: usize = 16 * 1024;

/// Bytes handed out in a turn to connections that have more than [`SMALL_BYTES`] to take: 2 to 7 ms
/// of copying and of system calls. All at once, a thousand clients that have left a megabyte each
/// took seconds, and memory for the copies of all.
pub const TURN_BYTES_MAX: usize = 1024 * 1024;

/// What a connection may have to take and still count as one that has little.
pub const SMALL_BYTES: usize = 16 * 1024;

/// Connections visited in a turn of each kind of [`Due`]: a system call for each, some 5 ms in all.
pub const TURN_CONNECTIONS_MAX: usize = 1000;

/// Matches of publishes, counted as in [`super::packets::SHARE_VISITS_MAX`], in a turn: of all
/// connections that have had their share and go on, of all others that go on, of wills, and of what
/// has become durable. 10 to 20 ms each.
pub(super) const TURN_VISITS_MAX: usize = 200_000;

/// Connections to visit, by number, each in one of these.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// Since the last turn something has happened to them.
    pub touched: VecDeque<u64>,
    /// The same in an earlier turn, which had no room for all, or they have not finished what they
    /// did then.
    backlog: VecDeque<u64>,
    /// With much to take.
    large: VecDeque<u64>,
}

impl Due {
    fn is_empty(&self) -> bool {
        self.touched.is_empty() && self.backlog.is_empty() && self.large.is_empty()
    }
}

/// What the shell must do, in this order.
#[derive(Debug, Default)]
pub struct Effects {
    /// To perform; the end of each comes back in [`Switchboard::durable`].
    pub appends: Vec<Append>,
    /// By connection, one each.
    pub writes: Vec<(u64, Written)>,
    /// `(connection, true to read on | false to pause)`.
    pub reads: Vec<(u64, bool)>,
    /// For policy to decide.
    pub decisions: Vec<ConnectRequest>,
    /// For policy to place.
    pub streams: Vec<StreamRequest>,
    /// Queues by stream: the stream of their dead letters is wanted, and told by
    /// [`Switchboard::set_queue`].
    pub dead_letters: Vec<u64>,
    /// Messages that were passed over.
    pub lost: Vec<Lost>,
    /// `(connection, reason)`, after that connection's writes.
    pub closes: Vec<(u64, &'static str)>,
    /// When [`Switchboard::tick`] is due.
    pub wake_at: Option<u64>,
}

impl Effects {
    fn is_empty(&self) -> bool {
        self.appends.is_empty()
            && self.writes.is_empty()
            && self.reads.is_empty()
            && self.decisions.is_empty()
            && self.streams.is_empty()
            && self.dead_letters.is_empty()
            && self.lost.is_empty()
            && self.closes.is_empty()
    }
}

impl Switchboard {
    /// Everything due since the last call; None where nothing is.
    pub fn collect(&mut self, now: Now) -> Option<Effects> {
        self.tracer.at(now);
        self.end_on(now);
        self.answer_on(now);
        self.run_on(now);
        self.claim_on(now);
        self.spread(now);
        self.end_doomed(now);
        self.make_room(now);
        self.end_leases(now);
        self.end_gone_streams(now);
        self.end_gone_queues(now);
        self.feeds.begin_turn();
        self.serve_queues(now);
        let mut effects = Effects {
            appends: self.streams.collect(),
            dead_letters: self.queues.take_wants(),
            lost: self.queues.take_lost(),
            decisions: std::mem::take(&mut self.decisions),
            ..Effects::default()
        };
        self.replay_steps = retained::STEPS_MAX;
        self.serve_turns(now);
        self.visit_due(&mut effects, now);
        effects.streams = self.feeds.take_requests();
        let has_more = !self.runnable.is_empty()
            || !self.due.is_empty()
            || !self.owing.is_empty()
            || self.crowds.are_due()
            || !self.leaving.is_empty()
            || self.feeds.has_turns()
            || self.queues.is_due()
            || self.groups.has_ends();
        // Reads of streams are the shell's to take: another call would not bring them on, and it
        // knows when there is room for more.
        effects.wake_at = if has_more || self.feeds.has_gone() || self.queues.has_gone() {
            Some(now.mono_ms)
        } else {
            self.timers.next()
        };
        let woken = std::mem::replace(&mut self.wake_at, effects.wake_at);
        (!effects.is_empty() || has_more || woken != effects.wake_at).then_some(effects)
    }

    /// Lets connections go on whose reason to rest may have gone.
    fn run_on(&mut self, now: Now) {
        let mut turn_visits = [0; 2];
        for _ in 0..self.runnable.len() {
            let Some(slot) = self.runnable.pop_front() else {
                break;
            };
            let connection = self.connections.get(slot as usize);
            let had_share = connection.is_some_and(|each| each.parked == Some(Park::Turn));
            // Who has had its share does not keep those from theirs who have rested.
            let visits = &mut turn_visits[usize::from(had_share)];
            if *visits >= TURN_VISITS_MAX {
                self.runnable.push_back(slot);
                continue;
            }
            self.route.visited = 0;
            self.resume(slot, now);
            *visits += self.route.visited;
        }
    }

    /// Answers those on whose turn there was no time in earlier turns.
    fn answer_on(&mut self, now: Now) {
        self.answered_visits = 0;
        for _ in 0..self.owing.len() {
            let Some(origin) = self.owing.pop_front() else {
                break;
            };
            self.answer_origin(origin, now);
        }
    }

    /// Visits as many as a turn has room for.
    fn visit_due(&mut self, effects: &mut Effects, now: Now) {
        let mut backlog = std::mem::take(&mut self.due.backlog);
        let mut touched = std::mem::take(&mut self.due.touched);
        if touched.len() > TURN_CONNECTIONS_MAX {
            // Who came behind a crowd, or before it, is not kept waiting by it.
            touched.rotate_right(TURN_CONNECTIONS_MAX / 2);
        }
        for queue in [&mut backlog, &mut touched] {
            let first = queue.len().min(TURN_CONNECTIONS_MAX);
            for connection in queue.drain(..first) {
                let Ok(slot) = self.slot(connection) else {
                    continue;
                };
                if self.connections[slot as usize].takeable() > SMALL_BYTES {
                    self.due.large.push_back(connection);
                } else {
                    self.visit(slot, effects, now);
                }
            }
        }
        let mut turn_bytes = TURN_BYTES_MAX;
        for _ in 0..TURN_CONNECTIONS_MAX {
            if turn_bytes == 0 {
                break;
            }
            let Some(connection) = self.due.large.pop_front() else {
                break;
            };
            if let Ok(slot) = self.slot(connection) {
                let taken = self.visit(slot, effects, now);
                turn_bytes = turn_bytes.saturating_sub(taken);
            }
        }
        backlog.append(&mut touched);
        // What was touched meanwhile has more to take, or had no turn to search: the latter comes
        // first, or the first search would keep all others from theirs.
        if let Some(searched) = self.searched.take() {
            self.due.touched.rotate_left(searched);
        }
        backlog.append(&mut self.due.touched);
        self.due.backlog = backlog;
        self.due.touched = touched; // It is empty, and keeps its memory.
    }

    /// Takes what is due from one connection; how many bytes.
    fn visit(&mut self, slot: u32, effects: &mut Effects, now: Now) -> usize {
        let connection = &mut self.connections[slot as usize];
        connection.touched = false;
        let id = connection.id;
        let written = connection.take(self.persistence.settled());
        self.counters
            .add(Counter::PacketsSent, connection.out.take_packets());
        let taken = written.len();
        if taken > 0 {
            self.counters.add(Counter::BytesSent, taken);
            effects.writes.push((id, written));
        }
        if connection.phase == Phase::Closing {
            // What it is told last may wait for the disk.
            if !connection.is_gated() {
                if let Some(reason) = connection.closing.take() {
                    connection.out.clear();
                    effects.closes.push((id, reason));
                }
            }
            self.recount(slot);
            return taken;
        }
        let reading = connection.wants_input(DECISION_BYTES_MAX);
        if connection.reading != reading {
            connection.reading = reading;
            effects.reads.push((id, reading));
        }
        if connection.can_take() {
            self.touch(slot);
        }
        self.recount(slot);
        self.drained(slot, now);
        self.replay(slot, now);
        if let Some(session) = self.connections[slot as usize].session {
            self.refill(session, now);
            if self.sessions[session as usize].feeds.is_some() {
                self.feed(session, now);
            }
            self.wake_consumers(session);
        }
        taken
    }
}
