"""What every command that serves until a signal shares: its stop, and its ready line."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys

import click

from headrace.adapters.machine import discard_output

log = logging.getLogger(__name__)


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM or SIGINT sets; a second signal ends the process."""
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            os._exit(1)  # asked twice: what is acknowledged is durable already
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    return stopping


def heed_signals(stopped_by: list[int]) -> None:
    """The first signal is noted, for an end in order; the second is the end."""

    def heed(number: int, _frame: object) -> None:
        if stopped_by:  # Spark's processes end with this one
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        stopped_by.append(number)
        os.write(2, b"stopping; a second signal ends it at once\n")  # print may be under way

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, heed)


def announce(line: str) -> None:
    """Prints the ready line; what serves does so all the same where nobody can read it."""
    try:
        click.echo(line)
        sys.stdout.flush()
    except OSError as error:
        log.warning("the ready line cannot be written to the output: %s", error.strerror)
        discard_output()
