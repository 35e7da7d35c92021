//! The little of MQTT 3.1.1 and 5.0 that a load needs, written apart from the broker's codec: a
//! generator that shared its faults could not find them.
use std::ops::Range;

/// The largest packet that is read: MQTT's own bound is 256 MiB, and no answer to this load is
/// larger than its payload and topic.
const PACKET_MAX: usize = 64 << 20;

/// What a CONNECT says of silence, seconds: long, so that most runs send no PINGREQ, and not 0, which
/// some servers refuse.
pub(crate) const KEEP_ALIVE_S: u16 = 600;

/// A user name and a password.
pub(crate) type Credentials = (String, Vec<u8>);

/// A packet from the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    Connack {
        reason: u8,
        /// The server has a session of this client.
        is_present: bool,
        limits: Limits,
    },
    /// The worst of its reason codes.
    Suback(u8),
    Publish {
        topic: Range<usize>,
        /// Empty in 3.1.1.
        properties: Range<usize>,
        payload: Range<usize>,
        qos: u8,
        id: u16,
    },
    /// `QoS` 1 and 2: packet id and reason code.
    Puback(u16, u8),
    Pubrec(u16, u8),
    Pubrel(u16),
    Pubcomp(u16),
    Pingresp,
    /// The reason code.
    Disconnect(u8),
}

/// What a CONNACK of 5.0 says of its own, and what holds where it does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Publishes above `QoS` 0 that may be under way (3.2.2.3.3).
    pub(crate) receive_maximum: u16,
    /// Seconds in which something must be sent (3.2.2.3.14).
    pub(crate) keep_alive_s: u16,
}

/// What the server sent is no MQTT, or none that this load asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The packet at the start of the input and the bytes that it takes; `None` until it is whole.
pub(crate) fn scan(input: &[u8], version: u8) -> Result<Option<(Packet, usize)>, Malformed> {
    let Some(frame) = frame(input)?.filter(|frame| frame.end <= input.len()) else {
        return Ok(None);
    };
    let mut reader = Reader {
        input: &input[..frame.end],
        at: frame.body,
    };
    let packet = reader.body(input[0], version).ok_or(Malformed)?;
    Ok(Some((packet, frame.end)))
}

/// Where in the input the packet at its start has its body and its end, which need not be there;
/// `None` until its length is.
pub(crate) fn frame(input: &[u8]) -> Result<Option<Frame>, Malformed> {
    let mut reader = Reader { input, at: 1 };
    let Some(length) = reader.variable()? else {
        return Ok(None);
    };
    if length > PACKET_MAX {
        return Err(Malformed);
    }
    let body = reader.at;
    Ok(Some(Frame {
        body,
        end: body + length,
    }))
}

/// Places in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) body: usize,
    pub(crate) end: usize,
}

pub(crate) struct Reader<'a> {
    pub(crate) input: &'a [u8],
    pub(crate) at: usize,
}

