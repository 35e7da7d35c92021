//! A message on its way to one consumer, and how its delivery ends.

use super::message::{parts_of, push_number, ATTEMPT, GROUP_FILTER, GROUP_ID, MESSAGE_ID};
use super::pull::is_pull;
use super::{Group, Part};
use crate::mqtt::encode;
use crate::mqtt::packet::QoS;
use crate::queue::Late;
use crate::session::{Handed, Ids, Terms};
use crate::switchboard::outgoing::Outgoing;
use crate::switchboard::{Counter, Switchboard};
use crate::Now;

/// Partition, offset and attempt: one delivery.
pub(super) type Place = (u32, i64, u32);

impl Group {
    /// A partition that a client names; of one that there is not nothing was ever delivered.
    fn part(&mut self, partition: u32) -> Result<&mut Part, Late> {
        self.parts.get_mut(partition as usize).ok_or(Late::Unknown)
    }
}

impl Switchboard {
    /// A message is on its way to `holder`: which delivery of it this is.
    pub(super) fn begin_delivery(
        &mut self,
        slot: u32,
        holder: u64,
        (partition, offset): (u32, i64),
        now: Now,
    ) -> u32 {
        let group = &mut self.queues.groups[slot as usize];
        let part = &mut group.parts[partition as usize];
        let attempt = part.ledger.deliver(offset, holder, now);
        part.is_aged = false;
        group.counts.delivered += 1;
        group.counts.redelivered += u64::from(attempt > 1);
        if let Some(ms) = part.ledger.waited_ms(offset) {
            group.counts.latency.count(ms);
        }
        attempt
    }

    /// Gives a message to a consumer that has room.
    pub(super) fn hand_out(
        &mut self,
        slot: u32,
        number: u64,
        (partition, offset): (u32, i64),
        now: Now,
    ) {
        if is_pull(number) {
            return self.hand_to_pull(slot, number, (partition, offset), now);
        }
        let packet = self.queues.take(slot, partition, offset);
        let packet = packet.expect("it is at hand");
        let group = &self.queues.groups[slot as usize];
        let attempt = group.parts[partition as usize].ledger.attempts(offset) + 1;
        let mut place = std::mem::take(&mut self.queues.topic);
        place.clear();
        push_number(&mut place, partition.into());
        place.push(':');
        push_number(&mut place, offset);
        place.push(':');
        push_number(&mut place, attempt.into());
        let which = place.rsplit_once(':').map_or("", |(_, attempt)| attempt);
        let (name, filter) = group.named();
        let (topic, properties, payload) = parts_of(&packet);
        let mut section = std::mem::take(&mut self.queues.packet);
        section.clear();
        let own = [
            (MESSAGE_ID, &*place),
            (GROUP_ID, name),
            (ATTEMPT, which),
            (GROUP_FILTER, filter.unwrap_or_default()),
        ];
        let own = &own[..own.len() - usize::from(filter.is_none())];
        encode::section(properties, own, &mut section);
        self.queues.topic = place;
        let consumer = &self.queues.consumers[&number];
        let (session, qos, id) = (consumer.session, consumer.qos, consumer.id);
        let bytes_max = consumer.packet_bytes_max;
        let mut outgoing = Outgoing::of_parts(qos, (topic, &section, payload), now.mono_ms);
        let terms = Terms {
            qos,
            retain: false,
            ids: Ids::of(id),
            group: None,
            lease: None,
        };
        let version = self.connections[self.slot_of(session) as usize].version;
        let bytes = outgoing.bytes(version, &terms);
        if bytes > bytes_max && self.others_take(slot, number, bytes) {
            self.queues.packet = section;
            return self.set_aside(slot, (partition, offset), (packet, bytes), now);
        }
        self.begin_delivery(slot, number, (partition, offset), now);
        let consumer = self.queues.consumers.get_mut(&number);
        consumer.expect("it is one").held += 1;
        let sent = self.send_once(session, &terms, &mut outgoing, bytes);
        drop(outgoing);
        self.queues.packet = section;
        self.queues.change(slot, partition);
        let place = (partition, offset, attempt);
        match sent {
            Some(packet_id) => {
                if qos > QoS::AtMostOnce {
                    let consuming = self.sessions[session as usize].consuming.as_mut();
                    let handed = Handed {
                        consumer: number,
                        partition,
                        offset,
                        attempt,
                    };
                    consuming
                        .expect("it consumes")
                        .handed
                        .insert(packet_id, handed);
                }
            }
            None => {
                // As far as is known, nobody takes it.
                let _late = self.fail_delivery(slot, place, None, Some("packet too large"), now);
            }
        }
    }

