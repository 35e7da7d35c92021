//! One publish on its way to many subscribers, in the parts that all of them get.
//!
//! The parts are slices of the packet that came in, so a relay encodes nothing: it copies topic,
//! properties and payload behind a new fixed header, and adds what one subscriber has of its own
//! ([`Form`]). What must wait becomes a [`Message`].

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::alias::Alias;
use super::outbuffer::Lump;
use crate::mqtt::packet::{Publish, QoS, Version};
use crate::mqtt::{encode, property};
use crate::session::{
    Claim, Delivery, Expiry, Ids, Memory, Message, Terms, OVERHEAD_BYTES, PLACE_BYTES,
    SHARED_BYTES_MIN,
};

/// A property section without properties.
const NO_PROPERTIES: &[u8] = &[0];

/// What one subscriber's packet has of its own.
#[derive(Clone, Copy, Debug)]
pub struct Form<'a> {
    /// Of its connection.
    pub version: Version,
    /// A re-delivery.
    pub dup: bool,
    /// 0 at `QoS` 0.
    pub packet_id: u16,
    /// How it says its topic.
    pub alias: Alias,
    /// What its subscriptions make of the publish.
    pub terms: &'a Terms,
}

/// A publish in parts.
#[derive(Debug)]
pub struct Outgoing<'a> {
    /// The packet itself, where it is what a subscriber of that version gets who has nothing of
    /// its own.
    whole: Option<(Version, &'a [u8])>,
    /// With its length.
    topic: &'a [u8],
    /// Of 5.0, with its length, as published.
    section: &'a [u8],
    expiry: Option<Expiry>,
    payload: &'a [u8],
    /// As published, like the RETAIN flag.
    pub qos: QoS,
    pub retain: bool,
    /// Hash of who published it, where a group asks.
    pub publisher: u32,
    /// The payload, once someone needed it.
    shared: Option<Bytes>,
    /// What it is a part of, where that is owned and large.
    owner: Option<Bytes>,
    /// The same on its way to clients, where it is large.
    lump: Option<Arc<Lump>>,
    /// The publish, once someone had to wait for it.
    message: Option<Arc<Message>>,
    /// It has a place in memory that it only leaves for another.
    is_placed: bool,
    arrived_ms: u64,
}

