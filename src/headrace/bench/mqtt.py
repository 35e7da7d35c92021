"""A load on MQTT servers, round by round, and the medians of what was counted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.bench.drive import Driven, latency_ms, names
from headrace.bench.figures import Figures, median_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.bench.server import Server

FAULTS: Final = ("lost", "duplicated", "reordered", "corrupted", "disconnected")
"""What should be 0, as far as the level of service promises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What every round does.

    Attributes:
        publishers, subscribers, idle: connections of each kind; idle ones only stay.
        pattern: `pair` (subscriber i hears publisher i), `all` (each subscriber hears every
            publisher), `share` (the subscribers share one subscription) or `storm` (subscribers
            are sessions that leave, and come back all at once to what has waited for them; their
            number is that of publishers or a multiple, and each hears one).
        queued: messages that wait for each session of a storm, at QoS 1 or 2.
        qos: of publishes and subscriptions.
        payload: bytes, 16 or more.
        window: messages under way per publisher, where `rate` is None.
        rate: messages a second and publisher, on a schedule; None for as fast as it goes.
        warm_up, duration, drain: seconds; of silence at the end, the longest. A storm lasts until
            everything is delivered.
        opening: connections opened at once.
        version: 4 (MQTT 3.1.1) or 5.
        session_expiry: seconds that sessions of subscribers outlive their connection; version 4
            has no time, and there what is above 0 lasts. They end with the run. Those of a storm
            have an hour at 0.
        prefix: begins every topic and client id.
    """

    publishers: int = 1
    subscribers: int = 1
    idle: int = 0
    pattern: str = "pair"
    queued: int = 0
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
class Outcome(Driven):
    """One round against one server."""

    def figures(self) -> Figures:
        """The numbers of a report, base units; None for what there is nothing to say of."""
        counts = self.counts
        connect = latency_ms(counts["connect"])
        connections = counts["connected"]
        storm = counts.get("storm")
        by_second = counts["by_second"]
        rate = counts["measured"] / counts["seconds"] if counts["seconds"] else 0.0
        return {
            "connects_per_second": (
                connections / counts["connect_seconds"] if storm is None else _back(counts, storm)
            ),
            "connect_p50_ms": connect["p50_ms"],
            "connect_p99_ms": connect["p99_ms"],
            **({} if storm is None else storm),
            "delivered_per_second": rate if counts["delivered"] else None,
            "slowest_second": min(by_second, default=None),
            "fastest_second": max(by_second, default=None),
            **{
                name: counts[name]
                for name in ("published", "refused", "expected", "delivered", *FAULTS)
            },
            **latency_ms(counts["latency"]),
            "cpu_seconds_per_million": self.cpu_per_million(counts["delivered"]),
            "resident_bytes": self.resident_bytes,
            "bytes_per_connection": (
                self.grown_bytes / connections
                if self.grown_bytes is not None and connections and not counts["delivered"]
                else None
            ),
            "generator_busy": counts["busy"] if counts["delivered"] else None,
        }


def _back(counts: Mapping[str, Any], storm: Mapping[str, float]) -> float | None:
    """Sessions a second that came back."""
    return counts["connect"]["count"] / storm["back_seconds"] if storm["back_seconds"] else None


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
    # No two runs hear each other, whatever the first left behind.
    plan = asdict(load) | {"prefix": f"{load.prefix}/{next(names)}"}
    return Outcome.of(plan, server, watch)
