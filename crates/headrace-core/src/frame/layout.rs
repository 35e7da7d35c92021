//! The bytes of one frame.

use std::fmt;

/// Bytes of the length field, which counts what follows it.
const LENGTH_BYTES: usize = 4;
/// What the length of the shortest frame says: checksum, magic, attributes, timestamp, two null
/// fields and no headers.
pub const LENGTH_MIN: usize = 4 + 1 + 1 + 8 + 4 + 4 + 4;
/// Longest name of a header: what 16 bits with a sign say.
pub const NAME_BYTES_MAX: usize = i16::MAX as usize;
const MAGIC: u8 = 1;

/// One frame, whole and right.
#[derive(Clone, Debug)]
pub struct Frame<'a> {
    /// Milliseconds since 1970; 0 and -1 of who has no clock.
    pub timestamp: i64,
    /// Key, or null.
    pub key: Option<&'a [u8]>,
    /// Value, or null.
    pub value: Option<&'a [u8]>,
    /// Headers, in order.
    pub headers: Headers<'a>,
    /// Of the whole frame.
    pub bytes: usize,
}

/// The headers of a frame, which have been checked.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    data: &'a [u8],
    count: usize,
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.count = self.count.checked_sub(1)?;
        let name = take_name(&mut self.data).ok()?;
        let value = take_field(&mut self.data).ok()?;
        Some((name, value))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// What can be wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No frame is so short.
    TooShort(usize),
    /// Longer than the stream takes.
    TooLarge {
        /// What its length says.
        length: usize,
        /// The bound.
        length_max: usize,
    },
    /// The checksum is not that of the bytes.
    Crc {
        /// As the frame says.
        stated: u32,
        /// Of its bytes.
        computed: u32,
    },
    /// Of another format.
    Magic(u8),
    /// Bits that have no meaning.
    Attributes(u8),
    /// Before 1970, and not -1.
    Timestamp(i64),
    /// A part that does not fit the length, or says what it may not.
    Part(&'static str),
    /// The stream keeps the last record of each key, and this has none.
    Keyless,
}

impl Fault {
    /// One word for it, for counters.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::TooShort(_) => "frame_too_short",
            Self::TooLarge { .. } => "frame_too_large",
            Self::Crc { .. } => "frame_crc",
            Self::Magic(_) => "frame_magic",
            Self::Attributes(_) => "frame_attributes",
            Self::Timestamp(_) => "frame_timestamp",
            Self::Part(_) => "frame_malformed",
            Self::Keyless => "frame_keyless",
        }
    }

    /// The error code of the Kafka protocol that says it best.
    pub fn code(&self) -> i16 {
        match self {
            Self::Crc { .. } => 2,       // CORRUPT_MESSAGE
            Self::TooLarge { .. } => 10, // MESSAGE_TOO_LARGE
            Self::Timestamp(_) => 32,    // INVALID_TIMESTAMP
            Self::Magic(_) => 43,        // UNSUPPORTED_FOR_MESSAGE_FORMAT
            Self::TooShort(_) | Self::Attributes(_) | Self::Part(_) | Self::Keyless => 87, // INVALID_RECORD
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort(length) => {
                write!(
                    f,
                    "length {length} is below that of any frame, {LENGTH_MIN}"
                )
            }
            Self::TooLarge { length, length_max } => write!(
                f,
                "length {length} exceeds {length_max}, what max.message.bytes of the stream allows"
            ),
            Self::Crc { stated, computed } => {
                write!(f, "CRC-32 is {computed:08x}, the frame says {stated:08x}")
            }
            Self::Magic(magic) => write!(f, "magic {magic} is not supported, only {MAGIC} is"),
            Self::Attributes(bits) => {
                write!(f, "attributes {bits:#04x} must be 0: no bit has a meaning")
            }
            Self::Timestamp(timestamp) => write!(
                f,
                "timestamp {timestamp} is before 1970; -1 stands for the node's own time"
            ),
            Self::Part(part) => write!(f, "its {part} is malformed"),
            Self::Keyless => f.write_str(
                "it has no key, and the stream keeps the last record of each (cleanup.policy)",
            ),
        }
    }
}

