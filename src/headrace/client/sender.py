"""The moving part of a producer: connections that records leave by, and what must be asked for it.

Owns: requests under way, when leaders are asked for again, futures of records once their fate is
known. Moves what the accumulator says and tells it what came of it. Must not know which batch a
record is in, or what follows from an error. Lives in one event loop.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.client.deliveries import Deliveries
from headrace.client.errors import ClientError, ConnectionLostError, check
from headrace.client.lanes import Stored
from headrace.client.pump import Pump, now_s
from headrace.wire.kafka.apis import INIT_PRODUCER_ID, PRODUCE
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import (
    InitProducerIdRequest,
    ProducePartition,
    ProduceRequest,
    ProduceTopic,
)

if TYPE_CHECKING:
    from headrace.client.accumulator import Accumulator
    from headrace.client.cluster import Cluster
    from headrace.client.config import ProducerConfig
    from headrace.client.connection import Connection
    from headrace.client.lanes import Batch, Outcome, Request
    from headrace.model import Address


NO_ID: Final = (
    "the broker can give out none now, as while its disk is nearly full; a headrace node says why "
    "at /ready"
)
"""What the code means that brokers answer where they have no producer id left to give."""


class Sender:
    """Empties an accumulator.

    Args:
        config: of the producer.
        accumulator: what is to be sent.
        cluster: connections.

    Attributes:
        pump: what keeps it moving.
    """

    def __init__(self, config: ProducerConfig, accumulator: Accumulator, cluster: Cluster) -> None:
        self._config = config
        self._accumulator = accumulator
        self._cluster = cluster
        self._refresh: asyncio.TimerHandle | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self.pump = Pump(self._turn)

    def start(self) -> None:
        """Begins, in the running loop."""
        self.pump.start()
        self._refresh_later()

    async def close(self) -> None:
        """Ends what is under way; what is not stored has failed."""
        if self._refresh is not None:
            self._refresh.cancel()
        await self.pump.close()
        self.settle(self._accumulator.give_up(_closed()))

    def _turn(self, now: float) -> float | None:
        self.settle(self._accumulator.expire(now))
        drained = self._accumulator.drain(now, self._cluster.connected)
        for request in drained.requests:
            self._send(request, now)
        for address in drained.connect:
            self.pump.begin_alone(address, partial(self._connect, address))
        if self._accumulator.wanted:
            self.pump.begin_alone("leaders", self._learn)
        if self._accumulator.wants_producer:
            self.pump.begin_alone("producer id", self._reidentify)
        return drained.wake_at

    # --- sending --------------------------------------------------------------------------------

    def _send(self, request: Request, now: float) -> None:
        connection = self._cluster.ready(request.address)
        body = self._body(request)
        try:
            if connection is None:
                raise ConnectionLostError(f"{request.address} hung up")
            if self._config.required_acks == 0:
                connection.tell(PRODUCE, body)
                self.settle(self._accumulator.sent(request))
            else:
                answer = connection.send(PRODUCE, body)
                self.pump.begin(self._answer(request, connection, answer))
        except ClientError as error:
            self.settle(self._accumulator.lost(request, error, now))

    def _body(self, request: Request) -> ProduceRequest:
        topics: dict[str, list[ProducePartition]] = {}
        for batch in request.batches:
            part = ProducePartition(
                index=batch.lane.partition, records=batch.encoded(self._config.compression_type)
            )
            topics.setdefault(batch.lane.stream, []).append(part)
        return ProduceRequest(
            acks=self._config.required_acks,
            timeout_ms=self._config.request_timeout_ms,
            topics=[ProduceTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )

    async def _answer(
        self, request: Request, connection: Connection, answer: asyncio.Future[Any]
    ) -> None:
        try:
            response = await connection.within(
                self._config.request_timeout_ms / 1000, PRODUCE, answer
            )
        except ClientError as error:
            self.settle(self._accumulator.lost(request, error, now_s()))
            return
        except asyncio.CancelledError:  # of a close that does not wait; it fails what comes back
            self.settle(self._accumulator.lost(request, _closed(), now_s()))
            raise
        answers = {
            (topic.name, each.index): each for topic in response.topics for each in topic.partitions
        }
        self.settle(self._accumulator.answered(request, answers, now_s()))

    async def _connect(self, address: Address) -> None:
        try:
            await self._cluster.connection(address)
        except ClientError as error:
            if error.retriable:
                self._accumulator.unreached(address, now_s())
            else:
                self.settle(self._accumulator.give_up(error))

    # --- asking ---------------------------------------------------------------------------------

    async def _learn(self) -> None:
        """Asks for the partitions of streams until all that are wanted are known."""
        asked = 0
        while self._accumulator.wanted:
            await asyncio.sleep(self._config.backoff_s(asked) if asked else 0)
            asked += 1
            wanted = list(self._accumulator.wanted)
            try:
                found = await self._cluster.topics(wanted, create=True)
            except ClientError as error:
                if not error.retriable:
                    self.settle(self._accumulator.give_up(error))
                continue
            for topic in found:
                if topic.error_code:
                    self.settle(self._accumulator.unknown(topic.name, topic.error_code))
                else:
                    leaders = list(self._cluster.led(topic).values())
                    self.settle(self._accumulator.learn(topic.name, leaders))
            self.pump.soon()

    async def _reidentify(self) -> None:
        asked = 0
        while self._accumulator.wants_producer:
            await asyncio.sleep(self._config.backoff_s(asked) if asked else 0)
            asked += 1
            try:
                await self.identify()
            except ClientError as error:
                if not error.retriable:
                    self.settle(self._accumulator.give_up(error))
                    return

    async def identify(self) -> None:
        """Gets a producer id.

        Raises:
            ClientError: no broker is reached, or it refuses.
        """
        answer = await self._cluster.ask(INIT_PRODUCER_ID, InitProducerIdRequest())
        has_none = answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        check(answer.error_code, "producer id", NO_ID if has_none else None)
        self._accumulator.identify(answer.producer_id, answer.producer_epoch)

    def _refresh_later(self) -> None:
        delay_s = self._config.metadata_max_age_ms / 1000
        self._refresh = asyncio.get_running_loop().call_later(delay_s, self._refresh_now)

    def _refresh_now(self) -> None:
        self._accumulator.wanted.update(self._accumulator.streams)
        self.pump.soon()
        self._refresh_later()

    # --- telling --------------------------------------------------------------------------------

    def settle(self, outcomes: list[Outcome]) -> None:
        """Tells who waits for records what came of them."""
        for outcome in outcomes:
            if isinstance(outcome, Stored):
                _deliveries(outcome.batch).stored(outcome)
            elif outcome.batch is not None:
                _deliveries(outcome.batch).failed(outcome.error)
            else:
                for future in outcome.waiters:
                    if not future.done():
                        future.set_exception(outcome.error)
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(None)
        self._waiting.clear()

    async def change(self) -> None:
        """Waits until something has come back."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        await waiting


def _closed() -> ClientError:
    return ConnectionLostError("the producer was closed")


def _deliveries(batch: Batch) -> Deliveries:
    assert isinstance(batch.waiters, Deliveries)
    return batch.waiters
