//! MQTT 5.0, chapters 3.1 and 3.2: CONNECT and CONNACK, clause by clause.

use super::super::decode::{frame, packet};
use super::super::packet::Version::{V311, V5};
use super::super::packet::{Connack, Packet, PublishProperties, QoS, Will};
use super::{bytes, decode, encoded, framed, refusal, PACKET_BYTES_MAX};

const MALFORMED: u8 = 0x81;
const PROTOCOL_ERROR: u8 = 0x82;
const UNSUPPORTED_VERSION: u8 = 0x84;
const CLIENT_ID_NOT_VALID: u8 = 0x85;
const PACKET_TOO_LARGE: u8 = 0x95;

fn accepts(header: u8, body: &str) {
    let data = framed(header, &bytes(body));
    assert!(decode(V5, &data).is_ok(), "{body}");
}

/// Holds 5.0: 3.1.0-1.
#[test]
fn mqtt_3_1_0_1_the_first_packet_is_a_connect() {
    for data in ["C0 00", "E0 00", "30 04 0001 'a' 00", "20 02 00 00"] {
        let data = bytes(data);
        let frame = frame(&data, PACKET_BYTES_MAX).unwrap().unwrap();
        assert_eq!(packet(None, frame).unwrap_err().reason_code, PROTOCOL_ERROR);
    }
}

/// Holds 5.0: 3.1.2-1.
#[test]
fn mqtt_3_1_2_1_another_protocol_name_is_closed_without_an_answer() {
    for name in [
        "0004 'MQTU'",
        "0003 'MQT'",
        "0005 'MQTTT'",
        "0000",
        "0004 'mqtt'",
    ] {
        let data = framed(0x10, &bytes(&format!("{name} 05 02 0000 00 0001 'a'")));
        let error = decode(V5, &data).unwrap_err();
        assert_eq!(
            (error.reason_code, error.connack),
            (MALFORMED, None),
            "{name}"
        );
    }
}

/// Holds 5.0: 3.1.2-2.
/// Holds 3.1.1: 3.1.2-2.
#[test]
fn mqtt_3_1_2_2_another_level_is_answered_in_a_version_that_the_client_reads() {
    // 0x84 is a bridge that speaks 3.1.1 and marks itself by the top bit.
    for (level, answer) in [
        (0, V311),
        (3, V311),
        (6, V5),
        (0x84, V311),
        (0x85, V5),
        (255, V5),
    ] {
        let data = framed(
            0x10,
            &bytes(&format!("0004 'MQTT' {level:02x} 02 0000 00 0001 'a'")),
        );
        let error = decode(V5, &data).unwrap_err();
        assert_eq!(error.reason_code, UNSUPPORTED_VERSION, "{level}");
        assert_eq!(error.connack, Some(answer), "{level}");
        let refused = Connack {
            reason_code: UNSUPPORTED_VERSION,
            ..Connack::default()
        };
        let expected = if answer == V5 {
            "20 03 00 84 00"
        } else {
            "20 02 00 01"
        };
        assert_eq!(
            encoded(answer, &Packet::Connack(Box::new(refused))),
            bytes(expected)
        );
    }
}

/// Holds 5.0: 3.1.2-3.
#[test]
fn mqtt_3_1_2_3_the_reserved_connect_flag_is_0() {
    assert_eq!(
        refusal(V5, 0x10, "0004 'MQTT' 05 03 0000 00 0001 'a'"),
        MALFORMED
    );
}

/// Holds 5.0: 3.1.2-9.
#[test]
fn mqtt_3_1_2_9_a_will_flag_brings_topic_and_payload() {
    assert_eq!(
        refusal(V5, 0x10, "0004 'MQTT' 05 06 0000 00 0001 'a'"),
        MALFORMED
    );
    assert_eq!(
        refusal(V5, 0x10, "0004 'MQTT' 05 06 0000 00 0001 'a' 00 0001 'w'"),
        MALFORMED
    );
    for (flags, qos, retain) in [
        ("06", QoS::AtMostOnce, false),
        ("2E", QoS::AtLeastOnce, true),
        ("16", QoS::ExactlyOnce, false),
    ] {
        let properties = "05 18 00000007";
        let body =
            format!("0004 'MQTT' 05 {flags} 0000 00 0001 'a' {properties} 0001 'w' 0001 'p'");
        let data = framed(0x10, &bytes(&body));
        let Ok(Packet::Connect(connect)) = decode(V5, &data) else {
            panic!("{flags} is refused");
        };
        let will = Will {
            topic: "w",
            payload: b"p",
            qos,
            retain,
            properties: PublishProperties {
                will_delay: Some(7),
                ..PublishProperties::default()
            },
        };
        assert_eq!(connect.will, Some(will));
    }
}

/// Holds 5.0: 3.1.2-11, 3.1.2-13.
#[test]
fn mqtt_3_1_2_11_and_13_no_will_qos_or_will_retain_without_a_will() {
    for flags in ["0A", "12", "22"] {
        let body = format!("0004 'MQTT' 05 {flags} 0000 00 0001 'a'");
        assert_eq!(refusal(V5, 0x10, &body), MALFORMED, "{flags}");
    }
}

