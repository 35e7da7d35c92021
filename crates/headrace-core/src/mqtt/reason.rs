//! Reason codes of MQTT 5.0 (2.4, table 2-6), and what 3.1.1 has for them.

/// Success; also normal disconnection and granted `QoS` 0.
pub const SUCCESS: u8 = 0x00;
/// DISCONNECT: the will is to be published all the same.
pub const DISCONNECT_WITH_WILL: u8 = 0x04;
/// Accepted, though nobody subscribes.
pub const NO_MATCHING_SUBSCRIBERS: u8 = 0x10;
/// UNSUBACK: there was no such subscription.
pub const NO_SUBSCRIPTION_EXISTED: u8 = 0x11;
/// AUTH: another step follows.
pub const CONTINUE_AUTHENTICATION: u8 = 0x18;
/// AUTH: the client starts over.
pub const RE_AUTHENTICATE: u8 = 0x19;
/// The first code that means failure.
pub const UNSPECIFIED_ERROR: u8 = 0x80;
/// Bytes that the specification does not allow.
pub const MALFORMED_PACKET: u8 = 0x81;
/// A well-formed packet that must not come now or so.
pub const PROTOCOL_ERROR: u8 = 0x82;
/// Refused for a reason of this broker's own.
pub const IMPLEMENTATION_SPECIFIC: u8 = 0x83;
/// CONNECT asked for another version.
pub const UNSUPPORTED_PROTOCOL_VERSION: u8 = 0x84;
/// The client identifier is not allowed.
pub const CLIENT_ID_NOT_VALID: u8 = 0x85;
/// User name or password is wrong.
pub const BAD_USER_NAME_OR_PASSWORD: u8 = 0x86;
/// Not permitted.
pub const NOT_AUTHORIZED: u8 = 0x87;
/// The broker cannot serve now.
pub const SERVER_UNAVAILABLE: u8 = 0x88;
/// The broker is busy.
pub const SERVER_BUSY: u8 = 0x89;
/// The client is banned.
pub const BANNED: u8 = 0x8A;
/// The broker shuts down.
pub const SERVER_SHUTTING_DOWN: u8 = 0x8B;
/// The authentication method is not served, or not the one in use.
pub const BAD_AUTHENTICATION_METHOD: u8 = 0x8C;
/// Nothing came for one and a half keep-alive intervals.
pub const KEEP_ALIVE_TIMEOUT: u8 = 0x8D;
/// Another connection took the client identifier.
pub const SESSION_TAKEN_OVER: u8 = 0x8E;
/// A topic filter is well formed but not accepted.
pub const TOPIC_FILTER_INVALID: u8 = 0x8F;
/// A topic name is well formed but not accepted.
pub const TOPIC_NAME_INVALID: u8 = 0x90;
/// The packet identifier is in use.
pub const PACKET_ID_IN_USE: u8 = 0x91;
/// No such packet identifier.
pub const PACKET_ID_NOT_FOUND: u8 = 0x92;
/// More unacknowledged publishes than Receive Maximum.
pub const RECEIVE_MAXIMUM_EXCEEDED: u8 = 0x93;
/// A topic alias of 0, above the maximum, or not set before.
pub const TOPIC_ALIAS_INVALID: u8 = 0x94;
/// Larger than Maximum Packet Size.
pub const PACKET_TOO_LARGE: u8 = 0x95;
/// Too many messages in too little time.
pub const MESSAGE_RATE_TOO_HIGH: u8 = 0x96;
/// A quota is used up.
pub const QUOTA_EXCEEDED: u8 = 0x97;
/// An administrator ended it.
pub const ADMINISTRATIVE_ACTION: u8 = 0x98;
/// The payload is not what the payload format says.
pub const PAYLOAD_FORMAT_INVALID: u8 = 0x99;
/// Retained messages are not served.
pub const RETAIN_NOT_SUPPORTED: u8 = 0x9A;
/// That quality of service is not served.
pub const QOS_NOT_SUPPORTED: u8 = 0x9B;
/// Use another server for now.
pub const USE_ANOTHER_SERVER: u8 = 0x9C;
/// Use another server from now on.
pub const SERVER_MOVED: u8 = 0x9D;
/// Shared subscriptions are not served.
pub const SHARED_SUBSCRIPTIONS_NOT_SUPPORTED: u8 = 0x9E;
/// Too many connections in too little time.
pub const CONNECTION_RATE_EXCEEDED: u8 = 0x9F;
/// The longest time that a connection may last is over.
pub const MAXIMUM_CONNECT_TIME: u8 = 0xA0;
/// Subscription identifiers are not served.
pub const SUBSCRIPTION_IDS_NOT_SUPPORTED: u8 = 0xA1;
/// Wildcard subscriptions are not served.
pub const WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED: u8 = 0xA2;

