"""The MQTT workloads: who publishes to whom, how much, how fast, and what is to be reached."""

from __future__ import annotations

import resource
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from headrace.bench import Server, mqtt
from headrace.bench.suite.peers.peer import Door, Feature, Mode
from headrace.bench.suite.workloads import Round, Workload
from headrace.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.bench.figures import Figures
    from headrace.bench.suite.peers.peer import Running
    from headrace.bench.suite.workloads import Timing

KIB: Final = 1024
RATE: Final = "delivered_per_second"

SATURATION: Final = "saturation"
OPEN_SUITE: Final = "open MQTT benchmark suite, scaled"
FAN_OUT: Final = "original design: fan-out"
PLATFORM: Final = "original design: what a broker is to carry"
OWN: Final = "payloads and levels of service"

SESSION_SECONDS: Final = 3600
"""Of subscribers' sessions in durable mode: what is for them is stored, too."""

STORM_DRAIN_SECONDS: Final = 30.0
"""Of silence: some servers take long to find what waits for a session."""

UNDER_WAY: Final = 20_000
"""Deliveries of a fan-out that are on their way, over all subscribers."""

_SPARE_DESCRIPTORS: Final = 200

CONNECTS_PER_SECOND: Final = 2000
ENDS_SECONDS: Final = 0.5
"""Of a round, beside what its load says: for the estimate of how long all takes."""
STORM_SECONDS: Final = 20.0

DURABLE_NOTE: Final = (
    "Subscribers have persistent sessions. headrace acknowledges after fdatasync, in batches of "
    "`messages_per_commit`; what others promise is said with them."
)


def mqtt_workloads(timing: Timing) -> Sequence[Workload]:
    """All that this machine's descriptors allow."""
    load = partial(
        mqtt.Load,
        warm_up=timing.warm_up,
        duration=timing.duration,
        drain=timing.drain,
        version=4,  # every broker has it
    )
    return [
        *_saturation(load),
        *_payloads(load),
        *_open_suite(load),
        *_fan_out(load),
        *_platform(load),
        *_storms(load),
    ]


Loads = partial[mqtt.Load]


def _saturation(load: Loads) -> list[Workload]:
    ten = load(publishers=10, subscribers=10, qos=1, window=20)
    return [
        _workload(
            "one-to-one", "1 publisher, 1 subscriber, QoS 0, 100 B, as fast as it goes",
            SATURATION, load(window=8000), bounds={"mosquitto": 20.0}, is_quick=True,
        ),
        _workload(
            "ten-to-ten", "10 pairs, QoS 1, 20 under way each, 100 B", SATURATION, ten,
            bounds={"mosquitto": 4.0}, is_quick=True,
        ),
        _durable(
            "ten-to-ten", "10 pairs, QoS 1, 20 under way each, 100 B", SATURATION, ten,
            is_quick=True,
        ),
        _durable(
            "hundred-to-hundred", "100 pairs, QoS 1, 100 under way each, 100 B", SATURATION,
            load(publishers=100, subscribers=100, qos=1, window=100),
        ),
        _workload(
            "one-to-hundred", "1 publisher, 100 subscribers, QoS 0, 100 B", SATURATION,
            load(subscribers=100, pattern="all", window=200), bounds={"mosquitto": 5.0},
            is_quick=True,
        ),
        _workload(
            "hundred-to-one", "100 publishers, 1 subscriber, QoS 1, 20 under way each, 100 B",
            SATURATION, load(publishers=100, pattern="all", qos=1, window=20), at_least=80_000,
            is_quick=True,
        ),
    ]  # fmt: skip


