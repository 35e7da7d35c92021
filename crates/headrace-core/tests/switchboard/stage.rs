//! A switchboard with clients around it; [`super::transcript`] writes down what they receive.

use std::collections::BTreeMap;
use std::iter;

use headrace_core::hash::Key;
use headrace_core::mqtt::packet::{
    Ack, Connect, Packet, Publish, Subscribe, SubscriptionRequest, Unsubscribe,
};
use headrace_core::mqtt::{decode, encode};
use headrace_core::session::Ending;
use headrace_core::switchboard::{
    Append, ConnectRequest, Effects, Limits, Lost, SessionAppend, SessionTrim, StreamRequest,
    Switchboard,
};
use headrace_core::Now;

use super::transcript::packets;

pub use headrace_core::mqtt::packet::{PublishProperties, QoS, Version, Will};
pub use Version::{V311, V5};

pub const QOS_0: QoS = QoS::AtMostOnce;
pub const QOS_1: QoS = QoS::AtLeastOnce;
pub const QOS_2: QoS = QoS::ExactlyOnce;

/// What a client was sent and has not looked at.
#[derive(Default)]
struct Inbox {
    version: Option<Version>,
    bytes: Vec<u8>,
    closed: Option<&'static str>,
}

pub struct Stage {
    pub switchboard: Switchboard,
    pub now: Now,
    inboxes: BTreeMap<u64, Inbox>,
    /// Not yet performed.
    pub appends: Vec<Append>,
    /// To the log of sessions, not yet performed.
    pub written: Vec<SessionAppend>,
    /// What of it may go.
    pub trims: Vec<SessionTrim>,
    /// What is durable of it, by partition: batches with their offsets.
    pub log: BTreeMap<u32, Vec<(i64, Vec<u8>)>>,
    pub checkpoints: usize,
    /// Not yet decided.
    pub decisions: Vec<ConnectRequest>,
    /// Subscriptions to streams that are not yet placed.
    pub requests: Vec<StreamRequest>,
    /// Queues whose dead letters want a stream.
    pub dead_letters: Vec<u64>,
    /// What was told of messages that nobody can be given.
    pub lost: Vec<Lost>,
    /// What the shell was told last.
    pub reads: BTreeMap<u64, bool>,
    pub wake_at: Option<u64>,
    /// Off where so much is there that looking at all of it takes long.
    pub is_validating: bool,
    next_connection: u64,
}

impl Default for Stage {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl Stage {
    pub fn new(limits: Limits) -> Self {
        Self {
            switchboard: Switchboard::new(Key(7, 11), limits),
            now: Now {
                mono_ms: 1_000,
                wall_ms: 1_700_000_000_000,
            },
            inboxes: BTreeMap::new(),
            appends: Vec::new(),
            written: Vec::new(),
            trims: Vec::new(),
            log: BTreeMap::new(),
            checkpoints: 0,
            decisions: Vec::new(),
            requests: Vec::new(),
            dead_letters: Vec::new(),
            lost: Vec::new(),
            reads: BTreeMap::new(),
            wake_at: None,
            is_validating: true,
            next_connection: 1,
        }
    }

    /// A socket with all the credit in the world.
    pub fn open(&mut self) -> u64 {
        let connection = self.next_connection;
        self.next_connection += 1;
        self.inboxes.insert(connection, Inbox::default());
        self.switchboard.opened(connection, self.now).unwrap();
        self.credit(connection, usize::MAX);
        connection
    }

    /// An open connection of a client of its own name.
    pub fn client(&mut self, version: Version, client_id: &str) -> u64 {
        self.client_with(Connect {
            client_id,
            ..plain(version)
        })
    }

    pub fn client_with(&mut self, connect: Connect<'_>) -> u64 {
        let connection = self.asks(connect);
        self.decide(0);
        let answer = self.hears(connection);
        assert!(answer[0].starts_with("CONNACK 0x00"), "{answer:?}");
        connection
    }

