"""What `headrace pub` and `headrace sub` share: where to connect, and as whom.

The names are those that users of mosquitto's clients know. Owns arguments; what they do is in
`headrace.client.mqtt`.
"""

from __future__ import annotations

import json
import math
import os
import ssl
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import unquote, urlsplit

import click
from paho.mqtt.enums import MQTTProtocolVersion

from headrace.cli.login import VARIABLE, password
from headrace.client.mqtt import V5, Target, Will
from headrace.client.mqtt_properties import PropertyValues, properties_of
from headrace.model import Address

if TYPE_CHECKING:
    from collections.abc import Callable

VERSIONS: Final = {
    "5": V5,
    "mqttv5": V5,
    "311": MQTTProtocolVersion.MQTTv311,
    "mqttv311": MQTTProtocolVersion.MQTTv311,
    "31": MQTTProtocolVersion.MQTTv31,
    "mqttv31": MQTTProtocolVersion.MQTTv31,
}
PACKETS: Final = ("connect", "publish", "subscribe", "unsubscribe", "disconnect", "will")
NUMBERS: Final = {
    "message-expiry-interval",
    "payload-format-indicator",
    "receive-maximum",
    "request-problem-information",
    "request-response-information",
    "session-expiry-interval",
    "subscription-identifier",
    "maximum-packet-size",
    "will-delay-interval",
}
TEXTS: Final = {"content-type", "response-topic"}
NEVER_S: Final = 0xFFFF_FFFF
PAYLOADS: Final = {"message", "will_payload"}
"""Options that say bytes."""
TEXT_BYTES_MAX: Final = 65_535
_SCHEMES: Final = {
    "mqtt": ("tcp", False, 1883),
    "mqtts": ("tcp", True, 8883),
    "ws": ("websockets", False, 8083),
    "wss": ("websockets", True, 8084),
}
"""Transport, whether with TLS, and the port that the node has for it."""


class MqttCommand(click.Command):
    """A command whose `-h` is a host, and whose `-D` takes three values or four."""

    def __init__(self, *args: Any, **more: Any) -> None:  # noqa: ANN401 - as click's
        more["context_settings"] = {"help_option_names": ["--help"]}
        super().__init__(*args, **more)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Makes one value of what follows each `-D`, as click knows no other number."""
        args, rest = [], list(args)
        while rest:
            word = rest.pop(0)
            args.append(word)
            if word in {"-D", "--property"}:
                count = 4 if rest[1:2] == ["user-property"] else 3
                taken, rest = rest[:count], rest[count:]
                if len(taken) < count:
                    raise click.UsageError("-D takes PACKET PROPERTY VALUE, see --help", ctx)
                args.append(json.dumps(taken))
        left = super().parse_args(ctx, args)
        for name, value in ctx.params.items():
            if name not in PAYLOADS:
                _check_text(ctx, name, value)
        return left


class Seconds(click.FloatRange):
    """A number, and not that which is none."""

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as click's
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """As its class, but for `nan`, which no bound stops."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is no number.", param, ctx)
        return number


def _check_text(ctx: click.Context, name: str, value: object) -> None:
    """Refuses what MQTT has no string for (1.5.4).

    Raises:
        UsageError: it is no UTF-8, or too long.
    """
    for text in value if isinstance(value, tuple) else (value,):
        if not isinstance(text, str):
            continue
        option = name.replace("_", "-")
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise click.UsageError(f"{option} must be UTF-8; got {text!a}", ctx) from None
        if size > TEXT_BYTES_MAX:
            raise click.UsageError(f"{option} has {size:,} bytes; 65,535 may be", ctx)


@dataclass(frozen=True, slots=True)
class Url:
    """What `-L` says."""

    host: str
    port: int
    scheme: str
    username: str | None
    password: str | None
    topic: str | None


