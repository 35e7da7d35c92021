//! MQTT 5.0 without CONNECT and CONNACK, clause by clause. Test names carry the number of the normative statement where
//! there is one, else that of the section.

use super::super::decode::frame;
use super::super::packet::Version::{V311, V5};
use super::super::packet::{Ack, Auth, Disconnect, Packet, QoS};
use super::{bytes, decode, encoded, framed, refusal, PACKET_BYTES_MAX};

const MALFORMED: u8 = 0x81;
const PROTOCOL_ERROR: u8 = 0x82;
const TOPIC_NAME_INVALID: u8 = 0x90;
const TOPIC_ALIAS_INVALID: u8 = 0x94;

/// Decodes a body that must be accepted and runs `check` on the packet.
fn accepted(header: u8, body: &str, check: impl FnOnce(Packet<'_>)) {
    let data = framed(header, &bytes(body));
    check(decode(V5, &data).unwrap_or_else(|error| panic!("{body}: {error}")));
}

fn accepts(header: u8, body: &str) {
    accepted(header, body, |_| {});
}

/// Holds 5.0: 1.5.4-1.
#[test]
fn mqtt_1_5_4_1_a_string_is_well_formed_utf_8() {
    // A surrogate, an overlong slash, a lone continuation byte, a code point above U+10FFFF.
    for text in ["EDA080", "C0AF", "80", "F4908080", "C3"] {
        let length = text.len() / 2;
        assert_eq!(
            refusal(V5, 0x30, &format!("000{length} {text} 00")),
            MALFORMED
        );
        let body = format!("0001 00 000{length} {text} 00");
        assert_eq!(refusal(V5, 0x82, &body), MALFORMED);
    }
}

/// Holds 5.0: 1.5.4-2, 4.7.3-2.
#[test]
fn mqtt_1_5_4_2_a_string_must_not_hold_u_0000() {
    assert_eq!(refusal(V5, 0x30, "0003 'a' 00 'b' 00"), MALFORMED);
    assert_eq!(refusal(V5, 0x82, "0001 00 0003 'a' 00 'b' 00"), MALFORMED);
    assert_eq!(refusal(V5, 0xA2, "0001 00 0001 00"), MALFORMED);
    assert_eq!(
        refusal(V5, 0x30, "0001 'a' 07 26 0001 00 0001 'b'"),
        MALFORMED
    );
    assert_eq!(
        refusal(V5, 0x30, "0001 'a' 07 26 0001 'b' 0001 00"),
        MALFORMED
    );
    assert_eq!(refusal(V5, 0xE0, "00 04 1F 0001 00"), MALFORMED);
}

/// Holds 5.0: 1.5.4-3.
/// Holds 3.1.1: 1.5.3-3.
#[test]
fn mqtt_1_5_4_3_a_byte_order_mark_stays() {
    accepted(0x30, "0004 EFBBBF 'a' 00", |packet| {
        let Packet::Publish(publish) = packet else {
            unreachable!()
        };
        assert_eq!(publish.topic, "\u{FEFF}a");
    });
}

#[test]
fn section_1_5_4_control_characters_pass_in_values_and_not_in_names() {
    for control in ["01", "1F", "7F", "C280", "C29F"] {
        let length = 1 + control.len() / 2;
        assert_eq!(
            refusal(V5, 0x30, &format!("000{length} 'a' {control} 00")),
            MALFORMED
        );
        let filter = format!("0001 00 000{length} 'a' {control}");
        assert_eq!(refusal(V5, 0x82, &format!("{filter} 00")), MALFORMED);
        assert_eq!(refusal(V5, 0xA2, &filter), MALFORMED);
    }
    accepts(0x30, "0003 'a' C2A0 00");
    accepts(0x30, "0001 'a' 0B 26 0002 0D0A 0004 01 1F C280");
}

/// Holds 5.0: 1.5.5-1.
#[test]
fn mqtt_1_5_5_1_a_variable_byte_integer_is_in_its_shortest_form() {
    assert_eq!(
        frame(&bytes("C0 80 00"), PACKET_BYTES_MAX)
            .unwrap_err()
            .reason_code,
        MALFORMED
    );
    assert_eq!(refusal(V5, 0x30, "0001 'a' 8000"), MALFORMED);
    assert_eq!(refusal(V5, 0x30, "0001 'a' 03 8100 01"), MALFORMED);
    assert_eq!(refusal(V5, 0x82, "0001 03 0B 8100 0001 'a' 00"), MALFORMED);
}

#[test]
fn section_1_5_5_a_variable_byte_integer_has_at_most_four_bytes() {
    for start in ["C0 80808080 01", "C0 FFFFFFFF", "30 FFFFFF80"] {
        let error = frame(&bytes(start), usize::MAX).unwrap_err();
        assert_eq!(error.reason_code, MALFORMED);
    }
    assert_eq!(frame(&bytes("30 FFFFFF7F"), usize::MAX), Ok(None));
    assert_eq!(frame(&bytes("30 FFFFFF"), usize::MAX), Ok(None));
}

#[test]
fn section_2_1_2_packet_type_0_is_forbidden() {
    assert_eq!(
        frame(&[0x00, 0], PACKET_BYTES_MAX).unwrap_err().reason_code,
        PROTOCOL_ERROR
    );
}

/// Holds 5.0: 2.1.3-1, 3.6.1-1, 3.8.1-1, 3.10.1-1, 3.14.1-1, 3.15.1-1.
/// Holds 3.1.1: 2.2.2-1, 3.6.1-1, 3.8.1-1, 3.10.1-1, 3.14.1-1.
#[test]
fn mqtt_2_1_3_1_reserved_flags_have_their_value() {
    for kind in 1..=15_u8 {
        let expected = if matches!(kind, 6 | 8 | 10) { 2 } else { 0 };
        for flags in (0..16).filter(|flags| kind != 3 && *flags != expected) {
            let error = frame(&[kind << 4 | flags], PACKET_BYTES_MAX).unwrap_err();
            assert_eq!(error.reason_code, MALFORMED, "type {kind}, flags {flags}");
        }
    }
}

/// Holds 5.0: 2.2.1-3.
/// Holds 3.1.1: 2.3.1-1.
#[test]
fn section_2_2_1_packet_identifier_0_is_refused_everywhere() {
    assert_eq!(refusal(V5, 0x32, "0001 'a' 0000 00"), PROTOCOL_ERROR);
    for header in [0x40, 0x50, 0x62, 0x70] {
        assert_eq!(refusal(V5, header, "0000"), PROTOCOL_ERROR);
        assert_eq!(refusal(V311, header, "0000"), PROTOCOL_ERROR);
    }
    assert_eq!(refusal(V5, 0x82, "0000 00 0001 'a' 00"), PROTOCOL_ERROR);
    assert_eq!(refusal(V5, 0xA2, "0000 00 0001 'a'"), PROTOCOL_ERROR);
}

/// Holds 5.0: 3.3.1-2.
#[test]
fn mqtt_3_3_1_2_dup_is_0_at_qos_0() {
    assert_eq!(
        frame(&[0x38, 0], PACKET_BYTES_MAX).unwrap_err().reason_code,
        MALFORMED
    );
}

/// Holds 5.0: 3.3.1-4.
/// Holds 3.1.1: 3.3.1-4.
#[test]
fn mqtt_3_3_1_4_qos_3_is_malformed() {
    for header in [0x36, 0x37, 0x3E, 0x3F] {
        let error = frame(&[header, 0], PACKET_BYTES_MAX).unwrap_err();
        assert_eq!(error.reason_code, MALFORMED);
    }
}

#[test]
fn section_3_3_1_the_flags_of_a_publish() {
    for (header, dup, qos, retain) in [
        (0x30, false, QoS::AtMostOnce, false),
        (0x31, false, QoS::AtMostOnce, true),
        (0x3A, true, QoS::AtLeastOnce, false),
        (0x35, false, QoS::ExactlyOnce, true),
        (0x3D, true, QoS::ExactlyOnce, true),
    ] {
        let id = if qos == QoS::AtMostOnce { "" } else { "1234" };
        accepted(header, &format!("0001 'a' {id} 00 'xyz'"), |packet| {
            let Packet::Publish(publish) = packet else {
                unreachable!()
            };
            assert_eq!(
                (publish.dup, publish.qos, publish.retain),
                (dup, qos, retain)
            );
            assert_eq!(publish.payload, b"xyz");
        });
    }
}

#[test]
fn section_3_3_2_1_an_empty_topic_needs_an_alias() {
    assert_eq!(refusal(V5, 0x30, "0000 00"), PROTOCOL_ERROR);
    accepts(0x30, "0000 03 23 0001");
}

/// Holds 5.0: 3.3.2-2, 4.7.0-1.
#[test]
fn mqtt_3_3_2_2_a_topic_name_holds_no_wildcard() {
    for topic in [
        "0001 '+'",
        "0001 '#'",
        "0003 'a/+'",
        "0003 'a/#'",
        "0002 'a#'",
    ] {
        assert_eq!(
            refusal(V5, 0x30, &format!("{topic} 00")),
            MALFORMED,
            "{topic}"
        );
    }
}

#[test]
fn mqtt_3_3_2_2_a_forbidden_character_is_found_anywhere_in_a_topic() {
    for length in 1..100 {
        for at in 0..length {
            for forbidden in ['+', '#', '\0'] {
                let mut topic = "t".repeat(length);
                topic.replace_range(at..=at, &forbidden.to_string());
                let body = format!("{length:04x} '{topic}' 00");
                assert_eq!(refusal(V5, 0x30, &body), MALFORMED, "{at} of {length}");
            }
        }
    }
}

/// Holds 5.0: 3.3.2-8.
#[test]
fn mqtt_3_3_2_8_topic_alias_0_is_invalid() {
    assert_eq!(
        refusal(V5, 0x30, "0001 'a' 03 23 0000"),
        TOPIC_ALIAS_INVALID
    );
}

/// Holds 5.0: 3.3.2-14.
#[test]
fn mqtt_3_3_2_14_a_response_topic_holds_no_wildcard() {
    for topic in ["0001 '+'", "0003 'a/#'", "0000"] {
        let length = bytes(topic).len() + 1;
        let body = format!("0001 'a' {length:02x} 08 {topic}");
        assert_eq!(refusal(V5, 0x30, &body), PROTOCOL_ERROR, "{topic}");
    }
}

#[test]
fn section_3_3_2_3_8_subscription_identifier_0_is_a_protocol_error() {
    assert_eq!(refusal(V5, 0x30, "0001 'a' 02 0B 00"), PROTOCOL_ERROR);
}

#[test]
fn section_3_3_3_the_payload_may_be_empty() {
    accepted(0x30, "0001 'a' 00", |packet| {
        let Packet::Publish(publish) = packet else {
            unreachable!()
        };
        assert_eq!(publish.payload, b"");
    });
}

#[test]
fn section_3_4_2_1_short_forms_of_acknowledgements() {
    let success = Ack {
        packet_id: 0x1234,
        ..Ack::default()
    };
    for body in ["1234", "1234 00", "1234 00 00"] {
        accepted(0x40, body, |packet| {
            assert_eq!(packet, Packet::Puback(success.clone()));
        });
    }
    assert_eq!(
        encoded(V5, &Packet::Puback(success.clone())),
        bytes("40 02 1234")
    );
    let refused = Ack {
        reason_code: 0x97,
        ..success
    };
    accepted(0x50, "1234 97", |packet| {
        assert_eq!(packet, Packet::Pubrec(refused.clone()));
    });
    assert_eq!(
        encoded(V5, &Packet::Pubrec(refused.clone())),
        bytes("50 03 1234 97")
    );
    assert_eq!(encoded(V311, &Packet::Pubrec(refused)), bytes("50 02 1234"));
}

/// Holds 5.0: 3.4.2-1, 3.5.2-1, 3.6.2-1, 3.7.2-1.
#[test]
fn mqtt_3_4_2_1_acknowledgements_have_their_own_reason_codes() {
    for (header, codes) in [
        (
            0x40,
            &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99][..],
        ),
        (
            0x50,
            &[0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99],
        ),
        (0x62, &[0x00, 0x92]),
        (0x70, &[0x00, 0x92]),
    ] {
        for code in 0..=255_u8 {
            let data = framed(header, &[0, 1, code]);
            let result = decode(V5, &data)
                .map(|_| ())
                .map_err(|error| error.reason_code);
            let expected = if codes.contains(&code) {
                Ok(())
            } else {
                Err(PROTOCOL_ERROR)
            };
            assert_eq!(result, expected, "{header:02x} {code:02x}");
        }
    }
}

