"""What NVML says under DCGM's names, in DCGM's units: MiB, W, mJ, MHz, °C, ns, ratios, B/s.

Owns the table of calls. Knows no round, no device but the handle that it is given. `nvml` is
nvidia-ml-py's module, whose functions raise `NVMLError`.

Source: units from nvml.h ("milliwatts", "millijoules", "nanoseconds" of violation times, MiB/s and
percent of GPM) and from `dcgm_fields.h`; names of the fields as in the pipeline's table of them.
Not read: PCIe throughput of NVML, each of whose calls takes 20 ms (GPM has it), and
NVLINK_BANDWIDTH_TOTAL, which NVML counts in units of its own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Values = Sequence[float | None]

_MIB: Final = 1 << 20
_PSTATE_UNKNOWN: Final = 32


class Source(NamedTuple):
    """One call, and the fields that it gives."""

    names: tuple[str, ...]
    read: Callable[[Any], Values]
    """Of a device's handle to a value for each name; None where the device says that it is none."""


class Profiled(NamedTuple):
    """One GPM metric, and its field."""

    name: str
    metric: int
    scale: float
    """Of GPM's unit to DCGM's."""


def _named(*names: str) -> tuple[str, ...]:
    return tuple(f"DCGM_FI_DEV_{name}" for name in names)


def text(value: float) -> str:
    """A value as a reading's text: whole numbers exactly, others by their shortest decimals."""
    if isinstance(value, int):
        return str(value)
    return repr(value) if math.isfinite(value) else "NaN"


def memory_source(nvml: Any) -> Source:  # noqa: ANN401 - an untyped module
    """Memory of a device or of a MIG slice."""

    def read(device: Any) -> Values:  # noqa: ANN401
        memory = nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2)
        return [
            int(size) // _MIB
            for size in (memory.total, memory.used, memory.free, memory.reserved)
        ]  # fmt: skip

    return Source(_named("FB_TOTAL", "FB_USED", "FB_FREE", "FB_RESERVED"), read)


def sources(nvml: Any) -> list[Source]:  # noqa: ANN401
    """Calls on a whole device."""

    def utilization(device: Any) -> Values:  # noqa: ANN401
        rates = nvml.nvmlDeviceGetUtilizationRates(device)
        return [rates.gpu, rates.memory]

    def pstate(device: Any) -> Values:  # noqa: ANN401
        state = nvml.nvmlDeviceGetPerformanceState(device)
        return [None if state == _PSTATE_UNKNOWN else state]

    def throttle_reasons(device: Any) -> Values:  # noqa: ANN401
        try:
            return [nvml.nvmlDeviceGetCurrentClocksEventReasons(device)]
        except nvml.NVMLError_FunctionNotFound:  # a driver of before 2023
            return [nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)]

    return [
        Source(_named("GPU_UTIL", "MEM_COPY_UTIL"), utilization),
        memory_source(nvml),
        Source(
            _named(
                "CORRECTABLE_REMAPPED_ROWS", "UNCORRECTABLE_REMAPPED_ROWS",
                "ROW_REMAP_PENDING", "ROW_REMAP_FAILURE",
            ),
            nvml.nvmlDeviceGetRemappedRows,
        ),
        Source(_named("PSTATE"), pstate),
        Source(_named("CLOCK_THROTTLE_REASONS"), throttle_reasons),
        *(Source(_named(name), _only(read)) for name, read in _calls(nvml).items()),
    ]  # fmt: skip


def _only(read: Callable[[Any], float]) -> Callable[[Any], Values]:
    return lambda device: [read(device)]


