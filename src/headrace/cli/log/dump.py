"""`headrace log dump`: what a data folder holds, from logs down to single records."""

from __future__ import annotations

import datetime as dt
import json
from struct import calcsize, iter_unpack
from typing import TYPE_CHECKING, Any, Final

import click

from headrace import native
from headrace.cli.client import json_option
from headrace.cli.log.folder import data_option, opened, wanted_argument

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.cli.log.folder import Opened, Wanted

CHUNK_BYTES: Final = 4 << 20
INDEX_ENTRIES: Final = 4096
"""Read at once."""
SHOWN_BYTES: Final = 200
"""Of a key or value, unless JSON is asked for."""

Row = dict[str, Any]
Segments = list[tuple[int, int, str]]
"""Base offset, bytes, file."""


@click.command()
@data_option
@wanted_argument
@click.option("--records", is_flag=True, help="Show records instead of batches.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Begin here.  [0]")
@click.option("--limit", type=click.IntRange(1), help="Show at most so many rows of each log.")
@click.option("--index", is_flag=True, help="Show the entries of the indexes.")
@click.option("--snapshots", is_flag=True, help="Show what is known of producers and sources.")
@click.option("--journal", is_flag=True, help="Show the entries of the journal.")
@json_option
def dump(
    *,
    data: Path,
    wanted: Wanted,
    records: bool,
    offset: int,
    limit: int | None,
    index: bool,
    snapshots: bool,
    journal: bool,
    as_json: bool,
) -> None:
    """Show logs and segments; of one stream or partition also its batches.

    With --json each row is one JSON object on a line of its own. A log is shown as the journal
    tells it; what only a start would write to a segment is in --journal. Damage ends a log's rows
    with a hint: `headrace log verify` names it.

    \b
    Examples:
      headrace log dump --data /var/lib/headrace
      headrace log dump --data /var/lib/headrace readings/0 --offset 1000 --limit 20
      headrace log dump --data /var/lib/headrace readings --records --limit 5
      headrace log dump --data /var/lib/headrace readings/0 --index
      headrace log dump --data /var/lib/headrace --journal --json
    """
    with opened(data, wanted) as folder:
        if journal:
            rows = _journal(folder)
        elif index:
            rows = _of_logs(folder, wanted, _index)
        elif snapshots:
            rows = _snapshots(folder, wanted)
        elif records or wanted.stream is not None:
            rows = _contents(folder, wanted, offset, limit, records=records)
        else:
            rows = _of_logs(folder, wanted, _segment)
        for row in rows:
            click.echo(json.dumps(row) if as_json else _text(row))


def _logs(
    folder: Opened, wanted: Wanted
) -> Iterator[tuple[str, int, int, list[tuple[int, int, str]]]]:
    for stream, partition, _, start, segments in folder.folder.logs(folder.incarnations):
        if wanted.stream in {None, stream} and wanted.partition in {None, partition}:
            yield stream, partition, start, segments


def _of_logs(folder: Opened, wanted: Wanted, show: Any) -> Iterator[Row]:  # noqa: ANN401 - a function
    for stream, partition, start, segments in _logs(folder, wanted):
        for base, size, file in segments:
            place = {"log": f"{stream}/{partition}", "segment": base}
            yield from show(folder.path / file, place, size, start)


def _segment(path: Path, place: Row, size: int, start: int) -> Iterator[Row]:
    found = path.stat().st_size if path.exists() else None
    yield {**place, "start": start, "bytes": size, "on_disk": found}


def _index(path: Path, place: Row, _: int, __: int) -> Iterator[Row]:
    for kind, layout in (("index", ">ii"), ("timeindex", ">qi")):
        for first, second in _entries(path.with_suffix(f".{kind}"), layout):
            if kind == "index":
                yield {**place, "index": place["segment"] + first, "position": second}
            else:
                yield {**place, "timeindex": _time(first), "offset": place["segment"] + second}


