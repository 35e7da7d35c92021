//! Bytes on their way to one client.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::session::{Held, Memory, SHARED_BYTES_MIN};

/// A chunk is closed at this size. With the packet that ends it, it mostly has no more than is
/// taken at a time, and goes out as it is.
const CHUNK_BYTES: usize = 60 * 1024;

/// Room for that.
const ROOM_BYTES: usize = 64 * 1024;

/// A shell has so many bytes of a client that reads nothing. As pieces of lumps they keep those in
/// memory, uncounted: so of a lump that is larger the end is copied, and whoever has a piece of it
/// has more to take.
const SHELL_BYTES: usize = 128 * 1024;

/// Of what comes before that end so many times the credit is taken at once: it costs no memory.
const LUMP_CREDITS: usize = 4;

/// A large payload on its way to clients: however many there are, it counts once.
#[derive(Debug)]
pub struct Lump {
    bytes: Bytes,
    _held: Held,
}

impl Lump {
    /// Counts it in `memory` until the last client has taken it.
    pub fn new(bytes: Bytes, memory: &Memory) -> Arc<Self> {
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

    /// Of how many bytes, from its first, large parts are not copied when they are taken.
    fn uncopied(&self) -> usize {
        match self {
            Self::Shared(lump) if lump.bytes.len() <= SHELL_BYTES => lump.bytes.len(),
            _ => self.before_end(),
        }
    }

    /// Bytes of a lump before its end.
    fn before_end(&self) -> usize {
        match self {
            Self::Own(_) => 0,
            Self::Shared(lump) => lump.bytes.len().saturating_sub(SHELL_BYTES),
        }
    }
}

/// What is to be written to a client at a time.
#[derive(Debug)]
pub enum Written {
    /// In one.
    Bytes(Vec<u8>),
    /// In this order; what others are sent, too, is not copied.
    Pieces(Vec<Bytes>),
}

impl Written {
    /// Bytes of all.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Pieces(pieces) => pieces.iter().map(Bytes::len).sum(),
        }
    }

    /// True where nothing is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it, joined.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Pieces(pieces) => pieces.concat(),
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

    /// How many bytes `credit` is for, of those that there are: it is for what is copied, or may be.
    pub fn within(&self, credit: usize) -> usize {
        if self.chunks.is_empty() {
            return credit.min(self.len);
        }
        let (mut own, mut lumps) = (credit, credit.saturating_mul(LUMP_CREDITS));
        let (mut from, mut total) = (self.taken, 0);
        for chunk in &self.chunks {
            let rest = chunk.bytes().len() - from;
            let free = chunk.before_end().saturating_sub(from);
            let part = match free.min(lumps) {
                part if part < free => part,
                part => part + own.min(rest - part),
            };
            total += part;
            if part < rest {
                return total;
            }
            (lumps, own, from) = (lumps - free, own - (rest - free), 0);
        }
        total + own.min(self.tail.len())
    }

    /// Takes at most `room` bytes off the front, and at least half of what it may: a chunk of
    /// that size is not copied, and neither is what others are sent.
    pub fn take(&mut self, room: usize) -> Written {
        if self.chunks.is_empty() && self.len <= room {
            self.len = 0;
            self.room_bytes = self.tail.len();
            return Written::Bytes(std::mem::take(&mut self.tail));
        }
        let room = room.min(self.len);
        if let (0, Some(Chunk::Own(bytes))) = (self.taken, self.chunks.front_mut()) {
            if (room.div_ceil(2)..=room).contains(&bytes.len()) {
                let bytes = std::mem::take(bytes);
                self.chunks.pop_front();
                self.len -= bytes.len();
                return Written::Bytes(bytes);
            }
        }
        self.pieces(room)
    }

    /// Takes `room` bytes off the front, of those that there are.
    fn pieces(&mut self, mut room: usize) -> Written {
        let (mut pieces, mut own) = (Vec::new(), Vec::new());
        self.len -= room;
        while room > 0 {
            if self.chunks.is_empty() {
                self.close_tail();
            }
            let chunk = &self.chunks[0];
            let (from, bytes) = (self.taken, chunk.bytes().len());
            let mut part = room.min(bytes - from);
            if (from + 1..from + part).contains(&chunk.uncopied()) {
                part = chunk.uncopied() - from;
            }
            let to = from + part;
            match chunk {
                Chunk::Shared(lump) if part >= SHARED_BYTES_MIN && to <= chunk.uncopied() => {
                    if !own.is_empty() {
                        pieces.push(std::mem::take(&mut own).into());
                    }
                    pieces.push(lump.bytes.slice(from..to));
                }
                _ => own.extend_from_slice(&chunk.bytes()[from..to]),
            }
            if matches!(chunk, Chunk::Shared(_)) {
                self.shared -= part;
            }
            room -= part;
            self.taken = to;
            if to == bytes {
                self.chunks.pop_front();
                self.taken = 0;
            }
        }
        if pieces.is_empty() {
            return Written::Bytes(own);
        }
        if !own.is_empty() {
            pieces.push(own.into());
        }
        Written::Pieces(pieces)
    }

    /// Drops what comes after so many bytes.
    pub fn truncate(&mut self, bytes: usize) {
        let kept = self.pieces(bytes.min(self.len)).into_bytes();
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
        let large: Bytes = (0..200_000_u32).map(|i| i as u8).collect();
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
                taken.extend(part.into_bytes());
                assert_eq!(out.len(), expected.len() - taken.len());
                let lumps: usize = out.lumps().map(|(_, bytes)| bytes).sum();
                assert_eq!(memory.bytes(), lumps);
                assert!(out.len() - out.own_bytes() <= lumps);
            }
            while !out.is_empty() {
                taken.extend(out.take(credit).into_bytes());
            }
            assert!(taken == expected);
            assert_eq!((out.own_bytes(), memory.bytes()), (0, 0));
        }
    }
    /// A shell that is not read from is given a credit more as long as it has less than one.
    #[test]
    fn what_a_shell_has_of_a_client_that_reads_nothing_keeps_little_in_memory() {
        let (memory, credit) = (Memory::default(), SHELL_BYTES / 2);
        for lump_bytes in [16_384, 65_536, 131_072, 200_000, 1 << 20, 5 << 20] {
            let lumps: Vec<Bytes> = (0..8).map(|_| vec![0; lump_bytes].into()).collect();
            let mut out = OutBuffer::default();
            for lump in &lumps {
                out.write(|tail| tail.extend_from_slice(&[0; 20]));
                out.push_shared(Lump::new(lump.clone(), &memory));
            }
            let (mut given, mut is_shared): (VecDeque<Bytes>, _) = (VecDeque::new(), false);
            while !out.is_empty() {
                while given.iter().map(Bytes::len).sum::<usize>() >= credit {
                    let first = &mut given[0];
                    _ = first.split_to(first.len().min(1000));
                    if first.is_empty() {
                        given.pop_front();
                    }
                }
                match out.take(out.within(credit)) {
                    Written::Bytes(bytes) => given.push_back(bytes.into()),
                    Written::Pieces(pieces) => given.extend(pieces),
                }
                let waits = |lump: &&Bytes| {
                    let mut waiting = out.chunks.iter().map(|chunk| chunk.bytes().as_ptr());
                    waiting.any(|at| at == lump.as_ptr())
                };
                let has_part = |lump: &&Bytes| {
                    let mut parts = given.iter().map(|part| part.as_ptr());
                    parts.any(|at| lump.as_ptr_range().contains(&at))
                };
                is_shared |= lumps.iter().any(|lump| has_part(&lump));
                let gone = lumps.iter().filter(|lump| !waits(lump));
                let kept = gone.filter(has_part).count() * lump_bytes;
                assert!(kept <= 3 * SHELL_BYTES, "{kept} of {lump_bytes} each");
            }
            assert!(is_shared, "those of {lump_bytes} were copied");
        }
    }

    #[test]
    fn a_credit_is_for_what_is_copied_and_for_little_more_of_what_is_not() {
        let memory = Memory::default();
        let mut out = OutBuffer::default();
        out.write(|tail| tail.extend_from_slice(&[0; 10]));
        assert_eq!((out.within(4), out.within(64)), (4, 10));
        out.push_shared(Lump::new(vec![0; SHELL_BYTES + 1000].into(), &memory));
        out.write(|tail| tail.extend_from_slice(&[0; 10]));
        let all = out.len();
        assert_eq!(out.within(4), 4, "its front is its own");
        assert_eq!(out.within(64), 10 + 4 * 64);
        assert_eq!(
            out.within(300),
            10 + 1000 + 290,
            "then of the end, what is left"
        );
        assert_eq!(out.within(usize::MAX), all);
        assert_eq!(out.take(500).len(), 500);
        assert_eq!(out.within(300), 510 + 300);
        assert_eq!(out.within(SHELL_BYTES), 510 + SHELL_BYTES);
        assert_eq!(out.within(SHELL_BYTES + 4), 510 + SHELL_BYTES + 4);
    }
}
