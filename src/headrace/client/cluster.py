"""Which broker to ask: bootstrap list, leaders, coordinators, and when to ask again.

Owns: connections by address, the metadata of streams in use, back-off, the deadline of a call.
Must not know: what a request means. Metadata is thrown away after any error that a retry can
mend; the next attempt asks anew.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, TypeVar

from headrace.client.connection import Connection
from headrace.client.errors import ClientError, ConnectionLostError, DeadlineError, check
from headrace.model import Address
from headrace.wire.kafka.apis import FIND_COORDINATOR, METADATA, Api
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.groups import FindCoordinatorRequest
from headrace.wire.kafka.messages import MetadataRequest, MetadataRequestTopic, MetadataTopic

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from headrace.client.config import ClientConfig

Q = TypeVar("Q")
R = TypeVar("R")
T = TypeVar("T")


class Cluster:
    """Connections to the brokers of one cluster, made when first needed. For one event loop.

    Args:
        config: of its client.

    Attributes:
        config: what it was told.
        timeout_s: deadline of a call with all its retries, in seconds.
        request_timeout_s: longest silence of a broker, in seconds.
    """

    __slots__ = (
        "_brokers", "_connecting", "_connections", "_coordinators", "_is_closed", "_leaders",
        "_servers", "config", "controller", "request_timeout_s", "timeout_s",
    )  # fmt: skip

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._servers = config.addresses
        self.timeout_s = config.default_api_timeout_ms / 1000
        self.request_timeout_s = min(config.request_timeout_ms / 1000, self.timeout_s)
        self._connections: dict[Address, Connection] = {}
        self._connecting: dict[Address, asyncio.Lock] = {}
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[str, dict[int, Address]] = {}
        self._coordinators: dict[str, Address] = {}
        self._is_closed = False
        self.controller: Address | None = None

    async def persist(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Calls `attempt` until it succeeds, fails for good, or the deadline passes.

        Raises:
            DeadlineError: only errors that a retry might mend, until the deadline.
            ClientError: an error that a retry cannot mend.
            RuntimeError: it was closed.
        """
        if self._is_closed:  # it would leave connections behind that nobody ends
            raise RuntimeError("the client was closed; make another one")
        now = asyncio.get_running_loop().time
        deadline = now() + self.timeout_s
        failures = 0
        while True:
            try:
                return await attempt()
            except ClientError as error:
                if not error.retriable:
                    raise
                self.forget()
                failures += 1
                wait_s = self.config.backoff_s(failures) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
                if now() + wait_s > deadline:
                    raise DeadlineError(
                        f"{what}: gave up after {self.timeout_s:g} s: {error}"
                    ) from error
            await asyncio.sleep(wait_s)

    def forget(self) -> None:
        """Has leaders and coordinators asked for anew."""
        self._leaders.clear()
        self._coordinators.clear()
        self.controller = None

    async def connection(self, address: Address) -> Connection:
        """The connection to the broker at `address`, made where there is none that is open.

        Raises:
            ConnectionLostError: the broker is not reached.
            RequestError: it does not let the client in.
        """
        lock = self._connecting.setdefault(address, asyncio.Lock())
        async with lock:
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                config = self.config
                connection = await Connection.open(
                    address,
                    config.client_id,
                    self.request_timeout_s,
                    config.login,
                    config.ssl_context,
                )
                self._connections[address] = connection
            return connection

    def ready(self, address: Address) -> Connection | None:
        """The connection to the broker at `address`, where there is one that is open."""
        connection = self._connections.get(address)
        return connection if connection is not None and connection.is_open else None

    @property
    def connected(self) -> set[Address]:
        """Brokers that there is an open connection to."""
        return {address for address in self._connections if self.ready(address)}

    async def ask(self, api: Api[Q, R], body: Q) -> R:
        """Asks any broker: one that is connected, else the first that is reached.

        Raises:
            ConnectionLostError: none is reached; each is named.
        """
        known = dict.fromkeys([*self.connected, *self._servers, *self._brokers.values()])
        failures = []
        for address in known:
            try:
                return await self.ask_at(address, api, body)
            except ConnectionLostError as error:
                failures.append(str(error))
        raise ConnectionLostError("; ".join(failures))

    async def ask_at(self, address: Address, api: Api[Q, R], body: Q, wait_s: float = 0.0) -> R:
        """Asks the broker at `address`, which may take `wait_s` longer than usual to answer."""
        connection = await self.connection(address)
        return await connection.call(api, body, self.request_timeout_s + wait_s)

    async def topics(self, names: Iterable[str] | None, *, create: bool) -> list[MetadataTopic]:
        """Metadata of the named streams, or of all; unknown ones carry their error.

        Args:
            names: None asks for all.
            create: whether the brokers may create those that are missing, where they do so.
        """
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        answer = await self.ask(METADATA, request)
        self._brokers = {b.node_id: Address(b.host, b.port) for b in answer.brokers}
        self.controller = self._brokers.get(answer.controller_id)
        return answer.topics

    def led(self, topic: MetadataTopic) -> dict[int, Address | None]:
        """The broker that leads each partition, in their order; None where there is none now."""
        parts = sorted(topic.partitions, key=lambda each: each.partition_index)
        return {each.partition_index: self._brokers.get(each.leader_id) for each in parts}

    async def leaders(self, stream: str) -> dict[int, Address]:
        """The broker that leads each partition, by partition, as the brokers say now.

        Raises:
            UnknownStreamError: there is no such stream.
            RequestError: a partition has no leader now; retriable.
        """
        (topic,) = await self.topics([stream], create=False)
        check(topic.error_code, f"stream {stream}")
        leaders = {}
        for partition, leader in self.led(topic).items():
            if leader is None:
                check(ErrorCode.LEADER_NOT_AVAILABLE, f"stream {stream}/{partition}")
            else:
                leaders[partition] = leader
        self._leaders[stream] = leaders
        return leaders

    async def leaders_of(self, stream: str, partitions: Collection[int]) -> dict[int, Address]:
        """The broker that leads each partition, as last heard where these were among them.

        Raises:
            UnknownStreamError: there is no such stream.
            RequestError: a partition has no leader now; retriable.
        """
        known = self._leaders.get(stream, {})
        return known if known.keys() >= set(partitions) else await self.leaders(stream)

    async def leader(self, stream: str, partition: int) -> Address:
        """The broker that leads a partition, as last heard.

        Raises:
            UnknownStreamError: there is no such stream or partition.
            RequestError: a partition has no leader now; retriable.
        """
        leaders = await self.leaders_of(stream, {partition})
        if partition not in leaders:
            what = f"stream {stream}/{partition}"
            check(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
        return leaders[partition]

    async def coordinator(self, group: str) -> Address:
        """The broker that keeps members and offsets of `group`, as last heard.

        It is asked for anew after an error that a retry can mend: it may be another one then.
        """
        if group not in self._coordinators:
            answer = await self.ask(FIND_COORDINATOR, FindCoordinatorRequest(key=group))
            check(answer.error_code, f"group {group}")
            self._coordinators[group] = Address(answer.host, answer.port)
        return self._coordinators[group]

    async def find_controller(self) -> Address:
        """The broker that changes streams.

        Raises:
            RequestError: nobody is at present; retriable.
        """
        if self.controller is None:
            await self.topics([], create=False)
        if self.controller is None:
            check(ErrorCode.NOT_CONTROLLER, "the cluster has no controller now")
        assert self.controller is not None
        return self.controller

    async def all_brokers(self) -> list[Address]:
        """Every broker that is alive, as one of them says.

        Raises:
            ConnectionLostError: none is reached.
        """
        await self.topics([], create=False)
        return list(self._brokers.values())

    async def close(self) -> None:
        """Ends every connection; `persist` begins nothing any more."""
        self._is_closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        self.forget()
        await asyncio.gather(*(each.close() for each in connections))
