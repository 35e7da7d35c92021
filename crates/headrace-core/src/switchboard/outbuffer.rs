//! Bytes on their way to one client.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::session::{Held, Memory};

/// A chunk is closed at this size. With the packet that ends it, it mostly has no more than is
/// taken at a time, and goes out as it is.
const CHUNK_BYTES: usize = 60 * 1024;

/// Room for that.
const ROOM_BYTES: usize = 64 * 1024;

/// A large payload on its way to clients: however many there are, it counts once.
#[derive(Debug)]
pub struct Lump {
    bytes: Arc<[u8]>,
    _held: Held,
}

impl Lump {
    /// Counts it in `memory` until the last client has taken it.
    pub fn new(bytes: Arc<[u8]>, memory: &Memory) -> Arc<Self> {
        let held = memory.hold(bytes.len());
        Arc::new(Self { bytes, _held: held })
    }
}

#[derive(Debug)]
enum Chunk {
    Own(Vec<u8>),
    Shared(Arc<Lump>),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(lump) => &lump.bytes,
        }
    }
}

/// A queue of bytes: small packets are copied together, large payloads are shared.
#[derive(Debug, Default)]
pub struct OutBuffer {
    /// Before `tail`.
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that were taken before.
    taken: usize,
    tail: Vec<u8>,
    /// Bytes not taken.
    len: usize,
    /// Of those, bytes of lumps.
    shared: usize,
    /// Room that the next tail begins with: what the last one had.
    room_bytes: usize,
    /// Packets written since they were counted.
    packets: u32,
}

impl OutBuffer {
    /// Bytes not taken.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes not taken that no other client is sent.
    pub fn own_bytes(&self) -> usize {
        self.len - self.shared
    }

    /// What it shares with others, and how many bytes each has.
    pub fn lumps(&self) -> impl Iterator<Item = (*const Lump, usize)> + '_ {
        self.chunks.iter().filter_map(|chunk| match chunk {
            Chunk::Own(_) => None,
            Chunk::Shared(lump) => Some((Arc::as_ptr(lump), lump.bytes.len())),
        })
    }

    /// True where nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Packets written since the last call.
    pub fn take_packets(&mut self) -> usize {
        std::mem::take(&mut self.packets) as usize
    }

    /// Lets `write` append a packet, or nothing.
    pub fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.tail.len();
        if self.tail.capacity() == 0 {
            self.tail.reserve(self.room_bytes);
        }
        write(&mut self.tail);
        self.len += self.tail.len() - before;
        self.packets += u32::from(self.tail.len() > before);
        if self.tail.len() >= CHUNK_BYTES {
            self.room_bytes = ROOM_BYTES;
            self.close_tail();
        }
    }

    /// Appends what others are sent, too.
    pub fn push_shared(&mut self, lump: Arc<Lump>) {
        self.close_tail();
        self.len += lump.bytes.len();
        self.shared += lump.bytes.len();
        self.chunks.push_back(Chunk::Shared(lump));
    }

    /// Takes at most `credit` bytes off the front, and at least half of what it may: a chunk of
    /// that size is not copied.
    pub fn take(&mut self, credit: usize) -> Vec<u8> {
        if self.chunks.is_empty() && self.len <= credit {
            self.len = 0;
            self.room_bytes = self.tail.len();
            return std::mem::take(&mut self.tail);
        }
        let room = credit.min(self.len);
        if let (0, Some(Chunk::Own(bytes))) = (self.taken, self.chunks.front_mut()) {
            if (room.div_ceil(2)..=room).contains(&bytes.len()) {
                let bytes = std::mem::take(bytes);
                self.chunks.pop_front();
                self.len -= bytes.len();
                return bytes;
            }
        }
        self.copy(room)
    }

    /// Takes `room` bytes off the front, of those that there are.
    fn copy(&mut self, mut room: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(room);
        self.len -= room;
        while room > 0 {
            if self.chunks.is_empty() {
                self.close_tail();
            }
            let rest = &self.chunks[0].bytes()[self.taken..];
            let part = rest.len().min(room);
            out.extend_from_slice(&rest[..part]);
            room -= part;
            let is_all = part == rest.len();
            if matches!(self.chunks[0], Chunk::Shared(_)) {
                self.shared -= part;
            }
            if is_all {
                self.chunks.pop_front();
                self.taken = 0;
            } else {
                self.taken += part;
            }
        }
        out
    }

    /// Drops what comes after so many bytes.
    pub fn truncate(&mut self, bytes: usize) {
        let kept = self.copy(bytes.min(self.len));
        self.clear();
        self.write(|out| out.extend_from_slice(&kept));
    }

    /// Drops what was not taken.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn close_tail(&mut self) {
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.chunks.push_back(Chunk::Own(tail));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_credit_the_bytes_come_in_order() {
        let memory = Memory::default();
        let large: Arc<[u8]> = (0..200_000_u32).map(|i| i as u8).collect();
        for credit in [1_000, 65_535, 65_536, 1 << 20] {
            let (mut out, mut expected, mut taken) = (OutBuffer::default(), vec![], vec![]);
            for round in 0..100_u8 {
                let small = vec![round; 1_500];
                out.write(|tail| tail.extend_from_slice(&small));
                expected.extend_from_slice(&small);
                if round % 10 == 0 {
                    out.push_shared(Lump::new(large.clone(), &memory));
                    expected.extend_from_slice(&large);
                }
                let part = out.take(credit);
                assert!(part.len() <= credit);
                taken.extend_from_slice(&part);
                assert_eq!(out.len(), expected.len() - taken.len());
                let lumps: usize = out.lumps().map(|(_, bytes)| bytes).sum();
                assert_eq!(memory.bytes(), lumps);
                assert!(out.len() - out.own_bytes() <= lumps);
            }
            while !out.is_empty() {
                taken.extend_from_slice(&out.take(credit));
            }
            assert!(taken == expected);
            assert_eq!((out.own_bytes(), memory.bytes()), (0, 0));
        }
    }
}
