//! The records of sessions, as bytes and back.
//!
//! Each record is the whole of one small thing, under its key; the last one of a key holds, and one
//! without a value says that the thing is gone. So records may be written again at any time. One of
//! what a group of a queue has settled adds to those before it, until one tells the whole again.
//! Numbers are LEB128; texts and bytes have their length before them.
//!
//! ```text
//! s client            number, expiry interval, when it was left, whose it is, will
//! c client            number, places, packet ids that came at QoS 2, exchanges towards the client
//! f client NUL filter number of the session, options, identifier
//! p client NUL filter number of the session, stream, offset of each partition
//! g text              number, places                      (a shared subscription)
//! q stream partition chunk group   what a group of a queue has settled ([`crate::queue::Chunk::take_in`])
//! m number            a message, and who is owed it: (number, place, options, identifiers)…
//! ```

pub use super::codec::Copy;
use super::codec::{qos_of, Reader, Writer, RETAIN, VERSION};
use crate::mqtt::packet::QoS;
use crate::session::{Consumption, Expiry, Places, Will};
use crate::switchboard::queues::ChunkPlace;

/// The number of a session of which the log has the will alone, for it ends with its connection.
pub const WILL_ALONE: u64 = 0;

const NO_LOCAL: u8 = 1 << 3;
const REPLAYS: u8 = 1 << 4;

/// What a record is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    Head(&'a str),
    Cursor(&'a str),
    Filter(&'a str, &'a str),
    Feed(&'a str, &'a str),
    Group(&'a str),
    Message(u64),
    Chunk(ChunkPlace),
}

impl<'a> Key<'a> {
    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Head(client) => [b"s", client.as_bytes()].concat(),
            Self::Cursor(client) => [b"c", client.as_bytes()].concat(),
            Self::Filter(client, filter) => {
                [b"f", client.as_bytes(), &[0], filter.as_bytes()].concat()
            }
            Self::Feed(client, filter) => {
                [b"p", client.as_bytes(), &[0], filter.as_bytes()].concat()
            }
            Self::Group(text) => [b"g", text.as_bytes()].concat(),
            Self::Message(number) => [&b"m"[..], &number.to_be_bytes()].concat(),
            Self::Chunk(place) => [
                &b"q"[..],
                &place.stream.to_be_bytes(),
                &place.partition.to_be_bytes(),
                &place.chunk.to_be_bytes(),
                place.group.as_bytes(),
            ]
            .concat(),
        }
    }

    /// Reads a key; None where it is none.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        if *kind == b'm' {
            return Some(Self::Message(u64::from_be_bytes(rest.try_into().ok()?)));
        }
        if *kind == b'q' {
            let (stream, rest) = rest.split_first_chunk()?;
            let (partition, rest) = rest.split_first_chunk()?;
            let (chunk, rest) = rest.split_first_chunk()?;
            return Some(Self::Chunk(ChunkPlace {
                stream: u64::from_be_bytes(*stream),
                partition: u32::from_be_bytes(*partition),
                chunk: i64::from_be_bytes(*chunk),
                group: std::str::from_utf8(rest).ok()?.into(),
            }));
        }
        let text = std::str::from_utf8(rest).ok()?;
        match kind {
            b's' => Some(Self::Head(text)),
            b'c' => Some(Self::Cursor(text)),
            b'g' => Some(Self::Group(text)),
            b'f' => text.split_once('\0').map(|(a, b)| Self::Filter(a, b)),
            b'p' => text.split_once('\0').map(|(a, b)| Self::Feed(a, b)),
            _ => None,
        }
    }
}

/// What a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub number: u64,
    pub expiry_s: u32,
    /// When its client went, milliseconds since 1970; None where it is there.
    pub left_ms: Option<u64>,
    /// The user whose it is, and whether a certificate alone says so.
    pub user: Option<(Box<str>, bool)>,
    pub will: Option<Will>,
}

