//! What the clients of [`World`] hear, held against what was promised to them.

use std::collections::BTreeMap;

use headrace_core::mqtt::decode;
use headrace_core::mqtt::packet::*;
use headrace_core::record::{Batches, Records};
use headrace_core::switchboard::Effects;

use super::{World, V5};

/// Gauges that are 0 when all that was under way has ended.
const NOTHING_LEFT: [&str; 4] = [
    "mqtt_undurable_bytes",
    "mqtt_tickets",
    "mqtt_outbound_bytes",
    "mqtt_connections_full",
];

impl World {
    pub fn collect(&mut self) {
        if let Some(effects) = self.board.collect(self.now) {
            self.perform(effects);
            self.board.validate();
        }
        self.board.published();
    }

    fn perform(&mut self, effects: Effects) {
        for append in effects.appends {
            let batch = Batches::new(&append.batch).next().unwrap().unwrap();
            let payloads: Vec<String> = Records::new(&batch.header, batch.body())
                .map(|record| {
                    let value = record.unwrap().value.unwrap();
                    String::from_utf8(value.to_vec()).unwrap()
                })
                .collect();
            for payload in &payloads {
                *self.waiting.entry(payload.clone()).or_default() += 1;
                self.stored.insert(payload.clone());
            }
            self.tickets.insert(append.ticket, payloads);
        }
        for (id, written) in effects.writes {
            let bytes = written.into_bytes();
            self.transcript.extend_from_slice(&bytes);
            let client = self.clients.get_mut(&id).unwrap();
            assert!(bytes.len() <= client.credit, "within the credit");
            client.bytes.extend(bytes);
            self.hear(id);
        }
        self.asked
            .extend(effects.decisions.iter().map(|asked| asked.request));
        for (id, reason) in effects.closes {
            let client = self.clients.get_mut(&id).unwrap();
            client.is_closed = true;
            let expected = [
                "refused",
                "taken_over",
                "not_stored",
                "connect_timeout",
                "client_disconnect",
                "memory_full",
            ];
            assert!(!client.is_sane || expected.contains(&reason), "{reason}");
        }
    }

    /// Looks at the whole packets that a client was sent.
    fn hear(&mut self, id: u64) {
        let bytes = std::mem::take(&mut self.clients.get_mut(&id).unwrap().bytes);
        let version = self.clients[&id].version;
        let mut at = 0;
        let mut late = Vec::new();
        while let Some(frame) = decode::frame(&bytes[at..], usize::MAX).unwrap() {
            at += frame.bytes();
            match decode::packet(version, frame).unwrap() {
                Packet::Puback(ack) => self.hear_answer(id, &ack),
                Packet::Pubrec(ack) => self.hear_pubrec(id, &ack),
                Packet::Pubcomp(ack) => {
                    let client = self.clients.get_mut(&id).unwrap();
                    client.releasing.remove(&ack.packet_id);
                }
                Packet::Pubrel(ack) => {
                    let client = self.clients.get_mut(&id).unwrap();
                    client.received.remove(&ack.packet_id);
                    let ack = Ack {
                        packet_id: ack.packet_id,
                        ..Ack::default()
                    };
                    late.push(Packet::Pubcomp(ack));
                }
                Packet::Publish(publish) => self.hear_publish(id, &publish),
                Packet::Connack(connack) => {
                    self.clients.get_mut(&id).unwrap().is_connected = connack.reason_code == 0;
                }
                _ => {}
            }
        }
        self.clients.get_mut(&id).unwrap().bytes = bytes[at..].to_vec();
        for answer in late {
            self.send(id, &answer);
        }
    }

    fn hear_pubrec(&mut self, id: u64, ack: &Ack<'_>) {
        self.hear_answer(id, ack);
        let client = self.clients.get_mut(&id).unwrap();
        if client.is_sane && ack.reason_code < 0x80 {
            client.releasing.insert(ack.packet_id);
            let ack = Ack {
                packet_id: ack.packet_id,
                ..Ack::default()
            };
            self.send(id, &Packet::Pubrel(ack));
        }
    }

