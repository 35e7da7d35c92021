"""The partitions that a consumer reads: which, where, and what may be asked about them.

Owns: connections of a consumer, its reader, positions as a program sees and sets them. Must not
know subscriptions, groups or commits (`headrace.client.consumer`).
"""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

from headrace.client.cluster import Cluster
from headrace.client.handed import Handed
from headrace.client.offsets import offsets_by_time
from headrace.client.reader import Reader
from headrace.client.records import OffsetAndTimestamp, TopicPartition, place_of
from headrace.wire.kafka.messages import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from headrace.client.config import ConsumerConfig


class Partitions:
    """What a consumer can do with partitions.

    Attributes:
        config: what it was told.
    """

    def __init__(self, config: ConsumerConfig) -> None:
        self.config = config
        self._cluster = self._connections()
        self._fetching = self._connections()
        self._reader = Reader(config, self._cluster, self._fetching)
        self._fetcher = self._reader.fetcher
        self._handed = Handed(config, self._fetcher)

    def _connections(self) -> Cluster:
        return Cluster(self.config)

    def assignment(self) -> set[TopicPartition]:
        """Partitions that are read."""
        return set(self._fetcher.places)

    def read(self, places: Collection[TopicPartition]) -> None:
        """What the subscription says (`assign` is for programs)."""
        self._fetcher.assign(places)
        self._handed.only(places)
        self._reader.pump.soon()

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of these until `resume`; positions stay.

        Raises:
            ValueError: one is not read.
        """
        for place in partitions:
            self._fetcher.part(place).is_paused = True
            self._handed.take_back(place)

    def resume(self, *partitions: TopicPartition) -> None:
        """Goes on with these.

        Raises:
            ValueError: one is not read.
        """
        for place in partitions:
            self._fetcher.part(place).is_paused = False
        self._reader.pump.soon()
        self._reader.changed.set()

    def paused(self) -> set[TopicPartition]:
        """Partitions that are paused."""
        return {p for p in self._fetcher.places if self._fetcher.part(p).is_paused}

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Reads on at `offset`, 0 or more.

        Raises:
            ValueError: the partition is not read, or the offset is negative.
            TypeError: the offset is no whole number.
        """
        self._fetcher.seek(partition, index(offset))
        self._handed.forget(partition)
        self._reader.pump.soon()

    async def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Reads these, or all, from the first record that is kept.

        Raises:
            ValueError: one is not read.
            ClientError: the brokers are not reached, or refuse.
        """
        for place, offset in (await self.beginning_offsets(self._or_all(partitions))).items():
            self.seek(place, offset)

    async def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Reads these, or all, from the next record on.

        Raises:
            ValueError: one is not read.
            ClientError: the brokers are not reached, or refuse.
        """
        for place, offset in (await self.end_offsets(self._or_all(partitions))).items():
            self.seek(place, offset)

    def _or_all(self, partitions: Collection[TopicPartition]) -> Collection[TopicPartition]:
        return partitions or self._fetcher.places

    async def position(self, partition: TopicPartition) -> int:
        """Offset of the next record that is handed out.

        Raises:
            ValueError: the partition is not read.
            ClientError: nobody can say.
        """
        while (offset := self._handed.positions().get(partition)) is None:
            part = self._fetcher.part(partition)
            if (error := part.error or part.missing) is not None:
                raise error
            self._reader.changed.clear()
            self._reader.pump.soon()
            await self._reader.changed.wait()
        return offset

    def highwater(self, partition: TopicPartition) -> int | None:
        """Offset after the last committed record, as the last fetch said; None before one.

        Raises:
            ValueError: the partition is not read.
        """
        return self._fetcher.part(partition).high_watermark

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, in ms since 1970; None where all are older.

        Raises:
            UnknownStreamError: there is no such stream or partition.
            ClientError: the brokers are not reached, or refuse.
        """
        found = await self._ask_offsets(times)
        return {
            place: None if each.offset < 0 else OffsetAndTimestamp(each.offset, each.timestamp)
            for place, each in found.items()
        }

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Offset of the first record that is kept.

        Raises:
            ClientError: as `offsets_for_times`.
        """
        found = await self._ask_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))
        return {place: each.offset for place, each in found.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Offset after the last committed record.

        Raises:
            ClientError: as `offsets_for_times`.
        """
        found = await self._ask_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP))
        return {place: each.offset for place, each in found.items()}

    async def _ask_offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        wanted = {place_of(place): time for place, time in times.items()}
        return await self._cluster.persist(
            "offsets", lambda: offsets_by_time(self._cluster, wanted, self.config.isolation)
        )
