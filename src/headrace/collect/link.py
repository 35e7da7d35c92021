"""One MQTT 5.0 connection of the collector, over paho-mqtt.

Owns a socket from connect to close. Repeats nothing: paho would send unacknowledged publishes
again on a connection of its own making, so each connection is a new paho client, and the caller
decides what goes out on it. paho's external loop is used without a second thread: a hand-over
between threads costs more than a publish.
"""

from __future__ import annotations

import selectors
import time
import uuid
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from paho.mqtt import client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from headrace.client.mqtt import FOR_GOOD
from headrace.client.mqtt_properties import Packed, user_properties, user_property
from headrace.errors import PublishError

if TYPE_CHECKING:
    import socket

    from paho.mqtt.properties import Properties
    from paho.mqtt.reasoncodes import ReasonCode

    from headrace.client import Login
    from headrace.model import Address

ALREADY_STORED: Final = "already stored"
"""Reason string of a PUBACK whose message the broker had stored before."""

_KEEP_ALIVE_S: Final = 30
_CONNECT_S_MAX: Final = 10.0

_OVERHEAD_BYTES: Final = 64
"""Fixed header, packet id and lengths of a PUBLISH, generously."""


class Settlement(NamedTuple):
    """What a PUBACK said."""

    packet_id: int
    code: int
    reason: str
    """The reason string, or the code's name."""


class Origin(NamedTuple):
    """Who publishes: the broker stores each sequence of a source and epoch once."""

    source: str
    """Stable name; `job_limits.SOURCE_BYTES_MAX` of UTF-8 at most."""
    epoch: int
    """Rises with each run of the source; a run with a lower one is refused."""

    def packed(self, sequence: int) -> Packed:
        """Properties of a PUBLISH: user properties `source`, `epoch`, `sequence` (3.3.2.3.7)."""
        return Packed(_pairs(self) + user_property("sequence", str(sequence)))


@lru_cache(maxsize=16)
def _pairs(origin: Origin) -> bytes:
    return user_properties((("source", origin.source), ("epoch", str(origin.epoch))))


class Link:
    """A connection; use it as a context manager.

    Raises:
        OSError: the broker is not there, or not now.
        PublishError: the broker refuses this client for good.
    """

    def __init__(
        self, broker: Address, origin: Origin, wake: socket.socket, login: Login | None = None
    ) -> None:
        self.settled: list[Settlement] = []
        self.receive_max = 65_535
        self._packet_bytes_max = 268_435_460
        self._broker = broker
        self._origin = origin
        self._wake = wake
        self._answer: tuple[int, str] | None = None
        self._lost: tuple[int, str] | None = None
        self._selector = selectors.DefaultSelector()
        self._interest = 0
        self._client = client = mqtt.Client(
            CallbackAPIVersion.VERSION2, client_id=_client_id(), protocol=mqtt.MQTTv5
        )
        if login is not None:
            client.username_pw_set(login.user, login.password)
        client.max_inflight_messages_set(0)  # the window is the caller's; paho's scan is O(window)
        client.on_connect = self._connected
        client.on_publish = self._acknowledged
        client.on_disconnect = self._disconnected
        # With it paho leaves writing to `wait`, instead of trying at each publish.
        client.on_socket_register_write = _leave_writing

    def __enter__(self) -> Self:
        try:
            self._client.connect(self._broker.host, self._broker.port, _KEEP_ALIVE_S)
            self._selector.register(self._wake, selectors.EVENT_READ)
            self._judge(*self._await_answer())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Says goodbye where the connection still stands, and closes."""
        self._client.disconnect()
        self._client.loop_write()
        connection = self._client.socket()
        if connection is not None:  # its buffer was full, so that the goodbye is not out
            connection.close()
        self._selector.close()

    def _await_answer(self) -> tuple[int, str]:
        deadline = time.monotonic() + _CONNECT_S_MAX
        while (left := deadline - time.monotonic()) > 0.0:
            self.wait(left)
            if self._answer is not None:  # a refused connection is closed at once: look here first
                return self._answer
            self.check()
        raise TimeoutError(f"no CONNACK within {_CONNECT_S_MAX:g} s")

    def send(self, topic: str, payload: bytes, sequence: int) -> int:
        """Queues a publish of QoS 1; its packet id. `wait` writes it.

        Raises:
            PublishError: it is larger than the broker takes.
        """
        packed = self._origin.packed(sequence)
        size = len(topic) * 4 + len(packed.pack()) + len(payload) + _OVERHEAD_BYTES
        if size > self._packet_bytes_max:
            raise PublishError(
                f"a message for {topic[:100]} of {len(payload)} bytes is larger than "
                f"the {self._packet_bytes_max} that the broker takes in a packet"
            )
        return self._client.publish(topic, payload, qos=1, properties=packed).mid

    def wait(self, timeout_s: float) -> None:
        """Writes and reads what can be; waits for one of both, the wake-up or the time."""
        client = self._client
        if client.want_write():
            client.loop_write()
        connection = client.socket()
        if connection is not None:
            self._watch(connection, want_write=client.want_write())
            for key, events in self._selector.select(max(timeout_s, 0.0)):
                if key.fileobj is self._wake:
                    self._wake.recv(4096)
                elif events & selectors.EVENT_READ:
                    client.loop_read()
        client.loop_misc()  # keep-alive both ways

    def check(self) -> None:
        """Raises where the connection is gone; settlements that came before stay in `settled`."""
        if self._lost is not None:
            self._judge(*self._lost)
            raise ConnectionError(self._lost[1])

    def _watch(self, connection: mqtt.SocketLike, *, want_write: bool) -> None:
        interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if want_write else 0)
        if not self._interest:
            self._selector.register(connection, interest)
        elif interest != self._interest:
            self._selector.modify(connection, interest)
        self._interest = interest

    def _judge(self, code: int, reason: str) -> None:
        if code in FOR_GOOD:
            raise PublishError(f"the broker at {self._broker} refuses the collector: {reason}")
        if code >= 0x80:
            raise ConnectionError(f"the broker said: {reason}")

    def _connected(
        self,
        _client: object,
        _data: object,
        _flags: object,
        code: ReasonCode,
        found: Properties | None,
    ) -> None:
        self._answer = code.value, _reason(code, found)
        self.receive_max = getattr(found, "ReceiveMaximum", self.receive_max)
        self._packet_bytes_max = getattr(found, "MaximumPacketSize", self._packet_bytes_max)
        if getattr(found, "MaximumQoS", 2) < 1:
            self._answer = 0x9B, "it serves no QoS 1"

    def _acknowledged(
        self, _client: object, _data: object, packet_id: int, code: ReasonCode, found: Properties
    ) -> None:
        self.settled.append(Settlement(packet_id, code.value, _reason(code, found)))

    def _disconnected(
        self,
        _client: object,
        _data: object,
        flags: mqtt.DisconnectFlags,
        code: ReasonCode,
        found: Properties | None,
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            self._lost = code.value, _reason(code, found)
        else:  # paho's own words for a socket that closed
            self._lost = 0, "the connection broke"


def _client_id() -> str:
    return f"headrace-collect-{uuid.uuid4().hex[:12]}"


def _reason(code: ReasonCode, found: Properties | None) -> str:
    return getattr(found, "ReasonString", None) or code.getName()


def _leave_writing(*_: object) -> None:
    return None
