//! Which messages of a partition a group has settled, and how often the others were tried.
//!
//! A bit for each message, from the first chunk that is not settled as a whole to the last that has
//! something to tell; below all are settled, behind none. So settling costs the same wherever it
//! happens and however much is open, and ten million settled messages behind one that is stuck take
//! 1.25 MB.
//!
//! What is kept on the log is a record for each chunk, written as it then is: the bits, and the
//! tries of messages that have failed. The chunk that is first always has one, for it tells where
//! the group begins.

use std::collections::{BTreeSet, VecDeque};

use crate::leb128;

/// Messages of a chunk.
pub const CHUNK_MESSAGES: i64 = 4096;

const WORDS: usize = CHUNK_MESSAGES as usize / 64;

/// How often a message has failed, and when it may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Try {
    /// Deliveries so far.
    pub attempt: u32,
    /// Of those, the ones that failed.
    pub failures: u32,
    /// When it was first delivered, milliseconds since 1970.
    pub first_ms: i64,
    /// Until when it rests, milliseconds since 1970.
    pub due_ms: i64,
}

/// Messages `number * CHUNK_MESSAGES` and the following.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    settled: [u64; WORDS],
    count: u16,
    /// By place in the chunk, of messages that are not settled.
    tries: Vec<(u16, Try)>,
}

impl Default for Chunk {
    fn default() -> Self {
        Self {
            settled: [0; WORDS],
            count: 0,
            tries: Vec::new(),
        }
    }
}

impl Chunk {
    fn has(&self, place: u16) -> bool {
        self.settled[usize::from(place) / 64] >> (place % 64) & 1 == 1
    }

    fn set(&mut self, place: u16) -> bool {
        let is_new = !self.has(place);
        self.settled[usize::from(place) / 64] |= 1 << (place % 64);
        self.count += u16::from(is_new);
        if let Ok(at) = self.tries.binary_search_by_key(&place, |(place, _)| *place) {
            self.tries.remove(at);
        }
        is_new
    }

    /// The first place from `place` on that is not settled.
    fn unsettled(&self, place: u16) -> Option<u16> {
        let first = usize::from(place) / 64;
        (first..WORDS).find_map(|word| {
            let below = if word == first {
                (1 << (place % 64)) - 1
            } else {
                0
            };
            let open = !(self.settled[word] | below);
            (open != 0).then(|| (word * 64) as u16 + open.trailing_zeros() as u16)
        })
    }

    fn is_whole(&self) -> bool {
        i64::from(self.count) == CHUNK_MESSAGES
    }
}

/// What is settled of one partition.
#[derive(Debug)]
pub struct Settled {
    /// Number of the first chunk.
    base: i64,
    chunks: VecDeque<Chunk>,
    /// Messages that are settled, from the first chunk on.
    count: u64,
    /// Numbers of chunks whose record no longer tells the truth.
    changed: BTreeSet<i64>,
}

impl Settled {
    /// All below `start` is settled, and nothing else.
    ///
    /// # Panics
    /// Where `start` is negative.
    pub fn new(start: i64) -> Self {
        assert!(start >= 0, "offsets count from 0");
        let mut settled = Self {
            base: start / CHUNK_MESSAGES,
            chunks: VecDeque::from([Chunk::default()]),
            count: 0,
            changed: BTreeSet::from([start / CHUNK_MESSAGES]),
        };
        for offset in settled.base * CHUNK_MESSAGES..start {
            settled.settle(offset);
        }
        settled
    }

    /// From what was kept, by number; None where that has nothing, or chunks of which none is open.
    pub fn restored(kept: impl IntoIterator<Item = (i64, Chunk)>) -> Option<Self> {
        let mut settled: Option<Self> = None;
        for (number, chunk) in kept {
            let found = settled.get_or_insert_with(|| Self {
                base: number,
                chunks: VecDeque::new(),
                count: 0,
                changed: BTreeSet::new(),
            });
            let place = usize::try_from(number - found.base).ok()?;
            if place < found.chunks.len() {
                return None; // not in order
            }
            found.chunks.resize(place, Chunk::default());
            found.count += u64::from(chunk.count);
            found.chunks.push_back(chunk);
        }
        let mut settled = settled?;
        settled.advance();
        Some(settled)
    }

    /// The first message that is not settled.
    pub fn floor(&self) -> i64 {
        self.next_unsettled(self.base * CHUNK_MESSAGES)
    }

    /// The first message from `offset` on that is not settled.
    pub fn next_unsettled(&self, offset: i64) -> i64 {
        let mut number = (offset / CHUNK_MESSAGES).max(self.base);
        let mut place = if number == offset / CHUNK_MESSAGES {
            (offset % CHUNK_MESSAGES) as u16
        } else {
            0
        };
        while let Some(chunk) = self.chunks.get((number - self.base) as usize) {
            if let Some(found) = chunk.unsettled(place) {
                return number * CHUNK_MESSAGES + i64::from(found);
            }
            (number, place) = (number + 1, 0);
        }
        number * CHUNK_MESSAGES + i64::from(place)
    }

