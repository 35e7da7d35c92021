//! Random packets, the same for the same seed.

use super::super::packet::*;
use super::super::reason;
use crate::testing::Random;

fn maybe<T>(random: &mut Random, make: impl FnOnce(&mut Random) -> T) -> Option<T> {
    coin(random).then(|| make(random))
}

fn list<T>(random: &mut Random, least: usize, mut make: impl FnMut(&mut Random) -> T) -> Vec<T> {
    let count = least + random.below(4);
    (0..count).map(|_| make(random)).collect()
}

fn coin(random: &mut Random) -> bool {
    random.chance(50)
}

/// A string with its own memory: packets borrow, and a test has no buffer to borrow from.
fn text(random: &mut Random) -> &'static str {
    const TEXTS: [&str; 8] = [
        "",
        "a",
        "sensor/1",
        "é",
        "\u{FEFF}bom",
        "\u{1}\u{7F}\n",
        "温度",
        "😀 and more than a few",
    ];
    random.pick(&TEXTS)
}

/// A text that may name a client or a user.
fn label(random: &mut Random) -> &'static str {
    loop {
        let label = text(random);
        if !label.contains(char::is_control) {
            return label;
        }
    }
}

fn name(random: &mut Random) -> &'static str {
    const NAMES: [&str; 6] = [
        "a",
        "/",
        "dcgm/node-1/GPU-0/power",
        "$SYS/x",
        "é/温度",
        "a//b/",
    ];
    random.pick(&NAMES)
}

fn filter(random: &mut Random) -> &'static str {
    const FILTERS: [&str; 6] = ["#", "+", "a/+/b/#", "$share/g/a/#", "a", "dcgm/#"];
    random.pick(&FILTERS)
}

fn binary(random: &mut Random) -> &'static [u8] {
    const SIZES: [usize; 8] = [0, 1, 2, 100, 127, 128, 300, 20_000];
    static BYTES: [u8; 20_000] = {
        let mut bytes = [0; 20_000];
        let mut index = 0;
        while index < bytes.len() {
            bytes[index] = (index * 31) as u8;
            index += 1;
        }
        bytes
    };
    &BYTES[..random.pick(&SIZES)]
}

fn pair(random: &mut Random) -> (&'static str, &'static str) {
    (text(random), text(random))
}

fn packet_id(random: &mut Random) -> u16 {
    1 + random.below(65_535) as u16
}

fn long(random: &mut Random) -> u32 {
    random.bits() as u32
}

fn variable(random: &mut Random) -> u32 {
    random.pick(&[
        1,
        127,
        128,
        16_383,
        16_384,
        2_097_151,
        2_097_152,
        268_435_455,
    ])
}

fn qos(random: &mut Random) -> QoS {
    random.pick(&[QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce])
}

fn publish_properties(random: &mut Random, will: bool) -> PublishProperties<'static> {
    PublishProperties {
        payload_format: maybe(random, |random| coin(random).into()),
        message_expiry: maybe(random, long),
        topic_alias: maybe(random, packet_id).filter(|_| !will),
        response_topic: maybe(random, name),
        correlation_data: maybe(random, binary),
        user: list(random, 0, pair),
        subscription_ids: if will {
            Vec::new()
        } else {
            list(random, 0, variable)
        },
        content_type: maybe(random, text),
        will_delay: maybe(random, long).filter(|_| will),
    }
}

fn publish(random: &mut Random, version: Version) -> Publish<'static> {
    let v5 = version == Version::V5;
    let qos = qos(random);
    let properties = if v5 {
        publish_properties(random, false)
    } else {
        PublishProperties::default()
    };
    let named = properties.topic_alias.is_none() || coin(random);
    Publish {
        dup: qos != QoS::AtMostOnce && coin(random),
        qos,
        retain: coin(random),
        topic: if named { name(random) } else { "" },
        packet_id: if qos == QoS::AtMostOnce {
            0
        } else {
            packet_id(random)
        },
        properties,
        payload: binary(random),
    }
}

fn will(random: &mut Random, version: Version) -> Will<'static> {
    Will {
        topic: name(random),
        payload: binary(random),
        qos: qos(random),
        retain: coin(random),
        properties: if version == Version::V5 {
            publish_properties(random, true)
        } else {
            PublishProperties::default()
        },
    }
}

fn connect(random: &mut Random, version: Version) -> Connect<'static> {
    let v5 = version == Version::V5;
    let username = maybe(random, label);
    let basic = Connect {
        clean_start: !v5 || coin(random),
        keep_alive_s: random.bits() as u16,
        client_id: label(random),
        will: maybe(random, |random| will(random, version)),
        username,
        password: maybe(random, binary).filter(|_| v5 || username.is_some()),
        ..Connect::new(version)
    };
    if !v5 {
        return basic;
    }
    let authentication_method = maybe(random, text);
    Connect {
        session_expiry_s: maybe(random, long),
        receive_maximum: maybe(random, packet_id),
        maximum_packet_size: maybe(random, variable),
        topic_alias_maximum: maybe(random, |random| random.bits() as u16),
        request_response_information: maybe(random, coin),
        request_problem_information: maybe(random, coin),
        user: list(random, 0, pair),
        authentication_method,
        authentication_data: maybe(random, binary).filter(|_| authentication_method.is_some()),
        ..basic
    }
}