    /// A connection whose CONNECT awaits a decision.
    pub fn asks(&mut self, connect: Connect<'_>) -> u64 {
        let connection = self.open();
        let version = connect.version;
        self.inboxes.get_mut(&connection).unwrap().version = Some(version);
        self.send(connection, &Packet::Connect(Box::new(connect)));
        connection
    }

    /// Decides all that policy was asked.
    pub fn decide(&mut self, reason_code: u8) {
        for asked in std::mem::take(&mut self.decisions) {
            self.switchboard
                .decided(asked.request, reason_code, self.now)
                .unwrap();
        }
        self.run();
    }

    pub fn send(&mut self, connection: u64, packet: &Packet<'_>) {
        let bytes = self.bytes(connection, packet);
        self.send_bytes(connection, &bytes);
    }

    /// A packet as this client's version writes it.
    pub fn bytes(&self, connection: u64, packet: &Packet<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode::packet(self.version(connection), packet, &mut bytes);
        bytes
    }

    fn version(&self, connection: u64) -> Version {
        self.inboxes[&connection].version.unwrap_or(V5)
    }

    pub fn send_bytes(&mut self, connection: u64, bytes: &[u8]) {
        self.switchboard
            .receive(connection, bytes, self.now)
            .unwrap();
        self.run();
    }

    pub fn publish(
        &mut self,
        connection: u64,
        topic: &str,
        qos: QoS,
        packet_id: u16,
        payload: &str,
    ) {
        self.publish_with(
            connection,
            topic,
            qos,
            packet_id,
            payload,
            PublishProperties::default(),
        );
    }

    pub fn publish_with(
        &mut self,
        connection: u64,
        topic: &str,
        qos: QoS,
        packet_id: u16,
        payload: &str,
        properties: PublishProperties<'_>,
    ) {
        let publish = Publish {
            topic,
            qos,
            packet_id,
            properties,
            payload: payload.as_bytes(),
            ..Publish::default()
        };
        self.send(connection, &Packet::Publish(publish));
    }

    pub fn retain(&mut self, connection: u64, topic: &str, qos: QoS, payload: &str) {
        self.retain_with(
            connection,
            topic,
            qos,
            payload,
            PublishProperties::default(),
        );
    }

    /// With packet id 9.
    pub fn retain_with(
        &mut self,
        connection: u64,
        topic: &str,
        qos: QoS,
        payload: &str,
        properties: PublishProperties<'_>,
    ) {
        let publish = Publish {
            topic,
            qos,
            retain: true,
            packet_id: if qos == QOS_0 { 0 } else { 9 },
            properties,
            payload: payload.as_bytes(),
            ..Publish::default()
        };
        self.send(connection, &Packet::Publish(publish));
    }

    /// Subscribes and looks at the SUBACK.
    pub fn subscribe(&mut self, connection: u64, filter: &str, qos: QoS) {
        self.subscribe_with(connection, request(filter, qos));
        let answer = self.hears(connection);
        assert_eq!(answer, [format!("SUBACK 1 [{:#04x}]", qos as u8)]);
    }

    pub fn subscribe_with(&mut self, connection: u64, request: SubscriptionRequest<'_>) {
        self.subscribe_as(connection, None, request);
    }

    /// With a Subscription Identifier.
    pub fn subscribe_as(
        &mut self,
        connection: u64,
        subscription_id: Option<u32>,
        request: SubscriptionRequest<'_>,
    ) {
        let subscribe = Subscribe {
            packet_id: 1,
            subscription_id,
            filters: vec![request],
            ..Subscribe::default()
        };
        self.send(connection, &Packet::Subscribe(subscribe));
    }

    pub fn unsubscribe(&mut self, connection: u64, filters: &[&str]) {
        let unsubscribe = Unsubscribe {
            packet_id: 2,
            filters: filters.to_vec(),
            ..Unsubscribe::default()
        };
        self.send(connection, &Packet::Unsubscribe(unsubscribe));
    }

