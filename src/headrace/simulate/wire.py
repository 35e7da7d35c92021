"""Scrapes as messages, as fast as they can be made or at a speed.

Owns when a message is due. Its clock is passed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.collect.messages import Pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.collect import Message
    from headrace.collect.feed import Shape
    from headrace.simulate.fleet import Scrape


def messages(scrapes: Iterable[Scrape], shape: Shape) -> Iterator[Message]:
    """Messages of scrapes, collected when each arrived by the fleet's time.

    Args:
        scrapes: in the order of their arrival.
        shape: `narrow` or `wide`.
    """
    for scrape in scrapes:
        yield from shape(scrape.readings(), lambda at=scrape.arrival_us: at)  # type: ignore[misc]


def in_time(
    scrapes: Iterable[Scrape],
    shape: Shape,
    start_us: int,
    speed: float,
    elapsed_s: Callable[[], float],
) -> Iterator[Message | Pause]:
    """Messages when they are due, pauses until then.

    Args:
        scrapes: in the order of their arrival.
        shape: `narrow` or `wide`.
        start_us: the fleet's time at which `elapsed_s` is 0.
        speed: seconds of the fleet in one of `elapsed_s`.
        elapsed_s: a clock.
    """
    for scrape in scrapes:
        due_s = (scrape.arrival_us - start_us) / 1e6 / speed
        while (left_s := due_s - elapsed_s()) > 0.0:
            yield Pause(left_s)
        yield from messages((scrape,), shape)
