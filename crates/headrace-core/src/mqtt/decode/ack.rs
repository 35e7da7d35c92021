//! PUBACK, PUBREC, PUBREL, PUBCOMP (3.4 to 3.7), DISCONNECT (3.14) and AUTH (3.15).

use super::reader::{misplaced, once, Reader};
use super::{malformed, protocol, Decoded};
use crate::mqtt::packet::{Ack, Auth, Disconnect, Version};
use crate::mqtt::{property, reason};

/// The four acknowledgements of PUBLISH share one layout; `allowed` tells their reason codes.
#[inline]
pub fn ack(version: Version, mut reader: Reader<'_>, allowed: fn(u8) -> bool) -> Decoded<Ack<'_>> {
    let mut ack = Ack {
        packet_id: reader.packet_id()?,
        ..Ack::default()
    };
    if version == Version::V311 || reader.is_empty() {
        return reader.end().map(|()| ack);
    }
    ack.reason_code = reader.byte()?;
    if !allowed(ack.reason_code) {
        return Err(protocol(
            "3.4.2.1: a reason code that this packet does not have",
        ));
    }
    if reader.is_empty() {
        return Ok(ack);
    }
    let mut section = reader.properties()?;
    while let Some(id) = section.property()? {
        match id {
            property::REASON_STRING => once(&mut ack.reason_string, section.text()?)?,
            property::USER_PROPERTY => ack.user.push(section.pair()?),
            other => return Err(misplaced(section, other)),
        }
    }
    reader.end().map(|()| ack)
}

/// Any reason code passes: whatever it says, the peer leaves.
pub fn disconnect(version: Version, mut reader: Reader<'_>) -> Decoded<Disconnect<'_>> {
    let mut disconnect = Disconnect::default();
    if version == Version::V311 || reader.is_empty() {
        return reader.end().map(|()| disconnect);
    }
    disconnect.reason_code = reader.byte()?;
    if reader.is_empty() {
        return Ok(disconnect);
    }
    let mut section = reader.properties()?;
    while let Some(id) = section.property()? {
        match id {
            property::SESSION_EXPIRY => once(&mut disconnect.session_expiry_s, section.long()?)?,
            property::REASON_STRING => once(&mut disconnect.reason_string, section.text()?)?,
            property::USER_PROPERTY => disconnect.user.push(section.pair()?),
            property::SERVER_REFERENCE => once(&mut disconnect.server_reference, section.text()?)?,
            other => return Err(misplaced(section, other)),
        }
    }
    reader.end().map(|()| disconnect)
}

pub fn auth(version: Version, mut reader: Reader<'_>) -> Decoded<Auth<'_>> {
    if version == Version::V311 {
        return Err(malformed("2.1.2: packet type 15 in MQTT 3.1.1"));
    }
    let mut auth = Auth::default();
    if reader.is_empty() {
        return Ok(auth);
    }
    auth.reason_code = reader.byte()?;
    if !matches!(
        auth.reason_code,
        reason::SUCCESS | reason::CONTINUE_AUTHENTICATION | reason::RE_AUTHENTICATE
    ) {
        return Err(protocol(
            "3.15.2.1: a reason code that AUTH does not have [MQTT-3.15.2-1]",
        ));
    }
    let mut section = reader.properties()?;
    while let Some(id) = section.property()? {
        match id {
            property::AUTHENTICATION_METHOD => once(&mut auth.method, section.text()?)?,
            property::AUTHENTICATION_DATA => once(&mut auth.data, section.binary()?)?,
            property::REASON_STRING => once(&mut auth.reason_string, section.text()?)?,
            property::USER_PROPERTY => auth.user.push(section.pair()?),
            other => return Err(misplaced(section, other)),
        }
    }
    if auth.method.is_none() {
        return Err(protocol(
            "3.15.2.2.2: AUTH without an authentication method",
        ));
    }
    reader.end().map(|()| auth)
}
