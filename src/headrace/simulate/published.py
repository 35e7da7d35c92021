"""The simulator's numbers: what is known of devices, faults and fleets, and who said so.

Owns every magnitude of a simulated fleet. It is no part of any rule that looks for faults, and no
rule may be imported here or from here (import-linter): what is found would otherwise be what was
put in. A fault's severity is drawn from a range that begins beyond what its source calls healthy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MINUTE_US: Final = 60_000_000
HOUR_US: Final = 60 * MINUTE_US

GPUS_PER_HOST: Final = 8
"""HGX H200 boards hold eight. Source: NVIDIA HGX H200 data sheet."""

POWER_LIMIT_WATTS: Final = 700.0
"""Default board limit. Source: NVIDIA H200 SXM data sheet."""

SM_COUNT: Final = 132
"""Multiprocessors of an H200. Source: NVIDIA Hopper architecture white paper."""

FRAMEBUFFER_MIB: Final = 143_770
FRAMEBUFFER_BASE_MIB: Final = 615
"""FB_USED + FB_FREE, and FB_USED without a process. Source: the shipped trace."""

SLOWDOWN_CELSIUS: Final = (85, 87, 89, 92)
"""Of boards of different makers and firmware; a fixed number would fit none. `nvidia-smi -q -d
TEMPERATURE` prints values in this range for Hopper boards."""

SHUTDOWN_MARGIN_CELSIUS: Final = 5
"""Shutdown above slowdown. Source: as above."""


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high`, both in."""

    low: float
    high: float


# --- what is healthy, and looks as if it were not -------------------------------------------------

APPLICATION_XIDS: Final = (13, 31, 43, 45)
"""Usually a program's fault. Source: NVIDIA, "XID errors", column "application"."""

APPLICATION_XIDS_PER_HOUR: Final = 0.04
"""Per GPU in use: one program in some shifts of work crashes."""

SINGLE_BIT_ERRORS_PER_HOUR: Final = Range(0.02, 0.3)
SINGLE_BIT_SHARE: Final = 0.1
"""GPUs that correct a bit now and then, and how often. Source for the order: Delta, H100 memory
errors, 11.7 million GPU hours."""

REMAPPED_SHARE: Final = 0.1
"""GPUs that have remapped rows in their life; that is what spare rows are for."""

PCIE_REPLAYS_PER_MINUTE: Final = Range(0.02, 0.5)
PCIE_REPLAY_SHARE: Final = 0.1
"""Links that repeat a packet now and then. DCGM's health check lets an x16 link of generation 5
repeat 31 in a minute."""

NVLINK_CRC_PER_HOUR: Final = Range(0.2, 3.0)
NVLINK_CRC_SHARE: Final = 0.05
"""Flits that are sent again, as links are specified to do."""

WARM_HOST_SHARE: Final = 0.15
WARM_CELSIUS: Final = Range(6.0, 11.0)
"""Hosts at the warm end of an aisle."""

PROFILING_GAP_SHARE: Final = 0.002
PROFILING_SPELL_PER_HOUR: Final = 0.01
PROFILING_SPELL_MINUTES: Final = Range(4.0, 11.0)
"""Scrapes without a valid profiling sample, and spells of them while a profiler has the counters.
Source: the shipped trace with gaps; dcgm-exporter's documentation of PROF fields."""

GLITCHES_PER_READING: Final = 2e-6
GLITCH_TEXTS: Final = ("4294967295", "808334905", "1980", "2619")
"""Utilisations that are none: 14 in 13 million. Source: DCGM issue 199, dcgm-exporter issue 418."""

LATE_SHARE: Final = 0.001
LATE_SECONDS: Final = Range(20.0, 75.0)
REPEATED_SHARE: Final = 0.001
"""Messages that come after later ones, or twice: what QoS 1 over bad networks makes of a fleet."""

MISSED_SHARE: Final = 0.002
RESTARTS_PER_HOUR: Final = 0.02
RESTART_SCRAPES: Final = (2, 3)
"""Scrapes of a host that time out, and exporters that are started again. Source: dcgm-exporter
issue 607, scrapes of more than 10 s."""

# --- faults ---------------------------------------------------------------------------------------

FATAL_XIDS: Final = {
    48: "double bit ECC error",
    64: "row remapper failure",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    95: "uncontained ECC error",
    119: "GSP RPC timeout",
    120: "GSP error",
    140: "unrecovered ECC error",
}
"""What ends the work of a GPU until its driver is loaded anew. Source: NVIDIA, "XID errors"; DCGM's
health checks."""

IDLE_MINUTES: Final = Range(25.0, 90.0)
"""Operators of shared clusters warn after 15 minutes and cancel after 60."""

FAULT_MINUTES: Final = Range(15.0, 60.0)

SPINNING_SMS: Final = (1, 2, 3, 4)
SPINNING_WATTS: Final = Range(134.0, 188.0)
"""A kernel of a few blocks that polls a flag. Source: of 69 GPUs of a public fleet snapshot at 95 %
and more, 8 drew less than 200 W."""

CAPPED_WATTS: Final = Range(260.0, 480.0)
"""A limit that somebody has set, far below the board's."""

OVER_SLOWDOWN_CELSIUS: Final = Range(1.0, 5.0)
HOT_CLOCK_SHARE: Final = Range(0.4, 0.85)
HOT_VIOLATION_SHARE: Final = Range(0.3, 1.0)
"""Above the device's own slowdown temperature, where clocks are what cools."""

SLOWDOWN_CLOCK_SHARE: Final = Range(0.11, 0.45)
"""HW slowdown divides clocks by two and more. Source: NVML, `nvmlClocksEventReasonHwSlowdown`."""

DOUBLE_BIT_ERRORS: Final = (1, 2, 3, 6)
SINGLE_BIT_STORM_PER_MINUTE: Final = Range(40.0, 600.0)
REMAPPED_ROWS: Final = (1, 2, 3)

NVLINK_REPLAYS_PER_MINUTE: Final = Range(0.5, 20.0)
"""DCGM's health check fails on a single replay or recovery."""

NVLINK_CRC_PER_SECOND: Final = Range(130.0, 2_500.0)
"""DCGM's health check fails from 100 in a second."""

PCIE_STORM_PER_MINUTE: Final = Range(60.0, 900.0)
"""DCGM's health check fails above 31 in a minute at generation 5 x16."""

STRAGGLER_CLOCK_SHARE: Final = Range(0.55, 0.8)
STRAGGLER_ACTIVITY_SHARE: Final = Range(0.6, 0.85)
"""One of a job's GPUs that lags. Source for the shape: ByteDance's five months of traces."""
