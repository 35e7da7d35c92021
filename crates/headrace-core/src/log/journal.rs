//! The journal's bytes: files of rounds, each round one commit.
//!
//! ```text
//! file    page 0: magic "HRJOURNL", version u32, sequence u64, bytes u64,
//!         generation u64, first round u64, previous CRC u32, CRC u32
//! round   magic u32, CRC u32 of what follows, previous CRC u32, length u32, round u64,
//!         first round that may not have been synced yet u64, entries
//! entry   kind u8, length u32, body
//! ```
//!
//! A round begins at a page boundary, so that no write touches a page that holds anything
//! acknowledged. Its CRC covers the previous round's CRC, so rounds verify only in the order in
//! which they were written. It starts from the file's seed, a CRC of the round before the file and
//! the generation, which each start of the store raises. Hence the remains of an earlier use of a
//! recycled file verify no more, not even those of a file that a power cut kept from its name;
//! nor do bytes that a client stored.
//!
//! A round tells which rounds were synced before it was written: all of them, where logs ask for
//! no less. Hence a round that does not verify was never promised to be durable, unless a later
//! one verifies that tells otherwise: then it is damage, and is said so.

use super::codec::{maybe, Put, Take};
use super::disk::Path;
use super::epochs::Epochs;
use super::error::Damage;
use super::scan;

/// Unit of the page cache and of every journal write. A power cut may leave any page of an
/// unsynced write as it was, as it should be, or as neither.
pub(super) const PAGE: usize = 4096;
/// Bytes of a round before its entries.
pub(super) const ROUND_HEADER_BYTES: usize = 32;
/// Bytes of an entry before its body.
const ENTRY_HEADER_BYTES: usize = 5;

const FILE_MAGIC: &[u8; 8] = b"HRJOURNL";
const ROUND_MAGIC: u32 = 0x4852_4E44;
const VERSION: u32 = 5;

/// Where a file stands in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    pub(super) sequence: u64,
    /// Length of the file.
    pub(super) bytes: u64,
    /// Starts of the store before the file.
    pub(super) generation: u64,
    /// The chain before the file's first round.
    pub(super) began: Chain,
}

impl FileHeader {
    /// What the CRC of each of its rounds starts from. Generations that are less than 2^32 apart
    /// have different seeds: a CRC tells any two bursts of 32 bits apart.
    pub(super) fn seed(&self) -> u32 {
        crc32c::crc32c_append(self.began.crc, &self.generation.to_be_bytes())
    }

    /// Appends the header page.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(FILE_MAGIC);
        out.put_u32(VERSION);
        out.put_u64(self.sequence);
        out.put_u64(self.bytes);
        out.put_u64(self.generation);
        out.put_u64(self.began.round);
        out.put_u32(self.began.crc);
        let crc = crc32c::crc32c(&out[start..]);
        out.put_u32(crc);
        out.resize(start + PAGE, 0);
    }

    pub(super) fn decode(file: &[u8]) -> Option<Self> {
        let mut take = Take(file);
        if take.array()? != *FILE_MAGIC || take.u32()? != VERSION {
            return None;
        }
        let header = Self {
            sequence: take.u64()?,
            bytes: take.u64()?,
            generation: take.u64()?,
            began: Chain {
                round: take.u64()?,
                crc: take.u32()?,
            },
        };
        (take.u32()? == crc32c::crc32c(&file[..48])).then_some(header)
    }
}

/// A log as a checkpoint tells it: all of it stands in its segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogState {
    pub(super) id: u32,
    pub(super) stream: String,
    pub(super) partition: u32,
    pub(super) incarnation: u64,
    pub(super) start_offset: i64,
    pub(super) next_offset: i64,
    /// Offset up to which the log was compacted.
    pub(super) cleaned_to: i64,
    pub(super) epochs: Epochs,
    /// Ascending; the last is the active one.
    pub(super) segments: Vec<SegmentState>,
}

