//! MQTT 3.1.1, clause by clause, where it differs from 5.0.

use super::super::packet::Version::V311;
use super::super::packet::{Connack, Connect, Disconnect, ListAck, Packet, Version};
use super::super::reason;
use super::{bytes, decode, encoded, framed, refusal};

const MALFORMED: u8 = 0x81;
const PROTOCOL_ERROR: u8 = 0x82;
const CLIENT_ID_NOT_VALID: u8 = 0x85;

fn connect(data: &[u8]) -> Connect<'_> {
    match decode(V311, data) {
        Ok(Packet::Connect(connect)) => *connect,
        other => panic!("{other:?}"),
    }
}

#[test]
fn mqtt_3_1_2_a_connect_of_level_4_is_3_1_1() {
    let data = framed(0x10, &bytes("0004 'MQTT' 04 02 003C 0001 'a'"));
    let expected = Connect {
        clean_start: true,
        keep_alive_s: 60,
        client_id: "a",
        ..Connect::new(Version::V311)
    };
    assert_eq!(connect(&data), expected);
}

#[test]
fn mqtt_3_1_is_served_as_3_1_1() {
    let data = framed(0x10, &bytes("0006 'MQIsdp' 03 03 003C 0001 'a'"));
    assert_eq!(connect(&data).version, V311);
    let data = framed(0x10, &bytes("0006 'MQIsdp' 03 02 003C 0000"));
    let error = decode(V311, &data).unwrap_err();
    assert_eq!(
        (error.reason_code, error.connack),
        (CLIENT_ID_NOT_VALID, Some(V311))
    );
}

#[test]
fn mqtt_3_1_2_2_levels_of_one_name_under_the_other_are_refused_with_return_code_1() {
    for body in [
        "0006 'MQIsdp' 04 02 003C 0001 'a'",
        "0004 'MQTT' 03 02 003C 0001 'a'",
    ] {
        let error = decode(V311, &framed(0x10, &bytes(body)))
            .map(|_| ())
            .unwrap_err();
        assert_eq!(error.connack, Some(V311));
        assert_eq!(reason::connack_return_code(error.reason_code), Some(1));
    }
}

/// Holds 3.1.1: 3.1.2-1, 3.1.2-3.
#[test]
fn mqtt_3_1_2_1_and_3_another_name_and_the_reserved_flag_are_refused() {
    for start in [
        "0004 'MQTU' 04 02",
        "0004 'mqtt' 04 02",
        "0004 'MQTT' 04 03",
    ] {
        let body = format!("{start} 003C 0001 'a'");
        assert_eq!(refusal(V311, 0x10, &body), MALFORMED, "{start}");
    }
}

/// Holds 3.1.1: 3.1.2-9, 3.1.2-11, 3.1.2-13, 3.1.2-14, 3.1.2-15, 3.1.2-18, 3.1.2-19, 3.1.2-20.
/// Holds 3.1.1: 3.1.2-21.
#[test]
fn what_a_connect_of_3_1_1_may_say_of_a_will_and_of_its_user() {
    for (flags, rest, fits) in [
        ("06", "0001 'w' 0001 'm'", true),
        ("06", "0001 'w'", false),
        ("06", "", false),
        ("02", "0001 'w' 0001 'm'", false),
        ("0A", "", false),
        ("12", "", false),
        ("22", "", false),
        ("1E", "0001 'w' 0001 'm'", false),
        ("36", "0001 'w' 0001 'm'", true),
        ("82", "0001 'u'", true),
        ("82", "", false),
        ("82", "0001 'u' 0001 'p'", false),
        ("C2", "0001 'u' 0001 'p'", true),
        ("C2", "0001 'u'", false),
        ("02", "0001 'u'", false),
    ] {
        let body = format!("0004 'MQTT' 04 {flags} 003C 0001 'a' {rest}");
        let data = framed(0x10, &bytes(&body));
        assert_eq!(decode(V311, &data).is_ok(), fits, "{flags} {rest}");
    }
}

/// Holds 3.1.1: 3.8.3-3, 3.10.3-2.
#[test]
fn mqtt_3_8_3_3_and_3_10_3_2_there_is_at_least_one_filter() {
    assert_eq!(refusal(V311, 0x82, "0001"), MALFORMED);
    assert_eq!(refusal(V311, 0xA2, "0001"), MALFORMED);
}

/// Holds 3.1.1: 3.1.2-22.
#[test]
fn mqtt_3_1_2_22_a_password_needs_a_user_name() {
    assert_eq!(
        refusal(V311, 0x10, "0004 'MQTT' 04 42 003C 0001 'a' 0001 'p'"),
        MALFORMED
    );
}

/// Holds 3.1.1: 3.1.3-7, 3.1.3-8.
#[test]
fn mqtt_3_1_3_7_and_8_an_empty_client_identifier_needs_a_clean_session() {
    let data = framed(0x10, &bytes("0004 'MQTT' 04 02 003C 0000"));
    assert_eq!(connect(&data).client_id, "");
    let data = framed(0x10, &bytes("0004 'MQTT' 04 00 003C 0000"));
    let error = decode(V311, &data).unwrap_err();
    assert_eq!(error.connack, Some(V311));
    assert_eq!(reason::connack_return_code(error.reason_code), Some(2));
}

