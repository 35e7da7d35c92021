"""`headrace streams`: the streams of a running node."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from headrace.cli.client import NotFound, call, json_option, named, url_option
from headrace.cli.tables import table
from headrace.cli.terminal import one_line
from headrace.config.reference import read_of_stream
from headrace.text import nearest

STREAMS = "/api/v1/streams"


@click.group(short_help="Create, list, describe, alter, delete streams.")
def streams() -> None:
    """Streams: named, partitioned, durable logs; the Kafka door calls them topics.

    \b
    Examples:
      headrace streams create readings --partitions 4 --filter 'sensors/#' --key level:2
      headrace streams list
      headrace streams describe readings --json
      headrace streams alter readings --partitions 8 --set max.message.bytes=2MiB
      headrace streams delete readings
    """


@streams.command()
@click.argument("name")
@click.option("--partitions", type=int, default=1, show_default=True, help="Parts of the log.")
@click.option(
    "--filter", "filters", multiple=True, help="Store MQTT publishes that match. [repeat]"
)
@click.option("--key", metavar="topic|level:N|property:NAME", help="Record key.  [topic]")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Setting. [repeat]")
@url_option
@json_option
def create(
    *,
    name: str,
    partitions: int,
    filters: tuple[str, ...],
    key: str | None,
    assignments: tuple[str, ...],
    url: str,
    as_json: bool,
) -> None:
    """Create a stream.

    It is a Kafka topic at once and survives power loss. MQTT publishes that match a filter are
    stored in it; their PUBACK comes after the disk has them. Records with one key keep their
    order: the key is the whole topic, its N-th level (1-based), or an MQTT 5.0 user property.

    Settings have Kafka's names and take units: retention.ms=7d, retention.bytes=50GiB,
    segment.bytes, cleanup.policy=compact, compression.type=zstd, fsync=interval, and more
    (docs/configuration.md). What is not set holds as the node's [log] says.

    \b
    Examples:
      headrace streams create orders --partitions 12 --set retention.ms=30d
      headrace streams create readings --partitions 4 --filter 'sensors/+/temperature'
      headrace streams create big --set max.message.bytes=8MiB
    """
    body = {
        "name": name,
        "partitions": partitions,
        "filters": list(filters),
        "key": key,
        "settings": _settings(assignments),
    }
    _show(call(url, "POST", STREAMS, body), as_json=as_json)


@streams.command(name="list")
@url_option
@json_option
def list_(*, url: str, as_json: bool) -> None:
    """List all streams."""
    answer = call(url, "GET", STREAMS)
    if as_json:
        click.echo(json.dumps(answer))
        return
    rows = [
        [
            stream["name"],
            str(len(stream["partitions"])),
            f"{sum(each['end'] - each['start'] for each in stream['partitions']):,}",
            f"{sum(each['size_bytes'] for each in stream['partitions']):,}",
            ", ".join(stream["filters"]) or "-",
            stream["key"],
        ]
        for stream in answer["streams"]
    ]
    table(["stream", "partitions", "records", "bytes", "filters", "key"], rows, right={1, 2, 3})


@streams.command()
@click.argument("name")
@url_option
@json_option
def describe(*, name: str, url: str, as_json: bool) -> None:
    """Show a stream, where each partition stands, and every setting that holds for it.

    A setting comes from the stream itself, from the node's configuration, or is headrace's default.
    """
    stream = _call(url, "GET", name)
    _show(stream, as_json=as_json, own_settings=False)
    if not as_json:
        effective = stream["effective"].items()
        rows = [
            [name, read_of_stream(name, each["value"]), each["source"]] for name, each in effective
        ]
        table(["setting", "value", "from"], rows, right=set())


@streams.command()
@click.argument("name")
@click.option("--partitions", type=int, help="New number; it may only grow.")
@click.option("--filter", "filters", multiple=True, help="Replaces all filters. [repeat]")
@click.option("--no-filters", is_flag=True, help="Store no more MQTT publishes.")
@click.option("--key", metavar="topic|level:N|property:NAME", help="Record key from now on.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Setting. [repeat]")
@click.option("--unset", "unset", multiple=True, metavar="KEY", help="Back to default. [repeat]")
@url_option
@json_option
def alter(
    *,
    name: str,
    partitions: int | None,
    filters: tuple[str, ...],
    no_filters: bool,
    key: str | None,
    assignments: tuple[str, ...],
    unset: tuple[str, ...],
    url: str,
    as_json: bool,
) -> None:
    """Change a stream while it serves.

    More partitions change where new records of a key go; those that are stored stay.

    \b
    Examples:
      headrace streams alter readings --partitions 8
      headrace streams alter readings --filter 'sensors/#' --filter 'meters/#'
      headrace streams alter readings --unset max.message.bytes
    """
    if filters and no_filters:
        raise click.UsageError("--filter and --no-filters contradict each other; give one of them")
    changed = _settings(assignments)
    if both := changed.keys() & set(unset):
        raise click.UsageError(f"--set and --unset of {min(both)} contradict each other; give one")
    body: dict[str, Any] = {"settings": changed | dict.fromkeys(unset)}
    if partitions is not None:
        body["partitions"] = partitions
    if filters or no_filters:
        body["filters"] = list(filters)
    if key is not None:
        body["key"] = key
    if body == {"settings": {}}:
        raise click.UsageError("nothing to change; give an option")
    _show(_call(url, "PATCH", name, body), as_json=as_json)


@streams.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@url_option
@json_option
def delete(*, name: str, yes: bool, url: str, as_json: bool) -> None:
    """Delete a stream and all its records. There is no way back.

    A person at a terminal is asked first; a script is not.
    """
    if sys.stdin.isatty() and not yes:
        click.confirm(f"delete {name} and all its records?", abort=True, err=True)
    answer = _call(url, "DELETE", name)
    click.echo(json.dumps(answer) if as_json else f"deleted {name}")


def _call(url: str, method: str, name: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """A request about one stream.

    Raises:
        ClickException: as `call`; where there is no such stream, one of a like name is named.
    """
    try:
        return call(url, method, named(STREAMS, name), body)
    except NotFound as error:
        names = [each["name"] for each in call(url, "GET", STREAMS)["streams"]]
        raise click.ClickException(f"{error.message}; {nearest(name, names)}") from None


def _settings(assignments: tuple[str, ...]) -> dict[str, str | None]:
    settings: dict[str, str | None] = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise click.UsageError(f"--set takes KEY=VALUE; got {assignment!r}")
        if key in settings:
            raise click.UsageError(f"--set {key} is given twice; give it once")
        settings[key] = value
    return settings


def _show(stream: dict[str, Any], *, as_json: bool, own_settings: bool = True) -> None:
    if as_json:
        click.echo(json.dumps(stream))
        return
    click.echo(one_line(f"stream {stream['name']}: key {stream['key']}"))
    for topic_filter in stream["filters"]:
        click.echo(one_line(f"  filter {topic_filter}"))
    for name, value in stream["settings"].items() if own_settings else ():
        click.echo(f"  {name} = {read_of_stream(name, value)}")
    rows = [
        [str(each["partition"]), str(each["start"]), str(each["end"]), f"{each['size_bytes']:,}"]
        for each in stream["partitions"]
    ]
    table(["partition", "start", "end", "bytes"], rows, right={0, 1, 2, 3})
