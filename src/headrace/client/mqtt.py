"""One MQTT connection of a command or a client, over paho-mqtt.

Owns a socket from connect to close. As in `headrace.collect.link`, paho's loop is driven from
outside, without a second thread: what a command reads besides, such as its standard input, is
waited for in the same place. A client on an event loop calls `dial`, `read`, `write` and `tick`
instead of `connect` and `step`. Must not know a terminal.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from headrace.client.mqtt_properties import properties_of
from headrace.client.tls import why_no_tls
from headrace.errors import MqttError
from headrace.text import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from paho.mqtt.subscribeoptions import SubscribeOptions

    from headrace.client.mqtt_properties import PropertyValues

ANSWER_S_MAX: Final = 30.0
"""For CONNACK, SUBACK and UNSUBACK."""

FOR_GOOD: Final = frozenset(
    {0x81, 0x82, 0x84, 0x85, 0x86, 0x87, 0x8A, 0x8C, 0x8E, 0x90, 0x94, 0x95, 0x99, 0x9A, 0x9B}
)
"""CONNACK and DISCONNECT codes that a new connection would meet again: malformed, protocol
error, version, client id, password, authorisation, banned, authentication method, taken over,
topic name, alias, packet too large, payload format, retain, QoS (MQTT 5.0 2.4)."""

TOO_LARGE: Final = 0x95
"""A packet is larger than its receiver takes (MQTT 5.0 2.4)."""

V5: Final = MQTTProtocolVersion.MQTTv5


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker publishes if the connection breaks."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where to connect, and as whom.

    Attributes:
        host, port: of the broker; with transport `unix` the host is the socket's path.
        path: of a WebSocket.
        tls: None for none.
        client_id: empty for one that the broker assigns.
        clean: whether a session of before ends.
        session_expiry_s: for how long the session outlives the connection; None is not said.
        properties: by packet (`connect`, `publish`, …).
        in_flight_max: publishes above QoS 0 that wait for their acknowledgement.
        remedy: what to do when nobody is there, in one line.
        trust: how to name an authority.
        plain: what to do where no TLS is spoken.
        debug: is told each packet, in a line.
    """

    host: str
    port: int
    transport: Literal["tcp", "websockets", "unix"] = "tcp"
    path: str = "/mqtt"
    bind_address: str = ""
    tls: ssl.SSLContext | None = None
    version: MQTTProtocolVersion = V5
    client_id: str = ""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    keep_alive_s: int = 60
    clean: bool = True
    session_expiry_s: int | None = None
    will: Will | None = None
    properties: Mapping[str, PropertyValues] = field(default_factory=dict)
    in_flight_max: int = 20
    remedy: str = ""
    trust: str = "name its authority with --cafile"
    plain: str = "name the port with TLS with -p, or leave out the options of TLS"
    debug: Callable[[str], None] | None = None

    def __str__(self) -> str:
        return self.host if self.transport == "unix" else f"{self.host}:{self.port}"