/// A segment as a checkpoint tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentState {
    pub(super) base: i64,
    pub(super) bytes: u64,
    /// The greatest timestamp; of the active segment at least that.
    pub(super) newest: Option<i64>,
    /// The wall clock when it began.
    pub(super) created_ms: Option<i64>,
    /// The compaction that wrote it; 0 for none.
    pub(super) generation: u32,
    /// When the first of its tombstones may go.
    pub(super) horizon_ms: Option<i64>,
}

impl SegmentState {
    /// A segment that begins.
    pub(super) fn empty(base: i64, created_ms: Option<i64>) -> Self {
        Self {
            base,
            bytes: 0,
            newest: None,
            created_ms,
            generation: 0,
            horizon_ms: None,
        }
    }

    /// Its files.
    pub(super) fn files(&self, folder: &str) -> scan::Files {
        scan::Files {
            folder: folder.into(),
            base: self.base,
            generation: self.generation,
            bytes: self.bytes,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.put_i64(self.base);
        out.put_u64(self.bytes);
        out.put_maybe(self.newest);
        out.put_maybe(self.created_ms);
        out.put_u32(self.generation);
        out.put_maybe(self.horizon_ms);
    }

    fn decode(take: &mut Take) -> Option<Self> {
        Some(Self {
            base: take.i64()?,
            bytes: take.u64()?,
            newest: maybe(take.i64()?),
            created_ms: maybe(take.i64()?),
            generation: take.u32()?,
            horizon_ms: maybe(take.i64()?),
        })
    }
}

/// Segments that take the place of others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Swap {
    /// The first of those that go begins there, as does the first of those that come.
    pub(super) from: i64,
    /// The first that stays after them begins there.
    pub(super) to: i64,
    /// Offset up to which the log is compacted then.
    pub(super) cleaned_to: i64,
    /// Those that come, whole and synced.
    pub(super) segments: Vec<SegmentState>,
}

/// The state of every log between two rounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checkpoint {
    /// Every byte and every index was synced and the store was closed.
    pub(super) clean: bool,
    pub(super) next_id: u32,
    pub(super) logs: Vec<LogState>,
}

/// One entry, as recovery reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    Checkpoint(Checkpoint),
    /// A log exists from here on.
    Register {
        id: u32,
        partition: u32,
        incarnation: u64,
        created_ms: Option<i64>,
        stream: &'a str,
    },
    /// The log goes on in the segment `base`, which is empty.
    Roll {
        id: u32,
        base: i64,
        created_ms: Option<i64>,
    },
    /// Records from this offset on are of that epoch.
    Epoch {
        id: u32,
        epoch: i32,
        offset: i64,
    },
    /// Records below are gone, and segments that hold no others.
    Trim {
        id: u32,
        start_offset: i64,
    },
    /// Segments were compacted into others, which were synced before this round was written.
    Replace {
        id: u32,
        swap: Swap,
    },
    /// These bytes stand at `position` of the segment `base`.
    Write {
        id: u32,
        base: i64,
        position: u32,
        bytes: &'a [u8],
    },
    /// Bytes of this length and CRC-32C were synced there before this round was written.
    Direct {
        id: u32,
        base: i64,
        position: u32,
        length: u32,
        crc: u32,
    },
    /// The logs of this stream are gone.
    Delete {
        stream: &'a str,
    },
}

mod kind {
    pub(super) const CHECKPOINT: u8 = 1;
    pub(super) const REGISTER: u8 = 2;
    pub(super) const WRITE: u8 = 3;
    pub(super) const DIRECT: u8 = 4;
    pub(super) const DELETE: u8 = 5;
    pub(super) const TRIM: u8 = 6;
    pub(super) const REPLACE: u8 = 7;
    pub(super) const ROLL: u8 = 8;
    pub(super) const EPOCH: u8 = 9;
}

/// Builds one round in place at the end of a buffer.
pub(super) struct RoundWriter<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
    seed: u32,
}

