//! Values by topic name, found by topic filter, one after the other and with pauses.
//!
//! The names are one ordered map, in which the levels below a name follow it at once: `/` is kept
//! as U+0000, which no topic has and which sorts before everything. A search jumps from one name
//! that may match to the next, so it costs what it finds and one step for each place where a level
//! differs. What it has not looked at yet is one position, so a search over any number of names
//! can rest for as long as it likes, costs its position alone, and never meets a name twice,
//! whatever comes and goes meanwhile.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::Filter;

/// Stands for `/` in what is kept.
const SEPARATOR: u8 = 0;

/// Values by topic name.
#[derive(Clone, Debug)]
pub struct Retained<T> {
    names: BTreeMap<Box<[u8]>, T>,
}

/// A search for the names that a filter matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The least name not looked at, as kept.
    at: Vec<u8>,
    is_over: bool,
}

impl Cursor {
    /// Goes on where another search [stood](Self::position).
    pub fn at(position: &str) -> Self {
        Self {
            at: kept(position),
            is_over: false,
        }
    }

    /// Where it stands.
    ///
    /// # Panics
    /// Never: names and filters are text, and it stands at the end of a level of theirs.
    pub fn position(&self) -> String {
        let bytes = self.at.iter();
        let bytes = bytes.map(|byte| if *byte == SEPARATOR { b'/' } else { *byte });
        String::from_utf8(bytes.collect()).expect("levels are text")
    }

    /// Goes back to the name that was found last.
    pub fn back(&mut self) {
        let separator = self.at.pop();
        debug_assert_eq!(separator, Some(SEPARATOR), "one was found");
        self.is_over = false;
    }

    /// True where no more names can match.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }
}

/// Where a search goes after it has looked at a name that does not match.
enum Step {
    Match,
    /// To this name, or the first behind it.
    Seek(Vec<u8>),
    /// Nothing behind it can match.
    End,
}

impl<T> Default for Retained<T> {
    fn default() -> Self {
        Self {
            names: BTreeMap::new(),
        }
    }
}

impl<T> Retained<T> {
    /// How many names there are.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&T> {
        self.names.get(&kept(name)[..])
    }

    /// Gives a name a value; the one that it had before.
    pub fn insert(&mut self, name: &str, value: T) -> Option<T> {
        self.names.insert(kept(name).into(), value)
    }

    /// Takes a name out; the value that it had.
    pub fn remove(&mut self, name: &str) -> Option<T> {
        self.names.remove(&kept(name)[..])
    }

    /// The next value whose name the filter matches, in the order of the names. Looks at no more
    /// than `steps` names, which it counts down; None where they are used up, or where the search
    /// [is over](Cursor::is_over).
    pub fn next(&self, filter: Filter<'_>, cursor: &mut Cursor, steps: &mut usize) -> Option<&T> {
        while !cursor.is_over && *steps > 0 {
            *steps -= 1;
            let from = (Bound::Included(&cursor.at[..]), Bound::Unbounded);
            let Some((name, value)) = self.names.range::<[u8], _>(from).next() else {
                cursor.is_over = true;
                break;
            };
            match step(filter.as_str(), name) {
                Step::Match => {
                    cursor.at.clear();
                    cursor.at.extend_from_slice(name);
                    cursor.at.push(SEPARATOR);
                    return Some(value);
                }
                Step::Seek(at) => {
                    debug_assert!(at > cursor.at, "a search goes forward");
                    cursor.at = at;
                }
                Step::End => cursor.is_over = true,
            }
        }
        None
    }
}

/// A name as it is kept: byte by byte, with the levels below it right behind it.
fn kept(name: &str) -> Vec<u8> {
    let bytes = name.bytes();
    let bytes = bytes.map(|byte| if byte == b'/' { SEPARATOR } else { byte });
    bytes.collect()
}

/// Holds a filter against a name as kept, level by level.
fn step(filter: &str, name: &[u8]) -> Step {
    if filter.starts_with(['+', '#']) && name.first() == Some(&b'$') {
        // A wildcard in the first level does not match `$…` (MQTT-4.7.2-1).
        return Step::Seek(vec![b'$' + 1]);
    }
    let mut expected = filter.split('/');
    // Where the level at hand begins; None behind the last.
    let mut at = Some(0);
    while let (Some(level), Some(begin)) = (expected.clone().next(), at) {
        let end = name[begin..].iter().position(|byte| *byte == SEPARATOR);
        let end = end.map_or(name.len(), |length| begin + length);
        match level {
            "#" => return Step::Match,
            "+" => {}
            level => match name[begin..end].cmp(level.as_bytes()) {
                std::cmp::Ordering::Equal => {}
                std::cmp::Ordering::Less => {
                    return Step::Seek([&name[..begin], level.as_bytes()].concat());
                }
                std::cmp::Ordering::Greater => return behind(&name[..begin]),
            },
        }
        expected.next();
        at = (end < name.len()).then_some(end + 1);
    }
    match (expected.next(), at) {
        (None | Some("#"), None) => Step::Match,
        (None, Some(begin)) => behind(&name[..begin]),
        // Too short: what may match comes below it, or later.
        (Some(_), _) => Step::Seek([name, &[SEPARATOR]].concat()),
    }
}

