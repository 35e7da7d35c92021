"""What the collectors that go on share: options, and reading beside publishing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.bench.show import Quantity
from headrace.cli.collect.show import (
    checked_source,
    conclude,
    new_progress,
    say,
    shown_on,
    stop_on_signals,
    unacknowledged,
)
from headrace.cli.login import login
from headrace.cli.where import broker_options, json_option
from headrace.collect import Origin, Publisher, narrow, wide
from headrace.collect.background import Background
from headrace.collect.feed import Feed
from headrace.text import parse_duration_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from headrace.model import Address

    Say = Callable[[str], None]

_INTERVAL_MS_MIN = 100
"""DCGM computes its profiling fields no more often."""


def _at_least(text: str) -> float:
    duration_ms = parse_duration_ms(text)
    if duration_ms < _INTERVAL_MS_MIN:
        raise ValueError(f"must be {_INTERVAL_MS_MIN}ms or more; got {text!r}")
    return duration_ms / 1e3


SECONDS = Quantity("DURATION", _at_least)


def live_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of `Live`; the command gives it all of them by name."""
    for option in (
        json_option,
        click.option("--source", help="Name of this collector.  [host, and what it reads]"),
        click.option("--wide", "is_wide", is_flag=True, help="One message per GPU and round."),
        click.option("--once", is_flag=True, help="Read once, and end."),
        click.option(
            "--interval", "interval_s", type=SECONDS, default="15s", show_default=True,
            help="From the beginning of a round to the next.",
        ),
        broker_options,
    ):  # fmt: skip
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Live:
    """Where readings go, and how often they are read."""

    broker: Address
    user: str | None
    password_file: Path | None
    interval_s: float
    once: bool
    is_wide: bool
    source: str | None
    as_json: bool

    def run(
        self,
        default_source: str,
        work: Callable[[Feed, Say], Coroutine[None, None, None]],
        summary: Callable[[], tuple[str, dict[str, Any]]],
    ) -> None:
        """Publishes what `work` feeds until it ends, or a signal comes.

        Args:
            default_source: name of the collector where the user gave none.
            work: reads, in a thread and on an event loop of its own.
            summary: what it came to, as text and as members of the JSON object.

        Raises:
            ClickException: not all that was read was acknowledged.
        """
        origin = Origin(checked_source(self.source or default_source), time.time_ns())
        who = login(self.user, self.password_file)
        with new_progress() as progress:
            begun = time.monotonic()
            publisher = Publisher(
                self.broker, origin, login=who, on_progress=shown_on(progress, begun)
            )
            feed = Feed(wide if self.is_wide else narrow, publisher.wake)
            reading = Background(lambda: work(feed, partial(say, progress)), feed)

            def end() -> None:
                reading.stop()
                publisher.finish()

            stop_on_signals(end)
            with reading:
                counts = publisher.run(feed.messages())
        note, members = summary()
        conclude(
            counts, origin, time.monotonic() - begun, as_json=self.as_json, note=note, **members
        )
        unacknowledged(feed.readings - counts.acknowledged, self.broker)
