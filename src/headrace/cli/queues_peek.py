"""`headrace queues peek`: messages of a queue as they lie there, and what each is to a group."""

from __future__ import annotations

import base64
import json
import shutil
import sys
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

import click

from headrace.cli.client import json_option, url_option
from headrace.cli.definitions import QUEUES
from headrace.cli.tables import table
from headrace.cli.terminal import one_line

EXCERPT: Final = 60
"""Characters in a table of a payload, a key, or user properties."""


@click.command()
@click.argument("name")
@click.option("--group", metavar="GROUP", help="Show what each message is to this group.")
@click.option("--filter", "topic_filter", metavar="FILTER", help="The one with this filter.")
@click.option("--partition", type=click.IntRange(0), help="This one alone.")
@click.option("--from", "offset", type=click.IntRange(0), help="Begin there, in --partition.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="At most so many."
)
@click.option("--all", "settled", is_flag=True, help="Show what the group has settled, too.")
@url_option
@json_option
def peek(*, name: str, url: str, as_json: bool, **asked: Any) -> None:  # noqa: ANN401
    """Show messages of a queue. Nothing is consumed, and nothing changes.

    With --group those that it is still owed, each with its state to the group: available; in
    flight, with the client that has it and its deadline; resting until a time, after a failure or
    for a delay; waiting for an earlier message of its key; dead, on its way to the dead letters.

    \b
    Examples:
      headrace queues peek jobs
      headrace queues peek jobs --group billing
      headrace queues peek jobs --partition 3 --from 1200 --limit 1 --json
    """
    terms = {
        "group": asked["group"],
        "filter": asked["topic_filter"],
        "partition": asked["partition"],
        "from": asked["offset"],
        "limit": asked["limit"],
        "settled": "true" if asked["settled"] else None,
    }
    query = urlencode({key: value for key, value in terms.items() if value is not None})
    answer = QUEUES.call(url, "GET", name, below=f"/messages?{query}")
    if as_json:
        click.echo(json.dumps(answer))
        return
    columns = [
        "partition",
        "offset",
        "time",
        "state",
        "attempts",
        "key",
        "topic",
        "properties",
        "payload",
    ]
    rows = [_row(each) for each in answer["messages"]]
    if sys.stdout and sys.stdout.isatty() and not _fits(columns, rows):
        _blocks(columns, rows)
    else:
        table(columns, rows, right={0, 1, 4})
    if (following := answer["next"]) is not None:
        where = f"--partition {following['partition']} --from {following['offset']}"
        click.echo(f"there is more: {where}", err=True)


def _fits(columns: list[str], rows: list[list[str]]) -> bool:
    """Whether a table is no wider than the terminal."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    return sum(widths) + 3 * len(widths) <= shutil.get_terminal_size().columns


def _blocks(columns: list[str], rows: list[list[str]]) -> None:
    """Each message below the one before, a line to each thing that it has."""
    width = max(map(len, columns))
    for row in rows:
        for column, cell in zip(columns, row, strict=True):
            if cell != "-":
                click.echo(f"{column:{width}}  {one_line(cell)}")
        click.echo()


def _row(message: dict[str, Any]) -> list[str]:
    return [
        str(message["partition"]),
        str(message["offset"]),
        _time(message["first_enqueued"]),
        _state(message),
        str(message["attempts"]),
        _text(message, "key"),
        message["topic"],
        _short(" ".join(f"{key}={value}" for key, value in message["properties"].items())) or "-",
        _text(message, "payload"),
    ]


def _time(wall_ms: int) -> str:
    """On the clock of whoever looks; the milliseconds since 1970 where no calendar goes so far."""
    try:
        local = datetime.fromtimestamp(wall_ms / 1000).astimezone()
    except (OverflowError, ValueError, OSError):  # a producer may claim any
        return f"{wall_ms} ms"
    return local.isoformat(sep=" ", timespec="milliseconds")[:-6]


def _state(message: dict[str, Any]) -> str:
    """With who has it, and until when."""
    client = "" if message["client"] is None else f" at {message['client']}"
    until = "" if message["until"] is None else f" until {_time(message['until'])}"
    return f"{message['state'] or '-'}{client}{until}"


def _text(message: dict[str, Any], field: str) -> str:
    """The beginning of a text, or of bytes in hex."""
    if (encoded := message.get(f"{field}_base64")) is not None:
        data = base64.b64decode(encoded)
        dots = "…" if len(data) > EXCERPT // 2 else ""
        return f"{data[: EXCERPT // 2].hex()}{dots} (hex)"
    text = message[field]
    if text is None:
        return "-"
    return _short(text)


def _short(text: str) -> str:
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}…"
