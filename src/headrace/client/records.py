"""What programs see of streams: places, records, offsets.

Owns names and shapes. Must not know how any of it comes about.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple


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


class OffsetAndTimestamp(NamedTuple):
    """A record by its time: offset, and timestamp in milliseconds since 1970."""

    offset: int
    timestamp: int
