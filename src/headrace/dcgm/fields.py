# ruff: noqa: E501 - in a table, a row is a line
"""The DCGM fields that the pipeline knows: names, units, ranges, and what an interval keeps.

Owns facts about fields, no behaviour beyond looking them up. A field that is not here is still
stored; it has no unit, no range and no column in `gpu_intervals`.

Ranges are those of the widest device in use, for a reading rarely says which device it is from:
PCIe gen 6 x16, NVLink of Blackwell, GDDR memory clocks. What lies outside is no measurement.

Source: names, ids and renames from DCGM's `dcgm_fields.h`; units and types from there and from
dcgm-exporter's `etc/default-counters.csv`; names in lower case from dcgm-exporter 1.x. Types are ours where the exporter's are wrong (it calls
the PROF byte rates and NVLINK_BANDWIDTH_TOTAL counters; all are rates).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

PROFILING_PREFIX: Final = "DCGM_FI_PROF_"
"""Fields of one profiling sample: they are valid together or not at all."""


class Kind(StrEnum):
    """How the values of a field follow each other."""

    GAUGE = "gauge"
    COUNTER = "counter"
    STATIC = "static"


class Keep(StrEnum):
    """What an interval keeps of a field, and the suffix of its column."""

    MEAN = "mean"
    MAX = "max"
    LAST = "last"
    ANY_BITS = "any"
    DELTA = "delta"


@dataclass(frozen=True, slots=True)
class Field:
    """One DCGM field.

    Attributes:
        name: canonical name, the one that dcgm-exporter prints.
        id: DCGM's number of the field; None for what only the exporter computes.
        unit: of the value; empty for counts, flags and codes.
        kind: gauge, counter or static.
        low: least value that is a measurement.
        high: greatest value that is a measurement.
        aliases: other names of the same field.
        column: stem of its columns in `gpu_intervals`; empty where it has none.
        keeps: what an interval keeps; for a counter `DELTA`, in `unit` times `scale`.
        integer: whether DCGM holds it as INT64 rather than FP64.
        scale: factor from the field's unit to that of its interval column.
    """

    name: str
    id: int | None
    unit: str
    kind: Kind
    low: float
    high: float
    aliases: tuple[str, ...] = ()
    column: str = ""
    keeps: tuple[Keep, ...] = ()
    integer: bool = True
    scale: float = 1.0

    @property
    def profiling(self) -> bool:
        """Whether the field belongs to the profiling sample of a scrape."""
        return self.name.startswith(PROFILING_PREFIX)

    @property
    def columns(self) -> dict[Keep, str]:
        """Columns of the field in `gpu_intervals`."""
        return {
            keep: self.column if keep is Keep.DELTA else f"{self.column}_{keep}"
            for keep in self.keeps
        }


_ANY: Final = (0.0, inf)
_PERCENT: Final = (0.0, 100.0)
_RATIO: Final = (0.0, 1.0)
_CLOCK_MHZ: Final = (0.0, 4_000.0)
_MEMORY_CLOCK_MHZ: Final = (0.0, 20_000.0)
_CELSIUS: Final = (0.0, 110.0)
_LIMIT_CELSIUS: Final = (60.0, 120.0)
_WATTS: Final = (0.0, 2_000.0)
_FRAMEBUFFER_MIB: Final = (0.0, 524_288.0)
_PCIE_BYTES: Final = (0.0, 1.28e11)
_NVLINK_BYTES: Final = (0.0, 9.0e11)
_ROWS: Final = (0.0, 1_024.0)
_FLAG: Final = (0.0, 1.0)

_FIRST_NAMES: Final[Mapping[int, str]] = {
    100: "sm_clock", 101: "memory_clock", 140: "memory_temp", 150: "gpu_temp",
    155: "power_usage", 156: "total_energy_consumption",
    200: "pcie_tx_throughput", 201: "pcie_rx_throughput", 202: "pcie_replay_counter",
    203: "gpu_utilization", 204: "mem_copy_utilization", 206: "enc_utilization",
    207: "dec_utilization", 230: "xid_errors",
    240: "power_violation", 241: "thermal_violation", 242: "sync_boost_violation",
    243: "board_limit_violation", 244: "low_util_violation", 245: "reliability_violation",
    250: "fb_total", 251: "fb_free", 252: "fb_used",
    310: "ecc_sbe_volatile_total", 311: "ecc_dbe_volatile_total",
    312: "ecc_sbe_aggregate_total", 313: "ecc_dbe_aggregate_total",
    390: "retired_pages_sbe", 391: "retired_pages_dbe", 392: "retired_pages_pending",
    409: "nvlink_flit_crc_error_count_total", 419: "nvlink_data_crc_error_count_total",
    429: "nvlink_replay_error_count_total", 439: "nvlink_recovery_error_count_total",
    449: "nvlink_bandwidth_total",
    1001: "fi_prof_gr_engine_active", 1002: "fi_prof_sm_active", 1003: "fi_prof_sm_occupancy",
    1004: "fi_prof_pipe_tensor_active", 1005: "fi_prof_dram_active",
    1006: "fi_prof_pipe_fp64_active", 1007: "fi_prof_pipe_fp32_active",
    1008: "fi_prof_pipe_fp16_active", 1009: "fi_prof_pcie_tx_bytes",
    1010: "fi_prof_pcie_rx_bytes", 1011: "fi_prof_nvlink_tx_bytes",
    1012: "fi_prof_nvlink_rx_bytes",
}  # fmt: skip
"""What dcgm-exporter 1.x called a field, after `dcgm_`, by the field's number. Units were the same,
for it printed DCGM's values as they are."""