fn connack(random: &mut Random, version: Version) -> Connack<'static> {
    if version == Version::V311 {
        let reason_code = random.pick(&[0, 0x84, 0x85, 0x86, 0x87, 0x88]);
        return Connack {
            session_present: reason_code == 0 && coin(random),
            reason_code,
            ..Connack::default()
        };
    }
    let reason_code = random.pick(&[0, 0x80, 0x8A, 0x8C, 0x95, 0x9D, 0x9F]);
    Connack {
        session_present: reason_code == 0 && coin(random),
        reason_code,
        session_expiry_s: maybe(random, long),
        receive_maximum: maybe(random, packet_id),
        maximum_qos: maybe(random, |random| coin(random).into()),
        retain_available: maybe(random, coin),
        maximum_packet_size: maybe(random, variable),
        assigned_client_id: maybe(random, text),
        topic_alias_maximum: maybe(random, |random| random.bits() as u16),
        reason_string: maybe(random, text),
        user: list(random, 0, pair),
        wildcard_subscription_available: maybe(random, coin),
        subscription_ids_available: maybe(random, coin),
        shared_subscription_available: maybe(random, coin),
        server_keep_alive_s: maybe(random, |random| random.bits() as u16),
        response_information: maybe(random, text),
        server_reference: maybe(random, text),
        authentication_method: maybe(random, text),
        authentication_data: maybe(random, binary),
    }
}

fn ack(random: &mut Random, version: Version, codes: &[u8]) -> Ack<'static> {
    let basic = Ack {
        packet_id: packet_id(random),
        ..Ack::default()
    };
    if version == Version::V311 {
        return basic;
    }
    let reason_string = maybe(random, text);
    Ack {
        reason_code: random.pick(codes),
        reason_string,
        user: list(random, 0, pair),
        ..basic
    }
}

fn subscribe(random: &mut Random, version: Version) -> Subscribe<'static> {
    let v5 = version == Version::V5;
    Subscribe {
        packet_id: packet_id(random),
        subscription_id: maybe(random, variable).filter(|_| v5),
        user: if v5 {
            list(random, 0, pair)
        } else {
            Vec::new()
        },
        filters: list(random, 1, |random| {
            let filter = filter(random);
            SubscriptionRequest {
                filter,
                qos: qos(random),
                no_local: v5 && coin(random) && !filter.starts_with("$share"),
                retain_as_published: v5 && coin(random),
                retain_handling: if v5 { random.below(3) as u8 } else { 0 },
            }
        }),
    }
}

fn list_ack(random: &mut Random, version: Version, codes: &[u8]) -> ListAck<'static> {
    let v5 = version == Version::V5;
    ListAck {
        packet_id: packet_id(random),
        reason_codes: if codes.is_empty() {
            Vec::new()
        } else {
            list(random, 1, |random| random.pick(codes))
        },
        reason_string: maybe(random, text).filter(|_| v5),
        user: if v5 {
            list(random, 0, pair)
        } else {
            Vec::new()
        },
    }
}

fn disconnect(random: &mut Random, version: Version) -> Disconnect<'static> {
    if version == Version::V311 {
        return Disconnect::default();
    }
    Disconnect {
        reason_code: random.pick(&[0, 4, 0x81, 0x8E]),
        session_expiry_s: maybe(random, long),
        reason_string: maybe(random, text),
        user: list(random, 0, pair),
        server_reference: maybe(random, text),
    }
}

fn auth(random: &mut Random) -> Auth<'static> {
    if coin(random) {
        return Auth::default();
    }
    Auth {
        reason_code: random.pick(&[
            reason::SUCCESS,
            reason::CONTINUE_AUTHENTICATION,
            reason::RE_AUTHENTICATE,
        ]),
        method: Some(text(random)),
        data: maybe(random, binary),
        reason_string: maybe(random, text),
        user: list(random, 0, pair),
    }
}

/// How many kinds of packets [`any`] makes.
pub const KINDS: usize = 15;

/// A valid packet of the given kind, 0 to 14.
pub fn any(random: &mut Random, version: Version, kind: usize) -> Packet<'static> {
    let v5 = version == Version::V5;
    match kind {
        0 => Packet::Connect(Box::new(connect(random, version))),
        1 => Packet::Connack(Box::new(connack(random, version))),
        2 => Packet::Publish(publish(random, version)),
        3 => Packet::Puback(ack(random, version, &[0, 0x10, 0x80, 0x99])),
        4 => Packet::Pubrec(ack(random, version, &[0, 0x10, 0x91, 0x97])),
        5 => Packet::Pubrel(ack(random, version, &[0, 0x92])),
        6 => Packet::Pubcomp(ack(random, version, &[0, 0x92])),
        7 => Packet::Subscribe(subscribe(random, version)),
        8 if v5 => Packet::Suback(list_ack(random, version, &[0, 1, 2, 0x80, 0x9E, 0xA2])),
        8 => Packet::Suback(list_ack(random, version, &[0, 1, 2, 0x80])),
        9 => Packet::Unsubscribe(Unsubscribe {
            packet_id: packet_id(random),
            user: if v5 {
                list(random, 0, pair)
            } else {
                Vec::new()
            },
            filters: list(random, 1, filter),
        }),
        10 if v5 => Packet::Unsuback(list_ack(random, version, &[0, 0x11, 0x87])),
        10 => Packet::Unsuback(list_ack(random, version, &[])),
        12 => Packet::Pingresp,
        13 => Packet::Disconnect(disconnect(random, version)),
        14 if v5 => Packet::Auth(auth(random)),
        _ => Packet::Pingreq,
    }
}
