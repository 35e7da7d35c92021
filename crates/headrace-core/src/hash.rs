//! Hash maps whose key the shell injects.
//!
//! A fixed key makes a run replay from its inputs; a random key (chosen by the shell at start)
//! keeps a client from choosing names that collide. Two functions: `SipHash` for maps in general, and
//! for the names that each publish is looked up by one that costs a fraction ([`Names`]).

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use siphasher::sip::SipHasher13;

/// Builds SipHash-1-3 hashers from one 128-bit key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Key(pub u64, pub u64);

impl BuildHasher for Key {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

/// A hash map under an injected key.
pub type Map<K, V> = HashMap<K, V, Key>;
/// A hash set under an injected key.
pub type Set<T> = HashSet<T, Key>;

/// Bytes that are hashed at a time.
const BLOCK_BYTES: usize = 64;
const PIECE_BYTES: usize = 16;

/// 2^61 - 1, a prime.
const PRIME: u64 = (1 << 61) - 1;

/// Hashes names under a key.
///
/// What it withstands is a theorem and not a matter of experience. Up to 64 bytes it is strongly
/// universal: the hashes of two names are the same with a probability of 2^-64, over all keys, and
/// so are any of their bits with that of those bits (pair-multiply-shift: Thorup, "High Speed
/// Hashing for Integers and Strings", arXiv 1504.06804, section 3). Each further 64 bytes add
/// 2^-60: they are the coefficients of a polynomial of a secret point. So whoever knows neither the
/// key nor any hash cannot do better than chance. `SipHash` also withstands who sees hashes; nobody
/// sees these: they leave no map.
#[derive(Clone, Debug)]
pub struct Names {
    pairs: [u128; 2 * BLOCK_BYTES / PIECE_BYTES],
    length: u128,
    blocks: u128,
    offset: u128,
    point: u64,
}

impl Names {
    /// Under this key.
    pub fn new(key: Key) -> Self {
        let mut drawn = 0_u64;
        let mut draw = || {
            drawn += 1;
            key.hash_one(("names", drawn))
        };
        let mut wide = || u128::from(draw()) << 64 | u128::from(draw());
        Self {
            pairs: std::array::from_fn(|_| wide()),
            length: wide(),
            blocks: wide(),
            offset: wide(),
            point: draw() % PRIME,
        }
    }

    /// The hash of a name.
    #[inline]
    pub fn hash(&self, name: &[u8]) -> u64 {
        let (mut rest, mut blocks) = (name, 0);
        while rest.len() > BLOCK_BYTES {
            let (block, behind) = rest.split_at(BLOCK_BYTES);
            blocks = self.next(blocks, self.sum(block));
            rest = behind;
        }
        let lengths = self.length.wrapping_mul(name.len() as u128);
        let blocks = self.blocks.wrapping_mul(u128::from(blocks));
        let sum = self.sum(rest).wrapping_add(lengths).wrapping_add(blocks);
        (sum >> 64) as u64
    }

    /// The hash of two words.
    #[inline]
    pub fn hash_words(&self, words: [u64; 2]) -> u64 {
        (pair(&self.pairs, words).wrapping_add(self.offset) >> 64) as u64
    }

    #[inline]
    fn sum(&self, block: &[u8]) -> u128 {
        let (mut rest, mut sum) = (block, self.offset);
        for keys in self.pairs.chunks_exact(2) {
            let Some((piece, behind)) = rest.split_first_chunk::<PIECE_BYTES>() else {
                break;
            };
            let piece = u128::from_le_bytes(*piece);
            sum = sum.wrapping_add(pair(keys, [piece as u64, (piece >> 64) as u64]));
            rest = behind;
        }
        if rest.is_empty() {
            return sum;
        }
        let at = block.len() / PIECE_BYTES * 2;
        sum.wrapping_add(pair(&self.pairs[at..], words(rest)))
    }

    /// One more coefficient of the polynomial.
    fn next(&self, blocks: u64, sum: u128) -> u64 {
        let product = u128::from(blocks) * u128::from(self.point) + (sum >> 67);
        let folded = (product as u64 & PRIME) + (product >> 61) as u64;
        if folded < PRIME {
            folded
        } else {
            folded - PRIME
        }
    }
}

#[inline]
fn pair(keys: &[u128], [low, high]: [u64; 2]) -> u128 {
    let low = keys[0].wrapping_add(u128::from(low));
    low.wrapping_mul(keys[1].wrapping_add(u128::from(high)))
}

/// At most 16 bytes, and zeros behind them. Reads words that overlap, and so takes no loop.
///
/// # Panics
/// There are more bytes.
#[inline]
pub fn words(bytes: &[u8]) -> [u64; 2] {
    let length = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let last = u128::from(u64::from_le_bytes(*last)) << (8 * (length - 8));
        let both = u128::from(u64::from_le_bytes(*first)) | last;
        return [both as u64, (both >> 64) as u64];
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let last = u64::from(u32::from_le_bytes(*last)) << (8 * (length - 4));
        return [u64::from(u32::from_le_bytes(*first)) | last, 0];
    }
    match *bytes {
        [] => [0, 0],
        [first, .., last] => {
            let middle = u64::from(bytes[length / 2]) << (8 * (length / 2));
            [
                u64::from(first) | middle | u64::from(last) << (8 * (length - 1)),
                0,
            ]
        }
        [only] => [u64::from(only), 0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_bytes_and_zeros_behind_them() {
        let bytes: Vec<u8> = (1..=16).map(|byte| byte * 15).collect();
        for length in 0..=16 {
            let [low, high] = words(&bytes[..length]);
            let both = [low.to_le_bytes(), high.to_le_bytes()].concat();
            assert_eq!(&both[..length], &bytes[..length]);
            assert_eq!(&both[length..], &[0; 16][length..]);
        }
    }

    /// Each byte and the length of a name count, in every one of the 64 bits about half the time.
    #[test]
    fn names_that_differ_in_a_byte_or_in_length_have_hashes_of_their_own() {
        for length in [1, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 129, 300] {
            let mut name = vec![b'a'; length];
            let differences: Vec<u64> = (0..200)
                .map(|key| {
                    let names = Names::new(Key(key, 7));
                    let before = names.hash(&name);
                    let longer = names.hash(&[&name[..], b"a"].concat());
                    assert_ne!(before, longer);
                    let at = key as usize % length;
                    name[at] ^= 1;
                    let after = names.hash(&name);
                    name[at] ^= 1;
                    before ^ after
                })
                .collect();
            for bit in 0..64 {
                let ones = differences
                    .iter()
                    .filter(|all| *all >> bit & 1 == 1)
                    .count();
                assert!((60..140).contains(&ones), "{ones} of bit {bit} at {length}");
            }
        }
    }

    #[test]
    fn a_key_gives_the_same_hashes_again() {
        let (first, second) = (Names::new(Key(1, 2)), Names::new(Key(1, 2)));
        assert_eq!(first.hash(b"fleet/node-1"), second.hash(b"fleet/node-1"));
        let other = Names::new(Key(2, 2));
        assert_ne!(first.hash(b"fleet/node-1"), other.hash(b"fleet/node-1"));
    }
}
