//! The key hash of Kafka's default partitioner.

/// Murmur2 of `key` with Kafka's seed, as an unsigned number.
///
/// Source: `MurmurHash2` by Austin Appleby; the seed is that of Kafka's Java client, which every
/// other client copies, so that one key meets one partition whoever produces it.
pub fn murmur2(key: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_B28C;
    const M: u32 = 0x5BD1_E995;

    let mut hash = SEED ^ key.len() as u32;
    let mut words = key.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let tail = words.remainder();
    if !tail.is_empty() {
        let k = tail
            .iter()
            .rev()
            .fold(0, |k, &byte| k << 8 | u32::from(byte));
        hash = (hash ^ k).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

/// The partition of `key` among `partitions` (at least 1): where Kafka's producers put it.
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7FFF_FFFF) % partitions
}

/// FNV-1a of 32 bits, by which the queues of the original design spread their keys (Fowler, Noll,
/// Vo; draft-eastlake-fnv).
pub fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811C_9DC5, |hash, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: draft-eastlake-fnv, appendix C.
    #[test]
    fn known_vectors_of_fnv1a() {
        for (key, hash) in [
            (&b""[..], 0x811C_9DC5),
            (b"a", 0xE40C_292C),
            (b"foobar", 0xBF9C_F968),
        ] {
            assert_eq!(fnv1a(key), hash);
        }
    }

    /// Source: the vectors of Kafka's own `UtilsTest.testMurmur2`.
    #[test]
    fn known_vectors() {
        for (key, hash) in [
            (&b"21"[..], -973_932_308_i32),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (
                b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            (b"abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key) as i32, hash);
        }
    }

    #[test]
    fn a_partition_is_within_the_count() {
        for key in 0..1000_u32 {
            assert!(partition_of(&key.to_be_bytes(), 7) < 7);
        }
    }
}
