//! One publish on its way to many subscribers, in the parts that all of them get.
//!
//! The parts are slices of the packet that came in, so a relay encodes nothing: it copies topic,
//! properties and payload behind a new fixed header. What must wait becomes a [`Message`].

use std::sync::Arc;

use crate::mqtt::encode;
use crate::mqtt::packet::{Publish, QoS, Version};
use crate::session::{Expiry, Message, SHARED_BYTES_MIN};

/// A property section without properties.
const NO_PROPERTIES: &[u8] = &[0];

/// A publish in parts.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// With its length.
    topic: &'a [u8],
    /// Of 5.0, with its length, as published.
    section: &'a [u8],
    expiry: Option<Expiry>,
    payload: &'a [u8],
    /// The payload where it is large, once someone needed it.
    shared: Option<Arc<[u8]>>,
    /// The publish, once someone had to wait for it.
    message: Option<Arc<Message>>,
    arrived_ms: u64,
}

impl<'a> Outgoing<'a> {
    /// Takes `packet`, which decodes to `publish`, apart.
    pub fn of(
        version: Version,
        packet: &'a [u8],
        publish: &Publish<'a>,
        mono_ms: u64,
        scratch: &'a mut Vec<u8>,
    ) -> Self {
        let topic_bytes = 2 + publish.topic.len();
        let (packet, expiry) = match publish.properties.message_expiry {
            None => (packet, None),
            // Written anew, the interval stands in a known place.
            Some(seconds) => {
                scratch.clear();
                encode::publish(Version::V5, publish, scratch);
                (&scratch[..], Some(seconds))
            }
        };
        let header_bytes = 1 + packet[1..].iter().take_while(|byte| **byte >= 0x80).count() + 1;
        let (topic, rest) = packet[header_bytes..].split_at(topic_bytes);
        let id_bytes = if publish.qos == QoS::AtMostOnce { 0 } else { 2 };
        let section = match version {
            Version::V5 => &rest[id_bytes..rest.len() - publish.payload.len()],
            Version::V311 => NO_PROPERTIES,
        };
        let expiry = expiry.map(|seconds| Expiry {
            seconds,
            at: expiry_at(section, publish.properties.payload_format.is_some()),
        });
        Self {
            topic,
            section,
            expiry,
            payload: publish.payload,
            shared: None,
            message: None,
            arrived_ms: mono_ms,
        }
    }

    /// A message that has waited.
    pub fn of_message(message: &'a Arc<Message>, mono_ms: u64) -> Self {
        let (topic, section) = message.head.split_at(message.topic_bytes);
        Self {
            topic,
            section,
            expiry: message.expiry_left(mono_ms),
            payload: &message.payload,
            shared: Some(Arc::clone(&message.payload)),
            message: Some(Arc::clone(message)),
            arrived_ms: message.arrived_ms,
        }
    }

    /// Length of the packet for one subscriber.
    pub fn bytes(&self, version: Version, qos: QoS) -> usize {
        let length = self.remaining_length(version, qos);
        1 + variable_bytes(length) + length
    }

    fn remaining_length(&self, version: Version, qos: QoS) -> usize {
        let id = if qos == QoS::AtMostOnce { 0 } else { 2 };
        let section = match version {
            Version::V5 => self.section.len(),
            Version::V311 => 0,
        };
        self.topic.len() + id + section + self.payload.len()
    }

    /// Appends the packet for one subscriber, without the payload where [`Self::large_payload`]
    /// has it.
    pub fn write(&self, version: Version, qos: QoS, packet_id: u16, out: &mut Vec<u8>) {
        let mut length = self.remaining_length(version, qos);
        out.reserve(5 + length);
        out.push(0x30 | (qos as u8) << 1);
        while length >= 0x80 {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend_from_slice(self.topic);
        if qos != QoS::AtMostOnce {
            out.extend_from_slice(&packet_id.to_be_bytes());
        }
        if version == Version::V5 {
            let section_at = out.len();
            out.extend_from_slice(self.section);
            if let Some(expiry) = self.expiry {
                let at = section_at + expiry.at;
                out[at..at + 4].copy_from_slice(&expiry.seconds.to_be_bytes());
            }
        }
        if self.payload.len() < SHARED_BYTES_MIN {
            out.extend_from_slice(self.payload);
        }
    }

    /// The payload, shared, where it is too large to copy for each subscriber.
    pub fn large_payload(&mut self) -> Option<Arc<[u8]>> {
        (self.payload.len() >= SHARED_BYTES_MIN).then(|| {
            let shared = self.shared.get_or_insert_with(|| self.payload.into());
            Arc::clone(shared)
        })
    }

    /// The publish, owned.
    pub fn message(&mut self) -> Arc<Message> {
        let message = self.message.get_or_insert_with(|| {
            let shared = self.shared.get_or_insert_with(|| self.payload.into());
            Arc::new(Message {
                head: [self.topic, self.section].concat().into(),
                topic_bytes: self.topic.len(),
                payload: Arc::clone(shared),
                expiry: self.expiry,
                arrived_ms: self.arrived_ms,
            })
        });
        Arc::clone(message)
    }
}

/// Topic of a message.
pub fn topic_of(message: &Message) -> &str {
    std::str::from_utf8(&message.head[2..message.topic_bytes]).expect("a topic was decoded")
}

/// Where the encoder puts the interval: behind the section's length, behind the two bytes of a
/// payload format, behind its own identifier.
fn expiry_at(section: &[u8], has_payload_format: bool) -> usize {
    let length_bytes = section.iter().take_while(|byte| **byte >= 0x80).count() + 1;
    let at = length_bytes + if has_payload_format { 2 } else { 0 };
    assert_eq!(
        section[at], 0x02,
        "the encoder puts the expiry interval here"
    );
    at + 1
}

const fn variable_bytes(length: usize) -> usize {
    match length {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        _ => 4,
    }
}
