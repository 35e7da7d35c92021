"""Every fault of a simulated fleet shows in the readings as its source describes it."""

import json
import re
from statistics import fmean, median

import pytest

from headrace.errors import InputError
from headrace.simulate import Kind, published
from simulated import HOUR_US, SECOND_US, START_US, by_gpu, fleet

MINUTE_US = 60 * SECOND_US
SETTLED_US = 2 * MINUTE_US
COPIES = 4


class World:
    def __init__(self):
        self.fleet = fleet(96, 4, interval_us=30 * SECOND_US, faults_per_kind=COPIES, seed=7)
        self.gpus = by_gpu(self.fleet)

    def faults(self, kind):
        for fault in self.fleet.faults:
            if fault.kind is kind:
                for gpu in fault.gpus:
                    yield fault, self.gpus[self.fleet.uuid(gpu)]


@pytest.fixture(scope="module")
def world():
    return World()


def within(fault, seen, settled_us=0):
    return [one for one in seen if fault.start_us + settled_us <= one.at_us < fault.end_us]


def before(fault, seen):
    return [one for one in seen if fault.start_us - 5 * MINUTE_US <= one.at_us < fault.start_us]


def behind(fault, seen):
    return [one for one in seen if fault.end_us <= one.at_us < fault.end_us + 5 * MINUTE_US]


def profiled(scrapes):
    return [one for one in scrapes if one.prof_dram_active == one.prof_dram_active]  # no NaN


def minutes(scrapes):
    return (scrapes[-1].at_us - scrapes[0].at_us) / MINUTE_US


def grown(scrapes, field):
    return getattr(scrapes[-1], field) - getattr(scrapes[0], field)


def test_every_kind_has_as_many_as_asked_for(world):
    kinds = [fault.kind for fault in world.fleet.faults]
    assert sorted(kinds) == sorted(list(Kind) * COPIES)
    assert all(fault.end_us - fault.start_us >= 15 * MINUTE_US for fault in world.fleet.faults)
    starts = [fault.start_us for fault in world.fleet.faults]
    assert starts == sorted(starts)
    assert [fault.number for fault in world.fleet.faults] == list(range(1, len(kinds) + 1))


def test_idle_allocated_holds_memory_and_does_nothing(world):
    for fault, seen in world.faults(Kind.IDLE_ALLOCATED):
        assert fault.end_us - fault.start_us >= 25 * MINUTE_US
        idle = within(fault, seen, SETTLED_US)
        assert fmean(one.dev_gpu_util for one in idle) < 5
        assert max(one.dev_power_usage for one in idle) < 200
        assert all(one.pod and one.dev_fb_used > 20_000 for one in idle)
        assert fmean(one.dev_gpu_util for one in before(fault, seen)) > 80


def test_fake_busy_has_utilisation_without_activity_or_power(world):
    for fault, seen in world.faults(Kind.FAKE_BUSY):
        busy = profiled(within(fault, seen, SETTLED_US))
        assert min(one.dev_gpu_util for one in busy) >= 95
        assert max(one.prof_sm_active for one in busy) < 0.05
        assert max(one.dev_power_usage for one in busy) < 200


def test_power_cap_is_a_limit_below_the_boards(world):
    for fault, seen in world.faults(Kind.POWER_CAP):
        capped, free = within(fault, seen), before(fault, seen)
        limit = fault.parameters["limit_watts"]
        assert {one.dev_power_mgmt_limit for one in capped} == {limit}
        assert {one.dev_power_mgmt_limit for one in free} == {700.0}
        assert max(one.dev_power_usage for one in capped) < 1.02 * limit
        assert all(int(one.dev_clock_throttle_reasons) & 4 for one in capped)
        assert fmean(one.dev_sm_clock for one in capped) < fmean(one.dev_sm_clock for one in free)
        assert grown(capped, "dev_power_violation") > 0


def test_thermal_is_hotter_than_the_board_bears(world):
    for fault, seen in world.faults(Kind.THERMAL):
        hot, cool = within(fault, seen, SETTLED_US), before(fault, seen)
        assert min(one.dev_gpu_temp - one.dev_slowdown_temp for one in hot) >= 0
        assert max(one.dev_gpu_temp - one.dev_slowdown_temp for one in cool) < 0
        assert all(int(one.dev_clock_throttle_reasons) & 0x60 for one in hot)
        violated = grown(hot, "dev_thermal_violation") / 1e9 / 60 / minutes(hot)
        assert violated == pytest.approx(fault.parameters["violation_share"], abs=0.02)
        assert fmean(one.dev_sm_clock for one in hot) < fmean(one.dev_sm_clock for one in cool)


def test_hw_slowdown_has_its_bit_and_low_clocks(world):
    for fault, seen in world.faults(Kind.HW_SLOWDOWN):
        slow = within(fault, seen)
        brake = fault.parameters["variant"] == "power_brake"
        assert {int(one.dev_clock_throttle_reasons) for one in slow} == {0x88 if brake else 8}
        assert max(one.dev_sm_clock for one in slow) < 900
        assert not any(int(one.dev_clock_throttle_reasons) & 0x88 for one in before(fault, seen))


def test_an_xid_stays_and_its_job_is_gone_until_the_driver_is_loaded_anew(world):
    for fault, seen in world.faults(Kind.XID):
        failed = within(fault, seen)
        assert {int(one.dev_xid_errors) for one in failed} == {fault.parameters["code"]}
        assert not any(one.pod for one in failed)
        assert failed[-1].dev_total_energy_consumption > behind(fault, seen)[0].dev_gpu_util
        mended = behind(fault, seen)
        assert all(one.dev_xid_errors in {0, *published.APPLICATION_XIDS} for one in mended)
        energies = [one.dev_total_energy_consumption for one in (failed[-1], mended[0])]
        assert energies[1] < energies[0]


