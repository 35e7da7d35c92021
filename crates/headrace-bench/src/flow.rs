//! One publisher: what it may send now, and what it waits for.
use crate::plan::{Pace, Plan};
use crate::stamp::{self, Stamp};
use crate::template::{Body, Template};

/// A publisher's place in its run.
pub(crate) struct Flow {
    publisher: u32,
    template: Template,
    topic_checksum: u32,
    /// Messages sent; the next one's number.
    pub(crate) sent: u64,
    /// Messages that may be sent.
    pub(crate) limit: u64,
    /// Packet ids that may be used, from the end.
    free: Vec<u16>,
    /// When what is under way was due, by packet id.
    busy: Vec<Option<u32>>,
    /// Deliveries that are under way, where nothing else bounds a closed loop.
    pub(crate) under_way: u64,
    /// Seconds from the start of the run to the next message of a schedule.
    pub(crate) due: f64,
}

impl Flow {
    pub(crate) fn new(plan: &Plan, publisher: u32) -> Self {
        let topic = plan.topic(publisher);
        let keys = plan.queue().map_or(0, |queue| queue.keys);
        let key = (keys > 0).then(|| format!("{publisher}-{}", key_of(0, keys)));
        Self {
            publisher,
            template: Template::new(plan.version, &topic, plan.qos, plan.payload, key.as_deref()),
            topic_checksum: stamp::checksum(topic.as_bytes()),
            sent: 0,
            limit: u64::MAX,
            free: Vec::new(),
            busy: Vec::new(),
            under_way: 0,
            due: 0.0,
        }
    }

    /// The server's bound on what may be under way is known.
    pub(crate) fn admitted(&mut self, plan: &Plan, receive_maximum: u16) {
        if plan.qos == 0 {
            return;
        }
        self.free = (1..=receive_maximum).rev().collect();
        self.busy = vec![None; usize::from(receive_maximum) + 1];
    }

    /// May send a message now, as far as answers and deliveries go.
    pub(crate) fn may_send(&self, plan: &Plan) -> bool {
        match plan.pace {
            _ if self.sent >= self.limit || plan.qos > 0 && self.free.is_empty() => false,
            Pace::Closed { window } if plan.qos > 0 => {
                self.busy.len() - 1 - self.free.len() < window as usize
            }
            Pace::Closed { window } => {
                self.under_way + plan.copies() <= u64::from(window) * plan.copies()
            }
            Pace::Open { .. } => true,
        }
    }

    /// Appends the next message, stamped with this time.
    pub(crate) fn send(&mut self, plan: &Plan, body: &Body, micros: u32, out: &mut Vec<u8>) {
        if let Some(at) = self.template.id {
            let id = self.free.pop().expect("may_send was asked");
            self.busy[usize::from(id)] = Some(micros);
            self.template.bytes[at..at + 2].copy_from_slice(&id.to_be_bytes());
        }
        let stamp = Stamp {
            publisher: self.publisher,
            sequence: self.sent,
            micros,
        };
        if let Some(at) = self.template.key {
            let keys = plan.queue().map_or(1, |queue| queue.keys);
            let key = key_of(self.sent, keys);
            self.template.bytes[at..at + key.len()].copy_from_slice(key.as_bytes());
        }
        let payload = self.template.payload;
        stamp.write(self.topic_checksum, &mut self.template.bytes[payload..]);
        out.extend_from_slice(&self.template.bytes);
        out.extend_from_slice(body.of(self.publisher, self.sent));
        self.sent += 1;
        self.under_way += plan.copies();
    }

    /// The exchange of a packet id is over: when its message was due; `None` where there was none.
    pub(crate) fn finished(&mut self, id: u16) -> Option<u32> {
        let due = self.busy.get_mut(usize::from(id))?.take()?;
        self.free.push(id);
        Some(due)
    }

    /// No exchange is open.
    pub(crate) fn is_settled(&self) -> bool {
        self.free.len() + 1 >= self.busy.len()
    }
}

/// The end of a message's key, always as long.
fn key_of(sequence: u64, keys: u32) -> String {
    format!("{:09}", sequence % u64::from(keys))
}
