//! What is looked for ahead of reading: messages that overtake others.

use super::message::meta_of;
use crate::queue::PRIORITY;
use crate::record::Record;
use crate::switchboard::Switchboard;
use crate::Now;

impl Switchboard {
    /// As [`Self::read_on`], for messages that overtake others.
    pub(super) fn scan_on(&mut self, slot: u32, partition: u32, offset: i64, now: Now) -> bool {
        let part = &mut self.queues.groups[slot as usize].parts[partition as usize];
        let Some(mut piece) = part.ahead.take() else {
            return false;
        };
        if piece.from() > offset {
            self.queues.drop_piece(&piece);
            return false;
        }
        let seen = piece.see(offset, |record, _| {
            self.glimpse(slot, partition, record, now);
        });
        let part = &mut self.queues.groups[slot as usize].parts[partition as usize];
        if seen.is_some() {
            part.ahead = Some(piece);
            return true;
        }
        let is_on = piece.next() > offset;
        part.ledger.looked(piece.next());
        self.queues.drop_piece(&piece);
        is_on
    }

    /// A record whose turn has not come, and which may overtake others.
    fn glimpse(&mut self, slot: u32, partition: u32, record: &Record<'_>, now: Now) {
        let queues = &mut self.queues;
        let group = &queues.groups[slot as usize];
        let settings = &queues.all[group.queue as usize].settings;
        let meta = meta_of(record, settings, queues.hash_key);
        let is_wanted = meta.priority != PRIORITY && queues.is_wanted(slot, record);
        let part = &mut queues.groups[slot as usize].parts[partition as usize];
        if is_wanted {
            part.ledger.saw(record.offset, meta, now);
            queues.change(slot, partition); // it may rest
        } else {
            part.ledger.looked(record.offset + 1);
        }
    }
}
