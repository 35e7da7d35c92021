"""`headrace groups` and `/api/v1/groups` on a real node."""

import json
from contextlib import closing
from datetime import UTC, datetime
from urllib.parse import quote

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from conftest import RunningNode, headrace, wait_for
from headrace.kernel.groups.reset import Aim, Target, landing
from test_kafka_members import AT_ONCE

pytestmark = pytest.mark.slow

FIRST_MS = 1_700_000_000_000
RECORDS = 10


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    node = RunningNode(tmp_path_factory.mktemp("groups") / "data", **AT_ONCE)
    node.create_stream("s", partitions=2)
    producer = Producer({"bootstrap.servers": node.servers})
    for number in range(RECORDS):
        producer.produce("s", b"x", partition=0, timestamp=FIRST_MS + number * 1000)
    assert producer.flush(60) == 0
    yield node
    node.close()


@pytest.fixture
def group(request):
    return request.node.name


@pytest.fixture
def command(node):
    def run(*args, code=0):
        done = headrace("groups", *args, HEADRACE_URL=node.url)
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    return run


def commit(node, group, offset=4, stream="s"):
    with closing(Consumer({"bootstrap.servers": node.servers, "group.id": group})) as consumer:
        consumer.commit(offsets=[TopicPartition(stream, 0, offset)], asynchronous=False)


def committed(node, group):
    _, told = node.call("GET", f"/api/v1/groups/{group}")
    return [each["committed"] for each in told["partitions"]]


def test_groups_are_listed_and_described(node, command, group):
    commit(node, group)
    commit(node, f"{group}-2", 10)
    listed = json.loads(command("list", "--json"))
    assert listed["complete"]
    assert {
        "group": group, "state": "Empty", "members": 0, "partitions": 1, "lag": 6
    } in listed["groups"]  # fmt: skip
    assert json.loads(command("list", "--limit", "1", "--json"))["complete"] is False
    told = json.loads(command("describe", group, "--json"))
    assert told == {
        "group": group,
        "state": "Empty",
        "generation": 0,
        "protocol": "",
        "members": [],
        "partitions": [
            {"stream": "s", "partition": 0, "committed": 4, "end": 10, "lag": 6, "member": None}
        ],
    }
    assert f"group {group}: Empty" in command("describe", group)
    assert group in command("list")
    labels = f'{{group="{group}",partition="0",stream="s"}}'
    assert node.metrics()[f"headrace_kafka_group_lag_records{labels}"] == 6


def test_a_name_commands_neither_the_terminal_nor_the_table(node, command):
    name = "[/red] \x1b[2J\n\tb"
    commit(node, name)
    assert r"[/red] \x1b[2J\n\tb" in command("list")
    assert command("describe", name).startswith(r"group [/red] \x1b[2J\n\tb: Empty")
    assert name in {each["group"] for each in json.loads(command("list", "--json"))["groups"]}
    node.call("DELETE", f"/api/v1/groups/{quote(name, safe='')}")


def test_pages_of_groups_hold_each_of_them_once(node, group):
    names = [f"{group}-{n}" for n in range(5)]
    for name in names:
        commit(node, name)
    found, start = [], ""
    while start is not None:
        _, page = node.call("GET", f"/api/v1/groups?limit=2&start={quote(start)}")
        assert len(page["groups"]) <= 2
        found += [each["group"] for each in page["groups"]]
        start = page["next"]
    assert found == sorted(set(found))
    assert set(names) <= set(found)


RESETS = {
    "to-earliest": (["--to-earliest"], [0, 0]),
    "to-latest": (["--to-latest"], [10, 0]),
    "to-offset": (["--to-offset", "3"], [3, 0]),
    "to zero": (["--to-offset", "0"], [0, 0]),
    "nowhere": (["--shift-by", "0"], [4, None]),
    "beyond the end": (["--to-offset", "99"], [10, 0]),
    "before the start": (["--to-offset", "-5"], [0, 0]),
    "to-timestamp": (["--to-timestamp", str(FIRST_MS + 2500)], [3, 0]),
    "to-timestamp as text": (
        ["--to-timestamp", datetime.fromtimestamp(FIRST_MS / 1000 + 7, UTC).isoformat()],
        [7, 0],
    ),
    "after all": (["--by-duration", "1h"], [10, 0]),
    "all of them": (["--by-duration", "36500d"], [0, 0]),
    "forward": (["--shift-by", "2"], [6, None]),
    "back": (["--shift-by", "-100"], [0, None]),
}


@pytest.mark.parametrize("name", RESETS)
def test_a_group_is_sent_elsewhere(node, command, name):
    options, landed = RESETS[name]
    group = name.replace(" ", "-")
    commit(node, group)
    shown = json.loads(command("reset", group, *options, "--json"))
    assert shown["executed"] is False
    assert committed(node, group) == [4], "it was only shown"
    done = json.loads(command("reset", group, *options, "--execute", "--json"))
    assert done["executed"] is True
    assert done["partitions"] == shown["partitions"]
    assert committed(node, group) == [each for each in landed if each is not None]


