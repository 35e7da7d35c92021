//! The packet model, borrowed from the bytes that it was read from.
//!
//! Nothing here outlives the read buffer: who keeps a packet copies what it keeps. Sources:
//! MQTT 5.0 (OASIS, 2019-03-07) chapters 2 and 3, MQTT 3.1.1 (2014-10-29).

/// Protocol version of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// 3.1.1 (level 4), and 3.1 (`MQIsdp`, level 3), which is served alike.
    V311,
    /// 5.0 (level 5).
    V5,
}

/// Quality of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum QoS {
    /// At most once.
    #[default]
    AtMostOnce = 0,
    /// At least once.
    AtLeastOnce = 1,
    /// Exactly once.
    ExactlyOnce = 2,
}

/// Properties of PUBLISH and of a will (MQTT 5.0 3.3.2.3, 3.1.3.2). Empty for 3.1.1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishProperties<'a> {
    /// 0x01: 0 bytes, 1 UTF-8.
    pub payload_format: Option<u8>,
    /// 0x02, seconds.
    pub message_expiry: Option<u32>,
    /// 0x23 (never in a will).
    pub topic_alias: Option<u16>,
    /// 0x08.
    pub response_topic: Option<&'a str>,
    /// 0x09.
    pub correlation_data: Option<&'a [u8]>,
    /// 0x26, in order, repeats allowed.
    pub user: Vec<(&'a str, &'a str)>,
    /// 0x0B; from a broker, one for each matching subscription that has one.
    pub subscription_ids: Vec<u32>,
    /// 0x03.
    pub content_type: Option<&'a str>,
    /// 0x18, seconds; only in a will.
    pub will_delay: Option<u32>,
}

/// PUBLISH (3.3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publish<'a> {
    /// A re-delivery.
    pub dup: bool,
    /// Quality of service.
    pub qos: QoS,
    /// RETAIN flag.
    pub retain: bool,
    /// Topic name; empty with a topic alias.
    pub topic: &'a str,
    /// Packet id, 1 to 65,535; 0 at `QoS` 0.
    pub packet_id: u16,
    /// Properties.
    pub properties: PublishProperties<'a>,
    /// Application message.
    pub payload: &'a [u8],
}

/// The will of a CONNECT (3.1.3.2 to 3.1.3.4).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Will<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Message.
    pub payload: &'a [u8],
    /// Quality of service.
    pub qos: QoS,
    /// Whether the broker retains it.
    pub retain: bool,
    /// Properties.
    pub properties: PublishProperties<'a>,
}

/// CONNECT (3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect<'a> {
    /// Protocol version.
    pub version: Version,
    /// Clean Session (3.1.1) or Clean Start (5.0).
    pub clean_start: bool,
    /// Keep alive, seconds; 0 is none.
    pub keep_alive_s: u16,
    /// Client identifier, may be empty.
    pub client_id: &'a str,
    /// Will.
    pub will: Option<Will<'a>>,
    /// User name.
    pub username: Option<&'a str>,
    /// Password.
    pub password: Option<&'a [u8]>,
    /// 0x11, seconds.
    pub session_expiry_s: Option<u32>,
    /// 0x21, 1 to 65,535.
    pub receive_maximum: Option<u16>,
    /// 0x27, bytes, never 0.
    pub maximum_packet_size: Option<u32>,
    /// 0x22.
    pub topic_alias_maximum: Option<u16>,
    /// 0x19.
    pub request_response_information: Option<bool>,
    /// 0x17.
    pub request_problem_information: Option<bool>,
    /// 0x26.
    pub user: Vec<(&'a str, &'a str)>,
    /// 0x15.
    pub authentication_method: Option<&'a str>,
    /// 0x16.
    pub authentication_data: Option<&'a [u8]>,
}

impl Connect<'_> {
    /// A CONNECT of `version` with every other field empty.
    pub const fn new(version: Version) -> Self {
        Self {
            version,
            clean_start: false,
            keep_alive_s: 0,
            client_id: "",
            will: None,
            username: None,
            password: None,
            session_expiry_s: None,
            receive_maximum: None,
            maximum_packet_size: None,
            topic_alias_maximum: None,
            request_response_information: None,
            request_problem_information: None,
            user: Vec::new(),
            authentication_method: None,
            authentication_data: None,
        }
    }
}

