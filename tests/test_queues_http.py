"""Queues over HTTP of a real node: enqueued, pulled, settled and looked at, without MQTT."""

import base64
import json
import re
import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import headrace, wait_for
from pahoclient import Client, drop
from test_access import ADMIN, basic, put_users
from test_queues import group, make, shown

pytestmark = pytest.mark.slow


class Queue:
    """A queue, as HTTP has it."""

    def __init__(self, node, name):
        self.node, self.name = node, name
        self.path = f"/api/v1/queues/{name}"

    def enqueue(self, status=200, **body):
        return self.call(status, "messages", body)

    def pull(self, status=200, group="g", **body):
        return self.call(status, "pull", {"group": group, **body}).get("messages")

    def settle(self, verb, *ids, status=200, **body):
        asked = {"group": "g", "message_ids": list(ids), **body}
        answer = self.call(status, verb, asked)
        return [each["result"] for each in answer.get("results", [])]

    def refused(self, what, status=400, **body):
        return self.call(status, what, body)["detail"]

    def peek(self, query=""):
        status, answer = self.node.call("GET", f"{self.path}/messages?{query}")
        assert status == 200, answer
        return answer

    def call(self, status, what, body):
        got, answer = self.node.call("POST", f"{self.path}/{what}", body)
        assert got == status, answer
        return answer


@pytest.fixture
def jobs(shared, request):
    """A queue of the test's own."""
    name = re.sub(r"\W+", "-", request.node.name)
    make(shared, name, settings={"retry.backoff.ms": "1ms", "retry.backoff.jitter": "0"})
    return Queue(shared, name)


def ids(messages):
    return [each["message_id"] for each in messages]


def test_a_message_is_enqueued_pulled_and_settled(jobs):
    properties = {"b": "1", "dedup-id": "x"}
    one = {"payload": "one", "topic": "eu/3", "properties": properties, "key": "k"}
    assert jobs.enqueue(**one) == {"enqueued": 1}
    assert jobs.enqueue(**one) == {"enqueued": 1}, "it is stored once"
    many = [{"payload_base64": base64.b64encode(b"\xff\0").decode()}, {"payload": ""}]
    assert jobs.enqueue(messages=many * 50) == {"enqueued": 100}
    first, second = jobs.pull(max=2)
    assert (first["message_id"], second["message_id"]) == ("0:0:1", "0:1:1")
    topic = f"$queue/{jobs.name}/eu/3"
    assert first.pop("first_enqueued") > 1_700_000_000_000
    assert first == {
        "message_id": "0:0:1",
        "group": "g",
        "attempt": 1,
        "queue": jobs.name,
        "partition": 0,
        "offset": 0,
        "topic": topic,
        "source_topic": topic,
        "properties": {"b": "1", "dedup-id": "x", "partition-key": "k"},
        "content_type": None,
        "response_topic": None,
        "correlation_data": None,
        "payload": "one",
    }
    assert base64.b64decode(second["payload_base64"]) == b"\xff\0"
    assert jobs.settle("ack", *ids([first, second])) == ["settled", "settled"]
    assert jobs.settle("ack", "0:0:1", status=409) == ["settled before"]
    rest = jobs.pull(max=1000)
    assert len(rest) == 99
    assert jobs.settle("ack", *ids(rest)) == ["settled"] * 99
    assert shown(jobs.node, jobs.name)["depth"] == 0
    assert jobs.pull() == []


def test_a_filter_says_which_group_of_a_name_is_meant(jobs):
    jobs.enqueue(payload="1", topic="eu")
    (of_all,), (filtered,) = jobs.pull(), jobs.pull(filter="eu")
    assert ("filter" in of_all, filtered["filter"]) == (False, "eu")
    (id_,) = {of_all["message_id"], filtered["message_id"]}
    assert "say which: filter" in jobs.refused("ack", group="g", message_ids=[id_])
    none = jobs.refused("ack", 404, group="g", filter="us", message_ids=[id_])
    assert "of filter" in none
    assert jobs.settle("ack", id_, filter="eu") == ["settled"]
    assert jobs.settle("extend", id_, delay="1h") == ["settled"], "the other one alone has it"
    assert "delay is a time" in jobs.refused(
        "extend", group="g", message_ids=[id_], delay="106751991167d"
    )
    assert "is no PARTITION" in jobs.refused("ack", group="g", message_ids=["00:00:01"])
    assert jobs.settle("ack", id_, filter="#") == ["settled"]


