//! CONNECT, the decision on it, and CONNACK (MQTT 5.0 3.1, 3.2).

use std::hash::BuildHasher;

use super::alias;
use super::authenticate::{Exchange, Pending, Turn};
use super::connection::{Park, Phase};
use super::packets::Flow;
use super::queues::{Address, Queues};
use super::{Counter, Error, Switchboard};
use crate::access::{Identity, Principal};
use crate::mqtt::packet::{Connack, Connect, Packet, Publish, PublishProperties, QoS, Version};
use crate::mqtt::{decode, encode, reason};
use crate::session::{Will, NEVER_S};
use crate::Now;

/// What a client asks of policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// To connect.
    Connect,
    /// To go on with an exchange that policy challenged.
    Continue,
    /// To authenticate again, on an open connection.
    Reauthenticate,
}

/// Policy's answer to a [`ConnectRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// 0 accepts, 0x18 challenges, any other of CONNACK or DISCONNECT refuses.
    pub reason_code: u8,
    /// Authentication Data for the client, where it named a method.
    pub auth_data: Option<Vec<u8>>,
    /// Who an accepted client is, where not everybody may do everything.
    pub principal: Option<Principal>,
}

impl From<u8> for Verdict {
    fn from(reason_code: u8) -> Self {
        Self {
            reason_code,
            ..Self::default()
        }
    }
}

/// A client asks to connect, or authenticates. Its further input waits for
/// [`Switchboard::decided`], but on an open connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectRequest {
    /// Comes back with the decision.
    pub request: u64,
    /// The connection that asks.
    pub connection: u64,
    /// What.
    pub asks: Asks,
    /// As sent, or assigned.
    pub client_id: String,
    /// As sent.
    pub username: Option<String>,
    /// As sent.
    pub password: Option<Vec<u8>>,
    /// Authentication Method (4.12).
    pub auth_method: Option<String>,
    /// Authentication Data.
    pub auth_data: Option<Vec<u8>>,
    /// 4 or 5.
    pub protocol_level: u8,
}

/// What a CONNECT asked for, kept until policy has decided.
#[derive(Debug)]
pub(super) struct Connecting {
    pub connection: u64,
    pub client_id: Box<str>,
    is_assigned: bool,
    clean_start: bool,
    keep_alive_s: u16,
    receive_maximum: u16,
    topic_alias_maximum: u16,
    wants_reasons: bool,
    response_information: Option<Box<str>>,
    pub will: Option<Will>,
}

/// What client ids begin with that are assigned; 32 digits follow.
const ASSIGNED: &str = "auto-";

