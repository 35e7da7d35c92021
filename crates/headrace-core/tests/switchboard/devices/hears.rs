//! What the devices of [`World`] do with what they are sent, and what of it must not be.

use headrace_core::mqtt::decode;
use headrace_core::mqtt::packet::*;
use headrace_core::switchboard::Effects;

use super::{World, QOS_0, QOS_1, QOS_2};

impl World {
    pub fn perform(&mut self, effects: Effects) {
        for (connection, bytes) in effects.writes {
            if let Some(index) = self.device_of(connection) {
                self.devices[index].bytes.extend(bytes.into_bytes());
                self.hear(index);
            }
        }
        for (connection, reason) in effects.closes {
            let expected = ["taken_over", "not_stored", "disk_full", "client_disconnect"];
            assert!(expected.contains(&reason), "{reason}");
            if let Some(index) = self.device_of(connection) {
                self.devices[index].is_gone = true;
                self.devices[index].is_connected = false;
            }
            self.board.closed(connection, self.now).unwrap();
        }
    }

    /// None for one that was taken over.
    fn device_of(&self, connection: u64) -> Option<usize> {
        let mut devices = self.devices.iter();
        devices.position(|device| !device.is_gone && device.connection == connection)
    }

    fn hear(&mut self, index: usize) {
        let bytes = std::mem::take(&mut self.devices[index].bytes);
        let version = self.devices[index].version;
        let mut at = 0;
        while let Some(frame) = decode::frame(&bytes[at..], usize::MAX).unwrap() {
            at += frame.bytes();
            self.packet(index, decode::packet(Some(version), frame).unwrap());
        }
        self.devices[index].bytes = bytes[at..].to_vec();
    }

    fn packet(&mut self, index: usize, packet: Packet<'_>) {
        let device = &mut self.devices[index];
        let with = |packet_id| Ack {
            packet_id,
            ..Ack::default()
        };
        match packet {
            Packet::Connack(connack) => {
                if connack.reason_code != 0 {
                    let is_full = [0x88, 0x97].contains(&connack.reason_code);
                    assert!(is_full && self.has_failed, "{:#x}", connack.reason_code);
                    return;
                }
                assert!(connack.session_present || device.next_id == 0);
                device.is_connected = true;
                self.resend(index);
            }
            Packet::Puback(ack) => self.over(index, QOS_1, &ack),
            Packet::Pubrec(ack) if ack.reason_code >= 0x80 => self.over(index, QOS_2, &ack),
            Packet::Pubrec(ack) => {
                let sent = device.sent.iter_mut();
                let sent = sent.filter(|sent| sent.qos == QOS_2);
                for sent in sent.filter(|sent| sent.packet_id == ack.packet_id) {
                    sent.is_released = true;
                }
                device
                    .answers
                    .push_back(Packet::Pubrel(with(ack.packet_id)));
            }
            Packet::Pubcomp(ack) => self.over(index, QOS_2, &ack),
            Packet::Pubrel(ack) => {
                assert_eq!(ack.reason_code, 0, "it knows what it sent");
                device.unreleased.remove(&ack.packet_id);
                device
                    .answers
                    .push_back(Packet::Pubcomp(with(ack.packet_id)));
            }
            Packet::Publish(publish) => self.take(index, &publish),
            _ => {}
        }
    }

    /// What a device that comes back must send again (4.4).
    fn resend(&mut self, index: usize) {
        let sent = std::mem::take(&mut self.devices[index].sent);
        for sent in &sent {
            if sent.is_released {
                let ack = Ack {
                    packet_id: sent.packet_id,
                    ..Ack::default()
                };
                self.send(index, &Packet::Pubrel(ack));
            } else {
                self.send_publish(index, sent, true);
            }
        }
        self.devices[index].sent = sent;
    }

    fn over(&mut self, index: usize, qos: QoS, ack: &Ack<'_>) {
        let device = &mut self.devices[index];
        let at = device
            .sent
            .iter()
            .position(|sent| sent.packet_id == ack.packet_id);
        let Some(at) = at else {
            return; // A PUBREL was answered twice.
        };
        let sent = device.sent.remove(at);
        assert_eq!(sent.qos, qos);
        if ack.reason_code >= 0x80 && ack.reason_code != 0x92 {
            self.refused.insert(sent.payload);
        }
    }

    fn take(&mut self, index: usize, publish: &Publish<'_>) {
        let device = &mut self.devices[index];
        let payload = String::from_utf8(publish.payload.to_vec()).unwrap();
        let ack = Ack {
            packet_id: publish.packet_id,
            ..Ack::default()
        };
        if publish.qos > QOS_0 {
            let is_new = device.in_flight.insert(publish.packet_id);
            assert!(is_new, "an id in flight is unique");
            assert!(device.in_flight.len() <= device.window, "its window");
        }
        match publish.qos {
            QOS_0 => device.taken.push(payload),
            QOS_1 => {
                device.taken.push(payload);
                device.answers.push_back(Packet::Puback(ack));
            }
            QOS_2 => {
                let is_new = device.unreleased.insert(publish.packet_id);
                assert!(is_new || publish.dup, "an id is used again once released");
                if is_new {
                    device.taken.push(payload);
                }
                device.answers.push_back(Packet::Pubrec(ack));
            }
        }
    }
}
