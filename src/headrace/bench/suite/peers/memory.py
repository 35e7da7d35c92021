"""What is the same of brokers that have one door, for MQTT, and hold messages in memory alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from headrace.adapters.children import unused
from headrace.bench.suite.peers.peer import Door, Feature, Mode
from headrace.bench.suite.peers.process import Child

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from headrace.bench.suite.peers.peer import Running
    from headrace.model import Address


class InMemory(ABC):
    """See `Peer`.

    Attributes:
        promised: what an acknowledgement means.
    """

    name: str
    install: str
    lacks: frozenset[Feature] = frozenset()
    doors = frozenset({Door.MQTT})
    promised: ClassVar[str]

    @abstractmethod
    def version(self) -> str:
        """As `Peer` says."""

    @abstractmethod
    def command(self, folder: Path, mqtt: Address, /) -> list[str]:
        """What starts it there, whose settings are written to the folder.

        Raises:
            LeftOutError: it is not installed.
        """

    def promise(self, door: Door, mode: Mode) -> str | None:
        """As `Peer` says."""
        return self.promised if door in self.doors and mode is Mode.MEMORY else None

    def start(self, folder: Path, mode: Mode) -> AbstractContextManager[Running]:
        """As `Peer` says."""
        assert mode is Mode.MEMORY, f"{self.name} has no other"
        (mqtt,) = unused(1)
        command = self.command(folder, mqtt)
        return Child(self.name, command, folder, {Door.MQTT: mqtt}).running()
