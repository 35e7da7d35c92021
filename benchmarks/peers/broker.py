"""What the scenarios ask of each broker, and what all of them are started with."""

import contextlib
import importlib.util
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, Self

import paho.mqtt.client as paho

from headrace.bench.suite.peers.peer import LeftOutError, Peer

START_SECONDS = 60
DEADLINE_SECONDS = 30.0
"""To settle a delivery, where a scenario does not say: longer than it takes."""


class CannotBeAskedError(Exception):
    """The broker has nothing of the kind; in the words of its documentation."""


class RefusedError(Exception):
    """A publish was not confirmed; in the broker's words."""


class Terms(NamedTuple):
    """What is asked of a queue when it is made."""

    attempts: int | None = None
    order: str | None = None
    """`key` or `strict`."""
    priorities: bool = False
    ttl: float | None = None
    """Seconds after which a message is dead."""
    bound: int | None = None
    """Messages, beyond which a publish is refused."""


class Wish(NamedTuple):
    """What is asked of a message when it is published."""

    key: str | None = None
    delay: float | None = None
    priority: int | None = None
    dedup: str | None = None


PLAIN, NO_WISH = Terms(), Wish()


@dataclass
class Delivery:
    """One delivery of a message."""

    body: str
    count: str | None
    """Which delivery it is, as it is told."""
    told: dict[str, str] = field(default_factory=dict)
    """What else stands beside it, of those names that say where it is from and why."""
    handle: object = None


class Consumer(Protocol):
    """Who is given messages of a queue; all consumers of a queue share its work.

    Attributes:
        closed: whether the broker has closed it for being late, and it has come back.
    """

    closed: bool

    def receive(self, seconds: float) -> Delivery | None: ...

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Returns once the broker has told, or must have, that they are settled."""

    def nack(self, delivery: Delivery, delay: float | None = None) -> None: ...

    def reject(self, delivery: Delivery) -> None: ...

    def close(self) -> None: ...


class Broker(Protocol):
    """A broker on a folder of its own."""

    name: str
    mqtt: int

    def __init__(self, folder: Path) -> None: ...

    def start(self) -> None:
        """Starts it, for the first time or again."""

    def kill(self) -> None:
        """kill -9."""

    def stop(self) -> None: ...

    def version(self) -> str: ...

    def deadline(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        """Has queues that are made in the block wait so long for a settlement."""

    def make(self, queue: str, terms: Terms = PLAIN) -> None: ...

    def put(self, queue: str, bodies: Sequence[str], wish: Wish = NO_WISH) -> None:
        """Returns once all of them are confirmed."""

    def consume(self, queue: str, prefetch: int = 10) -> Consumer: ...

    def letters(self, queue: str) -> Consumer:
        """Of the dead letters of a queue."""

    def take_one(self, _queue: str) -> Delivery | None:
        """By a request for one message, and no more, of a client that has subscribed to nothing."""

    def mqtt_places(self, queue: str) -> tuple[str, str]:
        """The topic by which MQTT 3.1.1 puts work there, and the filter by which it consumes."""


def await_true(condition: Callable[[], object], what: str, seconds: float = START_SECONDS) -> None:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(what)
        time.sleep(0.02)


def need(peer: Peer, client: str, module: str) -> None:
    """Looks for a peer's server and for the Python client of it.

    Raises:
        LeftOutError: one is not installed; the line that installs it.
    """
    try:
        peer.version()
    except LeftOutError:
        raise LeftOutError(peer.install) from None
    if importlib.util.find_spec(module) is None:
        raise LeftOutError(f"pip install --target FOLDER {client}, and FOLDER in PYTHONPATH")


def until_quiet(consumer: Consumer, seconds: float) -> Iterator[Delivery]:
    """Deliveries, until none has come for so long."""
    while (delivery := consumer.receive(seconds)) is not None:
        yield delivery


class Mqtt:
    """An MQTT client whose calls wait for the broker's answer."""

    def __init__(self, port: int, protocol: int = paho.MQTTv311, **options: object) -> None:
        self._answers: queue.Queue[object] = queue.Queue()
        self.messages: queue.Queue[paho.MQTTMessage] = queue.Queue()
        self.paho = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=protocol, **options)
        self.paho.max_inflight_messages_set(0)
        self.paho.on_connect = self.paho.on_subscribe = self._answered
        self.paho.on_message = lambda _client, _data, message: self.messages.put(message)
        self.paho.on_publish = self._published
        self.refused: list[str] = []
        self.paho.connect("127.0.0.1", port)
        self.paho.loop_start()
        assert not self._answers.get(timeout=START_SECONDS).is_failure

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.paho.disconnect()
        self.drop()

    def drop(self) -> None:
        """The end without DISCONNECT, where that was not said."""
        self.paho.loop_stop()
        self.paho._reset_sockets()  # noqa: SLF001 - paho closes them when it is collected

    def _answered(self, _client, _data, _flags, reason, _properties) -> None:
        self._answers.put(reason)

    def _published(self, _client, _data, _packet, reason, _properties) -> None:
        if reason.value >= 0x80:
            self.refused.append(f"{reason} (0x{reason.value:02X})")

    def subscribe(self, where: str, properties: object = None) -> None:
        self.paho.subscribe(where, 1, properties=properties)
        answer = self._answers.get(timeout=START_SECONDS)
        (reason,) = answer if isinstance(answer, list) else [answer]
        if reason.is_failure:
            raise RefusedError(str(reason))

    def publish(self, topic: str, bodies: Sequence[str], properties: object = None) -> None:
        """Returns once all are acknowledged."""
        self.refused.clear()
        sent = [self.paho.publish(topic, body, 1, properties=properties) for body in bodies]
        for each in sent:
            each.wait_for_publish(START_SECONDS)
        if self.refused:
            raise RefusedError(self.refused[0])
