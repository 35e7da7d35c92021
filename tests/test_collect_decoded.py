"""What the pipeline makes of a collector's messages: each line of a page ends where it should."""

import json

import pytest

from conftest import headrace
from exporterpages import CAPITAL, EXPORTERS_OWN, FEDERATED, LINKS, RENAMED, SHARED, SLICES, UUID
from headrace.client import FetchClient
from headrace.dcgm.readings import Decoder
from headrace.native import decode_records
from pageserver import Answer, PageServer

pytestmark = pytest.mark.slow

STREAM = "gpu-telemetry"
GPU = f'{{gpu="0",UUID="{UUID}",hostname="node-7"}}'
FAULTS = {
    f"DCGM_FI_DEV_MEMORY_TEMP{GPU} 9223372036854775794": "not_supported",
    f"DCGM_FI_DEV_FB_USED{GPU} 9223372036854775792": "blank",
    f"DCGM_FI_DEV_GPU_UTIL{GPU} 4294967295": "out_of_range",
    f"DCGM_FI_DEV_ENC_UTIL{GPU} ERROR - FAILED TO CONVERT TO STRING": "unparseable",
    f"DCGM_FI_DEV_DEC_UTIL{GPU} N/A1612622433123": "unparseable",
    f"DCGM_FI_PROF_SM_ACTIVE{GPU} NaN": "not_a_number",
    f"DCGM_FI_DEV_SM_CLOCK{GPU}": "missing",
    f"DCGM_FI_DEV_MEM_CLOCK{GPU} 1500 7": "ambiguous_time",
    f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="{UUID}",pod="a': "unparseable",
    'DCGM_FI_DEV_CPU_UTIL_TOTAL{cpu="0"} 0.5': "no_identity",
    'DCGM_FI_DEV_GPU_TEMP{gpu="0"': "no_identity",
    "words that are no metric": "undecodable",
}


def collected(node, pages, *args):
    """Readings of the stream after one run."""
    with PageServer({f"/{n}": Answer(page) for n, page in enumerate(pages)}) as server:
        urls = [server.url(f"/{n}") for n in range(len(pages))]
        ran = headrace(
            "collect", "exporter", *urls, "--once", "--json", "--mqtt", f"127.0.0.1:{node.mqtt}",
            *args,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = []
    with FetchClient(node.servers) as client:
        for partition, end in client.latest_offsets(STREAM).items():
            decoder, at = Decoder(STREAM, partition, "ingest_time"), 0
            while at < end:
                records = decode_records(
                    client.fetch(STREAM, partition, at, 1 << 20, 0), at, end, 100_000
                )
                for batch in decoder.decode(records):
                    found += batch.to_pylist()
                at = records.next_offset
    assert len(found) == json.loads(ran.stdout)["acknowledged"]
    return found


@pytest.mark.parametrize("shape", [[], ["--wide"]], ids=["narrow", "wide"])
def test_each_faulty_line_has_its_reason(start_node, shape):
    page = "\n".join([*FAULTS, EXPORTERS_OWN])
    found = collected(start_node(), [page, CAPITAL], *shape)
    reasons = sorted(row["reason"] for row in found if row["reason"] is not None)
    assert reasons == sorted(FAULTS.values())
    usable = {row["metric"]: row["value"] for row in found if row["reason"] is None}
    assert usable == {"DCGM_FI_DEV_GPU_TEMP": 41.0, "DCGM_FI_DEV_POWER_USAGE": 212.5}


@pytest.mark.parametrize("shape", [[], ["--wide"]], ids=["narrow", "wide"])
def test_generations_come_out_alike(start_node, shape):
    found = collected(start_node(), [CAPITAL, RENAMED, LINKS, SLICES, SHARED], *shape)
    assert {row["reason"] for row in found} == {None}
    assert {(row["uuid"], row["host"], row["gpu_index"]) for row in found} == {(UUID, "node-7", 0)}
    named = [row for row in found if row["pod"] == "job-a"]
    assert sorted(row["metric"] for row in named) == sorted(
        ["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"] * 2
    )
    assert {(row["model"], row["driver"]) for row in named} == {("NVIDIA H200", "570.1")}
    slices = {(row["gpu_i_id"], row["gpu_i_profile"], row["value"]) for row in found}
    assert {("7", "1g.18gb", 0.75), ("9", "1g.18gb", 0.95)} <= slices
    shared = [row["pod"] for row in found if "vgpu" in dict(row["labels"])]
    assert sorted(shared) == ["job-0", "job-0", "job-1", "job-1"]


def test_federation_gives_the_gpus_pod_and_time(start_node):
    (row,) = collected(start_node(), [FEDERATED])
    assert (row["namespace"], row["pod"], row["container"]) == ("lab", "job-a", "train")
    assert row["event_time"].isoformat() == "2030-03-17T17:46:40.123000+00:00"
    assert row["reason"] in {None, "future"}  # as the clock of this machine has it
