//! Which messages of a partition a group has settled, and how often the others were tried.
//!
//! A bit for each message, from the first chunk that is not settled as a whole to the last that has
//! something to tell; below all are settled, behind none. So settling costs the same wherever it
//! happens and however much is open, and ten million settled messages behind one that is stuck take
//! 1.25 MB.
//!
//! What is kept on the log is a record for each chunk: the bits as they then are, and the tries that
//! the records before it do not tell. So what one settlement writes does not grow with what else has
//! failed; a record that tells all is written where the log may say what is no more, and by
//! checkpoints. The chunk that is first always has one, for it tells where the group begins.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

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
    /// So long at most, milliseconds, whatever the clock says.
    pub rest_ms: u64,
}

/// Messages `number * CHUNK_MESSAGES` and the following.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    settled: [u64; WORDS],
    count: u16,
    /// By place in the chunk, of messages that are not settled.
    tries: BTreeMap<u16, Try>,
    /// Places of those that no record tells.
    untold: BTreeSet<u16>,
    /// Records may tell tries that are no more, or were refused: the next one tells all.
    is_untold: bool,
}

impl Default for Chunk {
    fn default() -> Self {
        Self {
            settled: [0; WORDS],
            count: 0,
            tries: BTreeMap::new(),
            untold: BTreeSet::new(),
            is_untold: true,
        }
    }
}

impl Chunk {
    fn has(&self, place: u16) -> bool {
        has(&self.settled, place)
    }

    fn set(&mut self, place: u16) -> bool {
        let is_new = !self.has(place);
        self.settled[usize::from(place) / 64] |= 1 << (place % 64);
        self.count += u16::from(is_new);
        if self.tries.remove(&place).is_some() {
            self.untold.remove(&place);
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

    fn is_empty(&self) -> bool {
        self.count == 0 && self.tries.is_empty()
    }
}

fn has(settled: &[u64; WORDS], place: u16) -> bool {
    settled[usize::from(place) / 64] >> (place % 64) & 1 == 1
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
    /// Of those that were taken, the ones that have not been written.
    taken: BTreeSet<i64>,
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
            taken: BTreeSet::new(),
        };
        for offset in settled.base * CHUNK_MESSAGES..start {
            settled.settle(offset);
        }
        settled
    }

    /// From what was kept, by number; None where that has nothing, or chunks of which none is open.
    pub fn restored(kept: impl IntoIterator<Item = (i64, Chunk)>) -> Option<Self> {
        let mut settled: Option<Self> = None;
        for (number, mut chunk) in kept {
            let found = settled.get_or_insert_with(|| Self {
                base: number,
                chunks: VecDeque::new(),
                count: 0,
                changed: BTreeSet::new(),
                taken: BTreeSet::new(),
            });
            let place = usize::try_from(number - found.base).ok()?;
            if place < found.chunks.len() {
                return None; // not in order
            }
            found.chunks.resize(place, Chunk::default());
            // Records behind those of a try may have told that its message is settled.
            let Chunk { settled, tries, .. } = &mut chunk;
            tries.retain(|place, _| !has(settled, *place));
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
        let chunk = self.at(number);
        chunk.tries.insert(place, tried);
        chunk.untold.insert(place);
        self.changed.insert(number);
    }

    /// How a message failed, if it has.
    pub fn tried(&self, offset: i64) -> Option<Try> {
        let chunk = self
            .chunks
            .get(usize::try_from(offset / CHUNK_MESSAGES - self.base).ok()?)?;
        let place = (offset % CHUNK_MESSAGES) as u16;
        chunk.tries.get(&place).copied()
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
        last.count = count(&last.settled);
        let place = ((end - 1) % CHUNK_MESSAGES) as u16 + 1;
        let gone = last.tries.split_off(&place);
        last.untold.split_off(&place);
        self.count -= u64::from(before - last.count);
        if last.count < before || !gone.is_empty() {
            last.is_untold = true;
            self.changed.insert(self.base + kept as i64);
        }
    }

    /// Begins at `start`, whatever was settled.
    pub fn seek(&mut self, start: i64) {
        let mut changed = std::mem::take(&mut self.changed);
        changed.extend(self.base..self.base + self.chunks.len() as i64);
        let taken = std::mem::take(&mut self.taken);
        *self = Self::new(start);
        self.changed.append(&mut changed);
        self.taken = taken;
    }

    /// Numbers of chunks whose records are to be written, in order; none again before
    /// [`Self::record`] has written it.
    pub fn take_changed(&mut self) -> Vec<i64> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        changed
            .filter(|number| self.taken.insert(*number))
            .collect()
    }

