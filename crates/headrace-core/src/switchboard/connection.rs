//! One network connection: what stands between a socket and a session.
//!
//! Owns the phase, the bytes not yet decoded, the bytes not yet written and the keep-alive. Must
//! not know subscriptions, packet ids in flight or any other connection.

use std::collections::{BTreeSet, VecDeque};

use super::alias;
use super::authenticate::Exchange;
use super::beginnings::Begun;
use super::inbuffer::InBuffer;
use super::outbuffer::{OutBuffer, Written};
use super::subscribe::Listed;
use super::sums::OfConnections;
use crate::mqtt::encode;
use crate::mqtt::packet::{Packet, Version};

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// CONNECT has not come.
    Connecting,
    /// Policy thinks about the CONNECT.
    Deciding,
    /// Policy wants to hear an AUTH before it decides.
    Challenged,
    /// CONNACK 0 has been sent.
    Open,
    /// Nothing is read any more; the shell closes after the last writes.
    Closing,
}

/// Why a connection's input rests at a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Park {
    /// Policy thinks about its CONNECT, or about where its SUBSCRIBE to a stream begins.
    Decision,
    /// It sent more publishes than are acknowledged at a time (3.1.1; 5.0 is told the bound).
    Window,
    /// A subscriber of its publish is full.
    Stall,
    /// Too many bytes wait for the disk.
    Disk,
    /// It does not read what it is answered.
    Answers,
    /// It publishes more in a second than it may.
    Rate,
    /// It has had its turn, and others have theirs.
    Turn,
    /// Its publish goes to very many, and so do others before it.
    Crowd,
}

impl Park {
    /// As people read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decision => "decision",
            Self::Window => "window",
            Self::Stall => "full_subscriber",
            Self::Disk => "disk",
            Self::Answers => "unread_answers",
            Self::Rate => "rate",
            Self::Turn => "turn",
            Self::Crowd => "crowd",
        }
    }
}

/// What a connection does when its outbound bound is reached.
#[derive(Debug)]
pub enum Overflow {
    /// It is not.
    No,
    /// Publishers wait, until then at most.
    Stalling {
        /// When their patience ends.
        until_ms: u64,
        /// What the client had taken when it last began.
        taken_bytes: u64,
        /// Their connections.
        publishers: BTreeSet<u32>,
    },
    /// Newest messages are dropped.
    Dropping,
    /// It ends with the next collect.
    Ending,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    /// The shell's name for it.
    pub id: u64,
    /// Phase.
    pub phase: Phase,
    /// Why it closes; set in [`Phase::Closing`] until the shell is told.
    pub closing: Option<&'static str>,
    /// Of its CONNECT.
    pub version: Version,
    /// Its enhanced authentication.
    pub exchange: Option<Box<Exchange>>,
    /// The decision that it waits for.
    pub request: Option<u64>,
    /// The places of streams that its SUBSCRIBE waits for.
    pub placing: Option<u64>,
    /// Slot of the session, when open.
    pub session: Option<u32>,
    /// Bytes of a packet that is not whole yet, or all that came while parked.
    pub input: InBuffer,
    /// Set while that is the beginning of a packet.
    pub begun: Option<Begun>,
    /// What has been done of the SUBSCRIBE or UNSUBSCRIBE at hand.
    pub listed: Option<Box<Listed>>,
    /// Set while input rests.
    pub parked: Option<Park>,
    /// What the shell was told last.
    pub reading: bool,
    /// 1.5 times the keep-alive; 0 is none.
    pub silence_ms_max: u64,
    /// When the last packet came.
    pub heard_ms: u64,
    /// Up to when its rate of messages is used up, microseconds.
    pub paid_us: u64,
    /// When its silence timer is set for.
    pub timer_ms: Option<u64>,
    /// Bytes that may be written per collect.
    pub credit_bytes: usize,
    /// On the way out.
    pub out: OutBuffer,
    /// What has gone out.
    pub taken_bytes: u64,
    /// Of answers, since it last had read everything.
    pub answered_bytes: usize,
    /// What it was counted with last.
    pub counted: OfConnections,
    /// Bytes of it, and the round that must be durable before more than those go out.
    gates: VecDeque<(usize, u64)>,
    /// The round that had to be durable before its CONNACK went out, and whether its CONNECT made
    /// the session.
    connack: Option<(u64, bool)>,
    /// The client's Maximum Packet Size.
    pub packet_bytes_max: usize,
    /// The Session Expiry Interval of its CONNECT, seconds.
    pub session_expiry_s: u32,
    /// Topic aliases that the client has set.
    pub aliases: alias::Inbound,
    /// Topic aliases towards the client, where it allows any.
    pub aliases_out: Option<Box<alias::Outbound>>,
    /// False where the client wants no reason strings (3.1.2.11.7).
    pub wants_reasons: bool,
    /// Publishes that found it full.
    pub overflow: Overflow,
    /// In the list of connections that the next collect visits.
    pub touched: bool,
}

