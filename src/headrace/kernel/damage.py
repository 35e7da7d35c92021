"""Reads of logs that fail, for whichever door they were: how often, why, and where. A machine.

Whoever reads is told by its protocol, again and again perhaps; who looks after the node is told of
each place once. Must not know who reads, nor a file.
"""

from __future__ import annotations

from collections import Counter

from headrace import limits
from headrace.errors import StorageCorruptError, StorageError


class FailedReads:
    """What could not be read since the start.

    Attributes:
        counts: by reason.
        places: damaged ones that were met.
    """

    __slots__ = ("counts", "places")

    def __init__(self) -> None:
        self.counts = Counter(damaged=0, storage=0)
        self.places: set[str] = set()

    def add(self, error: StorageError) -> bool:
        """Counts one; whether it is damage at a place that was not met before.

        The error's text is the place: it names file, byte and offset.
        """
        if not isinstance(error, StorageCorruptError):
            self.counts["storage"] += 1
            return False
        self.counts["damaged"] += 1
        place = str(error)
        is_new = place not in self.places and len(self.places) < limits.DAMAGED_PLACES_MAX
        if is_new:
            self.places.add(place)
        return is_new
