"""Pages of metrics to readings."""

import random

import pytest

from exporterpages import (
    CAPITAL,
    EXPORTERS_OWN,
    FEDERATED,
    FIRST,
    LINKS,
    RENAMED,
    SHARED,
    SLICES,
    SMALL,
    UUID,
)
from headrace import job_limits
from headrace.collect import narrow, wide
from headrace.collect.exposition import Scrape, read_page
from headrace.errors import ScrapeError

BEGUN, READ = 1_900_000_000_000_000, 1_900_000_000_250_000


def page(text):
    return read_page(Scrape(text, "10.0.0.7:9400", "10.0.0.7", BEGUN, READ))


def only(text):
    (reading,) = page(text).readings
    return reading


@pytest.mark.parametrize(
    ("text", "host", "device", "model", "metrics"),
    [
        (FIRST, "10.0.0.7", "", None, ["dcgm_gpu_temp", "dcgm_power_usage"]),
        (CAPITAL, "node-7", "nvidia0", "NVIDIA H200",
         ["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"]),
        (SMALL, "node-7", "nvidia0", "NVIDIA H200",
         ["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"]),
        (RENAMED, "node-7", "nvidia0", "NVIDIA H200",
         ["DCGM_FI_DEV_GPU_TEMP_CELSIUS", "DCGM_FI_DEV_BOARD_POWER_WATTS"]),
    ],
)  # fmt: skip
def test_each_generation_names_the_same_gpu_and_pod(text, host, device, model, metrics):
    readings = page(text).readings
    assert [reading.metric for reading in readings] == metrics
    for reading in readings:
        assert (reading.uuid, reading.host, reading.device) == (UUID, host, device)
        labels = reading.labels
        assert (labels["pod"], labels["namespace"], labels["container"]) == (
            "job-a",
            "lab",
            "train",
        )
        assert labels.get("model_name") == model
        assert labels["gpu"] == "0"
        assert labels["instance"] == "10.0.0.7:9400"
        said = {"UUID", "uuid", "Hostname", "hostname", "device", "modelName", "pod_name"}
        assert not said & labels.keys()
        assert (reading.event_us, reading.event_time) == (BEGUN, "2030-03-17T17:46:40.000000Z")


def test_values_keep_their_text():
    assert [reading.raw for reading in page(CAPITAL).readings] == ["41", "212.500000"]
    texts = ["9223372036854775794", "NaN", "+Inf", "1e3", "-0", "0.000000", ".5"]
    lines = "".join(f'DCGM_FI_DEV_X{{UUID="{UUID}"}} {text}\n' for text in texts)
    assert [reading.raw for reading in page(lines).readings] == texts


def test_links_have_names_of_their_own():
    reading = only(LINKS)
    assert reading.uuid == UUID
    assert reading.labels == {
        "gpu": "0", "model_name": "NVIDIA H200", "nvlink": "3", "instance": "10.0.0.7:9400",
    }  # fmt: skip


def test_slices_of_a_gpu_stay_apart_also_in_wide_messages():
    readings = page(SLICES).readings
    assert [reading.labels["GPU_I_ID"] for reading in readings] == ["7", "9"]
    assert len(list(wide(readings, lambda: READ))) == 2


def test_federation_gives_the_gpus_pod_and_the_samples_time():
    reading = only(FEDERATED)
    assert (reading.labels["pod"], reading.labels["exporter_pod"]) == ("job-a", "dcgm-exporter-x1")
    assert reading.labels["exporter_namespace"] == "monitoring"
    assert reading.labels["instance"] == "10.0.0.7:9400"
    assert (reading.timestamp, reading.event_us) == ("1900000000123", 1_900_000_000_123_000)


@pytest.mark.parametrize(
    ("stamp", "event_us"),
    [
        ("1900000000123", 1_900_000_000_123_000),
        ("1900000000.5", 1_900_000_000_500_000),  # OpenMetrics
        ("-5", None),
        ("7", None),
    ],
)
def test_a_timestamp_is_read_or_kept_as_it_is(stamp, event_us):
    reading = only(f'DCGM_FI_DEV_GPU_UTIL{{UUID="{UUID}"}} 7 {stamp}')
    assert (reading.raw, reading.event_us) == ("7", event_us)
    assert event_us is not None or reading.event_time == stamp


@pytest.mark.parametrize(
    "rest",
    ["ERROR - FAILED TO CONVERT TO STRING", "N/A", "N/A1612622433123", "", "1 2 3", "0x10"],
)
def test_what_is_no_number_keeps_its_gpu_and_its_text(rest):
    reading = only(f'DCGM_FI_DEV_MEMORY_TEMP{{gpu="0",UUID="{UUID}"}} {rest}'.rstrip())
    assert (reading.uuid, reading.raw) == (UUID, rest)


