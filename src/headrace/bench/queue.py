"""A load on queues of one broker: publishers, a group of consumers, and when what was settled.

A case is a run on a queue of its own, and stands beside its base: the same with nobody stuck, with
nothing there before, with little open. What comes of both is a ratio.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from headrace.bench.drive import Driven, latency_ms, names
from headrace.bench.figures import Figures, median_of
from headrace.bench.mqtt import FAULTS
from headrace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.bench.server import Server

ACK, PUBACK = "ack", "puback"
ORDERS: Final = ("none", "key", "strict")

QUEUE_FAULTS: Final = (*FAULTS, "refused", "unsettled", "owed")
"""What should be 0; `owed` is what the broker says that it still owes in the end."""

OPEN_PER_CONSUMER: Final = 60_000
"""Below the 65,535 that a prefetch can be, with room for what is on its way."""

OPEN_FEW: Final = 1_000
"""To what many open deliveries are compared."""

OPEN_DEADLINE: Final = "1h"
"""`ack.deadline.ms` where deliveries stay open: none of them is to come again."""

_LONGEST_SECONDS: Final = 3600.0
"""For settlements of which there is a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a run does.

    Attributes:
        publishers, consumers: connections; the consumers are one group.
        stuck: consumers beside those that settle nothing, and go when the publishers have ended.
        settle: `ack` (publishes to `$queue/NAME/$ack`) or `puback`.
        ack_batch: message ids of one such publish, 1 or more.
        prefetch: deliveries that a consumer may have open.
        order: of the queue, `none`, `key` or `strict`.
        keys: that each publisher's messages go round, with order `key`.
        partitions: of the queue.
        depth: messages that are enqueued before consumers come.
        open: deliveries that the consumers together keep open.
        at_random: any of those is settled next, not the one that came first.
        settlements: with as many open; nothing is published meanwhile. 0 for a load of `duration`.
        payload: bytes, 16 or more.
        window: messages under way per publisher, where `rate` is None.
        rate: messages a second and publisher, on a schedule; None for as fast as it goes.
        warm_up, duration, drain: seconds; of silence at the end, the longest.
        opening: connections opened at once.
    """

    publishers: int = 10
    consumers: int = 10
    stuck: int = 0
    settle: str = ACK
    ack_batch: int = 1
    prefetch: int = 1000
    order: str = "none"
    keys: int = 100
    partitions: int = 1
    depth: int = 0
    open: int = 0
    at_random: bool = False
    settlements: int = 0
    payload: int = 100
    window: int = 100
    rate: float | None = None
    warm_up: float = 1.0
    duration: float = 5.0
    drain: float = 10.0
    opening: int = 64

    def plan(self, queue: str) -> dict[str, Any]:
        """What `MqttLoad` takes, but for the server."""
        fills_only = self.settlements > 0
        return {
            "version": 5,
            "qos": 1,
            "pattern": "queue",
            "prefix": queue,
            "session_expiry": 0,
            "idle": 0,
            "publishers": self.publishers,
            "subscribers": self.consumers + self.stuck,
            "opening": self.opening,
            "payload": self.payload,
            "window": self.window,
            "rate": self.rate,
            "warm_up": 0.0 if fills_only else self.warm_up,
            "duration": _LONGEST_SECONDS if fills_only else self.duration,
            "drain": self.drain,
            "queue": {
                "ack_batch": self.ack_batch if self.settle == ACK else 0,
                "prefetch": self.prefetch,
                "stuck": self.stuck,
                "keys": {"none": 0, "key": self.keys, "strict": 1}[self.order],
                "fill": self.depth + self.open + self.settlements,
                "fills_only": fills_only,
                "open": self.open,
                "at_random": self.at_random,
            },
        }

    def settings(self, own: Mapping[str, str]) -> dict[str, str]:
        """Of the queue, with a user's own."""
        settings = {"order": self.order, "dead.letters": "off"}
        if self.open:
            settings["ack.deadline.ms"] = OPEN_DEADLINE
        return settings | dict(own)


@dataclass(frozen=True, slots=True)
class Case:
    """A run, and the name of the one that it is compared to."""

    name: str
    load: Load
    base: str | None = None


