"""Event times: text to microseconds since the epoch and back.

Owns which texts name one instant without doubt: RFC 3339 with `Z` or a numeric offset, and
digits counted from the epoch. A text without a zone, or with a zone's name, names none.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

_RFC3339: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:[Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_DIGITS: Final = re.compile(r"\d{9,19}", re.ASCII)

_YEARS: Final = range(2, 9999)
"""A year inside of `datetime`'s, so that what is reckoned around an event is in them, too."""

_EPOCH_UNITS: Final = ((11, 1_000_000, 1), (14, 1_000, 1), (17, 1, 1), (19, 1, 1_000))
"""`(digits at most, times, over)`: 9 to 11 digits are seconds, 12 to 14 milliseconds, 15 to 17
microseconds, 18 and 19 nanoseconds. From 1973 to 5138 the lengths do not overlap."""


@lru_cache(maxsize=4096)
def parse_instant(text: str) -> int | None:
    """Microseconds since 1970-01-01T00:00:00Z, or None where `text` names no single instant.

    Digits beyond the microsecond are cut. Years are 2 to 9998.
    """
    text = text.strip()
    if _RFC3339.fullmatch(text):
        try:
            instant = datetime.fromisoformat(text.upper()).astimezone(UTC)
            return (instant - _EPOCH) // _MICROSECOND if instant.year in _YEARS else None
        except (ValueError, OverflowError):  # the 30th of February, a leap second
            return None
    if _DIGITS.fullmatch(text):
        for digits_max, times, over in _EPOCH_UNITS:
            if len(text) <= digits_max:
                return int(text) * times // over
    return None


@lru_cache(maxsize=4096)
def format_instant(instant_us: int) -> str:
    """RFC 3339 in UTC with microseconds: `2026-11-27T20:40:49.395000Z`.

    Raises:
        OverflowError: the instant lies outside years 1 to 9999.
    """
    instant = _EPOCH + timedelta(microseconds=instant_us)
    return instant.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
