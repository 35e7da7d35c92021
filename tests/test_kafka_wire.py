"""The Kafka codec: bytes written by hand from the protocol guide, and whatever may come instead."""

import contextlib
import tracemalloc
import types
from dataclasses import fields, is_dataclass
from struct import pack
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import limits
from headrace.errors import MalformedError
from headrace.wire.kafka import admin, apis, codec, frames, groups, members
from headrace.wire.kafka import messages as m
from headrace.wire.kafka.codec import Kept, Versions, decode, encode, uvarint
from headrace.wire.kafka.errors import ErrorCode

EVERY_VERSION = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in apis.APIS.values()
    for version in range(api.first, api.last + 1)
]


def answered(request, body):
    """The frame of a response, joined."""
    return b"".join(frames.encode_response(request, body))


# --- bytes by hand -----------------------------------------------------------------------------


def test_a_request_has_header_version_1():
    frame = frames.encode_request(
        apis.FIND_COORDINATOR, 1, 7, "me", groups.FindCoordinatorRequest(key="g")
    )
    assert frame == (
        pack(">i", 16) + pack(">hhi", 10, 1, 7) + b"\x00\x02me" + b"\x00\x01g" + b"\x00"
    )


def test_api_versions_3_has_header_version_2_and_compact_fields():
    body = b"\x00\x12\x00\x03\x00\x00\x00\x05\x00\x02rd\x00\x04lib\x042.0\x00"
    request = frames.decode_request(body)
    assert (request.version, request.correlation_id, request.client_id) == (3, 5, "rd")
    assert request.body == m.ApiVersionsRequest(
        client_software_name="lib", client_software_version="2.0"
    )


def test_api_versions_3_answers_with_the_ordinary_header():
    request = frames.decode_request(b"\x00\x12\x00\x03\x00\x00\x00\x05\xff\xff\x00\x01\x01\x00")
    ranges = [m.ApiVersionRange(api_key=3, min_version=0, max_version=8)]
    frame = answered(request, m.ApiVersionsResponse(api_keys=ranges))
    assert frame == (
        pack(">i", 19)
        + pack(">i", 5)  # no tagged fields after the correlation id
        + pack(">h", 0)
        + b"\x02"  # one element, compact
        + pack(">hhh", 3, 0, 8)
        + b"\x00"
        + pack(">i", 0)
        + b"\x00"
    )


def test_unknown_tagged_fields_are_skipped():
    tagged = b"\x02\x00\x01x\x07\x03abc"
    body = b"\x00\x12\x00\x03\x00\x00\x00\x05\xff\xff" + tagged + b"\x02a\x02b" + tagged
    assert frames.decode_request(body).body.client_software_name == "a"


@pytest.mark.parametrize("version", [4, 5, 32767, -1])
def test_api_versions_above_the_range_is_answered_in_version_0(version):
    request = frames.decode_request(pack(">hhi", 18, version, 9) + b"whatever it may hold")
    assert (request.api, request.version, request.body) == (apis.API_VERSIONS, 0, None)
    refusal = m.ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
    assert answered(request, refusal) == pack(">iihi", 10, 9, 35, 0)


def test_metadata_0_asks_for_all_with_an_empty_array_and_1_with_null():
    header = b"\x00\x00\x00\x01\xff\xff"
    empty = frames.decode_request(b"\x00\x03\x00\x00" + header + b"\x00\x00\x00\x00")
    null = frames.decode_request(b"\x00\x03\x00\x01" + header + b"\xff\xff\xff\xff")
    assert empty.body.topics == []
    assert null.body.topics is None


def test_a_produce_request_of_version_7():
    body = (
        pack(">hhi", 0, 7, 3)
        + b"\x00\x01c"
        + b"\xff\xff"  # no transactional id
        + pack(">hi", -1, 30000)
        + pack(">i", 1)
        + b"\x00\x01t"
        + pack(">i", 1)
        + pack(">i", 4)
        + pack(">i", 3)
        + b"abc"
    )
    partition = m.ProducePartition(index=4, records=b"abc")
    assert frames.decode_request(body).body == m.ProduceRequest(
        acks=-1, timeout_ms=30000, topics=[m.ProduceTopic(name="t", partitions=[partition])]
    )


