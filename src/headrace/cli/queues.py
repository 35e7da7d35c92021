"""`headrace queues`: the queues of a running node."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from headrace.cli.asking import yes_option
from headrace.cli.client import call, json_option, named, url_option
from headrace.cli.definitions import (
    QUEUES,
    alteration,
    altered,
    created,
    creation,
    deleted,
    show,
    show_effective,
)
from headrace.cli.queues_peek import peek
from headrace.cli.queues_redrive import redrive
from headrace.cli.tables import table
from headrace.cli.terminal import one_line
from headrace.text import counted, span


@click.group(
    short_help="Create, list, describe, alter, pause, peek, purge, redrive, delete queues."
)
def queues() -> None:
    """Queues: streams of which each message is owed until a consumer settles it.

    MQTT clients enqueue by publishing to $queue/NAME, consume by subscribing to it, and settle by
    publishing to $queue/NAME/$ack, /$nack, /$reject, /$extend. The consumers of a group share the
    messages; each group gets all of them.

    \b
    Examples:
      headrace queues create jobs --partitions 4 --set order=key
      headrace queues list
      headrace queues describe jobs
      headrace queues alter jobs --set ack.deadline.ms=2m
      headrace queues pause jobs
      headrace queues peek jobs --group billing
      headrace queues seek jobs --group billing --offset earliest
      headrace queues redrive jobs
      headrace queues delete jobs
    """


queues.add_command(peek)
queues.add_command(redrive)


@queues.command()
@click.argument("name")
@creation(
    "Enqueue MQTT publishes that match.",
    "What decides on the partition, and what order goes by.  [property:partition-key]",
)
@url_option
@json_option
def create(*, name: str, url: str, as_json: bool, **definition: Any) -> None:  # noqa: ANN401
    """Create a queue.

    Each group of consumers is owed every message, and its members share them. A message that is
    not settled comes again, to any of them: after a back-off where it was refused, after a
    deadline where nobody said anything. One that fails too often goes to the queue NAME.dlq, with
    the reason.

    \b
    Settings, with units (docs/configuration.md has all):
      order=none|key|strict    any order; one of each key at a time; one at a time
      ack.deadline.ms=30s      from a delivery to the next, unless it is settled
      retry.attempts=10        failures until a message is dead; -1: no bound
      retry.backoff.ms=1s      rest after the first failure; doubles, up to retry.backoff.max.ms
      message.ttl.ms=7d        age at which what is not settled is dead; -1: never
      prefetch=100             open deliveries of a consumer that does not say how many
      dead.letters=on|off      keep what is dead, or drop and count it
      retention.ms=30d         keep what is settled until it is so old; without, it goes
                               with its segment, once that is closed

    \b
    Examples:
      headrace queues create jobs
      headrace queues create orders --partitions 8 --set order=key --filter 'shop/+/orders'
      headrace queues create slow --set ack.deadline.ms=10m --set retry.attempts=3
    """
    _show(call(url, "POST", QUEUES.path, created(name, **definition)), as_json=as_json)


@queues.command(name="list")
@url_option
@json_option
def list_(*, url: str, as_json: bool) -> None:
    """List all queues: what is owed, in flight, and to how many consumers.

    The depth is that of the group which is owed most; describe shows each.
    """
    answer = call(url, "GET", QUEUES.path)
    if as_json:
        click.echo(json.dumps(answer))
        return
    rows = [
        [
            queue["name"],
            str(len(queue["partitions"])),
            f"{queue['depth']:,}",
            f"{queue['in_flight']:,}",
            f"{queue['consumers']:,}",
            str(len(queue["groups"])),
            f"{sum(each['size_bytes'] for each in queue['partitions']):,}",
            "paused" if queue["paused"] else "-",
        ]
        for queue in answer["queues"]
    ]
    columns = ["queue", "partitions", "depth", "in flight", "consumers", "groups", "bytes", "state"]
    table(columns, rows, right=set(range(1, 7)))


@queues.command()
@click.argument("name")
@url_option
@json_option
def describe(*, name: str, url: str, as_json: bool) -> None:
    """Show a queue: its partitions, its groups and their consumers, and every setting that holds.

    Of a group in a partition it tells the floor, the first offset that it is still owed; the
    depth, the messages that it is owed; those in flight, delivered and not settled; those
    at rest, in a back-off or delayed; how old the first is. It is blocked where all that it knows
    wait for others of their keys. Deliveries and failures count since the node started.
    """
    queue = QUEUES.call(url, "GET", name)
    _show(queue, as_json=as_json, own_settings=False)
    if not as_json:
        _show_groups(queue["groups"], is_paused=queue["paused"])
        show_effective(queue)


@queues.command()
@click.argument("name")
@alteration("Enqueue no more MQTT publishes.")
@url_option
@json_option
def alter(*, name: str, url: str, as_json: bool, **change: Any) -> None:  # noqa: ANN401
    """Change a queue while it serves.

    More partitions change where new messages of a key go: until those before them are settled,
    order=key does not hold between the two.

    \b
    Examples:
      headrace queues alter jobs --set retry.attempts=3 --set retry.backoff.ms=5s
      headrace queues alter jobs --unset ack.deadline.ms
      headrace queues alter jobs --partitions 8
    """
    _show(QUEUES.call(url, "PATCH", name, altered(**change)), as_json=as_json)


@queues.command()
@click.argument("name")
@click.option("--group", help="Delete only this group, and what it has settled.")
@yes_option
@url_option
@json_option
def delete(*, name: str, group: str | None, yes: bool, url: str, as_json: bool) -> None:
    """Delete a queue and all its messages, or one group of it. There is no way back.

    Dead letters stay: NAME.dlq is a queue of its own. A group with consumers is not deleted. A
    person at a terminal is asked first; a script is not.

    \b
    Examples:
      headrace queues delete jobs
      headrace queues delete jobs --group billing
    """
    if group is None:
        QUEUES.delete(url, name, "all its messages", yes=yes, as_json=as_json)
        return
    below = named("/groups", group)
    question = f"delete the group {group} of {name} and what it has settled?"
    QUEUES.confirm(url, name, question, yes=yes)
    deleted(QUEUES.call(url, "DELETE", name, below=below), as_json=as_json)


@queues.command()
@click.argument("name")
@url_option
@json_option
def pause(*, name: str, url: str, as_json: bool) -> None:
    """Give nothing out; the queue goes on taking messages. `resume` ends it.

    What is in flight may still be settled. A restart does not end it: it is the setting paused=on.
    """
    _show(QUEUES.call(url, "PATCH", name, {"settings": {"paused": "on"}}), as_json=as_json)


@queues.command()
@click.argument("name")
@url_option
@json_option
def resume(*, name: str, url: str, as_json: bool) -> None:
    """Give messages out again."""
    _show(QUEUES.call(url, "PATCH", name, {"settings": {"paused": None}}), as_json=as_json)


@queues.command()
@click.argument("name")
@click.option("--group", help="Only what this group is owed.")
@yes_option
@url_option
@json_option
def purge(*, name: str, group: str | None, yes: bool, url: str, as_json: bool) -> None:
    """Let go of all messages that a queue has, in flight or not, without anybody having done them.

    They are gone, those too that are settled and kept (retention.ms): no group is given any of
    them, one that begins later neither, nor does redrive send dead letters back that were purged.
    Messages that come later are not concerned.

    With --group they stay, and are settled for this group alone; as long as they are kept, `seek`
    brings them back to it. A person at a terminal is asked first; a script is not.

    \b
    Examples:
      headrace queues purge jobs.dlq
      headrace queues purge jobs --group billing
    """
    if group is None:
        question = f"let go of all messages of {name}, for every group? There is no way back"
    else:
        question = f"settle all that the group {group} of {name} is owed?"
    QUEUES.confirm(url, name, question, yes=yes)
    purged = QUEUES.call(url, "POST", name, {"group": group}, below="/purge")
    if as_json:
        click.echo(json.dumps(purged))
    elif group is not None:
        click.echo(f"the group {one_line(group)} of {name} is owed nothing of what was there")
    else:
        gone = counted(purged["purged"], "message")
        click.echo(f"let go of {gone} of {name}; depth now {purged['depth']:,}")


@queues.command()
@click.argument("name")
@click.option("--group", help="Only this group.  [all groups]")
@click.option(
    "--offset", "offsets", multiple=True, metavar="earliest|latest|PARTITION:OFFSET",
    help="Where to; one for each partition that is to stand elsewhere. [repeat]",
)  # fmt: skip
@click.option("--time", help="To the first message at or after it: RFC 3339, or ms since 1970.")
@yes_option
@url_option
@json_option
def seek(
    *, name: str, group: str | None, offsets: tuple[str, ...], time: str | None, yes: bool,
    url: str, as_json: bool,
) -> None:  # fmt: skip
    """Have a group go on from elsewhere: replay what is kept, or skip.

    What is before the place is settled, what is behind it is owed, whatever was settled of it. What
    is in flight can no longer be settled. Unless all is replayed (earliest), a person at a terminal
    is asked first; a script is not.

    \b
    Examples:
      headrace queues seek jobs --group billing --offset earliest
      headrace queues seek jobs --group billing --time 2026-11-28T10:00:00Z
      headrace queues seek jobs --offset latest --offset 3:1542
    """
    if time is not None or set(offsets) - {"earliest"}:
        place = ", ".join((*offsets, *(() if time is None else (time,))))
        whose = "every group" if group is None else f"the group {group}"
        question = f"settle what {whose} of {name} is owed before {place}?"
        QUEUES.confirm(url, name, question, yes=yes)
    body = {"group": group, "offset": list(offsets), "time": time}
    moved = QUEUES.call(url, "POST", name, body, below="/seek")
    if as_json:
        click.echo(json.dumps(moved))
    elif not moved["moved"]:
        click.echo(f"{name} has no groups; nothing was done")
    else:
        go = "goes" if moved["moved"] == 1 else "go"
        groups = counted(moved["moved"], "group")
        click.echo(f"{groups} of {name} {go} on from there; depth now {moved['depth']:,}")


def _show(queue: dict[str, Any], *, as_json: bool, own_settings: bool = True) -> None:
    if as_json:
        click.echo(json.dumps(queue))
    else:
        show(queue, own_settings=own_settings)


def _show_groups(groups: list[dict[str, Any]], *, is_paused: bool) -> None:
    if not groups:
        click.echo("no group has consumed from it yet")
        return
    for group in groups:
        takes = "" if group["filter"] is None else f", takes {group['filter']}"
        click.echo(
            one_line(
                f"group {group['group']}{takes}: {_deliveries(group['delivered'])}, "
                f"{group['redelivered']:,} of them again; {group['settled']:,} settled, "
                f"{group['failed']:,} failed, {group['dead']:,} dead"
            )
        )
    rows = [
        [
            group["group"],
            str(each["partition"]),
            str(each["floor"]),
            f"{each['depth']:,}",
            f"{each['in_flight']:,}",
            f"{each['resting']:,}",
            _age(each["oldest_ms"]),
            "paused" if is_paused else "blocked" if each["blocked"] else "-",
        ]
        for group in groups
        for each in group["partitions"]
    ]
    columns = ["group", "partition", "floor", "depth", "in flight", "resting", "oldest", "state"]
    table(columns, rows, right={1, 2, 3, 4, 5, 6})
    rows = [
        [group["group"], _client(each), f"{each['open']:,}", f"{each['prefetch']:,}"]
        for group in groups
        for each in group["consumers"]
    ]
    if rows:
        table(["group", "consumer", "open", "prefetch"], rows, right={2, 3})


def _deliveries(many: int) -> str:
    return "1 delivery" if many == 1 else f"{many:,} deliveries"


def _age(since_ms: int | None) -> str:
    return "-" if since_ms is None else span(max(time.time() - since_ms / 1000, 0))


def _client(consumer: dict[str, Any]) -> str:
    client: str = consumer["client"]
    return client if consumer["connected"] else f"{client} (away)"
