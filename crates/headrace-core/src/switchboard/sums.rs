//! What all sessions, connections and groups hold, summed as it changes: to tell it costs the same
//! however many there are.
//!
//! Each session and connection remembers what it was last counted with, so that whoever has changed
//! it need not know how. `Switchboard::validate` compares the sums with a walk.

use std::collections::BTreeMap;

use super::beginnings::Size;
use super::connection::{Connection, Overflow};
use super::Switchboard;
use crate::session::Holding;
use crate::sums::sums;

sums! {
    /// Of connections.
    OfConnections {
        /// Bytes that clients have sent, of packets that are not whole or wait.
        input_bytes,
        /// Of those, beginnings of packets of no more than a share.
        small_beginning_bytes,
        /// And of more.
        large_beginning_bytes,
        /// Bytes on the way to clients.
        outbound_bytes,
        /// Of those, bytes that no other client is sent.
        own_bytes,
        /// Connections that are full.
        full,
    }
}

impl OfConnections {
    /// What one holds.
    pub fn of(connection: &Connection) -> Self {
        let input_bytes = connection.input.len();
        let begun = |size| {
            let begun = connection.begun.filter(|begun| begun.size == size);
            begun.map_or(0, |_| input_bytes)
        };
        Self {
            input_bytes,
            small_beginning_bytes: begun(Size::Small),
            large_beginning_bytes: begun(Size::Large),
            outbound_bytes: connection.out.len(),
            own_bytes: connection.out.own_bytes(),
            full: usize::from(!matches!(connection.overflow, Overflow::No)),
        }
    }
}

impl Switchboard {
    /// Counts a session anew. Called wherever what it holds may have changed.
    pub(super) fn recount_session(&mut self, session: u32) {
        let session = &mut self.sessions[session as usize];
        let now = Holding::of(session);
        self.of_sessions += now;
        self.of_sessions -= std::mem::replace(&mut session.counted, now);
    }

    /// Counts a connection anew. Called wherever what it holds grows by more than an answer, and at
    /// each collect that visits it.
    pub(super) fn recount(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        let now = OfConnections::of(connection);
        self.of_connections += now;
        self.of_connections -= std::mem::replace(&mut connection.counted, now);
    }

    /// Asserts that the sums are those of a walk.
    ///
    /// # Panics
    /// Where they are not.
    pub(super) fn validate_sums(&self) {
        let mut of_sessions = Holding::default();
        let mut here = 0;
        for (_, session) in &self.sessions {
            of_sessions += Holding::of(session);
            here += usize::from(session.connection.is_some());
        }
        assert_eq!((of_sessions, here), (self.of_sessions, self.here));
        let mut of_connections = OfConnections::default();
        for (_, connection) in &self.connections {
            of_connections += connection.counted;
            let now = OfConnections::of(connection);
            assert!(
                connection.touched || now == connection.counted,
                "it is counted"
            );
        }
        assert_eq!(of_connections, self.of_connections);
        let connections = self.connections.iter();
        let lumps = connections.flat_map(|(_, connection)| connection.out.lumps());
        let lumps: BTreeMap<_, usize> = lumps.collect();
        assert_eq!(lumps.into_values().sum::<usize>(), self.lumps.bytes());
    }
}
