//! Reading a file's rounds, in the order in which they were written: one after the other, so that
//! memory holds one at a time.

use super::{Chain, FileHeader, PAGE, ROUND_HEADER_BYTES, ROUND_MAGIC};
use crate::log::codec::Take;
use crate::log::disk::{Disk, Path};
use crate::log::error::{Damage, Error};
use crate::log::scan::read;

/// Bytes searched at once for rounds behind the last.
const SEARCH_BYTES: usize = 1 << 20;

/// What a round says of itself.
#[derive(Clone, Copy, Debug)]
struct Head {
    crc: u32,
    previous: u32,
    length: usize,
    number: u64,
    synced: u64,
}

impl Head {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut take = Take(bytes);
        (take.u32()? == ROUND_MAGIC).then_some(())?;
        Some(Self {
            crc: take.u32()?,
            previous: take.u32()?,
            length: take.u32()? as usize,
            number: take.u64()?,
            synced: take.u64()?,
        })
    }

    /// Bytes that it takes in the file.
    fn bytes(&self) -> u64 {
        (ROUND_HEADER_BYTES + self.length).next_multiple_of(PAGE) as u64
    }
}

/// A round that verified.
#[derive(Debug)]
pub(in crate::log) struct Found<'a> {
    /// Its number.
    pub(in crate::log) round: u64,
    /// Where it stands in the file.
    pub(in crate::log) position: u64,
    /// Its entries.
    pub(in crate::log) payload: &'a [u8],
}

impl Found<'_> {
    /// Where in the file the byte `at` of the payload stands.
    pub(in crate::log) fn place(&self, at: usize) -> u64 {
        self.position + (ROUND_HEADER_BYTES + at) as u64
    }
}

/// What a walk over one file found.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::log) struct Walked {
    /// The chain after the last round.
    pub(in crate::log) chain: Chain,
    pub(in crate::log) generation: u64,
}

/// The header of a file; None where there is none that verifies.
pub(in crate::log) fn file_header(
    disk: &impl Disk,
    path: &Path,
) -> Result<Option<FileHeader>, Error> {
    Ok(FileHeader::decode(&read(disk, path, 0, PAGE, None)?))
}

/// Walks one file; `visit` sees each round.
///
/// `chain` is None at the oldest file. The walk ends at the first round that does not verify;
/// that is damage where a later round tells that it was synced.
pub(in crate::log) fn walk(
    disk: &impl Disk,
    path: &Path,
    sequence: u64,
    chain: Option<Chain>,
    mut visit: impl FnMut(Found) -> Result<(), Error>,
) -> Result<Walked, Error> {
    let header = file_header(disk, path)?
        .filter(|header| header.sequence == sequence)
        .ok_or_else(|| damage(path, 0, "the journal file's header does not verify"))?;
    let bytes = disk.size(path)?.unwrap_or(0);
    if bytes != header.bytes {
        let what = format!("the journal file had {} bytes", header.bytes);
        return Err(damage(path, bytes, &what));
    }
    let FileHeader { began, .. } = header;
    if chain.is_some_and(|chain| chain != began) {
        let what = "the journal file does not continue the one before it, of which a part is lost";
        return Err(damage(path, 0, what));
    }
    let file = File {
        disk,
        path,
        bytes,
        seed: header.seed(),
    };
    let mut chain = began;
    let mut position = PAGE as u64;
    while let Some((head, round)) = file.round(position)? {
        if head.number != chain.round || head.previous != chain.crc {
            break;
        }
        visit(Found {
            round: head.number,
            position,
            payload: &round[ROUND_HEADER_BYTES..],
        })?;
        chain = chain.after(head.crc);
        position += head.bytes();
    }
    if file.tells_of_sync(position, chain)? {
        let what =
            "a round of the journal does not verify, though it was synced before a later one";
        return Err(damage(path, position, what));
    }
    if chain == began {
        // A file gets its name once its first round is synced.
        let what = "the journal file's first round does not verify";
        return Err(damage(path, PAGE as u64, what));
    }
    Ok(Walked {
        chain,
        generation: header.generation,
    })
}

/// A file whose header verified.
struct File<'a, D> {
    disk: &'a D,
    path: &'a Path,
    bytes: u64,
    seed: u32,
}

impl<D: Disk> File<'_, D> {
    fn read(&self, position: u64, bytes: usize) -> Result<Vec<u8>, Error> {
        read(self.disk, self.path, position, bytes, None)
    }

    /// The round at `position` whose own CRC is right, whatever came before it, with its header.
    fn round(&self, position: u64) -> Result<Option<(Head, Vec<u8>)>, Error> {
        let mut round = self.read(position, PAGE)?;
        let left = self.bytes.saturating_sub(position);
        let Some(head) = Head::parse(&round).filter(|head| head.bytes() <= left) else {
            return Ok(None);
        };
        let length = ROUND_HEADER_BYTES + head.length;
        if let Some(more) = length.checked_sub(round.len()) {
            let rest = position + round.len() as u64;
            round.extend(self.read(rest, more)?);
        }
        round.truncate(length);
        let sound =
            round.len() == length && head.crc == crc32c::crc32c_append(self.seed, &round[8..]);
        Ok(sound.then_some((head, round)))
    }

    /// A round that verifies, at `position` or later, was written after one was synced that the
    /// chain has not reached.
    fn tells_of_sync(&self, mut position: u64, chain: Chain) -> Result<bool, Error> {
        while position < self.bytes {
            let bytes = self.read(position, SEARCH_BYTES)?;
            for at in (0..bytes.len()).step_by(PAGE) {
                let head = Head::parse(&bytes[at..]);
                let claims = head.is_some_and(|head| head.synced > chain.round);
                if claims && self.round(position + at as u64)?.is_some() {
                    return Ok(true);
                }
            }
            position += SEARCH_BYTES as u64;
        }
        Ok(false)
    }
}

fn damage(path: &Path, position: u64, what: &str) -> Error {
    Error::Corrupt(Damage {
        path: path.to_string(),
        position,
        offset: None,
        what: what.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{RoundWriter, FILE_HEADER_BYTES};
    use super::*;
    use crate::log::disk::DiskOp;
    use crate::testing::SimDisk;

    fn header(file: &mut [u8], generation: u64, began: Chain) -> FileHeader {
        let header = FileHeader {
            sequence: 3,
            bytes: file.len() as u64,
            generation,
            first: 3,
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
        let disk = SimDisk::default();
        let path = Path::from("3");
        disk.perform(&DiskOp::Create { path: path.clone() })
            .unwrap();
        disk.overwrite(&path, file.to_vec());
        let mut count = 0;
        let walked = walk(&disk, &path, 3, None, |_| {
            count += 1;
            Ok(())
        });
        match walked {
            Ok(_) => Ok(count),
            Err(Error::Corrupt(damage)) => Err(damage),
            Err(error) => panic!("{error}"),
        }
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
        for at in 0..FILE_HEADER_BYTES + 4 {
            let mut flipped = file.clone();
            flipped[at] ^= 1;
            assert_eq!(rounds(&flipped).unwrap_err().position, 0, "flipped at {at}");
        }
    }
}
