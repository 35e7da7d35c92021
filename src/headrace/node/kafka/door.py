"""What all Kafka connections share, and which module answers which request.

Owns the table of requests, the counters, and what batches on their way to the disk hold. Must not
know how anything is answered.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace import limits
from headrace.kernel.groups.events import GroupSettings
from headrace.kernel.holdings import Holdings
from headrace.kernel.quotas import Quota, Quotas, Rate
from headrace.node.kafka import (
    acls,
    cluster,
    configs,
    fetch,
    groups,
    guard,
    members,
    offsets,
    operations,
    produce,
    producers,
    records,
    sasl,
    topics,
)
from headrace.node.kafka.administration import GroupAdministration
from headrace.node.kafka.connection import KafkaConnection
from headrace.node.kafka.coordinator import Coordinator
from headrace.node.kafka.memory import Memory
from headrace.node.turns import Turns
from headrace.ports import Sample
from headrace.wire.kafka import apis
from headrace.wire.kafka.errors import ErrorCode
from headrace.wire.kafka.messages import ApiVersionRange, ApiVersionsResponse

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterator

    from headrace.model import Address
    from headrace.node.access import Gate
    from headrace.node.broker import Broker
    from headrace.ports import Link
    from headrace.wire.kafka.frames import Request

    Handler = Callable[["KafkaDoor", KafkaConnection, Request], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The table `[kafka]` of the configuration, as far as the door needs it.

    Attributes:
        advertised: the address that metadata names; None names the one that the client reached.
        tls_advertised: the same for clients that came over TLS.
        auto_create_streams: whether metadata requests may create a stream.
        num_partitions: of a stream that is created without a number.
        idle_ms: how long a connection may send nothing.
        undurable_bytes: `limits.undurable_bytes`.
        groups: what holds for consumer groups.
        quotas: how much clients may ask for in a second.
        cluster_id: what clients are told of the cluster: the node's name.
        log_dir: what admin clients are told of the data folder: its path.
    """

    advertised: Address | None = None
    tls_advertised: Address | None = None
    auto_create_streams: bool = True
    num_partitions: int = 1
    idle_ms: int = limits.KAFKA_IDLE_MS
    undurable_bytes: int = limits.UNDURABLE_BYTES_MAX
    groups: GroupSettings = field(default_factory=GroupSettings)
    quotas: tuple[Quota, ...] = ()
    cluster_id: str = "headrace"
    log_dir: str = ""


