//! From bytes to packets, and what a packet may do in the phase of its connection.

use bytes::Bytes;

use super::connection::{Connection, Park, Phase};
use super::inbuffer::InBuffer;
use super::route::Routed;
use super::{Counter, Switchboard, ANSWER_BYTES_MAX, SHARE_BYTES};
use crate::mqtt::decode::{self, DecodeError, Frame};
use crate::mqtt::packet::{Connack, Disconnect, Packet, Version};
use crate::mqtt::reason;
use crate::session::SHARED_BYTES_MIN;
use crate::Now;

/// Longest CONNECT. Names, a password and a will of a few hundred bytes are usual; who has not
/// been let in yet must not fill memory with the beginning of a long packet.
const CONNECT_BYTES_MAX: usize = 128 * 1024;

/// Packets of one connection, subscriptions that its publishes match, and places at which those are
/// looked for, before others have their turn: 1 to 3 ms. What came in one read may be a thousand
/// publishes that ten thousand subscriptions match, or 130,000 PINGREQ.
pub(super) const SHARE_VISITS_MAX: usize = 20_000;

/// How input goes on after a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// With the next packet.
    Next,
    /// With this packet, later.
    Park(Park),
    /// Not at all.
    Stop,
}

/// What a packet means to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Serve it.
    Serve,
    /// Keep it until policy has decided.
    Keep,
    /// The client breaks the protocol: DISCONNECT 0x82 (5.0), and close.
    Refuse,
    /// This is no MQTT client: close without a word.
    Close,
    /// The connection is closing.
    Ignore,
}

/// By phase, by packet type (2.1.2). Types: 1 CONNECT, 2 CONNACK, 3 PUBLISH, 4 PUBACK, 5 PUBREC,
/// 6 PUBREL, 7 PUBCOMP, 8 SUBSCRIBE, 9 SUBACK, 10 UNSUBSCRIBE, 11 UNSUBACK, 12 PINGREQ,
/// 13 PINGRESP, 14 DISCONNECT, 15 AUTH.
pub(super) const fn step(phase: Phase, packet_type: u8) -> Step {
    match (phase, packet_type) {
        (Phase::Connecting, 1)
        | (Phase::Challenged, 14 | 15)
        | (Phase::Open, 3..=8 | 10 | 12 | 14 | 15) => Step::Serve,
        (Phase::Connecting | Phase::Challenged, _) => Step::Close,
        (Phase::Deciding, _) => Step::Keep,
        (Phase::Open, _) => Step::Refuse,
        (Phase::Closing, _) => Step::Ignore,
    }
}

/// The label under which the end of a connection is counted, by the reason code that says it.
pub(super) const fn label(reason_code: u8) -> &'static str {
    match reason_code {
        reason::PROTOCOL_ERROR => "protocol_error",
        reason::UNSUPPORTED_PROTOCOL_VERSION => "unsupported_protocol_version",
        reason::CLIENT_ID_NOT_VALID => "client_id_not_valid",
        reason::KEEP_ALIVE_TIMEOUT => "keep_alive_timeout",
        reason::SESSION_TAKEN_OVER => "taken_over",
        reason::PACKET_TOO_LARGE => "packet_too_large",
        reason::TOPIC_NAME_INVALID => "topic_name_invalid",
        reason::TOPIC_ALIAS_INVALID => "topic_alias_invalid",
        reason::PAYLOAD_FORMAT_INVALID => "payload_format_invalid",
        reason::RECEIVE_MAXIMUM_EXCEEDED => "receive_maximum_exceeded",
        reason::NOT_AUTHORIZED => "not_authorized",
        reason::QUOTA_EXCEEDED => "outbound_full",
        reason::ADMINISTRATIVE_ACTION => "administrative_action",
        _ => "malformed_packet",
    }
}

const fn counter(reason_code: u8) -> Counter {
    match reason_code {
        reason::PACKET_TOO_LARGE => Counter::RefusedTooLarge,
        reason::TOPIC_NAME_INVALID => Counter::RefusedTopic,
        reason::NOT_AUTHORIZED => Counter::RefusedDenied,
        reason::TOPIC_ALIAS_INVALID => Counter::RefusedAlias,
        reason::PAYLOAD_FORMAT_INVALID => Counter::RefusedFormat,
        reason::RECEIVE_MAXIMUM_EXCEEDED => Counter::RefusedWindow,
        reason::PROTOCOL_ERROR => Counter::RefusedProtocol,
        _ => Counter::RefusedMalformed,
    }
}

