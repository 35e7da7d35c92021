//! What of logs is at hand: pieces, and packets of messages that are known and not handed out. All of
//! it can be read again, so all queues together hold a bounded amount.

use super::{Part, Piece, Queues};

/// Bytes of pieces and packets, of all queues. Beyond it pieces of others go, and no packet is kept
/// that is not to be handed out next.
pub const HELD_BYTES_MAX: usize = if cfg!(test) {
    64 * 1024
} else {
    64 * 1024 * 1024
};

impl Queues {
    /// Bytes at hand.
    pub const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Whether there is room for the packet of a message that waits.
    pub(super) const fn has_room(&self) -> bool {
        self.held_bytes < HELD_BYTES_MAX
    }

    /// A piece has come for a partition.
    pub(super) fn hold_piece(&mut self, slot: u32, partition: u32, piece: Piece) {
        self.held_bytes += piece.bytes();
        let part = &mut self.groups[slot as usize].parts[partition as usize];
        if let Some(before) = part.piece.replace(piece) {
            self.held_bytes -= before.bytes();
        }
        if self.has_room() {
            return;
        }
        for (of, group) in &mut self.groups {
            for (index, part) in (0..).zip(&mut group.parts) {
                let is_other = (of as u32, index) != (slot, partition);
                if let Some(piece) = part.piece.take_if(|_| is_other) {
                    self.held_bytes -= piece.bytes();
                }
            }
        }
    }

    /// A piece has been gone through.
    pub(super) fn drop_piece(&mut self, piece: &Piece) {
        self.held_bytes -= piece.bytes();
    }

    pub(super) fn keep(&mut self, slot: u32, partition: u32, offset: i64, packet: Box<[u8]>) {
        self.held_bytes += packet.len();
        let part = &mut self.groups[slot as usize].parts[partition as usize];
        if let Some(before) = part.kept.insert(offset, packet) {
            self.held_bytes -= before.len();
        }
    }

    pub(super) fn take(&mut self, slot: u32, partition: u32, offset: i64) -> Option<Box<[u8]>> {
        let part = &mut self.groups[slot as usize].parts[partition as usize];
        let packet = part.kept.remove(&offset)?;
        self.held_bytes -= packet.len();
        Some(packet)
    }

    /// Forgets the packets of messages before an offset.
    pub(super) fn let_go_before(&mut self, slot: u32, partition: u32, start: i64) {
        let part = &mut self.groups[slot as usize].parts[partition as usize];
        let kept = part.kept.split_off(&start);
        for packet in std::mem::replace(&mut part.kept, kept).into_values() {
            self.held_bytes -= packet.len();
        }
    }

    /// Forgets all that a group has at hand.
    pub(super) fn let_go(&mut self, slot: u32) {
        for part in &mut self.groups[slot as usize].parts {
            self.held_bytes -= part.held_bytes();
            (part.piece, part.asked) = (None, None);
            part.kept.clear();
            part.deaths.clear();
        }
    }
}

impl Part {
    /// Bytes at hand.
    pub(super) fn held_bytes(&self) -> usize {
        let kept: usize = self.kept.values().map(|packet| packet.len()).sum();
        kept + self.piece.as_ref().map_or(0, Piece::bytes)
    }
}
