"""`headrace sessions`: the MQTT sessions of a running node."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import click

from headrace.cli.asking import confirm, is_asked, yes_option
from headrace.cli.client import call, json_option, named, pages, url_option
from headrace.cli.tables import table
from headrace.cli.terminal import one_line
from headrace.text import counted, span

if TYPE_CHECKING:
    from collections.abc import Iterable

SESSIONS: Final = "/api/v1/sessions"


@click.group(short_help="List, show, delete, disconnect MQTT sessions.")
def sessions() -> None:
    """Sessions: what a node keeps of an MQTT client, connected or away.

    \b
    Examples:
      headrace sessions list --away
      headrace sessions show pump-17
      headrace sessions disconnect pump-17
      headrace sessions delete pump-17
    """


@sessions.command(name="list")
@click.argument("pattern", default="*")
@click.option("--connected", is_flag=True, help="Only those of connected ones.")
@click.option("--away", is_flag=True, help="Only those whose clients are away.")
@click.option(
    "--limit", type=click.IntRange(1), default=1000, show_default=True, help="At most so many."
)
@url_option
@json_option
def list_(
    *, pattern: str, connected: bool, away: bool, limit: int, url: str, as_json: bool
) -> None:
    """List sessions whose client ids are like PATTERN, in which * stands for any text.

    \b
    Examples:
      headrace sessions list
      headrace sessions list 'pump-*' --away
    """
    if connected and away:
        raise click.UsageError("--connected and --away contradict each other; give one of them")
    query = {"client": pattern}
    if connected or away:
        query["state"] = "connected" if connected else "away"
    found, is_all = pages(url, f"{SESSIONS}?{urlencode(query)}", "sessions", limit)
    if as_json:
        click.echo(json.dumps({"sessions": found, "complete": is_all}))
        return
    columns = ["client", "state", "version", "address", "filters", "queued", "bytes", "in flight"]
    rows = [
        [
            each["client"],
            _state(each),
            each["version"] or "-",
            each["address"] or "-",
            f"{each['subscriptions']:,}",
            f"{each['queued_messages']:,}",
            f"{each['held_bytes']:,}",
            f"{each['in_flight']:,}",
        ]
        for each in found
    ]
    table(columns, rows, right={4, 5, 6, 7})
    if not is_all:
        click.echo(f"the first {len(found):,}; --limit or a pattern shows others", err=True)


@sessions.command()
@click.argument("client")
@url_option
@json_option
def show(*, client: str, url: str, as_json: bool) -> None:
    """Show the session of CLIENT: where it is, what waits for it, its filters, its will.

    Of a subscription to a stream it tells the position in each partition, the offset that is sent
    next, and the lag, the records behind it.
    """
    session = call(url, "GET", _path(client))
    if as_json:
        click.echo(json.dumps(session))
        return
    click.echo(one_line(f"session {session['client']}: {_state(session)}"))
    for line in _lines(session):
        click.echo(one_line(f"  {line}"))
    rows = [
        [
            each["filter"],
            str(each["qos"]),
            _yes(each["no_local"]),
            _yes(each["retain_as_published"]),
            str(each["identifier"] or "-"),
        ]
        for each in session["filters"]
    ]
    table(["filter", "qos", "no local", "retain as published", "id"], rows, right={1})
    if session["subscriptions"] > len(rows):
        click.echo(f"the first {len(rows):,} of {session['subscriptions']:,} filters", err=True)
    _show_places(session)


@sessions.command()
@click.argument("client")
@url_option
@json_option
def disconnect(*, client: str, url: str, as_json: bool) -> None:
    """End the connection of CLIENT. Its session stays, and it may come back.

    A client of MQTT 5.0 is told why (0x98, administrative action). Its will is published.
    """
    answer = call(url, "POST", f"{_path(client)}/disconnect")
    click.echo(json.dumps(answer) if as_json else f"disconnected {one_line(client)}")


@sessions.command()
@click.argument("client")
@yes_option
@url_option
@json_option
def delete(*, client: str, yes: bool, url: str, as_json: bool) -> None:
    """Delete the session of CLIENT: its subscriptions, and what waits for it.

    Its connection ends first, and its will is published. A person at a terminal is asked; a
    script is not.
    """
    if is_asked(yes=yes):
        confirm(f"delete the session of {client} and what waits for it?")
    answer = call(url, "DELETE", _path(client))
    click.echo(json.dumps(answer) if as_json else f"deleted {one_line(client)}")


def _show_places(session: dict[str, Any]) -> None:
    """Where it is in the streams that it reads."""
    streams = session["streams"]
    rows = [
        [
            each["filter"],
            str(place["partition"]),
            str(place["position"]),
            str(place["end"]),
            f"{place['lag']:,}",
        ]
        for each in streams
        for place in each["partitions"]
    ]
    if rows:
        table(["stream", "partition", "position", "end", "lag"], rows, right={1, 2, 3, 4})
    read = sum(each["filter"].startswith("$stream/") for each in session["filters"])
    if read > len(streams):
        click.echo(f"places of the first {len(streams):,} subscriptions to streams", err=True)


def _path(client: str) -> str:
    return named(SESSIONS, client)


def _yes(value: object) -> str:
    return "yes" if value else "-"


def _state(session: dict[str, Any]) -> str:
    if session["connected"]:
        return "connected"
    ends = session["ends_in_seconds"]
    return "away" if ends is None else f"away, ends in {span(ends)}"


def _lines(session: dict[str, Any]) -> Iterable[str]:
    """All but the filters."""
    expiry = session["expiry_seconds"]
    yield "expires never" if expiry is None else f"expires {span(expiry)} after its connection"
    queued, held = session["queued_messages"], session["held_bytes"]
    yield f"waiting {queued:,}, in flight {session['in_flight']:,}, {held:,} bytes of both"
    if session["unreleased"]:
        yield f"messages at QoS 2 that it has not released: {session['unreleased']:,}"
    connection = session["connection"]
    if connection is not None:
        who = "" if connection["identity"] is None else f", certificate {connection['identity']}"
        yield f"from {session['address']}{who}, MQTT {session['version']}"
        alive = connection["keep_alive_seconds"]
        yield f"keep-alive {alive or 'none'}, silent for {connection['silent_ms'] / 1000:.1f} s"
        yield (
            f"takes {connection['receive_maximum']:,} at a time, "
            f"{connection['outbound_bytes']:,} bytes on the way"
        )
        if connection["rests"] is not None:
            yield f"not read now: {connection['rests']}"
    for each in session["streams"]:
        if each["deleted"]:
            yield f"read {each['filter']}: deleted while it was away, which it is told on return"
        else:
            behind, where = counted(each["lag"], "record"), len(each["partitions"])
            yield f"reads {each['filter']}: {behind} behind, in {counted(where, 'partition')}"
    will = session["will"]
    if will is not None:
        due = will["due_in_seconds"]
        when = f"after {span(will['delay_seconds'])}" if due is None else f"in {span(due)}"
        kept = ", retained" if will["retain"] else ""
        yield f"will: {will['bytes']:,} bytes to {will['topic']}, QoS {will['qos']}{kept}, {when}"