def _url(_context: object, _option: object, text: str | None) -> Url | None:
    """`mqtt://[user[:password]@]host[:port]/topic`, or mqtts, ws, wss."""
    if text is None:
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if parts.scheme not in _SCHEMES or not parts.hostname:
        raise click.BadParameter(
            f"must be mqtt://, mqtts://, ws:// or wss://HOST[:PORT]/TOPIC; got {text!r}"
        )
    whole = parts.path + (f"?{parts.query}" if parts.query else "")
    whole += f"#{parts.fragment}" if text.endswith("#") or parts.fragment else ""
    return Url(
        parts.hostname,
        port or _SCHEMES[parts.scheme][2],
        parts.scheme,
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
        whole.removeprefix("/") or None,
    )


def _broker(_context: object, _option: object, text: str | None) -> Address | None:
    try:
        return None if text is None else Address.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _expiry(_context: object, _option: object, text: str | None) -> int | None:
    if text is None:
        return None
    if text in {"-1", "∞"}:
        return NEVER_S
    if text.isascii() and text.isdigit() and int(text) <= NEVER_S:
        return int(text)
    raise click.BadParameter(f"must be seconds up to {NEVER_S}, or -1 for ever; got {text!r}")


_NEED_TLS: Final = ("tls", "cafile", "capath", "cert", "ciphers", "tls_alpn")
_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
_TLS_OPTIONS: Final = [
    click.option("--tls", "--tls-use-os-certs", "tls", is_flag=True,
                 help="Use TLS, and trust the system's authorities."),
    click.option("--cafile", type=_FILE, help="Use TLS, and trust these authorities (PEM)."),
    click.option("--capath", type=click.Path(exists=True, file_okay=False),
                 help="Use TLS, and trust those in this folder."),
    click.option("--cert", type=_FILE, help="Certificate to show to the broker (PEM)."),
    click.option("--key", type=_FILE, help="Its key."),
    click.option("--insecure", is_flag=True, help="Do not look at the name in its certificate."),
    click.option("--tls-version", type=click.Choice(["tlsv1.2", "tlsv1.3"]), help="Only this one."),
    click.option("--ciphers", metavar="LIST", help="Of TLS 1.2, as openssl names them."),
    click.option("--tls-alpn", metavar="NAME", help="Protocol to ask for within TLS."),
]  # fmt: skip
_OPTIONS: Final = [
    click.option("--mqtt", "broker", callback=_broker, metavar="HOST:PORT", help="The broker."),
    click.option("-h", "--host", default="127.0.0.1", show_default=True, help="Its host."),
    click.option("-p", "--port", type=click.IntRange(1, 65_535), help="Its port.  [1883]"),
    click.option("-L", "--url", callback=_url, metavar="URL",
                 help="mqtt|mqtts|ws|wss://[USER[:PASSWORD]@]HOST[:PORT]/TOPIC"),
    click.option("--unix", metavar="PATH", help="Connect to this Unix socket."),
    click.option("--ws", is_flag=True, help="Connect by WebSocket (8083; 8084 with TLS)."),
    click.option("--ws-path", default="/mqtt", show_default=True, help="Path of the WebSocket."),
    click.option("-A", "bind_address", default="", metavar="ADDRESS", help="Connect from here."),
    click.option("-V", "--protocol-version", type=click.Choice(list(VERSIONS)), default="5",
                 show_default=True, help="Of MQTT."),
    click.option("-u", "--username", "--user", "username", envvar="HEADRACE_USER",
                 help="User name; also HEADRACE_USER."),
    click.option("-P", "--pw", "password", help="Password; others may see it in the process list."),
    click.option("--pw-file", "--password-file", "pw_file", type=_FILE,
                 help="File whose first line is the password; else HEADRACE_PASSWORD."),
    click.option("-i", "--id", "client_id", help="Client id.  [one of its own]"),
    click.option("-I", "--id-prefix", help="Client id: this and the process id."),
    click.option("-c", "--disable-clean-session", "keeps", is_flag=True,
                 help="Go on with the session of -i, which then stays."),
    click.option("-x", "--session-expiry-interval", "expiry_s", callback=_expiry, metavar="SECONDS",
                 help="How long the session stays; -1 is for ever.  [-1 with -c, else 0]"),
    click.option("-k", "--keepalive", type=click.IntRange(0, 65_535), default=60,
                 show_default=True, metavar="SECONDS", help="Longest silence; 0 is any."),
    click.option("--will-topic", help="Published by the broker if this connection breaks."),
    click.option("--will-payload", default="", help="Its payload."),
    click.option("--will-qos", type=click.IntRange(0, 2), default=0, help="Its QoS."),
    click.option("--will-retain", is_flag=True, help="Retain it."),
    *_TLS_OPTIONS,
    click.option("-D", "--property", "properties", multiple=True,
                 metavar="PACKET PROPERTY VALUE", help="Property of MQTT 5.0. [repeat]"),
    click.option("-d", "--debug", is_flag=True, help="Tell each packet on stderr."),
]  # fmt: skip