impl Switchboard {
    /// Bytes came. Whole packets are served straight from them; a packet that was cut off is
    /// completed first.
    pub(super) fn read(&mut self, slot: u32, mut data: &[u8], now: Now) {
        let connection = &mut self.connections[slot as usize];
        if connection.phase == Phase::Closing {
            return;
        }
        if connection.parked.is_some() {
            connection.input.push(data);
            return self.touch(slot);
        }
        if !connection.input.is_empty() {
            let mut packet = std::mem::take(&mut connection.input).into_bytes();
            complete(&mut packet, &mut data);
            let packet = Bytes::from(packet);
            self.owned = (packet.len() >= SHARED_BYTES_MIN).then(|| packet.clone());
            let used = self.run(slot, &packet, now);
            self.owned = None;
            if used == 0 {
                self.keep(slot, Vec::from(packet).into(), data);
                return;
            }
            self.end_beginning(slot);
        }
        let used = self.run(slot, data, now);
        self.keep(slot, InBuffer::default(), &data[used..]);
    }

    /// Lets a connection whose input rests go on.
    pub(super) fn resume(&mut self, slot: u32, now: Now) {
        let Some(connection) = self.connections.get_mut(slot as usize) else {
            return;
        };
        if matches!(connection.parked, None | Some(Park::Decision)) {
            return;
        }
        self.unpark(slot, now);
    }

    /// Serves what came while input rested.
    pub(super) fn unpark(&mut self, slot: u32, now: Now) {
        let connection = &mut self.connections[slot as usize];
        connection.parked = None;
        let mut input = std::mem::take(&mut connection.input);
        self.touch(slot);
        let used = self.run(slot, input.bytes(), now);
        if used > 0 {
            self.end_beginning(slot);
        }
        input.serve(used);
        self.keep(slot, input, &[]);
        self.count_input(slot);
    }

    /// Keeps input for later, unless there is no later.
    fn keep(&mut self, slot: u32, mut input: InBuffer, more: &[u8]) {
        let connection = &mut self.connections[slot as usize];
        if connection.phase == Phase::Closing {
            return;
        }
        input.push(more);
        connection.input = input;
    }

