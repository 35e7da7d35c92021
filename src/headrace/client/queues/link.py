"""One MQTT 5.0 connection of a queue's client, on the event loop.

Owns a connection from its socket to its end, and what waits for answers on it. Repeats nothing:
what was not answered fails when the connection breaks, and the caller decides what goes out on the
next one.
"""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from paho.mqtt.subscribeoptions import SubscribeOptions

from headrace.client.errors import ClientError, ConnectionLostError, QueueError, UnknownQueueError
from headrace.client.mqtt import Connection, Target, named
from headrace.errors import MqttError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from paho.mqtt.client import MQTTMessage
    from paho.mqtt.reasoncodes import ReasonCode

    from headrace.client.config import QueueConfig
    from headrace.client.mqtt_properties import Packed
    from headrace.model import Address

T = TypeVar("T")
OnMessage: TypeAlias = "Callable[[Link, MQTTMessage], None]"

TICK_S: Final = 1.0
"""Between two looks at the keep-alive: its 30 s need no better."""

IN_FLIGHT_MAX: Final = 1_000
"""Publishes that wait for PUBACK: a round of the broker's disk takes less of Python's time."""

_KEEP_ALIVE_S: Final = 30
_FOR_EVER: Final = "larger than "
"""How a broker's own words begin where the code alone says that there is no room now."""

_UNKNOWN: Final = frozenset({0x8F, 0x90})


class _Publish(NamedTuple):
    topic: str
    payload: bytes
    properties: Packed
    done: asyncio.Future[int]


class Link:
    """A connection: `open`, then the rest.

    `on_message` is called with each message; it must not raise.

    Attributes:
        lost: is done once the connection is, with why.
    """

    def __init__(self, config: QueueConfig, address: Address, on_message: OnMessage) -> None:
        self._loop = asyncio.get_running_loop()
        self.lost: asyncio.Future[ClientError] = self._loop.create_future()
        self._timeout_s = config.request_timeout_ms / 1000
        self._connection = connection = Connection(_target(config, address))
        self._on_message = on_message
        connection.on_message = self._received
        connection.on_acknowledged = self._acknowledged
        connection.on_close = self._unwatch
        self._accepted: asyncio.Future[None] = self._loop.create_future()
        self._asked: dict[int, asyncio.Future[list[ReasonCode]]] = {}
        self._waiting: deque[_Publish] = deque()
        self._in_flight: dict[int, _Publish] = {}
        self._watched: int | None = None
        self._is_writing = False
        self._ticks: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Connects, and waits until the broker lets it in.

        Raises:
            ConnectionLostError: it is not there, or not now.
            QueueError: it refuses this client for good.
        """
        dialing = asyncio.ensure_future(asyncio.to_thread(self._connection.dial))
        try:
            await asyncio.shield(dialing)
        except asyncio.CancelledError:
            dialing.add_done_callback(self._hang_up)  # a thread cannot be told to stop
            raise
        except MqttError as error:
            raise _client_error(error) from None
        self._watched = self._connection.fileno()
        self._loop.add_reader(self._watched, self._readable)
        self._ticks = self._loop.call_later(TICK_S, self._tick)
        self._write_soon()
        try:
            await self._answered(self._accepted, "")
        except BaseException:
            self.close()
            raise

    async def subscribe(self, filter_: str, said: Sequence[tuple[str, str]]) -> None:
        """Subscribes at QoS 1.

        Raises:
            ConnectionLostError: the connection broke.
            QueueError: it is refused; `UnknownQueueError` where there is no such queue.
        """
        self._check()
        options = SubscribeOptions(qos=1)
        asked = self._connection.begin_subscribe([filter_], options, said)
        (code,) = await self._answer(asked, " the subscription")
        if code.value >= 0x80:
            raise _refused(filter_, code, self._connection.told)

    async def unsubscribe(self, filter_: str) -> None:
        """Ends a subscription; raises as `subscribe`."""
        self._check()
        await self._answer(self._connection.begin_unsubscribe([filter_]), " the end of it")

    def publish(self, topic: str, payload: bytes, properties: Packed) -> asyncio.Future[int]:
        """Publishes at QoS 1, in order; the reason code of what accepts it.

        The future raises `ConnectionLostError` where that is not known, and `QueueError` where the
        broker refuses.
        """
        done: asyncio.Future[int] = self._loop.create_future()
        if self.lost.done():
            done.set_exception(copy.copy(self.lost.result()))
        else:
            self._waiting.append(_Publish(topic, payload, properties, done))
            self._pump()
        return done

    def close(self) -> None:
        """Says good-bye where the connection still stands, and closes."""
        self._fail(ConnectionLostError(f"the connection to {self._connection.target} was closed"))
        self._unwatch()
        self._connection.__exit__()

    def _hang_up(self, dialing: asyncio.Future[None]) -> None:
        if not dialing.cancelled() and dialing.exception() is None:
            self._connection.__exit__()

    def _check(self) -> None:
        if self.lost.done():
            raise copy.copy(self.lost.result())

    async def _answer(self, packet_id: int, what: str) -> list[ReasonCode]:
        self._asked[packet_id] = answer = self._loop.create_future()
        self._write_soon()
        return await self._answered(answer, what)

    async def _answered(self, answer: asyncio.Future[T], what: str) -> T:
        try:
            async with asyncio.timeout(self._timeout_s):
                await asyncio.wait((answer, self.lost), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            target = self._connection.target
            raise ConnectionLostError(
                f"{target} does not answer{what} within {self._timeout_s:g} s"
            ) from None
        if answer.done():
            return answer.result()
        raise copy.copy(self.lost.result())

    def _readable(self) -> None:
        try:
            self._connection.read()
            if not self._accepted.done() and self._connection.is_accepted:
                self._accepted.set_result(None)
        except MqttError as error:
            return self._fail(_client_error(error))
        for packet_id in list(self._asked):
            if (codes := self._connection.answer(packet_id)) is not None:
                asked = self._asked.pop(packet_id)
                if not asked.done():
                    asked.set_result(codes)
        self._pump()
        self._write_soon()
        return None

    def _received(self, message: MQTTMessage) -> None:
        self._connection.acknowledge(message)  # it is settled by a publish, later
        self._on_message(self, message)

    def _acknowledged(self, packet_id: int, code: ReasonCode, told: str) -> None:
        topic, _, _, done = self._in_flight.pop(packet_id)
        if done.done():
            return  # whoever waited has gone
        if code.value < 0x80:
            done.set_result(code.value)
        else:
            done.set_exception(_refused(topic, code, told))

    def _pump(self) -> None:
        """Hands on what waits, as far as the broker's window and ours go."""
        connection = self._connection
        room = min(IN_FLIGHT_MAX, connection.receive_max)
        while self._waiting and len(self._in_flight) < room and not self.lost.done():
            publish = self._waiting.popleft()
            topic, payload, properties, done = publish
            if done.done():
                continue
            try:
                packet_id = connection.publish(
                    topic, payload, 1, retain=False, properties=properties
                )
            except MqttError as error:
                done.set_exception(_client_error(error))
            else:
                self._in_flight[packet_id] = publish
                self._write_soon()

    def _write_soon(self) -> None:
        """Writes once for all that this turn of the loop brings."""
        if not self._is_writing and self._watched is not None:
            self._is_writing = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        if self._watched is not None:
            self._connection.write()
            self._look()  # a write that fails has closed the socket
            self._watch_room()

    def _watch_room(self) -> None:
        """Goes on once the socket takes more, where not all is written."""
        if self._watched is None:
            return
        self._is_writing = not self._connection.is_flushed
        if self._is_writing:
            self._loop.add_writer(self._watched, self._write)
        else:
            self._loop.remove_writer(self._watched)

    def _tick(self) -> None:
        if self._watched is not None:
            self._ticks = self._loop.call_later(TICK_S, self._tick)
            self._look()
            self._write_soon()

    def _look(self) -> None:
        try:
            self._connection.tick()
        except MqttError as error:
            self._fail(_client_error(error))

    def _unwatch(self) -> None:
        """The socket closes."""
        if self._watched is not None:
            self._loop.remove_reader(self._watched)
            self._loop.remove_writer(self._watched)
            self._watched = None
        if self._ticks is not None:
            self._ticks.cancel()

    def _fail(self, error: ClientError) -> None:
        if self.lost.done():
            return
        self.lost.set_result(error)
        for publish in (*self._in_flight.values(), *self._waiting):
            if not publish.done.done():
                publish.done.set_exception(copy.copy(error))
        self._waiting.clear()


