//! Batches of partitions, from the first record to the end of their append.

use super::{Append, Streams, Waiter, BATCH_BYTES_MAX};
use crate::record::LATER_RECORD_BYTES;
use crate::session::Ending;
use crate::switchboard::partition::{Partition, Ticket};

impl Streams {
    /// Begins a batch where there is none, or none with room for the record that comes; its
    /// ticket.
    pub(super) fn open(
        &mut self,
        slot: u32,
        partition: u32,
        bytes: usize,
        waiter: Option<Waiter>,
    ) -> u64 {
        let stream = &self.slots[slot as usize];
        let bytes = stream.partitions[partition as usize].builder.bytes() + bytes;
        if bytes + LATER_RECORD_BYTES > stream.batch_bytes_max {
            self.finish_touched(slot, partition);
        }
        let stream = &mut self.slots[slot as usize];
        let state = &mut stream.partitions[partition as usize];
        let ticket = state.open.get_or_insert_with(|| {
            self.touched.push((slot, partition));
            self.next_ticket += 2;
            Ticket {
                number: self.next_ticket - 2,
                stream: stream.id,
                partition,
                bytes: 0,
                messages: 0,
                waiters: Vec::new(),
                undos: Vec::new(),
            }
        });
        ticket.waiters.extend(waiter);
        ticket.number
    }

    /// Counts the record that was added to a partition.
    pub(super) fn pushed(&mut self, slot: u32, partition: u32) {
        let state = &mut self.slots[slot as usize].partitions[partition as usize];
        let ticket = state.open.as_mut().expect("a record is in a batch");
        let before = std::mem::replace(&mut ticket.bytes, state.builder.bytes());
        ticket.messages += 1;
        let bytes = ticket.bytes - before;
        self.undurable_bytes += bytes;
        let stream = &mut self.slots[slot as usize];
        stream.took(1, bytes as u64);
        let state = &stream.partitions[partition as usize];
        if state.builder.bytes() >= BATCH_BYTES_MAX {
            self.finish_touched(slot, partition);
        }
    }

    /// Finishes the batch of one partition, where one is open.
    fn finish_touched(&mut self, slot: u32, partition: u32) {
        let open = self.touched.len();
        self.touched.retain(|touched| *touched != (slot, partition));
        if self.touched.len() < open {
            self.finish(slot, partition);
        }
    }

    fn finish(&mut self, slot: u32, partition: u32) {
        let stream = &mut self.slots[slot as usize];
        let Partition {
            builder,
            open,
            in_flight,
            ..
        } = &mut stream.partitions[partition as usize];
        let ticket = open.take().expect("a touched partition has a ticket");
        self.finished.push(Append {
            stream: stream.id,
            partition,
            batch: builder.finish_published(stream.codec),
            ticket: ticket.number,
        });
        in_flight.push_back(ticket.number);
        self.in_flight.insert(ticket.number, ticket);
    }

    pub(super) fn finish_all(&mut self) {
        for (slot, partition) in std::mem::take(&mut self.touched) {
            self.finish(slot, partition);
        }
    }

    /// The appends that are due, in the order of their tickets within a partition.
    pub fn collect(&mut self) -> Vec<Append> {
        self.finish_all();
        std::mem::take(&mut self.finished)
    }

    /// To which stream an append goes that has not ended.
    pub fn stream_of(&self, ticket: u64) -> Option<u64> {
        Some(self.in_flight.get(&ticket)?.stream)
    }

    /// The append of `ticket` ended; who waits no more, and how what they wait for ended. None
    /// where no such ticket is in flight.
    pub fn durable(&mut self, ticket: u64, ending: Ending) -> Option<Vec<(Waiter, Ending)>> {
        let ticket = self.in_flight.remove(&ticket)?;
        self.undurable_bytes -= ticket.bytes;
        let settled = ticket.waiters.into_iter().map(|waiter| (waiter, ending));
        let mut settled: Vec<_> = settled.collect();
        if let Some(slot) = self.by_id.get(&ticket.stream) {
            let stream = &mut self.slots[*slot as usize];
            stream.on_their_way.0 = stream.on_their_way.0.saturating_sub(ticket.messages);
            stream.on_their_way.1 = stream.on_their_way.1.saturating_sub(ticket.bytes as u64);
            let partitions = &mut stream.partitions;
            if let Some(partition) = partitions.get_mut(ticket.partition as usize) {
                settled.extend(partition.ended(ticket.number, ending));
                if ending != Ending::Stored {
                    let undos = ticket.undos.into_iter().rev();
                    undos.for_each(|undo| partition.sources.take_back(undo));
                }
            }
        }
        Some(settled)
    }
}
