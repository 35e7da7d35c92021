//! The entries of a round, as recovery reads them.

use super::state::{flag, Checkpoint, SegmentState, Swap};
use crate::log::codec::{maybe, Take};

/// Bytes of an entry before its body.
const ENTRY_HEADER_BYTES: usize = 5;

/// One entry, as recovery reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::log) enum Entry<'a> {
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
        /// Where in the payload they stand.
        at: usize,
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

pub(super) mod kind {
    pub(in crate::log::journal) const CHECKPOINT: u8 = 1;
    pub(in crate::log::journal) const REGISTER: u8 = 2;
    pub(in crate::log::journal) const WRITE: u8 = 3;
    pub(in crate::log::journal) const DIRECT: u8 = 4;
    pub(in crate::log::journal) const DELETE: u8 = 5;
    pub(in crate::log::journal) const TRIM: u8 = 6;
    pub(in crate::log::journal) const REPLACE: u8 = 7;
    pub(in crate::log::journal) const ROLL: u8 = 8;
    pub(in crate::log::journal) const EPOCH: u8 = 9;
}

/// Upper bound of an entry's bytes whose body holds `bytes` beside its fixed fields.
pub(in crate::log) const fn entry_bytes_max(bytes: usize) -> usize {
    ENTRY_HEADER_BYTES + 32 + bytes
}

/// The entries of a round that verified. None from an entry of an unknown kind or shape.
pub(in crate::log) fn entries(payload: &[u8]) -> Option<Vec<Entry<'_>>> {
    let mut entries = Vec::new();
    let mut take = Take(payload);
    while !take.0.is_empty() {
        let kind = take.u8()?;
        let length = take.u32()?;
        let body = Take(take.bytes(length as usize)?);
        let end = payload.len() - take.0.len();
        entries.push(entry(kind, body, end)?);
    }
    Some(entries)
}

/// The entry whose body ends at the byte `end` of the payload.
fn entry(kind: u8, mut body: Take<'_>, end: usize) -> Option<Entry<'_>> {
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
                has_sources: flag(&mut body),
            },
        },
        kind::WRITE => Entry::Write {
            id: body.u32()?,
            base: body.i64()?,
            position: body.u32()?,
            at: end - body.0.len(),
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

#[cfg(test)]
mod tests {
    use super::super::state::LogState;
    use super::super::{Chain, RoundWriter, PAGE, ROUND_HEADER_BYTES};
    use super::*;
    use crate::log::epochs::Epochs;

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
                has_sources: true,
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
            has_sources: true,
            segments: vec![SegmentState {
                generation: 3,
                horizon_ms: Some(-1),
                ..SegmentState::empty(0, Some(98))
            }],
        };
        let body = state.encode();
        let older = Checkpoint::decode(Take(&body[..body.len() - state.logs.len()])).unwrap();
        assert!(
            !older.logs[0].has_sources,
            "a journal of before says nothing of them"
        );
        assert_eq!(older.logs[0].segments, state.logs[0].segments);
        let mut out = Vec::new();
        let mut round = RoundWriter::begin(&mut out, Chain { round: 1, crc: 2 }, 2, 1);
        round.checkpoint(&state.encode());
        round.register(7, 2, 11, Some(-3), "gpu");
        round.roll(7, 20, None);
        round.trim(7, 5);
        round.epoch(7, 2, 20);
        round.replace(7, &swap);
        let written = round.write(7, 20, 300, [&b"ab"[..], &b"c"[..]]);
        round.direct(7, 20, 4096, 70, 5);
        round.delete("gpu");
        round.finish();
        assert_eq!(out.len(), PAGE);
        let length = u32::from_be_bytes(out[12..16].try_into().unwrap());
        let used = ROUND_HEADER_BYTES + length as usize;
        assert_eq!(
            entries(&out[ROUND_HEADER_BYTES..used]).unwrap(),
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
                    at: written.start - ROUND_HEADER_BYTES,
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
}
