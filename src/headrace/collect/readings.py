"""Input files: a CSV of DCGM readings, plain or gzip, becomes `Reading` objects.

Owns the dialects of the file. Judges no value: a row with a fault is a reading like any other and
keeps its text as read, because the pipeline decides what is usable and quarantines the rest. Only
a file that is no such CSV is refused, before the first reading and with what it lacks.
"""

from __future__ import annotations

import csv
import gzip
import sys
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Final

from headrace import job_limits
from headrace.collect.instants import format_instant, parse_instant
from headrace.collect.labels import parse_labels
from headrace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

_GZIP_MAGIC: Final = b"\x1f\x8b"

_REQUIRED: Final = ("timestamp", "metric_name", "uuid", "value")
_OPTIONAL: Final = (
    "gpu_id", "device", "modelName", "Hostname", "container", "pod", "namespace", "labels_raw",
)  # fmt: skip
_COLUMNS: Final = _REQUIRED + _OPTIONAL

_LABEL_NAMES: Final = {"DCGM_FI_DRIVER_VERSION": "driver_version", "modelName": "model_name"}
"""Names that the exporter gives to labels, and the message's own names of them."""

_SAID: Final = ("__name__", "UUID", "device", "Hostname", "hostname")
"""Labels that fields of a message say already: metric, uuid, device, host twice (the exporter
changed its spelling in 2026)."""

_ADDED: Final = ("gpu", "model_name", "container", "pod", "namespace")
"""Labels that columns fill: gpu_id (an index, not an id), modelName, and the scheduler's three."""

_NO_UTF8: Final = "backslashreplace"
"""A byte that is no UTF-8 shows as `\\xNN` in the raw text: visible, and nothing is lost."""

_VERIFY_BYTES: Final = 1 << 20

_READ_FAULTS: Final = (OSError, EOFError, zlib.error)
"""What a damaged or unreadable file raises; `gzip.BadGzipFile` is an `OSError`."""


@dataclass(slots=True)
class Reading:
    """One metric of one GPU at one instant, every text as read.

    Attributes:
        timestamp: event time as read.
        event_us: microseconds since the epoch, or None where `timestamp` names no one instant.
        metric: field name.
        uuid: the GPU's; empty where the row has none.
        device: such as `nvidia0`.
        host: name of the machine.
        raw: the value as read.
        labels: all else that is known of the series, `gpu` (index), `driver_version`,
            `model_name`, `pod`, `GPU_I_ID` among them. Shared between readings: never changed
            in place.
    """

    timestamp: str
    event_us: int | None
    metric: str
    uuid: str
    device: str
    host: str
    raw: str
    labels: Mapping[str, str]

    @property
    def event_time(self) -> str:
        """RFC 3339 with microseconds, or the text as read where it names no one instant."""
        return self.timestamp if self.event_us is None else format_instant(self.event_us)


class CsvFile:
    """Readings of one CSV file in its order, anew with each iteration.

    Gzip is told by its content, not by its name. A gzip file is read to its checksum, and every
    header is verified, before the first reading: nothing of an unreadable file is published.

    Raises:
        InputError: the file is missing, empty, damaged or no CSV of readings.
    """

    __slots__ = ("_path", "_pick")

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            with self._open(verify=True) as lines:
                header = next(csv.reader(_bounded(path, lines)), None)
        except csv.Error:
            header = [""]
        except IsADirectoryError:
            raise InputError(f"{path}: is a folder\nname one CSV file, plain or gzip") from None
        except _READ_FAULTS as fault:
            raise _unreadable(path, fault) from None
        self._pick = _columns(path, header)

    def __iter__(self) -> Iterator[Reading]:
        pick = self._pick
        try:
            with self._open() as lines:
                rows = csv.reader(_bounded(self._path, lines))
                next(rows)
                for row in rows:
                    if row:
                        yield _reading(pick(row))
        except csv.Error as fault:
            message = f"{self._path}: line {rows.line_num}: {fault}\na quote that never closes?"
            raise InputError(message) from None
        except _READ_FAULTS as fault:
            raise _unreadable(self._path, fault) from None

    def _open(self, *, verify: bool = False) -> IO[str]:
        with self._path.open("rb") as file:
            compressed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            file.seek(0)
            if compressed and verify:
                _read_through(file)
        opened = gzip.open if compressed else open
        return opened(self._path, "rt", encoding="utf-8-sig", errors=_NO_UTF8, newline="")