    /// Serves whole packets; how many bytes they had.
    fn run(&mut self, slot: u32, data: &[u8], now: Now) -> usize {
        let mut at = 0;
        let mut routed = None;
        loop {
            let connection = &self.connections[slot as usize];
            if connection.placing.is_some() {
                break;
            }
            if self.leaves_answers(connection) {
                self.park(slot, Park::Answers);
                break;
            }
            let bytes_max = match connection.phase {
                Phase::Connecting | Phase::Challenged => {
                    CONNECT_BYTES_MAX.min(self.limits.packet_bytes_max)
                }
                _ => self.limits.packet_bytes_max,
            };
            let rest = &data[at..];
            match decode::frame(rest, bytes_max) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    let bytes = frame.bytes();
                    match self.packet(slot, frame, &rest[..bytes], &mut routed, now) {
                        Flow::Next => {
                            at += bytes;
                            self.counters.count(Counter::PacketsReceived);
                            self.route.visited += 1;
                            if self.route.visited > SHARE_VISITS_MAX && at < data.len() {
                                self.park(slot, Park::Turn);
                                self.runnable.push_back(slot);
                                break;
                            }
                        }
                        Flow::Park(park) => {
                            self.park(slot, park);
                            break;
                        }
                        Flow::Stop => return data.len(),
                    }
                }
                Err(_) if connection.phase == Phase::Deciding => {
                    // Whatever comes behind its CONNECT, the answer on that comes first (3.2.0-1).
                    self.park(slot, Park::Decision);
                    break;
                }
                Err(error) => {
                    self.fail(slot, error, now);
                    return data.len();
                }
            }
        }
        if at > 0 {
            self.connections[slot as usize].heard_ms = now.mono_ms;
        }
        at
    }

    /// Whether a client is read no further until it has read what it was answered.
    fn leaves_answers(&self, connection: &Connection) -> bool {
        let waiting = connection.out.len();
        let is_much = connection.answered_bytes.min(waiting) > SHARE_BYTES;
        waiting > self.limits.outbound_bytes_max + ANSWER_BYTES_MAX
            || is_much && self.is_budget_used_up()
    }

    fn park(&mut self, slot: u32, park: Park) {
        if self.tracer.is_on() && !matches!(park, Park::Answers | Park::Decision | Park::Turn) {
            self.trace_rest(slot, park);
        }
        self.connections[slot as usize].parked = Some(park);
        self.touch(slot);
    }

    fn packet<'a>(
        &mut self,
        slot: u32,
        frame: Frame<'a>,
        bytes: &[u8],
        routed: &mut Routed<'a>,
        now: Now,
    ) -> Flow {
        let connection = &self.connections[slot as usize];
        match step(connection.phase, bytes[0] >> 4) {
            Step::Serve => {}
            Step::Keep => return Flow::Park(Park::Decision),
            Step::Ignore => return Flow::Stop,
            Step::Refuse => return self.refuse(slot, reason::PROTOCOL_ERROR, now),
            Step::Close => {
                self.counters.count(Counter::RefusedProtocol);
                self.close(slot, "not_connected", None, now);
                return Flow::Stop;
            }
        }
        let version = (connection.phase != Phase::Connecting).then_some(connection.version);
        let decoded = decode::packet(version, frame);
        let goes_on = self.connections[slot as usize].listed.is_some();
        if let (true, Ok(packet)) = (self.tracer.is_on() && !goes_on, &decoded) {
            self.trace_in(slot, packet, bytes.len());
        }
        // It is the largest packet and the most frequent one: nothing moves it.
        if let Ok(Packet::Publish(publish)) = &decoded {
            return self.publish_packet(slot, bytes, publish, routed, now);
        }
        *routed = None;
        match decoded {
            Ok(packet) => self.serve(slot, packet, now),
            Err(error) => {
                self.fail(slot, error, now);
                Flow::Stop
            }
        }
    }

    fn serve(&mut self, slot: u32, packet: Packet<'_>, now: Now) -> Flow {
        match packet {
            Packet::Connect(connect) => return self.connect(slot, &connect, now),
            Packet::Puback(ack) => return self.puback(slot, &ack, now),
            Packet::Pubrec(ack) => return self.pubrec(slot, &ack, now),
            Packet::Pubrel(ack) => self.pubrel(slot, &ack),
            Packet::Pubcomp(ack) => return self.pubcomp(slot, &ack, now),
            Packet::Subscribe(subscribe) => return self.subscribe(slot, &subscribe),
            Packet::Unsubscribe(unsubscribe) => return self.unsubscribe(slot, &unsubscribe, now),
            Packet::Pingreq => {
                self.answer(slot, &Packet::Pingresp);
            }
            Packet::Auth(auth) => return self.auth(slot, &auth, now),
            Packet::Disconnect(disconnect) => return self.disconnect(slot, &disconnect, now),
            _ => unreachable!("the table of steps refuses it"),
        }
        Flow::Next
    }

    /// Writes an answer; false where the client takes none of that size.
    pub(super) fn answer(&mut self, slot: u32, packet: &Packet<'_>) -> bool {
        let before = self.connections[slot as usize].out.len();
        let is_told = self.connections[slot as usize].answer(packet);
        if !is_told {
            self.counters.count(Counter::AnswersTooLarge);
        }
        if self.tracer.is_on() {
            let bytes = self.connections[slot as usize].out.len() - before;
            self.trace_out(slot, packet, bytes);
        }
        self.touch(slot);
        is_told
    }

    /// Bytes that are no packet.
    fn fail(&mut self, slot: u32, error: DecodeError, now: Now) {
        let connection = &mut self.connections[slot as usize];
        if connection.phase == Phase::Open {
            self.refuse(slot, error.reason_code, now);
            return;
        }
        self.counters.count(counter(error.reason_code));
        if let Some(version) = error.connack {
            connection.version = version;
            let connack = Connack {
                reason_code: error.reason_code,
                reason_string: Some(error.text),
                ..Connack::default()
            };
            self.answer(slot, &Packet::Connack(Box::new(connack)));
        }
        self.close(slot, label(error.reason_code), None, now);
    }

    /// Counts a packet that must not be, and ends its connection.
    pub(super) fn refuse(&mut self, slot: u32, reason_code: u8, now: Now) -> Flow {
        self.counters.count(counter(reason_code));
        self.close_with(slot, reason_code, now);
        Flow::Stop
    }

    /// Ends a connection with a reason that 5.0 clients are told.
    pub(super) fn close_with(&mut self, slot: u32, reason_code: u8, now: Now) {
        self.close(slot, label(reason_code), Some(reason_code), now);
    }

    /// Ends a connection, and its session where that does not outlive it. Does nothing where it has
    /// ended before.
    pub(super) fn close(&mut self, slot: u32, reason: &'static str, code: Option<u8>, now: Now) {
        let connection = &mut self.connections[slot as usize];
        if connection.phase == Phase::Closing {
            return;
        }
        if self.tracer.is_on() {
            self.trace_close(slot, reason, code);
        }
        let code = code.map(|code| self.told(Version::V5, code));
        let connection = &mut self.connections[slot as usize];
        if let (Phase::Open, Version::V5, Some(reason_code)) =
            (connection.phase, connection.version, code)
        {
            let text = match reason {
                "stream_deleted" => Some("a stream that it reads was deleted"),
                "queue_taken" => Some("another client consumes a queue that takes one of a group"),
                "queue_deleted" => Some("a queue that it consumes was deleted"),
                "stream_outgrown" => Some("a stream that it reads has more partitions than it may"),
                "disk_full" => Some("not stored: the broker's disk is nearly full"),
                "not_stored" => Some("not stored: the broker's disk refused"),
                _ => None,
            };
            let text = text.filter(|_| connection.wants_reasons);
            connection.answer(&Packet::Disconnect(Disconnect {
                reason_code,
                reason_string: text,
                ..Disconnect::default()
            }));
        }
        connection.phase = Phase::Closing;
        connection.closing = Some(reason);
        connection.parked = None;
        connection.input = InBuffer::default();
        let session = connection.session.take();
        if let Some(request) = connection.request.take() {
            self.pending.remove(&request);
        }
        self.end_beginning(slot);
        self.stop_placing(slot);
        self.touch(slot);
        self.cancel_silence(slot);
        self.release_publishers(slot);
        if let Some(session) = session {
            let in_order = matches!(reason, "client_disconnect" | "shutdown" | "taken_over");
            self.leave_session(session, in_order, now);
        }
    }

    /// DISCONNECT (3.14): 0x00 deletes the will, anything else leaves it to be published.
    fn disconnect(&mut self, slot: u32, disconnect: &Disconnect<'_>, now: Now) -> Flow {
        let Some(session) = self.connections[slot as usize].session else {
            self.close(slot, "client_disconnect", None, now);
            return Flow::Stop;
        };
        if let Some(expiry_s) = disconnect.session_expiry_s {
            if expiry_s > 0 && self.connections[slot as usize].session_expiry_s == 0 {
                // 3.14.2.2.2: what CONNECT set to 0 stays 0.
                return self.refuse(slot, reason::PROTOCOL_ERROR, now);
            }
            if self.sessions[session as usize].expiry_s > 0 {
                // One that was granted none kept nothing that a later connection could go on with.
                self.set_expiry(session, expiry_s);
            }
        }
        let state = &self.sessions[session as usize];
        let is_kept = state.is_will_kept || state.durable.is_some();
        let is_forgotten =
            disconnect.reason_code == reason::SUCCESS && self.set_will(session, None).is_some();
        self.close(slot, "client_disconnect", None, now);
        if is_forgotten && is_kept {
            // The connection ends when no restart brings the will back.
            self.persistence.gate(&mut self.connections[slot as usize]);
        }
        Flow::Stop
    }
}

