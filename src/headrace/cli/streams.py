"""`headrace streams`: the streams of a running node."""

from __future__ import annotations

import json
from typing import Any, Final

import click

from headrace.cli.asking import yes_option
from headrace.cli.client import call, json_option, url_option
from headrace.cli.definitions import (
    Kind,
    alteration,
    altered,
    created,
    creation,
    show,
    show_effective,
)
from headrace.cli.tables import table

STREAMS: Final = Kind("/api/v1/streams", "streams")


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
@creation("Store MQTT publishes that match.", "Record key.  [topic]")
@url_option
@json_option
def create(*, name: str, url: str, as_json: bool, **definition: Any) -> None:  # noqa: ANN401
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
    _show(call(url, "POST", STREAMS.path, created(name, **definition)), as_json=as_json)


@streams.command(name="list")
@url_option
@json_option
def list_(*, url: str, as_json: bool) -> None:
    """List all streams, those too that are queues."""
    answer = call(url, "GET", STREAMS.path)
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
            stream["kind"],
        ]
        for stream in answer["streams"]
    ]
    columns = ["stream", "partitions", "records", "bytes", "filters", "key", "kind"]
    table(columns, rows, right={1, 2, 3})


@streams.command()
@click.argument("name")
@url_option
@json_option
def describe(*, name: str, url: str, as_json: bool) -> None:
    """Show a stream, where each partition stands, and every setting that holds for it.

    A setting comes from the stream itself, from the node's configuration, or is headrace's default.
    """
    stream = STREAMS.call(url, "GET", name)
    _show(stream, as_json=as_json, own_settings=False)
    if not as_json:
        show_effective(stream)


@streams.command()
@click.argument("name")
@alteration("Store no more MQTT publishes.")
@url_option
@json_option
def alter(*, name: str, url: str, as_json: bool, **change: Any) -> None:  # noqa: ANN401
    """Change a stream while it serves.

    More partitions change where new records of a key go; those that are stored stay.

    \b
    Examples:
      headrace streams alter readings --partitions 8
      headrace streams alter readings --filter 'sensors/#' --filter 'meters/#'
      headrace streams alter readings --unset max.message.bytes
    """
    _show(STREAMS.call(url, "PATCH", name, altered(**change)), as_json=as_json)


@streams.command()
@click.argument("name")
@yes_option
@url_option
@json_option
def delete(*, name: str, yes: bool, url: str, as_json: bool) -> None:
    """Delete a stream and all its records. There is no way back.

    A person at a terminal is asked first; a script is not. A queue is refused: `headrace queues
    delete` is for those.
    """
    STREAMS.delete(url, name, "all its records", yes=yes, as_json=as_json)


def _show(stream: dict[str, Any], *, as_json: bool, own_settings: bool = True) -> None:
    if as_json:
        click.echo(json.dumps(stream))
    else:
        show(stream, own_settings=own_settings)
