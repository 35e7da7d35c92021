//! The sparse indexes of one segment, byte for byte Kafka's.
//!
//! Offset index: `(last offset of a batch - base, position of that batch)`, 4 + 4 bytes.
//! Time index: `(greatest timestamp so far, offset of that batch's last record - base)`, 8 + 4.
//! Neither carries a checksum, and nobody who finds too late a batch by time can tell: the journal
//! keeps the CRC of both. Of the offset index readers hold the batch that they find against the
//! entry, too.

use super::codec::{Put, Take};
use crate::record::BatchHeader;

/// CRC-32C of both files, one after the other.
pub(super) fn crc(offsets: &[u8], times: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(offsets), times)
}

/// Both indexes of one segment, in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    offsets: Vec<(u32, u32)>,
    times: Vec<(i64, u32)>,
    /// Bytes since the last entry.
    bytes: u64,
    /// The greatest timestamp and where it stands.
    newest: Option<(i64, u32)>,
}

impl Index {
    /// Takes note of a batch at `position`; an entry each `interval` bytes, as Kafka does.
    pub(super) fn add(&mut self, base: i64, header: &BatchHeader, position: u32, interval: u64) {
        if header.is_mark() {
            self.bytes += header.batch_bytes() as u64;
            return; // no one looks for it
        }
        let last = (header.last_offset() - base) as u32;
        if self
            .newest
            .is_none_or(|(time, _)| header.max_timestamp > time)
        {
            self.newest = Some((header.max_timestamp, last));
        }
        if self.bytes > interval {
            self.offsets.push((last, position));
            self.note_time();
            self.bytes = 0;
        }
        self.bytes += header.batch_bytes() as u64;
    }

    /// One entry more of either would pass `bytes_max`; the last of the time index has its place.
    pub(super) fn is_full(&self, bytes_max: u64) -> bool {
        let (offsets, times) = (self.offsets.len() as u64, self.times.len() as u64);
        8 * (offsets + 1) > bytes_max || 12 * (times + 2) > bytes_max
    }

    /// No more batches come: the last entry of the time index tells the greatest timestamp.
    pub(super) fn finish(&mut self) {
        self.note_time();
    }

    fn note_time(&mut self) {
        if let Some((time, last)) = self.newest {
            if self.times.last().is_none_or(|(before, _)| time > *before) {
                self.times.push((time, last));
            }
        }
    }

    /// The greatest timestamp of the segment.
    pub(super) fn max_timestamp(&self) -> Option<i64> {
        self.newest.map(|(time, _)| time)
    }

    /// The last entry at or before `relative`, as `(last offset of the batch, position)`.
    pub(super) fn floor(&self, relative: u32) -> Option<(u32, u32)> {
        let after = self.offsets.partition_point(|(last, _)| *last <= relative);
        after.checked_sub(1).map(|at| self.offsets[at])
    }

    /// A relative offset before which every timestamp is less than `timestamp`.
    pub(super) fn floor_of_time(&self, timestamp: i64) -> u32 {
        let after = self.times.partition_point(|(time, _)| *time < timestamp);
        after.checked_sub(1).map_or(0, |at| self.times[at].1)
    }