impl Connection {
    /// A connection whose CONNECT has not come.
    pub fn new(id: u64, mono_ms: u64) -> Self {
        Self {
            id,
            phase: Phase::Connecting,
            closing: None,
            version: Version::V5,
            exchange: None,
            request: None,
            placing: None,
            session: None,
            input: InBuffer::default(),
            begun: None,
            listed: None,
            parked: None,
            reading: true,
            silence_ms_max: 0,
            heard_ms: mono_ms,
            paid_us: 0,
            timer_ms: None,
            credit_bytes: 0,
            out: OutBuffer::default(),
            taken_bytes: 0,
            answered_bytes: 0,
            counted: OfConnections::default(),
            gates: VecDeque::new(),
            connack: None,
            packet_bytes_max: usize::MAX,
            session_expiry_s: 0,
            aliases: alias::Inbound::default(),
            aliases_out: None,
            wants_reasons: true,
            overflow: Overflow::No,
            touched: false,
        }
    }

    /// What is written from now on waits for a round; false where it does so already.
    pub fn gate(&mut self, round: u64) -> bool {
        if self.gates.back().is_some_and(|(_, last)| *last >= round) {
            return false;
        }
        self.gates.push_back((self.out.len(), round));
        true
    }

    /// Whether something waits for a round.
    pub fn is_gated(&self) -> bool {
        !self.gates.is_empty()
    }

    /// CONNACK is written next, behind the gate that was shut last.
    pub fn connack_waits(&mut self, began_session: bool) {
        self.connack = self.gates.back().map(|(_, round)| (*round, began_session));
    }

    /// Whether a CONNACK that had to wait tells of a session that its CONNECT made.
    pub fn began_session(&self) -> bool {
        self.connack.is_some_and(|(_, began)| began)
    }

    /// What waits for that round or a later one will never go out; whether CONNACK has, before.
    pub fn give_up(&mut self, round: u64) -> bool {
        let kept = self.gates.partition_point(|(_, of)| *of < round);
        if let Some((bytes, _)) = self.gates.get(kept) {
            self.out.truncate(*bytes);
        }
        self.gates.truncate(kept);
        self.connack.is_none_or(|(of, _)| of < round)
    }

    /// What may be written now; rounds below `settled` are durable.
    pub fn take(&mut self, settled: u64) -> Written {
        while self
            .gates
            .front()
            .is_some_and(|(_, round)| *round < settled)
        {
            self.gates.pop_front();
        }
        let written = self.out.take(self.takeable());
        let bytes = written.len();
        self.taken_bytes += bytes as u64;
        if self.out.is_empty() {
            self.answered_bytes = 0;
        }
        for (before, _) in &mut self.gates {
            *before -= bytes;
        }
        written
    }

    /// Whether something could be written that waits for the socket alone.
    pub fn can_take(&self) -> bool {
        self.takeable() > 0
    }

    /// Bytes that could be written.
    pub fn takeable(&self) -> usize {
        let gate = self.gates.front().map_or(usize::MAX, |(bytes, _)| *bytes);
        self.out.within(self.credit_bytes).min(gate)
    }

    /// Writes an answer; false where the client's Maximum Packet Size forbids it, which then is
    /// as if it had been sent (3.1.2.11.4).
    pub fn answer(&mut self, packet: &Packet<'_>) -> bool {
        let (version, bytes_max) = (self.version, self.packet_bytes_max);
        let mut written = false;
        let before = self.out.len();
        self.out
            .write(|out| written = encode::packet_within(version, packet, bytes_max, out));
        self.answered_bytes += self.out.len() - before;
        written
    }

    /// Whether the shell should read on. A decision comes soon, so little input may wait for it
    /// without the cost of pausing the socket.
    pub fn wants_input(&self, decision_bytes_max: usize) -> bool {
        match self.parked {
            None => true,
            Some(Park::Decision) => self.input.len() < decision_bytes_max,
            Some(_) => false,
        }
    }
}
