//! Random packets, the same for the same seed.

use super::super::packet::*;
use super::super::reason;

/// Xorshift64*.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    pub fn coin(&mut self) -> bool {
        self.below(2) == 0
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.coin().then(|| make(self))
    }

    fn list<T>(&mut self, least: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = least + self.below(4);
        (0..count).map(|_| make(self)).collect()
    }
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
    random.next() as u32
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
        payload_format: random.maybe(|random| random.coin().into()),
        message_expiry: random.maybe(long),
        topic_alias: random.maybe(packet_id).filter(|_| !will),
        response_topic: random.maybe(name),
        correlation_data: random.maybe(binary),
        user: random.list(0, pair),
        subscription_ids: if will {
            Vec::new()
        } else {
            random.list(0, variable)
        },
        content_type: random.maybe(text),
        will_delay: random.maybe(long).filter(|_| will),
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
    let named = properties.topic_alias.is_none() || random.coin();
    Publish {
        dup: qos != QoS::AtMostOnce && random.coin(),
        qos,
        retain: random.coin(),
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
        retain: random.coin(),
        properties: if version == Version::V5 {
            publish_properties(random, true)
        } else {
            PublishProperties::default()
        },
    }
}

fn connect(random: &mut Random, version: Version) -> Connect<'static> {
    let v5 = version == Version::V5;
    let username = random.maybe(label);
    let basic = Connect {
        clean_start: !v5 || random.coin(),
        keep_alive_s: random.next() as u16,
        client_id: label(random),
        will: random.maybe(|random| will(random, version)),
        username,
        password: random.maybe(binary).filter(|_| v5 || username.is_some()),
        ..Connect::new(version)
    };
    if !v5 {
        return basic;
    }
    let authentication_method = random.maybe(text);
    Connect {
        session_expiry_s: random.maybe(long),
        receive_maximum: random.maybe(packet_id),
        maximum_packet_size: random.maybe(variable),
        topic_alias_maximum: random.maybe(|random| random.next() as u16),
        request_response_information: random.maybe(Random::coin),
        request_problem_information: random.maybe(Random::coin),
        user: random.list(0, pair),
        authentication_method,
        authentication_data: random
            .maybe(binary)
            .filter(|_| authentication_method.is_some()),
        ..basic
    }
}

fn connack(random: &mut Random, version: Version) -> Connack<'static> {
    if version == Version::V311 {
        let reason_code = random.pick(&[0, 0x84, 0x85, 0x86, 0x87, 0x88]);
        return Connack {
            session_present: reason_code == 0 && random.coin(),
            reason_code,
            ..Connack::default()
        };
    }
    let reason_code = random.pick(&[0, 0x80, 0x8A, 0x8C, 0x95, 0x9D, 0x9F]);
    Connack {
        session_present: reason_code == 0 && random.coin(),
        reason_code,
        session_expiry_s: random.maybe(long),
        receive_maximum: random.maybe(packet_id),
        maximum_qos: random.maybe(|random| random.coin().into()),
        retain_available: random.maybe(Random::coin),
        maximum_packet_size: random.maybe(variable),
        assigned_client_id: random.maybe(text),
        topic_alias_maximum: random.maybe(|random| random.next() as u16),
        reason_string: random.maybe(text),
        user: random.list(0, pair),
        wildcard_subscription_available: random.maybe(Random::coin),
        subscription_ids_available: random.maybe(Random::coin),
        shared_subscription_available: random.maybe(Random::coin),
        server_keep_alive_s: random.maybe(|random| random.next() as u16),
        response_information: random.maybe(text),
        server_reference: random.maybe(text),
        authentication_method: random.maybe(text),
        authentication_data: random.maybe(binary),
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
    let reason_string = random.maybe(text);
    Ack {
        reason_code: random.pick(codes),
        reason_string,
        user: random.list(0, pair),
        ..basic
    }
}

fn subscribe(random: &mut Random, version: Version) -> Subscribe<'static> {
    let v5 = version == Version::V5;
    Subscribe {
        packet_id: packet_id(random),
        subscription_id: random.maybe(variable).filter(|_| v5),
        user: if v5 { random.list(0, pair) } else { Vec::new() },
        filters: random.list(1, |random| {
            let filter = filter(random);
            SubscriptionRequest {
                filter,
                qos: qos(random),
                no_local: v5 && random.coin() && !filter.starts_with("$share"),
                retain_as_published: v5 && random.coin(),
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
            random.list(1, |random| random.pick(codes))
        },
        reason_string: random.maybe(text).filter(|_| v5),
        user: if v5 { random.list(0, pair) } else { Vec::new() },
    }
}

fn disconnect(random: &mut Random, version: Version) -> Disconnect<'static> {
    if version == Version::V311 {
        return Disconnect::default();
    }
    Disconnect {
        reason_code: random.pick(&[0, 4, 0x81, 0x8E]),
        session_expiry_s: random.maybe(long),
        reason_string: random.maybe(text),
        user: random.list(0, pair),
        server_reference: random.maybe(text),
    }
}

fn auth(random: &mut Random) -> Auth<'static> {
    if random.coin() {
        return Auth::default();
    }
    Auth {
        reason_code: random.pick(&[
            reason::SUCCESS,
            reason::CONTINUE_AUTHENTICATION,
            reason::RE_AUTHENTICATE,
        ]),
        method: Some(text(random)),
        data: random.maybe(binary),
        reason_string: random.maybe(text),
        user: random.list(0, pair),
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
            user: if v5 { random.list(0, pair) } else { Vec::new() },
            filters: random.list(1, filter),
        }),
        10 if v5 => Packet::Unsuback(list_ack(random, version, &[0, 0x11, 0x87])),
        10 => Packet::Unsuback(list_ack(random, version, &[])),
        12 => Packet::Pingresp,
        13 => Packet::Disconnect(disconnect(random, version)),
        14 if v5 => Packet::Auth(auth(random)),
        _ => Packet::Pingreq,
    }
}