    /// The record of a chunk was refused, and the log may have it all the same.
    pub fn refused(&mut self, number: i64) {
        self.changed.insert(number);
        let place = usize::try_from(number - self.base);
        if let Some(chunk) = place.ok().and_then(|place| self.chunks.get_mut(place)) {
            chunk.is_untold = true;
        }
    }

    /// Numbers of all chunks, from the first.
    pub fn numbers(&self) -> std::ops::Range<i64> {
        self.base..self.base + self.chunks.len() as i64
    }

    /// The record of a chunk, which follows those before it; None where it has none, for all of it
    /// is settled and told by those that follow, or nothing of it is. Its tries are told from now on.
    pub fn record(&mut self, number: i64) -> Option<Vec<u8>> {
        self.taken.remove(&number);
        let place = usize::try_from(number - self.base).ok()?;
        let chunk = self.chunks.get_mut(place)?;
        let untold = std::mem::take(&mut chunk.untold);
        if std::mem::take(&mut chunk.is_untold) || chunk.is_empty() {
            return self.whole_record(number);
        }
        let tries = untold.iter().map(|place| (place, &chunk.tries[place]));
        Some(write(CHANGES, &chunk.settled, tries))
    }

    /// The record of a chunk that needs none before it; None as for [`Self::record`].
    pub fn whole_record(&self, number: i64) -> Option<Vec<u8>> {
        let chunk = self.chunks.get(usize::try_from(number - self.base).ok()?)?;
        (number == self.base || !chunk.is_empty())
            .then(|| write(WHOLE, &chunk.settled, chunk.tries.iter()))
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
fn write<'a>(
    version: u8,
    settled: &[u64; WORDS],
    tries: impl Iterator<Item = (&'a u16, &'a Try)>,
) -> Vec<u8> {
    let mut out = vec![version];
    let mut word = 0;
    while word < WORDS {
        let value = settled[word];
        let run = settled[word..]
            .iter()
            .take_while(|each| **each == value)
            .count();
        match value {
            0 => leb128::write(&mut out, (run as u64) << 2),
            u64::MAX => leb128::write(&mut out, (run as u64) << 2 | 1),
            _ => {
                // As they are: of what is settled in no order few words are equal.
                let rest = &settled[word..];
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
    for (place, tried) in tries {
        leb128::write(&mut out, (*place).into());
        leb128::write(&mut out, tried.attempt.into());
        leb128::write(&mut out, tried.failures.into());
        leb128::write(&mut out, tried.first_ms.max(0) as u64);
        leb128::write(&mut out, tried.due_ms.max(0) as u64);
        leb128::write(&mut out, tried.rest_ms);
    }
    out
}

/// Begins a record that tells all of its chunk, whatever was told before.
const WHOLE: u8 = 1;

/// The same, of a node that did not write how long messages were to rest.
const OLDER: u8 = 0;

/// Begins one that tells its bits, and tries beside those that records before it have told.
const CHANGES: u8 = 2;

impl Chunk {
    /// Takes in what [`Settled::record`] wrote, after those before it; None where it is no such
    /// record.
    pub fn take_in(&mut self, mut bytes: &[u8]) -> Option<()> {
        let (version, rest) = bytes.split_first()?;
        match *version {
            WHOLE | OLDER => *self = Self::default(),
            CHANGES => self.settled = [0; WORDS],
            _ => return None,
        }
        self.is_untold = false;
        bytes = rest;
        let mut word = 0;
        while word < WORDS {
            let told = leb128::read(&mut bytes)?;
            let run = usize::try_from(told >> 2).ok().filter(|run| *run > 0)?;
            let words = self.settled.get_mut(word..word.checked_add(run)?)?;
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
        self.count = count(&self.settled);
        let mut last = None;
        while !bytes.is_empty() {
            let place = u16::try_from(leb128::read(&mut bytes)?).ok()?;
            let tried = Try {
                attempt: u32::try_from(leb128::read(&mut bytes)?).ok()?,
                failures: u32::try_from(leb128::read(&mut bytes)?).ok()?,
                first_ms: i64::try_from(leb128::read(&mut bytes)?).ok()?,
                due_ms: i64::try_from(leb128::read(&mut bytes)?).ok()?,
                rest_ms: match *version {
                    OLDER => u64::MAX,
                    _ => leb128::read(&mut bytes)?,
                },
            };
            let is_next = last.is_none_or(|last| last < place);
            if !is_next || i64::from(place) >= CHUNK_MESSAGES || self.has(place) {
                return None;
            }
            self.tries.insert(place, tried);
            last = Some(place);
        }
        Some(())
    }
}

fn count(settled: &[u64; WORDS]) -> u16 {
    settled.iter().map(|word| word.count_ones() as u16).sum()
}

#[cfg(test)]
mod tests;