def _payloads(load: Loads) -> list[Workload]:
    one = partial(_workload, source=OWN)
    pairs = partial(load, publishers=10, subscribers=10, window=20)
    return [
        one("payload-16b", "1 to 1, QoS 0, 16 B", load=load(payload=16, window=8000)),
        one(
            "payload-64k", "1 to 1, QoS 0, 64 KiB", load=load(payload=64 * KIB, window=64),
            bounds={"relay": 0.7}, beside=("relay",), is_quick=True,
            note="The relay passes bytes on from one socket to the other, and knows no MQTT.",
        ),
        one("payload-64k-qos1", "10 pairs, QoS 1, 64 KiB", load=pairs(qos=1, payload=64 * KIB)),
        one("qos0", "10 pairs, QoS 0, 256 B, 2,000 under way each",
            load=load(publishers=10, subscribers=10, payload=256, window=2000)),
        one("qos1", "10 pairs, QoS 1, 256 B, 20 under way each", load=pairs(qos=1, payload=256)),
        one(
            "qos2", "10 pairs, QoS 2, 256 B, 20 under way each", load=pairs(qos=2, payload=256),
            needs=frozenset({Feature.QOS_2}),
        ),
    ]  # fmt: skip


def _open_suite(load: Loads) -> list[Workload]:
    late = partial(_workload, source=OPEN_SUITE, figure="p50_ms", unit="ms", less_is_better=True)
    small = partial(load, qos=1, payload=16)
    shared = frozenset({Feature.SHARED, Feature.MQTT_5})
    return [
        *_where_allowed(
            10_000,
            _workload(
                "connections", "10,000 connections, as fast as they are taken", OPEN_SUITE,
                load(publishers=0, subscribers=0, idle=10_000, duration=1.0),
                figure="connects_per_second", unit="connections/s",
            ),
        ),
        late(
            "fan-out-1k", "1 publisher at 1/s, 1,000 subscribers, QoS 1, 16 B",
            load=small(subscribers=1000, pattern="all", rate=1.0), is_quick=True,
        ),
        late(
            "p2p-1k", "1,000 pairs at 1/s each, QoS 1, 16 B", bounds={"mosquitto": 1.2},
            load=small(publishers=1000, subscribers=1000, rate=1.0), is_quick=True,
        ),
        late(
            "share-1k", "1,000 publishers at 1/s each, 5 that share, QoS 1, 16 B",
            load=small(publishers=1000, subscribers=5, pattern="share", rate=1.0, version=5),
            needs=shared, is_quick=True,
        ),
        *_where_allowed(
            10_000,
            late(
                "p2p-5k", "5,000 pairs at 1/s each, QoS 1, 16 B",
                load=small(publishers=5000, subscribers=5000, rate=1.0),
            ),
        ),
        late(
            "fan-out-500", "5 publishers at 10/s each, 500 subscribers, QoS 1, 16 B",
            load=small(publishers=5, subscribers=500, pattern="all", rate=10.0),
        ),
        *_where_allowed(
            5_050,
            late(
                "share-5k", "5,000 publishers at 1/s each, 50 that share, QoS 1, 16 B",
                load=small(publishers=5000, subscribers=50, pattern="share", rate=1.0, version=5),
                needs=shared,
            ),
        ),
    ]  # fmt: skip


