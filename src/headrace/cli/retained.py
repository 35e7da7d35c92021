"""`headrace retained`: the retained messages of a running node."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any, Final
from urllib.parse import urlencode

import click

from headrace.cli.asking import confirm, is_asked, yes_option
from headrace.cli.client import call, json_option, named, pages, url_option
from headrace.cli.tables import table
from headrace.cli.terminal import visible_bytes
from headrace.text import counted, span

RETAINED: Final = "/api/v1/retained"
EXCERPT_BYTES: Final = 60


@click.group(short_help="List, show, count, delete retained messages.")
def retained() -> None:
    """Retained messages: the last one of each topic, kept for subscribers yet to come.

    \b
    Examples:
      headrace retained list 'rooms/#'
      headrace retained show rooms/7/temperature
      headrace retained count '#'
      headrace retained delete 'rooms/+/temperature'
    """


@retained.command(name="list")
@click.argument("topic_filter", metavar="[FILTER]", default="#")
@click.option(
    "--limit", type=click.IntRange(1), default=1000, show_default=True, help="At most so many."
)
@url_option
@json_option
def list_(*, topic_filter: str, limit: int, url: str, as_json: bool) -> None:
    """List retained messages that FILTER matches, by topic, with the beginning of each payload.

    FILTER is an MQTT filter; # is all but topics that begin with $.
    """
    query = urlencode({"filter": topic_filter, "excerpt": EXCERPT_BYTES})
    found, is_all = pages(url, f"{RETAINED}?{query}", "messages", limit)
    if as_json:
        click.echo(json.dumps({"messages": found, "complete": is_all}))
        return
    rows = [
        [
            each["topic"],
            str(each["qos"]),
            "never" if each["expires_in_seconds"] is None else span(each["expires_in_seconds"]),
            f"{each['bytes']:,}",
            _excerpt(each),
        ]
        for each in found
    ]
    table(["topic", "qos", "expires", "bytes", "payload"], rows, right={1, 3})
    if not is_all:
        click.echo(f"the first {len(found):,}; --limit or a filter shows others", err=True)


@retained.command()
@click.argument("topic")
@url_option
@json_option
def show(*, topic: str, url: str, as_json: bool) -> None:
    """Write the payload that is retained for TOPIC, byte for byte.

    At a terminal, control characters are shown as \\x1b and the like.
    """
    message = call(url, "GET", named(f"{RETAINED}/topics", topic))
    if as_json:
        click.echo(json.dumps(message))
        return
    payload = _payload(message)
    if sys.stdout.isatty():
        click.echo(visible_bytes(payload), nl=not payload.endswith(b"\n"))
    else:
        click.echo(payload, nl=False)


@retained.command()
@click.argument("topic_filter", metavar="[FILTER]", default="#")
@url_option
@json_option
def count(*, topic_filter: str, url: str, as_json: bool) -> None:
    """Count retained messages that FILTER matches."""
    answer = call(url, "GET", f"{RETAINED}/count?{urlencode({'filter': topic_filter})}")
    click.echo(json.dumps(answer) if as_json else answer["count"])


@retained.command()
@click.argument("topic_filter", metavar="FILTER")
@yes_option
@url_option
@json_option
def delete(*, topic_filter: str, yes: bool, url: str, as_json: bool) -> None:
    """Delete retained messages that FILTER matches. There is no way back.

    Nothing is published: who has them keeps them. A person at a terminal is asked first; a script
    is not.
    """
    query = urlencode({"filter": topic_filter})
    if is_asked(yes=yes):
        many = call(url, "GET", f"{RETAINED}/count?{query}")["count"]
        confirm(f"delete {counted(many, 'retained message')}?")
    answer = call(url, "DELETE", f"{RETAINED}?{query}")
    click.echo(json.dumps(answer) if as_json else f"deleted {answer['deleted']:,}")


def _payload(message: dict[str, Any]) -> bytes:
    if "payload" in message:
        return str(message["payload"]).encode()
    return base64.b64decode(message["payload_base64"])


def _excerpt(message: dict[str, Any]) -> str:
    """The beginning of a payload on one line."""
    payload = _payload(message)
    text = payload.decode(errors="backslashreplace")
    more = "…" if len(payload) < message["bytes"] else ""
    return "".join(each if each.isprintable() else "·" for each in text) + more