/// Holds 5.0: 3.1.2-12.
#[test]
fn mqtt_3_1_2_12_will_qos_3_is_malformed() {
    let body = "0004 'MQTT' 05 1E 0000 00 0001 'a' 00 0001 'w' 0000";
    assert_eq!(refusal(V5, 0x10, body), MALFORMED);
}

/// Holds 5.0: 3.1.2-16, 3.1.2-17, 3.1.2-18, 3.1.2-19.
#[test]
fn mqtt_3_1_2_16_to_19_user_name_and_password_come_as_the_flags_say() {
    for (flags, rest, fits) in [
        ("82", "0001 'u'", true),
        ("82", "", false),
        ("42", "0001 'p'", true),
        ("C2", "0001 'u' 0001 'p'", true),
        ("C2", "0001 'u'", false),
        ("02", "0001 'u'", false),
        ("82", "0001 'u' 0001 'p'", false),
    ] {
        let data = framed(
            0x10,
            &bytes(&format!("0004 'MQTT' 05 {flags} 0000 00 0001 'a' {rest}")),
        );
        assert_eq!(decode(V5, &data).is_ok(), fits, "{flags} {rest}");
    }
}

#[test]
fn section_3_1_2_11_3_receive_maximum_0_is_a_protocol_error() {
    assert_eq!(
        refusal(V5, 0x10, "0004 'MQTT' 05 02 0000 03 21 0000 0001 'a'"),
        PROTOCOL_ERROR
    );
}

#[test]
fn section_3_1_2_11_4_maximum_packet_size_0_is_a_protocol_error() {
    let body = "0004 'MQTT' 05 02 0000 05 27 00000000 0001 'a'";
    assert_eq!(refusal(V5, 0x10, body), PROTOCOL_ERROR);
}

#[test]
fn section_3_1_2_11_4_a_packet_above_the_maximum_is_refused_before_its_body() {
    let start = bytes("30 09");
    assert_eq!(frame(&start, 11), Ok(None));
    assert_eq!(frame(&start, 10).unwrap_err().reason_code, PACKET_TOO_LARGE);
    let largest = bytes("30 FFFFFF7F");
    let error = frame(&largest, PACKET_BYTES_MAX).unwrap_err();
    assert_eq!(error.reason_code, PACKET_TOO_LARGE);
}

#[test]
fn section_3_1_2_11_10_authentication_data_needs_a_method() {
    let body = "0004 'MQTT' 05 02 0000 04 16 0001 'd' 0001 'a'";
    assert_eq!(refusal(V5, 0x10, body), PROTOCOL_ERROR);
}

/// Holds 5.0: 3.1.3-4, 3.1.3-8.
#[test]
fn mqtt_3_1_3_4_a_client_identifier_that_is_no_string_is_not_valid() {
    for id in ["0001 00", "0003 EDA080"] {
        let data = framed(0x10, &bytes(&format!("0004 'MQTT' 05 02 0000 00 {id}")));
        let error = decode(V5, &data).unwrap_err();
        assert_eq!(
            (error.reason_code, error.connack),
            (CLIENT_ID_NOT_VALID, Some(V5)),
            "{id}"
        );
    }
}

#[test]
fn mqtt_3_1_3_6_the_client_identifier_may_be_empty() {
    accepts(0x10, "0004 'MQTT' 05 00 0000 00 0000");
}

/// Holds 5.0: 3.1.3-11.
#[test]
fn mqtt_3_1_3_11_the_will_topic_is_a_topic_name() {
    for topic in ["0000", "0001 '+'", "0003 'a/#'", "0001 00", "0001 80"] {
        let body = format!("0004 'MQTT' 05 06 0000 00 0001 'a' 00 {topic} 0000");
        assert_eq!(refusal(V5, 0x10, &body), MALFORMED, "{topic}");
    }
}

/// Holds 5.0: 3.1.4-1.
#[test]
fn mqtt_3_1_4_1_a_connect_that_is_malformed_may_be_answered() {
    let data = framed(0x10, &bytes("0004 'MQTT' 05 02 0000 00 0001 'a' FF"));
    assert_eq!(decode(V5, &data).unwrap_err().connack, Some(V5));
}

/// Holds 5.0: 3.2.2-1.
#[test]
fn mqtt_3_2_2_1_acknowledge_flags_are_reserved() {
    for flags in ["02", "80", "03"] {
        assert_eq!(refusal(V5, 0x20, &format!("{flags} 00 00")), MALFORMED);
    }
}

/// Holds 5.0: 3.2.2-6.
#[test]
fn mqtt_3_2_2_6_a_refusal_has_no_session() {
    assert_eq!(refusal(V5, 0x20, "01 80 00"), PROTOCOL_ERROR);
    accepts(0x20, "01 00 00");
}

/// Holds 5.0: 3.2.2-8.
#[test]
fn mqtt_3_2_2_8_connack_has_its_own_reason_codes() {
    for code in ["01", "8B", "8E", "91", "9E", "FF"] {
        assert_eq!(
            refusal(V5, 0x20, &format!("00 {code} 00")),
            PROTOCOL_ERROR,
            "{code}"
        );
    }
}
