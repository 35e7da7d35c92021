"""Requests that name very much: whatever they ask, others have turns in between."""

import asyncio

import pytest

from headrace import limits
from headrace.kernel.catalog import Change
from headrace.native import build_batch
from headrace.node.kafka.door import HANDLERS, KafkaDoor, KafkaSettings
from headrace.node.kafka.pace import Turns, begin, turns
from headrace.wire.kafka import admin, apis, groups, members
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.frames import Request, decode_response, encode_request
from nodes import Client, running, settle

ONE = build_batch([(None, b"x", [], 1)])
NAMES = [f"t{number}" for number in range(300)]


ASKED = {
    apis.PRODUCE: lambda name: m.ProduceTopic(
        name=name, partitions=[m.ProducePartition(index=0, records=b"")]
    ),
    apis.FETCH: lambda name: m.FetchTopic(
        topic=name,
        partitions=[m.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)],
    ),
    apis.LIST_OFFSETS: lambda name: m.ListOffsetsTopic(name=name, partitions=[]),
    apis.METADATA: lambda name: m.MetadataRequestTopic(name=name),
    apis.OFFSET_COMMIT: lambda name: groups.OffsetCommitTopic(name=name, partitions=[]),
    apis.OFFSET_FETCH: lambda name: groups.OffsetFetchTopic(name=name, partition_indexes=[0]),
    apis.OFFSET_DELETE: lambda name: members.OffsetDeleteTopic(name=name, partitions=[]),
    apis.OFFSET_FOR_LEADER_EPOCH: lambda name: m.EpochTopic(topic=name, partitions=[]),
    apis.DESCRIBE_GROUPS: lambda name: name,
    apis.DELETE_GROUPS: lambda name: name,
    apis.CREATE_TOPICS: lambda name: admin.CreateTopic(
        name=name, num_partitions=-5, replication_factor=1, assignments=[], configs=[]
    ),
    apis.CREATE_PARTITIONS: lambda name: admin.CreatePartitionsTopic(name=name, count=1),
    apis.DELETE_TOPICS: lambda name: name,
    apis.DELETE_RECORDS: lambda name: admin.DeleteRecordsTopic(name=name, partitions=[]),
    apis.DESCRIBE_CONFIGS: lambda name: admin.DescribeConfigsResource(
        resource_type=2, resource_name=name, configuration_keys=None
    ),
    apis.ALTER_CONFIGS: lambda name: admin.AlterConfigsResource(
        resource_type=2, resource_name=name, configs=[]
    ),
    apis.INCREMENTAL_ALTER_CONFIGS: lambda name: admin.IncrementalResource(
        resource_type=2, resource_name=name, configs=[]
    ),
}
FIELDS = ("topics", "groups", "groups_names", "topic_names", "resources")
MORE = {
    apis.PRODUCE: {"acks": 1, "timeout_ms": 0},
    apis.FETCH: {"max_wait_ms": 0, "min_bytes": 0},
    apis.METADATA: {"allow_auto_topic_creation": False},
    apis.OFFSET_COMMIT: {"group_id": "g"},
    apis.OFFSET_FETCH: {"group_id": "g"},
    apis.OFFSET_DELETE: {"group_id": "g"},
    apis.CREATE_TOPICS: {"timeout_ms": 0},
    apis.CREATE_PARTITIONS: {"timeout_ms": 0},
    apis.DELETE_TOPICS: {"timeout_ms": 0},
    apis.DELETE_RECORDS: {"timeout_ms": 0},
}
WHOLE = {
    apis.SYNC_GROUP, apis.LEAVE_GROUP,  # one event of the machine, of bounded length
    apis.JOIN_GROUP, apis.CREATE_ACLS, apis.DELETE_ACLS,  # name little, or are malformed
    apis.DESCRIBE_LOG_DIRS,
}  # fmt: skip


@pytest.mark.parametrize("api", ASKED, ids=lambda api: api.name)
async def test_others_have_turns_while_a_request_that_names_much_is_answered(
    memory_folder, monkeypatch, api
):
    monkeypatch.setattr(limits, "KAFKA_TURN_SECONDS", 0)
    field = next(field for field in FIELDS if field in api.request.__dataclass_fields__)
    body = api.request(**{field: [ASKED[api](name) for name in NAMES]}, **MORE.get(api, {}))
    async with running(memory_folder) as (node, _):
        door = KafkaDoor(node._broker, KafkaSettings(), node.gate)
        connection = door(Client())
        await begin()
        before = turns().given
        answer = await HANDLERS[api.key](door, connection, Request(api, api.last, 1, "c", body))
        connection.closed()
    lists = [getattr(answer, name) for name in answer.__dataclass_fields__]
    assert max(len(each) for each in lists if isinstance(each, list)) == len(NAMES)
    assert turns().given - before >= len(NAMES)