def cases_of(load: Load, *, stuck: int, depth: int, in_flight: int) -> list[Case]:
    """The runs that are asked for, each behind its base.

    Args:
        load: of all of them; `settlements` is of those with many open deliveries.
        stuck: consumers of a case that settle nothing, or 0.
        depth: messages that are there before a case, or 0.
        in_flight: deliveries that a case keeps open, or 0.

    Raises:
        InputError: the load makes no sense.
    """
    _check(load, in_flight)
    plain = replace(load, settlements=0)
    cases = []
    if stuck or depth or not in_flight:
        cases.append(Case("plain", plain))
    if stuck:
        cases.append(Case(f"{stuck:,} stuck", replace(plain, stuck=stuck), "plain"))
    if depth:
        cases.append(Case(f"depth {depth:,}", replace(plain, depth=depth), "plain"))
    if in_flight:
        few = min(OPEN_FEW, max(in_flight // 10, 1))
        consumers = max(load.consumers, -(-in_flight // OPEN_PER_CONSUMER))

        def held(count: int, *, at_random: bool) -> Load:
            prefetch = min(-(-count // consumers) + load.prefetch, 65_535)
            return replace(
                load, consumers=consumers, open=count, prefetch=prefetch, at_random=at_random
            )

        base = f"{few:,} open"
        cases += [
            Case(base, held(few, at_random=False)),
            Case(f"{in_flight:,} open", held(in_flight, at_random=False), base),
            Case(f"{in_flight:,} at random", held(in_flight, at_random=True), base),
        ]
    return cases


def _check(load: Load, in_flight: int) -> None:
    if load.settle == PUBACK and load.ack_batch > 1:
        raise InputError("--ack-batch is of --settle ack: a PUBACK settles one delivery")
    if load.settle == PUBACK and in_flight:
        raise InputError(
            "--in-flight takes --settle ack: of deliveries that PUBACK settles a client has 1,024 "
            "open (limits.session_in_flight)"
        )
    if in_flight and load.order != "none":
        raise InputError("--in-flight takes --order none: with others few are out at a time")
    if load.order == "strict" and load.partitions > 1:
        raise InputError("--order strict takes one partition")
    if load.ack_batch > load.prefetch:
        raise InputError("--ack-batch is larger than --prefetch, so no batch would become full")


@dataclass(frozen=True, slots=True)
class Outcome(Driven):
    """One round of one case."""

    owed: int | None = None
    """What the broker says that it owes when all is over."""

    def figures(self, load: Load) -> Figures:
        """The numbers of a report, base units; None for what there is nothing to say of."""
        counts = self.counts
        queue = counts["queue"]
        fill = load.depth + load.open + load.settlements
        unordered = load.order == "none"
        by_puback = load.settle == PUBACK

        def rate(count: int) -> float | None:
            return count / counts["seconds"] if counts["seconds"] and count else None

        settled = rate(queue["settled_measured"])
        return {
            "enqueued_per_second": rate(queue["enqueued_measured"]),
            "delivered_per_second": rate(counts["measured"]),
            "settled_per_second": settled,
            "nanoseconds_per_settlement": 1e9 / settled if settled else None,
            "filled_per_second": fill / queue["fill_seconds"] if fill else None,
            "enqueued": counts["acknowledged"],
            "delivered": counts["delivered"],
            "settled": queue["settled"],
            "redelivered": queue["redelivered"],
            "at_stuck_consumers": queue["stuck"] if load.stuck else None,
            **{name: counts[name] for name in ("lost", "duplicated")},
            "reordered": None if unordered else counts["reordered"],
            **{name: counts[name] for name in ("corrupted", "disconnected", "refused")},
            "unsettled": queue["unsettled"],
            "owed": self.owed,
            **latency_ms(queue["enqueue"], "enqueue_"),
            **latency_ms(counts["latency"], "delivered_"),
            **latency_ms(_NOTHING if by_puback else queue["whole"], "settled_"),
            **latency_ms(_NOTHING if by_puback else queue["settle"], "settle_"),
            "cpu_seconds_per_million": self.cpu_per_million(queue["settled"]),
            "resident_bytes": self.resident_bytes,
        }


_NOTHING: Final = dict.fromkeys(("count", "p50", "p90", "p99", "p99.9", "max"), 0.0)
"""PUBACK has no answer that says when it settled."""


class Door(Protocol):
    """Makes and ends queues of the broker."""

    def create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        """A queue, which there was not."""

    def owed(self, name: str) -> int:
        """Messages that it owes, once all that was said to the broker has been heard."""

    def delete(self, name: str) -> None:
        """The queue and its messages are no more."""


def run(
    cases: Sequence[Case],
    server: Server,
    door: Door,
    rounds: int,
    settings: Mapping[str, str],
    outcomes: dict[str, list[Outcome]],
    watch: Callable[[str, dict[str, Any]], None] = lambda *_: None,
) -> None:
    """Rounds of each case in turn, each on a queue of its own, which goes again.

    Args:
        cases: with different names.
        server: the broker.
        door: its other one.
        rounds: 1 or more.
        settings: of the queues.
        outcomes: gets what was measured by case, so that an error takes none away.
        watch: is told of case and the counts so far, ten times a second.

    Raises:
        InputError: the load makes no sense, or the broker is not there.
        OSError: the machine gives no sockets.
    """
    for index in range(rounds):
        for case in cases:
            words = case.name if rounds == 1 else f"{case.name}, round {index + 1} of {rounds}"
            name, load = f"bench-{next(names)}", case.load
            door.create(name, load.partitions, load.settings(settings))
            try:
                outcome = Outcome.of(load.plan(name), server, lambda now: watch(words, now))  # noqa: B023 - it is over before the next
                outcome = replace(outcome, owed=door.owed(name))
            finally:
                door.delete(name)
            outcomes.setdefault(case.name, []).append(outcome)


def medians(case: Case, outcomes: Sequence[Outcome]) -> Figures:
    """The median of each figure over rounds; of what should be 0, the sum."""
    return median_of([each.figures(case.load) for each in outcomes], sums=QUEUE_FAULTS)