def test_ecc_counts_what_was_drawn(world):
    for fault, seen in world.faults(Kind.ECC):
        counted, clean = within(fault, seen), before(fault, seen)
        if fault.parameters["variant"] == "double_bit":
            errors = counted[-1].dev_ecc_dbe_vol_total - clean[-1].dev_ecc_dbe_vol_total
            assert errors == fault.parameters["errors"]
            assert behind(fault, seen)[0].dev_ecc_dbe_vol_total == 0
        else:
            rate = grown(counted, "dev_ecc_sbe_vol_total") / minutes(counted)
            assert rate == pytest.approx(fault.parameters["per_minute"], rel=0.2)


def test_row_remap_has_its_flags(world):
    for fault, seen in world.faults(Kind.ROW_REMAP):
        remapped, clean = within(fault, seen), before(fault, seen)
        rows = fault.parameters["rows"]
        column = "dev_uncorrectable_remapped_rows"
        assert getattr(remapped[-1], column) - getattr(clean[-1], column) == rows
        if fault.parameters["variant"] == "failure":
            assert {one.dev_row_remap_failure for one in remapped} == {1.0}
            assert fault.end_us == START_US + 4 * HOUR_US
        else:
            assert {one.dev_row_remap_pending for one in remapped} == {1.0}
            assert behind(fault, seen)[0].dev_row_remap_pending == 0


NVLINK = {
    "replay": "dev_nvlink_replay_error_count_total",
    "recovery": "dev_nvlink_recovery_error_count_total",
    "crc_flit": "dev_nvlink_crc_flit_error_count_total",
    "crc_data": "dev_nvlink_crc_data_error_count_total",
}


def test_nvlink_counters_grow_at_the_rate_drawn(world):
    for fault, seen in world.faults(Kind.NVLINK):
        failing, drawn = within(fault, seen), fault.parameters
        per_minute = grown(failing, NVLINK[drawn["variant"]]) / minutes(failing)
        if drawn["variant"].startswith("crc"):
            assert per_minute / 60 == pytest.approx(drawn["per_second"], rel=0.05)
        else:
            assert per_minute > 0


def test_pcie_replays_grow_at_the_rate_drawn(world):
    for fault, seen in world.faults(Kind.PCIE):
        failing = within(fault, seen)
        rate = grown(failing, "dev_pcie_replay_counter") / minutes(failing)
        assert rate == pytest.approx(fault.parameters["per_minute"], rel=0.15)


def test_a_straggler_lags_behind_the_others_of_its_job(world):
    for fault, seen in world.faults(Kind.STRAGGLER):
        slow = profiled(within(fault, seen, SETTLED_US))
        peers = [
            profiled(within(fault, other, SETTLED_US))
            for other in world.gpus.values()
            if other is not seen
            and within(fault, other)
            and within(fault, other)[0].job == slow[0].job
        ]
        assert len(peers) == fault.parameters["job_gpus"] - 1
        for field in ("dev_sm_clock", "dev_power_usage", "prof_sm_active"):
            others = median(fmean(getattr(one, field) for one in peer) for peer in peers)
            assert fmean(getattr(one, field) for one in slow) < 0.9 * others
        assert not any(int(one.dev_clock_throttle_reasons) for one in slow)


def test_vanished_gpus_and_hosts_are_in_no_scrape(world):
    variants = set()
    for fault, seen in world.faults(Kind.VANISHED):
        variants.add(fault.parameters["variant"])
        assert not within(fault, seen)
        assert before(fault, seen)
        assert behind(fault, seen)
        host = seen[0].host
        others = [other for other in world.gpus.values() if other[0].host == host]
        alive = sum(bool(within(fault, other)) for other in others)
        assert alive == (0 if fault.parameters["variant"] == "host" else len(others) - 1)
    assert variants == {"gpu", "host"}


def test_stale_values_are_the_same_to_the_bit(world):
    for fault, seen in world.faults(Kind.STALE):
        frozen = within(fault, seen)
        assert len(frozen) >= 20
        assert len({one.at_us for one in frozen}) == len(frozen)
        assert all(one.values == frozen[0].values for one in frozen)
        assert behind(fault, seen)[0].values != frozen[0].values


def test_the_truth_is_a_json_object_a_line(world):
    lines = [json.loads(line) for line in world.fleet.truth()]
    assert len(lines) == sum(len(fault.gpus) for fault in world.fleet.faults)
    for line in lines:
        assert list(line) == [
            "fault", "kind", "host", "uuid", "gpu_i_id", "start", "end", "parameters", "text",
        ]  # fmt: skip
        assert line["kind"] in set(Kind)
        assert line["host"] == world.gpus[line["uuid"]][0].host
        assert re.fullmatch(r"2026-01-05T0\d:\d\d:\d\d\.\d{6}Z", line["start"])
        assert line["start"] < line["end"]
        assert "{" not in line["text"]


def test_a_fault_that_finds_no_room_says_what_to_do():
    with pytest.raises(InputError, match=r"no room for fault 2 of 2 on 1 GPUs\n.*--gpus"):
        fleet(1, 1, kinds=frozenset({Kind.PCIE}), faults_per_kind=2)
    with pytest.raises(InputError, match=r"straggler: no room"):
        fleet(3, 4, kinds=frozenset({Kind.STRAGGLER}))
    with pytest.raises(InputError, match=r"25 minutes at least\n.*37m or longer with --duration"):
        fleet(8, 0.5, kinds=frozenset({Kind.IDLE_ALLOCATED}))
