//! Which property belongs to which packet, and how often (MQTT 5.0 2.2.2.2).

use super::super::packet::Version::V5;
use super::{bytes, decode, framed};

const MALFORMED: u8 = 0x81;
const PROTOCOL_ERROR: u8 = 0x82;

/// Every property with a valid value, and the packets that have it (table 2-4).
const PROPERTIES: [(&str, &str); 27] = [
    ("01 01", "publish will"),
    ("02 00000001", "publish will"),
    ("03 0001 'a'", "publish will"),
    ("08 0001 'a'", "publish will"),
    ("09 0001 'a'", "publish will"),
    ("0B 01", "publish subscribe"),
    ("11 00000001", "connect connack disconnect"),
    ("12 0001 'a'", "connack"),
    ("13 0001", "connack"),
    ("15 0001 'a'", "connect connack auth"),
    ("16 0001 'a'", "connect connack auth"),
    ("17 01", "connect"),
    ("18 00000001", "will"),
    ("19 01", "connect"),
    ("1A 0001 'a'", "connack"),
    ("1C 0001 'a'", "connack disconnect"),
    ("1F 0001 'a'", "connack ack suback disconnect auth"),
    ("21 0001", "connect connack"),
    ("22 0001", "connect connack"),
    ("23 0001", "publish"),
    ("24 01", "connack"),
    ("25 01", "connack"),
    (
        "26 0001 'a' 0001 'b'",
        "publish will connect connack ack suback subscribe unsubscribe disconnect auth",
    ),
    ("27 00000001", "connect connack"),
    ("28 01", "connack"),
    ("29 01", "connack"),
    ("2A 01", "connack"),
];

/// Each packet around a property section: its name in table 2-4, header, what comes before and
/// after.
const CARRIERS: [(&str, u8, &str, &str); 14] = [
    ("connect", 0x10, "0004 'MQTT' 05 02 0000", "0001 'a'"),
    (
        "will",
        0x10,
        "0004 'MQTT' 05 06 0000 00 0001 'a'",
        "0001 'w' 0000",
    ),
    ("connack", 0x20, "00 00", ""),
    ("publish", 0x30, "0001 'a'", ""),
    ("ack", 0x40, "0001 00", ""),
    ("ack", 0x50, "0001 00", ""),
    ("ack", 0x62, "0001 00", ""),
    ("ack", 0x70, "0001 00", ""),
    ("subscribe", 0x82, "0001", "0001 'a' 00"),
    ("suback", 0x90, "0001", "00"),
    ("unsubscribe", 0xA2, "0001", "0001 'a'"),
    ("suback", 0xB0, "0001", "00"),
    ("disconnect", 0xE0, "00", ""),
    ("auth", 0xF0, "00", ""),
];

/// The body of a carrier with a property section.
fn carry(carrier: (&str, u8, &str, &str), section: &[u8]) -> Vec<u8> {
    let (_, header, before, after) = carrier;
    let mut body = bytes(before);
    body.push(section.len() as u8);
    body.extend_from_slice(section);
    body.extend(bytes(after));
    framed(header, &body)
}

/// What must come beside a property for it to be allowed at all.
fn beside(carrier: &str, property: &str) -> Vec<u8> {
    let needs_method = carrier == "auth" || (carrier == "connect" && property.starts_with("16"));
    if needs_method && !property.starts_with("15") {
        bytes("15 0001 'm'")
    } else {
        Vec::new()
    }
}

#[test]
fn section_2_2_2_2_each_property_is_taken_by_its_packets_and_refused_by_all_others() {
    for carrier in CARRIERS {
        for (property, packets) in PROPERTIES {
            let mut section = beside(carrier.0, property);
            section.extend(bytes(property));
            let result = decode(V5, &carry(carrier, &section)).map(|_| ());
            let allowed = packets.split(' ').any(|name| name == carrier.0);
            let place = format!("{property} in {} {:02x}", carrier.0, carrier.1);
            match result {
                Ok(()) => assert!(allowed, "{place} is accepted"),
                Err(error) => {
                    assert!(!allowed, "{place}: {error}");
                    let is_list = matches!(carrier.0, "subscribe" | "unsubscribe");
                    let expected = if is_list { MALFORMED } else { PROTOCOL_ERROR };
                    assert_eq!(error.reason_code, expected, "{place}");
                }
            }
        }
    }
}

#[test]
fn section_2_2_2_2_a_property_comes_once_unless_it_is_a_user_property_or_a_publishs_subscription() {
    for carrier in CARRIERS {
        for (property, packets) in PROPERTIES {
            if !packets.split(' ').any(|name| name == carrier.0) {
                continue;
            }
            let mut section = beside(carrier.0, property);
            section.extend(bytes(property).repeat(2));
            let result = decode(V5, &carry(carrier, &section)).map(|_| ());
            let repeats = property.starts_with("26")
                || (property.starts_with("0B") && carrier.0 == "publish");
            let code = result.map_err(|error| error.reason_code);
            let expected = if repeats { Ok(()) } else { Err(PROTOCOL_ERROR) };
            assert_eq!(
                code, expected,
                "{property} twice in {} {:02x}",
                carrier.0, carrier.1
            );
        }
    }
}

#[test]
fn section_2_2_2_2_a_property_cut_off_is_malformed() {
    for carrier in CARRIERS {
        for (property, _) in PROPERTIES {
            let property = bytes(property);
            for length in 1..property.len() {
                let code = decode(V5, &carry(carrier, &property[..length]))
                    .unwrap_err()
                    .reason_code;
                assert_eq!(
                    code, MALFORMED,
                    "{property:02x?} of {length} in {}",
                    carrier.0
                );
            }
        }
    }
}

#[test]
fn section_2_2_2_2_unknown_properties_are_malformed() {
    for id in (0..0x80_u8).filter(|id| !PROPERTIES.iter().any(|(known, _)| bytes(known)[0] == *id))
    {
        for carrier in CARRIERS {
            let code = decode(V5, &carry(carrier, &[id, 1]))
                .unwrap_err()
                .reason_code;
            assert_eq!(code, MALFORMED, "{id:#x} in {}", carrier.0);
        }
    }
}

#[test]
fn section_2_2_2_2_flags_are_0_or_1() {
    for property in ["01 02", "17 02", "19 FF"] {
        let carrier = if property.starts_with("01") {
            CARRIERS[3]
        } else {
            CARRIERS[0]
        };
        let code = decode(V5, &carry(carrier, &bytes(property)))
            .unwrap_err()
            .reason_code;
        assert_eq!(code, PROTOCOL_ERROR, "{property}");
    }
    for property in [
        "24 02",
        "25 02",
        "28 02",
        "29 02",
        "2A 02",
        "21 0000",
        "27 00000000",
    ] {
        let code = decode(V5, &carry(CARRIERS[2], &bytes(property)))
            .unwrap_err()
            .reason_code;
        assert_eq!(code, PROTOCOL_ERROR, "{property}");
    }
}
