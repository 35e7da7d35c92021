"""What a client of the frame door is told of an error of the node's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import (
    CatalogError,
    CorruptRecordError,
    HeadraceError,
    MessageTooLargeError,
    NativeError,
    QueueFullError,
    StorageCorruptError,
    StorageError,
    UnavailableError,
)
from headrace.wire.frame import Refusal
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from headrace.node.partition import Partition

_REASONS: Final = (
    (CatalogError, "unknown_stream"),
    (MessageTooLargeError, "frame_too_large"),
    (QueueFullError, "queue_full"),
    (StorageCorruptError, "corrupt_record"),
    (StorageError, "storage"),
    (UnavailableError, "storage"),
    (CorruptRecordError, "corrupt_record"),
    (NativeError, "corrupt_record"),
)
"""The first that fits."""


def of_error(error: HeadraceError) -> Refusal:
    """The refusal that says the same."""
    reason = next((reason for kind, reason in _REASONS if isinstance(error, kind)), "unavailable")
    return Refusal(reason, error.kafka_code, str(error))


def of_bug() -> Refusal:
    """What is said where the log has a traceback."""
    return Refusal("bug", ErrorCode.UNKNOWN_SERVER_ERROR, "a fault of the node, which its log has")


def no_partition(stream: str, index: int, partitions: int) -> Refusal:
    """There is no such partition."""
    text = f"stream {stream!r} has no partition {index}: it has {partitions}, from 0 on"
    return Refusal("unknown_partition", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def out_of_range(partition: Partition, offset: int) -> Refusal:
    """An offset where nothing is, or nothing any more.

    Raises:
        UnknownStreamError: nor is the stream.
    """
    start, end = partition.bounds
    text = (
        f"offset {offset} is not in partition {partition.index} of "
        f"{partition.stream.definition.name!r}: its records begin at {start} and end before {end}"
    )
    return Refusal("offset_out_of_range", ErrorCode.OFFSET_OUT_OF_RANGE, text)


def idle(idle_ms: int) -> Refusal:
    """A producer that completes nothing."""
    text = f"no whole frame came within {idle_ms / 1000:g} s"
    return Refusal("idle", ErrorCode.REQUEST_TIMED_OUT, text)


def slow(idle_ms: int) -> Refusal:
    """A client that reads nothing."""
    text = f"nothing of what was sent was read within {idle_ms / 1000:g} s"
    return Refusal("slow", ErrorCode.REQUEST_TIMED_OUT, text)
