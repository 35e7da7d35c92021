"""What programs see of streams: places, records, offsets.

Owns names and shapes. Must not know how any of it comes about.
"""

from __future__ import annotations

from functools import partial
from operator import index
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class TopicPartition(NamedTuple):
    """One partition of a stream."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Record(NamedTuple):
    """A record that was read.

    Attributes:
        topic: its stream.
        partition: 0 or more.
        offset: 0 or more; they grow, and may leave some out where a stream is compacted.
        timestamp: milliseconds since 1970.
        key: bytes or None; with `key_deserializer` what that makes of it.
        value: the same.
        headers: pairs of a name and bytes or None.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]]

    @property
    def place(self) -> TopicPartition:
        """Its partition."""
        return TopicPartition(self.topic, self.partition)


record_of: Final = partial(tuple.__new__, Record)
"""As `Record` of seven values, for every record: the class itself takes twice as long."""


class RecordMetadata(NamedTuple):
    """Where a record is.

    Attributes:
        topic: its stream.
        partition: 0 or more.
        offset: 0 or more; -1 with `acks` 0, where nobody says it.
        timestamp: milliseconds since 1970: its own, or that of its append where the stream has
            `message.timestamp.type` LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


metadata_of: Final = partial(tuple.__new__, RecordMetadata)
"""As `RecordMetadata` of four values, for every record: the class itself takes twice as long."""


class OffsetAndMetadata(NamedTuple):
    """How far a group has read: the offset of the next record, and a note beside it."""

    offset: int
    metadata: str = ""


def place_of(given: Any) -> TopicPartition:  # noqa: ANN401 - what a program hands in
    """The partition that a program names, by a `TopicPartition` or a pair like it.

    Raises:
        TypeError: it is none.
    """
    if isinstance(given, tuple) and len(given) == 2:
        topic, partition = given
        if isinstance(topic, str) and hasattr(partition, "__index__"):
            return TopicPartition(topic, index(partition))
    raise TypeError(f"a partition is a TopicPartition, a stream's name and a number; got {given!r}")


def kept_offsets(
    given: Mapping[TopicPartition, int | OffsetAndMetadata],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a program would have a group keep.

    Raises:
        TypeError: a partition or an offset is none.
        ValueError: an offset is negative.
    """
    wanted = {}
    for place, each in given.items():
        kept = OffsetAndMetadata(*each) if isinstance(each, tuple) else OffsetAndMetadata(each)
        if index(kept.offset) < 0:
            raise ValueError(f"{place_of(place)}: an offset is 0 or more; got {kept.offset}")
        wanted[place_of(place)] = kept
    return wanted


class OffsetAndTimestamp(NamedTuple):
    """A record by its time: offset, and timestamp in milliseconds since 1970."""

    offset: int
    timestamp: int
