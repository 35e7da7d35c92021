"""Eclipse Mosquitto."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.adapters.children import unused
from headrace.bench.suite.peers.peer import Door, Mode
from headrace.bench.suite.peers.process import Child, find, said

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from headrace.bench.suite.peers.peer import Feature, Running

_SETTINGS: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
set_tcp_nodelay true
max_inflight_messages 0
max_queued_messages 0
log_type error
log_type warning
user root
"""
"""Beside its defaults: no bounds on what waits for a client, so that it need not drop messages,
and no line of its log for each connection. Who becomes another user is not told any more when its
starter is gone (prctl(2), PR_SET_PDEATHSIG); the last line says nothing to who is not root."""

_OF_MODE: Final = {
    Mode.MEMORY: "persistence false\n",
    Mode.DURABLE: "persistence true\npersistence_location {folder}/\nautosave_interval 1\n",
}

_PROMISES: Final = {
    Mode.MEMORY: "acknowledges from memory",
    Mode.DURABLE: "acknowledges from memory, before it writes: a snapshot of all each second",
}


class Mosquitto:
    """The one that is everywhere."""

    name = "mosquitto"
    doors = frozenset({Door.MQTT})
    install = "apt-get install mosquitto"
    lacks: frozenset[Feature] = frozenset()

    def version(self) -> str:
        """Of the program in PATH.

        Raises:
            LeftOutError: there is none.
        """
        return said([find(self.name), "-h"], r"mosquitto version (\S+)")

    def promise(self, door: Door, mode: Mode) -> str | None:
        """What an acknowledgement means."""
        return _PROMISES[mode] if door in self.doors else None

    def start(self, folder: Path, mode: Mode) -> AbstractContextManager[Running]:
        """Starts it on an empty folder.

        Raises:
            LeftOutError: it is not installed.
            StartError: it did not come up.
        """
        (address,) = unused(1)
        settings = _SETTINGS.format(port=address.port) + _OF_MODE[mode].format(folder=folder)
        config = folder / "mosquitto.conf"
        config.write_text(settings)
        command = [find(self.name), "-c", str(config)]
        return Child(self.name, command, folder, {Door.MQTT: address}).running()
