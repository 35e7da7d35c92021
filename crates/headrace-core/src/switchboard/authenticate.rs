//! Enhanced authentication (MQTT 5.0 3.15, 4.12): AUTH, in a CONNECT that is not answered yet and
//! on an open connection.
//!
//! What a method says is for policy: its requests carry method and data, its verdict goes on with
//! a challenge, accepts or refuses. Here is only whose turn it is. While a client authenticates
//! again, its connection goes on under what it had (4.12.1).

use super::connection::{Park, Phase};
use super::packets::Flow;
use super::{Asks, ConnectRequest, Counter, Error, Switchboard};
use crate::mqtt::packet::{Auth, Packet};
use crate::mqtt::reason;
use crate::Now;

/// The exchange of one connection.
#[derive(Debug)]
pub(super) struct Exchange {
    /// Of its CONNECT.
    pub method: Box<str>,
    pub turn: Turn,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nobody's: the client is authenticated.
    Over,
    /// That of policy.
    Policy,
    /// The client's, after a challenge.
    Client,
}

/// A request of policy that is not decided.
#[derive(Debug)]
pub(super) enum Pending {
    /// A CONNECT.
    Connect(Box<super::connect::Connecting>),
    /// An open connection that authenticates again.
    Again(u64),
}

impl Pending {
    pub(super) fn connection(&self) -> u64 {
        match self {
            Self::Connect(connecting) => connecting.connection,
            Self::Again(connection) => *connection,
        }
    }
}

impl Switchboard {
    /// AUTH from a client.
    pub(super) fn auth(&mut self, slot: u32, auth: &Auth<'_>, now: Now) -> Flow {
        let connection = &mut self.connections[slot as usize];
        let is_open = connection.phase == Phase::Open;
        let expected = match &connection.exchange {
            Some(exchange) if auth.method == Some(&exchange.method) => match exchange.turn {
                Turn::Client => Some((reason::CONTINUE_AUTHENTICATION, Asks::Continue)),
                Turn::Over => Some((reason::RE_AUTHENTICATE, Asks::Reauthenticate)),
                Turn::Policy => None,
            },
            // Another method than that of CONNECT, or one where CONNECT had none (4.12).
            _ => None,
        };
        match expected {
            Some((reason_code, asks)) if auth.reason_code == reason_code => {
                self.ask_again(slot, auth, asks);
                Flow::Next
            }
            _ if is_open => self.refuse(slot, reason::PROTOCOL_ERROR, now),
            _ => {
                self.counters.count(Counter::RefusedProtocol);
                self.refuse_connect(slot, reason::PROTOCOL_ERROR, now);
                Flow::Stop
            }
        }
    }

    /// Asks policy about an AUTH.
    fn ask_again(&mut self, slot: u32, auth: &Auth<'_>, asks: Asks) {
        let request = self.next_request;
        self.next_request += 1;
        let connection = &mut self.connections[slot as usize];
        if let Some(exchange) = &mut connection.exchange {
            exchange.turn = Turn::Policy;
        }
        let id = connection.id;
        let before = connection.request.replace(request);
        let before = before.and_then(|before| self.pending.remove(&before));
        let pending = before.unwrap_or(Pending::Again(id));
        let connection = &mut self.connections[slot as usize];
        let client_id = match &pending {
            Pending::Connect(connecting) => {
                connection.phase = Phase::Deciding;
                connection.parked = Some(Park::Decision);
                connecting.client_id.to_string()
            }
            Pending::Again(_) => {
                let session = connection
                    .session
                    .expect("an open connection has a session");
                self.sessions[session as usize].client_id.to_string()
            }
        };
        self.pending.insert(request, pending);
        self.decisions.push(ConnectRequest {
            request,
            connection: id,
            asks,
            client_id,
            username: None,
            password: None,
            auth_method: auth.method.map(str::to_owned),
            auth_data: auth.data.map(<[u8]>::to_vec),
            protocol_level: 5,
        });
    }

    /// Policy wants to hear more: AUTH 0x18, and the client's turn.
    ///
    /// # Errors
    /// The client named no method.
    pub(super) fn challenge(
        &mut self,
        slot: u32,
        request: u64,
        pending: Pending,
        data: Option<&[u8]>,
        now: Now,
    ) -> Result<(), Error> {
        let connection = &mut self.connections[slot as usize];
        if connection.exchange.is_none() {
            self.pending.insert(request, pending);
            let text = format!("request {request} has no authentication method to go on with");
            return Err(Error::Invalid(text));
        }
        let is_connect = connection.phase == Phase::Deciding;
        if is_connect {
            connection.phase = Phase::Challenged;
        }
        connection.request = Some(request);
        self.pending.insert(request, pending);
        self.auth_out(slot, reason::CONTINUE_AUTHENTICATION, Turn::Client, data);
        if is_connect {
            self.unpark(slot, now);
        }
        Ok(())
    }

    /// An open connection has authenticated again, or has not.
    pub(super) fn authenticated(
        &mut self,
        slot: u32,
        reason_code: u8,
        data: Option<&[u8]>,
        now: Now,
    ) {
        if reason_code == reason::SUCCESS {
            return self.auth_out(slot, reason::SUCCESS, Turn::Over, data);
        }
        self.counters.count(Counter::RefusedAuth);
        self.close(slot, "not_authorized", Some(reason_code), now);
    }

    fn auth_out(&mut self, slot: u32, reason_code: u8, turn: Turn, data: Option<&[u8]>) {
        let connection = &mut self.connections[slot as usize];
        let exchange = connection.exchange.take();
        let auth = Auth {
            reason_code,
            method: exchange.as_ref().map(|exchange| &*exchange.method),
            data,
            ..Auth::default()
        };
        self.answer(slot, &Packet::Auth(auth));
        self.connections[slot as usize].exchange = exchange.map(|exchange| {
            Box::new(Exchange {
                method: exchange.method,
                turn,
            })
        });
    }
}
