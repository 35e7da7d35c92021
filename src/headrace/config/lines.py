"""On which line of a TOML file each key stands: `tomllib` keeps no places.

Owns no more of TOML than where keys, strings and brackets begin and end. Must be given what
`tomllib` has read: on anything else its answer means nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from typing import Any, Final

_PART: Final = r"""(?:"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_KEY: Final = re.compile(rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*")
_BETWEEN: Final = re.compile(r"(?:[\s=\]]|#[^\n]*)*")
"""What may stand between two statements, and what ends a table's name."""

_VALUE: Final = re.compile(
    r'''"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?'{3,5}|"(?:[^"\\]|\\.)*"|'[^']*'|#[^\n]*|.''', re.DOTALL
)
"""One step through a value: a string, a comment, or a character."""


def lines_of(text: str) -> dict[str, int]:
    r"""Lines, from 1, by the keys joined with dots; a table's is where it is first named.

    A key with dots in quotes and the same without them are one here. What an inline table holds
    stands where that table does. Tables of a list have its name and their number, from 0.

    >>> lines_of('[mqtt]\nbind = "off"')
    {'mqtt': 1, 'mqtt.bind': 2}
    """
    lines: dict[str, int] = {}
    listed: Counter[tuple[str, ...]] = Counter()
    table: tuple[str, ...] = ()
    at = _skip_between(text, 0)
    while at < len(text):
        is_header = text[at] == "["
        match = _KEY.search(text, at)
        assert match is not None, "tomllib has read it"
        keys = _parts(match[0])
        line = text.count("\n", 0, match.start()) + 1
        if is_header:
            if text.startswith("[[", at):
                listed[keys] += 1
                keys = (*keys, str(listed[keys] - 1))
            table, at = keys, match.end()
        else:
            keys, at = table + keys, _end_of_value(text, match.end())
        for length in range(1, len(keys) + 1):
            lines.setdefault(".".join(keys[:length]), line)
        at = _skip_between(text, at)
    return lines


def _skip_between(text: str, at: int) -> int:
    match = _BETWEEN.match(text, at)
    return at if match is None else match.end()


def _parts(key: str) -> tuple[str, ...]:
    """A dotted key taken apart, by the one who knows how."""
    parts: list[str] = []
    value: Any = tomllib.loads(f"{key} = 0")
    while isinstance(value, dict):
        part = next(iter(value))
        parts.append(part)
        value = value[part]
    return tuple(parts)


def _end_of_value(text: str, at: int) -> int:
    depth = 0
    while match := _VALUE.match(text, at):
        step = match[0]
        if step == "\n" and depth == 0:
            break
        depth += (step in "[{") - (step in "]}")
        at = match.end()
    return at
