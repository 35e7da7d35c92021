"""From who reads telemetry, in a thread of its own, to who publishes it: a bounded hand-over.

Owns the queue between the two and its bound. Who reads asks `has_room` before it reads, so that
nothing that was read is dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from headrace import job_limits
from headrace.collect.messages import Pause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from headrace.collect.messages import Message
    from headrace.collect.readings import Reading

    Shape = Callable[[Iterable[Reading], Callable[[], int]], Iterator[Message]]


class Batch(NamedTuple):
    """Readings that were read at once."""

    readings: Sequence[Reading]
    read_us: int
    """When, in microseconds since the epoch."""
    size_bytes: int
    """What they hold of memory, roughly."""


class Feed:
    """Batches in, messages out.

    Args:
        shape: `narrow` or `wide`.
        wake: called after each `put` and at the end, from the thread that reads.
    """

    def __init__(self, shape: Shape, wake: Callable[[], None]) -> None:
        self._shape = shape
        self._wake = wake
        self._lock = threading.Lock()
        self._batches: deque[Batch] = deque()
        self._size_bytes = 0
        self._closed = False
        self.readings = 0
        """All that was ever put."""

    @property
    def has_room(self) -> bool:
        """Whether more may be read."""
        return self._size_bytes < job_limits.COLLECT_BACKLOG_BYTES

    def put(self, batch: Batch) -> None:
        """Takes what was read, also beyond the bound."""
        with self._lock:
            self._batches.append(batch)
            self._size_bytes += batch.size_bytes
            self.readings += len(batch.readings)
        self._wake()

    def close(self) -> None:
        """Nothing more comes; what is there still goes out."""
        self._closed = True
        self._wake()

    def messages(self) -> Iterator[Message | Pause]:
        """Messages as they come, a pause where there is none now, to the end after `close`."""
        while True:
            closed = self._closed  # before looking: what was put before it is then seen
            batch = self._next()
            if batch is not None:
                yield from self._shape(batch.readings, lambda at=batch.read_us: at)  # type: ignore[misc]
            elif closed:
                return
            else:
                yield Pause()

    def _next(self) -> Batch | None:
        with self._lock:
            if not self._batches:
                return None
            batch = self._batches.popleft()
            self._size_bytes -= batch.size_bytes
            return batch
