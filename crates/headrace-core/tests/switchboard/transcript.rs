//! What clients receive, as lines: one a packet.

use std::fmt::Write;

use headrace_core::mqtt::decode;
use headrace_core::mqtt::packet::{Packet, Publish, PublishProperties, Version};

/// All packets of `bytes`, which end with a whole one.
pub fn packets(version: Version, bytes: &[u8]) -> Vec<String> {
    let (mut lines, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let frame = decode::frame(&bytes[at..], usize::MAX).unwrap();
        let frame = frame.expect("a whole packet was written");
        lines.push(line(&decode::packet(Some(version), frame).unwrap()));
        at += frame.bytes();
    }
    lines
}

fn line(packet: &Packet<'_>) -> String {
    let mut line = String::new();
    let reason = |code: u8, text: Option<&str>| match (code, text) {
        (0, None) => String::new(),
        (code, None) => format!(" {code:#04x}"),
        (code, Some(text)) => format!(" {code:#04x} {text}"),
    };
    match packet {
        Packet::Connack(connack) => {
            write!(line, "CONNACK {:#04x}", connack.reason_code).unwrap();
            if connack.session_present {
                line += " present";
            }
            if let Some(seconds) = connack.session_expiry_s {
                write!(line, " expiry {seconds}").unwrap();
            }
            if let Some(client_id) = connack.assigned_client_id {
                write!(line, " assigned {client_id}").unwrap();
            }
            if let Some(method) = connack.authentication_method {
                let data = text_of(connack.authentication_data);
                write!(line, " {method}{data}").unwrap();
            }
            if let Some(text) = connack.response_information {
                write!(line, " response {text}").unwrap();
            }
            if let Some(seconds) = connack.server_keep_alive_s {
                write!(line, " keep-alive {seconds}").unwrap();
            }
        }
        Packet::Publish(publish) => line = publish_line(publish),
        Packet::Puback(ack) => {
            line =
                format!("PUBACK {}", ack.packet_id) + &reason(ack.reason_code, ack.reason_string);
        }
        Packet::Pubrec(ack) => {
            line =
                format!("PUBREC {}", ack.packet_id) + &reason(ack.reason_code, ack.reason_string);
        }
        Packet::Pubrel(ack) => {
            line = format!("PUBREL {}", ack.packet_id) + &reason(ack.reason_code, None);
        }
        Packet::Pubcomp(ack) => {
            line = format!("PUBCOMP {}", ack.packet_id) + &reason(ack.reason_code, None);
        }
        Packet::Suback(ack) => {
            line = format!("SUBACK {} {}", ack.packet_id, hex(&ack.reason_codes));
            if let Some(text) = ack.reason_string {
                write!(line, " {text}").unwrap();
            }
        }
        Packet::Unsuback(ack) => {
            line = format!("UNSUBACK {} {}", ack.packet_id, hex(&ack.reason_codes));
        }
        Packet::Pingresp => line.push_str("PINGRESP"),
        Packet::Auth(auth) => {
            let method = auth.method.unwrap_or("");
            line = format!("AUTH {:#04x} {method}", auth.reason_code) + &text_of(auth.data);
        }
        Packet::Disconnect(disconnect) => {
            line = format!("DISCONNECT {:#04x}", disconnect.reason_code);
        }
        other => panic!("a broker does not send {other:?}"),
    }
    line
}

fn text_of(data: Option<&[u8]>) -> String {
    data.map_or(String::new(), |data| {
        format!(" {}", String::from_utf8_lossy(data))
    })
}

fn hex(codes: &[u8]) -> String {
    let codes: Vec<String> = codes.iter().map(|code| format!("{code:#04x}")).collect();
    format!("[{}]", codes.join(" "))
}

fn publish_line(publish: &Publish<'_>) -> String {
    let id = match publish.packet_id {
        0 => String::new(),
        id => format!(" id {id}"),
    };
    let payload = match publish.payload.len() {
        0..=40 => String::from_utf8_lossy(publish.payload).into_owned(),
        bytes => format!("({bytes} bytes)"),
    };
    let retain = if publish.retain { " retain" } else { "" };
    let dup = if publish.dup { " dup" } else { "" };
    let mut line = format!(
        "PUBLISH {} qos {}{id}{retain}{dup}: {payload}",
        publish.topic, publish.qos as u8
    );
    let properties = &mut publish.properties.clone();
    if let Some(alias) = properties.topic_alias.take() {
        write!(line, " alias {alias}").unwrap();
    }
    let mut ids = std::mem::take(&mut properties.subscription_ids);
    if !ids.is_empty() {
        ids.sort_unstable();
        write!(line, " ids {ids:?}").unwrap();
    }
    if let Some(seconds) = properties.message_expiry {
        write!(line, " expiry {seconds}").unwrap();
    }
    if *properties != PublishProperties::default() && properties.message_expiry.is_none() {
        write!(line, " {properties:?}").unwrap();
    }
    line
}
