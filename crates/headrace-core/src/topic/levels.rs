//! Maps by a level of a topic, or by a whole name.
//!
//! Most places of a trie have a few levels below them, which are compared one by one; more are
//! hashed. A short level stands in its place without memory of its own, and is compared as two
//! words. Invariant: a map that has become sparse gives its memory back.

use hashbrown::HashTable;

use crate::hash::{words, Names};

/// So many are compared one by one.
const FEW_MAX: usize = 8;

/// Bytes of a level that stands in its place.
const SHORT_BYTES_MAX: usize = 15;

/// A level or a name.
#[derive(Clone, Debug)]
pub(super) enum Level {
    /// Its bytes, and its length in the last one.
    Short([u64; 2]),
    Long(Box<str>),
}

/// The same while it is looked for. Equal ones are of one kind, for that depends on the length alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted<'a> {
    Short([u64; 2]),
    Long(&'a str),
}

impl<'a> Wanted<'a> {
    /// `+`.
    pub const ANY: Self = Self::Short([b'+' as u64, 1 << 56]);

    /// The first level, and what follows it. A level is short: its words are at hand once its slash
    /// is found.
    #[expect(
        clippy::inline_always,
        reason = "a match takes a fifth longer by a call"
    )]
    #[inline(always)]
    pub fn first(levels: &'a str) -> (Self, &'a str) {
        let bytes = levels.as_bytes();
        let short = |low, high, length: usize| {
            let words = [low, high | (length as u64) << 56];
            (Self::Short(words), &levels[length..])
        };
        let Some((first, behind)) = bytes.split_first_chunk() else {
            let [rest, _] = words(bytes);
            return match until_slash(rest) {
                Some((low, length)) => short(low, 0, length),
                None => short(rest, 0, bytes.len()),
            };
        };
        let first = u64::from_le_bytes(*first);
        if let Some((low, length)) = until_slash(first) {
            return short(low, 0, length);
        }
        let second = match behind.first_chunk() {
            Some(second) => u64::from_le_bytes(*second),
            None => words(behind)[0],
        };
        match until_slash(second) {
            Some((high, length)) => short(first, high, 8 + length),
            None if behind.len() < 8 => short(first, second, bytes.len()),
            None => {
                let (level, rest) = split(levels);
                (Self::Long(level), rest)
            }
        }
    }

    #[inline]
    fn of(level: &'a str) -> Self {
        let bytes = level.len();
        if bytes > SHORT_BYTES_MAX {
            return Self::Long(level);
        }
        let [low, high] = words(level.as_bytes());
        Self::Short([low, high | (bytes as u64) << 56])
    }

    #[inline]
    fn hash(self, names: &Names) -> u64 {
        match self {
            Self::Short(words) => names.hash_words(words),
            Self::Long(level) => names.hash(level.as_bytes()),
        }
    }

    #[inline]
    fn is(self, known: &Level) -> bool {
        match (self, known) {
            (Self::Short(wanted), Level::Short(known)) => wanted == *known,
            (Self::Long(wanted), Level::Long(known)) => *wanted == **known,
            _ => false,
        }
    }

    fn owned(self) -> Level {
        match self {
            Self::Short(words) => Level::Short(words),
            Self::Long(level) => Level::Long(level.into()),
        }
    }
}

/// The first level, and what follows it. Levels are short: looking at eight bytes at a time is
/// faster than a search that is made for long texts, and at each byte costs a branch that nobody
/// can predict.
#[inline]
pub(super) fn split(levels: &str) -> (&str, &str) {
    let bytes = levels.as_bytes();
    let mut at = 0;
    while let Some(eight) = bytes[at..].first_chunk() {
        if let Some((_, slash)) = until_slash(u64::from_le_bytes(*eight)) {
            return levels.split_at(at + slash);
        }
        at += 8;
    }
    let [rest, _] = words(&bytes[at..]);
    levels.split_at(until_slash(rest).map_or(bytes.len(), |(_, slash)| at + slash))
}

/// Of eight bytes those before the first slash, and zeros behind them; how many those are.
#[inline]
fn until_slash(bytes: u64) -> Option<(u64, usize)> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let word = bytes ^ (ONES * u64::from(b'/'));
    // The lowest top bit that a subtraction sets is that of the first slash.
    let slashes = word.wrapping_sub(ONES) & !word & (ONES << 7);
    (slashes != 0).then(|| {
        let before = (slashes ^ (slashes - 1)) >> 8;
        (bytes & before, slashes.trailing_zeros() as usize / 8)
    })
}

impl Level {
    fn wanted(&self) -> Wanted<'_> {
        match self {
            Self::Short(words) => Wanted::Short(*words),
            Self::Long(level) => Wanted::Long(level),
        }
    }

    fn into_text(self) -> Box<str> {
        match self {
            Self::Short([low, high]) => {
                let bytes = [low.to_le_bytes(), high.to_le_bytes()].concat();
                let bytes = &bytes[..usize::from(bytes[SHORT_BYTES_MAX])];
                std::str::from_utf8(bytes).expect("it was a text").into()
            }
            Self::Long(level) => level,
        }
    }
}

