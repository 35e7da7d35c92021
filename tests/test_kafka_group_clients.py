"""Groups of foreign clients under load: members come, go, and die, and nothing is skipped."""

import itertools
import random
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from conftest import environment, wait_for
from groupmember import STRATEGIES, Member
from headrace.wire.kafka import apis
from headrace.wire.kafka import members as m
from kafkaraw import RawConnection

pytestmark = [pytest.mark.clients, pytest.mark.slow]

PARTITIONS = 12
EVERY = [(library, name) for library, names in STRATEGIES.items() for name in names]
SECONDS = 180
"""librdkafka waits up to a minute for an answer that a kill has taken, on a busy machine longer."""


@pytest.fixture
def node(shared):
    return shared


@contextmanager
def load(node, stream):
    """Produces numbers all the time; what has been acknowledged of them."""
    producer = Producer(
        {"bootstrap.servers": node.servers, "linger.ms": 5, "message.timeout.ms": 120_000},
        logger=None,
    )
    acknowledged, stopping = [], threading.Event()

    def ended(error, message):
        assert error is None, error
        acknowledged.append(message.value())

    def produce():
        for number in itertools.count():
            if stopping.wait(0.002):
                return
            value = b"%d" % number
            producer.produce(stream, value, partition=number % PARTITIONS, on_delivery=ended)
            producer.poll(0)

    thread = threading.Thread(target=produce, daemon=True)
    thread.start()
    try:
        yield acknowledged
    finally:
        stopping.set()
        thread.join()
        assert producer.flush(120) == 0


def described(node, group):
    with RawConnection(node) as raw:
        body = m.DescribeGroupsRequest(groups=[group])
        return raw.call(apis.DESCRIBE_GROUPS, body).groups[0]


def reads(node, group, count):
    """Whether a group has come to rest with so many members, each of which reads something."""
    found = described(node, group)
    if found.group_state != ("Stable" if count else "Empty"):
        return False
    said = [each.member_assignment for each in found.members]
    shares = [
        [
            index
            for topic in m.consumers(m.ConsumerAssignment, each).assigned_partitions
            for index in topic.partitions
        ]
        for each in said
    ]
    return (
        len(shares) == count and all(shares) and sum(map(len, shares)) == PARTITIONS * bool(count)
    )


def come_and_go(node, name, start):
    """Has a group and a stream of this name 1, 3, 7, 3 and no members, and nothing is skipped.

    `start` gives members that stand in the group until their `stop()`, and their `values`.
    """
    node.create_stream(name, partitions=PARTITIONS)
    members, everybody = [], []

    def become(count):
        while len(members) > count:
            members.pop(0).stop()
        while len(members) < count:
            members.append(start())
            everybody.append(members[-1])
        wait_for(lambda: reads(node, name, count), SECONDS)

    with load(node, name) as acknowledged:
        for count in (1, 3, 7, 3):
            become(count)

    def missing():
        return set(acknowledged) - {value for each in everybody for value in each.values}

    wait_for(lambda: not missing(), SECONDS)
    become(0)
    assert len(acknowledged) > 0


@pytest.mark.shows("confluent-kafka", "groups")
@pytest.mark.shows("kafka-python", "groups")
@pytest.mark.shows("aiokafka", "groups")
# aiokafka forgets a connection here and there when a group gathers anew, and Python says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("library", "strategy"), EVERY)
def test_members_come_and_go_under_load(node, request, library, strategy):
    name = request.node.name.translate(str.maketrans("[]", "--"))
    come_and_go(node, name, lambda: Member(library, strategy, node.servers, name, name))


def test_a_static_member_between_others_takes_nothing_from_them(node):
    name = "between"
    node.create_stream(name, partitions=PARTITIONS)
    members = []
    for count, (library, instance) in enumerate(
        [("kafka-python", None), ("confluent-kafka", "static"), ("aiokafka", None)], 1
    ):
        members.append(Member(library, "range", node.servers, name, name, instance=instance))
        wait_for(lambda count=count: reads(node, name, count), SECONDS)
    for each in members:
        each.stop()


@pytest.mark.parametrize("library", STRATEGIES)
def test_static_members_come_back_without_a_rebalance(node, request, library):
    stream = group = request.node.name.translate(str.maketrans("[]", "--"))
    node.create_stream(stream, partitions=PARTITIONS)
    names = ["a", "b", "c"]

    def start(name):
        return Member(library, "range", node.servers, group, stream, instance=name)

    with load(node, stream) as acknowledged:
        members = {name: start(name) for name in names}
        wait_for(lambda: reads(node, group, 3), SECONDS)
        before = {each.group_instance_id: each for each in described(node, group).members}
        values = set()
        for name in names:
            members[name].stop()
            values |= set(members[name].values)
            members[name] = start(name)
            wait_for(lambda name=name: members[name].values, SECONDS)
        after = {each.group_instance_id: each for each in described(node, group).members}
        for name in names:
            assert after[name].member_id != before[name].member_id
            assert after[name].member_assignment == before[name].member_assignment
    wait_for(
        lambda: (
            set(acknowledged)
            <= values | {value for each in members.values() for value in each.values}
        ),
        SECONDS,
    )
    for each in members.values():
        each.stop()


