"""How groups last: the records of `__offsets`, in Kafka's own layout, and back.

A damaged record, and one of a kind that is not known, is none: a start must not fail for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import MalformedError
from headrace.kernel.groups.events import Committed, Place
from headrace.kernel.keyed import Record
from headrace.wire.kafka.codec import decode, encode
from headrace.wire.kafka.groups import OFFSET_KEY_VERSION, OffsetKey, OffsetValue
from headrace.wire.kafka.members import (
    GROUP_KEY_VERSION,
    GROUP_VALUE_VERSION,
    GroupKey,
    GroupValue,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class OffsetRecord(NamedTuple):
    """What a group has committed for one partition; None where it is forgotten."""

    group: str
    place: Place
    committed: Committed | None


class GroupRecord(NamedTuple):
    """A generation of a group; None where the group is forgotten."""

    group: str
    value: GroupValue | None


def of_offset(group: str, place: Place, committed: Committed | None) -> Record:
    """The record of a committed offset."""
    key = OffsetKey(group=group, topic=place.stream, partition=place.partition)
    if committed is None:
        return Record(encode(key), None)
    value = OffsetValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_ms,
    )
    return Record(encode(key), encode(value))


def forget(group: str, places: Iterable[Place]) -> list[Record]:
    """Records after which a group has read nothing of these."""
    return [of_offset(group, place, None) for place in places]


def of_group(group: str, value: GroupValue | None) -> Record:
    """The record of a generation."""
    key = encode(GroupKey(group=group))
    return Record(key, None if value is None else encode(value, GROUP_VALUE_VERSION))


def read(record: Record) -> OffsetRecord | GroupRecord | None:
    """What a record says; None where it says nothing that is known."""
    try:
        version = int.from_bytes(record.key[:2], "big", signed=True)
        if version == OFFSET_KEY_VERSION:
            return _read_offset(record)
        if version == GROUP_KEY_VERSION:
            return _read_group(record)
    except MalformedError:
        pass
    return None


def _read_offset(record: Record) -> OffsetRecord:
    key = decode(OffsetKey, record.key)
    place = Place(key.topic, key.partition)
    if record.value is None:
        return OffsetRecord(key.group, place, None)
    value = decode(OffsetValue, record.value)
    committed = Committed(value.offset, value.leader_epoch, value.metadata, value.commit_timestamp)
    return OffsetRecord(key.group, place, committed)


def _read_group(record: Record) -> GroupRecord | None:
    group = decode(GroupKey, record.key).group
    if record.value is None:
        return GroupRecord(group, None)
    version = int.from_bytes(record.value[:2], "big", signed=True)
    if not 0 <= version <= GROUP_VALUE_VERSION:
        return None
    return GroupRecord(group, decode(GroupValue, record.value, version))
