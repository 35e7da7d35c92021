//! Checkpoints: what lives in a partition that has become long is written again at its end.

use std::collections::VecDeque;

use super::{Checkpoint, Persistence, Unit, CHECKPOINT_SLICE_BYTES};
use crate::switchboard::Switchboard;
use crate::Now;

impl Switchboard {
    /// Begins to write again what lives in the partition that has become long.
    pub(super) fn begin_checkpoint(&mut self) {
        let persistence = &self.persistence;
        if persistence.checkpoint.is_some() {
            return;
        }
        let bytes_min = persistence.checkpoint_bytes_min;
        let mut logs = persistence.logs.iter();
        let Some(at) = logs.position(|log| log.is_long(bytes_min)) else {
            return;
        };
        let partition = at as u32;
        let units = self.units_of(partition);
        let log = &mut self.persistence.logs[at];
        self.persistence.checkpoint = Some(Checkpoint {
            partition,
            units,
            is_begun: false,
            bytes: 0,
            bytes_before: std::mem::take(&mut log.bytes),
        });
    }

    /// All that lives in a partition, and one record at least.
    fn units_of(&self, partition: u32) -> VecDeque<Unit> {
        let mut units = VecDeque::from([Unit::Message(partition, 0)]);
        for (_, session) in &self.sessions {
            let client_id = &session.client_id;
            if session.is_will_kept && self.persistence.partition_of(client_id) == partition {
                units.push_back(Unit::Head(client_id.clone()));
            }
            let durable = session.durable.as_ref();
            if durable.is_some_and(|durable| durable.partition == partition) {
                units.push_back(Unit::Head(client_id.clone()));
                units.push_back(Unit::Cursor(client_id.clone()));
                let filters = session.subscriptions.keys();
                units.extend(filters.map(|filter| Unit::Filter(client_id.clone(), filter.clone())));
            }
        }
        let texts = self.groups.durable_texts(partition);
        units.extend(texts.map(|text| Unit::Group(text.into())));
        let live = self.persistence.logs[partition as usize].live.keys();
        units.extend(live.map(|number| Unit::Message(partition, *number)));
        units
    }

    /// Takes a part of a checkpoint along; true for its last.
    pub(super) fn write_checkpoint(&mut self, now: Now) -> bool {
        let Some(mut checkpoint) = self.persistence.checkpoint.take() else {
            return false;
        };
        let (partition, mut units) = (checkpoint.partition, std::mem::take(&mut checkpoint.units));
        self.persistence.checkpoint = Some(checkpoint);
        let parts = self.persistence.parts.len();
        while let Some(unit) = units.pop_front() {
            self.write(&unit, now);
            let bytes = self.persistence.logs[partition as usize].builder.bytes();
            let is_enough = self.persistence.parts.len() > parts;
            if is_enough || bytes >= CHECKPOINT_SLICE_BYTES {
                break;
            }
        }
        self.persistence.end_parts();
        let is_over = units.is_empty();
        if let Some(checkpoint) = &mut self.persistence.checkpoint {
            checkpoint.units = units;
        }
        is_over
    }
}

impl Persistence {
    /// Counts a batch that is to be appended; true where a checkpoint begins with it.
    pub(super) fn count(&mut self, partition: u32, bytes: usize) -> bool {
        self.logs[partition as usize].bytes += bytes as u64;
        let checkpoint = self.checkpoint.as_mut();
        let Some(checkpoint) = checkpoint.filter(|of| of.partition == partition) else {
            return false;
        };
        checkpoint.bytes += bytes as u64;
        !std::mem::replace(&mut checkpoint.is_begun, true)
    }

    pub(super) fn end_checkpoint(&mut self) {
        let checkpoint = self.checkpoint.take().expect("it has just been written");
        self.logs[checkpoint.partition as usize].checkpoint_bytes = checkpoint.bytes;
        self.checkpoints += 1;
    }
}
