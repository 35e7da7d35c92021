"""The admin clients that people have, on groups: list, describe, offsets, delete."""

import asyncio

import aiokafka.admin
import kafka.admin
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import OffsetAndMetadata
from kafka import TopicPartition as KafkaPartition

from conftest import wait_for
from groupmember import Member
from test_kafka_group_clients import reads

pytestmark = [pytest.mark.clients, pytest.mark.slow]


@pytest.fixture
def node(shared):
    return shared


@pytest.fixture
def names(node, request):
    """A stream of twelve partitions and a group of one member that reads them."""
    name = request.node.name
    node.create_stream(name, partitions=12)
    return name


@pytest.fixture
def member(node, names):
    member = Member("confluent-kafka", "range", node.servers, names, names)
    wait_for(lambda: reads(node, names, 1))
    yield member
    member.stop()


@pytest.mark.shows("confluent-kafka", "groups managed")
def test_confluent_kafka_looks_after_groups(node, names, member):
    client = AdminClient({"bootstrap.servers": node.servers})
    listed = client.list_consumer_groups().result(30)
    assert listed.errors == []
    assert names in {each.group_id for each in listed.valid}
    found = client.describe_consumer_groups([names])[names].result(30)
    assert (found.state.name, found.partition_assignor) == ("STABLE", "range")
    (one,) = found.members
    assert (one.client_id, one.host) == ("rdkafka", "/127.0.0.1")
    assert len(one.assignment.topic_partitions) == 12

    stands = ConsumerGroupTopicPartitions(names, [TopicPartition(names, 3)])
    asked = ConsumerGroupTopicPartitions(names, [TopicPartition(names, 3, 0)])
    altered = client.alter_consumer_group_offsets([asked])[names].result(30)
    codes = [each.error.code() for each in altered.topic_partitions]
    assert codes == [KafkaError.UNKNOWN_MEMBER_ID], "its member would commit over it"
    with pytest.raises(KafkaException) as refused:
        client.delete_consumer_groups([names])[names].result(30)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    member.stop()
    client.alter_consumer_group_offsets([asked])[names].result(30)
    offsets = client.list_consumer_group_offsets([stands])[names].result(30)
    assert [(each.partition, each.offset) for each in offsets.topic_partitions] == [(3, 0)]
    assert client.delete_consumer_groups([names])[names].result(30) is None
    with pytest.raises(KafkaException) as refused:
        client.delete_consumer_groups([names])[names].result(30)
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND


@pytest.mark.shows("kafka-python", "groups managed")
def test_kafka_python_looks_after_groups(node, names, member):
    client = kafka.admin.KafkaAdminClient(bootstrap_servers=node.servers)
    try:
        listed = {each["group_id"] for each in client.list_groups()}
        assert names in listed
        found = client.describe_groups([names])[names]
        assert (found["group_state"], len(found["members"])) == ("Stable", 1)
        member.stop()
        place = KafkaPartition(names, 3)
        client.alter_group_offsets(names, {place: OffsetAndMetadata(0, "", -1)})
        assert client.list_group_offsets(names)[names][place].offset == 0
        assert client.delete_groups([names]) is not None
        assert names not in {each["group_id"] for each in client.list_groups()}
    finally:
        client.close()


@pytest.mark.shows("aiokafka", "groups managed")
def test_aiokafka_looks_after_groups(node, names, member):
    async def look():
        client = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=node.servers)
        await client.start()
        try:
            assert (names, "consumer") in await client.list_consumer_groups()
            (answer,) = await client.describe_consumer_groups([names])
            return answer.groups[0]
        finally:
            await client.close()

    code, group, state, kind, strategy, members, *_ = asyncio.run(look())
    assert (code, group, state, kind, strategy) == (0, names, "Stable", "consumer", "range")
    assert len(members) == 1
    assert not member.values