class Connection:
    """A connection; use it as a context manager.

    Attributes:
        target: as given.
        on_message: is called with each message. What is above QoS 0 must be given to
            `acknowledge` once it is dealt with.
        on_close: is called before the socket closes.
        receive_max: publishes above QoS 0 that the broker takes before it has acknowledged them.
        told: why the broker refused what was subscribed to last, in its own words.
        on_acknowledged: is called for each publish that ended with its packet id, the reason code,
            and the broker's own words, which may be none.

    Raises:
        MqttError: the broker is not there, hangs up, or refuses; from every method.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.on_message: Callable[[paho.MQTTMessage], None] = _ignore
        self.on_acknowledged: Callable[[int, ReasonCode, str], None] = _ignore
        self.on_close: Callable[[], None] = _ignore
        self.receive_max = 65_535
        self.told = ""
        self._answers: dict[int, list[ReasonCode]] = {}
        self._connected: ReasonCode | None = None
        self._lost: MqttError | None = None
        self._packet_bytes_max = 268_435_460
        self._client = client = _Client(
            CallbackAPIVersion.VERSION2,
            client_id=target.client_id,
            clean_session=None if target.version == V5 else target.clean,
            protocol=target.version,
            transport=target.transport,
            manual_ack=True,
        )
        client.username_pw_set(target.username, target.password)
        if target.tls is not None:
            client.tls_set_context(target.tls)
        if target.transport == "websockets":
            client.ws_set_options(path=target.path)
        if target.will is not None:
            will = target.will
            client.will_set(
                will.topic, will.payload, will.qos, will.retain, self._properties("will")
            )
        if target.debug is not None:
            debug = target.debug
            client.on_log = lambda _client, _data, _level, line: debug(line)
        client.max_inflight_messages_set(target.in_flight_max)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = lambda _client, _data, message: self.on_message(message)
        client.on_publish = lambda _client, _data, mid, code, found: self.on_acknowledged(
            mid, code, _told(found)
        )
        client.on_socket_close = lambda *_: self.on_close()
        client.on_subscribe = self._on_answer
        client.on_unsubscribe = self._on_answer
        client.on_socket_register_write = _ignore  # so that `step` writes, and nobody else

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        """Says good-bye where the connection still stands, and closes."""
        client = self._client
        client.disconnect(properties=self._properties("disconnect"))
        if client.socket() is not None:
            client.loop_write()
        if (connection := client.socket()) is not None:  # its buffer was full
            connection.close()

    def connect(self) -> None:
        """Connects, and waits for the answer; again where a connection was lost."""
        self.dial()
        deadline = time.monotonic() + ANSWER_S_MAX
        while not self.is_accepted:
            self.step(_left(deadline, f"{self.target} does not answer"))

    def dial(self) -> None:
        """Opens the socket, and asks to be let in."""
        target, client = self.target, self._client
        self._connected = None
        self._lost = None
        try:
            if target.version == V5:
                client.connect(
                    target.host, target.port, target.keep_alive_s, target.bind_address,
                    clean_start=target.clean, properties=self._connect_properties(),
                )  # fmt: skip
            else:
                client.connect(target.host, target.port, target.keep_alive_s, target.bind_address)
        except (OSError, ValueError) as error:
            raise self._absent(error) from None
        if target.transport == "tcp" and isinstance(opened := client.socket(), socket.socket):
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # paho leaves that out

    @property
    def is_accepted(self) -> bool:
        """Whether the broker has let the client in."""
        answer = self._connected
        if answer is not None and answer.value >= 0x80:
            why = f"{self.target} refuses the connection: {named(answer, self.told)}"
            raise MqttError(why, retriable=answer.value not in FOR_GOOD, reason_code=answer.value)
        return answer is not None

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        *,
        retain: bool,
        properties: Properties | None = None,
    ) -> int:
        """Queues a publish; its packet id. `step` writes it.

        `properties` are instead of those of the target.
        """
        size = len(topic.encode()) + len(payload) + 64
        if size > self._packet_bytes_max:
            raise MqttError(
                f"a message of {len(payload):,} bytes is larger than the "
                f"{self._packet_bytes_max:,} that {self.target} takes; send it in parts\n"
                f"or raise mqtt.packet_bytes there",
                reason_code=TOO_LARGE,
            )
        properties = properties or self._properties("publish")
        try:
            info = self._client.publish(topic, payload, qos, retain, properties)
        except ValueError as error:
            raise MqttError(f"topic {topic!r}: {str(error).lower()}") from None
        if info.rc is MQTTErrorCode.MQTT_ERR_NO_CONN:
            self._check()
        return info.mid

    def subscribe(
        self,
        filters: Sequence[str],
        options: SubscribeOptions,
        said: Sequence[tuple[str, str]] = (),
    ) -> list[ReasonCode]:
        """Subscribes to each filter, and waits; one reason code for each.

        `said` are user properties beside those of the target; 3.1.1 knows none.
        """
        return self._answer(self.begin_subscribe(filters, options, said), "the subscription")

    def begin_subscribe(
        self,
        filters: Sequence[str],
        options: SubscribeOptions,
        said: Sequence[tuple[str, str]] = (),
    ) -> int:
        """As `subscribe`, without waiting: `answer` has what is answered to this packet id."""
        client = self._client
        try:
            if self.target.version == V5:
                asked = [(each, options) for each in filters]
                properties = self._properties("subscribe", said)
                _, packet_id = client.subscribe(asked, properties=properties)
            else:
                _, packet_id = client.subscribe([(each, options.QoS) for each in filters])
        except ValueError:
            raise MqttError(
                f"one of these is no topic filter: {', '.join(map(shown, filters))}"
            ) from None
        assert packet_id is not None, "there is a connection"
        return packet_id

    def unsubscribe(self, filters: Sequence[str]) -> list[ReasonCode]:
        """Unsubscribes from each filter, and waits; 3.1.1 knows no reason codes."""
        return self._answer(self.begin_unsubscribe(filters), "the end of a subscription")

    def begin_unsubscribe(self, filters: Sequence[str]) -> int:
        """As `unsubscribe`, without waiting: `answer` has what is answered to this packet id."""
        _, packet_id = self._client.unsubscribe(
            list(filters), properties=self._properties("unsubscribe")
        )
        assert packet_id is not None, "there is a connection"
        return packet_id

    def answer(self, packet_id: int) -> list[ReasonCode] | None:
        """What the broker has answered; None until it has."""
        return self._answers.pop(packet_id, None)

    def acknowledge(self, message: paho.MQTTMessage) -> None:
        """Tells the broker that it need not send a message again."""
        if message.qos:
            self._client.ack(message.mid, message.qos)

    @property
    def is_flushed(self) -> bool:
        """Whether nothing waits to be written."""
        return not self._client.want_write()

    def step(self, timeout_s: float, *more: int) -> bool:
        """Writes and reads what can be; whether one of the descriptors `more` can be read.

        Waits for the connection, for one of those descriptors, or for the time.
        """
        client = self._client
        connection = self._open()
        wanted = client.want_write()
        if wanted:
            self.write()
            connection = self._open()  # a write that fails has closed it
        waiting: list[Any] = [connection] if client.want_write() else []
        if wanted and not waiting:
            timeout_s = 0.0  # that was what the caller waited for
        has_more = hasattr(connection, "pending") and connection.pending() > 0
        watched: list[Any] = [connection, *more]  # paho's type of a socket has no descriptor
        ready, _, _ = select.select(watched, waiting, [], 0.0 if has_more else max(timeout_s, 0.0))
        if has_more or connection in ready:
            client.loop_read()
        client.loop_misc()  # keep-alive both ways
        self._check()
        return any(each in ready for each in more)

    def write(self) -> None:
        """Writes what can be."""
        self._client.loop_write()

    def read(self) -> None:
        """Reads what is there."""
        connection = self._open()
        while True:
            self._client.loop_read()
            self._check()
            if not (hasattr(connection, "pending") and connection.pending() > 0):
                return

    def tick(self) -> None:
        """Keeps the connection alive, and notices one that is not; call it every second or so."""
        self._client.loop_misc()
        self._check()

    def fileno(self) -> int:
        """The socket's descriptor."""
        return int(self._open().fileno())

    def _open(self) -> paho.SocketLike:
        connection = self._client.socket()
        if connection is None:
            self._check()
            raise MqttError(f"the connection to {self.target} broke", retriable=True)
        return connection

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost

    def _answer(self, packet_id: int, what: str) -> list[ReasonCode]:
        deadline = time.monotonic() + ANSWER_S_MAX
        while (codes := self.answer(packet_id)) is None:
            self.step(_left(deadline, f"{self.target} does not answer {what}"))
        return codes

    def _absent(self, error: Exception) -> MqttError:
        if isinstance(error, ssl.SSLError):
            why = why_no_tls(error, self.target.trust, self.target.plain)
            is_final = isinstance(error, ssl.SSLCertVerificationError)
            return MqttError(f"{self.target}: {why}", retriable=not is_final)
        if isinstance(error, paho.WebsocketConnectionError):
            return MqttError(
                f"{self.target} serves no WebSocket at {self.target.path}\n"
                f"name its path with --ws-path, /mqtt at a headrace node, or its port with -p",
                retriable=True,
            )
        if self.target.tls is not None and isinstance(error, ConnectionResetError):
            return MqttError(
                f"{self.target}: no TLS is spoken there\n{self.target.plain}", retriable=True
            )
        reason = getattr(error, "strerror", None) or error
        remedy = f"\n{self.target.remedy}" if self.target.remedy else ""
        return MqttError(f"no broker answers at {self.target}: {reason}{remedy}", retriable=True)

    def _connect_properties(self) -> Properties:
        values = dict(self.target.properties.get("connect", {}))
        if self.target.session_expiry_s is not None:
            values.setdefault("SessionExpiryInterval", [self.target.session_expiry_s])
        return properties_of("connect", values)

    def _properties(self, packet: str, said: Sequence[tuple[str, str]] = ()) -> Properties | None:
        values = dict(self.target.properties.get(packet, {}))
        if said:
            values["UserProperty"] = [*values.get("UserProperty", []), *said]
        return properties_of(packet, values) if values and self.target.version == V5 else None

    def _on_connect(
        self, _client: object, _data: object, _flags: object, code: ReasonCode, found: object
    ) -> None:
        self._connected = code
        self.told = _told(found)
        self._packet_bytes_max = getattr(found, "MaximumPacketSize", self._packet_bytes_max)
        self.receive_max = getattr(found, "ReceiveMaximum", self.receive_max)

    def _on_disconnect(
        self,
        _client: object,
        _data: object,
        flags: paho.DisconnectFlags,
        code: ReasonCode,
        found: object,
    ) -> None:
        if self._connected is not None and self._connected.value >= 0x80:
            return  # `connect` tells why
        is_told = flags.is_disconnect_packet_from_server
        why = f": {named(code, _told(found))}" if is_told else ""
        if self._connected is None and not is_told:
            why = " and spoke no MQTT; is that a port of its MQTT doors?"
        self._lost = MqttError(
            f"{self.target} ended the connection{why}",
            retriable=not (is_told and code.value in FOR_GOOD),
            reason_code=code.value if is_told else 0,
        )

    def _on_answer(
        self,
        _client: object,
        _data: object,
        packet_id: int,
        codes: list[ReasonCode],
        found: object,
    ) -> None:
        self._answers[packet_id] = codes
        self.told = _told(found)


