"""NATS JetStream: a stream of retention `workqueue` with a pull consumer, with nats-py."""

import asyncio
import contextlib
import json
import signal
import threading
import time
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from broker import (
    DEADLINE_SECONDS,
    NO_WISH,
    PLAIN,
    START_SECONDS,
    CannotBeAskedError,
    Delivery,
    RefusedError,
    Terms,
    Wish,
    need,
)

from headrace.adapters.children import unused
from headrace.bench.suite.peers import nats as peer
from headrace.bench.suite.peers.peer import Mode

need(peer.Nats(), "nats-py", "nats")

import nats  # noqa: E402 - it may not be there
import nats.errors  # noqa: E402
from nats.aio.msg import Msg  # noqa: E402
from nats.js.api import (  # noqa: E402
    AckPolicy,
    ConsumerConfig,
    DiscardPolicy,
    RetentionPolicy,
    StorageType,
    StreamConfig,
)
from nats.js.errors import APIError, NoStreamResponseError  # noqa: E402

DURABLE = "workers"
PULL_SECONDS = 0.5
ADVICE_SECONDS = 3
ADVISORIES = ("max_deliver", "terminated")
"""Those that tell of a message that is given up."""


async def pass_over(_: Exception) -> None:
    """A connection ends with a kill; who waits for an answer is told by an error of its own."""


class Worker:
    """One that pulls from the durable consumer, and holds no more than its prefetch."""

    closed = False

    def __init__(self, broker: "Nats", queue: str, prefetch: int) -> None:
        self._run = broker.run
        self._room = prefetch
        self._subscription = self._run(
            broker.jetstream.pull_subscribe_bind(DURABLE, queue), START_SECONDS
        )

    def receive(self, seconds: float) -> Delivery | None:
        until = time.monotonic() + seconds
        while self._room and (left := until - time.monotonic()) > 0:
            # What comes again is found by the next request sooner than by one that waits.
            pull = self._subscription.fetch(1, min(left, PULL_SECONDS))
            try:
                (message,) = self._run(pull, START_SECONDS)
            except nats.errors.TimeoutError:
                continue
            return self._given(message)
        return None

    def _given(self, message: Msg) -> Delivery:
        self._room -= 1
        count = str(message.metadata.num_delivered)
        return Delivery(message.data.decode(), count, {}, message)

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        async def all_of_them() -> None:
            await asyncio.gather(*(each.handle.ack_sync(timeout=30) for each in deliveries))

        self._run(all_of_them(), START_SECONDS)
        self._room += len(deliveries)

    def nack(self, delivery: Delivery, delay: float | None = None) -> None:
        self._run(delivery.handle.nak(delay), START_SECONDS)
        self._room += 1

    def reject(self, delivery: Delivery) -> None:
        self._run(delivery.handle.term(), START_SECONDS)
        self._room += 1

    def close(self) -> None:
        """Its deliveries are the durable consumer's; it has nothing that would end."""


class Nats:
    """A server, and a loop in a thread for its client."""

    name = "NATS JetStream"

    def __init__(self, folder: Path) -> None:
        self._place, mqtt = unused(2)
        self.mqtt = mqtt.port
        # Of a mode of MQTT's consumers: what is on JetStream is on file in both.
        self._server = peer.server(folder, Mode.MEMORY, self._place, mqtt)
        self._deadline = DEADLINE_SECONDS
        self._advice: dict[str, Any] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Any], seconds: float = START_SECONDS) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def start(self) -> None:
        self._server.start()
        url = f"nats://{self._place}"
        self._client = self.run(nats.connect(url, allow_reconnect=False, error_cb=pass_over))
        self.jetstream = self._client.jetstream(timeout=30)

    def _leave(self) -> None:
        with contextlib.suppress(nats.errors.Error, OSError, CancelledError):
            self.run(self._client.close())

    def kill(self) -> None:
        self._server.end(signal.SIGKILL)
        self._leave()

    def stop(self) -> None:
        self._leave()
        self._server.end()

    def version(self) -> str:
        return str(self._client.connected_server_version).strip("<>").rpartition("v")[2]

    @contextlib.contextmanager
    def deadline(self, seconds: float) -> Iterator[None]:
        self._deadline, before = seconds, self._deadline
        yield
        self._deadline = before

    def make(self, queue: str, terms: Terms = PLAIN) -> None:
        if terms.order == "key":
            raise CannotBeAskedError(
                "order is of a consumer; deterministic subject token partitioning gives one to"
                " each partition"
            )
        if terms.priorities:
            raise CannotBeAskedError("a stream is read in the order of its sequence")
        stream = StreamConfig(
            name=queue,
            subjects=[queue],
            retention=RetentionPolicy.WORK_QUEUE,
            storage=StorageType.FILE,
            max_age=terms.ttl,
            max_msgs=terms.bound,
            discard=DiscardPolicy.NEW,
        )
        self.run(self.jetstream.add_stream(stream))
        advisories = f"$JS.EVENT.ADVISORY.CONSUMER.*.{queue}.{DURABLE}"
        self._advice[queue] = self.run(self._client.subscribe(advisories))
        consumer = ConsumerConfig(
            durable_name=DURABLE,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=self._deadline,
            max_deliver=terms.attempts,
            max_ack_pending=1 if terms.order == "strict" else None,
        )
        self.run(self.jetstream.add_consumer(queue, consumer))

    def put(self, queue: str, bodies: Sequence[str], wish: Wish = NO_WISH) -> None:
        if wish.delay is not None:
            raise CannotBeAskedError("scheduled messages came with 2.12")
        headers = None if wish.dedup is None else {"Nats-Msg-Id": wish.dedup}

        async def all_of_them() -> None:
            for body in bodies:
                await self.jetstream.publish(queue, body.encode(), headers=headers)

        try:
            self.run(all_of_them())
        except (APIError, NoStreamResponseError) as refused:
            raise RefusedError(str(getattr(refused, "description", refused))) from None

    def consume(self, queue: str, prefetch: int = 10) -> Worker:
        return Worker(self, queue, prefetch)

    def letters(self, queue: str) -> Worker:
        """There are none; what is published about a message that is given up, instead."""
        kind, told = "", {}
        while kind not in ADVISORIES:
            try:
                told = json.loads(self.run(self._advice[queue].next_msg(ADVICE_SECONDS)).data)
            except nats.errors.TimeoutError:
                raise CannotBeAskedError("there are no dead letters, nor advisories") from None
            kind = told["type"].rpartition(".")[2]
        places = ", ".join(
            f"{name} `{told[name]}`" for name in ("stream", "stream_seq", "deliveries")
        )
        raise CannotBeAskedError(f"there are no dead letters; advisory `{kind}`, {places}")

    def take_one(self, queue: str) -> Delivery | None:
        return self.consume(queue).receive(5)

    def mqtt_places(self, queue: str) -> tuple[str, str]:
        return f"work/{queue}", f"work/{queue}"
