//! The first 16 bytes of each payload: who sent it, the how-manieth it is, when, and a checksum.
//!
//! ```text
//! 0      4          7            12              16
//! | CRC  | publisher | sequence   | microseconds |     big-endian
//! ```
//! The checksum (CRC-32C) covers the topic and the twelve bytes behind it, so that a payload that
//! arrives under another message's topic is found. Microseconds count from the start of the run
//! and wrap after 71 minutes; only differences are used.

/// Bytes of a stamp: the smallest payload.
pub const LENGTH: usize = 16;
/// Publishers that a stamp can tell apart.
pub const PUBLISHERS_MAX: u32 = 1 << 24;

/// What a payload says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) publisher: u32,
    /// Counts from 0; 40 bits.
    pub(crate) sequence: u64,
    pub(crate) micros: u32,
}

/// The checksum of a topic, to be continued over the stamp.
pub(crate) fn checksum(topic: &[u8]) -> u32 {
    crc32c::crc32c(topic)
}

impl Stamp {
    /// Writes the stamp over the beginning of a payload.
    pub(crate) fn write(self, topic_checksum: u32, payload: &mut [u8]) {
        let tail = (u128::from(self.publisher) << 72)
            | (u128::from(self.sequence) << 32)
            | u128::from(self.micros);
        payload[4..LENGTH].copy_from_slice(&tail.to_be_bytes()[4..]);
        let crc = crc32c::crc32c_append(topic_checksum, &payload[4..LENGTH]);
        payload[..4].copy_from_slice(&crc.to_be_bytes());
    }

    /// The stamp of a payload that arrived under this topic; `None` where they do not agree.
    pub(crate) fn read(topic: &[u8], payload: &[u8]) -> Option<Stamp> {
        let stamp = payload.get(..LENGTH)?;
        let crc = crc32c::crc32c_append(checksum(topic), &stamp[4..]);
        if stamp[..4] != crc.to_be_bytes() {
            return None;
        }
        let mut wide = [0; 16];
        wide[4..].copy_from_slice(&stamp[4..]);
        let tail = u128::from_be_bytes(wide);
        Some(Stamp {
            publisher: (tail >> 72) as u32,
            sequence: (tail >> 32) as u64 & 0xff_ffff_ffff,
            micros: tail as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{checksum, Stamp};

    const STAMP: Stamp = Stamp {
        publisher: 0x00ab_cdef,
        sequence: 0x12_3456_789a,
        micros: 0xffff_fffe,
    };

    #[test]
    fn a_stamp_comes_back_and_names_its_topic() {
        let mut payload = [7; 20];
        STAMP.write(checksum(b"bench/1"), &mut payload);
        assert_eq!(Stamp::read(b"bench/1", &payload), Some(STAMP));
        assert_eq!(Stamp::read(b"bench/2", &payload), None);
        assert_eq!(payload[16..], [7; 4]);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let mut payload = [0; 16];
        STAMP.write(checksum(b"t"), &mut payload);
        for bit in 0..128 {
            let mut flipped = payload;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Stamp::read(b"t", &flipped), None, "bit {bit}");
        }
        assert_eq!(Stamp::read(b"t", &payload[..15]), None);
    }
}
