//! What a run does: who publishes to whom, how much, how fast, how long.
use std::net::SocketAddr;
use std::time::Duration;

/// Who hears whom. Publisher `i` always publishes to topic `{prefix}/{i}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Subscriber `i` hears publisher `i`; as many of each.
    Pair,
    /// Each subscriber hears every publisher (fan-out, fan-in).
    All,
    /// The subscribers share one subscription to every publisher.
    Share,
    /// The subscribers are one group of consumers of the queue that the prefix names, and settle.
    Queue(Queue),
    /// The subscribers are sessions that last: they leave, messages wait for them, and then all of
    /// them come back. Each hears one publisher, and each publisher is heard by as many.
    Storm(Storm),
}

/// Sessions that come back at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storm {
    /// Messages that wait for each session.
    pub queued: u64,
}

/// How a queue is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Message ids of one publish to `$ack`, at most; 0 where PUBACK settles.
    pub ack_batch: usize,
    /// Deliveries that a consumer may have open, 1 to 65,535.
    pub prefetch: u16,
    /// Of the subscribers, so many, the last ones, never settle.
    pub stuck: u32,
    /// Keys that the messages of each publisher go round; their order is judged. 0 for none.
    pub keys: u32,
    /// Messages that are enqueued, as fast as it goes, before there is a consumer.
    pub fill: u64,
    /// Nothing is published but that.
    pub fills_only: bool,
    /// Deliveries that the consumers together keep open: one more, and one is settled.
    pub open: u64,
    /// That one is any of them, not the one that came first.
    pub at_random: bool,
}

/// When a publisher sends its next message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As soon as fewer than `window` messages are under way: not acknowledged (`QoS` 1 and 2), or
    /// not delivered to everyone (`QoS` 0). Finds the rate at which a server is saturated.
    Closed {
        /// Messages under way per publisher, 1 to 65,535.
        window: u32,
    },
    /// On a schedule, whatever the server does; latency counts from the moment that the schedule
    /// names, so that a stall shows in every message that it held up (coordinated omission).
    Open {
        /// Messages a second and publisher, above 0.
        rate: f64,
    },
}

/// One run against one server.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the server listens.
    pub server: SocketAddr,
    /// 4 (MQTT 3.1.1) or 5.
    pub version: u8,
    /// Begins every client id and topic of the run.
    pub prefix: String,
    /// User name and password of each connection.
    pub credentials: Option<(String, Vec<u8>)>,
    /// How long sessions of subscribers outlive their connection, seconds; in 3.1.1, which names no
    /// time, those above 0 last. They end with the run.
    pub session_expiry_s: u32,
    /// Connections that publish.
    pub publishers: u32,
    /// Connections that subscribe.
    pub subscribers: u32,
    /// Connections that do neither, held open while the run lasts.
    pub idle: u32,
    /// Connections opened at once, at least 1.
    pub opening: u32,
    /// Who hears whom.
    pub pattern: Pattern,
    /// 0, 1 or 2, of publishes and subscriptions alike.
    pub qos: u8,
    /// Bytes of a payload, at least [`crate::stamp::LENGTH`].
    pub payload: usize,
    /// When the next message goes.
    pub pace: Pace,
    /// Time before the measuring begins; what is published in it is checked, not timed.
    pub warm_up: Duration,
    /// Time that is measured.
    pub duration: Duration,
    /// Longest silence while the last messages are waited for.
    pub drain: Duration,
}

impl Plan {
    /// The first publisher that a receiver hears, and how many.
    pub(crate) fn heard(&self, receiver: u32) -> (u32, u32) {
        match self.pattern {
            Pattern::Pair => (receiver, 1),
            Pattern::Storm(_) => (receiver % self.publishers, 1),
            Pattern::All | Pattern::Share | Pattern::Queue(_) => (0, self.publishers),
        }
    }

    /// Who counts what arrives: each subscriber for itself, or all members of the group as one.
    pub(crate) fn receiver(&self, subscriber: u32) -> u32 {
        if self.is_shared() {
            0
        } else {
            subscriber
        }
    }

    /// How many receivers there are.
    pub(crate) fn receivers(&self) -> u32 {
        if self.is_shared() {
            self.subscribers.min(1)
        } else {
            self.subscribers
        }
    }

    /// How many deliveries each message comes to.
    pub(crate) fn copies(&self) -> u64 {
        match self.pattern {
            Pattern::Pair | Pattern::Share | Pattern::Queue(_) => 1,
            Pattern::Storm(_) => u64::from(self.subscribers / self.publishers),
            Pattern::All => u64::from(self.subscribers),
        }
    }

    /// Each message goes to one of the subscribers.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.pattern, Pattern::Share | Pattern::Queue(_))
    }

    /// The topic of a publisher.
    pub(crate) fn topic(&self, publisher: u32) -> String {
        let below = self.queue().map_or("", |_| "$queue/");
        format!("{below}{}/{publisher}", self.prefix)
    }

    /// The filter of a subscriber.
    pub(crate) fn filter(&self, subscriber: u32) -> String {
        match self.pattern {
            Pattern::Pair | Pattern::Storm(_) => self.topic(self.heard(subscriber).0),
            Pattern::All => format!("{}/+", self.prefix),
            Pattern::Share => format!("$share/bench/{}/+", self.prefix),
            Pattern::Queue(queue) => {
                let settle = if queue.ack_batch > 0 { "ack" } else { "puback" };
                let (name, prefetch) = (&self.prefix, queue.prefetch);
                format!("$queue/{name}?group=bench&settle={settle}&prefetch={prefetch}")
            }
        }
    }

    /// How a queue is used, where it is one.
    pub(crate) fn queue(&self) -> Option<Queue> {
        match self.pattern {
            Pattern::Queue(queue) => Some(queue),
            _ => None,
        }
    }

    /// What is done to sessions, where they are what is measured.
    pub(crate) fn storm(&self) -> Option<Storm> {
        match self.pattern {
            Pattern::Storm(storm) => Some(storm),
            _ => None,
        }
    }

    /// Sessions of subscribers outlive their connection.
    pub(crate) fn lasts(&self) -> bool {
        self.session_expiry_s > 0
    }

    /// Subscribers that do what they are there for.
    pub(crate) fn working(&self) -> u32 {
        self.subscribers - self.queue().map_or(0, |queue| queue.stuck)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::{Pace, Pattern, Plan};

    /// A plan with one of each, for tests.
    pub(crate) fn plan(pattern: Pattern) -> Plan {
        Plan {
            server: ([127, 0, 0, 1], 1883).into(),
            version: 5,
            prefix: "bench".to_owned(),
            credentials: None,
            session_expiry_s: 0,
            publishers: 1,
            subscribers: 1,
            idle: 0,
            opening: 1,
            pattern,
            qos: 1,
            payload: 16,
            pace: Pace::Closed { window: 1 },
            warm_up: Duration::ZERO,
            duration: Duration::ZERO,
            drain: Duration::ZERO,
        }
    }
}