    /// Whether a message is settled.
    pub fn has(&self, offset: i64) -> bool {
        let number = offset / CHUNK_MESSAGES;
        if number < self.base {
            return true;
        }
        let chunk = self.chunks.get((number - self.base) as usize);
        chunk.is_some_and(|chunk| chunk.has((offset % CHUNK_MESSAGES) as u16))
    }

    /// How many messages below `end` are not settled.
    pub fn open_below(&self, end: i64) -> u64 {
        let all = (end - self.base * CHUNK_MESSAGES).max(0) as u64;
        all.saturating_sub(self.count)
    }

    /// Settles a message; whether it was not.
    pub fn settle(&mut self, offset: i64) -> bool {
        let number = offset / CHUNK_MESSAGES;
        if number < self.base {
            return false;
        }
        let is_new = self.at(number).set((offset % CHUNK_MESSAGES) as u16);
        if is_new {
            self.count += 1;
            self.changed.insert(number);
            if number == self.base {
                self.advance();
            }
        }
        is_new
    }

    /// Notes how a message failed. It is not settled.
    pub fn note(&mut self, offset: i64, tried: Try) {
        debug_assert!(!self.has(offset), "it is settled");
        let (number, place) = (offset / CHUNK_MESSAGES, (offset % CHUNK_MESSAGES) as u16);
        let all = &mut self.at(number).tries;
        match all.binary_search_by_key(&place, |(place, _)| *place) {
            Ok(at) => all[at].1 = tried,
            Err(at) => all.insert(at, (place, tried)),
        }
        self.changed.insert(number);
    }

    /// How a message failed, if it has.
    pub fn tried(&self, offset: i64) -> Option<Try> {
        let chunk = self
            .chunks
            .get(usize::try_from(offset / CHUNK_MESSAGES - self.base).ok()?)?;
        let place = (offset % CHUNK_MESSAGES) as u16;
        let at = chunk
            .tries
            .binary_search_by_key(&place, |(place, _)| *place);
        at.ok().map(|at| chunk.tries[at].1)
    }

    /// All below `start` is settled.
    pub fn settle_below(&mut self, start: i64) {
        let base = start / CHUNK_MESSAGES;
        while self.base < base {
            let Some(chunk) = self.chunks.pop_front() else {
                break;
            };
            self.count -= u64::from(chunk.count);
            self.changed.insert(self.base);
            self.base += 1;
        }
        if self.base < base || self.chunks.is_empty() {
            self.base = self.base.max(base);
            self.chunks = VecDeque::from([Chunk::default()]);
        }
        self.changed.insert(self.base);
        let mut at = self.next_unsettled(self.base * CHUNK_MESSAGES);
        while at < start {
            self.settle(at);
            at = self.next_unsettled(at + 1);
        }
    }

    /// Nothing from `end` on is settled or was tried: the log has lost it, and may have others there.
    pub fn clip(&mut self, end: i64) {
        if end <= self.base * CHUNK_MESSAGES {
            return self.seek(end);
        }
        let kept = ((end - 1) / CHUNK_MESSAGES - self.base) as usize;
        let behind = self.chunks.len().min(kept + 1);
        for (number, gone) in (self.base + behind as i64..).zip(self.chunks.drain(behind..)) {
            self.count -= u64::from(gone.count);
            self.changed.insert(number);
        }
        let Some(last) = self.chunks.get_mut(kept) else {
            return;
        };
        let before = last.count;
        for place in (end - 1) % CHUNK_MESSAGES + 1..CHUNK_MESSAGES {
            last.settled[place as usize / 64] &= !(1 << (place % 64));
        }
        last.count = last
            .settled
            .iter()
            .map(|word| word.count_ones() as u16)
            .sum();
        let tries = last.tries.len();
        last.tries
            .retain(|(place, _)| i64::from(*place) <= (end - 1) % CHUNK_MESSAGES);
        self.count -= u64::from(before - last.count);
        if last.count < before || last.tries.len() < tries {
            self.changed.insert(self.base + kept as i64);
        }
    }

    /// Begins at `start`, whatever was settled.
    pub fn seek(&mut self, start: i64) {
        let mut changed = std::mem::take(&mut self.changed);
        changed.extend(self.base..self.base + self.chunks.len() as i64);
        *self = Self::new(start);
        self.changed.append(&mut changed);
    }

    /// Numbers of chunks whose records are to be written, in order.
    pub fn take_changed(&mut self) -> Vec<i64> {
        std::mem::take(&mut self.changed).into_iter().collect()
    }