/// Holds 5.0: 3.8.3-2.
#[test]
fn mqtt_3_8_3_2_subscribe_holds_at_least_one_filter() {
    assert_eq!(refusal(V5, 0x82, "0001 00"), MALFORMED);
}

/// Holds 5.0: 3.8.3-4.
#[test]
fn mqtt_3_8_3_4_no_local_on_a_shared_subscription_is_a_protocol_error() {
    assert_eq!(
        refusal(V5, 0x82, "0001 00 000A '$share/g/a' 04"),
        PROTOCOL_ERROR
    );
    accepts(0x82, "0001 00 000A '$share/g/a' 01");
}

/// Holds 5.0: 3.8.3-5.
#[test]
fn mqtt_3_8_3_5_reserved_bits_of_the_options_are_0() {
    for options in ["40", "80", "C0"] {
        assert_eq!(
            refusal(V5, 0x82, &format!("0001 00 0001 'a' {options}")),
            MALFORMED
        );
    }
}

#[test]
fn section_3_8_3_1_qos_3_and_retain_handling_3_are_refused() {
    assert_eq!(refusal(V5, 0x82, "0001 00 0001 'a' 03"), MALFORMED);
    assert_eq!(refusal(V5, 0x82, "0001 00 0001 'a' 30"), MALFORMED);
}