impl Head {
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.number(self.number);
        out.number(self.expiry_s.into());
        out.number(self.left_ms.map_or(0, |left_ms| left_ms + 1));
        let (name, is_certified) = self
            .user
            .as_ref()
            .map_or(("", false), |(name, is_certified)| (name, *is_certified));
        let kind = u8::from(self.user.is_some()) + u8::from(is_certified);
        out.0.push(kind);
        out.bytes(name.as_bytes());
        if let Some(will) = &self.will {
            out.number(will.delay_s.into());
            out.bytes(&will.packet);
        }
        out.0
    }

    pub fn read(value: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(value)?;
        let head = Self {
            number: reader.number()?,
            expiry_s: reader.number_32()?,
            left_ms: reader.number()?.checked_sub(1),
            user: reader.user()?,
            will: if reader.is_over() {
                None
            } else {
                let delay_s = reader.number_32()?;
                let packet = reader.bytes()?.into();
                Some(Will { packet, delay_s })
            },
        };
        reader.over(head)
    }
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Of the session.
    pub number: u64,
    pub qos: QoS,
    pub no_local: bool,
    pub retain_as_published: bool,
    /// It has yet to be sent retained messages.
    pub replays: bool,
    pub id: u32,
    /// How it consumes a queue.
    pub consumption: Option<Consumption>,
}

impl Filter {
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.number(self.number);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        out.0.push(
            self.qos as u8
                | flag(self.retain_as_published, RETAIN)
                | flag(self.no_local, NO_LOCAL)
                | flag(self.replays, REPLAYS),
        );
        out.number(self.id.into());
        if let Some(consumption) = &self.consumption {
            out.number(consumption.prefetch.into());
            out.0.push(u8::from(consumption.by_puback));
            out.bytes(consumption.group.as_deref().unwrap_or("").as_bytes());
        }
        out.0
    }

    pub fn read(value: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(value)?;
        let number = reader.number()?;
        let options = reader.byte()?;
        let filter = Self {
            number,
            qos: qos_of(options)?,
            no_local: options & NO_LOCAL != 0,
            retain_as_published: options & RETAIN != 0,
            replays: options & REPLAYS != 0,
            id: reader.number_32()?,
            consumption: if reader.is_over() {
                None
            } else {
                Some(Consumption {
                    prefetch: reader.number_32()?,
                    by_puback: reader.byte()? != 0,
                    group: {
                        let group = std::str::from_utf8(reader.bytes()?).ok()?;
                        (!group.is_empty()).then(|| group.into())
                    },
                })
            },
        };
        reader.over(filter)
    }
}

/// How far a session is in a stream that it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// Of the session.
    pub number: u64,
    /// The stream's id, which no other stream has after a restart either.
    pub stream: u64,
    /// By partition, the first offset that it may not have.
    pub positions: Vec<i64>,
}

impl Feed {
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.number(self.number);
        out.number(self.stream);
        out.number(self.positions.len() as u64);
        for position in &self.positions {
            out.number(*position as u64);
        }
        out.0
    }

    pub fn read(value: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(value)?;
        let (number, stream, count) = (reader.number()?, reader.number()?, reader.number()?);
        let positions = (0..count).map(|_| i64::try_from(reader.number()?).ok());
        let feed = Self {
            number,
            stream,
            positions: positions.collect::<Option<_>>()?,
        };
        reader.over(feed)
    }
}

/// A message at `QoS` 2 on its way to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Of the message.
    pub number: u64,
    pub copy: Copy,
    /// Whose claim it is, and its place.
    pub claim: Option<(u64, u64)>,
}

/// How far a session is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    pub number: u64,
    pub places: Places,
    /// Packet ids at `QoS` 2 that the client has not released.
    pub unreleased: Vec<u16>,
    /// By packet id; None where PUBREC has come.
    pub exchanges: Vec<(u16, Option<Sent>)>,
}

impl Cursor {
    pub fn write(&self) -> Vec<u8> {
        let mut out = Writer::new();
        out.number(self.number);
        out.places(&self.places);
        out.number(self.unreleased.len() as u64);
        for id in &self.unreleased {
            out.number((*id).into());
        }
        for (id, sent) in &self.exchanges {
            out.number((*id).into());
            let Some(sent) = sent else {
                out.number(0);
                continue;
            };
            out.number(sent.number);
            out.copy(&sent.copy);
            let (owner, place) = sent.claim.unwrap_or_default();
            out.number(owner);
            out.number(place);
        }
        out.0
    }

