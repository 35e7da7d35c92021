"""What counts as a fault of a GPU: the rules, their windows and their thresholds, in one place.

Owns the conditions and the sentences. Conditions are SQL over rows of `gpu_intervals` (straggler:
of `gpu_minutes`), with the columns that `signals` adds; they read no pod to decide what a load was.
Every number is a setting, `[pipeline.rules.KIND]`, and stands in the evidence.

Sources: DCGM's health checks (`DcgmHealthWatch.cpp`) for XIDs, remapped rows, NVLink and PCIe;
NVIDIA's XID catalogue for what is usually an application's; throttle bits from `dcgm_fields.h`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Severity = Literal["info", "warning", "critical"]
SEVERITIES: Final[tuple[Severity, ...]] = ("info", "warning", "critical")

HW_SLOWDOWN: Final = 0x8 | 0x80
"""Bits: hardware slowdown, power brake."""

SW_THERMAL: Final = 0x20
HW_THERMAL: Final = 0x40
POWER_CAP: Final = 0x4
THROTTLED: Final = HW_SLOWDOWN | SW_THERMAL | HW_THERMAL | POWER_CAP

FATAL_XIDS: Final = (46, 48, 62, 64, 74, 79, 95, 110, 119, 120, 140, 143)
APPLICATION_XIDS: Final = (13, 31, 43, 45)
"""Usually a fault of the program: nobody is to be woken for one."""

POWER_LIMITS: Final[tuple[tuple[str, float], ...]] = (
    ("GB300", 1400.0), ("GB200", 1200.0), ("B300", 1400.0), ("B200", 1000.0), ("H200 NVL", 600.0),
    ("H200", 700.0), ("H100 PCIe", 350.0), ("H100 NVL", 400.0), ("H100", 700.0),
    ("H800 PCIe", 350.0), ("H800", 700.0), ("A100-PCIE", 250.0), ("A100 80GB PCIe", 300.0),
    ("A100", 400.0), ("A800 80GB PCIe", 300.0), ("A800", 400.0), ("L40S", 350.0), ("L40", 300.0),
    ("L4", 72.0), ("A10", 150.0), ("T4", 70.0), ("V100-PCIE", 250.0), ("V100S", 250.0),
    ("V100", 300.0),
)  # fmt: skip
"""Watts by a part of the model's name, the first that fits, as GPUs leave the factory."""

POWER_LIMIT_DEFAULT: Final = 400.0
"""What is taken for the limit of a GPU of another model that does not report its own."""


@dataclass(frozen=True, slots=True)
class Count:
    """So many of something within some time.

    Attributes:
        what: SQL for how much it grew in an interval.
        threshold: name of the setting that says how many are a fault.
        seconds: name of the setting that says within what time.
        severity: of that.
    """

    what: str
    threshold: str
    seconds: str
    severity: Severity


@dataclass(frozen=True, slots=True)
class Rule:
    """How one kind of detection is found.

    Attributes:
        kind: of the detection.
        severity: unless `worse` holds.
        window_s: how long the condition must hold, in seconds; 0 opens at once.
        clear_s: how long it must not hold before the detection ends, so that it does not flap.
        condition: SQL; null where the row does not say.
        share: of the rows in the window for which it must hold at least.
        worse: SQL for when it is worse than that.
        worse_severity: what it is then.
        counts: further ways to be a fault.
        evidence: columns whose means (or, by their names, greatest values) a detection carries.
        text: sentence; `{name}` is a piece of evidence or a setting.
        settings: thresholds, by the names that stand in the SQL in braces.
    """

    kind: str
    severity: Severity
    window_s: float
    clear_s: float
    text: str
    condition: str = "false"
    share: float = 0.9
    worse: str = "false"
    worse_severity: Severity = "critical"
    counts: tuple[Count, ...] = ()
    evidence: tuple[str, ...] = ()
    settings: Mapping[str, float] = field(default_factory=dict)

    def tuned(self, changes: Mapping[str, float]) -> Rule:
        """With other settings.

        Raises:
            ValueError: there is no such setting, or the number cannot be.
        """
        own = {"window_s", "clear_s", "share"}
        for name, value in changes.items():
            if name not in own and name not in self.settings:
                known = ", ".join(sorted({*own, *self.settings}))
                raise ValueError(f"{self.kind} has no setting {name!r}; there are {known}")
            if not isfinite(value) or value < 0 or (name == "share" and value > 1):
                raise ValueError(f"{self.kind}: {name} must not be {value}")
        return replace(
            self,
            settings={**self.settings, **{k: v for k, v in changes.items() if k not in own}},
            **{name: value for name, value in changes.items() if name in own},  # type: ignore[arg-type]
        )

    def sql(self, text: str) -> str:
        """A condition with its settings in place."""
        return text.format(**self.settings)


