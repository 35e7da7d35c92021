//! Spreading records over partitions, and those of each partition over batches.
//!
//! For a producer whose task may run again beside itself: a batch that others follow holds an even
//! number of records where that is possible, so that who repeats the task by odd ones never has
//! the same range of sequences (ADR 0069).

use std::collections::VecDeque;
use std::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::builder::{record_bytes, LATER_RECORD_BYTES};
use super::{partition_of, BatchBuilder, Codec, Producer};

/// Records on their way to the partitions of a stream.
#[derive(Debug)]
pub struct Spread {
    lanes: Vec<Lane>,
    bytes_wanted: usize,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Lane {
    full: VecDeque<BatchBuilder>,
    open: BatchBuilder,
}

impl Spread {
    /// For so many partitions (at least 1). A batch is full at `bytes_wanted`; beyond that it gets
    /// one record more where it has an odd number, unless that would lead beyond `bytes_max`.
    pub fn new(partitions: usize, bytes_wanted: usize, bytes_max: usize) -> Self {
        Self {
            lanes: (0..partitions).map(|_| Lane::default()).collect(),
            bytes_wanted,
            bytes_max,
        }
    }

    /// Adds a record: to `partition`, or to that of its key, or of its value without a key.
    ///
    /// False, and nothing is added, where there is no such partition.
    pub fn push<'a>(
        &mut self,
        partition: Option<u32>,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)> + Clone,
    ) -> bool {
        let place = partition.unwrap_or_else(|| {
            partition_of(key.or(value).unwrap_or_default(), self.lanes.len() as u32)
        });
        let Some(lane) = self.lanes.get_mut(place as usize) else {
            return false;
        };
        let bytes = record_bytes(key, value, headers.clone()) + LATER_RECORD_BYTES;
        let bound = if lane.open.count() % 2 == 0 {
            self.bytes_wanted
        } else {
            self.bytes_max
        };
        if !lane.open.is_empty() && lane.open.bytes() + bytes > bound {
            lane.full.push_back(std::mem::take(&mut lane.open));
        }
        lane.open.push(timestamp, key, value, headers);
        true
    }

    /// Partitions with a full batch.
    pub fn full(&self) -> Vec<usize> {
        self.places(|lane| !lane.full.is_empty())
    }

    /// Partitions with records.
    pub fn held(&self) -> Vec<usize> {
        self.places(|lane| !lane.full.is_empty() || !lane.open.is_empty())
    }

    fn places(&self, is_one: impl Fn(&Lane) -> bool) -> Vec<usize> {
        let lanes = self.lanes.iter().enumerate();
        lanes
            .filter_map(|(place, lane)| is_one(lane).then_some(place))
            .collect()
    }

    /// The next batch of a partition and its number of records: a full one, else all that there
    /// is; None where there is nothing, or no such partition.
    pub fn take(
        &mut self,
        partition: usize,
        codec: Codec,
        producer: Producer,
    ) -> Option<(u32, Vec<u8>)> {
        let lane = self.lanes.get_mut(partition)?;
        let mut batch = lane
            .full
            .pop_front()
            .unwrap_or_else(|| std::mem::take(&mut lane.open));
        let count = batch.count();
        (count > 0).then(|| (count, batch.finish_for(codec, producer)))
    }
}

/// Tells records apart by what they hold: key, value and headers. 128 bits, so that none of a
/// trillion records is taken for another by chance; the key of the hash is no secret.
pub fn digest<'a>(
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: impl IntoIterator<Item = (&'a [u8], Option<&'a [u8]>)>,
) -> u128 {
    let mut hasher = SipHasher13::new();
    let mut put = |bytes: Option<&[u8]>| {
        hasher.write_i64(bytes.map_or(-1, |bytes| bytes.len() as i64));
        hasher.write(bytes.unwrap_or_default());
    };
    put(key);
    put(value);
    for (name, value) in headers {
        put(Some(name));
        put(value);
    }
    hasher.finish128().as_u128()
}

#[cfg(test)]
mod tests {
    use super::super::{Batches, Records};
    use super::*;

    const NO_HEADERS: [(&[u8], Option<&[u8]>); 0] = [];

    fn values(batch: &[u8]) -> Vec<Vec<u8>> {
        let batch = Batches::new(batch).next().unwrap().unwrap();
        Records::new(&batch.header, batch.body())
            .map(|record| record.unwrap().value.unwrap().to_vec())
            .collect()
    }

    #[test]
    fn a_record_goes_where_kafkas_producers_put_its_key() {
        let mut spread = Spread::new(3, 1000, 2000);
        for key in [&b"a"[..], b"b", b"c", b"d"] {
            spread.push(None, 0, Some(key), None, NO_HEADERS);
            let place = partition_of(key, 3) as usize;
            assert_eq!(spread.held(), [place]);
            assert_eq!(
                spread.take(place, Codec::None, Producer::NONE).unwrap().0,
                1
            );
        }
        assert!(!spread.push(Some(3), 0, None, None, NO_HEADERS));
        assert!(spread.push(Some(2), 0, None, None, NO_HEADERS));
        assert_eq!(spread.held(), [2]);
        assert_eq!(spread.take(0, Codec::None, Producer::NONE), None);
    }

    #[test]
    fn what_is_followed_holds_an_even_number_unless_records_are_huge() {
        let mut spread = Spread::new(1, 400, 2000);
        let mut sent = Vec::new();
        for n in 0..100_usize {
            let value = vec![n as u8; 20 + n];
            spread.push(None, 0, None, Some(&value), NO_HEADERS);
            sent.push(value);
        }
        let mut came = Vec::new();
        while spread.full() == [0] {
            let (count, batch) = spread.take(0, Codec::None, Producer::NONE).unwrap();
            assert!(count % 2 == 0 && batch.len() <= 2000);
            came.extend(values(&batch));
        }
        let (_, last) = spread.take(0, Codec::None, Producer::NONE).unwrap();
        came.extend(values(&last));
        assert_eq!(came, sent);
        for _ in 0..2 {
            spread.push(None, 0, None, Some(&[0; 1500]), NO_HEADERS);
        }
        assert_eq!(spread.full(), [0]);
        assert_eq!(spread.take(0, Codec::None, Producer::NONE).unwrap().0, 1);
    }

    #[test]
    fn digests_tell_null_from_empty_and_fields_apart() {
        let none: Option<&[u8]> = None;
        let seen = [
            digest(none, none, NO_HEADERS),
            digest(Some(b""), none, NO_HEADERS),
            digest(none, Some(b""), NO_HEADERS),
            digest(Some(b"ab"), Some(b"c"), NO_HEADERS),
            digest(Some(b"a"), Some(b"bc"), NO_HEADERS),
            digest(none, none, [(&b""[..], none)]),
            digest(none, none, [(&b""[..], Some(&b""[..]))]),
        ];
        for (at, one) in seen.iter().enumerate() {
            assert!(!seen[..at].contains(one));
        }
    }
}