/// CONNACK (3.2). Fields of 5.0 are not written to a 3.1.1 connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connack<'a> {
    /// Session Present.
    pub session_present: bool,
    /// Reason code of 5.0; the encoder maps it for 3.1.1.
    pub reason_code: u8,
    /// 0x11, seconds.
    pub session_expiry_s: Option<u32>,
    /// 0x21.
    pub receive_maximum: Option<u16>,
    /// 0x24: 0 or 1 where 2 is not served.
    pub maximum_qos: Option<u8>,
    /// 0x25.
    pub retain_available: Option<bool>,
    /// 0x27, bytes.
    pub maximum_packet_size: Option<u32>,
    /// 0x12.
    pub assigned_client_id: Option<&'a str>,
    /// 0x22.
    pub topic_alias_maximum: Option<u16>,
    /// 0x1F.
    pub reason_string: Option<&'a str>,
    /// 0x26.
    pub user: Vec<(&'a str, &'a str)>,
    /// 0x28.
    pub wildcard_subscription_available: Option<bool>,
    /// 0x29.
    pub subscription_ids_available: Option<bool>,
    /// 0x2A.
    pub shared_subscription_available: Option<bool>,
    /// 0x13, seconds.
    pub server_keep_alive_s: Option<u16>,
    /// 0x1A.
    pub response_information: Option<&'a str>,
    /// 0x1C.
    pub server_reference: Option<&'a str>,
    /// 0x15.
    pub authentication_method: Option<&'a str>,
    /// 0x16.
    pub authentication_data: Option<&'a [u8]>,
}

/// PUBACK, PUBREC, PUBREL or PUBCOMP (3.4 to 3.7).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ack<'a> {
    /// Packet id, never 0.
    pub packet_id: u16,
    /// Reason code; 0 for 3.1.1.
    pub reason_code: u8,
    /// 0x1F.
    pub reason_string: Option<&'a str>,
    /// 0x26.
    pub user: Vec<(&'a str, &'a str)>,
}

/// One entry of SUBSCRIBE (3.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionRequest<'a> {
    /// Topic filter, `$share/…` included, as sent; valid UTF-8, not checked further.
    pub filter: &'a str,
    /// Highest quality of service asked for.
    pub qos: QoS,
    /// Never send the client its own publishes.
    pub no_local: bool,
    /// Keep the RETAIN flag as published.
    pub retain_as_published: bool,
    /// 0, 1 or 2.
    pub retain_handling: u8,
}

/// SUBSCRIBE (3.8).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscribe<'a> {
    /// Packet id, never 0.
    pub packet_id: u16,
    /// 0x0B, 1 to 268,435,455.
    pub subscription_id: Option<u32>,
    /// 0x26.
    pub user: Vec<(&'a str, &'a str)>,
    /// At least one.
    pub filters: Vec<SubscriptionRequest<'a>>,
}

/// UNSUBSCRIBE (3.10).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsubscribe<'a> {
    /// Packet id, never 0.
    pub packet_id: u16,
    /// 0x26.
    pub user: Vec<(&'a str, &'a str)>,
    /// At least one.
    pub filters: Vec<&'a str>,
}

/// SUBACK or UNSUBACK (3.9, 3.11).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListAck<'a> {
    /// Packet id of the request.
    pub packet_id: u16,
    /// One reason code of 5.0 a filter; the encoder maps it for 3.1.1.
    pub reason_codes: Vec<u8>,
    /// 0x1F.
    pub reason_string: Option<&'a str>,
    /// 0x26.
    pub user: Vec<(&'a str, &'a str)>,
}

/// DISCONNECT (3.14).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Disconnect<'a> {
    /// Reason code; 0 for 3.1.1.
    pub reason_code: u8,
    /// 0x11, seconds; only from a client.
    pub session_expiry_s: Option<u32>,
    /// 0x1F.
    pub reason_string: Option<&'a str>,
    /// 0x26.
    pub user: Vec<(&'a str, &'a str)>,
    /// 0x1C; only from a broker.
    pub server_reference: Option<&'a str>,
}

/// AUTH (3.15).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auth<'a> {
    /// 0x00, 0x18 or 0x19.
    pub reason_code: u8,
    /// 0x15.
    pub method: Option<&'a str>,
    /// 0x16.
    pub data: Option<&'a [u8]>,
    /// 0x1F.
    pub reason_string: Option<&'a str>,
    /// 0x26.
    pub user: Vec<(&'a str, &'a str)>,
}

/// Any control packet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Packet<'a> {
    Connect(Box<Connect<'a>>),
    Connack(Box<Connack<'a>>),
    Publish(Publish<'a>),
    Puback(Ack<'a>),
    Pubrec(Ack<'a>),
    Pubrel(Ack<'a>),
    Pubcomp(Ack<'a>),
    Subscribe(Subscribe<'a>),
    Suback(ListAck<'a>),
    Unsubscribe(Unsubscribe<'a>),
    Unsuback(ListAck<'a>),
    Pingreq,
    Pingresp,
    Disconnect(Disconnect<'a>),
    Auth(Auth<'a>),
}
