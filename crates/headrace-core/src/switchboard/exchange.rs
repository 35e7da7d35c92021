//! PUBACK, PUBREC, PUBREL and PUBCOMP from a client: the steps of an exchange after its PUBLISH
//! (MQTT 5.0 3.4 to 3.7, 4.3).

use super::{Counter, Switchboard};
use crate::mqtt::packet::{Ack, Packet};
use crate::mqtt::reason;
use crate::session::{Outbound, Receipt};
use crate::Now;

impl Switchboard {
    /// The end of a message at `QoS` 1, taken or refused.
    pub(super) fn puback(&mut self, slot: u32, ack: &Ack<'_>, now: Now) {
        if self.outbound(slot).acknowledge(ack.packet_id) {
            self.pump(slot, now);
        } else {
            self.counters.count(Counter::UnknownAcks);
        }
    }

    /// The client has a message at `QoS` 2, or refuses it.
    pub(super) fn pubrec(&mut self, slot: u32, ack: &Ack<'_>, now: Now) {
        let is_refused = ack.reason_code >= reason::UNSPECIFIED_ERROR;
        let reason_code = match self.outbound(slot).receive(ack.packet_id, is_refused) {
            Receipt::Over => return self.pump(slot, now),
            Receipt::Unknown if is_refused => {
                return self.counters.count(Counter::UnknownAcks);
            }
            Receipt::Release => reason::SUCCESS,
            Receipt::Unknown => reason::PACKET_ID_NOT_FOUND,
        };
        self.answer(slot, &Packet::Pubrel(with(ack, reason_code)));
    }

    /// The end of a message at `QoS` 2.
    pub(super) fn pubcomp(&mut self, slot: u32, ack: &Ack<'_>, now: Now) {
        if self.outbound(slot).complete(ack.packet_id) {
            self.pump(slot, now);
        } else {
            self.counters.count(Counter::UnknownAcks);
        }
    }

    /// The client will not send a message at `QoS` 2 again, and may use its packet id for another.
    pub(super) fn pubrel(&mut self, slot: u32, ack: &Ack<'_>) {
        let session = self.session_of(slot);
        let inbound = &mut self.sessions[session as usize].inbound;
        let reason_code = if inbound.release(ack.packet_id) {
            reason::SUCCESS
        } else {
            reason::PACKET_ID_NOT_FOUND
        };
        self.answer(slot, &Packet::Pubcomp(with(ack, reason_code)));
    }

    fn outbound(&mut self, slot: u32) -> &mut Outbound {
        let session = self.session_of(slot);
        &mut self.sessions[session as usize].outbound
    }
}

fn with<'a>(ack: &Ack<'_>, reason_code: u8) -> Ack<'a> {
    Ack {
        packet_id: ack.packet_id,
        reason_code,
        ..Ack::default()
    }
}