def test_what_publishes_elsewhere_enqueues_too(jobs):
    def publish(topic, **more):
        return jobs.node.call("POST", "/api/v1/publish", {"topic": topic, "payload": "p", **more})

    assert publish(f"$queue/{jobs.name}/a") == (200, {"stored": 1})
    status, answer = publish("$queue/nobody")
    assert (status, answer["error"]) == (404, "unknown_stream")
    status, answer = publish(f"$queue/{jobs.name}/$ack")
    assert (status, answer["error"]) == (400, "invalid_topic")
    assert f"POST /api/v1/queues/{jobs.name}/ack" in answer["detail"]
    status, answer = publish(f"$queue/{jobs.name}", properties={"delay": "soon"})
    assert (status, answer["error"]) == (400, "invalid_topic")
    client = Client(jobs.node, will=(f"$queue/{jobs.name}/gone", b"bye", 1))
    drop(client.paho)
    assert [each["payload"] for each in jobs.pull(max=1)] == ["p"]
    (bye,) = jobs.pull(wait="30s")
    assert (bye["payload"], bye["topic"]) == ("bye", f"$queue/{jobs.name}/gone")


def test_pullers_and_consumers_share_the_work_of_a_group(jobs):
    jobs.enqueue(messages=[{"payload": str(number)} for number in range(4)])
    first, second = jobs.pull(max=1), jobs.pull(max=1)
    with Client(jobs.node) as worker:
        worker.subscribe(f"$queue/{jobs.name}", 1, ("consumer-group", "g"))
        got = [worker.receive().payload.decode() for _ in range(2)]
        told = [each["payload"] for each in first + second]
        assert sorted(got + told) == ["0", "1", "2", "3"]
        assert jobs.pull() == []
        assert [each["payload"] for each in jobs.pull(group="h")] == ["0", "1", "2", "3"]
    assert jobs.pull(group="filtered", filter="none/+") == []


def test_a_pull_that_waits_is_answered_by_the_first_message(jobs):
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(jobs.pull, wait="60s")
        wait_for(lambda: shown(jobs.node, jobs.name)["groups"])
        jobs.enqueue(payload="one")
        assert ids(waiting.result(30)) == ["0:0:1"]
    assert jobs.pull(wait="1ms") == []


def test_what_is_not_settled_comes_again_as_another_attempt(jobs):
    jobs.enqueue(messages=[{"payload": "late"}, {"payload": "nacked"}, {"payload": "bad"}])
    late, nacked, bad = ids(jobs.pull(deadline="100ms"))
    assert jobs.settle("extend", nacked, bad, delay="1m") == ["settled", "settled"]
    (again,) = jobs.pull(wait="30s")
    assert (again["message_id"], again["attempt"], again["payload"]) == ("0:0:2", 2, "late")
    results = jobs.settle("ack", late, "0:7:1", again["message_id"], status=409)
    assert results == ["too late", "no delivery", "settled"]
    assert jobs.settle("nack", nacked, delay="1ms", reason="no") == ["settled"]
    assert ids(jobs.pull(wait="30s")) == ["0:1:2"]
    reason = "no\njobs\ufdd0\U0001ffff\u0085"
    assert jobs.settle("reject", bad, reason=reason) == ["settled"]
    letters = Queue(jobs.node, f"{jobs.name}.dlq")
    wait_for(lambda: jobs.node.call("GET", letters.path)[0] == 200)
    (letter,) = letters.pull(wait="30s")
    assert letter["payload"] == "bad"
    assert letter["properties"]["reason-detail"] == "no jobs   "


def test_who_hangs_up_before_the_answer_gives_back_what_it_was_to_get(jobs):
    """One that waits, and one whose answer is more than anybody can have under way."""
    gone = begin(jobs, wait="60s")
    wait_for(lambda: shown(jobs.node, jobs.name)["groups"])
    gone.close()
    large = base64.b64encode(bytes(900_000)).decode()  # as text in JSON six times as much
    for _ in range(2):
        jobs.enqueue(payload_base64=large)
    gone = begin(jobs)
    wait_for(lambda: group(jobs.node, "g", jobs.name)["in_flight"] == 2)
    gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone.close()
    attempts = [each["attempt"] for each in jobs.pull(wait="30s", deadline="1h")]
    assert len(attempts) == 2
    assert min(attempts) > 1
    assert group(jobs.node, "g", jobs.name)["failed"] == 0


def begin(jobs, **body):
    """A pull of somebody who does not read the answer."""
    content = json.dumps({"group": "g", **body})
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", jobs.node.http))
    head = f"POST {jobs.path}/pull HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    client.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n{content}".encode())
    return client


def test_what_is_said_of_a_message_is_said_once(jobs):
    twice = {"payload": "", "key": "a", "properties": {"partition-key": "b"}}
    assert "key stands among the properties, too" in jobs.refused("messages", **twice)
    twice = {"payload": "", "delay": "1s", "deliver_at": 5}
    assert "contradict each other" in jobs.refused("messages", **twice)
    twice["properties"] = {"deliver-at": "5"}
    del twice["delay"]
    assert "deliver_at stands among" in jobs.refused("messages", messages=[twice])


