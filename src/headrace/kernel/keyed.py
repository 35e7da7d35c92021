"""State by key: what the records of an internal stream come to, as bytes and back.

A pure part of `node.keyed`. A kept state is record batches, like the stream itself: the latest
record of each key, and no tombstone. Owns when a state is due. Must not know what records mean,
nor where states are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace import limits, native

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_BATCH_RECORDS: Final = 1000
_LENGTH_AT: Final = 8
_LENGTH_FROM: Final = 12
"""Where a batch says its length, and what that counts from."""


class Record(NamedTuple):
    """A record of an internal stream; a None value deletes its key."""

    key: bytes
    value: bytes | None


def pack(records: Iterable[Record]) -> bytes:
    """The records as batches, each of base offset 0."""
    left = iter(records)
    return b"".join(iter(lambda: batch_of(islice(left, _BATCH_RECORDS), 0), b""))


def batch_of(records: Iterable[Record], wall_ms: int) -> bytes:
    """One batch; none without a record."""
    fields: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]]
    fields = [(record.key, record.value, [], wall_ms) for record in records]
    return native.build_batch(fields) if fields else b""


def unpack(batches: bytes) -> Iterator[Record]:
    """What was packed.

    Raises:
        NativeError: a batch is damaged.
    """
    for batch in batches_of(batches):
        yield from records_of(native.decode_records(batch, 0, _BATCH_RECORDS, len(batch)))


def batches_of(batches: bytes) -> Iterator[bytes]:
    """The batches of a state, one by one."""
    at = 0
    while at < len(batches):
        end = (
            at + _LENGTH_FROM + int.from_bytes(batches[at + _LENGTH_AT : at + _LENGTH_FROM], "big")
        )
        yield batches[at:end]
        at = end


def records_of(columns: native.RecordColumns) -> Iterator[Record]:
    """Those with a key: others are not kept by it."""
    return (Record(key, value) for _, _, key, value, _ in columns.rows() if key is not None)


@dataclass(slots=True)
class Progress:
    """How far one partition has come, and how much of that is kept.

    Attributes:
        applied: records below this offset are in the state.
        kept: those that are in the state on disk.
        records: in the state on disk.
        kept_ms: when that was written, or tried, by the wall clock; 0 where a start found it.
        tried: `applied` when a state was last tried to be written.
    """

    applied: int = 0
    kept: int = 0
    records: int = 0
    kept_ms: int = 0
    tried: int = 0

    def is_due(self, wall_ms: int) -> bool:
        """Whether the next start would read too much, or what compaction may take by then.

        Writing a state costs what it holds, so that it waits for as many new records.
        """
        new = self.applied - max(self.kept, self.tried)
        waits = self.applied > self.kept and wall_ms - self.kept_ms >= limits.STATE_AGE_MS_MAX
        return waits or new >= max(limits.STATE_RECORDS, self.records)
