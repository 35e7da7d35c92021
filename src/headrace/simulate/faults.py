"""Faults of a fleet: of which kind, where, when and how bad; drawn before the first reading.

Owns the plan and the words that describe it: what a detection is scored against. Each fault shows
in the fields of its own kind only, so that the score of one kind says nothing of another's: a
throttled GPU works alone, a GPU with a fatal XID loses its job. No GPU has two faults within
`_APART_US`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from headrace.collect.instants import format_instant
from headrace.errors import InputError
from headrace.simulate import published
from headrace.simulate.jobs import Load
from headrace.simulate.published import GPUS_PER_HOST, MINUTE_US, Range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

    from headrace.simulate.jobs import Scheduler


class Kind(StrEnum):
    """Kinds of detections."""

    IDLE_ALLOCATED = "idle_allocated"
    FAKE_BUSY = "fake_busy"
    POWER_CAP = "power_cap"
    THERMAL = "thermal"
    HW_SLOWDOWN = "hw_slowdown"
    XID = "xid"
    ECC = "ecc"
    ROW_REMAP = "row_remap"
    NVLINK = "nvlink"
    PCIE = "pcie"
    STRAGGLER = "straggler"
    VANISHED = "vanished"
    STALE = "stale"


LEAD_US: Final = 6 * MINUTE_US
"""Before the first fault and after the last one: what is normal shows first, and what ended."""

_APART_US: Final = 12 * MINUTE_US
_TRIES: Final = 400
_HOST_EVERY: Final = 3
"""Every third fault of the kind `vanished` takes a whole host."""

_ALONE: Final = (Load.TRAINING, Load.DENSE)
_NEEDS: Final[Mapping[Kind, tuple[Load, ...]]] = {
    Kind.IDLE_ALLOCATED: (Load.TRAINING,),
    Kind.FAKE_BUSY: (Load.TRAINING,),
    Kind.POWER_CAP: _ALONE,
    Kind.THERMAL: _ALONE,
    Kind.HW_SLOWDOWN: _ALONE,
    Kind.STRAGGLER: _ALONE,
    Kind.STALE: _ALONE,
}
"""Kinds that need work to show, which a job of their own brings."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        number: from 1.
        kind: what it must be detected as.
        gpus: indexes in the fleet.
        start_us: first instant at which it shows.
        end_us: the instant at which it no longer does.
        parameters: what was drawn, by name with unit.
    """

    number: int
    kind: Kind
    gpus: tuple[int, ...]
    start_us: int
    end_us: int
    parameters: Mapping[str, Any]

    @property
    def text(self) -> str:
        """A sentence that a person understands."""
        named = "variant" in self.parameters
        key = f"{self.kind}/{self.parameters['variant']}" if named else str(self.kind)
        return _TEXTS[key].format(**self.parameters)

    def line(self, host: str, uuid: str) -> str:
        """One line of the truth: this fault as it is on one of its GPUs, as a JSON object."""
        return json.dumps(
            {
                "fault": self.number,
                "kind": self.kind,
                "host": host,
                "uuid": uuid,
                "gpu_i_id": "",
                "start": format_instant(self.start_us),
                "end": format_instant(self.end_us),
                "parameters": self.parameters,
                "text": self.text,
            },
            ensure_ascii=False,
        )


class Planner:
    """Draws faults, and takes the time of GPUs for them."""

    def __init__(self, rng: Random, scheduler: Scheduler, start_us: int, end_us: int) -> None:
        self._rng = rng
        self._scheduler = scheduler
        self._start_us = start_us
        self._end_us = end_us
        self._taken: list[list[tuple[int, int]]] = [[] for _ in scheduler.segments]

    def plan(self, kinds: Iterable[Kind], per_kind: int) -> list[Fault]:
        """Faults in the order of their start.

        Raises:
            InputError: the fleet is too small for them, or its time too short.
        """
        # Those that take several GPUs at once go first, while there is room.
        order = sorted(set(kinds), key=lambda kind: (kind not in _MANY, kind))
        drawn = [self._draw(kind, turn, per_kind) for kind in order for turn in range(per_kind)]
        drawn.sort(key=lambda fault: (fault.start_us, fault.kind, fault.gpus))
        return [
            Fault(number, old.kind, old.gpus, old.start_us, old.end_us, old.parameters)
            for number, old in enumerate(drawn, 1)
        ]

    def _draw(self, kind: Kind, turn: int, per_kind: int) -> Fault:
        rng = self._rng
        minutes = published.IDLE_MINUTES if kind in _LONG else published.FAULT_MINUTES
        room_us = self._end_us - self._start_us - 2 * LEAD_US
        if room_us < minutes.low * MINUTE_US:
            needed = (int(minutes.low) * MINUTE_US + 2 * LEAD_US) // MINUTE_US
            raise InputError(
                f"{kind}: shows in {minutes.low:g} minutes at least\n"
                f"make the fleet's time {needed}m or longer with --duration"
            )
        parameters = _DRAWS[kind](rng, turn)
        for _ in range(_TRIES):
            length_us = min(round(_between(rng, minutes) * MINUTE_US), room_us)
            start_us = self._start_us + LEAD_US + rng.randint(0, room_us - length_us)
            end_us = start_us + length_us
            if parameters.get("variant") == "failure":  # no reset mends it
                end_us = self._end_us
            gpus = self._gpus(kind, parameters)
            if self._free(gpus, start_us, end_us):
                break
        else:
            raise InputError(
                f"{kind}: no room for fault {turn + 1} of {per_kind} on "
                f"{len(self._taken)} GPUs\nask for fewer with --faults or --faults-per-kind, or "
                f"for more with --gpus or --duration"
            )
        for gpu in gpus:
            self._taken[gpu].append((start_us - _APART_US, end_us + _APART_US))
        if kind in _NEEDS:
            job = self._scheduler.job(rng.choice(_NEEDS[kind]), steady=True)
            self._scheduler.place(job, gpus, start_us - LEAD_US, end_us + LEAD_US)
        if kind is Kind.STRAGGLER:
            parameters["job_gpus"] = len(gpus)
            gpus = [rng.choice(gpus)]
        return Fault(0, kind, tuple(gpus), start_us, end_us, parameters)

    def _gpus(self, kind: Kind, parameters: Mapping[str, Any]) -> Sequence[int]:
        rng, fleet = self._rng, len(self._taken)
        gpu = rng.randrange(fleet)
        size = 1
        if kind is Kind.STRAGGLER:
            size = rng.choice((4, GPUS_PER_HOST))
        elif parameters.get("variant") == "host":
            size = GPUS_PER_HOST
        first = gpu - gpu % size
        return range(first, first + size)

    def _free(self, gpus: Sequence[int], start_us: int, end_us: int) -> bool:
        return gpus[-1] < len(self._taken) and not any(
            start_us < taken_end and taken_start < end_us
            for gpu in gpus
            for taken_start, taken_end in self._taken[gpu]
        )


_MANY: Final = frozenset({Kind.STRAGGLER, Kind.VANISHED})
_LONG: Final = frozenset({Kind.IDLE_ALLOCATED, Kind.FAKE_BUSY, Kind.STRAGGLER})


def _between(rng: Random, bounds: Range) -> float:
    return rng.uniform(bounds.low, bounds.high)


def _some(rng: Random, bounds: Range, digits: int = 2) -> float:
    return round(_between(rng, bounds), digits)


def _idle(rng: Random, _turn: int) -> dict[str, Any]:
    return {"variant": rng.choice(("stalled", "waiting"))}


def _fake_busy(rng: Random, turn: int) -> dict[str, Any]:
    if turn % 2:
        return {"variant": "copying"}
    return {
        "variant": "spinning",
        "multiprocessors": rng.choice(published.SPINNING_SMS),
        "power_watts": _some(rng, published.SPINNING_WATTS, 0),
    }


def _power_cap(rng: Random, _turn: int) -> dict[str, Any]:
    return {
        "limit_watts": _some(rng, published.CAPPED_WATTS, 0),
        "default_limit_watts": published.POWER_LIMIT_WATTS,
    }


def _thermal(rng: Random, _turn: int) -> dict[str, Any]:
    return {
        "variant": rng.choice(("software", "hardware")),
        "over_slowdown_celsius": _some(rng, published.OVER_SLOWDOWN_CELSIUS, 1),
        "clock_share": _some(rng, published.HOT_CLOCK_SHARE),
        "violation_share": _some(rng, published.HOT_VIOLATION_SHARE),
    }


def _hw_slowdown(rng: Random, turn: int) -> dict[str, Any]:
    return {
        "variant": "power_brake" if turn % 2 else "slowdown",
        "clock_share": _some(rng, published.SLOWDOWN_CLOCK_SHARE),
    }


def _xid(rng: Random, _turn: int) -> dict[str, Any]:
    code = rng.choice(sorted(published.FATAL_XIDS))
    return {"code": code, "meaning": published.FATAL_XIDS[code]}


def _ecc(rng: Random, turn: int) -> dict[str, Any]:
    if turn % 2:
        rate = _some(rng, published.SINGLE_BIT_STORM_PER_MINUTE, 0)
        return {"variant": "single_bit", "per_minute": rate}
    return {"variant": "double_bit", "errors": rng.choice(published.DOUBLE_BIT_ERRORS)}


def _row_remap(rng: Random, turn: int) -> dict[str, Any]:
    variant = "failure" if turn % 2 else "pending"
    return {"variant": variant, "rows": rng.choice(published.REMAPPED_ROWS)}


def _nvlink(rng: Random, turn: int) -> dict[str, Any]:
    variant = ("replay", "recovery", "crc_flit", "crc_data")[turn % 4]
    if variant.startswith("crc"):
        return {"variant": variant, "per_second": _some(rng, published.NVLINK_CRC_PER_SECOND, 0)}
    return {"variant": variant, "per_minute": _some(rng, published.NVLINK_REPLAYS_PER_MINUTE)}


def _pcie(rng: Random, _turn: int) -> dict[str, Any]:
    return {"per_minute": _some(rng, published.PCIE_STORM_PER_MINUTE, 0)}


def _straggler(rng: Random, _turn: int) -> dict[str, Any]:
    return {
        "clock_share": _some(rng, published.STRAGGLER_CLOCK_SHARE),
        "activity_share": _some(rng, published.STRAGGLER_ACTIVITY_SHARE),
    }


def _vanished(_rng: Random, turn: int) -> dict[str, Any]:
    return {"variant": "host" if turn % _HOST_EVERY == 1 else "gpu"}


_DRAWS: Final[Mapping[Kind, Callable[[Random, int], dict[str, Any]]]] = {
    Kind.IDLE_ALLOCATED: _idle,
    Kind.FAKE_BUSY: _fake_busy,
    Kind.POWER_CAP: _power_cap,
    Kind.THERMAL: _thermal,
    Kind.HW_SLOWDOWN: _hw_slowdown,
    Kind.XID: _xid,
    Kind.ECC: _ecc,
    Kind.ROW_REMAP: _row_remap,
    Kind.NVLINK: _nvlink,
    Kind.PCIE: _pcie,
    Kind.STRAGGLER: _straggler,
    Kind.VANISHED: _vanished,
    Kind.STALE: lambda _rng, _turn: {},
}

_TEXTS: Final[Mapping[str, str]] = {
    "idle_allocated/stalled": "a training job holds the GPU and stands still",
    "idle_allocated/waiting": "a process holds the GPU and starts nothing on it",
    "fake_busy/copying": "copies over PCIe keep the utilisation up, and nothing is computed",
    "fake_busy/spinning": "a kernel on {multiprocessors} of 132 multiprocessors spins at "
    "{power_watts:g} W",
    "power_cap": "somebody has set a limit of {limit_watts:g} W, of {default_limit_watts:g} W",
    "thermal/software": "{over_slowdown_celsius:g} °C above its slowdown temperature, software "
    "holds the clock at {clock_share:.0%}",
    "thermal/hardware": "{over_slowdown_celsius:g} °C above its slowdown temperature, hardware "
    "holds the clock at {clock_share:.0%}",
    "hw_slowdown/slowdown": "hardware holds the clock at {clock_share:.0%}",
    "hw_slowdown/power_brake": "its machine's power brake holds the clock at {clock_share:.0%}",
    "xid": "XID {code}, {meaning}: its job is gone until the driver is loaded anew",
    "ecc/double_bit": "double bit errors, which cannot be corrected: {errors}",
    "ecc/single_bit": "{per_minute:g} single bit errors a minute",
    "row_remap/pending": "remapped rows that wait for a reset: {rows}",
    "row_remap/failure": "rows whose remapping failed, which no reset mends: {rows}",
    "nvlink/replay": "{per_minute:g} replays a minute over NVLink",
    "nvlink/recovery": "{per_minute:g} recoveries a minute of NVLink",
    "nvlink/crc_flit": "{per_second:g} flits a second with a wrong CRC over NVLink",
    "nvlink/crc_data": "{per_second:g} data packets a second with a wrong CRC over NVLink",
    "pcie": "{per_minute:g} replays a minute over PCIe",
    "straggler": "one of {job_gpus} GPUs of its job runs at {clock_share:.0%} of the clock and "
    "{activity_share:.0%} of the activity of the others",
    "vanished/gpu": "the GPU is in no scrape while its host goes on",
    "vanished/host": "the whole host is silent",
    "stale": "the same values are served again and again under new times",
}
