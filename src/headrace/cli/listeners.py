"""What `headrace serve` listens on: sockets, and the layers of each, out of the configuration."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.adapters.listener import Admittance, Listener
from headrace.adapters.proxy import proxied
from headrace.adapters.sockets import bind, bind_unix
from headrace.adapters.tls import Certificates, tls
from headrace.adapters.websocket import WebSocketSettings, frame_memory, websocket
from headrace.errors import StartError
from headrace.kernel.admission import Admission
from headrace.model import Address
from headrace.ports import Sample

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from headrace.adapters.layers import MakeLayer
    from headrace.config import Config
    from headrace.config.readers import Network
    from headrace.ports import Door

OPTIONS = frozenset({"mqtt", "ws", "kafka", "frame", "http"})
"""Listeners whose address the command line may say."""


_SETTINGS = {
    "mqtts": "mqtt.tls_bind",
    "wss": "mqtt.wss_bind",
    "unix": "mqtt.unix_path",
    "kafkas": "kafka.tls_bind",
}
"""Those of other listeners."""


@contextmanager
def named(listener: str) -> Iterator[None]:
    """Has an error say which option or setting the address is from.

    Raises:
        StartError: as it came, with that.
    """
    try:
        yield
    except StartError as error:
        raise StartError(f"{_SETTINGS.get(listener, f'--{listener}')}: {error}") from None


@dataclass(frozen=True, slots=True)
class _Plan:
    """One listener to be.

    Attributes:
        where: address, or path of a Unix socket.
        certificates: of TLS, where it speaks TLS.
        websocket: of the upgrade, where it speaks WebSocket.
        proxy: networks that may send PROXY headers, where such headers are required.
    """

    where: Address | Path
    certificates: Certificates | None = None
    websocket: WebSocketSettings | None = None
    proxy: tuple[Network, ...] | None = None

    @property
    def layers(self) -> list[MakeLayer]:
        """The one next to the socket first."""
        layers: list[MakeLayer] = []
        if self.proxy is not None:
            layers.append(proxied(self.proxy))
        if self.certificates is not None:
            layers.append(tls(self.certificates))
        if self.websocket is not None:
            layers.append(websocket(self.websocket))
        return layers


class Listeners:
    """All listeners of a node but that of HTTP, bound first and opened when it is ready.

    Attributes:
        certificates: of every door that has some, by its table.
        of: names of those that feed a door, by its name, where they are not one of that name.
    """

    def __init__(self, config: Config, is_open: Callable[[], bool]) -> None:
        """Reads certificates. `is_open` says whether nobody needs a password.

        Raises:
            ConfigError: they cannot be used.
        """
        self._config = config
        self.certificates: dict[str, Certificates] = {}
        for table, settings in (
            ("mqtt", config.mqtt), ("kafka", config.kafka), ("frame", config.frame),
            ("http", config.http),
        ):  # fmt: skip
            if settings.tls_certificate is not None:
                names_by = config.mqtt.tls_identity
                self.certificates[table] = Certificates(table, settings, names_by)
        self._frame_memory = frame_memory(config.limits.buffered_bytes)
        upgrade = WebSocketSettings(
            config.mqtt.ws_path,
            (*config.mqtt.ws_origins, *_own_origins(config)),
            2 * config.mqtt.packet_bytes,
            is_open,
            self._frame_memory,
        )
        self._plans = _mqtt_plans(config, self.certificates.get("mqtt"), upgrade)
        self.of = {"mqtt": tuple(self._plans)}
        for name, door in (("kafka", config.kafka), ("frame", config.frame)):
            if door.bind is not None:
                trusted = door.proxy_trusted if door.proxy_protocol else None
                self._plans[name] = _Plan(door.bind, self.certificates.get(name), proxy=trusted)
        if config.kafka.tls_bind is not None:
            either = self._plans["kafka"]
            self._plans["kafka"] = replace(either, certificates=None)
            self._plans["kafkas"] = replace(either, where=config.kafka.tls_bind)
            self.of["kafka"] = ("kafka", "kafkas")
        self._sockets: dict[str, socket.socket] = {}
        self._opened: dict[str, Listener] = {}
        limits = config.limits
        self._admission = Admission(limits.connects_per_address, limits.connections_per_address)

    def bind(self) -> None:
        """Takes every address.

        Raises:
            StartError: one cannot be had.
        """
        for name, plan in self._plans.items():
            with named(name):
                self._sockets[name] = (
                    bind(plan.where)
                    if isinstance(plan.where, Address)
                    else bind_unix(plan.where, self._config.mqtt.unix_mode)
                )

    def reconfigure(self, config: Config) -> None:
        """Puts bounds in force that hold for connections from now on."""
        self._config = config
        limits = config.limits
        self._admission.set_bounds(limits.connects_per_address, limits.connections_per_address)
        self._frame_memory.bytes_max = limits.buffered_bytes
        for name, listener in self._opened.items():
            listener.set_admittance(self._admittance(name))

    def open(self, name: str, door: Door, admits: Callable[[], bool]) -> Listener:
        """Lets a bound socket listen (`Parts.listen`)."""
        plan, admittance = self._plans[name], self._admittance(name)
        with named(name):
            listener = Listener.open(self._sockets[name], door, admits, plan.layers, admittance)
        self._opened[name] = listener
        return listener

    def _admittance(self, name: str) -> Admittance:
        plan, limits = self._plans[name], self._config.limits
        return Admittance(
            admission=self._admission,
            handshake_ms=limits.handshake_timeout,
            handshakes_max=limits.handshakes,
            waits=limits.connections_overflow == "wait",
            behind_proxy=plan.proxy is not None,
            tls=plan.certificates is not None,
        )

    def samples(self) -> Iterator[Sample]:
        """What is known of certificates."""
        for table, each in self.certificates.items():
            if each.expires_at is not None:
                label = (("door", table),)
                text = "When the certificate of a door expires, as a Unix time."
                yield Sample("tls_certificate_expiry_seconds", each.expires_at, text, label)

    def close(self) -> None:
        """Gives up what was not opened."""
        for sock in self._sockets.values():
            sock.close()


def addresses(config: Config) -> dict[str, Address]:
    """Every address that others could reach, by door or, without an option of its own, setting."""
    mqtt = config.mqtt
    secure = mqtt.tls_certificate is not None
    doors = {
        "mqtt": mqtt.bind,
        "ws": mqtt.ws_bind,
        "mqtt.tls_bind": mqtt.tls_bind if secure else None,
        "mqtt.wss_bind": mqtt.wss_bind if secure else None,
        "kafka": config.kafka.bind,
        "kafka.tls_bind": config.kafka.tls_bind,
        "frame": config.frame.bind,
        "http": config.http.bind,
    }
    return {name: address for name, address in doors.items() if address is not None}


def _mqtt_plans(
    config: Config, certificates: Certificates | None, upgrade: WebSocketSettings
) -> dict[str, _Plan]:
    mqtt = config.mqtt
    secure = certificates is not None
    wanted: dict[str, tuple[Address | Path | None, Certificates | None, WebSocketSettings | None]]
    wanted = {
        "mqtt": (mqtt.bind, None, None),
        "mqtts": (mqtt.tls_bind if secure else None, certificates, None),
        "ws": (mqtt.ws_bind, None, upgrade),
        "wss": (mqtt.wss_bind if secure else None, certificates, upgrade),
        "unix": (mqtt.unix_path, None, None),
    }
    return {
        name: _Plan(
            where,
            certificates_of,
            upgrade_of,
            mqtt.proxy_trusted if name in mqtt.proxy_protocol else None,
        )
        for name, (where, certificates_of, upgrade_of) in wanted.items()
        if where is not None
    }


def _own_origins(config: Config) -> list[str]:
    """Of the pages that the node's own HTTP door serves."""
    scheme = "http" if config.http.tls_certificate is None else "https"
    host, port = config.http.bind
    return [f"{scheme}://{Address(name, port)}" for name in (host, "localhost")]
