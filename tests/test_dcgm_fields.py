"""The table of DCGM fields: facts that the pipeline stands on."""

import csv
import gzip
from math import isnan
from pathlib import Path

import pytest

from headrace.dcgm.fields import BY_NAME, ENERGY, FIELDS, IN_INTERVALS, Keep, Kind
from headrace.pipeline.schemas import GPU_INTERVALS, SCHEMAS

DATA = Path(__file__).parent.parent / "src/headrace/data"


def field(name):
    return BY_NAME[f"DCGM_FI_{name}"]


@pytest.mark.parametrize("trace", ["h200-1hz.csv.gz", "h200-1hz-gaps.csv.gz"])
def test_every_field_of_the_shipped_traces_is_known_and_in_range(trace):
    with gzip.open(DATA / trace, "rt") as lines:
        rows = list(csv.DictReader(lines))
    for row in rows:
        known = BY_NAME[row["metric_name"]]
        value = float(row["value"])
        assert isnan(value) or known.low <= value <= known.high


@pytest.mark.parametrize(
    ("alias", "name", "number"),
    [
        ("DEV_GPU_TEMP_CELSIUS", "DEV_GPU_TEMP", 150),
        ("DEV_BOARD_POWER_WATTS", "DEV_POWER_USAGE", 155),
        ("DEV_XID_ERROR", "DEV_XID_ERRORS", 230),
        ("DEV_PCIE_REPLAY_TOTAL", "DEV_PCIE_REPLAY_COUNTER", 202),
        ("PROF_TENSOR_UTIL_RATIO", "PROF_PIPE_TENSOR_ACTIVE", 1004),
        ("DEV_CLOCKS_EVENT_REASONS", "DEV_CLOCK_THROTTLE_REASONS", 112),
    ],
)
def test_new_names_are_the_fields_of_old(alias, name, number):
    assert field(alias) is field(name)
    assert field(name).id == number


@pytest.mark.parametrize(
    ("first", "number", "unit"),
    [
        ("dcgm_gpu_temp", 150, "°C"),
        ("dcgm_power_usage", 155, "W"),
        ("dcgm_gpu_utilization", 203, "%"),
        ("dcgm_memory_clock", 101, "MHz"),
        ("dcgm_fb_used", 252, "MiB"),
        ("dcgm_total_energy_consumption", 156, "mJ"),
        ("dcgm_fi_prof_pipe_tensor_active", 1004, "ratio"),
    ],
)
def test_names_of_the_first_exporters_are_the_fields_of_today(first, number, unit):
    assert (BY_NAME[first].id, BY_NAME[first].unit) == (number, unit)
    assert BY_NAME[first].name.startswith("DCGM_FI_")


def test_rates_that_exporters_call_counters_are_gauges():
    for name in (
        "PROF_PCIE_TX_BYTES",
        "PROF_PCIE_RX_BYTES",
        "PROF_NVLINK_TX_BYTES",
        "PROF_NVLINK_RX_BYTES",
        "DEV_NVLINK_BANDWIDTH_TOTAL",
    ):
        assert field(name).kind is Kind.GAUGE


def test_only_counters_have_growth():
    for known in IN_INTERVALS:
        assert (Keep.DELTA in known.keeps) == (known.kind is Kind.COUNTER)
    assert ENERGY.unit == "mJ"
    assert ENERGY.scale == 0.001


def test_columns_of_intervals_are_named_once():
    names = SCHEMAS[GPU_INTERVALS].names
    assert len(names) == len(set(names))
    assert {c for known in IN_INTERVALS for c in known.columns.values()} <= set(names)


def test_only_what_is_printed_as_a_double_is_no_integer():
    doubles = {known.name for known in FIELDS if not known.integer}
    assert "DCGM_FI_DEV_POWER_USAGE" in doubles
    assert "DCGM_FI_PROF_SM_ACTIVE" in doubles
    assert "DCGM_FI_PROF_PCIE_TX_BYTES" not in doubles
