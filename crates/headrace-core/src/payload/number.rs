//! The number that a text holds, and DCGM's marks for "no value".
//!
//! Source: DCGM `dcgm_structs.h` for the marks. A value at or above one is none. They are told from
//! the text and never from a double: as doubles, the four of INT64 are one number.

use super::text::is_digits;

const INT32_BLANK: i128 = 2_147_483_632;
const INT64_BLANK: i128 = 9_223_372_036_854_775_792;
const FP64_BLANK: i128 = 140_737_488_355_328;
/// Blank, not found, not supported, no permission.
const MARKS: i128 = 4;

/// Millionths in one: exporters print six decimals.
const MILLION: i128 = 1_000_000;
const DIGITS_MAX: i32 = 32;

/// A number as its text says it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    /// The nearest double; infinite where there is none.
    pub value: f64,
    /// The same in millionths, exactly but for digits beyond them; None beyond 32 digits before
    /// the point.
    pub exact: Option<i128>,
}

impl Number {
    /// Reads `text`: decimal digits with a sign, a point, an exponent; nothing else.
    pub fn read(text: &str) -> Option<Self> {
        let parts = Parts::of(text)?;
        Some(Self {
            value: text.parse().ok()?,
            exact: parts.millionths(),
        })
    }

    /// The whole number nearest to it, towards zero; None where no INT64 holds that.
    pub fn whole(&self) -> Option<i64> {
        (self.exact? / MILLION).try_into().ok()
    }
}

struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    decimals: &'a str,
    exponent: i32,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let negative = text.starts_with('-');
        let text = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (mantissa, exponent) = match text.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, Self::exponent(exponent)?),
            None => (text, 0),
        };
        let (whole, decimals) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_number = is_digits(whole) && (decimals.is_empty() || is_digits(decimals))
            || whole.is_empty() && is_digits(decimals);
        is_number.then_some(Self {
            negative,
            whole,
            decimals,
            exponent,
        })
    }

    fn exponent(text: &str) -> Option<i32> {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        (is_digits(digits) && digits.len() <= 4)
            .then(|| text.parse().expect("four digits are an i32"))
    }

    /// Rounded half away from zero, as SQL's decimals are.
    fn millionths(&self) -> Option<i128> {
        let digits = self.whole.bytes().chain(self.decimals.bytes());
        let mut digits = digits.skip_while(|digit| *digit == b'0');
        let leading =
            (self.whole.len() + self.decimals.len()) as i32 - digits.clone().count() as i32;
        // How many of the remaining digits stand before the sixth decimal.
        let places = self.whole.len() as i32 - leading + self.exponent + 6;
        if digits.clone().next().is_none() || places < 0 {
            return Some(0);
        }
        if places > DIGITS_MAX + 6 {
            return None;
        }
        let mut number = 0_i128;
        for _ in 0..places {
            number = number * 10 + i128::from(digits.next().unwrap_or(b'0') - b'0');
        }
        number += i128::from(digits.next().is_some_and(|digit| digit >= b'5'));
        Some(if self.negative { -number } else { number })
    }
}

/// Whether `text` is the name of a value that is none: NaN or an infinity.
pub fn is_not_a_number(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    ["nan", "inf", "infinity"]
        .iter()
        .any(|name| text.eq_ignore_ascii_case(name))
}

/// What DCGM's mark in `text` says, as a reason; None where the text holds none.
///
/// A mark that is also a plausible count is one only where the field cannot reach it: `high` is
/// the greatest value of a field that is known. `integer` tells that DCGM holds it as INT64.
pub fn mark(
    text: &str,
    number: Option<&Number>,
    high: Option<f64>,
    integer: bool,
) -> Option<&'static str> {
    match text {
        "<<<NULL>>>" => return Some("blank"),
        "<<<NOT_FOUND>>>" => return Some("not_found"),
        "<<<NOT_SUPPORTED>>>" => return Some("not_supported"),
        "<<<NOT_PERM>>>" => return Some("no_permission"),
        _ => {}
    }
    let exact = number?.exact?;
    let unreachable = |blank: i128| {
        exact >= blank * MILLION
            && exact <= (blank + MARKS - 1) * MILLION
            && high.is_none_or(|high| (high as i128) < blank)
    };
    if exact >= INT64_BLANK * MILLION {
        Some(kind(exact, INT64_BLANK))
    } else if exact >= FP64_BLANK * MILLION && !integer || unreachable(FP64_BLANK) {
        Some(kind(exact, FP64_BLANK))
    } else if unreachable(INT32_BLANK) {
        Some(kind(exact, INT32_BLANK))
    } else {
        None
    }
}

fn kind(exact: i128, blank: i128) -> &'static str {
    match exact - blank * MILLION {
        1_000_000 => "not_found",
        2_000_000 => "not_supported",
        3_000_000 => "no_permission",
        _ => "blank",
    }
}