    /// What it takes in memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        let offsets = self.offsets.len() * size_of::<(u32, u32)>();
        (offsets + self.times.len() * size_of::<(i64, u32)>()) as u64
    }

    /// The last entry.
    pub(super) fn last(&self) -> Option<(u32, u32)> {
        self.offsets.last().copied()
    }

    /// Entries of the offset index: `(last offset of the batch, position)`.
    pub(super) fn offsets(&self) -> &[(u32, u32)] {
        &self.offsets
    }

    /// Entries of the time index: `(timestamp, last offset of its batch)`.
    pub(super) fn times(&self) -> &[(i64, u32)] {
        &self.times
    }

    /// The files `.index` and `.timeindex`.
    pub(super) fn encode(&self) -> (Vec<u8>, Vec<u8>) {
        let mut offsets = Vec::with_capacity(8 * self.offsets.len());
        for (last, position) in &self.offsets {
            offsets.put_u32(*last);
            offsets.put_u32(*position);
        }
        let mut times = Vec::with_capacity(12 * self.times.len());
        for (time, last) in &self.times {
            times.put_i64(*time);
            times.put_u32(*last);
        }
        (offsets, times)
    }

    /// Reads both files of a segment of `size` bytes; None where they cannot be its indexes.
    pub(super) fn decode(offsets: &[u8], times: &[u8], size: u64) -> Option<Self> {
        if offsets.len() % 8 != 0 || times.len() % 12 != 0 {
            return None;
        }
        let mut index = Self::default();
        let mut take = Take(offsets);
        while let (Some(last), Some(position)) = (take.u32(), take.u32()) {
            let ascends = index
                .last()
                .is_none_or(|(before, at)| last > before && position > at);
            if !ascends || u64::from(position) >= size {
                return None;
            }
            index.offsets.push((last, position));
        }
        let mut take = Take(times);
        while let (Some(time), Some(last)) = (take.i64(), take.u32()) {
            let ascends = index
                .times
                .last()
                .is_none_or(|(before, at)| time > *before && last > *at);
            if !ascends {
                return None;
            }
            index.times.push((time, last));
        }
        index.newest = index.times.last().copied();
        index.bytes = index
            .last()
            .map_or(size, |(_, position)| size - u64::from(position));
        Some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{set_base_offset, BatchBuilder};

    fn header(base: i64, timestamp: i64, bytes: usize) -> BatchHeader {
        let mut builder = BatchBuilder::new();
        builder.push(timestamp, None, Some(&vec![0; bytes]), []);
        let mut batch = builder.finish();
        set_base_offset(&mut batch, base);
        BatchHeader::parse(&batch).unwrap()
    }

    fn index(timestamps: &[i64]) -> (Index, u64) {
        let mut index = Index::default();
        let mut position = 0;
        for (at, timestamp) in timestamps.iter().enumerate() {
            let header = header(100 + at as i64, *timestamp, 50);
            index.add(100, &header, position, 200);
            position += header.batch_bytes() as u32;
        }
        (index, u64::from(position))
    }

    #[test]
    fn a_floor_is_never_past_the_offset_asked_for() {
        let (index, size) = index(&[5, 3, 9, 9, 7, 1, 12, 12, 13]);
        assert!(index.offsets.len() > 2);
        for relative in 0..9 {
            if let Some((last, position)) = index.floor(relative) {
                assert!(last <= relative);
                assert!(u64::from(position) < size);
            }
        }
        assert_eq!(index.floor(0), None);
    }

    #[test]
    fn a_time_floor_leaves_only_older_timestamps_behind() {
        let timestamps = [5, 3, 9, 9, 7, 1, 12, 12, 13];
        let (index, _) = index(&timestamps);
        for wanted in 0..15 {
            let floor = index.floor_of_time(wanted) as usize;
            assert!(
                timestamps[..floor].iter().all(|time| *time < wanted),
                "{wanted}"
            );
        }
    }

    #[test]
    fn both_files_read_back() {
        let (mut index, size) = index(&[5, 3, 9, 9, 7, 1, 12, 12, 13]);
        index.finish();
        let (offsets, times) = index.encode();
        let back = Index::decode(&offsets, &times, size).unwrap();
        assert_eq!((&back.offsets, &back.times), (&index.offsets, &index.times));
        assert_eq!(back.max_timestamp(), Some(13));
        assert!(Index::decode(&offsets[..7], &times, size).is_none());
        assert!(Index::decode(&offsets, &times[..11], size).is_none());
        assert!(Index::decode(&offsets, &times, 10).is_none());
        let mut twice = offsets.clone();
        twice.extend_from_slice(&offsets);
        assert!(Index::decode(&twice, &times, size).is_none());
    }
}
