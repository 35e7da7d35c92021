//! Sessions from beginning to end, and their wills (MQTT 5.0 3.1.2.4, 3.1.2.5, 3.1.2.11.2,
//! 3.1.3.2.2, 3.1.4, 4.1).
//!
//! A session belongs to a client id. It waits for its client as long as its expiry interval says;
//! a new connection of the client goes on with it, or ends it where it wants a clean start. What
//! becomes of the will follows from that alone: it is published once, when its delay has passed or
//! the session ends, unless the client came back before or said good-bye.

use super::subscribe::FILTERS_TURN_MAX;
use super::timers::Timer;
use super::{Counter, Switchboard};
use crate::hash::Map;
use crate::mqtt::reason;
use crate::session::{Session, Will};
use crate::Now;

impl Switchboard {
    /// The session of a client that connects, and whether it was there before. The connection that
    /// had it so far ends.
    pub(super) fn session_for(&mut self, client_id: &str, is_clean: bool, now: Now) -> (u32, bool) {
        let find = |switchboard: &Self| switchboard.by_client.get(client_id).copied();
        if let Some(session) = find(self) {
            if let Some(older) = self.sessions[session as usize].connection {
                self.counters.count(Counter::Takeovers);
                self.close_with(older, reason::SESSION_TAKEN_OVER, now);
            } else {
                // What is due is so though its timer is late.
                self.cancel_session_timer(session);
                self.session_due(session, now);
            }
        }
        match find(self) {
            Some(session) if !is_clean => {
                self.counters.count(Counter::Resumed);
                return (session, true);
            }
            Some(session) => self.end_session(session, now),
            None => {}
        }
        let in_flight_max = self.limits.in_flight_max;
        let mut session = Session::new(self.hash_key, client_id.into(), in_flight_max);
        self.births += 1;
        session.birth = self.births;
        let session = self.sessions.insert(session) as u32;
        self.by_client.insert(client_id.into(), session);
        (session, false)
    }

    /// Whether there is room for the session that a client asks for.
    pub(super) fn has_place(&self, client_id: &str, asked_s: u32) -> bool {
        let older = self.by_client.get(client_id);
        let older = older.map(|session| &self.sessions[*session as usize]);
        let is_new = older.is_none();
        let is_newly_kept = older.is_none_or(|session| session.expiry_s == 0);
        let has_place = !is_new || self.by_client.len() < self.limits.sessions_max;
        let is_kept = is_newly_kept && self.granted_s(asked_s) > 0;
        has_place && (!is_kept || self.kept < self.limits.sessions_kept_max)
    }

    fn granted_s(&self, asked_s: u32) -> u32 {
        asked_s.min(self.limits.session_expiry_s_max)
    }

    /// For how long the session outlives its connection, as the client wishes, within the bound.
    pub(super) fn set_expiry(&mut self, session: u32, asked_s: u32) {
        let expiry_s = self.granted_s(asked_s);
        let state = &mut self.sessions[session as usize];
        self.kept -= usize::from(state.expiry_s > 0);
        self.kept += usize::from(expiry_s > 0);
        state.expiry_s = expiry_s;
    }

    /// A session that may outlive its connection is kept on the log, where there is one.
    pub(super) fn begin_durable(&mut self, session: u32) {
        let state = &mut self.sessions[session as usize];
        if state.expiry_s > 0 && state.durable.is_none() && self.persistence.is_on() {
            state.durable = Some(self.persistence.begin(&state.client_id).into());
            state.is_will_kept = false;
        }
    }

    pub(super) fn is_durable(&self, session: u32) -> bool {
        self.sessions[session as usize].durable.is_some()
    }

    /// The connection of a session is gone. What is due at once happens at once.
    pub(super) fn leave_session(&mut self, session: u32, in_order: bool, now: Now) {
        let state = &mut self.sessions[session as usize];
        state.detach(now.mono_ms);
        self.here -= 1;
        if let (Some(durable), true) = (&mut state.durable, state.expiry_s > 0) {
            durable.left_ms = Some(u64::try_from(now.wall_ms).unwrap_or(0));
            self.persistence.head_due(state);
            self.persistence.cursor_due(state);
        }
        self.members_away(session, now);
        self.rest_feeds(session);
        self.rest_consumers(session, !in_order);
        self.session_due(session, now);
    }

    /// Publishes the will, or ends the session, if its time has come.
    pub(super) fn session_due(&mut self, session: u32, now: Now) {
        let is_due = |due_ms: Option<u64>| due_ms.is_some_and(|due_ms| due_ms <= now.mono_ms);
        let state = &mut self.sessions[session as usize];
        state.timer_ms = None;
        if is_due(state.ends_ms) {
            if state.expiry_s > 0 {
                self.counters.count(Counter::Expired);
            }
            return self.end_session(session, now);
        }
        if is_due(state.will_ms) {
            self.publish_will(session, now);
        }
        self.set_session_timer(session);
    }

