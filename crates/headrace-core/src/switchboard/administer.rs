//! Sessions, as administration sees them: a page of them, all of one, and the end of one.
//!
//! Nothing here happens to a message. A call looks at a bounded number of sessions, and at a
//! bounded number of subscriptions, so that no list holds up the loop.

use super::connect::decode_own;
use super::connection::Park;
use super::feeds::StreamReading;
use super::streams::Waiter;
use super::{Switchboard, DOOR};
use crate::mqtt::packet::{QoS, Version};
use crate::mqtt::reason;
use crate::session::{Session, Subscription, NEVER_S};
use crate::Now;

/// Sessions that one call looks at, about 10 ms.
pub const SESSIONS_PAGE_MAX: usize = 50_000;

/// Subscriptions that one call shows of a session, the first by filter.
pub const SUBSCRIPTIONS_SHOWN_MAX: usize = 1_000;

/// Which sessions are asked for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Client identifiers; `*` stands for any text.
    pub pattern: &'a str,
    /// Only those whose client is there, or away.
    pub connected: Option<bool>,
}

/// What a list says of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSummary {
    /// Client identifier, assigned ones included.
    pub client_id: String,
    /// The shell's name for its connection; None while the client is away.
    pub connection: Option<u64>,
    /// Of its connection.
    pub version: Option<Version>,
    /// For how long it outlives its connection, seconds; None for ever.
    pub expiry_s: Option<u32>,
    /// Seconds until it ends, where the client is away and it will.
    pub ends_in_s: Option<u64>,
    /// Filters, those of shared subscriptions among them.
    pub subscriptions: usize,
    /// Messages that wait for the client's window or return.
    pub queued_messages: usize,
    /// Bytes of those, and of what is in flight and may have to be sent again.
    pub held_bytes: usize,
    /// Messages to the client whose exchange is not over.
    pub in_flight: usize,
    /// Messages at `QoS` 2 that the client has not released.
    pub unreleased: usize,
    /// A will is due at its end, or before.
    pub has_will: bool,
}

/// A will that may be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WillReport {
    /// Where to.
    pub topic: String,
    /// As asked.
    pub qos: QoS,
    /// As asked.
    pub retain: bool,
    /// For how long it waits for the client to come back, seconds.
    pub delay_s: u32,
    /// Of its payload.
    pub bytes: usize,
    /// Seconds until it is published, where the client is away.
    pub due_in_s: Option<u64>,
}

/// Where the connection of a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionReport {
    /// Longest silence that it allows itself, seconds; 0 for any.
    pub keep_alive_s: u64,
    /// Since its last packet, milliseconds.
    pub silent_ms: u64,
    /// Bytes on the way to it.
    pub outbound_bytes: usize,
    /// Messages that it takes at a time.
    pub receive_maximum: u16,
    /// Why it is not read at the moment.
    pub rests: Option<&'static str>,
}

/// All of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionReport {
    /// As a list says it.
    pub summary: SessionSummary,
    /// By filter, [`SUBSCRIPTIONS_SHOWN_MAX`] of them at most.
    pub subscriptions: Vec<(String, Subscription)>,
    /// How far it is in the streams that it reads, by filter, with
    /// [`POSITIONS_SHOWN_MAX`](super::POSITIONS_SHOWN_MAX) positions at most.
    pub streams: Vec<StreamReading>,
    /// Its will.
    pub will: Option<WillReport>,
    /// Its connection.
    pub connection: Option<ConnectionReport>,
}

impl Switchboard {
    /// A page of sessions, `count_max` at most; begins at the place `from`, and says where the next
    /// page does. The order is none that means anything. Who comes or goes meanwhile may be on no
    /// page; who stays is on exactly one.
    pub fn list_sessions(
        &self,
        wanted: Wanted<'_>,
        from: usize,
        count_max: usize,
        now: Now,
    ) -> (Vec<SessionSummary>, Option<usize>) {
        let end = self.sessions.capacity();
        let last = end.min(from.saturating_add(SESSIONS_PAGE_MAX));
        let mut found = Vec::new();
        for slot in from..last {
            if found.len() >= count_max {
                return (found, Some(slot));
            }
            let session = self.sessions.get(slot);
            let is_wanted = |session: &&Session| {
                let connected = session.connection.is_some();
                !session.is_ended
                    && wanted.connected.is_none_or(|wanted| wanted == connected)
                    && is_like(wanted.pattern, &session.client_id)
            };
            found.extend(
                session
                    .filter(is_wanted)
                    .map(|session| self.summary(session, now)),
            );
        }
        (found, (last < end).then_some(last))
    }