#[test]
fn section_3_8_2_1_2_subscription_identifier_from_1_to_268_435_455() {
    assert_eq!(
        refusal(V5, 0x82, "0001 02 0B 00 0001 'a' 00"),
        PROTOCOL_ERROR
    );
    for (id, value) in [("01", 1), ("FFFFFF7F", 268_435_455)] {
        let body = format!("0001 {:02x} 0B {id} 0001 'a' 00", id.len() / 2 + 1);
        accepted(0x82, &body, |packet| {
            let Packet::Subscribe(subscribe) = packet else {
                unreachable!()
            };
            assert_eq!(subscribe.subscription_id, Some(value));
        });
    }
}

/// Holds 5.0: 3.10.3-2.
#[test]
fn mqtt_3_10_3_2_unsubscribe_holds_at_least_one_filter() {
    assert_eq!(refusal(V5, 0xA2, "0001 00"), MALFORMED);
}

#[test]
fn mqtt_4_7_3_1_filters_are_not_empty() {
    assert_eq!(refusal(V5, 0x82, "0001 00 0000 00"), MALFORMED);
    assert_eq!(refusal(V5, 0xA2, "0001 00 0000"), MALFORMED);
    assert_eq!(refusal(V5, 0xA2, "0001 00 0001 'a' 0000"), MALFORMED);
}

