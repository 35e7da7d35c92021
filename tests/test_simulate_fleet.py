"""A simulated fleet: the same from the same seed, sound where it is healthy, and fast."""

import hashlib
import subprocess
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from conftest import environment
from headrace.collect import CsvFile
from headrace.errors import InputError
from headrace.simulate import csv_lines, device, gpu, published
from headrace.simulate.trace import pools
from simulated import SECOND_US, START_US, by_gpu, fleet

DIGEST = """
import hashlib
from headrace.simulate import csv_lines
from simulated import SECOND_US, fleet
digest = hashlib.sha256()
simulated = fleet(32, 2, interval_us=90 * SECOND_US, faults_per_kind=1, seed=%d)
for line in (*simulated.truth(), *csv_lines(simulated.scrapes())):
    digest.update(line.encode())
print(digest.hexdigest())
"""


def digest(seed, hash_seed):
    ran = subprocess.run(
        [sys.executable, "-c", DIGEST % seed],
        env=environment(
            PYTHONHASHSEED=hash_seed,
            PYTHONPATH=f"{Path(__file__).parent}:{Path(device.__file__).parents[2]}",
        ),
        capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    return ran.stdout


def test_the_same_seed_is_the_same_to_the_bit_in_any_process():
    first = digest(3, "1")
    assert digest(3, "2") == first
    assert digest(4, "1") != first


@pytest.fixture(scope="module")
def healthy():
    return by_gpu(fleet(40, 5, kinds=frozenset(), seed=11))


COUNTERS = (
    "dev_total_energy_consumption", "dev_pcie_replay_counter", "dev_ecc_sbe_vol_total",
    "dev_ecc_dbe_vol_total", "dev_correctable_remapped_rows", "dev_uncorrectable_remapped_rows",
    "dev_nvlink_crc_flit_error_count_total", "dev_nvlink_crc_data_error_count_total",
    "dev_nvlink_replay_error_count_total", "dev_nvlink_recovery_error_count_total",
    "dev_power_violation", "dev_thermal_violation",
)  # fmt: skip


def test_memory_used_and_free_are_always_the_whole(healthy):
    sums = {one.dev_fb_used + one.dev_fb_free for seen in healthy.values() for one in seen}
    assert sums == {143_770.0}


def test_energy_is_the_integral_of_power(healthy):
    for seen in healthy.values():
        joules = sum(
            (one.dev_power_usage + two.dev_power_usage) / 2 * (two.at_us - one.at_us) / 1e6
            for one, two in pairwise(seen)
        )
        first, last = seen[0], seen[-1]
        counted = last.dev_total_energy_consumption - first.dev_total_energy_consumption
        assert counted / 1000 == pytest.approx(joules, rel=0.01)


@pytest.mark.parametrize("counter", COUNTERS)
def test_counters_never_fall(healthy, counter):
    for seen in healthy.values():
        values = [getattr(one, counter) for one in seen]
        assert values == sorted(values)


def test_a_healthy_fleet_has_what_looks_like_faults_and_is_none(healthy):
    scrapes = [one for seen in healthy.values() for one in seen]
    bits = Counter(int(one.dev_clock_throttle_reasons) for one in scrapes)
    assert bits[4] > 1000  # the power cap of full load
    assert set(bits) == {0, 1, 4}
    assert {int(one.dev_xid_errors) for one in scrapes} > {0}
    assert {int(one.dev_xid_errors) for one in scrapes} <= {0, *published.APPLICATION_XIDS}
    last = [seen[-1] for seen in healthy.values()]
    assert 0 < max(one.dev_ecc_sbe_vol_total for one in last) < 10
    assert 0 < max(one.dev_pcie_replay_counter for one in last) < 300
    assert max(one.dev_uncorrectable_remapped_rows for one in last) > 0
    assert {one.dev_power_mgmt_limit for one in scrapes} == {700.0}
    assert min(one.dev_slowdown_temp - one.dev_gpu_temp for one in scrapes) >= 2
    gaps = [one for one in scrapes if one.prof_dram_active != one.prof_dram_active]
    assert 0.001 < len(gaps) / len(scrapes) < 0.05
    assert all(one.prof_sm_active == 0.0 for one in gaps)


def test_no_job_of_a_healthy_fleet_idles_for_long(healthy):
    window_us = 14 * 60 * SECOND_US
    for seen in healthy.values():
        idle_since = None
        for one in seen:
            if not one.pod or one.dev_gpu_util >= 5:
                idle_since = None
            elif idle_since is None:
                idle_since = one.at_us
            else:
                assert one.at_us - idle_since < window_us


def test_full_utilisation_may_be_half_work(healthy):
    decoding = [
        one
        for seen in healthy.values()
        for one in seen
        if one.pod and one.dev_gpu_util > 97 and 0.2 < one.prof_sm_active < 0.62
    ]
    assert decoding
    assert min(one.dev_power_usage for one in decoding) > 240
    assert max(one.dev_power_usage for one in decoding) < 500


def test_hosts_miss_a_few_scrapes_at_once(healthy):
    longest_us = 0
    missed = 0
    for seen in healthy.values():
        for one, two in pairwise(seen):
            longest_us = max(longest_us, two.at_us - one.at_us)
            missed += two.at_us - one.at_us > 20 * SECOND_US
    assert 0 < missed < sum(map(len, healthy.values())) / 100
    assert longest_us < 100 * SECOND_US


def test_pods_are_those_of_jobs_and_span_hosts(healthy):
    hosts = {}
    for seen in healthy.values():
        for one in seen:
            if one.pod:
                hosts.setdefault(one.job, {}).setdefault(one.pod, set()).add(one.host)
                assert one.labels["namespace"]
    assert all(len(where) == 1 for pods in hosts.values() for where in pods.values())
    assert max(len(pods) for pods in hosts.values()) > 1


def test_scrapes_come_late_and_twice():
    arrived = list(fleet(16, 2, kinds=frozenset()).scrapes())
    keys = Counter((scrape.uuid, scrape.event_us) for scrape in arrived)
    assert 0 < sum(many - 1 for many in keys.values()) < len(arrived) / 100
    newest, late = {}, 0
    for scrape in arrived:
        late += (
            scrape.event_us < newest.get(scrape.uuid, 0) and keys[scrape.uuid, scrape.event_us] == 1
        )
        newest[scrape.uuid] = max(newest.get(scrape.uuid, 0), scrape.event_us)
    assert 0 < late < len(arrived) / 100
    assert all(scrape.arrival_us > scrape.event_us >= START_US for scrape in arrived)


def test_values_that_no_device_has_are_rare_and_there(monkeypatch):
    monkeypatch.setattr(published, "GLITCHES_PER_READING", 0.001)
    texts = {
        scrape.metrics[field]
        for scrape in fleet(8, 1, kinds=frozenset()).scrapes()
        for field in gpu._GLITCH_FIELDS
    }
    assert set(published.GLITCH_TEXTS) <= texts


def test_the_file_of_a_fleet_reads_as_its_readings(tmp_path):
    simulated = fleet(9, 0.1, kinds=frozenset())
    file = tmp_path / "fleet.csv"
    file.write_text("".join(csv_lines(simulated.scrapes())), encoding="utf-8")
    written = [reading for scrape in simulated.scrapes() for reading in scrape.readings()]
    assert list(CsvFile(file)) == written
    assert {len(scrape.metrics) for scrape in simulated.scrapes()} == {42}
    assert 9 * 22 * 42 < len(written) <= 9 * 25 * 42


def test_each_seed_has_uuids_of_its_own():
    one, two = (
        {fleet(16, 0.1, kinds=frozenset(), seed=seed).uuid(i) for i in range(16)} for seed in (1, 2)
    )
    assert len(one) == len(two) == 16
    assert not one & two


def test_a_trace_without_loads_is_refused():
    with pytest.raises(InputError, match="lacks idle, waiting"):
        pools([])


@pytest.mark.slow
@pytest.mark.soak
def test_six_hours_of_200_gpus(capsys):
    simulated = fleet(200, 6, seed=1)
    begun = time.perf_counter()
    readings = scrapes = 0
    hashed = hashlib.sha256()
    for scrape in simulated.scrapes():
        scrapes += 1
        readings += len(scrape.metrics)
        hashed.update(scrape.metrics["DCGM_FI_DEV_POWER_USAGE"].encode())
    seconds = time.perf_counter() - begun
    with capsys.disabled():
        print(f"\n200 GPUs x 6 h: {readings:,} readings, {readings / seconds:,.0f} a second")
    assert 0.97 < scrapes / (200 * 6 * 240) <= 1.01