/// The 3.1.1 CONNACK return code for a reason code, or None where 3.1.1 has none: the connection
/// is then closed without a CONNACK (3.1.1, 3.2.2.3 and MQTT-3.2.2-6).
pub const fn connack_return_code(reason_code: u8) -> Option<u8> {
    match reason_code {
        SUCCESS => Some(0),
        UNSUPPORTED_PROTOCOL_VERSION => Some(1),
        CLIENT_ID_NOT_VALID => Some(2),
        SERVER_UNAVAILABLE
        | SERVER_BUSY
        | SERVER_SHUTTING_DOWN
        | QUOTA_EXCEEDED
        | USE_ANOTHER_SERVER
        | SERVER_MOVED
        | CONNECTION_RATE_EXCEEDED => Some(3),
        BAD_USER_NAME_OR_PASSWORD => Some(4),
        NOT_AUTHORIZED | BANNED | BAD_AUTHENTICATION_METHOD => Some(5),
        _ => None,
    }
}

/// The reason code for a 3.1.1 CONNACK return code; None where 3.1.1 reserves the value.
pub const fn from_connack_return_code(return_code: u8) -> Option<u8> {
    match return_code {
        0 => Some(SUCCESS),
        1 => Some(UNSUPPORTED_PROTOCOL_VERSION),
        2 => Some(CLIENT_ID_NOT_VALID),
        3 => Some(SERVER_UNAVAILABLE),
        4 => Some(BAD_USER_NAME_OR_PASSWORD),
        5 => Some(NOT_AUTHORIZED),
        _ => None,
    }
}

/// Codes that PUBACK and PUBREC may carry (3.4.2.1, 3.5.2.1).
pub(super) const fn in_publish_ack(code: u8) -> bool {
    matches!(
        code,
        0x00 | 0x10 | 0x80 | 0x83 | 0x87 | 0x90 | 0x91 | 0x97 | 0x99
    )
}

/// Codes that PUBREL and PUBCOMP may carry (3.6.2.1, 3.7.2.1).
pub(super) const fn in_release_ack(code: u8) -> bool {
    matches!(code, 0x00 | 0x92)
}

/// Codes that a SUBACK of 5.0 may carry (3.9.3).
pub(super) const fn in_suback(code: u8) -> bool {
    matches!(
        code,
        0x00..=0x02 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91 | 0x97 | 0x9E | 0xA1 | 0xA2
    )
}

/// Codes that an UNSUBACK of 5.0 may carry (3.11.3).
pub(super) const fn in_unsuback(code: u8) -> bool {
    matches!(code, 0x00 | 0x11 | 0x80 | 0x83 | 0x87 | 0x8F | 0x91)
}

/// Codes that a CONNACK of 5.0 may carry (3.2.2.2).
pub(super) const fn in_connack(code: u8) -> bool {
    matches!(
        code,
        0x00 | 0x80..=0x8A | 0x8C | 0x90 | 0x95 | 0x97 | 0x99..=0x9D | 0x9F
    )
}
