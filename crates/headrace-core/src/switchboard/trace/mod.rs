//! Live traces: what one client, or one topic, is seen to do.
//!
//! Where nobody traces, a packet costs one branch. Lines wait in a ring of bounded size until they
//! are taken; the oldest give way, and are counted. Watches, and changes nothing.
//!
//! A client's trace has all packets of it and to it, why messages for it were dropped, and the end
//! of its connection. A topic's has the publishes whose topic the filter matches, in and out, and
//! their drops.

mod hooks;
mod tell;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::outgoing::topic_of;
use super::{Counter, Error, Switchboard};
use crate::session::Message;
use crate::topic::Filter;
use crate::Now;

/// Traces at a time: they are for a person who looks.
pub const TRACES_MAX: usize = 8;

/// Bytes of the lines of one trace that nobody has taken: some seconds of a busy client.
pub const TRACE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What a line costs beside its texts.
const LINE_BYTES: usize = 200;

/// What is traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// One client, by its identifier.
    Client(String),
    /// Publishes to the topics of a filter.
    Topic(String),
}

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A packet from a client, or a publish of another door or of a will.
    In,
    /// A packet to a client.
    Out,
    /// A message that somebody does not get.
    Drop,
    /// The input of a connection rests.
    Rest,
    /// The end of a connection.
    Close,
}

/// One thing that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceLine {
    /// When, milliseconds since 1970.
    pub wall_ms: i64,
    /// Client identifier; empty where it is nobody's, or not known yet.
    pub client_id: String,
    /// What this is about.
    pub way: Way,
    /// Its type as the standard writes it; empty where it is none.
    pub packet: &'static str,
    /// 0 for none.
    pub packet_id: u16,
    /// Of a PUBLISH.
    pub topic: String,
    /// Of a PUBLISH.
    pub qos: u8,
    /// Of a PUBLISH.
    pub retain: bool,
    /// Of a PUBLISH.
    pub dup: bool,
    /// Of the packet, or of the message.
    pub bytes: usize,
    /// Of an acknowledgement, or of the end.
    pub reason_code: Option<u8>,
    /// Filters, reasons and the like.
    pub text: String,
    /// The beginning of the payload, as much as was asked for.
    pub payload: Vec<u8>,
}

impl TraceLine {
    fn new(way: Way, packet: &'static str) -> Self {
        Self {
            wall_ms: 0,
            client_id: String::new(),
            way,
            packet,
            packet_id: 0,
            topic: String::new(),
            qos: 0,
            retain: false,
            dup: false,
            bytes: 0,
            reason_code: None,
            text: String::new(),
            payload: Vec::new(),
        }
    }

    fn cost_bytes(&self) -> usize {
        let texts = self.client_id.len() + self.topic.len() + self.text.len();
        LINE_BYTES + texts + self.payload.len()
    }
}

#[derive(Debug)]
struct Trace {
    id: u64,
    subject: Subject,
    payload_bytes_max: usize,
    lines: VecDeque<TraceLine>,
    bytes: usize,
    lost: u64,
}

impl Trace {
    fn wants(&self, line: &TraceLine) -> bool {
        match &self.subject {
            Subject::Client(client_id) => *client_id == line.client_id,
            Subject::Topic(filter) => {
                let filter = Filter::parse(filter).expect("it was parsed when it began");
                !line.topic.is_empty() && filter.matches(&line.topic)
            }
        }
    }

    fn push(&mut self, mut line: TraceLine) {
        line.payload.truncate(self.payload_bytes_max);
        self.bytes += line.cost_bytes();
        self.lines.push_back(line);
        while self.bytes > TRACE_BYTES_MAX {
            let oldest = self.lines.pop_front().expect("its bytes were counted");
            self.bytes -= oldest.cost_bytes();
            self.lost += 1;
        }
    }
}

/// All traces.
#[derive(Debug, Default)]
pub(super) struct Tracer {
    traces: Vec<Trace>,
    last_id: u64,
    /// When the event at hand came.
    wall_ms: i64,
    /// By connection: who has sent CONNECT, and has no session yet or any more.
    names: BTreeMap<u64, Box<str>>,
    /// Connections whose next packet was seen before, and had to wait.
    rested: BTreeSet<u64>,
}