def test_what_cannot_be_done_is_said_in_one_line(jobs):
    assert "group" in jobs.refused("pull")
    assert "from 1 to 1,024 bytes" in jobs.refused("pull", group="")
    assert "filter: " in jobs.refused("pull", group="g", filter="#/a")
    assert "max" in jobs.refused("pull", group="g", max=0)
    assert "wait" in jobs.refused("pull", group="g", wait="2m")
    assert "wait" in jobs.refused("pull", group="g", wait=5)
    assert "no group 'h'" in jobs.refused("ack", 404, group="h", message_ids=["0:0:1"])
    assert jobs.pull() == []
    id_ = 'message id "1" is no PARTITION:OFFSET:ATTEMPT'
    assert jobs.refused("ack", group="g", message_ids=["1"]) == id_
    assert "message_ids" in jobs.refused("ack", group="g", message_ids=[])
    assert "delay is a time" in jobs.refused("nack", group="g", message_ids=["0:0:1"], delay="x")
    assert "give one of payload" in jobs.refused("messages")
    assert "messages alone" in jobs.refused("messages", payload="", messages=[{"payload": ""}])
    many = [{"payload": "kept"}, {"payload": "", "delay": "soon"}]
    assert jobs.refused("messages", messages=many).startswith("messages[1]: ")
    many = [{"payload": "kept"}, {"payload_base64": "é"}]
    assert jobs.refused("messages", messages=many).startswith("messages[1]: payload_base64: ")
    many = [{"payload": "kept"}, {"payload": 1}]
    assert jobs.refused("messages", messages=many).startswith("messages[1].payload: ")
    for body, why in (
        ({"offset": 1}, "offset: input should be a valid array; got 1"),
        ({"offset": [1]}, "offset[0]: input should be a valid string; got 1"),
        ({"offset": "x"}, "an offset is earliest, latest, or PARTITION:OFFSET as in 0:1542; got"),
        ({"offset": "7:0"}, "there is no partition 7; there are 0 to 0"),
        ({"time": "soon"}, "a time is RFC 3339"),
    ):
        assert why in jobs.refused("seek", **body)
    status, answer = jobs.node.call("GET", f"{jobs.path}/messages?form=1")
    assert (status, "did you mean 'from'?" in answer["detail"]) == (400, True), answer
    status, answer = jobs.node.call("PATCH", jobs.path, {"settings": {"paused": True}})
    assert (status, 'a switch is "on" or "off"' in answer["detail"]) == (400, True), answer
    assert f"/api/v1/queues/{jobs.name}/ack" in jobs.refused("messages", payload="", topic="$ack")
    assert "no priorities" in jobs.refused("messages", payload="", priority=9)
    bounds = {"depth.max.messages": 3, "priorities": "on"}
    assert jobs.node.call("PATCH", jobs.path, {"settings": bounds})[0] == 200
    many = [{"payload": "", "priority": priority} for priority in (0, 9, 5)]
    assert "owes as much as it may" in jobs.refused("messages", 429, messages=many)
    (urgent,) = jobs.pull(max=1)
    assert urgent["properties"] == {"priority": "9"}
    for text in ("é", "x", "eA"):
        assert "payload_base64: " in jobs.refused("messages", payload_base64=text)
    assert "no queue" in Queue(jobs.node, f"{jobs.name}%2Feu").refused("messages", 404, payload="")
    status, answer = jobs.node.call("DELETE", f"{jobs.path}?group=g")
    assert (status, f"DELETE {jobs.path}/groups/GROUP" in answer["detail"]) == (400, True)
    assert jobs.node.call("DELETE", f"{jobs.path}/groups/g?filter=x")[0] == 400
    nobody = Queue(jobs.node, "nobody")
    assert "nobody" in nobody.refused("pull", 404, group="g")
    assert "no queue" in nobody.refused("messages", 404, payload="")
    assert jobs.node.call("GET", f"{nobody.path}/messages")[0] == 404
    for consumers in ("single", "exclusive"):
        jobs.node.call("PATCH", jobs.path, {"settings": {"consumers": consumers}})
        assert "one connected consumer" in jobs.refused("pull", group="g")


