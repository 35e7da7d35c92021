"""What `headrace queues purge` and `seek` let go of, for whom, and what is asked before."""

import json
import os
import pty
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial

import pytest

from conftest import RunningNode, environment, headrace, wait_for
from test_queues import QUEUES, make, shown
from test_queues_http import Queue

pytestmark = pytest.mark.slow


@pytest.fixture
def node(tmp_path):
    with closing(RunningNode(tmp_path / "data")) as node:
        yield node


def queues(node, *arguments):
    done = headrace("queues", *arguments, HEADRACE_URL=node.url)
    assert done.returncode == 0, done.stderr
    return done.stdout


def asked(node, answer, *arguments):
    """As a person at a terminal types it, whose answer that is."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "headrace", *arguments], stdin=theirs, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment(HEADRACE_URL=node.url),
        ) as process:  # fmt: skip
            os.write(ours, answer.encode() + b"\n")
            out, err = process.communicate(timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)
    return process.returncode, out, err


def payloads(messages):
    return [each["payload"] for each in messages]


def test_a_purge_leaves_nothing_to_any_group_over_a_crash(node):
    make(node, partitions=2, settings={"retention.ms": "1d"})
    jobs = Queue(node, "jobs")
    for key in "abcd":
        jobs.enqueue(payload=key, key=key)
    done, held = jobs.pull(max=2)
    assert jobs.settle("ack", done["message_id"]) == ["settled"]
    assert queues(node, "purge", "jobs") == "let go of 4 messages of jobs; depth now 0\n"
    assert jobs.settle("ack", held["message_id"], status=409) == ["settled before"]
    assert all(each["size_bytes"] == 0 for each in shown(node)["partitions"])
    node.kill()
    with closing(node.restarted()) as again:
        jobs = Queue(again, "jobs")
        assert jobs.pull() == jobs.pull(group="later") == jobs.peek()["messages"] == []
        assert shown(again)["depth"] == 0
        jobs.enqueue(payload="new")
        assert payloads(jobs.pull()) == payloads(jobs.pull(group="later")) == ["new"]


def test_what_is_settled_beside_a_purge_does_not_come_again(node):
    make(node, partitions=16, settings={"retention.ms": "1d"})
    jobs, settled, is_over = Queue(node, "jobs"), set(), threading.Event()

    def work():
        while not is_over.is_set():
            jobs.enqueue(messages=[{"payload": "x"} for _ in range(20)])
            ids = [each["message_id"] for each in jobs.pull(max=100)]
            assert settled.isdisjoint(each.rpartition(":")[0] for each in ids)
            if ids:
                asked = {"group": "g", "message_ids": ids}
                results = node.call("POST", f"{jobs.path}/ack", asked)[1]["results"]
                done = [each["message_id"] for each in results if each["result"] == "settled"]
                settled.update(each.rpartition(":")[0] for each in done)

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)
        wait_for(lambda: settled or working.done())
        for _ in range(10):
            jobs.call(200, "purge", {})
        is_over.set()
        working.result(timeout=60)


def test_a_full_queue_that_nobody_reads_takes_messages_again(node):
    make(node, settings={"depth.max.messages": 2, "depth.max.bytes": "4KiB"})
    jobs = Queue(node, "jobs")
    for _ in range(2):
        jobs.enqueue(payload="x" * 1_500)
    jobs.enqueue(status=429, payload="x")
    assert json.loads(queues(node, "purge", "jobs", "--json"))["purged"] == 2
    for _ in range(2):
        jobs.enqueue(payload="x" * 1_500)
    jobs.enqueue(status=429, payload="x")


def test_the_purge_of_a_group_is_that_of_no_other(node):
    make(node)
    jobs = Queue(node, "jobs")
    jobs.enqueue(payload="one")
    jobs.pull(group="a")
    told = queues(node, "purge", "jobs", "--group", "a")
    assert told == "the group a of jobs is owed nothing of what was there\n"
    assert jobs.pull(group="a") == []
    assert payloads(jobs.pull(group="b")) == ["one"]
    assert jobs.refused("purge", 404, group="none") == "queue 'jobs' has no group 'none'"


def test_letters_that_were_purged_or_acknowledged_do_not_come_back(node):
    make(node)
    jobs, letters = Queue(node, "jobs"), Queue(node, "jobs.dlq")
    redrive = partial(queues, node, "redrive", "jobs", "--mqtt", f"127.0.0.1:{node.mqtt}")

    def die(*said):
        for each in said:
            jobs.enqueue(payload=each)
        ids = [each["message_id"] for each in jobs.pull(max=len(said))]
        jobs.settle("reject", *ids)
        wait_for(lambda: node.call("GET", f"{QUEUES}/jobs.dlq")[1].get("depth") == len(said))

    die("one")
    queues(node, "purge", "jobs.dlq")
    assert redrive() == "no dead letters: jobs.dlq has nothing to send back\n"
    die("spam", "ham")
    spam, ham = letters.pull(group="redrive", max=2)
    assert letters.settle("ack", spam["message_id"], group="redrive") == ["settled"]
    assert letters.settle("nack", ham["message_id"], group="redrive", delay="0s") == ["settled"]
    assert redrive() == "1 message of jobs.dlq is in jobs again; 0 left\n"
    assert payloads(jobs.pull(max=2)) == ["ham"]


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        (["purge", "jobs"], "let go of all messages of jobs, for every group?"),
        (["purge", "jobs", "--group", "g"], "settle all that the group g of jobs is owed?"),
        (["seek", "jobs", "--offset", "latest"], "every group of jobs is owed before latest?"),
        (["seek", "jobs", "--group", "g", "--time", "2099-01-01T00:00:00Z"], "before 2099-01-01"),
        (["delete", "jobs"], "delete jobs and all its messages?"),
    ],
)
def test_a_person_is_asked_and_nothing_is_done_without_a_yes(shared, arguments, question):
    name = f"asked-{'-'.join(arguments[:1] + arguments[2:3]).replace('--', '')}"
    make(shared, name)
    arguments = [name if each == "jobs" else each for each in arguments]
    jobs = Queue(shared, name)
    jobs.enqueue(payload="one")
    jobs.settle("nack", jobs.pull()[0]["message_id"], delay="1h")
    code, out, err = asked(shared, "n", "queues", *arguments)
    assert (code, out) == (1, "")
    assert question.replace("jobs", name) in err
    assert err.endswith("headrace: nothing was done\n")
    assert shown(shared, name)["depth"] == 1
    code, out, err = asked(shared, "y", "queues", *arguments)
    assert code == 0, err
    assert shared.call("GET", f"{QUEUES}/{name}")[1].get("depth", 0) == 0


def test_nobody_is_asked_about_what_is_not_there_or_loses_nothing(shared):
    code, _, err = asked(shared, "y", "queues", "delete", "nope")
    assert (code, err.splitlines()[0].partition(";")[0]) == (
        1,
        "headrace: no queue is named 'nope'",
    )
    make(shared, "replayed")
    code, out, _ = asked(shared, "n", "queues", "seek", "replayed", "--offset", "earliest")
    assert (code, out) == (0, "replayed has no groups; nothing was done\n")


def test_a_queue_is_not_deleted_as_a_stream(shared):
    make(shared, "owed")
    done = headrace("streams", "delete", "owed", "--yes", HEADRACE_URL=shared.url)
    assert done.returncode == 2
    assert "'owed' is a queue; delete it by headrace queues delete owed" in done.stderr
    assert shown(shared, "owed")["kind"] == "queue"
    rows = headrace("streams", "list", HEADRACE_URL=shared.url).stdout.splitlines()
    kinds = {row.split()[0]: row.split()[-1] for row in rows if len(row.split()) > 3}
    assert (kinds["owed"], kinds["gpu-telemetry"]) == ("queue", "stream")
    assert headrace("queues", "delete", "owed", HEADRACE_URL=shared.url).returncode == 0