impl<'a> RoundWriter<'a> {
    /// Begins the round that `chain` expects, in the file of that seed. Rounds before `synced`
    /// are.
    pub(super) fn begin(out: &'a mut Vec<u8>, chain: Chain, seed: u32, synced: u64) -> Self {
        let start = out.len();
        out.put_u32(ROUND_MAGIC);
        out.put_u32(0); // the CRC, once all is there
        out.put_u32(chain.crc);
        out.put_u32(0); // the length likewise
        out.put_u64(chain.round);
        out.put_u64(synced);
        Self { out, start, seed }
    }

    pub(super) fn checkpoint(&mut self, body: &[u8]) {
        let at = self.open(kind::CHECKPOINT);
        self.out.extend_from_slice(body);
        self.close(at);
    }

    pub(super) fn register(
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

    pub(super) fn roll(&mut self, id: u32, base: i64, created_ms: Option<i64>) {
        let at = self.open(kind::ROLL);
        self.out.put_u32(id);
        self.out.put_i64(base);
        self.out.put_maybe(created_ms);
        self.close(at);
    }

    pub(super) fn epoch(&mut self, id: u32, epoch: i32, offset: i64) {
        let at = self.open(kind::EPOCH);
        self.out.put_u32(id);
        self.out.put_u32(epoch as u32);
        self.out.put_i64(offset);
        self.close(at);
    }

    pub(super) fn trim(&mut self, id: u32, start_offset: i64) {
        let at = self.open(kind::TRIM);
        self.out.put_u32(id);
        self.out.put_i64(start_offset);
        self.close(at);
    }

    pub(super) fn replace(&mut self, id: u32, swap: &Swap) {
        let at = self.open(kind::REPLACE);
        self.out.put_u32(id);
        self.out.put_i64(swap.from);
        self.out.put_i64(swap.to);
        self.out.put_i64(swap.cleaned_to);
        self.out.put_u32(swap.segments.len() as u32);
        for segment in &swap.segments {
            segment.encode(self.out);
        }
        self.close(at);
    }

    pub(super) fn delete(&mut self, stream: &str) {
        let at = self.open(kind::DELETE);
        self.out.put_text(stream);
        self.close(at);
    }

    pub(super) fn direct(&mut self, id: u32, base: i64, position: u64, length: usize, crc: u32) {
        let at = self.open(kind::DIRECT);
        self.out.put_u32(id);
        self.out.put_i64(base);
        self.out.put_u32(position as u32);
        self.out.put_u32(length as u32);
        self.out.put_u32(crc);
        self.close(at);
    }

    /// A write of all `parts`, one after the other; returns where in the buffer they stand.
    pub(super) fn write<'p>(
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
    pub(super) fn finish(self) -> u32 {
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

/// Upper bound of an entry's bytes whose body holds `bytes` beside its fixed fields.
pub(super) const fn entry_bytes_max(bytes: usize) -> usize {
    ENTRY_HEADER_BYTES + 32 + bytes
}

impl Checkpoint {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(64 * self.logs.len() + 16);
        body.put_u8(u8::from(self.clean));
        body.put_u32(self.next_id);
        body.put_u32(self.logs.len() as u32);
        for log in &self.logs {
            body.put_u32(log.id);
            body.put_text(&log.stream);
            body.put_u32(log.partition);
            body.put_u64(log.incarnation);
            body.put_i64(log.start_offset);
            body.put_i64(log.next_offset);
            body.put_i64(log.cleaned_to);
            log.epochs.put(&mut body);
            body.put_u32(log.segments.len() as u32);
            for segment in &log.segments {
                segment.encode(&mut body);
            }
        }
        body
    }

    fn decode(mut take: Take) -> Option<Self> {
        let clean = take.u8()? != 0;
        let next_id = take.u32()?;
        let mut logs = Vec::new();
        for _ in 0..take.u32()? {
            let mut log = LogState {
                id: take.u32()?,
                stream: take.text()?.to_owned(),
                partition: take.u32()?,
                incarnation: take.u64()?,
                start_offset: take.i64()?,
                next_offset: take.i64()?,
                cleaned_to: take.i64()?,
                epochs: Epochs::take(&mut take)?,
                segments: Vec::new(),
            };
            for _ in 0..take.u32()? {
                log.segments.push(SegmentState::decode(&mut take)?);
            }
            logs.push(log);
        }
        Some(Self {
            clean,
            next_id,
            logs,
        })
    }
}

/// The entries of a round that verified. None from an entry of an unknown kind or shape.
pub(super) fn entries(mut payload: &[u8]) -> Option<Vec<Entry<'_>>> {
    let mut entries = Vec::new();
    while !payload.is_empty() {
        let mut take = Take(payload);
        let kind = take.u8()?;
        let length = take.u32()?;
        let body = Take(take.bytes(length as usize)?);
        entries.push(entry(kind, body)?);
        payload = take.0;
    }
    Some(entries)
}

fn entry(kind: u8, mut body: Take<'_>) -> Option<Entry<'_>> {
    Some(match kind {
        kind::CHECKPOINT => Entry::Checkpoint(Checkpoint::decode(body)?),
        kind::REGISTER => Entry::Register {
            id: body.u32()?,
            partition: body.u32()?,
            incarnation: body.u64()?,
            created_ms: maybe(body.i64()?),
            stream: body.text()?,
        },
        kind::ROLL => Entry::Roll {
            id: body.u32()?,
            base: body.i64()?,
            created_ms: maybe(body.i64()?),
        },
        kind::EPOCH => Entry::Epoch {
            id: body.u32()?,
            epoch: body.u32()? as i32,
            offset: body.i64()?,
        },
        kind::TRIM => Entry::Trim {
            id: body.u32()?,
            start_offset: body.i64()?,
        },
        kind::REPLACE => Entry::Replace {
            id: body.u32()?,
            swap: Swap {
                from: body.i64()?,
                to: body.i64()?,
                cleaned_to: body.i64()?,
                segments: (0..body.u32()?)
                    .map(|_| SegmentState::decode(&mut body))
                    .collect::<Option<_>>()?,
            },
        },
        kind::WRITE => Entry::Write {
            id: body.u32()?,
            base: body.i64()?,
            position: body.u32()?,
            bytes: body.0,
        },
        kind::DIRECT => Entry::Direct {
            id: body.u32()?,
            base: body.i64()?,
            position: body.u32()?,
            length: body.u32()?,
            crc: body.u32()?,
        },
        kind::DELETE => Entry::Delete {
            stream: body.text()?,
        },
        _ => return None,
    })
}

/// A round found in a file.
struct Round<'a> {
    number: u64,
    synced: u64,
    previous: u32,
    crc: u32,
    payload: &'a [u8],
}

impl<'a> Round<'a> {
    /// The round at `position` whose own CRC is right, whatever came before it.
    fn at(file: &'a [u8], position: usize, seed: u32) -> Option<Self> {
        let mut take = Take(file.get(position..)?);
        let whole = take.0;
        if take.u32()? != ROUND_MAGIC {
            return None;
        }
        let crc = take.u32()?;
        let previous = take.u32()?;
        let length = take.u32()? as usize;
        let number = take.u64()?;
        let synced = take.u64()?;
        let payload = take.bytes(length)?;
        let sound = crc == crc32c::crc32c_append(seed, &whole[8..ROUND_HEADER_BYTES + length]);
        sound.then_some(Self {
            number,
            synced,
            previous,
            crc,
            payload,
        })
    }
}

/// The state of a walk over the journal's files, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    /// The number that the next round must have.
    pub(super) round: u64,
    /// CRC of the last round.
    pub(super) crc: u32,
}

