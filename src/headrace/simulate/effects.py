"""What a fault does to the readings of a GPU, from the first scrape in it to the first behind.

Owns one function for each kind; all numbers are those that the fault was drawn with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.simulate import published, trace
from headrace.simulate.device import THROTTLE_POWER_CAP, happened
from headrace.simulate.faults import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.simulate.device import Device, Values
    from headrace.simulate.faults import Fault

    _Drawn = Mapping[str, Any]

# Bits of DCGM_FI_DEV_CLOCK_THROTTLE_REASONS, of `dcgm_fields.h`.
_HW_SLOWDOWN: Final = 0x08
_SW_THERMAL: Final = 0x20
_HW_THERMAL: Final = 0x40
_POWER_BRAKE: Final = 0x80

_REST_WATTS: Final = 130.0
"""Of a GPU at full clocks without work, as in the trace."""


def begin(device: Device, fault: Fault) -> None:
    """The first scrape in a fault: what happens once."""
    drawn = fault.parameters
    if fault.kind is Kind.XID:
        device.xid = drawn["code"]
    elif fault.kind is Kind.ECC and drawn["variant"] == "double_bit":
        device.double_bit += drawn["errors"]
    elif fault.kind is Kind.ROW_REMAP:
        device.uncorrectable_rows += drawn["rows"]
        if drawn["variant"] == "failure":
            device.row_failure = 1
        else:
            device.row_pending = 1


def end(device: Device, fault: Fault) -> None:
    """The first scrape behind a fault: a repair where it takes one."""
    variant = fault.parameters.get("variant")
    if fault.kind is Kind.XID or variant in {"double_bit", "pending"}:
        device.reload()


def values(device: Device, live: Values, fault: Fault, seconds: float) -> Values:
    """Values of a scrape `seconds` behind the last, in a fault."""
    effect = _EFFECTS.get(fault.kind)
    return live if effect is None else effect(device, live, fault.parameters, seconds)


def _idle(device: Device, _live: Values, drawn: _Drawn, _seconds: float) -> Values:
    if drawn["variant"] == "stalled":
        return device.values(trace.STALLED, 1.0)
    return device.values(trace.WAITING, 1.0)


def _fake_busy(device: Device, _live: Values, drawn: _Drawn, _seconds: float) -> Values:
    if drawn["variant"] == "copying":
        return device.values(trace.COPYING, 1.0)
    values, rng = device.values(trace.WAITING, 1.0), device.rng
    values.gpu_util = rng.choice((99.0, 100.0))
    values.gr_engine = rng.uniform(0.98, 0.999)
    values.sm_active = drawn["multiprocessors"] / published.SM_COUNT * rng.uniform(0.97, 1.0)
    values.sm_occupancy = values.sm_active / 16.0
    values.power_watts = drawn["power_watts"] * rng.uniform(0.99, 1.01)
    return values


def _power_cap(device: Device, live: Values, drawn: _Drawn, seconds: float) -> Values:
    live.limit_watts = limit = drawn["limit_watts"]
    if live.power_watts > limit:
        _slowed(live, _clock_share(limit, live.power_watts))
        live.power_watts = limit * device.rng.uniform(0.985, 1.0)
        live.throttle_bits |= THROTTLE_POWER_CAP
        device.power_violation_ns += seconds * 1e9 * device.rng.uniform(0.0, 0.2)
    return live


def _thermal(device: Device, live: Values, drawn: _Drawn, seconds: float) -> Values:
    _slowed(live, drawn["clock_share"])
    live.gpu_celsius = device.slowdown_celsius + drawn["over_slowdown_celsius"]
    live.memory_celsius = max(live.memory_celsius, live.gpu_celsius)
    live.throttle_bits = _HW_THERMAL if drawn["variant"] == "hardware" else _SW_THERMAL
    device.thermal_violation_ns += seconds * 1e9 * drawn["violation_share"]
    return live


def _hw_slowdown(_device: Device, live: Values, drawn: _Drawn, _seconds: float) -> Values:
    _slowed(live, drawn["clock_share"])
    brake = _POWER_BRAKE if drawn["variant"] == "power_brake" else 0
    live.throttle_bits = _HW_SLOWDOWN | brake
    return live


def _ecc(device: Device, live: Values, drawn: _Drawn, seconds: float) -> Values:
    if drawn["variant"] == "single_bit":
        device.single_bit += happened(device.rng, drawn["per_minute"] * seconds / 60.0)
    return live


def _nvlink(device: Device, live: Values, drawn: _Drawn, seconds: float) -> Values:
    rate = drawn["per_second"] if "per_second" in drawn else drawn["per_minute"] / 60.0
    more = happened(device.rng, rate * seconds)
    match drawn["variant"]:
        case "replay":
            device.nvlink_replays += more
        case "recovery":
            device.nvlink_recoveries += more
        case "crc_flit":
            device.crc_flit += more
        case _:
            device.crc_data += more
    return live


def _pcie(device: Device, live: Values, drawn: _Drawn, seconds: float) -> Values:
    device.pcie_replays += happened(device.rng, drawn["per_minute"] * seconds / 60.0)
    return live


def _straggler(_device: Device, live: Values, drawn: _Drawn, _seconds: float) -> Values:
    _slowed(live, drawn["clock_share"])
    share = drawn["activity_share"]
    live.gr_engine *= share
    live.sm_active *= share
    live.sm_occupancy *= share
    live.tensor *= share
    live.dram *= share
    live.power_watts = _REST_WATTS + (live.power_watts - _REST_WATTS) * share
    live.throttle_bits = 0
    return live


def _slowed(values: Values, clock_share: float) -> None:
    """At a share of the clock that the load would have."""
    values.sm_mhz *= clock_share
    values.video_mhz *= clock_share
    over = max(values.power_watts - _REST_WATTS, 0.0)
    values.power_watts = _REST_WATTS + over * clock_share**_POWER_EXPONENT
    values.dram *= clock_share


def _clock_share(limit_watts: float, power_watts: float) -> float:
    """The clock at which a load that takes `power_watts` takes `limit_watts`."""
    share = (limit_watts - _REST_WATTS) / (power_watts - _REST_WATTS)
    return float(share ** (1.0 / _POWER_EXPONENT))


_POWER_EXPONENT: Final = 2.0
"""Between 1, where the voltage is at its least, and 3, where it follows the clock."""

_EFFECTS: Final[Mapping[Kind, Callable[[Device, Values, _Drawn, float], Values]]] = {
    Kind.IDLE_ALLOCATED: _idle,
    Kind.FAKE_BUSY: _fake_busy,
    Kind.POWER_CAP: _power_cap,
    Kind.THERMAL: _thermal,
    Kind.HW_SLOWDOWN: _hw_slowdown,
    Kind.ECC: _ecc,
    Kind.NVLINK: _nvlink,
    Kind.PCIE: _pcie,
    Kind.STRAGGLER: _straggler,
}
"""Kinds that show in values; the others show in what happens once, or in scrapes."""