/// Holds 3.1.1: 3.1.4-1.
#[test]
fn mqtt_4_8_0_1_a_malformed_connect_is_closed_without_an_answer() {
    for body in [
        "0004 'MQTT' 04 03 003C 0001 'a'",
        "0004 'MQTT' 04 02 003C 0001 'a' 00",
    ] {
        let data = framed(0x10, &bytes(body));
        assert_eq!(decode(V311, &data).unwrap_err().connack, None, "{body}");
    }
}

/// Holds 3.1.1: 3.2.2-6.
#[test]
fn mqtt_3_2_2_3_connack_has_six_return_codes() {
    for (reason_code, return_code) in [
        (reason::SUCCESS, 0),
        (reason::UNSUPPORTED_PROTOCOL_VERSION, 1),
        (reason::CLIENT_ID_NOT_VALID, 2),
        (reason::SERVER_UNAVAILABLE, 3),
        (reason::SERVER_BUSY, 3),
        (reason::BAD_USER_NAME_OR_PASSWORD, 4),
        (reason::NOT_AUTHORIZED, 5),
        (reason::BANNED, 5),
    ] {
        let connack = Connack {
            reason_code,
            reason_string: Some("not written"),
            receive_maximum: Some(1),
            ..Connack::default()
        };
        let data = encoded(V311, &Packet::Connack(Box::new(connack)));
        assert_eq!(data, [0x20, 2, 0, return_code]);
    }
    assert_eq!(refusal(V311, 0x20, "00 06"), PROTOCOL_ERROR);
}

/// Holds 3.1.1: 3.2.2-6.
#[test]
fn mqtt_3_2_2_6_without_a_fitting_return_code_nothing_is_sent() {
    let connack = Connack {
        reason_code: reason::MALFORMED_PACKET,
        ..Connack::default()
    };
    assert!(encoded(V311, &Packet::Connack(Box::new(connack))).is_empty());
}

/// Holds 3.1.1: 3.8.3-4.
#[test]
fn mqtt_3_8_3_4_the_upper_six_bits_of_the_requested_qos_are_0() {
    for options in ["03", "04", "08", "10", "80"] {
        assert_eq!(
            refusal(V311, 0x82, &format!("0001 0001 'a' {options}")),
            MALFORMED
        );
    }
}

/// Holds 3.1.1: 3.9.3-2.
#[test]
fn mqtt_3_9_3_2_every_failure_is_0x80() {
    let ack = ListAck {
        packet_id: 1,
        reason_codes: vec![0, 1, 2, 0x87, 0x9E, 0xA2],
        user: vec![("not", "written")],
        ..ListAck::default()
    };
    let data = encoded(V311, &Packet::Suback(ack));
    assert_eq!(data, bytes("90 08 0001 00 01 02 80 80 80"));
    assert_eq!(refusal(V311, 0x90, "0001 87"), PROTOCOL_ERROR);
}

#[test]
fn mqtt_3_11_unsuback_has_no_payload() {
    let ack = ListAck {
        packet_id: 1,
        reason_codes: vec![0, 0x11],
        ..ListAck::default()
    };
    assert_eq!(encoded(V311, &Packet::Unsuback(ack)), bytes("B0 02 0001"));
    assert_eq!(refusal(V311, 0xB0, "0001 00"), MALFORMED);
}

/// Holds 3.1.1: 3.3.2-1.
#[test]
fn mqtt_3_3_2_1_a_publish_needs_a_topic_and_has_no_properties() {
    assert_eq!(refusal(V311, 0x30, "0000"), MALFORMED);
    let data = framed(0x30, &bytes("0001 'a' 00 'x'"));
    let Ok(Packet::Publish(publish)) = decode(V311, &data) else {
        panic!("a publish")
    };
    assert_eq!(publish.payload, [0, b'x']);
}

#[test]
fn mqtt_3_4_acknowledgements_are_a_packet_identifier_alone() {
    for header in [0x40, 0x50, 0x62, 0x70] {
        assert_eq!(refusal(V311, header, "0001 00"), MALFORMED);
        assert_eq!(refusal(V311, header, "00"), MALFORMED);
    }
}

#[test]
fn mqtt_3_14_disconnect_is_empty() {
    assert_eq!(refusal(V311, 0xE0, "00"), MALFORMED);
    let disconnect = Disconnect {
        reason_code: 0x8E,
        reason_string: Some("not written"),
        ..Disconnect::default()
    };
    assert_eq!(
        encoded(V311, &Packet::Disconnect(disconnect)),
        bytes("E0 00")
    );
}

#[test]
fn mqtt_2_2_1_packet_type_15_is_reserved() {
    assert_eq!(refusal(V311, 0xF0, ""), MALFORMED);
}

/// Holds 3.1.1: 4.8.0-1.
#[test]
fn mqtt_3_1_1_4_8_0_1_a_filter_that_breaks_the_rules_ends_the_connection() {
    for filter in ["0002 'a+'", "0003 '#/a'", "0008 '$share/g'"] {
        assert_eq!(refusal(V311, 0x82, &format!("0001 {filter} 00")), MALFORMED);
        assert_eq!(refusal(V311, 0xA2, &format!("0001 {filter}")), MALFORMED);
    }
}
