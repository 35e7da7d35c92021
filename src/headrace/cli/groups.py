"""`headrace groups`: the consumer groups of a running node."""

from __future__ import annotations

import json
import time
from datetime import datetime
from typing import Any, Final

import click

from headrace.cli.asking import confirm, is_asked, yes_option
from headrace.cli.client import call, json_option, named, pages, url_option
from headrace.cli.tables import table
from headrace.cli.terminal import one_line
from headrace.limits import INT64_MAX
from headrace.text import parse_duration_ms, shown

INT64: Final = click.IntRange(-INT64_MAX, INT64_MAX)
GROUPS: Final = "/api/v1/groups"


@click.group(short_help="List, describe, reset, delete Kafka consumer groups.")
def groups() -> None:
    """Consumer groups: who reads a stream through the Kafka door, and how far they have come.

    \b
    Examples:
      headrace groups list
      headrace groups describe billing
      headrace groups reset billing --to-earliest
      headrace groups reset billing --by-duration 2h --stream readings --execute
      headrace groups delete billing
    """


@groups.command(name="list")
@click.option(
    "--limit", type=click.IntRange(1), default=1000, show_default=True, help="At most so many."
)
@url_option
@json_option
def list_(*, limit: int, url: str, as_json: bool) -> None:
    """List consumer groups by name, with how many records each has not read."""
    found, is_all = pages(url, f"{GROUPS}?", "groups", limit)
    if as_json:
        click.echo(json.dumps({"groups": found, "complete": is_all}))
        return
    rows = [
        [
            each["group"],
            each["state"],
            str(each["members"]),
            str(each["partitions"]),
            f"{each['lag']:,}",
        ]
        for each in found
    ]
    table(["group", "state", "members", "partitions", "lag"], rows, right={2, 3, 4})
    if not is_all:
        click.echo(f"the first {len(found):,}; --limit shows others", err=True)


@groups.command()
@click.argument("group")
@url_option
@json_option
def describe(*, group: str, url: str, as_json: bool) -> None:
    """Show a group: its members, what each reads, and how far it has come."""
    found = call(url, "GET", _path(group))
    if as_json:
        click.echo(json.dumps(found))
        return
    sharing = f", {found['protocol']}" if found["protocol"] else ""
    click.echo(
        one_line(
            f"group {found['group']}: {found['state']}, generation {found['generation']}{sharing}"
        )
    )
    rows = [
        [each["member"], each["instance"] or "-", each["client"], each["host"]]
        for each in found["members"]
    ]
    if rows:
        table(["member", "instance", "client", "address"], rows, right=set())
    rows = [
        [
            each["stream"],
            str(each["partition"]),
            _number(each["committed"]),
            str(each["end"]),
            _number(each["lag"]),
            each["member"] or "-",
        ]
        for each in found["partitions"]
    ]
    names = ["stream", "partition", "committed", "end", "lag", "member"]
    table(names, rows, right={1, 2, 3, 4})


@groups.command()
@click.argument("group")
@click.option("--to-earliest", is_flag=True, help="To the first record that is kept.")
@click.option("--to-latest", is_flag=True, help="To the end: only what comes from now on.")
@click.option("--to-offset", type=INT64, metavar="N", help="To an offset.")
@click.option("--to-timestamp", metavar="TIME", help="To the first record at or after TIME.")
@click.option("--by-duration", metavar="TIME", help="To the first record of the last 2h, 30m, …")
@click.option("--shift-by", type=INT64, metavar="N", help="Forward by N records, or back by -N.")
@click.option("--stream", "streams", multiple=True, help="Only in this stream. [repeat]")
@click.option("--execute", is_flag=True, help="Do it; without this it is only shown.")
@url_option
@json_option
def reset(
    *,
    group: str,
    streams: tuple[str, ...],
    execute: bool,
    url: str,
    as_json: bool,
    **target: Any,  # noqa: ANN401 - the options of which one is given
) -> None:
    """Have a group read on from elsewhere.

    It is shown what would happen; --execute does it, where the group has no members. Without
    --stream it is about all streams that the group has committed in. Offsets outside of what is
    kept become its nearer end. TIME is RFC 3339, as 2026-11-28T12:00:00Z, or milliseconds since
    1970; a partition without a record from then on is read from its end. --shift-by leaves out
    partitions in which nothing was committed.

    \b
    Examples:
      headrace groups reset billing --to-earliest
      headrace groups reset billing --to-timestamp 2026-11-28T12:00:00Z --execute
      headrace groups reset billing --shift-by -100 --stream readings --execute
    """
    given = {name: each for name, each in target.items() if each is not None and each is not False}
    aim, value = _aim(given)
    body = {"to": aim, "value": value, "streams": list(streams), "execute": execute}
    moved = call(url, "POST", f"{_path(group)}/reset", body)
    if as_json:
        click.echo(json.dumps(moved))
        return
    rows = [
        [each["stream"], str(each["partition"]), _number(each["committed"]), str(each["to"])]
        for each in moved["partitions"]
    ]
    table(["stream", "partition", "committed", "to"], rows, right={1, 2, 3})
    if not execute:
        click.echo("nothing is changed yet; --execute does it", err=True)


@groups.command()
@click.argument("group")
@yes_option
@url_option
@json_option
def delete(*, group: str, yes: bool, url: str, as_json: bool) -> None:
    """Delete a group without members, and what it has committed. There is no way back.

    A person at a terminal is asked first; a script is not.
    """
    if is_asked(yes=yes):
        confirm(f"delete the group {group} and its offsets?")
    answer = call(url, "DELETE", _path(group))
    click.echo(json.dumps(answer) if as_json else f"deleted {one_line(group)}")


def _path(group: str) -> str:
    return named(GROUPS, group)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _aim(given: dict[str, Any]) -> tuple[str, int]:
    """What the one option of a reset says, as the node takes it."""
    if len(given) != 1:
        raise click.UsageError(
            "give one of --to-earliest, --to-latest, --to-offset, --to-timestamp, --by-duration, "
            "--shift-by"
        )
    ((name, value),) = given.items()
    match name:
        case "to_offset":
            return "offset", value
        case "shift_by":
            return "shift", value
        case "to_timestamp":
            return "timestamp", _timestamp_ms(value)
        case "by_duration":
            return "timestamp", _ago_ms(value)
        case _:
            return name.removeprefix("to_"), 0


def _ago_ms(value: str) -> int:
    try:
        moment = int(time.time() * 1000) - parse_duration_ms(value)
    except ValueError as error:
        raise click.UsageError(f"--by-duration: {error}") from None
    if moment < -INT64_MAX:
        raise click.UsageError(f"--by-duration {shown(value)} is longer than time is kept")
    return moment


def _timestamp_ms(value: str) -> int:
    moment = None
    try:
        if value.isdecimal():
            moment = int(value)
        elif (time_of := datetime.fromisoformat(value)).tzinfo is not None:
            moment = int(time_of.timestamp() * 1000)
    except (ValueError, OverflowError):
        pass
    if moment is None or abs(moment) > INT64_MAX:
        raise click.UsageError(
            "--to-timestamp takes 2026-11-28T12:00:00Z or milliseconds since 1970; got "
            f"{shown(value)}"
        )
    return moment
