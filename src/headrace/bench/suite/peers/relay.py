"""What a broker is held against: it passes bytes on, and knows next to no MQTT."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from headrace.adapters.children import unused
from headrace.bench.suite.peers.headrace import version
from headrace.bench.suite.peers.peer import Door, Feature, Mode
from headrace.bench.suite.peers.process import Child

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from headrace.bench.suite.peers.peer import Running


class Relay:
    """`headrace bench relay`: QoS 0 from a publisher to its subscriber."""

    name = "relay"
    doors = frozenset({Door.MQTT})
    install = "pip install headrace"
    lacks = frozenset(Feature)

    def version(self) -> str:
        """Of this package."""
        return version()

    def promise(self, door: Door, mode: Mode) -> str | None:
        """It acknowledges nothing."""
        is_asked = door in self.doors and mode is Mode.MEMORY
        return "no broker: passes bytes from one socket to another" if is_asked else None

    def start(self, folder: Path, _mode: Mode) -> AbstractContextManager[Running]:
        """Starts it; the folder takes its output.

        Raises:
            StartError: it did not come up.
        """
        (address,) = unused(1)
        command = [sys.executable, "-P", "-m", "headrace", "bench", "relay", "--mqtt", str(address)]
        return Child(self.name, command, folder, {Door.MQTT: address}).running()