/// Behind all names that begin with these levels, each with its separator.
fn behind(levels: &[u8]) -> Step {
    match levels.split_last() {
        None => Step::End,
        Some((_, levels)) => Step::Seek([levels, &[SEPARATOR + 1]].concat()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::testing::Random;
    use crate::topic::matches;

    fn levels(random: &mut Random, of: &[&str]) -> Vec<String> {
        let count = 1 + random.below(4);
        (0..count).map(|_| random.pick(of).to_owned()).collect()
    }

    fn name(random: &mut Random) -> String {
        loop {
            let name = levels(random, NAMES).join("/");
            if !name.is_empty() {
                return name;
            }
        }
    }

    fn filter(random: &mut Random) -> String {
        loop {
            let mut levels = levels(random, LEVELS);
            if random.below(3) == 0 {
                levels.push("#".into());
            }
            let filter = levels.join("/");
            if !filter.is_empty() {
                return filter;
            }
        }
    }

    /// What sorts before, at and behind `/` and `$`, what begins alike, and nothing.
    const NAMES: &[&str] = &[
        "", "a", "ab", "a-", "a0", "b", "$", "$a", "%", " ", "\u{1}", "é",
    ];
    const LEVELS: &[&str] = &["", "a", "ab", "a-", "b", "$", "$a", "+", "+", "+", "é"];

    fn found(retained: &Retained<String>, filter: &str, pause: usize) -> Vec<String> {
        let filter = Filter::parse(filter).unwrap();
        let (mut cursor, mut all) = (Cursor::default(), Vec::new());
        while !cursor.is_over() {
            let mut steps = pause;
            while let Some(name) = retained.next(filter, &mut cursor, &mut steps) {
                all.push(name.clone());
            }
        }
        all
    }

    #[test]
    fn what_is_found_is_what_matches_over_thousands_of_random_sets() {
        for seed in 0..1_500 {
            let mut random = Random::new(seed);
            let names: BTreeSet<String> =
                (0..random.below(40)).map(|_| name(&mut random)).collect();
            let mut retained = Retained::default();
            for name in &names {
                assert_eq!(retained.insert(name, name.clone()), None);
            }
            for _ in 0..8 {
                let filter = filter(&mut random);
                let expected = names.iter().filter(|name| matches(&filter, name));
                let expected: BTreeSet<String> = expected.cloned().collect();
                let pause = 1 + random.below(5);
                let all = found(&retained, &filter, pause);
                assert_eq!(
                    all.len(),
                    expected.len(),
                    "seed {seed}: {filter}, each once"
                );
                let all: BTreeSet<String> = all.into_iter().collect();
                assert_eq!(all, expected, "seed {seed}: {filter}");
            }
            for name in &names {
                assert_eq!(retained.remove(name).as_ref(), Some(name));
            }
            assert!(retained.is_empty());
        }
    }

    #[test]
    fn what_stays_is_found_once_whatever_comes_and_goes_meanwhile() {
        for seed in 0..1_000 {
            let mut random = Random::new(seed);
            let lasting: BTreeSet<String> = (0..20).map(|_| name(&mut random)).collect();
            let mut retained = Retained::default();
            for name in &lasting {
                retained.insert(name, name.clone());
            }
            let text = filter(&mut random);
            let filter = Filter::parse(&text).unwrap();
            let (mut cursor, mut seen) = (Cursor::default(), BTreeSet::new());
            while !cursor.is_over() {
                let name = name(&mut random);
                if !lasting.contains(&name) && retained.remove(&name).is_none() {
                    retained.insert(&name, name.clone());
                }
                let mut steps = 1 + random.below(3);
                if let Some(name) = retained.next(filter, &mut cursor, &mut steps) {
                    assert!(
                        seen.insert(name.clone()),
                        "seed {seed}: {text}, {name} twice"
                    );
                    if random.below(2) == 0 {
                        cursor = Cursor::at(&cursor.position());
                    }
                }
            }
            for name in &lasting {
                assert_eq!(
                    seen.contains(name),
                    matches(&text, name),
                    "seed {seed}: {text}"
                );
            }
        }
    }

    #[test]
    fn mqtt_4_7_2_1_a_leading_wildcard_finds_no_name_that_begins_with_a_dollar_sign() {
        let mut retained = Retained::default();
        for name in ["$SYS/a", "$SYS", "$", "a", "a/$SYS", "/$SYS", "%"] {
            retained.insert(name, name.to_owned());
        }
        assert_eq!(found(&retained, "#", 1), ["/$SYS", "%", "a", "a/$SYS"]);
        assert_eq!(found(&retained, "+", 1), ["%", "a"]);
        assert_eq!(found(&retained, "+/a", 1), [""; 0]);
        assert_eq!(found(&retained, "+/#", 1), ["/$SYS", "%", "a", "a/$SYS"]);
        assert_eq!(found(&retained, "$SYS/#", 1), ["$SYS", "$SYS/a"]);
        assert_eq!(found(&retained, "$SYS/+", 1), ["$SYS/a"]);
        assert_eq!(found(&retained, "+/$SYS", 1), ["/$SYS", "a/$SYS"]);
    }

    #[test]
    fn a_search_costs_what_it_finds() {
        let mut retained = Retained::default();
        for node in 0..1_000 {
            for metric in 0..100 {
                retained.insert(&format!("f/{node}/{metric}"), ());
            }
        }
        let steps = |filter: &str| {
            let filter = Filter::parse(filter).unwrap();
            let (mut cursor, mut steps) = (Cursor::default(), usize::MAX);
            let mut found = 0;
            while retained.next(filter, &mut cursor, &mut steps).is_some() {
                found += 1;
            }
            (found, usize::MAX - steps)
        };
        assert_eq!(steps("f/7/7").0, 1);
        assert!(steps("f/7/7").1 <= 8);
        assert_eq!(steps("f/7/#").0, 100);
        assert!(steps("f/7/#").1 <= 105);
        let (found, looked_at) = steps("f/+/7");
        assert_eq!(found, 1_000);
        assert!(looked_at <= 3_100, "{looked_at}");
        assert_eq!(steps("g/#").0, 0);
        assert!(steps("g/#").1 <= 2);
    }
}
