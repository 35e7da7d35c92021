"""`headrace collect nvml`, on machines that a file describes (tests/fakenvml.py), into a node."""

import contextlib
import copy
import json
import signal
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from conftest import environment, headrace, wait_for
from fakenvml import H200, install
from headrace.collect import nvml
from headrace.dcgm.fields import BY_NAME
from streammessages import messages

pytestmark = pytest.mark.slow

RUN = [sys.executable, "-c", "import fakenvml; fakenvml.main()"]
TESTS = str(Path(__file__).parent)


def gpu(**changes):
    found = copy.deepcopy(H200) | changes
    return {name: value for name, value in found.items() if value is not None}


OTHER = "GPU-00000000-aaaa-bbbb-cccc-000000000002"


@pytest.fixture
def machine(tmp_path):
    """Writes what GPUs there are; its file."""
    file = tmp_path / "machine.json"

    def write(*gpus):
        new = tmp_path / "new.json"
        new.write_text(json.dumps(gpus))
        new.replace(file)
        return str(file)

    return write


def command(node, file, *args):
    return [*RUN, file, "collect", "nvml", "--mqtt", f"127.0.0.1:{node.mqtt}", "--json", *args]


def surroundings():
    extra = environment()
    return extra | {"PYTHONPATH": f"{extra['PYTHONPATH']}:{TESTS}"}


