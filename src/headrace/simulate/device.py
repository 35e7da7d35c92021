"""One GPU of a fleet: its counters, its warmth, and what a scrape of it reads.

Owns the state between scrapes and the text of values. What a fault does to it is in `effects`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.simulate import published, trace
from headrace.simulate.published import HOUR_US

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from headrace.simulate.loads import Activity
    from headrace.simulate.trace import Sample

_WARMING_S: Final = 20.0
"""Time constant of a board's temperature, as in the trace after a change of load."""

_CLOCK_STEP_MHZ: Final = 15
_SENSOR_NOISE: Final = 0.003
_DEVICE_SPREAD: Final = 0.015
_CELSIUS_SPREAD: Final = 2.5
_SILICON_SPREAD: Final = 0.02
"""Of the clock that a chip reaches at its power limit."""

_MEMORY_CLOCK_MHZ: Final = 3201

THROTTLE_POWER_CAP: Final = 0x04
"""DCGM_CLOCKS_EVENT_REASON_SW_POWER_CAP, of `dcgm_fields.h`."""


@dataclass(slots=True)
class Values:
    """Moving values of one scrape, in the units of their fields."""

    gpu_util: float
    mem_copy_util: float
    power_watts: float
    gpu_celsius: float
    memory_celsius: float
    sm_mhz: float
    video_mhz: float
    throttle_bits: int
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
    limit_watts: float = published.POWER_LIMIT_WATTS


