"""Requests that are whole: what each holds in memory, and whether it is long, or waits for others.

Pure. Must not know connections, nor how a request is answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headrace import limits
from headrace.wire.kafka.apis import (
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    DESCRIBE_LOG_DIRS,
    FETCH,
    JOIN_GROUP,
    LIST_GROUPS,
    METADATA,
    OFFSET_FETCH,
    PRODUCE,
    SYNC_GROUP,
)
from headrace.wire.kafka.frames import LENGTH

if TYPE_CHECKING:
    from headrace.wire.kafka.frames import Request

LARGE_ANSWERS: Final = frozenset({LIST_GROUPS, DESCRIBE_GROUPS, DESCRIBE_CONFIGS})
"""Requests that ask for much with few words."""

ALL_WHERE_NONE: Final = frozenset({METADATA, OFFSET_FETCH, DESCRIBE_LOG_DIRS})
"""Those that ask for everything where they name no topic."""

WAIT_FOR_OTHERS: Final = frozenset({FETCH, JOIN_GROUP, SYNC_GROUP})
"""Those that end when other clients do something: for as long as they say, or longer."""

_PRODUCE_KEY: Final = PRODUCE.key.to_bytes(2, "big")


class Taken(NamedTuple):
    """A request that is whole: what came of it on the wire, and what it holds in memory.

    Attributes:
        in_memory_bytes: of what it holds, what it takes since it has been read.
        is_long: it is served in turns with others.
        is_large: its answer may be, too, and is written beside the loop.
    """

    request: Request
    size_bytes: int
    in_memory_bytes: int
    is_long: bool
    is_large: bool

    @property
    def held_bytes(self) -> int:
        """What it holds in memory."""
        return self.size_bytes + self.in_memory_bytes

    @property
    def overlaps(self) -> bool:
        """Whether it may be in work beside others of its kind on one connection."""
        return self.request.api is PRODUCE

    @property
    def waits(self) -> bool:
        """Whether it may end only when other clients do something."""
        return self.request.api in WAIT_FOR_OTHERS


def taken(frame: bytes, request: Request, elements: int) -> Taken:
    """A request that came as `frame`, with so many array elements."""
    is_large = elements > limits.KAFKA_ELEMENTS_AT_ONCE or request.api in LARGE_ANSWERS
    asks_for_all = request.api in ALL_WHERE_NONE and not request.body.topics
    return Taken(
        request,
        size_bytes=LENGTH.size + len(frame),
        in_memory_bytes=elements * limits.KAFKA_ELEMENT_BYTES,
        is_long=elements > limits.KAFKA_ELEMENTS_FEW or is_large or asks_for_all,
        is_large=is_large,
    )


def is_produce(frame: bytes) -> bool:
    """Whether a request that has not been read is one."""
    return frame.startswith(_PRODUCE_KEY)
