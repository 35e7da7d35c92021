//! Topic names, topic filters, and which filter matches which name (MQTT 5.0 4.7, 4.8.2).
//!
//! Knows no session and no packet. A [`Filter`] is valid by construction; [`Tree`] takes nothing
//! else.

mod levels;
mod retained;
mod subscribers;
mod tree;

use std::fmt;

pub use retained::{Cursor, Retained};
pub use tree::Tree;

/// Most levels of a name or filter. MQTT sets no bound; this one keeps walks of the tree short
/// and is far above any naming scheme in use.
pub const LEVELS_MAX: usize = 128;
/// Most bytes of a name or filter (4.7.3).
pub const BYTES_MAX: usize = 65_535;

const SHARE: &str = "$share/";

/// Why a string is no topic name or no topic filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicError {
    /// Empty (MQTT-4.7.3-1).
    Empty,
    /// Longer than [`BYTES_MAX`] (MQTT-4.7.3-3).
    TooLong,
    /// More than [`LEVELS_MAX`] levels.
    TooDeep,
    /// Holds U+0000 (MQTT-4.7.3-2) or another control character (1.5.4).
    Control,
    /// A name holds `+` or `#` (MQTT-4.7.0-1).
    WildcardInName,
    /// `#` is not alone in the last level (MQTT-4.7.1-1).
    MultiLevel,
    /// `+` is not alone in its level (MQTT-4.7.1-2).
    SingleLevel,
    /// The group of `$share/{group}/{filter}` is empty or holds a wildcard (MQTT-4.8.2-1,
    /// MQTT-4.8.2-2).
    ShareGroup,
    /// `$share/{group}` without a filter after it (MQTT-4.8.2-2).
    ShareFilter,
}

impl fmt::Display for TopicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the topic is empty",
            Self::TooLong => "the topic is longer than 65,535 bytes",
            Self::TooDeep => "the topic has more than 128 levels",
            Self::Control => "the topic holds a control character",
            Self::WildcardInName => "a topic name must not hold + or #",
            Self::MultiLevel => "# must stand alone in the last level of a topic filter",
            Self::SingleLevel => "+ must stand alone in its level of a topic filter",
            Self::ShareGroup => "the group of $share/GROUP/FILTER is empty or holds + or #",
            Self::ShareFilter => "$share/GROUP must be followed by /FILTER",
        })
    }
}

impl std::error::Error for TopicError {}

/// Checks a topic name: where a message may be published.
///
/// # Errors
/// The rule that `name` breaks.
pub fn validate_name(name: &str) -> Result<(), TopicError> {
    validate_text(name)?;
    if name.contains(['+', '#']) {
        return Err(TopicError::WildcardInName);
    }
    Ok(())
}

/// Whether a name holds a control character, U+0000 to U+001F or U+007F to U+009F, as neither
/// topics nor clients nor users may. Looks at every byte and takes no branch, so that the compiler
/// vectorises the loop; those beyond ASCII all begin with the byte 0xC2.
#[inline]
pub fn has_control(name: &str) -> bool {
    let mut suspicious = 0;
    for byte in name.bytes() {
        suspicious |= u8::from(byte < 0x20) | u8::from(byte == 0x7F) | u8::from(byte == 0xC2);
    }
    suspicious != 0 && name.contains(char::is_control)
}

/// Whether a name holds nothing but printable ASCII without `+` and `#`, as most do: nothing need be
/// asked of it any more. Looks at eight bytes at a time: a subtraction sets the top bit of a byte
/// that is too small, and borrows from the next byte only then.
#[inline]
pub(crate) fn is_plain(name: &[u8]) -> bool {
    const fn each(byte: u8) -> u64 {
        u64::from_ne_bytes([byte; 8])
    }
    let odd = |eight: [u8; 8]| {
        let word = u64::from_ne_bytes(eight);
        let is = |byte| (word ^ each(byte)).wrapping_sub(each(1));
        let is_control = word.wrapping_sub(each(b' ')) | word.wrapping_add(each(1));
        word | is_control | is(b'+') | is(b'#')
    };
    // The last eight have some of those before once more, or slashes where there are too few.
    let last = name.last_chunk().copied().unwrap_or_else(|| {
        let mut last = [b'/'; 8];
        last[..name.len()].copy_from_slice(name);
        last
    });
    let (mut rest, mut found) = (name, odd(last));
    while let Some((eight, behind)) = rest.split_first_chunk() {
        found |= odd(*eight);
        rest = behind;
    }
    found & each(0x80) == 0
}