class Device:
    """One GPU.

    Args:
        rng: all its draws.
        pools: samples by load.
        slowdown_celsius: of its board.
        warmth_celsius: of its host above that of the trace.
    """

    def __init__(
        self,
        rng: Random,
        pools: Mapping[str, tuple[Sample, ...]],
        slowdown_celsius: int,
        warmth_celsius: float,
    ) -> None:
        self.rng = rng
        self.pools = pools
        self.slowdown_celsius = slowdown_celsius
        self._warmth = warmth_celsius + rng.uniform(-_CELSIUS_SPREAD, _CELSIUS_SPREAD)
        self._power_factor = 1.0 + rng.uniform(-_DEVICE_SPREAD, _DEVICE_SPREAD)
        self._silicon = 1.0 + rng.uniform(-_SILICON_SPREAD, _SILICON_SPREAD)
        self._activity_factor = 1.0 - rng.uniform(0.0, _DEVICE_SPREAD)
        self._celsius = self._memory_celsius = 40.0
        self._watts: float | None = None
        self.energy_mj = float(rng.randrange(10**12))
        self.xid = self.row_pending = self.row_failure = 0
        self.single_bit = self.double_bit = 0.0
        self.correctable_rows = self.uncorrectable_rows = 0
        self.pcie_replays = self.crc_flit = self.crc_data = 0.0
        self.nvlink_replays = self.nvlink_recoveries = 0.0
        self.power_violation_ns = self.thermal_violation_ns = 0.0
        self._history()

    def _history(self) -> None:
        """What is harmless about this GPU, and came about before."""
        rng = self.rng
        if rng.random() < published.REMAPPED_SHARE:
            self.correctable_rows, self.uncorrectable_rows = rng.randint(0, 3), rng.randint(1, 2)
        self._rates = [
            _rate(rng, published.SINGLE_BIT_SHARE, published.SINGLE_BIT_ERRORS_PER_HOUR, 1),
            _rate(rng, published.PCIE_REPLAY_SHARE, published.PCIE_REPLAYS_PER_MINUTE, 60),
            _rate(rng, published.NVLINK_CRC_SHARE, published.NVLINK_CRC_PER_HOUR, 1),
        ]

    def reload(self) -> None:
        """The driver is loaded anew: what it counts since its start begins at 0."""
        self.xid = self.row_pending = 0
        self.single_bit = self.double_bit = self.energy_mj = 0.0
        self.power_violation_ns = self.thermal_violation_ns = 0.0

    def values(self, pool: str, busy: float) -> Values:
        """Values under a load of the trace that has the GPU for `busy` of the time, 0 to 1."""
        samples = self.pools[pool if busy > 0.0 else trace.WAITING]
        sample: Sequence[float] = samples[int(self.rng.random() * len(samples))]
        if 0.0 < busy < 1.0:
            waiting = self.pools[trace.WAITING][0]
            sample = [w + busy * (s - w) for s, w in zip(sample, waiting, strict=True)]
        values = Values(*sample)  # type: ignore[arg-type]
        # Below full use no limit is reached, and bits do not blend.
        values.throttle_bits = int(values.throttle_bits) if busy in {0.0, 1.0} else 0
        if values.throttle_bits & THROTTLE_POWER_CAP:
            values.sm_mhz *= self._silicon
        values.power_watts *= self._power_factor
        values.sm_active *= self._activity_factor
        values.gpu_celsius += self._warmth
        values.memory_celsius += self._warmth
        return values

    def live(self, activity: Activity | None, at_us: int) -> Values:
        """Values at an instant, under its job or nobody's."""
        if activity is None:
            return self.values(trace.IDLE, 1.0)
        values = self.values(activity.pool, activity.busy(at_us))
        if activity.always:
            values.gpu_util = self.rng.choice((98.0, 99.0, 100.0))
        return values

    def advance(self, values: Values, seconds: float) -> None:
        """Time goes on by `seconds`, at whose end `values` hold."""
        rng, hours = self.rng, seconds * 1e6 / HOUR_US
        watts = values.power_watts * (1.0 + rng.uniform(-0.01, 0.01))
        before = watts if self._watts is None else self._watts
        self.energy_mj += (before + watts) * 500.0 * seconds
        self._watts = watts
        values.power_watts = watts * (1.0 + rng.uniform(-_SENSOR_NOISE, _SENSOR_NOISE))
        kept = math.exp(-seconds / _WARMING_S)
        self._celsius = values.gpu_celsius + kept * (self._celsius - values.gpu_celsius)
        self._memory_celsius = values.memory_celsius + kept * (
            self._memory_celsius - values.memory_celsius
        )
        if values.throttle_bits & THROTTLE_POWER_CAP:
            self.power_violation_ns += seconds * 1e9 * rng.uniform(0.2, 1.0)
        single_bit, replays, crc = self._rates
        self.single_bit += happened(rng, single_bit * hours)
        self.pcie_replays += happened(rng, replays * hours)
        self.crc_flit += happened(rng, crc * hours)

    def texts(self, values: Values, framebuffer_mib: int) -> dict[str, str]:
        """What dcgm-exporter prints: whole numbers as they are, others with six decimals."""
        v = values
        used = published.FRAMEBUFFER_BASE_MIB + framebuffer_mib
        return {
            "DCGM_FI_DEV_GPU_UTIL": f"{v.gpu_util:.0f}",
            "DCGM_FI_DEV_MEM_COPY_UTIL": f"{v.mem_copy_util:.0f}",
            "DCGM_FI_DEV_FB_USED": str(used),
            "DCGM_FI_DEV_FB_FREE": str(published.FRAMEBUFFER_MIB - used),
            "DCGM_FI_DEV_POWER_USAGE": f"{v.power_watts:.3f}000",
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": f"{self.energy_mj:.0f}",
            "DCGM_FI_DEV_GPU_TEMP": f"{self._celsius:.0f}",
            "DCGM_FI_DEV_SM_CLOCK": _clock(v.sm_mhz),
            "DCGM_FI_DEV_MEM_CLOCK": str(_MEMORY_CLOCK_MHZ),
            "DCGM_FI_DEV_VIDEO_CLOCK": _clock(v.video_mhz),
            "DCGM_FI_DEV_PSTATE": "0",
            "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": str(v.throttle_bits),
            "DCGM_FI_DEV_ENC_UTIL": "0",
            "DCGM_FI_DEV_DEC_UTIL": "0",
            "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": f"{self.pcie_replays:.0f}",
            "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": f"{self.single_bit:.0f}",
            "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": f"{self.double_bit:.0f}",
            "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": str(self.correctable_rows),
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": str(self.uncorrectable_rows),
            "DCGM_FI_DEV_ROW_REMAP_FAILURE": str(self.row_failure),
            "DCGM_FI_DEV_MEMORY_TEMP": f"{self._memory_celsius:.0f}",
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE": f"{v.gr_engine:.6f}",
            "DCGM_FI_PROF_SM_ACTIVE": f"{v.sm_active:.6f}",
            "DCGM_FI_PROF_SM_OCCUPANCY": f"{v.sm_occupancy:.6f}",
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": f"{v.tensor:.6f}",
            "DCGM_FI_PROF_DRAM_ACTIVE": f"{v.dram:.6f}",
            "DCGM_FI_PROF_PIPE_FP64_ACTIVE": f"{v.fp64:.6f}",
            "DCGM_FI_PROF_PIPE_FP32_ACTIVE": f"{v.fp32:.6f}",
            "DCGM_FI_PROF_PIPE_FP16_ACTIVE": f"{v.fp16:.6f}",
            "DCGM_FI_PROF_PCIE_TX_BYTES": f"{v.pcie_tx:.6f}",
            "DCGM_FI_PROF_PCIE_RX_BYTES": f"{v.pcie_rx:.6f}",
            "DCGM_FI_DEV_ROW_REMAP_PENDING": str(self.row_pending),
            "DCGM_FI_DEV_XID_ERRORS": str(self.xid),
            "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": f"{self.crc_flit:.0f}",
            "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": f"{self.crc_data:.0f}",
            "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": f"{self.nvlink_replays:.0f}",
            "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": f"{self.nvlink_recoveries:.0f}",
            "DCGM_FI_DEV_POWER_VIOLATION": f"{self.power_violation_ns:.0f}",
            "DCGM_FI_DEV_THERMAL_VIOLATION": f"{self.thermal_violation_ns:.0f}",
            "DCGM_FI_DEV_SLOWDOWN_TEMP": str(self.slowdown_celsius),
            "DCGM_FI_DEV_SHUTDOWN_TEMP": str(
                self.slowdown_celsius + published.SHUTDOWN_MARGIN_CELSIUS
            ),
            "DCGM_FI_DEV_POWER_MGMT_LIMIT": f"{v.limit_watts:.6f}",
        }


def happened(rng: Random, expected: float) -> int:
    """How often a thing happened that happens `expected` times on the average."""
    if not expected:
        return 0
    whole = int(expected)
    if whole > 8:  # the normal distribution is close enough to Poisson's
        return max(round(rng.gauss(expected, math.sqrt(expected))), 0)
    times, left = -1, expected
    while left >= 0.0:
        left -= rng.expovariate(1.0)
        times += 1
    return times


def _rate(rng: Random, share: float, bounds: published.Range, per_hour: int) -> float:
    """Times an hour, for a `share` of devices; 0 for the others."""
    drawn = rng.uniform(bounds.low, bounds.high) * per_hour
    return drawn if rng.random() < share else 0.0


def _clock(mhz: float) -> str:
    return str(round(mhz / _CLOCK_STEP_MHZ) * _CLOCK_STEP_MHZ)
