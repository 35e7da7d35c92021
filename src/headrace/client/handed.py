"""Records between the fetcher and the program: what waits one by one, and what of it is done.

Owns: records that are to be handed out one by one, where the program was before what it was handed
last, deserializers. Must not know how records come, or what is committed.

Invariant: what waits here is taken back before anything else is read of its partition.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from headrace.client.records import Record, TopicPartition, record_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.client.config import ConsumerConfig
    from headrace.client.fetcher import Fetcher, Slice


class Handed:
    """What one consumer hands out.

    Attributes:
        rows: of one partition, to be handed out one by one.
        before: positions before what was handed out last, which is done with the next call.
    """

    def __init__(self, config: ConsumerConfig, fetcher: Fetcher) -> None:
        self._config = config
        self._fetcher = fetcher
        self.rows: deque[Record] = deque()
        self.before: dict[TopicPartition, int] = {}

    def hold(self, found: Slice) -> None:
        """Keeps records, to be handed out one by one.

        Raises:
            Exception: what a deserializer raises of the first.
        """
        self.rows.extend(self.records(found))

    def next(self) -> Record:
        """The next of those; what was handed out before it is done."""
        record = self.rows.popleft()
        self.before = {record.place: record.offset}
        return record

    def positions(self) -> dict[TopicPartition, int]:
        """Of the next record that is handed out, by partition, where that is known."""
        positions = self._fetcher.positions()
        if self.rows:
            positions[self.rows[0].place] = self.rows[0].offset
        return positions

    def only(self, places: Collection[TopicPartition]) -> None:
        """Forgets what is of no others."""
        if self.rows and self.rows[0].place not in places:
            self.rows.clear()
        self.before = {p: offset for p, offset in self.before.items() if p in places}

    def forget(self, place: TopicPartition) -> None:
        """A partition is read on elsewhere."""
        if self.rows and self.rows[0].place == place:
            self.rows.clear()
        self.before.pop(place, None)

    def take_back(self, place: TopicPartition | None = None) -> None:
        """What waits, of a partition or of any, is to be read again."""
        if self.rows and place in {self.rows[0].place, None}:
            self._fetcher.seek(self.rows[0].place, self.rows[0].offset)
            self.rows.clear()

    def records(self, found: Slice) -> list[Record]:
        """Those before the first that a deserializer refuses, which is the next to be read.

        Raises:
            Exception: what a deserializer raises, where it refuses the first.
        """
        stream, partition = found.place
        of_key, of_value = self._config.key_deserializer, self._config.value_deserializer
        records: list[Record] = []
        for offset, timestamp, raw_key, raw_value, headers in found.columns.rows(
            found.start, found.stop
        ):
            try:
                key = raw_key if of_key is None else of_key(raw_key)
                value = raw_value if of_value is None else of_value(raw_value)
            except Exception as error:
                self._fetcher.seek(found.place, offset)
                if records:
                    break
                error.add_note(f"{found.place} at {offset}: seek beyond it to go on")
                raise
            records.append(record_of((stream, partition, offset, timestamp, key, value, headers)))
        return records
