//! A packet as a line of a trace. Knows packets alone.

use std::fmt::Write;

use super::{TraceLine, Way};
use crate::mqtt::packet::{Ack, Connect, Packet, Publish, Version};

/// Bytes of the text of a line: a SUBSCRIBE may name hundreds of filters.
const TEXT_BYTES_MAX: usize = 1024;

/// What a packet says.
pub(super) fn line_of(way: Way, packet: &Packet<'_>, payload_bytes_max: usize) -> TraceLine {
    let mut line = TraceLine::new(way, name_of(packet));
    match packet {
        Packet::Connect(connect) => line.text = connect_text(connect),
        Packet::Connack(connack) => {
            line.reason_code = Some(connack.reason_code);
            if connack.session_present {
                line.text.push_str("session present");
            }
            add(&mut line.text, connack.reason_string);
        }
        Packet::Publish(publish) => tell_publish(&mut line, publish, payload_bytes_max),
        Packet::Puback(ack) | Packet::Pubrec(ack) | Packet::Pubrel(ack) | Packet::Pubcomp(ack) => {
            tell_ack(&mut line, ack);
        }
        Packet::Subscribe(subscribe) => {
            line.packet_id = subscribe.packet_id;
            for request in &subscribe.filters {
                let text = format!("{} qos {}", request.filter, request.qos as u8);
                add(&mut line.text, Some(&text));
            }
        }
        Packet::Unsubscribe(unsubscribe) => {
            line.packet_id = unsubscribe.packet_id;
            for filter in &unsubscribe.filters {
                add(&mut line.text, Some(filter));
            }
        }
        Packet::Suback(ack) | Packet::Unsuback(ack) => {
            line.packet_id = ack.packet_id;
            line.reason_code = ack.reason_codes.iter().copied().max();
            for code in &ack.reason_codes {
                add(&mut line.text, Some(&format!("{code:#04x}")));
            }
        }
        Packet::Disconnect(disconnect) => {
            line.reason_code = Some(disconnect.reason_code);
            add(&mut line.text, disconnect.reason_string);
        }
        Packet::Auth(auth) => {
            line.reason_code = Some(auth.reason_code);
            add(&mut line.text, auth.method);
        }
        Packet::Pingreq | Packet::Pingresp => {}
    }
    line
}

fn tell_publish(line: &mut TraceLine, publish: &Publish<'_>, payload_bytes_max: usize) {
    line.packet_id = publish.packet_id;
    publish.topic.clone_into(&mut line.topic);
    line.qos = publish.qos as u8;
    (line.retain, line.dup) = (publish.retain, publish.dup);
    let shown = publish.payload.len().min(payload_bytes_max);
    line.payload = publish.payload[..shown].to_vec();
}

fn tell_ack(line: &mut TraceLine, ack: &Ack<'_>) {
    line.packet_id = ack.packet_id;
    line.reason_code = Some(ack.reason_code);
    add(&mut line.text, ack.reason_string);
}

/// Secrets stay out of it.
fn connect_text(connect: &Connect<'_>) -> String {
    let version = match connect.version {
        Version::V311 => "3.1.1",
        Version::V5 => "5.0",
    };
    let clean = if connect.clean_start { ", clean" } else { "" };
    let mut text = format!(
        "MQTT {version}{clean}, keep-alive {} s",
        connect.keep_alive_s
    );
    if let Some(seconds) = connect.session_expiry_s {
        write!(text, ", expiry {seconds} s").expect("a text takes everything");
    }
    if let Some(name) = connect.username {
        add(&mut text, Some(&format!("user {name}")));
    }
    if let Some(will) = &connect.will {
        add(&mut text, Some(&format!("will {}", will.topic)));
    }
    text
}

/// Appends to a list, within the bound.
fn add(text: &mut String, more: Option<&str>) {
    let Some(more) = more else { return };
    let room = TEXT_BYTES_MAX.saturating_sub(text.len() + 2);
    if more.len() > room {
        if !text.ends_with('…') && text.len() <= TEXT_BYTES_MAX {
            text.push_str(", …");
        }
        return;
    }
    if !text.is_empty() && !text.ends_with('…') {
        text.push_str(", ");
    }
    if !text.ends_with('…') {
        text.push_str(more);
    }
}

const fn name_of(packet: &Packet<'_>) -> &'static str {
    match packet {
        Packet::Connect(_) => "CONNECT",
        Packet::Connack(_) => "CONNACK",
        Packet::Publish(_) => "PUBLISH",
        Packet::Puback(_) => "PUBACK",
        Packet::Pubrec(_) => "PUBREC",
        Packet::Pubrel(_) => "PUBREL",
        Packet::Pubcomp(_) => "PUBCOMP",
        Packet::Subscribe(_) => "SUBSCRIBE",
        Packet::Suback(_) => "SUBACK",
        Packet::Unsubscribe(_) => "UNSUBSCRIBE",
        Packet::Unsuback(_) => "UNSUBACK",
        Packet::Pingreq => "PINGREQ",
        Packet::Pingresp => "PINGRESP",
        Packet::Disconnect(_) => "DISCONNECT",
        Packet::Auth(_) => "AUTH",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_bounded_and_says_that_there_is_more() {
        let mut text = String::new();
        for _ in 0..500 {
            add(&mut text, Some("building/+/temperature"));
        }
        assert!(text.len() <= TEXT_BYTES_MAX + 8);
        assert!(text.ends_with(", …"));
        assert_eq!(text.matches('…').count(), 1);
        let mut text = String::new();
        add(&mut text, Some(&"ä".repeat(TEXT_BYTES_MAX)));
        assert_eq!(text, ", …");
    }
}
