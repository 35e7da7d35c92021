//! The memory of all connections together: what they have been sent and have not read, and packets
//! of theirs that are not whole yet.
//!
//! Each connection has a bound of its own; a budget of the node keeps many of them from reaching it
//! at the same time. Where it is used up, nobody who keeps up is harmed: a connection may then hold
//! no more than a small share, and what goes beyond gives way as at its own bound.

use super::{Counter, Switchboard};
use crate::mqtt::reason;
use crate::Now;

/// What a connection may hold where the budget is used up: enough to keep a socket busy.
pub const SHARE_BYTES: usize = 64 * 1024;

/// Of the budget, what beginnings of packets may have on top of it: else subscribers that read
/// nothing could have everybody ended who publishes large messages.
const INPUT_PARTS: usize = 4;

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

    /// Ends a connection that holds the beginning of a large packet where there is no room for it:
    /// all of them might wait for the rest for ever. What came while its input rests is whole
    /// packets of a client that may have done nothing wrong, and it is read no further.
    pub(super) fn end_if_too_much(&mut self, slot: u32, now: Now) {
        self.recount(slot);
        let connection = &self.connections[slot as usize];
        let held = connection.input.len();
        let is_much =
            self.of_connections.input_bytes > self.limits.buffered_bytes_max / INPUT_PARTS;
        if connection.parked.is_none() && held > SHARE_BYTES && is_much && self.is_budget_used_up()
        {
            self.counters.count(Counter::RefusedMemory);
            self.close(slot, "memory_full", Some(reason::QUOTA_EXCEEDED), now);
        }
    }
}