def test_produce_below_3_has_no_transactional_id():
    body = pack(">hhi", 0, 2, 3) + b"\xff\xff" + pack(">hii", 1, 100, 0)
    assert frames.decode_request(body).body == m.ProduceRequest(acks=1, timeout_ms=100, topics=[])


def test_a_fetch_response_of_version_4_ends_with_its_records():
    request = frames.Request(apis.FETCH, 4, 2, None, None)
    answer = m.FetchPartitionResponse(
        partition_index=1, high_watermark=9, last_stable_offset=8, log_start_offset=3, records=b"R"
    )
    topic = m.FetchTopicResponse(topic="t", partitions=[answer])
    assert answered(request, m.FetchResponse(topics=[topic]))[4:] == (
        pack(">i", 2)
        + pack(">i", 0)  # throttle; error and session only from version 7 on
        + pack(">i", 1)
        + b"\x00\x01t"
        + pack(">i", 1)
        + pack(">ihqq", 1, 0, 9, 8)
        + pack(">i", -1)  # aborted transactions: null
        + pack(">i", 1)
        + b"R"
    )


def test_records_that_are_large_are_pieces_of_their_response_as_they_are():
    request = frames.Request(apis.FETCH, apis.FETCH.last, 2, None, None)
    many = [memoryview(bytes([n]) * limits.MIB) for n in range(2)]
    parts = [
        m.FetchPartitionResponse(partition_index=n, records=records)
        for n, records in enumerate((b"few", *many, b""))
    ]
    body = m.FetchResponse(topics=[m.FetchTopicResponse(topic="t", partitions=parts)])
    pieces = frames.encode_response(request, body)
    assert [piece for piece in pieces if len(piece) > 1000] == many
    assert pieces[1] is many[0]
    assert pieces[3] is many[1]
    joined = b"".join(pieces)
    assert joined[:4] == pack(">i", len(joined) - 4)
    found = frames.decode_response(apis.FETCH, apis.FETCH.last, 2, joined[4:]).topics[0].partitions
    assert [part.records for part in found] == [b"few", *map(bytes, many), b""]


def test_offset_records_have_kafkas_own_layout():
    assert encode(
        groups.OffsetKey(group="g", topic="t", partition=2)
    ) == b"\x00\x01\x00\x01g\x00\x01t" + pack(">i", 2)
    value = groups.OffsetValue(offset=5, metadata="m", commit_timestamp=6)
    assert encode(value) == pack(">hqi", 3, 5, -1) + b"\x00\x01m" + pack(">q", 6)
    assert decode(groups.OffsetValue, encode(value)) == value


def test_group_records_have_kafkas_own_layout():
    assert encode(members.GroupKey(group="g")) == b"\x00\x02\x00\x01g"
    member = members.GroupValueMember(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="h",
        rebalance_timeout_ms=2,
        session_timeout_ms=1,
        subscription=b"s",
        assignment=b"",
    )
    value = members.GroupValue(
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader="m",
        current_state_timestamp=9,
        members=[member],
    )
    assert encode(value, 3) == (
        b"\x00\x03\x00\x08consumer"
        + pack(">i", 7)
        + b"\x00\x05range\x00\x01m"
        + pack(">qi", 9, 1)
        + b"\x00\x01m\xff\xff\x00\x01c\x00\x01h"
        + pack(">iii", 2, 1, 1)
        + b"s"
        + pack(">i", 0)
    )
    assert decode(members.GroupValue, encode(value, 3), 3) == value


