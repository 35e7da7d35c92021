//! What administration is shown of queues.

use super::{Counts, Latency};
use crate::switchboard::{Error, Switchboard};
use crate::Now;

/// A consumer of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConsumer {
    /// Of its session.
    pub client_id: String,
    /// Whether its client is connected.
    pub is_here: bool,
    /// Deliveries that are open.
    pub held: usize,
    /// Deliveries that may be open.
    pub prefetch: usize,
}

/// A partition, as a group has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePartition {
    /// The first message that is not settled.
    pub floor: i64,
    /// From there to the end of the log.
    pub lag: u64,
    /// When that message was stored, milliseconds since 1970, where it has been read.
    pub oldest_ms: Option<i64>,
    /// Messages that are not settled.
    pub depth: u64,
    /// Deliveries that are not over.
    pub in_flight: usize,
    /// Messages that rest after a failure.
    pub resting: usize,
    /// Nothing more can be given out until what has failed is settled.
    pub is_blocked: bool,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueGroup {
    /// Its name.
    pub name: String,
    /// What its messages match.
    pub filter: Option<String>,
    /// Who consumes, in turn.
    pub consumers: Vec<QueueConsumer>,
    /// By number.
    pub partitions: Vec<QueuePartition>,
    /// Since the node started: deliveries; of those, not the first of their message; messages
    /// settled; deliveries that failed; messages that died; messages that nobody could be given.
    pub counts: [u64; 6],
    /// Of first deliveries.
    pub latency: Latency,
}

impl Switchboard {
    /// The groups of a queue, by name; None where the stream is none.
    ///
    /// # Panics
    /// Never.
    pub fn queue_groups(&self, stream: u64) -> Option<Vec<QueueGroup>> {
        let queues = &self.queues;
        let queue = &queues.all[*queues.by_stream.get(&stream)? as usize];
        let groups = queue.groups.values().map(|slot| {
            let group = &queues.groups[*slot as usize];
            let (name, filter) = group.named();
            let consumers = group.members.iter().map(|number| {
                let consumer = &queues.consumers[number];
                let session = &self.sessions[consumer.session as usize];
                QueueConsumer {
                    client_id: session.client_id.to_string(),
                    is_here: session.connection.is_some(),
                    held: consumer.held,
                    prefetch: queues.prefetch_of(consumer),
                }
            });
            let partitions = group.parts.iter().map(|part| QueuePartition {
                floor: part.ledger.settled().floor(),
                lag: part.ledger.lag(),
                oldest_ms: part.ledger.oldest_ms(),
                depth: part.ledger.depth(),
                in_flight: part.ledger.in_flight(),
                resting: part.ledger.resting(),
                is_blocked: part.is_blocked,
            });
            let Counts {
                delivered,
                redelivered,
                settled,
                failed,
                dead,
                lost,
                latency,
            } = group.counts;
            QueueGroup {
                name: name.to_owned(),
                filter: filter.map(str::to_owned),
                consumers: consumers.collect(),
                partitions: partitions.collect(),
                counts: [delivered, redelivered, settled, failed, dead, lost],
                latency,
            }
        });
        Some(groups.collect())
    }

    /// By partition, the first offset that a group of the queue is still owed; None where the stream
    /// is no queue, or has no groups.
    ///
    /// # Panics
    /// Never.
    pub fn queue_floors(&self, stream: u64) -> Option<Vec<i64>> {
        let queues = &self.queues;
        let queue = &queues.all[*queues.by_stream.get(&stream)? as usize];
        let groups = queue.groups.values();
        let groups: Vec<_> = groups.map(|slot| &queues.groups[*slot as usize]).collect();
        if groups.is_empty() {
            return None;
        }
        let floors = (0..queue.ends.len()).map(|partition| {
            let floors = groups
                .iter()
                .map(|group| group.parts[partition].ledger.settled().floor());
            floors.min().unwrap_or(0)
        });
        Some(floors.collect())
    }

    /// Has a group, or all, go on from other offsets, one for each partition: what is before is
    /// settled, what is behind is not, and what is in flight can no longer be settled. How many
    /// groups do; the end of `request` is told once that is durable.
    ///
    /// # Errors
    /// The stream is no queue, or the offsets are not as many as its partitions.
    pub fn seek_queue(
        &mut self,
        stream: u64,
        name: Option<&str>,
        offsets: &[i64],
        request: u64,
        now: Now,
    ) -> Result<usize, Error> {
        let queue = self.queues.by_stream.get(&stream);
        let queue = &self.queues.all[*queue.ok_or(Error::Stream(stream, 0))? as usize];
        if offsets.len() != queue.ends.len() || offsets.iter().any(|offset| *offset < 0) {
            return Err(Error::Invalid(
                "an offset for each partition is needed".into(),
            ));
        }
        let groups = queue.groups.values().copied();
        let named: Vec<u32> = groups
            .filter(|slot| {
                name.is_none_or(|name| self.queues.groups[*slot as usize].named().0 == name)
            })
            .collect();
        for slot in &named {
            self.seek_group(*slot, offsets);
        }
        let slot = self.queues.by_stream[&stream];
        self.measure_again(slot);
        self.note_changed();
        self.answer_once_kept(request, now);
        Ok(named.len())
    }

    fn seek_group(&mut self, slot: u32, offsets: &[i64]) {
        // What was asked of the shell, or is on its way, is of before.
        let number = self.queues.number();
        let group = &mut self.queues.groups[slot as usize];
        group.number = number;
        for (part, offset) in group.parts.iter_mut().zip(offsets) {
            part.ledger.seek(*offset);
        }
        let members = group.members.clone();
        self.queues.let_go(slot);
        self.queues.empty_pulls(slot);
        for consumer in &members {
            let consumer_state = self.queues.consumers.get_mut(consumer);
            let consumer_state = consumer_state.expect("it is one");
            consumer_state.held = 0;
            let session = consumer_state.session;
            if let Some(consuming) = &mut self.sessions[session as usize].consuming {
                let handed = consuming.handed.values_mut();
                for handed in handed.filter(|handed| handed.consumer == *consumer) {
                    handed.consumer = 0; // its PUBACK ends the exchange, and nothing else
                }
            }
        }
        for partition in 0..offsets.len() as u32 {
            self.queues.change(slot, partition);
            self.queues.heat(slot, partition);
        }
        for consumer in members {
            self.queues.line_up(consumer); // it may have been full
        }
        self.set_queue_timer(slot);
    }

    /// Forgets a group and all that it has settled; false where there is none of that name.
    ///
    /// # Errors
    /// It has consumers, or the stream is no queue.
    pub fn forget_queue_group(&mut self, stream: u64, name: &str) -> Result<bool, Error> {
        let queue = self.queues.by_stream.get(&stream);
        let queue = queue.ok_or(Error::Stream(stream, 0))?;
        let groups = self.queues.all[*queue as usize].groups.values().copied();
        let named: Vec<u32> = groups
            .filter(|slot| self.queues.groups[*slot as usize].named().0 == name)
            .collect();
        let is_busy = |slot: &u32| {
            let is_consumed = !self.queues.groups[*slot as usize].members.is_empty();
            is_consumed || !self.queues.pulls_of(*slot).is_empty()
        };
        if named.iter().any(is_busy) {
            let text = format!("group \"{name}\" has consumers; end their subscriptions first");
            return Err(Error::Invalid(text));
        }
        for slot in &named {
            self.forget_group(*slot);
        }
        Ok(!named.is_empty())
    }
}