    pub fn read(value: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(value)?;
        let number = reader.number()?;
        let places = reader.places()?;
        let count = reader.number()?;
        let unreleased = (0..count).map(|_| reader.id());
        let unreleased = unreleased.collect::<Option<_>>()?;
        let mut exchanges = Vec::new();
        while !reader.is_over() {
            let id = reader.id()?;
            let message = reader.number()?;
            let sent = if message == 0 {
                None
            } else {
                let copy = reader.copy()?;
                let claim = (reader.number()?, reader.number()?);
                Some(Sent {
                    number: message,
                    copy,
                    claim: (claim.0 > 0).then_some(claim),
                })
            };
            exchanges.push((id, sent));
        }
        Some(Self {
            number,
            places,
            unreleased,
            exchanges,
        })
    }
}

/// How far a shared subscription is.
pub fn write_group(number: u64, places: &Places) -> Vec<u8> {
    let mut out = Writer::new();
    out.number(number);
    out.places(places);
    out.0
}

/// Reads what [`write_group`] wrote.
pub fn read_group(value: &[u8]) -> Option<(u64, Places)> {
    let mut reader = Reader::new(value)?;
    let group = (reader.number()?, reader.places()?);
    reader.over(group)
}

/// Adds who is owed a message. A group's copy is not known yet.
pub fn write_claim(owner: u64, place: u64, copy: &Copy, out: &mut Vec<u8>) {
    let mut writer = Writer(std::mem::take(out));
    writer.number(owner);
    writer.number(place);
    writer.copy(copy);
    *out = writer.0;
}

/// Who is owed a message: number, place, copy.
pub fn read_claims(claims: &[u8]) -> Option<Vec<(u64, u64, Copy)>> {
    let mut reader = Reader(claims);
    let mut found = Vec::new();
    while !reader.is_over() {
        found.push((reader.number()?, reader.number()?, reader.copy()?));
    }
    Some(found)
}

/// A message that waits for somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    pub qos: QoS,
    pub retain: bool,
    pub publisher: u32,
    /// When it came, milliseconds since 1970.
    pub arrived_ms: u64,
    pub expiry: Option<Expiry>,
    /// Topic, then properties.
    pub head: &'a [u8],
    pub topic_bytes: usize,
    pub payload: &'a [u8],
    pub claims: &'a [u8],
}

impl<'a> Message<'a> {
    pub fn write(&self) -> Vec<u8> {
        let bytes = 64 + self.head.len() + self.payload.len() + self.claims.len();
        let mut out = Writer(Vec::with_capacity(bytes));
        out.0.push(VERSION);
        out.0
            .push(self.qos as u8 | if self.retain { RETAIN } else { 0 });
        out.number(self.publisher.into());
        out.number(self.arrived_ms);
        let (seconds, at) = self.expiry.map_or((0, 0), |expiry| {
            (u64::from(expiry.seconds) + 1, expiry.at as u64)
        });
        out.number(seconds);
        out.number(at);
        out.number(self.topic_bytes as u64);
        out.bytes(self.head);
        out.bytes(self.payload);
        out.0.extend_from_slice(self.claims);
        out.0
    }

    pub fn read(value: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(value)?;
        let options = reader.byte()?;
        let publisher = reader.number_32()?;
        let arrived_ms = reader.number()?;
        let seconds = reader.number()?.checked_sub(1);
        let at = reader.number()? as usize;
        let topic_bytes = reader.number()? as usize;
        let head = reader.bytes()?;
        let topic = head.get(2..topic_bytes)?;
        std::str::from_utf8(topic).ok()?;
        let expiry = match seconds {
            None => None,
            Some(seconds) => {
                head[topic_bytes..].get(at..)?.first_chunk::<4>()?;
                let seconds = u32::try_from(seconds).ok()?;
                Some(Expiry { seconds, at })
            }
        };
        Some(Self {
            qos: qos_of(options)?,
            retain: options & RETAIN != 0,
            publisher,
            arrived_ms,
            expiry,
            head,
            topic_bytes,
            payload: reader.bytes()?,
            claims: reader.0,
        })
    }
}

#[cfg(test)]
mod tests;
