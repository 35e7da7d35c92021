//! CONNECT (3.1) and CONNACK (3.2).

use super::publish::write_properties;
use super::writer::{Properties, Writer};
use super::{diagnostics, Detail};
use crate::mqtt::packet::{Connack, Connect, Version, Will};
use crate::mqtt::{property, reason};

pub fn connect(connect: &Connect<'_>, out: &mut Vec<u8>) {
    Writer::packet(0x10, 0, out, |out| {
        out.text("MQTT");
        out.byte(if connect.version == Version::V5 { 5 } else { 4 });
        out.byte(flags(connect));
        out.short(connect.keep_alive_s);
        if connect.version == Version::V5 {
            out.properties(|properties| connect_properties(connect, properties));
        }
        out.text(connect.client_id);
        if let Some(message) = &connect.will {
            will(connect.version, message, out);
        }
        if let Some(username) = connect.username {
            out.text(username);
        }
        if let Some(password) = connect.password {
            out.binary(password);
        }
    });
}

/// Connect Flags (3.1.2.3).
fn flags(connect: &Connect<'_>) -> u8 {
    let will = connect.will.as_ref().map_or(0, |will| {
        1 << 2 | (will.qos as u8) << 3 | u8::from(will.retain) << 5
    });
    will | u8::from(connect.clean_start) << 1
        | u8::from(connect.password.is_some()) << 6
        | u8::from(connect.username.is_some()) << 7
}

fn will(version: Version, will: &Will<'_>, out: &mut Writer<'_>) {
    if version == Version::V5 {
        out.properties(|properties| write_properties(&will.properties, properties));
    }
    out.text(will.topic);
    out.binary(will.payload);
}

fn connect_properties(connect: &Connect<'_>, out: &mut Properties<'_>) {
    out.long(property::SESSION_EXPIRY, connect.session_expiry_s);
    out.short(property::RECEIVE_MAXIMUM, connect.receive_maximum);
    out.long(property::MAXIMUM_PACKET_SIZE, connect.maximum_packet_size);
    out.short(property::TOPIC_ALIAS_MAXIMUM, connect.topic_alias_maximum);
    out.flag(
        property::REQUEST_RESPONSE_INFORMATION,
        connect.request_response_information,
    );
    out.flag(
        property::REQUEST_PROBLEM_INFORMATION,
        connect.request_problem_information,
    );
    out.user(&connect.user);
    out.text(
        property::AUTHENTICATION_METHOD,
        connect.authentication_method,
    );
    out.binary(property::AUTHENTICATION_DATA, connect.authentication_data);
}

/// Appends nothing where 3.1.1 has no return code for the reason.
pub fn connack(version: Version, connack: &Connack<'_>, detail: Detail, out: &mut Vec<u8>) {
    let code = match version {
        Version::V311 => reason::connack_return_code(connack.reason_code),
        Version::V5 => Some(connack.reason_code),
    };
    let Some(code) = code else { return };
    Writer::packet(0x20, 0, out, |out| {
        out.byte(u8::from(connack.session_present));
        out.byte(code);
        if version == Version::V5 {
            out.properties(|properties| connack_properties(connack, detail, properties));
        }
    });
}

fn connack_properties(connack: &Connack<'_>, detail: Detail, out: &mut Properties<'_>) {
    out.long(property::SESSION_EXPIRY, connack.session_expiry_s);
    out.short(property::RECEIVE_MAXIMUM, connack.receive_maximum);
    out.byte(property::MAXIMUM_QOS, connack.maximum_qos);
    out.flag(property::RETAIN_AVAILABLE, connack.retain_available);
    out.long(property::MAXIMUM_PACKET_SIZE, connack.maximum_packet_size);
    out.text(property::ASSIGNED_CLIENT_ID, connack.assigned_client_id);
    out.short(property::TOPIC_ALIAS_MAXIMUM, connack.topic_alias_maximum);
    out.flag(
        property::WILDCARD_AVAILABLE,
        connack.wildcard_subscription_available,
    );
    out.flag(
        property::SUBSCRIPTION_IDS_AVAILABLE,
        connack.subscription_ids_available,
    );
    out.flag(
        property::SHARED_AVAILABLE,
        connack.shared_subscription_available,
    );
    out.short(property::SERVER_KEEP_ALIVE, connack.server_keep_alive_s);
    out.text(property::RESPONSE_INFORMATION, connack.response_information);
    out.text(property::SERVER_REFERENCE, connack.server_reference);
    out.text(
        property::AUTHENTICATION_METHOD,
        connack.authentication_method,
    );
    out.binary(property::AUTHENTICATION_DATA, connack.authentication_data);
    diagnostics(connack.reason_string, &connack.user, detail)(out);
}
