//! The last offset of each key, of as many keys as memory is given to.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use siphasher::sip128::{Hasher128, SipHasher13};

use crate::hash;
use crate::record::{Fault, Record};

/// Keys count as equal where their 128-bit hashes are, under a secret that clients do not know:
/// of 2^40 keys two agree with a chance of 2^-49.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digest(u64, u64);

impl Hash for Digest {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0);
    }
}

/// A digest is as good as any hash of it.
#[derive(Debug, Default)]
struct First(u64);

impl Hasher for First {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a digest gives its first half");
    }

    fn write_u64(&mut self, half: u64) {
        self.0 = half;
    }
}

/// Key to last offset.
#[derive(Debug)]
pub(super) struct KeyMap {
    secret: hash::Key,
    keys_max: usize,
    offsets: HashMap<Digest, i64, BuildHasherDefault<First>>,
    /// Those of the batch that is being read.
    batch: Vec<(Digest, i64)>,
}

impl KeyMap {
    pub(super) fn new(secret: hash::Key, keys_max: usize) -> Self {
        Self {
            secret,
            keys_max,
            offsets: HashMap::default(),
            batch: Vec::new(),
        }
    }

    fn digest(&self, key: &[u8]) -> Digest {
        let mut hasher = SipHasher13::new_with_keys(self.secret.0, self.secret.1);
        hasher.write(key);
        let digest = hasher.finish128();
        Digest(digest.h1, digest.h2)
    }

    /// Takes note of a batch's keys; batches come in order. One that cannot be read to its end
    /// supersedes nothing.
    pub(super) fn note<'r>(&mut self, records: impl Iterator<Item = Result<Record<'r>, Fault>>) {
        self.batch.clear();
        for record in records {
            let Ok(record) = record else { return };
            if let Some(key) = record.key {
                self.batch.push((self.digest(key), record.offset));
            }
        }
        self.offsets.extend(self.batch.drain(..));
    }

    /// No other batch's keys go in.
    pub(super) fn is_full(&self) -> bool {
        self.offsets.len() >= self.keys_max
    }

    /// Of each record in order, whether a later one of its key is known, as far as they can be read.
    /// One after the other, without a branch on what was found: each look-up is a miss of the
    /// processor's cache, and so several are under way at once.
    pub(super) fn superseded<'r>(
        &self,
        records: impl Iterator<Item = Result<Record<'r>, Fault>>,
    ) -> Vec<bool> {
        let known = records.map_while(Result::ok);
        let wanted: Vec<(Digest, i64)> = known
            .map(|record| (self.digest(record.key.unwrap_or_default()), record.offset))
            .collect();
        wanted
            .into_iter()
            .map(|(digest, offset)| self.offsets.get(&digest).copied().unwrap_or(-1) > offset)
            .collect()
    }

    /// A later record of this key is known.
    #[cfg(test)]
    pub(super) fn supersedes(&self, key: &[u8], offset: i64) -> bool {
        let last = self.offsets.get(&self.digest(key));
        last.is_some_and(|last| *last > offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{set_base_offset, BatchBuilder, BatchHeader, Records, HEADER_BYTES};

    fn batch(offset: i64, keys: &[&[u8]]) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for key in keys {
            builder.push(0, Some(key), None, []);
        }
        let mut batch = builder.finish();
        set_base_offset(&mut batch, offset);
        batch
    }

    fn note(map: &mut KeyMap, batch: &[u8]) {
        let header = BatchHeader::parse(batch).unwrap();
        map.note(Records::new(&header, &batch[HEADER_BYTES..]));
    }

    #[test]
    fn the_last_offset_of_a_key_counts() {
        let mut map = KeyMap::new(hash::Key(1, 2), 50);
        note(&mut map, &batch(5, &[b"a", b""]));
        note(&mut map, &batch(9, &[b"a"]));
        let torn = batch(20, &[b"a", b"b"]);
        note(&mut map, &torn[..torn.len() - 1]);
        assert!(map.supersedes(b"a", 8) && !map.supersedes(b"a", 9));
        assert!(map.supersedes(b"", 5) && !map.supersedes(b"", 7));
        assert!(!map.supersedes(b"b", 0));
    }

    #[test]
    fn it_is_full_when_its_bound_is_reached() {
        let mut map = KeyMap::new(hash::Key(1, 2), 50);
        for at in 0..50_usize {
            assert!(!map.is_full());
            let key = &at.to_be_bytes()[..];
            note(&mut map, &batch(at as i64, &[key, key]));
        }
        assert!(map.is_full());
    }
}
