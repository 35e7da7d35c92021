"""How far a consumer's group has read, as the consumer tells it.

Owns: when it commits by itself, what of that the group knows already, what follows from a refusal.
Must not know records, or what a program is given.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from headrace.client.errors import ClientError
from headrace.client.offsets import commit, committed
from headrace.client.records import OffsetAndMetadata, TopicPartition, kept_offsets
from headrace.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from headrace.client.cluster import Cluster
    from headrace.client.config import ConsumerConfig
    from headrace.client.offsets import Identity

log = logging.getLogger(__name__)

MOVED_ON: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""A group has gone on without a commit, or the stream has gone."""


class Commits:
    """Those of one consumer.

    Args:
        config: of the consumer.
        cluster: connections.
        identity: who commits.

    Attributes:
        is_automatic: whether it commits by itself.
        due_at: when it does so next, on the loop's clock.
    """

    def __init__(
        self, config: ConsumerConfig, cluster: Cluster, identity: Callable[[], Identity]
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._identity = identity
        self._kept: dict[TopicPartition, int] = {}  # what it has committed by itself
        self.is_automatic = config.enable_auto_commit and config.group_id is not None
        self.due_at = float("inf")

    @property
    def group(self) -> str:
        """Which is committed for.

        Raises:
            ValueError: there is none.
        """
        if self._config.group_id is None:
            raise ValueError("the consumer has no group_id to commit for")
        return self._config.group_id

    def later(self) -> None:
        """The next one by itself is due after the interval."""
        if self.is_automatic:
            now = asyncio.get_running_loop().time()
            self.due_at = now + self._config.auto_commit_interval_ms / 1000

    def only(self, places: Collection[TopicPartition]) -> None:
        """Forgets what is of no others."""
        self._kept = {p: offset for p, offset in self._kept.items() if p in places}

    async def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]) -> None:
        """Keeps what the program says.

        Raises:
            ValueError: the consumer has no group.
            ClientError: it was refused, or the brokers are not reached.
        """
        wanted = kept_offsets(offsets)
        self._kept.clear()
        await self._commit(wanted)

    async def _commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        group = self.group
        if offsets:
            await self._cluster.persist(
                f"commit of {group}",
                lambda: commit(self._cluster, group, offsets, self._identity()),
            )

    async def commit_done(self, positions: Mapping[TopicPartition, int]) -> None:
        """Keeps by itself what was handed out, as far as that is news.

        Raises:
            ClientError: it was refused for good, or the brokers are not reached; not where the
                group has gone on: whoever has the partitions now reads them again.
        """
        news = {p: o for p, o in positions.items() if o != self._kept.get(p)}
        try:
            await self._commit({p: OffsetAndMetadata(o) for p, o in news.items()})
            self._kept |= news
        except ClientError as error:
            if error.code not in MOVED_ON:
                raise
            log.info("%s", error)
        finally:
            self.later()

    async def committed(
        self, places: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """How far the group has read these; those without are left out.

        Raises:
            ValueError: the consumer has no group.
            ClientError: the brokers are not reached, or refuse.
        """
        group = self.group
        return await self._cluster.persist(
            f"offsets of {group}", lambda: committed(self._cluster, group, places)
        )
