"""What the HTTP door may ask of a node."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from headrace.kernel.catalog import Change
from headrace.model import StreamDefinition
from headrace.ports.access import Gatekeeper
from headrace.ports.clients import Clients
from headrace.ports.groups import Groups
from headrace.ports.meter import Histogram, Sample
from headrace.ports.queues import Queues
from headrace.ports.streams import StreamReport


class NodeState(StrEnum):
    """Life of a node; `ready` alone serves."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class Published:
    """A publish ended: `stored` streams hold it durably."""

    stored: int


class Administration(Protocol):
    """A node, seen from its HTTP door. Calls that fail raise `headrace.errors`."""

    @property
    def name(self) -> str:
        """The node's name."""
        ...

    @property
    def state(self) -> NodeState:
        """Where in its life it is."""
        ...

    @property
    def reason(self) -> str:
        """Why it is not ready, or stores nothing at the moment; empty where neither is so."""
        ...

    def streams(self) -> list[StreamReport]:
        """Every stream, by name."""
        ...

    def stream(self, name: str) -> StreamReport:
        """One stream."""
        ...

    async def create_stream(self, name: str, change: Change) -> StreamDefinition:
        """Creates a stream; on return it survives power loss and serves every door."""
        ...

    async def alter_stream(self, name: str, change: Change) -> StreamDefinition:
        """Changes a stream, live."""
        ...

    async def delete_stream(self, name: str) -> None:
        """Removes a stream and its records."""
        ...

    async def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        properties: list[tuple[str, str]],
        *,
        retain: bool = False,
    ) -> Published:
        """Publishes as an MQTT client would; ends once it is as durable as its streams ask."""
        ...

    @property
    def gate(self) -> Gatekeeper:
        """Who is let in."""
        ...

    def clients(self) -> Clients:
        """Its MQTT clients and retained messages."""
        ...

    def groups(self) -> Groups:
        """Its consumer groups."""
        ...

    def queues(self, *, only_told: bool = False) -> Queues:
        """Its queues; `only_told` where they are reported and nothing else, before it is ready."""
        ...

    def samples(self) -> Iterable[Sample]:
        """Counters and gauges of all parts."""
        ...

    def histograms(self) -> Iterable[Histogram]:
        """Distributions of durations."""
        ...