impl<'a> Outgoing<'a> {
    /// A publish at `qos`, of a topic with its length, a property section and a payload; the
    /// encoder has written the section.
    pub fn of_parts(
        qos: QoS,
        (topic, section, payload): (&'a [u8], &'a [u8], &'a [u8]),
        mono_ms: u64,
    ) -> Self {
        // In the encoder's order (`encode::publish`).
        let properties = &section[length_bytes(section)..];
        let has_payload_format = properties.first() == Some(&(property::PAYLOAD_FORMAT as u8));
        let behind = &properties[if has_payload_format { 2 } else { 0 }..];
        let seconds = match behind {
            [id, a, b, c, d, ..] if *id == property::MESSAGE_EXPIRY as u8 => {
                Some(u32::from_be_bytes([*a, *b, *c, *d]))
            }
            _ => None,
        };
        Self {
            whole: None,
            topic,
            section,
            expiry: seconds.map(|seconds| Expiry {
                seconds,
                at: expiry_at(section, has_payload_format),
            }),
            payload,
            qos,
            retain: false,
            publisher: 0,
            shared: None,
            owner: None,
            lump: None,
            message: None,
            is_placed: false,
            arrived_ms: mono_ms,
        }
    }

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
        let whole = packet[0] == 0x30 && packet.len() < SHARED_BYTES_MIN;
        let whole = whole.then_some((version, packet));
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
            whole,
            topic,
            section,
            expiry,
            payload: publish.payload,
            qos: publish.qos,
            retain: publish.retain,
            publisher: 0,
            shared: None,
            owner: None,
            lump: None,
            message: None,
            is_placed: false,
            arrived_ms: mono_ms,
        }
    }

    /// A message that has waited.
    pub fn of_message(message: &'a Arc<Message>, mono_ms: u64) -> Self {
        let (topic, section) = message.head.split_at(message.topic_bytes);
        Self {
            whole: None,
            topic,
            section,
            expiry: message.expiry_left(mono_ms),
            payload: &message.payload,
            qos: message.qos,
            retain: message.retain,
            publisher: message.publisher,
            shared: Some(message.payload.clone()),
            owner: None,
            lump: None,
            message: Some(Arc::clone(message)),
            is_placed: false,
            arrived_ms: message.arrived_ms,
        }
    }

    /// A message that has waited in a group or is retained, and goes to a session.
    pub fn placed(self) -> Self {
        Self {
            is_placed: true,
            ..self
        }
    }

    /// A publish that came in a packet of its own, which need not be copied.
    pub fn owned_by(self, owner: Option<Bytes>) -> Self {
        Self { owner, ..self }
    }

    /// A message whose payload is on its way to clients already.
    pub fn with_lump(self, lump: Option<Arc<Lump>>) -> Self {
        Self { lump, ..self }
    }

    /// Its payload on its way to clients.
    pub fn into_lump(self) -> Option<Arc<Lump>> {
        self.lump
    }

    /// Its topic, as bytes.
    pub fn topic(&self) -> &[u8] {
        &self.topic[2..]
    }

    /// Its topic.
    pub fn topic_text(&self) -> &str {
        std::str::from_utf8(self.topic()).expect("a topic was decoded")
    }

    /// Its payload.
    pub fn payload(&self) -> &[u8] {
        self.payload
    }

    /// Length of the packet for one subscriber.
    pub fn bytes(&self, version: Version, terms: &Terms) -> usize {
        if let Some(packet) = self.whole_for(version, terms) {
            return packet.len();
        }
        let length = self.remaining_length(version, terms, Alias::None);
        1 + variable_bytes(length) + length
    }

    /// The packet that came, where it can go out as it is.
    #[inline]
    fn whole_for(&self, version: Version, terms: &Terms) -> Option<&'a [u8]> {
        let (of, packet) = self.whole?;
        let plain = terms.qos == QoS::AtMostOnce && !terms.retain && terms.ids == Ids::None;
        (of == version && plain).then_some(packet)
    }

    fn remaining_length(&self, version: Version, terms: &Terms, alias: Alias) -> usize {
        let id = if terms.qos == QoS::AtMostOnce { 0 } else { 2 };
        let topic = match alias {
            Alias::StandsFor(_) => 2,
            _ => self.topic.len(),
        };
        let section = match version {
            Version::V5 => self.section_bytes(more_bytes(terms, alias)),
            Version::V311 => 0,
        };
        topic + id + section + self.payload.len()
    }

    /// Length of the property section with so many bytes of properties more.
    fn section_bytes(&self, more: usize) -> usize {
        if more == 0 {
            return self.section.len();
        }
        let bytes = self.section.len() - length_bytes(self.section) + more;
        variable_bytes(bytes) + bytes
    }

    /// Appends the packet for one subscriber, without the payload where [`Self::large_payload`]
    /// has it.
    pub fn write(&self, form: &Form<'_>, out: &mut Vec<u8>) {
        let Form {
            version,
            terms,
            alias,
            ..
        } = *form;
        if let Some(packet) = self.whole_for(version, terms) {
            if alias == Alias::None {
                return out.extend_from_slice(packet);
            }
        }
        let length = self.remaining_length(version, terms, alias);
        out.reserve(5 + length);
        let flags = u8::from(form.dup) << 3 | (terms.qos as u8) << 1 | u8::from(terms.retain);
        out.push(0x30 | flags);
        write_variable(length, out);
        match alias {
            Alias::StandsFor(_) => out.extend_from_slice(&[0, 0]),
            _ => out.extend_from_slice(self.topic),
        }
        if terms.qos != QoS::AtMostOnce {
            out.extend_from_slice(&form.packet_id.to_be_bytes());
        }
        if version == Version::V5 {
            self.write_section(terms, alias, out);
        }
        if self.payload.len() < SHARED_BYTES_MIN {
            out.extend_from_slice(self.payload);
        }
    }

    /// The property section as published, with what has passed of the expiry, and behind it what
    /// the subscriber has of its own.
    fn write_section(&self, terms: &Terms, alias: Alias, out: &mut Vec<u8>) {
        let more = more_bytes(terms, alias);
        let section_at = if more == 0 {
            let at = out.len();
            out.extend_from_slice(self.section);
            at
        } else {
            let (length, properties) = self.section.split_at(length_bytes(self.section));
            write_variable(properties.len() + more, out);
            let at = out.len() - length.len();
            out.extend_from_slice(properties);
            if let Alias::Sets(alias) | Alias::StandsFor(alias) = alias {
                out.push(property::TOPIC_ALIAS as u8);
                out.extend_from_slice(&alias.to_be_bytes());
            }
            for id in terms.ids.as_slice() {
                out.push(property::SUBSCRIPTION_ID as u8);
                write_variable(*id as usize, out);
            }
            at
        };
        if let Some(expiry) = self.expiry {
            let at = section_at + expiry.at;
            out[at..at + 4].copy_from_slice(&expiry.seconds.to_be_bytes());
        }
    }

    /// The payload, shared, where it is too large to copy for each subscriber; counted in `memory`.
    pub fn large_payload(&mut self, memory: &Memory) -> Option<Arc<Lump>> {
        (self.payload.len() >= SHARED_BYTES_MIN).then(|| {
            let shared = shared(&mut self.shared, self.owner.as_ref(), self.payload);
            let new = || Lump::new(shared, memory);
            Arc::clone(self.lump.get_or_insert_with(new))
        })
    }

    /// The publish, owned.
    pub fn message(&mut self) -> Arc<Message> {
        let message = self.message.get_or_insert_with(|| {
            let payload = if self.payload.len() < SHARED_BYTES_MIN {
                Bytes::copy_from_slice(self.payload)
            } else {
                shared(&mut self.shared, self.owner.as_ref(), self.payload)
            };
            Arc::new(Message {
                head: [self.topic, self.section].concat().into(),
                topic_bytes: self.topic.len(),
                payload,
                qos: self.qos,
                retain: self.retain,
                publisher: self.publisher,
                expiry: self.expiry,
                arrived_ms: self.arrived_ms,
                held: OnceLock::new(),
                stored: OnceLock::new(),
            })
        });
        Arc::clone(message)
    }

    /// When it came.
    pub fn arrived_ms(&self) -> u64 {
        self.arrived_ms
    }

    /// What the memory of the node must have for it to wait for one client more.
    pub fn waiting_bytes(&self) -> usize {
        if self.is_placed {
            return 0;
        }
        let message = self.message.as_ref();
        if message.is_some_and(|message| message.held.get().is_some()) {
            return PLACE_BYTES;
        }
        self.topic.len() + self.section.len() + self.payload.len() + OVERHEAD_BYTES + PLACE_BYTES
    }

    /// The publish for one session, owned.
    pub fn delivery(
        &mut self,
        terms: &Terms,
        claim: Option<Arc<Claim>>,
        memory: &Memory,
    ) -> Delivery {
        Delivery::new(self.message(), terms.clone(), claim, memory)
    }
}

