//! What the switchboard counts and holds, told in one go. Nothing is walked for it: see
//! [`super::sums`].

use super::Switchboard;

impl Switchboard {
    /// Counters and gauges; a name may carry one label as `name{reason="x"}`.
    pub fn statistics(&self) -> Vec<(&'static str, u64)> {
        let sessions = self.of_sessions;
        let connections = self.of_connections;
        let groups = self.groups.sums();
        let gauges = [
            ("mqtt_connections", self.connections.len()),
            ("mqtt_connections_full", connections.full),
            ("mqtt_sessions", self.by_client.len()),
            ("mqtt_sessions_kept", self.kept),
            ("mqtt_queued_bytes", self.waiting_bytes()),
            ("mqtt_sessions_away", self.by_client.len() - self.here),
            (
                "mqtt_subscriptions",
                self.subscriptions.len()
                    + groups.members
                    + self.feeds.len()
                    + self.queues.subscriptions(),
            ),
            ("mqtt_stream_subscriptions", self.feeds.len()),
            ("mqtt_stream_positions", self.feeds.positions()),
            ("mqtt_stream_held_bytes", self.feeds.held_bytes()),
            ("mqtt_queue_held_bytes", self.queues.held_bytes()),
            ("mqtt_shared_groups", self.groups.len()),
            ("mqtt_shared_members", groups.members),
            ("mqtt_shared_queued_messages", groups.queued),
            ("mqtt_shared_queued_bytes", groups.queued_bytes),
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
            ("mqtt_crowd_messages", self.crowds.len()),
            ("mqtt_buffered_bytes", self.buffered_bytes()),
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
}
