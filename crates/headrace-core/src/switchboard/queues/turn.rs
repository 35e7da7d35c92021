//! Whose turn it is: who of a group is given the next message.

use super::pull::is_pull;
use super::Sharing;
use crate::mqtt::packet::QoS;
use crate::switchboard::retained::AHEAD_BYTES_MAX;
use crate::switchboard::Switchboard;

impl Switchboard {
    /// The next consumer in turn that has room; it stands first in the line then.
    pub(super) fn next_consumer(&mut self, slot: u32) -> Option<u64> {
        let group = &self.queues.groups[slot as usize];
        if self.queues.all[group.queue as usize].settings.sharing != Sharing::Shared {
            let active = self.active_consumer(slot)?;
            return Some(active).filter(|number| self.consumer_has_room(*number));
        }
        while let Some(number) = self.queues.groups[slot as usize].line.front().copied() {
            if is_pull(number) || self.consumer_has_room(number) {
                return Some(number);
            }
            // It stands there again as soon as it may have some.
            self.queues.groups[slot as usize].line.pop_front();
            let consumer = self.queues.consumers.get_mut(&number);
            consumer.expect("it is one").is_in_line = false;
        }
        None
    }

    /// Of a group whose queue gives all to one: who that is, as long as its client is connected, and
    /// then who came first of those that are. None where nobody is there, or where others have
    /// deliveries that are not over, from when the queue gave to all.
    fn active_consumer(&mut self, slot: u32) -> Option<u64> {
        let group = &self.queues.groups[slot as usize];
        let active = group.active.or_else(|| {
            let here = group.members.iter().copied();
            let here = here.filter(|number| self.is_here(*number));
            here.min_by_key(|number| self.queues.consumers[number].since)
        })?;
        self.queues.groups[slot as usize].active = Some(active);
        let parts = self.queues.groups[slot as usize].parts.iter();
        let flying: usize = parts.map(|part| part.ledger.in_flight()).sum();
        (flying == self.queues.consumers[&active].held).then_some(active)
    }

    /// Whether the client of a consumer is connected.
    pub(super) fn is_here(&self, number: u64) -> bool {
        let session = self.queues.consumers[&number].session;
        self.sessions[session as usize].connection.is_some()
    }

    fn consumer_has_room(&self, number: u64) -> bool {
        let consumer = &self.queues.consumers[&number];
        let state = &self.sessions[consumer.session as usize];
        let Some(slot) = state
            .connection
            .filter(|_| consumer.held < self.queues.prefetch_of(consumer))
        else {
            return false;
        };
        let waiting = self.connections[slot as usize].out.len() + state.outbound.queued_bytes();
        let bytes_max = AHEAD_BYTES_MAX.min(self.outbound_bytes_max() / 2);
        waiting <= bytes_max && (consumer.qos == QoS::AtMostOnce || state.outbound.has_room())
    }
}