class KafkaDoor:
    """Takes Kafka connections in (`ports.Door`).

    Attributes:
        broker: the node's streams.
        gate: who is let in.
        settings: the node's settings.
        coordinator: consumer groups, and what they have committed.
        groups: the same, for operators.
        producers: draws producer ids.
        checkers: threads that check large batches.
        scribe: the thread that reads large requests and writes large answers.
        memory: what requests of all connections hold.
        beginnings: turns of requests that come behind others.
        undurable_bytes: batches that wait for the disk, whether or not a client waits for them.
        waiting: connections that begin nothing before some of these are durable.
        unread: responses that transports hold.
        hung_up: connections that the door ended, by reason.
        requests: answered or in work, by name.
        denied: streams and groups that a client might not use, by request and reason.
        quotas: how much each client has asked for.
    """

    def __init__(self, broker: Broker, settings: KafkaSettings, gate: Gate) -> None:
        self.broker = broker
        self.gate = gate
        self.settings = settings
        self.coordinator = Coordinator(broker, settings.groups)
        self.groups = GroupAdministration(broker, self.coordinator)
        self.producers = producers.ProducerIds(broker)
        self.checkers = ThreadPoolExecutor(limits.CHECKERS, "records")
        self.scribe = ThreadPoolExecutor(1, "requests")  # in Python, so a second gains nothing
        self.memory = Memory()
        self.beginnings = Turns(limits.KAFKA_TURNS_AT_ONCE)
        self.undurable_bytes = 0
        self.waiting: set[KafkaConnection] = set()
        self.unread: Holdings[KafkaConnection] = Holdings(limits.KAFKA_UNREAD_BYTES_MAX)
        self.hung_up: Counter[str] = Counter()
        self.requests: Counter[str] = Counter()
        self.denied: Counter[tuple[str, str]] = Counter()
        self.quotas = Quotas(settings.quotas)
        self._throttled: Counter[Rate] = Counter()
        self._throttled_ms: Counter[Rate] = Counter()

    @classmethod
    async def open(cls, broker: Broker, settings: KafkaSettings, gate: Gate) -> KafkaDoor:
        """A door that knows what groups had committed before the node stopped."""
        door = cls(broker, settings, gate)
        await door.coordinator.open()
        return door

    def configure(self, settings: KafkaSettings) -> None:
        """Other settings hold from now on."""
        self.settings = settings
        self.coordinator.configure(settings.groups)
        self.quotas.configure(settings.quotas)

    def __call__(self, link: Link) -> KafkaConnection:
        """Takes a new connection in."""
        return KafkaConnection(self, link)

    def address(self, connection: KafkaConnection) -> Address:
        """Where the client of `connection` is told to find this node."""
        settings = self.settings
        told = settings.tls_advertised if connection.secure else settings.advertised
        return told or connection.local

    @property
    def elements_max(self) -> int:
        """Array elements that a request may have: enough for all streams and partitions."""
        return max(limits.KAFKA_REQUEST_ELEMENTS_MAX, 2 * self.broker.catalog.partitions_max)

    @property
    def congested(self) -> bool:
        """Whether too much waits for the disk to begin anything new."""
        return self.undurable_bytes >= self.settings.undurable_bytes

    def charge(self, connection: KafkaConnection, request: Request, rate: Rate, amount: int) -> int:
        """For how many milliseconds a connection must not be read, after this much.

        What nobody asks who is known is nobody's: it would hold up those who log in.
        """
        if not self.settings.quotas or guard.is_nobody(self.gate, connection, request):
            return 0
        user = connection.proof.username or connection.identity or ""
        now_ms = self.broker.clock.mono_ms()
        throttle_ms = self.quotas.charge(user, request.client_id or "", rate, amount, now_ms)
        if throttle_ms:
            self._throttled[rate] += 1
            self._throttled_ms[rate] += throttle_ms
        return throttle_ms

    def owed(self, connection: KafkaConnection, request: Request) -> int:
        """For how many milliseconds a request must wait for what its quota gave before.

        Else whoever took a new connection for each request would never wait. Only those that move
        bytes do: a heartbeat does not wait for what a consumer has fetched.
        """
        rate = MOVED.get(request.api.key)
        return 0 if rate is None else self.charge(connection, request, rate, 0)

    def appended(self, size_bytes: int, future: asyncio.Future[int]) -> None:
        """Counts a batch until it is durable or lost: its client may have left by then."""
        self.undurable_bytes += size_bytes
        future.add_done_callback(partial(self._ended, size_bytes))

    def _ended(self, size_bytes: int, future: asyncio.Future[int]) -> None:
        future.exception()  # maybe nobody waits for it any more
        self.undurable_bytes -= size_bytes
        if not self.congested:
            waiting, self.waiting = self.waiting, set()
            for connection in waiting:
                connection.advance()

    async def answer(self, connection: KafkaConnection, request: Request) -> object:
        """The body of the response; None where the client expects none.

        Raises:
            HangUp: the connection must end.
        """
        self.requests[request.api.name] += 1
        handler = HANDLERS[request.api.key]
        by = guard.caller(self.gate, connection, request)
        if by is None:
            body = await handler(self, connection, request)
            await operations.tell(self.gate, by, request, body)
            return body
        refusal = guard.refusal(self.gate, by, request)
        if refusal is not None:
            self.denied[request.api.name, "node" if request.api in guard.OF_NODE else "group"] += 1
            return refusal
        allowed, refused = await guard.narrowed(self.gate, by, request)
        if refused:
            what = "group" if request.api in guard.GROUP_LISTS else "topic"
            self.denied[request.api.name, what] += len(refused)
        body = await handler(self, connection, allowed)
        answer = await guard.widened(self.gate, by, request, body, refused)
        await operations.tell(self.gate, by, request, answer)
        return answer

    def samples(self) -> Iterator[Sample]:
        """Counters and gauges of the door."""
        for name, count in self.requests.items():
            yield Sample("kafka_requests_total", count, "Kafka requests.", (("request", name),))
        for (name, reason), count in self.denied.items():
            what = (("request", name), ("reason", reason))
            yield Sample("kafka_denied_total", count, "Named and not allowed to its user.", what)
        for reason, count in self.hung_up.items():
            why = (("reason", reason),)
            yield Sample("kafka_closed_total", count, "Connections ended by the node.", why)
        yield Sample(
            "kafka_held_bytes", self.memory.held_bytes, "Bytes of requests unfinished or in work."
        )
        yield Sample(
            "kafka_unread_bytes",
            self.unread.total_bytes,
            "Bytes of responses to clients that do not read them as fast as they come.",
        )
        yield Sample(
            "kafka_undurable_bytes",
            self.undurable_bytes,
            "Bytes of batches that wait for the disk.",
        )
        for rate in Rate:
            of_rate = (("reason", str(rate)),)
            yield Sample(
                "kafka_throttled_total", self._throttled[rate], "Requests beyond a quota.", of_rate
            )
            yield Sample(
                "kafka_throttled_seconds_total",
                self._throttled_ms[rate] / 1000,
                "Time for which connections beyond a quota were not read.",
                of_rate,
            )
        yield from self.coordinator.samples()
        yield from self.groups.samples()