impl Reader<'_> {
    fn variable(&mut self) -> Result<Option<usize>, Malformed> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let Some(&byte) = self.input.get(self.at) else {
                return Ok(None);
            };
            self.at += 1;
            value |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(Some(value));
            }
        }
        Err(Malformed)
    }

    pub(crate) fn byte(&mut self) -> Option<u8> {
        let byte = *self.input.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    pub(crate) fn short(&mut self) -> Option<u16> {
        Some(u16::from(self.byte()?) << 8 | u16::from(self.byte()?))
    }

    pub(crate) fn skip(&mut self, bytes: usize) -> Option<Range<usize>> {
        let range = self.at..self.at.checked_add(bytes)?;
        self.at = range.end;
        (range.end <= self.input.len()).then_some(range)
    }

    pub(crate) fn properties(&mut self, version: u8) -> Option<Range<usize>> {
        let length = match version {
            5 => self.variable().ok()??,
            _ => 0,
        };
        self.skip(length)
    }

    /// Of a CONNACK's properties those that bind a client.
    fn limits(&mut self, version: u8) -> Option<Limits> {
        let mut limits = Limits {
            receive_maximum: u16::MAX,
            keep_alive_s: KEEP_ALIVE_S,
        };
        if version == 5 {
            let length = self.variable().ok()??;
            let end = self.at.checked_add(length)?;
            while self.at < end {
                match self.byte()? {
                    0x21 => limits.receive_maximum = self.short()?,
                    // 0 is none, and what asks for more often harms nobody.
                    0x13 => limits.keep_alive_s = self.short()?.max(1),
                    0x22 => self.pass(2)?,
                    0x11 | 0x27 => self.pass(4)?,
                    0x24 | 0x25 | 0x28 | 0x29 | 0x2a => self.pass(1)?,
                    0x12 | 0x15 | 0x16 | 0x1a | 0x1c | 0x1f => self.string()?,
                    0x26 => {
                        self.string()?;
                        self.string()?;
                    }
                    _ => return None,
                }
            }
        }
        (limits.receive_maximum > 0).then_some(limits)
    }

    fn string(&mut self) -> Option<()> {
        let length = self.short()?;
        self.pass(length.into())
    }

    fn pass(&mut self, bytes: usize) -> Option<()> {
        self.skip(bytes)?;
        Some(())
    }

    fn body(&mut self, first: u8, version: u8) -> Option<Packet> {
        Some(match first >> 4 {
            2 => {
                let is_present = self.byte()? & 1 == 1;
                let reason = self.byte()?;
                let limits = self.limits(version)?;
                Packet::Connack {
                    reason,
                    is_present,
                    limits,
                }
            }
            3 => {
                let length = self.short()?;
                let topic = self.skip(length.into())?;
                let qos = first >> 1 & 3;
                let id = if qos > 0 { self.short()? } else { 0 };
                let properties = self.properties(version)?;
                let payload = self.at..self.input.len();
                Packet::Publish {
                    topic,
                    properties,
                    payload,
                    qos,
                    id,
                }
            }
            // 5.0 leaves the reason out where it is 0 (3.4.2.1).
            4 => Packet::Puback(self.short()?, self.byte().unwrap_or(0)),
            5 => Packet::Pubrec(self.short()?, self.byte().unwrap_or(0)),
            6 => Packet::Pubrel(self.short()?),
            7 => Packet::Pubcomp(self.short()?),
            9 => {
                self.short()?;
                self.properties(version)?;
                Packet::Suback(*self.input.get(self.at..)?.iter().max()?)
            }
            13 => Packet::Pingresp,
            14 => Packet::Disconnect(self.byte().unwrap_or(0)),
            _ => return None,
        })
    }
}

pub(crate) fn write_variable(mut value: usize, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend((bytes.len() as u16).to_be_bytes());
    out.extend(bytes);
}

fn write_packet(first: u8, body: &[u8], out: &mut Vec<u8>) {
    out.push(first);
    write_variable(body.len(), out);
    out.extend(body);
}

/// What a CONNECT asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    /// Begins anew; in 3.1.1 it then ends with its connection.
    pub(crate) is_clean: bool,
    /// How long it outlives its connection in 5.0 (3.1.2.11.2).
    pub(crate) expiry_s: u32,
}

/// CONNECT with [`KEEP_ALIVE_S`].
pub(crate) fn connect(
    version: u8,
    client: &str,
    credentials: Option<&Credentials>,
    session: Session,
) -> Vec<u8> {
    let Session { is_clean, expiry_s } = session;
    let flags = if is_clean { 0x02 } else { 0 } | if credentials.is_some() { 0xc0 } else { 0 };
    let mut body = b"\x00\x04MQTT".to_vec();
    body.extend([version, flags]);
    body.extend(KEEP_ALIVE_S.to_be_bytes());
    if version == 5 && expiry_s > 0 {
        body.extend([5, 0x11]);
        body.extend(expiry_s.to_be_bytes());
    } else if version == 5 {
        body.push(0);
    }
    write_bytes(client.as_bytes(), &mut body);
    if let Some((user, password)) = credentials {
        write_bytes(user.as_bytes(), &mut body);
        write_bytes(password, &mut body);
    }
    let mut packet = Vec::new();
    write_packet(0x10, &body, &mut packet);
    packet
}

