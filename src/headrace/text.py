"""How people write sizes, durations and names: read, written, and guessed at.

Owns spelling only, and what to do where the system refuses. Sizes are bytes, durations whole
milliseconds.
"""

import difflib
import errno
import re
from collections.abc import Iterable
from typing import Final

_SIZES: Final = {
    "": 1,
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_DURATIONS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NAMES_SHOWN: Final = 30
"""In one line of an error: more than any table of settings has."""

_QUANTITY: Final = re.compile(r"(\d{1,30}(?:\.\d{1,30})?)\s*([A-Za-z]*)", re.ASCII)


_SHOWN_CHARS: Final = 200
"""Of something in an error that somebody else has written."""


def shown(value: object) -> str:
    """A value as an error shows it: quoted where it is a text, and never long.

    >>> shown("16 apples")
    "'16 apples'"
    """
    text = repr(value if not isinstance(value, str) else value[: _SHOWN_CHARS + 1])
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def parse_size(value: object) -> int:
    """Bytes of `16777216`, `"16777216"` or `"16MiB"`.

    Raises:
        ValueError: it is none of these; the message says what is expected.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return _quantity(value, _SIZES, 'a size, such as "16MiB" or a number of bytes')


def parse_duration_ms(value: object) -> int:
    """Milliseconds of `"250ms"`, `"30s"`, `"5m"`, `"1h"` or `"7d"`.

    A bare number is refused: its unit would be a guess.

    Raises:
        ValueError: it is none of these; the message says what is expected.
    """
    return _quantity(value, _DURATIONS, 'a duration with its unit, such as "30s" or "250ms"')


def _quantity(value: object, units: dict[str, int], expected: str) -> int:
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[2] not in units:
        raise ValueError(f"must be {expected}; got {shown(value)}")
    whole = (
        float(match[1]) * units[match[2]] if "." in match[1] else int(match[1]) * units[match[2]]
    )
    if whole != int(whole):
        raise ValueError(f"must be a whole number of the smallest unit; got {shown(value)}")
    return int(whole)


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint that ends an error about an unknown name: the nearest known one, or all.

    >>> nearest("bnd", ["bind", "advertised"])
    "did you mean 'bind'?"
    """
    names = sorted(known)
    lowered = {item.lower(): item for item in names}
    close = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
    if close:
        return f"did you mean {lowered[close[0]]!r}?"
    if not names:
        return "none is known here"
    more = f", … ({len(names)} in all)" if len(names) > _NAMES_SHOWN else ""
    return f"known: {', '.join(names[:_NAMES_SHOWN])}{more}"


_SPANS: Final = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def span(seconds: float) -> str:
    """A time to come as a person reads it, in the two largest units that it has.

    >>> span(1_209_600), span(86_399), span(61), span(0)
    ('14 d', '23 h 59 min', '1 min 1 s', '0 s')
    """
    parts: list[tuple[int, str]] = []
    left = int(seconds)
    for unit, size in _SPANS:
        many, left = divmod(left, size)
        if many or parts:
            parts.append((many, unit))
    return " ".join(f"{many:,} {unit}" for many, unit in parts[:2] if many) or "0 s"


def counted(many: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "record"), counted(2_000, "record")
    ('1 record', '2,000 records')
    """
    return f"{many:,} {what}" if many == 1 else f"{many:,} {what}s"


_REMEDIES: Final = {
    errno.ENOSPC: "free space there",
    errno.EDQUOT: "free space there, or raise the quota of this user",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the limit of open files (ulimit -n)",
    errno.EACCES: "give this user access to it",
    errno.EPERM: "give this user access to it",
    errno.EROFS: "mount the file system writable",
}


def remedy(error: OSError, otherwise: str) -> str:
    """What to do where the system refused, or `otherwise` where only who asks can know.

    >>> remedy(OSError(errno.EMFILE, "Too many open files"), "try again")
    'raise the limit of open files (ulimit -n)'
    """
    return _REMEDIES.get(error.errno or 0, otherwise)
