//! Building a round.

use super::entry::kind;
use super::state::Swap;
use super::{Chain, PAGE, ROUND_HEADER_BYTES, ROUND_MAGIC};
use crate::log::codec::Put;

/// Builds one round in place at the end of a buffer.
pub(in crate::log) struct RoundWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    seed: u32,
}

impl<'a> RoundWriter<'a> {
    /// Begins the round that `chain` expects, in the file of that seed. Rounds before `synced`
    /// are.
    pub(in crate::log) fn begin(
        out: &'a mut Vec<u8>,
        chain: Chain,
        seed: u32,
        synced: u64,
    ) -> Self {
        let start = out.len();
        out.put_u32(ROUND_MAGIC);
        out.put_u32(0); // the CRC, once all is there
        out.put_u32(chain.crc);
        out.put_u32(0); // the length likewise
        out.put_u64(chain.round);
        out.put_u64(synced);
        Self { out, start, seed }
    }

    pub(in crate::log) fn checkpoint(&mut self, body: &[u8]) {
        let at = self.open(kind::CHECKPOINT);
        self.out.extend_from_slice(body);
        self.close(at);
    }

    pub(in crate::log) fn register(
        &mut self,
        id: u32,
        partition: u32,
        incarnation: u64,
        created_ms: Option<i64>,
        stream: &str,
    ) {
        let at = self.open(kind::REGISTER);
        self.out.put_u32(id);
        self.out.put_u32(partition);
        self.out.put_u64(incarnation);
        self.out.put_maybe(created_ms);
        self.out.put_text(stream);
        self.close(at);
    }

    pub(in crate::log) fn roll(&mut self, id: u32, base: i64, created_ms: Option<i64>) {
        let at = self.open(kind::ROLL);
        self.out.put_u32(id);
        self.out.put_i64(base);
        self.out.put_maybe(created_ms);
        self.close(at);
    }

    pub(in crate::log) fn epoch(&mut self, id: u32, epoch: i32, offset: i64) {
        let at = self.open(kind::EPOCH);
        self.out.put_u32(id);
        self.out.put_u32(epoch as u32);
        self.out.put_i64(offset);
        self.close(at);
    }

    pub(in crate::log) fn trim(&mut self, id: u32, start_offset: i64) {
        let at = self.open(kind::TRIM);
        self.out.put_u32(id);
        self.out.put_i64(start_offset);
        self.close(at);
    }

    pub(in crate::log) fn replace(&mut self, id: u32, swap: &Swap) {
        let at = self.open(kind::REPLACE);
        self.out.put_u32(id);
        self.out.put_i64(swap.from);
        self.out.put_i64(swap.to);
        self.out.put_i64(swap.cleaned_to);
        self.out.put_u32(swap.segments.len() as u32);
        for segment in &swap.segments {
            segment.encode(self.out);
        }
        self.out.put_u8(u8::from(swap.has_sources));
        self.close(at);
    }

    pub(in crate::log) fn delete(&mut self, stream: &str) {
        let at = self.open(kind::DELETE);
        self.out.put_text(stream);
        self.close(at);
    }

    pub(in crate::log) fn direct(
        &mut self,
        id: u32,
        base: i64,
        position: u64,
        length: usize,
        crc: u32,
    ) {
        let at = self.open(kind::DIRECT);
        self.out.put_u32(id);
        self.out.put_i64(base);
        self.out.put_u32(position as u32);
        self.out.put_u32(length as u32);
        self.out.put_u32(crc);
        self.close(at);
    }

    /// A write of all `parts`, one after the other; returns where in the buffer they stand.
    pub(in crate::log) fn write<'p>(
        &mut self,
        id: u32,
        base: i64,
        position: u64,
        parts: impl IntoIterator<Item = &'p [u8]>,
    ) -> std::ops::Range<usize> {
        let at = self.open(kind::WRITE);
        self.out.put_u32(id);
        self.out.put_i64(base);
        self.out.put_u32(position as u32);
        let start = self.out.len();
        for part in parts {
            self.out.extend_from_slice(part);
        }
        self.close(at);
        start..self.out.len()
    }

    /// Ends the round at a page boundary; returns its CRC.
    pub(in crate::log) fn finish(self) -> u32 {
        let round = &mut self.out[self.start..];
        let length = (round.len() - ROUND_HEADER_BYTES) as u32;
        round[12..16].copy_from_slice(&length.to_be_bytes());
        let crc = crc32c::crc32c_append(self.seed, &round[8..]);
        round[4..8].copy_from_slice(&crc.to_be_bytes());
        let bytes = round.len().next_multiple_of(PAGE);
        self.out.resize(self.start + bytes, 0);
        crc
    }

    fn open(&mut self, kind: u8) -> usize {
        self.out.put_u8(kind);
        self.out.put_u32(0);
        self.out.len()
    }

    fn close(&mut self, at: usize) {
        let length = (self.out.len() - at) as u32;
        self.out[at - 4..at].copy_from_slice(&length.to_be_bytes());
    }
}
