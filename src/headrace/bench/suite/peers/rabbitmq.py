"""RabbitMQ with its MQTT plugin, and an epmd of its own."""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Final

from headrace.adapters.children import unused
from headrace.bench.suite.peers.peer import Door, Feature, LeftOutError, Mode
from headrace.bench.suite.peers.process import Child, find, numbers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from headrace.bench.suite.peers.peer import Running
    from headrace.model import Address

# Debian's rabbitmq-server on PATH is a wrapper that becomes the user rabbitmq and calls this one.
PROGRAM: Final = "rabbitmq-server", "/usr/lib/rabbitmq/bin"

WITH_MQTT_5: Final = (3, 13)

HIGH_LOAD: Final = {
    "mqtt.prefetch": "1000",
    "mqtt.tcp_listen_options.backlog": "4096",
    "mqtt.tcp_listen_options.nodelay": "true",
}

PROMISES: Final = {
    Mode.MEMORY: "acknowledges when a classic queue has it on disk, or its subscriber has had it",
    Mode.DURABLE: "acknowledges after it has synced quorum queues, of sessions that last",
}


def nodes(
    folder: Path, settings: Mapping[str, str], amqp: Address, mqtt: Address
) -> tuple[Child, Child]:
    """The epmd with which Erlang's nodes begin, and a broker; both must be started.

    Args:
        folder: what another one has left there, this one goes on with.
        settings: of `rabbitmq.conf`.
        amqp: where it listens for AMQP 0-9-1.
        mqtt: where it listens for MQTT.

    Raises:
        LeftOutError: it is not installed.
    """
    names, between = unused(2)
    doors = {"listeners.tcp.1": amqp, "mqtt.listeners.tcp.1": mqtt}
    lines = [f"{name} = {value}\n" for name, value in {**doors, **settings}.items()]
    (folder / "rabbitmq.conf").write_text("".join(lines))
    (folder / "plugins").write_text("[rabbitmq_mqtt].\n")
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "ERL_CRASH_DUMP": str(folder / "crash"),
        "ERL_EPMD_ADDRESS": names.host,
        "ERL_EPMD_PORT": str(names.port),
        "RABBITMQ_NODENAME": "peer@localhost",
        "RABBITMQ_DIST_PORT": str(between.port),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-start_epmd false",
        # The script then becomes the server, instead of its parent.
        "RUNNING_UNDER_SYSTEMD": "true",
    }
    listen = ["-port", str(names.port), "-address", names.host]
    epmd = Child(
        "epmd", [find("epmd"), *listen], folder, {}, others=[names], environment=environment
    )
    broker = Child(
        "rabbitmq",
        [find(*PROGRAM)],
        folder,
        {Door.MQTT: mqtt},
        others=[amqp],
        environment=environment,
    )
    return epmd, broker


class RabbitMq:
    """See `Peer`."""

    name = "rabbitmq"
    doors = frozenset({Door.MQTT})
    install = "apt-get install --no-install-recommends rabbitmq-server"

    @property
    def lacks(self) -> frozenset[Feature]:
        """As `Peer` says; what is published at QoS 2 it takes as if at 1."""
        is_old = numbers(self.version()) < WITH_MQTT_5
        return frozenset({Feature.SHARED, Feature.QOS_2, *([Feature.MQTT_5] if is_old else [])})

    def version(self) -> str:
        """As `Peer` says."""
        place = os.path.realpath(find(*PROGRAM))
        found = re.search(r"rabbitmq_server-([\d.]+)", place)
        if found is None:
            raise LeftOutError(f"{place} is in no folder rabbitmq_server-VERSION")
        return found[1]

    def promise(self, door: Door, mode: Mode) -> str | None:
        """As `Peer` says."""
        return PROMISES[mode] if door in self.doors else None

    @contextlib.contextmanager
    def start(self, folder: Path, mode: Mode) -> Iterator[Running]:
        """As `Peer` says."""
        queues = {} if mode is Mode.MEMORY else {"mqtt.durable_queue_type": "quorum"}
        epmd, broker = nodes(folder, HIGH_LOAD | queues, *unused(2))
        with epmd.running(), broker.running() as running:
            yield running
