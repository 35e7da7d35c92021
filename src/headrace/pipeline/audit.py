"""Whether every reading ended where it must: the accounting of a run, from independent counts.

Owns the line `published N + resent M = stored S = rows R + quarantined Q + duplicates D`. Each of
its six numbers is counted on its own: N by the collector as acknowledged, S in the stream, R, Q, D
in the files of the tables, and M by finding stored messages with the same source, epoch and
sequence. Readings are the unit: a wide message counts as many as it holds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.native import decode_records
from headrace.pipeline import tables
from headrace.pipeline.schemas import DUPLICATES, QUARANTINE, READINGS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from headrace.client import FetchClient

_ENDS: Final = (READINGS, QUARANTINE, DUPLICATES)
_SENT: Final = ("source", "source_epoch", "source_sequence")
_STORED: Final = ("topic", "partition", "offset")

_FETCH_BYTES: Final = 1 << 20
_RECORDS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class Account:
    """The six numbers, in readings; its text is the line."""

    published: int
    resent: int
    stored: int
    rows: int
    quarantined: int
    duplicates: int

    @property
    def holds(self) -> bool:
        """Whether the line is true."""
        ended = self.rows + self.quarantined + self.duplicates
        return self.published + self.resent == self.stored == ended

    def __str__(self) -> str:
        return (
            f"published {self.published} + resent {self.resent} = stored {self.stored} = "
            f"rows {self.rows} + quarantined {self.quarantined} + duplicates {self.duplicates}"
        )


class Ends:
    """Where each stored message ended, read once from the tables.

    Args:
        tables_dir: folder of the tables.
    """

    def __init__(self, tables_dir: Path) -> None:
        columns = [*_STORED, *_SENT]
        ends = {name: tables.open_arrow(tables_dir, name).to_table(columns) for name in _ENDS}
        self._rows = {name: table.num_rows for name, table in ends.items()}
        self._messages = pa.concat_tables(ends.values()).group_by(columns).aggregate(
            [([], "count_all")]
        )  # fmt: skip

    @property
    def messages(self) -> int:
        """Distinct stored messages that the tables know."""
        return int(self._messages.num_rows)

    def account(self, published: int, stored: int) -> Account:
        """The line, with what the collector and the stream say."""
        rows = self._rows
        return Account(
            published, self.resent(), stored, rows[READINGS], rows[QUARANTINE], rows[DUPLICATES]
        )

    def resent(self) -> int:
        """Readings in stored copies of messages that were stored before."""
        sent = self._messages.group_by(list(_SENT)).aggregate(
            [("count_all", "sum"), ("count_all", "min")]
        )
        sent = sent.filter(pc.is_valid(sent["source_sequence"]))
        extra = pc.sum(pc.subtract(sent["count_all_sum"], sent["count_all_min"])).as_py()
        return int(extra or 0)

    def missing(self, source: str, epoch: int, acknowledged: Mapping[int, int]) -> list[int]:
        """Sequences that were acknowledged, and whose readings are not all in the tables once.

        Args:
            source: of the publisher.
            epoch: of its run.
            acknowledged: readings of each acknowledged message, by sequence.
        """
        mine = pc.and_(
            pc.equal(self._messages["source"], source),
            pc.equal(self._messages["source_epoch"], epoch),
        )
        found: dict[int, list[int]] = {}
        rows = self._messages.filter(mine)
        for sequence, readings in zip(
            rows["source_sequence"].to_pylist(), rows["count_all"].to_pylist(), strict=True
        ):
            found.setdefault(sequence, []).append(readings)
        return [
            sequence
            for sequence, readings in acknowledged.items()
            if set(found.get(sequence, ())) != {readings}
        ]


def stored_messages(client: FetchClient, stream: str) -> int:
    """Records that the stream holds.

    Raises:
        ClientError: the broker is not reached, or has no such stream.
    """
    first = client.earliest_offsets(stream)
    return sum(end - first[at] for at, end in client.latest_offsets(stream).items())


def stored_readings(client: FetchClient, stream: str) -> int:
    """Readings that the stream's records hold, counted in the records themselves.

    Raises:
        ClientError: the broker is not reached, or has no such stream.
    """
    return sum(_readings_of(value) for value in _values(client, stream))


def _readings_of(value: bytes) -> int:
    """A wide message holds as many readings as `metrics` has names; any other counts as one."""
    try:
        metrics = json.loads(value)["metrics"]
    except (ValueError, KeyError, TypeError):
        return 1
    return len(metrics) if isinstance(metrics, dict) and metrics else 1


def _values(client: FetchClient, stream: str) -> Iterator[bytes]:
    offsets = client.earliest_offsets(stream)
    for partition, end in client.latest_offsets(stream).items():
        at = offsets[partition]
        while at < end:
            batches = client.fetch(stream, partition, at, _FETCH_BYTES, 0)
            columns = decode_records(batches, at, end, _RECORDS_MAX)
            yield from (value or b"" for _, _, _, value, _ in columns.rows())
            at = columns.next_offset