def _entries(file: Path, layout: str) -> Iterator[tuple[int, int]]:
    """However long the file is: it may be damaged. The rest of an entry is none."""
    if not file.exists():
        return
    width = calcsize(layout)
    with file.open("rb") as entries:
        while content := entries.read(INDEX_ENTRIES * width):
            yield from iter_unpack(layout, content[: len(content) // width * width])


def _snapshots(folder: Opened, wanted: Wanted) -> Iterator[Row]:
    for stream, partition, *_ in _logs(folder, wanted):
        for path, lines in folder.folder.snapshots(stream, partition):
            for line in ["damaged"] if lines is None else lines:
                yield {"file": path, "entry": line}


def _journal(folder: Opened) -> Iterator[Row]:
    for path, position, number, text in folder.folder.journal():
        yield {"file": path, "position": position, "round": number, "entry": text}


def _contents(
    folder: Opened, wanted: Wanted, offset: int, limit: int | None, *, records: bool
) -> Iterator[Row]:
    for stream, partition, start, segments in _logs(folder, wanted):
        shown = 0
        begin = max(offset, start)
        for at, (_, size, file) in enumerate(segments):
            if at + 1 < len(segments) and segments[at + 1][0] <= begin:
                continue
            place = {"log": f"{stream}/{partition}"}
            for row in _rows(folder.path / file, place, size, begin, records=records):
                if shown == limit:
                    break
                shown += 1
                yield row


def _rows(path: Path, place: Row, size: int, begin: int, *, records: bool) -> Iterator[Row]:
    position = 0
    with path.open("rb") as file:
        wanted = CHUNK_BYTES
        while position < size:
            file.seek(position)
            data = file.read(min(wanted, size - position))
            headers, taken = native.batch_headers(data)
            if not headers:
                if wanted < size - position:
                    wanted *= 4
                    continue
                yield {**place, "file": path.name, "damaged_at": position}
                return
            wanted = CHUNK_BYTES
            ends = [*(header[0] for header in headers[1:]), taken]
            for header, end in zip(headers, ends, strict=True):
                if header[2] < begin:
                    continue
                batch = data[header[0] : end]
                if records and header[8]:
                    yield from _records(batch, place, begin)
                else:
                    yield _batch(header, place, position, end - header[0])
            position += taken


def _batch(header: tuple[Any, ...], place: Row, position: int, size: int) -> Row:
    at, first, last, count, newest, codec, producer, control, sound = header
    row = {
        **place,
        "offset": first,
        "last": last,
        "records": count,
        "position": position + at,
        "bytes": size,
        "time": _time(newest),
        "codec": codec,
    }
    if producer[0] >= 0:
        row["producer"] = {"id": producer[0], "epoch": producer[1], "sequence": producer[2]}
    if control:
        row["control"] = True
    if not sound:
        row["damaged"] = True
    return row


def _records(batch: bytes, place: Row, begin: int) -> Iterator[Row]:
    columns = native.decode_records(batch, begin, 2**62, 1 << 30)
    for offset, timestamp_ms, key, value, headers in columns.rows():
        row = {**place, "offset": offset, "time": _time(timestamp_ms)}
        row |= {"key": _shown(key), "value": _shown(value)}
        if headers:
            row["headers"] = [[name, _shown(content)] for name, content in headers]
        yield row


def _shown(content: bytes | None) -> str | None:
    """Bytes as text where they are text, else as Python would write them."""
    if content is None:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return repr(content)
    return text if text.isprintable() else repr(text)


def _time(timestamp_ms: int) -> str | None:
    if timestamp_ms < 0:
        return None
    try:
        moment = dt.datetime.fromtimestamp(timestamp_ms / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):  # a client may claim any
        return f"{timestamp_ms} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(row: Row) -> str:
    parts = []
    for name, value in row.items():
        text = value if isinstance(value, str) else json.dumps(value)
        cut = text if len(text) <= SHOWN_BYTES else f"{text[:SHOWN_BYTES]}… ({len(text)})"
        parts.append(f"{name} {cut}")
    return "  ".join(parts)