def _bounded(path: Path, lines: IO[str]) -> Iterator[str]:
    """Lines of a file, none of which takes memory without end."""
    longest = job_limits.CSV_LINE_LENGTH_MAX
    for number, line in enumerate(iter(lambda: lines.readline(longest), ""), 1):
        if len(line) == longest:
            raise InputError(
                f"{path}: line {number}: longer than {longest} characters\n"
                f"name a CSV file of GPU readings, plain or gzip"
            )
        yield line


def _read_through(file: IO[bytes]) -> None:
    """Reads a gzip file to its end, where its checksum is."""
    with gzip.GzipFile(fileobj=file) as whole:
        while whole.read(_VERIFY_BYTES):
            pass


def _columns(path: Path, header: Sequence[str] | None) -> Callable[[list[str]], tuple[str, ...]]:
    """A function from a row to its fields in the order of `_COLUMNS`; absent ones are empty."""
    if not header:
        raise InputError(f"{path}: has no first line\nit must name {', '.join(_REQUIRED)}")
    found = {_plain(name): index for index, name in reversed(list(enumerate(header)))}
    lacking = [name for name in _REQUIRED if _plain(name) not in found]
    if len(lacking) == len(_REQUIRED):
        raise InputError(
            f"{path}: is no CSV of GPU readings\nthe first line must name {', '.join(_REQUIRED)}"
        )
    if lacking:
        raise InputError(
            f"{path}: the header lacks {', '.join(lacking)}\n"
            f"needed: {', '.join(_REQUIRED)}; used where present: {', '.join(_OPTIONAL)}"
        )
    indexes = [found.get(_plain(name), sys.maxsize) for name in _COLUMNS]

    def pick(row: list[str]) -> tuple[str, ...]:
        width = len(row)
        return tuple([row[index] if index < width else "" for index in indexes])

    return pick


def _plain(name: str) -> str:
    """Header cells compare without case and underscores: exporters changed both over time."""
    return name.strip().lower().replace("_", "")


def _reading(fields: tuple[str, ...]) -> Reading:
    timestamp, metric, uuid, raw, gpu, device, model, host, *scheduler, labels_raw = fields
    columns = (gpu, model, *scheduler)
    said = (metric, uuid, device, host, host)
    labels = _labels(labels_raw, columns, said)
    return Reading(timestamp, parse_instant(timestamp), metric, uuid, device, host, raw, labels)


@lru_cache(maxsize=8192)
def _labels(text: str, columns: tuple[str, ...], said: tuple[str, ...]) -> Mapping[str, str]:
    """Labels of a row under the message's names; what another field says already is left out.

    A label that contradicts its field stays: which of the two is right is for the reader. An
    empty label is an absent one (Prometheus, "Data model").
    """
    parsed = parse_labels(text)
    for name, value in zip(_SAID, said, strict=True):
        if parsed.get(name) == value:
            del parsed[name]
    labels = {_LABEL_NAMES.get(name, name): value for name, value in parsed.items() if value}
    labels.update({name: value for name, value in zip(_ADDED, columns, strict=True) if value})
    return labels


def _unreadable(path: Path, fault: BaseException) -> InputError:
    if isinstance(fault, FileNotFoundError):
        return InputError(f"{path}: no such file")
    if isinstance(fault, PermissionError):
        return InputError(f"{path}: may not be read by this user")
    if isinstance(fault, EOFError):
        return InputError(f"{path}: the gzip file ends too soon; fetch or copy it again")
    return InputError(f"{path}: cannot be read ({fault}); fetch or copy it again")
