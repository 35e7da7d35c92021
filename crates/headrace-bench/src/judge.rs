//! Judges each packet that comes, and answers it; the socket is somebody else's.
use std::ops::Range;

use hdrhistogram::Histogram;

use crate::client::{Role, State};
use crate::flow::Flow;
use crate::plan::Plan;
use crate::report::{histogram, Latency, Report};
use crate::stamp::Stamp;
use crate::tally::{Arrival, Receiver};
use crate::wire::{self, Packet};

/// Everything that a run counts.
pub(crate) struct Judge {
    pub(crate) plan: Plan,
    pub(crate) flows: Vec<Flow>,
    pub(crate) report: Report,
    /// Publishers that an answer or a delivery may have set free.
    pub(crate) woken: Vec<u32>,
    receivers: Vec<Receiver>,
    latency: Histogram<u64>,
    connect: Histogram<u64>,
    /// Microseconds since the start of the run that are measured; empty before.
    pub(crate) measured: Range<u64>,
}

impl Judge {
    pub(crate) fn new(plan: Plan) -> Self {
        let receivers = (0..plan.receivers())
            .map(|receiver| Receiver::new(plan.heard(receiver)))
            .collect();
        let flows = (0..plan.publishers)
            .map(|publisher| Flow::new(&plan, publisher))
            .collect();
        Self {
            plan,
            flows,
            receivers,
            report: Report::default(),
            woken: Vec::new(),
            latency: histogram(),
            connect: histogram(),
            measured: 0..0,
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
                    receive_maximum,
                },
            ) => {
                self.connect.saturating_record(waited);
                return Ok(self.admitted(role, receive_maximum, out));
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
                    payload,
                    qos,
                    id,
                },
            ) => {
                if qos > 0 {
                    wire::acknowledge(if qos == 1 { 4 } else { 5 }, id, out);
                }
                self.delivered(role, &bytes[topic], &bytes[payload], now);
            }
            (State::Ready, Packet::Pubrel(id)) => wire::acknowledge(7, id, out),
            (State::Ready, Packet::Pubrec(id, reason)) if reason < 0x80 => {
                wire::acknowledge(6, id, out);
            }
            (State::Ready, Packet::Puback(id, reason) | Packet::Pubrec(id, reason)) => {
                self.answered(role, id, reason);
            }
            (State::Ready, Packet::Pubcomp(id)) => self.answered(role, id, 0),
            (_, Packet::Pingresp) => {}
            (state, packet) => return Err(format!("{packet:?} came while {state:?}")),
        }
        Ok(state)
    }

    fn admitted(&mut self, role: Role, receive_maximum: u16, out: &mut Vec<u8>) -> State {
        match role {
            Role::Subscriber(subscriber) => {
                let filter = self.plan.filter(subscriber);
                out.extend(wire::subscribe(self.plan.version, &filter, self.plan.qos));
                State::Subscribing
            }
            Role::Publisher(publisher) => {
                self.flows[publisher as usize].admitted(&self.plan, receive_maximum);
                State::Ready
            }
            Role::Idle => State::Ready,
        }
    }

    fn answered(&mut self, role: Role, id: u16, reason: u8) {
        let Role::Publisher(publisher) = role else {
            return self.trouble(|| "a subscriber's publish was acknowledged".to_owned());
        };
        if !self.flows[publisher as usize].finished(id) {
            return self.trouble(|| format!("packet id {id} was acknowledged and is not in use"));
        }
        if reason < 0x80 {
            self.report.acknowledged += 1;
        } else {
            self.report.refused += 1;
            self.trouble(|| format!("a publish was refused with reason code 0x{reason:02x}"));
        }
        self.woken.push(publisher);
    }

    fn delivered(&mut self, role: Role, topic: &[u8], payload: &[u8], now: u64) {
        let stamp = Stamp::read(topic, payload).filter(|_| payload.len() == self.plan.payload);
        let arrival = match (role, stamp) {
            (Role::Subscriber(subscriber), Some(stamp)) => self.arrived(subscriber, stamp),
            _ => None,
        };
        let (Some(stamp), Some(arrival)) = (stamp, arrival) else {
            self.report.corrupted += 1;
            return self.trouble(|| "a message is not what was sent".to_owned());
        };
        if arrival == Arrival::Again {
            self.report.duplicated += 1;
            return;
        }
        if arrival == Arrival::Late && !self.plan.is_shared() {
            self.report.reordered += 1;
        }
        self.report.delivered += 1;
        self.time(stamp, now);
        let flow = &mut self.flows[stamp.publisher as usize];
        flow.under_way = flow.under_way.saturating_sub(1);
        if self.plan.qos == 0 && self.woken.last() != Some(&stamp.publisher) {
            self.woken.push(stamp.publisher);
        }
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
        if self.measured.contains(&now) {
            self.report.measured += 1;
            let second = ((now - self.measured.start) / 1_000_000) as usize;
            if let Some(count) = self.report.by_second.get_mut(second) {
                *count += 1;
            }
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
        let report = &mut self.report;
        report.published = self.flows.iter().map(|flow| flow.sent).sum();
        report.expected = (report.published - report.refused) * self.plan.copies();
        report.lost = report.expected.saturating_sub(report.delivered);
        report.latency = Latency::of(&self.latency);
        report.connect = Latency::of(&self.connect);
        report.clone()
    }
}