def collect(node, file, *args):
    return subprocess.run(
        command(node, file, *args),
        env=surroundings(), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@contextlib.contextmanager
def collecting(node, file, *args):
    process = subprocess.Popen(
        command(node, file, "--interval", "200ms", *args),
        env=surroundings(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ended(process):
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return json.loads(out), err


EXPECTED = {
    "DCGM_FI_DEV_GPU_UTIL": "37", "DCGM_FI_DEV_MEM_COPY_UTIL": "12",
    "DCGM_FI_DEV_ENC_UTIL": "3", "DCGM_FI_DEV_DEC_UTIL": "4",
    "DCGM_FI_DEV_FB_TOTAL": "143771", "DCGM_FI_DEV_FB_USED": "615",
    "DCGM_FI_DEV_FB_FREE": "143155", "DCGM_FI_DEV_FB_RESERVED": "1",
    "DCGM_FI_DEV_POWER_USAGE": "135.383", "DCGM_FI_DEV_POWER_MGMT_LIMIT": "700.0",
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": "650.0",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "9007199254740993",
    "DCGM_FI_DEV_GPU_TEMP": "46", "DCGM_FI_DEV_MEMORY_TEMP": "48",
    "DCGM_FI_DEV_SHUTDOWN_TEMP": "90", "DCGM_FI_DEV_SLOWDOWN_TEMP": "87",
    "DCGM_FI_DEV_SM_CLOCK": "1980", "DCGM_FI_DEV_MEM_CLOCK": "3201",
    "DCGM_FI_DEV_VIDEO_CLOCK": "1545",
    "DCGM_FI_DEV_MAX_SM_CLOCK": "1980", "DCGM_FI_DEV_MAX_MEM_CLOCK": "3201",
    "DCGM_FI_DEV_PSTATE": "0", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "4",
    "DCGM_FI_DEV_POWER_VIOLATION": "12345", "DCGM_FI_DEV_THERMAL_VIOLATION": "0",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "1", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "2",
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL": "3", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": "4",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "5", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "6",
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "0", "DCGM_FI_DEV_ROW_REMAP_FAILURE": "1",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "7",
    "DCGM_FI_DEV_PCIE_LINK_GEN": "5", "DCGM_FI_DEV_PCIE_LINK_WIDTH": "16",
    "DCGM_FI_DEV_PCIE_MAX_LINK_GEN": "5", "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": "16",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "0",
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": "0",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": "8",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "0",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.99", "DCGM_FI_PROF_SM_ACTIVE": "0.5",
    "DCGM_FI_PROF_SM_OCCUPANCY": "0.25", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "0.125",
    "DCGM_FI_PROF_DRAM_ACTIVE": "0.75", "DCGM_FI_PROF_PIPE_FP64_ACTIVE": "0.0",
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": "0.01", "DCGM_FI_PROF_PIPE_FP16_ACTIVE": "0.005",
    "DCGM_FI_PROF_PCIE_TX_BYTES": "2097152.0", "DCGM_FI_PROF_PCIE_RX_BYTES": "4194304.0",
    "DCGM_FI_PROF_NVLINK_RX_BYTES": "8388608.0", "DCGM_FI_PROF_NVLINK_TX_BYTES": "16777216.0",
}  # fmt: skip


def test_every_value_has_dcgms_name_and_unit(start_node, machine):
    node = start_node()
    ran = collect(node, machine(gpu()), "--once")
    assert ran.returncode == 0, ran.stderr
    counts = json.loads(ran.stdout)
    assert (counts["rounds"], counts["acknowledged"]) == (1, len(EXPECTED))
    found = messages(node)
    assert {value["metric_name"]: value["raw"] for _, value in found} == EXPECTED
    (labels,) = {json.dumps(value["labels"]) for _, value in found}
    assert json.loads(labels) == {
        "gpu": "0", "model_name": "NVIDIA H200", "driver_version": "570.1",
        "pci_bus_id": "00000000:1B:00.0",
    }  # fmt: skip
    for topic, value in found:
        host = value["hostname"]
        assert topic == f"dcgm/{host}/{H200['uuid']}/{value['metric_name']}"
        assert value["device"] == "nvidia0"
    left_out = [line for line in ran.stderr.splitlines() if "left out" in line]
    assert len(left_out) == 1
    assert "NVIDIA H200 (1 device)" in left_out[0]
    assert "DEV_FAN_SPEED" in left_out[0]


def test_the_pipeline_knows_every_field():
    for name, raw in EXPECTED.items():
        field = BY_NAME[name]
        assert field.name == name
        assert field.low <= float(raw) <= field.high


def test_what_a_device_lacks_is_absent_and_said_once(start_node, machine):
    node = start_node()
    bare = gpu(gpm=None, energy_mj=None, xids=None, power_mw=None)
    file = machine(bare, bare | {"uuid": OTHER})
    with collecting(node, file) as process:
        said = process.stderr.readline()
        wait_for(lambda: len({value["event_time"] for _, value in messages(node)}) >= 3)
        _, rest = ended(process)
    assert rest == ""
    assert "NVIDIA H200 (2 devices): does not have" in said
    for name in ("DEV_TOTAL_ENERGY_CONSUMPTION", "DEV_XID_ERRORS", "PROF_*", "DEV_POWER_USAGE"):
        assert name in said
    metrics = {value["metric_name"] for _, value in messages(node)}
    assert not {"DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_SM_ACTIVE"} & metrics
    assert {value["gpu_id"] for _, value in messages(node)} == {H200["uuid"], OTHER}


def test_slices_have_what_is_theirs_and_the_board_the_rest(start_node, machine):
    node = start_node()
    slices = [
        {"id": at, "name": f"NVIDIA H200 MIG {size}", "memory": [n << 20 for n in (18, at, 9, 1)],
         "gpm": {"2": 10.0 * at}}
        for at, size in ((7, "1g.18gb"), (9, "2g.35gb"))
    ]  # fmt: skip
    file = machine(gpu(slices=slices, util=None))
    ran = collect(node, file, "--once", "--wide")
    assert ran.returncode == 0, ran.stderr
    found = [value for _, value in messages(node)]
    assert {value["gpu_id"] for value in found} == {H200["uuid"]}
    by_slice = {value["labels"].get("GPU_I_ID"): value for value in found}
    assert by_slice.keys() == {None, "7", "9"}
    assert by_slice["7"]["labels"]["GPU_I_PROFILE"] == "1g.18gb"
    assert by_slice["9"]["metrics"] == {
        "DCGM_FI_DEV_FB_TOTAL": "18", "DCGM_FI_DEV_FB_USED": "9", "DCGM_FI_DEV_FB_FREE": "9",
        "DCGM_FI_DEV_FB_RESERVED": "1", "DCGM_FI_PROF_SM_ACTIVE": "0.9",
    }  # fmt: skip
    board = by_slice[None]["metrics"]
    assert board["DCGM_FI_DEV_POWER_USAGE"] == "135.383"
    assert "DCGM_FI_DEV_GPU_UTIL" not in board


def test_each_xid_is_published_and_the_last_one_stays(start_node, machine):
    node = start_node()

    def xids():
        found = [v for _, v in messages(node) if v["metric_name"] == "DCGM_FI_DEV_XID_ERRORS"]
        return [value["raw"] for value in sorted(found, key=lambda value: value["event_time"])]

    with collecting(node, machine(gpu())) as process:
        wait_for(lambda: messages(node))
        assert xids() == []
        machine(gpu(xids=[31, 79]))
        wait_for(lambda: len(xids()) >= 4)
        ended(process)
    assert xids()[:2] == ["31", "79"]
    assert set(xids()[2:]) == {"79"}


def test_a_gpu_that_falls_off_the_bus_is_said_once_and_comes_back(start_node, machine):
    node = start_node()
    whole, other = gpu(), gpu(uuid=OTHER)
    with collecting(node, machine(whole, other)) as process:
        assert "left out" in process.stderr.readline()
        machine(whole, other | {"lost": True})
        line = process.stderr.readline()
        assert line.startswith("· " + OTHER)
        assert "cannot be read (GPU is lost)" in line
        seen = len(messages(node))
        wait_for(lambda: len(messages(node)) > seen + 3 * len(EXPECTED))
        machine(whole, other)
        assert "is read again, after" in process.stderr.readline()
        counts, rest = ended(process)
    assert rest == ""
    assert counts["acknowledged"] == counts["published"] == len(messages(node))


def test_a_gpu_that_was_none_at_the_start_is_found_later(machine, monkeypatch):
    monkeypatch.setattr(nvml, "_START_AGAIN_S", 0.0)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    whole, other = gpu(), gpu(uuid=OTHER)
    install(Path(machine(whole, other | {"lost": True})))
    said = []
    gpus = nvml.Gpus.open(said.append)
    try:
        assert said == ["GPU 1: cannot be read (GPU is lost); asked again each round"]
        rounds = [{reading.uuid for reading in gpus.read(at)} for at in range(3)]
        assert rounds == [{H200["uuid"]}] * 3
        machine(whole, other)
        gpus.read(4)  # finds it
        assert {reading.uuid for reading in gpus.read(5)} == {H200["uuid"], OTHER}
        machine(whole | {"lost": True}, other | {"lost": True})
        assert gpus.read(6) == []
        assert gpus.read(7) == []
        machine(whole, other)
        gpus.read(8)
        assert {reading.uuid for reading in gpus.read(9)} == {H200["uuid"], OTHER}
    finally:
        gpus.close()
        pynvml._nvmlGetFunctionPointer_cache.clear()
    told = [line for line in said if H200["uuid"] in line]
    assert len(told) == 2, said
    assert "is read again" in told[1]


def test_without_a_driver_it_says_what_to_install():
    ran = headrace("collect", "nvml", "--once")
    assert ran.returncode == 1
    assert "no NVIDIA driver here" in ran.stderr
    assert "container toolkit" in ran.stderr
    assert len(ran.stderr.splitlines()) == 2


def test_without_the_library_it_says_what_to_install():
    code = "import sys; sys.modules['pynvml'] = None; from headrace.cli import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", code, "collect", "nvml"],
        env=environment(), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "pip install 'headrace[gpu]'" in ran.stderr
    assert len(ran.stderr.splitlines()) == 2


def test_a_driver_without_gpus_is_an_error(machine):
    ran = subprocess.run(
        [*RUN, machine(), "collect", "nvml", "--once"],
        env=surroundings(), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "sees no GPU" in ran.stderr
