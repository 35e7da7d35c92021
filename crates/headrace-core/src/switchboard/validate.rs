//! What must always hold, asserted.

use super::connection::{Overflow, Phase};
use super::permit::filter_of;
use super::{Switchboard, ANSWER_BYTES_MAX, SHARE_BYTES};
use crate::mqtt::packet::Version;
use crate::session::OVERHEAD_BYTES;

impl Switchboard {
    /// Asserts the invariants of the whole machine. Linear in everything; for tests.
    ///
    /// # Panics
    /// Where one does not hold.
    pub fn validate(&self) {
        self.streams.validate();
        self.persistence.validate();
        self.retained.validate("#");
        self.announced.validate("$SYS/#");
        self.keeping.validate();
        self.validate_groups();
        self.validate_feeds();
        self.validate_queues();
        self.validate_crowds();
        assert_eq!(self.by_id.len(), self.connections.len());
        self.validate_sums();
        self.validate_beginnings();
        let mut subscriptions = 0;
        let packet = self.limits.packet_bytes_max + OVERHEAD_BYTES;
        for (slot, connection) in &self.connections {
            assert_eq!(self.by_id.get(&connection.id), Some(&(slot as u32)));
            assert_eq!(
                connection.session.is_some(),
                connection.phase == Phase::Open
            );
            if let Some(session) = connection.session {
                assert_eq!(
                    self.sessions[session as usize].connection,
                    Some(slot as u32)
                );
            }
            // The last answer may be a packet that passes the bound where the others end.
            let answers = ANSWER_BYTES_MAX + self.limits.packet_bytes_max;
            assert!(
                connection.out.len() <= self.highest.outbound_bytes + answers,
                "outbound is bounded"
            );
            let is_stalling = matches!(connection.overflow, Overflow::Stalling { .. });
            assert!(
                !is_stalling || self.timers.next().is_some(),
                "a stall ends by itself"
            );
        }
        let kept = self
            .sessions
            .iter()
            .filter(|(_, each)| !each.is_ended && each.expiry_s > 0);
        assert_eq!(kept.count(), self.kept);
        for (slot, session) in &self.sessions {
            assert!(
                !session.is_over(),
                "nothing is left of a session that is over"
            );
            assert!(!session.is_will_kept || session.durable.is_none());
            session.inbound.validate();
            session.outbound.validate();
            subscriptions += session.subscriptions.len();
            let filters = session.subscriptions.keys().map(|text| filter_of(text));
            let decisions = filters.map(|filter| self.decide_subscription(slot as u32, &filter));
            let narrowed = decisions.filter(|decision| decision.hole.is_some()).count();
            let is_leaving = session.is_ended && !session.subscriptions.is_empty();
            let narrowed = if is_leaving { 1 } else { narrowed };
            assert_eq!(narrowed, session.narrowed as usize);
            let leaves = self.leaving.iter().any(|(each, _)| *each == slot as u32);
            assert_eq!(leaves, is_leaving, "it goes on to be forgotten");
            let by_client = self.by_client.get(&session.client_id);
            let is_current = by_client == Some(&(slot as u32));
            assert_eq!(is_current, !session.is_ended, "one session a client");
            assert!(session.outbound.held_bytes() <= self.highest.queued_bytes + packet);
            match session.connection {
                Some(slot) => {
                    assert!(session.timer_ms.is_none() && session.next_ms().is_none());
                    let connection = &self.connections[slot as usize];
                    let is_bounded = connection.version == Version::V5;
                    let receive_max = usize::from(self.limits.receive_max);
                    assert!(!is_bounded || session.inbound.open() <= receive_max);
                    let room = self.limits.outbound_bytes_max.min(SHARE_BYTES);
                    let is_full = connection.out.len() > room / 2;
                    assert!(
                        is_full || !session.outbound.has_next(),
                        "nothing waits while the window and the connection have room"
                    );
                }
                None => assert_eq!(session.timer_ms, session.next_ms(), "an end is not missed"),
            }
        }
        let members = self.groups.sums().members;
        let others = members + self.feeds.len() + self.queues.subscriptions();
        assert_eq!(subscriptions, self.subscriptions.len() + others);
    }
}