impl std::error::Error for Fault {}

/// The frame at the start of `data`; None where it is not whole yet.
///
/// A length above `length_max` is a fault before the rest has come.
pub fn parse(data: &[u8], length_max: usize) -> Result<Option<Frame<'_>>, Fault> {
    let Some((length, rest)) = data.split_first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_be_bytes(*length) as usize;
    if length < LENGTH_MIN {
        return Err(Fault::TooShort(length));
    }
    if length > length_max {
        return Err(Fault::TooLarge { length, length_max });
    }
    let Some(rest) = rest.get(..length) else {
        return Ok(None);
    };
    let Some((stated, body)) = rest.split_first_chunk() else {
        return Err(Fault::TooShort(length));
    };
    let (stated, computed) = (u32::from_be_bytes(*stated), crc32fast::hash(body));
    if stated != computed {
        return Err(Fault::Crc { stated, computed });
    }
    read(body, LENGTH_BYTES + length).map(Some)
}

/// What follows the checksum.
fn read(body: &[u8], bytes: usize) -> Result<Frame<'_>, Fault> {
    let (&[magic, attributes], body) = body.split_first_chunk().expect("it is long enough");
    if magic != MAGIC {
        return Err(Fault::Magic(magic));
    }
    if attributes != 0 {
        return Err(Fault::Attributes(attributes));
    }
    let (timestamp, mut rest) = body.split_first_chunk().expect("it is long enough");
    let timestamp = i64::from_be_bytes(*timestamp);
    if timestamp < -1 {
        return Err(Fault::Timestamp(timestamp));
    }
    let key = take_field(&mut rest).map_err(|_| Fault::Part("key"))?;
    let value = take_field(&mut rest).map_err(|_| Fault::Part("value"))?;
    let headers = take_headers(rest)?;
    Ok(Frame {
        timestamp,
        key,
        value,
        headers,
        bytes,
    })
}

/// The headers that fill the rest of a frame, each checked once so that a walk cannot fail.
fn take_headers(mut data: &[u8]) -> Result<Headers<'_>, Fault> {
    let count = take_i32(&mut data).and_then(|count| usize::try_from(count).ok());
    let headers = Headers {
        data,
        count: count.ok_or(Fault::Part("headers count"))?,
    };
    for _ in 0..headers.count {
        take_name(&mut data)?;
        take_field(&mut data).map_err(|_| Fault::Part("header value"))?;
    }
    if data.is_empty() {
        Ok(headers)
    } else {
        Err(Fault::Part("length"))
    }
}

fn take_name<'a>(data: &mut &'a [u8]) -> Result<&'a [u8], Fault> {
    let name = split_name(data).ok_or(Fault::Part("header name"))?;
    if name.is_ascii() || std::str::from_utf8(name).is_ok() {
        Ok(name)
    } else {
        Err(Fault::Part("header name (UTF-8)"))
    }
}

#[inline]
fn split_name<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = data.split_first_chunk()?;
    let length = usize::try_from(i16::from_be_bytes(*length)).ok()?;
    let (name, rest) = rest.split_at_checked(length)?;
    *data = rest;
    Some(name)
}

struct Malformed;

/// Takes a length, then so many bytes; a length of -1 is a null.
#[inline]
fn take_field<'a>(data: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Malformed> {
    let length = take_i32(data).ok_or(Malformed)?;
    if length == -1 {
        return Ok(None);
    }
    let length = usize::try_from(length).map_err(|_| Malformed)?;
    let (bytes, rest) = data.split_at_checked(length).ok_or(Malformed)?;
    *data = rest;
    Ok(Some(bytes))
}