    /// Writes records again that were not.
    pub fn change(&mut self, numbers: impl IntoIterator<Item = i64>) {
        self.changed.extend(numbers);
    }

    /// Numbers of all chunks, from the first.
    pub fn numbers(&self) -> std::ops::Range<i64> {
        self.base..self.base + self.chunks.len() as i64
    }

    /// The record of a chunk; None where it has none, for all of it is settled and told by those
    /// that follow, or nothing of it is.
    pub fn record(&self, number: i64) -> Option<Vec<u8>> {
        let chunk = self.chunks.get(usize::try_from(number - self.base).ok()?)?;
        let is_empty = chunk.count == 0 && chunk.tries.is_empty();
        (number == self.base || !is_empty).then(|| write(chunk))
    }

    fn at(&mut self, number: i64) -> &mut Chunk {
        let place = (number - self.base) as usize;
        if place >= self.chunks.len() {
            self.chunks.resize(place + 1, Chunk::default());
        }
        &mut self.chunks[place]
    }

    /// Leaves chunks behind that are settled as a whole.
    fn advance(&mut self) {
        while self.chunks.front().is_some_and(Chunk::is_whole) {
            self.chunks.pop_front();
            self.count -= CHUNK_MESSAGES as u64;
            self.changed.insert(self.base);
            self.base += 1;
            // It tells from now on where the group begins.
            self.changed.insert(self.base);
        }
        if self.chunks.is_empty() {
            self.chunks.push_back(Chunk::default());
        }
    }
}

/// Bits in runs of whole words that are equal, then tries; numbers are LEB128.
fn write(chunk: &Chunk) -> Vec<u8> {
    let mut out = vec![VERSION];
    let mut word = 0;
    while word < WORDS {
        let value = chunk.settled[word];
        let run = chunk.settled[word..]
            .iter()
            .take_while(|each| **each == value)
            .count();
        match value {
            0 => leb128::write(&mut out, (run as u64) << 2),
            u64::MAX => leb128::write(&mut out, (run as u64) << 2 | 1),
            _ => {
                // As they are: of what is settled in no order few words are equal.
                let rest = &chunk.settled[word..];
                let mixed = rest
                    .iter()
                    .take_while(|each| **each != 0 && **each != u64::MAX);
                let run = mixed.count();
                leb128::write(&mut out, (run as u64) << 2 | 2);
                for each in &rest[..run] {
                    out.extend_from_slice(&each.to_le_bytes());
                }
                word += run;
                continue;
            }
        }
        word += run;
    }
    for (place, tried) in &chunk.tries {
        leb128::write(&mut out, (*place).into());
        leb128::write(&mut out, tried.attempt.into());
        leb128::write(&mut out, tried.failures.into());
        leb128::write(&mut out, tried.first_ms.max(0) as u64);
        leb128::write(&mut out, tried.due_ms.max(0) as u64);
    }
    out
}

const VERSION: u8 = 0;

/// Reads what [`Settled::record`] wrote; None where it is no such record.
pub fn read(mut bytes: &[u8]) -> Option<Chunk> {
    let mut chunk = Chunk::default();
    let (version, rest) = bytes.split_first()?;
    if *version != VERSION {
        return None;
    }
    bytes = rest;
    let mut word = 0;
    while word < WORDS {
        let told = leb128::read(&mut bytes)?;
        let run = usize::try_from(told >> 2).ok().filter(|run| *run > 0)?;
        let words = chunk.settled.get_mut(word..word.checked_add(run)?)?;
        match told & 3 {
            0 => {}
            1 => words.fill(u64::MAX),
            2 => {
                for each in words {
                    let (first, rest) = bytes.split_first_chunk()?;
                    *each = u64::from_le_bytes(*first);
                    bytes = rest;
                }
            }
            _ => return None,
        }
        word += run;
    }
    chunk.count = chunk
        .settled
        .iter()
        .map(|word| word.count_ones() as u16)
        .sum();
    let mut last = None;
    while !bytes.is_empty() {
        let place = u16::try_from(leb128::read(&mut bytes)?).ok()?;
        let tried = Try {
            attempt: u32::try_from(leb128::read(&mut bytes)?).ok()?,
            failures: u32::try_from(leb128::read(&mut bytes)?).ok()?,
            first_ms: i64::try_from(leb128::read(&mut bytes)?).ok()?,
            due_ms: i64::try_from(leb128::read(&mut bytes)?).ok()?,
        };
        let is_next = last.is_none_or(|last| last < place);
        if !is_next || i64::from(place) >= CHUNK_MESSAGES || chunk.has(place) {
            return None;
        }
        chunk.tries.push((place, tried));
        last = Some(place);
    }
    Some(chunk)
}

#[cfg(test)]
mod tests;