class Processes:
    """Members in processes of their own, all in the group `g` of the stream `s`."""

    def __init__(self, folder):
        self.folder, self.all = folder, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process, _ in self.all:
            process.kill()
            process.wait(60)

    def start(self, node, library, strategy, *instance):
        file = self.folder / f"member-{len(self.all)}"
        program = Path(__file__).with_name("groupmember.py")
        command = [sys.executable, str(program), library, strategy, node.servers, "g", "s"]
        process = subprocess.Popen([*command, str(file), *instance], env=environment())
        self.all.append((process, file))
        return process

    def rest(self, node, count):
        """Waits until so many of them share the partitions, and says what is there if not."""
        try:
            wait_for(lambda: reads(node, "g", count), SECONDS)
        except AssertionError:
            ended = [process.poll() for process, _ in self.all]
            pytest.fail(f"{described(node, 'g')}; exit codes of members: {ended}")

    def values(self):
        """What any of them has read."""
        files = [file for _, file in self.all if file.exists()]
        return {value for file in files for value in file.read_bytes().split()}


def committed(node):
    """How far the group has come in each partition that it has committed in."""
    _, told = node.call("GET", "/api/v1/groups/g")
    places = {each["partition"]: each["committed"] for each in told["partitions"]}
    return {index: offset for index, offset in places.items() if offset is not None}


def test_members_and_the_node_are_killed_and_nothing_is_skipped(start_node, tmp_path):
    node = start_node()
    node.create_stream("s", partitions=PARTITIONS)
    with Processes(tmp_path) as members:
        with load(node, "s") as acknowledged:
            first = members.start(node, "confluent-kafka", "range", "static")
            second = members.start(node, "kafka-python", "range")
            members.start(node, "aiokafka", "range")
            members.rest(node, 3)
            first.kill()
            members.start(node, "confluent-kafka", "range", "static")
            second.kill()
            members.rest(node, 2)
            node.kill()
            node = start_node.again(node)
            members.start(node, "confluent-kafka", "range")
            members.rest(node, 3)
        wait_for(lambda: set(acknowledged) <= members.values(), SECONDS)


@pytest.mark.soak
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_members_and_the_node_are_killed_again_and_again(start_node, tmp_path, strategy):
    node = start_node()
    node.create_stream("s", partitions=PARTITIONS)
    chance = random.Random(strategy)
    with Processes(tmp_path) as members:
        with load(node, "s") as acknowledged:
            alive = [members.start(node, "confluent-kafka", strategy) for _ in range(4)]
            before = {}
            for _ in range(15):
                members.rest(node, 4)
                now = committed(node)
                assert all(now[index] >= offset for index, offset in before.items())
                before = now
                if chance.random() < 0.5:
                    node.kill()
                    node = start_node.again(node)
                else:
                    alive.pop(chance.randrange(4)).kill()
                    alive.append(members.start(node, "confluent-kafka", strategy))
        wait_for(lambda: set(acknowledged) <= members.values(), SECONDS)


def test_a_group_goes_on_without_a_stream_that_is_deleted_and_reads_a_new_one_of_its_name(
    start_node,
):
    """As with Apache Kafka: the broker forgets the offsets and tells nobody; a client that fetches
    or looks is told that there is no such topic, and its group shares out what is left."""
    node = start_node(HEADRACE_KAFKA__AUTO_CREATE_STREAMS="false")
    for stream in ("gone", "stays"):
        node.create_stream(stream, partitions=2)
        send(node, stream)
    told: list[KafkaError] = []
    members = [subscribed(node, ["gone", "stays"]) for _ in range(2)]

    def shared_out(*wanted):
        """Each partition of these streams is one member's, and each has been read and committed."""
        for member in members:
            message = member.poll(0.1)
            if message is not None and message.error():
                told.append(message.error())
            elif message is not None:
                member.commit(message)
        held = [(each.topic, each.partition) for member in members for each in member.assignment()]
        wanted = [(stream, partition) for stream in wanted for partition in (0, 1)]
        told_by_node = [
            (each["stream"], each["partition"]) for each in partitions() if each["lag"] == 0
        ]
        return sorted(held) == wanted == sorted(told_by_node)

    def partitions():
        return node.call("GET", "/api/v1/groups/g")[1]["partitions"]

    try:
        wait_for(lambda: shared_out("gone", "stays"), SECONDS)
        assert node.call("DELETE", "/api/v1/streams/gone")[0] == 200
        assert {each["stream"] for each in partitions()} == {"stays"}
        wait_for(lambda: shared_out("stays"), SECONDS)
        assert {error.code() for error in told} == {KafkaError.UNKNOWN_TOPIC_OR_PART}
        node.create_stream("gone", partitions=2)
        send(node, "gone")
        wait_for(lambda: shared_out("gone", "stays"), SECONDS)
    finally:
        for member in members:
            member.close()


def subscribed(node, streams):
    member = Consumer(
        {
            "bootstrap.servers": node.servers,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
        },
        logger=None,
    )
    member.subscribe(streams)
    return member


def send(node, stream):
    producer = Producer({"bootstrap.servers": node.servers}, logger=None)
    for partition in (0, 1):
        producer.produce(stream, b"v", partition=partition)
    assert producer.flush(SECONDS) == 0
