//! The last publish of each source in one partition: how repeats are known.

use crate::hash::{Key, Map};
use crate::record::{Source, SOURCES_MAX, SOURCE_EXPIRY_MS};

/// Sources of all partitions together, at some 150 bytes each: where there are more, the partition
/// with the most forgets those that were silent longest.
pub const SOURCES_OF_NODE_MAX: usize = if cfg!(test) { 1000 } else { 1_000_000 };

/// Where a source stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Last {
    epoch: u64,
    sequence: u64,
    /// The ticket that stores it; 0 from the log.
    ticket: u64,
}

impl Last {
    fn place(self) -> (u64, u64) {
        (self.epoch, self.sequence)
    }
}

/// What to do with a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Store it.
    New,
    /// It is stored, or on its way.
    Repeat,
    /// Its publisher has been replaced.
    Stale,
}

/// What a failed ticket takes back.
#[derive(Debug)]
pub struct Undo {
    name: Box<str>,
    before: Option<Last>,
}

/// The window of one partition.
#[derive(Debug)]
pub struct Sources {
    hash_key: Key,
    young: Map<Box<str>, Last>,
    old: Map<Box<str>, Last>,
    /// The wall clock when the young ones began.
    turned_ms: Option<i64>,
}

impl Sources {
    /// No source known.
    pub fn new(hash_key: Key) -> Self {
        Self {
            hash_key,
            young: Map::with_hasher(hash_key),
            old: Map::with_hasher(hash_key),
            turned_ms: None,
        }
    }

    /// Sources known.
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Forgets those that were silent longest.
    pub fn turn(&mut self) {
        let empty = Map::with_hasher(self.hash_key);
        self.old = std::mem::replace(&mut self.young, empty);
    }

    /// Compares a publish with the last of its source.
    pub fn verdict(&self, source: &Source) -> Verdict {
        match self.last(&source.name) {
            Some(last) if source.epoch < last.epoch => Verdict::Stale,
            Some(last) if (source.epoch, source.sequence) <= last.place() => Verdict::Repeat,
            _ => Verdict::New,
        }
    }

    /// Notes that `ticket` stores the publish. Returns what to take back if it fails, once a
    /// source and ticket.
    pub fn note(&mut self, source: &Source, ticket: u64, wall_ms: i64) -> Option<Undo> {
        let turned_ms = *self.turned_ms.get_or_insert(wall_ms);
        if wall_ms.saturating_sub(turned_ms) > SOURCE_EXPIRY_MS {
            self.turned_ms = Some(wall_ms);
            self.turn();
        }
        let next = Last {
            epoch: source.epoch,
            sequence: source.sequence,
            ticket,
        };
        if let Some(last) = self.young.get_mut(&*source.name) {
            let before = std::mem::replace(last, next);
            return (before.ticket != ticket).then(|| Undo {
                name: (&*source.name).into(),
                before: Some(before),
            });
        }
        let before = self.old.remove(&*source.name);
        self.insert((&*source.name).into(), next);
        Some(Undo {
            name: (&*source.name).into(),
            before,
        })
    }

    /// Takes back what a failed ticket noted. Never forward: another failed ticket may have gone
    /// further back.
    pub fn take_back(&mut self, undo: Undo) {
        let Undo { name, before } = undo;
        let Some(last) = self.last(&name) else { return };
        match before {
            Some(before) if before.place() < last.place() => self.insert(name, before),
            Some(_) => {}
            None => {
                self.young.remove(&name);
                self.old.remove(&name);
            }
        }
    }

    /// Notes what the log holds.
    pub fn load(&mut self, name: &str, epoch: u64, sequence: u64) {
        let last = Last {
            epoch,
            sequence,
            ticket: 0,
        };
        self.insert(name.into(), last);
    }

    /// `(source, epoch, sequence)` of each.
    pub fn list(&self) -> impl Iterator<Item = (&str, u64, u64)> {
        let old = self
            .old
            .iter()
            .filter(|(name, _)| !self.young.contains_key(*name));
        self.young
            .iter()
            .chain(old)
            .map(|(name, last)| (&**name, last.epoch, last.sequence))
    }

    fn last(&self, name: &str) -> Option<Last> {
        self.young.get(name).or_else(|| self.old.get(name)).copied()
    }

    fn insert(&mut self, name: Box<str>, last: Last) {
        if self.young.len() >= SOURCES_MAX && !self.young.contains_key(&name) {
            self.turn();
        }
        self.young.insert(name, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(name: &str, epoch: u64, sequence: u64) -> Source<'_> {
        Source {
            name: name.into(),
            epoch,
            sequence,
        }
    }

    #[test]
    fn a_repeat_is_known_a_lower_epoch_is_stale_a_higher_one_begins_anew() {
        let mut sources = Sources::new(Key(1, 2));
        assert_eq!(sources.verdict(&source("a", 1, 5)), Verdict::New);
        sources.note(&source("a", 1, 5), 1, 0);
        assert_eq!(sources.verdict(&source("a", 1, 5)), Verdict::Repeat);
        assert_eq!(sources.verdict(&source("a", 1, 4)), Verdict::Repeat);
        assert_eq!(sources.verdict(&source("a", 1, 6)), Verdict::New);
        assert_eq!(sources.verdict(&source("a", 0, 9)), Verdict::Stale);
        assert_eq!(sources.verdict(&source("a", 2, 0)), Verdict::New);
        assert_eq!(sources.verdict(&source("b", 0, 0)), Verdict::New);
    }

    #[test]
    fn failed_tickets_take_back_in_whatever_order_they_fail() {
        for reverse in [false, true] {
            let mut sources = Sources::new(Key(1, 2));
            sources.load("a", 1, 5);
            let mut undos = vec![
                sources.note(&source("a", 1, 6), 1, 0).unwrap(),
                sources.note(&source("a", 1, 8), 3, 0).unwrap(),
            ];
            assert!(sources.note(&source("a", 1, 9), 3, 0).is_none());
            if reverse {
                undos.reverse();
            }
            for undo in undos {
                sources.take_back(undo);
            }
            assert_eq!(sources.list().collect::<Vec<_>>(), [("a", 1, 5)]);
        }
    }

    #[test]
    fn memory_is_bounded_and_the_longest_silent_go_first() {
        let mut sources = Sources::new(Key(1, 2));
        for index in 0..4 * SOURCES_MAX as u64 {
            sources.note(&source(&index.to_string(), 0, 0), 1, 0);
            sources.note(&source("busy", 0, index), 1, 0);
        }
        assert!(sources.list().count() <= 2 * SOURCES_MAX);
        assert_eq!(sources.verdict(&source("busy", 0, 0)), Verdict::Repeat);
        assert_eq!(sources.verdict(&source("0", 0, 0)), Verdict::New);
    }

    #[test]
    fn a_source_is_forgotten_after_a_week_of_silence_or_two() {
        let mut sources = Sources::new(Key(1, 2));
        sources.load("restarted", 1, 5);
        sources.note(&source("a", 1, 5), 1, 0);
        for days in 0..14 {
            sources.note(
                &source("busy", 1, days),
                1,
                days as i64 * SOURCE_EXPIRY_MS / 7,
            );
            assert_eq!(sources.verdict(&source("a", 1, 5)), Verdict::Repeat);
        }
        sources.note(&source("busy", 1, 99), 1, 2 * SOURCE_EXPIRY_MS + 2);
        sources.note(&source("busy", 1, 99), 1, 3 * SOURCE_EXPIRY_MS + 3);
        assert_eq!(sources.list().collect::<Vec<_>>(), [("busy", 1, 99)]);
    }
}
