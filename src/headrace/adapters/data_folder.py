"""Whether a folder may be a node's: it has been one, or holds nothing of anybody else's.

A node makes, moves and removes files below its folder, so that a mistyped `--data` must not be the
home of somebody, or `/etc`. Must not know what is in the files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.errors import StartError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

JOURNAL_FILE: Final = re.compile(r"\d{20}\.journal")

BESIDE: Final = re.compile(
    r"lost\+found|\.snapshots?|\.zfs|\.(git)?keep|\.DS_Store|headrace\.toml"
    r"|(users|acls)\.json(\.(tmp|lock))?"
)
"""What stands in a folder before its first node, under these names alone: what file systems put
there, users, ACLs and settings. Other names, as of certificates, the settings must say: folders
that hold nothing but `*.conf` or `*.json` are other programs' as a rule (`/etc/sysctl.d`)."""


def check(data: Path, named: Iterable[Path] = ()) -> None:
    """Refuses a folder that is somebody else's.

    Args:
        data: the folder.
        named: files that the node was told to use, which may be there.

    Raises:
        StartError: it is, or cannot be read.
    """
    try:
        names = sorted(each.name for each in data.iterdir())
        told = {name for path in named for name in _places(path, data)}
        foreign = [name for name in names if BESIDE.fullmatch(name) is None and name not in told]
        if not foreign or _has_been_one(data):
            return
    except OSError as error:
        raise StartError(
            f"the data folder {data} cannot be read: {error.strerror}; name another with --data"
        ) from None
    raise StartError(
        f"{data} holds {foreign[0]!r}{' and more' if len(foreign) > 1 else ''}, and nothing of a "
        "node: name an empty folder with --data, or a new one below it"
    )


def _places(path: Path, data: Path) -> Iterator[str]:
    """What may stand in a folder because a file is there or below it: it, or its folder."""
    try:
        first, *below = (path.parent.resolve() / path.name).relative_to(data.resolve()).parts
    except ValueError:  # it is elsewhere, or the folder itself
        return
    yield first
    if not below:
        yield from (f"{first}.tmp", f"{first}.lock")  # as a change of users leaves


def _has_been_one(data: Path) -> bool:
    """Every node writes its lock first; a folder restored from a backup may lack that."""
    if (data / "headrace.lock").is_file() or any(data.glob("streams/*/stream.json")):
        return True
    journal = data / "journal"
    return journal.is_dir() and any(JOURNAL_FILE.fullmatch(each.name) for each in journal.iterdir())