/// Whether a client id is one that we assign.
pub(super) fn is_assigned(client_id: &str) -> bool {
    let digits = client_id.strip_prefix(ASSIGNED);
    digits.is_some_and(|digits| {
        digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

impl Switchboard {
    pub(super) fn connect(&mut self, slot: u32, connect: &Connect<'_>, now: Now) -> Flow {
        self.counters.count(Counter::Connects);
        let connection = &mut self.connections[slot as usize];
        connection.version = connect.version;
        connection.session_expiry_s = match connect.version {
            Version::V5 => connect.session_expiry_s.unwrap_or(0),
            Version::V311 if connect.clean_start => 0,
            // 3.1.2.4 of 3.1.1 knows no end.
            Version::V311 => NEVER_S,
        };
        connection.packet_bytes_max = connect
            .maximum_packet_size
            .map_or(usize::MAX, |bytes| bytes as usize);
        if let Err(reason_code) = acceptable(connect, &self.queues) {
            self.counters.count(Counter::RefusedConnect);
            self.refuse_connect(slot, reason_code, now);
            return Flow::Stop;
        }
        connection.exchange = connect.authentication_method.map(|method| {
            Box::new(Exchange {
                method: method.into(),
                turn: Turn::Policy,
            })
        });
        connection.phase = Phase::Deciding;
        connection.parked = Some(Park::Decision);
        let request = self.next_request;
        self.next_request += 1;
        connection.request = Some(request);
        let connection = connection.id;
        let client_id = if connect.client_id.is_empty() {
            self.assign_client_id()
        } else {
            connect.client_id.into()
        };
        self.decisions.push(ConnectRequest {
            request,
            connection,
            asks: Asks::Connect,
            client_id: client_id.to_string(),
            username: connect.username.map(str::to_owned),
            password: connect.password.map(<[u8]>::to_vec),
            auth_method: connect.authentication_method.map(str::to_owned),
            auth_data: connect.authentication_data.map(<[u8]>::to_vec),
            protocol_level: match connect.version {
                Version::V311 => 4,
                Version::V5 => 5,
            },
        });
        let connecting = Connecting {
            connection,
            client_id,
            is_assigned: connect.client_id.is_empty(),
            clean_start: connect.clean_start,
            keep_alive_s: connect.keep_alive_s,
            receive_maximum: connect.receive_maximum.unwrap_or(u16::MAX),
            topic_alias_maximum: connect.topic_alias_maximum.unwrap_or(0),
            wants_reasons: connect.request_problem_information != Some(false),
            response_information: self
                .limits
                .response_information
                .clone()
                .filter(|_| connect.request_response_information == Some(true)),
            will: will_of(connect),
        };
        let pending = Pending::Connect(Box::new(connecting));
        self.pending.insert(request, pending);
        // The first of the packets behind it parks.
        Flow::Next
    }

    /// An identifier that no session has. It tells nothing of others (they hash under the
    /// injected key), so no client can guess its way into another's session.
    fn assign_client_id(&mut self) -> Box<str> {
        loop {
            self.assigned += 1;
            let high = self.hash_key.hash_one((self.assigned, 0_u8));
            let low = self.hash_key.hash_one((self.assigned, 1_u8));
            let client_id = format!("{ASSIGNED}{high:016x}{low:016x}").into_boxed_str();
            if !self.by_client.contains_key(&client_id) {
                return client_id;
            }
        }
    }

    /// CONNACK with a reason against, and the end.
    pub(super) fn refuse_connect(&mut self, slot: u32, reason_code: u8, now: Now) {
        self.deny_connect(slot, reason_code);
        self.close(slot, "refused", None, now);
    }

    /// CONNACK with a reason against.
    pub(super) fn deny_connect(&mut self, slot: u32, reason_code: u8) {
        let version = self.connections[slot as usize].version;
        let connack = Connack {
            reason_code: self.told(version, reason_code),
            ..Connack::default()
        };
        self.answer(slot, &Packet::Connack(Box::new(connack)));
    }

    /// Policy decided. The request of a connection that has gone is ignored.
    ///
    /// # Errors
    /// No such request was made, or a client is challenged that named no method.
    pub fn decided(
        &mut self,
        request: u64,
        verdict: impl Into<Verdict>,
        now: Now,
    ) -> Result<(), Error> {
        let Verdict {
            reason_code,
            auth_data,
            principal,
        } = verdict.into();
        let auth_data = auth_data.as_deref();
        if request == 0 || request >= self.next_request {
            return Err(Error::Request(request));
        }
        let Some(pending) = self.pending.remove(&request) else {
            return Ok(());
        };
        let slot = self.slot(pending.connection())?;
        if reason_code == reason::CONTINUE_AUTHENTICATION {
            return self.challenge(slot, request, pending, auth_data, now);
        }
        self.connections[slot as usize].request = None;
        match pending {
            Pending::Again(_) => self.authenticated(slot, reason_code, auth_data, now),
            Pending::Connect(connecting) if reason_code == reason::SUCCESS => {
                match self.admit_client(&connecting, principal) {
                    Ok(identity) => self.accept(slot, *connecting, identity, auth_data, now),
                    Err(reason_code) => {
                        self.counters.count(Counter::RefusedConnect);
                        self.refuse_connect(slot, reason_code, now);
                    }
                }
                self.unpark(slot, now);
            }
            Pending::Connect(_) => {
                self.counters.count(Counter::RefusedConnect);
                self.refuse_connect(slot, reason_code, now);
            }
        }
        Ok(())
    }

    fn accept(
        &mut self,
        slot: u32,
        pending: Connecting,
        identity: Option<Box<Identity>>,
        auth_data: Option<&[u8]>,
        now: Now,
    ) {
        let asked_s = self.connections[slot as usize].session_expiry_s;
        if !self.has_place(&pending.client_id, asked_s) {
            self.counters.count(Counter::RefusedSession);
            return self.refuse_connect(slot, reason::QUOTA_EXCEEDED, now);
        }
        if !self.has_room_for(&pending.client_id, pending.will.as_ref()) {
            self.counters.count(Counter::RefusedMemory);
            return self.refuse_connect(slot, reason::QUOTA_EXCEEDED, now);
        }
        let dues = self.persistence.dues();
        let (session, is_present) = self.session_for(&pending.client_id, pending.clean_start, now);
        self.set_expiry(session, asked_s);
        self.begin_durable(session);
        self.cancel_session_timer(session);
        let state = &mut self.sessions[session as usize];
        if is_present && state.identity != identity {
            // It may come from elsewhere, where other rules are about it.
            state.identity = identity;
            self.hold_subscriptions(session, now);
        } else {
            state.identity = identity;
        }
        self.set_will(session, pending.will);
        let state = &mut self.sessions[session as usize];
        state.attach(slot, pending.receive_maximum);
        self.here += 1;
        let expiry_s = state.expiry_s;
        self.persistence.head_due(state);
        self.persistence.keep_will(state);
        if self.persistence.dues() > dues || self.sessions[session as usize].durable.is_some() {
            // That a session begins, goes on or is discarded must be on the log, and its will.
            let connection = &mut self.connections[slot as usize];
            self.persistence.gate(connection);
            connection.connack_waits(!is_present);
        }
        self.members_here(session);

        let (keep_alive_s, told) = self.keep_alive(slot, pending.keep_alive_s);
        let connection = &mut self.connections[slot as usize];
        let mut exchange = connection.exchange.take();
        if let Some(exchange) = &mut exchange {
            exchange.turn = Turn::Over;
        }
        connection.phase = Phase::Open;
        connection.session = Some(session);
        connection.aliases_out = alias::Outbound::new(pending.topic_alias_maximum);
        connection.wants_reasons = pending.wants_reasons;
        connection.heard_ms = now.mono_ms;
        // 3.1.2.10: one and a half times the interval.
        connection.silence_ms_max = u64::from(keep_alive_s) * 1500;
        match connection.silence_ms_max {
            0 => self.cancel_silence(slot),
            silence_ms => self.set_silence(slot, now.mono_ms + silence_ms),
        }
        let alias_max = self.limits.topic_alias_max;
        let connack = Connack {
            session_present: is_present,
            session_expiry_s: (expiry_s != asked_s).then_some(expiry_s),
            receive_maximum: Some(self.limits.receive_max),
            topic_alias_maximum: (alias_max > 0).then_some(alias_max),
            maximum_packet_size: Some(self.limits.packet_bytes_max as u32),
            assigned_client_id: pending.is_assigned.then_some(&*pending.client_id),
            server_keep_alive_s: told,
            response_information: pending.response_information.as_deref(),
            authentication_method: exchange.as_ref().map(|exchange| &*exchange.method),
            authentication_data: auth_data,
            ..Connack::default()
        };
        let is_told = self.answer(slot, &Packet::Connack(Box::new(connack)));
        self.connections[slot as usize].exchange = exchange;
        if is_told {
            self.return_to_streams(session, now);
            self.return_to_queues(session, now);
            if self.connections[slot as usize].session.is_some() {
                self.pump(slot, now);
            }
        } else {
            self.take_back(session, !is_present);
            self.close(slot, "packet_too_large", None, now);
        }
    }

    /// Without CONNACK there was no connection, so there is no will of it (3.1.4), and no session
    /// that the client would be told of next time (3.2.2.1.1).
    pub(super) fn take_back(&mut self, session: u32, began: bool) {
        self.set_will(session, None);
        if began {
            self.set_expiry(session, 0);
        }
    }

    /// The keep-alive that is enforced, and what the client must be told of it. A client of 3.1.1
    /// cannot be told, so it keeps its own.
    fn keep_alive(&self, slot: u32, asked_s: u16) -> (u16, Option<u16>) {
        let max_s = self.limits.keep_alive_s_max;
        let too_long = asked_s > max_s || (asked_s == 0 && max_s < u16::MAX);
        if too_long && self.connections[slot as usize].version == Version::V5 {
            (max_s, Some(max_s))
        } else {
            (asked_s, None)
        }
    }
}

/// What is not served of a CONNECT.
fn acceptable(connect: &Connect<'_>, queues: &Queues) -> Result<(), u8> {
    let Some(will) = &connect.will else {
        return Ok(());
    };
    if will.topic.starts_with('$') {
        match Address::of(will.topic) {
            Some(Address::Enqueue(name)) => {
                if queues.unsound(name, &will.properties.user).is_some() {
                    return Err(reason::IMPLEMENTATION_SPECIFIC);
                }
            }
            _ => return Err(reason::NOT_AUTHORIZED),
        }
    }
    let is_text = will.properties.payload_format == Some(1);
    if is_text && std::str::from_utf8(will.payload).is_err() {
        return Err(reason::PAYLOAD_FORMAT_INVALID);
    }
    Ok(())
}

/// The will as the packet that will be published.
fn will_of(connect: &Connect<'_>) -> Option<Will> {
    let will = connect.will.as_ref()?;
    let publish = Publish {
        qos: will.qos,
        retain: will.retain,
        topic: will.topic,
        packet_id: u16::from(will.qos != QoS::AtMostOnce),
        properties: PublishProperties {
            will_delay: None,
            ..will.properties.clone()
        },
        payload: will.payload,
        ..Publish::default()
    };
    let mut packet = Vec::new();
    encode::publish(Version::V5, &publish, &mut packet);
    Some(Will {
        packet: packet.into(),
        delay_s: will.properties.will_delay.unwrap_or(0),
    })
}

/// Decodes a PUBLISH packet that the switchboard itself encoded.
pub(super) fn decode_own(packet: &[u8]) -> Publish<'_> {
    let frame = decode::frame(packet, usize::MAX).expect("it was encoded whole");
    let frame = frame.expect("it was encoded whole");
    match decode::packet(Some(Version::V5), frame) {
        Ok(Packet::Publish(publish)) => publish,
        other => unreachable!("a PUBLISH was encoded, not {other:?}"),
    }
}
