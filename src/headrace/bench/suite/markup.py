"""A page of HTML that loads nothing and is well-formed XML: its frame, its tables, its texts. Pure.

Whoever puts a text of others into a page does it through `text`.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Final

from headrace.bench.suite.style import STYLE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"

_UNPRINTABLE: Final = re.compile(
    "[^\\t\\n\\r\\x20-\\x7e\\x85\\xa0-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]"
    "|[\\u202a-\\u202e\\u2066-\\u2069]"
)
"""What XML has no place for, and what turns the direction of the text behind it."""


def text(words: object) -> str:
    """A text in HTML, or in an attribute between quotes."""
    return escape(_UNPRINTABLE.sub("\ufffd", str(words)))


def document(title: str, parts: Iterable[str]) -> str:
    """The file.

    Args:
        title: a text.
        parts: HTML.
    """
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{text(title)}</title><style>{STYLE}</style></head>\n<body><main>"
        + "\n".join(parts)
        + "</main></body></html>\n"
    )


def table(
    caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], *, words: Iterable[int] = ()
) -> str:
    """A table whose first column names its rows; it scrolls by itself where it is too wide.

    Args:
        caption: what it shows, a text; empty where the words before it say that.
        heads: texts.
        rows: HTML.
        words: columns behind the first that hold words, not numbers.
    """
    kinds = ["" if index in (0, *words) else ' class="n"' for index in range(len(heads))]
    head = "".join(
        f'<th scope="col"{kind}>{text(name)}</th>' for name, kind in zip(heads, kinds, strict=True)
    )
    body = "".join(
        f'<tr><th scope="row">{first}</th>'
        + "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(rest, kinds[1:], strict=True))
        + "</tr>\n"
        for first, *rest in rows
    )
    named = caption and f"<caption>{text(caption)}</caption>"
    return (
        f'<div class="wide"><table>{named}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what stands for them, both texts."""
    return (
        '<dl class="facts">'
        + "".join(
            f"<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>" for name, value in pairs
        )
        + "</dl>"
    )
