"""Definitions of streams as files: `<data>/streams/<name>/stream.json`.

Written whole beside the old one, synced, renamed over it, and the folder synced: a reader finds
the old definition or the new one, also after power loss. Each carries a checksum of what it says:
one digit of it that changes is another retention, or another number of partitions, and records
would go by it. A file without one is taken as it is, so that a person can write it.
"""

from __future__ import annotations

import json
import os
import zlib
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headrace import limits
from headrace.errors import DefinitionError, LostWritesError, UnavailableError
from headrace.model import StreamDefinition
from headrace.text import remedy

if TYPE_CHECKING:
    from pathlib import Path

DEFINITION: Final = "stream.json"
_TEMPORARY: Final = "stream.json.tmp"


class _Definition(BaseModel):
    """What a `stream.json` holds."""

    # Built now: `act_as_owner` may take away what building it later would read.
    model_config = ConfigDict(extra="forbid", strict=True)

    name: str
    incarnation: int = Field(ge=0, lt=1 << 63)
    partitions: int = Field(ge=1, le=limits.STREAM_PARTITIONS_MAX)
    filters: tuple[str, ...]
    key: str
    settings: dict[str, int | float | str]
    queue: dict[str, int | float | str] | None = None
    checksum: str | None = None


class FileDefinitions:
    """`ports.Definitions` in a data folder."""

    __slots__ = ("_streams",)

    def __init__(self, data: Path) -> None:
        self._streams = data / "streams"

    def load(self, *, tidy: bool = True) -> list[StreamDefinition]:
        """Every definition, by name.

        A folder without one is what a crash left of a creation that was never answered, and is
        removed where this may `tidy` up; with anything else in it, it is damage.

        Raises:
            DefinitionError: a file is damaged or missing.
        """
        try:
            return self._load(tidy=tidy)
        except OSError as error:
            raise DefinitionError(
                f"{error.filename} cannot be read: {error.strerror}; mend that"
            ) from None

    def _load(self, *, tidy: bool) -> list[StreamDefinition]:
        if not self._streams.is_dir():
            return []
        definitions: list[StreamDefinition] = []
        for folder in sorted(self._streams.iterdir()):
            if not folder.is_dir():
                raise DefinitionError(f"{folder} is no stream's folder; move it away")
            if (folder / DEFINITION).is_file():
                definitions.append(_read(folder))
            elif any(each.name != _TEMPORARY for each in folder.iterdir()):
                raise DefinitionError(
                    f"{folder} holds data but no {DEFINITION}; restore that file, or move the "
                    f"folder away"
                )
            elif tidy:
                (folder / _TEMPORARY).unlink(missing_ok=True)
                folder.rmdir()
        return definitions

    def save(self, definition: StreamDefinition) -> None:
        """Replaces the definition; on return it survives power loss.

        Raises:
            LostWritesError: a sync failed; which of the two stands is seen at the next start.
            UnavailableError: the disk refused otherwise; the old definition stands.
        """
        folder = self._streams / definition.name
        try:
            self._save(folder, definition)
        except OSError as error:
            what = remedy(error, "check the disk and its mount")
            raise UnavailableError(
                f"{folder / DEFINITION} cannot be written: {error.strerror}; {what}"
            ) from error

    def _save(self, folder: Path, definition: StreamDefinition) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # Also where it was there: an earlier try may have failed between the two.
        sync_folder(self._streams)
        sync_folder(self._streams.parent)
        place = folder / DEFINITION
        before = place.read_text(encoding="utf-8") if place.exists() else None
        content = _to_json(definition)
        content["checksum"] = _checksum(content)
        _replace(place, json.dumps(content, indent=2) + "\n")
        try:
            sync_folder(folder)
        except OSError:
            # It was refused, so a restart must not find it; after power loss either may stand.
            if before is None:
                place.unlink()
            else:
                _replace(place, before)
            raise


def _replace(place: Path, text: str) -> None:
    temporary = place.with_name(_TEMPORARY)
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        sync(file.fileno(), temporary)
    temporary.replace(place)


def _to_json(definition: StreamDefinition) -> dict[str, Any]:
    content = {
        "name": definition.name,
        "incarnation": definition.incarnation,
        "partitions": definition.partitions,
        "filters": list(definition.filters),
        "key": definition.key,
        "settings": dict(definition.settings),
    }
    return content if definition.queue is None else {**content, "queue": dict(definition.queue)}


def _checksum(content: dict[str, Any]) -> str:
    """Of what a definition says, however its JSON is laid out: CRC-32, eight hexadecimal digits."""
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


def _read(folder: Path) -> StreamDefinition:
    path = folder / DEFINITION
    try:
        value = _Definition.model_validate_json(path.read_bytes())
    except OSError as error:
        raise DefinitionError(f"{path} cannot be read: {error.strerror}; mend that") from None
    except ValidationError as error:
        why = error.errors()[0]
        where = ".".join(map(str, why["loc"])) or "the file"
        raise DefinitionError(
            f"{path} is damaged ({where}: {why['msg']}); restore it from a copy"
        ) from None
    definition = StreamDefinition(**value.model_dump(exclude={"checksum"}))
    if definition.name != folder.name:
        raise DefinitionError(
            f"{path} defines {definition.name!r}; a stream's folder has the stream's name"
        )
    comes_to = _checksum(_to_json(definition))
    if value.checksum not in {None, comes_to}:
        raise DefinitionError(
            f"{path} is damaged (checksum: it is {value.checksum}, and what the file says comes to "
            f"{comes_to}); restore it from a copy, or take the line out if you changed the file"
        )
    return definition


def private() -> None:
    """What this process makes from now on is for its user and group: folders 0750, files 0640."""
    os.umask(os.umask(0) | 0o027)


def act_as_owner(folder: Path) -> None:
    """What the superuser makes from now on belongs to the owner of `folder`, as what is there."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)


def sync_folder(path: Path) -> None:
    """Makes the names in a folder survive power loss.

    Raises:
        LostWritesError: they may not.
        OSError: it cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(descriptor, path)
    finally:
        os.close(descriptor)


def sync(descriptor: int, path: Path) -> None:
    """Makes what was written to a file survive power loss, or the names in a folder.

    Raises:
        LostWritesError: they may not.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        what = remedy(error, "check the disk and its mount")
        raise LostWritesError(
            f"syncing {path} failed: {error.strerror}; {what}, then restart"
        ) from error