    /// PUBACK.
    pub fn acknowledge(&mut self, connection: u64, packet_id: u16) {
        self.send(connection, &Packet::Puback(ack(packet_id)));
    }

    /// PUBREL.
    pub fn release(&mut self, connection: u64, packet_id: u16) {
        self.send(connection, &Packet::Pubrel(ack(packet_id)));
    }

    /// PUBREC, and PUBCOMP for the PUBREL that follows it.
    pub fn complete(&mut self, connection: u64, packet_id: u16) {
        self.send(connection, &Packet::Pubrec(ack(packet_id)));
        self.send(connection, &Packet::Pubcomp(ack(packet_id)));
    }

    /// The socket is gone.
    pub fn hang_up(&mut self, connection: u64) {
        self.switchboard.closed(connection, self.now).unwrap();
        self.run();
    }

    pub fn credit(&mut self, connection: u64, bytes: usize) {
        self.switchboard.writable(connection, bytes).unwrap();
        self.run();
    }

    pub fn wait(&mut self, ms: u64) {
        self.now.mono_ms += ms;
        self.now.wall_ms += ms as i64;
        self.switchboard.tick(self.now);
        self.run();
    }

    /// Ends the oldest append.
    pub fn durable(&mut self, stored: bool) {
        let append = self.appends.remove(0);
        self.ends(append.ticket, stored);
    }

    pub fn ends(&mut self, ticket: u64, stored: bool) {
        self.switchboard.durable(ticket, stored, self.now).unwrap();
        self.run();
    }

    /// Takes in what the log of a node before this one holds.
    pub fn restore(&mut self, before: &Self) {
        self.log.clone_from(&before.log);
        for (partition, batches) in &self.log {
            for (_, batch) in batches {
                self.switchboard.restore(*partition, batch).unwrap();
            }
        }
        self.switchboard.restored(self.now);
    }

    /// Ends what was written to the log of sessions, and what is written then.
    pub fn write_all(&mut self, ending: Ending) {
        while !self.written.is_empty() {
            self.write_once(ending);
        }
    }

    /// Ends what was written to the log of sessions so far.
    pub fn write_once(&mut self, ending: Ending) {
        for append in std::mem::take(&mut self.written) {
            let ticket = append.ticket;
            if ending == Ending::Stored {
                let log = self.log.entry(append.partition).or_default();
                let offset = log.last().map_or(0, |(last, _)| last + 1);
                log.push((offset, append.batch));
                self.switchboard.session_appended(ticket, offset);
            }
            self.switchboard.durable(ticket, ending, self.now).unwrap();
        }
        self.run();
        for SessionTrim { partition, offset } in self.trims.drain(..) {
            let log = self.log.get_mut(&partition).expect("it was written");
            log.retain(|(at, _)| *at >= offset);
            self.checkpoints += 1;
        }
    }

    /// Collects until nothing is due at once.
    pub fn run(&mut self) {
        self.validate();
        loop {
            let effects = self.switchboard.collect(self.now);
            self.trims.extend(self.switchboard.persist(self.now));
            let before = self.written.len();
            self.written
                .extend(iter::from_fn(|| self.switchboard.session_append()));
            if effects.is_none() && self.written.len() == before {
                return;
            }
            if let Some(effects) = effects {
                self.perform(effects);
            }
            self.validate();
        }
    }

    fn validate(&self) {
        if self.is_validating {
            self.switchboard.validate();
        }
    }

