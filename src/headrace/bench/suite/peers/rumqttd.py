"""rumqttd, in Rust."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.bench.suite.peers.memory import InMemory
from headrace.bench.suite.peers.peer import Feature
from headrace.bench.suite.peers.process import find, said

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.model import Address

PROGRAM: Final = "rumqttd"

CONFIG: Final = """id = 0

[router]
id = 0
max_connections = 20000
max_outgoing_packet_count = 200
max_segment_size = 104857600
max_segment_count = 10

[v4.1]
name = "v4"
listen = "{mqtt}"
next_connection_delay_ms = 0

[v4.1.connections]
connection_timeout_ms = 60000
max_payload_size = 8388608
max_inflight_count = 1000
dynamic_filters = true
"""


class Rumqttd(InMemory):
    """See `Peer`."""

    name = "rumqttd"
    install = "cargo install rumqttd"
    lacks = frozenset({Feature.MQTT_5})
    promised = "acknowledges from a log in memory, of 1 GiB for each filter"

    def version(self) -> str:
        """As `Peer` says."""
        return said([find(PROGRAM), "--version"], r"([\d.]+)")

    def command(self, folder: Path, mqtt: Address) -> list[str]:
        """As `InMemory` says."""
        config = folder / "rumqttd.toml"
        config.write_text(CONFIG.format(mqtt=mqtt))
        return [find(PROGRAM), "--config", str(config)]
