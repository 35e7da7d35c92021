"""The real trace as pools of samples, one for each load that it was made under.

Owns which part of the trace stands for which load. The pod label names loads here only: it is how
the capture was annotated.
"""

from __future__ import annotations

import math
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.collect import Reading

PREFIX: Final = "DCGM_FI_"

IDLE: Final = "idle"
"""No process has the GPU: it sleeps at its lowest clocks."""
WAITING: Final = "waiting"
"""A process has the GPU and gives it nothing to do: clocks stay up."""
STALLED: Final = "train-stalled"
COPYING: Final = "pcie-h2d-d2h"
TRAINING: Final = "train"
DENSE: Final = "gemm-bf16"
DOUBLE: Final = "gemm-fp64"
MEMORY: Final = "copy-hbm"

_EDGE_BEFORE: Final = 3
_EDGE_AFTER: Final = 4
"""Samples around a change of load, which show both."""


class Sample(NamedTuple):
    """The moving fields of one scrape, in their units."""

    gpu_util: float
    mem_copy_util: float
    power_watts: float
    gpu_celsius: float
    memory_celsius: float
    sm_mhz: float
    video_mhz: float
    throttle_bits: float
    gr_engine: float
    sm_active: float
    sm_occupancy: float
    tensor: float
    dram: float
    fp64: float
    fp32: float
    fp16: float
    pcie_tx: float
    pcie_rx: float


FIELDS: Final = tuple(
    PREFIX + name
    for name in (
        "DEV_GPU_UTIL", "DEV_MEM_COPY_UTIL", "DEV_POWER_USAGE", "DEV_GPU_TEMP", "DEV_MEMORY_TEMP",
        "DEV_SM_CLOCK", "DEV_VIDEO_CLOCK", "DEV_CLOCK_THROTTLE_REASONS", "PROF_GR_ENGINE_ACTIVE",
        "PROF_SM_ACTIVE", "PROF_SM_OCCUPANCY", "PROF_PIPE_TENSOR_ACTIVE", "PROF_DRAM_ACTIVE",
        "PROF_PIPE_FP64_ACTIVE", "PROF_PIPE_FP32_ACTIVE", "PROF_PIPE_FP16_ACTIVE",
        "PROF_PCIE_TX_BYTES", "PROF_PCIE_RX_BYTES",
    )
)  # fmt: skip
"""Where each number of a `Sample` is from."""


def pools(trace: Iterable[Reading]) -> Mapping[str, tuple[Sample, ...]]:
    """Samples by load, each pool in the order of its capture.

    Raises:
        InputError: the trace lacks a load or its fields.
    """
    scrapes: dict[tuple[int, str], dict[str, float]] = {}
    for reading in trace:
        at = reading.event_us or 0, reading.labels.get("pod", "")
        scrapes.setdefault(at, {})[reading.metric] = _number(reading.raw)
    found: dict[str, tuple[Sample, ...]] = {}
    for pod, run in groupby(scrapes.items(), key=lambda item: item[0][1]):
        values = [value for _, value in run][_EDGE_BEFORE:-_EDGE_AFTER]
        samples = tuple(map(_sample, values))
        whole = tuple(sample for sample in samples if all(map(math.isfinite, sample)))
        load = pod.removesuffix("-0") or (WAITING if IDLE in found else IDLE)
        found[load] = whole or found.get(load, ())
    lacking = [load for load in _LOADS if not found.get(load)]
    if lacking:
        raise InputError(f"the trace of loads lacks {', '.join(lacking)}\ninstall headrace again")
    return found


_LOADS: Final = (IDLE, WAITING, STALLED, COPYING, TRAINING, DENSE, DOUBLE, MEMORY)


def _sample(values: Mapping[str, float]) -> Sample:
    return Sample(*(values.get(field, math.nan) for field in FIELDS))


def _number(raw: str) -> float:
    try:
        return float(raw)
    except ValueError:
        return math.nan