/// What names and filters have in common (4.7.3).
fn validate_text(topic: &str) -> Result<(), TopicError> {
    let bytes = topic.as_bytes();
    if bytes.is_empty() {
        return Err(TopicError::Empty);
    }
    if bytes.len() > BYTES_MAX {
        return Err(TopicError::TooLong);
    }
    if has_control(topic) {
        return Err(TopicError::Control);
    }
    if topic.split('/').count() > LEVELS_MAX {
        return Err(TopicError::TooDeep);
    }
    Ok(())
}

/// A valid topic filter without a `$share` prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Filter<'a>(&'a str);

impl<'a> Filter<'a> {
    /// Checks a filter (4.7.1, 4.7.3).
    ///
    /// # Errors
    /// The rule that `filter` breaks.
    pub fn parse(filter: &'a str) -> Result<Self, TopicError> {
        validate_text(filter)?;
        let mut levels = filter.split('/').peekable();
        while let Some(level) = levels.next() {
            if level.contains('#') && (level != "#" || levels.peek().is_some()) {
                return Err(TopicError::MultiLevel);
            }
            if level.contains('+') && level != "+" {
                return Err(TopicError::SingleLevel);
            }
        }
        Ok(Self(filter))
    }

    /// The filter as sent.
    pub const fn as_str(self) -> &'a str {
        self.0
    }

    /// Whether it can match more than the one name equal to it.
    pub fn has_wildcard(self) -> bool {
        self.0.contains(['+', '#'])
    }

    /// Whether it matches a topic name.
    pub fn matches(self, name: &str) -> bool {
        matches(self.0, name)
    }
}

/// What SUBSCRIBE asks for: a filter, perhaps shared by a group (4.8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subscription<'a> {
    /// The share name of `$share/{group}/{filter}`.
    pub group: Option<&'a str>,
    /// The filter alone.
    pub filter: Filter<'a>,
}

impl<'a> Subscription<'a> {
    /// Takes `$share/{group}/{filter}` apart; anything else is a filter of its own.
    ///
    /// # Errors
    /// The rule that the group or the filter breaks.
    pub fn parse(text: &'a str) -> Result<Self, TopicError> {
        let Some(shared) = text.strip_prefix(SHARE) else {
            return Ok(Self {
                group: None,
                filter: Filter::parse(text)?,
            });
        };
        let (group, filter) = match shared.split_once('/') {
            Some((group, filter)) => (group, Some(filter)),
            None => (shared, None),
        };
        if group.is_empty() || group.contains(['+', '#']) {
            return Err(TopicError::ShareGroup);
        }
        match filter {
            None | Some("") => Err(TopicError::ShareFilter),
            Some(filter) => Ok(Self {
                group: Some(group),
                filter: Filter::parse(filter)?,
            }),
        }
    }
}

/// Whether a valid filter matches a valid name, level by level (4.7.1).
///
/// A wildcard in the first level matches no name that begins with `$` (MQTT-4.7.2-1); `a/#`
/// matches `a` too (4.7.1.2).
pub fn matches(filter: &str, name: &str) -> bool {
    if name.starts_with('$') && filter.starts_with(['+', '#']) {
        return false;
    }
    let mut levels = name.split('/');
    for expected in filter.split('/') {
        if expected == "#" {
            return true;
        }
        match levels.next() {
            Some(level) if expected == "+" || expected == level => {}
            _ => return false,
        }
    }
    levels.next().is_none()
}

#[cfg(test)]
mod tests;