    /// All of one session; None where the client has none.
    pub fn session(&self, client_id: &str, now: Now) -> Option<SessionReport> {
        let slot = self.by_client.get(client_id)?;
        let session = &self.sessions[*slot as usize];
        let mut subscriptions: Vec<_> = session.subscriptions.iter().collect();
        if subscriptions.len() > SUBSCRIPTIONS_SHOWN_MAX {
            subscriptions.select_nth_unstable_by_key(SUBSCRIPTIONS_SHOWN_MAX, |each| each.0);
            subscriptions.truncate(SUBSCRIPTIONS_SHOWN_MAX);
        }
        subscriptions.sort_unstable_by_key(|each| each.0);
        let subscriptions = subscriptions.into_iter();
        Some(SessionReport {
            summary: self.summary(session, now),
            subscriptions: subscriptions
                .map(|(filter, subscription)| (filter.to_string(), *subscription))
                .collect(),
            streams: Self::readings(session),
            will: session.will.as_ref().map(|will| {
                let publish = decode_own(&will.packet);
                WillReport {
                    topic: publish.topic.to_owned(),
                    qos: publish.qos,
                    retain: publish.retain,
                    delay_s: will.delay_s,
                    bytes: publish.payload.len(),
                    due_in_s: session.will_ms.map(|due_ms| left_s(due_ms, now)),
                }
            }),
            connection: session.connection.map(|slot| {
                let connection = &self.connections[slot as usize];
                ConnectionReport {
                    keep_alive_s: connection.silence_ms_max / 1500,
                    silent_ms: now.mono_ms.saturating_sub(connection.heard_ms),
                    outbound_bytes: connection.out.len(),
                    receive_maximum: session.outbound.window(),
                    rests: connection.parked.map(Park::name),
                }
            }),
        })
    }

    fn summary(&self, session: &Session, now: Now) -> SessionSummary {
        let connection = session.connection;
        let connection = connection.map(|slot| &self.connections[slot as usize]);
        SessionSummary {
            client_id: session.client_id.to_string(),
            connection: connection.map(|connection| connection.id),
            version: connection.map(|connection| connection.version),
            expiry_s: (session.expiry_s < NEVER_S).then_some(session.expiry_s),
            ends_in_s: session.ends_ms.map(|ends_ms| left_s(ends_ms, now)),
            subscriptions: session.subscriptions.len(),
            queued_messages: session.outbound.queued(),
            held_bytes: session.outbound.held_bytes(),
            in_flight: session.outbound.in_flight(),
            unreleased: session.inbound.unreleased(),
            has_will: session.will.is_some(),
        }
    }

    /// Ends the connection of a client: DISCONNECT 0x98 (5.0), and its session as if the network
    /// had failed. Whether it had one; None where there is no such session. `request` comes back
    /// from [`Switchboard::published`] once what was so is on the log, in each case.
    pub fn disconnect_client(&mut self, client_id: &str, request: u64, now: Now) -> Option<bool> {
        let had_connection = self.hang_up(client_id, now);
        self.answer_once_kept(request, now);
        had_connection
    }

    /// Ends a session and its connection, and publishes its will; false where there is none.
    /// `request` comes back as from [`Switchboard::disconnect_client`].
    pub fn delete_session(&mut self, client_id: &str, request: u64, now: Now) -> bool {
        let is_found = self.hang_up(client_id, now).is_some();
        // Without its connection it may have ended by itself.
        if let Some(session) = self.by_client.get(client_id).copied() {
            self.end_session(session, now);
        }
        self.answer_once_kept(request, now);
        is_found
    }

    fn hang_up(&mut self, client_id: &str, now: Now) -> Option<bool> {
        let session = *self.by_client.get(client_id)?;
        let connection = self.sessions[session as usize].connection;
        if let Some(slot) = connection {
            self.close_with(slot, reason::ADMINISTRATIVE_ACTION, now);
        }
        Some(connection.is_some())
    }

    /// Answers a request once all that has changed so far of sessions is on the log: what it
    /// found too, which may rest on a request before it.
    pub(super) fn answer_once_kept(&mut self, request: u64, now: Now) {
        let is_kept = self.persistence.is_on();
        if is_kept {
            let ordinal = self.door.next_ordinal();
            let origin = DOOR;
            self.persistence.wait(Some(Waiter { origin, ordinal }));
        }
        self.answer_request(request, u32::from(is_kept), now);
    }
}

/// Seconds until then, begun ones counted.
fn left_s(due_ms: u64, now: Now) -> u64 {
    due_ms.saturating_sub(now.mono_ms).div_ceil(1000)
}

/// Whether a text is what a pattern says, in which `*` stands for any text. Each star goes back to
/// the last one alone, so the work is at most the product of both lengths.
fn is_like(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut next) = (0, 0);
    let mut star = None;
    while next < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, next));
                at += 1;
            }
            Some(byte) if *byte == text[next] => {
                at += 1;
                next += 1;
            }
            _ => match star {
                Some((star_at, begun)) => {
                    at = star_at + 1;
                    next = begun + 1;
                    star = Some((star_at, next));
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::is_like;

    #[test]
    fn a_star_stands_for_any_text() {
        for pattern in [
            "*", "**", "a*c", "abc", "*c", "a*", "*b*", "a*b*c", "***abc",
        ] {
            assert!(is_like(pattern, "abc"), "{pattern}");
        }
        for pattern in ["", "ab", "a", "b*", "*b", "a*d", "abcd", "abc*c", "ac*"] {
            assert!(!is_like(pattern, "abc"), "{pattern}");
        }
        assert!(is_like("*ana", "banana"));
        assert!(is_like("", "") && is_like("*", "") && !is_like("a", ""));
    }

    #[test]
    fn a_star_may_stand_for_one_in_the_text() {
        assert!(is_like("a*", "a*") && is_like("*", "*") && !is_like("a", "*"));
    }
}
