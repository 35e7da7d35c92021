"""`headrace log verify`: is anything damaged?"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from headrace.cli.client import json_option
from headrace.cli.log.folder import data_option, opened, wanted_argument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.cli.log.folder import Opened, Wanted

FAILED = 1

MEANINGS = {
    "records": "records cannot be read",
    "journal": "nobody knows where logs end",
    "side": "can be rebuilt, no record is lost",
    "definition": "no node starts with it; restore it from a copy",
}


@click.command()
@data_option
@wanted_argument
@json_option
def verify(*, data: Path, wanted: Wanted, as_json: bool) -> None:
    """Check every batch, index and snapshot, journal and definitions. Changes nothing.

    What a start would replay from the journal counts as there. Exit code 1 says that something is
    damaged; each place is named by file, byte and offset, with what it costs.

    \b
    Examples:
      headrace log verify --data /var/lib/headrace
      headrace log verify --data /var/lib/headrace readings/3 --json
    """
    with opened(data, wanted) as folder, _progress(folder, wanted) as tell:
        findings = [
            _finding(*found) for found in folder.folder.verify(folder.incarnations, *wanted, tell)
        ]
        findings += [
            _finding("definition", file, 0, None, why, None) for file, why in folder.misfits(wanted)
        ]
    if as_json:
        click.echo(json.dumps({"sound": not findings, "damage": findings}))
    else:
        for each in findings:
            click.echo(_line(each))
        click.echo(_verdict(findings, data))
    if findings:
        sys.exit(FAILED)


def _finding(
    kind: str,
    path: str,
    position: int,
    offset: int | None,
    what: str,
    lost: tuple[int, int] | None,
) -> dict[str, Any]:
    finding = {"class": kind, "file": path, "position": position, "offset": offset, "what": what}
    if lost is None or lost[0] == lost[1]:
        return {**finding, "lost": None}
    return {**finding, "lost": {"from": lost[0], "to": lost[1] - 1}}


def _line(finding: dict[str, Any]) -> str:
    at = f"{finding['file']}, byte {finding['position']}"
    if finding["offset"] is not None:
        at += f", offset {finding['offset']}"
    cost = MEANINGS[finding["class"]]
    if finding["lost"] is not None:
        low, high = finding["lost"]["from"], finding["lost"]["to"]
        which = f"offset {low}" if low == high else f"offsets {low} to {high}"
        cost = f"{which} cannot be read"
    return f"damaged: {at}: {finding['what']} ({cost})"


def _verdict(findings: list[dict[str, Any]], data: Path) -> str:
    if not findings:
        return "nothing is damaged"
    if all(each["class"] == "definition" for each in findings):
        return f"damaged places: {len(findings)}; restore each file from a copy"
    options = ""
    if any(each["class"] == "records" for each in findings):
        options += " --drop-damaged"
    if any(each["class"] == "journal" for each in findings):
        options += " --rebuild-journal"
    return (
        f"damaged places: {len(findings)}; restore from a backup, or see what can be saved: "
        f"headrace log repair --data {data}{options} --dry-run"
    )


@contextlib.contextmanager
def _progress(folder: Opened, wanted: Wanted) -> Iterator[Callable[[int], object] | None]:
    """A bar on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    streams = [wanted.stream] if wanted.stream else list(folder.streams)
    number = "*" if wanted.partition is None else str(wanted.partition)
    total = sum(
        segment.stat().st_size
        for stream in streams
        for segment in (folder.path / "streams" / stream).glob(f"{number}/*.log")
    )
    with click.progressbar(length=total, label="checking", file=sys.stderr) as bar:
        yield bar.update
