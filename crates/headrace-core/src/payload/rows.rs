//! Messages of JSON or CSV to typed columns by a schema: one row for each message.
//!
//! A value that its column cannot hold is null, and the row is marked as corrupt; so is a message
//! that is no object, or no line. Nothing is ever dropped.

use super::arrow::{Bytes, Column, Flags, Numbers};
use super::instant::instant;
use super::number::Number;
use super::text::{readable, Text};
use super::{csv, json};

/// How a message is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object, its members by name.
    Json,
    /// One line of CSV, its fields by place.
    Csv,
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text; of a JSON value that is no string, its JSON.
    Text,
    /// `true` or `false`.
    Boolean,
    /// A whole number of 32 bits.
    Int,
    /// A whole number of 64 bits.
    Long,
    /// A double.
    Double,
    /// Microseconds since 1970: RFC 3339 with a zone, or a count of 9 to 19 digits.
    Timestamp,
}

#[derive(Debug)]
enum Cells {
    Text(Bytes),
    Boolean(Flags),
    Int(Numbers<4>),
    Wide(Numbers<8>),
}

/// Reads messages by a schema.
#[derive(Debug)]
pub struct Rows {
    format: Format,
    names: Vec<String>,
    kinds: Vec<Kind>,
}

/// Decoded messages: a column for each of the schema, and which rows are corrupt.
#[derive(Clone, Debug)]
pub struct RowColumns {
    /// The columns, in the order of the schema.
    pub columns: Vec<Column>,
    /// True where a message, or a value of it, could not be read.
    pub corrupt: Column,
}

impl Rows {
    /// For columns of these names and kinds.
    pub fn new(format: Format, schema: impl IntoIterator<Item = (String, Kind)>) -> Self {
        let (names, kinds) = schema.into_iter().unzip();
        Self {
            format,
            names,
            kinds,
        }
    }

    /// The rows of `messages`, None for a tombstone, which is a row of nulls.
    pub fn read<'a>(&self, messages: impl IntoIterator<Item = Option<&'a [u8]>>) -> RowColumns {
        let mut cells: Vec<Cells> = self.kinds.iter().map(|kind| Cells::new(*kind)).collect();
        let mut corrupt = Flags::default();
        for message in messages {
            let text = message.map(readable);
            let whole = match text.as_deref() {
                None => self.push(&mut cells, |_| None),
                Some(text) if self.format == Format::Json => self.json(text, &mut cells),
                Some(text) => self.csv(text, &mut cells),
            };
            corrupt.push(Some(!whole));
        }
        RowColumns {
            columns: cells.into_iter().map(Cells::finish).collect(),
            corrupt: corrupt.finish(),
        }
    }

    fn json(&self, text: &str, cells: &mut [Cells]) -> bool {
        let whole = json::read(text, |members| {
            self.push(cells, |at| {
                let name = &self.names[at];
                let last = members.iter().rev().find(|(known, _)| known == name);
                last.and_then(|(_, value)| json::text_of(value))
            })
        });
        whole.unwrap_or_else(|| {
            self.push(cells, |_| None);
            false
        })
    }

    fn csv(&self, text: &str, cells: &mut [Cells]) -> bool {
        let fields = csv::fields(text);
        let whole = self.push(cells, |at| {
            let field = fields.get(at)?;
            let text = std::str::from_utf8(field).ok()?;
            // An empty field of anything but text is none.
            let absent = text.is_empty() && self.kinds[at] != Kind::Text;
            (!absent).then_some(text.into())
        });
        whole && fields.len() == self.names.len()
    }

    /// Adds a row; whether each of its values could be read.
    fn push<'t>(&self, cells: &mut [Cells], value: impl Fn(usize) -> Text<'t>) -> bool {
        let mut whole = true;
        for (at, cell) in cells.iter_mut().enumerate() {
            let text = value(at);
            whole &= cell.push(self.kinds[at], text.as_deref());
        }
        whole
    }
}

impl Cells {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Text => Self::Text(Bytes::default()),
            Kind::Boolean => Self::Boolean(Flags::default()),
            Kind::Int => Self::Int(Numbers::default()),
            Kind::Long | Kind::Double | Kind::Timestamp => Self::Wide(Numbers::default()),
        }
    }

    /// Adds `text`, or a null where it is none or no value of this kind; whether it is one.
    fn push(&mut self, kind: Kind, text: Option<&str>) -> bool {
        let present = match self {
            Self::Text(cells) => {
                cells.push_text(text);
                true
            }
            Self::Boolean(cells) => {
                let value = text.and_then(|text| text.trim().parse::<bool>().ok());
                cells.push(value);
                value.is_some()
            }
            Self::Int(cells) => {
                let value = text
                    .and_then(whole)
                    .and_then(|value| i32::try_from(value).ok());
                cells.push(value.map(i32::to_le_bytes));
                value.is_some()
            }
            Self::Wide(cells) => {
                let value = text.and_then(|text| match kind {
                    Kind::Double => double(text).map(f64::to_le_bytes),
                    Kind::Timestamp => instant(text).map(i64::to_le_bytes),
                    _ => whole(text).map(i64::to_le_bytes),
                });
                cells.push(value);
                value.is_some()
            }
        };
        present || text.is_none()
    }

    fn finish(self) -> Column {
        match self {
            Self::Text(cells) => cells.finish(),
            Self::Boolean(cells) => cells.finish(),
            Self::Int(cells) => cells.finish(),
            Self::Wide(cells) => cells.finish(),
        }
    }
}

/// A whole number; 5.0 is one, 5.5 is none.
fn whole(text: &str) -> Option<i64> {
    let text = text.trim();
    text.parse().ok().or_else(|| {
        let number = Number::read(text)?;
        let whole = number.whole()?;
        (number.exact == Some(i128::from(whole) * 1_000_000)).then_some(whole)
    })
}

/// A number, or the name of one that is none.
fn double(text: &str) -> Option<f64> {
    let text = text.trim();
    match Number::read(text) {
        Some(number) => Some(number.value),
        None if super::number::is_not_a_number(text) => text.parse().ok(),
        None => None,
    }
}
