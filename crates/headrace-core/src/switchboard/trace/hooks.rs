//! Where a switchboard tells its traces what happens. Called only while somebody looks.

use super::tell::line_of;
use super::{TraceLine, Tracer, Way};
use crate::mqtt::packet::{Packet, Publish};
use crate::session::Terms;
use crate::switchboard::connection::Park;
use crate::switchboard::outgoing::Outgoing;
use crate::switchboard::{Counter, Switchboard, DOOR};

impl Tracer {
    /// A packet to a client that stands beside its connection.
    pub fn packet_out(&mut self, client_id: &str, packet: &Packet<'_>) {
        let mut line = line_of(Way::Out, packet, 0);
        client_id.clone_into(&mut line.client_id);
        self.tell(line);
    }

    /// A publish to a client.
    pub fn publish_out(
        &mut self,
        client_id: &str,
        terms: &Terms,
        packet_id: u16,
        dup: bool,
        outgoing: &Outgoing<'_>,
        bytes: usize,
    ) {
        let shown = outgoing.payload().len().min(self.payload_bytes_max());
        self.tell(TraceLine {
            client_id: client_id.to_owned(),
            packet_id,
            topic: outgoing.topic_text().to_owned(),
            qos: terms.qos as u8,
            retain: terms.retain,
            dup,
            bytes,
            payload: outgoing.payload()[..shown].to_vec(),
            ..TraceLine::new(Way::Out, "PUBLISH")
        });
    }
}

impl Switchboard {
    /// A packet came. One that had to wait comes again, and is told once.
    pub(in crate::switchboard) fn trace_in(
        &mut self,
        slot: u32,
        packet: &Packet<'_>,
        bytes: usize,
    ) {
        let id = self.connections[slot as usize].id;
        if let Packet::Connect(connect) = packet {
            self.tracer.names.insert(id, connect.client_id.into());
        }
        if self.tracer.rested.remove(&id) {
            return;
        }
        let mut line = line_of(Way::In, packet, self.tracer.payload_bytes_max());
        if let (Packet::Publish(publish), true) = (packet, line.topic.is_empty()) {
            let aliases = &self.connections[slot as usize].aliases;
            let alias = publish.properties.topic_alias;
            let known = alias.and_then(|alias| aliases.known(alias));
            known.unwrap_or("").clone_into(&mut line.topic);
        }
        line.bytes = bytes;
        self.trace(slot, line);
    }

    /// The input of a connection rests at the packet that just came.
    pub(in crate::switchboard) fn trace_rest(&mut self, slot: u32, park: Park) {
        self.tracer
            .rested
            .insert(self.connections[slot as usize].id);
        let mut line = TraceLine::new(Way::Rest, "");
        park.name().clone_into(&mut line.text);
        self.trace(slot, line);
    }

    /// A packet goes out.
    pub(in crate::switchboard) fn trace_out(
        &mut self,
        slot: u32,
        packet: &Packet<'_>,
        bytes: usize,
    ) {
        let mut line = line_of(Way::Out, packet, 0);
        line.bytes = bytes;
        self.trace(slot, line);
    }

    /// A connection ends.
    pub(in crate::switchboard) fn trace_close(
        &mut self,
        slot: u32,
        reason: &str,
        code: Option<u8>,
    ) {
        let line = TraceLine {
            reason_code: code,
            text: reason.to_owned(),
            ..TraceLine::new(Way::Close, "")
        };
        self.trace(slot, line);
        let id = self.connections[slot as usize].id;
        self.tracer.names.remove(&id);
        self.tracer.rested.remove(&id);
    }

    /// Another door, or a will, publishes.
    pub(in crate::switchboard) fn trace_own(
        &mut self,
        origin: u32,
        publish: &Publish<'_>,
        bytes: usize,
    ) {
        let packet = Packet::Publish(publish.clone());
        let mut line = line_of(Way::In, &packet, self.tracer.payload_bytes_max());
        line.bytes = bytes;
        line.packet_id = 0;
        if origin == DOOR {
            line.text.push_str("another door");
        } else {
            line.text.push_str("will");
            line.client_id = self.sessions[origin as usize].client_id.to_string();
        }
        self.tracer.tell(line);
    }

    /// A message that a session does not get, or that nobody gets where `origin` sent it.
    pub(in crate::switchboard) fn trace_drop(
        &mut self,
        session: u32,
        why: Counter,
        topic: &str,
        bytes: usize,
    ) {
        let Self {
            tracer, sessions, ..
        } = self;
        let client_id = match session {
            DOOR => "",
            session => &*sessions[session as usize].client_id,
        };
        tracer.dropped(client_id, why, topic, bytes);
    }

    fn trace(&mut self, slot: u32, mut line: TraceLine) {
        let connection = &self.connections[slot as usize];
        line.client_id = if let Some(session) = connection.session {
            self.sessions[session as usize].client_id.to_string()
        } else {
            let name = self.tracer.names.get(&connection.id);
            name.map_or(String::new(), ToString::to_string)
        };
        self.tracer.tell(line);
    }
}
