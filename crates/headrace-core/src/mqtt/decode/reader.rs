//! A cursor over the fields of one packet (1.5), and over its properties (2.2.2).

use super::{malformed, protocol, DecodeError, Decoded};
use crate::mqtt::property;
use crate::topic;

/// What is left of a packet or of its properties. Reading past the end is an error, never a panic.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    #[inline]
    pub const fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    #[inline]
    pub const fn len(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Everything that is left.
    #[inline]
    pub const fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Nothing may be left.
    #[inline]
    pub fn end(self) -> Decoded<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(malformed("2.1.4: bytes after the last field"))
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk::<N>().ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(*array)
    }

    #[inline]
    pub fn bytes(&mut self, length: usize) -> Decoded<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(bytes)
    }

    #[inline]
    pub fn byte(&mut self) -> Decoded<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// Two byte integer (1.5.2).
    #[inline]
    pub fn short(&mut self) -> Decoded<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Four byte integer (1.5.3).
    #[inline]
    pub fn long(&mut self) -> Decoded<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Variable byte integer (1.5.5), at most four bytes and in its shortest form.
    pub fn variable(&mut self) -> Decoded<u32> {
        let mut value = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return if byte == 0 && shift > 0 {
                    Err(OVERLONG)
                } else {
                    Ok(value)
                };
            }
        }
        Err(malformed(
            "1.5.5: a variable byte integer of more than four bytes",
        ))
    }

    /// Binary data (1.5.6).
    #[inline]
    pub fn binary(&mut self) -> Decoded<&'a [u8]> {
        let length = self.short()?;
        self.bytes(usize::from(length))
    }

    /// UTF-8 string (1.5.4).
    #[inline]
    pub fn text(&mut self) -> Decoded<&'a str> {
        let text = utf8(self.binary()?)?;
        if holds(text.as_bytes(), [0]) {
            return Err(malformed("1.5.4: U+0000 in a string [MQTT-1.5.4-2]"));
        }
        Ok(text)
    }

    /// A UTF-8 string that names something: without control characters.
    pub fn name(&mut self) -> Decoded<&'a str> {
        let text = self.text()?;
        if topic::has_control(text) {
            return Err(CONTROL);
        }
        Ok(text)
    }

    /// UTF-8 string pair (1.5.7).
    pub fn pair(&mut self) -> Decoded<(&'a str, &'a str)> {
        Ok((self.text()?, self.text()?))
    }

    /// Packet identifier (2.2.1).
    #[inline]
    pub fn packet_id(&mut self) -> Decoded<u16> {
        match self.short()? {
            0 => Err(protocol("2.2.1: packet identifier 0")),
            id => Ok(id),
        }
    }

    /// The property section as a reader of its own (2.2.2.1).
    #[inline]
    pub fn properties(&mut self) -> Decoded<Reader<'a>> {
        let length = self.variable()?;
        self.bytes(length as usize).map(Reader::new)
    }

    /// The identifier of the next property; None at the end of the section.
    pub fn property(&mut self) -> Decoded<Option<u32>> {
        if self.is_empty() {
            return Ok(None);
        }
        self.variable().map(Some)
    }

    /// A property of one byte, 0 or 1.
    pub fn flag(&mut self) -> Decoded<bool> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(protocol("2.2.2.2: a property of 0 or 1 has another value")),
        }
    }

    /// Receive Maximum (3.1.2.11.3).
    pub fn receive_maximum(&mut self) -> Decoded<u16> {
        match self.short()? {
            0 => Err(protocol("3.1.2.11.3: Receive Maximum 0")),
            value => Ok(value),
        }
    }

    /// Maximum Packet Size (3.1.2.11.4).
    pub fn maximum_packet_size(&mut self) -> Decoded<u32> {
        match self.long()? {
            0 => Err(protocol("3.1.2.11.4: Maximum Packet Size 0")),
            value => Ok(value),
        }
    }

    /// Subscription Identifier (3.8.2.1.2).
    pub fn subscription_id(&mut self) -> Decoded<u32> {
        match self.variable()? {
            0 => Err(protocol("3.8.2.1.2: subscription identifier 0")),
            id => Ok(id),
        }
    }
}

/// The specification leaves it to the receiver (1.5.4). In a name they are mistakes, and do harm
/// wherever names are printed; in values they are line breaks and tabs, which stay.
pub const CONTROL: DecodeError = malformed("1.5.4: a control character in a name");
const TRUNCATED: DecodeError = malformed("1.5: the packet ends inside a field");
const OVERLONG: DecodeError =
    malformed("1.5.5: a variable byte integer longer than it need be [MQTT-1.5.5-1]");

/// Bytes as UTF-8 (1.5.4); surrogates and overlong forms are no UTF-8, a BOM stays.
#[inline]
pub fn utf8(bytes: &[u8]) -> Decoded<&str> {
    std::str::from_utf8(bytes)
        .map_err(|_| malformed("1.5.4: a string that is not UTF-8 [MQTT-1.5.4-1]"))
}

/// Whether one of `N` byte values occurs. Looks at every byte and takes no branch, so that the
/// compiler vectorises the loop.
#[inline]
pub fn holds<const N: usize>(bytes: &[u8], wanted: [u8; N]) -> bool {
    let mut found = 0;
    for byte in bytes {
        for value in wanted {
            found |= u8::from(*byte == value);
        }
    }
    found != 0
}

/// Keeps a property that may come once.
pub fn once<T>(slot: &mut Option<T>, value: T) -> Decoded<()> {
    if slot.replace(value).is_some() {
        return Err(protocol(
            "2.2.2.2: a property that may come once comes again",
        ));
    }
    Ok(())
}

/// Why a property that the packet at hand does not have is refused: as a protocol error where
/// its value is whole, as malformed where it is not or the identifier is unknown.
///
/// 2.2.2.2 asks for 0x81 in every case, single properties for 0x82 (3.3.2.3.8, 3.14.2.2.2); this
/// is the line that brokers in the field draw.
pub fn misplaced(mut section: Reader<'_>, id: u32) -> DecodeError {
    let value = match id {
        property::PAYLOAD_FORMAT
        | property::REQUEST_PROBLEM_INFORMATION
        | property::REQUEST_RESPONSE_INFORMATION
        | property::MAXIMUM_QOS
        | property::RETAIN_AVAILABLE
        | property::WILDCARD_AVAILABLE
        | property::SUBSCRIPTION_IDS_AVAILABLE
        | property::SHARED_AVAILABLE => section.bytes(1).err(),
        property::SERVER_KEEP_ALIVE
        | property::RECEIVE_MAXIMUM
        | property::TOPIC_ALIAS_MAXIMUM
        | property::TOPIC_ALIAS => section.bytes(2).err(),
        property::MESSAGE_EXPIRY
        | property::SESSION_EXPIRY
        | property::WILL_DELAY
        | property::MAXIMUM_PACKET_SIZE => section.bytes(4).err(),
        property::SUBSCRIPTION_ID => section.variable().err(),
        property::CONTENT_TYPE
        | property::RESPONSE_TOPIC
        | property::CORRELATION_DATA
        | property::ASSIGNED_CLIENT_ID
        | property::AUTHENTICATION_METHOD
        | property::AUTHENTICATION_DATA
        | property::RESPONSE_INFORMATION
        | property::SERVER_REFERENCE
        | property::REASON_STRING => section.binary().err(),
        property::USER_PROPERTY => section.pair().err(),
        _ => Some(malformed("2.2.2.2: an unknown property")),
    };
    value.unwrap_or(protocol(
        "2.2.2.2: a property that this packet must not have",
    ))
}