def test_a_reset_makes_a_group_where_a_stream_is_named(node, command, group):
    assert "committed   to" in command("reset", group, "--to-latest", "--stream", "s", "--execute")
    assert committed(node, group) == [10, 0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "give one of --to-earliest"),
        (["--to-earliest", "--to-latest"], "give one of --to-earliest"),
        (["--to-timestamp", "yesterday"], "--to-timestamp takes"),
        (["--to-timestamp", "2026-01-01T00:00:00"], "--to-timestamp takes"),
        (["--by-duration", "soon"], "--by-duration"),
        (["--by-duration", f"{10**20}d"], "--by-duration"),
        (["--to-timestamp", "9" * 30], "--to-timestamp takes"),
        (["--to-timestamp", "9" * 5000], "--to-timestamp takes"),
        (["--to-offset", str(2**63)], "--to-offset"),
        (["--shift-by", str(-(2**63))], "--shift-by"),
    ],
)
def test_a_reset_that_says_too_little_is_wrong_use(command, group, options, said):
    told = command("reset", group, *options, code=2)
    assert said in told
    assert told.count("\n") <= 3


def test_what_is_not_there_is_told_in_one_line(command, group):
    assert f"no consumer group is named '{group}'" in command("describe", group, code=1)
    assert f"no consumer group is named '{group}'" in command("delete", group, code=1)
    assert "the name is empty" in command("describe", "", code=2)
    assert "has committed nothing yet; name a stream" in command(
        "reset", group, "--to-latest", code=1
    )
    told = command("reset", group, "--to-latest", "--stream", "none", "--execute", code=1)
    assert "no stream is named 'none'" in told
    told = command("reset", "x" * 256, "--to-latest", "--stream", "s", "--execute", code=1)
    assert "1 to 255 bytes" in told


def test_a_group_with_members_is_left_alone(node, command, group):
    consumer = Consumer(
        {"bootstrap.servers": node.servers, "group.id": group, "group.instance.id": "i"}
    )
    consumer.subscribe(["s"])
    wait_for(lambda: consumer.poll(0.1) or len(consumer.assignment()) == 2)
    try:
        told = json.loads(command("describe", group, "--json"))
        assert (told["state"], told["protocol"]) == ("Stable", "range")
        (member,) = told["members"]
        assert (member["instance"], member["client"]) == ("i", "rdkafka")
        assert [each["member"] for each in told["partitions"]] == [member["member"]] * 2
        assert [each["committed"] for each in told["partitions"]] == [None, None]
        assert member["member"] in command("describe", group)
        shown = command("reset", group, "--to-earliest", "--stream", "s")
        assert "committed   to" in shown
        options = ["--to-earliest", "--stream", "s", "--execute"]
        assert "has members; stop its consumers" in command("reset", group, *options, code=1)
        assert "has members; stop its consumers" in command("delete", group, code=1)
        assert node.call("DELETE", f"/api/v1/groups/{group}")[0] == 409
    finally:
        consumer.close()


def test_a_group_is_deleted(node, command, group):
    commit(node, group)
    assert command("delete", group) == f"deleted {group}\n"
    assert node.call("GET", f"/api/v1/groups/{group}")[0] == 404
    commit(node, group)
    assert json.loads(command("delete", group, "--json")) == {"deleted": group}


@pytest.mark.parametrize(
    "body", [{}, {"to": "nowhere"}, {"to": "offset", "value": 2**63}, {"to": "latest", "x": 1}]
)
def test_a_body_that_is_no_reset_is_a_bad_request(node, group, body):
    assert node.call("POST", f"/api/v1/groups/{group}/reset", body)[0] == 400


@pytest.mark.parametrize(
    ("target", "committed", "found", "landed"),
    [
        (Target(Aim.EARLIEST), 7, None, 5),
        (Target(Aim.LATEST), None, None, 9),
        (Target(Aim.OFFSET, 2), None, None, 5),
        (Target(Aim.OFFSET, 8), None, None, 8),
        (Target(Aim.TIMESTAMP, 1), None, 6, 6),
        (Target(Aim.TIMESTAMP, 1), None, None, 9),
        (Target(Aim.SHIFT, 1), 7, None, 8),
        (Target(Aim.SHIFT, 9), 7, None, 9),
        (Target(Aim.SHIFT, 1), None, None, None),
        (Target(Aim.SHIFT, 1), 1, None, 5),
    ],
)
def test_where_a_target_lands(target, committed, found, landed):
    assert landing(target, committed=committed, start=5, end=9, found=found) == landed