def test_what_consumers_say_is_read_in_every_version():
    said = pack(">hi", 0, 1) + b"\x00\x01t" + pack(">i", -1)
    assert members.consumers(members.ConsumerSubscription, said).topics == ["t"]
    owned = pack(">i", 1) + b"\x00\x01t" + pack(">iii", 2, 0, 4)
    said = pack(">hi", 9, 1) + b"\x00\x01t" + pack(">i", -1) + owned + pack(">ih", 5, -1)
    read = members.consumers(members.ConsumerSubscription, said + b"a field of a later version")
    assert (read.owned_partitions, read.generation_id) == (
        [members.TopicPartitions(topic="t", partitions=[0, 4])],
        5,
    )
    for damaged in (b"", b"\x00", pack(">h", -1) + said[2:], said[:9]):
        with pytest.raises(MalformedError):
            members.consumers(members.ConsumerSubscription, damaged)


@pytest.mark.parametrize(
    ("value", "data"), [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02")]
)
def test_variable_length_integers(value, data):
    assert uvarint(value) == data


def test_error_codes_know_whether_a_retry_can_help():
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.retriable
    assert not ErrorCode.OFFSET_OUT_OF_RANGE.retriable
    assert ErrorCode(36).name == "TOPIC_ALREADY_EXISTS"
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR


# --- every API in every version ------------------------------------------------------------------

PRIMITIVES = {
    codec.Int8: st.integers(-(2**7), 2**7 - 1),
    codec.Int16: st.integers(-(2**15), 2**15 - 1),
    codec.Int32: st.integers(-(2**31), 2**31 - 1),
    codec.Int64: st.integers(-(2**63), 2**63 - 1),
    codec.Bool: st.booleans(),
    codec.String: st.text(max_size=8),
    codec.NullableString: st.none() | st.text(max_size=8),
    codec.Message: st.none() | st.text(max_size=8),
    codec.Bytes: st.binary(max_size=8),
    codec.Records: st.none() | st.binary(max_size=8),
}


def strategy_for(hint, version, flexible):
    for mark in getattr(hint, "__metadata__", ()):
        for primitive, strategy in PRIMITIVES.items():
            if mark is primitive.__metadata__[0]:
                return strategy
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if isinstance(hint, types.UnionType):
        arm = next(a for a in get_args(hint) if a is not types.NoneType)
        return st.none() | strategy_for(arm, version, flexible)
    if is_dataclass(hint):
        return messages_of(hint, version, flexible)
    return st.lists(strategy_for(get_args(hint)[0], version, flexible), max_size=3)


def messages_of(cls, version, flexible):
    hints = get_type_hints(cls, include_extras=True)
    carried = {}
    for declared in fields(cls):
        hint = hints[declared.name]
        marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Versions)]
        if all(mark.first <= version <= mark.last for mark in marks):
            carried[declared.name] = strategy_for(hint, version, flexible)
    return st.builds(cls, **carried)


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_every_message_comes_back_as_it_went(api, version, data):
    flexible = api.flexible(version)
    body = data.draw(messages_of(api.request, version, flexible))
    sent = frames.encode_request(api, version, 77, "client", body)
    request = frames.decode_request(sent[4:])
    assert request == frames.Request(api, version, 77, "client", body)
    answer = data.draw(messages_of(api.response, version, flexible))
    frame = answered(request, answer)[4:]
    assert frames.decode_response(api, version, 77, frame) == answer


@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_a_message_cut_off_anywhere_is_malformed(api, version, data):
    body = data.draw(messages_of(api.request, version, api.flexible(version)))
    frame = frames.encode_request(api, version, 1, "c", body)[4:]
    for length in range(len(frame)):
        with pytest.raises(MalformedError):
            frames.decode_request(frame[:length])


# --- what a hostile peer may send ----------------------------------------------------------------


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(EVERY_VERSION))
def test_garbage_is_read_or_malformed_and_nothing_else(garbage, case):
    api, version = case.values
    with contextlib.suppress(MalformedError):
        frames.decode_request(pack(">hhi", api.key, version, 1) + garbage)


def test_a_hostile_array_count_is_refused_before_it_allocates():
    header = pack(">hhi", 3, 1, 1) + b"\xff\xff"
    for count in (2**31 - 1, limits.KAFKA_REQUEST_ELEMENTS_MAX + 1, 2, -2):
        with pytest.raises(MalformedError, match=r"array|length"):
            frames.decode_request(header + pack(">i", count) + b"\x00")


