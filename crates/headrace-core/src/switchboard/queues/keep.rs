//! What groups have settled, on the log of sessions: records for each chunk of each partition of a
//! group, under a key of its own, one a round at most.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Part, Queues};
use crate::queue::{Chunk, Settled};
use crate::switchboard::persist::Unit;
use crate::switchboard::Switchboard;

/// Of a stream, by group, by partition, by number.
type Chunks = BTreeMap<Arc<str>, BTreeMap<u32, BTreeMap<i64, Chunk>>>;

/// What the log has of streams that are not known to be queues.
pub type Kept = BTreeMap<u64, Chunks>;

/// Which chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkPlace {
    /// The stream's id.
    pub stream: u64,
    /// Its partition.
    pub partition: u32,
    /// Number of the chunk.
    pub chunk: i64,
    /// The group, with its filter behind a NUL where it has one.
    pub group: Arc<str>,
}

impl Switchboard {
    /// Makes due what has changed of what is settled; whether anything has.
    pub(in crate::switchboard) fn note_changed(&mut self) -> bool {
        let dues = self.persistence.dues();
        for (slot, partition) in std::mem::take(&mut self.queues.changed) {
            let group = &mut self.queues.groups[slot as usize];
            let stream = self.queues.all[group.queue as usize].stream;
            let part = &mut group.parts[partition as usize];
            part.is_changed = false;
            for chunk in part.ledger.settled_mut().take_changed() {
                self.persistence.chunk_due(ChunkPlace {
                    stream,
                    partition,
                    chunk,
                    group: Arc::clone(&group.name),
                });
            }
        }
        self.persistence.dues() > dues
    }

    /// The record of a chunk as it is now, or of what has changed of it; None where it has none.
    pub(in crate::switchboard) fn chunk_record(
        &mut self,
        place: &ChunkPlace,
        is_whole: bool,
    ) -> Option<Vec<u8>> {
        let part = self.queues.part_of(place)?;
        if is_whole {
            return part.ledger.settled().whole_record(place.chunk);
        }
        part.ledger.settled_mut().record(place.chunk)
    }

    /// Of a round that was refused, what is not to be asked of groups anew.
    pub(in crate::switchboard) fn chunks_again(&mut self, mut units: Vec<Unit>) -> Vec<Unit> {
        units.retain(|unit| {
            let Unit::Chunk(place) = unit else {
                return true;
            };
            let Some(slot) = self.queues.group_at(place) else {
                return true; // that there is no such group is told again
            };
            let part = &mut self.queues.groups[slot as usize].parts[place.partition as usize];
            part.ledger.settled_mut().refused(place.chunk);
            self.queues.change(slot, place.partition);
            false
        });
        units
    }

    /// Notes what a group, by slot, has in a partition of the log of sessions.
    pub(in crate::switchboard) fn chunks_of(
        &self,
        slot: usize,
        lies: impl Fn(u64, u32) -> bool,
        mut see: impl FnMut(Unit),
    ) {
        let Some(group) = self.queues.groups.get(slot) else {
            return;
        };
        let stream = self.queues.all[group.queue as usize].stream;
        for (partition, part) in (0..).zip(&group.parts) {
            if !lies(stream, partition) {
                continue;
            }
            for chunk in part.ledger.settled().numbers() {
                see(Unit::WholeChunk(ChunkPlace {
                    stream,
                    partition,
                    chunk,
                    group: Arc::clone(&group.name),
                }));
            }
        }
    }

    /// What the log has of groups, by stream, of which those that are queues are told by now.
    pub(in crate::switchboard) fn restore_chunks(&mut self, kept: Kept) {
        self.queues.kept = kept;
        let slots: Vec<u32> = self.queues.by_stream.values().copied().collect();
        for slot in slots {
            self.restore_queue(slot);
        }
        self.forget_chunks();
    }

    /// The groups of a queue as the log says.
    pub(super) fn restore_queue(&mut self, slot: u32) {
        let queue = &self.queues.all[slot as usize];
        let (stream, partitions) = (queue.stream, queue.ends.len());
        let groups = self.queues.kept.remove(&stream);
        for (name, mut parts) in groups.unwrap_or_default() {
            if parts.values().all(BTreeMap::is_empty) {
                continue; // it was forgotten
            }
            let settled = (0..partitions as u32).map(|partition| {
                let chunks = parts.remove(&partition)?;
                Settled::restored(chunks)
            });
            let settled = settled.collect();
            if !self.queues.all[slot as usize].groups.contains_key(&name) {
                let group = self.queues.begin_group(slot, &name, settled);
                for part in &mut self.queues.groups[group as usize].parts {
                    part.is_restored = true;
                }
            }
        }
        self.resume_consumers();
        let groups = self.queues.all[slot as usize].groups.clone();
        for group in groups.into_values() {
            self.end_if_nameless(group); // a crash came before its end was told
        }
    }

    /// What the log has of streams that are no queues is written away.
    fn forget_chunks(&mut self) {
        for (stream, groups) in std::mem::take(&mut self.queues.kept) {
            for (group, parts) in groups {
                for (partition, chunks) in parts {
                    for chunk in chunks.into_keys() {
                        let group = Arc::clone(&group);
                        self.persistence.chunk_due(ChunkPlace {
                            stream,
                            partition,
                            chunk,
                            group,
                        });
                    }
                }
            }
        }
    }

    /// A group is no more, and nothing is kept of it.
    pub(super) fn forget_group(&mut self, slot: u32) {
        let mut units = Vec::new();
        self.chunks_of(slot as usize, |_, _| true, |unit| units.push(unit));
        let group = self.queues.end_group(slot);
        if let Some(at) = group.timer_ms {
            self.timers
                .cancel(at, crate::switchboard::timers::Timer::Queue(slot));
        }
        self.persistence.units_due(units);
        self.measure_again(group.queue); // it may have been owed most
    }

    /// Sessions that consume a queue which has just come to be known go on.
    fn resume_consumers(&mut self) {
        let waiting: Vec<(u32, Box<str>)> = self
            .sessions
            .iter()
            .filter_map(|(slot, session)| Some((slot, session.consuming.as_ref()?)))
            .flat_map(|(slot, consuming)| {
                let filters = consuming.terms.keys();
                let away = filters.filter(|filter| !consuming.consumers.contains_key(*filter));
                away.map(move |filter| (slot as u32, filter.clone()))
            })
            .collect();
        for (session, filter) in waiting {
            self.begin_consuming(session, &filter);
        }
    }
}

impl Queues {
    /// The group that a chunk is of, if there is one with such a partition.
    fn group_at(&self, place: &ChunkPlace) -> Option<u32> {
        let queue = &self.all[*self.by_stream.get(&place.stream)? as usize];
        let slot = *queue.groups.get(&place.group)?;
        let parts = self.groups[slot as usize].parts.len();
        ((place.partition as usize) < parts).then_some(slot)
    }

    fn part_of(&mut self, place: &ChunkPlace) -> Option<&mut Part> {
        let slot = self.group_at(place)?;
        Some(&mut self.groups[slot as usize].parts[place.partition as usize])
    }

    /// Slots that groups may have.
    pub fn groups_capacity(&self) -> usize {
        self.groups.capacity()
    }
}