@pytest.mark.parametrize("again", [False, True])
async def test_a_stream_that_goes_while_a_commit_has_its_turns_leaves_no_offset(
    memory_folder, monkeypatch, again
):
    monkeypatch.setattr(limits, "KAFKA_TURN_SECONDS", 0)
    part = groups.OffsetCommitPartition(
        partition_index=0, committed_offset=5, committed_metadata=""
    )
    topics = [
        groups.OffsetCommitTopic(name=name, partitions=[part]) for name in ("gone", "kept", *NAMES)
    ]
    body = groups.OffsetCommitRequest(group_id="g", topics=topics)
    request = Request(apis.OFFSET_COMMIT, apis.OFFSET_COMMIT.last, 1, "c", body)
    async with running(memory_folder, kept=Change(), gone=Change()) as (node, _):
        door = await KafkaDoor.open(node._broker, KafkaSettings(), node.gate)
        connection = door(Client())
        await begin()
        turn = asyncio.Event()
        monkeypatch.setattr(Turns, "next", lambda _: turn.wait())  # it is long in coming
        committing = asyncio.create_task(HANDLERS[request.api.key](door, connection, request))
        await settle()
        await node._broker.delete_stream("gone")
        if again:
            await node._broker.create_stream("gone")
        turn.set()
        answer = await committing
        connection.closed()
        assert [each.partitions[0].error_code for each in answer.topics[:3]] == [3, 0, 3]
        assert [place.stream for place in door.coordinator.groups.offsets("g")] == ["kept"]


async def test_a_short_request_waits_for_no_turn_though_the_end_of_a_long_one_begins_it(
    memory_folder, monkeypatch
):
    monkeypatch.setattr(limits, "KAFKA_TURN_SECONDS", 0)
    topics = [m.MetadataRequestTopic(name=name) for name in NAMES[:3]]
    short = m.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    async with running(memory_folder) as (node, _):
        client = Client()
        connection = KafkaDoor(node._broker, KafkaSettings(), node.gate)(client)
        await begin()  # as where the answer to a long one made room for what waits
        before = turns().given
        connection.received(encode_request(apis.METADATA, apis.METADATA.last, 1, "c", short))
        await client.answered.wait()
        connection.closed()
    assert turns().given == before


def test_every_request_with_an_array_is_among_them():
    def has_array(api):
        return any(str(hint).startswith("list") for hint in api.request.__annotations__.values())

    assert {api for api in apis.APIS.values() if has_array(api)} <= ASKED.keys() | WHOLE


async def test_an_iteration_of_the_loop_has_one_turn_however_many_wait():
    iteration, begun = 0, []

    async def one():
        for _ in range(3):
            await turns().next()
            begun.append(iteration)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one()) for _ in range(20)]
        leaves = group.create_task(turns().next())
        await asyncio.sleep(0)
        leaves.cancel()
        while not all(task.done() for task in tasks):
            iteration += 1
            await asyncio.sleep(0)
    assert len(begun) == len(set(begun)) == 60


async def test_a_fetch_of_many_partitions_that_waits_looks_at_them_in_its_turn(memory_folder):
    parts = [
        m.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in range(limits.KAFKA_ELEMENTS_FEW + 1)
    ]
    topics = [m.FetchTopic(topic="wide", partitions=parts)]
    body = m.FetchRequest(
        max_wait_ms=30_000, min_bytes=2 * len(ONE) + 1, max_bytes=1 << 20, topics=topics
    )
    async with running(memory_folder, wide=Change(partitions=len(parts))) as (node, _):
        door = KafkaDoor(node._broker, KafkaSettings(), node.gate)
        client = Client()
        connection = door(client)
        connection.received(encode_request(apis.FETCH, apis.FETCH.last, 1, "c", body))
        given = []
        for index in range(3):
            await settle()
            assert client.sent == []
            given.append(turns().given)
            await node._broker.partition("wide", index).append(ONE, 1)
        await client.answered.wait()
        connection.closed()
    answer = decode_response(apis.FETCH, apis.FETCH.last, 1, client.sent[0][4:])
    assert sum(bool(each.records) for each in answer.topics[0].partitions) == 3
    assert given[0] < given[1] < given[2] < turns().given