/// Values by level.
#[derive(Clone, Debug)]
pub(super) enum Levels<V> {
    Few(Vec<(Level, V)>),
    Many(HashTable<(Level, V)>),
}

impl<V> Default for Levels<V> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl<V> Levels<V> {
    pub fn len(&self) -> usize {
        match self {
            Self::Few(few) => few.len(),
            Self::Many(many) => many.len(),
        }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        // One of many has never none: it would be one of few.
        matches!(self, Self::Few(few) if few.is_empty())
    }

    #[inline]
    pub fn get(&self, names: &Names, level: &str) -> Option<&V> {
        if self.is_empty() {
            return None;
        }
        self.find(names, Wanted::of(level))
    }

    #[inline]
    pub fn find(&self, names: &Names, wanted: Wanted<'_>) -> Option<&V> {
        let found = match self {
            Self::Few(few) => few.iter().find(|(known, _)| wanted.is(known)),
            Self::Many(many) => many.find(wanted.hash(names), |(known, _)| wanted.is(known)),
        };
        found.map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, names: &Names, level: &str) -> Option<&mut V> {
        let wanted = Wanted::of(level);
        let found = match self {
            Self::Few(few) => few.iter_mut().find(|(known, _)| wanted.is(known)),
            Self::Many(many) => many.find_mut(wanted.hash(names), |(known, _)| wanted.is(known)),
        };
        found.map(|(_, value)| value)
    }

    /// The value of a level, put there where it is missing.
    pub fn entry(&mut self, names: &Names, level: &str, new: impl FnOnce() -> V) -> &mut V {
        let wanted = Wanted::of(level);
        let rehash = |(known, _): &(Level, V)| known.wanted().hash(names);
        if let Self::Few(few) = self {
            let is_known = few.iter().any(|(known, _)| wanted.is(known));
            if !is_known && few.len() == FEW_MAX {
                let mut many = HashTable::with_capacity(2 * FEW_MAX);
                for entry in few.drain(..) {
                    many.insert_unique(rehash(&entry), entry, rehash);
                }
                *self = Self::Many(many);
            }
        }
        match self {
            Self::Few(few) => {
                let at = few.iter().position(|(known, _)| wanted.is(known));
                let at = at.unwrap_or_else(|| {
                    few.reserve_exact(1);
                    few.push((wanted.owned(), new()));
                    few.len() - 1
                });
                &mut few[at].1
            }
            Self::Many(many) => {
                let is = |(known, _): &(Level, V)| wanted.is(known);
                let entry = many.entry(wanted.hash(names), is, rehash);
                let entry = entry.or_insert_with(|| (wanted.owned(), new()));
                &mut entry.into_mut().1
            }
        }
    }

    /// Removes a level, and gives memory back once three quarters of it are unused; half of what
    /// stays is room to grow.
    pub fn remove(&mut self, names: &Names, level: &str) {
        let wanted = Wanted::of(level);
        match self {
            Self::Few(few) => {
                few.retain(|(known, _)| !wanted.is(known));
                few.shrink_to_fit();
            }
            Self::Many(many) => {
                let hash = wanted.hash(names);
                if let Ok(found) = many.find_entry(hash, |(known, _)| wanted.is(known)) {
                    found.remove();
                }
                if many.len() <= FEW_MAX / 2 {
                    *self = Self::Few(many.drain().collect());
                } else if many.len() * 4 < many.capacity() {
                    many.shrink_to(many.len() * 2, |(known, _)| known.wanted().hash(names));
                }
            }
        }
    }

    /// Takes the only level that there is.
    pub fn take_only(&mut self) -> Option<(Box<str>, V)> {
        assert!(self.len() <= 1, "it is the only one");
        let (level, value) = match self {
            Self::Few(few) => few.pop(),
            Self::Many(many) => many.drain().next(),
        }?;
        Some((level.into_text(), value))
    }

    #[cfg(test)]
    pub fn values(&self) -> Box<dyn Iterator<Item = &V> + '_> {
        match self {
            Self::Few(few) => Box::new(few.iter().map(|(_, value)| value)),
            Self::Many(many) => Box::new(many.iter().map(|(_, value)| value)),
        }
    }

    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        match self {
            Self::Few(few) => few.capacity(),
            Self::Many(many) => many.capacity(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Wanted;

    #[test]
    fn a_level_is_what_stands_before_the_first_slash_whatever_its_length() {
        for length in (0..40).filter(|length| length % 13 != 3) {
            let level = &"a-ä123456789".repeat(4)[..length];
            for rest in ["", "/", "/a", "//", "/long enough for another word/x"] {
                let text = [level, rest].concat();
                let (first, behind) = Wanted::first(&text);
                assert!(first == Wanted::of(level) && behind == rest, "{text}");
            }
        }
        assert!(Wanted::first("+/a").0 == Wanted::ANY);
        assert!(Wanted::first("-/a").0 != Wanted::ANY);
    }
}