impl Chain {
    /// The chain after a round of this CRC.
    pub(super) fn after(self, crc: u32) -> Self {
        Self {
            round: self.round + 1,
            crc,
        }
    }
}

/// What a walk over one file found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Walked<'a> {
    /// The entries of each round.
    pub(super) payloads: Vec<&'a [u8]>,
    /// The chain after the last round.
    pub(super) chain: Chain,
    pub(super) generation: u64,
}

/// Walks one file.
///
/// `chain` is None at the oldest file. The walk ends at the first round that does not verify;
/// that is damage where a later round tells that it was synced.
pub(super) fn walk<'a>(
    path: &Path,
    sequence: u64,
    file: &'a [u8],
    chain: Option<Chain>,
) -> Result<Walked<'a>, Damage> {
    let damage = |position: usize, what: &str| Damage {
        path: path.to_string(),
        position: position as u64,
        offset: None,
        what: what.to_owned(),
    };
    let header = FileHeader::decode(file)
        .filter(|header| header.sequence == sequence)
        .ok_or_else(|| damage(0, "the journal file's header does not verify"))?;
    if file.len() as u64 != header.bytes {
        let what = format!("the journal file had {} bytes", header.bytes);
        return Err(damage(file.len(), &what));
    }
    let FileHeader { began, .. } = header;
    if chain.is_some_and(|chain| chain != began) {
        return Err(damage(
            0,
            "the journal file does not continue the one before it, of which a part is lost",
        ));
    }
    let seed = header.seed();
    let mut chain = began;
    let mut payloads = Vec::new();
    let mut position = PAGE;
    while let Some(round) = Round::at(file, position, seed)
        .filter(|round| round.number == chain.round && round.previous == chain.crc)
    {
        payloads.push(round.payload);
        chain = chain.after(round.crc);
        position += (ROUND_HEADER_BYTES + round.payload.len()).next_multiple_of(PAGE);
    }
    let was_synced = (position..file.len())
        .step_by(PAGE)
        .filter_map(|at| Round::at(file, at, seed))
        .any(|round| round.synced > chain.round);
    if was_synced {
        return Err(damage(
            position,
            "a round of the journal does not verify, though it was synced before a later one",
        ));
    }
    if payloads.is_empty() {
        // A file gets its name once its first round is synced.
        return Err(damage(
            PAGE,
            "the journal file's first round does not verify",
        ));
    }
    Ok(Walked {
        payloads,
        chain,
        generation: header.generation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(file: &mut [u8], generation: u64, began: Chain) -> FileHeader {
        let header = FileHeader {
            sequence: 3,
            bytes: file.len() as u64,
            generation,
            began,
        };
        let mut page = Vec::new();
        header.encode(&mut page);
        file[..PAGE].copy_from_slice(&page);
        header
    }

    const BEGAN: Chain = Chain { round: 40, crc: 9 };

    fn file(rounds: &[&[u8]]) -> (Vec<u8>, Vec<usize>) {
        let mut file = vec![0; PAGE];
        let seed = header(&mut file, 6, BEGAN).seed();
        let mut starts = Vec::new();
        let mut chain = BEGAN;
        for bytes in rounds {
            starts.push(file.len());
            let mut round = RoundWriter::begin(&mut file, chain, seed, chain.round);
            round.write(1, 5, 6, [*bytes]);
            chain = chain.after(round.finish());
        }
        file.resize(file.len() + 3 * PAGE, 0);
        header(&mut file, 6, BEGAN);
        (file, starts)
    }

    fn rounds(file: &[u8]) -> Result<usize, Damage> {
        walk(&"journal/3".into(), 3, file, None).map(|walked| walked.payloads.len())
    }

    #[test]
    fn entries_read_back() {
        let state = Checkpoint {
            clean: true,
            next_id: 8,
            logs: vec![LogState {
                id: 7,
                stream: "gpu".into(),
                partition: 2,
                incarnation: 11,
                start_offset: 5,
                next_offset: 30,
                cleaned_to: 20,
                epochs: Epochs::default(),
                segments: vec![
                    SegmentState {
                        newest: Some(-1),
                        bytes: 900,
                        ..SegmentState::empty(0, None)
                    },
                    SegmentState::empty(20, Some(99)),
                ],
            }],
        };
        let swap = Swap {
            from: 0,
            to: 20,
            cleaned_to: 15,
            segments: vec![SegmentState {
                generation: 3,
                horizon_ms: Some(-1),
                ..SegmentState::empty(0, Some(98))
            }],
        };
        let mut out = Vec::new();
        let mut round = RoundWriter::begin(&mut out, Chain { round: 1, crc: 2 }, 2, 1);
        round.checkpoint(&state.encode());
        round.register(7, 2, 11, Some(-3), "gpu");
        round.roll(7, 20, None);
        round.trim(7, 5);
        round.epoch(7, 2, 20);
        round.replace(7, &swap);
        round.write(7, 20, 300, [&b"ab"[..], &b"c"[..]]);
        round.direct(7, 20, 4096, 70, 5);
        round.delete("gpu");
        round.finish();
        assert_eq!(out.len(), PAGE);
        let found = Round::at(&out, 0, 2).unwrap();
        assert_eq!(
            entries(found.payload).unwrap(),
            [
                Entry::Checkpoint(state),
                Entry::Register {
                    id: 7,
                    partition: 2,
                    incarnation: 11,
                    created_ms: Some(-3),
                    stream: "gpu"
                },
                Entry::Roll {
                    id: 7,
                    base: 20,
                    created_ms: None
                },
                Entry::Trim {
                    id: 7,
                    start_offset: 5
                },
                Entry::Epoch {
                    id: 7,
                    epoch: 2,
                    offset: 20
                },
                Entry::Replace { id: 7, swap },
                Entry::Write {
                    id: 7,
                    base: 20,
                    position: 300,
                    bytes: b"abc"
                },
                Entry::Direct {
                    id: 7,
                    base: 20,
                    position: 4096,
                    length: 70,
                    crc: 5
                },
                Entry::Delete { stream: "gpu" },
            ]
        );
    }

    #[test]
    fn a_torn_last_round_is_the_end_at_whatever_byte_it_tears() {
        let (file, starts) = file(&[b"one", &[7; 5000], &[8; 9000]]);
        assert_eq!(rounds(&file), Ok(3));
        let last = starts[2];
        for cut in last..last + 9000 + ROUND_HEADER_BYTES {
            let mut torn = file.clone();
            torn[cut..].fill(0);
            assert_eq!(rounds(&torn), Ok(2), "cut at {cut}");
        }
    }

    #[test]
    fn a_flipped_bit_before_a_later_round_is_damage() {
        let (file, starts) = file(&[b"one", &[7; 5000], b"three"]);
        let used = starts[1]..starts[1] + 5000;
        for at in used {
            let mut flipped = file.clone();
            flipped[at] ^= 4;
            let damage = rounds(&flipped).unwrap_err();
            assert_eq!(damage.position, starts[1] as u64, "flipped at {at}");
        }
    }

    #[test]
    fn the_remains_of_an_earlier_use_are_not_rounds() {
        let (file, starts) = file(&[b"one", b"two", b"three"]);
        // The next generation writes the same first round to the same place, and no more.
        for (generation, began) in [(7, BEGAN), (7, Chain { round: 90, crc: 1 })] {
            let mut reused = file.clone();
            let seed = header(&mut reused, generation, began).seed();
            let mut first = Vec::new();
            let mut round = RoundWriter::begin(&mut first, began, seed, began.round);
            round.write(1, 5, 6, [&b"one"[..]]);
            round.finish();
            reused[starts[0]..starts[1]].copy_from_slice(&first);
            assert_eq!(rounds(&reused), Ok(1));
        }
    }

    #[test]
    fn a_file_that_was_cut_is_damage_wherever_it_ends() {
        let (file, _) = file(&[b"one"]);
        for end in 0..file.len() {
            assert!(rounds(&file[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_header_that_does_not_verify_is_damage() {
        let (file, _) = file(&[b"one"]);
        for at in 0..52 {
            let mut flipped = file.clone();
            flipped[at] ^= 1;
            assert_eq!(rounds(&flipped).unwrap_err().position, 0, "flipped at {at}");
        }
    }
}
