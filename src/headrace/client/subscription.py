"""Which partitions a consumer reads of the streams that it subscribes to.

Owns: streams or a pattern, when their partitions are asked for, the membership in a group and what
it says the program must do. Without a group all partitions are read. Must not know records, or what
is committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from headrace.client.errors import error_of
from headrace.client.group import GroupMember
from headrace.client.membership_events import Get, Give
from headrace.client.offsets import ANYBODY, Identity
from headrace.client.records import TopicPartition

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Collection, Iterator

    from headrace.client.cluster import Cluster
    from headrace.client.config import ConsumerConfig
    from headrace.client.errors import ClientError
    from headrace.client.group import Step
    from headrace.client.reader import Reader


class RebalanceListener:
    """Told of partitions that come and go, within a call for records. Override what is wanted."""

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        """These are read from now on; `seek` may say from where."""

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """Others get these next; what was handed out of them may still be committed."""

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        """Others have these already."""


class Hands(Protocol):
    """The consumer, as far as its subscription needs it."""

    def read(self, places: Collection[TopicPartition]) -> None:
        """Reads these and no others."""

    async def done(self, places: Collection[TopicPartition]) -> None:
        """Commits what was handed out of these."""

    def assignment(self) -> set[TopicPartition]:
        """What it reads."""


class Subscription:
    """Streams of a consumer. Lives in its event loop.

    Attributes:
        identity: who commits.
        due_at: when partitions are asked for again, on the loop's clock.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        connections: Callable[[], Cluster],
        hands: Hands,
        reader: Reader,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._connections = connections
        self._hands = hands
        self._reader = reader
        self._topics: list[str] = []
        self._pattern: re.Pattern[str] | None = None
        self._listener = RebalanceListener()
        self._member: GroupMember | None = None
        self._memberships = 0
        self._steps: deque[Step] = deque()
        self._asking: asyncio.Task[None] | None = None
        self._doing: asyncio.Task[None] | None = None
        self._is_seen = False
        self.identity: Identity = ANYBODY
        self.due_at = float("inf")
        reader.on_missing = self._missing

    def set(
        self,
        topics: list[str],
        pattern: re.Pattern[str] | None,
        listener: RebalanceListener | None,
    ) -> None:
        """Other streams than before."""
        self._topics, self._pattern = topics, pattern
        self._is_seen = False
        self._listener = listener or RebalanceListener()
        self.due_at = 0.0

    def clear(self) -> None:
        """No streams; the group is left beside."""
        self._topics, self._pattern = [], None
        self.due_at = float("inf")
        if self._member is not None:
            self._reader.pump.begin(self._part())

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While the program waits for records it is not busy with some."""
        if self._member is not None:
            self._member.busy(is_busy=False)
        try:
            yield
        finally:
            if self._member is not None:
                self._member.busy(is_busy=True)

    def is_due(self, now: float) -> bool:
        """Whether `keep_up` has something to do. Only a program that is not stuck asks."""
        if self._member is not None:
            self._member.busy(is_busy=True)
        return bool(self._steps or self._doing or self._asking) or now >= self.due_at

    async def keep_up(self, now: float) -> None:
        """Does what is due: asks for partitions, gives up and gets what the group says.

        Who waits may be cancelled. What was begun goes on, for the group waits for it, and the next
        call hears what came of it.

        Raises:
            ClientError: there is no such stream, or the group refuses this member.
        """
        if self._asking is None and now >= self.due_at:
            self._asking = asyncio.ensure_future(self._follow(now))
        if (asking := self._asking) is not None:
            await asyncio.wait([asking])
            self._asking = None
            asking.result()
        while self._doing is not None or self._steps:
            if self._doing is None:
                self._doing = asyncio.ensure_future(self._do(self._steps.popleft()))
            doing = self._doing
            await asyncio.wait([doing])
            self._doing = None if self._doing is doing else self._doing
            doing.result()

    async def _follow(self, now: float) -> None:
        """Reads, or tells the group, what the streams have now."""
        topics = self._topics
        self.due_at = now + self._config.metadata_max_age_ms / 1000
        try:
            counts = await self._cluster.persist("subscription", self._ask)
        except BaseException:
            self.due_at = min(self.due_at, now)
            raise
        if self._topics is not topics:  # there are others meanwhile
            return
        self._is_seen = True
        if counts.keys() < set(topics):  # some of them are missing
            self.due_at = min(self.due_at, now + self._config.retry_backoff_max_ms / 1000)
        if self._config.group_id is None:
            self._hands.read([TopicPartition(t, p) for t, n in counts.items() for p in range(n)])
        elif counts or self._member is not None:
            self._join().subscribe(counts)

    def _missing(self, what: str, error: ClientError) -> None:
        """A stream, or a partition of it, is not there any more."""
        if self._topics or self._pattern is not None:
            self.due_at = 0.0  # asking for partitions tells what is left
        else:
            self._reader.tell_once(what, error)

    def _join(self) -> GroupMember:
        if self._member is None:
            self._memberships += 1
            on_step = partial(self._step, self._memberships)
            self._member = GroupMember(self._config, self._connections(), on_step)
            self._member.busy(is_busy=False)
        return self._member

    def _step(self, membership: int, step: Step) -> None:
        if membership == self._memberships and self._member is not None:
            self._steps.append(step)
            self._reader.changed.set()

    async def _do(self, step: Step) -> None:
        if isinstance(step, Give):
            await self._give(step)
        elif isinstance(step, Get):
            self.identity = step.identity
            before = self._hands.assignment()
            self._hands.read(step.places)
            news = [place for place in step.places if place not in before]
            await self._listener.on_partitions_assigned(news)
        else:
            raise step.error

    async def _give(self, step: Give) -> None:
        self.identity = step.identity
        try:
            if step.is_lost or any(isinstance(each, Give) and each.is_lost for each in self._steps):
                await self._listener.on_partitions_lost(step.places)
            elif step.places:
                await self._hands.done(step.places)
                await self._listener.on_partitions_revoked(step.places)
        finally:  # the group waits, whatever a listener raises
            self._hands.read(self._hands.assignment() - set(step.places))
            if self._member is not None:
                self._member.gave(step.number)

    async def _ask(self) -> dict[str, int]:
        """Partitions of each stream that is subscribed to; the program hears of missing ones.

        Where streams are made when they are asked for, it is with the first question alone: one
        that is deleted is not brought back by who reads it.
        """
        if self._pattern is not None:
            return {
                topic.name: len(topic.partitions)
                for topic in await self._cluster.topics(None, create=False)
                if self._pattern.fullmatch(topic.name)
                and not (topic.is_internal or topic.error_code)
            }
        create = self._config.allow_auto_create_topics and not self._is_seen
        counts = {}
        for topic in await self._cluster.topics(self._topics, create=create):
            if topic.error_code:
                error = error_of(topic.error_code, f"stream {topic.name}")
                if error.retriable:
                    raise error
                self._reader.tell_once(topic.name, error)
            else:
                self._reader.found(topic.name)
                counts[topic.name] = len(topic.partitions)
        return counts

    async def close(self) -> None:
        """Leaves the group; what was handed out is committed by then."""
        if self._asking is not None:
            self._asking.cancel()
        if begun := [each for each in (self._asking, self._doing) if each is not None]:
            await asyncio.gather(*begun, return_exceptions=True)
        if self._member is not None:
            try:
                if places := sorted(self._hands.assignment()):
                    await self._listener.on_partitions_revoked(places)
            finally:
                await self._part()

    async def _part(self) -> None:
        member, self._member = self._member, None
        self._steps.clear()
        self.identity = ANYBODY
        if member is not None:
            await asyncio.shield(member.close())