    fn hear_answer(&mut self, id: u64, ack: &Ack<'_>) {
        let client = self.clients.get_mut(&id).unwrap();
        if !client.is_sane {
            return;
        }
        let (packet_id, payload) = client.unanswered.pop_front().expect("asked for");
        assert_eq!(packet_id, ack.packet_id, "in the order of the publishes");
        assert_eq!(
            self.waiting.get(&payload).copied().unwrap_or(0),
            0,
            "after its tickets"
        );
        let failed = self.failed.contains(&payload);
        assert_eq!(
            ack.reason_code == 0x80,
            failed,
            "{payload}: what became of it"
        );
        assert!(
            client.version == Some(V5) || !failed,
            "3.1.1 has no such PUBACK"
        );
    }

    fn hear_publish(&mut self, id: u64, publish: &Publish<'_>) {
        let payload = std::str::from_utf8(publish.payload).unwrap();
        let mut words = payload.split(' ');
        let number: u64 = words.next().unwrap().parse().unwrap();
        let publisher = words.next().unwrap();
        let client = self.clients.get_mut(&id).unwrap();
        if publish.qos > QoS::AtMostOnce {
            let before = client.in_flight.insert(publish.packet_id, publish.qos);
            let is_unique = before.is_none() && !client.received.contains(&publish.packet_id);
            assert!(is_unique, "an id in flight is unique");
            if publisher != "will" {
                assert_eq!(
                    self.waiting.get(payload).copied().unwrap_or(0),
                    0,
                    "durable first"
                );
                assert!(!self.failed.contains(payload), "not without being stored");
            }
            let is_bounded = client.version == Some(V5);
            assert!(
                !is_bounded || client.in_flight.len() + client.received.len() <= 3,
                "its Receive Maximum"
            );
        }
        if publisher != "will" {
            let key = format!("{publisher} {} {:?}", publish.topic, publish.qos);
            let last = client.last.insert(key, number);
            assert!(
                last.is_none_or(|last| last < number),
                "in the order of the publisher"
            );
        }
    }

    /// Everything ends well, and then everyone who is left is served.
    pub fn settle(&mut self) {
        // Whoever sent junk may be in the middle of a long packet for ever.
        let insane = self.clients.iter().filter(|(_, client)| !client.is_sane);
        for id in insane.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.board.closed(id, self.now).unwrap();
            self.clients.remove(&id);
        }
        // A crowd is served a receiver or two in a turn, so what has piled up takes its time.
        for round in 0..1000 {
            if round >= 100 && self.is_quiet() {
                break;
            }
            self.decide();
            let ids: Vec<u64> = self.clients.keys().copied().collect();
            for id in ids {
                self.clients.get_mut(&id).unwrap().credit = usize::MAX;
                self.board.writable(id, usize::MAX).unwrap();
                self.acknowledge_all(id);
            }
            for ticket in self.tickets.keys().copied().collect::<Vec<_>>() {
                self.end(ticket, true);
            }
            self.now.mono_ms += 20;
            self.board.tick(self.now);
            (0..20).for_each(|_| self.collect());
        }
        let statistics: BTreeMap<_, _> = self.board.statistics().into_iter().collect();
        for gauge in NOTHING_LEFT {
            assert_eq!(statistics[gauge], 0, "{gauge}");
        }
        for (id, client) in &self.clients {
            if client.is_connected && !client.is_closed {
                assert!(client.unanswered.is_empty(), "client {id} is answered");
            }
        }
    }

    /// Nothing is under way.
    fn is_quiet(&self) -> bool {
        let statistics: BTreeMap<_, _> = self.board.statistics().into_iter().collect();
        let mut clients = self.clients.values();
        NOTHING_LEFT.iter().all(|gauge| statistics[gauge] == 0)
            && clients
                .all(|each| !each.is_connected || each.is_closed || each.unanswered.is_empty())
    }
}
