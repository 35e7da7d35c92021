"""What others have written, on a terminal: characters that would command it are shown.

A message can hold sequences that clear the screen, set its title or have it type an answer. What
goes into a file or a pipe stays as it is.
"""

from __future__ import annotations

import re
from typing import Final

_COMMANDS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters but for tab and end of line, and those that turn the direction of text."""


def visible(text: str) -> str:
    r"""The text with such characters as escapes.

    >>> visible("red \x1b[31m")
    'red \\x1b[31m'
    """
    return _COMMANDS.sub(_escaped, text)


_BREAKS: Final = re.compile("[\t\n\u2028\u2029]")
"""What `visible` leaves, and would end a row of a table, or move its columns."""


def one_line(text: object) -> str:
    r"""As `visible`, of what must stay in its line.

    >>> one_line("two\nlines")
    'two\\nlines'
    """
    return _BREAKS.sub(lambda match: repr(match[0])[1:-1], visible(str(text)))


def visible_bytes(data: bytes) -> bytes:
    r"""As `visible`; what is no UTF-8 is shown by bytes.

    >>> visible_bytes(b"\x07\xff")
    b'\\x07\\xff'
    """
    return visible(data.decode(errors="backslashreplace")).encode()


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