@pytest.mark.parametrize(
    ("line", "metric", "uuid"),
    [
        (f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="{UUID}",pod="a', "DCGM_FI_DEV_GPU_UTIL", UUID),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0"', "DCGM_FI_DEV_GPU_UTIL", ""),
        ('{"DCGM.x", gpu="0"} 1', "", ""),
        ("2024/01/01 12:00:00 something was logged here", "", ""),
        ("some words", "", ""),
        ("word", "", ""),
        ('"', "", ""),
    ],
)
def test_a_line_that_is_no_sample_is_a_reading_of_its_text(line, metric, uuid):
    found = page(f"{CAPITAL}{line}\n")
    assert (found.unparsed, found.unparsed_line) == (1, line)
    (reading,) = [each for each in found.readings if each.raw == line]
    assert (reading.metric, reading.uuid, reading.host) == (metric, uuid, "10.0.0.7")


def test_samples_of_no_gpu_are_left_out_and_counted():
    found = page(CAPITAL + EXPORTERS_OWN)
    assert (len(found.readings), found.left_out, found.left_out_name) == (2, 2, "go_goroutines")
    assert found.samples == 4


def test_a_metric_without_gpu_is_published_all_the_same():
    reading = only('DCGM_FI_DEV_CPU_UTIL_TOTAL{cpu="0",hostname="node-7"} 0.5')
    assert (reading.uuid, reading.host, reading.labels["cpu"]) == ("", "node-7", "0")


def test_a_gpu_that_two_pods_share_gives_two_wide_messages():
    readings = page(SHARED).readings
    assert len(readings) == 4
    messages = list(wide(readings, lambda: READ))
    assert [message.readings for message in messages] == [2, 2]
    assert readings[0].labels["hpc_job"] == "4711"


def test_labels_that_contradict_each_other_stay():
    reading = only(f'DCGM_FI_DEV_X{{UUID="{UUID}",uuid="GPU-1",pod="a",pod_name="b"}} 1')
    assert (reading.uuid, reading.labels["uuid"]) == (UUID, "GPU-1")
    assert (reading.labels["pod"], reading.labels["pod_name"]) == ("a", "b")


def test_escapes_blanks_and_foreign_line_ends():
    text = (
        f'\ufeff  DCGM_FI_DEV_X \t{{ UUID = "{UUID}" , pod="a\\"b\\\\c\\nd}}", }}5\r\n\r\n# EOF\n'
    )
    reading = only(text)
    assert (reading.metric, reading.raw) == ("DCGM_FI_DEV_X", "5")
    assert reading.labels["pod"] == 'a"b\\c\nd}'


def test_the_longest_lines_fit_into_packets():
    longest = job_limits.EXPOSITION_LINE_LENGTH_MAX
    lines = [
        f'DCGM_FI_DEV_A{{UUID="{UUID}",pod="{"x" * (longest * 2)}"}} 1',
        f'DCGM_FI_DEV_B{{UUID="{UUID}",pod="' + "\x01" * (longest - 70),
        *(f'DCGM_FI_DEV_C{n}{{UUID="{UUID}"}} ' + "\x01" * (longest - 80) for n in range(9)),
    ]
    found = page("\n".join([*lines, CAPITAL]))
    assert found.unparsed == 2
    assert [
        r.labels["cut_from_characters"] for r in found.readings if "cut_from_characters" in r.labels
    ] == [str(len(lines[0]))]
    for shape in (narrow, wide):
        messages = list(shape(found.readings, lambda: READ))
        assert sum(message.readings for message in messages) == len(found.readings) == 13
        assert max(len(message.payload) + len(message.topic) for message in messages) < 1 << 20


def test_a_page_of_more_lines_than_any_has_is_refused():
    line = f'DCGM_X{{UUID="{UUID}"}} 1\n'
    assert len(page(line * job_limits.EXPORTER_READINGS_MAX).readings) == 200_000
    with pytest.raises(ScrapeError, match="more than 200,000 lines to publish"):
        page(line * (job_limits.EXPORTER_READINGS_MAX + 1))


def test_every_line_of_a_damaged_page_is_accounted_for():
    seed = random.SystemRandom().randrange(1 << 32)
    dice = random.Random(seed)
    whole = CAPITAL + LINKS + SLICES + SHARED + FEDERATED + EXPORTERS_OWN
    for _ in range(300):
        text = list(whole)
        for _ in range(dice.randrange(1, 12)):
            at = dice.randrange(len(text))
            text[at : at + dice.randrange(3)] = dice.choice('{}",=\\\n #0\x00é')
        damaged = "".join(text)
        lines = [line.strip(" \t\r") for line in damaged.split("\n")]
        expected = sum(1 for line in lines if line and not line.startswith("#"))
        found = page(damaged)
        assert len(found.readings) + found.left_out == expected, f"seed {seed}"
        assert list(narrow(found.readings, lambda: READ)), f"seed {seed}"
