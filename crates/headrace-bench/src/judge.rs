//! Judges each packet that comes, and answers it; the socket is somebody else's.
use std::ops::Range;

use hdrhistogram::Histogram;

use crate::client::{Role, State};
use crate::consumer::Consumer;
use crate::flow::Flow;
use crate::plan::Plan;
use crate::queue::QueueTimes;
use crate::report::{histogram, Latency, Report};
use crate::stamp::{Stamp, LENGTH};
use crate::tally::{Arrival, Receiver};
use crate::template::Body;
use crate::wire::{self, Limits, Packet};

/// Everything that a run counts.
pub(crate) struct Judge {
    pub(crate) plan: Plan,
    pub(crate) body: Body,
    pub(crate) flows: Vec<Flow>,
    pub(crate) report: Report,
    /// Publishers that an answer or a delivery may have set free.
    pub(crate) woken: Vec<u32>,
    /// Of a queue, one for each subscriber.
    pub(crate) consumers: Vec<Consumer>,
    pub(crate) times: QueueTimes,
    receivers: Vec<Receiver>,
    latency: Histogram<u64>,
    connect: Histogram<u64>,
    /// Microseconds since the start of the run that are measured; empty before.
    pub(crate) measured: Range<u64>,
    /// When the last message came.
    pub(crate) last: u64,
    /// Sessions come back and need not subscribe.
    pub(crate) is_returning: bool,
    /// The shortest keep-alive that a server has asked for, seconds.
    pub(crate) keep_alive_s: u16,
}

impl Judge {
    pub(crate) fn new(plan: Plan) -> Self {
        let receivers = (0..plan.receivers())
            .map(|receiver| Receiver::new(plan.heard(receiver)))
            .collect();
        let flows = (0..plan.publishers)
            .map(|publisher| Flow::new(&plan, publisher))
            .collect();
        let consumers = plan.queue().map_or_else(Vec::new, |queue| {
            let all = 0..plan.subscribers;
            all.map(|subscriber| Consumer::new(&plan, queue, subscriber))
                .collect()
        });
        Self {
            times: QueueTimes::new(&plan),
            body: Body::new(plan.payload),
            plan,
            flows,
            consumers,
            receivers,
            report: Report::default(),
            woken: Vec::new(),
            latency: histogram(),
            connect: histogram(),
            measured: 0..0,
            last: 0,
            is_returning: false,
            keep_alive_s: wire::KEEP_ALIVE_S,
        }
    }

    /// Records the first trouble; later ones are only counted.
    pub(crate) fn trouble(&mut self, words: impl FnOnce() -> String) {
        self.report.trouble.get_or_insert_with(words);
    }

