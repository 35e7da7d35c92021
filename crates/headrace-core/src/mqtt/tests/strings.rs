//! Every string of every packet that a client sends (MQTT 5.0 1.5.4, 3.1.1 1.5.3).

use super::super::packet::Version::{self, V311, V5};
use super::{bytes, decode, framed};

/// A string in a packet: its field, the version, the header, what comes before it, what its
/// property section holds before and behind it where it is a property, and what follows.
type Field = (
    &'static str,
    Version,
    u8,
    &'static str,
    Option<(&'static str, &'static str)>,
    &'static str,
);

#[rustfmt::skip]
const FIELDS: [Field; 36] = [
    ("client id", V5, 0x10, "0004 'MQTT' 05 02 0000 00", None, ""),
    ("will topic", V5, 0x10, "0004 'MQTT' 05 06 0000 00 0001 'a' 00", None, "0001 'w'"),
    ("user name", V5, 0x10, "0004 'MQTT' 05 82 0000 00 0001 'a'", None, ""),
    ("method", V5, 0x10, "0004 'MQTT' 05 02 0000", Some(("15", "")), "0001 'a'"),
    ("name", V5, 0x10, "0004 'MQTT' 05 02 0000", Some(("26", "0001 'v'")), "0001 'a'"),
    ("value", V5, 0x10, "0004 'MQTT' 05 02 0000", Some(("26 0001 'n'", "")), "0001 'a'"),
    ("content type of a will", V5, 0x10, "0004 'MQTT' 05 06 0000 00 0001 'a'", Some(("03", "")), "0001 'w' 0000"),
    ("response topic of a will", V5, 0x10, "0004 'MQTT' 05 06 0000 00 0001 'a'", Some(("08", "")), "0001 'w' 0000"),
    ("value of a will", V5, 0x10, "0004 'MQTT' 05 06 0000 00 0001 'a'", Some(("26 0001 'n'", "")), "0001 'w' 0000"),
    ("topic", V5, 0x30, "", None, "00"),
    ("content type", V5, 0x30, "0001 'a'", Some(("03", "")), ""),
    ("response topic", V5, 0x30, "0001 'a'", Some(("08", "")), ""),
    ("value", V5, 0x30, "0001 'a'", Some(("26 0001 'n'", "")), ""),
    ("name", V5, 0x30, "0001 'a'", Some(("26", "0001 'v'")), ""),
    ("reason of PUBACK", V5, 0x40, "0001 00", Some(("1F", "")), ""),
    ("value of PUBACK", V5, 0x40, "0001 00", Some(("26 0001 'n'", "")), ""),
    ("reason of PUBREC", V5, 0x50, "0001 00", Some(("1F", "")), ""),
    ("value of PUBREC", V5, 0x50, "0001 00", Some(("26 0001 'n'", "")), ""),
    ("reason of PUBREL", V5, 0x62, "0001 00", Some(("1F", "")), ""),
    ("value of PUBREL", V5, 0x62, "0001 00", Some(("26 0001 'n'", "")), ""),
    ("reason of PUBCOMP", V5, 0x70, "0001 00", Some(("1F", "")), ""),
    ("value of PUBCOMP", V5, 0x70, "0001 00", Some(("26 0001 'n'", "")), ""),
    ("filter", V5, 0x82, "0001 00", None, "00"),
    ("value of SUBSCRIBE", V5, 0x82, "0001", Some(("26 0001 'n'", "")), "0001 'a' 00"),
    ("filter", V5, 0xA2, "0001 00", None, ""),
    ("value of UNSUBSCRIBE", V5, 0xA2, "0001", Some(("26 0001 'n'", "")), "0001 'a'"),
    ("reason of DISCONNECT", V5, 0xE0, "00", Some(("1F", "")), ""),
    ("value of DISCONNECT", V5, 0xE0, "00", Some(("26 0001 'n'", "")), ""),
    ("method", V5, 0xF0, "18", Some(("15", "")), ""),
    ("reason of AUTH", V5, 0xF0, "18", Some(("15 0001 'm' 1F", "")), ""),
    ("client id", V311, 0x10, "0004 'MQTT' 04 02 0000", None, ""),
    ("will topic", V311, 0x10, "0004 'MQTT' 04 06 0000 0001 'a'", None, "0001 'w'"),
    ("user name", V311, 0x10, "0004 'MQTT' 04 82 0000 0001 'a'", None, ""),
    ("topic", V311, 0x30, "", None, ""),
    ("filter", V311, 0x82, "0001", None, "00"),
    ("filter", V311, 0xA2, "0001", None, ""),
];

/// A surrogate, overlong forms, a lone continuation, a code point above U+10FFFF, a sequence that
/// is cut off, U+0000.
const NO_STRINGS: [&[u8]; 8] = [
    b"\xED\xA0\x80",
    b"\xC0\xAF",
    b"\xC0\x80",
    b"\x80",
    b"\xF4\x90\x80\x80",
    b"a\xC3",
    b"\xFF",
    b"a\0b",
];

fn packet(field: &Field, text: &[u8]) -> Vec<u8> {
    let (_, _, header, before, section, after) = field;
    let string = [&(text.len() as u16).to_be_bytes(), text].concat();
    let inner = match section {
        None => string,
        Some((before, after)) => {
            let section = [bytes(before), string, bytes(after)].concat();
            [&[section.len() as u8], &section[..]].concat()
        }
    };
    framed(*header, &[bytes(before), inner, bytes(after)].concat())
}

/// Bug 16 of other brokers.
/// Holds 5.0: 1.5.4-1, 1.5.4-2, 1.5.4-3, 1.5.7-1, 3.1.3-4, 3.1.3-11, 3.1.3-12, 3.3.2-1, 3.3.2-13.
/// Holds 5.0: 3.3.2-19, 3.8.3-1, 3.10.3-1.
/// Holds 3.1.1: 1.5.3-1, 1.5.3-2, 1.5.3-3, 3.1.3-4, 3.1.3-10, 3.1.3-11, 3.3.2-1, 3.8.3-1.
/// Holds 3.1.1: 3.10.3-1, 4.7.3-2.
#[test]
fn no_field_takes_what_is_no_string() {
    for field in &FIELDS {
        for text in [&b"a"[..], "\u{FEFF}\u{D7FF}\u{E000}\u{10FFFF}".as_bytes()] {
            let data = packet(field, text);
            assert!(decode(field.1, &data).is_ok(), "{field:?}");
        }
        for text in NO_STRINGS {
            let data = packet(field, text);
            assert!(decode(field.1, &data).is_err(), "{field:?} {text:x?}");
        }
    }
}