def test_elements_are_counted_over_the_whole_request():
    inner = pack(">i", 50_000) + pack(">i", 1) * 50_000
    frame = (
        pack(">hhi", 9, 1, 1) + b"\xff\xff\x00\x01g" + pack(">i", 3) + (b"\x00\x01t" + inner) * 3
    )
    with pytest.raises(MalformedError, match="array of 50000"):
        frames.decode_request(frame)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        pack(">hhi", 99, 0, 1) + b"\xff\xff",
        pack(">hhi", -1, 0, 1) + b"\xff\xff",
        pack(">hhi", 1, 3, 1) + b"\xff\xff",
        pack(">hhi", 1, 12, 1) + b"\xff\xff",
        pack(">hhi", 10, 0, 1) + b"\xff\xff" + b"\xff\xff",  # the group is null
        pack(">hhi", 10, 0, 1) + b"\xff\xff" + b"\x00\x01\xff",  # not UTF-8
        pack(">hhi", 18, 3, 1) + b"\xff\xff" + b"\x00" + b"\xff" * 6,  # endless length
    ],
    ids=["empty", "unknown", "negative", "too old", "too new", "null", "text", "endless"],
)
def test_malformed_requests(frame):
    with pytest.raises(MalformedError):
        frames.decode_request(frame)


def test_a_response_to_another_request_is_malformed():
    with pytest.raises(MalformedError, match="response 5 to request 6"):
        frames.decode_response(apis.FIND_COORDINATOR, 0, 6, pack(">i", 5))


# --- frames --------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=50), max_size=8), st.data())
def test_frames_come_out_whole_however_they_are_cut(bodies, data):
    stream = b"".join(pack(">i", len(body)) + body for body in bodies)
    framer, out = frames.Framer(50), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        framer.feed(stream[:cut])
        stream = stream[cut:]
        out += iter(framer.take, None)
    assert out == bodies
    assert framer.held_bytes == 0


@pytest.mark.parametrize("length", [100_000_000, 2**31 - 1, 51, -1, -(2**31)])
def test_a_length_beyond_the_bound_is_refused_with_its_first_four_bytes(length):
    framer = frames.Framer(50)
    framer.feed(pack(">i", length)[:3])
    assert framer.take() is None
    framer.feed(pack(">i", length)[3:])
    with pytest.raises(MalformedError, match="bound"):
        framer.take()


def test_frames_before_a_bad_length_are_not_lost():
    framer = frames.Framer(50)
    framer.feed(pack(">i", 1) + b"a" + pack(">i", 51))
    assert framer.take() == b"a"
    with pytest.raises(MalformedError):
        framer.take()


def test_a_message_for_people_is_cut_rather_than_too_long_for_its_field():
    result = admin.AlterConfigsResult(
        error_message="ä" * 40_000, resource_type=2, resource_name="a"
    )
    for flexible in (False, True):
        read, write = codec.codec_of(admin.AlterConfigsResult, 0, flexible=flexible)
        out = []
        write(out, result)
        data = b"".join(out)
        assert read(codec.Reader(data, len(data))).error_message == "ä" * 1000


def test_an_array_that_is_kept_is_written_as_any_other_in_every_version():
    partitions = [
        m.MetadataPartition(partition_index=n, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        for n in range(3)
    ]
    kept = Kept(partitions)
    for version in [*range(apis.METADATA.first, apis.METADATA.last + 1)] * 2:
        expected = encode(m.MetadataTopic(name="t", partitions=partitions), version)
        assert encode(m.MetadataTopic(name="t", partitions=kept), version) == expected


def test_a_frame_in_very_small_pieces_takes_little_more_than_its_size():
    framer, size = frames.Framer(1 << 20), 200_000
    data = pack(">i", size) + bytes(size)
    tracemalloc.start()
    try:
        for at in range(0, len(data), 2):
            assert framer.take() is None
            framer.feed(data[at : at + 2])
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 2 * size
    assert framer.take() == bytes(size)
    assert framer.held_bytes == 0
