//! What must always hold, asserted.

use super::connection::{Overflow, Phase};
use super::{Switchboard, ANSWER_BYTES_MAX};
use crate::session::OVERHEAD_BYTES;

impl Switchboard {
    /// Asserts the invariants of the whole machine. Linear in everything; for tests.
    ///
    /// # Panics
    /// Where one does not hold.
    pub fn validate(&self) {
        self.streams.validate();
        assert_eq!(self.by_id.len(), self.connections.len());
        let mut subscriptions = 0;
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
            let queued = self.queued_bytes(connection);
            // The last answer may be a packet that passes the bound where the others end.
            let answers = ANSWER_BYTES_MAX + self.limits.packet_bytes_max;
            let bytes_max = self.limits.outbound_bytes_max + answers + OVERHEAD_BYTES;
            assert!(
                connection.out.len() + queued <= bytes_max,
                "outbound is bounded"
            );
            let is_stalling = matches!(connection.overflow, Overflow::Stalling { .. });
            assert!(
                !is_stalling || self.timers.next().is_some(),
                "a stall ends by itself"
            );
        }
        for (slot, session) in &self.sessions {
            assert!(
                !session.is_over(),
                "nothing is left of a session that is over"
            );
            session.outbound.validate();
            subscriptions += session.subscriptions.len();
            let by_client = self.by_client.get(&session.client_id);
            let is_current = by_client == Some(&(slot as u32));
            assert_eq!(
                is_current,
                session.connection.is_some(),
                "one session a client"
            );
            // One more for a will that waits for the disk.
            assert!(session.inbound.len() <= usize::from(self.limits.receive_max) + 1);
        }
        assert_eq!(subscriptions, self.subscriptions.len());
    }
}
