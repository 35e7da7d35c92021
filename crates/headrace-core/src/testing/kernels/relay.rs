//! Publishes through a switchboard alone: bytes in, bytes out, reads as a busy socket gives them.

use super::{Kernel, NOW, READ_BYTES};
use crate::hash::Key;
use crate::mqtt::packet::{
    Connect, Packet, Publish, PublishProperties, QoS, Subscribe, SubscriptionRequest, Version,
};
use crate::mqtt::{decode, encode};
use crate::switchboard::{Limits, Switchboard};

/// As wide as every sequence of a run.
const SEQUENCE: &str = "000000000000";

/// One client that publishes, on connection 0, and those that are sent it, from 1 on.
pub struct Relay {
    /// Everything goes through it.
    pub switchboard: Switchboard,
    /// The same publish again and again, a read of them.
    pub publish: Vec<u8>,
    /// So many.
    pub per_read: usize,
    /// Connections from here on acknowledge nothing.
    pub deaf_from: u64,
    /// Digits of a sequence in the first publish, where it has one, and the last one used.
    sequence: Option<(usize, u64)>,
    /// Bytes that a read brings to the publisher and to the others at least.
    least: [usize; 2],
}

impl Relay {
    /// Publishes this one.
    pub fn new(publish: &Publish<'_>) -> Self {
        let mut packet = Vec::new();
        encode::publish(Version::V5, publish, &mut packet);
        let per_read = (READ_BYTES / packet.len()).max(1);
        let limits = Limits {
            receive_max: 65_535,
            ..Limits::default()
        };
        let sequence = packet
            .windows(SEQUENCE.len())
            .position(|window| window == SEQUENCE.as_bytes());
        Self {
            switchboard: Switchboard::new(Key(1, 2), limits),
            publish: packet.repeat(per_read),
            per_read,
            deaf_from: u64::MAX,
            sequence: sequence.map(|at| (at, 0)),
            least: [0, 0],
        }
    }

    /// Publishes so many bytes to one topic.
    pub fn of_bytes(bytes: usize, qos: QoS) -> Self {
        let payload = vec![b'x'; bytes];
        Self::new(&Publish {
            qos,
            topic: "fleet/node-1/gpu-1/power",
            packet_id: u16::from(qos != QoS::AtMostOnce),
            payload: &payload,
            ..Publish::default()
        })
    }

    /// Publishes at `QoS` 1 into a stream, perhaps with a source, and to so many subscribers.
    ///
    /// # Panics
    /// Never.
    pub fn stored(bytes: usize, with_source: bool, subscribers: u32) -> Self {
        let payload = vec![b'x'; bytes];
        let user = vec![("source", "node-1"), ("epoch", "1"), ("sequence", SEQUENCE)];
        let mut relay = Self::new(&Publish {
            qos: QoS::AtLeastOnce,
            topic: "dcgm/node-1/GPU-5f2a/power",
            packet_id: 1,
            properties: PublishProperties {
                user: if with_source { user } else { Vec::new() },
                ..PublishProperties::default()
            },
            payload: &payload,
            ..Publish::default()
        });
        let switchboard = &mut relay.switchboard;
        let bound = switchboard.bind(1, 12, &["dcgm/#"], "level:3");
        bound.expect("the filter and the key are well formed");
        relay.subscribe(subscribers, "dcgm/#", QoS::AtLeastOnce);
        relay.least[0] = 4 * relay.per_read; // a PUBACK each
        relay
    }

    /// Reads so many publishes at a time, one at least; before there are subscribers.
    pub fn read_at_most(&mut self, publishes: usize) {
        let packet_bytes = self.publish.len() / self.per_read;
        self.per_read = publishes.clamp(1, self.per_read);
        self.publish.truncate(self.per_read * packet_bytes);
    }

    /// Connects the publisher and so many subscribers.
    pub fn subscribe(&mut self, subscribers: u32, filter: &str, qos: QoS) {
        self.connect(0, None);
        for connection in 1..=u64::from(subscribers) {
            self.connect(connection, Some((filter, qos)));
        }
        self.least[1] = self.publish.len() * subscribers as usize;
    }

