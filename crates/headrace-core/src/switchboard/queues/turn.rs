//! Whose turn it is: who of a group is given the next message.

use super::pull::is_pull;
use super::{Queues, Sharing};
use crate::mqtt::packet::QoS;
use crate::switchboard::retained::AHEAD_BYTES_MAX;
use crate::switchboard::Switchboard;

impl Switchboard {
    /// The next consumer in turn that has room, those first that take what others could not.
    pub(super) fn next_consumer(&mut self, slot: u32) -> Option<u64> {
        let group = &self.queues.groups[slot as usize];
        if self.queues.all[group.queue as usize].settings.sharing != Sharing::Shared {
            let active = self.active_consumer(slot)?;
            let active = Some(active).filter(|number| self.consumer_has_room(*number))?;
            let bytes_max = self.queues.consumers[&active].packet_bytes_max;
            self.queues.recall(slot, bytes_max);
            return Some(active);
        }
        if let Some(number) = self.recall(slot) {
            return Some(number);
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

    /// The first in turn that has room and takes something that was set aside, which is in its turn
    /// again then; None where there is none.
    fn recall(&mut self, slot: u32) -> Option<u64> {
        let group = &self.queues.groups[slot as usize];
        if !group.has_aside {
            return None;
        }
        let has_room = |number: &u64| is_pull(*number) || self.consumer_has_room(*number);
        let ready: Vec<u64> = group.line.iter().copied().filter(has_room).collect();
        let found = ready.into_iter().find(|number| {
            let consumer = self.queues.consumers.get(number);
            let bytes_max = consumer.map_or(usize::MAX, |consumer| consumer.packet_bytes_max);
            self.queues.recall(slot, bytes_max)
        });
        let group = &mut self.queues.groups[slot as usize];
        group.has_aside = group.parts.iter().any(|part| part.ledger.has_aside());
        found
    }

    /// Whether somebody else of a group can take a packet of so many bytes, as far as is known.
    pub(super) fn others_take(&self, slot: u32, number: u64, bytes: usize) -> bool {
        let group = &self.queues.groups[slot as usize];
        let mut others = group.members.iter().filter(|other| **other != number);
        others.any(|other| self.queues.consumers[other].packet_bytes_max >= bytes)
            || group.line.iter().any(|number| is_pull(*number))
    }

    /// The largest packet that the client of a session takes; without bound where that is not known.
    pub(super) fn packet_bytes_max_of(&self, session: u32) -> usize {
        let connection = self.sessions[session as usize].connection;
        connection.map_or(usize::MAX, |slot| {
            self.connections[slot as usize].packet_bytes_max
        })
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

impl Queues {
    /// Has something that was set aside, and has no more bytes, come next; whether there is such.
    fn recall(&mut self, slot: u32, bytes_max: usize) -> bool {
        let group = &mut self.groups[slot as usize];
        if !group.has_aside {
            return false;
        }
        let parts = (0..).zip(&mut group.parts);
        let mut recalls = parts.map(|(partition, part)| (partition, part.ledger.recall(bytes_max)));
        let Some((partition, _)) = recalls.find(|(_, is_recalled)| *is_recalled) else {
            return false;
        };
        self.heat(slot, partition);
        let hot = &mut self.groups[slot as usize].hot;
        hot.retain(|each| *each != partition);
        hot.push_front(partition);
        self.change(slot, partition);
        true
    }
}
