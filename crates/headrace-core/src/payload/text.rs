//! Texts of a message: without blanks around them, and nothing where there is nothing.

use std::borrow::Cow;

/// A text of a message, as it came.
pub type Text<'a> = Option<Cow<'a, str>>;

/// `text` without the blanks around it; None where that leaves nothing.
pub fn filled(text: Option<&str>) -> Option<&str> {
    text.map(|text| text.trim_matches(' '))
        .filter(|text| !text.is_empty())
}

/// Whether `text` is nothing but ASCII digits, at least one.
pub fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// `value` as UTF-8; what is not comes out as U+FFFD.
pub fn readable(value: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(value)
}