async def reach(
    config: QueueConfig,
    begin: Callable[[Address], Awaitable[Link]],
    failed: Callable[[ConnectionLostError], None],
) -> Link:
    """A link to one of the brokers, in turn, with longer and longer waits between.

    `failed` is told of each attempt that failed; what it raises ends them.

    Raises:
        QueueError: a broker refuses for good.
    """
    addresses = config.addresses
    failures = 0
    while True:
        try:
            return await begin(addresses[failures % len(addresses)])
        except ConnectionLostError as error:
            failed(error)
        failures += 1
        await asyncio.sleep(config.backoff_s(failures))


def _target(config: QueueConfig, address: Address) -> Target:
    login = config.login
    return Target(
        host=address.host,
        port=address.port,
        tls=config.ssl_context,
        client_id=f"{config.client_id}-{uuid.uuid4().hex[:12]}",
        username=None if login is None else login.user,
        password=None if login is None else login.password,
        keep_alive_s=_KEEP_ALIVE_S,
        in_flight_max=0,  # the window is ours; paho's scan of it is O(window)
        trust="load its authority into the ssl_context",
        plain="name its port with TLS, or leave out ssl_context",
    )


def _refused(what: str, code: ReasonCode, told: str) -> QueueError:
    kind = UnknownQueueError if code.value in _UNKNOWN else QueueError
    error = kind(f"{what}: {named(code, told)}", code.value)
    error.retriable = error.retriable and not told.startswith(_FOR_EVER)
    return error


def _client_error(error: MqttError) -> ClientError:
    text = str(error).replace("\n", "; ")
    if error.retriable:
        return ConnectionLostError(text)
    return QueueError(text, error.reason_code)