_BUSY: Final = "coalesce(gpu_util_percent_mean / 100, gr_engine_active_ratio_mean)"

RULES: Final[tuple[Rule, ...]] = (
    Rule(
        "idle_allocated", "warning", 900.0, 60.0,
        "GPU holds {fb_used_mib:.0f} MiB and has done nothing for {lasted} "
        "({power_watts:.0f} W)",
        condition=(
            f"fb_used_mib_mean >= {{allocated_mib}} AND {_BUSY} <= {{busy}} "
            "AND coalesce(sm_active_ratio_mean <= {busy}, true) "
            "AND coalesce(power_watts_mean <= {power_share} * power_limit_watts, true)"
        ),
        evidence=("fb_used_mib", "gpu_util_percent", "sm_active_ratio", "power_watts"),
        settings={"allocated_mib": 1024.0, "busy": 0.1, "power_share": 0.45},
    ),
    Rule(
        "fake_busy", "warning", 300.0, 60.0,
        "GPU_UTIL says {gpu_util_percent:.0f} %, but the SMs are {sm_active_percent:.1f} % active "
        "and draw {power_watts:.0f} of {power_limit_watts:.0f} W",
        condition=(
            f"{_BUSY} >= {{busy}} AND sm_active_ratio_mean <= {{sm_active}} "
            "AND power_watts_mean <= {power_share} * power_limit_watts"
        ),
        share=0.6,
        evidence=("gpu_util_percent", "sm_active_ratio", "power_watts", "power_limit_watts"),
        settings={"busy": 0.5, "sm_active": 0.05, "power_share": 0.45},
    ),
    Rule(
        "power_cap", "info", 60.0, 60.0,
        "clocks are held back at the power limit: {power_watts:.0f} W of {power_limit_watts:.0f}, "
        "of {power_default_watts:.0f} by default",
        condition=f"throttle_reasons_any & {POWER_CAP} != 0",
        # At its own limit a GPU is normal at full load; not where somebody has lowered that.
        worse="power_limit_watts < {lowered} * power_default_watts",
        worse_severity="warning",
        evidence=("power_watts", "power_limit_watts", "power_default_watts", "sm_clock_mhz"),
        settings={"lowered": 0.95},
    ),
    Rule(
        "thermal", "warning", 30.0, 120.0,
        "{gpu_temp_celsius_max:.0f} °C slows the GPU down",
        condition=(
            f"coalesce(throttle_reasons_any & {SW_THERMAL | HW_THERMAL} != 0, false) "
            "OR coalesce(gpu_temp_celsius_max >= slowdown_celsius, false) "
            "OR coalesce(thermal_violation_seconds > {violation_s}, false)"
        ),
        worse=f"coalesce(throttle_reasons_any & {HW_THERMAL} != 0, false)",
        share=0.5,
        evidence=("gpu_temp_celsius_max", "sm_clock_mhz", "power_watts"),
        settings={"violation_s": 0.1},
    ),
    Rule(
        "hw_slowdown", "critical", 30.0, 120.0,
        "the hardware slows the GPU down (throttle reasons {throttle_reasons:.0f}): look at power "
        "and cooling",
        condition=f"throttle_reasons_any & {HW_SLOWDOWN} != 0",
        share=0.5,
        evidence=("throttle_reasons", "sm_clock_mhz", "power_watts"),
    ),
    Rule(
        "xid", "warning", 0.0, 600.0,
        "XID {code:.0f} was raised",
        evidence=("code",),
    ),
    Rule(
        "ecc", "warning", 0.0, 3600.0,
        "memory errors: {ecc_dbe:.0f} uncorrectable, {ecc_sbe:.0f} corrected",
        counts=(
            Count("ecc_dbe", "dbe", "dbe_seconds", "critical"),
            Count("ecc_sbe", "sbe", "sbe_seconds", "warning"),
        ),
        evidence=("ecc_dbe", "ecc_sbe"),
        settings={"dbe": 1.0, "dbe_seconds": 60.0, "sbe": 10.0, "sbe_seconds": 3600.0},
    ),
    Rule(
        "row_remap", "warning", 0.0, 600.0,
        "memory rows: {uncorrectable_remapped_rows:.0f} newly remapped, pending "
        "{row_remap_pending:.0f}, failed {row_remap_failure:.0f}",
        condition=(
            "coalesce(row_remap_failure_max >= 1, false) "
            "OR coalesce(row_remap_pending_max >= 1, false)"
        ),
        worse="coalesce(row_remap_failure_max >= 1, false)",
        counts=(Count("uncorrectable_remapped_rows", "rows", "rows_seconds", "warning"),),
        evidence=("uncorrectable_remapped_rows", "row_remap_pending", "row_remap_failure"),
        settings={"rows": 1.0, "rows_seconds": 60.0},
    ),
    Rule(
        "nvlink", "critical", 0.0, 600.0,
        "NVLink: {nvlink_replays:.0f} replays and recoveries, {nvlink_crc:.0f} CRC errors",
        counts=(
            Count("nvlink_replays", "replays", "replays_seconds", "critical"),
            Count("nvlink_crc", "crc", "crc_seconds", "critical"),
        ),
        evidence=("nvlink_replays", "nvlink_crc"),
        settings={
            "replays": 1.0, "replays_seconds": 60.0,
            # DCGM's check fails at 100 a second.
            "crc": 6000.0, "crc_seconds": 60.0,
        },
    ),
    Rule(
        "pcie", "warning", 0.0, 600.0,
        "PCIe: {pcie_replays:.0f} replays, more than a sound link has",
        counts=(Count("pcie_replays", "replays", "replays_seconds", "warning"),),
        evidence=("pcie_replays",),
        # DCGM's check fails at 1.92 a minute and lane: 31 a minute at x16.
        settings={"replays": 93.0, "replays_seconds": 180.0},
    ),
    Rule(
        "straggler", "warning", 300.0, 180.0,
        "slower than the other GPUs of its job: {power_watts:.0f} W of {power_watts_peers:.0f}, "
        "{sm_clock_mhz:.0f} MHz of {sm_clock_mhz_peers:.0f}",
        # On minutes, beside the medians of the job's GPUs. Power and activity alone say little: the
        # GPUs of a job that serves requests have each their own load. A GPU that says itself why it
        # is slow has a detection of that kind.
        condition=(
            "job_gpus >= {gpus} AND busy_peers >= {busy} "
            f"AND coalesce(throttle_reasons_any & {THROTTLED} = 0, true) "
            "AND sm_clock_mhz_mean < {clock_share} * sm_clock_mhz_peers "
            "AND (coalesce(power_watts_mean < {power_share} * power_watts_peers, false) "
            "OR coalesce(sm_active_ratio_mean < {sm_share} * sm_active_ratio_peers, false))"
        ),
        share=0.7,
        evidence=("power_watts", "power_watts_peers", "sm_clock_mhz", "sm_clock_mhz_peers"),
        settings={
            "gpus": 4.0, "busy": 0.5, "clock_share": 0.93, "power_share": 0.88, "sm_share": 0.88,
        },
    ),
    Rule(
        "vanished", "critical", 300.0, 0.0,
        "nothing has come of this GPU for {lasted}",
    ),
    Rule(
        "stale", "warning", 180.0, 60.0,
        "the same values again and again: {power_watts:.0f} W, and the energy counter stands still",
        # A GPU that draws power uses energy. Without the counter, equal means prove nothing.
        condition=(
            "CASE WHEN energy_source = 'counter' "
            "THEN energy_joules = 0 AND power_watts_mean > 0 END"
        ),
        evidence=("power_watts",),
    ),
)  # fmt: skip

DEMO: Final[Mapping[str, Mapping[str, float]]] = {
    "idle_allocated": {"window_s": 20.0, "clear_s": 5.0},
    "fake_busy": {"window_s": 15.0, "clear_s": 5.0},
    "power_cap": {"window_s": 10.0, "clear_s": 5.0},
    "thermal": {"window_s": 5.0, "clear_s": 5.0},
    "hw_slowdown": {"window_s": 5.0, "clear_s": 5.0},
    "stale": {"window_s": 20.0, "clear_s": 5.0},
    "vanished": {"window_s": 60.0},
}
"""Windows for a trace of minutes at one scrape a second."""

DEMO_STALENESS_SECONDS: Final = 55.0
"""Of such a trace: shorter than the silence after which a GPU of it has vanished."""
