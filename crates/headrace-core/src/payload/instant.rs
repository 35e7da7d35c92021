//! The instant that a text names without doubt.
//!
//! Source: RFC 3339, 5.6, and the civil calendar of its appendix; counts since 1970 as exporters
//! and databases print them.

use super::text::{filled, is_digits};

const DAY_US: i64 = 86_400_000_000;

/// The years 2 to 9998: a year inside of the calendars of Python and RFC 3339, so that every
/// window around an event is in them, too. What lies outside, as the zero of Go's clocks does, is
/// not when something was measured.
const EVENTS_US: std::ops::Range<i64> = -718_797 * DAY_US..2_932_532 * DAY_US;

/// As it is, where something can have been measured at that instant.
pub fn of_an_event(instant_us: i64) -> Option<i64> {
    EVENTS_US.contains(&instant_us).then_some(instant_us)
}

/// Microseconds since 1970 of `text`: RFC 3339 with `Z` or a numeric offset, or digits counted
/// from the epoch in seconds, milliseconds, microseconds or nanoseconds, which their number tells
/// apart from 1973 to 5138. Digits beyond the microsecond are cut. None where the text is anything
/// else, an instant without a zone first of all.
pub fn instant(text: &str) -> Option<i64> {
    let text = filled(Some(text))?;
    if is_digits(text) {
        return counted(text);
    }
    civil(text.as_bytes())
}

fn counted(digits: &str) -> Option<i64> {
    let count: i64 = digits.parse().ok()?;
    match digits.len() {
        9..=11 => count.checked_mul(1_000_000),
        12..=14 => count.checked_mul(1_000),
        15..=17 => Some(count),
        18..=19 => Some(count / 1_000),
        _ => None,
    }
}

fn civil(text: &[u8]) -> Option<i64> {
    let (date, rest) = text.split_first_chunk::<11>()?;
    let year = digits(&date[..4])?;
    let (month, day) = (digits(&date[5..7])?, digits(&date[8..10])?);
    if date[4] != b'-' || date[7] != b'-' || !matches!(date[10], b'T' | b't' | b' ') {
        return None;
    }
    let (time, rest) = rest.split_first_chunk::<8>()?;
    let (hour, minute) = (digits(&time[..2])?, digits(&time[3..5])?);
    let second = digits(&time[6..])?;
    if time[2] != b':' || time[5] != b':' || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let (micros, zone) = fraction(rest)?;
    let offset = offset_minutes(zone)?;
    let days = days_since_epoch(year, month, day)?;
    let minutes = hour * 60 + minute - offset;
    Some(days * DAY_US + (minutes * 60 + second) * 1_000_000 + micros)
}

/// The microseconds of a fraction, of one to nine digits, and what follows it.
fn fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(text) = text.strip_prefix(b".") else {
        return Some((0, text));
    };
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if !(1..=9).contains(&count) {
        return None;
    }
    let mut micros = 0;
    for digit in text[..count].iter().chain(b"000000").take(6) {
        micros = micros * 10 + i64::from(digit - b'0');
    }
    Some((micros, &text[count..]))
}

fn offset_minutes(zone: &[u8]) -> Option<i64> {
    let sign = match zone {
        b"Z" | b"z" => return Some(0),
        [b'+', ..] => 1,
        [b'-', ..] => -1,
        _ => return None,
    };
    let [_, h1, h2, b':', m1, m2] = *zone else {
        return None;
    };
    let (hours, minutes) = (digits(&[h1, h2])?, digits(&[m1, m2])?);
    // The widest offset that Java's and Spark's calendars know.
    (minutes < 60 && hours * 60 + minutes <= 18 * 60).then_some(sign * (hours * 60 + minutes))
}

fn digits(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0, |number, byte| {
        byte.is_ascii_digit()
            .then(|| number * 10 + i64::from(byte - b'0'))
    })
}

/// Days from 1970-01-01 in the proleptic Gregorian calendar; None for a day that it lacks.
///
/// Years are counted from March, so that a leap day is the last of its year.
fn days_since_epoch(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=length).contains(&day) {
        return None;
    }
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days_before_month = (month * 153 + 2) / 5;
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    Some(year * 365 + leap_days + days_before_month + day - 1 - 719_468)
}