    pub fn perform(&mut self, effects: Effects) {
        self.appends.extend(effects.appends);
        self.decisions.extend(effects.decisions);
        self.requests.extend(effects.streams);
        self.dead_letters.extend(effects.dead_letters);
        self.lost.extend(effects.lost);
        self.reads.extend(effects.reads);
        self.wake_at = effects.wake_at;
        for (connection, written) in effects.writes {
            let inbox = self.inboxes.get_mut(&connection).unwrap();
            inbox.bytes.extend(written.into_bytes());
        }
        for (connection, reason) in effects.closes {
            let inbox = self.inboxes.get_mut(&connection).unwrap();
            assert_eq!(inbox.closed.replace(reason), None, "closed once");
        }
    }

    /// What a client was sent since it last looked, a line a packet.
    pub fn hears(&mut self, connection: u64) -> Vec<String> {
        let version = self.version(connection);
        let inbox = self.inboxes.get_mut(&connection).unwrap();
        let bytes = std::mem::take(&mut inbox.bytes);
        let mut lines: Vec<String> = packets(version, &bytes);
        lines.extend(
            inbox
                .closed
                .take()
                .map(|reason| format!("closed: {reason}")),
        );
        lines
    }

    /// Whether the shell was told that a connection is over.
    pub fn is_closed(&self, connection: u64) -> bool {
        self.inboxes[&connection].closed.is_some()
    }

    /// Keeps of what a client of 5.0 was sent the packets that `keeps` says.
    pub fn sift(&mut self, connection: u64, mut keeps: impl FnMut(&Packet<'_>) -> bool) {
        let bytes = self.raw(connection);
        let mut kept = Vec::new();
        super::depot::each_packet(&bytes, |packet, bytes| {
            if keeps(packet) {
                kept.extend_from_slice(bytes);
            }
        });
        self.inboxes.get_mut(&connection).unwrap().bytes = kept;
    }

    /// The packet ids of the publishes that a client was sent since it last looked.
    pub fn hears_ids(&mut self, connection: u64) -> Vec<u16> {
        let (version, bytes) = (self.version(connection), self.raw(connection));
        let (mut ids, mut at) = (Vec::new(), 0);
        while at < bytes.len() {
            let Some(frame) = decode::frame(&bytes[at..], usize::MAX).unwrap() else {
                break;
            };
            at += frame.bytes();
            if let Packet::Publish(publish) = decode::packet(Some(version), frame).unwrap() {
                ids.push(publish.packet_id);
            }
        }
        let inbox = self.inboxes.get_mut(&connection).unwrap();
        inbox.bytes = bytes[at..].to_vec();
        ids
    }

    /// The bytes that a client was sent since it last looked.
    pub fn raw(&mut self, connection: u64) -> Vec<u8> {
        std::mem::take(&mut self.inboxes.get_mut(&connection).unwrap().bytes)
    }

    pub fn statistic(&self, name: &str) -> u64 {
        let statistics = self.switchboard.statistics();
        let found = statistics.iter().find(|(known, _)| *known == name);
        found.unwrap_or_else(|| panic!("no statistic {name}")).1
    }
}

fn ack(packet_id: u16) -> Ack<'static> {
    Ack {
        packet_id,
        ..Ack::default()
    }
}

pub fn plain(version: Version) -> Connect<'static> {
    Connect {
        clean_start: true,
        ..Connect::new(version)
    }
}

pub fn request(filter: &str, qos: QoS) -> SubscriptionRequest<'_> {
    SubscriptionRequest {
        filter,
        qos,
        no_local: false,
        retain_as_published: false,
        retain_handling: 0,
    }
}

/// A publish of another door.
pub fn door<'a>(
    topic: &'a str,
    payload: &'a [u8],
    qos: QoS,
    properties: &[(&'a str, &'a str)],
) -> Publish<'a> {
    Publish {
        topic,
        payload,
        qos,
        properties: user(properties),
        ..Publish::default()
    }
}

/// User properties of a publish.
pub fn user<'a>(user: &[(&'a str, &'a str)]) -> PublishProperties<'a> {
    PublishProperties {
        user: user.to_vec(),
        ..PublishProperties::default()
    }
}