def _names(number: int | None, aliases: tuple[str, ...]) -> tuple[str, ...]:
    """Other names of a field: those that DCGM gave it, and that of the first exporters."""
    known = tuple(f"DCGM_FI_{alias}" for alias in aliases)
    first = _FIRST_NAMES.get(number or 0)
    return known if first is None else (*known, f"dcgm_{first}")


_MEAN: Final = (Keep.MEAN,)
_MEAN_MAX: Final = (Keep.MEAN, Keep.MAX)
_MAX: Final = (Keep.MAX,)
_LAST: Final = (Keep.LAST,)


def _gauge(
    name: str,
    number: int | None,
    unit: str,
    bounds: tuple[float, float],
    *aliases: str,
    column: str = "",
    keeps: tuple[Keep, ...] = (),
    integer: bool = True,
    kind: Kind = Kind.GAUGE,
) -> Field:
    low, high = bounds
    names = _names(number, aliases)
    return Field(
        f"DCGM_FI_{name}", number, unit, kind, low, high, names, column, keeps, integer=integer
    )


def _static(
    name: str, number: int, unit: str, bounds: tuple[float, float], *aliases: str,
    column: str = "", integer: bool = True,
) -> Field:  # fmt: skip
    keeps = _LAST if column else ()
    return _gauge(
        name, number, unit, bounds, *aliases, column=column, keeps=keeps, integer=integer,
        kind=Kind.STATIC,
    )  # fmt: skip


def _counter(
    name: str, number: int, unit: str, *aliases: str, column: str = "",
    bounds: tuple[float, float] = _ANY, scale: float = 1.0,
) -> Field:  # fmt: skip
    low, high = bounds
    names = _names(number, aliases)
    keeps = (Keep.DELTA,) if column else ()
    return Field(
        f"DCGM_FI_{name}", number, unit, Kind.COUNTER, low, high, names, column, keeps, scale=scale
    )


def _profiled(
    name: str, number: int, alias: str, column: str = "", keeps: tuple[Keep, ...] = _MEAN
) -> Field:
    return _gauge(
        f"PROF_{name}", number, "ratio", _RATIO, f"PROF_{alias}",
        column=column, keeps=keeps if column else (), integer=False,
    )  # fmt: skip


def _exported(name: str, unit: str) -> Field:
    return Field(f"DCGM_EXP_{name}", None, unit, Kind.GAUGE, *_ANY)


ENERGY: Final = _counter(
    "DEV_TOTAL_ENERGY_CONSUMPTION", 156, "mJ", column="energy_joules", scale=0.001
)
XID: Final = _gauge(
    "DEV_XID_ERRORS", 230, "", (0.0, 255.0), "DEV_XID_ERROR", column="xid", keeps=_LAST
)
POWER: Final = _gauge(
    "DEV_POWER_USAGE", 155, "W", _WATTS, "DEV_BOARD_POWER_WATTS",
    column="power_watts", keeps=_MEAN_MAX, integer=False,
)  # fmt: skip