def _fan_out(load: Loads) -> list[Workload]:
    return [
        _workload(
            f"fan-out-{subscribers}-{payload}b",
            f"1 publisher, {counted(subscribers, 'subscriber')}, QoS 0, {payload:,} B", FAN_OUT,
            load(
                subscribers=subscribers, pattern="all", payload=payload,
                window=min(UNDER_WAY // subscribers, 8000),
            ),
        )
        for payload in (256, KIB)
        for subscribers in (1, 10, 100, 500, 1000)
    ]  # fmt: skip


def _platform(load: Loads) -> list[Workload]:
    sent = partial(load, publishers=100, subscribers=100, rate=1000.0, idle=9800, payload=256)
    return [
        *_where_allowed(
            10_000,
            *(
                _workload(
                    f"rate-100k-qos{qos}",
                    f"100 pairs at 1,000/s each, QoS {qos}, 256 B; 10,000 connections open",
                    PLATFORM, sent(qos=qos), figure="p99_ms", unit="ms", less_is_better=True,
                    at_least=10.0,
                )
                for qos in (0, 1)
            ),
        ),
        _workload(
            "payload-1m", "1 to 1, QoS 1, 1 MiB, 4 under way", PLATFORM,
            load(qos=1, payload=KIB * KIB, window=4),
        ),
    ]  # fmt: skip


def _storms(load: Loads) -> list[Workload]:
    storm = load(
        pattern="storm", publishers=10, subscribers=2000, queued=100, qos=1, window=100,
        session_expiry=SESSION_SECONDS, drain=STORM_DRAIN_SECONDS,
    )  # fmt: skip
    return [
        _workload(
            "reconnect-storm", "2,000 sessions come back, to 100 messages of QoS 1 each",
            OPEN_SUITE, storm, figure="emptied_seconds", unit="s", less_is_better=True,
            modes=tuple(Mode),
            note="From the first connect until all have what had waited for them.",
        )
    ]  # fmt: skip


def _where_allowed(connections: int, *workloads: Workload) -> Sequence[Workload]:
    """Workloads of so many connections, where a process may have them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard == resource.RLIM_INFINITY or connections + _SPARE_DESCRIPTORS <= hard
    return workloads if enough else ()


def _workload(
    name: str,
    title: str,
    source: str,
    load: mqtt.Load,
    *,
    figure: str = RATE,
    unit: str = "messages/s",
    **more: Any,  # noqa: ANN401 - fields of Workload
) -> Workload:
    """In memory mode, unless `more` says otherwise."""
    return Workload(
        name=name, title=title, source=source, door=Door.MQTT, figure=figure, unit=unit,
        once=partial(once, load), seconds=_seconds(load), **{"modes": (Mode.MEMORY,)} | more,
    )  # fmt: skip


def _seconds(load: mqtt.Load) -> float:
    """That a round takes where a server does what it should."""
    if load.pattern == "storm":
        return STORM_SECONDS
    connections = load.publishers + load.subscribers + load.idle
    warm_up = load.warm_up if load.publishers else 0.0
    return warm_up + load.duration + ENDS_SECONDS + connections / CONNECTS_PER_SECOND


def _durable(
    name: str,
    title: str,
    source: str,
    load: mqtt.Load,
    **more: Any,  # noqa: ANN401 - fields of Workload
) -> Workload:
    """In durable mode: sessions outlive their connections, so a message is owed on two sides."""
    return _workload(
        name, title, source, replace(load, session_expiry=SESSION_SECONDS),
        modes=(Mode.DURABLE,), note=DURABLE_NOTE, **more,
    )  # fmt: skip


def once(load: mqtt.Load, running: Running | None, mode: Mode) -> Round:
    """One round.

    Raises:
        InputError: the server is gone.
        OSError: the machine gives no sockets.
    """
    assert running is not None
    server = Server("", running.doors[Door.MQTT], running.pid)
    commits = running.commits() if running.commits else 0.0
    (outcome,) = mqtt.run(load, [server], 1)[""]
    figures: Figures = outcome.figures()
    if running.commits and mode is Mode.DURABLE:
        made = running.commits() - commits
        figures["messages_per_commit"] = outcome.counts["published"] / made if made else None
    return Round(
        figures=figures,
        by_second=outcome.counts["by_second"],
        trouble=outcome.counts["trouble"] or _missing(load, outcome.counts),
    )


def _missing(load: mqtt.Load, counts: dict[str, Any]) -> str | None:
    """What makes a round meaningless of which nobody has told."""
    asked = load.publishers + load.subscribers + load.idle
    if (there := counts["connected"] + counts["disconnected"]) < asked:
        return f"{there:,} of {asked:,} connections came about"
    if load.publishers and not counts["delivered"]:
        return "nothing was delivered"
    return None