/// Topic of a message.
pub fn topic_of(message: &Message) -> &str {
    std::str::from_utf8(&message.head[2..message.topic_bytes]).expect("a topic was decoded")
}

/// The payload, to be kept: as a part of its packet, where most of that is payload.
fn shared(shared: &mut Option<Bytes>, owner: Option<&Bytes>, payload: &[u8]) -> Bytes {
    let new = || {
        let owner = owner.filter(|owner| owner.len() / 2 <= payload.len());
        let part = owner.and_then(|owner| part_of(owner, payload));
        part.unwrap_or_else(|| Bytes::copy_from_slice(payload))
    };
    shared.get_or_insert_with(new).clone()
}

/// `part` as one of `owner`; None where it lies elsewhere.
fn part_of(owner: &Bytes, part: &[u8]) -> Option<Bytes> {
    let start = (part.as_ptr() as usize).checked_sub(owner.as_ptr() as usize)?;
    let end = start + part.len();
    (end <= owner.len()).then(|| owner.slice(start..end))
}

/// Where the encoder puts the interval: behind the section's length, behind the two bytes of a
/// payload format, behind its own identifier.
pub fn expiry_at(section: &[u8], has_payload_format: bool) -> usize {
    let at = length_bytes(section) + if has_payload_format { 2 } else { 0 };
    assert_eq!(
        section[at], 0x02,
        "the encoder puts the expiry interval here"
    );
    at + 1
}

/// How many bytes say how long a property section is.
pub fn length_bytes(section: &[u8]) -> usize {
    section.iter().take_while(|byte| **byte >= 0x80).count() + 1
}

/// Bytes of the properties that one subscriber has of its own.
fn more_bytes(terms: &Terms, alias: Alias) -> usize {
    let ids = terms.ids.as_slice().iter();
    let ids: usize = ids.map(|id| 1 + variable_bytes(*id as usize)).sum();
    ids + if alias == Alias::None { 0 } else { 3 }
}

fn write_variable(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

const fn variable_bytes(length: usize) -> usize {
    match length {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        _ => 4,
    }
}