    /// Takes a packet and appends the answer to it.
    ///
    /// `now`: microseconds since the start of the run; `waited`: since the connection began.
    /// Returns what the connection is from here on; an error ends it.
    pub(crate) fn packet(
        &mut self,
        role: Role,
        state: State,
        (packet, bytes): (Packet, &[u8]),
        (now, waited): (u64, u64),
        out: &mut Vec<u8>,
    ) -> Result<State, String> {
        match (state, packet) {
            (
                State::Connecting,
                Packet::Connack {
                    reason: 0,
                    is_present,
                    limits,
                },
            ) => {
                self.connect.saturating_record(waited);
                self.keep_alive_s = self.keep_alive_s.min(limits.keep_alive_s);
                return Ok(self.admitted(role, is_present, limits, out));
            }
            (State::Connecting, Packet::Connack { reason, .. }) => {
                return Err(format!(
                    "CONNECT was refused with reason code 0x{reason:02x}"
                ));
            }
            (State::Subscribing, Packet::Suback(reason)) if reason < 0x80 => {
                return Ok(State::Ready);
            }
            (State::Subscribing, Packet::Suback(reason)) => {
                return Err(format!(
                    "SUBSCRIBE was refused with reason code 0x{reason:02x}"
                ));
            }
            (_, Packet::Disconnect(reason)) => {
                return Err(format!(
                    "the server disconnected with reason code 0x{reason:02x}"
                ));
            }
            (
                State::Ready,
                Packet::Publish {
                    topic,
                    properties,
                    payload,
                    qos,
                    id,
                },
            ) => {
                let (topic, payload) = (&bytes[topic], &bytes[payload]);
                if !self.consumers.is_empty() {
                    self.handed(role, (topic, payload), (id, &bytes[properties]), now, out);
                    return Ok(state);
                }
                if qos > 0 {
                    wire::acknowledge(if qos == 1 { 4 } else { 5 }, id, out);
                }
                self.delivered(role, (topic, payload), now, true);
            }
            (State::Ready, Packet::Pubrel(id)) => wire::acknowledge(7, id, out),
            (State::Ready, Packet::Pubrec(id, reason)) if reason < 0x80 => {
                wire::acknowledge(6, id, out);
            }
            (State::Ready, Packet::Puback(id, reason) | Packet::Pubrec(id, reason)) => {
                self.answered(role, id, reason, now, out);
            }
            (State::Ready, Packet::Pubcomp(id)) => self.answered(role, id, 0, now, out),
            (_, Packet::Pingresp) => {}
            (state, packet) => return Err(format!("{packet:?} came while {state:?}")),
        }
        Ok(state)
    }

    fn admitted(
        &mut self,
        role: Role,
        is_present: bool,
        limits: Limits,
        out: &mut Vec<u8>,
    ) -> State {
        match role {
            Role::Subscriber(_) if self.is_returning => {
                if !is_present {
                    self.report.storm.forgotten += 1;
                    self.trouble(|| "the server does not know a session any more".to_owned());
                }
                State::Ready
            }
            Role::Subscriber(subscriber) => {
                if let Some(consumer) = self.consumers.get_mut(subscriber as usize) {
                    consumer.admitted(limits.receive_maximum);
                }
                let filter = self.plan.filter(subscriber);
                out.extend(wire::subscribe(self.plan.version, &filter, self.plan.qos));
                State::Subscribing
            }
            Role::Publisher(publisher) => {
                self.flows[publisher as usize].admitted(&self.plan, limits.receive_maximum);
                State::Ready
            }
            Role::Idle => State::Ready,
        }
    }

    fn answered(&mut self, role: Role, id: u16, reason: u8, now: u64, out: &mut Vec<u8>) {
        let publisher = match role {
            Role::Publisher(publisher) => publisher,
            Role::Subscriber(consumer) if !self.consumers.is_empty() => {
                return self.settlement_answered(consumer, id, reason, now, out);
            }
            _ => return self.trouble(|| "a subscriber's publish was acknowledged".to_owned()),
        };
        let Some(due) = self.flows[publisher as usize].finished(id) else {
            return self.trouble(|| unused(id));
        };
        if reason < 0x80 {
            self.report.acknowledged += 1;
            self.enqueued(due, now);
        } else {
            self.report.refused += 1;
            self.trouble(|| format!("a publish was refused with reason code 0x{reason:02x}"));
        }
        self.woken.push(publisher);
    }

    /// Counts a delivery, and times it where no other came before it; what its payload says, where
    /// that is what was sent.
    pub(super) fn delivered(
        &mut self,
        role: Role,
        (topic, payload): (&[u8], &[u8]),
        now: u64,
        is_first: bool,
    ) -> Option<(Stamp, Arrival)> {
        let stamp = Stamp::read(topic, payload)
            .filter(|stamp| payload[LENGTH..] == *self.body.of(stamp.publisher, stamp.sequence));
        let arrival = match (role, stamp) {
            (Role::Subscriber(subscriber), Some(stamp)) => self.arrived(subscriber, stamp),
            _ => None,
        };
        let (Some(stamp), Some(arrival)) = (stamp, arrival) else {
            self.report.corrupted += 1;
            self.trouble(|| "a message is not what was sent".to_owned());
            return None;
        };
        if arrival == Arrival::Again {
            self.report.duplicated += 1;
            return Some((stamp, arrival));
        }
        if arrival == Arrival::Late && !self.plan.is_shared() {
            self.report.reordered += 1;
        }
        self.report.delivered += 1;
        if is_first {
            self.time(stamp, now);
        }
        let flow = &mut self.flows[stamp.publisher as usize];
        flow.under_way = flow.under_way.saturating_sub(1);
        if self.plan.qos == 0 && self.woken.last() != Some(&stamp.publisher) {
            self.woken.push(stamp.publisher);
        }
        Some((stamp, arrival))
    }

