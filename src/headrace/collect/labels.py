"""Prometheus label text, as the column `labels_raw` of a DCGM CSV holds it.

Owns the grammar `name="value",…` with its three escapes. Knows nothing of GPUs. Text that does
not follow the grammar is never dropped: what parses is used, and the whole text stays beside it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

UNPARSED: Final = "labels_raw"
"""Label that carries the whole text where a part of it could not be parsed."""

_PAIR: Final = re.compile(
    r"""\s*([a-zA-Z_:][a-zA-Z0-9_:]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)""", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED: Final[Mapping[str, str]] = {"n": "\n"}


def parse_labels(text: str) -> dict[str, str]:
    r"""Labels of Prometheus text, braces around them or not, in their order.

    `\\`, `\"` and `\n` are the escapes; any other escaped character stands for itself. The last
    of a repeated name wins. Where the text breaks the grammar, the labels before that place are
    returned, and the label `labels_raw` holds the text.

    Source: the Prometheus text exposition format, "Comments, help text, and type information".
    """
    body = text.strip()
    if body.startswith("{") and body.endswith("}"):
        body = body[1:-1]
    labels: dict[str, str] = {}
    at = 0
    while at < len(body):
        pair = _PAIR.match(body, at)
        if pair is None:
            if body[at:].strip():
                labels[UNPARSED] = text
            break
        labels[pair[1]] = _ESCAPE.sub(_unescape, pair[2]) if "\\" in pair[2] else pair[2]
        at = pair.end()
    return labels


def _unescape(escape: re.Match[str]) -> str:
    return _ESCAPED.get(escape[1], escape[1])
