"""RabbitMQ: quorum queues by AMQP 0-9-1 with pika."""

import contextlib
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from broker import (
    DEADLINE_SECONDS,
    NO_WISH,
    PLAIN,
    CannotBeAskedError,
    Delivery,
    RefusedError,
    Terms,
    Wish,
    await_true,
    need,
)

from headrace.adapters.children import unused
from headrace.bench.suite.peers import rabbitmq as peer
from headrace.bench.suite.peers.process import Child

need(peer.RabbitMq(), "pika", "pika")

import pika  # noqa: E402 - it may not be there
import pika.exceptions  # noqa: E402

PRIORITIES = 10
NOTHING = None, None, None


def told_of(headers: dict) -> dict[str, str]:
    """The last death (`x-death`)."""
    deaths = headers.get("x-death") or []
    if not deaths:
        return {}
    told = {name: str(deaths[0][name]) for name in ("reason", "queue", "exchange", "count")}
    return told | {"routing-keys": ",".join(deaths[0]["routing-keys"])}


def connected(port: int) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0))


class Worker:
    """A consumer on a connection of its own."""

    def __init__(self, port: int, queue: str, prefetch: int) -> None:
        self._port, self._queue, self._prefetch, self.closed = port, queue, prefetch, False
        await_true(self._has_leader, f"{queue} has no leader")

    def _has_leader(self) -> bool:
        """Consumes; a queue that was recovered a moment ago may have nobody to answer that."""
        self._connection = connected(self._port)
        self._open()
        try:
            self._first = next(self._channel.consume(self._queue, inactivity_timeout=0.01))
        except pika.exceptions.ConnectionClosedByBroker:
            return False
        return True

    def _open(self) -> None:
        self._channel = self._connection.channel()
        self._channel.basic_qos(prefetch_count=self._prefetch)

    def receive(self, seconds: float) -> Delivery | None:
        (method, properties, body), self._first = self._first, NOTHING
        if method is None:
            try:
                method, properties, body = next(
                    self._channel.consume(self._queue, inactivity_timeout=seconds)
                )
            except pika.exceptions.ChannelClosedByBroker:  # it was too late with something
                self._open()
                self.closed = True
                return self.receive(seconds)
        if method is None:
            return None
        headers = properties.headers or {}
        count = headers.get("x-delivery-count")
        told = told_of(headers)
        return Delivery(
            body.decode(), None if count is None else str(count), told, method.delivery_tag
        )

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        for each in deliveries:
            self._channel.basic_ack(each.handle)
        # An acknowledgement has no answer; what follows it on its channel does.
        self._channel.queue_declare(self._queue, passive=True)

    def nack(self, delivery: Delivery, delay: float | None = None) -> None:
        if delay is not None:
            raise CannotBeAskedError("basic.nack with requeue has no delay")
        self._channel.basic_nack(delivery.handle, requeue=True)

    def reject(self, delivery: Delivery) -> None:
        self._channel.basic_reject(delivery.handle, requeue=False)

    def close(self) -> None:
        with contextlib.suppress(pika.exceptions.AMQPError):
            self._connection.close()


class RabbitMq:
    """A node, with an epmd of its own."""

    name = "RabbitMQ"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._amqp, self._mqtt = unused(2)
        self.mqtt = self._mqtt.port
        self._servers: tuple[Child, ...] = ()
        self._deadline = DEADLINE_SECONDS

    def start(self) -> None:
        if not self._servers:
            self._servers = self._made()
            self._servers[0].start()
        self._servers[1].start()
        self._connect()

    def _made(self) -> tuple[Child, Child]:
        ms = round(self._deadline * 1000)
        # How often it looks for consumers that are late.
        ticks = f"[{{rabbit, [{{channel_tick_interval, {min(ms, 60_000)}}}]}}].\n"
        (self._folder / "advanced.config").write_text(ticks)
        settings = {"consumer_timeout": str(ms)}
        return peer.nodes(self._folder, settings, self._amqp, self._mqtt)

    def _connect(self) -> None:
        def connects() -> bool:
            with contextlib.suppress(pika.exceptions.AMQPError, OSError):
                self._connection = connected(self._amqp.port)
                return True
            return False

        await_true(connects, "no connection")
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()

    def kill(self) -> None:
        self._servers[1].end(signal.SIGKILL)

    def stop(self) -> None:
        for each in reversed(self._servers):
            each.end()
        self._servers = ()

    def version(self) -> str:
        return str(self._connection._impl.server_properties["version"])  # noqa: SLF001

    @contextlib.contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        """It is a setting of the node."""
        before = self._deadline
        for self._deadline in (seconds, before):
            self.stop()
            self.start()
            if self._deadline == seconds:
                yield

    def make(self, queue: str, terms: Terms = PLAIN) -> None:
        if terms.order == "key":
            raise CannotBeAskedError(
                "order is of a queue: consistent-hash exchange over queues with a single active"
                " consumer"
            )
        kind = "classic" if terms.priorities else "quorum"
        arguments: dict[str, object] = {
            "x-queue-type": kind,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": f"{queue}.dlq",
        }
        if terms.priorities:
            arguments["x-max-priority"] = PRIORITIES
        if terms.attempts is not None:
            # Redeliveries, so one less.
            arguments["x-delivery-limit"] = terms.attempts - 1
        if terms.order == "strict":
            arguments["x-single-active-consumer"] = True
        if terms.ttl is not None:
            arguments["x-message-ttl"] = round(terms.ttl * 1000)
        if terms.bound is not None:
            arguments |= {"x-max-length": terms.bound, "x-overflow": "reject-publish"}
        quorum = {"x-queue-type": "quorum"}
        self._channel.queue_declare(f"{queue}.dlq", durable=True, arguments=quorum)
        self._channel.queue_declare(queue, durable=True, arguments=arguments)

    def put(self, queue: str, bodies: Sequence[str], wish: Wish = NO_WISH) -> None:
        if wish.delay is not None:
            raise CannotBeAskedError(
                "the delayed message exchange is a plug-in that the package does not have; a queue"
                " with a TTL whose dead letters come back has one delay for all"
            )
        if wish.dedup is not None:
            raise CannotBeAskedError("deduplication is of streams, by named producers")
        properties = pika.BasicProperties(delivery_mode=2, priority=wish.priority)
        for body in bodies:
            try:
                self._channel.basic_publish("", queue, body.encode(), properties)
            except pika.exceptions.NackError:
                raise RefusedError("basic.nack") from None

    def consume(self, queue: str, prefetch: int = 10) -> Worker:
        return Worker(self._amqp.port, queue, prefetch)

    def letters(self, queue: str) -> Worker:
        return Worker(self._amqp.port, f"{queue}.dlq", 10)

    def take_one(self, queue: str) -> Delivery | None:
        method, _, body = self._channel.basic_get(queue)
        return None if method is None else Delivery(body.decode(), None)

    def mqtt_places(self, queue: str) -> tuple[str, str]:
        return f"work/{queue}", f"work/{queue}"