#[inline]
fn take_i32(data: &mut &[u8]) -> Option<i32> {
    let (number, rest) = data.split_first_chunk()?;
    *data = rest;
    Some(i32::from_be_bytes(*number))
}

/// A record that no frame holds: a header's name is longer than [`NAME_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unwritable;

/// Appends a frame; nothing where it cannot be one.
///
/// # Panics
/// Where key, value or all together reach 2 GiB: no record batch holds as much.
pub fn put<'a>(
    out: &mut Vec<u8>,
    timestamp: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl ExactSizeIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
) -> Result<(), Unwritable> {
    let start = out.len();
    out.reserve(64 + key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len));
    out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, MAGIC, 0]);
    out.extend_from_slice(&timestamp.to_be_bytes());
    put_field(out, key);
    put_field(out, value);
    out.extend_from_slice(&length_of(headers.len()));
    for (name, value) in headers {
        let Ok(length) = i16::try_from(name.len()) else {
            out.truncate(start);
            return Err(Unwritable);
        };
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(name);
        put_field(out, value);
    }
    let crc = crc32fast::hash(&out[start + 8..]);
    let length = length_of(out.len() - start - LENGTH_BYTES);
    out[start..start + 4].copy_from_slice(&length);
    out[start + 4..start + 8].copy_from_slice(&crc.to_be_bytes());
    Ok(())
}

fn put_field(out: &mut Vec<u8>, field: Option<&[u8]>) {
    match field {
        None => out.extend_from_slice(&(-1_i32).to_be_bytes()),
        Some(bytes) => {
            out.extend_from_slice(&length_of(bytes.len()));
            out.extend_from_slice(bytes);
        }
    }
}

