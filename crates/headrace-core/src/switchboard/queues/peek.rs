//! Messages of a queue as they lie in its log, and what they are to a group: nothing changes.

use std::sync::Arc;

use super::message::{meta_of, write_topic};
use super::{Group, Piece};
use crate::mqtt::packet::Publish;
use crate::queue::Standing;
use crate::record::Record;
use crate::switchboard::connect::decode_own;
use crate::switchboard::{Error, Switchboard};
use crate::Now;

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub struct PeekTerms<'a> {
    /// To which group, by name and filter.
    pub group: Option<(&'a str, Option<&'a str>)>,
    /// The first.
    pub offset: i64,
    /// So many at most.
    pub count_max: usize,
    /// What is settled too.
    pub has_settled: bool,
}

/// A message of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeekedMessage {
    /// Where in its partition.
    pub offset: i64,
    /// What its order goes by.
    pub key: Option<Box<[u8]>>,
    /// A PUBLISH of 5.0.
    pub packet: Box<[u8]>,
    /// What it is to the group.
    pub standing: Option<Standing>,
    /// How often the group was delivered it.
    pub attempts: u32,
    /// The client that has it.
    pub client: Option<String>,
    /// Until when it is in flight, or rests, milliseconds since 1970.
    pub until_ms: Option<i64>,
}

impl PeekedMessage {
    /// What it says.
    pub fn publish(&self) -> Publish<'_> {
        decode_own(&self.packet)
    }
}

impl Switchboard {
    /// Messages of a piece of the log of a queue's partition, and where to read on for more.
    ///
    /// # Errors
    /// The stream is no queue, or has no such partition.
    pub fn peek_queue(
        &mut self,
        stream: u64,
        partition: u32,
        batches: &Arc<[u8]>,
        terms: PeekTerms<'_>,
        now: Now,
    ) -> Result<(Vec<PeekedMessage>, i64), Error> {
        let unknown = Error::Stream(stream, partition);
        let Some(slot) = self.queues.by_stream.get(&stream).copied() else {
            return Err(unknown);
        };
        let queue = &self.queues.all[slot as usize];
        if partition as usize >= queue.ends.len() {
            return Err(unknown);
        }
        let group = terms.group.and_then(|(name, filter)| {
            let mut all = queue.groups.values().copied();
            all.find(|group| self.queues.groups[*group as usize].named() == (name, filter))
        });
        let mut piece = Piece::new(Arc::clone(batches), terms.offset);
        let (mut found, mut next) = (Vec::new(), terms.offset);
        while found.len() < terms.count_max {
            let seen = piece.see(next, |record, _| {
                let peeked = self.peek(slot, group, partition, record, now);
                (record.offset, peeked)
            });
            let Some((offset, peeked)) = seen else {
                next = next.max(piece.next());
                break;
            };
            next = offset + 1;
            if terms.has_settled || peeked.standing != Some(Standing::Settled) {
                found.push(peeked);
            }
        }
        Ok((found, next))
    }

    fn peek(
        &mut self,
        queue: u32,
        group: Option<u32>,
        partition: u32,
        record: &Record<'_>,
        now: Now,
    ) -> PeekedMessage {
        let queues = &mut self.queues;
        let settings = &queues.all[queue as usize].settings;
        let name = settings.name.clone();
        let meta = meta_of(record, settings, queues.hash_key);
        write_topic(&mut queues.topic, &name, record);
        let packet = queues.packet_of(&name, partition, record, now);
        let is_wanted = group.is_some_and(|group| queues.is_wanted(group, record));
        let group = group.map(|group| &queues.groups[group as usize]);
        let standing = group.map(|group| {
            if is_wanted {
                group.ledger(partition).standing(record.offset, &meta, now)
            } else {
                Standing::Settled
            }
        });
        let until_ms = match standing {
            Some(Standing::InFlight(_, until_ms) | Standing::Resting(until_ms)) => {
                let left_ms = until_ms.saturating_sub(now.mono_ms);
                Some(now.wall_ms.saturating_add_unsigned(left_ms))
            }
            _ => None,
        };
        let holder = match standing {
            Some(Standing::InFlight(holder, _)) => queues.consumers.get(&holder),
            _ => None,
        };
        let client = holder.map(|consumer| {
            let session = &self.sessions[consumer.session as usize];
            session.client_id.to_string()
        });
        PeekedMessage {
            offset: record.offset,
            key: record.key.map(Into::into),
            packet,
            standing,
            attempts: group.map_or(0, |group| group.ledger(partition).attempts(record.offset)),
            client,
            until_ms,
        }
    }
}

impl Group {
    fn ledger(&self, partition: u32) -> &crate::queue::Ledger {
        &self.parts[partition as usize].ledger
    }
}