/// Holds 5.0: 3.9.3-2, 3.11.3-2.
#[test]
fn section_3_9_3_and_3_11_3_reason_codes_of_suback_and_unsuback() {
    for (header, codes) in [
        (
            0x90,
            &[
                0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2,
            ][..],
        ),
        (0xB0, &[0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91]),
    ] {
        for code in 0..=255_u8 {
            let data = framed(header, &[0, 1, 0, code]);
            assert_eq!(
                decode(V5, &data).is_ok(),
                codes.contains(&code),
                "{header:02x} {code:02x}"
            );
        }
    }
    assert_eq!(refusal(V5, 0x90, "0001 00"), PROTOCOL_ERROR);
}

#[test]
fn section_3_12_and_3_13_ping_has_no_body() {
    assert_eq!(refusal(V5, 0xC0, "00"), MALFORMED);
    assert_eq!(refusal(V5, 0xD0, "00"), MALFORMED);
}

/// Holds 5.0: 3.14.2-1.
#[test]
fn section_3_14_2_1_short_forms_of_disconnect() {
    let normal = Disconnect::default();
    for body in ["", "00", "00 00"] {
        accepted(0xE0, body, |packet| {
            assert_eq!(packet, Packet::Disconnect(normal.clone()));
        });
    }
    assert_eq!(encoded(V5, &Packet::Disconnect(normal)), bytes("E0 00"));
    let taken_over = Disconnect {
        reason_code: 0x8E,
        ..Disconnect::default()
    };
    assert_eq!(
        encoded(V5, &Packet::Disconnect(taken_over)),
        bytes("E0 01 8E")
    );
}

