//! PUBACK, PUBREC, PUBREL and PUBCOMP from a client: the steps of an exchange after its PUBLISH
//! (MQTT 5.0 3.4 to 3.7, 4.3).

use super::packets::Flow;
use super::{Counter, Switchboard};
use crate::mqtt::packet::{Ack, Packet};
use crate::mqtt::reason;
use crate::session::{Outbound, Receipt};
use crate::Now;

impl Switchboard {
    /// The end of a message at `QoS` 1, taken or refused.
    pub(super) fn puback(&mut self, slot: u32, ack: &Ack<'_>, now: Now) -> Flow {
        let receipt = self.outbound(slot).acknowledge(ack.packet_id);
        if receipt == Receipt::Over {
            let session = self.session_of(slot);
            self.handed_back(session, ack.packet_id, ack.reason_code, now);
        }
        self.went_on(slot, receipt, now)
    }

    /// The client has a message at `QoS` 2, or refuses it.
    pub(super) fn pubrec(&mut self, slot: u32, ack: &Ack<'_>, now: Now) -> Flow {
        let is_refused = ack.reason_code >= reason::UNSPECIFIED_ERROR;
        let receipt = self.outbound(slot).receive(ack.packet_id, is_refused);
        let is_unknown = receipt == Receipt::Unknown && !is_refused;
        if receipt == Receipt::Release {
            // What is released is delivered: a crash must not send it again.
            self.after_cursor(slot);
        }
        if is_unknown || receipt == Receipt::Release {
            self.answer(slot, &Packet::Pubrel(answer_to(ack)));
        }
        self.went_on(slot, receipt, now)
    }

    /// The end of a message at `QoS` 2.
    pub(super) fn pubcomp(&mut self, slot: u32, ack: &Ack<'_>, now: Now) -> Flow {
        let receipt = self.outbound(slot).complete(ack.packet_id);
        self.went_on(slot, receipt, now)
    }

    /// The client will not send a message at `QoS` 2 again, and may use its packet id for another.
    pub(super) fn pubrel(&mut self, slot: u32, ack: &Ack<'_>) {
        let session = self.session_of(slot);
        let inbound = &mut self.sessions[session as usize].inbound;
        let mut answer = answer_to(ack);
        if !inbound.release(ack.packet_id) {
            // It must not hear that this message is over, which may yet fail or was refused with
            // PUBREC, as clients have it that read no reason code there (3.7.2.1).
            answer.reason_code = reason::PACKET_ID_NOT_FOUND;
        }
        self.recount_session(session);
        self.after_cursor(slot);
        self.answer(slot, &Packet::Pubcomp(answer));
    }

    /// What the client of a session that lasts is told from now on waits until the log has how far
    /// it is.
    pub(super) fn after_cursor(&mut self, slot: u32) {
        let session = self.session_of(slot);
        let session = &mut self.sessions[session as usize];
        if session.durable.is_some() {
            self.persistence.cursor_due(session);
            self.persistence.gate(&mut self.connections[slot as usize]);
        }
    }

    /// An acknowledgement that fits another step than that of its message is a protocol error
    /// (4.13.1); one that comes when its message is over may only be late.
    fn went_on(&mut self, slot: u32, receipt: Receipt, now: Now) -> Flow {
        match receipt {
            Receipt::Over => self.pump(slot, now),
            Receipt::Release => self.recount_session(self.session_of(slot)),
            Receipt::Unknown => self.counters.count(Counter::UnknownAcks),
            Receipt::Misplaced => return self.refuse(slot, reason::PROTOCOL_ERROR, now),
        }
        Flow::Next
    }

    fn outbound(&mut self, slot: u32) -> &mut Outbound {
        let session = self.session_of(slot);
        &mut self.sessions[session as usize].outbound
    }
}

/// PUBREL or PUBCOMP with success.
fn answer_to<'a>(ack: &Ack<'_>) -> Ack<'a> {
    Ack {
        packet_id: ack.packet_id,
        ..Ack::default()
    }
}
