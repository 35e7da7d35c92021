"""NATS: its server's MQTT 3.1.1, which stores what is not QoS 0 in JetStream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from headrace.adapters.children import unused
from headrace.bench.suite.peers.peer import Door, Feature, Mode
from headrace.bench.suite.peers.process import Child, find, numbers, said

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from headrace.bench.suite.peers.peer import Running
    from headrace.model import Address

PROGRAM: Final = "nats-server"
WITH_SYNC_AND_QOS_2: Final = (2, 10)
"""The version with which `sync_interval` can be set, and MQTT's QoS 2 came."""

CONFIG: Final = """server_name: peer
listen: {client}
max_payload: 8MB
max_pending: 512MB
write_deadline: "60s"
jetstream {{ store_dir: {data}, {sync} }}
mqtt {{ listen: {mqtt}, max_ack_pending: 16384, ack_wait: "5m", {consumers} }}
"""


def server(folder: Path, mode: Mode, client: Address, mqtt: Address) -> Child:
    """A server with a door for its own protocol, and one for MQTT.

    Raises:
        LeftOutError: it is not installed.
    """
    syncs = mode is Mode.DURABLE and _version() >= WITH_SYNC_AND_QOS_2
    config = folder / "nats.conf"
    config.write_text(
        CONFIG.format(
            client=client,
            data=json.dumps(str(folder / "data")),
            sync="sync_interval: always" if syncs else "",
            mqtt=mqtt,
            consumers="" if mode is Mode.DURABLE else "consumer_memory_storage: true",
        )
    )
    command = [find(PROGRAM), "-c", str(config)]
    return Child("nats", command, folder, {Door.MQTT: mqtt}, others=[client])


def _version() -> tuple[int, ...]:
    return numbers(Nats().version())


class Nats:
    """See `Peer`."""

    name = "nats"
    doors = frozenset({Door.MQTT})
    install = "apt-get install --no-install-recommends nats-server"

    @property
    def lacks(self) -> frozenset[Feature]:
        """As `Peer` says."""
        ever = {Feature.SHARED, Feature.MQTT_5}
        return frozenset(ever if _version() >= WITH_SYNC_AND_QOS_2 else ever | {Feature.QOS_2})

    def version(self) -> str:
        """As `Peer` says."""
        return said([find(PROGRAM), "--version"], r"v([\d.]+)")

    def promise(self, door: Door, mode: Mode) -> str | None:
        """As `Peer` says."""
        if door not in self.doors:
            return None
        if mode is Mode.DURABLE and _version() >= WITH_SYNC_AND_QOS_2:
            return "acknowledges after it has synced its JetStream file"
        return "acknowledges from the page cache; JetStream syncs its file every 2 minutes"

    def start(self, folder: Path, mode: Mode) -> AbstractContextManager[Running]:
        """As `Peer` says."""
        return server(folder, mode, *unused(2)).running()
