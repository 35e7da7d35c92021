"""headrace.Admin against a real node."""

import asyncio

import pytest

import headrace
from headrace import TopicPartition
from headrace.client import OffsetAndMetadata, RequestError, UnknownStreamError
from headrace.client.admin import Config, PartitionDescription
from headrace.client.cluster import Cluster
from headrace.client.config import AdminConfig
from headrace.client.errors import ConnectionLostError
from headrace.errors import ConfigError
from headrace.wire.kafka.errors import ErrorCode
from kafkaraw import RawConnection, batch

pytestmark = pytest.mark.slow

STAMP = 1_700_000_000_000


@pytest.fixture(scope="module")
def node(shared):
    return shared


@pytest.fixture
async def admin(node):
    async with headrace.Admin(node.servers) as admin:
        yield admin


def fill(node, stream, count, partition=0):
    with RawConnection(node) as raw:
        for n in range(count):
            made = batch(b"%d" % n, timestamp=STAMP + n * 1000)
            assert raw.produce(stream, made, partition).error_code == 0


async def refused(code, call):
    with pytest.raises(RequestError) as caught:
        await call
    assert caught.value.code is code
    return str(caught.value)


async def test_what_cannot_be_sent_is_told_by_name_and_leaves_the_client_whole(admin):
    wrong = [
        (admin.create_topic("unfit", partitions="3"), "num_partitions cannot be '3'", TypeError),
        (admin.create_topic("unfit", partitions=1 << 31), "_partitions cannot be 21", ValueError),
        (admin.create_topic("unfit", configs={"retention.ms": 5}), "value cannot be 5", TypeError),
        (admin.create_topic(None), "name cannot be None", TypeError),
        (admin.create_topic("x" * 40_000), "name cannot be 'xxx", ValueError),
        (admin.create_topic("\ud800"), "name cannot be ", ValueError),
        (admin.delete_group(7), "key cannot be 7", TypeError),
        (admin.alter_configs("unfit", {"retention.ms": b"5"}), "value cannot be b'5'", TypeError),
    ]
    for call, told, kind in wrong:
        with pytest.raises((TypeError, ValueError), match=f"{told}") as caught:
            await call
        assert isinstance(caught.value, TypeError) == (kind is TypeError)
    assert "unfit" not in await admin.topics()


def test_a_malformed_list_of_brokers_is_told_by_the_name_of_the_setting():
    for servers in ("nowhere", "a:1,b", [], "a:70000"):
        with pytest.raises(ConfigError, match=r"^bootstrap_servers must "):
            headrace.Admin(servers)


async def test_streams_are_made_described_grown_and_deleted(admin):
    await admin.create_topic("made", partitions=2, configs={"retention.ms": "5000"})
    assert (await admin.topics())["made"] == 2
    described = await admin.describe_topic("made")
    assert (described.topic, described.is_internal) == ("made", False)
    assert described.partitions[1] == PartitionDescription(1, 1, (1,), (1,))
    text = await refused(ErrorCode.TOPIC_ALREADY_EXISTS, admin.create_topic("made"))
    assert text.startswith("create made: TOPIC_ALREADY_EXISTS: ")
    await admin.create_partitions("made", 3)
    assert (await admin.topics())["made"] == 3
    await refused(ErrorCode.INVALID_PARTITIONS, admin.create_partitions("made", 3))
    await admin.create_topic("imagined", validate_only=True)
    assert "imagined" not in await admin.topics()
    await admin.delete_topic("made")
    assert "made" not in await admin.topics()
    for call in (admin.delete_topic("made"), admin.describe_topic("made")):
        with pytest.raises(UnknownStreamError):
            await call


async def test_internal_streams_are_shown_on_demand(admin, stream):
    await admin.alter_group_offsets("g", {TopicPartition(stream, 0): 0})
    assert "__offsets" not in await admin.topics()
    assert "__offsets" in await admin.topics(internal=True)


