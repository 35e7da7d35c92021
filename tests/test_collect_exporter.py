"""`headrace collect exporter`: real pages over HTTP, a real node, messages at the stream."""

import contextlib
import json
import signal
import subprocess
import sys
import threading
import zlib

import pytest

from authority import Authority
from conftest import environment, headrace, wait_for
from exporterpages import (
    CAPITAL,
    EXPORTERS_OWN,
    FEDERATED,
    FIRST,
    LINKS,
    OTHER,
    RENAMED,
    SHARED,
    SLICES,
    SMALL,
    UUID,
)
from headrace import job_limits
from pageserver import Answer, PageServer
from streammessages import messages

pytestmark = pytest.mark.slow


def collect(node, *args, **extra):
    return headrace(
        "collect", "exporter", "--mqtt", f"127.0.0.1:{node.mqtt}", *map(str, args), **extra
    )


@contextlib.contextmanager
def collecting(node, *args):
    """A collector that goes on; its lines come from `stderr`."""
    process = subprocess.Popen(
        [
            sys.executable, "-m", "headrace", "collect", "exporter", "--json",
            "--mqtt", f"127.0.0.1:{node.mqtt}", "--interval", "200ms", *args,
        ],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
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


@pytest.mark.parametrize(
    ("page", "host", "metrics"),
    [
        (FIRST, "127.0.0.1", {"dcgm_gpu_temp", "dcgm_power_usage"}),
        (CAPITAL, "node-7", {"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"}),
        (SMALL, "node-7", {"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"}),
        (RENAMED, "node-7", {"DCGM_FI_DEV_GPU_TEMP_CELSIUS", "DCGM_FI_DEV_BOARD_POWER_WATTS"}),
    ],
    ids=["1.x", "Hostname", "hostname", "renamed"],
)
def test_each_generation_is_stored_under_the_same_names(shared, page, host, metrics):
    source = f"generation-{zlib.crc32(page.encode())}"
    before = len(messages(shared))
    with PageServer({"/metrics": Answer(page)}) as server:
        ran = collect(shared, server.url(), "--once", "--json", "--source", source)
        assert ran.returncode == 0, ran.stderr
    counts = json.loads(ran.stdout)
    assert (counts["published"], counts["acknowledged"], counts["source"]) == (2, 2, source)
    assert counts["scrapes"]["pages"] == 1
    found = [
        (topic, value)
        for topic, value in messages(shared)
        if value["labels"]["instance"] == server.instance
    ]
    assert len(messages(shared)) - before == len(found) == 2
    assert {topic for topic, _ in found} == {f"dcgm/{host}/{UUID}/{name}" for name in metrics}
    for _, value in found:
        assert (value["gpu_id"], value["labels"]["pod"]) == (UUID, "job-a")
        assert value["event_time"] == value["timestamp"] <= value["ingest_time"]
        assert value["event_time"].endswith("Z")
    raws = {value["raw"] for _, value in found}
    assert raws == ({"41", "212.5"} if page is FIRST else {"41", "212.500000"})


def test_slices_links_shared_gpus_and_federation_in_one_wide_run(start_node):
    node = start_node()
    pages = {"/slices": SLICES, "/links": LINKS, "/shared": SHARED, "/federate": FEDERATED}
    with PageServer({path: Answer(page) for path, page in pages.items()}) as server:
        urls = [server.url(path) for path in pages]
        ran = collect(node, *urls, "--once", "--json", "--wide")
    assert ran.returncode == 0, ran.stderr
    assert "serves GPUs that are at" in ran.stderr
    found = [value for topic, value in messages(node) if topic == f"dcgm/node-7/{UUID}"]
    slices = sorted(v["labels"]["GPU_I_ID"] for v in found if "GPU_I_ID" in v["labels"])
    assert slices == ["7", "9"]
    shared = [v["metrics"] for v in found if "vgpu" in v["labels"]]
    assert shared == [{"DCGM_FI_DEV_GPU_UTIL": "90", "DCGM_FI_DEV_FB_USED": "1000"}] * 2
    (federated,) = [v for v in found if "exporter_pod" in v["labels"]]
    assert federated["event_time"] == "2030-03-17T17:46:40.123000Z"
    assert federated["labels"]["pod"] == "job-a"
    assert len(found) == 6


def test_what_cannot_be_read_is_stored_as_it_came(start_node):
    node = start_node()
    torn = f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="{UUID}",pod="a'
    failed = f'DCGM_FI_DEV_MEMORY_TEMP{{gpu="0",UUID="{UUID}"}} ERROR - FAILED TO CONVERT TO STRING'
    page = f"{torn}\n{failed}\nand words\n{CAPITAL}{EXPORTERS_OWN}"
    with PageServer({"/metrics": Answer(page)}) as server:
        ran = collect(node, server.url(), "--once", "--json")
    assert ran.returncode == 0, ran.stderr
    scrapes = json.loads(ran.stdout)["scrapes"]
    assert (scrapes["unparsed"], scrapes["left_out"]) == (2, 2)
    assert "2 lines of the page cannot be read as a sample" in ran.stderr
    assert "2 samples of the page are of no GPU, such as go_goroutines" in ran.stderr
    raws = {value["raw"]: (topic, value) for topic, value in messages(node)}
    assert raws.keys() == {
        torn,
        "ERROR - FAILED TO CONVERT TO STRING",
        "and words",
        "41",
        "212.500000",
    }
    assert raws[torn][0] == f"dcgm/127.0.0.1/{UUID}/DCGM_FI_DEV_GPU_UTIL"
    assert raws["and words"][0] == "dcgm/127.0.0.1/_/_"
    assert all(value["value"] is None for raw, (_, value) in raws.items() if not raw[0].isdigit())


HUGE = "#" + "x" * job_limits.EXPORTER_PAGE_BYTES_MAX


@pytest.mark.parametrize(
    ("answer", "reason", "says"),
    [
        (Answer("<html>\n<body>dcgm</body>"), "not_metrics", "begins with '<html>"),
        (Answer('{"status": "up"}'), "not_metrics", "none of metrics"),
        (Answer("no", 503), "http_status", "answers 503 Service Unavailable"),
        (Answer("no", 401), "http_status", "--exporter-token-file"),
        (Answer(HUGE), "too_large", "larger than 16 MiB"),
        (Answer.packed(HUGE), "too_large", "larger than 16 MiB"),
        (Answer(b"\x1f\x8bno gzip"), "encoding", "damaged gzip"),
        (Answer(CAPITAL, headers={"Content-Encoding": "br"}), "encoding", "packed as 'br'"),
        (Answer(Answer.packed(CAPITAL * 99).body[:-9]), "cut", "ends too soon"),
        (Answer(CAPITAL, claims=5000), "cut", "ends too soon"),
        (Answer("", 302, {"Location": "http://127.0.0.2:9/metrics"}), "redirect",
         "leads to 'http://127.0.0.2:9/metrics', which is not followed"),
        (Answer("", 302, {"Location": "/metrics"}), "redirect", "without an end"),
    ],
    ids=["html", "json", "503", "401", "large", "bomb", "damaged", "br", "packed-cut", "cut",
         "redirect", "circle"],
)  # fmt: skip
def test_a_page_that_is_none_is_one_line_and_counted(shared, answer, reason, says):
    before = len(messages(shared))
    with PageServer({"/metrics": answer}) as server:
        ran = collect(shared, server.url(), "--once", "--json")
    assert ran.returncode == 1
    said = [line for line in ran.stderr.splitlines() if server.url() in line]
    assert len(said) == 1, ran.stderr
    assert says in said[0]
    assert ran.stderr.splitlines()[-1] == "headrace: 1 exporter of 1 gave no page"
    scrapes = json.loads(ran.stdout)["scrapes"]
    assert (scrapes["failed"], scrapes["failed_by_reason"]) == (1, {reason: 1})
    assert len(messages(shared)) == before


@pytest.mark.parametrize("encoding", ["gzip", None], ids=["said", "unsaid"])
def test_packed_pages_and_redirects_of_the_same_exporter_are_read(shared, encoding):
    answers = {
        "/old": Answer("", 301, {"Location": "/metrics"}),
        "/metrics": Answer.packed(CAPITAL, encoding),
    }
    with PageServer(answers) as server:
        ran = collect(shared, server.url("/old"), "--once", "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["acknowledged"] == 2
    assert server.requests[0][1]["Accept-Encoding"] == "gzip"


def test_an_exporter_that_vanishes_is_said_once_and_once_that_it_is_back(start_node):
    node = start_node()
    good, refused = Answer(CAPITAL), Answer("no", 500)
    with PageServer({"/metrics": good}) as server, collecting(node, server.url()) as process:
        server.wait_for_requests(2)
        server.answers["/metrics"] = refused
        assert (
            "answers 500 Internal Server Error; asked again every 0.2 s"
            in process.stderr.readline()
        )
        server.came = threading.Semaphore(0)
        server.wait_for_requests(4)
        server.answers["/metrics"] = good
        assert "answers again, after" in process.stderr.readline()
        counts, rest = ended(process)
    assert rest == ""
    scrapes = counts["scrapes"]
    assert scrapes["failed"] == scrapes["failed_by_reason"]["http_status"] >= 4
    assert counts["acknowledged"] == counts["published"] == 2 * scrapes["pages"]
    assert len(messages(node)) == counts["acknowledged"]


def test_a_slow_exporter_holds_up_no_other(start_node):
    node = start_node()
    held = threading.Event()
    answers = {"/slow": Answer(CAPITAL, held=held), "/good": Answer(CAPITAL.replace(UUID, OTHER))}
    with (
        PageServer(answers) as server,
        collecting(node, server.url("/slow"), server.url("/good"), "--timeout", "150ms") as process,
    ):
        assert "no whole page within 0.15 s" in process.stderr.readline()
        wait_for(lambda: sum(path == "/good" for path, _ in server.requests) >= 4)
        counts, rest = ended(process)
        held.set()
    assert rest == ""
    assert counts["scrapes"]["failed_by_reason"]["timeout"] >= 1
    assert {value["gpu_id"] for _, value in messages(node)} == {OTHER}


def test_nothing_read_is_lost_while_the_broker_is_away(start_node):
    node = start_node()
    with (
        PageServer({"/metrics": Answer(SMALL)}) as server,
        collecting(node, server.url()) as process,
    ):
        wait_for(lambda: messages(node))
        node.kill()
        assert "waiting for the broker" in process.stderr.readline()
        server.came = threading.Semaphore(0)
        server.wait_for_requests(5)
        again = start_node.again(node)
        while "the broker is there again" not in process.stderr.readline():
            pass
        counts, _ = ended(process)
    assert counts["acknowledged"] == counts["published"] == 2 * counts["scrapes"]["pages"]
    found = messages(again)
    assert len(found) == counts["acknowledged"]
    times = sorted({value["event_time"] for _, value in found})
    assert len(times) == counts["scrapes"]["pages"]
    assert all(
        value["ingest_time"] < times[-1] or value["event_time"] == times[-1] for _, value in found
    )


def test_two_exporters_of_one_node_and_one_without_gpus_are_said_once(start_node):
    node = start_node()
    answers = {"/a": Answer(CAPITAL), "/b": Answer(SMALL), "/none": Answer(EXPORTERS_OWN)}
    with (
        PageServer(answers) as server,
        collecting(node, *(server.url(path) for path in answers)) as process,
    ):
        wait_for(lambda: len(server.requests) >= 12)
        counts, said = ended(process)
    lines = said.splitlines()
    assert len(lines) == 2, said
    assert sum("stored twice: leave one out" in line for line in lines) == 1
    assert (
        sum(
            "has no metric of a GPU, but of others, such as go_goroutines" in line for line in lines
        )
        == 1
    )
    assert counts["acknowledged"] == len(messages(node))


def test_secured_exporters_are_asked_with_what_they_want(shared, tmp_path):
    authority = Authority(tmp_path / "ca")
    token, password = tmp_path / "token", tmp_path / "password"
    token.write_text("abc.def\n")
    password.write_text("open sesame\n")
    with PageServer(
        {"/metrics": Answer(CAPITAL)}, tls=authority.issue("node", "127.0.0.1")
    ) as server:
        stranger = collect(shared, server.url(), "--once", "--json")
        assert stranger.returncode == 1
        assert "certificate is not trusted" in stranger.stderr
        assert "--exporter-cafile" in stranger.stderr
        trust = ("--once", "--json", "--exporter-cafile", authority.file)
        for more, header in (
            (("--exporter-token-file", token), "Bearer abc.def"),
            (("--exporter-user", "ann", "--exporter-password-file", password),
             "Basic YW5uOm9wZW4gc2VzYW1l"),
        ):  # fmt: skip
            ran = collect(shared, server.url(), *trust, *more)
            assert ran.returncode == 0, ran.stderr
            assert server.requests[-1][1]["Authorization"] == header


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "Missing argument 'URL...'"),
        (["ftp://node"], "must be a URL such as http://node-1:9400/metrics"),
        (["http://ann:secret@node:9400"], "--exporter-password-file"),
        (["node:9400", "http://node:9400/metrics"], "is given twice"),
        (["node:9400", "--interval", "0s"], "must be 100ms or more"),
        (["node:9400", "--interval", "5s", "--timeout", "6s"], "longer than the interval of 5 s"),
        (["node:9400", "--exporter-user", "ann"], "belong together"),
        (["node:9400", "--exporter-token-file", "/nowhere/token"], "/nowhere/token: No such file"),
        (["node:9400", "--exporter-cafile", __file__], "must hold certificates (PEM)"),
    ],
)
def test_wrong_use_is_said_before_anything_is_asked(args, says):
    ran = headrace("collect", "exporter", *args)
    assert ran.returncode == 2
    assert says in ran.stderr
    assert "secret" not in ran.stderr
    assert len(ran.stderr.splitlines()) <= 3