class _Client(paho.Client):
    """paho, which closes its sockets, and goes on with a publish at QoS 2 that is refused."""

    def _ssl_wrap_socket(self, tcp_sock: socket.socket) -> ssl.SSLSocket:
        assert self._ssl_context is not None, "it speaks TLS"
        wrapped = self._ssl_context.wrap_socket(
            tcp_sock, server_hostname=self._host, do_handshake_on_connect=False
        )
        try:
            wrapped.settimeout(self._connect_timeout)
            wrapped.do_handshake()
        except BaseException:
            wrapped.close()
            raise
        return wrapped

    def _handle_pubrec(self) -> MQTTErrorCode:
        packet = bytes(self._in_packet["packet"])
        if self._protocol != V5 or len(packet) < 3 or packet[2] < 0x80:
            return super()._handle_pubrec()
        packet_id = int.from_bytes(packet[:2], "big")
        found = Properties(PacketTypes.PUBREC)  # type: ignore[no-untyped-call]
        if len(packet) > 3:
            found.unpack(packet[3:])  # type: ignore[no-untyped-call]
        with self._out_message_mutex:
            if packet_id not in self._out_messages:
                return MQTTErrorCode.MQTT_ERR_SUCCESS
            code = ReasonCode(PacketTypes.PUBREC, identifier=packet[2])
            return self._do_on_publish(packet_id, code, found)  # and its id is free (4.3.3)


def named(code: ReasonCode, told: str = "") -> str:
    """A reason code as a person reads it, with what the broker `told`.

    >>> named(ReasonCode(PacketTypes.CONNACK, identifier=0x87))
    'not authorized (0x87)'
    >>> named(ReasonCode(PacketTypes.PUBACK, identifier=0x97), "the disk is full")
    'quota exceeded (0x97); the disk is full'
    """
    why = f"; {told}" if told else ""
    return f"{code.getName().lower()} (0x{code.value:02x}){why}"


def _told(found: object) -> str:
    """The Reason String among properties; empty where there is none."""
    return str(getattr(found, "ReasonString", ""))


def _left(deadline: float, otherwise: str) -> float:
    left = deadline - time.monotonic()
    if left <= 0.0:
        raise MqttError(f"{otherwise} within {ANSWER_S_MAX:g} s", retriable=True)
    return left


def _ignore(*_: object) -> None:
    return None
