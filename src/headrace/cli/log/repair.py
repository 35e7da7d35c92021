"""`headrace log repair`: makes a damaged folder one that a node starts from."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from headrace.adapters.files import act_as_owner, private
from headrace.cli.client import json_option
from headrace.cli.log.folder import Wanted, data_option, opened, wanted_argument
from headrace.errors import DefinitionError, StorageError

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.cli.log.folder import Opened

PAGE_BYTES = 4096
"""Unit in which a disk fails to read, behind a page cache."""
BACKUPS = "repair"
"""Folder below the data folder in which each repair keeps copies."""


class Action(NamedTuple):
    """One thing that is done; `lost` is the first offset and the one after the last."""

    path: str
    what: str
    lost: tuple[int, int] | None
    backup: bool

    def __str__(self) -> str:
        if self.lost is None:
            return f"{self.path} {self.what}"
        low, high = self.lost[0], self.lost[1] - 1
        lost = f"offset {low} is lost" if low == high else f"offsets {low} to {high} are lost"
        return f"{self.path} {self.what}; {lost}"


@click.command()
@data_option
@wanted_argument
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--drop-damaged", is_flag=True, help="Give up batches that cannot be read.")
@click.option(
    "--rebuild-journal",
    is_flag=True,
    help="Make a new journal; each log ends with its last sound batch.",
)
@json_option
def repair(
    *,
    data: Path,
    wanted: Wanted,
    dry_run: bool,
    drop_damaged: bool,
    rebuild_journal: bool,
    as_json: bool,
) -> None:
    """Rebuild what can be rebuilt; give up what cannot be read only where told to.

    Indexes, snapshots, stamps and torn tails cost no record. Batches that cannot be read stay as
    they are, and the command fails, until --drop-damaged says that they may go: a batch without
    records takes the place of each, so that every other record keeps its offset and no offset is
    used twice. Without a journal nobody knows whether a log had more records than its segments
    hold; --rebuild-journal takes them as they are, and what names and headers tell of beyond them
    as lost. Of every file that loses something a copy is kept below DIR/repair first. With STREAM
    or STREAM/PARTITION other logs lose nothing.

    \b
    Examples:
      headrace log repair --data /var/lib/headrace --dry-run
      headrace log repair --data /var/lib/headrace --drop-damaged --dry-run
      headrace log repair --data /var/lib/headrace --drop-damaged
      headrace log repair --data /var/lib/headrace readings/3 --drop-damaged
    """
    if rebuild_journal and wanted.stream is not None:
        raise click.UsageError(
            "--rebuild-journal concerns every log: the journal is one; leave STREAM out"
        )
    private()
    if data.is_dir():
        act_as_owner(data)
    with opened(data, wanted, repairs=not dry_run) as folder:
        for file, why in folder.misfits(wanted):
            raise DefinitionError(
                f"nothing was repaired, for {data / file} is damaged ({why}); restore it from a "
                f"copy first"
            )
        perform = partial(
            folder.folder.repair,
            folder.incarnations,
            *wanted,
            drop_damaged=drop_damaged,
            rebuild_journal=rebuild_journal,
        )
        planned = [Action(*each) for each in perform(dry=True)]
        kept = None
        if planned and not dry_run:
            kept = _keep(folder, planned)
            perform()
    if as_json:
        click.echo(json.dumps(_report(planned, dry_run=dry_run, kept=kept)))
        return
    for action in planned:
        click.echo(str(action))
    least = "at least " if rebuild_journal else ""  # who knew of more is gone
    word = "would be lost" if dry_run else "lost"
    done = (
        f"repairs: {len(planned)}, offsets {word}: {least}{_lost(planned)}"
        if planned
        else "nothing to repair"
    )
    click.echo(f"{done}; copies are in {kept}" if kept else done)


def _keep(folder: Opened, actions: list[Action]) -> Path | None:
    """Copies every file that loses something; the folder of the copies."""
    paths = dict.fromkeys(action.path for action in actions if action.backup)
    if not paths:
        return None
    kept = folder.path / BACKUPS / time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    try:
        for path in paths:
            source, target = folder.path / path, kept / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_file():
                copy_readable(source, target)
    except OSError as error:
        shutil.rmtree(kept, ignore_errors=True)  # half of the copies are none
        raise StorageError(
            f"nothing was repaired, for no copies can be kept in {kept}: {error.strerror}; free "
            f"space there, or mend what is in the way"
        ) from None
    os.sync()  # the names of the copies, too
    return kept


def copy_readable(source: Path, target: Path) -> None:
    """Copies a file, durably; zeros stand where the disk does not give back what it holds."""
    with source.open("rb") as found, target.open("xb") as copy:
        size = os.fstat(found.fileno()).st_size
        for position in range(0, size, PAGE_BYTES):
            bytes_left = min(PAGE_BYTES, size - position)
            try:
                page = os.pread(found.fileno(), bytes_left, position)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                page = bytes(bytes_left)
            copy.write(page)
        copy.flush()
        os.fsync(copy.fileno())
    shutil.copystat(source, target)


def _lost(actions: list[Action]) -> int:
    return sum(action.lost[1] - action.lost[0] for action in actions if action.lost is not None)


def _report(actions: list[Action], *, dry_run: bool, kept: Path | None) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "actions": [
            {
                "file": action.path,
                "what": action.what,
                "lost": action.lost and {"from": action.lost[0], "to": action.lost[1] - 1},
            }
            for action in actions
        ],
        "offsets_lost": _lost(actions),
        "copies": None if kept is None else str(kept),
    }
