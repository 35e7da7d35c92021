"""`headrace queues` and `/api/v1/queues`: what they refuse, and that a stream is no queue."""

import asyncio
import json
import os
import pty
import shlex
import subprocess
import sys

import pytest

from conftest import environment, headrace
from headrace import Producer

pytestmark = pytest.mark.slow

QUEUES = "/api/v1/queues"
STREAM = "gpu-telemetry"


def queues(node, *arguments):
    return headrace("queues", *arguments, HEADRACE_URL=node.url)


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        ([], 2, "a command is missing\ntry: headrace queues --help"),
        (["create"], 2, "Missing argument 'NAME'"),
        (["create", "a", "--set", "x"], 2, "--set takes KEY=VALUE"),
        (["create", "a", "--set", "order=key", "--set", "order=none"], 2, "is given twice"),
        (["create", "a", "--set", "order=fifo"], 2, "must be one of none, key, strict; got 'fifo'"),
        (["create", "a", "--set", "ack.deadlin.ms=1s"], 2, "did you mean 'ack.deadline.ms'?"),
        (["create", "a", "--set", "prefetch=0"], 2, "setting 'prefetch' must be from 1 to 65535"),
        (["create", "a", "--set", "min.insync.replicas=2"], 2, "and not served here; remove it"),
        (["create", "a", "--set", "cleanup.policy=compact"], 2, "a queue is not compacted"),
        (
            ["create", "a", "--set", "order=strict", "--partitions", "2"],
            2,
            "order strict is of one partition, and there are 2; choose order key, or 1 partition",
        ),
        (["create", "a", "--partitions", "0"], 2, "partitions must be from 1 to 1024"),
        (["create", STREAM], 1, "exists"),
        (["create", "__a"], 2, "names that begin with '__' are the node's own"),
        (["alter", STREAM], 2, "nothing to change; give an option"),
        (["alter", STREAM, "--filter", "a", "--no-filters"], 2, "contradict each other"),
        (["alter", STREAM, "--set", "order=key", "--unset", "order"], 2, "contradict each other"),
        (["alter", STREAM, "--set", "order=key"], 1, f"'{STREAM}' is a stream and no queue"),
        (["describe", STREAM], 1, f"'{STREAM}' is a stream and no queue; none is known here"),
        (["describe", "a"], 1, "no queue is named 'a'; none is known here"),
        (["describe", ""], 2, "the name is empty"),
        (
            ["describe", b"\xff"],
            2,
            "an argument, or a variable of the environment, is no UTF-8 text",
        ),
        (["delete", STREAM, "--yes"], 1, f"'{STREAM}' is a stream and no queue"),
        (["delete", "a", "--group", "g", "--yes"], 1, "no queue is named 'a'"),
        (["delete", "a", "--group", ""], 2, "the name is empty"),
        (["list", "--url", "http://127.0.0.1:1"], 1, "start one with: headrace serve"),
    ],
)
def test_the_command_says_what_is_wrong(shared, arguments, code, error):
    refused = queues(shared, *arguments)
    assert refused.returncode == code, refused.stderr
    assert error in refused.stderr
    assert 1 <= len(refused.stderr.splitlines()) <= 3
    assert refused.stdout == ""


def test_a_stream_is_no_queue(shared):
    for method, body in (("GET", None), ("PATCH", {"settings": {}}), ("DELETE", None)):
        status, answer = shared.call(method, f"{QUEUES}/{STREAM}", body)
        assert (status, answer["detail"]) == (404, f"'{STREAM}' is a stream and no queue")
    assert shared.call("DELETE", f"{QUEUES}/{STREAM}/groups/g")[0] == 404
    assert shared.call("GET", QUEUES) == (200, {"queues": []})
    assert json.loads(queues(shared, "list", "--json").stdout) == {"queues": []}
    assert shared.call("GET", f"/api/v1/streams/{STREAM}")[0] == 200, "it is still there"


def test_a_body_is_what_it_says(shared):
    for body, why in (
        ({}, "name: "),
        ({"name": "a", "order": "key"}, "order: unknown; known: filters, key, name"),
        ({"name": "a", "settings": {"prefetch": [1]}}, "must be a text or a number"),
        ({"name": "a", "settings": {"prefetch": "many"}}, "setting 'prefetch' must be a whole"),
    ):
        status, answer = shared.call("POST", QUEUES, body)
        assert status == 400
        assert why in answer["detail"]


@pytest.mark.parametrize("command", ["create", "list", "describe", "alter", "redrive", "delete"])
def test_help_teaches(command):
    told = headrace("queues", command, "--help")
    assert told.returncode == 0
    assert "--json" in told.stdout
    assert max(map(len, told.stdout.splitlines())) <= 100


def test_a_narrow_terminal_has_each_message_below_the_other(shared):
    assert shared.call("POST", QUEUES, {"name": "narrow"})[0] == 201
    for payload in ("resize 7.png", "x" * 500):
        shared.call("POST", f"{QUEUES}/narrow/messages", {"payload": payload, "topic": "eu"})
    ours, theirs = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "headrace", "queues", "peek", "narrow"], stdout=theirs, check=True,
        env=environment(HEADRACE_URL=shared.url, COLUMNS="80"), timeout=60,
    )  # fmt: skip
    os.close(theirs)
    lines = b"".join(iter(lambda: read(ours), b"")).decode().splitlines()
    os.close(ours)
    assert max(map(len, lines)) <= 80
    assert "payload     resize 7.png" in lines
    assert lines.count("topic       $queue/narrow/eu") == 2
    shared.call("DELETE", f"{QUEUES}/narrow")


def read(terminal):
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other end is closed
        return b""


async def test_messages_are_shown_whatever_they_claim(start_node):
    node = start_node()
    assert node.call("POST", QUEUES, {"name": "jobs"})[0] == 201
    async with Producer(node.servers) as producer:
        long = {"note": b"n" * 500}
        await producer.send("jobs", b"x", timestamp_ms=(1 << 63) - 1, headers=long)
    shown = await asyncio.to_thread(queues, node, "peek", "jobs")
    assert shown.returncode == 0, shown.stderr
    assert f"{(1 << 63) - 1} ms" in shown.stdout
    assert "n" * 50 in shown.stdout
    assert "n" * 61 not in shown.stdout
    for command in (["list"], ["describe", "jobs"], ["peek", "jobs"]):
        asked = shlex.join([sys.executable, "-m", "headrace", "queues", *command])
        done = await asyncio.to_thread(
            subprocess.run, f"{asked} >&-", shell=True, capture_output=True, text=True, check=False,
            env=environment(HEADRACE_URL=node.url), timeout=60,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