async def test_settings(admin, stream):
    before = (await admin.configs(stream))["retention.ms"]
    assert before.is_default
    await admin.alter_configs(stream, {"retention.ms": "5000"})
    own = Config("5000", is_default=False, is_read_only=False)
    assert (await admin.configs(stream))["retention.ms"] == own
    text = await refused(
        ErrorCode.INVALID_CONFIG, admin.alter_configs(stream, {"retention.ms": "soon"})
    )
    assert "retention.ms" in text
    await admin.alter_configs(stream, {"retention.ms": None})
    assert (await admin.configs(stream))["retention.ms"] == before
    with pytest.raises(UnknownStreamError):
        await admin.configs("nowhere")


async def test_records_are_deleted(admin, node, stream):
    fill(node, stream, 10)
    zero, one = TopicPartition(stream, 0), TopicPartition(stream, 1)
    assert await admin.delete_records({zero: 4, one: 0}) == {zero: 4, one: 0}
    assert await admin.delete_records({zero: -1}) == {zero: 10}
    await refused(ErrorCode.OFFSET_OUT_OF_RANGE, admin.delete_records({zero: 11}))


async def test_groups_and_their_offsets(admin, node, stream):
    group, zero = f"g-{stream}", TopicPartition(stream, 0)
    fill(node, stream, 10)
    assert (await admin.describe_group(group)).state == "Dead"
    await admin.alter_group_offsets(group, {zero: 3})
    assert (await admin.groups())[group] == ""
    assert await admin.group_offsets(group) == {zero: OffsetAndMetadata(3)}
    assert await admin.group_offsets(group, [TopicPartition(stream, 1)]) == {}
    moved = await admin.reset_group_offsets(group, [stream], STAMP + 6500)
    assert moved == {TopicPartition(stream, p): 7 if p == 0 else 0 for p in range(3)}
    assert (await admin.reset_group_offsets(group, [stream], "latest"))[zero] == 10
    assert (await admin.reset_group_offsets(group, [stream], "earliest"))[zero] == 0
    assert len(await admin.reset_group_offsets(group, stream, "latest")) > 1
    assert await admin.reset_group_offsets(group, [zero], "earliest") == {zero: 0}
    with pytest.raises(ValueError, match="to must be earliest, latest or a time in ms; got -2"):
        await admin.reset_group_offsets(group, stream, -2)
    with pytest.raises(ValueError, match="an offset is 0 or more; got -2"):
        await admin.alter_group_offsets(group, {zero: -2})
    with pytest.raises(TypeError, match="a partition is a TopicPartition"):
        await admin.group_offsets(group, zero)
    assert (await admin.group_offsets(group, [zero]))[zero].offset == 0
    with pytest.raises(ValueError, match="to must be earliest, latest or a time"):
        await admin.reset_group_offsets(group, [stream], "first")
    await admin.delete_group_offsets(group, [zero])
    assert zero not in await admin.group_offsets(group)
    async with headrace.Consumer(
        node.servers, stream, group_id=group, client_id="me", heartbeat_interval_ms=50
    ) as consumer:
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=20)
        described = await admin.describe_group(group)
        assert (described.state, described.protocol) == ("Stable", "range")
        (member,) = described.members
        assert (member.client_id, member.host) == ("me", "127.0.0.1")
        assert member.assignment == tuple(TopicPartition(stream, p) for p in range(3))
        assert (await admin.groups())[group] == "consumer"
        await refused(ErrorCode.NON_EMPTY_GROUP, admin.delete_group(group))
        await refused(
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, admin.delete_group_offsets(group, [zero])
        )
        await refused(ErrorCode.UNKNOWN_MEMBER_ID, admin.alter_group_offsets(group, {zero: 1}))
    await admin.delete_group(group)
    assert group not in await admin.groups()
    await refused(ErrorCode.GROUP_ID_NOT_FOUND, admin.delete_group(group))


async def test_calls_back_off_as_the_settings_say(monkeypatch):
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    async def attempt():
        if len(waits) < 6:
            raise ConnectionLostError("not yet")
        return "there"

    monkeypatch.setattr(asyncio, "sleep", sleep)
    config = AdminConfig(retry_backoff_ms=2, retry_backoff_max_ms=16)
    assert await Cluster(config).persist("it", attempt) == "there"
    for wait_s, most_ms in zip(waits, [2, 4, 8, 16, 16, 16], strict=True):
        assert most_ms / 2 <= wait_s * 1000 <= most_ms