async def _api_versions(_: KafkaDoor, __: KafkaConnection, request: Request) -> ApiVersionsResponse:
    known = request.body is not None
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[
            ApiVersionRange(api_key=api.key, min_version=api.first, max_version=api.last)
            for api in apis.APIS.values()
        ],
    )


MOVED: Final = {apis.PRODUCE.key: Rate.PRODUCED, apis.FETCH.key: Rate.FETCHED}
"""Requests that move bytes, and the rate that bounds them."""

HANDLERS: Final[dict[int, Handler]] = {
    apis.PRODUCE.key: produce.produce,
    apis.FETCH.key: fetch.fetch,
    apis.LIST_OFFSETS.key: offsets.list_offsets,
    apis.METADATA.key: topics.metadata,
    apis.OFFSET_COMMIT.key: groups.commit,
    apis.OFFSET_FETCH.key: groups.fetch,
    apis.OFFSET_DELETE.key: groups.delete,
    apis.JOIN_GROUP.key: members.join,
    apis.SYNC_GROUP.key: members.sync,
    apis.HEARTBEAT.key: members.heartbeat,
    apis.LEAVE_GROUP.key: members.leave,
    apis.LIST_GROUPS.key: members.list_all,
    apis.DESCRIBE_GROUPS.key: members.describe,
    apis.DELETE_GROUPS.key: members.delete,
    apis.FIND_COORDINATOR.key: groups.find_coordinator,
    apis.API_VERSIONS.key: _api_versions,
    apis.SASL_HANDSHAKE.key: sasl.handshake,
    apis.SASL_AUTHENTICATE.key: sasl.authenticate,
    apis.OFFSET_FOR_LEADER_EPOCH.key: offsets.for_leader_epoch,
    apis.CREATE_TOPICS.key: topics.create,
    apis.CREATE_PARTITIONS.key: topics.create_partitions,
    apis.DELETE_TOPICS.key: topics.delete,
    apis.DELETE_RECORDS.key: records.delete,
    apis.INIT_PRODUCER_ID.key: producers.init_producer_id,
    apis.DESCRIBE_CLUSTER.key: cluster.describe,
    apis.DESCRIBE_LOG_DIRS.key: cluster.log_dirs,
    apis.DESCRIBE_ACLS.key: acls.describe,
    apis.CREATE_ACLS.key: acls.create,
    apis.DELETE_ACLS.key: acls.delete,
    apis.DESCRIBE_CONFIGS.key: configs.describe,
    apis.ALTER_CONFIGS.key: configs.alter,
    apis.INCREMENTAL_ALTER_CONFIGS.key: configs.alter_incrementally,
}

assert HANDLERS.keys() == apis.APIS.keys(), "every request that is advertised is answered"