def test_a_look_shows_what_each_message_is_to_a_group_and_changes_nothing(jobs):
    jobs.node.call("PATCH", jobs.path, {"settings": {"order": "key"}})
    said = [
        ("done", "a", {}),
        ("held", "b", {}),
        ("behind", "b", {}),
        ("later", "c", {"delay": "1h"}),
    ]
    jobs.enqueue(messages=[{"payload": payload, "key": key, **more} for payload, key, more in said])
    jobs.enqueue(payload_base64="/w==")
    before = jobs.peek()["messages"]
    assert [each["state"] for each in before] == [None] * 5
    with Client(jobs.node, client_id=f"worker-{jobs.name}") as worker:
        worker.subscribe(f"$queue/{jobs.name}", 1, ("consumer-group", "g"))
        for _ in range(3):
            worker.receive()
        assert jobs.settle("ack", "0:0:1") == ["settled"]
        found = jobs.peek("group=g")["messages"]
        assert [(each["key"], each["state"], each["attempts"]) for each in found] == [
            ("b", "in flight", 1),
            ("b", "waiting", 0),
            ("c", "resting", 0),
            (None, "in flight", 1),
        ]
        assert found[0]["client"] == f"worker-{jobs.name}"
        for each, ms in ((found[0], 30_000), (found[2], 3_600_000)):  # give or take two clocks
            assert each["until"] > each["first_enqueued"] + ms - 1_000
        again = jobs.peek("group=g")["messages"]
        for each in found + again:
            del each["until"]  # of two clocks, each to the millisecond
        assert again == found
        page = jobs.peek("group=g&settled=true&limit=2")
        assert [each["state"] for each in page["messages"]] == ["settled", "in flight"]
        assert page["next"] == {"partition": 0, "offset": 2}
        all_ = jobs.peek("group=g&filter=%23")["messages"]
        assert [each["state"] for each in all_][:1] == ["in flight"]
        rest = jobs.peek("group=g&partition=0&from=2")
        assert [each["offset"] for each in rest["messages"]] == [2, 3, 4]
        assert rest["next"] is None
        shown_ = headrace("queues", "peek", jobs.name, "--group", "g", HEADRACE_URL=jobs.node.url)
        assert shown_.returncode == 0, shown_.stderr
        rows = shown_.stdout.splitlines()
        assert any("in flight" in row and "held" in row and "worker" in row for row in rows)
        assert any("ff (hex)" in row for row in rows)
        told = headrace(
            "queues", "peek", jobs.name, "--limit", "1", "--from", "1", "--json",
            HEADRACE_URL=jobs.node.url,
        )  # fmt: skip
        assert [each["payload"] for each in json.loads(told.stdout)["messages"]] == ["held"]
    for query, status in [
        ("group=h", 404), ("partition=7", 400), ("limit=0", 400), ("from=-1", 400),
        ("filter=a", 400),
    ]:  # fmt: skip
        assert jobs.node.call("GET", f"{jobs.path}/messages?{query}")[0] == status, query


RULES = """
[[access.rules]]
deny = ["subscribe"]
topics = ["$queue/jobs/secret"]
users = ["eve"]
[[access.rules]]
allow = ["publish"]
topics = ["$queue/jobs/#"]
users = ["bob"]
[[access.rules]]
allow = ["subscribe"]
topics = ["$queue/jobs/#"]
users = ["carl", "eve"]
[[access.rules]]
allow = ["all"]
users = ["ann"]
"""


def test_rules_about_topics_decide(start_node, tmp_path):
    users = ("bob:cart", "carl:disc", "eve:fold")
    put_users(tmp_path / "data", {ADMIN: ["admin"], **{user: [] for user in users}})
    rules = tmp_path / "headrace.toml"
    rules.write_text(RULES)
    node = start_node("--config", str(rules))
    assert node.call("POST", "/api/v1/queues", {"name": "jobs"}, **basic(ADMIN))[0] == 201
    settling = {"group": "g", "message_ids": ["0:0:1"]}
    for method, what, body, statuses in [
        ("POST", "messages", {"payload": ""}, (200, 403, 403)),
        ("POST", "pull", {"group": "g", "max": 1}, (403, 200, 403)),
        ("POST", "pull", {"group": "g", "filter": "eu/+"}, (403, 200, 200)),
        ("GET", "messages", None, (403, 200, 403)),
        ("GET", "messages?group=g&filter=eu/%2B", None, (403, 200, 403)),
        ("POST", "ack", settling, (200, 403, 403)),
        ("POST", "seek", {"offset": "latest"}, (403, 403, 403)),
    ]:
        got = [
            node.call(method, f"/api/v1/queues/jobs/{what}", body, **basic(who))[0] for who in users
        ]
        assert tuple(got) == statuses, what
    assert node.call("POST", "/api/v1/queues/jobs/pull", {"group": "g"})[0] == 401
    assert node.stop() == 0


def test_a_node_that_stops_answers_who_waits(start_node):
    node = start_node()
    make(node)
    jobs = Queue(node, "jobs")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(jobs.pull, wait="60s")
        wait_for(lambda: shown(node)["groups"])
        assert node.stop() == 0
        assert waiting.result(30) == []
