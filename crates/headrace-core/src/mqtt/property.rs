//! Property identifiers (MQTT 5.0 2.2.2.2, table 2-4).

pub const PAYLOAD_FORMAT: u32 = 0x01;
pub const MESSAGE_EXPIRY: u32 = 0x02;
pub const CONTENT_TYPE: u32 = 0x03;
pub const RESPONSE_TOPIC: u32 = 0x08;
pub const CORRELATION_DATA: u32 = 0x09;
pub const SUBSCRIPTION_ID: u32 = 0x0B;
pub const SESSION_EXPIRY: u32 = 0x11;
pub const ASSIGNED_CLIENT_ID: u32 = 0x12;
pub const SERVER_KEEP_ALIVE: u32 = 0x13;
pub const AUTHENTICATION_METHOD: u32 = 0x15;
pub const AUTHENTICATION_DATA: u32 = 0x16;
pub const REQUEST_PROBLEM_INFORMATION: u32 = 0x17;
pub const WILL_DELAY: u32 = 0x18;
pub const REQUEST_RESPONSE_INFORMATION: u32 = 0x19;
pub const RESPONSE_INFORMATION: u32 = 0x1A;
pub const SERVER_REFERENCE: u32 = 0x1C;
pub const REASON_STRING: u32 = 0x1F;
pub const RECEIVE_MAXIMUM: u32 = 0x21;
pub const TOPIC_ALIAS_MAXIMUM: u32 = 0x22;
pub const TOPIC_ALIAS: u32 = 0x23;
pub const MAXIMUM_QOS: u32 = 0x24;
pub const RETAIN_AVAILABLE: u32 = 0x25;
pub const USER_PROPERTY: u32 = 0x26;
pub const MAXIMUM_PACKET_SIZE: u32 = 0x27;
pub const WILDCARD_AVAILABLE: u32 = 0x28;
pub const SUBSCRIPTION_IDS_AVAILABLE: u32 = 0x29;
pub const SHARED_AVAILABLE: u32 = 0x2A;

/// Whether table 2-4 has the identifier at all.
pub fn is_known(id: u32) -> bool {
    matches!(
        id,
        0x01..=0x03
            | 0x08
            | 0x09
            | 0x0B
            | 0x11..=0x13
            | 0x15..=0x1A
            | 0x1C
            | 0x1F
            | 0x21..=0x2A
    )
}