FIELDS: Final[tuple[Field, ...]] = (
    # --- use of the device
    _gauge("DEV_GPU_UTIL", 203, "%", _PERCENT, "DEV_GPU_UTIL_RATIO", column="gpu_util_percent", keeps=_MEAN_MAX),
    _gauge("DEV_MEM_COPY_UTIL", 204, "%", _PERCENT, column="mem_copy_util_percent", keeps=_MEAN),
    _gauge("DEV_ENC_UTIL", 206, "%", _PERCENT, column="enc_util_percent", keeps=_MEAN),
    _gauge("DEV_DEC_UTIL", 207, "%", _PERCENT, column="dec_util_percent", keeps=_MEAN),
    _profiled("GR_ENGINE_ACTIVE", 1001, "GR_ENGINE_UTIL_RATIO", "gr_engine_active_ratio"),
    _profiled("SM_ACTIVE", 1002, "SM_UTIL_RATIO", "sm_active_ratio", _MEAN_MAX),
    _profiled("SM_OCCUPANCY", 1003, "SM_OCCUPANCY_RATIO", "sm_occupancy_ratio"),
    _profiled("PIPE_TENSOR_ACTIVE", 1004, "TENSOR_UTIL_RATIO", "tensor_active_ratio", _MEAN_MAX),
    _profiled("DRAM_ACTIVE", 1005, "DRAM_UTIL_RATIO", "dram_active_ratio"),
    _profiled("PIPE_FP64_ACTIVE", 1006, "FP64_UTIL_RATIO", "fp64_active_ratio"),
    _profiled("PIPE_FP32_ACTIVE", 1007, "FP32_UTIL_RATIO", "fp32_active_ratio"),
    _profiled("PIPE_FP16_ACTIVE", 1008, "FP16_UTIL_RATIO", "fp16_active_ratio"),
    _profiled("PIPE_TENSOR_IMMA_ACTIVE", 1013, "IMMA_UTIL_RATIO"),
    _profiled("PIPE_TENSOR_HMMA_ACTIVE", 1014, "HMMA_UTIL_RATIO"),
    _profiled("PIPE_TENSOR_DFMA_ACTIVE", 1015, "DFMA_UTIL_RATIO"),
    _profiled("PIPE_INT_ACTIVE", 1016, "INT_UTIL_RATIO"),
    _gauge("PROF_PCIE_TX_BYTES", 1009, "B/s", _PCIE_BYTES, column="pcie_tx_bytes_per_second", keeps=_MEAN),
    _gauge("PROF_PCIE_RX_BYTES", 1010, "B/s", _PCIE_BYTES, column="pcie_rx_bytes_per_second", keeps=_MEAN),
    _gauge("PROF_NVLINK_TX_BYTES", 1011, "B/s", _NVLINK_BYTES, column="nvlink_tx_bytes_per_second", keeps=_MEAN),
    _gauge("PROF_NVLINK_RX_BYTES", 1012, "B/s", _NVLINK_BYTES, column="nvlink_rx_bytes_per_second", keeps=_MEAN),
    # --- memory
    _gauge("DEV_FB_USED", 252, "MiB", _FRAMEBUFFER_MIB, column="fb_used_mib", keeps=_MEAN_MAX),
    _gauge("DEV_FB_FREE", 251, "MiB", _FRAMEBUFFER_MIB, column="fb_free_mib", keeps=_MEAN),
    _gauge("DEV_FB_RESERVED", 253, "MiB", _FRAMEBUFFER_MIB),
    _static("DEV_FB_TOTAL", 250, "MiB", _FRAMEBUFFER_MIB),
    _gauge("DEV_FB_USED_PERCENT", 254, "ratio", _RATIO, "DEV_FB_USED_RATIO", integer=False),
    # --- power, temperature, clocks
    POWER,
    _gauge("DEV_POWER_USAGE_INSTANT", 157, "W", _WATTS, "DEV_BOARD_POWER_RAW_WATTS", integer=False),
    ENERGY,
    _gauge("DEV_GPU_TEMP", 150, "°C", _CELSIUS, "DEV_GPU_TEMP_CELSIUS", column="gpu_temp_celsius", keeps=_MEAN_MAX),
    _gauge("DEV_MEMORY_TEMP", 140, "°C", _CELSIUS, "DEV_MEMORY_TEMP_CELSIUS", column="memory_temp_celsius", keeps=_MAX),
    _gauge("DEV_GPU_TEMP_LIMIT", 153, "°C", (-20.0, 100.0), "DEV_GPU_TEMP_MARGIN_CELSIUS"),
    _static("DEV_MEM_MAX_OP_TEMP", 151, "°C", _LIMIT_CELSIUS, "DEV_MEMORY_MAX_OP_TEMP_CELSIUS"),
    _static("DEV_GPU_MAX_OP_TEMP", 152, "°C", _LIMIT_CELSIUS, "DEV_GPU_MAX_OP_TEMP_CELSIUS"),
    _static("DEV_SLOWDOWN_TEMP", 158, "°C", _LIMIT_CELSIUS, "DEV_GPU_TEMP_SLOWDOWN_CELSIUS", column="slowdown_temp_celsius"),
    _static("DEV_SHUTDOWN_TEMP", 159, "°C", _LIMIT_CELSIUS, "DEV_GPU_TEMP_SHUTDOWN_CELSIUS"),
    _static("DEV_POWER_MGMT_LIMIT", 160, "W", _WATTS, "DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS", column="power_limit_watts", integer=False),
    _static("DEV_POWER_MGMT_LIMIT_MIN", 161, "W", _WATTS, "DEV_BOARD_POWER_LIMIT_MIN_WATTS", integer=False),
    _static("DEV_POWER_MGMT_LIMIT_MAX", 162, "W", _WATTS, "DEV_BOARD_POWER_LIMIT_MAX_WATTS", integer=False),
    _static("DEV_POWER_MGMT_LIMIT_DEF", 163, "W", _WATTS, "DEV_BOARD_POWER_LIMIT_DEFAULT_WATTS", integer=False),
    _static("DEV_ENFORCED_POWER_LIMIT", 164, "W", _WATTS, "DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", integer=False),
    _gauge("DEV_SM_CLOCK", 100, "MHz", _CLOCK_MHZ, column="sm_clock_mhz", keeps=_MEAN),
    _gauge("DEV_MEM_CLOCK", 101, "MHz", _MEMORY_CLOCK_MHZ, column="mem_clock_mhz", keeps=_MEAN),
    _gauge("DEV_VIDEO_CLOCK", 102, "MHz", _CLOCK_MHZ),
    _static("DEV_APP_SM_CLOCK", 110, "MHz", _CLOCK_MHZ),
    _static("DEV_APP_MEM_CLOCK", 111, "MHz", _MEMORY_CLOCK_MHZ),
    _static("DEV_MAX_SM_CLOCK", 113, "MHz", _CLOCK_MHZ),
    _static("DEV_MAX_MEM_CLOCK", 114, "MHz", _MEMORY_CLOCK_MHZ),
    _static("DEV_MAX_VIDEO_CLOCK", 115, "MHz", _CLOCK_MHZ),
    _gauge("DEV_PSTATE", 190, "", (0.0, 15.0), "DEV_GPU_PSTATE"),
    _gauge("DEV_FAN_SPEED", 191, "%", _PERCENT),
    _gauge("DEV_CLOCK_THROTTLE_REASONS", 112, "bits", (0.0, 511.0), "DEV_CLOCKS_EVENT_REASONS", column="throttle_reasons", keeps=(Keep.ANY_BITS,)),
    _counter("DEV_POWER_VIOLATION", 240, "ns", column="power_violation_seconds", scale=1e-9),
    _counter("DEV_THERMAL_VIOLATION", 241, "ns", column="thermal_violation_seconds", scale=1e-9),
    _counter("DEV_SYNC_BOOST_VIOLATION", 242, "ns"),
    _counter("DEV_BOARD_LIMIT_VIOLATION", 243, "ns"),
    _counter("DEV_LOW_UTIL_VIOLATION", 244, "ns"),
    _counter("DEV_RELIABILITY_VIOLATION", 245, "ns"),
    # --- errors
    XID,
    _counter("DEV_ECC_SBE_VOL_TOTAL", 310, "", column="ecc_sbe_volatile"),
    _counter("DEV_ECC_DBE_VOL_TOTAL", 311, "", column="ecc_dbe_volatile"),
    _counter("DEV_ECC_SBE_AGG_TOTAL", 312, "", column="ecc_sbe_aggregate"),
    _counter("DEV_ECC_DBE_AGG_TOTAL", 313, "", column="ecc_dbe_aggregate"),
    _counter("DEV_RETIRED_SBE", 390, "pages", "DEV_PAGE_RETIRED_SBE_TOTAL"),
    _counter("DEV_RETIRED_DBE", 391, "pages", "DEV_PAGE_RETIRED_DBE_TOTAL"),
    _gauge("DEV_RETIRED_PENDING", 392, "pages", _ANY, "DEV_PAGE_RETIRED_PENDING"),
    _counter("DEV_UNCORRECTABLE_REMAPPED_ROWS", 393, "rows", "DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", column="uncorrectable_remapped_rows", bounds=_ROWS),
    _counter("DEV_CORRECTABLE_REMAPPED_ROWS", 394, "rows", "DEV_ROW_REMAP_CORRECTABLE_TOTAL", column="correctable_remapped_rows", bounds=_ROWS),
    _gauge("DEV_ROW_REMAP_FAILURE", 395, "", _FLAG, "DEV_ROW_REMAP_FAILED", column="row_remap_failure", keeps=_MAX),
    _gauge("DEV_ROW_REMAP_PENDING", 396, "", _FLAG, column="row_remap_pending", keeps=_MAX),
    # --- links
    _gauge("DEV_PCIE_TX_THROUGHPUT", 200, "KB/s", _ANY),
    _gauge("DEV_PCIE_RX_THROUGHPUT", 201, "KB/s", _ANY),
    _counter("DEV_PCIE_REPLAY_COUNTER", 202, "", "DEV_PCIE_REPLAY_TOTAL", column="pcie_replays"),
    _static("DEV_PCIE_MAX_LINK_GEN", 235, "", (1.0, 8.0)),
    _static("DEV_PCIE_MAX_LINK_WIDTH", 236, "lanes", (1.0, 32.0)),
    _gauge("DEV_PCIE_LINK_GEN", 237, "", (1.0, 8.0)),
    _gauge("DEV_PCIE_LINK_WIDTH", 238, "lanes", (1.0, 32.0)),
    _gauge("DEV_NVLINK_BANDWIDTH_TOTAL", 449, "MB/s", (0.0, 1.8e6), "DEV_NVLINK_THROUGHPUT_TOTAL", column="nvlink_megabytes_per_second", keeps=_MEAN),
    _counter("DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", 409, "", "DEV_NVLINK_CRC_FLIT_ERROR_TOTAL", column="nvlink_crc_flit_errors"),
    _counter("DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", 419, "", "DEV_NVLINK_CRC_DATA_ERROR_TOTAL", column="nvlink_crc_data_errors"),
    _counter("DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", 429, "", "DEV_NVLINK_REPLAY_ERROR_TOTAL", column="nvlink_replay_errors"),
    _counter("DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", 439, "", "DEV_NVLINK_RECOVERY_ERROR_TOTAL", column="nvlink_recovery_errors"),
    # --- what the exporter counts in a window of five minutes
    _exported("XID_ERRORS_COUNT", "per 5 min"),
    _exported("CLOCK_EVENTS_COUNT", "per 5 min"),
)  # fmt: skip

BY_NAME: Final[Mapping[str, Field]] = {
    name: field for field in FIELDS for name in (field.name, *field.aliases)
}

IN_INTERVALS: Final[tuple[Field, ...]] = tuple(field for field in FIELDS if field.keeps)

assert len(BY_NAME) == sum(1 + len(field.aliases) for field in FIELDS), "a name is used twice"
assert {field.id for field in FIELDS} >= _FIRST_NAMES.keys()
assert len({field.id for field in FIELDS if field.id}) == sum(1 for f in FIELDS if f.id)
assert all(field.low < field.high for field in FIELDS)
