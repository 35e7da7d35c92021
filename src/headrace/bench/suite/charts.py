"""Pictures of figures as SVG elements, coloured by the page's style; they escape words. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.bench.suite.markup import text

if TYPE_CHECKING:
    from collections.abc import Sequence

BAR: Final = (190, 18)
"""Width and height."""

RATE: Final = (240, 64)
_TOP, _FLOOR = 4, 48
"""Of the plot in it; under it are the times."""


def bar(value: float, least: float, most: float, whole: float, words: str, *, ours: bool) -> str:
    """A median with the least and the most as whiskers.

    Args:
        value: the median, 0 or more.
        least: of all rounds.
        most: of all rounds.
        whole: of the full width.
        words: the same for those who hear it.
        ours: has the colour of ours.
    """
    width, height = BAR
    scale = (width - 2) / whole if whole else 0.0
    left, right, middle = 1 + least * scale, 1 + most * scale, height / 2
    return (
        f'<svg class="bar{" ours" if ours else ""}" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{text(words)}">'
        f'<rect x="0" y="3" width="{max(1 + value * scale, 1.5):.1f}" height="{height - 6}" '
        f'rx="1.5"/>'
        f'<path d="M{left:.1f} {middle:g}H{right:.1f}M{left:.1f} {middle - 4:g}v8'
        f'M{right:.1f} {middle - 4:g}v8"/></svg>'
    )


def rate(counts: Sequence[int], peak: int, words: str, *, ours: bool) -> str:
    """What came in each second, as steps.

    Args:
        counts: of each second, one or more.
        peak: that reaches the top, at least the most of them.
        words: the same for those who hear it.
        ours: has the colour of ours.
    """
    width, height = RATE
    step = width / len(counts)
    tops = [_FLOOR - (_FLOOR - _TOP) * count / (peak or 1) for count in counts]
    line = "".join(f"V{top:.1f}h{step:.2f}" for top in tops).replace("V", "M0 ", 1)
    return (
        f'<svg class="rate{" ours" if ours else ""}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{text(words)}">'
        f'<path class="floor" d="M0 {_TOP}H{width}M0 {_FLOOR}H{width}"/>'
        f'<path class="area" d="{line}V{_FLOOR}H0Z"/><path class="line" d="{line}"/>'
        f'<text x="0" y="{height - 3}">0 s</text>'
        f'<text x="{width}" y="{height - 3}" text-anchor="end">{len(counts)} s</text></svg>'
    )
