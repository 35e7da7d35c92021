//! Hash maps whose key the shell injects.
//!
//! A fixed key makes a run replay from its inputs; a random key (chosen by the shell at start)
//! keeps a client from choosing names that collide.

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