    fn arrived(&mut self, subscriber: u32, stamp: Stamp) -> Option<Arrival> {
        let flow = self.flows.get(stamp.publisher as usize)?;
        if stamp.sequence >= flow.sent {
            return None;
        }
        let receiver = self.plan.receiver(subscriber) as usize;
        self.receivers[receiver].arrived(stamp.publisher, stamp.sequence)
    }

    fn time(&mut self, stamp: Stamp, now: u64) {
        let micros = u64::from((now as u32).wrapping_sub(stamp.micros));
        self.last = now;
        if self.measured.contains(&now) {
            self.report.measured += 1;
            let second = ((now - self.measured.start) / 1_000_000) as usize;
            let by_second = &mut self.report.by_second;
            if by_second.len() <= second {
                by_second.resize(second + 1, 0);
            }
            by_second[second] += 1;
        }
        if self.measured.contains(&now.saturating_sub(micros)) {
            self.latency.saturating_record(micros);
        }
    }

    /// Every delivery that was asked for is here, and every answer.
    pub(crate) fn is_complete(&self) -> bool {
        let published: u64 = self.flows.iter().map(|flow| flow.sent).sum();
        let refused = self.report.refused;
        self.report.delivered >= (published - refused) * self.plan.copies()
            && self.flows.iter().all(Flow::is_settled)
            && self.open() == 0
            && (self.consumers.is_empty() || self.report.queue.settled >= published - refused)
    }

    /// Deliveries that consumers have open.
    pub(crate) fn open(&self) -> u64 {
        self.consumers.iter().map(|each| each.open() as u64).sum()
    }

    /// Nothing more is published or delivered.
    pub(crate) fn is_exhausted(&self) -> bool {
        let queue = self.plan.queue().filter(|queue| queue.fills_only);
        queue.is_some_and(|queue| self.report.delivered >= queue.fill)
    }

    /// Whether a consumer waits for the answer to a settlement.
    pub(crate) fn is_settling(&self) -> bool {
        self.consumers.iter().any(Consumer::is_settling)
    }

    /// Counts connections from here on as those of a storm, and what comes as what it brings.
    pub(crate) fn begin_storm(&mut self, now: u64) {
        self.is_returning = true;
        self.connect.reset();
        self.measured = now..u64::MAX;
        self.last = now;
    }

    /// Forgets what is under way: some of it is lost, and nobody will hear of it.
    pub(crate) fn give_up_waiting(&mut self) {
        for flow in &mut self.flows {
            flow.under_way = 0;
        }
        self.woken.extend(0..self.plan.publishers);
    }

    /// The counts so far.
    pub(crate) fn report(&mut self) -> Report {
        let open = self.open();
        let report = &mut self.report;
        report.published = self.flows.iter().map(|flow| flow.sent).sum();
        report.expected = (report.published - report.refused) * self.plan.copies();
        report.lost = report.expected.saturating_sub(report.delivered);
        report.latency = Latency::of(&self.latency);
        report.connect = Latency::of(&self.connect);
        report.queue.open = open;
        self.times.tell(&mut report.queue);
        report.clone()
    }
}

/// What is said of an answer to nothing.
pub(crate) fn unused(id: u16) -> String {
    format!("packet id {id} was acknowledged and is not in use")
}