#[test]
fn section_3_14_2_1_a_peer_that_leaves_may_say_anything() {
    for code in ["01", "05", "87", "FF"] {
        accepts(0xE0, code);
    }
}

/// Holds 5.0: 3.15.2-1.
#[test]
fn mqtt_3_15_2_1_auth_has_its_own_reason_codes() {
    for code in ["01", "17", "80"] {
        assert_eq!(
            refusal(V5, 0xF0, &format!("{code} 04 15 0001 'm'")),
            PROTOCOL_ERROR
        );
    }
    for code in ["00", "18", "19"] {
        accepts(0xF0, &format!("{code} 04 15 0001 'm'"));
    }
}

#[test]
fn section_3_15_2_auth_names_its_method_unless_it_is_empty() {
    accepted(0xF0, "", |packet| {
        assert_eq!(packet, Packet::Auth(Auth::default()));
    });
    assert_eq!(refusal(V5, 0xF0, "18 00"), PROTOCOL_ERROR);
    assert_eq!(refusal(V5, 0xF0, "18"), MALFORMED);
}

#[test]
fn section_4_7_3_a_topic_of_too_many_levels_is_not_valid_here() {
    let deepest = crate::topic::LEVELS_MAX - 1;
    let publish = |slashes: usize| {
        let mut body = (slashes as u16).to_be_bytes().to_vec();
        body.extend(vec![b'/'; slashes]);
        body.push(0);
        framed(0x30, &body)
    };
    assert!(decode(V5, &publish(deepest)).is_ok());
    let error = decode(V5, &publish(deepest + 1)).map(|_| ()).unwrap_err();
    assert_eq!(error.reason_code, TOPIC_NAME_INVALID);
}

#[test]
fn section_4_13_bytes_after_the_last_field_are_malformed() {
    for (header, body) in [
        (0x10, "0004 'MQTT' 05 02 0000 00 0001 'a' 00"),
        (0x20, "00 00 00 00"),
        (0x40, "0001 00 00 00"),
        (0xE0, "00 00 00"),
        (0xF0, "00 04 15 0001 'm' 00"),
    ] {
        assert_eq!(refusal(V5, header, body), MALFORMED, "{header:02x}");
    }
}

#[test]
fn an_error_reads_as_one_line_with_its_clause() {
    let error = frame(&[0x36, 0], PACKET_BYTES_MAX).unwrap_err();
    assert_eq!(
        error.to_string(),
        "MQTT 3.3.1.2: QoS 3 [MQTT-3.3.1-4] (reason code 0x81)"
    );
}
