//! JSON objects as names and texts, each value as it was written.
//!
//! Source: RFC 8259. Two things beyond it are read because exporters write them: the bare words
//! NaN, Infinity and -Infinity (Python's `json`), and text that is not UTF-8.

use std::borrow::Cow;
use std::collections::btree_map::{BTreeMap, Entry};

use serde_json::value::RawValue;

use super::text::Text;

/// Names and texts in their order, each name once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pairs<'a>(Vec<(Cow<'a, str>, Text<'a>)>);

impl<'a> Pairs<'a> {
    /// Sets `name`; the last of a repeated name wins.
    pub fn set(&mut self, name: Cow<'a, str>, value: Text<'a>) {
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name, value)),
        }
    }

    /// The text of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.and_then(|(_, value)| value.as_deref())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_ref(), value.as_deref()))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Bytes of all names and texts.
    pub fn bytes(&self) -> usize {
        self.iter()
            .map(|(name, value)| name.len() + value.map_or(0, str::len))
            .sum()
    }
}

/// The members of the object that `text` is, each value as its JSON text; None where it is none.
fn object(text: &str) -> Option<Vec<(Cow<'_, str>, &RawValue)>> {
    let mut members = Members(Vec::new());
    let mut parser = serde_json::Deserializer::from_str(text);
    serde::de::DeserializeSeed::deserialize(&mut members, &mut parser).ok()?;
    parser.end().ok()?;
    Some(members.0)
}

/// Calls `each` with the members of the object that `text` is, after mending where that helps;
/// None where it is none.
pub fn read<T>(text: &str, each: impl FnOnce(Vec<(Cow<'_, str>, &RawValue)>) -> T) -> Option<T> {
    if let Some(members) = object(text) {
        return Some(each(members));
    }
    let mended = mended(text)?;
    object(&mended).map(each)
}

/// What a JSON value says as a text: a string without its quotes, null as None, anything else as
/// it was written.
pub fn text_of(value: &RawValue) -> Text<'_> {
    let raw = value.get();
    match raw.as_bytes()[0] {
        b'n' => None,
        b'"' if !raw.contains('\\') => Some(raw[1..raw.len() - 1].into()),
        // An escape of half a character names none: it stays as it was written.
        b'"' => Some(serde_json::from_str::<String>(raw).map_or(raw.into(), Cow::Owned)),
        _ => Some(raw.into()),
    }
}

/// The names and texts of a JSON value that is an object; None for any other.
pub fn pairs_of(value: &RawValue) -> Option<Pairs<'_>> {
    let members = object(value.get())?;
    let mut pairs = Pairs(Vec::with_capacity(members.len()));
    let mut places = BTreeMap::<_, usize>::new();
    for (name, value) in members {
        match places.entry(name.clone()) {
            Entry::Occupied(place) => pairs.0[*place.get()].1 = text_of(value),
            Entry::Vacant(place) => {
                place.insert(pairs.0.len());
                pairs.0.push((name, text_of(value)));
            }
        }
    }
    Some(pairs)
}

/// `text` with the words for numbers that JSON lacks in quotes; None where it holds none.
fn mended(text: &str) -> Option<String> {
    let mut found = None::<String>;
    let (mut copied, mut at) = (0, 0);
    let bytes = text.as_bytes();
    let mut quoted = false;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            b'N' | b'I' | b'-' if !quoted => {
                let word = ["NaN", "Infinity", "-Infinity", "-NaN"]
                    .into_iter()
                    .find(|word| bytes[at..].starts_with(word.as_bytes()));
                if let Some(word) = word {
                    let mended = found.get_or_insert_default();
                    mended.push_str(&text[copied..at]);
                    mended.extend(["\"", word, "\""]);
                    at += word.len();
                    copied = at;
                    continue;
                }
            }
            _ => {}
        }
        at += 1;
    }
    if let Some(mended) = &mut found {
        mended.push_str(&text[copied..]);
    }
    found
}

struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> serde::de::DeserializeSeed<'a> for &mut Members<'a> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'a>>(self, parser: D) -> Result<(), D::Error> {
        parser.deserialize_map(self)
    }
}

impl<'a> serde::de::Visitor<'a> for &mut Members<'a> {
    type Value = ();

    fn expecting(&self, to: &mut std::fmt::Formatter) -> std::fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: serde::de::MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<Name<'a>>()? {
            self.0.push((name.0, map.next_value()?));
        }
        Ok(())
    }
}

/// A name, borrowed where nothing in it is escaped.
struct Name<'a>(Cow<'a, str>);

impl<'a> serde::Deserialize<'a> for Name<'a> {
    fn deserialize<D: serde::Deserializer<'a>>(parser: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'a> serde::de::Visitor<'a> for Visitor {
            type Value = Name<'a>;

            fn expecting(&self, to: &mut std::fmt::Formatter) -> std::fmt::Result {
                to.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, name: &'a str) -> Result<Name<'a>, E> {
                Ok(Name(name.into()))
            }

            fn visit_str<E>(self, name: &str) -> Result<Name<'a>, E> {
                Ok(Name(name.to_owned().into()))
            }
        }
        parser.deserialize_str(Visitor)
    }
}
