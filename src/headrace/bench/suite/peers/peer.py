"""What a suite asks of a broker: is it here, what does it promise, start it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from headrace.model import Address


class Mode(StrEnum):
    """What a broker does before it acknowledges."""

    MEMORY = "memory"
    """As fast as it can be: nothing of a message need survive the broker's end."""
    DURABLE = "durable"
    """As safe as it can be set; `Peer.promise` says how safe that is."""


class Door(StrEnum):
    """A protocol in which a workload speaks to a broker."""

    MQTT = "mqtt"
    KAFKA = "kafka"
    QUEUE = "queue"
    """Queues of headrace over MQTT, made at its HTTP door, whose address this is."""


class Feature(StrEnum):
    """What not every broker has; a workload that needs it leaves those out."""

    SHARED = "shared subscriptions"
    QOS_2 = "QoS 2"
    MQTT_5 = "MQTT 5.0"


class LeftOutError(Exception):
    """A broker is not here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Running:
    """A broker that answers.

    Attributes:
        doors: where it listens.
        pid: of the process that carries messages, whose time and memory are counted.
        commits: how often it has waited for the disk before it acknowledged, where it tells.
        warm_up_seconds: of load, until it is as fast as it gets.
    """

    doors: dict[Door, Address]
    pid: int
    commits: Callable[[], float] | None = None
    warm_up_seconds: float = 0.0


class Peer(Protocol):
    """A broker that can be measured.

    Attributes:
        name: as tables call it.
        doors: what it speaks.
        install: the one line that installs it.
    """

    name: str
    doors: frozenset[Door]
    install: str

    @property
    def lacks(self) -> frozenset[Feature]:
        """What it does not have, in the version that is installed."""

    def version(self) -> str:
        """Of what is installed.

        Raises:
            LeftOutError: nothing is.
        """

    def promise(self, door: Door, mode: Mode) -> str | None:
        """What an acknowledgement means, in a few words; None where it has no such mode."""

    def start(self, folder: Path, mode: Mode) -> AbstractContextManager[Running]:
        """Starts it on an empty folder, and ends it with the block.

        Settings are its defaults, but for those that README.md of `benchmarks/peers` names.

        Raises:
            LeftOutError: it is not installed.
            StartError: it did not come up; the last lines that it wrote.
        """
