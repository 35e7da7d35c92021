"""A load on MQTT servers, round by round, and the medians of what was counted."""

from __future__ import annotations

import itertools
import os
import socket
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace import native
from headrace.bench.figures import Figures, median_of
from headrace.bench.process import Usage
from headrace.errors import InputError
from headrace.model import Address

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.bench.server import Server

_LOOK_SECONDS: Final = 0.1
"""Between two looks at a run that goes on."""

FAULTS: Final = ("lost", "duplicated", "reordered", "corrupted", "disconnected")
"""What should be 0, as far as the level of service promises."""

_RUNS = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What every round does.

    Attributes:
        publishers, subscribers, idle: connections of each kind; idle ones only stay.
        pattern: `pair` (subscriber i hears publisher i), `all` (each subscriber hears every
            publisher), `share` (the subscribers share one subscription), `queue` (they are a group
            of consumers of the queue `bench`, which must be there, and settle with PUBACK).
        qos: of publishes and subscriptions.
        payload: bytes, 16 or more.
        window: messages under way per publisher, where `rate` is None.
        rate: messages a second and publisher, on a schedule; None for as fast as it goes.
        warm_up, duration, drain: seconds; of silence at the end, the longest.
        opening: connections opened at once.
        version: 4 (MQTT 3.1.1) or 5.
        session_expiry: seconds that sessions of subscribers outlive their connection; above 0
            takes version 5. They end with the run.
        prefix: begins every topic and client id.
    """

    publishers: int = 1
    subscribers: int = 1
    idle: int = 0
    pattern: str = "pair"
    qos: int = 0
    payload: int = 100
    window: int = 20
    rate: float | None = None
    warm_up: float = 1.0
    duration: float = 5.0
    drain: float = 5.0
    opening: int = 64
    version: int = 5
    session_expiry: int = 0
    prefix: str = "bench"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One round against one server.

    Attributes:
        counts: as the load counted them (`MqttLoad.finish`).
        cpu_seconds: that the server took from the first connect to the last delivery.
        resident_bytes: of the server at the end, connections open.
        grown_bytes: since before the first connect.
    """

    counts: dict[str, Any]
    cpu_seconds: float | None = None
    resident_bytes: int | None = None
    grown_bytes: int | None = None

    def figures(self) -> Figures:
        """The numbers of a report, base units; None for what there is nothing to say of."""
        counts = self.counts
        connections = counts["connected"]
        rate = counts["measured"] / counts["seconds"] if counts["seconds"] else 0.0
        cpu = self.cpu_seconds
        return {
            "connects_per_second": connections / counts["connect_seconds"],
            "delivered_per_second": rate if counts["delivered"] else None,
            **{
                name: counts[name]
                for name in ("published", "refused", "expected", "delivered", *FAULTS)
            },
            **{
                f"{name.replace('.', '_')}_ms": value * 1e3 if counts["latency"]["count"] else None
                for name, value in counts["latency"].items()
                if name != "count"
            },
            "cpu_seconds_per_million": (
                cpu / counts["delivered"] * 1e6 if cpu and counts["delivered"] else None
            ),
            "resident_bytes": self.resident_bytes,
            "bytes_per_connection": (
                self.grown_bytes / connections
                if self.grown_bytes is not None and connections and not counts["delivered"]
                else None
            ),
        }


def run(
    load: Load,
    servers: Sequence[Server],
    rounds: int,
    watch: Callable[[Server, int, dict[str, Any]], None] = lambda *_: None,
) -> dict[str, list[Outcome]]:
    """Rounds against each server in turn, so that what else the machine does meets all alike.

    Args:
        load: what each round does.
        servers: with different names.
        rounds: 1 or more.
        watch: is told of server, round (from 0) and the counts so far, ten times a second.

    Raises:
        InputError: a server's name or the load makes no sense, or a server is not there.
        OSError: the machine gives no sockets.
    """
    outcomes: dict[str, list[Outcome]] = {server.name: [] for server in servers}
    for index in range(rounds):
        for server in servers:
            outcome = _once(load, server, partial(watch, server, index))
            outcomes[server.name].append(outcome)
    return outcomes


def medians(outcomes: Sequence[Outcome]) -> Figures:
    """The median of each figure over rounds; of what should be 0, the sum.

    Of the memory of a connection the most: a server keeps for the next round what the first took.
    """
    rows = [outcome.figures() for outcome in outcomes]
    return median_of(rows, sums=FAULTS, maxima={"bytes_per_connection"})


def _once(load: Load, server: Server, watch: Callable[[dict[str, Any]], None]) -> Outcome:
    plan = asdict(load)
    # No two runs hear each other, whatever the first left behind.
    plan["prefix"] = f"{load.prefix}/{os.getpid():x}{next(_RUNS):04x}"
    before = None if server.pid is None else Usage.of(server.pid)
    try:
        running = native.MqttLoad(_resolved(server), credentials=server.credentials, **plan)
    except ValueError as error:
        raise InputError(str(error)) from None
    after = before
    try:
        while not running.is_over():
            time.sleep(_LOOK_SECONDS)
            progress = running.progress()
            # A server gives back what connections took once they are gone.
            if server.pid is not None and progress["phase"] != "done":
                after = Usage.of(server.pid)
            watch(progress)
    except BaseException:
        running.stop()
        raise
    counts = running.finish()
    if before is None or after is None:
        return Outcome(counts)
    return Outcome(
        counts,
        cpu_seconds=after.cpu_seconds - before.cpu_seconds,
        resident_bytes=after.resident_bytes,
        grown_bytes=after.resident_bytes - before.resident_bytes,
    )


def _resolved(server: Server) -> str:
    host, port = server.address.host, server.address.port
    try:
        *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise InputError(f"{server.name}: cannot find {host}: {error.strerror}") from None
    return str(Address(str(address[0]), int(address[1])))
