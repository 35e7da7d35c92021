"""Appends batches to streams, blocking, under a producer's own sequence numbers.

Owns: the requests that a writer needs whose batches are numbered by itself, as a Spark task's are:
whoever repeats the task goes on with its numbers. Must not know: what is in a batch, or what
follows from a refusal.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from headrace.client.errors import check, error_of
from headrace.client.fetch import FetchClient
from headrace.client.offsets import commit, committed, forget
from headrace.client.records import OffsetAndMetadata, TopicPartition
from headrace.client.sender import NO_ID
from headrace.wire.kafka.apis import INIT_PRODUCER_ID, PRODUCE
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import (
    InitProducerIdRequest,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model import Address

_SEQUENCE: Final = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
}
"""Who has the same producer id has written since."""

ACKS_ALL: Final = -1


class AppendClient(FetchClient):
    """A blocking writer of batches that are numbered by who calls. Not thread-safe."""

    __slots__ = ()

    def producer_id(self) -> int:
        """A producer id that nobody has.

        Raises:
            ClientError: the brokers are not reached, or have none to give.
        """

        async def attempt() -> int:
            answer = await self._cluster.ask(INIT_PRODUCER_ID, InitProducerIdRequest())
            has_none = answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            check(answer.error_code, "producer id", NO_ID if has_none else None)
            return answer.producer_id

        return self._persist("producer id", attempt)

    def append(self, stream: str, batches: Mapping[int, bytes]) -> dict[int, int | None]:
        """Appends a batch to each of these partitions; on return it is durable or refused.

        A batch that the broker may or may not have taken is sent again as it is: its sequence
        tells.

        Returns:
            Where each stands; None where its sequence is not the next one, or its epoch is over.

        Raises:
            RequestError: a batch is refused for another reason than its sequence.
            ClientError: the brokers are not reached.
        """
        done: dict[int, int | None] = {}

        async def attempt() -> dict[int, int | None]:
            left = {place: batch for place, batch in batches.items() if place not in done}
            leaders = await self._cluster.leaders_of(stream, left)
            by_leader: defaultdict[Address | None, dict[int, bytes]] = defaultdict(dict)
            for place, batch in left.items():
                by_leader[leaders.get(place)][place] = batch
            for leader, mine in by_leader.items():
                if leader is None:
                    raise error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"append to {stream}")
                await self._append(leader, stream, mine, done)
            return done

        return self._persist(f"append to {stream}", attempt)

    async def _append(
        self,
        leader: Address,
        stream: str,
        batches: Mapping[int, bytes],
        done: dict[int, int | None],
    ) -> None:
        parts = [ProducePartition(index=at, records=batch) for at, batch in batches.items()]
        request = ProduceRequest(
            acks=ACKS_ALL,
            timeout_ms=self._cluster.config.request_timeout_ms,
            topics=[ProduceTopic(name=stream, partitions=parts)],
        )
        response: Any = await self._cluster.ask_at(leader, PRODUCE, request)
        errors = []
        for topic in response.topics:
            for each in topic.partitions:
                code = ErrorCode.of(each.error_code)
                if code in _SEQUENCE:
                    done[each.index] = None
                elif code:
                    why = f"append to {topic.name}/{each.index}"
                    errors.append(
                        error_of(each.error_code, why, _reason(code, batches[each.index]))
                    )
                else:
                    done[each.index] = each.base_offset
        if errors:  # one that a retry cannot mend, first
            raise min(errors, key=lambda error: error.retriable)

    def keep(self, group: str, offsets: Mapping[tuple[str, int], tuple[int, str]]) -> None:
        """Keeps an offset and a text of each place, durably, in a group without members.

        Raises:
            RequestError: a partition was refused.
            ClientError: the brokers are not reached.
        """
        wanted = {TopicPartition(*at): OffsetAndMetadata(*kept) for at, kept in offsets.items()}
        self._persist(f"offsets of {group}", lambda: commit(self._cluster, group, wanted))

    def kept(self, group: str, stream: str) -> dict[int, tuple[int, str]]:
        """What `keep` has kept in `group` of the partitions of `stream`.

        Raises:
            ClientError: the brokers are not reached, or refuse.
        """
        found = self._persist(f"offsets of {group}", lambda: committed(self._cluster, group))
        return {
            place.partition: (each.offset, each.metadata)
            for place, each in found.items()
            if place.topic == stream
        }

    def forget(self, group: str) -> None:
        """Deletes what was kept in a group without members, and with that the group.

        Raises:
            RequestError: it has members, or an offset stays.
            ClientError: the brokers are not reached.
        """

        async def attempt() -> None:
            await forget(self._cluster, group, await committed(self._cluster, group))

        self._persist(f"offsets of {group}", attempt)


def _reason(code: ErrorCode, batch: bytes) -> str | None:
    if code == ErrorCode.MESSAGE_TOO_LARGE:
        return (
            f"a batch of {len(batch)} bytes is beyond max.message.bytes of the stream; raise that"
        )
    return None
