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


def announce(line: str) -> None:
    """Prints the ready line; what serves does so all the same where nobody can read it."""
    try:
        click.echo(line)
        sys.stdout.flush()
    except OSError as error:
        log.warning("the ready line cannot be written to the output: %s", error.strerror)
        discard_output()
