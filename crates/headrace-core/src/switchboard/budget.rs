//! The memory of all connections together: what they have been sent and have not read, and packets
//! of theirs that are not whole yet.
//!
//! Each connection has a bound of its own; a budget of the node keeps many of them from reaching it
//! at the same time. Where it is used up, nobody who keeps up is harmed: a connection may then hold
//! no more than a small share, and what goes beyond gives way as at its own bound.
//!
//! Of those that hold more than a share of a packet that is not whole, the one that began first
//! gives way, and where they hold little, of those that hold no more than it. So nobody takes the
//! room of others by beginning and not going on, and to keep it costs as many bytes as all others
//! send. By last progress it would cost a byte of each now and then.

use super::beginnings::Size;
use super::connection::{Connection, Park};
use super::{Counter, Switchboard};
use crate::mqtt::reason;
use crate::Now;

/// What a connection may hold where the budget is used up: enough to keep a socket busy.
pub const SHARE_BYTES: usize = 64 * 1024;

/// The part of the budget that beginnings of packets may always have, on top of it where need be:
/// else subscribers that read nothing could have everybody ended who publishes large messages.
/// Large ones and small ones each have one, for so many hold a small one that those of others would
/// take all of it. And the part that they leave free: else they could use it up, and subscribers
/// would lose messages.
const BEGINNINGS_PARTS: usize = 4;

/// Connections that one call ends to make room, for each may leave a will. One read brings no more
/// than a few of them hold, so they are enough.
const ENDS_MAX: usize = 100;

impl Switchboard {
    /// What all connections together hold: a large payload that many are sent counts once.
    pub(super) fn buffered_bytes(&self) -> usize {
        let held = self.of_connections;
        held.input_bytes + held.own_bytes + self.lumps.bytes()
    }

    /// Whether all connections together hold as much as they may.
    pub(super) fn is_budget_used_up(&self) -> bool {
        self.buffered_bytes() > self.limits.buffered_bytes_max
    }

    /// Bytes that may wait for one connection as things are.
    pub(super) fn outbound_bytes_max(&self) -> usize {
        let own = self.limits.outbound_bytes_max;
        if self.is_budget_used_up() {
            own.min(SHARE_BYTES)
        } else {
            own
        }
    }

    /// Takes note of what a connection holds. Called wherever its input may have grown.
    pub(super) fn count_input(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        let size = size_of_beginning(connection);
        if size != connection.begun.map(|begun| begun.size) {
            self.end_beginning(slot);
            let begun = size.map(|size| self.beginnings.begin(slot, size));
            self.connections[slot as usize].begun = begun;
        }
        self.recount(slot);
    }

    /// What a connection had begun is whole, or over: what follows begins anew.
    pub(super) fn end_beginning(&mut self, slot: u32) {
        if let Some(begun) = self.connections[slot as usize].begun.take() {
            self.beginnings.end(begun);
        }
    }

    /// Ends connections that hold beginnings of packets, the oldest first, until there is room: all
    /// of them might wait for the rest for ever.
    pub(super) fn make_room(&mut self, now: Now) {
        for _ in 0..ENDS_MAX {
            let size = self.size_to_end();
            let Some(oldest) = size.and_then(|size| self.beginnings.oldest(size)) else {
                break;
            };
            self.counters.count(Counter::RefusedMemory);
            self.close(oldest, "memory_full", Some(reason::QUOTA_EXCEEDED), now);
            self.recount(oldest);
        }
    }

    /// Of which size beginnings hold too much: of large ones rather than of small ones, which each
    /// connection may hold where others leave it the room.
    fn size_to_end(&self) -> Option<Size> {
        let part = self.limits.buffered_bytes_max / BEGINNINGS_PARTS;
        if self.buffered_bytes() <= self.limits.buffered_bytes_max - part {
            None
        } else if self.of_connections.large_beginning_bytes > part {
            Some(Size::Large)
        } else if self.of_connections.small_beginning_bytes > part {
            Some(Size::Small)
        } else {
            None
        }
    }

    /// Asserts that those that hold a beginning are known, and no others.
    ///
    /// # Panics
    /// Where they are not.
    pub(super) fn validate_beginnings(&self) {
        let mut count = 0;
        for (slot, connection) in &self.connections {
            let size = connection.begun.map(|begun| begun.size);
            assert_eq!(size, size_of_beginning(connection));
            if let Some(begun) = connection.begun {
                assert_eq!(self.beginnings.of(begun), Some(slot as u32));
                count += 1;
            }
        }
        assert_eq!(self.beginnings.len(), count);
    }
}

/// Of which size the beginning of a packet is that a connection holds. What came while its input
/// rests is whole packets of a client that may have done nothing wrong, and it is read no further;
/// but one that reads no answers has it in its own hands how long that is.
fn size_of_beginning(connection: &Connection) -> Option<Size> {
    let may_wait_for_ever = matches!(connection.parked, None | Some(Park::Answers));
    match connection.input.len() {
        0 => None,
        _ if !may_wait_for_ever => None,
        1..=SHARE_BYTES => Some(Size::Small),
        _ => Some(Size::Large),
    }
}
