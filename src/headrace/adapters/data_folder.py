"""Whether a folder may be a node's: it has been one, or holds nothing of anybody else's.

A node makes, moves and removes files below its folder, so that a mistyped `--data` must not be the
home of somebody, or `/etc`. Must not know what is in the files.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.errors import StartError

if TYPE_CHECKING:
    from pathlib import Path

JOURNAL_FILE: Final = re.compile(r"\d{20}\.journal")

BESIDE: Final = re.compile(
    r"lost\+found|\.snapshots?|\.zfs|\.(git)?keep|\.DS_Store|.+\.json(\.(tmp|lock))?"
    r"|.+\.(toml|conf|pem|crt|key)"
)
"""What stands in a folder before its first node: what file systems put there, and what a node is
given: users, ACLs, settings, certificates."""


def check(data: Path) -> None:
    """Refuses a folder that is somebody else's.

    Raises:
        StartError: it is, or cannot be read.
    """
    try:
        names = sorted(each.name for each in data.iterdir())
        foreign = [name for name in names if BESIDE.fullmatch(name) is None]
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


def _has_been_one(data: Path) -> bool:
    """Every node writes its lock first; a folder restored from a backup may lack that."""
    if (data / "headrace.lock").is_file() or any(data.glob("streams/*/stream.json")):
        return True
    journal = data / "journal"
    return journal.is_dir() and any(JOURNAL_FILE.fullmatch(each.name) for each in journal.iterdir())
