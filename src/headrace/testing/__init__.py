"""Simulated lives of the store, and a checker of histories. Public; see `docs/testing.md`.

Owns: `simulate`, which runs the real log engine on a disk in memory that fails as disks do, from
one seed; `History`, which judges what clients saw, of a simulation or of a real node. The inner
loops are Rust (`crates/headrace-core/src/testing`); nothing here touches time, files or sockets.

    >>> from headrace.testing import History, simulate
    >>> simulate(7).anomaly is None
    True
    >>> history = History()
    >>> history.append("sensor", "gpu/0", 1, timestamp_ms=1000)
    >>> history.stored(1, offset=0)
    >>> history.scan("gpu/0", 0, 0, [])
    >>> history.anomalies[0].kind
    'lost'
"""

from headrace.native import (
    Anomaly,
    History,
    SimulatedRun,
    faults,
    payload,
    simulate,
    value_of,
)

__all__ = [
    "Anomaly",
    "History",
    "SimulatedRun",
    "faults",
    "payload",
    "simulate",
    "value_of",
]
