//! `(source, epoch, sequence)`, or `dedup-id`: how a publisher makes its repeats known.

use std::borrow::Cow;

/// Longest name of a publisher, bytes: whoever compares repeats keeps each in memory.
const NAME_BYTES_MAX: usize = 255;

/// Sources of one log that are kept for sure; at most twice as many are held. A fleet's collectors
/// are hundreds; the bound keeps made-up names from eating memory (the longest silent go first).
pub const SOURCES_MAX: usize = 32_768;

/// Milliseconds of silence after which a source may be forgotten; after twice as many it is. A
/// device that was cut off for a week keeps no message for longer, and neither do most streams
/// (`retention.ms`).
pub const SOURCE_EXPIRY_MS: i64 = 7 * 24 * 3_600_000;

/// What the name of a series begins with that is one message: no publisher can call itself so, for
/// no text of MQTT has U+0000.
const ONE_MESSAGE: &str = "dedup-id\0";

/// The place of a publish in the series of one publisher, from the user properties (or record
/// headers) `source`, `epoch` and `sequence`. One with a `dedup-id` is a series of its own, whoever
/// publishes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source<'a> {
    /// The publisher's name for itself.
    pub name: Cow<'a, str>,
    /// Grows each time that the publisher begins a new series.
    pub epoch: u64,
    /// Grows with each publish of the series.
    pub sequence: u64,
}

impl<'a> Source<'a> {
    /// Reads the first property of each name; None where one is missing, malformed or too long.
    pub fn find(properties: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Option<Self> {
        let (mut name, mut epoch, mut sequence, mut id) = (None, None, None, None);
        for (property, value) in properties {
            let place = match property {
                b"source" => &mut name,
                b"epoch" => &mut epoch,
                b"sequence" => &mut sequence,
                b"dedup-id" => &mut id,
                _ => continue,
            };
            place.get_or_insert(value);
        }
        let is_name = |name: &&[u8]| name.len() <= NAME_BYTES_MAX;
        if let Some(id) = id.filter(|id| is_name(id) && !id.is_empty()) {
            return Some(Self {
                name: [ONE_MESSAGE, std::str::from_utf8(id).ok()?].concat().into(),
                epoch: 0,
                sequence: 0,
            });
        }
        let name = name.filter(is_name)?;
        Some(Self {
            name: std::str::from_utf8(name).ok()?.into(),
            epoch: decimal(epoch?)?,
            sequence: decimal(sequence?)?,
        })
    }
}

impl Source<'_> {
    /// Whether it is one message, which any publisher may repeat.
    pub fn is_one_message(&self) -> bool {
        self.name.starts_with(ONE_MESSAGE)
    }
}

/// Digits alone, at most `i64::MAX`, so that every language that reads it back can hold it.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = text
        .iter()
        .fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
    i64::try_from(value).is_ok().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(properties: &[(&'static str, &'static str)]) -> Option<Source<'static>> {
        Source::find(
            properties
                .iter()
                .map(|(name, value)| (name.as_bytes(), value.as_bytes())),
        )
    }

    #[test]
    fn the_first_of_each_name_counts() {
        let source = Source {
            name: "rack-7".into(),
            epoch: 3,
            sequence: i64::MAX as u64,
        };
        let properties = [
            ("epoch", "3"),
            ("other", "x"),
            ("source", "rack-7"),
            ("sequence", "9223372036854775807"),
            ("source", "rack-8"),
            ("sequence", "1"),
        ];
        assert_eq!(find(&properties), Some(source));
    }

    #[test]
    fn without_all_three_well_formed_there_is_none() {
        let number = |text| [("source", "a"), ("epoch", "0"), ("sequence", text)];
        assert!(find(&number("0")).is_some());
        for text in [
            "",
            "-1",
            "+1",
            "1.0",
            " 1",
            "9223372036854775808",
            "00000000000000000001",
        ] {
            assert_eq!(find(&number(text)), None, "{text}");
        }
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        let long: &'static str = long.leak();
        let named = |name| [("source", name), ("epoch", "0"), ("sequence", "0")];
        assert!(find(&named(&long[1..])).is_some());
        assert_eq!(find(&named(long)), None);
        assert_eq!(find(&number("0")[..2]), None);
        assert_eq!(find(&number("0")[1..]), None);
    }

    #[test]
    fn one_message_is_a_series_whoever_publishes_it() {
        let id = find(&[("dedup-id", "job-7")]).expect("it is one");
        assert!(id.is_one_message());
        assert_eq!((id.epoch, id.sequence), (0, 0));
        let both = [
            ("source", "a"),
            ("epoch", "1"),
            ("sequence", "2"),
            ("dedup-id", "job-7"),
        ];
        assert_eq!(find(&both), Some(id.clone()));
        assert_ne!(find(&[("dedup-id", "job-8")]), Some(id));
        assert_eq!(find(&[("dedup-id", "")]), None);
        assert!(!find(&both[..3]).expect("it is one").is_one_message());
    }
}