/// SUBSCRIBE with packet id 1 to one filter.
pub(crate) fn subscribe(version: u8, filter: &str, qos: u8) -> Vec<u8> {
    let mut body = vec![0, 1];
    if version == 5 {
        body.push(0);
    }
    write_bytes(filter.as_bytes(), &mut body);
    body.push(qos);
    let mut packet = Vec::new();
    write_packet(0x82, &body, &mut packet);
    packet
}

/// The user property that settles a delivery of a queue.
const MESSAGE_ID: &str = "message-id";

pub(crate) fn write_user_property(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.push(0x26);
    write_bytes(name.as_bytes(), out);
    write_bytes(value, out);
}

/// The last `message-id` among the properties of a PUBLISH, as publishers' own stand before it.
pub(crate) fn message_id(properties: &[u8]) -> Option<&[u8]> {
    let length = properties.len();
    let mut reader = Reader {
        input: properties,
        at: 0,
    };
    let mut found = None;
    while reader.at < length {
        match reader.byte()? {
            0x01 => reader.pass(1)?,
            0x23 => reader.pass(2)?,
            0x02 => reader.pass(4)?,
            0x03 | 0x08 | 0x09 => reader.string()?,
            0x0b => drop(reader.variable().ok()??),
            0x26 => {
                let name = reader.short()?;
                let name = reader.skip(name.into())?;
                let value = reader.short()?;
                let value = reader.skip(value.into())?;
                if properties[name] == *MESSAGE_ID.as_bytes() {
                    found = Some(value);
                }
            }
            _ => return None,
        }
    }
    found.map(|value| &properties[value])
}

/// A PUBLISH at `QoS` 1 that settles deliveries.
pub(crate) fn settle<'a>(
    topic: &str,
    id: u16,
    message_ids: impl Iterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) {
    let mut properties = Vec::new();
    for message_id in message_ids {
        write_user_property(MESSAGE_ID, message_id, &mut properties);
    }
    let mut body = Vec::with_capacity(topic.len() + properties.len() + 8);
    write_bytes(topic.as_bytes(), &mut body);
    body.extend(id.to_be_bytes());
    write_variable(properties.len(), &mut body);
    body.extend(properties);
    write_packet(0x32, &body, out);
}

/// PUBACK 4, PUBREC 5, PUBREL 6 or PUBCOMP 7 with success.
pub(crate) fn acknowledge(kind: u8, id: u16, out: &mut Vec<u8>) {
    let flags = if kind == 6 { 0x02 } else { 0 };
    let [high, low] = id.to_be_bytes();
    out.extend([kind << 4 | flags, 2, high, low]);
}

/// So that a server does not take silence for the end.
pub(crate) const PINGREQ: &[u8] = &[0xc0, 0];

/// DISCONNECT with success.
pub(crate) const DISCONNECT: &[u8] = &[0xe0, 0];

/// DISCONNECT with success that ends a session which would outlive it (5.0 3.14.2.2.2).
pub(crate) const END_OF_SESSION: &[u8] = &[0xe0, 7, 0, 5, 0x11, 0, 0, 0, 0];

#[cfg(test)]
mod tests {
    use super::{
        connect, message_id, scan, settle, subscribe, Limits, Malformed, Packet, Session,
        KEEP_ALIVE_S,
    };

