//! What of logs is at hand: pieces, and packets of messages that are known and not handed out. All of
//! it can be read again, so all queues together hold a bounded amount.

use super::{Part, Piece, Queues};

/// Bytes of pieces, of all queues. Beyond it those of others go.
const PIECES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bytes of packets, of one partition of a group and of all queues. Messages that cannot go yet, as
/// those that stand behind others of their key, have half of it: stuck ones leave room for those that
/// go as soon as somebody takes them. What is beyond is read again when its turn comes.
const KEPT_BYTES_MAX: usize = 2 * 1024 * 1024;
const ALL_KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;

impl Queues {
    /// Bytes at hand.
    pub const fn held_bytes(&self) -> usize {
        self.pieces_bytes + self.kept_bytes
    }

    /// Whether there is room for the packet of a message that waits; it goes soon, or cannot yet.
    pub(super) fn has_room(&self, slot: u32, partition: u32, is_soon: bool) -> bool {
        let part = &self.groups[slot as usize].parts[partition as usize];
        let share = if is_soon { 1 } else { 2 };
        part.kept_bytes < KEPT_BYTES_MAX / share && self.kept_bytes < ALL_KEPT_BYTES_MAX / share
    }

    /// A piece has come for a partition, to be read on from or looked through ahead of that.
    pub(super) fn hold_piece(&mut self, slot: u32, partition: u32, piece: Piece, is_ahead: bool) {
        self.pieces_bytes += piece.bytes();
        let part = &mut self.groups[slot as usize].parts[partition as usize];
        let place = if is_ahead {
            &mut part.ahead
        } else {
            &mut part.piece
        };
        if let Some(before) = place.replace(piece) {
            self.pieces_bytes -= before.bytes();
        }
        if self.pieces_bytes < PIECES_BYTES_MAX {
            return;
        }
        for (of, group) in &mut self.groups {
            for (index, part) in (0..).zip(&mut group.parts) {
                if (of as u32, index) != (slot, partition) {
                    self.pieces_bytes -= part.take_pieces();
                }
            }
        }
    }

    /// A piece has been gone through.
    pub(super) fn drop_piece(&mut self, piece: &Piece) {
        self.pieces_bytes -= piece.bytes();
    }

    pub(super) fn keep(&mut self, slot: u32, partition: u32, offset: i64, packet: Box<[u8]>) {
        let bytes = packet.len();
        let part = &mut self.groups[slot as usize].parts[partition as usize];
        let before = part.kept.insert(offset, packet);
        let before = before.map_or(0, |packet| packet.len());
        part.kept_bytes = part.kept_bytes + bytes - before;
        self.kept_bytes = self.kept_bytes + bytes - before;
    }

    pub(super) fn take(&mut self, slot: u32, partition: u32, offset: i64) -> Option<Box<[u8]>> {
        let part = &mut self.groups[slot as usize].parts[partition as usize];
        let packet = part.kept.remove(&offset)?;
        part.kept_bytes -= packet.len();
        self.kept_bytes -= packet.len();
        Some(packet)
    }

    /// Forgets the packets of messages before an offset.
    pub(super) fn let_go_before(&mut self, slot: u32, partition: u32, start: i64) {
        let part = &mut self.groups[slot as usize].parts[partition as usize];
        let kept = part.kept.split_off(&start);
        for packet in std::mem::replace(&mut part.kept, kept).into_values() {
            part.kept_bytes -= packet.len();
            self.kept_bytes -= packet.len();
        }
    }

    /// Forgets all that a group has at hand.
    pub(super) fn let_go(&mut self, slot: u32) {
        for part in &mut self.groups[slot as usize].parts {
            self.pieces_bytes -= part.take_pieces();
            self.kept_bytes -= std::mem::take(&mut part.kept_bytes);
            part.asked = None;
            part.kept.clear();
            part.deaths.clear();
            part.unburied.clear();
        }
    }
}

impl Part {
    /// Forgets its pieces; what they took.
    fn take_pieces(&mut self) -> usize {
        let pieces = [self.piece.take(), self.ahead.take()];
        pieces.iter().flatten().map(Piece::bytes).sum()
    }

    /// Bytes at hand, counted.
    pub(super) fn held_bytes(&self) -> usize {
        let kept: usize = self.kept.values().map(|packet| packet.len()).sum();
        assert_eq!(kept, self.kept_bytes);
        let pieces = [&self.piece, &self.ahead].into_iter().flatten();
        kept + pieces.map(Piece::bytes).sum::<usize>()
    }
}