fn length_of(bytes: usize) -> [u8; 4] {
    i32::try_from(bytes)
        .expect("a record is shorter than 2 GiB")
        .to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fields<'a> = Vec<(&'a [u8], Option<&'a [u8]>)>;

    fn made(timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>, headers: &Fields) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out, timestamp, key, value, headers.iter().copied()).unwrap();
        out
    }

    /// Gives a frame whose bytes were changed the length and the checksum that it has.
    fn sealed(mut frame: Vec<u8>) -> Vec<u8> {
        let length = (frame.len() - 4) as u32;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        let crc = crc32fast::hash(&frame[8..]);
        frame[4..8].copy_from_slice(&crc.to_be_bytes());
        frame
    }

    fn fault(frame: &[u8]) -> Fault {
        parse(frame, 1 << 20).unwrap_err()
    }

    #[test]
    fn one_frame_byte_for_byte() {
        let frame = made(
            1_700_000_000_000,
            Some(b"k"),
            Some(b"21.5"),
            &vec![(b"unit", Some(b"C")), (b"n", None)],
        );
        #[rustfmt::skip]
        let expected = [
            1, 0,                                       // magic, attributes
            0, 0, 0x01, 0x8B, 0xCF, 0xE5, 0x68, 0x00,   // timestamp
            0, 0, 0, 1, b'k',
            0, 0, 0, 4, b'2', b'1', b'.', b'5',
            0, 0, 0, 2,                                 // headers
            0, 4, b'u', b'n', b'i', b't', 0, 0, 0, 1, b'C',
            0, 1, b'n', 0xFF, 0xFF, 0xFF, 0xFF,
        ];
        assert_eq!(frame[8..], expected);
        assert_eq!(frame[..4], (expected.len() as u32 + 4).to_be_bytes());
        // Of an implementation of its own, bit by bit.
        let mut crc = u32::MAX;
        for byte in expected {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                crc = crc >> 1 ^ if crc & 1 == 1 { 0xEDB8_8320 } else { 0 };
            }
        }
        assert_eq!(frame[4..8], (!crc).to_be_bytes());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let long = vec![7; 70_000];
        for key in [None, Some(&b""[..]), Some(&long[..300])] {
            for value in [None, Some(&b""[..]), Some(&long[..])] {
                for headers in [
                    vec![],
                    vec![
                        (&b"a"[..], None),
                        (&b""[..], Some(&b""[..])),
                        (&b"a"[..], value),
                    ],
                ] {
                    let bytes = made(-1, key, value, &headers);
                    let frame = parse(&bytes, bytes.len() - 4).unwrap().unwrap();
                    assert_eq!((frame.key, frame.value), (key, value));
                    assert_eq!(frame.headers.collect::<Vec<_>>(), headers);
                    assert_eq!(frame.bytes, bytes.len());
                }
            }
        }
    }

    #[test]
    fn what_is_cut_off_is_waited_for() {
        let frame = made(1, Some(b"k"), Some(b"v"), &vec![(b"h", Some(b"x"))]);
        for end in 0..frame.len() {
            assert!(parse(&frame[..end], 1 << 20).unwrap().is_none());
        }
    }

    #[test]
    fn every_flipped_bit_is_refused_or_waited_for() {
        let frame = made(1, Some(b"key"), Some(b"value"), &vec![(b"h", Some(b"x"))]);
        for at in 0..frame.len() {
            for bit in 0..8 {
                let mut flipped = frame.clone();
                flipped[at] ^= 1 << bit;
                // A length that says more waits for that, and then the checksum is wrong.
                flipped.resize(frame.len() + 4096, 0);
                assert!(parse(&flipped, 2048).is_err(), "byte {at} bit {bit}");
            }
        }
    }

    #[test]
    fn each_fault_has_its_name() {
        let frame = made(1, Some(b"k"), Some(b"v"), &vec![(b"h", Some(b"x"))]);
        let changed = |at: usize, bytes: &[u8]| {
            let mut frame = frame.clone();
            frame[at..at + bytes.len()].copy_from_slice(bytes);
            sealed(frame)
        };
        assert_eq!(fault(&[0, 0, 0, 25]), Fault::TooShort(25));
        assert_eq!(
            fault(b"GET "),
            Fault::TooLarge {
                length: 0x4745_5420,
                length_max: 1 << 20
            }
        );
        assert_eq!(fault(&changed(8, &[2])), Fault::Magic(2));
        assert_eq!(fault(&changed(9, &[4])), Fault::Attributes(4));
        assert_eq!(
            fault(&changed(10, &(-2_i64).to_be_bytes())),
            Fault::Timestamp(-2)
        );
        for length in [-2, 100, i32::MAX, i32::MIN] {
            let length = length.to_be_bytes();
            assert_eq!(fault(&changed(18, &length)), Fault::Part("key"));
            assert_eq!(fault(&changed(23, &length)), Fault::Part("value"));
            assert_eq!(fault(&changed(35, &length)), Fault::Part("header value"));
        }
        assert_eq!(
            fault(&changed(28, &(-1_i32).to_be_bytes())),
            Fault::Part("headers count")
        );
        assert_eq!(
            fault(&changed(28, &i32::MAX.to_be_bytes())),
            Fault::Part("header name")
        );
        assert_eq!(fault(&changed(28, &[0; 4])), Fault::Part("length"));
        assert_eq!(
            fault(&changed(32, &(-1_i16).to_be_bytes())),
            Fault::Part("header name")
        );
        assert_eq!(
            fault(&changed(34, &[0xFF])),
            Fault::Part("header name (UTF-8)")
        );
    }

    #[test]
    fn a_name_that_no_frame_holds_is_told() {
        let long = vec![b'n'; NAME_BYTES_MAX + 1];
        let mut out = vec![1, 2, 3];
        let headers = [(&long[..], None)];
        assert_eq!(
            put(&mut out, 1, None, None, headers.into_iter()),
            Err(Unwritable)
        );
        assert_eq!(out, [1, 2, 3]);
        let headers = [(&long[1..], None)];
        assert_eq!(put(&mut out, 1, None, None, headers.into_iter()), Ok(()));
    }
}