    pub(super) fn set_session_timer(&mut self, session: u32) {
        let state = &mut self.sessions[session as usize];
        if let Some(due_ms) = state.next_ms() {
            state.timer_ms = Some(due_ms);
            self.timers.set(due_ms, Timer::Session(session));
        }
    }

    pub(super) fn cancel_session_timer(&mut self, session: u32) {
        if let Some(due_ms) = self.sessions[session as usize].timer_ms.take() {
            self.timers.cancel(due_ms, Timer::Session(session));
        }
    }

    /// Ends a session without connection: what it subscribed to, what waited for it. It lingers
    /// while its publishes, the will among them, wait for the disk, and while the turn has no room
    /// for all of its subscriptions.
    pub(super) fn end_session(&mut self, session: u32, now: Now) {
        self.cancel_session_timer(session);
        let state = &mut self.sessions[session as usize];
        assert!(
            state.connection.is_none(),
            "a session outlives its connection"
        );
        state.is_ended = true;
        self.kept -= usize::from(state.expiry_s > 0);
        state.ends_ms = None;
        state.narrowed = 1; // It hears nothing more.
        let was_durable = self.persistence.forget(state);
        let unsent = state.outbound.clear();
        self.recount_session(session);
        self.drops_waiting(session, Counter::DroppedEnded, unsent.iter());
        if !self.forget_subscriptions(session, was_durable, now) {
            self.leaving.push_back((session, was_durable));
        }
        let client_id = &self.sessions[session as usize].client_id;
        self.by_client.remove(client_id);
        self.publish_will(session, now);
        self.forget_if_over(session);
    }

    /// Takes as many subscriptions from a session that has ended as the turn has room for; whether
    /// none is left.
    fn forget_subscriptions(&mut self, session: u32, was_durable: bool, now: Now) -> bool {
        let state = &mut self.sessions[session as usize];
        let filters = state.subscriptions.keys().take(self.filters_share);
        let filters: Vec<Box<str>> = filters.cloned().collect();
        for filter in &filters {
            state.subscriptions.remove(filter);
        }
        self.filters_share -= filters.len();
        let is_last = state.subscriptions.is_empty();
        if is_last {
            state.subscriptions = Map::with_hasher(self.hash_key);
            state.narrowed = 0;
        }
        self.forget_filters(session, filters.iter().map(|filter| &**filter), now);
        if was_durable {
            let client_id = &self.sessions[session as usize].client_id;
            self.persistence.forget_filters(client_id, filters);
        }
        is_last
    }

    /// Goes on with sessions that have ended and had very many subscriptions.
    pub(super) fn end_on(&mut self, now: Now) {
        self.filters_share = FILTERS_TURN_MAX;
        while self.filters_share > 0 {
            let Some((session, was_durable)) = self.leaving.pop_front() else {
                return;
            };
            if self.forget_subscriptions(session, was_durable, now) {
                self.forget_if_over(session);
            } else {
                self.leaving.push_front((session, was_durable));
            }
        }
    }

    /// Gives a session a will, or none; the one that it had.
    pub(super) fn set_will(&mut self, session: u32, will: Option<Will>) -> Option<Will> {
        let before = std::mem::replace(&mut self.sessions[session as usize].will, will);
        self.recount_session(session);
        before
    }

    /// Whether there is room for a client's will among all that waits, where its last one was.
    pub(super) fn has_room_for(&self, client_id: &str, will: Option<&Will>) -> bool {
        let Some(will) = will else { return true };
        let older = self.by_client.get(client_id);
        let older = older.and_then(|session| self.sessions[*session as usize].will.as_ref());
        let others = self.waiting_bytes() - older.map_or(0, Will::bytes);
        others + will.bytes() <= self.limits.queued_bytes_of_node_max
    }

    /// Publishes the will of a session, if it still has one.
    fn publish_will(&mut self, session: u32, now: Now) {
        self.sessions[session as usize].will_ms = None;
        if let Some(will) = self.set_will(session, None) {
            self.persistence
                .head_due(&mut self.sessions[session as usize]);
            self.counters.count(Counter::Wills);
            self.publish_from(session, &will.packet, now);
        }
    }

    pub(super) fn forget_if_over(&mut self, session: u32) {
        if self
            .sessions
            .get(session as usize)
            .is_some_and(Session::is_over)
        {
            let gone = self.sessions.remove(session as usize);
            self.of_sessions -= gone.counted;
        }
    }
}
