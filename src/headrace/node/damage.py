"""Reads of logs that fail, for whichever door they were: how often, why, and where. A machine.

Whoever reads is told by its protocol, again and again perhaps; who looks after the node is told of
each place once. Must not know who reads, nor a file.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from headrace import limits
from headrace.errors import StorageCorruptError, StorageError
from headrace.ports import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator


class FailedReads:
    """What could not be read since the start."""

    __slots__ = ("_failed", "_places")

    def __init__(self) -> None:
        self._failed = Counter(damaged=0, storage=0)
        self._places: set[str] = set()

    def add(self, error: StorageError) -> bool:
        """Counts one; whether it is damage at a place that was not met before.

        The error's text is the place: it names file, byte and offset.
        """
        if not isinstance(error, StorageCorruptError):
            self._failed["storage"] += 1
            return False
        self._failed["damaged"] += 1
        place = str(error)
        is_new = place not in self._places and len(self._places) < limits.DAMAGED_PLACES_MAX
        if is_new:
            self._places.add(place)
        return is_new

    def samples(self) -> Iterator[Sample]:
        """Counts by reason, and places."""
        for reason, count in self._failed.items():
            yield Sample(
                "log_reads_failed_total",
                count,
                "Reads of a log that failed: it is damaged there, or its storage fails.",
                (("reason", reason),),
            )
        yield Sample(
            "log_damaged_places",
            len(self._places),
            "Damaged places that readers have met since the start; the log names each.",
        )
