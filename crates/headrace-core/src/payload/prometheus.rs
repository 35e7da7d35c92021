//! Label text and samples of the Prometheus text format.
//!
//! Source: the Prometheus text exposition format, version 0.0.4, "Comments, help text, and type
//! information".

use std::borrow::Cow;

use super::json::Pairs;

/// Label that carries the whole text where a part of it could not be read.
const UNPARSED: &str = "labels_raw";

/// Labels of `text`, braces around them or not, in their order; the last of a repeated name wins.
///
/// `\\`, `\"` and `\n` are the escapes; any other escaped character stands for itself. Where the
/// text breaks the grammar, the labels before that place are kept, and the label `labels_raw`
/// holds the text.
pub fn labels(text: &str) -> Pairs<'_> {
    let body = text.trim();
    let body = body
        .strip_prefix('{')
        .and_then(|inner| inner.strip_suffix('}'))
        .unwrap_or(body);
    let mut found = Pairs::default();
    let mut rest = body;
    while !rest.trim().is_empty() {
        let Some((name, value, after)) = pair(rest) else {
            found.set(UNPARSED.into(), Some(text.into()));
            break;
        };
        found.set(name.into(), Some(value));
        rest = after;
    }
    found
}

/// The first `name="value"` of `text`, and what follows its comma.
fn pair(text: &str) -> Option<(&str, Cow<'_, str>, &str)> {
    let (name, rest) = text.split_once('=')?;
    let name = name.trim();
    is_name(name).then_some(())?;
    let (value, rest) = quoted(rest.trim_start())?;
    let rest = rest.trim_start();
    match rest.strip_prefix(',') {
        Some(rest) => Some((name, value, rest)),
        None if rest.is_empty() => Some((name, value, rest)),
        None => None,
    }
}

fn is_name(text: &str) -> bool {
    let mut bytes = text.bytes();
    let start = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || byte == b':';
    bytes.next().is_some_and(start) && bytes.all(|byte| start(byte) || byte.is_ascii_digit())
}

/// The value in quotes at the front of `text`, and what follows.
fn quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut escaped = false;
    let mut any = false;
    for (at, byte) in inner.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => (escaped, any) = (true, true),
            b'"' => {
                let value = &inner[..at];
                let value = if any {
                    unescaped(value).into()
                } else {
                    value.into()
                };
                return Some((value, &inner[at + 1..]));
            }
            _ => {}
        }
    }
    None
}

fn unescaped(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(char) = rest.next() {
        match char {
            '\\' => match rest.next() {
                Some('n') => plain.push('\n'),
                Some(other) => plain.push(other),
                None => {}
            },
            other => plain.push(other),
        }
    }
    plain
}

/// One sample of an exposition.
#[derive(Debug, PartialEq)]
pub struct Sample<'a> {
    /// Name of the metric.
    pub name: &'a str,
    /// Its labels.
    pub labels: Pairs<'a>,
    /// The value as it came.
    pub value: &'a str,
    /// Milliseconds since 1970, where the sample names its time.
    pub time_ms: Option<&'a str>,
}

/// Whether `text` begins as an exposition does: with a comment, or with a name and its labels.
pub fn is_exposition(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with('#')
        || text
            .split_once('{')
            .is_some_and(|(name, _)| is_name(name.trim()))
}

/// The samples of an exposition, line by line: None for a line that is none. Comments and empty
/// lines are left out.
pub fn samples(text: &str) -> impl Iterator<Item = (&str, Option<Sample<'_>>)> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| (line, sample(line)))
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let (name, labels, rest) = if let Some((name, rest)) = line.split_once('{') {
        let end = closing(rest)?;
        (name.trim(), labels(&rest[..end]), &rest[end + 1..])
    } else {
        let (name, rest) = line.split_once([' ', '\t'])?;
        (name, Pairs::default(), rest)
    };
    is_name(name).then_some(())?;
    // A value may hold blanks, for exporters print texts too; only a whole number after it is a
    // time.
    let value = rest.trim();
    if value.is_empty() {
        return None;
    }
    let (value, time_ms) = match value.rsplit_once([' ', '\t']) {
        Some((value, time)) if super::text::is_digits(time) => (value.trim_end(), Some(time)),
        _ => (value, None),
    };
    Some(Sample {
        name,
        labels,
        value,
        time_ms,
    })
}

/// Where the brace closes that was opened before `text`.
fn closing(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(at),
            _ => {}
        }
    }
    None
}
