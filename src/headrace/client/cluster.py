"""Which broker to ask: bootstrap list, leaders, coordinators, and when to ask again.

Owns: connections by address, the metadata of streams in use, back-off, the deadline of a call.
Must not know: what a request means. Metadata is thrown away after any error that a retry can
mend; the next attempt asks anew.
"""

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from headrace.client.connection import Connection
from headrace.client.errors import ClientError, ConnectionLostError, DeadlineError, check
from headrace.client.login import Login
from headrace.model import Address
from headrace.wire.kafka.apis import FIND_COORDINATOR, METADATA, Api
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.groups import FindCoordinatorRequest
from headrace.wire.kafka.messages import MetadataRequest, MetadataRequestTopic, MetadataTopic

Q = TypeVar("Q")
R = TypeVar("R")
T = TypeVar("T")

BACKOFF_SECONDS_FIRST: Final = 0.05
"""Wait before the first retry: a leader change or a restart takes longer, a hiccup does not."""

BACKOFF_SECONDS_MAX: Final = 1.0
"""Longest wait between retries, so that a broker that is back is found within a second."""


class Cluster:
    """Connections to the brokers of one cluster, made when first needed. Not thread-safe."""

    __slots__ = (
        "_brokers",
        "_client_id",
        "_connections",
        "_leaders",
        "_login",
        "_request_timeout_s",
        "_servers",
        "_timeout_s",
    )

    def __init__(
        self,
        servers: list[Address],
        client_id: str,
        timeout_s: float,
        request_timeout_s: float,
        login: Login | None = None,
    ) -> None:
        self._servers = servers
        self._client_id = client_id
        self._login = login
        self._timeout_s = timeout_s
        self._request_timeout_s = request_timeout_s
        self._connections: dict[Address, Connection] = {}
        self._brokers: dict[int, Address] = {}
        self._leaders: dict[str, dict[int, Address]] = {}

    def persist(self, what: str, attempt: Callable[[], T]) -> T:
        """Calls `attempt` until it succeeds, fails for good, or the deadline passes.

        Raises:
            DeadlineError: only errors that a retry might mend, until the deadline.
            ClientError: an error that a retry cannot mend.
        """
        deadline = time.monotonic() + self._timeout_s
        backoff_s = BACKOFF_SECONDS_FIRST
        while True:
            try:
                return attempt()
            except ClientError as error:
                if not error.retriable:
                    raise
                self._leaders.clear()
                wait_s = backoff_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
                if time.monotonic() + wait_s > deadline:
                    raise DeadlineError(
                        f"{what}: gave up after {self._timeout_s:g} s: {error}"
                    ) from error
            time.sleep(wait_s)
            backoff_s = min(2 * backoff_s, BACKOFF_SECONDS_MAX)

    def ask(self, api: Api[Q, R], body: Q) -> R:
        """Asks any broker: one that is connected, else the first that is reached.

        Raises:
            ConnectionLostError: none is reached; each is named.
        """
        known = dict.fromkeys([*self._connections, *self._servers, *self._brokers.values()])
        failures = []
        for address in known:
            try:
                return self.ask_at(address, api, body)
            except ConnectionLostError as error:
                failures.append(str(error))
        raise ConnectionLostError("; ".join(failures))

    def ask_at(self, address: Address, api: Api[Q, R], body: Q, wait_s: float = 0.0) -> R:
        """Asks the broker at `address`, which may take `wait_s` longer than usual to answer."""
        connection = self._connections.get(address)
        if connection is None:
            connection = Connection(address, self._client_id, self._request_timeout_s, self._login)
            self._connections[address] = connection
        try:
            return connection.call(api, body, self._request_timeout_s + wait_s)
        except ConnectionLostError:
            del self._connections[address]
            raise

    def topics(self, names: list[str] | None) -> list[MetadataTopic]:
        """Metadata of the named streams, or of all; unknown ones carry their error."""
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = self.ask(METADATA, request)
        self._brokers = {b.node_id: Address(b.host, b.port) for b in answer.brokers}
        return answer.topics

    def leaders(self, stream: str) -> dict[int, Address]:
        """The broker that leads each partition, by partition, as the brokers say now.

        Raises:
            UnknownStreamError: there is no such stream.
            RequestError: a partition has no leader now; retriable.
        """
        (topic,) = self.topics([stream])
        check(topic.error_code, f"stream {stream}")
        leaders = {}
        for partition in sorted(topic.partitions, key=lambda p: p.partition_index):
            if partition.leader_id not in self._brokers:
                what = f"stream {stream}/{partition.partition_index}"
                check(ErrorCode.LEADER_NOT_AVAILABLE, what)
            leaders[partition.partition_index] = self._brokers[partition.leader_id]
        self._leaders[stream] = leaders
        return leaders

    def leader(self, stream: str, partition: int) -> Address:
        """The broker that leads a partition, as last heard.

        Raises:
            UnknownStreamError: there is no such stream or partition.
            RequestError: a partition has no leader now; retriable.
        """
        leaders = self._leaders.get(stream, {})
        if partition not in leaders:
            leaders = self.leaders(stream)
        if partition not in leaders:
            what = f"stream {stream}/{partition}"
            check(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
        return leaders[partition]

    def coordinator(self, group: str) -> Address:
        """The broker that keeps the offsets of `group`."""
        answer = self.ask(FIND_COORDINATOR, FindCoordinatorRequest(key=group))
        check(answer.error_code, f"group {group}")
        return Address(answer.host, answer.port)

    def close(self) -> None:
        """Ends every connection; the next call connects anew."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._leaders.clear()