def _calls(nvml: Any) -> dict[str, Callable[[Any], float]]:  # noqa: ANN401
    """Calls that give one value."""

    def watts(call: str) -> Callable[[Any], float]:
        return lambda device: getattr(nvml, call)(device) / 1000

    def of(call: str, *arguments: Any) -> Callable[[Any], float]:  # noqa: ANN401
        return lambda device: getattr(nvml, call)(device, *arguments)

    def first(call: str) -> Callable[[Any], float]:
        return lambda device: getattr(nvml, call)(device)[0]

    def violated_ns(policy: int) -> Callable[[Any], float]:
        return lambda device: nvml.nvmlDeviceGetViolationStatus(device, policy).violationTime

    def pages(cause: int) -> Callable[[Any], float]:
        return lambda device: len(nvml.nvmlDeviceGetRetiredPages(device, cause))

    def field(number: int) -> Callable[[Any], float]:
        return lambda device: _field_value(nvml, device, number)

    corrected, uncorrected = (
        nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
    )  # fmt: skip
    ecc = "nvmlDeviceGetTotalEccErrors"
    return {
        "ENC_UTIL": first("nvmlDeviceGetEncoderUtilization"),
        "DEC_UTIL": first("nvmlDeviceGetDecoderUtilization"),
        "POWER_USAGE": watts("nvmlDeviceGetPowerUsage"),
        "POWER_MGMT_LIMIT": watts("nvmlDeviceGetPowerManagementLimit"),
        "ENFORCED_POWER_LIMIT": watts("nvmlDeviceGetEnforcedPowerLimit"),
        "TOTAL_ENERGY_CONSUMPTION": of("nvmlDeviceGetTotalEnergyConsumption"),
        "GPU_TEMP": of("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
        "MEMORY_TEMP": field(nvml.NVML_FI_DEV_MEMORY_TEMP),
        "SLOWDOWN_TEMP": of(
            "nvmlDeviceGetTemperatureThreshold", nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        ),
        "SHUTDOWN_TEMP": of(
            "nvmlDeviceGetTemperatureThreshold", nvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN
        ),
        "SM_CLOCK": of("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
        "MEM_CLOCK": of("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM),
        "VIDEO_CLOCK": of("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_VIDEO),
        "MAX_SM_CLOCK": of("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
        "MAX_MEM_CLOCK": of("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_MEM),
        "FAN_SPEED": of("nvmlDeviceGetFanSpeed"),
        "POWER_VIOLATION": violated_ns(nvml.NVML_PERF_POLICY_POWER),
        "THERMAL_VIOLATION": violated_ns(nvml.NVML_PERF_POLICY_THERMAL),
        "SYNC_BOOST_VIOLATION": violated_ns(nvml.NVML_PERF_POLICY_SYNC_BOOST),
        "BOARD_LIMIT_VIOLATION": violated_ns(nvml.NVML_PERF_POLICY_BOARD_LIMIT),
        "LOW_UTIL_VIOLATION": violated_ns(nvml.NVML_PERF_POLICY_LOW_UTILIZATION),
        "RELIABILITY_VIOLATION": violated_ns(nvml.NVML_PERF_POLICY_RELIABILITY),
        "ECC_SBE_VOL_TOTAL": of(ecc, corrected, nvml.NVML_VOLATILE_ECC),
        "ECC_DBE_VOL_TOTAL": of(ecc, uncorrected, nvml.NVML_VOLATILE_ECC),
        "ECC_SBE_AGG_TOTAL": of(ecc, corrected, nvml.NVML_AGGREGATE_ECC),
        "ECC_DBE_AGG_TOTAL": of(ecc, uncorrected, nvml.NVML_AGGREGATE_ECC),
        "RETIRED_SBE": pages(nvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS),
        "RETIRED_DBE": pages(nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR),
        "RETIRED_PENDING": of("nvmlDeviceGetRetiredPagesPendingStatus"),
        "PCIE_REPLAY_COUNTER": of("nvmlDeviceGetPcieReplayCounter"),
        "PCIE_LINK_GEN": of("nvmlDeviceGetCurrPcieLinkGeneration"),
        "PCIE_LINK_WIDTH": of("nvmlDeviceGetCurrPcieLinkWidth"),
        "PCIE_MAX_LINK_GEN": of("nvmlDeviceGetMaxPcieLinkGeneration"),
        "PCIE_MAX_LINK_WIDTH": of("nvmlDeviceGetMaxPcieLinkWidth"),
        "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": field(
            nvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL
        ),
        "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": field(
            nvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL
        ),
        "NVLINK_REPLAY_ERROR_COUNT_TOTAL": field(nvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL),
        "NVLINK_RECOVERY_ERROR_COUNT_TOTAL": field(
            nvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL
        ),
    }


def _field_value(nvml: Any, device: Any, number: int) -> float:  # noqa: ANN401
    (answer,) = nvml.nvmlDeviceGetFieldValues(device, [number])
    if answer.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(answer.nvmlReturn)
    member = {
        nvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
        nvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
        nvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
    }[answer.valueType]
    value: float = getattr(answer.value, member)
    return value


def profiled(nvml: Any) -> list[Profiled]:  # noqa: ANN401
    """Metrics of GPM, which Hopper and later have: means between two samples."""
    percent, mib = 0.01, float(_MIB)
    return [
        Profiled(f"DCGM_FI_PROF_{name}", metric, scale)
        for name, metric, scale in (
            ("GR_ENGINE_ACTIVE", nvml.NVML_GPM_METRIC_GRAPHICS_UTIL, percent),
            ("SM_ACTIVE", nvml.NVML_GPM_METRIC_SM_UTIL, percent),
            ("SM_OCCUPANCY", nvml.NVML_GPM_METRIC_SM_OCCUPANCY, percent),
            ("PIPE_TENSOR_ACTIVE", nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL, percent),
            ("DRAM_ACTIVE", nvml.NVML_GPM_METRIC_DRAM_BW_UTIL, percent),
            ("PIPE_FP64_ACTIVE", nvml.NVML_GPM_METRIC_FP64_UTIL, percent),
            ("PIPE_FP32_ACTIVE", nvml.NVML_GPM_METRIC_FP32_UTIL, percent),
            ("PIPE_FP16_ACTIVE", nvml.NVML_GPM_METRIC_FP16_UTIL, percent),
            ("PCIE_TX_BYTES", nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC, mib),
            ("PCIE_RX_BYTES", nvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC, mib),
            ("NVLINK_TX_BYTES", nvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, mib),
            ("NVLINK_RX_BYTES", nvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, mib),
        )
    ]
