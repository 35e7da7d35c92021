"""One place of a fleet: a device with the jobs that it gets and the faults that it has.

Owns which of them hold at an instant, and what spoils a scrape without being a fault. Asked about
instants that rise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.simulate import effects, published
from headrace.simulate.device import Device, happened
from headrace.simulate.faults import Kind
from headrace.simulate.loads import Activity
from headrace.simulate.published import HOUR_US, MINUTE_US

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping, Sequence
    from random import Random

    from headrace.simulate.faults import Fault
    from headrace.simulate.jobs import Segment
    from headrace.simulate.trace import Sample

_PROFILED: Final = "DCGM_FI_PROF_"
_GAP_FIELD: Final = "DCGM_FI_PROF_DRAM_ACTIVE"
"""Where the trace with gaps shows NaN; its other PROF fields read a false 0 then."""

_GLITCH_FIELDS: Final = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL")
_LABELS: Final = {"driver_version": "580.159.04", "model_name": "NVIDIA H200"}
_CONTAINER: Final = "main"


class Seen(NamedTuple):
    """What a scrape of a GPU finds."""

    metrics: dict[str, str]
    labels: Mapping[str, str]


class Gpu:
    """A GPU in its slot of a host.

    Args:
        rng: its draws.
        pools: samples of real loads.
        board: slowdown temperature of its board, and warmth of its host.
        slot: index on the host.
        segments: its jobs, in order.
        faults: its faults, in order.
        activities: of jobs that run, by number; shared by the fleet.
        job_random: the draws of a job.
    """

    def __init__(
        self,
        rng: Random,
        pools: Mapping[str, tuple[Sample, ...]],
        board: tuple[int, float],
        slot: int,
        segments: Sequence[Segment],
        faults: Sequence[Fault],
        activities: MutableMapping[int, Activity],
        job_random: Callable[[int], Random],
    ) -> None:
        self.device_name = f"nvidia{slot}"
        self._device = Device(rng, pools, *board)
        self._rng = rng
        self._segments = iter(segments)
        self._segment = next(self._segments, None)
        self._faults = iter(faults)
        self._fault = next(self._faults, None)
        self._in_fault = False
        self._activities = activities
        self._activity: Activity | None = None
        self._active_job = 0
        self._job_random = job_random
        self._bare = {**_LABELS, "gpu": str(slot)}
        self._labels: Mapping[str, str] = self._bare
        self._at_us = 0
        self._blind_until_us = 0
        self._stale: dict[str, str] | None = None

    def scraped(self, at_us: int, tick_us: int) -> Seen | None:
        """What is seen at `at_us`, of the round of scrapes that began at `tick_us`; None: nothing.

        What a job does is asked by round, so that all its GPUs do the same.
        """
        fault = self._fault_at(at_us)
        if fault is not None and fault.kind is Kind.VANISHED:
            return None
        segment = self._segment_at(at_us)
        if fault is not None and fault.kind is Kind.XID:
            segment = None  # its job has crashed
        self._follow(segment)
        if self._stale is not None:
            return Seen(dict(self._stale), self._labels)
        device = self._device
        seconds = (at_us - self._at_us) / 1e6 if self._at_us else 0.0
        self._at_us = at_us
        values = device.live(self._activity, tick_us)
        if fault is not None:
            values = effects.values(device, values, fault, seconds)
        elif segment is not None:
            self._application_errors(seconds)
        device.advance(values, seconds)
        metrics = device.texts(values, segment.job.framebuffer_mib if segment else 0)
        if fault is not None and fault.kind is Kind.STALE:
            self._stale = dict(metrics)
        else:
            self._spoil(metrics, at_us, seconds)
        return Seen(metrics, self._labels)

    def _fault_at(self, at_us: int) -> Fault | None:
        """The fault that holds; its begin and end are done once each."""
        fault = self._fault
        if fault is not None and at_us >= fault.end_us:
            if self._in_fault:
                effects.end(self._device, fault)
            self._stale, self._in_fault = None, False
            fault = self._fault = next(self._faults, None)
        if fault is None or at_us < fault.start_us:
            return None
        if not self._in_fault:
            self._in_fault = True
            effects.begin(self._device, fault)
        return fault

    def _segment_at(self, at_us: int) -> Segment | None:
        segment = self._segment
        while segment is not None and at_us >= segment.end_us:
            segment = self._segment = next(self._segments, None)
        return segment if segment is not None and at_us >= segment.start_us else None

    def _follow(self, segment: Segment | None) -> None:
        """Takes on the job of a segment, with its labels."""
        number = segment.job.number if segment is not None else 0
        if number == self._active_job:
            return
        self._active_job = number
        self._activity, self._labels = None, self._bare
        if segment is not None:
            job = segment.job
            activity = self._activities.get(number)
            if activity is None:
                activity = self._activities[number] = Activity(job, self._job_random(number))
            self._activity = activity
            scheduler = {"container": _CONTAINER, "pod": segment.pod, "namespace": job.namespace}
            self._labels = self._bare | scheduler

    def _application_errors(self, seconds: float) -> None:
        expected = published.APPLICATION_XIDS_PER_HOUR * seconds * 1e6 / HOUR_US
        if happened(self._rng, expected):
            self._device.xid = self._rng.choice(published.APPLICATION_XIDS)

    def _spoil(self, metrics: dict[str, str], at_us: int, seconds: float) -> None:
        """Gaps of profiling, and values that no device has."""
        rng = self._rng
        spells = published.PROFILING_SPELL_PER_HOUR * seconds * 1e6 / HOUR_US
        if happened(rng, spells):
            length = published.PROFILING_SPELL_MINUTES
            self._blind_until_us = at_us + round(rng.uniform(length.low, length.high) * MINUTE_US)
        if at_us < self._blind_until_us or rng.random() < published.PROFILING_GAP_SHARE:
            for field in metrics:
                if field.startswith(_PROFILED):
                    metrics[field] = "nan" if field == _GAP_FIELD else "0.000000"
        if rng.random() < published.GLITCHES_PER_READING * len(metrics):
            metrics[rng.choice(_GLITCH_FIELDS)] = rng.choice(published.GLITCH_TEXTS)