qos_option: Callable[[Callable[..., None]], Callable[..., None]] = click.option(
    "-q",
    "--qos",
    type=click.IntRange(0, 2),
    default=0,
    show_default=True,
    help="Quality of service.",
)


def broker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options; the command gets them by name and hands them to `target`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def tls_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds those about TLS; the command gets them by name and hands them to `tls_of`."""
    for option in reversed(_TLS_OPTIONS):
        command = option(command)
    return command


def tls_of(given: dict[str, Any], port: int) -> ssl.SSLContext | None:
    """What the options of `tls_options` say of a connection to a port; None: without TLS.

    Raises:
        UsageError: one lacks another, or a file is none.
    """
    has_tls = port == 8883 or any(given[name] for name in _NEED_TLS)
    return _tls(given) if has_tls else None


def target(kind: str, given: dict[str, Any], in_flight_max: int = 20) -> Target:
    """Where to connect and as whom, by the options of `broker_options`.

    Raises:
        UsageError: two of them contradict each other, or one lacks another.
    """
    version = VERSIONS[given["protocol_version"]]
    url: Url | None = given["url"]
    host, port, transport, tls = _place(given, url)
    if given["keeps"] and not given["client_id"]:
        raise click.UsageError("-c goes on with the session of a client id; name it with -i")
    if version != V5 and (given["properties"] or given["expiry_s"] is not None):
        raise click.UsageError("-D and -x are of MQTT 5.0; leave out -V")
    expiry_s = given["expiry_s"]
    if expiry_s is None and given["keeps"] and version == V5:
        expiry_s = NEVER_S
    properties = _properties(given["properties"])
    will = None
    if given["will_topic"] is not None:
        payload = os.fsencode(given["will_payload"])
        if len(payload) > TEXT_BYTES_MAX:
            raise click.UsageError(f"a will may have 65,535 bytes; got {len(payload):,}")
        will = Will(
            given["will_topic"],
            payload,
            given["will_qos"],
            given["will_retain"],
        )
    elif given["will_payload"] or given["will_qos"] or given["will_retain"] or "will" in properties:
        raise click.UsageError("a will needs a topic; give --will-topic")
    return Target(
        host=host,
        port=port,
        transport=transport,
        path=given["ws_path"],
        bind_address=given["bind_address"],
        tls=tls,
        version=version,
        client_id=_client_id(kind, given),
        username=given["username"] or (url.username if url else None),
        password=_password(given, url),
        keep_alive_s=given["keepalive"],
        clean=not given["keeps"],
        session_expiry_s=expiry_s,
        will=will,
        properties=properties,
        in_flight_max=in_flight_max,
        remedy="start one with: headrace serve\nor name another with -h and -p, or --mqtt",
        debug=_tell if given["debug"] else None,
    )


def _place(
    given: dict[str, Any], url: Url | None
) -> tuple[str, int, Literal["tcp", "websockets", "unix"], ssl.SSLContext | None]:
    """Host, port, transport, TLS."""
    broker: Address | None = given["broker"]
    if sum((url is not None, broker is not None, given["unix"] is not None)) > 1:
        raise click.UsageError("-L, --mqtt and --unix each name a broker; give one of them")
    has_tls = any(given[name] for name in _NEED_TLS)
    if given["unix"] is not None:
        return given["unix"], 1, "unix", None  # paho wants a port
    transport: Literal["tcp", "websockets"] = "websockets" if given["ws"] else "tcp"
    if url is not None:
        transport = "websockets" if url.scheme.startswith("ws") else "tcp"
        has_tls = has_tls or _SCHEMES[url.scheme][1]
        return url.host, url.port, transport, _tls(given) if has_tls else None
    host, port = broker or (given["host"], given["port"])
    has_tls = has_tls or (port == 8883 and transport == "tcp")
    if port is None:
        scheme = ("ws" if given["ws"] else "mqtt") + ("s" if has_tls else "")
        port = _SCHEMES[scheme][2]
    return host, port, transport, _tls(given) if has_tls else None


def _tls(given: dict[str, Any]) -> ssl.SSLContext:
    if (given["key"] is None) != (given["cert"] is None):
        raise click.UsageError("--cert and --key belong together; give both")
    try:
        context = ssl.create_default_context(cafile=given["cafile"], capath=given["capath"])
        if given["cert"] is not None:
            context.load_cert_chain(given["cert"], given["key"])
    except (ssl.SSLError, OSError) as error:
        raise click.UsageError(f"TLS: {error}; --cafile, --cert and --key are PEM files") from None
    try:
        if given["ciphers"] is not None:
            context.set_ciphers(given["ciphers"])
    except ssl.SSLError:
        raise click.UsageError(
            "--ciphers: openssl knows none of these; see openssl ciphers"
        ) from None
    if given["tls_alpn"] is not None:
        context.set_alpn_protocols([given["tls_alpn"]])
    context.check_hostname = not given["insecure"]
    if given["tls_version"] is not None:
        version = ssl.TLSVersion[given["tls_version"].replace("tls", "TLS").replace(".", "_")]
        context.minimum_version = context.maximum_version = version
    return context


def _client_id(kind: str, given: dict[str, Any]) -> str:
    if given["client_id"] is not None and given["id_prefix"] is not None:
        raise click.UsageError("-i and -I each make a client id; give one of them")
    if given["id_prefix"] is not None:
        return f"{given['id_prefix']}{os.getpid()}"
    return (
        given["client_id"] if given["client_id"] is not None else f"{kind}-{uuid.uuid4().hex[:12]}"
    )


def _password(given: dict[str, Any], url: Url | None) -> str | None:
    if given["pw_file"] is not None:
        return password("", given["pw_file"])
    if given["password"] is not None:
        return str(given["password"])
    if url is not None and url.username is not None:
        return url.password
    return os.environ.get(VARIABLE) if given["username"] is not None else None


def _properties(given: tuple[str, ...]) -> dict[str, PropertyValues]:
    """By packet, by paho's names.

    Raises:
        UsageError: there is no such packet or property, or not with that value.
    """
    found: dict[str, PropertyValues] = {}
    for text in given:
        packet, name, *value = json.loads(text)
        if packet not in PACKETS:
            raise click.UsageError(f"-D: packets are {', '.join(PACKETS)}; got {packet!r}")
        values = found.setdefault(packet, {})
        values.setdefault(name.title().replace("-", ""), []).append(_value(name, value))
    for packet, values in found.items():
        try:
            properties_of(packet, values)
        except ValueError as error:
            raise click.UsageError(f"-D {packet}: {error}") from None
    return found


def _value(name: str, value: list[str]) -> object:
    if name == "user-property":
        return tuple(value)
    if name == "correlation-data":
        return value[0].encode()
    if name in TEXTS:
        return value[0]
    if name not in NUMBERS:
        known = sorted({*NUMBERS, *TEXTS, "correlation-data", "user-property"})
        raise click.UsageError(f"-D: no property {name!r}; known: {', '.join(known)}")
    if not value[0].isdigit():
        raise click.UsageError(f"-D: {name} is a number; got {value[0]!r}")
    return int(value[0])


def _tell(line: str) -> None:
    click.echo(line, file=sys.stderr)