impl Tracer {
    /// Whether anybody looks.
    #[inline]
    pub fn is_on(&self) -> bool {
        !self.traces.is_empty()
    }

    /// An event comes.
    #[inline]
    pub fn at(&mut self, now: Now) {
        if self.is_on() {
            self.wall_ms = now.wall_ms;
        }
    }

    /// The longest payload that anybody wants to see the beginning of.
    fn payload_bytes_max(&self) -> usize {
        let each = self.traces.iter().map(|trace| trace.payload_bytes_max);
        each.max().unwrap_or(0)
    }

    fn tell(&mut self, mut line: TraceLine) {
        line.wall_ms = self.wall_ms;
        let mut wanting = self.traces.iter_mut().filter(|trace| trace.wants(&line));
        let Some(first) = wanting.next() else { return };
        for other in wanting {
            other.push(line.clone());
        }
        first.push(line);
    }

    /// A message that a client, or a group, does not get.
    pub fn dropped(&mut self, client_id: &str, why: Counter, topic: &str, bytes: usize) {
        self.tell(TraceLine {
            client_id: client_id.to_owned(),
            topic: topic.to_owned(),
            bytes,
            text: why.reason().to_owned(),
            ..TraceLine::new(Way::Drop, "")
        });
    }

    /// A message that waited for a client, or a group, and that it does not get.
    pub fn dropped_message(&mut self, client_id: &str, why: Counter, message: &Message) {
        let bytes = message.head.len() + message.payload.len();
        self.dropped(client_id, why, topic_of(message), bytes);
    }
}

impl Switchboard {
    /// Begins a trace; its number, or None where [`TRACES_MAX`] run. Of each payload
    /// `payload_bytes_max` bytes are kept.
    ///
    /// # Errors
    /// The filter is none.
    pub fn start_trace(
        &mut self,
        subject: Subject,
        payload_bytes_max: usize,
    ) -> Result<Option<u64>, Error> {
        if let Subject::Topic(filter) = &subject {
            Filter::parse(filter)
                .map_err(|error| Error::Invalid(format!("filter \"{filter}\": {error}")))?;
        }
        if self.tracer.traces.len() >= TRACES_MAX {
            return Ok(None);
        }
        self.tracer.last_id += 1;
        self.tracer.traces.push(Trace {
            id: self.tracer.last_id,
            subject,
            payload_bytes_max,
            lines: VecDeque::new(),
            bytes: 0,
            lost: 0,
        });
        Ok(Some(self.tracer.last_id))
    }

    /// What was seen since the last call, and how many lines before that gave way.
    ///
    /// # Errors
    /// There is no such trace.
    pub fn take_trace(&mut self, id: u64) -> Result<(Vec<TraceLine>, u64), Error> {
        let trace = self.tracer.traces.iter_mut().find(|trace| trace.id == id);
        let trace = trace.ok_or_else(|| Error::Invalid(format!("no trace {id}")))?;
        trace.bytes = 0;
        let lost = std::mem::take(&mut trace.lost);
        Ok((std::mem::take(&mut trace.lines).into(), lost))
    }

    /// Ends a trace; once is enough.
    pub fn stop_trace(&mut self, id: u64) {
        self.tracer.traces.retain(|trace| trace.id != id);
        if !self.tracer.is_on() {
            self.tracer.names.clear();
            self.tracer.rested.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_lines_give_way_and_are_counted() {
        let mut trace = Trace {
            id: 1,
            subject: Subject::Client("c".into()),
            payload_bytes_max: 3,
            lines: VecDeque::new(),
            bytes: 0,
            lost: 0,
        };
        let count = 2 * TRACE_BYTES_MAX / LINE_BYTES;
        for number in 0..count {
            let mut line = TraceLine::new(Way::In, "PUBLISH");
            (line.bytes, line.payload) = (number, vec![7; 1000]);
            trace.push(line);
        }
        assert!(trace.bytes <= TRACE_BYTES_MAX);
        assert_eq!(trace.lines.len() + trace.lost as usize, count);
        assert_eq!(trace.lines.back().map(|line| line.bytes), Some(count - 1));
        assert_eq!(trace.lines[0].payload, [7; 3]);
        let costs = trace.lines.iter().map(TraceLine::cost_bytes);
        assert_eq!(costs.sum::<usize>(), trace.bytes);
    }
}
