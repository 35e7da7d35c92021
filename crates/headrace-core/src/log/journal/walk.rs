//! Reading a file's rounds, in the order in which they were written.

use super::{Chain, FileHeader, PAGE, ROUND_HEADER_BYTES, ROUND_MAGIC};
use crate::log::codec::Take;
use crate::log::disk::Path;
use crate::log::error::Damage;

/// A round found in a file.
pub(super) struct Round<'a> {
    number: u64,
    synced: u64,
    previous: u32,
    crc: u32,
    pub(super) payload: &'a [u8],
}

impl<'a> Round<'a> {
    /// The round at `position` whose own CRC is right, whatever came before it.
    pub(super) fn at(file: &'a [u8], position: usize, seed: u32) -> Option<Self> {
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

/// What a walk over one file found.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::log) struct Walked<'a> {
    /// The entries of each round.
    pub(in crate::log) payloads: Vec<&'a [u8]>,
    /// The chain after the last round.
    pub(in crate::log) chain: Chain,
    pub(in crate::log) generation: u64,
}

/// Walks one file.
///
/// `chain` is None at the oldest file. The walk ends at the first round that does not verify;
/// that is damage where a later round tells that it was synced.
pub(in crate::log) fn walk<'a>(
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
    use super::super::RoundWriter;
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