    #[test]
    fn answers_of_both_versions() {
        let connack = |reason, is_present, receive_maximum| Packet::Connack {
            reason,
            is_present,
            limits: Limits {
                receive_maximum,
                keep_alive_s: KEEP_ALIVE_S,
            },
        };
        for (bytes, version, packet) in [
            (&b"\x20\x02\x00\x05"[..], 4, connack(5, false, u16::MAX)),
            (b"\x20\x03\x01\x00\x00", 5, connack(0, true, u16::MAX)),
            (
                b"\x20\x0c\x00\x00\x09\x12\x00\x01x\x21\x00\x14\x24\x01",
                5,
                connack(0, false, 20),
            ),
            (b"\x90\x05\x00\x01\x01\x80", 4, Packet::Suback(0x80)),
            (b"\x90\x04\x00\x01\x00\x02", 5, Packet::Suback(2)),
            (b"\x40\x02\x00\x07", 5, Packet::Puback(7, 0)),
            (b"\x40\x04\x00\x07\x97\x00", 5, Packet::Puback(7, 0x97)),
            (b"\x50\x03\x00\x07\x10", 5, Packet::Pubrec(7, 0x10)),
            (b"\x62\x02\x00\x07", 4, Packet::Pubrel(7)),
            (b"\x70\x02\x00\x07", 4, Packet::Pubcomp(7)),
            (b"\xe0\x00", 5, Packet::Disconnect(0)),
            (b"\xe0\x01\x8b", 5, Packet::Disconnect(0x8b)),
        ] {
            let whole = [bytes, &[0; 9]].concat();
            let length = 2 + usize::from(bytes[1]);
            assert_eq!(
                scan(&whole, version),
                Ok(Some((packet, length))),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn a_server_may_ask_for_a_shorter_keep_alive() {
        let Ok(Some((Packet::Connack { limits, .. }, 8))) =
            scan(b"\x20\x06\x00\x00\x03\x13\x00\x05", 5)
        else {
            panic!("no CONNACK");
        };
        assert_eq!(limits.keep_alive_s, 5);
    }

    #[test]
    fn message_ids_are_user_properties() {
        let mut bytes = Vec::new();
        settle("a", 3, [&b"0:1:1"[..], b"0:2:1"].into_iter(), &mut bytes);
        let (packet, length) = scan(&bytes, 5).unwrap().unwrap();
        assert_eq!(length, bytes.len());
        let Packet::Publish {
            properties,
            payload,
            qos: 1,
            id: 3,
            ..
        } = packet
        else {
            panic!("{packet:?}");
        };
        assert_eq!(payload, length..length);
        assert_eq!(message_id(&bytes[properties]), Some(&b"0:2:1"[..]));
        assert_eq!(message_id(b""), None);
        assert_eq!(message_id(b"\x01\x00\x26\x00"), None);
    }

    #[test]
    fn what_is_no_answer_is_malformed() {
        for bytes in [
            &b"\x00\x00"[..],
            b"\x10\x00",
            b"\x20\xff\xff\xff\xff\x01",
            b"\x30\x01\x00",
            b"\x30\x03\x00\x09a",
            b"\x40\x01\x00",
            b"\x90\x02\x00\x01",
            b"\x20\xff\xff\xff\x7f",
        ] {
            assert_eq!(scan(bytes, 4), Err(Malformed), "{bytes:?}");
        }
    }

    #[test]
    fn requests_have_the_bytes_of_the_standard() {
        let user = ("u".to_owned(), b"pw".to_vec());
        let session = |is_clean, expiry_s| Session { is_clean, expiry_s };
        assert_eq!(
            connect(5, "c", Some(&user), session(true, 0)),
            b"\x10\x15\x00\x04MQTT\x05\xc2\x02\x58\x00\x00\x01c\x00\x01u\x00\x02pw"
        );
        assert_eq!(
            connect(4, "c", None, session(false, 0)),
            b"\x10\x0d\x00\x04MQTT\x04\x00\x02\x58\x00\x01c"
        );
        assert_eq!(
            connect(5, "c", None, session(true, 60)),
            b"\x10\x13\x00\x04MQTT\x05\x02\x02\x58\x05\x11\x00\x00\x00\x3c\x00\x01c"
        );
        assert_eq!(subscribe(4, "a/+", 2), b"\x82\x08\x00\x01\x00\x03a/+\x02");
        assert_eq!(subscribe(5, "a", 0), b"\x82\x07\x00\x01\x00\x00\x01a\x00");
    }
}