/// A packet that was cut off has room for so many times what has come of it, at most: a client may
/// say that it sends megabytes, and does not.
const CLAIMED_PARTS: usize = 8;

/// Moves bytes from `data` to `packet` until it is one whole packet.
fn complete(packet: &mut Vec<u8>, data: &mut &[u8]) {
    while let Some((&byte, rest)) = data.split_first() {
        if let Some(missing) = missing_bytes(packet) {
            let (bytes, rest) = data.split_at(missing.min(data.len()));
            // Growing in steps copies all that has come each time; what has not come is a claim.
            let claimed = CLAIMED_PARTS * (packet.len() + bytes.len());
            packet.reserve_exact(missing.min(claimed));
            packet.extend_from_slice(bytes);
            *data = rest;
            return;
        }
        packet.push(byte);
        *data = rest;
    }
}

/// Bytes that a packet needs yet; None while its length is unknown. A length that is malformed
/// needs none.
fn missing_bytes(packet: &[u8]) -> Option<usize> {
    let mut length = 0;
    for (index, byte) in packet.iter().skip(1).enumerate().take(4) {
        length |= usize::from(byte & 0x7F) << (7 * index);
        if *byte < 0x80 {
            return Some((2 + index + length).saturating_sub(packet.len()));
        }
    }
    (packet.len() > 4).then_some(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_off_packet_is_completed_and_nothing_more() {
        let mut stream = vec![0x30, 0x85, 0x01];
        stream.extend_from_slice(&[7; 133]);
        stream.extend_from_slice(&[0xC0, 0]);
        for cut in 1..136 {
            let mut packet = stream[..cut].to_vec();
            let mut data = &stream[cut..];
            complete(&mut packet, &mut data);
            assert_eq!(packet, stream[..136]);
            assert_eq!(data, [0xC0, 0]);
        }
    }

    #[test]
    fn a_malformed_length_needs_no_more_bytes() {
        assert_eq!(missing_bytes(&[0x30, 0xFF, 0xFF, 0xFF, 0xFF]), Some(0));
        assert_eq!(missing_bytes(&[0x30, 0xFF, 0xFF, 0xFF]), None);
    }
}