    /// Connects a client, and subscribes.
    ///
    /// # Panics
    /// The connection is open.
    pub fn connect(&mut self, connection: u64, filter: Option<(&str, QoS)>) {
        let client_id = connection.to_string();
        let mut out = Vec::new();
        let connect = Connect {
            client_id: &client_id,
            ..Connect::new(Version::V5)
        };
        encode::packet(Version::V5, &Packet::Connect(Box::new(connect)), &mut out);
        let switchboard = &mut self.switchboard;
        switchboard.opened(connection, NOW).expect("it is new");
        switchboard
            .writable(connection, usize::MAX)
            .expect("it is open");
        switchboard
            .receive(connection, &out, NOW)
            .expect("it is open");
        let effects = switchboard.collect(NOW).expect("a decision is due");
        switchboard
            .decided(effects.decisions[0].request, 0, NOW)
            .expect("it waits for that");
        if let Some((filter, qos)) = filter {
            out.clear();
            let request = SubscriptionRequest {
                filter,
                qos,
                no_local: false,
                retain_as_published: false,
                retain_handling: 0,
            };
            let subscribe = Subscribe {
                packet_id: 1,
                filters: vec![request],
                ..Subscribe::default()
            };
            encode::packet(Version::V5, &Packet::Subscribe(subscribe), &mut out);
            switchboard
                .receive(connection, &out, NOW)
                .expect("it is open");
        }
        switchboard.collect(NOW);
    }

    /// One read, and all that follows from it: what is to be stored is, and what arrives is
    /// acknowledged. Bytes to the publisher, and to all others.
    ///
    /// # Panics
    /// The switchboard takes something for no event of its own.
    pub fn turn(&mut self) -> [usize; 2] {
        self.renumber();
        let switchboard = &mut self.switchboard;
        switchboard
            .receive(0, &self.publish, NOW)
            .expect("it is open");
        let (mut acks, mut sent) = (Vec::new(), [0, 0]);
        // As a shell does: until nothing is due, for one turn hands out a share only.
        while let Some(effects) = switchboard.collect(NOW) {
            for append in &effects.appends {
                switchboard
                    .durable(append.ticket, true, NOW)
                    .expect("it is on its way");
            }
            for (connection, written) in effects.writes {
                sent[usize::from(connection > 0)] += written.len();
                if !(1..self.deaf_from).contains(&connection) {
                    continue;
                }
                let bytes = written.into_bytes();
                if bytes[0] == 0x32 {
                    acks.clear();
                    acknowledge(&bytes, &mut acks);
                    switchboard
                        .receive(connection, &acks, NOW)
                        .expect("it is open");
                }
            }
        }
        sent
    }

    /// Gives every publish of the next read a sequence of its own.
    fn renumber(&mut self) {
        let Some((at, last)) = &mut self.sequence else {
            return;
        };
        let packet_bytes = self.publish.len() / self.per_read;
        for packet in self.publish.chunks_exact_mut(packet_bytes) {
            *last += 1;
            let mut rest = *last;
            for digit in packet[*at..*at + SEQUENCE.len()].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
    }
}

impl Kernel for Relay {
    fn run(&mut self, operations: u64) -> u64 {
        let mut done = 0;
        while done < operations {
            let sent = self.turn();
            assert!(
                sent[0] >= self.least[0] && sent[1] >= self.least[1],
                "all of it arrives: {sent:?} of {:?}",
                self.least
            );
            done += self.per_read as u64;
        }
        done
    }
}

/// PUBACKs for all publishes in `bytes`, as a subscriber answers what it was sent.
///
/// # Panics
/// They are no packets.
pub fn acknowledge(bytes: &[u8], out: &mut Vec<u8>) {
    let mut at = 0;
    while let Some(frame) = decode::frame(&bytes[at..], usize::MAX).expect("it is a packet") {
        let packet = decode::packet(Some(Version::V5), frame).expect("it is a packet");
        if let Packet::Publish(publish) = packet {
            encode::puback(publish.packet_id, out);
        }
        at += frame.bytes();
    }
}