    /// A message is larger than the consumer takes whose turn it is: others may.
    fn set_aside(
        &mut self,
        slot: u32,
        (partition, offset): (u32, i64),
        (packet, bytes): (Box<[u8]>, usize),
        now: Now,
    ) {
        let queues = &mut self.queues;
        let group = &mut queues.groups[slot as usize];
        let ledger = &mut group.parts[partition as usize].ledger;
        ledger.set_aside(offset, bytes, now);
        group.has_aside = true;
        if queues.has_room(slot, partition, false) {
            queues.keep(slot, partition, offset, packet);
        }
        queues.change(slot, partition);
    }

    /// A delivery is done with.
    ///
    /// # Errors
    /// It can no longer be settled.
    pub(super) fn end_delivery(
        &mut self,
        slot: u32,
        (partition, offset, attempt): Place,
    ) -> Result<(), Late> {
        let group = &mut self.queues.groups[slot as usize];
        let part = group.part(partition)?;
        let holder = part.ledger.holder(offset);
        part.ledger.ack(offset, attempt)?;
        group.counts.settled += 1;
        self.settled(slot, partition, holder);
        Ok(())
    }

    /// A delivery has failed: its message comes again, after `delay_ms` or the back-off.
    ///
    /// # Errors
    /// It can no longer be settled.
    pub(super) fn fail_delivery(
        &mut self,
        slot: u32,
        (partition, offset, attempt): Place,
        delay_ms: Option<u64>,
        reason: Option<&str>,
        now: Now,
    ) -> Result<(), Late> {
        let random = self.queues.random();
        let group = &mut self.queues.groups[slot as usize];
        let part = group.part(partition)?;
        let holder = part.ledger.holder(offset);
        let failed = part.ledger.nack(offset, attempt, delay_ms, now, random)?;
        group.counts.failed += 1;
        self.has_failed(slot, partition, offset, failed, reason);
        self.settled(slot, partition, holder);
        Ok(())
    }

    /// A message is not to come again.
    ///
    /// # Errors
    /// It can no longer be settled.
    pub(super) fn reject_delivery(
        &mut self,
        slot: u32,
        (partition, offset, attempt): Place,
        reason: Option<&str>,
    ) -> Result<(), Late> {
        let group = &mut self.queues.groups[slot as usize];
        let part = group.part(partition)?;
        let holder = part.ledger.holder(offset);
        let failed = part.ledger.reject(offset, attempt)?;
        self.has_failed(slot, partition, offset, failed, reason);
        self.settled(slot, partition, holder);
        Ok(())
    }

    /// A delivery takes longer: it has so long from now.
    ///
    /// # Errors
    /// It can no longer be settled.
    pub(super) fn extend_delivery(
        &mut self,
        slot: u32,
        (partition, offset, attempt): Place,
        delay_ms: Option<u64>,
        now: Now,
    ) -> Result<(), Late> {
        let group = &mut self.queues.groups[slot as usize];
        let policy = &self.queues.all[group.queue as usize].settings.policy;
        let more_ms = delay_ms.unwrap_or(policy.deadline_ms);
        let part = group.part(partition)?;
        let deadline_ms = now.mono_ms.saturating_add(more_ms);
        part.ledger.extend(offset, attempt, deadline_ms)?;
        self.queues.change(slot, partition);
        self.set_queue_timer(slot);
        Ok(())
    }

    /// One delivery less is open.
    fn settled(&mut self, slot: u32, partition: u32, holder: Option<u64>) {
        self.queues.change(slot, partition);
        self.queues.heat(slot, partition);
        if let Some(holder) = holder {
            self.queues.release(holder);
        }
    }

    /// The connection of a session that has room.
    fn slot_of(&self, session: u32) -> u32 {
        let connection = self.sessions[session as usize].connection;
        connection.expect("its client has room")
    }

    /// Sends what is not sent again, of so many bytes: its packet id; None where it is longer than
    /// the client takes.
    fn send_once(
        &mut self,
        session: u32,
        terms: &Terms,
        outgoing: &mut Outgoing<'_>,
        bytes: usize,
    ) -> Option<u16> {
        let slot = self.slot_of(session);
        let connection = &self.connections[slot as usize];
        if bytes > connection.packet_bytes_max {
            self.drops(session, Counter::DroppedTooLarge, outgoing, bytes);
            return None;
        }
        let packet_id = match terms.qos {
            QoS::AtMostOnce => 0,
            qos => self.sessions[session as usize].outbound.begin(qos, None),
        };
        self.send_now(session, slot, (terms, packet_id), outgoing, bytes);
        Some(packet_id)
    }
}
