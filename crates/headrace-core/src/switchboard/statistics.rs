//! What the switchboard counts and holds, told in one go.
//!
//! Sessions and connections are walked once: at a million sessions that is what a scrape costs, and
//! a round of `$SYS`.

use super::connection::Overflow;
use super::Switchboard;

/// Sums over all sessions.
#[derive(Default)]
struct OfSessions {
    away: usize,
    queued_bytes: usize,
    kept_bytes: usize,
    queued: usize,
    in_flight: usize,
    unreleased: usize,
}

/// Sums over all connections.
#[derive(Default)]
struct OfConnections {
    full: usize,
    outbound_bytes: usize,
}

impl Switchboard {
    /// Counters and gauges; a name may carry one label as `name{reason="x"}`.
    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let sessions = self.of_sessions();
        let connections = self.of_connections();
        let members = self.groups.members();
        let gauges = [
            ("mqtt_connections", self.connections.len()),
            ("mqtt_connections_full", connections.full),
            ("mqtt_sessions", self.by_client.len()),
            ("mqtt_sessions_kept", self.kept),
            ("mqtt_queued_bytes", self.memory.bytes()),
            ("mqtt_sessions_away", sessions.away),
            ("mqtt_subscriptions", self.subscriptions.len() + members),
            ("mqtt_shared_groups", self.groups.len()),
            ("mqtt_shared_members", members),
            ("mqtt_shared_queued_messages", self.groups.queued()),
            ("mqtt_shared_queued_bytes", self.groups.queued_bytes()),
            ("mqtt_retained_messages", self.retained.len()),
            ("mqtt_retained_bytes", self.retained.bytes()),
            ("mqtt_retained_undurable", self.keeping.len()),
            ("mqtt_streams", self.streams.len()),
            ("mqtt_outbound_bytes", connections.outbound_bytes),
            ("mqtt_outbound_queued_bytes", sessions.queued_bytes),
            ("mqtt_outbound_kept_bytes", sessions.kept_bytes),
            ("mqtt_outbound_queued_messages", sessions.queued),
            ("mqtt_inbound_unreleased", sessions.unreleased),
            ("mqtt_outbound_in_flight", sessions.in_flight),
            ("mqtt_buffered_bytes", self.buffered_bytes),
            ("mqtt_undurable_bytes", self.undurable_bytes()),
            (
                "mqtt_tickets",
                self.streams.tickets() + self.persistence.tickets(),
            ),
            ("mqtt_stored_messages", self.persistence.messages()),
            (
                "mqtt_sessions_log_bytes",
                self.persistence.log_bytes() as usize,
            ),
            (
                "mqtt_sessions_checkpoints_total",
                self.persistence.checkpoints() as usize,
            ),
        ];
        gauges
            .into_iter()
            .map(|(name, value)| (name, value as u64))
            .chain(self.counters.list())
            .collect()
    }

    fn of_sessions(&self) -> OfSessions {
        let mut sums = OfSessions::default();
        for (_, session) in &self.sessions {
            sums.away += usize::from(session.connection.is_none() && !session.is_ended);
            sums.queued_bytes += session.outbound.queued_bytes();
            sums.kept_bytes += session.outbound.kept_bytes();
            sums.queued += session.outbound.queued();
            sums.in_flight += session.outbound.in_flight();
            sums.unreleased += session.inbound.unreleased();
        }
        sums
    }

    fn of_connections(&self) -> OfConnections {
        let mut sums = OfConnections::default();
        for (_, connection) in &self.connections {
            sums.full += usize::from(!matches!(connection.overflow, Overflow::No));
            sums.outbound_bytes += connection.out.len();
        }
        sums
    }
}
